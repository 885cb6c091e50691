//! Values: results of recorded operations, before and after they are computed.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::storage::{Storage, StorageRef, downcast};
use crate::tensor::Tensor;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One result of an operation, or an input of all: elements of one type.
pub(super) struct Value {
    len: usize,
    dtype: DType,
    /// Whether a tensor can read it.
    held: AtomicBool,
    /// The list that met it last, and its slot there.
    list: AtomicU64,
    slot: AtomicU32,
    state: Mutex<ValueState>,
}

/// The elements of a value.
#[derive(Clone)]
pub(super) enum ValueState {
    /// Nothing was computed yet.
    Pending,
    /// The storage of the device below.
    Ready(StorageRef),
    /// The operation failed, or one whose result it reads.
    Failed(Error),
}

impl Value {
    /// A value that a tensor will hold.
    fn new(len: usize, dtype: DType, state: ValueState) -> Arc<Value> {
        let held = AtomicBool::new(true);
        let (list, slot) = (AtomicU64::new(0), AtomicU32::new(0));
        Arc::new(Value { len, dtype, held, list, slot, state: Mutex::new(state) })
    }

    /// The size of its elements.
    pub(super) fn bytes(&self) -> usize {
        self.len.saturating_mul(self.dtype.size())
    }

    /// Whether a tensor can read it.
    pub(super) fn is_held(&self) -> bool {
        self.held.load(Ordering::Acquire)
    }

    /// The number of its elements.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Its slot in the list with this number, which is not 0.
    pub(super) fn slot(&self, list: u64) -> Option<u32> {
        // Both are written and read under the lock of the list.
        let met = self.list.load(Ordering::Relaxed) == list;
        met.then(|| self.slot.load(Ordering::Relaxed))
    }

    /// Records its slot in the list with this number.
    pub(super) fn set_slot(&self, list: u64, slot: u32) {
        self.list.store(list, Ordering::Relaxed);
        self.slot.store(slot, Ordering::Relaxed);
    }

    /// How many elements there are, and their type.
    pub(super) fn elements(&self) -> (usize, DType) {
        (self.len, self.dtype)
    }

    /// The elements as they are now.
    pub(super) fn look(&self) -> ValueState {
        self.state().clone()
    }

    pub(super) fn is_pending(&self) -> bool {
        matches!(*self.state(), ValueState::Pending)
    }

    /// The storage of the device below.
    ///
    /// # Errors
    /// The error of the operation that should have computed it.
    pub(super) fn storage(&self) -> Result<StorageRef> {
        self.state().clone().into_storage()
    }

    /// The storage of a value that nothing else refers to, otherwise another handle of it.
    ///
    /// # Errors
    /// As [`Value::storage`].
    pub(super) fn take(self: Arc<Value>) -> Result<StorageRef> {
        match Arc::try_unwrap(self) {
            Ok(value) => {
                value.state.into_inner().unwrap_or_else(PoisonError::into_inner).into_storage()
            }
            Err(shared) => shared.storage(),
        }
    }

    /// Stores what was computed; a storage of other elements than the op promised is a failure.
    pub(super) fn set(&self, result: Result<StorageRef>) {
        *self.state() = match result {
            Ok(storage) if (storage.len(), storage.dtype()) == (self.len, self.dtype) => {
                ValueState::Ready(storage)
            }
            Ok(storage) => ValueState::Failed(Error::internal(format!(
                "the device returned {} elements of {}, not {} of {}",
                storage.len(),
                storage.dtype(),
                self.len,
                self.dtype
            ))),
            Err(error) => ValueState::Failed(error),
        };
    }

    fn state(&self) -> MutexGuard<'_, ValueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ValueState {
    fn into_storage(self) -> Result<StorageRef> {
        match self {
            ValueState::Ready(storage) => Ok(storage),
            ValueState::Failed(error) => Err(error),
            ValueState::Pending => Err(Error::internal("a recorded operation did not run")),
        }
    }
}

/// The storage of tensors of [`super::Lazy`]: keeps a value while a tensor can read it.
pub(super) struct LazyStorage(Arc<Value>);

impl LazyStorage {
    /// Storage whose elements are computed later.
    pub(super) fn pending(len: usize, dtype: DType) -> LazyStorage {
        LazyStorage(Value::new(len, dtype, ValueState::Pending))
    }

    /// Storage of the device below.
    pub(super) fn ready(storage: StorageRef) -> LazyStorage {
        LazyStorage(Value::new(storage.len(), storage.dtype(), ValueState::Ready(storage)))
    }

    pub(super) fn value(&self) -> &Arc<Value> {
        &self.0
    }
}

impl Drop for LazyStorage {
    fn drop(&mut self) {
        self.0.held.store(false, Ordering::Release);
    }
}

impl Storage for LazyStorage {
    fn len(&self) -> usize {
        self.0.len
    }
    fn dtype(&self) -> DType {
        self.0.dtype
    }
}

/// The value behind `x`, a tensor of a recording device.
///
/// # Errors
/// If it is a tensor of another device.
pub(super) fn value(x: &Tensor) -> Result<&Arc<Value>> {
    Ok(downcast::<LazyStorage>(x.storage())?.value())
}

/// The elements of a list's value while it runs.
pub(super) enum Slot {
    /// Not computed yet, or no longer needed.
    Empty,
    /// A leaf, or a result that a tensor holds.
    Value(Arc<Value>),
    /// A result that the list alone reads.
    Temporary(Result<StorageRef>),
}
