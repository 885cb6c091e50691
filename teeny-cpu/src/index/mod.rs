//! Gather and scatter along one axis.
//!
//! The naive form is `out[i][j] = x[index[i][j]][j]` (and its reverse), one element at a time.
//! Whole rows under one index are copied as rows, and an index that is the same for every row is
//! read once. All indices are checked before anything is written. Scatter runs on one thread in
//! row-major order of the source, so that adding is deterministic.

use crate::elementwise::loops::cast;
use crate::elementwise::loops::int::Int;
use crate::scratch::Array;
use crate::simd::prefetch;
use crate::storage::{Shared, View};
use crate::threads::for_each_range;
use crate::typed::{slice, with_bits, with_compute};
use crate::{Cpu, copy};
use std::sync::Arc;
use teeny_core::storage::StorageRef;
use teeny_core::{DType, Error, Layout, Result, ScatterMode, Shape, Tensor, bf16, f16};

/// Elements below which one thread copies them.
const THREAD: usize = 16 << 10;

/// Integers of any type row-major as i64. An unsigned one beyond i64 becomes negative.
pub(crate) fn integers(cpu: &Cpu, index: &Tensor) -> Result<Array<i64>> {
    let view = View::of(index)?;
    let n = index.numel();
    let copy = copy::contiguous(cpu, &view)?;
    with_compute!(index.dtype(), T => {
        // SAFETY: the copy has n elements of this type.
        let indices = unsafe { slice::<T>(copy.ptr(), n) };
        #[allow(clippy::unnecessary_cast)]
        Array::from_fn(cpu, n, |i| indices[i] as i64)
    })
}

/// The indices row-major, each in `0..size`.
fn checked(cpu: &Cpu, index: &Tensor, axis: usize, size: usize) -> Result<Array<i64>> {
    let out = integers(cpu, index)?;
    match out.iter().position(|&i| i < 0 || i as u64 >= size as u64) {
        None => Ok(out),
        Some(at) => Err(outside(index.shape(), at, out[at], axis, size)),
    }
}

#[cold]
fn outside(shape: &Shape, at: usize, index: i64, axis: usize, size: usize) -> Error {
    let mut place = String::new();
    let mut rest = at;
    for (axis, &size) in shape.iter().enumerate() {
        let inner: usize = shape[axis + 1..].iter().product();
        place.push_str(&format!("[{}]", rest / inner % size.max(1)));
        rest %= inner;
    }
    let range = if size == 0 {
        "has no elements".to_string()
    } else {
        format!("has size {size} (0..={})", size - 1)
    };
    Error::index(format!("index{place} is {index}, but axis {axis} {range}"))
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
        let bytes = inner * x.dtype().size();
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
                // Rows are far apart: the next one is prefetched while this one is copied.
                if r + 1 < indices.len() {
                    let next = row(r + 1);
                    (0..bytes)
                        .step_by(64)
                        .for_each(|line| prefetch(next.wrapping_add(line).cast()));
                }
                // SAFETY: the index was checked; row r of the output belongs to this range.
                unsafe { std::ptr::copy_nonoverlapping(from, to.get().add(r * bytes), bytes) };
            }
        });
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
            for (j, &index) in indices[r * row..(r + 1) * row].iter().enumerate() {
                // SAFETY: by contract; the output element belongs to this range.
                unsafe {
                    *to.get().add(r * row + j) =
                        *base.offset(index as isize * view.strides[axis] + j as isize * step)
                };
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

/// A copy of `x` with `src` set, added or compared at the indices.
pub(crate) fn scatter(
    cpu: &Cpu,
    mode: ScatterMode,
    x: &Tensor,
    axis: usize,
    index: &Tensor,
    src: &Tensor,
) -> Result<StorageRef> {
    let indices = checked(cpu, index, axis, x.shape()[axis])?;
    let out = copy::contiguous(cpu, &View::of(x)?)?;
    let src_copy = copy::contiguous(cpu, &View::of(src)?)?;
    let shape = *src.shape();
    let n = shape.numel();
    if n == 0 {
        return Ok(Arc::new(out));
    }
    let job = Scatter {
        shape,
        axis,
        indices: &indices,
        strides: Layout::contiguous(*x.shape()),
        src: src_copy.ptr(),
        out: Shared(out.ptr()),
    };
    match mode {
        ScatterMode::Set => match x.dtype().size() {
            1 => job.each::<u8>(|_, x| x),
            2 => job.each::<u16>(|_, x| x),
            4 => job.each::<u32>(|_, x| x),
            _ => job.each::<u64>(|_, x| x),
        },
        ScatterMode::Add => match x.dtype() {
            DType::Bool => job.each::<u8>(|a, b| a | b),
            DType::F16 | DType::BF16 => job.add_halves(cpu, x)?,
            DType::F32 => job.each::<f32>(|a, b| a + b),
            DType::F64 => job.each::<f64>(|a, b| a + b),
            dtype => with_bits!(dtype, T => job.each::<T>(Int::add)),
        },
        ScatterMode::Max | ScatterMode::Min => {
            let largest = mode == ScatterMode::Max;
            match x.dtype() {
                DType::F16 => job.extreme::<f16>(largest),
                DType::BF16 => job.extreme::<bf16>(largest),
                dtype => with_compute!(dtype, T => job.extreme::<T>(largest)),
            }
        }
    }
    Ok(Arc::new(out))
}

/// Contiguous source and destination of a scatter.
struct Scatter<'a> {
    shape: Shape,
    axis: usize,
    indices: &'a [i64],
    strides: Layout,
    src: *const u8,
    out: Shared<u8>,
}

/// The function that is called with a row: its first position in the source, its indices, the
/// offset of its destination without the indices, and the stride there.
type Row<'f> = dyn FnMut(usize, &[i64], isize, isize) + 'f;

impl Scatter<'_> {
    /// Writes `f(destination, source)` to each destination, in row-major order of the source.
    fn each<T: Copy>(&self, f: impl Fn(T, T) -> T) {
        let (src, out) = (self.src.cast::<T>(), self.out.get().cast::<T>());
        let along = self.strides.strides().get(self.axis).copied().unwrap_or(0);
        self.rows(&mut |first, indices, base, step| {
            for (j, &index) in indices.iter().enumerate() {
                // SAFETY: the indices were checked, and other coordinates are within the
                // destination; one thread writes.
                unsafe {
                    let to = out.offset(base + index as isize * along + j as isize * step);
                    *to = f(*to, *src.add(first + j));
                }
            }
        });
    }

    /// The larger or the smaller one; NaN wins.
    fn extreme<T: PartialOrd + Copy>(&self, largest: bool) {
        fn is_nan<T: PartialOrd>(x: T) -> bool {
            x.partial_cmp(&x).is_none()
        }
        self.each::<T>(|a, b| if is_nan(a) || if largest { a > b } else { a < b } { a } else { b });
    }

    /// 16-bit floats accumulate in f32 and are rounded once at the end.
    fn add_halves(&self, cpu: &Cpu, x: &Tensor) -> Result<()> {
        let (sums, n) = (copy::to_compute_dtype(cpu, &View::of(x)?)?, self.shape.numel());
        let src = cpu.alloc(n, DType::F32)?;
        // SAFETY: all have their elements, of f32 after the conversion.
        unsafe {
            cast::to_f32(x.dtype(), self.src, src.ptr(), n);
            Scatter { src: src.ptr(), out: Shared(sums.ptr()), ..*self }.each::<f32>(|a, b| a + b);
            cast::from_f32(x.dtype(), sums.ptr(), self.out.get(), x.numel());
        }
        Ok(())
    }

    /// Calls `f` for each row of the source. Compiled once, not for each `f`.
    #[inline(never)]
    fn rows(&self, f: &mut Row<'_>) {
        let row = self.shape.last().copied().unwrap_or(1);
        let last = self.shape.ndim().saturating_sub(1);
        let step = if self.axis == last { 0 } else { 1 };
        for (r, indices) in self.indices.chunks(row).enumerate() {
            f(
                r * row,
                indices,
                offset(self.strides.strides(), &self.shape, self.axis, r * row),
                step,
            );
        }
    }
}
