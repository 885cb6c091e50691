//! Pooling: the largest value of each window and its position, or its mean, in one look through the
//! window. See `shaders/pool.wgsl`, and for windows of two along rows of neighbours
//! `pool_pairs.wgsl`. The gradients are convolutions and scatters, which the definitions
//! in core compose of this engine's kernels.

use crate::codegen::params::{Number, Sizes, Strides, View, shader_params};
use crate::codegen::shader::{Start, shader};
use crate::codegen::types::{self, accumulation, accumulator};
use crate::device::Wgpu;
use crate::device::launch::{Key, Launch, Program};
use crate::ops::accumulation::{cast_to_storage, lowest};
use crate::ops::coalesce::Coalesced;
use crate::ops::copy::{can_compact, compact};
use crate::ops::window::countable;
use teeny_core::{DType, Outputs, Result, Scalar, Tensor, Window, validate};

const THREADS: usize = 64;

/// The result that a kernel computes for each window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pool {
    /// The largest element, and its position as i32.
    Max = 0,
    /// The mean, of floats only.
    Mean = 1,
}

shader_params! {
    /// Parameters of `pool.wgsl` and `pool_pairs.wgsl`.
    struct PoolParams(axes: usize, ndim: usize, dtype: DType) {
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
        /// Sizes of the batch axes.
        sizes: Sizes[axes],
        x: View[axes],
        /// For max pooling: the result of a window of padding alone. For means: the number of
        /// elements of a window.
        constant: Number[dtype],
    }
}

/// The shader for `ndim` spatial axes and images that are counted along `axes` merged axes.
///
/// # Errors
/// As [`crate::codegen::shader::Shader::render`].
pub(crate) fn wgsl(pool: Pool, axes: usize, ndim: usize, dtype: DType) -> Result<String> {
    let lowest = match dtype {
        DType::I8 => "-128i",
        DType::I16 => "-32768i",
        _ => types::lowest(dtype),
    };
    let first = if pool == Pool::Max { lowest } else { types::zero(accumulation(dtype)) };
    shader!("pool")
        .params(&PoolParams::declaration(axes, ndim, accumulation(dtype)))
        .input("x", dtype)
        .addresses("image", "", axes, &[("x", Start::Offset)])
        .text("value", accumulator(dtype))
        .number("threads", THREADS)
        .number("ndim", ndim)
        .text("first", first)
        .flag("max", pool == Pool::Max)
        .flag("float", accumulation(dtype).is_float())
        .render()
}

/// The shader for windows that [`has_pairs`].
///
/// # Errors
/// As [`crate::codegen::shader::Shader::render`].
pub(crate) fn pairs_wgsl(pool: Pool, axes: usize, ndim: usize, dtype: DType) -> Result<String> {
    shader!("pool_pairs")
        .params(&PoolParams::declaration(axes, ndim, accumulation(dtype)))
        .input_quads("x", dtype)
        .store_pairs("y", dtype)
        .addresses("image", "", axes, &[("x", Start::Offset)])
        .number("threads", THREADS)
        .number("last", ndim - 1)
        .flag("max", pool == Pool::Max)
        .render()
}

/// True if each row of `x` is neighbours and begins at a multiple of four, for a type that is
/// computed in f32.
fn has_row_quads(x: &Tensor) -> bool {
    let last = x.ndim() - 1;
    matches!(x.dtype(), DType::F16 | DType::BF16 | DType::F32)
        && x.strides()[last] == 1
        && x.shape()[last].is_multiple_of(4)
        && x.layout().offset().is_multiple_of(4)
        && (0..last).all(|a| x.strides()[a] % 4 == 0 || x.shape()[a] == 1)
}

/// True if windows have two elements of a row of neighbours, two apart along it and without
/// padding, and each row has an even number of them.
fn has_pairs(x: &Tensor, size: &[usize], window: &Window) -> bool {
    let last = size.len() - 1;
    has_row_quads(x)
        && (size[last], window.stride[last], window.dilation[last]) == (2, 2, 1)
        && window.padding[last] == 0
}

/// The values of every window and their positions if they have some; nothing if some tensor is
/// larger than a binding, or a window sees more places than numbers of a shader reach.
pub(crate) fn pool(
    gpu: &Wgpu,
    pool: Pool,
    x: &Tensor,
    size: &[usize],
    window: &Window,
) -> Result<Option<Outputs>> {
    let (dtype, ndim) = (x.dtype(), size.len());
    gpu.require(dtype, "pooling")?;
    if can_compact(gpu, &[x]) {
        return self::pool(gpu, pool, &compact(gpu, x)?, size, window);
    }
    let lead = x.ndim() - ndim;
    let spatial = &x.shape()[lead..];
    let shape = validate::pool_shape(x.shape(), size, window)?;
    let (windows, counts) = (shape.numel(), &shape[lead..]);
    let reachable = (0..ndim).all(|axis| countable(spatial[axis], size[axis], window, axis));
    if pool == Pool::Mean && !dtype.is_float()
        || gpu.exceeds_binding(x)
        || gpu.len_exceeds_binding(windows, accumulation(dtype))
        || !reachable
    {
        return Ok(None);
    }
    let pairs = has_pairs(x, size, window);
    let values = gpu.allocate(windows, if pairs { dtype } else { accumulation(dtype) })?;
    let positions = match pool {
        Pool::Max => Some(gpu.allocate(windows, DType::I32)?),
        Pool::Mean => None,
    };
    if windows > 0 {
        let leading: Vec<usize> = (0..lead).collect();
        let joint = Coalesced::over(x.shape(), &[x.layout()], &leading)?.padded();
        let axes = joint.sizes.len();
        let constant = match pool {
            Pool::Max => lowest(dtype),
            Pool::Mean => Scalar::Float(size.iter().map(|&n| n as f64).product()),
        };
        let params = PoolParams {
            windows,
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
            constant: Number { value: constant, dtype: accumulation(dtype) },
        };
        let mut outputs = vec![gpu.bind(&values)?];
        if let Some(positions) = &positions {
            outputs.push(gpu.bind(positions)?);
        }
        let threads = if pairs { windows / 2 } else { windows };
        let key = [axes as u32, ndim as u32, dtype as u32, pool as u32, pairs as u32];
        gpu.dispatch(&Launch {
            program: Program {
                key: Key::new("pool", key),
                wgsl: &|| match pairs {
                    true => pairs_wgsl(pool, axes, ndim, dtype),
                    false => wgsl(pool, axes, ndim, dtype),
                },
            },
            inputs: &[gpu.bind_tensor(x)?],
            outputs: &outputs,
            params: &params.words(),
            grid: gpu.dispatch_grid(threads.div_ceil(THREADS) as u64)?,
        })?;
    }
    let values = cast_to_storage(gpu, values, dtype, x)?;
    Ok(Some(match positions {
        Some(positions) => (values, positions).into(),
        None => values.into(),
    }))
}
