//! Copies: row-major copies of views, writes into views, download, and conversions of whole
//! operands between a dtype and its compute dtype.
//!
//! The naive form is one loop per axis around `to[Σ i * to_stride] = from[Σ i * from_stride]`. Axes
//! that both sides traverse evenly are merged, so that most copies are rows of contiguous elements.
//! Transposes go block by block (`transpose`), so that both sides use whole cache lines.

use crate::bytes::{copy_bytes, copy_each};
use crate::cost::Cost;
use crate::reverse::Reverse;
use crate::simd::{self, Level};
use crate::storage::{CpuStorage, Shared, View};
use crate::threads::for_each_range;
use crate::transpose::{NARROW, transpose};
use crate::typed::with_unsigned;
use crate::{Cpu, half, processor};
use std::sync::Arc;
use teeny_core::storage::{StorageRef, downcast, downcast_mut};
use teeny_core::{DType, Error, Layout, Result, Shape, Tensor};

/// Rows of a band of a transpose: the source's cache lines are read four at a time, and the rows'
/// pages stay in the TLB.
const BAND_ROWS: usize = 64;
/// Bytes of a piece: a part of one long row, or several rows.
const PIECE_BYTES: usize = 128 << 10;

/// A row-major copy.
pub(crate) fn contiguous(cpu: &Cpu, x: &View) -> Result<CpuStorage> {
    let storage = cpu.alloc(x.shape.numel(), x.dtype)?;
    let to = Layout::contiguous(x.shape);
    let mut strides = [0; 8];
    strides[..to.ndim()].copy_from_slice(to.strides());
    // SAFETY: the new storage has the view's number of elements and no other owner.
    unsafe { copy_view(cpu.level, x, storage.ptr(), &strides) };
    Ok(storage)
}

/// Bytes of the result that several tensors are joined to at once: they stay in L1, and their lines
/// are written almost in order.
const BAND_BYTES: usize = 4 << 10;
/// Tensors that are joined at once.
const MAX_JOINED: usize = 16;

/// The tensors one after another along `axis`, of the sizes `shape` together.
pub(crate) fn cat(
    cpu: &Cpu,
    tensors: &[&Tensor],
    axis: usize,
    shape: &Shape,
) -> Result<StorageRef> {
    let storage = cpu.alloc(shape.numel(), tensors[0].dtype())?;
    if join(tensors, axis, shape, &storage)? {
        return Ok(Arc::new(storage));
    }
    let mut strides = [0; 8];
    let to = Layout::contiguous(*shape);
    strides[..to.ndim()].copy_from_slice(to.strides());
    let mut start = 0;
    for part in tensors {
        let from = View::of(part)?;
        let bytes = start * strides[axis] as usize * from.dtype.size();
        // SAFETY: `validate::cat`, which the op's outputs call, has checked that the parts have the
        // type and, along the other axes, the sizes of the result, which is new.
        unsafe { copy_view(cpu.level, &from, storage.ptr().wrapping_add(bytes), &strides) };
        start += part.shape()[axis];
    }
    Ok(Arc::new(storage))
}

/// Joins tensors whose rows, the axes from `axis` on, are contiguous and evenly apart, band by band
/// of the result, so that its memory is written once and in order. False if others are among them,
/// or too many.
fn join(tensors: &[&Tensor], axis: usize, shape: &Shape, out: &CpuStorage) -> Result<bool> {
    let size = tensors[0].dtype().size();
    let rows: usize = shape[..axis].iter().product();
    let row = shape[axis..].iter().product::<usize>() * size;
    // Long rows are better split into pieces.
    if rows < 2 || row > PIECE_BYTES || tensors.len() > MAX_JOINED {
        return Ok(false);
    }
    // The first row of each, the distance between rows and the length of one, in bytes.
    let mut parts = [(Shared(std::ptr::null_mut()), 0, 0); MAX_JOINED];
    for (part, tensor) in parts.iter_mut().zip(tensors) {
        let view = View::of(tensor)?;
        let Some(step) = row_step(&view, axis) else { return Ok(false) };
        let bytes = view.shape[axis..].iter().product::<usize>() * size;
        *part = (Shared(view.ptr.cast_mut()), step * size as isize, bytes);
    }
    let parts = &parts[..tensors.len()];
    let band = (BAND_BYTES / row.max(1)).max(1);
    let to = Shared(out.ptr());
    let least = Cost::bytes(2).times(row).steps(2 * parts.len()).range(rows);
    for_each_range(rows, least, |range| {
        for first in range.clone().step_by(band) {
            let count = band.min(range.end - first);
            let mut to = to.get().wrapping_add(first * row);
            for &(from, step, bytes) in parts {
                let from = from.get().wrapping_offset(first as isize * step);
                // SAFETY: `validate::cat` has checked the sizes, `View::of` the views; these rows
                // of the result, which is new, belong to this range.
                unsafe { copy_each(from, to, [step, row as isize], count, bytes) };
                to = to.wrapping_add(bytes);
            }
        }
    });
    Ok(true)
}

/// Elements from one row to the next, if the axes from `axis` on are contiguous and those before
/// are traversed evenly.
fn row_step(view: &View, axis: usize) -> Option<isize> {
    let (mut step, mut outer) = (1, None);
    for a in (0..view.shape.ndim()).rev() {
        let size = view.shape[a];
        if size == 1 {
            continue;
        }
        // The outer axes set the step by the innermost of them.
        let expected = if a >= axis { step } else { outer.unwrap_or(view.strides[a]) };
        if view.strides[a] != expected {
            return None;
        }
        match a >= axis {
            true => step *= size as isize,
            false => outer = Some(expected * size as isize),
        }
    }
    // The step of the innermost outer axis.
    let near = (0..axis).rev().find(|&a| view.shape[a] != 1);
    Some(near.map_or(step, |a| view.strides[a]))
}

/// The elements as bytes, row-major.
pub(crate) fn download(cpu: &Cpu, x: &View) -> Result<Vec<u8>> {
    let bytes = x.shape.numel() * x.dtype.size();
    if bytes == 0 {
        return Ok(Vec::new());
    }
    if x.is_contiguous() {
        let mut out = cpu.host(bytes)?;
        // SAFETY: a contiguous view has this many readable bytes.
        out.extend_from_slice(unsafe { std::slice::from_raw_parts(x.ptr, bytes) });
        return Ok(out);
    }
    let copy = contiguous(cpu, x)?;
    let mut out = cpu.host(bytes)?;
    // SAFETY: just written in full.
    out.extend_from_slice(unsafe { std::slice::from_raw_parts(copy.ptr(), bytes) });
    Ok(out)
}

/// Overwrites the elements of `dst` that `view` selects with `src`: in place if `dst` has one
/// owner.
pub(crate) fn copy_into(
    cpu: &Cpu,
    mut dst: StorageRef,
    view: &Layout,
    src: &Tensor,
) -> Result<StorageRef> {
    let from = View::of(src)?;
    if Arc::get_mut(&mut dst).is_none() {
        let shared = downcast::<CpuStorage>(&dst)?;
        let len = teeny_core::Storage::len(shared);
        let mut strides = [0; 8];
        strides[0] = 1;
        let shape = Shape::new(&[len])?;
        let whole = View { ptr: shared.ptr(), shape, strides, dtype: from.dtype };
        dst = Arc::new(contiguous(cpu, &whole)?);
    }
    // `src` holds its own storage, so a storage with one owner is another one: no overlap.
    let Some(storage) = downcast_mut::<CpuStorage>(&mut dst) else {
        return Err(Error::internal("a storage of the cpu was expected"));
    };
    let mut strides = [0; 8];
    strides[..view.ndim()].copy_from_slice(view.strides());
    let to = storage.ptr().wrapping_add(view.offset() * from.dtype.size());
    // SAFETY: `validate::copy_into`, which `Cpu::copy_into` calls, has checked that the view is
    // inside the storage and names no element twice; `View::of` has checked the source.
    unsafe { copy_view(cpu.level, &from, to, &strides) };
    Ok(dst)
}

/// Copies `x` to the view of the same shape at `to`.
///
/// # Safety
/// The destination is writable, injective, and overlaps no source element.
pub(crate) unsafe fn copy_view(level: Level, x: &View, to: *mut u8, strides: &[isize; 8]) {
    // SAFETY: elements are moved as bits, so only their size matters.
    unsafe { with_unsigned!(x.dtype.size(), T => copy_as::<T>(level, x, to.cast(), strides)) }
}

/// One merged axis of both sides.
#[derive(Clone, Copy, Debug)]
struct Axis {
    size: usize,
    from: isize,
    to: isize,
}

/// The axes of size above 1, with neighbours merged that both sides traverse evenly.
fn merge(x: &View, strides: &[isize; 8]) -> ([Axis; 8], usize) {
    let mut axes = [Axis { size: 1, from: 1, to: 1 }; 8];
    let mut ndim = 0;
    for (axis, &size) in x.shape.iter().enumerate() {
        let (from, to) = (x.strides[axis], strides[axis]);
        if size == 1 {
            continue;
        }
        let span = size as isize;
        if ndim > 0 && axes[ndim - 1].from == from * span && axes[ndim - 1].to == to * span {
            axes[ndim - 1] = Axis { size: axes[ndim - 1].size * size, from, to };
        } else {
            axes[ndim] = Axis { size, from, to };
            ndim += 1;
        }
    }
    (axes, ndim.max(1))
}

unsafe fn copy_as<T: Copy>(level: Level, x: &View, to: *mut T, strides: &[isize; 8]) {
    let n = x.shape.numel();
    if n == 0 {
        return;
    }
    let (mut axes, ndim) = merge(x, strides);
    let axes = &mut axes[..ndim];
    // The axis along which the source moves least; if it is not the destination's, the two make a
    // transpose.
    let inner = ndim - 1;
    let near = (0..ndim)
        .min_by_key(|&a| if axes[a].from == 0 { isize::MAX } else { axes[a].from.abs() })
        .unwrap_or(inner);
    let transposed = near != inner && axes[inner].from.abs() > 1 && axes[near].from.abs() == 1;
    let plain = transposed && axes[near].from == 1 && axes[inner].to == 1;
    // Reads and writes take equal parts of the caches.
    let stream = processor::streams(2 * n * size_of::<T>());
    let element = Cost::bytes(2 * size_of::<T>());
    let from = Shared(x.ptr.cast_mut().cast::<T>());
    let to = Shared(to);
    if !transposed {
        // SAFETY: passed on.
        return unsafe { copy_rows(level, axes, from, to, element) };
    }
    axes[..inner].rotate_left(near + 1); // near becomes the second to last
    let (last, before, outer) = (axes[inner], axes[inner - 1], &axes[..inner - 1]);
    // Pieces are bands of rows.
    let band = match before.size {
        _ if last.size <= NARROW => 16 * BAND_ROWS,
        size if size >= 4 * BAND_ROWS => BAND_ROWS,
        _ => BAND_ROWS / 4,
    };
    let bands = before.size.div_ceil(band);
    let pieces = n / (last.size * before.size) * bands;
    let element = if plain { element.arithmetic(4) } else { element.steps(1) };
    let least = element.times((before.size * last.size / bands).max(1)).range(pieces);
    let piece = |p: usize| {
        // SAFETY: indices stay inside the merged sizes of views that were checked; destinations are
        // distinct per piece.
        unsafe {
            let (a, b) = start(outer, p / bands);
            let (a, b) = (from.get().offset(a), to.get().offset(b));
            let first = p % bands * band;
            let height = band.min(before.size - first);
            let (a, b) =
                (a.offset(first as isize * before.from), b.offset(first as isize * before.to));
            if plain {
                return transpose(level, a, last.from, b, before.to, (height, last.size), stream);
            }
            for r in 0..height as isize {
                copy_row(
                    a.offset(r * before.from),
                    last.from,
                    b.offset(r * before.to),
                    last.to,
                    last.size,
                );
            }
        }
    };
    for_each_range(pieces, least, |pieces| {
        pieces.for_each(&piece);
        if stream {
            simd::fence();
        }
    });
}

/// The offsets of element `i` of these axes in the source and in the destination.
fn start(outer: &[Axis], mut i: usize) -> (isize, isize) {
    let (mut a, mut b) = (0isize, 0isize);
    for axis in outer.iter().rev() {
        let here = (i % axis.size) as isize;
        i /= axis.size;
        a += here * axis.from;
        b += here * axis.to;
    }
    (a, b)
}

/// Copies row by row. A piece is part of one long row, or some rows along the second to last axis,
/// for which no index is divided.
///
/// # Safety
/// As `copy_view`; `axes` are the merged axes of both sides, not empty.
unsafe fn copy_rows<T: Copy>(
    level: Level,
    axes: &[Axis],
    from: Shared<T>,
    to: Shared<T>,
    element: Cost,
) {
    let most = (PIECE_BYTES / size_of::<T>()).max(1);
    let last = axes[axes.len() - 1];
    let one = Axis { size: 1, from: 0, to: 0 };
    let (before, outer) = match axes.len() {
        1 => (one, &axes[..0]),
        n => (axes[n - 2], &axes[..n - 2]),
    };
    // Parts of a long row, or several rows.
    let (len, height) = if last.size > most { (most, 1) } else { (last.size, most / last.size) };
    let (parts, bands) = (last.size.div_ceil(len), before.size.div_ceil(height));
    let pieces = outer.iter().map(|axis| axis.size).product::<usize>() * bands * parts;
    let is_run = matches!((last.from, last.to), (0 | 1, 1));
    let element = if is_run { element } else { element.steps(1) };
    let least = element.times(len * height.min(before.size)).range(pieces);
    for_each_range(pieces, least, |pieces| {
        for p in pieces {
            let (a, b) = start(outer, p / parts / bands);
            let (column, row) = (p % parts * len, p / parts % bands * height);
            let (len, height) = (len.min(last.size - column), height.min(before.size - row));
            let (column, row) = (column as isize, row as isize);
            // SAFETY: indices stay inside the merged sizes of views that were checked; destinations
            // are distinct per piece.
            unsafe {
                let mut a = from.get().offset(a + row * before.from + column * last.from);
                let mut b = to.get().offset(b + row * before.to + column * last.to);
                let steps = [before.from, before.to];
                if (last.from, last.to) == (1, 1) {
                    let steps = steps.map(|step| step * size_of::<T>() as isize);
                    copy_each(a.cast(), b.cast(), steps, height, len * size_of::<T>());
                    continue;
                }
                if (last.from, last.to) == (-1, 1) {
                    level.run(Reverse { from: a, to: b, steps, height, len });
                    continue;
                }
                for _ in 0..height {
                    copy_row(a, last.from, b, last.to, len);
                    a = a.wrapping_offset(before.from);
                    b = b.wrapping_offset(before.to);
                }
            }
        }
    });
}

/// One row of elements.
unsafe fn copy_row<T: Copy>(from: *const T, step: isize, to: *mut T, to_step: isize, n: usize) {
    // SAFETY: by contract of `copy_view`.
    unsafe {
        match (step, to_step) {
            (1, 1) => copy_bytes(from.cast(), to.cast(), n * size_of::<T>()),
            (0, 1) => std::slice::from_raw_parts_mut(to, n).fill(*from),
            // A known step is vectorised.
            (2, 1) => (0..n).for_each(|i| *to.add(i) = *from.add(2 * i)),
            _ => (0..n as isize).for_each(|i| *to.offset(i * to_step) = *from.offset(i * step)),
        }
    }
}

/// An operand that is row-major and in its compute dtype: itself, or a copy.
pub(crate) struct Packed {
    ptr: Shared<u8>,
    /// Keeps a copy alive.
    _copy: Option<CpuStorage>,
}

impl Packed {
    /// The elements of `view`.
    pub(crate) fn of(cpu: &Cpu, view: &View) -> Result<Packed> {
        if view.is_contiguous() && !view.dtype.is_half() {
            return Ok(Packed { ptr: Shared(view.ptr.cast_mut()), _copy: None });
        }
        Ok(Packed::owned(to_compute_dtype(cpu, view)?))
    }

    /// The elements of `copy`.
    pub(crate) fn owned(copy: CpuStorage) -> Packed {
        Packed { ptr: Shared(copy.ptr()), _copy: Some(copy) }
    }

    /// The first byte. It is only read.
    pub(crate) fn ptr(&self) -> *const u8 {
        self.ptr.get()
    }
}

/// A contiguous copy of `x` in its compute dtype: 16-bit floats as f32.
pub(crate) fn to_compute_dtype(cpu: &Cpu, x: &View) -> Result<CpuStorage> {
    if !x.dtype.is_half() {
        return contiguous(cpu, x);
    }
    let copy = if x.is_contiguous() { None } else { Some(contiguous(cpu, x)?) };
    let from = Shared(copy.as_ref().map_or(x.ptr, |copy| copy.ptr()).cast_mut());
    let n = x.shape.numel();
    let converted = cpu.alloc(n, DType::F32)?;
    let to = Shared(converted.ptr());
    for_each_range(n, Cost::bytes(6).arithmetic(1).range(n), |range| {
        let (from, to) = (from.get().wrapping_add(2 * range.start), to.get());
        // SAFETY: both have n elements of their types; this range is one task's.
        unsafe {
            half::to_f32(cpu.level, x.dtype, from, to.add(4 * range.start), range.len());
        }
    });
    Ok(converted)
}

/// Rounds `n` values of the compute dtype to `dtype` if that is a 16-bit float; otherwise returns
/// them as they are.
pub(crate) fn cast_to_storage(
    cpu: &Cpu,
    x: CpuStorage,
    n: usize,
    dtype: DType,
) -> Result<CpuStorage> {
    if !dtype.is_half() {
        return Ok(x);
    }
    let out = cpu.alloc(n, dtype)?;
    let (from, to) = (Shared(x.ptr()), Shared(out.ptr()));
    for_each_range(n, Cost::bytes(6).arithmetic(1).range(n), |range| {
        let (from, to) = (from.get().wrapping_add(4 * range.start), to.get());
        // SAFETY: both have n elements of their types; this range is one task's.
        unsafe {
            half::from_f32(cpu.level, dtype, from, to.add(2 * range.start), range.len());
        }
    });
    Ok(out)
}
