//! Shape, dtype, device and memory of a tensor, for its users and for errors. Nothing here
//! computes.

use super::Tensor;
use crate::context::{Described, enter};
use crate::device::DeviceRef;
use crate::dtype::DType;
use crate::error::Result;
use crate::layout::Layout;
use crate::shape::Shape;
use crate::storage::StorageRef;
use std::sync::Arc;

/// In an error: shape, dtype and the name of the device.
impl Described for Tensor {
    fn shape(&self) -> String {
        self.layout.shape().to_string()
    }

    fn dtype(&self) -> DType {
        self.dtype
    }

    fn device(&self) -> String {
        self.device.info().name.to_string()
    }
}

/// For functions of a list of tensors: `&[a, b]`, `&[&a, &b]` and `&vec` are such lists.
impl AsRef<Tensor> for Tensor {
    #[inline]
    fn as_ref(&self) -> &Tensor {
        self
    }
}

/// The tensors of a list of tensors or of references to them.
pub(super) fn references<T: AsRef<Tensor>>(tensors: &[T]) -> Vec<&Tensor> {
    tensors.iter().map(AsRef::as_ref).collect()
}

impl Tensor {
    /// The sizes of the axes.
    #[inline]
    pub fn shape(&self) -> &Shape {
        self.layout.shape()
    }

    /// The number of axes.
    #[inline]
    pub fn ndim(&self) -> usize {
        self.layout.ndim()
    }

    /// The number of elements.
    #[inline]
    pub fn numel(&self) -> usize {
        self.layout.numel()
    }

    /// The size of `axis`; negative axes count from the back.
    ///
    /// # Errors
    /// If `axis` is out of range.
    #[track_caller]
    pub fn size(&self, axis: isize) -> Result<usize> {
        let _op = enter("size").on([("x", Some(self))]);
        Ok(self.shape()[self.shape().axis(axis)?])
    }

    /// The type of the elements.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The device that holds the elements and computes with them.
    #[inline]
    pub fn device(&self) -> &DeviceRef {
        &self.device
    }

    /// Elements between neighbours along each axis.
    #[inline]
    pub fn strides(&self) -> &[isize] {
        self.layout.strides()
    }

    /// True if the elements are row-major without gaps.
    #[inline]
    pub fn is_contiguous(&self) -> bool {
        self.layout.is_contiguous()
    }

    /// The positions of the elements in the storage.
    #[inline]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The storage of this tensor.
    #[inline]
    pub fn storage(&self) -> &StorageRef {
        &self.storage
    }

    /// True if both tensors share one storage.
    pub fn same_storage(&self, other: &Tensor) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.storage), Arc::as_ptr(&other.storage))
    }
}
