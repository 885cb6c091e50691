//! LAMB and LARS: steps whose length is a fraction of the parameter's own, for large batches.
//!
//! The two norms stay on the device: a step waits for nothing.

use super::{Group, Ledger, Optimizer, its_ledger, outputs, settings};
use crate::store::Param;
use teeny_core::{Builder, DType, Kernel, Result, Scalar, Tensor, map};

/// Adam's direction, scaled to the length of the parameter.
///
/// ```text
/// m ← m + (1 - beta1) (g - m)            v ← beta2 v + (1 - beta2) g²
/// u = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay w
/// w ← w - lr trust u                     trust = |w| / |u|, or 1 where either is 0
/// ```
///
/// Source: You et al. 2019, arXiv:1904.00962, algorithm 2 with φ the identity. PyTorch has no
/// equivalent.
pub struct Lamb {
    ledger: Ledger,
    beta1: f64,
    beta2: f64,
    eps: f64,
}

impl Lamb {
    /// LAMB at learning rate `lr`, with betas 0.9 and 0.999, eps 1e-6, and the paper's weight decay
    /// of 0.01.
    pub fn new(params: Vec<Param>, lr: f64) -> Lamb {
        Lamb { ledger: Ledger::new(params, lr), beta1: 0.9, beta2: 0.999, eps: 1e-6 }
            .weight_decay(0.01)
    }

    settings!();

    /// How slowly the estimates of mean and size forget.
    pub fn betas(mut self, beta1: f64, beta2: f64) -> Lamb {
        (self.beta1, self.beta2) = (beta1, beta2);
        self
    }

    /// What keeps the division finite.
    pub fn eps(mut self, eps: f64) -> Lamb {
        self.eps = eps;
        self
    }
}

impl Optimizer for Lamb {
    its_ledger!();

    fn slots(&self) -> &'static [&'static str] {
        &["mean", "square"]
    }

    fn update(&mut self, i: usize, value: &Tensor, gradient: &Tensor) -> Result<Tensor> {
        let types = (value.dtype(), gradient.dtype());
        let kernel = self.ledger.kernel(value, gradient, 0, || program(types))?;
        let ([mean, square], steps) = self.ledger.recall(i, value)?;
        let t = steps as f64 + 1.0;
        let corrections = [1.0 - self.beta1.powf(t), 1.0 - self.beta2.powf(t)];
        let [c1, c2] = corrections;
        let numbers = [
            1.0 - self.beta1,
            self.beta2,
            1.0 - self.beta2,
            c1,
            c2,
            self.eps,
            self.ledger.weight_decay_of(i),
        ]
        .map(Scalar::Float);
        let [direction, mean, square] =
            outputs(kernel.run(&[value, gradient, &mean, &square], &numbers)?)?;
        let (own, step) = (square_sum(value)?, square_sum(&direction)?); // (), ()
        let trust = map([&own, &step], |[own, step]| {
            let both = own.gt(0.0).and(step.gt(0.0));
            both.select((own / step).sqrt(), 1.0)
        })?; // ()
        let kernel = self.ledger.kernel(value, &direction, 1, || move_by(types.0))?;
        let [value] = outputs(
            kernel.run(&[value, &direction, &trust], &[Scalar::Float(self.ledger.lr_of(i))])?,
        )?;
        self.ledger.remember(i, [mean, square]);
        Ok(value)
    }
}

/// Gradient descent with momentum, each step scaled to the length of the parameter.
///
/// ```text
/// u = g + weight_decay w
/// trust = coefficient |w| / (|g| + weight_decay |w| + eps), or 1 where |w| or |g| is 0
/// v ← momentum v + lr trust u            w ← w - v
/// ```
///
/// Source: You, Gitman & Ginsburg 2017, arXiv:1708.03888, algorithm 1. PyTorch has no equivalent.
pub struct Lars {
    ledger: Ledger,
    momentum: f64,
    coefficient: f64,
    eps: f64,
}

impl Lars {
    /// LARS at learning rate `lr`, with momentum 0.9, the paper's trust coefficient of 0.001, eps
    /// 1e-8 and no weight decay.
    pub fn new(params: Vec<Param>, lr: f64) -> Lars {
        Lars { ledger: Ledger::new(params, lr), momentum: 0.9, coefficient: 0.001, eps: 1e-8 }
    }

    settings!();

    /// How much of the last step is kept.
    pub fn momentum(mut self, momentum: f64) -> Lars {
        self.momentum = momentum;
        self
    }

    /// The fraction of its own length that a parameter moves at a learning rate of 1.
    pub fn coefficient(mut self, coefficient: f64) -> Lars {
        self.coefficient = coefficient;
        self
    }

    /// What keeps the division finite.
    pub fn eps(mut self, eps: f64) -> Lars {
        self.eps = eps;
        self
    }
}

impl Optimizer for Lars {
    its_ledger!();

    fn slots(&self) -> &'static [&'static str] {
        &["velocity"]
    }

    fn update(&mut self, i: usize, value: &Tensor, gradient: &Tensor) -> Result<Tensor> {
        let types = (value.dtype(), gradient.dtype());
        let kernel = self.ledger.kernel(value, gradient, 0, || lars_program(types))?;
        let (own, slope) = (square_sum(value)?, square_sum(gradient)?); // (), ()
        let ([velocity], _) = self.ledger.recall(i, value)?;
        let decay = self.ledger.weight_decay_of(i);
        let numbers = [self.coefficient, decay, self.eps, self.momentum, self.ledger.lr_of(i)]
            .map(Scalar::Float);
        let [value, velocity] =
            outputs(kernel.run(&[value, gradient, &velocity, &own, &slope], &numbers)?)?;
        self.ledger.remember(i, [velocity]);
        Ok(value)
    }
}

/// Σ x² in the type that state is kept in: () on the device.
fn square_sum(x: &Tensor) -> Result<Tensor> {
    x.cast(x.dtype().compute())?.square()?.sum_all()
}

/// Inputs w, g, m, v; parameters 1 - beta1, beta2, 1 - beta2, both corrections, eps, decay; outputs
/// direction, m, v.
fn program((dtype, gradient): (DType, DType)) -> Result<Kernel> {
    let b = Builder::new();
    let compute = dtype.compute();
    let (w, g) = (b.input(dtype).cast(compute), b.input(gradient).cast(compute));
    let (m, v) = (b.input(compute), b.input(compute));
    let [rest1, beta2, rest2, correct1, correct2, eps, decay] = [0; 7].map(|_| b.param(compute));
    let m = m + (g - m) * rest1;
    let v = v * beta2 + g * g * rest2;
    b.finish(&[(m / correct1) / ((v / correct2).sqrt() + eps) + w * decay, m, v])
}

/// Inputs w, direction, trust; parameter lr; output w.
fn move_by(dtype: DType) -> Result<Kernel> {
    let b = Builder::new();
    let compute = dtype.compute();
    let (w, direction, trust) = (b.input(dtype).cast(compute), b.input(compute), b.input(compute));
    b.finish(&[(w - direction * (trust * b.param(compute))).cast(dtype)])
}

/// Inputs w, g, v, |w|², |g|²; parameters coefficient, decay, eps, momentum, lr; outputs w, v.
fn lars_program((dtype, gradient): (DType, DType)) -> Result<Kernel> {
    let b = Builder::new();
    let compute = dtype.compute();
    let (w, g, v) =
        (b.input(dtype).cast(compute), b.input(gradient).cast(compute), b.input(compute));
    let (own, slope) = (b.input(compute).sqrt(), b.input(gradient.compute()).cast(compute).sqrt());
    let [coefficient, decay, eps, momentum, lr] = [0; 5].map(|_| b.param(compute));
    let both = own.gt(0.0).and(slope.gt(0.0));
    let trust = both.select(own * coefficient / (slope + own * decay + eps), 1.0);
    let v = v * momentum + (g + w * decay) * (trust * lr);
    b.finish(&[(w - v).cast(dtype), v])
}
