//! Backward rules of the structural operations, one file per subject.
//!
//! A rule is a closure over *inner* tensors and uses public `Tensor` operations: it runs on any
//! device, and where the inner device is itself an autograd device, the backward pass is recorded
//! and can be differentiated again.
//!
//! No rule: `upload`, `random` (values appear from nowhere); `argmax`, `argmin`, `any`, `all`, the
//! positions of `sort` and `max_pool`, comparisons and casts to integers (results without a slope).
//! These leave a cut, which an error about a missing gradient names.

pub(crate) mod assign;
pub(crate) mod attention;
pub(crate) mod conv;
pub(crate) mod index;
pub(crate) mod join;
pub(crate) mod linalg;
pub(crate) mod matmul;
pub(crate) mod norm;
pub(crate) mod pool;
pub(crate) mod reduce;
pub(crate) mod scan;
pub(crate) mod softmax;

use teeny_core::{DeviceRef, Result, Shape, StorageRef, Tensor};

/// A row-major tensor over what a device method gave back.
fn tensor(storage: StorageRef, shape: Shape, like: &Tensor) -> Result<Tensor> {
    Tensor::from_result(storage, shape, like.dtype(), device(like).clone())
}

fn device(x: &Tensor) -> &DeviceRef {
    x.device()
}

/// `g`, reduced over `axes` of `shape`, repeated to `shape` again: a view.
pub(crate) fn spread(g: &Tensor, shape: &Shape, axes: &[usize]) -> Result<Tensor> {
    axes.iter().try_fold(g.clone(), |g, &axis| g.unsqueeze(axis as isize))?.expand(shape)
}
