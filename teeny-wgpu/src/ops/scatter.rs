//! Scatter, without atomics on values: every element of the result collects its own sources, in
//! row-major order, so results are deterministic and all types work. Two algorithms, chosen by the
//! sizes:
//!
//! ```text
//! directly   each element looks through all sources of its line: one launch for few sources
//! sorted     keys      line * size + index of every source
//!            order     a stable radix sort of the keys (radix_sort.rs)
//!            bounds    where the sources of each place begin
//!            runs      256 sources that go to one place, combined: for long lines
//!            collect   each element goes through its sources
//! ```
//!
//! Sorting makes the work near linear in sources and elements, whatever the indices are: with runs
//! a popular place takes no more than N / 256 + 512 steps. Along axes on which the index is
//! constant (the columns of an embedding's gradient) one key serves all. Lines larger than a
//! binding are scattered by halves of their sources, one after the other, and of their places.

use crate::codegen::params::{Sizes, Strides, View, shader_params};
use crate::codegen::shader::{Shader, Start, shader};
use crate::codegen::types::{self, accumulation, accumulator};
use crate::device::Wgpu;
use crate::device::launch::{Key, Launch, Program};
use crate::ops::accumulation::cast_to_storage;
use crate::ops::coalesce::Coalesced;
use crate::ops::copy::{can_compact, compact, contiguous, slice_of, write_view};
use crate::ops::indexing::{
    AxisRange, THREADS, axis_position, check_indices, find_wrong_index, strides_without,
};
use crate::ops::pieces::{by_halves, concat};
use crate::ops::radix_sort::radix_sort;
use teeny_core::{DType, Layout, Result, ScatterMode, StorageRef, Tensor};

/// Sources at one place that are combined in advance.
const RUN: usize = 256;
/// Lines shorter than this never have runs that are worth combining.
const LONG: usize = 1024;
/// Sources of a line that are looked through, and work that is too little to be worth a sort.
const FEW: usize = 24;
const SMALL_WORK: usize = 1 << 19;

shader_params! {
    /// Parameters of `scatter.wgsl`.
    struct ScatterParams(axes: usize) {
        elements: usize,
        axis_size: usize,
        range_low: usize,
        range_length: usize,
        error_record: u32,
        /// Sources of a line.
        sources: usize,
        sizes: Sizes[axes],
        x: View[axes],
        index_step: isize,
        index_offset: usize,
        /// Strides along the other axes, as those of src and places; 0 along the axis.
        index_strides: Strides[axes],
        src_step: isize,
        src_offset: usize,
        src_strides: Strides[axes],
        /// Places number the elements of index.
        place_step: isize,
        place_strides: Strides[axes],
        /// 1 along the axis: the position of an element on it.
        here_strides: Strides[axes],
        index_sizes: Sizes[axes],
    }
}

shader_params! {
    /// Parameters of `scatter_keys.wgsl`.
    struct KeyParams(axes: usize) {
        keys: usize,
        axis_size: usize,
        range_low: usize,
        range_length: usize,
        error_record: u32,
        /// Sources of a line.
        sources: usize,
        /// The key of sources that go nowhere.
        no_place: usize,
        sizes: Sizes[axes],
        index_step: isize,
        index: View[axes],
        place_step: isize,
        place_strides: Strides[axes],
    }
}

shader_params! {
    /// Parameters of `scatter_bounds.wgsl`.
    struct BoundsParams() {
        keys: usize,
        bounds: usize,
    }
}

shader_params! {
    /// Parameters of `scatter_runs.wgsl`.
    struct RunParams(lines: usize, columns: usize) {
        results: usize,
        range_length: usize,
        /// Lines times the length of the range.
        places: usize,
        /// Sources of a line.
        sources: usize,
        columns: usize,
        sizes: Sizes[lines],
        src_step: isize,
        src: View[lines],
        column_sizes: Sizes[columns],
        src_column_strides: Strides[columns],
    }
}

shader_params! {
    /// Parameters of `scatter_collect.wgsl`.
    struct CollectParams(axes: usize) {
        elements: usize,
        range_length: usize,
        /// Sources of a line.
        sources: usize,
        columns: usize,
        sizes: Sizes[axes],
        x: View[axes],
        src_step: isize,
        src_offset: usize,
        src_strides: Strides[axes],
        /// The steps of the key, and of the column, along each axis.
        key_strides: Strides[axes],
        column_strides: Strides[axes],
        index_sizes: Sizes[axes],
    }
}

/// The shader with the function that combines the element `value` with a source `v`.
fn updating(shader: Shader, mode: ScatterMode, dtype: DType) -> Shader {
    let update = match mode {
        ScatterMode::Set => "v".to_string(),
        ScatterMode::Add => "value + v".to_string(),
        ScatterMode::Max => types::larger(dtype, "value", "v"),
        ScatterMode::Min => types::smaller(dtype, "value", "v"),
    };
    shader
        .input("src", dtype)
        .text("value", accumulator(dtype))
        .text("update", update)
        .number("threads", THREADS)
}

/// The function `covered(n)`.
fn covered(axes: usize) -> Shader {
    shader!("scatter_covered").number("axes", axes)
}

/// The shader that looks through the sources of a line.
///
/// # Errors
/// As [`Shader::render`].
pub(crate) fn wgsl(axes: usize, dtype: DType, index: DType, mode: ScatterMode) -> Result<String> {
    let views = [
        ("x", Start::Offset),
        ("index", Start::Offset),
        ("src", Start::Offset),
        ("place", Start::Zero),
        ("here", Start::Zero),
    ];
    let shader = shader!("scatter")
        .params(&ScatterParams::declaration(axes))
        .input("x", dtype)
        .input("index", index)
        .include(axis_position(4, index))
        .include(covered(axes))
        .addresses("element", "", axes, &views);
    updating(shader, mode, dtype).render()
}

/// The shader that makes the keys, of lines that are counted along `axes` joint axes.
///
/// # Errors
/// As [`Shader::render`].
pub(crate) fn keys_wgsl(axes: usize, index: DType) -> Result<String> {
    shader!("scatter_keys")
        .params(&KeyParams::declaration(axes))
        .input("index", index)
        .include(axis_position(2, index))
        .addresses("line", "", axes, &[("index", Start::Offset), ("place", Start::Zero)])
        .number("threads", THREADS)
        .render()
}

/// The shader that finds where the keys from each number on begin.
///
/// # Errors
/// As [`Shader::render`].
pub(crate) fn bounds_wgsl() -> Result<String> {
    shader!("scatter_bounds")
        .params(&BoundsParams::declaration())
        .number("threads", THREADS)
        .render()
}

/// The shader that combines runs of sources, of lines and columns that are counted along joint
/// axes.
///
/// # Errors
/// As [`Shader::render`].
pub(crate) fn runs_wgsl(
    lines: usize,
    columns: usize,
    dtype: DType,
    mode: ScatterMode,
) -> Result<String> {
    let shader = shader!("scatter_runs")
        .params(&RunParams::declaration(lines, columns))
        .addresses("line", "", lines, &[("src", Start::Offset)])
        .addresses("column", "column_", columns, &[("src", Start::Zero)])
        .number("run", RUN);
    updating(shader, mode, dtype).render()
}

/// The shader that goes through the sources of each element, with combined `runs` or without.
///
/// # Errors
/// As [`Shader::render`].
pub(crate) fn collect_wgsl(
    axes: usize,
    dtype: DType,
    mode: ScatterMode,
    runs: bool,
) -> Result<String> {
    let views = [
        ("x", Start::Offset),
        ("src", Start::Offset),
        ("key", Start::Zero),
        ("column", Start::Zero),
    ];
    let shader = shader!("scatter_collect")
        .params(&CollectParams::declaration(axes))
        .input("x", dtype)
        .include(covered(axes))
        .addresses("element", "", axes, &views)
        .number("run", RUN)
        .flag("has_runs", runs)
        .flag("only_last", mode == ScatterMode::Set);
    updating(shader, mode, dtype).render()
}

pub(crate) fn scatter(
    gpu: &Wgpu,
    mode: ScatterMode,
    x: &Tensor,
    axis: usize,
    index: &Tensor,
    src: &Tensor,
) -> Result<StorageRef> {
    gpu.require(x.dtype(), "scatter")?;
    gpu.require(index.dtype(), "scatter")?;
    if x.shape()[axis] == 0 {
        // No launch would look at the indices.
        find_wrong_index(gpu, index, axis, x.shape())?;
    }
    let out = scatter_range(gpu, mode, x, axis, index, src, AxisRange::all(x.shape()[axis]))?;
    check_indices(gpu, index, axis, x.shape())?;
    Ok(out)
}

/// The scatter of the sources in `range`, of which `x` is that part of the axis.
fn scatter_range(
    gpu: &Wgpu,
    mode: ScatterMode,
    x: &Tensor,
    axis: usize,
    index: &Tensor,
    src: &Tensor,
    range: AxisRange,
) -> Result<StorageRef> {
    if x.numel() == 0 || index.numel() == 0 {
        return contiguous(gpu, x);
    }
    let large = [x, index, src].iter().any(|x| gpu.exceeds_binding(x))
        || gpu.len_exceeds_binding(x.numel(), accumulation(x.dtype()));
    if large {
        return scatter_pieces(gpu, mode, x, axis, index, src, range);
    }
    let sources = index.shape()[axis];
    if sources <= FEW || x.numel().saturating_mul(sources) <= SMALL_WORK {
        return scatter_directly(gpu, mode, x, axis, index, src, range);
    }
    let (lines, columns) = lines_and_columns(index, axis);
    let count = lines.iter().map(|&a| index.shape()[a]).product::<usize>() * sources;
    let places =
        lines.iter().map(|&a| index.shape()[a]).product::<usize>().saturating_mul(range.length);
    if gpu.len_exceeds_binding(count.max(places.saturating_add(1)), DType::U32) {
        return scatter_pieces(gpu, mode, x, axis, index, src, range);
    }
    scatter_sorted(gpu, mode, x, axis, index, src, range, &lines, &columns)
}

fn scatter_directly(
    gpu: &Wgpu,
    mode: ScatterMode,
    x: &Tensor,
    axis: usize,
    index: &Tensor,
    src: &Tensor,
    range: AxisRange,
) -> Result<StorageRef> {
    let (dtype, axes) = (x.dtype(), x.ndim());
    let out = gpu.allocate(x.numel(), accumulation(dtype))?;
    let (records, error_record) = range.record(gpu, index);
    let places = Layout::contiguous(*index.shape());
    let params = ScatterParams {
        elements: x.numel(),
        axis_size: range.size,
        range_low: range.low,
        range_length: range.length,
        error_record,
        sources: index.shape()[axis],
        sizes: x.shape()[..].into(),
        x: View::new(x.layout().offset(), x.strides()),
        index_step: index.strides()[axis],
        index_offset: index.layout().offset(),
        index_strides: strides_without(index.layout(), axis),
        src_step: src.strides()[axis],
        src_offset: src.layout().offset(),
        src_strides: strides_without(src.layout(), axis),
        place_step: places.strides()[axis],
        place_strides: strides_without(&places, axis),
        here_strides: (0..axes).map(|a| (a == axis) as isize).collect(),
        index_sizes: covered_sizes(x, axis, index),
    };
    gpu.dispatch(&Launch {
        program: Program {
            key: Key::new(
                "scatter",
                [axes as u32, dtype as u32, index.dtype() as u32, mode as u32],
            ),
            wgsl: &|| wgsl(axes, dtype, index.dtype(), mode),
        },
        inputs: &[gpu.bind_tensor(x)?, gpu.bind_tensor(index)?, gpu.bind_tensor(src)?],
        outputs: &[gpu.bind(&out)?, records],
        params: &params.words(),
        grid: gpu.dispatch_grid(x.numel().div_ceil(THREADS) as u64)?,
    })?;
    cast_to_storage(gpu, out, dtype, x)
}

#[allow(clippy::too_many_arguments)]
fn scatter_sorted(
    gpu: &Wgpu,
    mode: ScatterMode,
    x: &Tensor,
    axis: usize,
    index: &Tensor,
    src: &Tensor,
    range: AxisRange,
    lines: &[usize],
    columns: &[usize],
) -> Result<StorageRef> {
    let (dtype, axes, sources) = (x.dtype(), x.ndim(), index.shape()[axis]);
    let flat = Layout::contiguous(*index.shape());
    let down =
        Coalesced::over(index.shape(), &[index.layout(), &flat, src.layout()], lines)?.padded();
    let across = Coalesced::over(index.shape(), &[src.layout()], columns)?.padded();
    let size = |of: &[usize]| of.iter().map(|&a| index.shape()[a]).product::<usize>();
    let (count, places, width) = (size(lines) * sources, size(lines) * range.length, size(columns));

    // The key of every source, and their order by key.
    let keys = gpu.allocate(count, DType::U32)?;
    let (records, error_record) = range.record(gpu, index);
    let params = KeyParams {
        keys: count,
        axis_size: range.size,
        range_low: range.low,
        range_length: range.length,
        error_record,
        sources,
        no_place: places,
        sizes: (&down.sizes).into(),
        index_step: index.strides()[axis],
        index: View::new(index.layout().offset(), &down.strides[0]),
        place_step: flat.strides()[axis],
        place_strides: (&down.strides[1]).into(),
    };
    let depth = down.sizes.len();
    gpu.dispatch(&Launch {
        program: Program {
            key: Key::new("scatter_keys", [depth as u32, index.dtype() as u32]),
            wgsl: &|| keys_wgsl(depth, index.dtype()),
        },
        inputs: &[gpu.bind_tensor(index)?],
        outputs: &[gpu.bind(&keys)?, records],
        params: &params.words(),
        grid: gpu.dispatch_grid(count.div_ceil(THREADS) as u64)?,
    })?;
    let (keys, order) = radix_sort(gpu, keys, count, places)?;
    let bounds = gpu.allocate(places + 1, DType::U32)?;
    let params = BoundsParams { keys: count, bounds: places + 1 };
    gpu.dispatch(&Launch {
        program: Program { key: Key::new("scatter_bounds", []), wgsl: &bounds_wgsl },
        inputs: &[gpu.bind(&keys)?],
        outputs: &[gpu.bind(&bounds)?],
        params: &params.words(),
        grid: gpu.dispatch_grid((places + 1).div_ceil(THREADS) as u64)?,
    })?;

    // Long runs combined.
    let runs = count / RUN * width;
    let long = sources >= LONG && mode != ScatterMode::Set;
    let combined = gpu.allocate(if long { runs } else { 0 }, accumulation(dtype))?;
    if long {
        let params = RunParams {
            results: runs,
            range_length: range.length,
            places,
            sources,
            columns: width,
            sizes: (&down.sizes).into(),
            src_step: src.strides()[axis],
            src: View::new(src.layout().offset(), &down.strides[2]),
            column_sizes: (&across.sizes).into(),
            src_column_strides: (&across.strides[0]).into(),
        };
        let breadth = across.sizes.len();
        gpu.dispatch(&Launch {
            program: Program {
                key: Key::new(
                    "scatter_runs",
                    [depth as u32, breadth as u32, dtype as u32, mode as u32],
                ),
                wgsl: &|| runs_wgsl(depth, breadth, dtype, mode),
            },
            inputs: &[gpu.bind(&keys)?, gpu.bind(&order)?, gpu.bind_tensor(src)?],
            outputs: &[gpu.bind(&combined)?],
            params: &params.words(),
            grid: gpu.dispatch_grid(runs.div_ceil(THREADS) as u64)?,
        })?;
    }

    // Every element goes through its sources.
    let out = gpu.allocate(x.numel(), accumulation(dtype))?;
    let weights = |of: &[usize], unit: usize| {
        let mut weights = vec![0; axes];
        let mut step = unit;
        for &a in of.iter().rev() {
            weights[a] = step as isize;
            step *= index.shape()[a];
        }
        weights
    };
    let mut key = weights(lines, range.length);
    key[axis] = 1;
    let params = CollectParams {
        elements: x.numel(),
        range_length: range.length,
        sources,
        columns: width,
        sizes: x.shape()[..].into(),
        x: View::new(x.layout().offset(), x.strides()),
        src_step: src.strides()[axis],
        src_offset: src.layout().offset(),
        src_strides: strides_without(src.layout(), axis),
        key_strides: key.into_iter().collect(),
        column_strides: weights(columns, 1).into_iter().collect(),
        index_sizes: covered_sizes(x, axis, index),
    };
    let mut inputs =
        vec![gpu.bind_tensor(x)?, gpu.bind_tensor(src)?, gpu.bind(&order)?, gpu.bind(&bounds)?];
    if long {
        inputs.push(gpu.bind(&combined)?);
    }
    gpu.dispatch(&Launch {
        program: Program {
            key: Key::new("scatter_collect", [axes as u32, dtype as u32, mode as u32, long as u32]),
            wgsl: &|| collect_wgsl(axes, dtype, mode, long),
        },
        inputs: &inputs,
        outputs: &[gpu.bind(&out)?],
        params: &params.words(),
        grid: gpu.dispatch_grid(x.numel().div_ceil(THREADS) as u64)?,
    })?;
    cast_to_storage(gpu, out, dtype, x)
}

/// A scatter that one launch does not reach: only the part that index covers, then halves along
/// another axis; of a single line halves of the sources, one after the other, and halves of
/// the places.
fn scatter_pieces(
    gpu: &Wgpu,
    mode: ScatterMode,
    x: &Tensor,
    axis: usize,
    index: &Tensor,
    src: &Tensor,
    range: AxisRange,
) -> Result<StorageRef> {
    let dtype = x.dtype();
    gpu.checked_bytes(x.numel(), dtype)?;
    if can_compact(gpu, &[x, index, src]) {
        return scatter_range(
            gpu,
            mode,
            &compact(gpu, x)?,
            axis,
            &compact(gpu, index)?,
            &compact(gpu, src)?,
            range,
        );
    }
    let others: Vec<usize> = (0..x.ndim()).filter(|&a| a != axis).collect();
    if others.iter().any(|&a| index.shape()[a] != x.shape()[a]) {
        let part = others
            .iter()
            .try_fold(x.clone(), |x, &a| x.slice(a as isize, 0..index.shape()[a] as isize))?;
        let y = scatter_range(gpu, mode, &part, axis, index, src, range)?;
        let y = gpu.tensor(y, *part.shape(), dtype, x)?;
        let view = others
            .iter()
            .fold(Layout::contiguous(*x.shape()), |view, &a| view.slice(a, 0, index.shape()[a], 1));
        let whole = contiguous(gpu, x)?;
        write_view(gpu, &whole, &view, &y)?;
        return Ok(whole);
    }
    let length = index.shape()[axis];
    let single = index.numel() == length;
    if gpu.len_exceeds_binding(length, DType::U32)
        || single && (gpu.exceeds_binding(index) || gpu.exceeds_binding(src))
    {
        let y = [(0, length / 2), (length / 2, length)].into_iter().try_fold(
            x.clone(),
            |y, (low, high)| {
                let (index, src) =
                    (slice_of(gpu, index, axis, low, high)?, slice_of(gpu, src, axis, low, high)?);
                let y = scatter_range(gpu, mode, &y, axis, &index, &src, range.for_piece())?;
                gpu.tensor(y, *x.shape(), dtype, x)
            },
        )?;
        return Ok(y.storage().clone());
    }
    if !single {
        let run = |parts: &[&Tensor], axis: usize| {
            Ok([scatter_range(gpu, mode, parts[0], axis, parts[1], parts[2], range.for_piece())?])
        };
        let [y] = by_halves(gpu, &[x, index, src], axis, [dtype], x.shape()[axis], run)?;
        return Ok(y);
    }
    let [low, high] = range.halves().map(|(from, to, half)| {
        scatter_range(gpu, mode, &slice_of(gpu, x, axis, from, to)?, axis, index, src, half)
    });
    concat(gpu, &[low?, high?], dtype, x)
}

/// The axes of index other than `axis` along which it varies, and those along which it is constant.
fn lines_and_columns(index: &Tensor, axis: usize) -> (Vec<usize>, Vec<usize>) {
    (0..index.ndim())
        .filter(|&a| a != axis)
        .partition(|&a| index.shape()[a] > 1 && index.layout().strides()[a] != 0)
}

/// The sizes of index that bound the elements of x which it reaches; along the axis that of x.
fn covered_sizes(x: &Tensor, axis: usize, index: &Tensor) -> Sizes {
    (0..x.ndim()).map(|a| if a == axis { x.shape()[a] } else { index.shape()[a] }).collect()
}
