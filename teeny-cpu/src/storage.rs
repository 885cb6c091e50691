//! Storage of the CPU device: a pooled buffer of elements, and raw views of it.
//!
//! A [`View`] is a pointer with sizes and strides, made from a `Tensor` whose layout is checked
//! against its storage: the one gate between tensors and raw pointers. It exists only inside one
//! device call, during which the tensors that it reads are borrowed. Independent of ops.

use crate::pool::Buffer;
use teeny_core::storage::{Storage, downcast};
use teeny_core::{DType, Error, Result, Shape, Tensor};

/// Elements in memory that the device's pool owns.
pub(crate) struct CpuStorage {
    buffer: Buffer,
    len: usize,
    dtype: DType,
}

impl CpuStorage {
    /// A storage of `len` elements of type `dtype` in `buffer`, which must hold them.
    pub(crate) fn new(buffer: Buffer, len: usize, dtype: DType) -> CpuStorage {
        CpuStorage { buffer, len, dtype }
    }

    /// The first element. Written to only while the storage has one owner: when it was just made,
    /// or under `Arc::get_mut`.
    pub(crate) fn ptr(&self) -> *mut u8 {
        self.buffer.ptr()
    }
}

impl Storage for CpuStorage {
    fn len(&self) -> usize {
        self.len
    }
    fn dtype(&self) -> DType {
        self.dtype
    }
}

/// A strided view as devices see it: a pointer to the first element, sizes, strides in elements.
#[derive(Clone, Copy)]
pub(crate) struct View {
    /// The element at index (0, …, 0); dangling if the view is empty.
    pub ptr: *const u8,
    /// Sizes.
    pub shape: Shape,
    /// Elements between neighbours; entries beyond the last axis mean nothing.
    pub strides: [isize; 8],
    /// Type of the elements.
    pub dtype: DType,
}

// SAFETY: a view only reads, from storages that are borrowed for as long as it lives.
unsafe impl Send for View {}
// SAFETY: as above.
unsafe impl Sync for View {}

impl View {
    /// The view of a tensor of this device. All of its elements are inside the tensor's storage.
    ///
    /// # Errors
    /// If the storage is another device's, holds another type, or the layout reaches outside it.
    #[inline]
    pub(crate) fn of(x: &Tensor) -> Result<View> {
        let storage = storage_of(x)?;
        let layout = x.layout();
        let mut strides = [0; 8];
        strides[..x.ndim()].copy_from_slice(layout.strides());
        let ptr = storage.ptr().cast_const().wrapping_add(layout.offset() * x.dtype().size());
        Ok(View { ptr, shape: *x.shape(), strides, dtype: x.dtype() })
    }

    /// Packed elements with the axes of `shape` in this `order`.
    pub(crate) fn in_order(ptr: *const u8, shape: &Shape, order: &[usize], dtype: DType) -> View {
        let (mut strides, mut step) = ([0; 8], 1);
        for &axis in order.iter().rev() {
            strides[axis] = step;
            step *= shape[axis] as isize;
        }
        View { ptr, shape: *shape, strides, dtype }
    }

    /// Axes in another order.
    pub(crate) fn permuted(&self, order: &[usize]) -> View {
        let mut sizes = [0; 8];
        let mut out = *self;
        for (to, &from) in order.iter().enumerate() {
            sizes[to] = self.shape[from];
            out.strides[to] = self.strides[from];
        }
        // Made at once: a shape with some axes exchanged could have more elements than either.
        out.shape = Shape::new(&sizes[..order.len()]).unwrap_or(self.shape);
        out
    }

    /// The strides of the axes that exist.
    pub(crate) fn strides(&self) -> &[isize] {
        &self.strides[..self.shape.ndim()]
    }

    /// Whether the elements are in row-major order without gaps.
    pub(crate) fn is_contiguous(&self) -> bool {
        let mut step = 1;
        for axis in (0..self.shape.ndim()).rev() {
            if self.shape[axis] != 1 && self.strides[axis] != step {
                return false;
            }
            step *= self.shape[axis] as isize;
        }
        true
    }
}

/// The storage of `x`, if it is one of the CPU, holds the tensor's type and all elements of its
/// layout.
#[inline]
pub(crate) fn storage_of(x: &Tensor) -> Result<&CpuStorage> {
    let storage = downcast::<CpuStorage>(x.storage())?;
    if storage.dtype != x.dtype() || !x.layout().fits(storage.len) {
        return Err(does_not_fit(x, storage));
    }
    Ok(storage)
}

#[cold]
fn does_not_fit(x: &Tensor, storage: &CpuStorage) -> Error {
    let (layout, dtype) = (x.layout(), x.dtype());
    Error::internal(format!(
        "{layout:?} of {dtype} is not inside a storage of {} elements of {}",
        storage.len, storage.dtype
    ))
}

/// A pointer that chunks of a job share; no two write to the same element.
#[derive(Clone, Copy)]
pub(crate) struct Shared<T>(pub *mut T);

// SAFETY: only passes the address to the workers; every use states which elements it touches.
unsafe impl<T> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// The pointer. A method, so that closures capture the wrapper and not its field.
    #[inline(always)]
    pub(crate) fn get(&self) -> *mut T {
        self.0
    }
}
