//! RMSprop.

use super::{
    Optimizer, ParamGroup, ParamStates, Update, common_options, kernel_params, states_methods,
};
use crate::options::setters;
use crate::store::Param;
use teeny_core::{Builder, DType, Kernel, Result, Scalar, Tensor};

/// RMSprop: steps divided by a running root mean square of the gradients.
///
/// ```text
/// g ← g + weight_decay w
/// v ← alpha v + (1 - alpha) g²
/// a ← a + (1 - alpha) (g - a)                size = sqrt(v - a²) if centred, else sqrt(v)
/// b ← momentum b + g / (size + eps)          w ← w - lr b
/// ```
///
/// Equivalent: `torch.optim.RMSprop`. Source: Hinton, lecture 6e of "Neural networks for machine
/// learning", 2012; centred: Graves 2013, arXiv:1308.0850.
pub struct RmsProp {
    states: ParamStates,
    alpha: f64,
    eps: f64,
    momentum: f64,
    centered: bool,
}

kernel_params! {
    RmsPropParams {
        decay,
        alpha,
        /// `1 - alpha`.
        one_minus_alpha,
        eps,
        lr,
        momentum,
    }
}

impl RmsProp {
    /// RMSprop with learning rate `lr` and PyTorch's defaults: alpha 0.99, eps 1e-8, no momentum,
    /// not centred.
    pub fn new(params: Vec<Param>, lr: f64) -> RmsProp {
        RmsProp {
            states: ParamStates::new(params, lr),
            alpha: 0.99,
            eps: 1e-8,
            momentum: 0.0,
            centered: false,
        }
    }

    common_options!();

    setters! {
        self;
        /// Sets the decay rate of the mean square.
        alpha(alpha: f64) => alpha = self.states.checked("alpha", alpha, 0.0..=1.0);
        /// Sets the term added to the denominator.
        eps(eps: f64) => eps = self.states.checked("eps", eps, 0.0..);
        /// Sets the momentum.
        momentum(momentum: f64) => momentum = self.states.checked("momentum", momentum, 0.0..);
        /// Sets whether to divide by the standard deviation of the gradients instead of their root
        /// mean square.
        centered(centered: bool) => centered = centered;
    }
}

impl Optimizer for RmsProp {
    states_methods!(elementwise);

    fn state_names(&self) -> &'static [&'static str] {
        match (self.centered, self.momentum != 0.0) {
            (false, false) => &["square"],
            (false, true) => &["square", "velocity"],
            (true, false) => &["square", "mean"],
            (true, true) => &["square", "mean", "velocity"],
        }
    }
}

impl RmsProp {
    fn plan(&mut self, i: usize, value: &Tensor, gradient: &Tensor) -> Result<Update> {
        let (centered, moves, types) =
            (self.centered, self.momentum != 0.0, (value.dtype(), gradient.dtype()));
        let kernel = self.states.kernel(value, gradient, 0, || program(types, centered, moves))?;
        let params = RmsPropParams {
            decay: self.states.weight_decay_of(i),
            alpha: self.alpha,
            one_minus_alpha: 1.0 - self.alpha,
            eps: self.eps,
            lr: self.states.lr_of(i),
            momentum: self.momentum,
        };
        let (state, _) = self.states.tensors(i, value, self.state_names().len())?;
        let inputs = [value, gradient].into_iter().chain(&state).cloned().collect();
        Ok(Update { kernel, inputs, params: params.scalars() })
    }
}

/// Inputs w, g, v (, a) (, b); parameters [`RmsPropParams`]; outputs w, v (, a) (, b).
fn program((dtype, gradient): (DType, DType), centered: bool, moves: bool) -> Result<Kernel> {
    let b = Builder::new();
    let compute = dtype.compute();
    let (w, g) = (b.input(dtype).cast(compute), b.input(gradient).cast(compute));
    let p = RmsPropParams::declare(&b, compute);
    let g = g + w * p.decay;
    let v = b.input(compute) * p.alpha + g * g * p.one_minus_alpha;
    let mut state = vec![v];
    let mut square = v;
    if centered {
        let a = b.input(compute);
        let a = a + (g - a) * p.one_minus_alpha;
        square = v - a * a;
        state.push(a);
    }
    let mut direction = g / (square.sqrt() + p.eps);
    if moves {
        direction = b.input(compute) * p.momentum + direction;
        state.push(direction);
    }
    let mut results = vec![(w - direction * p.lr).cast(dtype)];
    results.extend(state);
    b.finish(&results)
}
