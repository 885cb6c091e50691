//! Muon: momentum made orthogonal, for the matrices inside a network.

use super::{Group, Ledger, Optimizer, its_ledger, outputs, settings};
use crate::store::Param;
use teeny_core::context::enter;
use teeny_core::{Builder, DType, Error, Kernel, Result, Scalar, Tensor, map};

/// The quintic's coefficients: the slope at 0 is as steep as convergence allows. Source: Jordan
/// 2024.
const COEFFICIENTS: [f64; 3] = [3.4445, -4.7750, 2.0315];

/// As PyTorch: what the norm is at least.
const EPS: f64 = 1e-7;

/// A matrix with the singular vectors of `x` and singular values near 1 (within 0.7..1.2 after five
/// steps), by Newton and Schulz's iteration: `X ← a X + (b A + c A²) X` with `A = X Xᵀ`, from
/// `x / |x|`.
///
/// Shapes: `x` (m, n) → (m, n). Equivalent: the orthogonalisation inside `torch.optim.Muon`, which
/// rounds to bf16; this keeps the type.
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
        return Err(Error::shape(format!(
            "only a matrix can be made orthogonal, not a tensor of shape {}",
            x.shape()
        )));
    };
    if !x.dtype().is_float() {
        return Err(Error::dtype(format!("{} has no orthogonal matrices", x.dtype()))
            .help("x.cast(DType::F32)?"));
    }
    let [a, b, c] = COEFFICIENTS;
    // the product with its own transpose is the smaller of the two
    let mut y = if rows > columns { x.t()? } else { x.clone() }; // (s, l) with s <= l
    let norm = y.square()?.sum_all()?.sqrt()?; // ()
    y = map([&y, &norm], |[y, norm]| y / norm.max(EPS))?;
    for _ in 0..steps {
        let gram = y.matmul(&y.t()?)?; // (s, s)
        let square = gram.matmul(&gram)?; // (s, s)
        let poly = map([&gram, &square], |[g, s]| g * b + s * c)?;
        let turned = poly.matmul(&y)?; // (s, l)
        y = map([&y, &turned], |[y, t]| y * a + t)?;
    }
    if rows > columns { y.t()?.contiguous() } else { Ok(y) }
}

/// Gradient descent with momentum whose direction is made orthogonal, so that it moves a matrix
/// alike in all its directions.
///
/// ```text
/// v ← v + (1 - momentum) (g - v)         u = g + momentum (v - g) if nesterov, else v
/// w ← w (1 - lr weight_decay) - lr sqrt(max(1, m / n)) newton_schulz(u)
/// ```
///
/// For the weight matrices (m, n) of hidden layers. Embeddings, biases and the last layer belong to
/// an [`super::Adam`] beside it; both step with the same gradients. Equivalent: `torch.optim.Muon`,
/// except that nothing is rounded to bf16.
///
/// Source: Jordan 2024, <https://kellerjordan.github.io/posts/muon/>.
pub struct Muon {
    ledger: Ledger,
    momentum: f64,
    nesterov: bool,
    steps: usize,
}

impl Muon {
    /// Muon at learning rate `lr`, with momentum 0.95 in Nesterov's form, five iterations, and
    /// PyTorch's weight decay of 0.1.
    ///
    /// # Errors
    /// If a parameter is not a matrix; all such are named.
    #[track_caller]
    pub fn new(params: Vec<Param>, lr: f64) -> Result<Muon> {
        let _op = enter("Muon::new");
        let others: Vec<&str> =
            params.iter().filter(|p| p.value().ndim() != 2).map(Param::name).collect();
        if !others.is_empty() {
            let error = Error::shape(format!(
                "Muon moves matrices; these are none: {}",
                crate::state::listed(&others)
            ));
            return Err(error.help(
                "give it the parameters with p.value().ndim() == 2, and the others to an Adam",
            ));
        }
        Ok(Muon { ledger: Ledger::new(params, lr), momentum: 0.95, nesterov: true, steps: 5 }
            .weight_decay(0.1))
    }

    settings!();

    /// How much of the last direction is kept.
    pub fn momentum(mut self, momentum: f64) -> Muon {
        self.momentum = momentum;
        self
    }

    /// Whether to look one step of momentum ahead.
    pub fn nesterov(mut self, nesterov: bool) -> Muon {
        self.nesterov = nesterov;
        self
    }

    /// How many iterations make the direction orthogonal.
    pub fn steps(mut self, steps: usize) -> Muon {
        self.steps = steps;
        self
    }
}

impl Optimizer for Muon {
    its_ledger!();

    fn slots(&self) -> &'static [&'static str] {
        &["velocity"]
    }

    fn update(&mut self, i: usize, value: &Tensor, gradient: &Tensor) -> Result<Tensor> {
        let (lr, decay, nesterov) =
            (self.ledger.lr_of(i), self.ledger.weight_decay_of(i), self.nesterov);
        let types = (value.dtype(), gradient.dtype());
        let kernel =
            self.ledger.kernel(value, gradient, 0, || momentum_program(types, nesterov))?;
        let ([velocity], _) = self.ledger.recall(i, value)?;
        let mut numbers = vec![Scalar::Float(1.0 - self.momentum)];
        if nesterov {
            numbers.push(Scalar::Float(self.momentum));
        }
        let [direction, velocity] = outputs(kernel.run(&[gradient, &velocity], &numbers)?)?;
        let turned = newton_schulz(&direction, self.steps)?; // (m, n)
        let (rows, columns) = (value.shape()[0] as f64, value.shape()[1] as f64);
        let length = (rows / columns).max(1.0).sqrt();
        let kernel = self.ledger.kernel(value, &turned, 1, || move_by(types.0))?;
        let [value] = outputs(
            kernel.run(&[value, &turned], &[1.0 - lr * decay, lr * length].map(Scalar::Float))?,
        )?;
        self.ledger.remember(i, [velocity]);
        Ok(value)
    }
}

/// Inputs g, v; parameters 1 - momentum (, momentum); outputs direction, v.
fn momentum_program((dtype, gradient): (DType, DType), nesterov: bool) -> Result<Kernel> {
    let b = Builder::new();
    let compute = dtype.compute();
    let (g, v) = (b.input(gradient).cast(compute), b.input(compute));
    let v = v + (g - v) * b.param(compute);
    let direction = if nesterov { g + (v - g) * b.param(compute) } else { v };
    b.finish(&[direction, v])
}

/// Inputs w, direction; parameters 1 - lr decay, lr; output w.
fn move_by(dtype: DType) -> Result<Kernel> {
    let b = Builder::new();
    let compute = dtype.compute();
    let (w, direction) = (b.input(dtype).cast(compute), b.input(compute));
    let [keep, lr] = [0; 2].map(|_| b.param(compute));
    b.finish(&[(w * keep - direction * lr).cast(dtype)])
}
