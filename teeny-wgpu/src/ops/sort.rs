//! Stable sorting by ranks: each element counts how many precede it and goes there. First within
//! blocks of 256, then two sorted runs become one, each element finding its place in the other run
//! by bisection, until one run is the line.
//!
//! No two threads write one place and nothing is exchanged, so the result does not depend on
//! timing. Elements travel with their former positions, which decide between equals.

use crate::codegen::params::{Sizes, View, shader_params};
use crate::codegen::shader::{Shader, Start, shader};
use crate::codegen::types::{accumulation, accumulator};
use crate::device::Wgpu;
use crate::device::launch::{Key, Launch, Program};
use crate::ops::accumulation::cast_to_storage;
use crate::ops::coalesce::Coalesced;
use crate::ops::copy::contiguous;
use crate::ops::pieces::by_halves;
use teeny_core::{DType, Error, Layout, Result, Shape, StorageRef, Tensor};

const THREADS: usize = 128;
/// Elements that are sorted by counting.
const BLOCK: usize = 256;

shader_params! {
    /// Parameters of `sort_blocks.wgsl`.
    struct BlockParams(axes: usize) {
        elements: usize,
        /// Elements of a line.
        length: usize,
        x_step: isize,
        sizes: Sizes[axes],
        x: View[axes],
    }
}

shader_params! {
    /// Parameters of `sort_merge.wgsl`.
    struct MergeParams() {
        elements: usize,
        /// Elements of a line.
        length: usize,
        /// Elements of a sorted run.
        width: usize,
    }
}

/// The order of elements of type `dtype`.
fn ordered(shader: Shader, dtype: DType, descending: bool) -> Shader {
    let less = shader!("sort_less")
        .text("value", accumulator(dtype))
        .flag("descending", descending)
        .flag("float", accumulation(dtype).is_float());
    shader.include(less).text("value", accumulator(dtype)).number("threads", THREADS)
}

/// The shader that sorts blocks of lines that are counted along `axes` merged axes.
///
/// # Errors
/// As [`Shader::render`].
pub(crate) fn block_wgsl(axes: usize, dtype: DType, descending: bool) -> Result<String> {
    let shader = shader!("sort_blocks")
        .params(&BlockParams::declaration(axes))
        .input("x", dtype)
        .addresses("line", "", axes, &[("x", Start::Offset)])
        .number("block", BLOCK);
    ordered(shader, dtype, descending).render()
}

/// The shader that merges pairs of sorted runs.
///
/// # Errors
/// As [`Shader::render`].
pub(crate) fn merge_wgsl(dtype: DType, descending: bool) -> Result<String> {
    let shader = shader!("sort_merge").params(&MergeParams::declaration());
    ordered(shader, dtype, descending).render()
}

pub(crate) fn sort(
    gpu: &Wgpu,
    x: &Tensor,
    axis: usize,
    descending: bool,
) -> Result<(StorageRef, StorageRef)> {
    let dtype = x.dtype();
    gpu.require(dtype, "sorting")?;
    let (numel, length) = (x.numel(), x.shape()[axis]);
    if gpu.exceeds_binding(x)
        || gpu.len_exceeds_binding(numel, accumulation(dtype))
        || gpu.len_exceeds_binding(numel, DType::I32)
    {
        let types = [dtype, DType::I32];
        let [values, positions] = by_halves(gpu, &[x], axis, types, length, |parts, axis| {
            let (values, positions) = sort(gpu, parts[0], axis, descending)?;
            Ok([values, positions])
        })?;
        return Ok((values, positions));
    }
    let outputs = || {
        Ok::<_, Error>((
            gpu.allocate(numel, accumulation(dtype))?,
            gpu.allocate(numel, DType::I32)?,
        ))
    };
    let (mut values, mut positions) = outputs()?;
    if numel == 0 {
        return Ok((cast_to_storage(gpu, values, dtype, x)?, positions));
    }
    let others: Vec<usize> = (0..x.ndim()).filter(|&a| a != axis).collect();
    let joint = Coalesced::over(x.shape(), &[x.layout()], &others)?.padded();
    let axes = joint.sizes.len();
    let params = BlockParams {
        elements: numel,
        length,
        x_step: x.strides()[axis],
        sizes: (&joint.sizes).into(),
        x: View::new(x.layout().offset(), &joint.strides[0]),
    };
    let grid = gpu.dispatch_grid(numel.div_ceil(THREADS) as u64)?;
    gpu.dispatch(&Launch {
        program: Program {
            key: Key::new("sort_blocks", [axes as u32, dtype as u32, descending as u32]),
            wgsl: &|| block_wgsl(axes, dtype, descending),
        },
        inputs: &[gpu.bind_tensor(x)?],
        outputs: &[gpu.bind(&values)?, gpu.bind(&positions)?],
        params: &params.words(),
        grid,
    })?;
    let mut width = BLOCK;
    while width < length {
        let (new_values, new_positions) = outputs()?;
        let params = MergeParams { elements: numel, length, width };
        gpu.dispatch(&Launch {
            program: Program {
                key: Key::new("sort_merge", [accumulation(dtype) as u32, descending as u32]),
                wgsl: &|| merge_wgsl(dtype, descending),
            },
            inputs: &[gpu.bind(&values)?, gpu.bind(&positions)?],
            outputs: &[gpu.bind(&new_values)?, gpu.bind(&new_positions)?],
            params: &params.words(),
            grid,
        })?;
        (values, positions) = (new_values, new_positions);
        width *= 2;
    }
    // The lines follow each other here; back to the axis they came from.
    let order: Vec<usize> = others.iter().copied().chain([axis]).collect();
    let sizes: Vec<usize> = order.iter().map(|&a| x.shape()[a]).collect();
    let lines = Layout::contiguous(Shape::new(&sizes)?);
    let mut back = vec![0; order.len()];
    order.iter().enumerate().for_each(|(i, &a)| back[a] = i);
    let view = |storage: StorageRef, dtype: DType| {
        Tensor::from_parts(storage, lines.permute(&back), dtype, x.device().clone())
    };
    let straight = axis + 1 == x.ndim();
    let values = cast_to_storage(gpu, values, dtype, x)?;
    if straight {
        return Ok((values, positions));
    }
    Ok((contiguous(gpu, &view(values, dtype)?)?, contiguous(gpu, &view(positions, DType::I32)?)?))
}
