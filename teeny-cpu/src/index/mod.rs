//! Positions along an axis: integers of any dtype, checked. `gather` reads by them, `scatter` writes.
//!
//! All indices are checked before anything is written; where one index holds for several elements
//! (an embedding, a selection of columns), it is read once.

mod gather;
mod positions;
mod scatter;

pub(crate) use gather::gather;
pub(crate) use positions::flat_positions;
pub(crate) use scatter::scatter;

use crate::scratch::Array;
use crate::simd::{F32s, Work};
use crate::storage::{Shared, View};
use crate::typed::{slice, with_compute};
use crate::{Cpu, copy};
use std::ops::Deref;
use teeny_core::{DType, Error, Layout, Result, Tensor};

/// Elements below which one thread moves them.
const THREAD: usize = 16 << 10;

/// Integers row-major as i64. An unsigned one beyond i64 becomes negative.
pub(crate) enum Integers {
    /// The elements of a tensor that is borrowed for as long.
    Tensor(Shared<i64>, usize),
    /// Converted ones.
    Converted(Array<i64>),
}

impl Deref for Integers {
    type Target = [i64];
    fn deref(&self) -> &[i64] {
        match self {
            // SAFETY: a packed view of this many elements, which the operation borrows.
            Integers::Tensor(first, n) => unsafe { std::slice::from_raw_parts(first.get(), *n) },
            Integers::Converted(all) => all,
        }
    }
}

/// The elements of `index`, which the operation borrows.
pub(crate) fn integers(cpu: &Cpu, index: &Tensor) -> Result<Integers> {
    let view = View::of(index)?;
    let n = index.numel();
    if view.is_contiguous() && matches!(index.dtype(), DType::I64 | DType::U64) && n > 0 {
        return Ok(Integers::Tensor(Shared(view.ptr.cast_mut().cast()), n));
    }
    let copy = if view.is_contiguous() { None } else { Some(copy::contiguous(cpu, &view)?) };
    let first = copy.as_ref().map_or(view.ptr, |copy| copy.ptr());
    with_compute!(index.dtype(), T => {
        // SAFETY: the view, or its copy, has n elements of this type.
        let indices = if n == 0 { &[] } else { unsafe { slice::<T>(first, n) } };
        #[allow(clippy::unnecessary_cast)]
        Ok(Integers::Converted(Array::from_fn(cpu, n, |i| indices[i] as i64)?))
    })
}

/// The indices row-major, each in `0..size`.
pub(crate) fn checked(cpu: &Cpu, index: &Tensor, axis: usize, size: usize) -> Result<Integers> {
    let out = integers(cpu, index)?;
    if cpu.level.run(AllInside { indices: &out, size: size as i64 }) {
        return Ok(out);
    }
    match out.iter().position(|&i| i < 0 || i as u64 >= size as u64) {
        None => Ok(out),
        Some(at) => Err(outside(index.layout(), at, out[at], axis, size)),
    }
}

/// Whether all indices are in `0..size`, by vectors.
struct AllInside<'a> {
    indices: &'a [i64],
    size: i64,
}

impl Work for AllInside<'_> {
    type Out = bool;
    const FOR_AVX512: bool = false;
    #[inline(always)]
    fn run<V: F32s>(self) -> bool {
        let mut outside = 0i64;
        for &i in self.indices {
            // The sign bit of either: below 0, or not below the size.
            outside |= i | (self.size - 1).wrapping_sub(i);
        }
        outside >= 0
    }
}

#[cold]
fn outside(layout: &Layout, at: usize, index: i64, axis: usize, size: usize) -> Error {
    let place = layout.distinct_coordinates(at);
    let range = if size == 0 {
        "has no elements".to_string()
    } else {
        format!("has size {size} (0..={})", size - 1)
    };
    Error::position(&place, index.into(), size, format!("axis {axis} {range}"))
}

/// The offset in a view with strides `view` of element `i` of `shape`, without axis `axis`.
fn offset(view: &[isize], shape: &[usize], axis: usize, mut i: usize) -> isize {
    let mut offset = 0;
    for a in (0..shape.len()).rev() {
        let here = i % shape[a];
        i /= shape[a];
        if a != axis {
            offset += here as isize * view[a];
        }
    }
    offset
}
