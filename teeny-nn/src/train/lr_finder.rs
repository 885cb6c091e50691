//! The learning-rate finder: losses at rates that grow from step to step.

use crate::Store;
use crate::optim::Optimizer;
use crate::state::{Random, Stateful};
use teeny_autograd::Grad;
use teeny_core::context::enter;
use teeny_core::{Error, Result, Tensor};
use teeny_viz::Plot;

/// The weight of the past in the moving average of the losses.
const DECAY: f64 = 0.98;
/// The rates end where the average is this many times its smallest value.
const DIVERGED: f64 = 4.0;

/// The losses of [`lr_finder`] by learning rate.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LrFinder {
    /// The rate of each step, and the moving average of the losses after it.
    pub points: Vec<(f64, f64)>,
    /// The rate at which the average falls most steeply by the logarithm of the rate; none if it
    /// never falls. A lower rate is safe, a few times more is often possible.
    pub suggestion: Option<f64>,
}

/// Trains for up to `steps` steps with learning rates from `min` to `max`, each larger than the one
/// before by the same factor, and returns the losses. It ends early where the loss diverges.
///
/// `loss` returns the loss () of step 0, 1, .. on the next batch. Weights, buffers, the state of
/// `optimizer` with its rate, and the random state are restored before it returns, also after an
/// error. Source: Smith 2015, arXiv:1506.01186. Equivalent: fastai's `lr_find`.
///
/// # Errors
/// If not `0 < min < max` with finite rates, if `steps` is less than 3; if `loss` or a step fails.
///
/// # Example
/// ```
/// use teeny_nn::prelude::*;
/// use teeny_nn::train::lr_finder;
/// # fn main() -> Result<()> {
/// # let store = Store::new(&Autograd::new(device("cpu")?));
/// let model = Linear::new(&store.root(), 2, 1)?;
/// let mut sgd = Sgd::new(store.trainable(), 0.1);
/// let found = lr_finder(&store, &mut sgd, 1e-5, 10.0, 100, |_step| {
///     let x = Tensor::randn((8, 2), DType::F32, store.device())?; // (8, 2)
///     model.forward(&x)?.sub(1.0)?.square()?.mean_all() // ()
/// })?;
/// if let Some(lr) = found.suggestion {
///     sgd.set_lr(lr);
/// }
/// let svg = found.plot().svg();
/// # assert!(svg.contains("suggestion"));
/// # Ok(()) }
/// ```
#[track_caller]
pub fn lr_finder(
    store: &Store,
    optimizer: &mut impl Optimizer,
    min: f64,
    max: f64,
    steps: usize,
    mut loss: impl FnMut(usize) -> Result<Tensor>,
) -> Result<LrFinder> {
    let _op = enter("lr_finder");
    if !(min > 0.0 && min < max && max.is_finite()) || steps < 3 {
        let text = format!("cannot run {steps} steps with learning rates from {min} to {max}");
        return Err(Error::value(text).help("use 3 steps or more: 100 steps from 1e-7 to 10"));
    }
    let before = (store.state()?, optimizer.state()?, Random.state()?);
    let mut sweep = || {
        let (mut points, mut average, mut best) = (Vec::new(), 0.0, f64::INFINITY);
        for step in 0..steps {
            let lr = min * (max / min).powf(step as f64 / (steps - 1) as f64);
            optimizer.set_lr(lr);
            let now = loss(step)?; // ()
            let value = now.detach()?.reshape(())?.to_scalars()?[0].to_f64();
            average = DECAY * average + (1.0 - DECAY) * value;
            // corrected for its start at 0
            let smooth = average / (1.0 - DECAY.powi(step as i32 + 1));
            best = smooth.min(best);
            if !smooth.is_finite() || step > 0 && smooth > DIVERGED * best.max(0.0) && best > 0.0 {
                break;
            }
            points.push((lr, smooth));
            optimizer.step(&now.backward()?)?;
        }
        Ok::<_, Error>(points)
    };
    let points = sweep();
    store.clone().set_state(&before.0)?;
    optimizer.set_state(&before.1)?;
    Random.set_state(&before.2)?;
    let points: Vec<(f64, f64)> = points?;
    // equal distances by the logarithm
    let slope = |i: usize| points[i + 1].1 - points[i - 1].1;
    let steepest =
        (1..points.len().saturating_sub(1)).min_by(|a, b| slope(*a).total_cmp(&slope(*b)));
    // by more than its rounding
    let falls = |i: &usize| slope(*i) < -1e-9 * points[*i].1.abs();
    let suggestion = steepest.filter(falls).map(|i| points[i].0);
    Ok(LrFinder { points, suggestion })
}

impl LrFinder {
    /// The losses by the logarithm of the rate, with the suggestion.
    pub fn plot(&self) -> Plot {
        let points: Vec<(f64, f64)> = self.points.iter().map(|(lr, y)| (lr.log10(), *y)).collect();
        let plot = Plot::new("Learning rates", "log10 of the learning rate", "loss")
            .curve("moving average of the loss", &points);
        let chosen = self.points.iter().find(|(lr, _)| Some(*lr) == self.suggestion);
        match chosen {
            Some((lr, y)) => plot.points(&format!("suggestion: {lr:.1e}"), &[(lr.log10(), *y)]),
            None => plot,
        }
    }
}
