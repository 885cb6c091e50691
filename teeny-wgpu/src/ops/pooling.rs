//! Pooling: a thread per window looks through it once, for the largest value and its position, or
//! for the mean. The gradients are convolutions and scatters, which the definitions in core compose
//! of this engine's kernels.

use crate::codegen::params::{Number, Sizes, Strides, View, shader_params};
use crate::codegen::shader::{Start, shader};
use crate::codegen::types::{self, accumulation, accumulator};
use crate::device::Wgpu;
use crate::device::launch::{Key, Launch, Program};
use crate::ops::accumulation::{cast_to_storage, lowest};
use crate::ops::coalesce::Coalesced;
use crate::ops::copy::{can_compact, compact};
use crate::ops::window::countable;
use teeny_core::{DType, Result, Scalar, StorageRef, Tensor, Window, validate};

const THREADS: usize = 64;

shader_params! {
    /// Parameters of `max_pool.wgsl`.
    struct MaxPoolParams(axes: usize, ndim: usize, dtype: DType) {
        windows: usize,
        windows_per_image: usize,
        x_sizes: Sizes[ndim],
        y_sizes: Sizes[ndim],
        window: Sizes[ndim],
        stride: Sizes[ndim],
        padding: Sizes[ndim],
        dilation: Sizes[ndim],
        /// Strides of x along the axes of the image.
        x_steps: Strides[ndim],
        /// Of the axes that count images.
        sizes: Sizes[axes],
        x: View[axes],
        /// The value of a window of padding alone.
        nothing: Number[dtype],
    }
}

/// The shader for `ndim` spatial axes and images that are counted along `axes` joint axes.
///
/// # Errors
/// As [`crate::codegen::shader::Shader::render`].
pub(crate) fn wgsl(axes: usize, ndim: usize, dtype: DType) -> Result<String> {
    let lowest = match dtype {
        DType::I8 => "-128i",
        DType::I16 => "-32768i",
        _ => types::lowest(dtype),
    };
    shader!("max_pool")
        .params(&MaxPoolParams::declaration(axes, ndim, accumulation(dtype)))
        .input("x", dtype)
        .addresses("image", "", axes, &[("x", Start::Offset)])
        .text("value", accumulator(dtype))
        .text("lowest", lowest)
        .number("threads", THREADS)
        .number("ndim", ndim)
        .flag("float", accumulation(dtype).is_float())
        .render()
}

shader_params! {
    /// Parameters of `avg_pool.wgsl`.
    struct AvgPoolParams(axes: usize, ndim: usize, dtype: DType) {
        windows: usize,
        windows_per_image: usize,
        x_sizes: Sizes[ndim],
        y_sizes: Sizes[ndim],
        window: Sizes[ndim],
        stride: Sizes[ndim],
        padding: Sizes[ndim],
        dilation: Sizes[ndim],
        /// Strides of x along the axes of the image.
        x_steps: Strides[ndim],
        /// Of the axes that count images.
        sizes: Sizes[axes],
        x: View[axes],
        /// The elements of a window.
        size: Number[dtype],
    }
}

/// The shader of means for `ndim` spatial axes and images that are counted along `axes` joint axes.
///
/// # Errors
/// As [`crate::codegen::shader::Shader::render`].
pub(crate) fn avg_wgsl(axes: usize, ndim: usize, dtype: DType) -> Result<String> {
    shader!("avg_pool")
        .params(&AvgPoolParams::declaration(axes, ndim, accumulation(dtype)))
        .input("x", dtype)
        .addresses("image", "", axes, &[("x", Start::Offset)])
        .text("value", accumulator(dtype))
        .text("zero", types::zero(accumulation(dtype)))
        .number("threads", THREADS)
        .number("ndim", ndim)
        .render()
}

/// The mean of every window, or nothing if some tensor is larger than a binding, or a window sees
/// more places than numbers of a shader reach.
pub(crate) fn avg_pool(
    gpu: &Wgpu,
    x: &Tensor,
    size: &[usize],
    window: &Window,
) -> Result<Option<StorageRef>> {
    let (dtype, ndim) = (x.dtype(), size.len());
    gpu.require(dtype, "avg_pool")?;
    let lead = x.ndim() - ndim;
    let spatial = &x.shape()[lead..];
    let shape = validate::pool_shape(x.shape(), size, window)?;
    let reachable = (0..ndim).all(|axis| countable(spatial[axis], size[axis], window, axis));
    if !dtype.is_float()
        || gpu.exceeds_binding(x)
        || gpu.len_exceeds_binding(shape.numel(), accumulation(dtype))
        || !reachable
    {
        return Ok(None);
    }
    let counts = &shape[lead..];
    let y = gpu.allocate(shape.numel(), accumulation(dtype))?;
    if shape.numel() > 0 {
        let leading: Vec<usize> = (0..lead).collect();
        let joint = Coalesced::over(x.shape(), &[x.layout()], &leading)?.padded();
        let axes = joint.sizes.len();
        let elements = size.iter().map(|&n| n as f64).product();
        let params = AvgPoolParams {
            windows: shape.numel(),
            windows_per_image: counts.iter().product(),
            x_sizes: spatial.into(),
            y_sizes: counts.into(),
            window: size.into(),
            stride: window.stride[..].into(),
            padding: window.padding[..].into(),
            dilation: window.dilation[..].into(),
            x_steps: x.strides()[lead..].into(),
            sizes: (&joint.sizes).into(),
            x: View::new(x.layout().offset(), &joint.strides[0]),
            size: Number { value: Scalar::Float(elements), dtype: accumulation(dtype) },
        };
        gpu.dispatch(&Launch {
            program: Program {
                key: Key::new("avg_pool", [axes as u32, ndim as u32, dtype as u32]),
                wgsl: &|| avg_wgsl(axes, ndim, dtype),
            },
            inputs: &[gpu.bind_tensor(x)?],
            outputs: &[gpu.bind(&y)?],
            params: &params.words(),
            grid: gpu.dispatch_grid(shape.numel().div_ceil(THREADS) as u64)?,
        })?;
    }
    cast_to_storage(gpu, y, dtype, x).map(Some)
}

/// The largest element of every window and its position, or nothing if some tensor is larger
/// than a binding.
pub(crate) fn max_pool(
    gpu: &Wgpu,
    x: &Tensor,
    size: &[usize],
    window: &Window,
) -> Result<Option<(StorageRef, StorageRef)>> {
    let (dtype, ndim) = (x.dtype(), size.len());
    gpu.require(dtype, "max_pool")?;
    let lead = x.ndim() - ndim;
    let spatial = &x.shape()[lead..];
    let shape = validate::pool_shape(x.shape(), size, window)?;
    let counts = &shape[lead..];
    let (images, windows): (usize, usize) =
        (x.shape()[..lead].iter().product(), counts.iter().product());
    if can_compact(gpu, &[x]) {
        return max_pool(gpu, &compact(gpu, x)?, size, window);
    }
    let reachable = (0..ndim).all(|axis| countable(spatial[axis], size[axis], window, axis));
    if gpu.exceeds_binding(x)
        || gpu.len_exceeds_binding(shape.numel(), accumulation(dtype))
        || !reachable
    {
        return Ok(None);
    }
    let (values, positions) = (
        gpu.allocate(images * windows, accumulation(dtype))?,
        gpu.allocate(images * windows, DType::I32)?,
    );
    if images * windows > 0 {
        let leading: Vec<usize> = (0..lead).collect();
        let joint = Coalesced::over(x.shape(), &[x.layout()], &leading)?.padded();
        let axes = joint.sizes.len();
        let params = MaxPoolParams {
            windows: images * windows,
            windows_per_image: windows,
            x_sizes: spatial.into(),
            y_sizes: counts.into(),
            window: size.into(),
            stride: window.stride[..].into(),
            padding: window.padding[..].into(),
            dilation: window.dilation[..].into(),
            x_steps: x.strides()[lead..].into(),
            sizes: (&joint.sizes).into(),
            x: View::new(x.layout().offset(), &joint.strides[0]),
            nothing: Number { value: lowest(dtype), dtype: accumulation(dtype) },
        };
        gpu.dispatch(&Launch {
            program: Program {
                key: Key::new("max_pool", [axes as u32, ndim as u32, dtype as u32]),
                wgsl: &|| wgsl(axes, ndim, dtype),
            },
            inputs: &[gpu.bind_tensor(x)?],
            outputs: &[gpu.bind(&values)?, gpu.bind(&positions)?],
            params: &params.words(),
            grid: gpu.dispatch_grid((images * windows).div_ceil(THREADS) as u64)?,
        })?;
    }
    Ok(Some((cast_to_storage(gpu, values, dtype, x)?, positions)))
}
