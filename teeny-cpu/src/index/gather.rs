//! Gather along one axis.
//!
//! The naive form is `out[i][j] = x[index[i][j]][j]`, one element at a time. Whole rows under one
//! index are copied as rows, and an index that is the same for every row is read once.

use super::{THREAD, checked, offset};
use crate::Cpu;
use crate::simd::prefetch;
use crate::storage::{Shared, View};
use crate::threads::for_each_range;
use std::sync::Arc;
use teeny_core::storage::StorageRef;
use teeny_core::{Layout, Result, Shape, Tensor};

/// `out[i][j] = x[index[i][j]][j]` for axis 0.
pub(crate) fn gather(cpu: &Cpu, x: &Tensor, axis: usize, index: &Tensor) -> Result<StorageRef> {
    let view = View::of(x)?;
    let shape = *index.shape();
    let n = shape.numel();
    let out = cpu.alloc(n, x.dtype())?;
    if n == 0 {
        return Ok(Arc::new(out));
    }
    let to = Shared(out.ptr());
    // Whole rows under one index (an embedding): the index does not change along the axes behind.
    let repeated: usize = (axis + 1..shape.ndim())
        .filter(|&a| shape[a] == 1 || index.strides()[a] == 0)
        .map(|a| shape[a])
        .product();
    let inner: usize = shape[axis + 1..].iter().product();
    let packed = view.strides[axis + 1..shape.ndim()]
        == Layout::contiguous(*x.shape()).strides()[axis + 1..];
    let whole = x.shape()[axis + 1..] == shape[axis + 1..];
    if inner > 1 && repeated == inner && packed && whole {
        let first = index.with_layout(
            (axis + 1..shape.ndim()).fold(*index.layout(), |layout, a| layout.slice(a, 0, 1, 1)),
        )?;
        let indices = checked(cpu, &first, axis, x.shape()[axis])?;
        let indices: &[i64] = &indices;
        let bytes = inner * x.dtype().size();
        // A few rows ahead, as far as a cache miss lasts, and not more lines than fit beside them.
        let (ahead, lines) = ((1024 / bytes).clamp(1, 8), bytes.min(1024));
        for_each_range(indices.len(), THREAD / inner, |rows| {
            let row = |r: usize| {
                let before =
                    if axis == 0 { 0 } else { offset(view.strides(), &shape[..=axis], axis, r) };
                view.ptr.wrapping_offset(
                    (before + indices[r] as isize * view.strides[axis]) * x.dtype().size() as isize,
                )
            };
            for r in rows {
                let from = row(r);
                // Rows are far apart: others are prefetched while this one is copied.
                if r + ahead < indices.len() {
                    let next = row(r + ahead);
                    (0..lines)
                        .step_by(64)
                        .for_each(|line| prefetch(next.wrapping_add(line).cast()));
                }
                // SAFETY: the index was checked; row r of the output belongs to this range.
                unsafe { std::ptr::copy_nonoverlapping(from, to.get().add(r * bytes), bytes) };
            }
        });
        return Ok(Arc::new(out));
    }
    let even = (0..shape.ndim()).all(|a| a == axis || shape[a] == x.shape()[a]);
    if even && view.is_contiguous() {
        // One list of indices for all outer axes, or an index for each element.
        let lists =
            (0..shape.ndim()).all(|a| a == axis || shape[a] == 1 || index.strides()[a] == 0);
        let layout = (0..shape.ndim()).filter(|&a| lists && a != axis);
        let layout = layout.fold(*index.layout(), |layout, a| layout.slice(a, 0, 1, 1));
        let indices = checked(cpu, &index.with_layout(layout)?, axis, x.shape()[axis])?;
        let packed = PackedGather {
            from: Shared(view.ptr.cast_mut()),
            to,
            rows: n / inner,
            size: x.shape()[axis],
            count: shape[axis],
            inner,
            indices: &indices,
            lists,
        };
        match x.dtype().size() {
            1 => packed.run::<u8>(),
            2 => packed.run::<u16>(),
            4 => packed.run::<u32>(),
            _ => packed.run::<u64>(),
        }
        return Ok(Arc::new(out));
    }
    // One list of indices for every row (a resampled image, a selection of columns): checked once,
    // not once per row.
    let shared = (0..shape.ndim()).all(|a| a == axis || shape[a] == 1 || index.strides()[a] == 0);
    if shared && n > shape[axis] {
        let first = index.with_layout(
            (0..shape.ndim())
                .filter(|&a| a != axis)
                .fold(*index.layout(), |layout, a| layout.slice(a, 0, 1, 1)),
        )?;
        let indices = checked(cpu, &first, axis, x.shape()[axis])?;
        // SAFETY: indices were checked, other coordinates are within `x`.
        unsafe {
            match x.dtype().size() {
                1 => select_as::<u8>(&view, &shape, axis, &indices, to),
                2 => select_as::<u16>(&view, &shape, axis, &indices, to),
                4 => select_as::<u32>(&view, &shape, axis, &indices, to),
                _ => select_as::<u64>(&view, &shape, axis, &indices, to),
            }
        }
        return Ok(Arc::new(out));
    }
    let indices = checked(cpu, index, axis, x.shape()[axis])?;
    // SAFETY: indices were checked, other coordinates are within `x`.
    unsafe {
        match x.dtype().size() {
            1 => gather_as::<u8>(&view, &shape, axis, &indices, to),
            2 => gather_as::<u16>(&view, &shape, axis, &indices, to),
            4 => gather_as::<u32>(&view, &shape, axis, &indices, to),
            _ => gather_as::<u64>(&view, &shape, axis, &indices, to),
        }
    }
    Ok(Arc::new(out))
}

unsafe fn gather_as<T: Copy>(
    view: &View,
    shape: &Shape,
    axis: usize,
    indices: &[i64],
    to: Shared<u8>,
) {
    let to = Shared(to.get().cast::<T>());
    let row = shape.last().copied().unwrap_or(1);
    let rows = indices.len() / row;
    let last = shape.ndim().saturating_sub(1);
    let step = if axis == last { 0 } else { view.strides[last] };
    for_each_range(rows, THREAD / row, |rows| {
        for r in rows {
            let base =
                view.ptr.cast::<T>().wrapping_offset(offset(view.strides(), shape, axis, r * row));
            let (to, along) = (to.get().wrapping_add(r * row), view.strides[axis]);
            let indices = &indices[r * row..(r + 1) * row];
            // SAFETY: by contract; the output elements belong to this range.
            unsafe {
                if step == 0 && along == 1 {
                    for (j, &index) in indices.iter().enumerate() {
                        *to.add(j) = *base.offset(index as isize);
                    }
                } else {
                    for (j, &index) in indices.iter().enumerate() {
                        *to.add(j) = *base.offset(index as isize * along + j as isize * step);
                    }
                }
            }
        }
    });
}

/// [`gather_as`] where the indices are the same in every row.
unsafe fn select_as<T: Copy>(
    view: &View,
    shape: &Shape,
    axis: usize,
    indices: &[i64],
    to: Shared<u8>,
) {
    let to = Shared(to.get().cast::<T>());
    let last = shape.ndim() - 1;
    let row = shape[last];
    let rows = shape.numel() / row;
    // Rows that share a coordinate on the axis, if it is not the last.
    let inner: usize =
        shape[axis + 1..].iter().product::<usize>() / if axis == last { 1 } else { row };
    for_each_range(rows, THREAD / row, |rows| {
        for r in rows {
            let base =
                view.ptr.cast::<T>().wrapping_offset(offset(view.strides(), shape, axis, r * row));
            // SAFETY: by contract; the output row belongs to this range.
            unsafe {
                let out = std::slice::from_raw_parts_mut(to.get().add(r * row), row);
                if axis == last {
                    for (out, &index) in out.iter_mut().zip(indices) {
                        *out = *base.offset(index as isize * view.strides[axis]);
                    }
                } else {
                    let base = base.wrapping_offset(
                        indices[r / inner % shape[axis]] as isize * view.strides[axis],
                    );
                    for (j, out) in out.iter_mut().enumerate() {
                        *out = *base.offset(j as isize * view.strides[last]);
                    }
                }
            }
        }
    });
}

/// A gather of `(outer, size, inner)` without gaps to `(outer, count, inner)`.
struct PackedGather<'a> {
    from: Shared<u8>,
    to: Shared<u8>,
    /// Rows of `inner` elements of the result.
    rows: usize,
    size: usize,
    count: usize,
    inner: usize,
    /// Checked: `count` of them for all outer axes (`lists`), or one for each element.
    indices: &'a [i64],
    lists: bool,
}

impl PackedGather<'_> {
    fn run<T: Copy>(&self) {
        let PackedGather { size, count, inner, indices, lists, .. } = *self;
        for_each_range(self.rows, THREAD / inner, |rows| {
            let (from, to) = (self.from.get().cast::<T>(), self.to.get().cast::<T>());
            let mut at = rows.start;
            while at < rows.end {
                let (outer, first) = (at / count, at % count);
                let n = (count - first).min(rows.end - at);
                let from = from.wrapping_add(outer * size * inner);
                let to = to.wrapping_add(at * inner);
                // SAFETY: the indices were checked; the result's rows belong to this range.
                unsafe {
                    if inner == 1 {
                        let first = if lists { first } else { at };
                        for (i, &index) in indices[first..first + n].iter().enumerate() {
                            *to.add(i) = *from.add(index as usize);
                        }
                    } else if lists {
                        for (i, &index) in indices[first..first + n].iter().enumerate() {
                            let (from, to) = (from.add(index as usize * inner), to.add(i * inner));
                            for j in 0..inner {
                                *to.add(j) = *from.add(j);
                            }
                        }
                    } else {
                        let indices = &indices[at * inner..(at + n) * inner];
                        for i in 0..n {
                            for j in 0..inner {
                                let index = indices[i * inner + j] as usize;
                                *to.add(i * inner + j) = *from.add(index * inner + j);
                            }
                        }
                    }
                }
                at += n;
            }
        });
    }
}
