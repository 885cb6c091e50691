//! Learning rates by step.
//!
//! A [`Schedule`] is a function of the step and has no state, so a resumed run needs none. Call
//! `optimizer.set_lr(schedule.at(step))` before step number `step`, counted from 0. Only
//! [`Plateau`], which depends on a loss, has a state, which a checkpoint saves.

use crate::optim::out_of_range;
use crate::state::Stateful;
use std::f64::consts::PI;
use std::fmt::Debug;
use std::ops::RangeBounds;
use std::sync::Arc;
use teeny_core::context::enter;
use teeny_core::{Error, Result};
use teeny_formats::State;

/// A learning rate for each step. Clones share the function. Arguments that make a rate negative,
/// NaN or infinite are an error of the optimizer's step that has this rate.
///
/// # Example
/// nanoGPT's schedule: linear warm-up over 100 steps, then cosine decay to a tenth.
/// ```
/// use teeny_nn::schedule::Schedule;
/// let schedule = Schedule::warmup_cosine(1e-3, 1e-4, 100, 2000);
/// assert!(schedule.at(0) > 0.0 && schedule.at(0) < 1.0e-5);
/// assert!((schedule.at(100) - 1e-3).abs() < 1e-12);
/// assert_eq!(schedule.at(5000), 1e-4);
/// ```
#[derive(Clone)]
pub struct Schedule(Arc<dyn Fn(u64) -> f64 + Send + Sync>);

impl Schedule {
    /// Any function of the step. Equivalent: `torch.optim.lr_scheduler.LambdaLR`, but the function
    /// returns the rate, not a factor.
    #[doc(alias = "LambdaLR")]
    pub fn new(rate: impl Fn(u64) -> f64 + Send + Sync + 'static) -> Schedule {
        Schedule(Arc::new(rate))
    }

    /// The learning rate for step number `step`, counted from 0.
    pub fn at(&self, step: u64) -> f64 {
        (self.0)(step)
    }

    /// The constant `lr`. Equivalent: `ConstantLR` with a factor of 1.
    pub fn constant(lr: f64) -> Schedule {
        Schedule::new(move |_| lr)
    }

    /// `lr gamma^(step / every)`, rounded down; `every` of 0 counts as 1. Equivalent: `StepLR`.
    pub fn step(lr: f64, every: u64, gamma: f64) -> Schedule {
        Schedule::new(move |step| lr * gamma.powf((step / every.max(1)) as f64))
    }

    /// `lr gamma^n`, where n is the number of milestones reached. Equivalent: `MultiStepLR`.
    pub fn multi_step(lr: f64, milestones: &[u64], gamma: f64) -> Schedule {
        let milestones = milestones.to_vec();
        Schedule::new(move |step| {
            lr * gamma.powi(milestones.iter().filter(|&&m| m <= step).count() as i32)
        })
    }

    /// `lr gamma^step`. Equivalent: `ExponentialLR`.
    pub fn exponential(lr: f64, gamma: f64) -> Schedule {
        Schedule::new(move |step| lr * gamma.powf(step as f64))
    }

    /// Linear from `start` to `end` over `steps` steps, then `end`. Equivalent: `LinearLR`,
    /// `PolynomialLR` with power 1.
    pub fn linear(start: f64, end: f64, steps: u64) -> Schedule {
        Schedule::new(move |step| {
            if step >= steps { end } else { start + (end - start) * step as f64 / steps as f64 }
        })
    }

    /// `lr (1 - step / steps)^power`, then 0. Equivalent: `PolynomialLR`.
    pub fn polynomial(lr: f64, steps: u64, power: f64) -> Schedule {
        Schedule::new(move |step| {
            if step >= steps { 0.0 } else { lr * (1.0 - step as f64 / steps as f64).powf(power) }
        })
    }

    /// `min + (lr - min) (1 + cos(π step / steps)) / 2`, then `min`. Equivalent:
    /// `CosineAnnealingLR` up to `T_max`, after which PyTorch's schedule rises again. Source:
    /// Loshchilov & Hutter 2016, arXiv:1608.03983.
    pub fn cosine(lr: f64, min: f64, steps: u64) -> Schedule {
        Schedule::new(move |step| {
            if step >= steps { min } else { between(lr, min, step as f64 / steps as f64) }
        })
    }

    /// [`Schedule::cosine`] with restarts: the first period has `period` steps, each further one
    /// `multiple` times as many as the one before. A `period` or `multiple` of 0 counts as 1.
    /// Equivalent: `CosineAnnealingWarmRestarts`.
    pub fn cosine_restarts(lr: f64, min: f64, period: u64, multiple: u64) -> Schedule {
        let (period, multiple) = (period.max(1), multiple.max(1));
        Schedule::new(move |step| {
            let (mut step, mut period) = (step, period);
            if multiple == 1 {
                step %= period;
            }
            while step >= period {
                step -= period;
                period = period.saturating_mul(multiple);
            }
            between(lr, min, step as f64 / period as f64)
        })
    }

    /// Linear warm-up over `warmup` steps, `lr (step + 1) / (warmup + 1)`; cosine decay to `min` at
    /// step `end`; then `min`. Equivalent: nanoGPT's schedule.
    pub fn warmup_cosine(lr: f64, min: f64, warmup: u64, end: u64) -> Schedule {
        Schedule::new(move |step| match step {
            step if step < warmup => lr * (step + 1) as f64 / (warmup + 1) as f64,
            step if step >= end => min,
            step => between(lr, min, (step - warmup) as f64 / (end - warmup) as f64),
        })
    }

    /// Half a cosine from `max / 25` up to `max` over the first 30 % of `steps`, then another down
    /// to `max / 250,000`.
    ///
    /// Equivalent: `OneCycleLR(optimizer, max_lr, total_steps=steps)`. Source: Smith & Topin 2017,
    /// arXiv:1708.07120.
    pub fn one_cycle(max: f64, steps: u64) -> Schedule {
        Schedule::one_cycle_with(max, steps, 0.3, 25.0, 1e4)
    }

    /// [`Schedule::one_cycle`] that rises over the fraction `rise` of the steps, from
    /// `max / start_div` to `max`, and falls to `max / start_div / end_div`.
    pub fn one_cycle_with(
        max: f64,
        steps: u64,
        rise: f64,
        start_div: f64,
        end_div: f64,
    ) -> Schedule {
        let start = max / start_div;
        let (top, last) = (rise * steps as f64 - 1.0, steps as f64 - 1.0);
        Schedule::new(move |step| match step as f64 {
            step if step <= top => between(start, max, step / top.max(f64::MIN_POSITIVE)),
            step if step < last => between(max, start / end_div, (step - top) / (last - top)),
            _ => start / end_div,
        })
    }

    /// This schedule until step `at`, then `next` from its step 0. Equivalent: `SequentialLR`.
    pub fn then(self, at: u64, next: Schedule) -> Schedule {
        Schedule::new(move |step| if step < at { self.at(step) } else { next.at(step - at) })
    }

    /// This schedule times a factor that rises linearly from `start` at step 0 to 1 at step
    /// `steps`. Equivalent: `LinearLR(start_factor=start, total_iters=steps)` chained with this
    /// schedule.
    pub fn with_warmup(self, start: f64, steps: u64) -> Schedule {
        let rise = Schedule::linear(start, 1.0, steps);
        self.times(rise)
    }

    /// The product with another schedule. Equivalent: `ChainedScheduler` of schedules that multiply
    /// the rate.
    pub fn times(self, factor: Schedule) -> Schedule {
        Schedule::new(move |step| self.at(step) * factor.at(step))
    }
}

impl std::fmt::Debug for Schedule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Schedule {{ at 0: {} }}", self.at(0))
    }
}

/// Half a cosine from `start` at 0 to `end` at 1.
fn between(start: f64, end: f64, fraction: f64) -> f64 {
    end + (start - end) * (1.0 + (PI * fraction).cos()) / 2.0
}

/// A learning rate that is reduced when a loss stops improving.
///
/// A loss is an improvement if it is below `best (1 - threshold)`; NaN never is. After more than
/// `patience` losses in a row without improvement, the rate is multiplied by `factor` and the count
/// restarts. Equivalent: `ReduceLROnPlateau` with its defaults.
///
/// # Example
/// ```
/// use teeny_nn::schedule::Plateau;
/// # fn main() -> teeny_core::Result<()> {
/// let mut plateau = Plateau::new(0.1, 0.5, 1)?;
/// let rates: Vec<f64> = [1.0, 1.0, 1.0, 1.0].map(|loss| plateau.observe(loss)).to_vec();
/// assert_eq!(rates, [0.1, 0.1, 0.05, 0.05]);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Plateau {
    lr: f64,
    factor: f64,
    patience: u64,
    threshold: f64,
    min: f64,
    best: f64,
    bad: u64,
}

/// `value`, or an error that names it.
fn valid(name: &str, value: f64, range: impl RangeBounds<f64> + Debug) -> Result<f64> {
    out_of_range(name, value, range).map_or(Ok(value), |text| {
        Err(Error::value(text).help("rates and factors are finite and not negative"))
    })
}

impl Plateau {
    /// The rate `lr`, to be multiplied by `factor` after more than `patience` losses without
    /// improvement.
    ///
    /// # Errors
    /// If `lr` is negative or not finite, or `factor` is outside `0.0..1.0`.
    #[track_caller]
    pub fn new(lr: f64, factor: f64, patience: u64) -> Result<Plateau> {
        let _op = enter("Plateau::new");
        let lr = valid("lr", lr, 0.0..)?;
        let factor = valid("factor", factor, 0.0..1.0)?;
        let (threshold, min, best, bad) = (1e-4, 0.0, f64::INFINITY, 0);
        Ok(Plateau { lr, factor, patience, threshold, min, best, bad })
    }

    /// Sets the relative improvement that counts; 1e-4.
    ///
    /// # Errors
    /// If it is negative or not finite.
    #[track_caller]
    pub fn threshold(mut self, threshold: f64) -> Result<Plateau> {
        let _op = enter("Plateau::threshold");
        self.threshold = valid("threshold", threshold, 0.0..)?;
        Ok(self)
    }

    /// Sets the smallest rate; 0.
    ///
    /// # Errors
    /// If it is negative or not finite.
    #[track_caller]
    pub fn min(mut self, min: f64) -> Result<Plateau> {
        let _op = enter("Plateau::min");
        self.min = valid("min", min, 0.0..)?;
        Ok(self)
    }

    /// Adds a loss; returns the new rate.
    pub fn observe(&mut self, loss: f64) -> f64 {
        // as in PyTorch: for a negative best the threshold is above it
        if loss < self.best * (1.0 - self.threshold) {
            (self.best, self.bad) = (loss, 0);
        } else {
            self.bad += 1;
        }
        if self.bad > self.patience {
            (self.lr, self.bad) = ((self.lr * self.factor).max(self.min), 0);
        }
        self.lr
    }

    /// The current rate.
    pub fn lr(&self) -> f64 {
        self.lr
    }
}

impl Stateful for Plateau {
    fn state(&self) -> Result<State> {
        Ok(State::default().with("lr", self.lr).with("best", self.best).with("bad", self.bad))
    }

    fn set_state(&mut self, state: &State) -> Result<()> {
        let (lr, best, bad): (f64, f64, u64) =
            (state.get("lr")?, state.get("best")?, state.get("bad")?);
        let lr = valid("lr", lr, 0.0..).map_err(|e| e.named("plateau"))?;
        (self.lr, self.best, self.bad) = (lr, best, bad);
        Ok(())
    }
}
