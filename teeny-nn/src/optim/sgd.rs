//! Stochastic gradient descent.

use super::{
    Optimizer, ParamGroup, ParamStates, Update, common_options, kernel_params, states_methods,
};
use crate::options::setters;
use crate::store::Param;
use teeny_core::{Builder, DType, Error, Kernel, Result, Scalar, Tensor};

/// Stochastic gradient descent, plain or with momentum.
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
    states: ParamStates,
    momentum: f64,
    dampening: f64,
    nesterov: bool,
}

kernel_params! {
    SgdParams {
        lr,
        /// `weight_decay`.
        decay,
        /// The factor of the velocity: `momentum`, or 0 in the first step.
        keep,
        /// The factor of the gradient: `1 - dampening`, or 1 in the first step.
        take,
        momentum,
    }
}

impl Sgd {
    /// Plain gradient descent with learning rate `lr`.
    pub fn new(params: Vec<Param>, lr: f64) -> Sgd {
        Sgd { states: ParamStates::new(params, lr), momentum: 0.0, dampening: 0.0, nesterov: false }
    }

    common_options!();

    setters! {
        self;
        /// Sets the momentum; 0 is plain descent.
        momentum(momentum: f64) => momentum = self.states.checked("momentum", momentum, 0.0..);
        /// Sets the dampening: the fraction of a new gradient that momentum leaves out.
        dampening(dampening: f64) =>
            dampening = self.states.checked("dampening", dampening, 0.0..=1.0);
        /// Sets whether to use Nesterov momentum.
        nesterov(nesterov: bool) => nesterov = nesterov;
    }
}

impl Optimizer for Sgd {
    states_methods!(elementwise);

    fn state_names(&self) -> &'static [&'static str] {
        if self.momentum == 0.0 { &[] } else { &["velocity"] }
    }
}

impl Sgd {
    fn plan(&mut self, i: usize, value: &Tensor, gradient: &Tensor) -> Result<Update> {
        let (moves, nesterov) = (self.momentum != 0.0, self.nesterov);
        let (lr, decay) = (self.states.lr_of(i), self.states.weight_decay_of(i));
        let decays = decay != 0.0;
        if nesterov && (!moves || self.dampening != 0.0) {
            let text = format!(
                "Nesterov momentum needs momentum above 0 and no dampening, not {} and {}",
                self.momentum, self.dampening
            );
            return Err(
                Error::value(text).help("Sgd::new(params, lr).momentum(0.9).nesterov(true)")
            );
        }
        let types = (value.dtype(), gradient.dtype());
        let kernel = self
            .states
            .kernel(value, gradient, decays.into(), || program(types, decays, moves, nesterov))?;
        let (mut keep, mut take) = (self.momentum, 1.0 - self.dampening);
        let mut inputs = vec![value.clone(), gradient.clone()];
        if moves {
            let (state, steps) = self.states.tensors(i, value, 1)?;
            inputs.extend(state);
            if steps == 0 {
                (keep, take) = (0.0, 1.0); // there is no direction yet: 0 v + 1 g is exactly g
            }
        }
        let params = SgdParams { lr, decay, keep, take, momentum: self.momentum };
        Ok(Update { kernel, inputs, params: params.scalars() })
    }
}

/// Inputs w, g and, with momentum, v; parameters [`SgdParams`], all of them in every variant;
/// outputs w and, with momentum, v.
fn program(
    (dtype, gradient): (DType, DType),
    decays: bool,
    moves: bool,
    nesterov: bool,
) -> Result<Kernel> {
    let b = Builder::new();
    let compute = dtype.compute();
    let (w, g) = (b.input(dtype).cast(compute), b.input(gradient).cast(compute));
    let p = SgdParams::declare(&b, compute);
    let g = if decays { g + w * p.decay } else { g };
    if !moves {
        return b.finish(&[(w - g * p.lr).cast(dtype)]);
    }
    let v = b.input(compute);
    let v = v * p.keep + g * p.take;
    let direction = if nesterov { g + v * p.momentum } else { v };
    b.finish(&[(w - direction * p.lr).cast(dtype), v])
}
