//! The shaders of a scatter, `scatter*.wgsl`: their parameters, and their text for types and
//! numbers of axes. Independent of tensors.

use crate::codegen::params::{Sizes, Strides, View, shader_params};
use crate::codegen::shader::{Shader, Start, shader};
use crate::codegen::types::{self, accumulator};
use crate::ops::indexing::{THREADS, axis_position};
use teeny_core::{DType, Result, ScatterMode};

/// Sources at one place that are combined in advance.
pub(super) const RUN: usize = 256;

shader_params! {
    /// Parameters of `scatter.wgsl`.
    pub(super) struct ScatterParams(axes: usize) {
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
        /// Strides along the other axes, likewise for src and places; 0 along the axis.
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
    /// Parameters of `scatter_lines.wgsl`.
    pub(super) struct LineParams(axes: usize) {
        lines: usize,
        axis_size: usize,
        range_low: usize,
        range_length: usize,
        error_record: u32,
        /// Sources of a line.
        sources: usize,
        sizes: Sizes[axes],
        index_step: isize,
        index: View[axes],
        src_step: isize,
        src: View[axes],
        /// Places number the elements of index.
        place_step: isize,
        place_strides: Strides[axes],
        out_step: isize,
        out_strides: Strides[axes],
    }
}

shader_params! {
    /// Parameters of `scatter_keys.wgsl`.
    pub(super) struct KeyParams(axes: usize) {
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
    pub(super) struct BoundsParams() {
        keys: usize,
        bounds: usize,
    }
}

shader_params! {
    /// Parameters of `scatter_runs.wgsl`.
    pub(super) struct RunParams(lines: usize, columns: usize) {
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
    pub(super) struct CollectParams(axes: usize) {
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

/// The shader that goes through the sources of each line, of lines that are counted along `axes`
/// merged axes.
///
/// # Errors
/// As [`Shader::render`].
pub(crate) fn lines_wgsl(
    axes: usize,
    dtype: DType,
    index: DType,
    mode: ScatterMode,
) -> Result<String> {
    let views = [
        ("index", Start::Offset),
        ("src", Start::Offset),
        ("place", Start::Zero),
        ("out", Start::Zero),
    ];
    let shader = shader!("scatter_lines")
        .params(&LineParams::declaration(axes))
        .input("index", index)
        .include(axis_position(3, index))
        .addresses("line", "", axes, &views);
    updating(shader, mode, dtype).render()
}

/// The shader that makes the keys, of lines that are counted along `axes` merged axes.
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

/// The shader that combines runs of sources, of lines and columns that are counted along merged
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
