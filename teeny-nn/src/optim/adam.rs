//! Adam and AdamW: one update program, which differs in where weight decay enters.

use super::{
    Optimizer, ParamGroup, ParamStates, Update, common_options, kernel_params, states_methods,
};
use crate::store::Param;
use teeny_core::{Builder, DType, Kernel, Result, Scalar, Tensor};

/// Adam: steps scaled by running estimates of each gradient's first and second moment.
///
/// ```text
/// g ← g + weight_decay w
/// m ← m + (1 - beta1) (g - m)            step = lr / (1 - beta1^t)
/// v ← beta2 v + (1 - beta2) g²           w ← w - step m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
/// ```
///
/// Weight decay is an L2 penalty, part of the gradient and therefore of both moments; [`AdamW`]
/// takes it from the parameter instead. With [`Adam::amsgrad`] the divisor is the largest `sqrt(v)`
/// of all steps.
///
/// Source: Kingma & Ba 2014, arXiv:1412.6980. Equivalent: `torch.optim.Adam`.
///
/// # Example
/// ```
/// # use teeny_nn::{Store, optim::Adam};
/// # fn demo(store: &Store) -> Adam {
/// Adam::new(store.trainable(), 1e-3).betas(0.9, 0.95)
/// # }
/// ```
pub struct Adam {
    states: ParamStates,
    rule: Rule,
}

/// Adam with decoupled weight decay: the decay shrinks the parameter and does not enter the
/// moments.
///
/// ```text
/// w ← w (1 - lr weight_decay)
/// m ← m + (1 - beta1) (g - m)            step = lr / (1 - beta1^t)
/// v ← beta2 v + (1 - beta2) g²           w ← w - step m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
/// ```
///
/// Source: Loshchilov & Hutter 2017, arXiv:1711.05101. Equivalent: `torch.optim.AdamW`.
///
/// # Example
/// ```
/// # use teeny_nn::{Store, optim::AdamW};
/// # fn demo(store: &Store) -> AdamW {
/// AdamW::new(store.trainable(), 3e-4).betas(0.9, 0.95).weight_decay(0.1)
/// # }
/// ```
pub struct AdamW {
    states: ParamStates,
    rule: Rule,
}

/// Where weight decay enters.
#[derive(Clone, Copy, PartialEq)]
enum Decay {
    /// `g + weight_decay w`.
    Gradient,
    /// `w (1 - lr weight_decay)`.
    Parameter,
}

/// The update rule of both optimizers.
#[derive(Clone, Copy)]
struct Rule {
    beta1: f64,
    beta2: f64,
    eps: f64,
    decay: Decay,
    amsgrad: bool,
}

kernel_params! {
    AdamParams {
        /// `weight_decay`, or `1 - lr weight_decay` of a decay of the parameter.
        decay,
        /// `1 - beta1`.
        one_minus_beta1,
        beta2,
        /// `1 - beta2`.
        one_minus_beta2,
        /// `sqrt(1 - beta2^t)`.
        root,
        eps,
        /// `lr / (1 - beta1^t)`.
        step,
    }
}

impl Adam {
    /// Adam with learning rate `lr` and PyTorch's defaults: betas 0.9 and 0.999, eps 1e-8, no
    /// weight decay.
    pub fn new(params: Vec<Param>, lr: f64) -> Adam {
        Adam { states: ParamStates::new(params, lr), rule: Rule::new(Decay::Gradient) }
    }
}

impl AdamW {
    /// AdamW with learning rate `lr` and PyTorch's defaults: betas 0.9 and 0.999, eps 1e-8, weight
    /// decay 0.01.
    pub fn new(params: Vec<Param>, lr: f64) -> AdamW {
        AdamW { states: ParamStates::new(params, lr), rule: Rule::new(Decay::Parameter) }
            .weight_decay(0.01)
    }
}

macro_rules! adam {
    ($name:ident) => {
        impl $name {
            common_options!();

            /// Sets the decay rates of both moment estimates.
            pub fn betas(mut self, beta1: f64, beta2: f64) -> $name {
                self.rule.beta1 = self.states.checked("beta1", beta1, 0.0..1.0);
                self.rule.beta2 = self.states.checked("beta2", beta2, 0.0..1.0);
                self
            }

            /// Sets the term added to the denominator.
            pub fn eps(mut self, eps: f64) -> $name {
                self.rule.eps = self.states.checked("eps", eps, 0.0..);
                self
            }

            /// Sets whether the divisor is the largest second moment of all steps. Source: Reddi et
            /// al. 2018, arXiv:1904.09237.
            pub fn amsgrad(mut self, amsgrad: bool) -> $name {
                self.rule.amsgrad = amsgrad;
                self
            }
        }

        impl Optimizer for $name {
            states_methods!(elementwise);

            fn state_names(&self) -> &'static [&'static str] {
                self.rule.state_names()
            }
        }

        impl $name {
            fn plan(&mut self, i: usize, value: &Tensor, gradient: &Tensor) -> Result<Update> {
                self.rule.plan(&mut self.states, i, value, gradient)
            }
        }
    };
}
adam!(Adam);
adam!(AdamW);

impl Rule {
    fn new(decay: Decay) -> Rule {
        Rule { beta1: 0.9, beta2: 0.999, eps: 1e-8, decay, amsgrad: false }
    }

    fn state_names(self) -> &'static [&'static str] {
        if self.amsgrad { &["mean", "square", "largest"] } else { &["mean", "square"] }
    }

    fn plan(
        self,
        states: &mut ParamStates,
        i: usize,
        value: &Tensor,
        gradient: &Tensor,
    ) -> Result<Update> {
        let (lr, weight_decay) = (states.lr_of(i), states.weight_decay_of(i));
        let types = (value.dtype(), gradient.dtype());
        let kernel = states.kernel(value, gradient, 0, || self.program(types))?;
        let (state, steps) = states.tensors(i, value, self.state_names().len())?;
        let t = steps as f64 + 1.0;
        let params = AdamParams {
            decay: match self.decay {
                Decay::Gradient => weight_decay,
                Decay::Parameter => 1.0 - lr * weight_decay,
            },
            one_minus_beta1: 1.0 - self.beta1,
            beta2: self.beta2,
            one_minus_beta2: 1.0 - self.beta2,
            root: (1.0 - self.beta2.powf(t)).sqrt(),
            eps: self.eps,
            step: lr / (1.0 - self.beta1.powf(t)),
        };
        let inputs = [value, gradient].into_iter().chain(&state).cloned().collect();
        Ok(Update { kernel, inputs, params: params.scalars() })
    }

    /// Inputs w, g, m, v (and the largest v); parameters [`AdamParams`]; outputs w, m, v (and the
    /// largest v).
    fn program(self, (dtype, gradient): (DType, DType)) -> Result<Kernel> {
        let b = Builder::new();
        let compute = dtype.compute();
        let (w, g) = (b.input(dtype).cast(compute), b.input(gradient).cast(compute));
        let (m, v) = (b.input(compute), b.input(compute));
        let p = AdamParams::declare(&b, compute);
        let (w, g) = match self.decay {
            Decay::Gradient => (w, g + w * p.decay),
            Decay::Parameter => (w * p.decay, g),
        };
        let m = m + (g - m) * p.one_minus_beta1;
        let v = v * p.beta2 + g * g * p.one_minus_beta2;
        let largest = if self.amsgrad { v.maximum(b.input(compute)) } else { v };
        let size = largest.sqrt() / p.root + p.eps;
        let w = (w - (m / size) * p.step).cast(dtype);
        if self.amsgrad { b.finish(&[w, m, v, largest]) } else { b.finish(&[w, m, v]) }
    }
}
