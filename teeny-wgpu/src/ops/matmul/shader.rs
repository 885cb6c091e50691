//! The shaders of matrix products.

use crate::codegen::params::{Declaration, Sizes, View, shader_params};
use crate::codegen::shader::{Shader, Start, shader};
use crate::codegen::types::{self, accumulator};
use crate::ops::matmul::select::{
    Fetch, GEMV_COLUMNS, MatmulKernel, NAIVE_THREADS, TILED_THREADS, Tile,
};
use teeny_core::{DType, Result};

shader_params! {
    /// Parameters of the kernels of products.
    pub(crate) struct MatmulParams(axes: usize) {
        m: usize,
        k: usize,
        n: usize,
        lhs_row_stride: isize,
        lhs_k_stride: isize,
        rhs_k_stride: isize,
        rhs_column_stride: isize,
        matrices: usize,
        /// Tiles of a matrix.
        tiles_down: usize,
        tiles_across: usize,
        /// Slices of k, and their length.
        splits: usize,
        split_length: usize,
        sizes: Sizes[axes],
        lhs: View[axes],
        rhs: View[axes],
    }
}

/// The shader for operands of type `dtype`, of matrices that are counted along `axes` joint axes.
///
/// # Errors
/// As [`Shader::render`].
pub(crate) fn wgsl(kernel: MatmulKernel, axes: usize, dtype: DType) -> Result<String> {
    let value = accumulator(dtype);
    let views = [("lhs", Start::Offset), ("rhs", Start::Offset)];
    let params = MatmulParams::declaration(axes);
    let by_elements = |shader: Shader, threads: usize| {
        shader
            .params(&params)
            .input("lhs", dtype)
            .input("rhs", dtype)
            .addresses("matrix", "", axes, &views)
            .text("value", value)
            .number("threads", threads)
    };
    match kernel {
        MatmulKernel::Tiled { tile, lhs, rhs } => {
            let across = [lhs, rhs].map(|fetch| fetch != Fetch::AlongK);
            let operands = shader!("matmul_operands")
                .flag("left_quads", lhs == Fetch::Quads)
                .flag("right_quads", rhs == Fetch::Quads);
            let mut loads = String::new();
            let words = [("lhs", lhs), ("rhs", rhs)].map(|(name, fetch)| {
                let (word, load) = load(name, fetch, dtype);
                loads.push_str(&load);
                word
            });
            tiled(tile, dtype, &params, words, across, |shader| {
                shader.function(&loads).addresses("matrix", "", axes, &views).include(operands)
            })
        }
        MatmulKernel::GemvAlongK => by_elements(shader!("gemv_along_k"), NAIVE_THREADS)
            .workgroup_reduce("workgroup_sum", value, NAIVE_THREADS, "add", false)
            .render(),
        MatmulKernel::GemvAcrossK => by_elements(shader!("gemv_across_k"), TILED_THREADS)
            .number("columns", GEMV_COLUMNS)
            .render(),
        MatmulKernel::Naive => by_elements(shader!("matmul_naive"), NAIVE_THREADS).render(),
    }
}

/// The type of an operand's words, and the function that loads an element or a group of four.
fn load(name: &str, fetch: Fetch, dtype: DType) -> (&'static str, String) {
    if fetch == Fetch::Quads {
        let (load, values) = types::load_quad(dtype, name, "i", "four");
        let load = format!(
            "fn load_{name}_quad(i: u32) -> Quad {{ {load} return Quad({}); }}\n",
            values.join(", ")
        );
        return (types::quad(dtype), load);
    }
    let load = types::load(dtype, name, "i");
    (types::word(dtype), format!("fn load_{name}(i: u32) -> Value {{ return {load}; }}\n"))
}

/// The tiled shader with the functions that `operands` adds; see `matmul_tiled.wgsl`. `words` are
/// the types of the words of both operands; `across` says of which of them neighbouring threads
/// fetch neighbours across k.
///
/// # Errors
/// As [`Shader::render`].
pub(crate) fn tiled(
    tile: Tile,
    dtype: DType,
    params: &Declaration,
    words: [&str; 2],
    across: [bool; 2],
    operands: impl FnOnce(Shader) -> Shader,
) -> Result<String> {
    let shader = shader!("matmul_tiled")
        .params(params)
        .text("lhs_word", words[0])
        .text("rhs_word", words[1])
        .text("value", accumulator(dtype))
        .number("threads", TILED_THREADS)
        .number("tile_m", tile.rows())
        .number("tile_n", tile.columns())
        .number("tile_k", tile.depth())
        .number("thread_tile", tile.thread_tile())
        .flag("left_partial", tile.rows() / 4 * tile.depth() < TILED_THREADS)
        .flag("left_across", across[0])
        .flag("right_across", across[1]);
    operands(shader).render()
}
