//! Pooling over sliding windows (`max_pool`, `avg_pool`): maxima with their positions, means, and
//! the gradient of the maximum. The memory pool is `pool`.
//!
//! The naive form goes over all pixels, and over the taps of the window of each. Here taps are the
//! outer loop and spans of pixels (`window`) the inner one, so that elements are read in order.
//! Windows of 2 x 2 that do not overlap have a loop of their rows, which is vectorised. The lanes
//! of floats are small planes where that is faster (`groups`).

mod groups;
mod plan;

use crate::conv::with_float;
use crate::copy::Packed;
use crate::cost::Cost;
use crate::simd::{F32s, Level, Work};
use crate::storage::{Shared, View};
use crate::threads::for_each_range;
use crate::typed::{slice, with_compute};
use crate::window::{Geometry, Span};
use crate::{Cpu, copy};
use plan::Groups;
use std::sync::Arc;
use teeny_core::definition::lowest;
use teeny_core::storage::StorageRef;
use teeny_core::{DType, Element, Error, Result, Shape, Tensor, Window};

/// Geometry and number of planes. `shape` is the result's.
fn plan(x: &Tensor, size: &[usize], window: &Window, shape: &Shape) -> (Geometry, usize) {
    let lead = x.ndim() - size.len();
    (
        Geometry::new(&x.shape()[lead..], size, &shape[lead..], window),
        x.shape()[..lead].iter().product(),
    )
}

/// Calls `f` with each plane's number, spread over threads by the cost of a plane; planes are
/// independent.
fn for_each_plane(planes: usize, plane: Cost, f: impl Fn(usize) + Sync) {
    for_each_range(planes, plane.range(planes), |planes| planes.for_each(&f));
}

/// The cost of a plane of `plane` elements whose `pixels` windows read `taps` elements each, one by
/// one.
fn plane_cost<T>(plane: usize, pixels: usize, taps: usize) -> Cost {
    Cost::bytes((plane + 2 * pixels) * size_of::<T>()).steps(pixels * taps)
}

/// Pixels of a row from which spans are long enough for wide vectors: shorter ones would mostly run
/// the elements that wide vectors leave over.
const LONG_SPAN: usize = 32;

/// Windows of 2 x 2 in a row from which their own loop is faster than groups of planes: half of a
/// vector of the widest level.
const WIDE: usize = 8;

/// The level at which spans of a row are computed.
fn level_for(cpu: &Cpu, geometry: &Geometry) -> Level {
    let row = geometry.output.last().copied().unwrap_or(1);
    if row < LONG_SPAN { Level::Portable } else { cpu.level }
}

/// Values and positions of the maxima.
pub(crate) fn max_pool(
    cpu: &Cpu,
    x: &Tensor,
    size: &[usize],
    window: &Window,
    shape: &Shape,
) -> Result<(StorageRef, StorageRef)> {
    let input = Packed::of(cpu, &View::of(x)?)?;
    let values = cpu.alloc(shape.numel(), x.dtype().compute())?;
    let positions = cpu.alloc(shape.numel(), DType::I32)?;
    let (geometry, planes) = plan(x, size, window, shape);
    let (plane, pixels, step) = (geometry.plane(), geometry.pixels(), geometry.step());
    let at = Shared(positions.ptr().cast::<i32>());
    let is_2x2 =
        x.dtype().compute() == DType::F32 && *size == [2, 2] && *window == Window::new(2).stride(2);
    if x.dtype().is_float() && !(is_2x2 && geometry.output[1] >= WIDE) {
        let mut done = false;
        with_float!(x.dtype(), T => {
            if let Some(groups) = Groups::new::<T>(cpu, &geometry, planes) {
                let nothing = lowest(x.dtype()).to_f64() as T;
                // SAFETY: the copy has these elements, and the outputs a place for each window.
                unsafe {
                    let input = slice::<T>(input.ptr(), x.numel());
                    groups.maxima(cpu, input, nothing, Shared(values.ptr().cast()), at)?;
                }
                done = true;
            }
        });
        if done {
            let values = copy::cast_to_storage(cpu, values, planes * pixels, x.dtype())?;
            return Ok((Arc::new(values), Arc::new(positions)));
        }
    }
    if is_2x2 {
        let (width, row) = (geometry.output[1], geometry.input[1]);
        let to = Shared(values.ptr().cast::<f32>());
        let cost = Cost::bytes(4 * (plane + 2 * pixels)).arithmetic(8 * pixels);
        for_each_plane(planes, cost, |p| {
            for y in 0..geometry.output[0] {
                let (from, pixel) = (p * plane + 2 * y * row, p * pixels + y * width);
                // SAFETY: two rows of the input; a row of the outputs, each plane of which is
                // written by one range.
                unsafe {
                    let x = input.ptr().cast::<f32>().add(from);
                    cpu.level.run(Pairs2x2 {
                        upper: std::slice::from_raw_parts(x, 2 * width),
                        lower: std::slice::from_raw_parts(x.add(row), 2 * width),
                        from: (2 * y * row) as i32,
                        row: row as i32,
                        best: std::slice::from_raw_parts_mut(to.get().add(pixel), width),
                        at: std::slice::from_raw_parts_mut(at.get().add(pixel), width),
                    });
                }
            }
        });
        let values = copy::cast_to_storage(cpu, values, planes * pixels, x.dtype())?;
        return Ok((Arc::new(values), Arc::new(positions)));
    }
    let spans = geometry.all_spans(cpu, 0, pixels)?;
    let level = level_for(cpu, &geometry);
    with_compute!(x.dtype(), T => {
        // SAFETY: the copy has these elements; each plane of the outputs is written by one range.
        let input = unsafe { slice::<T>(input.ptr(), x.numel()) };
        let to = Shared(values.ptr().cast::<T>());
        let nothing = T::from_scalar(lowest(x.dtype()));
        for_each_plane(planes, plane_cost::<T>(plane, pixels, geometry.taps()), |p| {
            // SAFETY: as above.
            let (best, at) = unsafe {
                (
                    std::slice::from_raw_parts_mut(to.get().add(p * pixels), pixels),
                    std::slice::from_raw_parts_mut(at.get().add(p * pixels), pixels),
                )
            };
            // The result of a window that sees only padding.
            best.fill(nothing);
            at.fill(-1);
            let input = &input[p * plane..(p + 1) * plane];
            level.run(Maxima { spans: &spans, step, input, best, at });
        });
    });
    let values = copy::cast_to_storage(cpu, values, planes * pixels, x.dtype())?;
    Ok((Arc::new(values), Arc::new(positions)))
}

/// The maxima of a plane and their positions, tap by tap: a tap's span of elements against the
/// running maxima.
struct Maxima<'a, T> {
    spans: &'a [Span],
    /// The distance between neighbouring elements of a span.
    step: usize,
    input: &'a [T],
    best: &'a mut [T],
    at: &'a mut [i32],
}

impl<T: Copy + PartialOrd> Work for Maxima<'_, T> {
    type Out = ();
    const FOR_AVX512: bool = size_of::<T>() == 4;
    #[inline(always)]
    fn run<V: F32s>(self) {
        let Maxima { spans, step, input, best, at } = self;
        for span in spans.iter().filter(|span| span.inside > 0) {
            let first = span.at + span.before;
            let (best, at) =
                (&mut best[first..first + span.inside], &mut at[first..first + span.inside]);
            let from = span.from as i32;
            let input = &input[span.from..=span.from + (span.inside - 1) * step];
            // Taps come in order, so a later one must be strictly larger; NaN is larger than
            // everything except NaN. All operands are read, so that the choice is branch-free.
            macro_rules! row {
                ($step:expr) => {
                    for (i, (best, at)) in best.iter_mut().zip(at.iter_mut()).enumerate() {
                        // SAFETY: the slice ends with the element of the last pixel.
                        let v = unsafe { *input.get_unchecked(i * $step) };
                        let (old, place) = (*best, *at);
                        #[allow(clippy::eq_op)]
                        let better = (place < 0) | (v > old) | ((v != v) & (old == old));
                        *best = if better { v } else { old };
                        *at = if better { from + (i * $step) as i32 } else { place };
                    }
                };
            }
            match step {
                1 => row!(1),
                2 => row!(2),
                _ => row!(step),
            }
        }
    }
}

/// The sums of the windows of a plane, tap by tap.
struct Sums<'a, T> {
    spans: &'a [Span],
    /// The distance between neighbouring elements of a span.
    step: usize,
    input: &'a [T],
    sums: &'a mut [T],
}

impl<T: Copy + std::ops::AddAssign> Work for Sums<'_, T> {
    type Out = ();
    const FOR_AVX512: bool = size_of::<T>() == 4;
    #[inline(always)]
    fn run<V: F32s>(self) {
        let Sums { spans, step, input, sums } = self;
        for span in spans.iter().filter(|span| span.inside > 0) {
            let sums = &mut sums[span.at + span.before..][..span.inside];
            let input = &input[span.from..=span.from + (span.inside - 1) * step];
            macro_rules! row {
                ($step:expr) => {
                    for (i, sum) in sums.iter_mut().enumerate() {
                        // SAFETY: the slice ends with the element of the last pixel.
                        *sum += unsafe { *input.get_unchecked(i * $step) };
                    }
                };
            }
            match step {
                1 => row!(1),
                2 => row!(2),
                _ => row!(step),
            }
        }
    }
}

/// A row of maxima over 2 x 2 elements that do not overlap, the most frequent windows.
struct Pairs2x2<'a> {
    upper: &'a [f32],
    lower: &'a [f32],
    /// The position of the first element of `upper`, and the distance to the first of `lower`.
    from: i32,
    row: i32,
    best: &'a mut [f32],
    at: &'a mut [i32],
}

impl Work for Pairs2x2<'_> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let Pairs2x2 { upper, lower, from, row, best, at } = self;
        // The first largest is kept, and the first NaN.
        let better = |(v, i): (f32, i32), (w, j): (f32, i32)| {
            if (w > v) | (w.is_nan() & !v.is_nan()) { (w, j) } else { (v, i) }
        };
        let (upper, lower) = (upper.as_chunks::<2>().0, lower.as_chunks::<2>().0);
        let n = upper.len().min(lower.len()).min(best.len()).min(at.len());
        for i in 0..n {
            let ([a, b], [c, d]) = (upper[i], lower[i]);
            let here = from + 2 * i as i32;
            (best[i], at[i]) = better(
                better((a, here), (b, here + 1)),
                better((c, here + row), (d, here + row + 1)),
            );
        }
    }
}

/// `g` added at `positions`; at -1 it is dropped.
pub(crate) fn max_pool_grad(
    cpu: &Cpu,
    g: &Tensor,
    positions: &Tensor,
    x_shape: &Shape,
    spatial: usize,
) -> Result<StorageRef> {
    let lead = x_shape.ndim() - spatial;
    let planes: usize = x_shape[..lead].iter().product();
    let (plane, pixels) =
        (x_shape[lead..].iter().product::<usize>(), g.shape()[lead..].iter().product::<usize>());
    let gs = Packed::of(cpu, &View::of(g)?)?;
    let at = Packed::of(cpu, &View::of(positions)?)?;
    let out = cpu.zeros(x_shape.numel(), g.dtype().compute())?;
    if x_shape.numel() == 0 || g.numel() == 0 {
        return Ok(Arc::new(copy::cast_to_storage(cpu, out, x_shape.numel(), g.dtype())?));
    }
    // SAFETY: the copies have these elements.
    let at = unsafe { slice::<i32>(at.ptr(), planes * pixels) };
    if let Some(i) = at.iter().position(|&p| p < -1 || i64::from(p) >= plane as i64) {
        return Err(Error::index(format!(
            "position {i} is {}, but the pooled axes have {plane} elements",
            at[i]
        )));
    }
    with_float!(g.dtype(), T => {
        // SAFETY: as above; each plane of the output is written by one range.
        let gs = unsafe { slice::<T>(gs.ptr(), planes * pixels) };
        let to = Shared(out.ptr().cast::<T>());
        for_each_plane(planes, plane_cost::<T>(plane, pixels, 2), |p| {
            // SAFETY: as above.
            let to = unsafe { std::slice::from_raw_parts_mut(to.get().add(p * plane), plane) };
            for (&g, &at) in gs[p * pixels..][..pixels].iter().zip(&at[p * pixels..][..pixels]) {
                if at >= 0 {
                    to[at as usize] += g;
                }
            }
        });
    });
    Ok(Arc::new(copy::cast_to_storage(cpu, out, x_shape.numel(), g.dtype())?))
}

/// The means, padding counted as zeros.
pub(crate) fn avg_pool(
    cpu: &Cpu,
    x: &Tensor,
    size: &[usize],
    window: &Window,
    shape: &Shape,
) -> Result<StorageRef> {
    let input = Packed::of(cpu, &View::of(x)?)?;
    let out = cpu.alloc(shape.numel(), x.dtype().compute())?;
    let (geometry, planes) = plan(x, size, window, shape);
    let (plane, pixels, step) = (geometry.plane(), geometry.pixels(), geometry.step());
    with_float!(x.dtype(), T => {
        // SAFETY: the copy has these elements; each plane of the output is written by one range.
        let input = unsafe { slice::<T>(input.ptr(), x.numel()) };
        let to = Shared(out.ptr().cast::<T>());
        let count = geometry.taps() as T;
        if let Some(groups) = Groups::new::<T>(cpu, &geometry, planes) {
            // SAFETY: the output has a place for each window.
            unsafe { groups.means(cpu, input, count, to)? };
        } else {
            let spans = geometry.all_spans(cpu, 0, pixels)?;
            let level = level_for(cpu, &geometry);
            for_each_plane(planes, plane_cost::<T>(plane, pixels, geometry.taps()), |p| {
                // SAFETY: as above.
                let sums = unsafe {
                    std::slice::from_raw_parts_mut(to.get().add(p * pixels), pixels)
                };
                sums.fill(0.0);
                let input = &input[p * plane..(p + 1) * plane];
                level.run(Sums { spans: &spans, step, input, sums });
                for sum in sums {
                    *sum /= count;
                }
            });
        }
    });
    Ok(Arc::new(copy::cast_to_storage(cpu, out, planes * pixels, x.dtype())?))
}
