//! Gather and scatter along one axis. Indices are all checked before anything is written; scatter runs in row-major order of
//! the source within every column, so that adding is deterministic.

use crate::elementwise::cast::{round_to, slice, with_compute};
use crate::elementwise::int::Int;
use crate::storage::{Shared, View};
use crate::threads::for_each_chunk;
use crate::{Cpu, copy};
use std::sync::Arc;
use teeny_core::storage::StorageRef;
use teeny_core::{DType, Element, Error, Layout, Result, Scalar, ScatterMode, Shape, Tensor, bf16, f16};

/// Elements below which one thread moves them.
const THREAD: usize = 16 << 10;

/// Integers of any type row-major as i64. An unsigned one beyond i64 becomes negative.
pub(crate) fn integers(cpu: &Cpu, index: &Tensor) -> Result<Vec<i64>> {
    let view = View::of(index)?;
    let n = index.numel();
    let copy = copy::contiguous(cpu, &view)?;
    let mut out = Vec::with_capacity(n);
    with_compute!(index.dtype(), T => {
        // SAFETY: the copy has n elements of this type.
        let indices = unsafe { slice::<T>(copy.ptr(), n) };
        #[allow(clippy::unnecessary_cast)]
        out.extend(indices.iter().map(|&i| i as i64));
    });
    Ok(out)
}

/// The indices row-major, each in `0..size`.
fn checked(cpu: &Cpu, index: &Tensor, axis: usize, size: usize) -> Result<Vec<i64>> {
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
    let range = if size == 0 { "has no elements".to_string() } else { format!("has size {size} (0..={})", size - 1) };
    Error::index(format!("index{place} is {index}, but axis {axis} {range}"))
}

/// Offsets in `view`, axis `axis` left out, of consecutive rows of `shape`; the last axis is left to the caller.
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
    let repeated: usize = (axis + 1..shape.ndim()).filter(|&a| shape[a] == 1 || index.strides()[a] == 0).map(|a| shape[a]).product();
    let inner: usize = shape[axis + 1..].iter().product();
    let packed = view.strides[axis + 1..shape.ndim()] == Layout::contiguous(*x.shape()).strides()[axis + 1..];
    let whole = x.shape()[axis + 1..] == shape[axis + 1..];
    if inner > 1 && repeated == inner && packed && whole {
        let first = (axis + 1..shape.ndim()).fold(index.clone(), |t, a| t.with_layout(t.layout().slice(a, 0, 1, 1)));
        let indices = checked(cpu, &first, axis, x.shape()[axis])?;
        let bytes = inner * x.dtype().size();
        let per_chunk = (THREAD / inner).max(1);
        for_each_chunk(indices.len().div_ceil(per_chunk), |c| {
            for (r, &index) in indices.iter().enumerate().take((c + 1) * per_chunk).skip(c * per_chunk) {
                let step = offset(view.strides(), &shape[..=axis], axis, r) + index as isize * view.strides[axis];
                let from = view.ptr.wrapping_offset(step * x.dtype().size() as isize);
                // SAFETY: the index was checked; row r of the output belongs to this chunk.
                unsafe { std::ptr::copy_nonoverlapping(from, to.get().add(r * bytes), bytes) };
            }
        });
        return Ok(Arc::new(out));
    }
    // One list of positions for every row (a resampled image, a selection of columns): looked at once, not once per row.
    let shared = (0..shape.ndim()).all(|a| a == axis || shape[a] == 1 || index.strides()[a] == 0);
    if shared && n > shape[axis] {
        let first = (0..shape.ndim()).filter(|&a| a != axis).fold(index.clone(), |t, a| t.with_layout(t.layout().slice(a, 0, 1, 1)));
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

unsafe fn gather_as<T: Copy>(view: &View, shape: &Shape, axis: usize, indices: &[i64], to: Shared<u8>) {
    let to = Shared(to.get().cast::<T>());
    let row = shape.last().copied().unwrap_or(1);
    let rows = indices.len() / row;
    let last = shape.ndim().saturating_sub(1);
    let per_chunk = (THREAD / row).max(1);
    let step = if axis == last { 0 } else { view.strides[last] };
    for_each_chunk(rows.div_ceil(per_chunk), |c| {
        for r in c * per_chunk..((c + 1) * per_chunk).min(rows) {
            let base = view.ptr.cast::<T>().wrapping_offset(offset(view.strides(), shape, axis, r * row));
            for (j, &index) in indices[r * row..(r + 1) * row].iter().enumerate() {
                // SAFETY: by contract; the output element belongs to this chunk.
                unsafe { *to.get().add(r * row + j) = *base.offset(index as isize * view.strides[axis] + j as isize * step) };
            }
        }
    });
}

/// [`gather_as`] where the positions are the same in every row.
unsafe fn select_as<T: Copy>(view: &View, shape: &Shape, axis: usize, indices: &[i64], to: Shared<u8>) {
    let to = Shared(to.get().cast::<T>());
    let last = shape.ndim() - 1;
    let row = shape[last];
    let rows = shape.numel() / row;
    let per_chunk = (THREAD / row).max(1);
    // Rows that share a coordinate on the axis, if it is not the last.
    let inner: usize = shape[axis + 1..].iter().product::<usize>() / if axis == last { 1 } else { row };
    for_each_chunk(rows.div_ceil(per_chunk), |c| {
        for r in c * per_chunk..((c + 1) * per_chunk).min(rows) {
            let base = view.ptr.cast::<T>().wrapping_offset(offset(view.strides(), shape, axis, r * row));
            // SAFETY: by contract; the output row belongs to this chunk.
            unsafe {
                let out = std::slice::from_raw_parts_mut(to.get().add(r * row), row);
                if axis == last {
                    for (out, &index) in out.iter_mut().zip(indices) {
                        *out = *base.offset(index as isize * view.strides[axis]);
                    }
                } else {
                    let base = base.wrapping_offset(indices[r / inner % shape[axis]] as isize * view.strides[axis]);
                    for (j, out) in out.iter_mut().enumerate() {
                        *out = *base.offset(j as isize * view.strides[last]);
                    }
                }
            }
        }
    });
}

/// A copy of `x` with `src` put in.
pub(crate) fn scatter(cpu: &Cpu, mode: ScatterMode, x: &Tensor, axis: usize, index: &Tensor, src: &Tensor) -> Result<StorageRef> {
    let indices = checked(cpu, index, axis, x.shape()[axis])?;
    let out = copy::contiguous(cpu, &View::of(x)?)?;
    let src_copy = copy::contiguous(cpu, &View::of(src)?)?;
    let shape = *src.shape();
    let n = shape.numel();
    if n == 0 {
        return Ok(Arc::new(out));
    }
    let job = Scatter { shape, axis, indices: &indices, strides: Layout::contiguous(*x.shape()), src: src_copy.ptr(), out: Shared(out.ptr()) };
    match x.dtype() {
        DType::Bool => job.run::<u8>(mode, |a, b| a | b, |a, b| a | b, |a, b| a & b),
        DType::U8 => job.ints::<u8>(mode),
        DType::U16 => job.ints::<u16>(mode),
        DType::U32 => job.ints::<u32>(mode),
        DType::U64 => job.ints::<u64>(mode),
        DType::I8 => job.ints::<i8>(mode),
        DType::I16 => job.ints::<i16>(mode),
        DType::I32 => job.ints::<i32>(mode),
        DType::I64 => job.ints::<i64>(mode),
        DType::F16 => job.halves(mode, DType::F16, |x| f16::from_bits(x).to_f64(), |x| f16::from_scalar(Scalar::Float(x)).to_bits(), cpu, x)?,
        DType::BF16 => job.halves(mode, DType::BF16, |x| bf16::from_bits(x).to_f64(), |x| bf16::from_scalar(Scalar::Float(x)).to_bits(), cpu, x)?,
        DType::F32 => {
            job.run::<f32>(mode, |a, b| a + b, |a, b| if a.is_nan() || a > b { a } else { b }, |a, b| if a.is_nan() || a < b { a } else { b })
        }
        DType::F64 => {
            job.run::<f64>(mode, |a, b| a + b, |a, b| if a.is_nan() || a > b { a } else { b }, |a, b| if a.is_nan() || a < b { a } else { b })
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

impl Scatter<'_> {
    fn ints<T: Int>(&self, mode: ScatterMode) {
        self.run::<T>(mode, T::add, T::max, T::min);
    }

    /// 16-bit floats add up in f32 and are rounded once at the end.
    fn halves(
        &self,
        mode: ScatterMode,
        dtype: DType,
        to: impl Fn(u16) -> f64 + Copy,
        from: impl Fn(f64) -> u16 + Copy,
        cpu: &Cpu,
        x: &Tensor,
    ) -> Result<()> {
        match mode {
            ScatterMode::Add => {
                let n = x.numel();
                let wide = copy::computed(cpu, &View::of(x)?)?;
                let (sums, src) = (wide.ptr().cast::<f32>(), self.src.cast::<u16>());
                // SAFETY: `wide` and the output have n elements; sources and destinations come from `each`.
                unsafe {
                    self.each(|i, at| *sums.add(at) += to(*src.add(i)) as f32);
                    for i in 0..n {
                        *self.out.get().cast::<u16>().add(i) = from(f64::from(*sums.add(i)));
                    }
                }
            }
            ScatterMode::Set | ScatterMode::Max | ScatterMode::Min => {
                let pick = |a: u16, b: u16, larger: bool| {
                    let (x, y) = (to(a), to(b));
                    if x.is_nan() || (if larger { x > y } else { x < y }) { a } else { b }
                };
                self.run::<u16>(mode, |a, b| from(round_to(dtype, to(a) + to(b))), |a, b| pick(a, b, true), |a, b| pick(a, b, false));
            }
        }
        Ok(())
    }

    fn run<T: Copy>(&self, mode: ScatterMode, add: impl Fn(T, T) -> T, max: impl Fn(T, T) -> T, min: impl Fn(T, T) -> T) {
        let (src, out) = (self.src.cast::<T>(), self.out.get().cast::<T>());
        // SAFETY: sources and destinations come from `each`, one thread at a time.
        unsafe {
            match mode {
                ScatterMode::Set => self.each(|i, at| *out.add(at) = *src.add(i)),
                ScatterMode::Add => self.each(|i, at| *out.add(at) = add(*out.add(at), *src.add(i))),
                ScatterMode::Max => self.each(|i, at| *out.add(at) = max(*out.add(at), *src.add(i))),
                ScatterMode::Min => self.each(|i, at| *out.add(at) = min(*out.add(at), *src.add(i))),
            }
        }
    }

    /// Calls `f(source position, destination position)` in row-major order of the source.
    fn each(&self, mut f: impl FnMut(usize, usize)) {
        let strides = self.strides.strides();
        let row = self.shape.last().copied().unwrap_or(1);
        let last = self.shape.ndim().saturating_sub(1);
        if self.shape.ndim() == 0 {
            return f(0, 0);
        }
        let step = if self.axis == last { 0 } else { 1 };
        for (r, indices) in self.indices.chunks(row).enumerate() {
            let base = offset(strides, &self.shape, self.axis, r * row);
            for (j, &index) in indices.iter().enumerate() {
                f(r * row + j, (base + index as isize * strides[self.axis] + j as isize * step) as usize);
            }
        }
    }
}
