//! Products by subgroups of 8 threads, one tile each; see `software_matmul.wgsl`.

use crate::codegen::shader::{Shader, shader};
use crate::codegen::types;
use crate::device::adapter::Capabilities;
use crate::ops::matmul::product::{Product, Staging};
use crate::ops::software::multiplies_by_subgroups;

/// The kernel whose tiles are computed by subgroups, without workgroup memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Subgroups {
    /// Rows of results: 8, 16 or 32.
    pub rows: usize,
    /// Columns of results of each of 8 threads: 2, or 4.
    pub columns: usize,
    pub lhs: Staging,
    pub rhs: Staging,
}

impl Subgroups {
    /// Multiplications of a product for which 32 rows pay: they take 0.8 of the time of 16, but nearly
    /// a second to compile.
    const LONG: usize = 1 << 27;
}

/// The kernel for `product`, where it is used. A matrix times a vector has a better one.
pub(crate) fn select(gpu: &Capabilities, product: &Product<'_>) -> Option<Subgroups> {
    let rhs = &product.rhs;
    let suits = multiplies_by_subgroups(gpu, product.dtype)
        && product.n >= 8
        && (product.m > 1 || rhs.along.unsigned_abs() > rhs.across.unsigned_abs());
    suits.then(|| tile(product))
}

/// The kernel for these sizes and operands.
pub(crate) fn tile(product: &Product<'_>) -> Subgroups {
    let Product { batch, m, k, n, .. } = *product;
    let rhs = product.rhs.staging(k, n);
    let work = [batch, m, k, n].into_iter().fold(1, usize::saturating_mul);
    let most = if work >= Subgroups::LONG { 32 } else { 16 };
    Subgroups {
        rows: m.next_power_of_two().clamp(8, most),
        columns: if n <= 16 && (rhs.along || !rhs.quads) { 2 } else { 4 },
        lhs: product.lhs.staging(k, m),
        rhs,
    }
}

/// The shader of `kernel`, which still needs its results, operands and parameters.
pub(crate) fn template() -> Shader {
    shader!("software_matmul")
}

/// `shader` with how it reads both operands, and its tile.
pub(crate) fn with_tile(shader: Shader, kernel: Subgroups) -> Shader {
    let left = ["m", "lhs_row_stride", "lhs_k_stride"];
    let right = ["n", "rhs_column_stride", "rhs_k_stride"];
    shader
        .include(operand("lhs", kernel.lhs, types::LANES, left))
        .include(operand("rhs", kernel.rhs, kernel.columns, right))
        .number("rows", kernel.rows)
        .number("columns", kernel.columns)
        .flag("lhs_along", kernel.lhs.along)
        .flag("rhs_along", kernel.rhs.along)
}

/// How operand `name` is read, `size` elements at a time.
fn operand(
    name: &str,
    staging: Staging,
    size: usize,
    [count, stride, k_stride]: [&str; 3],
) -> Shader {
    let operand = shader!("software_matmul_operand")
        .text("name", name)
        .text("k_stride", k_stride)
        .flag("along", staging.along)
        .flag("quads", staging.quads);
    let operand = match staging.along {
        true => operand,
        false => operand.number("size", size).text("count", count),
    };
    match staging.along || staging.quads {
        true => operand,
        false => operand.text("stride", stride),
    }
}
