//! Cross-entropy, in all of PyTorch's variants.
//!
//! Class indices for logits (N, C), neither weighted nor smoothed, are one fused operation of the
//! device; all other variants start from `log_softmax`. Targets are class indices (an integer
//! tensor) or probabilities (a float tensor): their dtype decides.

use super::{Reduction, squeezes_to};
use crate::options::options;
use teeny_core::context::enter;
use teeny_core::{Error, ErrorKind, Result, Scalar, Tensor, map};

/// The loss of classifiers: `-log softmax(logits)[target]`, averaged over the batch.
///
/// Shapes: logits (N, C), targets (N) of integers → scalar. With further axes: logits (N, C, d..),
/// targets (N, d..); without a batch: logits (C), targets (). Float targets in the shape of the
/// logits are probabilities. Variants: [`CrossEntropy`].
///
/// # Errors
/// If shapes do not fit, logits are not floats, or a target is not a class: the error names the
/// first such target.
///
/// # Example
/// ```no_run
/// # use teeny_core::{Tensor, Result}; use teeny_nn::loss::cross_entropy;
/// # fn step(logits: Tensor, targets: Tensor) -> Result<()> {
/// let loss = cross_entropy(&logits, &targets)?;        // (64, 10), (64) -> ()
/// # Ok(()) }
/// ```
/// Equivalent: `torch.nn.functional.cross_entropy`, but no target is ignored unless
/// [`CrossEntropy::ignore_index`] is set.
#[track_caller]
pub fn cross_entropy(logits: &Tensor, targets: &Tensor) -> Result<Tensor> {
    CrossEntropy::default().loss(logits, targets)
}

/// `-log_probabilities[target]`, reduced. Shapes as [`cross_entropy()`], which is this of
/// `log_softmax(logits)`. Variants: [`CrossEntropy::nll`].
///
/// # Errors
/// As [`cross_entropy()`].
#[track_caller]
pub fn nll(log_probabilities: &Tensor, targets: &Tensor, reduction: Reduction) -> Result<Tensor> {
    CrossEntropy::new().with_reduction(reduction).nll(log_probabilities, targets)
}

options! {
    /// Cross-entropy with options.
    ///
    /// # Example
    /// ```
    /// # use teeny_core::{Tensor, Result}; use teeny_nn::loss::CrossEntropy;
    /// # fn step(logits: Tensor, targets: Tensor) -> Result<Tensor> {
    /// CrossEntropy::new().with_label_smoothing(0.1).with_ignore_index(-1).loss(&logits, &targets)
    /// # }
    /// ```
    #[derive(Clone, Debug)]
    pub struct CrossEntropy {
        /// A factor per class (C). The mean is then weighted: the sum is divided by the sum of the
        /// targets' factors. Default: none.
        weight: Option<Tensor> = None, with_weight(Tensor);
        /// Targets with this value are ignored, in the loss and in the mean; the mean of no
        /// targets is NaN, as in PyTorch. Default: none.
        ignore_index: Option<i64> = None, with_ignore_index(impl Into<Option<i64>>);
        /// The fraction of each target that is distributed evenly over the classes. Default: 0.
        /// Source: Szegedy et al. 2015, arXiv:1512.00567.
        label_smoothing: f64 = 0.0, with_label_smoothing;
        /// Mean, sum, or none. Default: mean.
        reduction: Reduction = Reduction::default(), with_reduction;
    }
}

impl CrossEntropy {
    /// The loss; shapes and errors as [`cross_entropy()`].
    ///
    /// # Errors
    /// As [`cross_entropy()`]; also if `label_smoothing` is outside `0..=1`, or `weight` is not
    /// (C).
    #[track_caller]
    pub fn loss(&self, logits: &Tensor, targets: &Tensor) -> Result<Tensor> {
        let _op = enter("cross_entropy");
        let axis = self.check(logits, targets)?;
        let plain = self.weight.is_none() && self.label_smoothing == 0.0;
        if plain && logits.ndim() == 2 && targets.dtype().is_int() {
            let losses = logits.cross_entropy(targets, self.ignore_index); // (N)
            let losses = losses
                .map_err(|e| name_target(e, targets, logits.shape()[1], self.ignore_index))?;
            return self.reduce(losses, self.kept(targets)?.as_ref(), None);
        }
        self.of(&logits.log_softmax(axis as isize)?, targets, axis)
    }

    /// The loss of log-probabilities, as from `log_softmax`, with these options; shapes and errors
    /// as [`cross_entropy()`].
    ///
    /// # Errors
    /// As [`CrossEntropy::loss`].
    ///
    /// Equivalent: `torch.nn.functional.nll_loss`.
    #[doc(alias = "nll_loss")]
    #[track_caller]
    pub fn nll(&self, log_probabilities: &Tensor, targets: &Tensor) -> Result<Tensor> {
        let _op = enter("nll");
        let axis = self.check(log_probabilities, targets)?;
        self.of(log_probabilities, targets, axis)
    }

    /// The axis of the classes, if all shapes and options fit.
    fn check(&self, logits: &Tensor, targets: &Tensor) -> Result<usize> {
        if !(0.0..=1.0).contains(&self.label_smoothing) {
            return Err(Error::value(format!(
                "label_smoothing is {}, but must be within 0..=1",
                self.label_smoothing
            ))
            .help("0.1 is usual"));
        }
        let axis = class_axis(logits, targets)?;
        if let Some(weight) =
            self.weight.as_ref().filter(|w| w.shape()[..] != [logits.shape()[axis]])
        {
            return Err(Error::shape(format!(
                "logits {} have {} classes, but weight is {}",
                logits.shape(),
                logits.shape()[axis],
                weight.shape()
            ))
            .help("a weight for each class: (classes)"));
        }
        Ok(axis)
    }

    fn of(&self, log_p: &Tensor, targets: &Tensor, axis: usize) -> Result<Tensor> {
        if targets.dtype().is_float() {
            self.of_probabilities(log_p, targets, axis)
        } else {
            self.of_indices(log_p, targets, axis)
        }
    }

    /// The weights, reshaped to broadcast against log-probabilities.
    fn class_weights(&self, log_p: &Tensor, axis: usize) -> Result<Option<Tensor>> {
        let Some(weight) = &self.weight else { return Ok(None) };
        let mut sizes = vec![1; log_p.ndim()];
        sizes[axis] = weight.numel();
        Ok(Some(weight.cast(log_p.dtype())?.reshape(sizes)?)) // (1, C, 1..)
    }

    fn of_indices(&self, log_p: &Tensor, targets: &Tensor, axis: usize) -> Result<Tensor> {
        let classes = log_p.shape()[axis];
        let kept = self.kept(targets)?; // (N, d..)
        let index = match &kept {
            Some(kept) => {
                map([kept, targets], |[kept, t]| kept.where_cond(t, 0).cast(targets.dtype()))?
            }
            None => targets.clone(),
        };
        let index = index.unsqueeze(axis as isize)?; // (N, 1, d..)
        let picked = log_p
            .gather(axis as isize, &index)
            .map_err(|e| name_target(e, targets, classes, self.ignore_index))?;
        let mut losses = picked.squeeze(axis as isize)?.neg()?; // (N, d..)
        let weights = match self.class_weights(log_p, axis)? {
            // (N, d..)
            Some(weight) => Some(
                weight
                    .expand(*log_p.shape())?
                    .gather(axis as isize, &index)?
                    .squeeze(axis as isize)?,
            ),
            None => None,
        };
        if let Some(weights) = &weights {
            losses = losses.mul(weights)?;
        }
        if self.label_smoothing > 0.0 {
            let uniform = match self.class_weights(log_p, axis)? {
                Some(weight) => log_p.mul(&weight)?,
                None => log_p.clone(),
            };
            let uniform = uniform.sum(axis as isize)?; // (N, d..)
            let (sharp, even) = (1.0 - self.label_smoothing, self.label_smoothing / classes as f64);
            losses = map([&losses, &uniform], |[loss, uniform]| loss * sharp - uniform * even)?;
        }
        if let Some(kept) = &kept {
            losses = map([kept, &losses], |[kept, loss]| {
                kept.where_cond(loss, 0.0).cast(losses.dtype())
            })?;
        }
        self.reduce(losses, kept.as_ref(), weights.as_ref())
    }

    /// The mask (N, d..) of targets that are not ignored; None if no target can be ignored.
    fn kept(&self, targets: &Tensor) -> Result<Option<Tensor>> {
        // no target has an index outside its dtype: cast to u8, -100 would be class 156
        let ignore_index =
            self.ignore_index.filter(|&index| Scalar::Int(index).fits(targets.dtype()));
        ignore_index.map(|index| targets.ne(index)).transpose()
    }

    /// Reduces losses (N, d..), which are 0 for ignored targets. A mean is weighted by the weights
    /// of the kept targets.
    fn reduce(
        &self,
        losses: Tensor,
        kept: Option<&Tensor>,
        weights: Option<&Tensor>,
    ) -> Result<Tensor> {
        if self.reduction != Reduction::Mean || (kept.is_none() && weights.is_none()) {
            return self.reduction.apply(losses);
        }
        let count = match (kept, weights) {
            (Some(kept), Some(weights)) => {
                map([kept, weights], |[kept, w]| kept.where_cond(w, 0.0).cast(losses.dtype()))?
                    .sum_all()?
            }
            (Some(kept), None) => kept.cast(losses.dtype())?.sum_all()?,
            (None, Some(weights)) => weights.sum_all()?,
            (None, None) => return losses.mean_all(),
        };
        losses.sum_all()?.div(&count)
    }

    fn of_probabilities(&self, log_p: &Tensor, targets: &Tensor, axis: usize) -> Result<Tensor> {
        if self.ignore_index.is_some() {
            return Err(Error::value(
                "ignore_index needs class indices as targets, not probabilities",
            )
            .help("with_ignore_index(None), or targets of integers"));
        }
        let classes = log_p.shape()[axis];
        let (sharp, even) = (1.0 - self.label_smoothing, self.label_smoothing / classes as f64);
        let weighted = match self.class_weights(log_p, axis)? {
            Some(weight) => {
                map([log_p, targets, &weight], |[p, t, w]| -p * (t * sharp + even) * w)?
            }
            None => map([log_p, targets], |[p, t]| -p * (t * sharp + even))?,
        }; // (N, C, d..)
        let losses = weighted.sum(axis as isize)?; // (N, d..)
        self.reduction.apply(losses)
    }
}

/// The axis of the classes of logits, if targets are integers or probabilities of their shape.
fn class_axis(logits: &Tensor, targets: &Tensor) -> Result<usize> {
    if !targets.dtype().is_float() {
        let axis = index_axis(logits, targets).map_err(|error| {
            if logits.ndim() == 0 || targets.shape() != logits.shape() {
                return error;
            }
            let axis = usize::from(logits.ndim() > 1);
            error.help(format!(
                "targets.argmax({axis})? of one-hot rows, or targets.cast(DType::F32)? as \
                 probabilities"
            ))
        })?;
        return match targets.dtype().is_int() {
            true => Ok(axis),
            false => Err(Error::dtype(format!(
                "targets are class indices (integers) or probabilities (floats), not {}",
                targets.dtype()
            ))
            .help("targets.cast(DType::I64)? makes classes 0 and 1")),
        };
    }
    if logits.ndim() > 0 && targets.shape() != logits.shape() {
        let text = format!(
            "logits {} need target probabilities of that shape, not {}",
            logits.shape(),
            targets.shape()
        );
        return Err(
            Error::shape(text).help("class indices must be integers: targets.cast(DType::I32)?")
        );
    }
    super::require_type(logits, targets)?;
    axis_of(logits)
}

/// The axis of the classes: 1 of (N, C, d..), 0 of (C).
fn axis_of(logits: &Tensor) -> Result<usize> {
    match logits.ndim() {
        0 => Err(Error::shape("logits need an axis of classes, but are a scalar")
            .help("logits of one item are (C), of a batch (N, C)")),
        ndim => Ok(usize::from(ndim > 1)),
    }
}

/// The axis of the classes of logits (N, C, d..) or (C), if `targets` are (N, d..) or ().
pub(crate) fn index_axis(logits: &Tensor, targets: &Tensor) -> Result<usize> {
    let axis = axis_of(logits)?;
    let expected = logits.shape().without(axis);
    if *targets.shape() == expected {
        return Ok(axis);
    }
    let (logits, own) = (logits.shape(), targets.shape());
    let error = Error::shape(format!("logits {logits} need targets {expected}, not {own}"));
    Err(match squeezes_to(targets, &expected) {
        Some(axis) => error.help(format!("targets.squeeze({axis})? has that shape")),
        None if own == logits => error.help(format!("targets.argmax({axis})? of one-hot rows")),
        None if own.ndim() > 1 && own[..] == logits[..logits.ndim() - 1] => error.help(format!(
            "classes on the last axis: logits.flatten(0, {})?, targets.flatten(0, -1)?",
            logits.ndim() - 2
        )),
        None => {
            error.help("one class for each item or pixel: logits (N, C, d..), targets (N, d..)")
        }
    })
}

/// Replaces the index error of `gather` by one that names the first target that is not a class.
#[cold]
fn name_target(error: Error, targets: &Tensor, classes: usize, ignore_index: Option<i64>) -> Error {
    if error.kind() != ErrorKind::Index {
        return error;
    }
    let Ok(values) = targets.to_scalars() else { return error };
    let is_class =
        |v: i64| usize::try_from(v).is_ok_and(|v| v < classes) || Some(v) == ignore_index;
    let Some((i, value)) =
        values.iter().map(|v| v.to_i64_wrapping()).enumerate().find(|(_, v)| !is_class(*v))
    else {
        return error;
    };
    let range = if classes == 0 { "none".to_string() } else { format!("0..={}", classes - 1) };
    Error::index(format!(
        "targets[{}] is {value}, but logits have {classes} classes ({range})",
        position(i, targets.shape())
    ))
    .help(
        "a last layer with more outputs, or CrossEntropy::new().with_ignore_index(..) for targets \
         to leave out",
    )
}

/// The indices of element `i` of a row-major tensor: `17` for a vector, `3, 2` for a matrix.
pub(crate) fn position(mut i: usize, shape: &[usize]) -> String {
    let mut parts = Vec::new();
    for &size in shape.iter().rev() {
        parts.push((i % size.max(1)).to_string());
        i /= size.max(1);
    }
    parts.reverse();
    parts.join(", ")
}
