//! Gather: each element of the result follows its index. A kernel serves a range of the axis: all
//! of it, or, where one line is larger than a binding, a part at a time.

use crate::codegen::params::{Sizes, Strides, View, shader_params};
use crate::codegen::shader::{Start, shader};
use crate::codegen::types::{accumulation, accumulator, zero};
use crate::device::launch::{Key, Launch, Program};
use crate::device::{Wgpu, error};
use crate::ops::accumulation::cast_to_storage;
use crate::ops::copy::{can_compact, compact, slice_of};
use crate::ops::indexing::{AxisRange, THREADS, axis_position, check_indices, strides_without};
use crate::ops::pieces::{by_halves, concat, split_point};
use teeny_core::{DType, Result, StorageRef, Tensor};

shader_params! {
    /// Parameters of `gather.wgsl`.
    struct GatherParams(axes: usize) {
        elements: usize,
        axis_size: usize,
        range_low: usize,
        range_length: usize,
        error_record: u32,
        sizes: Sizes[axes],
        /// The stride of x along the axis.
        x_step: isize,
        x_offset: usize,
        /// Strides along the other axes; 0 along the axis.
        x_strides: Strides[axes],
        index: View[axes],
    }
}

/// The shader that gathers elements of type `dtype` along an axis; with `pairs`, of 16-bit floats,
/// two a thread.
///
/// # Errors
/// As [`crate::codegen::shader::Shader::render`].
pub(crate) fn wgsl(axes: usize, dtype: DType, index: DType, pairs: bool) -> Result<String> {
    let shader = match pairs {
        true => shader!("gather").store_pairs("out", dtype),
        false => shader!("gather").text("out_word", accumulator(dtype)),
    };
    shader
        .flag("pairs", pairs)
        .params(&GatherParams::declaration(axes))
        .input("x", dtype)
        .input("index", index)
        .include(axis_position(3, index))
        .addresses("element", "", axes, &[("x", Start::Offset), ("index", Start::Offset)])
        .text("value", accumulator(dtype))
        .text("zero", zero(accumulation(dtype)))
        .number("threads", THREADS)
        .render()
}

pub(crate) fn gather(gpu: &Wgpu, x: &Tensor, axis: usize, index: &Tensor) -> Result<StorageRef> {
    gpu.require(x.dtype(), "gather")?;
    gpu.require(index.dtype(), "gather")?;
    let out = gather_range(gpu, x, axis, index, AxisRange::all(x.shape()[axis]))?;
    check_indices(gpu, index, axis, x.shape())?;
    Ok(out)
}

/// The gather of the elements in `range`, of which `x` is that part; 0 elsewhere.
fn gather_range(
    gpu: &Wgpu,
    x: &Tensor,
    axis: usize,
    index: &Tensor,
    range: AxisRange,
) -> Result<StorageRef> {
    let (dtype, axes) = (x.dtype(), index.ndim());
    if gpu.exceeds_binding(x)
        || gpu.exceeds_binding(index)
        || gpu.len_exceeds_binding(index.numel(), accumulation(dtype))
    {
        return gather_pieces(gpu, x, axis, index, range);
    }
    let pairs = dtype.is_half() && index.numel().is_multiple_of(2);
    let out = gpu.allocate(index.numel(), if pairs { dtype } else { accumulation(dtype) })?;
    let threads = if pairs { index.numel() / 2 } else { index.numel() };
    let (records, error_record) = range.record(gpu, index);
    let params = GatherParams {
        elements: index.numel(),
        axis_size: range.size,
        range_low: range.low,
        range_length: range.length,
        error_record,
        sizes: index.shape()[..].into(),
        x_step: x.strides()[axis],
        x_offset: x.layout().offset(),
        x_strides: strides_without(x.layout(), axis),
        index: View::new(index.layout().offset(), index.strides()),
    };
    gpu.dispatch(&Launch {
        program: Program {
            key: Key::new(
                "gather",
                [axes as u32, dtype as u32, index.dtype() as u32, pairs.into()],
            ),
            wgsl: &|| wgsl(axes, dtype, index.dtype(), pairs),
        },
        inputs: &[gpu.bind_tensor(x)?, gpu.bind_tensor(index)?],
        outputs: &[gpu.bind(&out)?, records],
        params: &params.words(),
        grid: gpu.dispatch_grid(threads.div_ceil(THREADS) as u64)?,
    })?;
    cast_to_storage(gpu, out, dtype, x)
}

/// A gather that one launch does not reach: halves of the rows of a table, which are parts of its
/// buffer; of other tensors halves along another axis; of a single line, halves of the indices,
/// then halves of the axis.
fn gather_pieces(
    gpu: &Wgpu,
    x: &Tensor,
    axis: usize,
    index: &Tensor,
    range: AxisRange,
) -> Result<StorageRef> {
    let dtype = x.dtype();
    gpu.checked_bytes(index.numel(), dtype)?;
    if can_compact(gpu, &[x, index]) {
        return gather_range(gpu, &compact(gpu, x)?, axis, &compact(gpu, index)?, range);
    }
    let x = (0..x.ndim())
        .filter(|&a| a != axis)
        .try_fold(x.clone(), |x, a| x.slice(a as isize, 0..index.shape()[a] as isize))?;
    let length = index.shape()[axis];
    let is_table =
        x.is_contiguous() && x.shape()[axis] > 1 && x.shape()[..axis].iter().all(|&n| n == 1);
    let results = accumulation(dtype);
    if is_table && !gpu.exceeds_binding(index) && !gpu.len_exceeds_binding(index.numel(), results) {
        return gather_halves(gpu, &x, axis, index, range);
    }
    if index.numel() > length {
        let run = |parts: &[&Tensor], axis: usize| {
            Ok([gather_range(gpu, parts[1], axis, parts[0], range.for_piece())?])
        };
        let [y] = by_halves(gpu, &[index, &x], axis, [dtype], length, run)?;
        return Ok(y);
    }
    if gpu.exceeds_binding(index) || gpu.len_exceeds_binding(length, results) {
        let mid = split_point(length, 1, dtype);
        let halves = [(0, mid), (mid, length)].map(|(low, high)| {
            gather_range(gpu, &x, axis, &slice_of(gpu, index, axis, low, high)?, range.for_piece())
        });
        let [low, high] = halves;
        return concat(gpu, &[low?, high?], dtype, &x);
    }
    gather_halves(gpu, &x, axis, index, range)
}

/// A gather from both halves of the axis.
fn gather_halves(
    gpu: &Wgpu,
    x: &Tensor,
    axis: usize,
    index: &Tensor,
    range: AxisRange,
) -> Result<StorageRef> {
    let dtype = x.dtype();
    let [low, high] = range.halves().map(|(from, to, half)| {
        let y = gather_range(gpu, &slice_of(gpu, x, axis, from, to)?, axis, index, half)?;
        Ok::<_, teeny_core::Error>((gpu.tensor(y, *index.shape(), dtype, x)?, half))
    });
    let ((low, _), (high, half)) = (low?, high?);
    let middle = u32::try_from(half.low).map_err(|_| error::beyond(half.low))?;
    Ok(index.cast(DType::U32)?.lt(middle)?.where_cond(&low, &high)?.storage().clone())
}
