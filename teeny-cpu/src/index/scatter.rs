//! Scatter along one axis.
//!
//! The naive form is `out[index[i][j]][j] = f(out[index[i][j]][j], src[i][j])`, one element at a
//! time in row-major order of the source. Here the owner computes: each task has destinations of
//! its own, by outer axes, by columns after the axis, or by ranges along it, and goes over the
//! sources in their order. So each destination sees its sources in the same order, and results have
//! the same bits, however the work is split.
//!
//! ```text
//!   src (outer, S, inner)   index one for a row, or one for an element   out (outer, D, inner)
//! ```
//! Rows under one index are added as rows. Scratch memory: the indices as I64, and in F32 the
//! operands of 16-bit sums.

use super::{THREAD, checked, offset};
use crate::cost::Cost;
use crate::loops::int::Int;
use crate::scratch::Array;
use crate::simd::prefetch;
use crate::storage::{Shared, View};
use crate::threads::{for_each_range, threads};
use crate::typed::{with_bits, with_compute};
use crate::{Cpu, copy, half};
use std::ops::Range;
use std::sync::Arc;
use teeny_core::storage::StorageRef;
use teeny_core::{DType, Layout, Result, ScatterMode, Shape, Tensor, bf16, f16};

/// Columns of a task, at least: a cache line of f32.
const MIN_COLUMNS: usize = 16;
/// Rows ahead whose destination is prefetched.
const AHEAD: usize = 6;

/// A copy of `x` with `src` set, added or compared at the indices.
pub(crate) fn scatter(
    cpu: &Cpu,
    mode: ScatterMode,
    x: &Tensor,
    axis: usize,
    index: &Tensor,
    src: &Tensor,
) -> Result<StorageRef> {
    let (shape, strides) = (*src.shape(), index.strides());
    let fixed = |axes: Range<usize>| axes.into_iter().all(|a| shape[a] == 1 || strides[a] == 0);
    let inner: usize = shape.iter().skip(axis + 1).product();
    let outer: usize = shape.iter().take(axis).product();
    let even = shape.ndim() > 0 && (0..shape.ndim()).all(|a| a == axis || shape[a] == x.shape()[a]);
    // One index for all elements after the axis, one list of indices for all outer axes.
    let by_row = even && fixed(axis + 1..shape.ndim());
    let shared = even && src.numel() > 0 && fixed(0..axis);
    let mut layout = *index.layout();
    for a in 0..shape.ndim() {
        if src.numel() > 0 && (a < axis && shared || a > axis && by_row) {
            layout = layout.slice(a, 0, 1, 1);
        }
    }
    let indices = checked(cpu, &index.with_layout(layout)?, axis, x.shape()[axis])?;
    let out = copy::contiguous(cpu, &View::of(x)?)?;
    if src.numel() == 0 {
        return Ok(Arc::new(out));
    }
    let view = View::of(src)?;
    let packed = if view.is_contiguous() { None } else { Some(copy::contiguous(cpu, &view)?) };
    let inner_step = usize::from(!by_row);
    let step = if by_row { 1 } else { inner };
    let job = Scatter {
        shape,
        axis,
        indices: &indices,
        strides: Layout::contiguous(*x.shape()),
        src: packed.as_ref().map_or(view.ptr, |packed| packed.ptr()),
        out: Shared(out.ptr()),
        even: even.then_some(Even {
            outer,
            sources: shape[axis],
            destinations: x.shape()[axis],
            inner,
            steps: [if shared { 0 } else { step * shape[axis] }, step, inner_step],
        }),
    };
    match mode {
        ScatterMode::Set => match x.dtype().size() {
            1 => job.each::<u8, Set>(),
            2 => job.each::<u16, Set>(),
            4 => job.each::<u32, Set>(),
            _ => job.each::<u64, Set>(),
        },
        ScatterMode::Add => match x.dtype() {
            DType::F16 | DType::BF16 => job.add_halves(cpu, x)?,
            DType::F32 => job.each::<f32, Add>(),
            DType::F64 => job.each::<f64, Add>(),
            dtype => with_bits!(dtype, T => job.each::<T, Add>()),
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

/// Combines a source with its destination.
trait Combine<T> {
    fn combine(destination: T, source: T) -> T;
}

/// The source.
struct Set;
/// The sum.
struct Add;
/// The larger one; NaN wins.
struct Largest;
/// The smaller one; NaN wins.
struct Smallest;

impl<T> Combine<T> for Set {
    #[inline(always)]
    fn combine(_: T, source: T) -> T {
        source
    }
}

macro_rules! adds {
    ($($t:ty: $add:path;)*) => {$(
        impl Combine<$t> for Add {
            #[inline(always)]
            fn combine(destination: $t, source: $t) -> $t {
                $add(destination, source)
            }
        }
    )*};
}
adds! {
    u8: Int::add; u16: Int::add; u32: Int::add; u64: Int::add;
    f32: std::ops::Add::add; f64: std::ops::Add::add;
}

#[inline(always)]
fn is_nan<T: PartialOrd>(x: T) -> bool {
    x.partial_cmp(&x).is_none()
}

impl<T: PartialOrd + Copy> Combine<T> for Largest {
    #[inline(always)]
    fn combine(a: T, b: T) -> T {
        if is_nan(a) | (a > b) { a } else { b }
    }
}

impl<T: PartialOrd + Copy> Combine<T> for Smallest {
    #[inline(always)]
    fn combine(a: T, b: T) -> T {
        if is_nan(a) | (a < b) { a } else { b }
    }
}

/// Contiguous source and destination of a scatter.
struct Scatter<'a> {
    shape: Shape,
    axis: usize,
    indices: &'a [i64],
    strides: Layout,
    src: *const u8,
    out: Shared<u8>,
    /// `None` if the source is shorter than the destination on another axis: then `indices` has one
    /// for each element.
    even: Option<Even>,
}

/// A source `(outer, sources, inner)` and a destination `(outer, destinations, inner)`.
#[derive(Clone, Copy)]
struct Even {
    outer: usize,
    sources: usize,
    destinations: usize,
    inner: usize,
    /// Elements of the indices from one outer index, source and column to the next.
    steps: [usize; 3],
}

/// The part of a scatter that one task owns.
struct Part {
    outer: usize,
    columns: Range<usize>,
    /// Destinations along the axis; all of them if the other tasks own none of these columns.
    owned: Option<Range<usize>>,
}

impl Scatter<'_> {
    /// Combines every source with its destination, in row-major order of the source.
    fn each<T: Copy + Send + Sync, C: Combine<T>>(&self) {
        let Some(even) = self.even else { return self.uneven::<T, C>() };
        let Even { outer, sources, destinations, inner, .. } = even;
        // No result depends on the parts, so their number may depend on the threads.
        let small = outer * sources * inner < THREAD;
        let wanted = if small || threads() == 1 { 1 } else { (2 * threads()).div_ceil(outer) };
        let width = inner.div_ceil(wanted).next_multiple_of(MIN_COLUMNS).min(inner);
        let groups = inner.div_ceil(width);
        let tasks = outer * groups;
        let split = if small || tasks >= threads() { 1 } else { threads() };
        let part = |t: usize| {
            let (column, range) = (t / split % groups * width, t % split);
            let bound = |range: usize| destinations * range / split;
            Part {
                outer: t / split / groups,
                columns: column..(column + width).min(inner),
                owned: (split > 1).then(|| bound(range)..bound(range + 1)),
            }
        };
        let least = if split > 1 { 1 } else { THREAD / (sources * width) };
        let least = if small { tasks } else { least };
        let by_row = even.steps[2] == 0 && inner > 1;
        if groups * split == 1 {
            // Many short lists: nothing is computed from the number of one.
            if inner == 1 {
                return for_each_range(outer, least, |range| self.add_lists::<T, C>(&even, range));
            }
            let part = |outer| Part { outer, columns: 0..inner, owned: None };
            return for_each_range(outer, least, |range| match by_row {
                true => range.for_each(|outer| self.add_rows::<T, C>(&even, &part(outer))),
                false => range.for_each(|outer| self.add_elements::<T, C>(&even, &part(outer))),
            });
        }
        for_each_range(tasks * split, least, |tasks| {
            for task in tasks {
                match by_row {
                    true => self.add_rows::<T, C>(&even, &part(task)),
                    false => self.add_elements::<T, C>(&even, &part(task)),
                }
            }
        });
    }

    /// Sources whose rows have one index each.
    #[inline]
    fn add_rows<T: Copy, C: Combine<T>>(&self, even: &Even, part: &Part) {
        let Even { sources, destinations, inner, steps, .. } = *even;
        let indices = &self.indices[part.outer * steps[0]..][..sources];
        let width = part.columns.len();
        let to = self.out.get().cast::<T>();
        let to = to.wrapping_add(part.outer * destinations * inner + part.columns.start);
        let from = self.src.cast::<T>();
        let from = from.wrapping_add(part.outer * sources * inner + part.columns.start);
        let lines = (width * size_of::<T>()).min(512);
        for (s, &index) in indices.iter().enumerate() {
            let index = index as usize;
            if let Some(&next) = indices.get(s + AHEAD) {
                let next = to.wrapping_add(next as usize * inner).cast::<u8>();
                (0..lines).step_by(64).for_each(|line| prefetch(next.wrapping_add(line).cast()));
            }
            if part.owned.as_ref().is_some_and(|owned| !owned.contains(&index)) {
                continue;
            }
            let (to, from) = (to.wrapping_add(index * inner), from.wrapping_add(s * inner));
            for j in 0..width {
                // SAFETY: the index was checked; the columns of this destination belong to this
                // task, and the source is another storage.
                unsafe { *to.add(j) = C::combine(*to.add(j), *from.add(j)) };
            }
        }
    }

    /// Sources of one column, for some outer axes.
    fn add_lists<T: Copy, C: Combine<T>>(&self, even: &Even, range: Range<usize>) {
        let Even { outer, sources, destinations, steps, .. } = *even;
        let last = (outer - 1) * steps[0] + sources;
        // One check for all; a slice for each list would take as long as a short list.
        let indices = self.indices[..last].as_ptr();
        let (to, from) = (self.out.get().cast::<T>(), self.src.cast::<T>());
        for outer in range {
            let to = to.wrapping_add(outer * destinations);
            for s in 0..sources {
                // SAFETY: the index is inside, as the last one is, and was checked; these
                // destinations belong to this range.
                unsafe {
                    let to = to.add(*indices.add(outer * steps[0] + s) as usize);
                    *to = C::combine(*to, *from.add(outer * sources + s));
                }
            }
        }
    }

    /// Sources of which each element has its index.
    #[inline]
    fn add_elements<T: Copy, C: Combine<T>>(&self, even: &Even, part: &Part) {
        let Even { sources, destinations, inner, steps, .. } = *even;
        let to = self.out.get().cast::<T>().wrapping_add(part.outer * destinations * inner);
        let from = self.src.cast::<T>().wrapping_add(part.outer * sources * inner);
        // SAFETY: the index was checked; these destinations belong to this task.
        let combine = |to: *mut T, source: *const T| unsafe { *to = C::combine(*to, *source) };
        let indices = &self.indices[part.outer * steps[0]..];
        let (first, width) = (part.columns.start, part.columns.len());
        let (to, from) = (to.wrapping_add(first), from.wrapping_add(first));
        for s in 0..sources {
            let from = from.wrapping_add(s * inner);
            // One index for each column, or for all of one.
            let indices = &indices[s * steps[1] + first * steps[2]..][..width];
            let all = 0..destinations;
            let owned = part.owned.as_ref().unwrap_or(&all);
            for (j, &index) in indices.iter().enumerate() {
                let index = index as usize;
                if owned.contains(&index) {
                    combine(to.wrapping_add(index * inner + j), from.wrapping_add(j));
                }
            }
        }
    }

    /// One thread, and an index for each element.
    fn uneven<T: Copy, C: Combine<T>>(&self) {
        let (src, out) = (self.src.cast::<T>(), self.out.get().cast::<T>());
        let strides = self.strides.strides();
        let (along, last) = (strides[self.axis], self.shape.ndim() - 1);
        let (row, step) = (self.shape[last], isize::from(self.axis != last));
        for (r, indices) in self.indices.chunks(row).enumerate() {
            let base = offset(strides, &self.shape, self.axis, r * row);
            for (j, &index) in indices.iter().enumerate() {
                // SAFETY: the indices were checked, and other coordinates are within the
                // destination; one thread writes.
                unsafe {
                    let to = out.offset(base + index as isize * along + j as isize * step);
                    *to = C::combine(*to, *src.add(r * row + j));
                }
            }
        }
    }

    fn extreme<T: PartialOrd + Copy + Send + Sync>(&self, largest: bool) {
        if largest { self.each::<T, Largest>() } else { self.each::<T, Smallest>() }
    }

    /// 16-bit floats accumulate in f32 and are rounded once at the end.
    fn add_halves(&self, cpu: &Cpu, x: &Tensor) -> Result<()> {
        let dtype = x.dtype();
        let (all, n) = (x.numel(), self.shape.numel());
        let src = cpu.alloc(n, DType::F32)?;
        convert(cpu, dtype, Shared(self.src.cast_mut()), Shared(src.ptr()), n, true);
        if let Some(even) = self.even.filter(|even| even.has_few_sources()) {
            return self.add_few_halves(cpu, dtype, &even, src.ptr());
        }
        let sums = cpu.alloc(all, DType::F32)?;
        convert(cpu, dtype, self.out, Shared(sums.ptr()), all, true);
        Scatter { src: src.ptr(), out: Shared(sums.ptr()), ..*self }.each::<f32, Add>();
        convert(cpu, dtype, Shared(sums.ptr()), self.out, all, false);
        Ok(())
    }

    /// Only the destination rows that sources have are converted: they get places in a shorter
    /// destination, in the order in which they are met.
    fn add_few_halves(&self, cpu: &Cpu, dtype: DType, even: &Even, src: *mut u8) -> Result<()> {
        let Even { destinations, sources, inner, .. } = *even;
        let mut places = Array::filled(cpu, destinations, u32::MAX)?;
        let mut rows = Array::filled(cpu, sources, 0usize)?;
        let mut met = 0;
        let short = Array::from_fn(cpu, sources, |s| {
            let place = &mut places[self.indices[s] as usize];
            if *place == u32::MAX {
                (*place, rows[met]) = (met as u32, self.indices[s] as usize);
                met += 1;
            }
            i64::from(*place)
        })?;
        let sums = cpu.alloc(met * inner, DType::F32)?;
        let (out, sums) = (self.out, Shared(sums.ptr()));
        let convert = |to_sums: bool| {
            let least = Cost::bytes(6).arithmetic(1).times(inner).range(met);
            for_each_range(met, least, |range| {
                for place in range {
                    let wide = sums.get().wrapping_add(4 * place * inner);
                    let row = out.get().wrapping_add(2 * rows[place] * inner);
                    // SAFETY: the row is in the destination, its place in the sums; each is one
                    // task's.
                    unsafe {
                        match to_sums {
                            true => half::to_f32(cpu.level, dtype, row, wide, inner),
                            false => half::from_f32(cpu.level, dtype, wide, row, inner),
                        }
                    }
                }
            });
        };
        convert(true);
        let even = Even { destinations: met, ..*even };
        let indices = &short[..];
        Scatter { indices, src, out: sums, even: Some(even), ..*self }.each::<f32, Add>();
        convert(false);
        Ok(())
    }
}

impl Even {
    /// Whether sources are rows under one index, and so few and long that it pays to number those
    /// that they meet.
    fn has_few_sources(&self) -> bool {
        let by_row = self.steps[2] == 0 && self.inner >= 16;
        let few = 2 * self.sources < self.destinations && self.sources < u32::MAX as usize;
        by_row && self.outer == 1 && few
    }
}

/// Converts `n` values between `dtype`, a 16-bit float, and f32.
fn convert(cpu: &Cpu, dtype: DType, from: Shared<u8>, to: Shared<u8>, n: usize, widen: bool) {
    for_each_range(n, Cost::bytes(6).arithmetic(1).range(n), |range| {
        let (start, len) = (range.start, range.len());
        let (half, wide) = if widen { (from, to) } else { (to, from) };
        let (half, wide) = (half.get().wrapping_add(2 * start), wide.get().wrapping_add(4 * start));
        // SAFETY: both have n elements of their types; this range is one task's.
        unsafe {
            match widen {
                true => half::to_f32(cpu.level, dtype, half, wide, len),
                false => half::from_f32(cpu.level, dtype, wide, half, len),
            }
        }
    });
}

// SAFETY: the source is only read; every task states which destinations it writes.
unsafe impl Sync for Scatter<'_> {}
