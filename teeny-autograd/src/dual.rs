//! The storage of a forward-mode device: a value and, if it has one, its tangent.
//!
//! Both are flat memory of the inner device in one order, so a layout of the outer tensor addresses
//! the tangent of an element as it addresses the element: view operations need no rules.

use crate::storage::own;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use teeny_core::storage::downcast;
use teeny_core::{DType, DeviceRef, Result, Shape, Storage, StorageRef, Tensor};

/// A value and its tangent: tensors of the inner device of which only the storages count.
pub(crate) struct Dual {
    pub value: Tensor,
    /// The directional derivative of the value, in its dtype and the order of its storage; `None`
    /// where it is zero everywhere.
    pub tangent: Option<Tensor>,
    /// True once an operation has read it.
    used: AtomicBool,
}

impl Dual {
    /// Records that an operation reads the value.
    pub fn mark_used(&self) {
        self.used.store(true, Ordering::Relaxed);
    }

    /// Whether [`Dual::mark_used`] was called.
    pub fn is_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    /// The storage of a row-major value and a tangent of its shape.
    pub fn storage(value: Tensor, tangent: Option<Tensor>) -> Result<StorageRef> {
        let tangent = tangent.map(own).transpose()?;
        debug_assert!(tangent.as_ref().is_none_or(
            |t| t.storage().len() == value.storage().len() && t.dtype() == value.dtype()
        ));
        Ok(Arc::new(Dual { value, tangent, used: AtomicBool::new(false) }))
    }

    /// The storage of a value without a tangent, from a storage of the device `inner`.
    pub fn constant(storage: StorageRef, inner: &DeviceRef) -> Result<StorageRef> {
        Dual::storage(flat(storage, inner)?, None)
    }
}

impl Storage for Dual {
    fn len(&self) -> usize {
        self.value.storage().len()
    }
    fn dtype(&self) -> DType {
        self.value.dtype()
    }
}

/// The storage if `x` is on a forward-mode device.
pub(crate) fn try_dual(x: &Tensor) -> Option<&Dual> {
    x.storage().downcast_ref()
}

/// The inner tensor that `x` stands for.
pub(crate) fn value(x: &Tensor) -> Result<Tensor> {
    downcast::<Dual>(x.storage())?.value.with_layout(*x.layout())
}

/// The tangent of `x`, in its shape.
pub(crate) fn tangent(x: &Tensor) -> Result<Option<Tensor>> {
    downcast::<Dual>(x.storage())?.tangent.as_ref().map(|t| t.with_layout(*x.layout())).transpose()
}

/// Zeros in the shape of an inner tensor, that take no memory.
pub(crate) fn zeros(like: &Tensor) -> Result<Tensor> {
    Tensor::zeros((), like.dtype(), like)?.expand(like.shape())
}

/// All elements of a storage of the device `inner`, as a vector.
pub(crate) fn flat(storage: StorageRef, inner: &DeviceRef) -> Result<Tensor> {
    let (shape, dtype) = (Shape::new(&[storage.len()])?, storage.dtype());
    Tensor::from_result(storage, shape, dtype, inner.clone())
}
