//! Adagrad.

use super::{
    Optimizer, ParamGroup, ParamStates, Update, common_options, kernel_params, states_methods,
};
use crate::store::Param;
use teeny_core::{Builder, DType, Kernel, Result, Scalar, Tensor};

/// Adagrad: steps divided by the root of the sum of all squared gradients.
///
/// ```text
/// g ← g + weight_decay w
/// s ← s + g²                       s starts at initial_accumulator_value
/// w ← w - lr / (1 + (t - 1) lr_decay) g / (sqrt(s) + eps)
/// ```
///
/// Equivalent: `torch.optim.Adagrad`. Source: Duchi, Hazan & Singer 2011.
pub struct Adagrad {
    states: ParamStates,
    lr_decay: f64,
    initial_accumulator_value: f64,
    eps: f64,
}

kernel_params! {
    AdagradParams {
        decay,
        /// The initial value of the sums, 0 after the first step.
        initial,
        eps,
        lr,
    }
}

impl Adagrad {
    /// Adagrad with learning rate `lr` and PyTorch's defaults: eps 1e-10, all other options 0.
    pub fn new(params: Vec<Param>, lr: f64) -> Adagrad {
        Adagrad {
            states: ParamStates::new(params, lr),
            lr_decay: 0.0,
            initial_accumulator_value: 0.0,
            eps: 1e-10,
        }
    }

    common_options!();

    /// Sets the decay of the learning rate with the steps.
    pub fn lr_decay(mut self, lr_decay: f64) -> Adagrad {
        self.lr_decay = self.states.checked("lr_decay", lr_decay, 0.0..);
        self
    }

    /// Sets the initial value of the sums.
    pub fn initial_accumulator_value(mut self, value: f64) -> Adagrad {
        self.initial_accumulator_value =
            self.states.checked("initial_accumulator_value", value, 0.0..);
        self
    }

    /// Sets the term added to the denominator.
    pub fn eps(mut self, eps: f64) -> Adagrad {
        self.eps = self.states.checked("eps", eps, 0.0..);
        self
    }
}

impl Optimizer for Adagrad {
    states_methods!(elementwise);

    fn state_names(&self) -> &'static [&'static str] {
        &["sum"]
    }
}

impl Adagrad {
    fn plan(&mut self, i: usize, value: &Tensor, gradient: &Tensor) -> Result<Update> {
        let types = (value.dtype(), gradient.dtype());
        let kernel = self.states.kernel(value, gradient, 0, || program(types))?;
        let (state, steps) = self.states.tensors(i, value, 1)?;
        let params = AdagradParams {
            decay: self.states.weight_decay_of(i),
            initial: if steps == 0 { self.initial_accumulator_value } else { 0.0 },
            eps: self.eps,
            lr: self.states.lr_of(i) / (1.0 + steps as f64 * self.lr_decay),
        };
        let inputs = [value, gradient].into_iter().chain(&state).cloned().collect();
        Ok(Update { kernel, inputs, params: params.scalars() })
    }
}

/// Inputs w, g, s; parameters [`AdagradParams`]; outputs w, s.
fn program((dtype, gradient): (DType, DType)) -> Result<Kernel> {
    let b = Builder::new();
    let compute = dtype.compute();
    let (w, g, s) =
        (b.input(dtype).cast(compute), b.input(gradient).cast(compute), b.input(compute));
    let p = AdagradParams::declare(&b, compute);
    let g = g + w * p.decay;
    let s = s + p.initial + g * g;
    b.finish(&[(w - g / (s.sqrt() + p.eps) * p.lr).cast(dtype), s])
}
