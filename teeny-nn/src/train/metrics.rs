//! Weighted means, metrics of classifiers and language models, and a check for finite losses.

use super::elements::{NAN, class_axis, flags_except, numbers};
use crate::loss::position;
use crate::ranks::SumOverRanks;
use std::fmt;
use teeny_core::context::{continued, enter};
use teeny_core::{DType, Error, Extremum, Result, Scalar, Shape, Tensor, map};

/// A weighted mean, for example of the losses of batches of unequal size.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mean {
    sum: f64,
    weight: f64,
}

impl Mean {
    /// A mean without values.
    pub fn new() -> Mean {
        Mean::default()
    }

    /// Adds a value with this weight.
    pub fn add(&mut self, value: f64, weight: f64) {
        self.sum += value * weight;
        self.weight += weight;
    }

    /// The mean; NaN without values.
    pub fn value(&self) -> f64 {
        self.sum / self.weight
    }

    /// The mean over the values of all ranks.
    ///
    /// # Errors
    /// If a rank fails.
    #[track_caller]
    pub fn all_reduce(&self, ranks: &dyn SumOverRanks) -> Result<Mean> {
        let sums = ranks.sum_of_numbers(&[self.sum, self.weight])?;
        Ok(Mean { sum: sums[0], weight: sums[1] })
    }
}

/// The number of correct predictions: items whose largest logit belongs to the target class.
///
/// Shapes: logits (N, C), targets (N) of integers; of the pixels of images, logits (N, C, d..),
/// targets (N, d..), and the number is one of pixels. A target that is not a class, for example an
/// ignored index of the loss, is never predicted; [`Confusion::accuracy`] divides by the number of
/// the others.
///
/// # Errors
/// If the shapes do not fit, the targets are floats, or the logits of an item whose target is a
/// class have NaN.
#[track_caller]
pub fn accuracy(logits: &Tensor, targets: &Tensor) -> Result<usize> {
    let _op = enter("accuracy");
    counted(&outcomes(logits, targets, 1)?.to_vec()?, targets.shape())
}

/// [`accuracy`] as a future.
///
/// # Errors
/// As [`accuracy`].
#[track_caller]
pub fn accuracy_async(
    logits: &Tensor,
    targets: &Tensor,
) -> impl Future<Output = Result<usize>> + Send + use<> {
    let _op = enter("accuracy_async");
    counted_async(outcomes(logits, targets, 1), *targets.shape())
}

/// The first largest logit of each item (N, d..), as place (`I32`) and value: the first NaN, if
/// there is one.
fn largest(logits: &Tensor, targets: &Tensor) -> Result<[Tensor; 2]> {
    let axis = class_axis(logits, targets)? as isize;
    let place = logits.argmax(axis)?; // (N, d..)
    let value = logits.gather(axis, &place.unsqueeze(axis)?)?.squeeze(axis)?; // (N, d..)
    Ok([place, value])
}

/// The number of items whose target class has one of the `k` largest logits. Equivalent:
/// `torchmetrics`' multiclass accuracy with `top_k`, as a count.
///
/// Shapes: logits (N, C, d..), targets (N, d..) of integers, as [`accuracy`].
///
/// # Errors
/// As [`accuracy`]; also if `k` is 0 or more than C.
#[track_caller]
pub fn top_k_accuracy(logits: &Tensor, targets: &Tensor, k: usize) -> Result<usize> {
    let _op = enter("top_k_accuracy");
    counted(&outcomes(logits, targets, k)?.to_vec()?, targets.shape())
}

/// [`top_k_accuracy`] as a future.
///
/// # Errors
/// As [`top_k_accuracy`].
#[track_caller]
pub fn top_k_accuracy_async(
    logits: &Tensor,
    targets: &Tensor,
    k: usize,
) -> impl Future<Output = Result<usize>> + Send + use<> {
    let _op = enter("top_k_accuracy_async");
    counted_async(outcomes(logits, targets, k), *targets.shape())
}

/// For each item (n) of `I32`: 1 if its target has one of the `k` largest logits, 0 if not, -1 if
/// its target is a class and a logit is NaN.
fn outcomes(logits: &Tensor, targets: &Tensor, k: usize) -> Result<Tensor> {
    let axis = class_axis(logits, targets)?;
    let classes = logits.shape()[axis];
    if k == 0 || k > classes {
        return Err(Error::value(format!("k is {k}, but must be within 1..={classes} classes"))
            .help("5 is usual"));
    }
    let axis = axis as isize;
    let [hits, value] = if k == 1 {
        let [best, value] = largest(logits, targets)?; // (N, d..)
        [best.eq(targets)?, value]
    } else {
        let (values, best) = logits.topk(k, axis, Extremum::Largest)?; // (N, k, d..)
        [best.eq(&targets.unsqueeze(axis)?)?.any(axis)?, values.max(axis)?] // (N, d..)
    };
    map([&hits, &value, targets], |[hit, x, t]| {
        let (t, hit) = (t.cast(DType::I32), hit.cast(DType::I32));
        x.is_nan().and(t.ge(0)).and(t.lt(classes as i32)).where_cond(hit.like(-1), hit)
    })?
    .reshape(-1)
}

/// The number of hits among [`outcomes`] of targets of this shape.
fn counted(outcomes: &[i32], shape: &[usize]) -> Result<usize> {
    match outcomes.iter().position(|outcome| *outcome < 0) {
        Some(i) => Err(no_largest(i, shape)),
        None => Ok(outcomes.iter().filter(|outcome| **outcome == 1).count()),
    }
}

/// [`counted`] as a future.
fn counted_async(
    outcomes: Result<Tensor>,
    shape: Shape,
) -> impl Future<Output = Result<usize>> + Send + use<> {
    let reading = outcomes.map(|outcomes| outcomes.to_vec_async());
    continued(async move { counted(&reading?.await?, &shape) })
}

/// The perplexity of a language model: `exp` of its mean cross-entropy in nats.
pub fn perplexity(loss: f64) -> f64 {
    loss.exp()
}

/// The error of the logits of item `i`.
fn no_largest(i: usize, shape: &[usize]) -> Error {
    let text = format!("logits[{}] have no largest: one is NaN", position(i, shape));
    Error::value(text).help(NAN)
}

/// A confusion matrix: rows are targets, columns are predictions. Prints as a table.
///
/// An item is a row of logits (N, C), or a pixel of an image (N, C, d..).
///
/// # Example
/// ```
/// use teeny_core::{Reference, Tensor};
/// use teeny_nn::train::Confusion;
/// # fn main() -> teeny_core::Result<()> {
/// # let device = Reference::new();
/// let logits = Tensor::new([[2.0f32, 1.0], [0.5, 3.0], [1.0, 0.0]], &device)?; // (3, 2)
/// let mut confusion = Confusion::new(2);
/// confusion.add(&logits, &Tensor::new([0i32, 1, 1], &device)?)?;
/// assert_eq!((confusion.count(1, 0), confusion.accuracy()), (1, 2.0 / 3.0));
/// assert_eq!((confusion.recall(1), confusion.precision(0)), (0.5, 0.5));
///
/// // two classes of the pixels of an image (1, 2, 2, 2); 255 marks a pixel without a class
/// let logits = Tensor::new([[[[2.0f32, 2.0], [0.0, 0.0]], [[1.0, 1.0], [1.0, 1.0]]]], &device)?;
/// let mask = Tensor::new([[[0u8, 1], [1, 255]]], &device)?; // (1, 2, 2)
/// let mut pixels = Confusion::new(2).with_ignore_index(255);
/// pixels.add(&logits, &mask)?;
/// assert_eq!((pixels.iou(0), pixels.macro_average().iou), (0.5, 0.5));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confusion {
    classes: usize,
    counts: Vec<u64>,
    ignore_index: Option<i64>,
}

impl Confusion {
    /// An empty matrix of `classes` classes.
    pub fn new(classes: usize) -> Confusion {
        Confusion { classes, counts: vec![0; classes * classes], ignore_index: None }
    }

    /// Items with this target are not counted, as
    /// [`CrossEntropy::with_ignore_index`](crate::loss::CrossEntropy::with_ignore_index) has it: a
    /// number, or an option of one. Equivalent: `ignore_index` of `torchmetrics`.
    pub fn with_ignore_index(mut self, ignore_index: impl Into<Option<i64>>) -> Confusion {
        self.ignore_index = ignore_index.into();
        self
    }

    /// Adds the predictions of a batch: logits (N, C, d..), targets (N, d..) of integers.
    ///
    /// # Errors
    /// If the shapes do not fit, a target is neither a class nor ignored, or the logits of an item
    /// that is not ignored have NaN (the error names the first). Nothing is counted then.
    #[track_caller]
    pub fn add(&mut self, logits: &Tensor, targets: &Tensor) -> Result<()> {
        let _op = enter("confusion");
        let predictions = self.predictions(logits, targets)?; // (N, d..)
        self.tally(&predictions.to_vec()?, &targets.to_scalars()?, targets.shape())
    }

    /// Adds the predictions of a batch of a binary classifier with one logit per item: class 1
    /// where it is above 0. Shapes: logits and targets of one shape; targets are 0 or 1, or
    /// booleans.
    ///
    /// # Errors
    /// If the shapes differ, a target is neither 0 or 1 nor ignored, its logit is NaN, or the
    /// matrix does not have two classes. Nothing is counted then.
    #[track_caller]
    pub fn add_binary(&mut self, logits: &Tensor, targets: &Tensor) -> Result<()> {
        let _op = enter("confusion");
        if self.classes != 2 {
            let text = format!("one logit tells 2 classes apart, not {}", self.classes);
            return Err(Error::value(text).help("Confusion::new(2)"));
        }
        let targets = flags_except(self.ignore_index, logits, targets)?;
        let logits = numbers(logits)?.into_iter().enumerate().zip(targets);
        let kept: Vec<_> = logits.filter_map(|(logit, target)| Some((logit, target?))).collect();
        if let Some(((i, _), _)) = kept.iter().find(|((_, logit), _)| logit.is_nan()) {
            return Err(Error::value(format!("logits[{i}] is NaN")).help(NAN));
        }
        for ((_, logit), target) in kept {
            self.counts[usize::from(target) * 2 + usize::from(logit > 0.0)] += 1;
        }
        Ok(())
    }

    /// [`Confusion::add`] as a future.
    ///
    /// # Errors
    /// As [`Confusion::add`].
    #[track_caller]
    pub fn add_async<'a>(
        &'a mut self,
        logits: &Tensor,
        targets: &Tensor,
    ) -> impl Future<Output = Result<()>> + use<'a> {
        let _op = enter("confusion");
        let predictions = self.predictions(logits, targets);
        let reading = predictions.map(|p| (p.to_vec_async(), targets.to_scalars_async()));
        let shape = *targets.shape();
        continued(async move {
            let (predictions, targets) = reading?;
            self.tally(&predictions.await?, &targets.await?, &shape)
        })
    }

    /// The predictions (N, d..), of `I32`; -1 of logits with NaN.
    fn predictions(&self, logits: &Tensor, targets: &Tensor) -> Result<Tensor> {
        let axis = class_axis(logits, targets)?;
        let classes = logits.shape()[axis];
        if classes != self.classes {
            let text =
                format!("logits {} have {classes} classes, not {}", logits.shape(), self.classes);
            return Err(Error::shape(text).help(match classes {
                1 => {
                    "one logit tells two classes apart: add_binary(&logits, &targets)?".to_string()
                }
                _ => format!("Confusion::new({classes})"),
            }));
        }
        let [place, value] = largest(logits, targets)?; // (N, d..)
        map([&place, &value], |[place, x]| x.is_nan().where_cond(place.like(-1), place))
    }

    /// Counts the items of a batch, whose targets have this shape.
    fn tally(&mut self, predictions: &[i32], targets: &[Scalar], shape: &[usize]) -> Result<()> {
        let (classes, ignored) = (self.classes as i64, self.ignore_index);
        let kept = |i: usize| Some(targets[i].to_i64_wrapping()).filter(|t| Some(*t) != ignored);
        for i in 0..targets.len() {
            if let Some(target) = kept(i).filter(|t| !(0..classes).contains(t)) {
                let i = position(i, shape);
                let text = format!("targets[{i}] is {target}, but there are {classes} classes");
                return Err(Error::index(text).help(format!(
                    "Confusion::new({classes}).with_ignore_index({target}) counts it nowhere"
                )));
            }
        }
        if let Some(i) = (0..targets.len()).find(|&i| predictions[i] < 0 && kept(i).is_some()) {
            return Err(no_largest(i, shape));
        }
        for (i, prediction) in predictions.iter().enumerate() {
            if let Some(target) = kept(i) {
                self.counts[target as usize * self.classes + *prediction as usize] += 1;
            }
        }
        Ok(())
    }

    /// The matrix of the items of all ranks.
    ///
    /// # Errors
    /// If a rank fails, or has another number of classes.
    #[track_caller]
    pub fn all_reduce(&self, ranks: &dyn SumOverRanks) -> Result<Confusion> {
        let counts: Vec<f64> = self.counts.iter().map(|&n| n as f64).collect(); // exact to 2^53
        let counts = ranks.sum_of_numbers(&counts)?.into_iter().map(|n| n as u64).collect();
        Ok(Confusion { counts, ..self.clone() })
    }

    /// The number of items of class `target` with this prediction.
    pub fn count(&self, target: usize, prediction: usize) -> u64 {
        self.counts[target * self.classes + prediction]
    }

    /// The fraction of correct predictions; NaN without any.
    pub fn accuracy(&self) -> f64 {
        let right: u64 = (0..self.classes).map(|c| self.count(c, c)).sum();
        right as f64 / self.counts.iter().sum::<u64>() as f64
    }

    /// The fraction of the items of `class` that were predicted correctly; NaN without any.
    pub fn recall(&self, class: usize) -> f64 {
        self.count(class, class) as f64 / self.targets(class) as f64
    }

    /// The fraction of the predictions of `class` that were correct; NaN without any.
    pub fn precision(&self, class: usize) -> f64 {
        self.count(class, class) as f64 / self.predictions_of(class) as f64
    }

    /// The harmonic mean of precision and recall of `class`, which is also the Dice coefficient;
    /// NaN if it is neither target nor prediction.
    #[doc(alias = "dice")]
    pub fn f1(&self, class: usize) -> f64 {
        let both = self.targets(class) + self.predictions_of(class);
        2.0 * self.count(class, class) as f64 / both as f64
    }

    /// The intersection over union of `class` (the Jaccard index): the items that have it as target
    /// and as prediction, divided by those that have it as target or prediction; NaN if there are
    /// none. Equivalent: `torchmetrics`' `JaccardIndex`, `sklearn.metrics.jaccard_score`.
    #[doc(alias = "jaccard")]
    pub fn iou(&self, class: usize) -> f64 {
        let both = self.count(class, class);
        both as f64 / (self.targets(class) + self.predictions_of(class) - both) as f64
    }

    /// The means of precision, recall, F1 and IoU over all classes that are target or prediction of
    /// an item; one without a value counts as 0. Equivalent: scikit-learn's scores with
    /// `average="macro"`. For a matrix of one-label items, `average="micro"` is
    /// [`Confusion::accuracy`].
    pub fn macro_average(&self) -> ClassScores {
        let occurs = |class: &usize| self.targets(*class) + self.predictions_of(*class) > 0;
        let classes: Vec<usize> = (0..self.classes).filter(occurs).collect();
        let mean = |score: fn(&Confusion, usize) -> f64| {
            let values = classes.iter().map(|class| score(self, *class));
            values.filter(|value| !value.is_nan()).sum::<f64>() / classes.len() as f64
        };
        ClassScores {
            precision: mean(Confusion::precision),
            recall: mean(Confusion::recall),
            f1: mean(Confusion::f1),
            iou: mean(Confusion::iou),
        }
    }

    /// The number of classes.
    pub fn classes(&self) -> usize {
        self.classes
    }

    fn targets(&self, class: usize) -> u64 {
        (0..self.classes).map(|guess| self.count(class, guess)).sum()
    }

    fn predictions_of(&self, class: usize) -> u64 {
        (0..self.classes).map(|other| self.count(other, class)).sum()
    }
}

/// Averages over the classes of a [`Confusion`]; NaN without items.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ClassScores {
    /// The fraction of correct predictions of a class.
    pub precision: f64,
    /// The fraction of the items of a class that are predicted correctly.
    pub recall: f64,
    /// The harmonic mean of both, the Dice coefficient.
    #[doc(alias = "dice")]
    pub f1: f64,
    /// The intersection over union: the mean IoU of a segmentation.
    #[doc(alias = "jaccard")]
    #[doc(alias = "miou")]
    pub iou: f64,
}

impl fmt::Display for Confusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self
            .counts
            .iter()
            .max()
            .map_or(1, |most| most.to_string().len())
            .max(self.classes.to_string().len())
            + 1;
        let row = |head: &str, cells: Vec<u64>| {
            cells.iter().fold(format!("{head:>6}"), |text, cell| text + &format!("{cell:>width$}"))
        };
        writeln!(f, "{}", row("", (0..self.classes as u64).collect()))?;
        (0..self.classes).try_for_each(|class| {
            writeln!(
                f,
                "{}",
                row(&class.to_string(), (0..self.classes).map(|g| self.count(class, g)).collect())
            )
        })
    }
}

/// Returns `value`, or an error if it is NaN or infinite: a loss does not recover from that.
///
/// # Errors
/// If `value` is not finite; `what` names it, `step` is its step.
pub fn require_finite(what: &str, value: f64, step: usize) -> Result<f64> {
    if value.is_finite() {
        return Ok(value);
    }
    Err(Error::value(format!("{what} is {value} at step {step}"))
        .named("training")
        .help("the usual causes are too high a learning rate and NaN in the data"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use teeny_core::Reference;

    #[test]
    fn mean_weighs_its_values() {
        let mut mean = Mean::new();
        assert!(mean.value().is_nan());
        mean.add(1.0, 64.0);
        mean.add(4.0, 32.0);
        assert_eq!(mean.value(), 2.0);
    }

    fn logits() -> (Tensor, Tensor) {
        let device = Reference::new();
        // (4, 3)
        let logits = Tensor::new(
            [[0.1f32, 0.9, 0.5], [3.0, 2.0, 1.0], [0.0, -1.0, 1.0], [5.0, 6.0, 7.0]],
            &device,
        )
        .unwrap();
        (logits, Tensor::new([1i64, 2, 0, 0], &device).unwrap())
    }

    #[test]
    fn the_k_best_contain_more_and_more_targets() {
        let (logits, targets) = logits();
        assert_eq!([1, 2, 3].map(|k| top_k_accuracy(&logits, &targets, k).unwrap()), [1, 2, 4]);
        assert_eq!(accuracy(&logits, &targets).unwrap(), 1);
        for k in [0, 4] {
            assert!(
                top_k_accuracy(&logits, &targets, k)
                    .unwrap_err()
                    .to_string()
                    .contains("within 1..=3 classes")
            );
        }
        assert!(accuracy(&logits, &logits).is_err());
    }

    #[test]
    fn confusion_counts_what_was_taken_for_what() {
        let (logits, targets) = logits();
        let mut confusion = Confusion::new(3);
        confusion.add(&logits, &targets).unwrap();
        assert_eq!(
            confusion.to_string(),
            "       0 1 2\n     0 0 0 2\n     1 0 1 0\n     2 1 0 0\n"
        );
        assert_eq!(
            (
                confusion.accuracy(),
                confusion.recall(1),
                confusion.precision(1),
                confusion.recall(0)
            ),
            (0.25, 1.0, 1.0, 0.0)
        );
        let error = confusion.add(&logits, &targets.add(1).unwrap()).unwrap_err().to_string();
        assert!(error.contains("targets[1] is 3, but there are 3 classes"), "{error}");
        assert!(Confusion::new(2).add(&logits, &targets).is_err());
        assert!(Confusion::new(2).accuracy().is_nan());
    }

    #[test]
    fn the_perplexity_of_an_even_guess_is_the_number_of_choices() {
        assert!((perplexity(65f64.ln()) - 65.0).abs() < 1e-9);
    }

    #[test]
    fn a_loss_that_is_no_number_stops_training() {
        assert_eq!(require_finite("loss", 2.3, 0).unwrap(), 2.3);
        let error = require_finite("loss", f64::NAN, 7).unwrap_err().to_string();
        assert!(error.starts_with("training: loss is NaN at step 7\n  help:"), "{error}");
        assert!(require_finite("loss", f64::INFINITY, 7).is_err());
    }
}
