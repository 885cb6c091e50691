//! Scratch memory of a task: a block of the device's pool until the task ends. The memory limit
//! counts it, the cache keeps it for the next task, and without it the operation fails with an
//! error.

use crate::Cpu;
use crate::device::out_of_memory;
use crate::float::Float;
use crate::pool::{Buffer, OutOfMemory, Use};
use crate::typed::slice_mut;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use teeny_core::{Error, Result};

/// Bytes of a cache line: a vector that crosses its end takes twice as long.
pub(crate) const LINE: usize = 64;

impl Cpu {
    /// `bytes` bytes of scratch memory, aligned to a cache line, with any content.
    #[inline]
    pub(crate) fn scratch(&self, bytes: usize) -> Result<Buffer> {
        self.pool.alloc(bytes, Use::Scratch).map_err(no_scratch)
    }
}

#[cold]
fn no_scratch(error: OutOfMemory) -> Error {
    out_of_memory(error, &format!("{} bytes of scratch memory", error.wanted))
}

/// The bytes of `len` elements of type `T`.
///
/// # Errors
/// If the number overflows.
fn bytes_of<T>(len: usize) -> Result<usize> {
    len.checked_mul(size_of::<T>()).ok_or_else(|| {
        Error::out_of_memory(format!(
            "no memory for {len} elements of {} bytes of scratch memory",
            size_of::<T>()
        ))
    })
}

/// Calls `f` with slices of these lengths, one after the other from a cache line on, with any
/// content.
///
/// # Errors
/// If allocation fails; `f` is not called then.
pub(crate) fn with_scratch<T: Float, R, const N: usize>(
    cpu: &Cpu,
    sizes: [usize; N],
    f: impl FnOnce([&mut [T]; N]) -> R,
) -> Result<R> {
    let total =
        sizes.iter().try_fold(0usize, |sum, &size| sum.checked_add(size)).unwrap_or(usize::MAX);
    let buffer = cpu.scratch(bytes_of::<T>(total)?)?;
    // SAFETY: the block has `total` elements, aligned to a cache line, and no other user; any bits
    // are an element, as T is f32 or f64.
    let mut rest = unsafe { slice_mut::<T>(buffer.ptr(), total) };
    Ok(f(sizes.map(|size| {
        let (part, after) = std::mem::take(&mut rest).split_at_mut(size);
        rest = after;
        part
    })))
}

/// A slice in the device's memory: a `Vec` whose allocation can fail.
pub(crate) struct Array<T> {
    /// `None` if `len` is 0.
    buffer: Option<Buffer>,
    len: usize,
    elements: PhantomData<T>,
}

impl<T: Copy> Array<T> {
    /// `len` times `value`.
    ///
    /// # Errors
    /// If allocation fails.
    pub(crate) fn filled(cpu: &Cpu, len: usize, value: T) -> Result<Array<T>> {
        Array::from_fn(cpu, len, |_| value)
    }

    /// `f(0)`, …, `f(len - 1)`.
    ///
    /// # Errors
    /// If allocation fails.
    pub(crate) fn from_fn(
        cpu: &Cpu,
        len: usize,
        mut f: impl FnMut(usize) -> T,
    ) -> Result<Array<T>> {
        const { assert!(align_of::<T>() <= LINE) };
        if len == 0 {
            return Ok(Array { buffer: None, len, elements: PhantomData });
        }
        let buffer = cpu.scratch(bytes_of::<T>(len)?)?;
        let first = buffer.ptr().cast::<T>();
        for i in 0..len {
            // SAFETY: the block has `len` aligned elements and no other owner.
            unsafe { first.add(i).write(f(i)) };
        }
        Ok(Array { buffer: Some(buffer), len, elements: PhantomData })
    }
}

impl<T> Array<T> {
    fn first(&self) -> *mut T {
        self.buffer.as_ref().map_or(NonNull::dangling().as_ptr(), |buffer| buffer.ptr().cast())
    }
}

impl<T> Deref for Array<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: `from_fn` has written all elements of a block that this array owns.
        unsafe { std::slice::from_raw_parts(self.first(), self.len) }
    }
}

impl<T> DerefMut for Array<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above; the array is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.first(), self.len) }
    }
}
