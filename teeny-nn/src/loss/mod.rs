//! Losses: how far predictions are from targets, as one number to go down.
//!
//! The simple ones are an elementwise function (one kernel) and a reduction.
//! [`cross_entropy`](cross_entropy()) has a room of its own.

mod cross_entropy;

pub use cross_entropy::{CrossEntropy, cross_entropy, nll};

use teeny_core::context::enter;
use teeny_core::{Error, Expr, Result, Tensor, map};

/// What becomes of the losses of single elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reduction {
    /// Their mean, a scalar.
    #[default]
    Mean,
    /// Their sum, a scalar.
    Sum,
    /// They stay as they are.
    None,
}

impl Reduction {
    fn apply(self, losses: Tensor) -> Result<Tensor> {
        match self {
            Reduction::Mean => losses.mean_all(),
            Reduction::Sum => losses.sum_all(),
            Reduction::None => Ok(losses),
        }
    }
}

/// `f(x, target)` element by element, reduced. Broadcasting here is nearly always a mistake, so
/// shapes must agree.
fn elementwise(
    x: &Tensor,
    target: &Tensor,
    reduction: Reduction,
    f: impl for<'b> FnOnce(Expr<'b>, Expr<'b>) -> Expr<'b>,
) -> Result<Tensor> {
    if x.shape() != target.shape() {
        return Err(Error::shape(format!(
            "predictions {} and targets {} must have one shape",
            x.shape(),
            target.shape()
        )));
    }
    reduction.apply(map([x, target], |[x, t]| f(x, t))?)
}

/// Squared error `(x - t)²`. Shapes: x and target equal. Equivalent:
/// `torch.nn.functional.mse_loss`.
///
/// # Errors
/// If the shapes differ.
#[track_caller]
pub fn mse(x: &Tensor, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
    let _op = enter("mse");
    elementwise(x, target, reduction, |x, t| (x - t).square())
}

/// Absolute error `|x - t|`. Shapes: x and target equal. Equivalent: `torch.nn.functional.l1_loss`.
///
/// # Errors
/// If the shapes differ.
#[track_caller]
pub fn l1(x: &Tensor, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
    let _op = enter("l1");
    elementwise(x, target, reduction, |x, t| (x - t).abs())
}

/// `d²/2` where `d = |x - t|` is less than `delta`, `delta (d - delta/2)` beyond: square near 0,
/// straight far away.
/// Shapes: x and target equal. Equivalent: `torch.nn.functional.huber_loss`.
///
/// # Errors
/// If the shapes differ, or `delta` is not positive.
#[track_caller]
pub fn huber(x: &Tensor, target: &Tensor, delta: f64, reduction: Reduction) -> Result<Tensor> {
    let _op = enter("huber");
    if !delta.is_finite() || delta <= 0.0 {
        return Err(Error::value(format!("delta must be positive, not {delta}")));
    }
    elementwise(x, target, reduction, |x, t| {
        // The square of the difference, not of its absolute value, whose slope at 0 would make the
        // second derivative 0.
        let difference = x - t;
        let d = difference.abs();
        let inside = d.lt(delta);
        // outside, the square is that of 0: one of infinity would add 0 * inf to the gradient
        let near = inside.select(difference, difference.like(0.0));
        inside.select(near.square() * 0.5, (d - 0.5 * delta) * delta)
    })
}

/// Binary cross-entropy of logits: `-t log σ(x) - (1 - t) log(1 - σ(x))`, as `(1 - t) x +
/// log1p(exp(-x))` where x is positive and
/// `-t x + log1p(exp(x))` elsewhere, which is finite for all finite x. Shapes: x and target equal.
/// Equivalent: `torch.nn.functional.binary_cross_entropy_with_logits`.
///
/// # Errors
/// If the shapes differ.
#[track_caller]
pub fn bce_with_logits(x: &Tensor, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
    let _op = enter("bce_with_logits");
    elementwise(x, target, reduction, |x, t| {
        // NOTE: not relu and abs, whose slopes at 0 are 0 each: one condition for both terms makes
        // them add up to 1/2 there
        let positive = x.gt(0.0);
        (positive.select(t.like(1.0), 0.0) - t) * x + positive.select(-x, x).exp().log1p()
    })
}

/// Binary cross-entropy of probabilities: `-t log p - (1 - t) log(1 - p)`, with logarithms no less
/// than -100, as in PyTorch. [`bce_with_logits`] is more exact. Shapes: p and target equal.
/// Equivalent: `torch.nn.functional.binary_cross_entropy`.
///
/// The slope of a logarithm is at most 1e12, where that is cut off, too: a certain mistake has a
/// gradient of 1e12, as in PyTorch. At p = target = 0 the gradient is 1, where PyTorch has 0; see
/// `SPECIAL_POINTS.md` of teeny-autograd.
///
/// # Errors
/// If the shapes differ.
#[track_caller]
pub fn bce(p: &Tensor, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
    let _op = enter("bce");
    // NOTE: `log().max(-100.0)` and `log1p().max(-100.0)` are what automatic differentiation
    // recognises
    elementwise(p, target, reduction, |p, t| {
        -(t * p.log().max(-100.0) + (1.0 - t) * (-p).log1p().max(-100.0))
    })
}

/// Kullback and Leibler's divergence from `target` (probabilities) to `log_q` (log-probabilities):
/// `t (log t - log q)`, 0 where t is 0. Shapes: both equal. [`Reduction::Mean`] averages over
/// elements, as `torch.nn.functional.kl_div` does; divide the sum by the batch for the quantity of
/// the books.
///
/// # Errors
/// If the shapes differ.
#[track_caller]
pub fn kl_div(log_q: &Tensor, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
    let _op = enter("kl_div");
    elementwise(log_q, target, reduction, |q, t| {
        let positive = t.gt(0.0);
        // the logarithm is taken of 1 where t is 0, so that neither value nor gradient is NaN there
        t * (positive.select(t, 1.0).log() - q)
    })
}

/// Poisson's negative log-likelihood of counts, but for the part that is constant: `exp(x) - t x`,
/// where x is the logarithm of the expected count. Shapes: x and target equal. Equivalent:
/// `torch.nn.functional.poisson_nll_loss`.
///
/// # Errors
/// If the shapes differ.
#[track_caller]
pub fn poisson_nll(x: &Tensor, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
    let _op = enter("poisson_nll");
    elementwise(x, target, reduction, |x, t| x.exp() - t * x)
}

/// Hinge: `max(0, 1 - t x)` for targets -1 and 1. Shapes: x and target equal.
///
/// # Errors
/// If the shapes differ.
#[track_caller]
pub fn hinge(x: &Tensor, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
    let _op = enter("hinge");
    elementwise(x, target, reduction, |x, t| (t * -x + 1.0).relu())
}
