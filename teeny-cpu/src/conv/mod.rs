//! Convolution and its two gradients. 3 x 3 filters of stride 1 in f32 go to `winograd`; others are
//! matrix products with `columns`, a tile of pixels at a time:
//!
//! ```text
//!   y[n] = weight @ columns of x[n]
//!   columns of the input gradient = weightᵀ @ g, added to the image   (a task per image and group)
//!   weight gradient = Σ_n g[n] @ columnsᵀ                             (fixed blocks of images)
//! ```
//! No sum is split by the number of threads. Where `winograd` would not be accurate, columns take
//! over: for bands of pixels, and for the whole image if a weight is infinite or NaN.

mod columns;
mod winograd;

use crate::float::Float;
use crate::fused::Packed;
use crate::matmul::{Matrix, Tile};
use crate::scratch::with_scratch;
use crate::storage::{Shared, View};
use crate::threads::try_for_each_chunk;
use crate::typed::{slice, slice_mut};
use crate::window::Geometry;
use crate::{Cpu, copy};
use columns::Conv;
use std::sync::Arc;
use teeny_core::storage::StorageRef;
use teeny_core::{DType, Result, Shape, Tensor, Window};
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

/// x (N, C_in, ..), weight (C_out, C_in / groups, ..) → (N, C_out, ..), of `shape`.
pub(crate) fn conv(
    cpu: &Cpu,
    x: &Tensor,
    weight: &Tensor,
    window: &Window,
    shape: &Shape,
) -> Result<StorageRef> {
    let conv = Conv::new(x.shape(), weight.shape(), shape, window);
    let images = x.shape()[0] * conv.groups;
    let pixels = conv.geometry.pixels();
    let (xs, ws) = operands(cpu, x, weight)?;
    let n = shape.numel();
    if x.numel() == 0 || weight.numel() == 0 {
        // Sums of nothing but padding, or of no channels.
        return Ok(Arc::new(cpu.zeros(n, x.dtype())?));
    }
    let out = cpu.alloc(n, x.dtype().compute())?;
    let width = conv.tile();
    if let Some(winograd) = conv.winograd(cpu, x.dtype(), images, window) {
        // SAFETY: the copies hold these many f32, the new storage the result.
        let (xs, ws) =
            unsafe { (slice::<f32>(xs.ptr(), x.numel()), slice::<f32>(ws.ptr(), weight.numel())) };
        if cpu.level.run(Moderate(ws)) {
            let y = Shared(out.ptr().cast::<f32>());
            winograd.forward(cpu, xs, &winograd.filters(cpu, ws)?, y, |i, pixels| {
                for first in pixels.clone().step_by(width) {
                    // SAFETY: the pixels of a band that only this call computes.
                    unsafe {
                        conv.by_columns(cpu, xs, ws, i, [first, pixels.end.min(first + width)], y)?
                    };
                }
                Ok(())
            })?;
            return Ok(Arc::new(copy::cast_to_storage(cpu, out, n, x.dtype())?));
        }
    }
    let tiles = pixels.div_ceil(width);
    with_float!(x.dtype(), T => {
        // SAFETY: the copies hold these many elements of the computed type.
        let (xs, ws) = unsafe { (slice::<T>(xs.ptr(), x.numel()), slice::<T>(ws.ptr(), weight.numel())) };
        let to = Shared(out.ptr().cast::<T>());
        try_for_each_chunk(if n == 0 { 0 } else { images * tiles }, |task| {
            let (i, first) = (task / tiles, task % tiles * width);
            // SAFETY: the tile's pixels of this image's planes, which no other task touches.
            unsafe { conv.by_columns(cpu, xs, ws, i, [first, (first + width).min(pixels)], to) }
        })?;
    });
    Ok(Arc::new(copy::cast_to_storage(cpu, out, n, x.dtype())?))
}

/// The gradient for x from g (N, C_out, ..).
pub(crate) fn input_grad(
    cpu: &Cpu,
    g: &Tensor,
    weight: &Tensor,
    window: &Window,
    x_shape: &Shape,
) -> Result<StorageRef> {
    let conv = Conv::new(x_shape, weight.shape(), g.shape(), window);
    let images = x_shape[0] * conv.groups;
    let (rows, pixels, out_channels) = (conv.rows(), conv.geometry.pixels(), conv.out_channels);
    let (gs, ws) = operands(cpu, g, weight)?;
    let n = x_shape.numel();
    if n == 0 || g.numel() == 0 || weight.numel() == 0 {
        return Ok(Arc::new(cpu.zeros(n, g.dtype())?));
    }
    if let Some(winograd) =
        conv.winograd(cpu, g.dtype(), images, window).and_then(|forward| forward.backward())
    {
        let out = cpu.alloc(n, g.dtype().compute())?;
        // SAFETY: the copies hold these many f32, the new storage the result.
        let (gs, ws) =
            unsafe { (slice::<f32>(gs.ptr(), g.numel()), slice::<f32>(ws.ptr(), weight.numel())) };
        if cpu.level.run(Moderate(ws)) {
            let y = Shared(out.ptr().cast::<f32>());
            // The gradient is a convolution of g.
            let mut around = window.clone();
            around.padding[..2].copy_from_slice(&winograd.padding);
            let geometry =
                Geometry::new(&g.shape()[2..], &weight.shape()[2..], &x_shape[2..], &around);
            let back = Conv {
                geometry,
                in_channels: conv.out_channels,
                out_channels: conv.in_channels,
                ..conv
            };
            let width = back.tile();
            winograd.forward(cpu, gs, &winograd.rotated_filters(cpu, ws)?, y, |i, pixels| {
                for first in pixels.clone().step_by(width) {
                    // SAFETY: the pixels of a band that only this call computes.
                    unsafe {
                        back.by_columns_rotated(
                            cpu,
                            gs,
                            ws,
                            i,
                            [first, pixels.end.min(first + width)],
                            y,
                        )?
                    };
                }
                Ok(())
            })?;
            return Ok(Arc::new(copy::cast_to_storage(cpu, out, n, g.dtype())?));
        }
    }
    let out = cpu.zeros(n, g.dtype().compute())?;
    let (width, image) = (conv.tile(), conv.in_channels * conv.geometry.plane());
    with_float!(g.dtype(), T => {
        // SAFETY: the copies hold these many elements of the computed type.
        let (gs, ws) = unsafe { (slice::<T>(gs.ptr(), g.numel()), slice::<T>(ws.ptr(), weight.numel())) };
        let to = Shared(out.ptr().cast::<T>());
        try_for_each_chunk(if n == 0 { 0 } else { images }, |i| {
            // SAFETY: the image of this task alone.
            let to = unsafe { std::slice::from_raw_parts_mut(to.get().add(i * image), image) };
            let w = Matrix::row_major(&ws[i % conv.groups * out_channels * rows..][..out_channels * rows], rows);
            let g = &gs[i * out_channels * pixels..][..out_channels * pixels];
            with_scratch(cpu, [rows * width], |[columns]: [&mut [T]; 1]| {
                for first in (0..pixels).step_by(width) {
                    let end = (first + width).min(pixels);
                    let columns = &mut columns[..rows * (end - first)];
                    let product = Tile {
                        mnk: [rows, end - first, out_channels],
                        lhs: w.t(),
                        rhs: Matrix::row_major(g, pixels).at(0, first),
                        c: Matrix::row_major(columns, end - first),
                        beta: T::ZERO,
                        alpha: T::ONE,
                        rhs_numel: out_channels * (end - first),
                    };
                    // SAFETY: all three matrices were sliced to their sizes.
                    unsafe { product.run(cpu)? };
                    conv.add_columns(cpu, columns, first, end, to)?;
                }
                Ok(())
            })?
        })?;
    });
    Ok(Arc::new(copy::cast_to_storage(cpu, out, n, g.dtype())?))
}

/// The gradient for the weight.
pub(crate) fn weight_grad(
    cpu: &Cpu,
    g: &Tensor,
    x: &Tensor,
    window: &Window,
    weight_shape: &Shape,
) -> Result<StorageRef> {
    let conv = Conv::new(x.shape(), weight_shape, g.shape(), window);
    let batch = x.shape()[0];
    let (rows, pixels, out_channels, groups) =
        (conv.rows(), conv.geometry.pixels(), conv.out_channels, conv.groups);
    let (gs, xs) = operands(cpu, g, x)?;
    let n = weight_shape.numel();
    if n == 0 || g.numel() == 0 || x.numel() == 0 {
        return Ok(Arc::new(cpu.zeros(n, x.dtype())?));
    }
    if let Some(winograd) = conv.winograd(cpu, x.dtype(), batch * groups, window) {
        let out = cpu.alloc(n, x.dtype().compute())?;
        // SAFETY: the copies hold these many f32, the new storage the result.
        let (gs, xs) =
            unsafe { (slice::<f32>(gs.ptr(), g.numel()), slice::<f32>(xs.ptr(), x.numel())) };
        winograd.weight_grad(cpu, xs, gs, Shared(out.ptr().cast::<f32>()))?;
        // SAFETY: all tasks are done.
        if cpu.level.run(Finite(unsafe { slice::<f32>(out.ptr(), n) })) {
            return Ok(Arc::new(copy::cast_to_storage(cpu, out, n, x.dtype())?));
        }
    }
    let (width, image) = (conv.tile(), conv.in_channels * conv.geometry.plane());
    // Up to eight blocks of images have their own sums, which are added in order at the end.
    let blocks = batch.clamp(1, 8);
    let per_block = batch.div_ceil(blocks);
    let sums = cpu.zeros(n * blocks, x.dtype().compute())?;
    with_float!(x.dtype(), T => {
        // SAFETY: the copies hold these many elements of the computed type.
        let (gs, xs) = unsafe { (slice::<T>(gs.ptr(), g.numel()), slice::<T>(xs.ptr(), x.numel())) };
        let to = Shared(sums.ptr().cast::<T>());
        try_for_each_chunk(if pixels == 0 || n == 0 { 0 } else { blocks * groups }, |task| {
            let (block, group) = (task / groups, task % groups);
            // SAFETY: the sums of this block and group alone.
            let sums = unsafe { std::slice::from_raw_parts_mut(to.get().add(block * n + group * out_channels * rows), out_channels * rows) };
            with_scratch(cpu, [rows * width], |[columns]: [&mut [T]; 1]| {
                for i in block * per_block..((block + 1) * per_block).min(batch) {
                    let i = i * groups + group;
                    let g = &gs[i * out_channels * pixels..][..out_channels * pixels];
                    for first in (0..pixels).step_by(width) {
                        let end = (first + width).min(pixels);
                        let columns = &mut columns[..rows * (end - first)];
                        conv.columns(cpu, &xs[i * image..(i + 1) * image], first, end, columns)?;
                        let product = Tile {
                            mnk: [out_channels, rows, end - first],
                            lhs: Matrix::row_major(g, pixels).at(0, first),
                            rhs: Matrix::row_major(columns, end - first).t(),
                            c: Matrix::row_major(sums, rows),
                            beta: T::ONE,
                            alpha: T::ONE,
                            rhs_numel: rows * (end - first),
                        };
                        // SAFETY: all three matrices were sliced to their sizes.
                        unsafe { product.run(cpu)? };
                    }
                }
                Ok(())
            })?
        })?;
        // SAFETY: all tasks are done.
        let sums = unsafe { slice_mut::<T>(sums.ptr(), n * blocks) };
        let (total, others) = sums.split_at_mut(n);
        for other in others.chunks_exact(n.max(1)) {
            for (a, &b) in total.iter_mut().zip(other) {
                *a += b;
            }
        }
    });
    let out = cpu.alloc(n, x.dtype().compute())?;
    // SAFETY: the first n sums are the totals.
    unsafe { std::ptr::copy_nonoverlapping(sums.ptr(), out.ptr(), n * x.dtype().compute().size()) };
    Ok(Arc::new(copy::cast_to_storage(cpu, out, n, x.dtype())?))
}
