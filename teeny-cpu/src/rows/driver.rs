//! Runs a row program: the order of axes, the ranges of rows, and the passes over them.

use super::bind::{Bound, Memory, Side};
use super::job::Job;
use super::schedule::{RowSchedule, select_schedule};
use crate::float::{Number, lanes};
use crate::machine::program::Program;
use crate::machine::registers::{SHORT, run_rows};
use crate::machine::values::Element;
use crate::storage::{Shared, View};
use crate::threads::try_for_each_range;
use crate::{Cpu, copy, half};
use std::sync::Arc;
use teeny_core::kernel::{Extent, Kernel};
use teeny_core::{DType, Outputs, Result, Scalar, Shape, Tensor};

/// Elements per range of rows, at least.
const CHUNK: usize = 8 << 10;
/// Positions along a row that every float of 32 bits has.
const MAX_INDEX: usize = 1 << 24;

impl<'a> Job<'a> {
    /// As [`super::run`].
    pub(super) fn run(
        cpu: &'a Cpu,
        program: &'a Kernel,
        code: &'a Program,
        inputs: &'a [&'a Tensor],
        params: &'a [Scalar],
        shape: &Shape,
        axes: &[usize],
    ) -> Result<Option<Outputs>> {
        let is_axis = |axis: &usize| axes.contains(axis);
        let n: usize = axes.iter().map(|&axis| shape[axis]).product();
        let rows = shape.numel() / n;
        let (size, level) = (code.dtype.size(), cpu.level);
        let counts = code.elements.contains(&Element::Index);
        if counts && n > MAX_INDEX {
            return Ok(None);
        }
        let lanes = if size == 8 { lanes::<f64>(level) } else { lanes::<f32>(level) };
        // Axes of one element may lie between the axes of the row.
        let real: Vec<usize> = axes.iter().copied().filter(|&axis| shape[axis] > 1).collect();
        let (first, end) = match (real.first(), real.last()) {
            (Some(&first), Some(&last)) => (first, last + 1),
            _ => (shape.ndim(), shape.ndim()),
        };
        let together = (first..end).all(|axis| is_axis(&axis) || shape[axis] == 1);
        let behind: usize = (end..shape.ndim()).map(|axis| shape[axis]).product();
        let stored = inputs.iter().map(|x| x.dtype());
        let written = (0..program.outputs().len()).map(|o| program.output_dtype(o));
        let halves = stored.chain(written).any(|dtype| dtype.is_half());
        let mut inner = if together { behind } else { 1 };
        let mut schedule = select_schedule(rows, n, inner, size, lanes, halves);
        let in_place = together && (inner == 1 || matches!(schedule, RowSchedule::Columns(_)));
        let order: Vec<usize> = if in_place {
            (0..shape.ndim()).collect()
        } else {
            // The axes of the row last.
            inner = 1;
            schedule = select_schedule(rows, n, inner, size, lanes, halves);
            let kept = (0..shape.ndim()).filter(|axis| !is_axis(axis));
            kept.chain(axes.iter().copied()).collect()
        };
        // The first and the end of the row's axes in this order.
        let split = match in_place {
            true => (first, end),
            false => (shape.ndim() - axes.len(), shape.ndim()),
        };
        let outer = rows / inner;
        let mut job = Job {
            cpu,
            level,
            program,
            code,
            inputs,
            params,
            size,
            outer,
            n,
            inner,
            converts: halves && inner < 8 * lanes && matches!(schedule, RowSchedule::Columns(_)),
            elements: Vec::new(),
            row_operands: Vec::new(),
            outputs: Vec::new(),
        };
        for &element in &code.elements {
            let operand = job.element_operand(element, &order, split, schedule)?;
            job.elements.push(operand);
        }
        for &operand in &code.row_operands {
            let operand = job.row_operand(operand, &order, split)?;
            job.row_operands.push(operand);
        }
        let mut outs = Vec::with_capacity(program.outputs().len());
        for o in 0..program.outputs().len() {
            let is_element = program.output_extent(o) == Extent::Element;
            let len = if is_element { shape.numel() } else { rows };
            let out = cpu.alloc(len, job.output_dtype(o))?;
            job.outputs.push(Shared(out.ptr()));
            outs.push(out);
        }
        match code.dtype {
            DType::F64 => job.run_typed::<f64>(schedule)?,
            _ => job.run_typed::<f32>(schedule)?,
        }
        let converts = job.converts;
        drop(job);
        let mut outputs = Outputs::new();
        for (o, out) in outs.into_iter().enumerate() {
            let dtype = program.output_dtype(o);
            if program.output_extent(o) == Extent::Row {
                outputs.push(Arc::new(out));
                continue;
            }
            if in_place {
                let out = match converts {
                    true => copy::cast_to_storage(cpu, out, shape.numel(), dtype)?,
                    false => out,
                };
                outputs.push(Arc::new(out));
                continue;
            }
            // The rows were gathered from another order of axes; restore it.
            let view = View::in_order(out.ptr(), shape, &order, dtype);
            outputs.push(Arc::new(copy::contiguous(cpu, &view)?));
        }
        Ok(Some(outputs))
    }

    /// Computes all rows by this schedule.
    ///
    /// # Errors
    /// If memory runs out.
    fn run_typed<T: Number>(&self, schedule: RowSchedule) -> Result<()> {
        let short = self.n < SHORT * lanes::<T>(self.level);
        let (count, side, tiles) = match schedule {
            RowSchedule::Along(count) => (count.min(self.outer), Side::Along { short }, 0),
            // One more for rows of 16 bits as f32.
            RowSchedule::Blocks(count) => {
                (count, Side::Across, self.elements.len() + self.outputs.len() + 1)
            }
            RowSchedule::Columns(count) => (count, Side::Across, 0),
        };
        let memory = Memory::new(self, count, side, tiles);
        let numbers = self.numbers();
        let template = self.template(&memory, &numbers);
        let columns = matches!(schedule, RowSchedule::Columns(_));
        let groups = self.inner.div_ceil(count);
        let tasks = if columns { self.outer * groups } else { self.outer.div_ceil(count) };
        try_for_each_range(tasks, CHUNK / (self.n * count), |range| {
            let block = self.cpu.scratch(memory.bytes)?;
            let base = block.ptr();
            let mut bound = template.bound(base);
            for task in range {
                let (outer, inner, left) = match task % groups * count {
                    inner if columns => (task / groups, inner, self.inner - inner),
                    _ => (task * count, 0, self.outer - task * count),
                };
                let rows = count.min(left);
                bound.move_to(outer, inner);
                // SAFETY: these rows are this task's, and the memory has `count` of them.
                unsafe {
                    if let RowSchedule::Blocks(_) = schedule {
                        self.read_block::<T>(&memory, base, outer, rows);
                    }
                    self.passes::<T>(&bound, &memory, base, rows);
                    if let RowSchedule::Blocks(_) = schedule {
                        self.write_block::<T>(&memory, base, outer, rows);
                    }
                    self.write_rows(&memory, base, outer * self.inner + inner, rows);
                }
            }
            Ok(())
        })
    }

    /// All passes over some rows.
    ///
    /// # Safety
    /// `bound` has the instructions of these rows, which no other task writes.
    unsafe fn passes<T: Number>(
        &self,
        bound: &Bound<'_>,
        memory: &Memory,
        base: *mut u8,
        rows: usize,
    ) {
        for (k, pass) in self.code.passes.iter().enumerate() {
            let [before, code] = bound.pass(k);
            // SAFETY: passed on; all row values have `rows` elements.
            unsafe {
                if !before.is_empty() {
                    run_rows(self.level, self.size, before, 0..1, 0..rows, false);
                }
                match memory.side {
                    _ if code.is_empty() => {}
                    Side::Along { .. } => self.pass_along::<T>(code, pass, memory, base, rows),
                    Side::Across => self.pass_across::<T>(code, pass, memory, base, rows),
                }
            }
        }
    }

    /// Writes the outputs of one value a row.
    ///
    /// # Safety
    /// The memory has the values of these rows, which belong to this task in the outputs.
    unsafe fn write_rows(&self, memory: &Memory, base: *mut u8, first: usize, rows: usize) {
        for &(o, row) in &self.code.row_outputs {
            let dtype = self.output_dtype(o);
            let to = self.outputs[o].get().wrapping_add(first * dtype.size());
            let from = match self.row_operands.get(row) {
                Some(operand) => operand.ptr().wrapping_add(first * self.size),
                None => memory.row(base, row - self.row_operands.len()).cast_const(),
            };
            // SAFETY: by contract.
            unsafe {
                if dtype.is_half() {
                    half::from_f32(self.level, dtype, from, to, rows);
                } else {
                    std::ptr::copy_nonoverlapping(from, to, rows * self.size);
                }
            }
        }
    }
}
