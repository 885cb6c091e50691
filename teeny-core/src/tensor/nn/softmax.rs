//! Softmax, log-softmax and cross-entropy: checks of the operands. The formulas are in
//! [`crate::definition`].

use crate::context::enter;
use crate::error::{ErrorKind, Result};
use crate::op::Op;
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
        Op::Softmax { x: self, axis }.tensor(self.device())
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
        Op::LogSoftmax { x: self, axis }.tensor(self.device())
    }

    /// `-log_softmax(self)[target]` of every row: self (n, classes), `targets` (n) of integers →
    /// (n): the loss of a classifier. The log-probabilities are never stored in memory. A
    /// target of `ignore_index` costs 0 and gets no gradient.
    ///
    /// Accuracy on `Cpu`, of f32: within `2e-6 (1 + loss)`; the gradient of a row sums to 0 within
    /// 1e-6.
    ///
    /// # Errors
    /// If the shapes do not fit, self is no float, or a target is neither a class nor
    /// `ignore_index` (the first offender is named).
    ///
    /// Equivalent: `torch.nn.functional.cross_entropy(x, targets, reduction="none")`.
    #[track_caller]
    pub fn cross_entropy(&self, targets: &Tensor, ignore_index: Option<i64>) -> Result<Tensor> {
        let _op = enter("cross_entropy").on([("x", Some(self)), ("targets", Some(targets))]);
        self.require_float()?;
        let (_, operands) = on_one_device(&[self, targets])?;
        let (x, targets) = (&operands[0], &operands[1]);
        Op::CrossEntropy { x, targets, ignore_index }.tensor(x.device()).map_err(
            |error| match error.kind() {
                ErrorKind::Index => error.help(format!(
                    "classes go from 0 to {}; Some(target) as `ignore_index` skips one",
                    x.shape()[1].saturating_sub(1)
                )),
                _ => error,
            },
        )
    }
}
