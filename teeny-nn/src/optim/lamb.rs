//! LAMB and LARS: steps whose norm is a fraction of the parameter's norm, for large batches.
//!
//! Both norms stay on the device: a step does not wait for it.

use super::{
    Optimizer, ParamGroup, ParamStates, common_options, kernel_params, outputs, states_methods,
};
use crate::options::setters;
use crate::store::Param;
use teeny_core::{Builder, DType, Kernel, Result, Scalar, Tensor, map};

/// LAMB: Adam's direction, scaled by the norm of the parameter.
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
    states: ParamStates,
    beta1: f64,
    beta2: f64,
    eps: f64,
}

kernel_params! {
    LambParams {
        /// `1 - beta1`.
        one_minus_beta1,
        beta2,
        /// `1 - beta2`.
        one_minus_beta2,
        /// `1 - beta1^t`.
        correction1,
        /// `1 - beta2^t`.
        correction2,
        eps,
        decay,
    }
}

impl Lamb {
    /// LAMB with learning rate `lr`, betas 0.9 and 0.999, eps 1e-6, and the paper's weight decay of
    /// 0.01.
    pub fn new(params: Vec<Param>, lr: f64) -> Lamb {
        Lamb { states: ParamStates::new(params, lr), beta1: 0.9, beta2: 0.999, eps: 1e-6 }
            .weight_decay(0.01)
    }

    common_options!();

    /// Sets the decay rates of both moment estimates.
    pub fn betas(mut self, beta1: f64, beta2: f64) -> Lamb {
        self.beta1 = self.states.checked("beta1", beta1, 0.0..1.0);
        self.beta2 = self.states.checked("beta2", beta2, 0.0..1.0);
        self
    }

    /// Sets the term added to the denominator.
    pub fn eps(mut self, eps: f64) -> Lamb {
        self.eps = self.states.checked("eps", eps, 0.0..);
        self
    }
}

impl Optimizer for Lamb {
    states_methods!();

    fn state_names(&self) -> &'static [&'static str] {
        &["mean", "square"]
    }

    fn update(&mut self, i: usize, value: &Tensor, gradient: &Tensor) -> Result<Tensor> {
        let types = (value.dtype(), gradient.dtype());
        let kernel = self.states.kernel(value, gradient, 0, || program(types))?;
        let ([mean, square], steps) = self.states.state(i, value)?;
        let t = steps as f64 + 1.0;
        let params = LambParams {
            one_minus_beta1: 1.0 - self.beta1,
            beta2: self.beta2,
            one_minus_beta2: 1.0 - self.beta2,
            correction1: 1.0 - self.beta1.powf(t),
            correction2: 1.0 - self.beta2.powf(t),
            eps: self.eps,
            decay: self.states.weight_decay_of(i),
        };
        let [direction, mean, square] =
            outputs(kernel.run(&[value, gradient, &mean, &square], &params.scalars())?)?;
        let (own, step) = (norm(value)?, norm(&direction)?); // (), ()
        let trust = map([&own, &step], |[own, step]| {
            let both = own.gt(0.0).and(step.gt(0.0));
            both.where_cond(own / step, 1.0)
        })?; // ()
        let kernel = self.states.kernel(value, &direction, 1, || move_by(types.0))?;
        let [value] = outputs(
            kernel.run(&[value, &direction, &trust], &[Scalar::Float(self.states.lr_of(i))])?,
        )?;
        self.states.set_state(i, [mean, square]);
        Ok(value)
    }
}

/// LARS: gradient descent with momentum, each step scaled by the norm of the parameter.
///
/// ```text
/// u = g + weight_decay w
/// trust = coefficient |w| / (|g| + weight_decay |w| + eps), or 1 where |w| or |g| is 0
/// v ← momentum v + lr trust u            w ← w - v
/// ```
///
/// Source: You, Gitman & Ginsburg 2017, arXiv:1708.03888, algorithm 1. PyTorch has no equivalent.
pub struct Lars {
    states: ParamStates,
    momentum: f64,
    trust_coefficient: f64,
    eps: f64,
}

kernel_params! {
    LarsParams { trust_coefficient, decay, eps, momentum, lr, }
}

impl Lars {
    /// LARS with learning rate `lr`, momentum 0.9, the paper's trust coefficient of 0.001, eps 1e-8
    /// and no weight decay.
    pub fn new(params: Vec<Param>, lr: f64) -> Lars {
        Lars {
            states: ParamStates::new(params, lr),
            momentum: 0.9,
            trust_coefficient: 0.001,
            eps: 1e-8,
        }
    }

    common_options!();

    setters! {
        self;
        /// Sets the momentum.
        momentum(momentum: f64) => momentum = self.states.checked("momentum", momentum, 0.0..);
        /// Sets the trust coefficient: the norm of a step at a learning rate of 1, as a fraction of
        /// the parameter's norm.
        trust_coefficient(coefficient: f64) =>
            trust_coefficient = self.states.checked("trust_coefficient", coefficient, 0.0..);
        /// Sets the term added to the denominator.
        eps(eps: f64) => eps = self.states.checked("eps", eps, 0.0..);
    }
}

impl Optimizer for Lars {
    states_methods!();

    fn state_names(&self) -> &'static [&'static str] {
        &["velocity"]
    }

    fn update(&mut self, i: usize, value: &Tensor, gradient: &Tensor) -> Result<Tensor> {
        let types = (value.dtype(), gradient.dtype());
        let kernel = self.states.kernel(value, gradient, 0, || lars_program(types))?;
        let (own, slope) = (norm(value)?, norm(gradient)?); // (), ()
        let ([velocity], _) = self.states.state(i, value)?;
        let params = LarsParams {
            trust_coefficient: self.trust_coefficient,
            decay: self.states.weight_decay_of(i),
            eps: self.eps,
            momentum: self.momentum,
            lr: self.states.lr_of(i),
        };
        let [value, velocity] =
            outputs(kernel.run(&[value, gradient, &velocity, &own, &slope], &params.scalars())?)?;
        self.states.set_state(i, [velocity]);
        Ok(value)
    }
}

/// √(Σ x²) in the compute dtype: () on the device.
fn norm(x: &Tensor) -> Result<Tensor> {
    x.cast(x.dtype().compute())?.vector_norm(2.0, ..)
}

/// Inputs w, g, m, v; parameters [`LambParams`]; outputs direction, m, v.
fn program((dtype, gradient): (DType, DType)) -> Result<Kernel> {
    let b = Builder::new();
    let compute = dtype.compute();
    let (w, g) = (b.input(dtype).cast(compute), b.input(gradient).cast(compute));
    let (m, v) = (b.input(compute), b.input(compute));
    let p = LambParams::declare(&b, compute);
    let m = m + (g - m) * p.one_minus_beta1;
    let v = v * p.beta2 + g * g * p.one_minus_beta2;
    let size = (v / p.correction2).sqrt() + p.eps;
    b.finish(&[(m / p.correction1) / size + w * p.decay, m, v])
}

/// Inputs w, direction, trust; parameter lr; output w.
fn move_by(dtype: DType) -> Result<Kernel> {
    let b = Builder::new();
    let compute = dtype.compute();
    let (w, direction, trust) = (b.input(dtype).cast(compute), b.input(compute), b.input(compute));
    b.finish(&[(w - direction * (trust * b.param(compute))).cast(dtype)])
}

/// Inputs w, g, v, |w|², |g|²; parameters [`LarsParams`]; outputs w, v.
fn lars_program((dtype, gradient): (DType, DType)) -> Result<Kernel> {
    let b = Builder::new();
    let compute = dtype.compute();
    let (w, g, v) =
        (b.input(dtype).cast(compute), b.input(gradient).cast(compute), b.input(compute));
    let (own, slope) = (b.input(compute), b.input(gradient.compute()).cast(compute));
    let p = LarsParams::declare(&b, compute);
    let both = own.gt(0.0).and(slope.gt(0.0));
    let size = slope + own * p.decay + p.eps;
    let trust = both.where_cond(own * p.trust_coefficient / size, 1.0);
    let v = v * p.momentum + (g + w * p.decay) * (trust * p.lr);
    b.finish(&[(w - v).cast(dtype), v])
}
