//! Convolution and its two gradients, for any number of spatial axes.
//!
//! ```text
//!   grid      which elements of the input a result reads: convolution and input gradient alike
//!   select    the algorithm for a grid and its tasks: pure functions of sizes
//!   columns   a matrix product with columns        weight_grad  the same for the filters' gradient
//!   depthwise/ one channel per group                direct/   few output channels per group
//!   winograd/ 3 x 3 filters of stride 1 in f32, with enough channels and results
//!   filters   filters in the order of a grid       finite       whether padding may be left out
//! ```
//! The gradient of the input is a convolution of g with the filters rotated by 180 degrees, for
//! each residue of the stride. No sum is split by the number of threads. Where `winograd` would not
//! be accurate, columns take over: for bands of pixels, and for the whole image if a weight is
//! infinite or NaN.

mod columns;
mod depthwise;
mod direct;
mod filters;
mod finite;
mod grid;
mod select;
mod weight_grad;
mod winograd;

use crate::float::Float;
use crate::fused::Packed;
use crate::matmul::{Matrix, batched, has_microkernel};
use crate::scratch::Array;
use crate::storage::{CpuStorage, Shared, View};
use crate::typed::{slice, slice_mut};
use crate::{Cpu, copy};
use columns::Correlation;
use finite::are_finite;
use grid::Grid;
use select::{Algorithm, Tiles, select, select_filter_grad};
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use teeny_core::storage::StorageRef;
use teeny_core::{DType, Result, Shape, Tensor, Window};
use winograd::Winograd;
use winograd::evenness::{Finite, Moderate};

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
    fn correlation<'b, T: Float>(
        &self,
        grid: &'b Grid,
        x: &'b [T],
        weight: &'b [T],
        y: Shared<T>,
    ) -> Correlation<'b, T> {
        let Conv { images, groups, in_channels, out_channels, .. } = *self;
        Correlation {
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
        }
    }
}

impl<T: Float> Correlation<'_, T> {
    /// Whether columns are multiplied by the filters of one tap after the other as fast as by those
    /// of all taps.
    fn is_fast_tap_by_tap(&self) -> bool {
        self.in_channels >= 64 && select(&self.sizes()) == Algorithm::Columns
    }

    /// Computes all results.
    fn run(&self, cpu: &Cpu) -> Result<()> {
        match select(&self.sizes()) {
            Algorithm::Matmul => {
                let (m, k, groups) = (self.out_channels, self.rows(), self.groups);
                // SAFETY: an image's inputs and results of a group, and the group's filters, which
                // were sliced to these sizes.
                unsafe {
                    batched(cpu, [self.images, m, k], groups, [T::ZERO, T::ONE], |group| {
                        let w = Matrix::row_major(&self.weight[group * m * k..][..m * k], k);
                        let y = strided(self.y.get().cast_const(), groups, group, m);
                        (y, strided(self.x.as_ptr(), groups, group, k), w.t())
                    })
                }
            }
            Algorithm::Lattices if self.has_small_lattice() => self.by_lattices(cpu),
            Algorithm::Lattices | Algorithm::Columns => self.by_columns(cpu),
        }
    }
}

/// The elements of one group, `n` of each image, as a matrix with a row for each image.
fn strided<T>(ptr: *const T, groups: usize, group: usize, n: usize) -> Matrix<T> {
    let ptr = ptr.wrapping_add(group * n);
    Matrix { ptr, row_stride: (groups * n) as isize, col_stride: 1 }
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
    let conv = Conv::new(x.shape(), weight.shape(), shape, window);
    let (xs, ws) = operands(cpu, x, weight)?;
    if n == 0 || x.numel() == 0 || weight.numel() == 0 {
        // Sums of nothing but padding, or of no channels.
        return Ok(Arc::new(cpu.zeros(n, dtype)?));
    }
    let grid = &Grid::forward(conv.input, conv.kernel, conv.output, window, true);
    // Padding times an infinity or NaN is NaN.
    let mut skips = true;
    if conv.is_depthwise() || !grid.has_all_taps() {
        with_float!(dtype, T => {
            // SAFETY: the copy holds these many elements of the computed type.
            skips = are_finite(cpu, unsafe { slice::<T>(ws.ptr(), weight.numel()) });
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
        return Ok(Arc::new(cpu.zeros(n, dtype)?));
    }
    let out = cpu.alloc(n, dtype.compute())?;
    if let Some(winograd) = conv.winograd(cpu, dtype)
        && conv.tiles().are_faster()
    {
        // SAFETY: the copies hold these many f32, the new storage the result.
        let (xs, ws) =
            unsafe { (slice::<f32>(xs.ptr(), x.numel()), slice::<f32>(ws.ptr(), weight.numel())) };
        if cpu.level.run(Moderate(ws)) {
            let y = Shared(out.ptr().cast::<f32>());
            let filters = winograd.filters(cpu, ws)?;
            let lazy = OnceLock::new();
            winograd.forward(cpu, xs, &filters, y, |i, pixels| {
                let ordered = || {
                    if grid.has_all_taps() {
                        Ok(None)
                    } else {
                        filters::selected(cpu, ws, grid).map(Some)
                    }
                };
                uneven(cpu, &conv, grid, xs, ws, y, &lazy, ordered, false, i, pixels)
            })?;
            return finish(cpu, out, n, dtype);
        }
    }
    with_float!(dtype, T => {
        // SAFETY: the copies hold these many elements of the computed type.
        let (xs, ws) = unsafe { (slice::<T>(xs.ptr(), x.numel()), slice::<T>(ws.ptr(), weight.numel())) };
        let y = Shared(out.ptr().cast::<T>());
        let some = if grid.has_all_taps() { None } else { Some(filters::selected(cpu, ws, grid)?) };
        let c = conv.correlation(grid, xs, some.as_deref().unwrap_or(ws), y);
        if !(conv.is_depthwise() && depthwise::convolve(cpu, &[c], skips)?) {
            c.run(cpu)?;
        }
    });
    finish(cpu, out, n, dtype)
}

/// The pixels of an image and group for which Winograd's filtering is not accurate. `ordered`
/// makes the filters in the order of the grid, if they are not `ws`: once, and again if that
/// failed.
#[expect(clippy::too_many_arguments)]
fn uneven(
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
    let correlation = conv.correlation(grid, xs, filters.as_deref().unwrap_or(ws), y);
    let correlation = Correlation { taps_first, ..correlation };
    let (image, group) = (i / conv.groups, i % conv.groups);
    let first = image * grid.pixels() + pixels.start;
    // SAFETY: the pixels of a band that only this call computes.
    unsafe { correlation.part(cpu, group, [first, first + pixels.len()]) }
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
        if cpu.level.run(Moderate(ws)) {
            let y = Shared(out.ptr().cast::<f32>());
            let filters = winograd.rotated_filters(cpu, ws)?;
            let lazy = OnceLock::new();
            winograd.forward(cpu, gs, &filters, y, |i, pixels| {
                let ordered = || {
                    let all = filters::transposed(cpu, ws, conv.groups, conv.out_channels, row)?;
                    if grid.has_all_taps() {
                        return Ok(Some(all));
                    }
                    filters::rows_of(cpu, &all, grid, conv.out_channels).map(Some)
                };
                uneven(cpu, &back, grid, gs, ws, y, &lazy, ordered, true, i, pixels)
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
        if grids.iter().any(Grid::has_padding) && !are_finite(cpu, ws) {
            // SAFETY: the new storage has these elements and no other owner.
            unsafe { slice_mut::<T>(out.ptr(), n) }.fill(T::ZERO);
            let whole = Grid::forward(conv.input, conv.kernel, conv.output, window, false);
            finite::input_grad(cpu, &conv.correlation(&whole, &[], ws, y), gs)?;
            return finish(cpu, out, n, dtype);
        }
        let grids: Vec<&Grid> = grids.iter().filter(|grid| !grid.taps.is_empty()).collect();
        let all = filters::transposed(cpu, ws, conv.groups, conv.out_channels, row)?;
        let some = |grid: &&Grid| {
            if grid.has_all_taps() { Ok(None) } else { filters::rows_of(cpu, &all, grid, conv.out_channels).map(Some) }
        };
        let part = |grid, filters| {
            Correlation { taps_first: true, ..back.correlation(grid, gs, filters, y) }
        };
        if conv.is_depthwise() {
            let filters = grids.iter().map(some).collect::<Result<Vec<_>>>()?;
            let parts = grids.iter().zip(&filters);
            let parts: Vec<_> = parts.map(|(grid, f)| part(*grid, f.as_deref().unwrap_or(&all))).collect();
            if !depthwise::convolve(cpu, &parts, true)? {
                parts.iter().try_for_each(|part| part.run(cpu))?;
            }
        } else {
            for grid in grids {
                let part = Correlation {
                    taps_first: true,
                    all_taps: true,
                    ..back.correlation(grid, gs, &all, y)
                };
                // Columns are multiplied tap by tap where that is no loss.
                if grid.has_all_taps() || !part.is_fast_tap_by_tap() {
                    let filters = some(&grid)?;
                    let weight = filters.as_deref().unwrap_or(&all);
                    Correlation { all_taps: false, weight, ..part }.run(cpu)?;
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
            if !are_finite(cpu, unsafe { slice::<T>(gs.ptr(), g.numel()) }) {
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
        let c = conv.correlation(grid, xs, &[], Shared(std::ptr::null_mut()));
        let filter_grad = |cpu, to: &mut [T]| match conv.is_depthwise() {
            true if depthwise::weight_grad(cpu, &c, gs, to)? => Ok(()),
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

/// The gradient of the filters of `c` for the taps of its grid.
fn filter_grad<T: Float>(cpu: &Cpu, c: &Correlation<'_, T>, g: &[T], to: &mut [T]) -> Result<()> {
    match select_filter_grad(&c.sizes()) {
        Algorithm::Matmul => {
            let (m, k, groups) = (c.out_channels, c.rows(), c.groups);
            let to = Shared(to.as_mut_ptr());
            // SAFETY: an image's inputs and gradients of a group, and the group's filters.
            unsafe {
                batched(cpu, [m, k, c.images], groups, [T::ZERO, T::ONE], |group| {
                    let ptr = to.get().wrapping_add(group * m * k).cast_const();
                    let to = Matrix { ptr, row_stride: k as isize, col_stride: 1 };
                    let x = strided(c.x.as_ptr(), groups, group, k);
                    (to, strided(g.as_ptr(), groups, group, m).t(), x)
                })
            }
        }
        Algorithm::Lattices if c.has_small_lattice() => direct::weight_grad(cpu, c, g, to),
        Algorithm::Lattices | Algorithm::Columns => weight_grad::by_columns(cpu, c, g, to),
    }
}
