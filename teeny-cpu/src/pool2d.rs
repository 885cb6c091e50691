//! Pooling over sliding windows: maxima with their positions, means, and the gradient of the
//! maximum.

use crate::conv::with_float;
use crate::elementwise::cast::{slice, slice_mut, with_compute};
use crate::fused::Packed;
use crate::simd::{F32s, Work};
use crate::storage::{Shared, View};
use crate::threads::for_each_range;
use crate::window::Geometry;
use crate::{Cpu, copy};
use std::sync::Arc;
use teeny_core::definition::lowest;
use teeny_core::storage::StorageRef;
use teeny_core::{DType, Element, Error, Result, Shape, Tensor, Window};

/// Output elements per range, at least.
const CHUNK: usize = 16 << 10;

/// Geometry and number of planes. `shape` is that of the result.
fn plan(x: &Tensor, size: &[usize], window: &Window, shape: &Shape) -> (Geometry, usize) {
    let lead = x.ndim() - size.len();
    (
        Geometry::new(&x.shape()[lead..], size, &shape[lead..], window),
        x.shape()[..lead].iter().product(),
    )
}

/// Calls `f` with each plane's number, spread over threads; planes are independent.
fn for_each_plane(planes: usize, places: usize, f: impl Fn(usize) + Sync) {
    for_each_range(planes, CHUNK / places.max(1), |planes| planes.for_each(&f));
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
    let (plane, places, step) = (geometry.plane(), geometry.places(), geometry.step());
    let at = Shared(positions.ptr().cast::<i32>());
    let halves =
        x.dtype().compute() == DType::F32 && *size == [2, 2] && *window == Window::new(2).stride(2);
    if halves {
        let (wide, row) = (geometry.output[1], geometry.input[1]);
        let to = Shared(values.ptr().cast::<f32>());
        for_each_plane(planes, places, |p| {
            for y in 0..geometry.output[0] {
                let (from, place) = (p * plane + 2 * y * row, p * places + y * wide);
                // SAFETY: two rows of the input; a row of the outputs, each plane of which is
                // written by one range.
                unsafe {
                    let x = input.ptr().cast::<f32>().add(from);
                    cpu.level.run(Halves {
                        upper: std::slice::from_raw_parts(x, 2 * wide),
                        lower: std::slice::from_raw_parts(x.add(row), 2 * wide),
                        from: (2 * y * row) as i32,
                        row: row as i32,
                        best: std::slice::from_raw_parts_mut(to.get().add(place), wide),
                        at: std::slice::from_raw_parts_mut(at.get().add(place), wide),
                    });
                }
            }
        });
        let values = copy::stored(cpu, values, planes * places, x.dtype())?;
        return Ok((Arc::new(values), Arc::new(positions)));
    }
    let strips = geometry.all_strips(cpu, 0, places)?;
    with_compute!(x.dtype(), T => {
        // SAFETY: the copy has these elements; each plane of the outputs is written by one range.
        let input = unsafe { slice::<T>(input.ptr(), x.numel()) };
        let to = Shared(values.ptr().cast::<T>());
        let nothing = T::from_scalar(lowest(x.dtype()));
        for_each_plane(planes, places, |p| {
            // SAFETY: as above.
            let (best, at) = unsafe {
                (std::slice::from_raw_parts_mut(to.get().add(p * places), places), std::slice::from_raw_parts_mut(at.get().add(p * places), places))
            };
            // What a window that sees only padding keeps.
            best.fill(nothing);
            at.fill(-1);
            let input = &input[p * plane..(p + 1) * plane];
            for strip in strips.iter() {
                let range = strip.at + strip.before..strip.at + strip.before + strip.inside;
                for (i, (best, at)) in best[range.clone()].iter_mut().zip(&mut at[range]).enumerate() {
                    let from = strip.from + i * step;
                    let v = input[from];
                    // Window positions come in order, so a later one must be strictly better; NaN
                    // beats all but NaN.
                    #[allow(clippy::eq_op)]
                    let better = *at < 0 || v > *best || (v != v && *best == *best);
                    if better {
                        (*best, *at) = (v, from as i32);
                    }
                }
            }
        });
    });
    let values = copy::stored(cpu, values, planes * places, x.dtype())?;
    Ok((Arc::new(values), Arc::new(positions)))
}

/// A row of maxima of 2 x 2 elements that do not overlap, the commonest windows by far.
struct Halves<'a> {
    upper: &'a [f32],
    lower: &'a [f32],
    /// The position of the first element of `upper`, and how much further that of `lower` is.
    from: i32,
    row: i32,
    best: &'a mut [f32],
    at: &'a mut [i32],
}

impl Work for Halves<'_> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let Halves { upper, lower, from, row, best, at } = self;
        // the first largest wins, and the first NaN
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

/// `g` added at `positions`; -1 is nowhere.
pub(crate) fn max_pool_grad(
    cpu: &Cpu,
    g: &Tensor,
    positions: &Tensor,
    x_shape: &Shape,
    spatial: usize,
) -> Result<StorageRef> {
    let lead = x_shape.ndim() - spatial;
    let planes: usize = x_shape[..lead].iter().product();
    let (plane, places) =
        (x_shape[lead..].iter().product::<usize>(), g.shape()[lead..].iter().product::<usize>());
    let gs = Packed::of(cpu, &View::of(g)?)?;
    let at = Packed::of(cpu, &View::of(positions)?)?;
    let out = cpu.zeros(x_shape.numel(), g.dtype().compute())?;
    if x_shape.numel() == 0 || g.numel() == 0 {
        return Ok(Arc::new(copy::stored(cpu, out, x_shape.numel(), g.dtype())?));
    }
    // SAFETY: the copies have these elements.
    let at = unsafe { slice::<i32>(at.ptr(), planes * places) };
    if let Some(i) = at.iter().position(|&p| p < -1 || i64::from(p) >= plane as i64) {
        return Err(Error::index(format!(
            "position {i} is {}, but the pooled axes have {plane} places",
            at[i]
        )));
    }
    with_float!(g.dtype(), T => {
        // SAFETY: as above; each plane of the output is written by one range.
        let gs = unsafe { slice::<T>(gs.ptr(), planes * places) };
        let to = Shared(out.ptr().cast::<T>());
        for_each_plane(planes, places, |p| {
            // SAFETY: as above.
            let to = unsafe { std::slice::from_raw_parts_mut(to.get().add(p * plane), plane) };
            for (&g, &at) in gs[p * places..][..places].iter().zip(&at[p * places..][..places]) {
                if at >= 0 {
                    to[at as usize] += g;
                }
            }
        });
    });
    Ok(Arc::new(copy::stored(cpu, out, x_shape.numel(), g.dtype())?))
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
    let strips = geometry.all_strips(cpu, 0, geometry.places())?;
    let (plane, places, step) = (geometry.plane(), geometry.places(), geometry.step());
    with_float!(x.dtype(), T => {
        // SAFETY: the copy has these elements; each plane of the output is written by one range.
        let input = unsafe { slice::<T>(input.ptr(), x.numel()) };
        let to = Shared(out.ptr());
        for_each_plane(planes, places, |p| {
            // SAFETY: as above.
            let sums = unsafe { slice_mut::<T>(to.get().add(p * places * size_of::<T>()), places) };
            sums.fill(0.0);
            let input = &input[p * plane..(p + 1) * plane];
            for strip in strips.iter().filter(|s| s.inside > 0) {
                let sums = &mut sums[strip.at + strip.before..][..strip.inside];
                for (sum, &v) in sums.iter_mut().zip(input[strip.from..].iter().step_by(step)) {
                    *sum += v;
                }
            }
            let count = geometry.positions() as T;
            for sum in sums {
                *sum /= count;
            }
        });
    });
    Ok(Arc::new(copy::stored(cpu, out, planes * places, x.dtype())?))
}
