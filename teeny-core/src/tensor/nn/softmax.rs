//! Softmax, log-softmax and cross-entropy: checks of the operands. The formulas are in
//! [`RowFunction`].

use crate::context::enter;
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::RowFunction;
use crate::scalar::Scalar;
use crate::tensor::Tensor;
use crate::tensor::one_device::on_one_device;

impl Tensor {
    /// Softmax along `axis`: `exp(x - max) / sum(exp(x - max))`.
    ///
    /// Shapes: `(.., n, ..)` → the same. Subtracting the maximum keeps `exp` finite; a row of only
    /// -inf gives NaN, as in PyTorch.
    ///
    /// Accuracy on `Cpu`, of f32: rows of any length sum to 1 within 1e-6, and an element is within
    /// `1.5e-6 (1 + max |x|)` of its size.
    ///
    /// # Errors
    /// If `axis` does not exist, or the type is not a float.
    ///
    /// Source: Milakov & Gimelshein 2018, arXiv:1805.02867. Equivalent: `torch.softmax(x, dim)`.
    #[track_caller]
    pub fn softmax(&self, axis: isize) -> Result<Tensor> {
        let _op = enter("softmax").on([("x", Some(self))]);
        self.require_float()?;
        let axis = self.shape().axis(axis)?;
        RowFunction::Softmax.run(&[self], &[], &[axis])
    }

    /// `log(softmax(x))` along `axis`, without the loss of small probabilities.
    ///
    /// Accuracy on `Cpu`, of f32: within 1e-6, and one unit in the last place of the result and of
    /// `x - max`.
    ///
    /// # Errors
    /// If `axis` does not exist, or the type is not a float.
    #[track_caller]
    pub fn log_softmax(&self, axis: isize) -> Result<Tensor> {
        let _op = enter("log_softmax").on([("x", Some(self))]);
        self.require_float()?;
        let axis = self.shape().axis(axis)?;
        RowFunction::LogSoftmax.run(&[self], &[], &[axis])
    }

    /// `-log_softmax(self)[target]` of every row: self (n, classes), `targets` (n) of integers →
    /// (n): the loss of a classifier. The log-probabilities are never stored in memory. A
    /// target of `ignore_index` costs 0 and gets no gradient.
    ///
    /// Accuracy on `Cpu`, of f32: within `2e-6 (1 + loss)`; the gradient of a row sums to 0 within
    /// 1e-6.
    ///
    /// # Errors
    /// If the shapes do not fit, self is not a float, or a target is neither a class nor
    /// `ignore_index` (the first offender is named).
    ///
    /// Equivalent: `torch.nn.functional.cross_entropy(x, targets, reduction="none")`.
    #[track_caller]
    pub fn cross_entropy(&self, targets: &Tensor, ignore_index: Option<i64>) -> Result<Tensor> {
        let _op = enter("cross_entropy").on([("x", Some(self)), ("targets", Some(targets))]);
        self.require_float()?;
        let (_, operands) = on_one_device(&[self, targets])?;
        let (x, targets) = (&operands[0], &operands[1]);
        require_targets(x, targets)?;
        // A number outside the targets' type matches none: as u8, -100 would be class 156.
        let ignored = ignore_index.map(Scalar::Int).filter(|i| i.fits(targets.dtype()));
        let params: &[Scalar] = ignored.as_slice();
        let losses = RowFunction::CrossEntropy.run(&[x, &targets.unsqueeze(1)?], params, &[1]);
        let losses = losses.map_err(|error| match error.kind() {
            ErrorKind::Index => error.help(format!(
                "classes go from 0 to {}; Some(target) as `ignore_index` skips one",
                x.shape()[1].saturating_sub(1)
            )),
            _ => error,
        })?;
        losses.squeeze(1) // (n, 1)
    }
}

/// An error unless `x` is (n, classes) with at least one class, and the targets are (n) integers.
/// Their values are for the device to check.
fn require_targets(x: &Tensor, targets: &Tensor) -> Result<()> {
    if targets.dtype().is_int() && x.ndim() == 2 && targets.shape()[..] == [x.shape()[0]] {
        return match x.shape()[..] {
            [n, 0] if n > 0 => Err(no_classes(x)),
            _ => Ok(()),
        };
    }
    Err(wrong_targets(x, targets))
}

#[cold]
fn no_classes(x: &Tensor) -> Error {
    Error::shape(format!("expected at least one class, got scores {}", x.shape()))
        .help("scores are (n, classes) with at least one class")
}

#[cold]
fn wrong_targets(x: &Tensor, targets: &Tensor) -> Error {
    if !targets.dtype().is_int() {
        return Error::dtype(format!("targets are classes, so integers, not {}", targets.dtype()))
            .help(match targets.ndim() {
                2 => "targets.argmax(1)? makes classes of rows of zeros and a one",
                _ => "targets.cast(DType::I64)? converts",
            });
    }
    let (n, classes) = (targets.numel(), x.shape().last().copied().unwrap_or(0));
    Error::shape(format!(
        "scores (n, classes) and targets (n) are needed, not {} and \
         {}",
        x.shape(),
        targets.shape()
    ))
    .help(match x.ndim() > 1 && n.checked_mul(classes) == Some(x.numel()) {
        true => format!("x.reshape(({n}, {classes}))? and targets.reshape({n})? fit"),
        false => "one target per row: classes on the last axis of x, all other axes \
                joined by x.reshape((-1, classes))?"
            .to_string(),
    })
}
