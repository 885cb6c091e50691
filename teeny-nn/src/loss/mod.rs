//! Losses: one number to minimise, the distance of predictions from targets.
//!
//! Most losses are an elementwise function (one kernel) and a reduction;
//! [`cross_entropy`](cross_entropy()) has its own file.

/// Functions of elements and targets that are losses; a type of arguments is `f64`.
macro_rules! elementwise_losses {
    ($($(#[$doc:meta])* $name:ident($($option:ident),*) |$x:ident, $t:ident| $loss:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        /// If the shapes differ, or the targets have a higher float type.
        #[track_caller]
        pub fn $name(
            x: &Tensor, target: &Tensor $(, $option: f64)*, reduction: Reduction,
        ) -> Result<Tensor> {
            let _op = enter(stringify!($name));
            elementwise([x, target], reduction, |[$x, $t]| $loss)
        }
    )*};
}

mod cross_entropy;
mod ctc;
mod margin;
mod ranking;

pub use cross_entropy::{CrossEntropy, cross_entropy, nll};
pub(crate) use cross_entropy::{index_axis, position};
pub use ctc::ctc;
pub use margin::{
    bce_with_logits_weighted, cosine_embedding, focal, gaussian_nll, hinge_embedding, kl_div_log,
    margin_ranking, multi_margin, multilabel_margin, multilabel_soft_margin, smooth_l1,
    soft_margin, triplet_margin,
};
pub use ranking::multiple_negatives_ranking;

use crate::module::is_higher;
use crate::track;
use teeny_core::context::enter;
use teeny_core::{DType, Error, ErrorKind, Expr, Result, Shape, Tensor, map, map_sum};

/// The reduction of the losses of single elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reduction {
    /// Their mean, a scalar.
    #[default]
    Mean,
    /// Their sum, a scalar.
    Sum,
    /// No reduction.
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

/// `f` of elements of the predictions, the targets and whatever else broadcasts to them, reduced.
/// The shapes of the former two must be equal: broadcasting a loss is nearly always a mistake.
fn elementwise<const N: usize>(
    inputs: [&Tensor; N],
    reduction: Reduction,
    f: impl for<'b> FnOnce([Expr<'b>; N]) -> Expr<'b>,
) -> Result<Tensor> {
    let (x, target) = (inputs[0], inputs[1]);
    if x.shape() != target.shape() {
        let error = Error::shape(format!(
            "predictions {} and targets {} must have the same shape",
            x.shape(),
            target.shape()
        ));
        return Err(match (squeezes_to(x, target.shape()), squeezes_to(target, x.shape())) {
            (Some(axis), _) => error.help(format!("predictions.squeeze({axis})? has that shape")),
            (_, Some(axis)) => error.help(format!("targets.squeeze({axis})? has that shape")),
            _ => error.help("broadcasting a loss is nearly always a mistake: expand one of them"),
        });
    }
    require_type(x, target)?;
    let dtype = inputs.iter().fold(x.dtype(), |dtype, x| dtype.promote(x.dtype()));
    let wide = dtype.compute();
    if wide == dtype {
        return reduction.apply(map(inputs, f)?);
    }
    // 16-bit floats are computed in f32: the mean of squares may be in their range, squares not.
    reduction.apply(map(inputs, |inputs| f(inputs.map(|x| x.cast(wide))))?)?.cast(dtype)
}

/// A zero to add to losses, or an error that names the first element of `x` for which `valid` is
/// false: at once, or from a device that computes later with the read of a result, as a wrong
/// index.
fn zero_inside(
    (name, x): (&str, &Tensor),
    rule: &str,
    valid: impl for<'b> Fn(Expr<'b>) -> Expr<'b>,
) -> Result<Tensor> {
    let (flat, zero) = (track::detached(x)?.reshape(-1)?, Tensor::zeros(1, x.dtype(), x)?);
    let wrong = map_sum([&flat], 0, |[x]| valid(x).not().cast(DType::F32))?; // ()
    match zero.index_select(0, &wrong.cast(DType::I32)?) {
        Err(error) if error.kind() == ErrorKind::Index => {
            let wrong = map([&flat], |[x]| valid(x).not().cast(DType::I32))?; // (n)
            let i = wrong.argmax(0)?.item::<i32>()? as isize;
            let (at, value) = (position(i as usize, x.shape()), flat.at(0, i)?.to_scalars()?[0]);
            Err(Error::value(format!("{name}[{at}] is {value}, but must be {rule}"))
                .help("x.clamp(low, high)? limits it; the loss of logits takes any number"))
        }
        result => result,
    }
}

/// The axis of size 1 without which `x` has this shape.
fn squeezes_to(x: &Tensor, shape: &Shape) -> Option<usize> {
    (0..x.ndim()).rev().find(|&axis| x.shape()[axis] == 1 && x.shape().without(axis) == *shape)
}

/// Returns an error if the targets have a higher float type than the predictions: the loss, and so
/// the backward pass, would have that type.
fn require_type(predictions: &Tensor, targets: &Tensor) -> Result<()> {
    let (own, other) = (predictions.dtype(), targets.dtype());
    if !is_higher(other, own) {
        return Ok(());
    }
    let text = format!("targets are {other}, but predictions {own}: the loss would be {other}");
    Err(Error::dtype(text)
        .help(format!("targets.cast(DType::{})? converts", own.name().to_uppercase())))
}

elementwise_losses! {
    /// Squared error `(x - t)²`. Shapes: x and target equal. Equivalent:
    /// `torch.nn.functional.mse_loss`.
    #[doc(alias = "mse_loss")]
    mse() |x, t| (x - t).square();
    /// Absolute error `|x - t|`. Shapes: x and target equal. Equivalent:
    /// `torch.nn.functional.l1_loss`.
    #[doc(alias = "l1_loss")]
    l1() |x, t| (x - t).abs();
    /// Binary cross-entropy of logits: `-t log σ(x) - (1 - t) log(1 - σ(x))`, computed as
    /// `(1 - t) x + log1p(exp(-x))` where x is positive and as `-t x + log1p(exp(x))` elsewhere,
    /// which is finite for all finite x. Shapes: x and target equal. Equivalent:
    /// `torch.nn.functional.binary_cross_entropy_with_logits`.
    #[doc(alias = "binary_cross_entropy_with_logits")]
    bce_with_logits() |x, t| {
        // NOTE: not relu and abs, whose derivatives at 0 are 0: with one condition for both terms
        // the derivative at 0 is 1/2 - t
        let positive = x.gt(0.0);
        (positive.where_cond(t.like(1.0), 0.0) - t) * x + positive.where_cond(-x, x).exp().log1p()
    };
    /// Kullback-Leibler divergence from `target` (probabilities) to `log_q` (log-probabilities):
    /// `t (log t - log q)`, 0 where t is 0, NaN where t is negative. Shapes: both equal.
    /// [`Reduction::Mean`] averages over elements, as `torch.nn.functional.kl_div` does; the
    /// divergence per item is the sum divided by the batch size.
    kl_div() |q, t| {
        // log 1 in place of log 0, so that neither value nor gradient is NaN where t is 0
        t * (t.eq(0.0).where_cond(t.like(1.0), t).log() - q)
    };
    /// Poisson negative log-likelihood of counts without its constant term: `exp(x) - t x`, where x
    /// is the logarithm of the expected count. Shapes: x and target equal. Equivalent:
    /// `torch.nn.functional.poisson_nll_loss`.
    #[doc(alias = "poisson_nll_loss")]
    poisson_nll() |x, t| x.exp() - t * x;
    /// Hinge: `max(0, 1 - t x)` for targets -1 and 1. Shapes: x and target equal.
    hinge() |x, t| (t * -x + 1.0).relu();
}

/// `d²/2` where `d = |x - t|` is less than `delta`, `delta (d - delta/2)` elsewhere: quadratic near
/// 0, linear beyond. Shapes: x and target equal. Equivalent: `torch.nn.functional.huber_loss`.
///
/// # Errors
/// If the shapes differ, the targets have a higher float type, or `delta` is not positive.
#[doc(alias = "huber_loss")]
#[track_caller]
pub fn huber(x: &Tensor, target: &Tensor, delta: f64, reduction: Reduction) -> Result<Tensor> {
    let _op = enter("huber");
    if !delta.is_finite() || delta <= 0.0 {
        return Err(
            Error::value(format!("delta must be positive, not {delta}")).help("1.0 is usual")
        );
    }
    elementwise([x, target], reduction, |[x, t]| {
        // the square of the difference, not of its absolute value, whose derivative at 0 would make
        // the second derivative 0
        let difference = x - t;
        let d = difference.abs();
        let inside = d.lt(delta);
        // outside, the square of 0: the square of infinity would add 0 * inf to the gradient
        let near = inside.where_cond(difference, difference.like(0.0));
        inside.where_cond(near.square() * 0.5, (d - 0.5 * delta) * delta)
    })
}

/// Binary cross-entropy of probabilities: `-t log p - (1 - t) log(1 - p)`, with logarithms clamped
/// to at least -100, as in PyTorch. [`bce_with_logits`] is more accurate. Shapes: p and target
/// equal. Equivalent: `torch.nn.functional.binary_cross_entropy`.
///
/// The derivative of a logarithm is clamped to at most 1e12: a wrong prediction with probability 1
/// has a gradient of 1e12, as in PyTorch. At p = target = 0 the gradient is 1, where PyTorch has 0;
/// see `SPECIAL_POINTS.md` of this crate.
///
/// # Errors
/// If the shapes differ, the targets have a higher float type, or a probability or target is not
/// within 0..=1: at once, or as a wrong index with a later read.
#[doc(alias = "binary_cross_entropy")]
#[track_caller]
pub fn bce(p: &Tensor, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
    let _op = enter("bce");
    let zero = |operand| zero_inside(operand, "within 0..=1", |x| x.ge(0.0).and(x.le(1.0)));
    let zero = zero(("p", p))?.add(&zero(("targets", target))?)?;
    // NOTE: automatic differentiation recognises `log().max(-100.0)` and `log1p().max(-100.0)`
    elementwise([p, target, &zero], reduction, |[p, t, zero]| {
        zero - (t * p.log().maximum(-100.0) + (1.0 - t) * (-p).log1p().maximum(-100.0))
    })
}
