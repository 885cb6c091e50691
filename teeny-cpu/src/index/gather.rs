//! Gather along one axis.
//!
//! The naive form is `out[i][j] = x[index[i][j]][j]`, one element at a time. Whole rows under one
//! index are copied as rows, and an index that is the same for every row is read once.

use super::{AllInside, THREAD, checked, integers, offset};
use crate::Cpu;
use crate::bytes::{LONG_COPY, copy_by, copy_long};
use crate::cost::Cost;
use crate::simd::{Level, prefetch};
use crate::storage::{Shared, View};
use crate::threads::for_each_range;
use crate::typed::with_unsigned;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
    // Whole rows under one index (an embedding): the index does not change along the later axes.
    let fixed = |mut axes: Range<usize>| axes.all(|a| shape[a] == 1 || index.strides()[a] == 0);
    let inner: usize = shape[axis + 1..].iter().product();
    let by_row = inner > 1 && fixed(axis + 1..shape.ndim());
    let lists = fixed(0..axis) && (inner == 1 || by_row);
    let packed = view.strides[axis + 1..shape.ndim()]
        == Layout::contiguous(*x.shape()).strides()[axis + 1..];
    let even = (0..shape.ndim()).all(|a| a == axis || shape[a] == x.shape()[a]);
    if even && (view.is_contiguous() || axis == 0 && by_row && packed) {
        // One index for a row or for an element, one list of them for all outer axes or for each.
        let once = |a| a < axis && lists || a > axis && by_row;
        let layout = (0..shape.ndim())
            .filter(|&a| once(a))
            .fold(*index.layout(), |layout, a| layout.slice(a, 0, 1, 1));
        let read = index.with_layout(layout)?;
        // As many indices as elements are checked block by block, while they are in L1.
        let by_block = inner == 1 && !lists;
        let indices = match by_block {
            true => integers(cpu, &read)?,
            false => checked(cpu, &read, axis, x.shape()[axis])?,
        };
        let packed = PackedGather {
            from: Shared(view.ptr.cast_mut()),
            to,
            rows: n / inner,
            row_stride: if axis == 0 { view.strides[0] } else { inner as isize },
            size: x.shape()[axis],
            count: shape[axis],
            inner,
            indices: &indices,
            lists,
        };
        let all_inside = match x.dtype().size() {
            1 if by_block => packed.gather_checked::<u8>(cpu.level),
            2 if by_block => packed.gather_checked::<u16>(cpu.level),
            4 if by_block => packed.gather_checked::<u32>(cpu.level),
            _ if by_block => packed.gather_checked::<u64>(cpu.level),
            _ => true,
        };
        if !all_inside {
            // The error names the first one.
            checked(cpu, &read, axis, x.shape()[axis])?;
        }
        if by_row && !by_block {
            packed.copy_rows(x.dtype().size());
        } else if !by_block {
            with_unsigned!(x.dtype().size(), T => packed.gather::<T>());
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
            with_unsigned!(x.dtype().size(), T => select_as::<T>(&view, &shape, axis, &indices, to));
        }
        return Ok(Arc::new(out));
    }
    let indices = checked(cpu, index, axis, x.shape()[axis])?;
    // SAFETY: indices were checked, other coordinates are within `x`.
    unsafe {
        with_unsigned!(x.dtype().size(), T => gather_as::<T>(&view, &shape, axis, &indices, to));
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
    /// Elements from one source row to the next; `inner` if there are outer axes.
    row_stride: isize,
    size: usize,
    count: usize,
    inner: usize,
    /// Checked but in [`PackedGather::gather_checked`]: `count` of them for all outer axes (`lists`)
    /// or for each of them, in [`PackedGather::gather`] for each column.
    indices: &'a [i64],
    lists: bool,
}

/// Bytes of a source that stays in the second-level cache: its rows are not prefetched.
const CACHED: usize = 512 << 10;
/// Indices that are checked at once.
const CHECKED: usize = 1024;

impl PackedGather<'_> {
    /// One index for each row, whose elements have `size` bytes.
    fn copy_rows(&self, size: usize) {
        let bytes = self.inner * size;
        match bytes {
            LONG_COPY.. => self.rows_by::<0>(bytes),
            32.. => self.rows_by::<32>(bytes),
            16.. => self.rows_by::<16>(bytes),
            8.. => self.rows_by::<8>(bytes),
            4.. => self.rows_by::<4>(bytes),
            _ => self.rows_by::<2>(bytes),
        }
    }

    /// Copies rows of `bytes` bytes by moves of `W`, or by `memcpy` for a `W` of 0.
    fn rows_by<const W: usize>(&self, bytes: usize) {
        let PackedGather { size, count, inner, indices, lists, .. } = *self;
        let stride = self.row_stride * (bytes / inner) as isize;
        // A few rows ahead, as far as a cache miss lasts, and not more lines than fit beside them.
        let (ahead, lines) = ((1024 / bytes).clamp(1, 8), bytes.min(1024));
        let far = size as isize * stride.abs() > CACHED as isize;
        let least = Cost::bytes(2 * bytes).steps(2).range(self.rows);
        for_each_range(self.rows, least, |rows| {
            let (mut at, mut outer, mut first) =
                (rows.start, rows.start / count, rows.start % count);
            while at < rows.end {
                let n = (count - first).min(rows.end - at);
                let from = self.from.get().wrapping_offset((outer * size) as isize * stride);
                let to = self.to.get().wrapping_add(at * bytes);
                let indices = &indices[if lists { 0 } else { outer * count }..][..count];
                for (i, &index) in indices[first..first + n].iter().enumerate() {
                    // Rows are far apart: others are prefetched while this one is copied.
                    if let (true, Some(&next)) = (far, indices.get(first + i + ahead)) {
                        let next = from.wrapping_offset(next as isize * stride);
                        (0..lines)
                            .step_by(64)
                            .for_each(|line| prefetch(next.wrapping_add(line).cast()));
                    }
                    let from = from.wrapping_offset(index as isize * stride);
                    // SAFETY: the index was checked; the result's row belongs to this range.
                    unsafe {
                        let to = to.add(i * bytes);
                        match W {
                            0 => copy_long(from, to, bytes),
                            _ => copy_by::<W>(from, to, bytes),
                        }
                    }
                }
                (at, outer, first) = (at + n, outer + 1, 0);
            }
        });
    }

    /// One index for each row of one element. False if one is outside, and then the result is not
    /// whole.
    fn gather_checked<T: Copy>(&self, level: Level) -> bool {
        let PackedGather { size, count, indices, .. } = *self;
        let all_inside = AtomicBool::new(true);
        let least = Cost::bytes(8 + 2 * size_of::<T>()).steps(1).range(self.rows);
        for_each_range(self.rows, least, |range| {
            let to = self.to.get().cast::<T>();
            let mut column = range.start % count;
            let mut from = self.from.get().cast::<T>().wrapping_add(range.start / count * size);
            for start in range.clone().step_by(CHECKED) {
                let block = start..range.end.min(start + CHECKED);
                let indices = &indices[block.clone()];
                if !level.run(AllInside { indices, size: size as i64 }) {
                    all_inside.store(false, Ordering::Relaxed);
                    return;
                }
                let (mut i, to) = (0, to.wrapping_add(start));
                while i < indices.len() {
                    let end = indices.len().min(i + count - column);
                    column += end - i;
                    while i < end {
                        // SAFETY: the index was checked; the result's elements belong to this
                        // range.
                        unsafe { *to.add(i) = *from.add(*indices.get_unchecked(i) as usize) };
                        i += 1;
                    }
                    if column == count {
                        (column, from) = (0, from.wrapping_add(size));
                    }
                }
            }
        });
        all_inside.into_inner()
    }

    /// One index for each element, or one list of them for rows of one element.
    fn gather<T: Copy>(&self) {
        let PackedGather { size, count, inner, indices, .. } = *self;
        let least = Cost::bytes(2 * size_of::<T>()).steps(1).times(inner).range(self.rows);
        for_each_range(self.rows, least, |rows| {
            let (from, to) = (self.from.get().cast::<T>(), self.to.get().cast::<T>());
            let (mut at, mut outer, mut first) =
                (rows.start, rows.start / count, rows.start % count);
            while at < rows.end {
                let n = (count - first).min(rows.end - at);
                let from = from.wrapping_add(outer * size * inner);
                let to = to.wrapping_add(at * inner);
                // SAFETY: the indices were checked; the result's rows belong to this range.
                unsafe {
                    if inner == 1 {
                        for (i, &index) in indices[first..first + n].iter().enumerate() {
                            *to.add(i) = *from.add(index as usize);
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
                (at, outer, first) = (at + n, outer + 1, 0);
            }
        });
    }
}
