//! Moving elements: row-major copies of views, writes into views, download. Transposes go block by
//! block, so that both sides use whole cache lines.

use crate::simd::{self, Level};
use crate::storage::{CpuStorage, Shared, View};
use crate::threads::for_each_range;
use crate::transpose::turn;
use crate::{Cpu, elementwise};
use std::sync::Arc;
use teeny_core::storage::{StorageRef, downcast};
use teeny_core::{DType, Error, Layout, Result, Tensor};

/// Rows of a strip of a transpose: the source's lines are read four at a time, and the rows' pages
/// stay in the TLB.
const STRIP: usize = 64;
/// Elements below which one thread moves them.
const THREAD: usize = 32 << 10;

/// A row-major copy.
pub(crate) fn contiguous(cpu: &Cpu, x: &View) -> Result<CpuStorage> {
    let storage = cpu.alloc(x.shape.numel(), x.dtype)?;
    let to = Layout::contiguous(x.shape);
    let mut strides = [0; 8];
    strides[..to.ndim()].copy_from_slice(to.strides());
    // SAFETY: the new storage has room for the view's elements and no other owner.
    unsafe { copy_view(cpu.level, x, storage.ptr(), &strides) };
    Ok(storage)
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

/// Overwrites what `view` selects in `dst` by `src`: in place if nobody else holds it.
pub(crate) fn copy_into(
    cpu: &Cpu,
    mut dst: StorageRef,
    view: &Layout,
    src: &Tensor,
) -> Result<StorageRef> {
    let from = View::of(src)?;
    if Arc::get_mut(&mut dst).is_none() {
        let old = downcast::<CpuStorage>(&dst)?;
        let len = teeny_core::Storage::len(old);
        let copy = cpu.alloc(len, from.dtype)?;
        // SAFETY: both have `len` elements.
        unsafe { std::ptr::copy_nonoverlapping(old.ptr(), copy.ptr(), len * from.dtype.size()) };
        dst = Arc::new(copy);
    }
    // `src` holds its own storage, so a storage that we hold alone is another one: no overlap.
    let Some(storage) =
        Arc::get_mut(&mut dst).and_then(|s| s.as_any_mut().downcast_mut::<CpuStorage>())
    else {
        return Err(Error::internal("a storage of the cpu was expected"));
    };
    let mut strides = [0; 8];
    strides[..view.ndim()].copy_from_slice(view.strides());
    let to = storage.ptr().wrapping_add(view.offset() * from.dtype.size());
    // SAFETY: `validate::copy_into`, which `Cpu::copy_into` calls, has checked that the view lies
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
    unsafe {
        match x.dtype.size() {
            1 => copy_as::<u8>(level, x, to.cast(), strides),
            2 => copy_as::<u16>(level, x, to.cast(), strides),
            4 => copy_as::<u32>(level, x, to.cast(), strides),
            _ => copy_as::<u64>(level, x, to.cast(), strides),
        }
    }
}

/// One merged axis of both sides.
#[derive(Clone, Copy, Debug)]
struct Axis {
    size: usize,
    from: isize,
    to: isize,
}

/// Axes without those of size 1, with neighbours merged that both sides traverse evenly.
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
    // What is read takes as much room in the caches as what is written.
    let stream = 2 * n * size_of::<T>() >= elementwise::STREAM;
    let (rows, row) = if transposed {
        axes[..inner].rotate_left(near + 1); // near becomes the last but one
        (n / (axes[inner].size * axes[inner - 1].size), axes[inner - 1].size * axes[inner].size)
    } else {
        (n / axes[inner].size, axes[inner].size)
    };
    let outer = &axes[..if transposed { inner - 1 } else { inner }];
    let (last, before) = (axes[inner], if transposed { axes[inner - 1] } else { axes[inner] });
    let (from, to) = (Shared(x.ptr.cast_mut().cast::<T>()), Shared(to));
    let start = |mut i: usize| {
        let (mut a, mut b) = (0isize, 0isize);
        for axis in outer.iter().rev() {
            let here = (i % axis.size) as isize;
            i /= axis.size;
            a += here * axis.from;
            b += here * axis.to;
        }
        (a, b)
    };
    // Chunks are ranges of rows, or of strips of transposes.
    let strip = if before.size >= 4 * STRIP { STRIP } else { STRIP / 4 };
    let strips = if transposed { before.size.div_ceil(strip) } else { 1 };
    let pieces = if rows == 1 && !transposed { n.div_ceil(THREAD) } else { rows * strips };
    let least = if rows == 1 && !transposed { 1 } else { THREAD / 2 / (row / strips).max(1) };
    let piece = |p: usize| {
        // SAFETY: indices stay inside the merged sizes of views that were checked; destinations are
        // distinct per piece.
        unsafe {
            if rows == 1 && !transposed {
                let (begin, end) = (p * THREAD, ((p + 1) * THREAD).min(n));
                let a = from.get().offset(begin as isize * last.from);
                line(a, last.from, to.get().offset(begin as isize * last.to), last.to, end - begin);
                return;
            }
            let (a, b) = start(p / strips);
            let (a, b) = (from.get().offset(a), to.get().offset(b));
            if !transposed {
                return line(a, last.from, b, last.to, last.size);
            }
            let first = p % strips * strip;
            let height = strip.min(before.size - first);
            let (a, b) =
                (a.offset(first as isize * before.from), b.offset(first as isize * before.to));
            if plain {
                return turn(level, a, last.from, b, before.to, (height, last.size), stream);
            }
            for r in 0..height as isize {
                line(
                    a.offset(r * before.from),
                    last.from,
                    b.offset(r * before.to),
                    last.to,
                    last.size,
                );
            }
        }
    };
    if n < THREAD {
        (0..pieces).for_each(piece);
    } else {
        for_each_range(pieces, least, |pieces| {
            pieces.for_each(&piece);
            if stream {
                simd::fence();
            }
        });
    }
}

/// One line of elements.
unsafe fn line<T: Copy>(from: *const T, step: isize, to: *mut T, to_step: isize, n: usize) {
    // SAFETY: by contract of `copy_view`.
    unsafe {
        match (step, to_step) {
            (1, 1) => std::ptr::copy_nonoverlapping(from, to, n),
            (0, 1) => std::slice::from_raw_parts_mut(to, n).fill(*from),
            _ => {
                for i in 0..n as isize {
                    *to.offset(i * to_step) = *from.offset(i * step);
                }
            }
        }
    }
}

/// A contiguous copy of `x` in the type that it is computed in: 16-bit floats widened.
pub(crate) fn computed(cpu: &Cpu, x: &View) -> Result<CpuStorage> {
    let copy = contiguous(cpu, x)?;
    if !x.dtype.is_half() {
        return Ok(copy);
    }
    let n = x.shape.numel();
    let wide = cpu.alloc(n, DType::F32)?;
    // SAFETY: both have n elements of their types.
    unsafe { crate::elementwise::cast::widen(x.dtype, copy.ptr(), wide.ptr(), n) };
    Ok(wide)
}

/// Rounds `n` computed values to `dtype` if that is a 16-bit float; otherwise gives them back.
pub(crate) fn stored(cpu: &Cpu, x: CpuStorage, n: usize, dtype: DType) -> Result<CpuStorage> {
    if !dtype.is_half() {
        return Ok(x);
    }
    let out = cpu.alloc(n, dtype)?;
    // SAFETY: both have n elements of their types.
    unsafe { crate::elementwise::cast::narrow(dtype, x.ptr(), out.ptr(), n) };
    Ok(out)
}
