//! The requirements of row programs.

use super::spec;
use crate::error::{Error, Result};
use crate::kernel::{Extent, Fold, Kernel, OpCode};
use crate::messages::{nothing_to_compare, row_counts, wrong_row_input};
use crate::op::{TensorSpec, TensorSpecs};
use crate::scalar::Scalar;
use crate::shape::Shape;
use crate::tensor::Tensor;

/// [`Op::Rows`](crate::Op::Rows). Each output has `shape`, or size 1 along `axes`, and the type of
/// [`Kernel::output_dtype`].
///
/// # Errors
/// If the numbers of inputs or parameters are not the program's, the program has no input, or an
/// input has another dtype or shape; if the axes are not ascending axes of `shape`; or a row
/// without elements has a value that needs one.
pub fn rows(
    program: &Kernel,
    inputs: &[&Tensor],
    params: &[Scalar],
    shape: &Shape,
    axes: &[usize],
) -> Result<TensorSpecs> {
    super::elementwise::ascending(shape, axes)?;
    let types = program.inputs();
    let counted = inputs.len() == types.len() && params.len() == program.params().len();
    if !counted || inputs.is_empty() {
        return Err(row_counts(program, inputs.len(), params.len()));
    }
    let one = shape.reduced(axes, true);
    let of = |extent| if extent == Extent::Element { shape } else { &one };
    for (i, x) in inputs.iter().enumerate() {
        let wanted = of(program.input_extent(i));
        if x.dtype() != types[i] || x.shape() != wanted {
            return Err(wrong_row_input(i, spec(x), types[i], wanted));
        }
    }
    let output =
        |o: usize| -> TensorSpec { (*of(program.output_extent(o)), program.output_dtype(o)) };
    let outputs: TensorSpecs = (0..program.outputs().len()).map(output).collect();
    if shape.numel() == 0 && outputs.iter().any(|(shape, _)| shape.numel() > 0) {
        no_elements(program, shape, axes)?;
    }
    Ok(outputs)
}

/// An error if a fold of no elements has no value.
#[cold]
fn no_elements(program: &Kernel, shape: &Shape, axes: &[usize]) -> Result<()> {
    for node in program.nodes() {
        match node.op {
            OpCode::Fold(Fold::Max | Fold::Min) => {
                let axis = axes.iter().copied().find(|&axis| shape[axis] == 0);
                return Err(nothing_to_compare(axis.unwrap_or(0), shape));
            }
            OpCode::At => {
                return Err(Error::index(format!("cannot read from empty rows of {shape}"))
                    .help("check that the axis has elements: x.shape()"));
            }
            _ => {}
        }
    }
    Ok(())
}
