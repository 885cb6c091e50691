//! Convolution and its two gradients as matrix products whose operands are read straight out of the
//! images: no patch is stored.
//!
//! ```text
//!                  rows      columns         k                per group
//! forward          C_out/G   N places        C_in/G kernel    weight @ patches of x
//! gradient of x    C_in/G    N pixels        C_out/G kernel   weight' @ patches of g
//! of the weight    C_out/G   C_in/G kernel   N places         g @ patches of x'
//! ```
//!
//! The tile is the one of `matmul`. Groups of fewer than eight rows (depthwise convolutions) get a
//! thread per result instead. The weight's gradient, a small matrix with a long k, is split along
//! k. Software adapters store patches after all, and multiply them by `matmul`: see
//! [`crate::ops::software`].

pub(crate) mod shader;
pub(crate) mod sizes;

use crate::codegen::types::accumulation;
use crate::device::Wgpu;
use crate::device::launch::{Key, Launch, Program};
use crate::ops::accumulation::cast_to_storage;
pub(crate) use crate::ops::conv::shader::{ConvKernel, ConvKind, wgsl};
use crate::ops::conv::shader::{ConvParams, DIRECT_THREADS};
use crate::ops::conv::sizes::ConvSizes;
use crate::ops::copy::{can_compact, compact};
use crate::ops::epilogue::Epilogue;
use crate::ops::matmul::select::{SLICE, Tile};
use crate::ops::matmul::target_workgroups;
use crate::ops::reduce::sum_slices;
use crate::ops::software;
use teeny_core::{Outputs, Result, Shape, StorageRef, Tensor, Window, validate};

/// The convolution of `x` by `weight`, or nothing if some tensor is larger than a binding.
pub(crate) fn conv(
    gpu: &Wgpu,
    x: &Tensor,
    weight: &Tensor,
    window: &Window,
) -> Result<Option<StorageRef>> {
    let y = validate::conv_shape(x.shape(), weight.shape(), window)?;
    let sizes = ConvSizes {
        kind: ConvKind::Forward,
        dtype: x.dtype(),
        x: x.shape(),
        weight: weight.shape(),
        y: &y,
        window,
    };
    launch_conv(gpu, &sizes, weight, x)
}

/// The outputs of a kernel after the convolution of `x` by `weight`, or nothing if some tensor is
/// larger than a binding.
pub(crate) fn conv_kernel(
    gpu: &Wgpu,
    x: &Tensor,
    weight: &Tensor,
    window: &Window,
    epilogue: &Epilogue<'_>,
) -> Result<Option<Outputs>> {
    let dtype = x.dtype();
    gpu.require(dtype, "convolution")?;
    let sizes = ConvSizes {
        kind: ConvKind::Forward,
        dtype,
        x: x.shape(),
        weight: weight.shape(),
        y: epilogue.shape,
        window,
    };
    if let Some(product) = software::patches::conv(gpu, &sizes, weight, x)? {
        return epilogue.run_separately(gpu, product, dtype, x).map(Some);
    }
    if epilogue.fits(gpu)
        && let Some((kernel, 1)) = select(gpu, &sizes, weight, x)
    {
        let pairs = sizes.pairs(kernel, epilogue);
        let storages = epilogue.allocate(gpu, pairs)?;
        launch(gpu, &sizes, (weight, x), (kernel, 1), Some(epilogue), &storages)?;
        return epilogue.finish(gpu, storages, x).map(Some);
    }
    let Some(product) = launch_conv(gpu, &sizes, weight, x)? else { return Ok(None) };
    epilogue.run_separately(gpu, product, dtype, x).map(Some)
}

/// Its gradient for `x`.
pub(crate) fn conv_input_grad(
    gpu: &Wgpu,
    g: &Tensor,
    weight: &Tensor,
    window: &Window,
    x: &Shape,
) -> Result<Option<StorageRef>> {
    let sizes = ConvSizes {
        kind: ConvKind::InputGrad,
        dtype: g.dtype(),
        x,
        weight: weight.shape(),
        y: g.shape(),
        window,
    };
    launch_conv(gpu, &sizes, weight, g)
}

/// Its gradient for the weight.
pub(crate) fn conv_weight_grad(
    gpu: &Wgpu,
    g: &Tensor,
    x: &Tensor,
    window: &Window,
    weight: &Shape,
) -> Result<Option<StorageRef>> {
    let sizes = ConvSizes {
        kind: ConvKind::WeightGrad,
        dtype: g.dtype(),
        x: x.shape(),
        weight,
        y: g.shape(),
        window,
    };
    launch_conv(gpu, &sizes, g, x)
}

fn launch_conv(
    gpu: &Wgpu,
    sizes: &ConvSizes<'_>,
    left: &Tensor,
    right: &Tensor,
) -> Result<Option<StorageRef>> {
    let dtype = sizes.dtype;
    gpu.require(dtype, "convolution")?;
    let (count, accumulator) = (sizes.result().numel(), accumulation(dtype));
    if count == 0 {
        return Ok(Some(gpu.allocate(0, dtype)?));
    }
    if let Some(result) = software::patches::conv(gpu, sizes, left, right)? {
        return Ok(Some(result));
    }
    if can_compact(gpu, &[left, right]) {
        return launch_conv(gpu, sizes, &compact(gpu, left)?, &compact(gpu, right)?);
    }
    let Some((kernel, splits)) = select(gpu, sizes, left, right) else { return Ok(None) };
    let packed = sizes.packs(kernel, splits);
    let out = gpu.allocate(splits * count, if packed { dtype } else { accumulator })?;
    let result = std::slice::from_ref(&out);
    launch(gpu, sizes, (left, right), (kernel, splits), None, result)?;
    let sum = if splits == 1 { out } else { sum_slices(gpu, out, splits, left)? };
    Ok(Some(cast_to_storage(gpu, sum, dtype, left)?))
}

/// The kernel and the number of slices of k; `None` if a tensor is empty or larger than a binding.
fn select(
    gpu: &Wgpu,
    sizes: &ConvSizes<'_>,
    left: &Tensor,
    right: &Tensor,
) -> Option<(ConvKernel, usize)> {
    let (count, accumulator) = (sizes.result().numel(), accumulation(sizes.dtype));
    let (rows, columns, k) = sizes.product();
    if count == 0
        || k == 0
        || left.numel() == 0
        || right.numel() == 0
        || gpu.exceeds_binding(left)
        || gpu.exceeds_binding(right)
        || gpu.len_exceeds_binding(count, accumulator)
        || !sizes.are_countable(k)
    {
        return None;
    }
    let (groups, busy) = (sizes.window.groups, target_workgroups(gpu));
    let tiles = |tile: Tile| (rows.div_ceil(tile.rows()), columns.div_ceil(tile.columns()));
    let large = tiles(Tile::Large);
    let kernel = match () {
        () if rows < 8 => ConvKernel::Direct,
        () if accumulator.size() == 4 && rows > 64 && groups * large.0 * large.1 >= busy => {
            ConvKernel::Tiled(Tile::Large)
        }
        () if accumulator.size() == 4 && rows <= 32 && columns > 64 => {
            ConvKernel::Tiled(Tile::Flat)
        }
        () => ConvKernel::Tiled(Tile::Small),
    };
    let splits = match kernel {
        ConvKernel::Direct => 1,
        ConvKernel::Tiled(tile) => {
            let (down, across) = tiles(tile);
            (busy / (groups * down * across)).min(k / SLICE).clamp(1, 64)
        }
    };
    Some((kernel, splits))
}

/// One launch into `outputs`: the convolution, or the results of the kernel after it.
fn launch(
    gpu: &Wgpu,
    sizes: &ConvSizes<'_>,
    (left, right): (&Tensor, &Tensor),
    (kernel, splits): (ConvKernel, usize),
    epilogue: Option<&Epilogue<'_>>,
    outputs: &[StorageRef],
) -> Result<()> {
    let (dtype, groups) = (sizes.dtype, sizes.window.groups);
    let (rows, columns, k) = sizes.product();
    let count = sizes.result().numel();
    let (down, across) = match kernel {
        ConvKernel::Direct => (0, 0),
        ConvKernel::Tiled(tile) => (rows.div_ceil(tile.rows()), columns.div_ceil(tile.columns())),
    };
    let (x, y, window) = (&sizes.x[2..], &sizes.y[2..], sizes.window);
    let params = ConvParams {
        m: rows,
        k,
        n: columns,
        matrices: groups,
        tiles_down: down,
        tiles_across: across,
        splits,
        split_length: k.div_ceil(splits),
        lhs_offset: left.layout().offset(),
        rhs_offset: right.layout().offset(),
        lhs_strides: left.strides().into(),
        rhs_strides: right.strides().into(),
        x_sizes: x.into(),
        y_sizes: y.into(),
        kernel_sizes: sizes.weight[2..].into(),
        stride: window.stride[..].into(),
        padding: window.padding[..].into(),
        dilation: window.dilation[..].into(),
        in_channels: sizes.weight[1],
        out_channels: sizes.weight[0] / groups,
    };
    let (kind, ndim) = (sizes.kind, sizes.x.ndim() - 2);
    let variant = match kernel {
        ConvKernel::Direct => 0,
        ConvKernel::Tiled(tile) => 1 + tile as u32,
    };
    let workgroups = match kernel {
        ConvKernel::Direct => count.div_ceil(DIRECT_THREADS),
        ConvKernel::Tiled(_) => splits * groups * down * across,
    };
    let pairs = epilogue.is_some_and(|epilogue| sizes.pairs(kernel, epilogue));
    let plan = epilogue.map(|epilogue| epilogue.plan(pairs));
    let packed = epilogue.is_none() && sizes.packs(kernel, splits);
    let mut variant =
        vec![kind as u32, ndim as u32, dtype as u32, variant, (packed || pairs).into()];
    let mut inputs = vec![gpu.bind_tensor(left)?, gpu.bind_tensor(right)?];
    let mut words = params.words();
    if let (Some(epilogue), Some(plan)) = (epilogue, &plan) {
        variant.push(plan.axes as u32);
        inputs.extend(epilogue.inputs(gpu)?);
        epilogue.push(&mut words);
    }
    let key = Key { family: "conv", kernel: epilogue.map(|e| e.kernel.clone()), variant };
    gpu.dispatch(&Launch {
        program: Program { key, wgsl: &|| wgsl(kind, kernel, ndim, dtype, plan, packed) },
        inputs: &inputs,
        outputs: &outputs.iter().map(|out| gpu.bind(out)).collect::<Result<Vec<_>>>()?,
        params: &words,
        grid: gpu.dispatch_grid(workgroups as u64)?,
    })
}
