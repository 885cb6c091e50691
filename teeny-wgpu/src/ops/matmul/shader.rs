//! The shaders of matrix products.

use crate::codegen::epilogue::{EpiloguePlan, packed_results, results};
use crate::codegen::params::{Declaration, Sizes, View, shader_params};
use crate::codegen::shader::{Shader, Start, shader};
use crate::codegen::types::{self, accumulator};
use crate::ops::matmul::product::{Fetch, Staging};
use crate::ops::matmul::select::{
    Cooperative, GEMV_COLUMNS, MatmulKernel, NAIVE_THREADS, TILED_THREADS, Tile,
};
use crate::ops::software;
use teeny_core::{DType, Error, Result};

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

/// The shader for operands of type `dtype`, of matrices that are counted along `axes` merged axes.
/// `packed` is for [`Product::packs`](crate::ops::matmul::product::Product::packs).
///
/// # Errors
/// As [`Shader::render`].
pub(crate) fn wgsl(
    kernel: MatmulKernel,
    axes: usize,
    dtype: DType,
    epilogue: Option<EpiloguePlan<'_>>,
    packed: bool,
) -> Result<String> {
    let value = accumulator(dtype);
    let views = [("lhs", Start::Offset), ("rhs", Start::Offset)];
    let mut params = MatmulParams::declaration(axes);
    let by_elements = |shader: Shader, threads: usize, mut params: Declaration| {
        let shader = results(shader, dtype, epilogue, &mut params)?;
        let shader = shader
            .params(&params)
            .input("lhs", dtype)
            .input("rhs", dtype)
            .addresses("matrix", "", axes, &views)
            .text("value", value)
            .number("threads", threads);
        Ok::<_, Error>(shader)
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
            tiled(tile, dtype, Results { epilogue, packed }, &mut params, words, across, |shader| {
                shader
                    .flag("double", types::accumulation(dtype).size() == 4)
                    .function(&loads)
                    .addresses("matrix", "", axes, &views)
                    .include(operands)
            })
        }
        MatmulKernel::Cooperative(kernel) => {
            let element = if dtype == DType::F16 { "f16" } else { "f32" };
            let operand = |name: &str, staging, count, stride| {
                operand(name, staging).text("count", count).text("stride", stride)
            };
            let word = |staging: Staging| match staging.quads {
                true => format!("vec4<{element}>"),
                false => element.to_string(),
            };
            let (fewest, most) = kernel.subgroup_threads;
            let shader = results(shader!("matmul_cooperative"), dtype, epilogue, &mut params)?
                .params(&params)
                .addresses("matrix", "", axes, &views)
                .include(operand("lhs", kernel.lhs, "m", "lhs_row_stride"))
                .include(operand("rhs", kernel.rhs, "n", "rhs_column_stride"))
                .text("lhs_word", word(kernel.lhs))
                .text("rhs_word", word(kernel.rhs))
                .text("element", element)
                .number("threads", kernel.threads())
                .number("size", kernel.size)
                .number("tile", kernel.tile())
                .number("tile_k", Cooperative::DEPTH)
                .number("pad", 16 / dtype.size())
                .number("groups", kernel.groups())
                .number("subgroup_threads", most)
                .flag("fixed", fewest == most)
                .flag("half", dtype == DType::F16)
                .flag("lhs_along", kernel.lhs.along)
                .flag("rhs_along", kernel.rhs.along);
            shader.render()
        }
        MatmulKernel::Subgroups(kernel) => {
            let shader = results(software::matmul::template(), dtype, epilogue, &mut params)?;
            let shader = input(shader.params(&params), "lhs", dtype, kernel.lhs.quads);
            let shader = input(shader, "rhs", dtype, kernel.rhs.quads);
            let shader = shader.addresses("matrix", "", axes, &views).text("value", value);
            software::matmul::with_tile(shader, kernel).render()
        }
        MatmulKernel::GemvAlongK(kernel) => {
            let shader = results(shader!("gemv_along_k"), dtype, epilogue, &mut params)?
                .params(&params)
                .addresses("matrix", "", axes, &views)
                .text("value", value)
                .number("threads", NAIVE_THREADS)
                .number("team", kernel.team())
                .number("group", kernel.group())
                .number("lanes", if kernel.quads { types::LANES } else { 1 })
                .flag("whole", !kernel.teams)
                .flag("quads", kernel.quads)
                .flag("down", kernel.down);
            let shader = input(shader, "lhs", dtype, kernel.quads);
            let shader = input(shader, "rhs", dtype, kernel.quads);
            let (left, right) = (("lhs", "lhs_k_stride"), ("rhs", "rhs_k_stride"));
            let (long, short) = if kernel.down { (left, right) } else { (right, left) };
            let shader = shader.text("long_name", long.0).text("short_name", short.0);
            let shader = match kernel.quads {
                true => shader,
                false => shader.text("long_stride", long.1).text("short_stride", short.1),
            };
            match kernel.teams {
                true => shader.text("workgroup_sum", ""),
                false => {
                    shader.workgroup_reduce("workgroup_sum", value, NAIVE_THREADS, "add", false)
                }
            }
            .render()
        }
        MatmulKernel::GemvAcrossK => by_elements(shader!("gemv_across_k"), TILED_THREADS, params)?
            .number("columns", GEMV_COLUMNS)
            .render(),
        MatmulKernel::Naive => {
            by_elements(shader!("matmul_naive"), NAIVE_THREADS, params)?.render()
        }
    }
}

/// An input that is read in groups of four if `quads`, else by elements.
fn input(shader: Shader, name: &str, dtype: DType, quads: bool) -> Shader {
    match quads {
        true => shader.input_quads(name, dtype),
        false => shader.input(name, dtype),
    }
}

/// The functions that read an operand of the kernel on cooperative matrices.
fn operand(name: &str, staging: Staging) -> Shader {
    shader!("matmul_cooperative_operand")
        .text("name", name)
        .text("pitch", format!("{}_PITCH", name.to_uppercase()))
        .flag("along", staging.along)
        .flag("quads", staging.quads)
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

/// How the tiled shader writes its results.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Results<'a> {
    /// A kernel on each result.
    pub epilogue: Option<EpiloguePlan<'a>>,
    /// Whether it writes groups of four results in the type of the product.
    pub packed: bool,
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
    ends: Results<'_>,
    params: &mut Declaration,
    words: [&str; 2],
    across: [bool; 2],
    operands: impl FnOnce(Shader) -> Shader,
) -> Result<String> {
    let Results { epilogue, packed } = ends;
    let pairs = epilogue.is_some_and(|epilogue| epilogue.pairs);
    let shader = match packed {
        true => packed_results(shader!("matmul_tiled"), dtype)?,
        false => results(shader!("matmul_tiled"), dtype, epilogue, params)?,
    };
    let shader = shader
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
        .flag("epilogue", epilogue.is_some())
        .flag("pairs", pairs)
        .number("epilogue_step", 1 + pairs as usize)
        .flag("packed", packed)
        .flag("left_across", across[0])
        .flag("right_across", across[1]);
    operands(shader).render()
}
