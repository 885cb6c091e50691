//! Connectionist temporal classification: a loss for a sequence of labels that is shorter than the
//! sequence of predictions.

use super::Reduction;
use teeny_core::context::enter;
use teeny_core::{Error, Result, Tensor};

/// `-log P(labels)`, summed over all alignments of labels with time steps.
///
/// Shapes: log_probs (T, N, C), as from `log_softmax`; targets (N, S) of integers, of which row i
/// has `target_lengths[i]` labels and then anything; `input_lengths` are the numbers of time steps,
/// after which log_probs may have anything too.
/// Losses (N); the mean is of losses divided by the numbers of labels, as in PyTorch. An alignment
/// repeats labels and puts `blank` between any two. A row without an alignment, as there are too
/// few steps, is infinite, or 0 with `zero_infinity`.
///
/// The recurrence runs over time steps on tensors (N, 2 S + 1). Source: Graves et al. 2006,
/// doi:10.1145/1143844.1143891. Equivalent: `torch.nn.functional.ctc_loss`.
///
/// # Errors
/// If the shapes or lengths do not fit, or a label is not a class.
#[doc(alias = "ctc_loss")]
#[track_caller]
pub fn ctc(
    log_probs: &Tensor,
    targets: &Tensor,
    input_lengths: &[usize],
    target_lengths: &[usize],
    blank: usize,
    zero_infinity: bool,
    reduction: Reduction,
) -> Result<Tensor> {
    let _op = enter("ctc");
    let fits = log_probs.ndim() == 3
        && targets.ndim() == 2
        && log_probs.dtype().is_float()
        && targets.dtype().is_int()
        && log_probs.shape()[2] > blank;
    let (Some([steps, n, _]), Some([m, labels]), true) =
        (log_probs.shape().first_chunk(), targets.shape().first_chunk(), fits)
    else {
        return Err(Error::shape(format!(
            "log-probabilities {} of blank {blank} and labels {} do not fit",
            log_probs.shape(),
            targets.shape()
        ))
        .help("pass floats (T, N, C) and integers (N, S); the blank is one of the C classes"));
    };
    let (steps, n, labels) = (*steps, *n, *labels);
    let within = |lengths: &[usize], most: usize| {
        lengths.len() == n && lengths.iter().all(|length| *length <= most)
    };
    if *m != n || steps == 0 || !within(input_lengths, steps) || !within(target_lengths, labels) {
        return Err(Error::value(format!(
            "lengths {input_lengths:?} and {target_lengths:?} do not fit {n} sequences of {steps} \
             steps and labels {}",
            targets.shape()
        ))
        .help("each sequence has 0 to T steps and 0 to S labels; T is at least 1"));
    }
    let limit = |values: Vec<i32>| Tensor::from_vec(values, (n, 1), log_probs);
    let ends = limit(input_lengths.iter().map(|&length| length as i32).collect())?;
    let last = limit(target_lengths.iter().map(|&length| 2 * length as i32).collect())?;
    // padding may be no class
    let place = Tensor::arange(0i32, labels as i32, 1, log_probs)?; // (S)
    let targets = place.mul(2)?.lt(&last)?.where_cond(targets, blank as i64)?;
    // blank, label, blank, .., label, blank
    let blanks = Tensor::full((n, labels + 1, 1), blank as i64, targets.dtype(), &targets)?;
    let pairs = Tensor::cat(&[&blanks.slice(1, 1..)?, &targets.unsqueeze(2)?], 2)?;
    let states =
        Tensor::cat(&[&pairs.reshape((n, 2 * labels))?, &blanks.slice(1, ..1)?.squeeze(2)?], 1)?;
    let count = 2 * labels + 1;
    let shifted = |x: &Tensor, by: isize| x.pad(&[(by, -by)], f64::NEG_INFINITY);
    // A label follows the one before without a blank if they differ.
    let before = states.roll(1, 2.min(count as isize - 1))?;
    let skips = states.ne(blank as i64)?.and(&states.ne(&before)?)?;

    let emit = |t: usize| log_probs.at(0, t as isize)?.gather(1, &states); // (N, 2 S + 1)
    let state = Tensor::arange(0i32, count as i32, 1, log_probs)?; // (2 S + 1)
    let mut alpha = state.lt(2)?.where_cond(&emit(0)?, f64::NEG_INFINITY)?;
    if input_lengths.contains(&0) {
        // before the first step nothing has been read
        let none = state.lt(1)?.where_cond(&alpha.zeros_like()?, f64::NEG_INFINITY)?;
        alpha = ends.gt(0)?.where_cond(&alpha, &none)?;
    }
    for t in 1..steps {
        let skipped =
            skips.where_cond(&shifted(&alpha, 2.min(count as isize))?, f64::NEG_INFINITY)?;
        let paths = alpha.logaddexp(&shifted(&alpha, 1)?)?.logaddexp(&skipped)?;
        alpha = ends.gt(t as i32)?.where_cond(&paths.add(&emit(t)?)?, &alpha)?;
    }
    let end = alpha.gather(1, &last)?;
    // Without labels there is one last state.
    let other = alpha.gather(1, &last.sub(1)?.maximum(0)?)?;
    let other = last.gt(0)?.where_cond(&other, f64::NEG_INFINITY)?;
    let mut losses = end.logaddexp(&other)?.neg()?.squeeze(1)?; // (N)
    if zero_infinity {
        losses = losses.masked_fill(&losses.is_inf()?, 0.0)?;
    }
    if reduction == Reduction::Mean {
        let lengths: Vec<f32> = target_lengths.iter().map(|&length| length.max(1) as f32).collect();
        losses = losses.div(&Tensor::from_vec(lengths, n, log_probs)?.cast(losses.dtype())?)?;
    }
    reduction.apply(losses)
}
