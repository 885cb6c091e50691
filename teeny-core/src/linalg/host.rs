//! Batches of matrices, downloaded and uploaded: one matrix after another, computed in f64, rounded
//! once.

use super::single::{Failure, Matrix, compute};
use crate::device::Device;
use crate::dtype::DType;
use crate::element::Element;
use crate::error::{Error, Result};
use crate::memory;
use crate::op::{LinalgOp, Outputs, matrix_parts};
use crate::tensor::Tensor;

pub(super) fn on_host(device: &dyn Device, op: LinalgOp, inputs: &[&Tensor]) -> Result<Outputs> {
    let dtype = inputs[0].dtype();
    let values =
        inputs.iter().map(|x| widen(&device.download(x)?, dtype)).collect::<Result<Vec<_>>>()?;
    let (lead, _) = matrix_parts(inputs[0]);
    let results = op.results(inputs)?;
    let mut out = results
        .iter()
        .map(|(shape, _)| memory::reserved::<f64>(shape.numel()))
        .collect::<Result<Vec<_>>>()?;
    for element in 0..lead.iter().product() {
        let mut matrices = Vec::with_capacity(inputs.len());
        for (x, values) in inputs.iter().zip(&values) {
            let [rows, columns] = matrix_parts(x).1;
            matrices.push(Matrix {
                rows,
                columns,
                values: &values[element * rows * columns..][..rows * columns],
            });
        }
        let results = compute(op, &matrices).map_err(|failure| failure.error(lead, element))?;
        out.iter_mut().zip(results).for_each(|(all, part)| all.extend(part));
    }
    let mut outputs = Outputs::new();
    for values in out {
        outputs.push(device.upload(&narrow(values, dtype)?, dtype)?);
    }
    Ok(outputs)
}

fn widen(bytes: &[u8], dtype: DType) -> Result<Vec<f64>> {
    if dtype == DType::F64 {
        f64::from_bytes(bytes)
    } else {
        memory::collected(f32::from_bytes(bytes)?.into_iter().map(f64::from))
    }
}

fn narrow(values: Vec<f64>, dtype: DType) -> Result<Vec<u8>> {
    if dtype == DType::F64 {
        return memory::collected(f64::to_bytes(&values).iter().copied());
    }
    let values = memory::collected(values.into_iter().map(|v| v as f32))?;
    memory::collected(f32::to_bytes(&values).iter().copied())
}

impl Failure {
    /// The error for matrix `element` of a batch with leading axes `lead`.
    fn error(&self, lead: &[usize], element: usize) -> Error {
        let mut rest = element;
        let mut index: Vec<usize> =
            lead.iter().rev().map(|&size| (rest % size, rest /= size).0).collect();
        index.reverse();
        let which = if lead.is_empty() {
            "the matrix".to_string()
        } else {
            format!("the matrix at {index:?}")
        };
        match self {
            Failure::Singular { row } => Error::value(format!(
                "{which} is singular: row {row} has become zero in the elimination"
            ))
            .help(
                "a.pinv(None)?.matmul(&b) or a.lstsq(&b) gives the least-squares \
                 solution; adding a small multiple of eye(n) makes it regular",
            ),
            Failure::NotPositive { order } => Error::value(format!(
                "{which} is not positive definite: its leading minor of \
                 order {order} is not positive"
            ))
            .help(
                "if rounding is the cause, add a small multiple of eye(n); eigh takes any \
                 symmetric matrix",
            ),
            Failure::NotFinite => Error::value(format!("{which} contains NaN or an infinity"))
                .help("x.is_finite()? shows where"),
            Failure::NotConverged => {
                Error::value(format!("the iteration did not converge for {which}"))
                    .help("scaling the matrix to a size near 1 may help")
            }
        }
    }
}
