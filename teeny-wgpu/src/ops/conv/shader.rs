//! The shaders of convolutions.

use crate::codegen::epilogue::{EpiloguePlan, results};
use crate::codegen::params::{Sizes, Strides, shader_params};
use crate::codegen::shader::{Shader, shader};
use crate::codegen::types::{accumulation, accumulator, word, zero};
use crate::ops::matmul::select::Tile;
use crate::ops::matmul::{Results, tiled};
use teeny_core::{DType, Result};

/// Threads of a workgroup where each computes one result.
pub(crate) const DIRECT_THREADS: usize = 64;

/// The result of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConvKind {
    Forward,
    InputGrad,
    WeightGrad,
}

/// A kernel: a tile per workgroup, or a thread per result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConvKernel {
    Tiled(Tile),
    Direct,
}

shader_params! {
    /// Parameters of convolutions over `ndim` spatial axes; `k`, `m` and `n` as in products.
    pub(crate) struct ConvParams(ndim: usize) {
        m: usize,
        k: usize,
        n: usize,
        /// Groups of channels.
        matrices: usize,
        /// Tiles of a matrix.
        tiles_down: usize,
        tiles_across: usize,
        /// Slices of k, and their length.
        splits: usize,
        split_length: usize,
        lhs_offset: usize,
        rhs_offset: usize,
        lhs_strides: Strides[2 + ndim],
        rhs_strides: Strides[2 + ndim],
        x_sizes: Sizes[ndim],
        y_sizes: Sizes[ndim],
        kernel_sizes: Sizes[ndim],
        stride: Sizes[ndim],
        padding: Sizes[ndim],
        dilation: Sizes[ndim],
        /// Channels of a group, of x and of the result.
        in_channels: usize,
        out_channels: usize,
    }
}

/// The functions that read the images; see `conv_operands.wgsl`.
fn operands(kind: ConvKind, ndim: usize, dtype: DType) -> Shader {
    // The sizes over which a column, and a k, are decomposed.
    let (column_sizes, inner_sizes) = match kind {
        ConvKind::Forward => ("y_sizes", "kernel_sizes"),
        ConvKind::InputGrad => ("x_sizes", "kernel_sizes"),
        ConvKind::WeightGrad => ("kernel_sizes", "y_sizes"),
    };
    let row_channels = if kind == ConvKind::InputGrad { "in_channels" } else { "out_channels" };
    shader!("conv_operands")
        .text("column_sizes", column_sizes)
        .text("inner_sizes", inner_sizes)
        .text("row_channels", row_channels)
        .text("zero", zero(accumulation(dtype)))
        .number("ndim", ndim)
        .flag("forward", kind == ConvKind::Forward)
        .flag("input_grad", kind == ConvKind::InputGrad)
        .flag("weight_grad", kind == ConvKind::WeightGrad)
}

/// The shader over `ndim` spatial axes; `packed` is for results that [`ConvSizes::packs`].
///
/// [`ConvSizes::packs`]: crate::ops::conv::ConvSizes::packs
///
/// # Errors
/// As [`Shader::render`].
pub(crate) fn wgsl(
    kind: ConvKind,
    kernel: ConvKernel,
    ndim: usize,
    dtype: DType,
    epilogue: Option<EpiloguePlan<'_>>,
    packed: bool,
) -> Result<String> {
    let mut params = ConvParams::declaration(ndim);
    let operands = operands(kind, ndim, dtype);
    match kernel {
        ConvKernel::Tiled(tile) => {
            let words = [word(dtype); 2];
            tiled(
                tile,
                dtype,
                Results { epilogue, packed },
                &mut params,
                words,
                [false, true],
                |shader| {
                    shader
                        .flag("double", false)
                        .input("lhs", dtype)
                        .input("rhs", dtype)
                        .include(operands)
                        .include(shader!("conv_tile"))
                },
            )
        }
        ConvKernel::Direct => results(shader!("conv_direct"), dtype, epilogue, &mut params)?
            .params(&params)
            .input("lhs", dtype)
            .input("rhs", dtype)
            .include(operands)
            .text("value", accumulator(dtype))
            .number("threads", DIRECT_THREADS)
            .render(),
    }
}
