//! Row programs in one pass over memory: every pass over a row follows the one before while the row
//! is in L1.
//!
//! The naive form is core's definition: a kernel or a reduction for each step, over all rows. Here
//! the values of a program (`values`) become instructions (`program`) of the machine that runs
//! elementwise kernels (`machine::registers`), which are bound to the memory of some rows (`bind`)
//! and run pass by pass (`driver`, `along`, `across`). `schedule` selects the mapping of rows to
//! vectors; per-row integers are computed before (`exact`).

mod across;
mod along;
mod bind;
mod driver;
mod exact;
mod folds;
mod job;
mod operands;
mod schedule;

use crate::Cpu;
use crate::kernel_cache::{Cache, cached};
use crate::machine::program::Program;
use job::Job;
use std::cell::Cell;
use std::sync::Arc;
use teeny_core::kernel::Kernel;
use teeny_core::{Outputs, Result, Scalar, Shape, Tensor};

thread_local! {
    /// The programs of kernels that ran before, if they have one.
    static PROGRAMS: Cache<Option<Program>, 32> = const { [const { Cell::new(None) }; 32] };
}

/// Runs `program` on the rows of `shape` along `axes`. None if the machine does not compute it: if
/// values that differ along the row are integers, a result is not a float, float types are mixed,
/// or rows are empty; and on the baseline.
///
/// # Errors
/// If allocation fails; if an input is not on this device; if a position that is read is outside
/// its row.
pub(crate) fn run(
    cpu: &Cpu,
    program: &Arc<Kernel>,
    inputs: &[&Tensor],
    params: &[Scalar],
    shape: &Shape,
    axes: &[usize],
) -> Result<Option<Outputs>> {
    if shape.numel() == 0 || !cpu.level.is_native() {
        return Ok(None);
    }
    cached(
        &PROGRAMS,
        program,
        || Program::of(program),
        |code| match code {
            Some(code) => Job::run(cpu, program, code, inputs, params, shape, axes),
            None => Ok(None),
        },
    )
}
