//! The storage of an autograd device: a tensor of the inner device, and its place in the graph.

use crate::detach_points::DetachPoints;
use crate::node::Handle;
use std::sync::Arc;
use teeny_core::storage::downcast;
use teeny_core::{DType, Layout, Result, Storage, StorageRef, Tensor};

/// An inner tensor whose storage the outer tensor's layout addresses, and its place in the graph.
pub(crate) struct Tracked {
    pub inner: Tensor,
    /// The value in the graph, if it depends on something that requires a gradient.
    pub handle: Option<Handle>,
    /// Where the gradients of its operands stop.
    pub detach_points: DetachPoints,
}

impl Tracked {
    pub fn storage(
        inner: Tensor,
        handle: Option<Handle>,
        detach_points: DetachPoints,
    ) -> StorageRef {
        Arc::new(Tracked { inner, handle, detach_points })
    }
}

impl Storage for Tracked {
    fn len(&self) -> usize {
        self.inner.storage().len()
    }
    fn dtype(&self) -> DType {
        self.inner.dtype()
    }
}

/// The storage of a tensor known to be on an autograd device.
#[inline]
pub(crate) fn tracked(x: &Tensor) -> Result<&Tracked> {
    downcast(x.storage())
}

/// The inner tensor that an outer one stands for: the inner storage through the outer layout, so
/// that views need no rules.
#[inline]
pub(crate) fn unwrap(x: &Tensor) -> Result<Tensor> {
    tracked(x)?.inner.with_layout(*x.layout())
}

/// The storage if `x` is on an autograd device at all.
pub(crate) fn try_tracked(x: &Tensor) -> Option<&Tracked> {
    x.storage().downcast_ref()
}

/// `x` as a row-major value alone in its storage, as nodes require.
pub(crate) fn own(x: Tensor) -> Result<Tensor> {
    let whole = x.is_contiguous() && x.layout().offset() == 0 && x.storage().len() == x.numel();
    if whole { x.with_layout(Layout::contiguous(*x.shape())) } else { x.copy() }
}
