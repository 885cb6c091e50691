//! Adagrad.

use super::{Group, Ledger, Optimizer, its_ledger, outputs, settings};
use crate::store::Param;
use teeny_core::{Builder, DType, Kernel, Result, Scalar, Tensor};

/// Steps divided by the root of the sum of all squared gradients so far.
///
/// ```text
/// g ← g + weight_decay w
/// s ← s + g²                       s starts at initial
/// w ← w - lr / (1 + (t - 1) lr_decay) g / (sqrt(s) + eps)
/// ```
///
/// Equivalent: `torch.optim.Adagrad`. Source: Duchi, Hazan & Singer 2011.
pub struct Adagrad {
    ledger: Ledger,
    lr_decay: f64,
    initial: f64,
    eps: f64,
}

impl Adagrad {
    /// Adagrad at learning rate `lr`, with eps 1e-10 and everything else 0.
    pub fn new(params: Vec<Param>, lr: f64) -> Adagrad {
        Adagrad { ledger: Ledger::new(params, lr), lr_decay: 0.0, initial: 0.0, eps: 1e-10 }
    }

    settings!();

    /// How fast the learning rate falls with the steps.
    pub fn lr_decay(mut self, lr_decay: f64) -> Adagrad {
        self.lr_decay = lr_decay;
        self
    }

    /// What the sums start at.
    pub fn initial(mut self, initial: f64) -> Adagrad {
        self.initial = initial;
        self
    }

    /// What keeps the division finite.
    pub fn eps(mut self, eps: f64) -> Adagrad {
        self.eps = eps;
        self
    }
}

impl Optimizer for Adagrad {
    its_ledger!();

    fn slots(&self) -> &'static [&'static str] {
        &["sum"]
    }

    fn update(&mut self, i: usize, value: &Tensor, gradient: &Tensor) -> Result<Tensor> {
        let types = (value.dtype(), gradient.dtype());
        let kernel = self.ledger.kernel(value, gradient, 0, || program(types))?;
        let ([sum], steps) = self.ledger.recall(i, value)?;
        let lr = self.ledger.lr_of(i) / (1.0 + steps as f64 * self.lr_decay);
        let initial = if steps == 0 { self.initial } else { 0.0 };
        let numbers = [self.ledger.weight_decay_of(i), initial, self.eps, lr].map(Scalar::Float);
        let [value, sum] = outputs(kernel.run(&[value, gradient, &sum], &numbers)?)?;
        self.ledger.remember(i, [sum]);
        Ok(value)
    }
}

/// Inputs w, g, s; parameters decay, what to add to s, eps, lr; outputs w, s.
fn program((dtype, gradient): (DType, DType)) -> Result<Kernel> {
    let b = Builder::new();
    let compute = dtype.compute();
    let (w, g, s) =
        (b.input(dtype).cast(compute), b.input(gradient).cast(compute), b.input(compute));
    let [decay, initial, eps, lr] = [0; 4].map(|_| b.param(compute));
    let g = g + w * decay;
    let s = s + initial + g * g;
    b.finish(&[(w - g / (s.sqrt() + eps) * lr).cast(dtype), s])
}
