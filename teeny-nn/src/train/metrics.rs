//! Running means, accuracy, and noticing that training has gone wrong.

use teeny_core::context::enter;
use teeny_core::{DType, Error, Result, Tensor};

/// The mean of values that arrive with a weight, e.g. the losses of batches of unequal size.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mean {
    sum: f64,
    weight: f64,
}

impl Mean {
    /// Nothing yet.
    pub fn new() -> Mean {
        Mean::default()
    }

    /// One more value, which counts `weight` times.
    pub fn add(&mut self, value: f64, weight: f64) {
        self.sum += value * weight;
        self.weight += weight;
    }

    /// The mean so far; NaN of nothing.
    pub fn value(&self) -> f64 {
        self.sum / self.weight
    }
}

/// How many rows of `logits` are largest at their target: the correct answers of a classifier.
///
/// Shapes: logits (N, C), targets (N) of integers.
///
/// # Errors
/// If the shapes do not fit.
#[track_caller]
pub fn accuracy(logits: &Tensor, targets: &Tensor) -> Result<usize> {
    let _op = enter("accuracy");
    if logits.ndim() != 2 || *targets.shape() != [logits.shape()[0]] {
        return Err(Error::shape(format!("logits must be (N, C) and targets (N), not {} and {}", logits.shape(), targets.shape())));
    }
    let right = logits.argmax(-1)?.eq(targets)?.sum_all()?; // () of I64
    Ok(right.cast(DType::I64)?.item::<i64>()? as usize)
}

/// `value`, unless it is NaN or infinite: a loss that has stopped being a number does not come back, and training on is a waste.
///
/// # Errors
/// If `value` is not finite; `what` names it, `step` says when.
pub fn require_finite(what: &str, value: f64, step: usize) -> Result<f64> {
    if value.is_finite() {
        return Ok(value);
    }
    Err(Error::value(format!("{what} is {value} at step {step}"))
        .named("training")
        .hint("the usual causes are too high a learning rate and NaN in the data"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_weighs_its_values() {
        let mut mean = Mean::new();
        assert!(mean.value().is_nan());
        mean.add(1.0, 64.0);
        mean.add(4.0, 32.0);
        assert_eq!(mean.value(), 2.0);
    }

    #[test]
    fn a60_a_loss_that_is_no_number_stops_training() {
        assert_eq!(require_finite("loss", 2.3, 0).unwrap(), 2.3);
        let error = require_finite("loss", f64::NAN, 7).unwrap_err().to_string();
        assert!(error.starts_with("training: loss is NaN at step 7\n  hint:"), "{error}");
        assert!(require_finite("loss", f64::INFINITY, 7).is_err());
    }
}
