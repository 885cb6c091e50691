//! The requirements of the operations on quantised weights.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::messages::not_integers;
use crate::op::TensorSpec;
use crate::quant::{Part, packed_parts};
use crate::tensor::Tensor;

/// The bytes of a quantised weight of rows of `columns` elements; returns the number of rows.
///
/// # Errors
/// If rows are not whole blocks, or the blocks have another number of bytes or another type.
pub fn quant_blocks(blocks: &Tensor, parts: &[Part], columns: usize) -> Result<usize> {
    let [rows, bytes] = packed_parts(parts, columns)?;
    if blocks.dtype() != DType::U8 || blocks.shape()[..] != [bytes] || !blocks.is_contiguous() {
        let (shape, dtype) = (blocks.shape(), blocks.dtype());
        return Err(Error::value(format!(
            "the blocks are {shape} of {dtype}, and {rows} rows of {columns} have ({bytes}) of u8"
        ))
        .help("QuantTensor::from_blocks makes them"));
    }
    Ok(rows)
}

/// [`Op::QuantMatmul`](crate::Op::QuantMatmul).
///
/// # Errors
/// If x is not f32, its rows are not whole blocks of each part, or the blocks have another number
/// of bytes.
pub fn quant_matmul(x: &Tensor, blocks: &Tensor, parts: &[Part]) -> Result<TensorSpec> {
    let Some((axis, &columns)) = x.shape().iter().enumerate().next_back() else {
        return Err(Error::shape("x is a scalar, not (.., columns)").help("x.reshape(1)?"));
    };
    if x.dtype() != DType::F32 {
        let text = format!("x is {}, not f32", x.dtype());
        return Err(Error::dtype(text).help("QuantTensor::linear converts it"));
    }
    let rows = quant_blocks(blocks, parts, columns)?;
    Ok((x.shape().resized(axis, rows)?, DType::F32))
}

/// [`Op::QuantRows`](crate::Op::QuantRows).
///
/// # Errors
/// If the index is not of integers, or the blocks have another number of bytes.
pub fn quant_rows(
    blocks: &Tensor,
    index: &Tensor,
    parts: &[Part],
    columns: usize,
) -> Result<TensorSpec> {
    if !index.dtype().is_int() {
        return Err(not_integers("index", index.dtype()));
    }
    quant_blocks(blocks, parts, columns)?;
    Ok((index.shape().with_axis(index.ndim(), columns)?, DType::F32))
}
