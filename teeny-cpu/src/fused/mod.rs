//! Composite operations that gain from one pass over a row in L1. Core defines what they mean in
//! primitives.

pub(crate) mod attention;
pub(crate) mod cross_entropy;
pub(crate) mod norm;
pub(crate) mod softmax;

use crate::storage::{CpuStorage, Shared, View};
use crate::{Cpu, copy};
use teeny_core::Result;

/// An operand row-major and in the type it is computed in: itself, or a copy.
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
        let copy = copy::computed(cpu, view)?;
        Ok(Packed { ptr: Shared(copy.ptr()), _copy: Some(copy) })
    }

    /// The first byte; only to be read.
    pub(crate) fn ptr(&self) -> *const u8 {
        self.ptr.get()
    }
}
