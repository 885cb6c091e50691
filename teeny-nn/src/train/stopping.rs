//! Early stopping: ends a run whose validation loss no longer improves.

use crate::state::Stateful;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use teeny_core::Result;
use teeny_formats::State;

/// Decides when to stop by a value, usually the validation loss, that no longer improves.
///
/// Equivalent: Keras' `EarlyStopping` without `restore_best_weights`: save the weights when
/// [`EarlyStopping::update`] returns true.
///
/// # Example
/// ```
/// use teeny_nn::train::EarlyStopping;
/// let mut stopping = EarlyStopping::new(2);
/// for (epoch, loss) in [2.3, 1.1, 0.9, 0.95, 0.92, 0.91].into_iter().enumerate() {
///     if stopping.update(epoch as u64, loss) {
///         // the best value: save the weights
///     }
///     if stopping.should_stop() {
///         break;
///     }
/// }
/// assert_eq!((stopping.best(), stopping.should_stop()), (Some((2, 0.9)), true));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct EarlyStopping {
    patience: u64,
    min_delta: f64,
    maximize: bool,
    best: Option<(u64, f64)>,
    wait: u64,
}

impl EarlyStopping {
    /// Stops after `patience` values in a row without improvement. Smaller values are better.
    pub fn new(patience: u64) -> EarlyStopping {
        EarlyStopping {
            patience: patience.max(1),
            min_delta: 0.0,
            maximize: false,
            best: None,
            wait: 0,
        }
    }

    /// Makes larger values better, as for an accuracy.
    pub fn maximize(mut self) -> EarlyStopping {
        self.maximize = true;
        self
    }

    /// Sets the difference by which a value must be better to count as an improvement; 0.
    pub fn min_delta(mut self, delta: f64) -> EarlyStopping {
        self.min_delta = delta.abs();
        self
    }

    /// Records the value at `step` (or epoch). Returns true if it is better than the best one by
    /// more than `min_delta`, or the first. NaN never is.
    pub fn update(&mut self, step: u64, value: f64) -> bool {
        let gain = |best: f64| if self.maximize { value - best } else { best - value };
        let better =
            !value.is_nan() && self.best.is_none_or(|(_, best)| gain(best) > self.min_delta);
        if better {
            self.best = Some((step, value));
            self.wait = 0;
        } else {
            self.wait += 1;
        }
        better
    }

    /// Whether `patience` values in a row did not improve.
    pub fn should_stop(&self) -> bool {
        self.wait >= self.patience
    }

    /// The best value and its step.
    pub fn best(&self) -> Option<(u64, f64)> {
        self.best
    }
}

impl Stateful for EarlyStopping {
    fn state(&self) -> Result<State> {
        let state = State::default().with("waited", self.wait);
        Ok(match self.best {
            Some((step, value)) => state.with("best_step", step).with("best", value),
            None => state,
        })
    }

    fn set_state(&mut self, state: &State) -> Result<()> {
        let best = match state.find("best")? {
            Some(value) => Some((state.get("best_step")?, value)),
            None => None,
        };
        (self.wait, self.best) = (state.get("waited")?, best);
        Ok(())
    }
}

/// Whether a run ends before its last step, as its batches and the run itself see it.
#[derive(Clone)]
pub(super) struct Stop {
    early: Arc<AtomicBool>,
    interrupt: Option<Arc<AtomicBool>>,
}

impl Stop {
    /// `interrupt` is set at Ctrl-C.
    pub fn new(stopping: &EarlyStopping, interrupt: Option<Arc<AtomicBool>>) -> Stop {
        Stop { early: Arc::new(AtomicBool::new(stopping.should_stop())), interrupt }
    }

    pub fn is_interrupted(&self) -> bool {
        self.interrupt.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed))
    }

    pub fn is_set(&self) -> bool {
        self.early.load(Ordering::Relaxed) || self.is_interrupted()
    }

    /// Stops when `stopping` does; returns whether this is the first time.
    pub fn follow(&self, stopping: &EarlyStopping) -> bool {
        let stops = stopping.should_stop();
        !self.early.swap(stops, Ordering::Relaxed) && stops
    }

    /// The run is over: a Ctrl-C after it ends the program.
    pub fn end(&self) {
        if let Some(flag) = &self.interrupt {
            flag.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_counts_values_without_enough_improvement() {
        let mut stopping = EarlyStopping::new(3).min_delta(0.1);
        let better: Vec<bool> = [1.0, 0.95, 0.85, f64::NAN, 0.8, 0.76]
            .into_iter()
            .enumerate()
            .map(|(i, v)| stopping.update(i as u64, v))
            .collect();
        assert_eq!(better, [true, false, true, false, false, false]);
        assert!(stopping.should_stop());
        assert_eq!(stopping.best(), Some((2, 0.85)));
        assert!(
            stopping.update(6, 0.5) && !stopping.should_stop(),
            "an improvement restarts the waiting"
        );
    }

    #[test]
    fn an_accuracy_is_made_large_and_the_first_value_is_always_best() {
        let mut stopping = EarlyStopping::new(1).maximize();
        assert!(!stopping.should_stop() && stopping.best().is_none());
        assert!(stopping.update(1, 0.5) && stopping.update(2, 0.6) && !stopping.update(3, 0.6));
        assert!(stopping.should_stop());
    }

    #[test]
    fn a_resumed_watch_goes_on_as_if_it_had_not_been_interrupted() {
        let mut stopping = EarlyStopping::new(2);
        let mut fresh = EarlyStopping::new(2);
        fresh.set_state(&stopping.state().unwrap()).unwrap();
        assert_eq!(fresh, stopping);
        stopping.update(1, 0.1 + 0.2);
        stopping.update(2, 1.0);
        fresh.set_state(&stopping.state().unwrap()).unwrap();
        assert_eq!(fresh, stopping);
    }
}
