//! PyTorch's less common losses: margins, distances, multi-label and weighted losses.

use super::{Reduction, bce_with_logits, elementwise, huber, l1, zero_inside};
use crate::track;
use teeny_core::context::{Positions, enter, positions_of};
use teeny_core::{DType, Error, Result, Tensor, map};

const TARGET: &Positions = &Positions::of("target");

elementwise_losses! {
    /// `log(1 + exp(-t x))` for targets -1 and 1. Shapes: x and target equal. Equivalent:
    /// `torch.nn.functional.soft_margin_loss`.
    soft_margin() |x, t| (t * -x).softplus();
    /// x for targets 1, `max(0, margin - x)` for targets -1 (PyTorch's margin is 1). Shapes: x and
    /// target equal. Equivalent: `torch.nn.functional.hinge_embedding_loss`.
    hinge_embedding(margin) |x, t| {
        let away = t.eq(1.0).where_cond(x.like(0.0), (x * -1.0 + margin).relu());
        away + t.eq(-1.0).where_cond(x.like(0.0), x)
    };
    /// [`kl_div`](super::kl_div) of targets that are log-probabilities: `exp(t) (t - log q)`.
    /// Shapes: both equal. Equivalent: `torch.nn.functional.kl_div(log_q, target,
    /// log_target=True)`.
    kl_div_log() |q, t| t.exp() * (t - q);
    /// Binary cross-entropy of logits in which well-classified elements count less: `a (1 -
    /// p)^gamma ce` with the probability p of the target, and a = `alpha` for targets 1 and `1 -
    /// alpha` for 0, or 1 if `alpha` is negative. The paper has 0.25 and 2. Shapes: x and target
    /// equal. Source: Lin et al. 2017, arXiv:1708.02002. Equivalent:
    /// `torchvision.ops.sigmoid_focal_loss`.
    focal(alpha, gamma) |x, t| {
        // the probability of the other class, without the rounding of 1 - p
        let wrong = x.sigmoid() * (1.0 - t) + (-x).sigmoid() * t;
        let ce = t * (-x).softplus() + (1.0 - t) * x.softplus();
        let loss = wrong.pow(gamma) * ce;
        if alpha < 0.0 { loss } else { loss * (t * (2.0 * alpha - 1.0) + (1.0 - alpha)) }
    };
}

/// [`huber`] divided by `beta`: `d²/(2 beta)` where `d = |x - t|` is less than `beta`, `d - beta/2`
/// elsewhere; beta 0 is [`l1`]. Shapes: x and target equal. Equivalent:
/// `torch.nn.functional.smooth_l1_loss`, whose beta is 1.
///
/// # Errors
/// As [`huber`].
#[doc(alias = "smooth_l1_loss")]
#[track_caller]
pub fn smooth_l1(x: &Tensor, target: &Tensor, beta: f64, reduction: Reduction) -> Result<Tensor> {
    let _op = enter("smooth_l1");
    if beta == 0.0 {
        return l1(x, target, reduction);
    }
    huber(x, target, beta, reduction)?.div(beta)
}

/// [`bce_with_logits`] in which targets of 1 count `positive` times as much, a tensor that
/// broadcasts to x: the number of negative targets over the number of positive ones balances
/// classes. Shapes: x and target equal. Equivalent: `binary_cross_entropy_with_logits(x, t,
/// pos_weight=positive)`.
///
/// # Errors
/// As [`bce_with_logits`]; if `positive` does not broadcast.
#[track_caller]
pub fn bce_with_logits_weighted(
    x: &Tensor,
    target: &Tensor,
    positive: &Tensor,
    reduction: Reduction,
) -> Result<Tensor> {
    let _op = enter("bce_with_logits_weighted");
    let plain = bce_with_logits(x, target, Reduction::None)?;
    let positive = positive.cast(x.dtype())?.expand(x.shape())?;
    let losses = map([&plain, x, target, &positive], |[plain, x, t, w]| {
        plain + (w - 1.0) * t * (-x).softplus()
    })?;
    reduction.apply(losses)
}

/// `max(0, -t (x - y) + margin)`: x is ranked above y for targets 1, below for -1 (PyTorch's margin
/// is 0). Shapes: all equal. Equivalent: `torch.nn.functional.margin_ranking_loss`.
///
/// # Errors
/// If the shapes differ, or the targets have a higher float type.
#[doc(alias = "margin_ranking_loss")]
#[track_caller]
pub fn margin_ranking(
    x: &Tensor,
    y: &Tensor,
    target: &Tensor,
    margin: f64,
    reduction: Reduction,
) -> Result<Tensor> {
    let _op = enter("margin_ranking");
    elementwise([&x.sub(y)?, target], reduction, |[d, t]| (t * -d + margin).relu())
}

/// `1 - cos(x, y)` for targets 1, `max(0, cos(x, y) - margin)` for -1 (PyTorch's margin is 0), 0
/// for others. Shapes: x and y (N, D), target (N). Equivalent:
/// `torch.nn.functional.cosine_embedding_loss`.
///
/// # Errors
/// If the shapes do not fit, or the targets have a higher float type.
#[doc(alias = "cosine_embedding_loss")]
#[track_caller]
pub fn cosine_embedding(
    x: &Tensor,
    y: &Tensor,
    target: &Tensor,
    margin: f64,
    reduction: Reduction,
) -> Result<Tensor> {
    let _op = enter("cosine_embedding");
    let norm = |x: &Tensor| x.square()?.sum(-1)?.add(1e-12)?.sqrt();
    let cosine = x.mul(y)?.sum(-1)?.div(&norm(x)?)?.div(&norm(y)?)?; // (N)
    elementwise([&cosine, target], reduction, |[c, t]| {
        let apart = t.eq(-1.0).where_cond((c - margin).relu(), 0.0);
        t.eq(1.0).where_cond(1.0 - c, apart)
    })
}

/// `max(0, d(anchor, positive) - d(anchor, negative) + margin)` with the distance
/// `(Σ |x - y + 1e-6|^p)^(1/p)`; PyTorch's margin is 1, its p 2. Shapes: all (.., D), losses (..).
/// Equivalent: `torch.nn.functional.triplet_margin_loss`.
///
/// # Errors
/// If the shapes do not broadcast, or the types are not floats.
#[doc(alias = "triplet_margin_loss")]
#[track_caller]
pub fn triplet_margin(
    anchor: &Tensor,
    positive: &Tensor,
    negative: &Tensor,
    margin: f64,
    p: f64,
    reduction: Reduction,
) -> Result<Tensor> {
    let _op = enter("triplet_margin");
    let distance = |y: &Tensor| anchor.sub(y)?.add(1e-6)?.vector_norm(p, -1);
    elementwise([&distance(positive)?, &distance(negative)?], reduction, |[near, far]| {
        (near - far + margin).relu()
    })
}

/// `Σ max(0, margin - x[t] + x[j])^p / C` over the classes j other than t; PyTorch's margin and p
/// are 1. Shapes: x (N, C), target (N) of integers, losses (N). Equivalent:
/// `torch.nn.functional.multi_margin_loss`.
///
/// # Errors
/// If the shapes do not fit, or a target is not a class.
#[doc(alias = "multi_margin_loss")]
#[track_caller]
pub fn multi_margin(
    x: &Tensor,
    target: &Tensor,
    p: f64,
    margin: f64,
    reduction: Reduction,
) -> Result<Tensor> {
    let _op = enter("multi_margin");
    let [n, classes] = rows(x)?;
    if target.shape()[..] != [n] {
        return Err(Error::shape(format!(
            "logits {} need targets ({n},), not {}",
            x.shape(),
            target.shape()
        ))
        .help("a target is the number of a class"));
    }
    let index = target.unsqueeze(1)?; // (N, 1)
    let _named = positions_of(TARGET);
    let own = x.gather(1, &index)?; // (N, 1)
    let class = Tensor::arange(0i32, classes as i32, 1, x)?; // (C)
    let losses = map([x, &own, &index, &class], |[x, own, t, c]| {
        c.eq(t).where_cond(x.like(0.0), (x - own + margin).relu().norm_power(p))
    })?;
    reduction.apply(losses.sum(1)?.div(classes as f64)?)
}

/// `Σ max(0, 1 - x[j] + x[i]) / C` over the labels j and the classes i that are not labels. Shapes:
/// x (N, C), target (N, C) of integers: labels from the left, then -1. Losses (N). Equivalent:
/// `torch.nn.functional.multilabel_margin_loss`.
///
/// # Errors
/// If the shapes differ, targets are not signed integers, or a label is not a class.
#[doc(alias = "multilabel_margin_loss")]
#[track_caller]
pub fn multilabel_margin(x: &Tensor, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
    let _op = enter("multilabel_margin");
    let [_, classes] = rows(x)?;
    if x.shape() != target.shape() {
        return Err(Error::shape(format!(
            "logits {} and labels {} differ",
            x.shape(),
            target.shape()
        ))
        .help("each row of labels is filled up with -1 to the number of classes"));
    }
    // labels stand before the first negative number
    let counts = target.ge(0)?.cast(DType::I32)?.cumprod(1)?.ne(0)?; // (N, C)
    let index = counts.where_cond(target, 0)?;
    let _named = positions_of(TARGET);
    let own = x.gather(1, &index)?; // (N, C)
    let zeros = Tensor::zeros(x.shape(), DType::I32, x)?;
    let labels = zeros.scatter_add(1, &index, &counts.cast(DType::I32)?)?; // (N, C)
    let (own, counts) = (own.unsqueeze(2)?, counts.unsqueeze(2)?);
    let (x, labels) = (x.unsqueeze(1)?, labels.unsqueeze(1)?);
    let losses = map([&own, &counts, &x, &labels], |[own, counts, x, labels]| {
        counts.and(labels.eq(0)).where_cond((x - own + 1.0).relu(), 0.0)
    })?; // (N, C, C)
    reduction.apply(losses.sum([1, 2])?.div(classes as f64)?)
}

/// The mean of [`bce_with_logits`] over the classes. Shapes: x and target (.., C), losses (..).
/// Equivalent: `torch.nn.functional.multilabel_soft_margin_loss`.
///
/// # Errors
/// As [`bce_with_logits`].
#[doc(alias = "multilabel_soft_margin_loss")]
#[track_caller]
pub fn multilabel_soft_margin(x: &Tensor, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
    let _op = enter("multilabel_soft_margin");
    reduction.apply(bce_with_logits(x, target, Reduction::None)?.mean(-1)?)
}

/// Negative log-likelihood of a normal distribution with mean x and variance `var`, without its
/// constant: `(log v + (x - t)² / v) / 2` with `v = max(var, eps)`; PyTorch's eps is 1e-6. The
/// gradient of `var` equals the gradient of `v`, also below eps. Shapes: x and target equal, `var`
/// broadcasts to them. Equivalent: `torch.nn.functional.gaussian_nll_loss`.
///
/// # Errors
/// If the shapes do not fit, the targets have a higher float type, or a variance is negative: at
/// once, or as a wrong index with a later read.
#[doc(alias = "gaussian_nll_loss")]
#[track_caller]
pub fn gaussian_nll(
    x: &Tensor,
    target: &Tensor,
    var: &Tensor,
    eps: f64,
    reduction: Reduction,
) -> Result<Tensor> {
    let _op = enter("gaussian_nll");
    let wide = var.expand(x.shape())?;
    let constant = track::detached(&wide)?;
    let zero = zero_inside(("var", var), "0 or more", |v| v.lt(0.0).not())?;
    elementwise([x, target, &wide, &constant, &zero], reduction, |[x, t, v, constant, zero]| {
        // as in PyTorch, the derivative below eps is 1: it takes the variance out of there
        let v = v.lt(eps).where_cond(v - constant + eps, v);
        (v.log() + (x - t).square() / v) * 0.5 + zero
    })
}

/// The sizes of a matrix of logits.
fn rows(x: &Tensor) -> Result<[usize; 2]> {
    match x.shape()[..] {
        [n, classes] => Ok([n, classes]),
        _ => Err(Error::shape(format!("logits are (N, C), not {}", x.shape()))
            .help("logits.unsqueeze(0)? makes a batch of one")),
    }
}
