//! Convolution and its two gradients, for any number of spatial axes.
//!
//! ```text
//!   grid      which elements of the input a result reads: convolution and input gradient alike
//!   select    the algorithm for sizes              tasks    how it is split: pure functions
//!   convolution  runs the algorithm for all grids      algorithms  for one grid, or its filters
//!   columns   a matrix product with columns        weight_grad  the same for the filters' gradient
//!   direct/   few output channels per group: lanes are pixels, or channels of a depthwise one
//!   winograd/ 3 x 3 filters of stride 1 in f32, with enough channels and results
//!   filters   filters in the order of a grid       padding      times infinities and NaN
//!   copies    of rows
//! ```
//! The gradient of the input is a convolution of g with the filters rotated by 180 degrees, for
//! each residue of the stride. No sum is split by the number of threads. Where `winograd` would not
//! be accurate, columns take over: for bands of pixels, and for the whole image if a weight is
//! infinite or NaN.

mod algorithms;
mod columns;
mod convolution;
mod copies;
mod direct;
mod filters;
mod grid;
mod padding;
mod select;
mod tasks;
mod weight_grad;
mod winograd;

use crate::copy::Packed;
use crate::elementwise::{Epilogue, with_epilogue};
use crate::float::Float;
use crate::matmul::has_microkernel;
use crate::storage::{CpuStorage, Shared, View};
use crate::typed::{slice, slice_mut};
use crate::{Cpu, copy};
use algorithms::MatmulOf::InputGrad;
use columns::ConvTask;
use convolution::{Choice, Convolution};
use grid::Grid;
use select::Tiles;
use std::sync::Arc;
use teeny_core::storage::StorageRef;
use teeny_core::{DType, Kernel, Outputs, Result, Scalar, Shape, Tensor, Window};
use winograd::Winograd;

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

/// The sizes of one convolution. Channels count one group.
#[derive(Clone, Copy)]
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

    /// The convolution of g that is the gradient of the input.
    fn backward(&self) -> Conv<'a> {
        Conv {
            in_channels: self.out_channels,
            out_channels: self.in_channels,
            input: self.output,
            output: self.input,
            ..*self
        }
    }

    /// Winograd's filtering and the sizes that decide whether it is faster, if it applies: 3 x 3
    /// filters of stride 1 in f32.
    fn winograd<T: Float>(&self, cpu: &Cpu) -> Option<(Winograd, Tiles)> {
        let window = self.window;
        let fits = self.kernel == [3, 3]
            && window.stride[..2] == [1, 1]
            && window.dilation[..2] == [1, 1]
            && T::f32s(&[]).is_some()
            && cpu.winograd
            && has_microkernel(cpu.level);
        if !fits {
            return None;
        }
        let winograd = Winograd {
            level: cpu.level,
            images: self.images * self.groups,
            groups: self.groups,
            in_channels: self.in_channels,
            out_channels: self.out_channels,
            input: [self.input[0], self.input[1]],
            output: [self.output[0], self.output[1]],
            padding: [window.padding[0], window.padding[1]],
        };
        let tiles = self.output.iter().map(|n| n.div_ceil(4)).product::<usize>();
        let tiles = Tiles {
            channels: [self.in_channels, self.out_channels],
            groups: self.groups,
            results: winograd.images * self.output.iter().product::<usize>(),
            tiles: winograd.images * tiles,
            width: self.output[self.output.len() - 1],
            sums: winograd.blocks(),
        };
        Some((winograd, tiles))
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

/// The convolution, and `kernel` over each part of it while it is in a cache: planes of few
/// channels, panels of columns, bands of Winograd's tiles. Of other algorithms (depthwise, images
/// of one pixel, few results) it is computed as a whole, and then the kernel in its place. `None`
/// for cases that are left to the definition: 16-bit floats, which are rounded as a whole, empty
/// results, and kernels that [`with_epilogue`] declines.
pub(crate) fn conv_kernel(
    cpu: &Cpu,
    [x, weight]: [&Tensor; 2],
    window: &Window,
    kernel: &Arc<Kernel>,
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
    let conv = Conv::new(x.shape(), weight.shape(), shape, window);
    let is_depthwise = select::is_depthwise([conv.in_channels, conv.out_channels], conv.groups);
    let (xs, ws) = operands(cpu, x, weight)?;
    with_float!(x.dtype(), T => {
        // SAFETY: the copies hold these many elements of the computed type.
        let (x, weight) =
            unsafe { (slice::<T>(xs.ptr(), x.numel()), slice::<T>(ws.ptr(), weight.numel())) };
        let (grid, skips) = padding::grid(cpu, &conv, weight, is_depthwise);
        let y = Shared(out.get().cast::<T>());
        let convolution = Convolution {
            task: ConvTask { epilogue, ..conv.task(&grid, x, weight, y) },
            grids: std::slice::from_ref(&grid),
            numel: shape.numel(),
            winograd: conv.winograd::<T>(cpu),
            skips,
        };
        convolution.run(cpu, &convolution.choose(cpu))
    })
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
    let out = cpu.alloc(n, dtype.compute())?;
    with_float!(dtype, T => {
        // SAFETY: the copies hold these many elements of the computed type.
        let (g, weight) =
            unsafe { (slice::<T>(gs.ptr(), g.numel()), slice::<T>(ws.ptr(), weight.numel())) };
        let y = Shared(out.ptr().cast::<T>());
        let forward = Grid::forward(conv.input, conv.kernel, conv.output, window, true);
        if forward.pixels() == 1 && forward.has_all_taps() && forward.taps.len() == forward.plane() {
            // Each weight is multiplied by one element of g.
            let operands = [y.get().cast_const(), weight.as_ptr(), g.as_ptr()];
            // SAFETY: the operands have the sizes of the task, and the new storage no other owner.
            unsafe { conv.task(&forward, &[], weight, y).by_matmul(cpu, operands, InputGrad)? };
            return finish(cpu, out, n, dtype);
        }
        let grids = Grid::backward(conv.input, conv.kernel, conv.output, window);
        let winograd = conv.winograd::<T>(cpu);
        let winograd = winograd.and_then(|(forward, tiles)| Some((forward.backward()?, tiles)));
        let task = ConvTask { taps_first: true, ..conv.backward().task(&forward, g, weight, y) };
        let convolution = Convolution { task, grids: &grids, numel: n, winograd, skips: true };
        let choice = convolution.choose(cpu);
        // Filters that are in range for Winograd's filtering are finite.
        if matches!(choice, Choice::Winograd(_)) || padding::may_be_added(cpu, &grids, weight) {
            convolution.run(cpu, &choice)?;
        } else {
            // SAFETY: the new storage has these elements and no other owner.
            unsafe { slice_mut::<T>(out.ptr(), n) }.fill(T::ZERO);
            let whole = Grid::forward(conv.input, conv.kernel, conv.output, window, false);
            padding::input_grad(cpu, &conv.task(&whole, &[], weight, y), g)?;
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
    let out = cpu.alloc(n, dtype.compute())?;
    with_float!(dtype, T => {
        // SAFETY: the copies hold these many elements of the computed type, the new storage those
        // of the result.
        let (g, x, to) = unsafe {
            (
                slice::<T>(gs.ptr(), g.numel()),
                slice::<T>(xs.ptr(), x.numel()),
                slice_mut::<T>(out.ptr(), n),
            )
        };
        let grid = &padding::grid(cpu, &conv, g, false).0;
        let task = conv.task(grid, x, &[], Shared(std::ptr::null_mut()));
        task.filter_grad(cpu, conv.winograd::<T>(cpu), g, to)?;
    });
    finish(cpu, out, n, dtype)
}
