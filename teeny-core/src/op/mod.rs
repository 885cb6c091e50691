//! A request to a device as data: [`Op`] names an operation and borrows its operands.
//!
//! `Tensor` methods make an `Op` and run it; a [`Device`](crate::Device) executes it or declines; a
//! wrapper reads it and passes it on with other operands.
//!
//! ```text
//! table     Op: one row per operation                kinds      ReduceOp, ScanOp, SortOrder ..
//! requests  what follows from the rows               linalg     solvers and decompositions
//! fields    the kinds of fields that an op has       attention  options and operands of attention
//! recorded  an op without operands                   window     strides, padding; conv_shape
//! outputs   shapes and dtypes, storages              operands   the tensors that an op reads
//! cost      bytes, floating-point operations
//! ```
//!
//! This folder is data. `Op::outputs` is implemented in `validate`, `Op::run` in `dispatch`: both
//! import this folder, which imports neither them nor a device.
//!
//! To add a fused operation: a row in `table`, its requirements in [`crate::validate`], its
//! definition in [`crate::definition`], its gradient and its tangent in teeny-autograd, and a case
//! of the conformance suite. A device that has no kernel for it needs no change.

mod attention;
mod conv_shape;
mod cost;
mod fields;
mod kinds;
mod linalg;
mod operands;
mod outputs;
#[doc(hidden)]
pub mod recorded;
mod requests;
mod table;
mod window;

pub use attention::{Attention, AttentionInputs};
pub(crate) use conv_shape::{at_least_one, pool_window_error, transposed_channels_error};
pub use conv_shape::{conv_shape, pool_shape};
pub use cost::Cost;
pub use kinds::{Extremum, ReduceOp, ScanOp, ScatterMode, SortOrder};
#[cfg(feature = "linalg")]
pub(crate) use linalg::matrix_parts;
pub use linalg::{LinalgOp, Triangle};
pub use operands::Operands;
pub(crate) use outputs::taken;
pub use outputs::{Outputs, PerOutput, TensorSpec, TensorSpecs};
pub(crate) use recorded::{Recorded, RuntimeArgs};
pub use table::Op;
pub use window::Window;

use crate::tensor::Tensor;

impl std::fmt::Debug for Op<'_> {
    /// The name with the dtypes and shapes of the operands.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut call = f.debug_struct(self.name());
        for (name, x) in self.named_operands() {
            call.field(name, &format_args!("{} {}", x.dtype(), x.shape()));
        }
        call.finish()
    }
}

impl<'a> Op<'a> {
    /// [`Op::operands`] with their names.
    pub fn named_operands(&self) -> impl Iterator<Item = (&'static str, &'a Tensor)> + use<'a> {
        let (names, operands) = (self.operand_names(), self.operands());
        let count = operands.len();
        (0..count)
            .map(move |i| (names.get(i).or(names.last()).copied().unwrap_or("x"), operands[i]))
    }
}
