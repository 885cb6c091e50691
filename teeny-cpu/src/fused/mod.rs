//! Operations that core defines in primitives and that are faster in one pass over a row in L1.

pub(crate) mod attention;
pub(crate) mod cross_entropy;
pub(crate) mod norm;
mod norm_f64;
pub(crate) mod softmax;
mod softmax_columns;

use crate::storage::{CpuStorage, Shared, View};
use crate::{Cpu, copy};
use teeny_core::Result;

/// Which function of `softmax`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Row {
    /// `exp(x - max) / sum`
    Softmax,
    /// `x - max - log(sum)`
    LogSoftmax,
    /// `y (g - sum(g y))`
    SoftmaxGrad,
    /// `g - exp(y) sum(g)`
    LogSoftmaxGrad,
}

/// An operand that is row-major and in its compute dtype: itself, or a copy.
pub(crate) struct Packed {
    ptr: Shared<u8>,
    /// Keeps a copy alive.
    _copy: Option<CpuStorage>,
}

impl Packed {
    /// The elements of `view`.
    pub(crate) fn of(cpu: &Cpu, view: &View) -> Result<Packed> {
        if view.is_contiguous() && !view.dtype.is_half() {
            return Ok(Packed { ptr: Shared(view.ptr.cast_mut()), _copy: None });
        }
        let copy = copy::to_compute_dtype(cpu, view)?;
        Ok(Packed { ptr: Shared(copy.ptr()), _copy: Some(copy) })
    }

    /// The first byte. It is only read.
    pub(crate) fn ptr(&self) -> *const u8 {
        self.ptr.get()
    }
}
