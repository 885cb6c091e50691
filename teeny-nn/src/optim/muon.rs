//! Muon: orthogonalised momentum, for the weight matrices of hidden layers.

use super::{
    Optimizer, ParamGroup, ParamStates, common_options, kernel_params, outputs, states_methods,
};
use crate::options::setters;
use crate::store::Param;
use teeny_core::context::enter;
use teeny_core::{Builder, DType, Error, Kernel, Result, Scalar, Tensor, map};

/// Coefficients of the quintic polynomial, with the largest slope at 0 that converges. Source:
/// Jordan 2024.
const COEFFICIENTS: [f64; 3] = [3.4445, -4.7750, 2.0315];

/// The lower bound of the norm, as in PyTorch.
const EPS: f64 = 1e-7;

/// Orthogonalises `x`: the result has the singular vectors of `x` and singular values near 1
/// (within 0.7..1.2 after five steps). Newton-Schulz iteration `X ← a X + (b A + c A²) X` with
/// `A = X Xᵀ`, from `x / |x|`.
///
/// Shapes: `x` (m, n) → (m, n). Equivalent: the orthogonalisation inside `torch.optim.Muon`, which
/// rounds to bf16; this keeps the dtype.
///
/// # Errors
/// If `x` is not a matrix of floats.
///
/// # Example
/// ```
/// # fn main() -> teeny_core::Result<()> {
/// # let device = teeny_nn::device("cpu")?;
/// let x = teeny_core::Tensor::new([[3.0f32, 0.0], [0.0, 2.0]], &device)?; // (2, 2)
/// let y = teeny_nn::optim::newton_schulz(&x, 5)?.to_vec::<f32>()?;
/// assert!((0.6..1.3).contains(&y[0]) && y[1].abs() < 1e-6);
/// # Ok(()) }
/// ```
///
/// Source: Jordan 2024, <https://kellerjordan.github.io/posts/muon/>.
#[track_caller]
pub fn newton_schulz(x: &Tensor, steps: usize) -> Result<Tensor> {
    let _op = enter("newton_schulz");
    let &[rows, columns] = &x.shape()[..] else {
        return Err(Error::shape(format!("needs a matrix, not {}", x.shape())));
    };
    if !x.dtype().is_float() {
        return Err(Error::dtype(format!("needs floats, not {}", x.dtype()))
            .help("x.cast(DType::F32)? converts"));
    }
    let [a, b, c] = COEFFICIENTS;
    // of both products with the transpose, X Xᵀ is then the smaller
    let mut y = if rows > columns { x.t()? } else { x.clone() }; // (s, l) with s <= l
    let norm = y.vector_norm(2.0, ..)?; // ()
    y = map([&y, &norm], |[y, norm]| y / norm.maximum(EPS))?;
    for _ in 0..steps {
        let gram = y.matmul(&y.t()?)?; // (s, s)
        let square = gram.matmul(&gram)?; // (s, s)
        let poly = map([&gram, &square], |[g, s]| g * b + s * c)?;
        let product = poly.matmul(&y)?; // (s, l)
        y = map([&y, &product], |[y, p]| y * a + p)?;
    }
    if rows > columns { y.t()?.contiguous() } else { Ok(y) }
}

/// Muon: gradient descent with momentum whose direction is orthogonalised, so that all singular
/// directions of a matrix move equally.
///
/// ```text
/// v ← v + (1 - momentum) (g - v)         u = g + momentum (v - g) if nesterov, else v
/// w ← w (1 - lr weight_decay) - lr sqrt(max(1, m / n)) newton_schulz(u)
/// ```
///
/// For the weight matrices (m, n) of hidden layers. An [`super::AdamW`] trains embeddings, biases
/// and the last layer; both step with the same gradients. Equivalent: `torch.optim.Muon`, but
/// nothing is rounded to bf16.
///
/// Source: Jordan 2024, <https://kellerjordan.github.io/posts/muon/>.
pub struct Muon {
    states: ParamStates,
    momentum: f64,
    nesterov: bool,
    ns_steps: usize,
}

kernel_params! {
    MomentumParams {
        momentum,
        /// `1 - momentum`.
        one_minus_momentum,
    }
}

kernel_params! {
    MoveParams {
        /// `1 - lr weight_decay`.
        keep,
        /// `lr sqrt(max(1, m / n))`.
        step,
    }
}

impl Muon {
    /// Muon with learning rate `lr` and PyTorch's defaults: Nesterov momentum 0.95, five
    /// iterations, weight decay 0.1.
    ///
    /// # Errors
    /// If a parameter is not a matrix; the error names all of them.
    #[track_caller]
    pub fn new(params: Vec<Param>, lr: f64) -> Result<Muon> {
        let _op = enter("Muon::new");
        let others: Vec<&str> =
            params.iter().filter(|p| p.value().ndim() != 2).map(Param::name).collect();
        if !others.is_empty() {
            let error = Error::shape(format!(
                "Muon needs matrices; these parameters are not matrices: {}",
                teeny_formats::names::listed(&others)
            ));
            return Err(error.help(
                "pass it the parameters with p.value().ndim() == 2, and the others to an AdamW",
            ));
        }
        Ok(Muon {
            states: ParamStates::new(params, lr),
            momentum: 0.95,
            nesterov: true,
            ns_steps: 5,
        }
        .weight_decay(0.1))
    }

    common_options!();

    setters! {
        self;
        /// Sets the momentum.
        momentum(momentum: f64) => momentum = self.states.checked("momentum", momentum, 0.0..1.0);
        /// Sets whether to use Nesterov momentum.
        nesterov(nesterov: bool) => nesterov = nesterov;
        /// Sets the number of Newton-Schulz iterations.
        ns_steps(steps: usize) => ns_steps = steps;
    }
}

impl Optimizer for Muon {
    states_methods!();

    fn state_names(&self) -> &'static [&'static str] {
        &["velocity"]
    }

    fn update(&mut self, i: usize, value: &Tensor, gradient: &Tensor) -> Result<Tensor> {
        let (lr, decay, nesterov) =
            (self.states.lr_of(i), self.states.weight_decay_of(i), self.nesterov);
        let types = (value.dtype(), gradient.dtype());
        let kernel =
            self.states.kernel(value, gradient, 0, || momentum_program(types, nesterov))?;
        let ([velocity], _) = self.states.state(i, value)?;
        let params =
            MomentumParams { momentum: self.momentum, one_minus_momentum: 1.0 - self.momentum };
        let [direction, velocity] =
            outputs(kernel.run(&[gradient, &velocity], &params.scalars())?)?;
        let direction = newton_schulz(&direction, self.ns_steps)?; // (m, n)
        let (rows, columns) = (value.shape()[0] as f64, value.shape()[1] as f64);
        let scale = (rows / columns).max(1.0).sqrt();
        let kernel = self.states.kernel(value, &direction, 1, || move_by(types.0))?;
        let params = MoveParams { keep: 1.0 - lr * decay, step: lr * scale };
        let [value] = outputs(kernel.run(&[value, &direction], &params.scalars())?)?;
        self.states.set_state(i, [velocity]);
        Ok(value)
    }
}

/// Inputs g, v; parameters [`MomentumParams`]; outputs direction, v.
fn momentum_program((dtype, gradient): (DType, DType), nesterov: bool) -> Result<Kernel> {
    let b = Builder::new();
    let compute = dtype.compute();
    let (g, v) = (b.input(gradient).cast(compute), b.input(compute));
    let p = MomentumParams::declare(&b, compute);
    let v = v + (g - v) * p.one_minus_momentum;
    let direction = if nesterov { g + (v - g) * p.momentum } else { v };
    b.finish(&[direction, v])
}

/// Inputs w, direction; parameters [`MoveParams`]; output w.
fn move_by(dtype: DType) -> Result<Kernel> {
    let b = Builder::new();
    let compute = dtype.compute();
    let (w, direction) = (b.input(dtype).cast(compute), b.input(compute));
    let p = MoveParams::declare(&b, compute);
    b.finish(&[(w * p.keep - direction * p.step).cast(dtype)])
}
