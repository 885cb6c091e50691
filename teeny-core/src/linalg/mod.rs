//! Solving and factoring matrices on the host.
//!
//! [`LinalgOp`] is the vocabulary; the methods that users call are in `tensor/linalg`. A device
//! without such routines uses [`on_host`]: matrices are downloaded, computed in f64 by the `faer`
//! crate (feature `linalg`), rounded once to their type and uploaded. Everything runs on the
//! calling thread, so the result does not depend on the number of threads.

#[cfg(feature = "linalg")]
mod host;
#[cfg(feature = "linalg")]
mod single;

pub use crate::op::{LinalgOp, Triangle};

use crate::device::DeviceRef;
use crate::error::Result;
use crate::op::Outputs;
use crate::tensor::Tensor;

/// [`Op::Linalg`](crate::Op::Linalg) by downloading the matrices and uploading the results.
///
/// # Errors
/// If a matrix has no such result, or the device fails; always, without the feature `linalg`.
#[cfg(feature = "linalg")]
pub fn on_host(device: &DeviceRef, op: LinalgOp, inputs: &[&Tensor]) -> Result<Outputs> {
    crate::validate::linalg(op, inputs)?;
    host::on_host(&**device, op, inputs)
}

/// The error of a program without the feature `linalg`.
///
/// # Errors
/// Always.
#[cfg(not(feature = "linalg"))]
pub fn on_host(_device: &DeviceRef, _op: LinalgOp, _inputs: &[&Tensor]) -> Result<Outputs> {
    Err(crate::error::Error::unsupported("this program was built without linear algebra")
        .help("enable the feature `linalg` of teeny-core (or of teeny-nn)"))
}
