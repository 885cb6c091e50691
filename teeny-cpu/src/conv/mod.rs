//! Convolution and its two gradients, for any number of spatial axes.
//!
//! ```text
//!   grid      which elements of the input a result reads: convolution and input gradient alike
//!   select    the algorithm for a grid and its tasks: pure functions of sizes
//!   algorithms the chosen algorithm, and a kernel over what it has computed
//!   columns   a matrix product with columns        weight_grad  the same for the filters' gradient
//!   direct/   few output channels per group: lanes are pixels, or channels of a depthwise one
//!   winograd/ 3 x 3 filters of stride 1 in f32, with enough channels and results
//!   filters   filters in the order of a grid       finite       whether padding may be left out
//!   tasks     on all threads or in order           copies      of rows
//! ```
//! The gradient of the input is a convolution of g with the filters rotated by 180 degrees, for
//! each residue of the stride. No sum is split by the number of threads. Where `winograd` would not
//! be accurate, columns take over: for bands of pixels, and for the whole image if a weight is
//! infinite or NaN.

mod algorithms;
mod columns;
mod copies;
mod direct;
mod filters;
mod finite;
mod grid;
mod select;
mod tasks;
mod weight_grad;
mod winograd;

use crate::elementwise::{Epilogue, with_epilogue};
use crate::float::{Float, are_finite};
use crate::fused::Packed;
use crate::matmul::{Matrix, batched, has_microkernel};
use crate::scratch::Array;
use crate::storage::{CpuStorage, Shared, View};
use crate::typed::{slice, slice_mut};
use crate::{Cpu, copy};
use algorithms::{filter_grad, strided};
use columns::ConvTask;
use grid::Grid;
use select::Tiles;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use teeny_core::storage::StorageRef;
use teeny_core::{DType, Kernel, Outputs, Result, Scalar, Shape, Tensor, Window};
use winograd::Winograd;
use winograd::dynamic_range::{AllInRange, Finite};

/// Runs `$body` with `$t` the compute type of a float dtype.
macro_rules! with_float {
    ($dtype:expr, $t:ident => $body:expr) => {
        if $dtype == DType::F64 {
            type $t = f64;
            $body
        } else {
            type $t = f32;
            $body
        }
    };
}
pub(crate) use with_float;

/// Both operands row-major in their compute dtype.
fn operands(cpu: &Cpu, a: &Tensor, b: &Tensor) -> Result<(Packed, Packed)> {
    Ok((Packed::of(cpu, &View::of(a)?)?, Packed::of(cpu, &View::of(b)?)?))
}

/// The sizes of one convolution. Channels are those of one group.
struct Conv<'a> {
    images: usize,
    groups: usize,
    in_channels: usize,
    out_channels: usize,
    /// Sizes of the spatial axes.
    input: &'a [usize],
    kernel: &'a [usize],
    output: &'a [usize],
    window: &'a Window,
}

impl<'a> Conv<'a> {
    fn new(x: &'a Shape, weight: &'a Shape, y: &'a Shape, window: &'a Window) -> Conv<'a> {
        Conv {
            images: x[0],
            groups: window.groups,
            in_channels: weight[1],
            out_channels: weight[0] / window.groups,
            input: &x[2..],
            kernel: &weight[2..],
            output: &y[2..],
            window,
        }
    }

    /// Winograd's filtering, if it applies: 3 x 3 filters of stride 1 in f32.
    fn winograd(&self, cpu: &Cpu, dtype: DType) -> Option<Winograd> {
        let window = self.window;
        let fits = self.kernel == [3, 3]
            && window.stride[..2] == [1, 1]
            && window.dilation[..2] == [1, 1]
            && dtype.compute() == DType::F32
            && cpu.winograd
            && has_microkernel(cpu.level);
        if !fits {
            return None;
        }
        Some(Winograd {
            level: cpu.level,
            images: self.images * self.groups,
            groups: self.groups,
            in_channels: self.in_channels,
            out_channels: self.out_channels,
            input: [self.input[0], self.input[1]],
            output: [self.output[0], self.output[1]],
            padding: [window.padding[0], window.padding[1]],
        })
    }

    /// The sizes that decide whether Winograd's filtering is faster.
    fn tiles(&self) -> Tiles {
        let images = self.images * self.groups;
        let tiles = self.output.iter().map(|n| n.div_ceil(4)).product::<usize>();
        Tiles {
            channels: [self.in_channels, self.out_channels],
            groups: self.groups,
            results: images * self.output.iter().product::<usize>(),
            tiles: images * tiles,
            width: self.output[self.output.len() - 1],
        }
    }

    /// Whether each group has one channel, and there are enough for the lanes of a vector.
    fn is_depthwise(&self) -> bool {
        self.in_channels == 1 && self.out_channels == 1 && self.groups >= 8
    }

    /// The convolution of `x` with the filters `weight` in the order of `grid`.
    fn task<'b, T: Float>(
        &self,
        grid: &'b Grid,
        x: &'b [T],
        weight: &'b [T],
        y: Shared<T>,
    ) -> ConvTask<'b, T> {
        let Conv { images, groups, in_channels, out_channels, .. } = *self;
        ConvTask {
            grid,
            images,
            groups,
            in_channels,
            out_channels,
            x,
            weight,
            taps_first: false,
            all_taps: false,
            y,
            epilogue: None,
        }
    }
}

/// The result of `n` elements in the dtype of the operands.
fn finish(cpu: &Cpu, out: CpuStorage, n: usize, dtype: DType) -> Result<StorageRef> {
    Ok(Arc::new(copy::cast_to_storage(cpu, out, n, dtype)?))
}

/// x (N, C_in, ..), weight (C_out, C_in / groups, ..) → (N, C_out, ..), of `shape`.
pub(crate) fn conv(
    cpu: &Cpu,
    x: &Tensor,
    weight: &Tensor,
    window: &Window,
    shape: &Shape,
) -> Result<StorageRef> {
    let (dtype, n) = (x.dtype(), shape.numel());
    if n == 0 || x.numel() == 0 || weight.numel() == 0 {
        // Sums of nothing but padding, or of no channels.
        return Ok(Arc::new(cpu.zeros(n, dtype)?));
    }
    let out = cpu.alloc(n, dtype.compute())?;
    compute(cpu, [x, weight], window, shape, Shared(out.ptr()), None)?;
    finish(cpu, out, n, dtype)
}

/// The convolution, and `kernel` over each part of it while it is in a cache: planes of few channels,
/// panels of columns, bands of Winograd's tiles. Of other algorithms (depthwise, images of one pixel,
/// few results) it is computed as a whole, and then the kernel in its place. `None` for what is left
/// to the definition: 16-bit floats, which are rounded as a whole, no elements, and what
/// [`with_epilogue`] declines.
pub(crate) fn conv_kernel(
    cpu: &Cpu,
    [x, weight]: [&Tensor; 2],
    window: &Window,
    kernel: &Kernel,
    others: &[&Tensor],
    params: &[Scalar],
    shape: &Shape,
) -> Result<Option<Outputs>> {
    if x.dtype().is_half() || shape.numel() == 0 || x.numel() == 0 || weight.numel() == 0 {
        return Ok(None);
    }
    with_epilogue(cpu, (kernel, params), (shape, 2), others, |out, epilogue| {
        compute(cpu, [x, weight], window, shape, out, Some(epilogue))
    })
}

/// Computes the convolution of operands that have elements to `out`, in its compute dtype, which has
/// its elements and no other user, and the kernel of an epilogue over it.
fn compute(
    cpu: &Cpu,
    [x, weight]: [&Tensor; 2],
    window: &Window,
    shape: &Shape,
    out: Shared<u8>,
    epilogue: Option<&Epilogue<'_>>,
) -> Result<()> {
    let (dtype, n) = (x.dtype(), shape.numel());
    let conv = Conv::new(x.shape(), weight.shape(), shape, window);
    let (xs, ws) = operands(cpu, x, weight)?;
    let grid = &Grid::forward(conv.input, conv.kernel, conv.output, window, true);
    // Padding times an infinity or NaN is NaN.
    let mut skips = true;
    if conv.is_depthwise() || !grid.has_all_taps() {
        with_float!(dtype, T => {
            // SAFETY: the copy holds these many elements of the computed type.
            skips = are_finite(cpu.level, unsafe { slice::<T>(ws.ptr(), weight.numel()) });
        });
    }
    let all;
    let grid = if skips {
        grid
    } else {
        all = Grid::forward(conv.input, conv.kernel, conv.output, window, false);
        &all
    };
    if grid.taps.is_empty() {
        // SAFETY: by contract; zero bytes are zeros.
        unsafe { out.get().write_bytes(0, n * dtype.compute().size()) };
        // SAFETY: all results are there, and no task runs.
        return epilogue.map_or(Ok(()), |epilogue| unsafe { epilogue.run_all() });
    }
    if let Some(winograd) = conv.winograd(cpu, dtype)
        && conv.tiles().are_faster()
    {
        // SAFETY: the copies hold these many f32, the new storage the result.
        let (xs, ws) =
            unsafe { (slice::<f32>(xs.ptr(), x.numel()), slice::<f32>(ws.ptr(), weight.numel())) };
        if cpu.level.run(AllInRange(ws)) {
            let y = Shared(out.get().cast::<f32>());
            let filters = winograd.filters(cpu, ws)?;
            let lazy = OnceLock::new();
            return winograd.forward(cpu, xs, &filters, y, epilogue, |i, pixels| {
                let ordered = || {
                    if grid.has_all_taps() {
                        Ok(None)
                    } else {
                        filters::selected(cpu, ws, grid).map(Some)
                    }
                };
                recompute_exactly(cpu, &conv, grid, xs, ws, y, &lazy, ordered, false, i, pixels)
            });
        }
    }
    with_float!(dtype, T => {
        // SAFETY: the copies hold these many elements of the computed type.
        let (xs, ws) = unsafe { (slice::<T>(xs.ptr(), x.numel()), slice::<T>(ws.ptr(), weight.numel())) };
        let y = Shared(out.get().cast::<T>());
        let some = if grid.has_all_taps() { None } else { Some(filters::selected(cpu, ws, grid)?) };
        let c = conv.task(grid, xs, some.as_deref().unwrap_or(ws), y);
        if conv.is_depthwise() && direct::by_channels(cpu, &[c], skips)? {
            // SAFETY: all results are there, and no task runs.
            return epilogue.map_or(Ok(()), |epilogue| unsafe { epilogue.run_all() });
        }
        ConvTask { epilogue, ..c }.run(cpu)
    })
}

/// The pixels of an image and group for which Winograd's filtering is not accurate. `ordered`
/// makes the filters in the order of the grid, if they are not `ws`: once, and again if that
/// failed.
#[expect(clippy::too_many_arguments)]
fn recompute_exactly(
    cpu: &Cpu,
    conv: &Conv<'_>,
    grid: &Grid,
    xs: &[f32],
    ws: &[f32],
    y: Shared<f32>,
    lazy: &OnceLock<Option<Option<Array<f32>>>>,
    ordered: impl Fn() -> Result<Option<Array<f32>>>,
    taps_first: bool,
    i: usize,
    pixels: Range<usize>,
) -> Result<()> {
    let again;
    let filters = match lazy.get_or_init(|| ordered().ok()) {
        Some(filters) => filters,
        None => {
            again = ordered()?;
            &again
        }
    };
    let task = conv.task(grid, xs, filters.as_deref().unwrap_or(ws), y);
    let task = ConvTask { taps_first, ..task };
    let (image, group) = (i / conv.groups, i % conv.groups);
    let first = image * grid.pixels() + pixels.start;
    // SAFETY: the pixels of a band that only this call computes.
    unsafe { task.part(cpu, group, [first, first + pixels.len()]) }
}

/// The gradient for x from g (N, C_out, ..).
pub(crate) fn input_grad(
    cpu: &Cpu,
    g: &Tensor,
    weight: &Tensor,
    window: &Window,
    x_shape: &Shape,
) -> Result<StorageRef> {
    let (dtype, n) = (g.dtype(), x_shape.numel());
    let conv = Conv::new(x_shape, weight.shape(), g.shape(), window);
    let (gs, ws) = operands(cpu, g, weight)?;
    if n == 0 || g.numel() == 0 || weight.numel() == 0 {
        return Ok(Arc::new(cpu.zeros(n, dtype)?));
    }
    let compute = dtype.compute();
    let forward = Grid::forward(conv.input, conv.kernel, conv.output, window, true);
    if forward.pixels() == 1 && forward.has_all_taps() && forward.taps.len() == forward.plane() {
        // Each weight is multiplied by one element of g.
        let out = cpu.alloc(n, compute)?;
        let (m, k, groups) = (conv.out_channels, n / (conv.images * conv.groups), conv.groups);
        with_float!(dtype, T => {
            // SAFETY: the operands have these elements, and each group its part of the new storage.
            unsafe {
                let (gs, ws) = (slice::<T>(gs.ptr(), g.numel()), slice::<T>(ws.ptr(), weight.numel()));
                let y = Shared(out.ptr().cast::<T>());
                batched(cpu, [conv.images, k, m], groups, [T::ZERO, T::ONE], |group| {
                    let w = Matrix::row_major(&ws[group * m * k..][..m * k], k);
                    let y = y.get().cast_const();
                    (strided(y, groups, group, k), strided(gs.as_ptr(), groups, group, m), w)
                })?;
            }
        });
        return finish(cpu, out, n, dtype);
    }
    let grids = Grid::backward(conv.input, conv.kernel, conv.output, window);
    // The gradient is a convolution of g.
    let back = Conv {
        in_channels: conv.out_channels,
        out_channels: conv.in_channels,
        input: conv.output,
        output: conv.input,
        ..conv
    };
    let row = weight.numel() / (conv.groups * conv.out_channels);
    if let Some(winograd) = conv.winograd(cpu, dtype).and_then(|forward| forward.backward())
        && conv.tiles().are_faster()
        && let [grid] = &grids[..]
    {
        let out = cpu.alloc(n, dtype.compute())?;
        // SAFETY: the copies hold these many f32, the new storage the result.
        let (gs, ws) =
            unsafe { (slice::<f32>(gs.ptr(), g.numel()), slice::<f32>(ws.ptr(), weight.numel())) };
        if cpu.level.run(AllInRange(ws)) {
            let y = Shared(out.ptr().cast::<f32>());
            let filters = winograd.rotated_filters(cpu, ws)?;
            let lazy = OnceLock::new();
            winograd.forward(cpu, gs, &filters, y, None, |i, pixels| {
                let ordered = || {
                    let all = filters::transposed(cpu, ws, conv.groups, conv.out_channels, row)?;
                    if grid.has_all_taps() {
                        return Ok(Some(all));
                    }
                    filters::rows_of(cpu, &all, grid, conv.out_channels).map(Some)
                };
                recompute_exactly(cpu, &back, grid, gs, ws, y, &lazy, ordered, true, i, pixels)
            })?;
            return finish(cpu, out, n, dtype);
        }
    }
    // Results that no tap reaches are zero.
    let reached: usize = grids.iter().filter(|g| !g.taps.is_empty()).map(Grid::pixels).sum();
    let all = conv.input.iter().product::<usize>();
    let out = if reached < all { cpu.zeros(n, compute)? } else { cpu.alloc(n, compute)? };
    with_float!(dtype, T => {
        // SAFETY: the copies hold these many elements of the computed type.
        let (gs, ws) = unsafe { (slice::<T>(gs.ptr(), g.numel()), slice::<T>(ws.ptr(), weight.numel())) };
        let y = Shared(out.ptr().cast::<T>());
        if grids.iter().any(Grid::has_padding) && !are_finite(cpu.level, ws) {
            // SAFETY: the new storage has these elements and no other owner.
            unsafe { slice_mut::<T>(out.ptr(), n) }.fill(T::ZERO);
            let whole = Grid::forward(conv.input, conv.kernel, conv.output, window, false);
            finite::input_grad(cpu, &conv.task(&whole, &[], ws, y), gs)?;
            return finish(cpu, out, n, dtype);
        }
        let grids: Vec<&Grid> = grids.iter().filter(|grid| !grid.taps.is_empty()).collect();
        let all = filters::transposed(cpu, ws, conv.groups, conv.out_channels, row)?;
        let some = |grid: &&Grid| {
            if grid.has_all_taps() { Ok(None) } else { filters::rows_of(cpu, &all, grid, conv.out_channels).map(Some) }
        };
        let part = |grid, filters| {
            ConvTask { taps_first: true, ..back.task(grid, gs, filters, y) }
        };
        if conv.is_depthwise() {
            let filters = grids.iter().map(some).collect::<Result<Vec<_>>>()?;
            let parts = grids.iter().zip(&filters);
            let parts: Vec<_> = parts.map(|(grid, f)| part(*grid, f.as_deref().unwrap_or(&all))).collect();
            if !direct::by_channels(cpu, &parts, true)? {
                parts.iter().try_for_each(|part| part.run(cpu))?;
            }
        } else {
            for grid in grids {
                let part = ConvTask {
                    taps_first: true,
                    all_taps: true,
                    ..back.task(grid, gs, &all, y)
                };
                // Columns are multiplied tap by tap where that is no loss.
                if grid.has_all_taps() || !part.is_fast_tap_by_tap() {
                    let filters = some(&grid)?;
                    let weight = filters.as_deref().unwrap_or(&all);
                    ConvTask { all_taps: false, weight, ..part }.run(cpu)?;
                } else {
                    part.run(cpu)?;
                }
            }
        }
    });
    finish(cpu, out, n, dtype)
}

/// The gradient for the weight.
pub(crate) fn weight_grad(
    cpu: &Cpu,
    g: &Tensor,
    x: &Tensor,
    window: &Window,
    weight_shape: &Shape,
) -> Result<StorageRef> {
    let (dtype, n) = (x.dtype(), weight_shape.numel());
    let conv = Conv::new(x.shape(), weight_shape, g.shape(), window);
    let (gs, xs) = operands(cpu, g, x)?;
    if n == 0 || g.numel() == 0 || x.numel() == 0 {
        return Ok(Arc::new(cpu.zeros(n, dtype)?));
    }
    let mut grid = Grid::forward(conv.input, conv.kernel, conv.output, window, true);
    if !grid.has_all_taps() {
        // Padding times an infinity or NaN is NaN.
        with_float!(dtype, T => {
            // SAFETY: the copy holds these many elements of the computed type.
            if !are_finite(cpu.level, unsafe { slice::<T>(gs.ptr(), g.numel()) }) {
                grid = Grid::forward(conv.input, conv.kernel, conv.output, window, false);
            }
        });
    }
    let grid = &grid;
    if grid.taps.is_empty() {
        return Ok(Arc::new(cpu.zeros(n, dtype)?));
    }
    let out = cpu.alloc(n, dtype.compute())?;
    if let Some(winograd) = conv.winograd(cpu, dtype)
        && conv.tiles().are_faster_for_filters(winograd.blocks())
    {
        // SAFETY: the copies hold these many f32, the new storage the result.
        let (gs, xs) =
            unsafe { (slice::<f32>(gs.ptr(), g.numel()), slice::<f32>(xs.ptr(), x.numel())) };
        winograd.weight_grad(cpu, xs, gs, Shared(out.ptr().cast::<f32>()))?;
        // SAFETY: all tasks are done.
        if cpu.level.run(Finite(unsafe { slice::<f32>(out.ptr(), n) })) {
            return finish(cpu, out, n, dtype);
        }
    }
    with_float!(dtype, T => {
        // SAFETY: the copies hold these many elements of the computed type, the new storage those
        // of the result.
        let (gs, xs, to) = unsafe {
            (
                slice::<T>(gs.ptr(), g.numel()),
                slice::<T>(xs.ptr(), x.numel()),
                slice_mut::<T>(out.ptr(), n),
            )
        };
        let c = conv.task(grid, xs, &[], Shared(std::ptr::null_mut()));
        let filter_grad = |cpu, to: &mut [T]| match conv.is_depthwise() {
            true if direct::weight_grad_by_channels(cpu, &c, gs, to)? => Ok(()),
            _ => filter_grad(cpu, &c, gs, to),
        };
        if grid.has_all_taps() {
            filter_grad(cpu, to)?;
        } else {
            let mut some = Array::filled(cpu, n / grid.all_taps * grid.taps.len(), T::ZERO)?;
            filter_grad(cpu, &mut some)?;
            to.fill(T::ZERO);
            let from = some.chunks_exact(grid.taps.len());
            for (to, from) in to.chunks_exact_mut(grid.all_taps).zip(from) {
                for (&tap, &value) in grid.taps.iter().zip(from) {
                    to[tap] = value;
                }
            }
        }
    });
    finish(cpu, out, n, dtype)
}
