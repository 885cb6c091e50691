//! Storage: flat memory owned by a device, without a shape.

use crate::dtype::DType;
use crate::error::{Error, Result};
use std::any::Any;
use std::sync::Arc;

/// A device's memory for the elements of one tensor, shared by all its views. Opaque except to the
/// device that made it.
pub trait Storage: Any + Send + Sync {
    /// The number of elements.
    fn len(&self) -> usize;

    /// The type of the elements.
    fn dtype(&self) -> DType;

    /// True if the storage has no elements.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl dyn Storage {
    /// The storage as the type `S` of a device, or none if it is of another.
    #[inline]
    pub fn downcast_ref<S: Storage>(&self) -> Option<&S> {
        (self as &dyn Any).downcast_ref()
    }
}

/// A shared storage. Two views of one storage hold the same pointer.
pub type StorageRef = Arc<dyn Storage>;

/// The storage as the device's own type.
///
/// # Errors
/// [`crate::ErrorKind::Internal`] if the storage belongs to another kind of device: core dispatched
/// to the wrong one.
#[inline]
pub fn downcast<S: Storage>(storage: &StorageRef) -> Result<&S> {
    storage.downcast_ref::<S>().ok_or_else(|| {
        Error::internal(format!("a storage is not a {}", std::any::type_name::<S>()))
    })
}

/// The storage as the device's own type, if it has no other owner: then its elements may be changed
/// in place.
#[inline]
pub fn downcast_mut<S: Storage>(storage: &mut StorageRef) -> Option<&mut S> {
    (Arc::get_mut(storage)? as &mut dyn Any).downcast_mut::<S>()
}
