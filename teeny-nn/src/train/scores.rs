//! Metrics of scores, probabilities and numbers: ROC AUC, average precision, calibration, R².

use super::elements::{NAN, class_axis, flags, numbers, require_same_shape};
use crate::loss::position;
use teeny_core::context::enter;
use teeny_core::{Error, Result, Tensor};

/// The area under the ROC curve: the probability that a positive item has a higher score than a
/// negative one, where equal scores count half.
///
/// Shapes: scores and targets of one shape; targets are 0 or 1, or booleans. Logits and
/// probabilities have the same area. Equivalent: `sklearn.metrics.roc_auc_score`.
///
/// # Errors
/// If the shapes differ, a score is NaN, a target is not 0 or 1, or all targets are equal.
///
/// # Example
/// ```
/// use teeny_core::{Reference, Tensor};
/// use teeny_nn::train::{average_precision, roc_auc};
/// # fn main() -> teeny_core::Result<()> {
/// # let device = Reference::new();
/// let scores = Tensor::new([0.1f32, 0.4, 0.35, 0.8], &device)?; // (4)
/// let targets = Tensor::new([0i32, 0, 1, 1], &device)?; // (4)
/// assert_eq!(roc_auc(&scores, &targets)?, 0.75);
/// assert!((average_precision(&scores, &targets)? - 0.8333).abs() < 1e-4);
/// # Ok(()) }
/// ```
#[track_caller]
pub fn roc_auc(scores: &Tensor, targets: &Tensor) -> Result<f64> {
    let _op = enter("roc_auc");
    let (groups, [positives, negatives]) = by_score(scores, targets)?;
    if positives == 0 || negatives == 0 {
        return Err(Error::value(format!(
            "all {} targets are {}",
            positives + negatives,
            usize::from(positives > 0)
        ))
        .help("the area needs positive and negative items"));
    }
    // groups by falling score: count the negatives that score below each positive
    let (mut below, mut pairs) = (negatives as f64, 0.0);
    for (hits, misses) in groups {
        below -= misses as f64;
        pairs += hits as f64 * (below + misses as f64 / 2.0);
    }
    Ok(pairs / (positives as f64 * negatives as f64))
}

/// The area under the curve of precision by recall, as a sum over all thresholds `t` from the
/// highest score on: `Σ (recall(t) - recall(t before)) precision(t)`.
///
/// Shapes: as [`roc_auc`]. Equivalent: `sklearn.metrics.average_precision_score`.
///
/// # Errors
/// If the shapes differ, a score is NaN, a target is not 0 or 1, or no target is 1.
#[track_caller]
pub fn average_precision(scores: &Tensor, targets: &Tensor) -> Result<f64> {
    let _op = enter("average_precision");
    let (groups, [positives, negatives]) = by_score(scores, targets)?;
    if positives == 0 {
        return Err(Error::value(format!("none of {negatives} targets is 1"))
            .help("precision and recall need at least one positive item"));
    }
    let (mut found, mut taken, mut area) = (0, 0, 0.0);
    for (hits, misses) in groups {
        found += hits;
        taken += hits + misses;
        area += hits as f64 / positives as f64 * (found as f64 / taken as f64);
    }
    Ok(area)
}

/// The numbers of positive and negative items of each score, from the highest on, and of all.
type ByScore = (Vec<(usize, usize)>, [usize; 2]);

fn by_score(scores: &Tensor, targets: &Tensor) -> Result<ByScore> {
    let targets = flags(scores, targets)?;
    let scores = numbers(scores)?;
    if let Some(i) = scores.iter().position(|score| score.is_nan()) {
        return Err(Error::value(format!("scores[{i}] is NaN")).help(NAN));
    }
    let mut items: Vec<(f64, bool)> = scores.into_iter().zip(targets).collect();
    items.sort_by(|a, b| b.0.total_cmp(&a.0));
    // total_cmp puts 0.0 above -0.0, which are equal scores in one place
    let groups: Vec<(usize, usize)> = items
        .chunk_by(|a, b| a.0 == b.0)
        .map(|group| {
            let hits = group.iter().filter(|item| item.1).count();
            (hits, group.len() - hits)
        })
        .collect();
    let positives = groups.iter().map(|group| group.0).sum();
    let negatives = items.len() - positives;
    Ok((groups, [positives, negatives]))
}

/// The expected calibration error: the mean over all items of `|accuracy - confidence|` of their
/// bin. The confidence is the largest probability of the softmax of a row; `bins` bins of equal
/// width divide `(0, 1]`.
///
/// Shapes: logits (N, C, d..), targets (N, d..) of integers.
///
/// Source: Guo et al. 2017, arXiv:1706.04599.
/// Equivalent: `torchmetrics`' multiclass calibration error with the norm l1.
///
/// # Errors
/// If the shapes do not fit, `bins` is 0, the batch is empty, or a logit is not finite.
#[track_caller]
pub fn calibration_error(logits: &Tensor, targets: &Tensor, bins: usize) -> Result<f64> {
    let _op = enter("calibration_error");
    let axis = class_axis(logits, targets)? as isize;
    if bins == 0 || targets.numel() == 0 {
        let text = format!("{} items in {bins} bins have no calibration", targets.numel());
        return Err(Error::value(text).help("at least one of each is needed; 15 bins are usual"));
    }
    let confidences = numbers(&logits.softmax(axis)?.max(axis)?)?; // N d..
    let hits = numbers(&logits.argmax(axis)?.eq(targets)?)?; // N d..
    // confidences and correct predictions by bin
    let mut sums = vec![(0.0, 0.0); bins];
    for (i, (&confidence, hit)) in confidences.iter().zip(hits).enumerate() {
        if confidence.is_nan() {
            let i = position(i, targets.shape());
            return Err(
                Error::value(format!("logits[{i}] have no softmax: one is not finite")).help(NAN)
            );
        }
        let bin = ((confidence * bins as f64).ceil() as usize).clamp(1, bins) - 1;
        sums[bin] = (sums[bin].0 + confidence, sums[bin].1 + hit);
    }
    Ok(sums.iter().map(|(sure, right)| (sure - right).abs()).sum::<f64>() / targets.numel() as f64)
}

/// The coefficient of determination `R² = 1 - Σ (y - p)² / Σ (y - mean)²` of predictions `p` of
/// targets `y`: 1 for perfect ones, 0 for the mean. For targets that are all equal it is 1 if the
/// predictions are perfect, otherwise 0.
///
/// Shapes: predictions and targets of one shape. Equivalent: `sklearn.metrics.r2_score` of the
/// elements in a row.
///
/// # Errors
/// If the shapes differ, an element is not finite, or there are fewer than two elements.
#[track_caller]
pub fn r2_score(predictions: &Tensor, targets: &Tensor) -> Result<f64> {
    let _op = enter("r2_score");
    require_same_shape("predictions", predictions, targets)?;
    let (p, y) = (numbers(predictions)?, numbers(targets)?);
    if y.len() < 2 {
        return Err(Error::value(format!("cannot compute R² of {} elements", y.len()))
            .help("the variance of the targets needs at least two of them"));
    }
    for (name, x) in [("predictions", &p), ("targets", &y)] {
        if let Some(i) = x.iter().position(|x| !x.is_finite()) {
            return Err(Error::value(format!("{name}[{i}] is {}", x[i])).help(NAN));
        }
    }
    let mean = y.iter().sum::<f64>() / y.len() as f64;
    let rest: f64 = y.iter().zip(&p).map(|(y, p)| (y - p).powi(2)).sum();
    let spread: f64 = y.iter().map(|y| (y - mean).powi(2)).sum();
    Ok(match (rest, spread) {
        (0.0, 0.0) => 1.0,
        (_, 0.0) => 0.0,
        _ => 1.0 - rest / spread,
    })
}
