//! The errors of building kernels.

use super::{Id, MAX_INPUTS, MAX_OUTPUTS, OpCode};
use crate::dtype::DType;
use crate::error::Error;

#[cold]
pub(super) fn mixed() -> Error {
    Error::value("a kernel cannot mix values of two builders")
        .help("builder.embed(..) takes over a finished kernel")
}

#[cold]
pub(super) fn too_many_inputs() -> Error {
    Error::value(format!("a kernel reads at most {MAX_INPUTS} tensors"))
        .help("build two kernels, the second of which reads the outputs of the first")
}

#[cold]
pub(super) fn too_many_params() -> Error {
    let most = u8::MAX as usize + 1;
    Error::value(format!("a kernel has at most {most} run-time parameters"))
        .help("build two kernels, or pass some of the values as input tensors")
}

#[cold]
pub(super) fn too_many_nodes() -> Error {
    Error::value(format!("a kernel has at most {} operations", Id::MAX))
        .help("build two kernels, the second of which reads the outputs of the first")
}

#[cold]
pub(super) fn wrong_outputs(outputs: usize) -> Error {
    Error::value(format!("a kernel writes 1 to {MAX_OUTPUTS} tensors, not {outputs}"))
        .help("build a kernel for each part of the outputs")
}

#[cold]
pub(super) fn not_accepted(op: OpCode, dtype: DType) -> Error {
    let accepted: Vec<&str> =
        DType::ALL.iter().filter(|t| op.accepts(**t)).map(|t| t.name()).collect();
    let to = match dtype {
        t if t.is_float() && op.accepts(DType::Bool) => DType::Bool,
        _ if op.accepts(DType::I64) => DType::I64,
        _ => DType::F32,
    };
    Error::dtype(format!("{} does not work on {dtype}", op.name()))
        .help(format!("x.cast(DType::{})? converts", to.variant()))
        .note(format!("accepted: {}", accepted.join(" ")))
}
