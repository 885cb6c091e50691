//! Adam and AdamW.

use super::{Group, Ledger, Optimizer, its_ledger, outputs, settings};
use crate::store::Param;
use teeny_core::{Builder, DType, Kernel, Result, Scalar, Tensor};

/// Steps scaled by running estimates of each gradient's mean and size.
///
/// ```text
/// m ← m + (1 - beta1) (g - m)            step = lr / (1 - beta1^t)
/// v ← beta2 v + (1 - beta2) g²           w ← w - step m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
/// ```
///
/// With [`Adam::amsgrad`], the divisor is the largest `sqrt(v)` so far. Weight decay is added to
/// the gradient by [`Adam::new`], and taken from the parameter (`w ← w (1 - lr weight_decay)`) by
/// [`Adam::decoupled`], which is AdamW. Equivalent: `torch.optim.Adam`, `torch.optim.AdamW`.
///
/// Source: Kingma & Ba 2014, arXiv:1412.6980; Loshchilov & Hutter 2017, arXiv:1711.05101.
///
/// # Example
/// ```
/// # use teeny_nn::{Store, optim::Adam};
/// # fn demo(store: &Store) -> Adam {
/// Adam::decoupled(store.trainable(), 3e-4).betas(0.9, 0.95).weight_decay(0.1)
/// # }
/// ```
pub struct Adam {
    ledger: Ledger,
    beta1: f64,
    beta2: f64,
    eps: f64,
    decoupled: bool,
    amsgrad: bool,
}

impl Adam {
    /// Adam at learning rate `lr`, with betas 0.9 and 0.999, eps 1e-8, and no weight decay.
    pub fn new(params: Vec<Param>, lr: f64) -> Adam {
        Adam {
            ledger: Ledger::new(params, lr),
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            decoupled: false,
            amsgrad: false,
        }
    }

    /// AdamW at learning rate `lr`, with PyTorch's weight decay of 0.01.
    pub fn decoupled(params: Vec<Param>, lr: f64) -> Adam {
        Adam { decoupled: true, ..Adam::new(params, lr) }.weight_decay(0.01)
    }

    settings!();

    /// How slowly the estimates of mean and size forget.
    pub fn betas(mut self, beta1: f64, beta2: f64) -> Adam {
        (self.beta1, self.beta2) = (beta1, beta2);
        self
    }

    /// What keeps the division finite.
    pub fn eps(mut self, eps: f64) -> Adam {
        self.eps = eps;
        self
    }

    /// Whether to divide by the largest estimate of the size so far. Source: Reddi et al. 2018,
    /// arXiv:1904.09237.
    pub fn amsgrad(mut self, amsgrad: bool) -> Adam {
        self.amsgrad = amsgrad;
        self
    }
}

impl Optimizer for Adam {
    its_ledger!();

    fn slots(&self) -> &'static [&'static str] {
        if self.amsgrad { &["mean", "square", "largest"] } else { &["mean", "square"] }
    }

    fn update(&mut self, i: usize, value: &Tensor, gradient: &Tensor) -> Result<Tensor> {
        let (lr, decay) = (self.ledger.lr_of(i), self.ledger.weight_decay_of(i));
        let (decoupled, amsgrad) = (self.decoupled, self.amsgrad);
        let types = (value.dtype(), gradient.dtype());
        let kernel =
            self.ledger.kernel(value, gradient, 0, || program(types, decoupled, amsgrad))?;
        let numbers = |steps: u64| {
            let t = steps as f64 + 1.0;
            let step = lr / (1.0 - self.beta1.powf(t));
            let root = (1.0 - self.beta2.powf(t)).sqrt();
            let decay = if decoupled { 1.0 - lr * decay } else { decay };
            [decay, 1.0 - self.beta1, self.beta2, 1.0 - self.beta2, root, self.eps, step]
                .map(Scalar::Float)
        };
        if amsgrad {
            let ([mean, square, largest], steps) = self.ledger.recall(i, value)?;
            let [value, mean, square, largest] = outputs(
                kernel.run(&[value, gradient, &mean, &square, &largest], &numbers(steps))?,
            )?;
            self.ledger.remember(i, [mean, square, largest]);
            return Ok(value);
        }
        let ([mean, square], steps) = self.ledger.recall(i, value)?;
        let [value, mean, square] =
            outputs(kernel.run(&[value, gradient, &mean, &square], &numbers(steps))?)?;
        self.ledger.remember(i, [mean, square]);
        Ok(value)
    }
}

/// Inputs w, g, m, v (and the largest v); parameters decay, 1 - beta1, beta2, 1 - beta2, sqrt(1 -
/// beta2^t), eps, step; outputs w, m, v (and the largest).
fn program((dtype, gradient): (DType, DType), decoupled: bool, amsgrad: bool) -> Result<Kernel> {
    let b = Builder::new();
    let compute = dtype.compute();
    let (w, g) = (b.input(dtype).cast(compute), b.input(gradient).cast(compute));
    let (m, v) = (b.input(compute), b.input(compute));
    let decay = b.param(compute);
    let (w, g) = if decoupled { (w * decay, g) } else { (w, g + w * decay) };
    let m = m + (g - m) * b.param(compute);
    let v = v * b.param(compute) + g * g * b.param(compute);
    let largest = if amsgrad { v.max(b.input(compute)) } else { v };
    let size = largest.sqrt() / b.param(compute) + b.param(compute);
    let w = (w - (m / size) * b.param(compute)).cast(dtype);
    if amsgrad { b.finish(&[w, m, v, largest]) } else { b.finish(&[w, m, v]) }
}
