//! A row program with its operands, as data.

use crate::Cpu;
use crate::copy::Packed;
use crate::machine::program::Program;
use crate::simd::Level;
use crate::storage::{CpuStorage, Shared};
use teeny_core::kernel::{Extent, Kernel};
use teeny_core::{DType, Scalar, Tensor};

/// A per-element operand in memory.
pub(super) struct ElementOperand {
    pub first: Shared<u8>,
    /// Bytes from a row to the next outer one, to the next position, and to the next inner row.
    pub outer: isize,
    pub along: isize,
    pub inner: isize,
    pub dtype: DType,
    /// Keeps a copy alive.
    pub _copy: Option<CpuStorage>,
}

/// A row program with its operands.
pub(super) struct Job<'a> {
    pub(super) cpu: &'a Cpu,
    pub(super) level: Level,
    pub(super) program: &'a Kernel,
    pub(super) code: &'a Program,
    pub(super) inputs: &'a [&'a Tensor],
    pub(super) params: &'a [Scalar],
    /// Bytes of an element as it is computed.
    pub(super) size: usize,
    /// The number of rows is outer times inner, at each position of which inner ones are
    /// neighbours.
    pub(super) outer: usize,
    pub(super) n: usize,
    pub(super) inner: usize,
    /// Whether 16-bit floats with an element at each position are converted before and after: parts
    /// of vectors of them take long.
    pub(super) converts: bool,
    /// The per-element and the per-row operands.
    pub(super) elements: Vec<ElementOperand>,
    pub(super) row_operands: Vec<Packed>,
    pub(super) outputs: Vec<Shared<u8>>,
}

impl Job<'_> {
    /// The number of rows.
    pub(super) fn rows(&self) -> usize {
        self.outer * self.inner
    }

    /// The type of an output's elements as the passes write them.
    pub(super) fn output_dtype(&self, o: usize) -> DType {
        let dtype = self.program.output_dtype(o);
        match self.converts && self.program.output_extent(o) == Extent::Element {
            true => dtype.compute(),
            false => dtype,
        }
    }
}
