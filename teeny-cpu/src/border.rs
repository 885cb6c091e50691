//! Rows of which a part is copied and the rest is one value: padding, and triangles of matrices.
//!
//! ```text
//!   pad   0 0 0 0      tril  a 0 0
//!         0 a b 0            d e 0     each row: value, copied elements, value
//!         0 0 0 0            g h i
//! ```
//! The naive form fills the whole result and copies into it. Here elements are written in order:
//! each once, or, if rows are short, a band of rows that stays in L1 is filled and copied into. Axes
//! of one source element become part of the rows. Knows only the size of elements.

use crate::Cpu;
use crate::bytes::{copy_bytes, copy_each};
use crate::copy::contiguous;
use crate::cost::Cost;
use crate::storage::{CpuStorage, Shared, View};
use crate::threads::for_each_range;
use crate::typed::with_unsigned;
use std::ops::Range;
use teeny_core::{DType, Element, Result, Scalar, Shape, Tensor, with_element};

/// `x` with elements of `value` around it; the result has the sizes `shape`.
pub(crate) fn pad(
    cpu: &Cpu,
    x: &Tensor,
    widths: &[(usize, usize)],
    value: Scalar,
    shape: &Shape,
) -> Result<CpuStorage> {
    let view = View::of(x)?;
    let Some(last) = widths.iter().rposition(|&widths| widths != (0, 0)) else {
        return contiguous(cpu, &view);
    };
    // Rows span the last padded axis and the axes after it, which are copied as a whole.
    let (copy, view) = packed_behind(cpu, view, last)?;
    let inner: usize = shape[last + 1..].iter().product();
    let out = cpu.alloc(shape.numel(), view.dtype)?;
    let (mut columns, mut before) = (shape[last] * inner, widths[last].0 * inner);
    let (mut axes, mut ndim) = ([Axis::default(); 8], 0);
    for a in (0..last).rev() {
        let axis = Axis {
            size: shape[a],
            start: widths[a].0,
            kept: view.shape[a],
            stride: view.strides[a],
        };
        if ndim == 0 && axis.kept == 1 {
            before += axis.start * columns;
            columns *= axis.size;
        } else if ndim > 0 && axis.continues(&axes[8 - ndim]) {
            axes[8 - ndim].size *= axis.size;
            axes[8 - ndim].kept *= axis.size;
        } else {
            ndim += 1;
            axes[8 - ndim] = axis;
        }
    }
    let frame = Frame {
        axes: &axes[8 - ndim..],
        from: Shared(view.ptr.cast_mut()),
        columns,
        kept: view.shape[last] * inner,
        before,
        band: BAND_BYTES / (columns * view.dtype.size()).max(1),
        to: Shared(out.ptr()),
    };
    let value = bits(value, view.dtype);
    match view.dtype.size() {
        1 => frame.write(u8::first_of(value)),
        2 => frame.write(u16::first_of(value)),
        4 => frame.write(u32::first_of(value)),
        _ => frame.write(u64::first_of(value)),
    }
    drop(copy);
    Ok(out)
}

/// Bytes of short rows that are filled before they are copied into: they stay in L1.
const BAND_BYTES: usize = 4 << 10;
/// Rows with fewer copied bytes are short: to fill their borders one by one takes longer than to fill
/// the whole band and copy into it.
const SHORT_BYTES: usize = 128;
/// Bytes that are written at once between rows that are not short.
const VECTOR: usize = 32;

/// An axis before the rows.
#[derive(Clone, Copy, Default)]
struct Axis {
    /// Its size in the result, the first position that the source has, and how many those are.
    size: usize,
    start: usize,
    kept: usize,
    /// Elements of the source from one to the next.
    stride: isize,
}

impl Axis {
    /// Whether this axis and the `next` one, neither of which is padded, are traversed as one.
    fn continues(&self, next: &Axis) -> bool {
        self.kept == self.size
            && next.kept == next.size
            && self.stride == next.stride * next.size as isize
    }
}

/// The rows of a padded tensor.
struct Frame<'a> {
    axes: &'a [Axis],
    from: Shared<u8>,
    /// Elements of a row of the result, elements from the source, and elements before these.
    columns: usize,
    kept: usize,
    before: usize,
    /// Rows of a band.
    band: usize,
    to: Shared<u8>,
}

impl Frame<'_> {
    fn write<T: Bits>(&self, value: T) {
        let rows: usize = self.axes.iter().map(|axis| axis.size).product();
        if rows * self.columns == 0 {
            return;
        }
        // A plane is the rows along the last axis before them.
        let outer = self.axes.len().saturating_sub(1);
        let height = self.axes.get(outer).map_or(1, |axis| axis.size);
        let least = Cost::bytes(2 * size_of::<T>()).times(self.columns).steps(1).range(rows);
        for_each_range(rows, least, |range| {
            let mut at = [0; 8];
            let mut rest = range.start / height;
            for axis in (0..outer).rev() {
                at[axis] = rest % self.axes[axis].size;
                rest /= self.axes[axis].size;
            }
            let mut row = range.start;
            while row < range.end {
                let first = row % height;
                let count = (height - first).min(range.end - row);
                // SAFETY: these rows belong to this range.
                unsafe { self.write_plane(&at[..outer], first..first + count, row, value) };
                row += count;
                for axis in (0..outer).rev() {
                    at[axis] += 1;
                    if at[axis] < self.axes[axis].size {
                        break;
                    }
                    at[axis] = 0;
                }
            }
        });
    }

    /// Writes some rows of the plane `at`, the first of which is `row` of all.
    ///
    /// # Safety
    /// Nothing else writes these rows.
    unsafe fn write_plane<T: Bits>(&self, at: &[usize], rows: Range<usize>, row: usize, value: T) {
        let (columns, kept) = (self.columns, self.kept);
        let to = self.to.get().cast::<T>().wrapping_add(row * columns);
        let (mut is_inside, mut offset) = (true, 0);
        for (axis, &at) in self.axes.iter().zip(at) {
            let place = at.wrapping_sub(axis.start);
            is_inside &= place < axis.kept;
            offset += place as isize * axis.stride;
        }
        // The rows that the source has, of these.
        let axis = self.axes.last().copied();
        let axis = axis.unwrap_or(Axis { size: 1, start: 0, kept: 1, stride: 0 });
        let size = if is_inside { axis.kept } else { 0 };
        let first = rows.start.max(axis.start).min(rows.end);
        let end = rows.end.min(axis.start + size).max(first);
        let (step, bytes) = (size_of::<T>() as isize, kept * size_of::<T>());
        let from = |row: usize| {
            let place = row as isize - axis.start as isize;
            self.from.get().cast::<T>().wrapping_offset(offset + place * axis.stride)
        };
        let band = self.band;
        // SAFETY: the rows are in the result, and the source has rows `first` to `end`.
        unsafe {
            if bytes < SHORT_BYTES && band > 1 {
                // A range with steps would divide.
                let mut next = rows.start;
                while next < rows.end {
                    let r = next;
                    let to = to.add((r - rows.start) * columns);
                    let last = rows.end.min(r + band);
                    next = last;
                    fill(to, value, (last - r) * columns);
                    let (first, end) = (first.max(r), end.min(last));
                    if first < end {
                        let to = to.add((first - r) * columns + self.before);
                        let steps = [axis.stride * step, columns as isize * step];
                        copy_each(from(first).cast(), to.cast(), steps, end - first, bytes);
                    }
                }
                return;
            }
            // Elements of the value up to the next row of the source. That is written over what
            // vectors write after them.
            let mut gap = (first - rows.start) * columns + self.before;
            let mut at = 0;
            let vector = [value; 32].as_ptr().cast::<[u8; VECTOR]>().read();
            for r in first..end {
                let vectors = match bytes < VECTOR {
                    true => 0,
                    false => (gap * size_of::<T>()).div_ceil(VECTOR),
                };
                match vectors {
                    0 => fill(to.add(at), value, gap),
                    _ => (0..vectors)
                        .for_each(|i| to.add(at).cast::<[u8; VECTOR]>().add(i).write(vector)),
                }
                copy_bytes(from(r).cast(), to.add(at + gap).cast(), bytes);
                at += gap + kept;
                gap = columns - kept;
            }
            fill(to.add(at), value, rows.len() * columns - at);
        }
    }
}

/// The matrices of `x` with zeros above or below a diagonal.
pub(crate) fn tri(cpu: &Cpu, x: &Tensor, diagonal: i32, upper: bool) -> Result<CpuStorage> {
    let view = View::of(x)?;
    let last = x.ndim() - 1;
    let (copy, view) = packed_behind(cpu, view, last)?;
    let out = cpu.alloc(x.numel(), view.dtype)?;
    with_unsigned!(view.dtype.size(), T => triangles::<T>(&view, &out, diagonal, upper));
    drop(copy);
    Ok(out)
}

fn triangles<T: Bits>(view: &View, out: &CpuStorage, diagonal: i32, upper: bool) {
    let last = view.shape.ndim() - 1;
    let (height, columns) = (view.shape[last - 1], view.shape[last]);
    let rows: usize = view.shape[..last].iter().product();
    if rows * columns == 0 {
        return;
    }
    let (from, to) = (Shared(view.ptr.cast_mut().cast::<T>()), Shared(out.ptr().cast::<T>()));
    let least = Cost::bytes(2 * size_of::<T>()).times(columns).steps(2).range(rows);
    for_each_range(rows, least, |range| {
        let mut at = range.start;
        while at < range.end {
            let first = at % height;
            let (mut matrix, mut offset) = (at / height, 0);
            for axis in (0..last - 1).rev() {
                offset += (matrix % view.shape[axis]) as isize * view.strides[axis];
                matrix /= view.shape[axis];
            }
            for row in first..height.min(first + range.end - at) {
                // The first column that is not left of the diagonal; neither sum overflows.
                let bound = row as i64 + i64::from(diagonal) + i64::from(!upper);
                let bound = bound.clamp(0, columns as i64) as usize;
                let (start, end) = if upper { (bound, columns) } else { (0, bound) };
                let from =
                    from.get().wrapping_offset(offset + row as isize * view.strides[last - 1]);
                let to = to.get().wrapping_add(at * columns);
                // SAFETY: the row of the result belongs to this range; the columns that are kept
                // are in the source, for which `View::of` has checked the view.
                unsafe {
                    fill(to, T::first_of(0), start);
                    let bytes = (end - start) * size_of::<T>();
                    copy_bytes(from.wrapping_add(start).cast(), to.add(start).cast(), bytes);
                    fill(to.add(end), T::first_of(0), columns - end);
                }
                at += 1;
            }
        }
    });
}

/// The view, or a row-major copy of it if the axes from `axis` on have gaps.
fn packed_behind(cpu: &Cpu, view: View, axis: usize) -> Result<(Option<CpuStorage>, View)> {
    let mut step = 1;
    let packed = (axis..view.shape.ndim()).rev().all(|a| {
        let fits = view.shape[a] == 1 || view.strides[a] == step;
        step *= view.shape[a] as isize;
        fits
    });
    if packed {
        return Ok((None, view));
    }
    let copy = contiguous(cpu, &view)?;
    let mut own = View { ptr: copy.ptr(), ..view };
    let mut step = 1;
    for a in (0..view.shape.ndim()).rev() {
        own.strides[a] = step;
        step *= view.shape[a] as isize;
    }
    Ok((Some(copy), own))
}

/// The bits of `value` in `dtype`, in the lowest bytes.
fn bits(value: Scalar, dtype: DType) -> u64 {
    let mut bytes = [0; 8];
    with_element!(dtype, T => {
        // SAFETY: no element is larger than the array.
        unsafe { bytes.as_mut_ptr().cast::<T>().write_unaligned(T::from_scalar(value)) }
    });
    u64::from_ne_bytes(bytes)
}

/// An element by its size.
trait Bits: Copy + Send + Sync {
    /// The element whose bytes are the first of `bits`.
    fn first_of(bits: u64) -> Self;
}

macro_rules! bits {
    ($($t:ty)*) => {$(
        impl Bits for $t {
            fn first_of(bits: u64) -> $t {
                let mut own = [0; size_of::<$t>()];
                own.copy_from_slice(&bits.to_ne_bytes()[..size_of::<$t>()]);
                <$t>::from_ne_bytes(own)
            }
        }
    )*};
}
bits! { u8 u16 u32 u64 }

/// Writes `n` times `value`.
///
/// # Safety
/// `to` takes `n` elements.
#[inline(always)]
unsafe fn fill<T: Copy>(to: *mut T, value: T, n: usize) {
    // SAFETY: by contract.
    unsafe {
        if n < 8 {
            // Unrolled by hand: the compiler would make a call of a loop.
            for i in 0..8 {
                if i == n {
                    break;
                }
                to.add(i).write(value);
            }
        } else {
            std::slice::from_raw_parts_mut(to, n).fill(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use teeny_core::{Op, Reference, ToDevice};

    /// Pads and triangles of odd shapes and views agree with the definition.
    #[test]
    fn rows_are_those_of_the_definition() -> Result<()> {
        let (cpu, reference) = (Cpu::new().to_device(), Reference::new().to_device());
        for (rows, columns) in
            [(1i32, 1i32), (3, 5), (17, 4), (4, 17), (40, 300), (1, 9), (9, 1), (0, 3), (3, 0)]
        {
            for dtype in [DType::U8, DType::F16, DType::I32, DType::F64] {
                let x = |device| {
                    let x = Tensor::arange(0, 2 * rows * columns, 1, device)?;
                    x.reshape([2, rows, columns].map(i64::from))?.cast(dtype)
                };
                let (a, b) = (x(&cpu)?, x(&reference)?);
                let views = |x: &Tensor| -> Result<Vec<Tensor>> {
                    Ok(vec![
                        x.clone(),
                        x.transpose(1, 2)?,
                        x.flip(2)?,
                        x.slice(1, 0..rows.min(2) as usize)?,
                    ])
                };
                for (a, b) in views(&a)?.iter().zip(&views(&b)?) {
                    for diagonal in [-3, 0, 1, i32::MAX, i32::MIN] {
                        for upper in [false, true] {
                            let tri = |x| Op::Tri { x, diagonal, upper }.tensor(x.device());
                            assert_eq!(tri(a)?.to_bytes()?, tri(b)?.to_bytes()?);
                        }
                    }
                    for widths in [
                        [(0, 0); 3],
                        [(0, 0), (0, 0), (1, 2)],
                        [(1, 0), (2, 1), (0, 0)],
                        [(0, 1), (0, 0), (9, 20)],
                        [(2, 0), (1, 3), (2, 2)],
                    ] {
                        let value = Scalar::Float(7.0);
                        let pad = |x| Op::Pad { x, widths: &widths, value }.tensor(x.device());
                        assert_eq!(pad(a)?.to_bytes()?, pad(b)?.to_bytes()?);
                    }
                }
            }
        }
        Ok(())
    }
}
