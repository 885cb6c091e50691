//! Stochastic gradient descent.

use super::{Kernels, Optimizer, zero_state};
use crate::store::Param;
use teeny_core::{Builder, DType, Error, Kernel, Result, Scalar, Tensor};

/// Gradient descent, plain or with momentum.
///
/// ```text
/// g ← g + weight_decay w
/// v ← momentum v + (1 - dampening) g                 v ← g in the first step
/// w ← w - lr (g + momentum v)                        if nesterov, else w - lr v
/// ```
///
/// Equivalent: `torch.optim.SGD`. Source of the Nesterov form: Sutskever et al. 2013.
///
/// # Example
/// ```
/// # use teeny_nn::{Store, optim::Sgd};
/// # fn demo(store: &Store) -> Sgd {
/// Sgd::new(store.trainable(), 0.1).momentum(0.9).nesterov(true).weight_decay(5e-4)
/// # }
/// ```
pub struct Sgd {
    params: Vec<Param>,
    lr: f64,
    momentum: f64,
    dampening: f64,
    weight_decay: f64,
    nesterov: bool,
    velocities: Vec<Option<Tensor>>,
    kernels: Kernels,
}

impl Sgd {
    /// Plain gradient descent at learning rate `lr`.
    pub fn new(params: Vec<Param>, lr: f64) -> Sgd {
        let velocities = vec![None; params.len()];
        Sgd { params, lr, momentum: 0.0, dampening: 0.0, weight_decay: 0.0, nesterov: false, velocities, kernels: Kernels::default() }
    }

    /// How much of the last step's direction is kept; 0 for plain descent.
    pub fn momentum(mut self, momentum: f64) -> Sgd {
        self.momentum = momentum;
        self
    }

    /// How much of a new gradient is left out of the direction.
    pub fn dampening(mut self, dampening: f64) -> Sgd {
        self.dampening = dampening;
        self
    }

    /// How strongly parameters are pulled towards 0.
    pub fn weight_decay(mut self, weight_decay: f64) -> Sgd {
        self.weight_decay = weight_decay;
        self
    }

    /// Whether to look one step of momentum ahead.
    pub fn nesterov(mut self, nesterov: bool) -> Sgd {
        self.nesterov = nesterov;
        self
    }
}

impl Optimizer for Sgd {
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
        let (decays, moves) = (self.weight_decay != 0.0, self.momentum != 0.0);
        if self.nesterov && (!moves || self.dampening != 0.0) {
            return Err(Error::value("Nesterov's form needs momentum and no dampening").named("sgd"));
        }
        let nesterov = self.nesterov;
        let kernel = self.kernels.get(value.dtype(), || program(value.dtype(), decays, moves, nesterov))?;
        let mut numbers = vec![Scalar::Float(self.lr)];
        if decays {
            numbers.push(Scalar::Float(self.weight_decay));
        }
        if !moves {
            let [value] = outputs(kernel.run(&[value, gradient], &numbers)?)?;
            return Ok(value);
        }
        // at first there is no direction to keep: 0 v + 1 g is exactly g
        let (velocity, keep, take) = match self.velocities[i].clone() {
            Some(velocity) => (velocity, self.momentum, 1.0 - self.dampening),
            None => (zero_state(value)?, 0.0, 1.0),
        };
        numbers.extend([keep, take].map(Scalar::Float));
        if nesterov {
            numbers.push(Scalar::Float(self.momentum));
        }
        let [value, velocity] = outputs(kernel.run(&[value, gradient, &velocity], &numbers)?)?;
        self.velocities[i] = Some(velocity);
        Ok(value)
    }
}

/// Inputs w, g and, with momentum, v; parameters lr, (decay), (keep, take), (momentum again, if nesterov); outputs w and, with momentum, v.
fn program(dtype: DType, decays: bool, moves: bool, nesterov: bool) -> Result<Kernel> {
    let b = Builder::new();
    let compute = dtype.compute();
    let (w, g) = (b.input(dtype).cast(compute), b.input(dtype).cast(compute));
    let lr = b.param(compute);
    let g = if decays { g + w * b.param(compute) } else { g };
    if !moves {
        return b.finish(&[(w - g * lr).cast(dtype)]);
    }
    let v = b.input(compute);
    let v = v * b.param(compute) + g * b.param(compute);
    let direction = if nesterov { g + v * b.param(compute) } else { v };
    b.finish(&[(w - direction * lr).cast(dtype), v])
}

/// The outputs of a kernel as an array.
pub(super) fn outputs<const N: usize>(tensors: Vec<Tensor>) -> Result<[Tensor; N]> {
    tensors.try_into().map_err(|t: Vec<Tensor>| Error::internal(format!("a kernel of {N} outputs gave {}", t.len())))
}
