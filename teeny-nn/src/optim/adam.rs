//! Adam and AdamW.

use super::sgd::outputs;
use super::{Kernels, Optimizer, zero_state};
use crate::store::Param;
use teeny_core::{Builder, DType, Kernel, Result, Scalar, Tensor};

/// Steps scaled by running estimates of each gradient's mean and size.
///
/// ```text
/// m ← m + (1 - beta1) (g - m)            step = lr / (1 - beta1^t)
/// v ← beta2 v + (1 - beta2) g²           w ← w - step m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
/// ```
///
/// Weight decay is added to the gradient by [`Adam::new`], and taken from the parameter (`w ← w (1 - lr weight_decay)`) by
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
    params: Vec<Param>,
    lr: f64,
    beta1: f64,
    beta2: f64,
    eps: f64,
    weight_decay: f64,
    decoupled: bool,
    moments: Vec<Option<Moments>>,
    kernels: Kernels,
}

/// What is remembered of one parameter's gradients.
struct Moments {
    mean: Tensor,
    square: Tensor,
    steps: i32,
}

impl Adam {
    /// Adam at learning rate `lr`, with betas 0.9 and 0.999, eps 1e-8, and no weight decay.
    pub fn new(params: Vec<Param>, lr: f64) -> Adam {
        let moments = params.iter().map(|_| None).collect();
        Adam { params, lr, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.0, decoupled: false, moments, kernels: Kernels::default() }
    }

    /// AdamW at learning rate `lr`, with PyTorch's weight decay of 0.01.
    pub fn decoupled(params: Vec<Param>, lr: f64) -> Adam {
        Adam { weight_decay: 0.01, decoupled: true, ..Adam::new(params, lr) }
    }

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

    /// How strongly parameters are pulled towards 0.
    pub fn weight_decay(mut self, weight_decay: f64) -> Adam {
        self.weight_decay = weight_decay;
        self
    }
}

impl Optimizer for Adam {
    fn params(&self) -> &[Param] {
        &self.params
    }

    fn lr(&self) -> f64 {
        self.lr
    }

    fn set_lr(&mut self, lr: f64) {
        self.lr = lr;
    }

    fn update(&mut self, i: usize, value: &Tensor, gradient: &Tensor) -> Result<Tensor> {
        let (mean, square, steps) = match &self.moments[i] {
            Some(Moments { mean, square, steps }) => (mean.clone(), square.clone(), steps + 1),
            None => (zero_state(value)?, zero_state(value)?, 1),
        };
        let decoupled = self.decoupled;
        let kernel = self.kernels.get(value.dtype(), || program(value.dtype(), decoupled))?;
        let step = self.lr / (1.0 - self.beta1.powi(steps));
        let root = (1.0 - self.beta2.powi(steps)).sqrt();
        let decay = if decoupled { 1.0 - self.lr * self.weight_decay } else { self.weight_decay };
        let numbers = [decay, 1.0 - self.beta1, self.beta2, 1.0 - self.beta2, root, self.eps, step].map(Scalar::Float);
        let [value, mean, square] = outputs(kernel.run(&[value, gradient, &mean, &square], &numbers)?)?;
        self.moments[i] = Some(Moments { mean, square, steps });
        Ok(value)
    }
}

/// Inputs w, g, m, v; parameters decay, 1 - beta1, beta2, 1 - beta2, sqrt(1 - beta2^t), eps, step; outputs w, m, v.
fn program(dtype: DType, decoupled: bool) -> Result<Kernel> {
    let b = Builder::new();
    let compute = dtype.compute();
    let (w, g) = (b.input(dtype).cast(compute), b.input(dtype).cast(compute));
    let (m, v) = (b.input(compute), b.input(compute));
    let decay = b.param(compute);
    let (w, g) = if decoupled { (w * decay, g) } else { (w, g + w * decay) };
    let m = m + (g - m) * b.param(compute);
    let v = v * b.param(compute) + g * g * b.param(compute);
    let size = v.sqrt() / b.param(compute) + b.param(compute);
    let w = w - (m / size) * b.param(compute);
    b.finish(&[w.cast(dtype), m, v])
}
