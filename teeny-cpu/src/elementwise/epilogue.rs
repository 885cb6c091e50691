//! A kernel over the parts of a product, each as soon as it is computed: `Op::MatmulKernel` and
//! `Op::ConvKernel`.
//!
//! The naive form stores the whole product, and then reads it from memory again. Here the task that
//! has computed a rectangle of the product runs the kernel over it while it is in a cache:
//!
//! ```text
//!            columns                input 0     the product, where it is
//!        ┌───────┬──────┐           input 1 ..  the same rectangle of the others: rows, a number for
//!   rows │ final │      │                       each row (bias of a channel), or one number
//!        ├───────┘      │           outputs     the same rectangle of theirs; a single one of the
//!        └──────────────┘                       product's dtype is written over the product
//! ```
//! Values are computed by the loops that `Op::Elementwise` runs, so they have its bits. Kernels
//! whose values need memory for a whole tile (conversions to integers, bools), and other inputs
//! that are strided along the columns, are left to the definition. Independent of the kind of
//! product.

use super::cost::{cost_of, range_len};
use super::plan::{Location, LocationPlan};
use super::tiles::{Outs, Tiles, alloc_outputs, outputs_from};
use crate::storage::{Shared, View};
use crate::walk::Walk;
use crate::{Cpu, threads};
use std::ops::Range;
use std::sync::Arc;
use teeny_core::kernel::{Kernel, MAX_INPUTS, OpCode, OpNode};
use teeny_core::{DType, Outputs, Result, Scalar, Shape, Tensor};

/// Rows that follow one another at equal distances in all other inputs; with fewer, starting the
/// loops again takes longer than reading the product again.
const MIN_EVEN_ROWS: usize = 16;

/// Columns from which loops that take longer than moving their operands are started for each row.
const MIN_ROW: usize = 128;

/// Elements from which leaving shorter rows to the definition costs less than it saves.
const MIN_JOINED: usize = 16 << 10;

/// A kernel bound to the product that it follows, a matrix of `count` rows and `columns` columns.
pub(crate) struct Epilogue<'a> {
    cpu: &'a Cpu,
    kernel: &'a Kernel,
    plan: &'a LocationPlan,
    params: &'a [Scalar],
    /// The size of the product.
    count: usize,
    columns: usize,
    product: Shared<u8>,
    outs: Outs,
    /// The other inputs, and their strides along the columns: 0 or 1.
    others: &'a [View],
    steps: [isize; MAX_INPUTS],
    /// The other inputs along the rows.
    rows: Walk,
}

/// Runs `compute`, which writes a product of `shape` and dtype `kernel.inputs()[0]` to the address
/// that it gets, and calls [`Epilogue::run`] once for each element of it. The last `shape.ndim() -
/// row_axes` axes are the columns. `None`, without a call, if the kernel or the layouts of `others`
/// are left to the definition.
///
/// # Errors
/// As `compute`; if allocation fails.
pub(crate) fn with_epilogue(
    cpu: &Cpu,
    (kernel, params): (&Arc<Kernel>, &[Scalar]),
    (shape, row_axes): (&Shape, usize),
    others: &[&Tensor],
    compute: impl FnOnce(Shared<u8>, &Epilogue<'_>) -> Result<()>,
) -> Result<Option<Outputs>> {
    let (row_sizes, column_sizes) = shape.split_at(row_axes);
    let columns: usize = column_sizes.iter().product();
    let unused = View { ptr: std::ptr::null(), shape: *shape, strides: [0; 8], dtype: DType::F32 };
    let (mut views, mut steps) = ([unused; MAX_INPUTS], [0; MAX_INPUTS]);
    for (i, x) in others.iter().enumerate() {
        views[i] = View::of(x)?;
        let Some(step) = column_step(&views[i].strides()[row_axes..], column_sizes) else {
            return Ok(None);
        };
        steps[i] = step;
    }
    let others = &views[..others.len()];
    let rows = Walk::new(row_sizes, others, 1);
    if rows.rows() > 1 && rows.row() < MIN_EVEN_ROWS {
        return Ok(None);
    }
    LocationPlan::with(kernel, true, |plan| {
        // Short rows of operands that repeat themselves are joined first (`periodic`).
        let short = columns < MIN_ROW && shape.numel() >= MIN_JOINED && !others.is_empty();
        if short && !plan.is_cheap(kernel.nodes()) || !runs_by_blocks(kernel, plan) {
            return Ok(None);
        }
        let dtype = kernel.inputs()[0];
        let (outputs, outs) = alloc_outputs(cpu, kernel, shape.numel())?;
        let (own, product) = match output_in_place(kernel, plan) {
            Some(i) => (None, outs[i]),
            None => {
                let own = cpu.alloc(shape.numel(), dtype)?;
                let product = Shared(own.ptr());
                (Some(own), product)
            }
        };
        let count = row_sizes.iter().product();
        let epilogue = Epilogue {
            cpu,
            kernel,
            plan,
            params,
            count,
            columns,
            product,
            outs,
            others,
            steps,
            rows,
        };
        compute(product, &epilogue)?;
        drop(own);
        Ok(Some(outputs))
    })
}

/// The output that is written over the product: one of its dtype, after which no node reads the
/// product. A single output is computed last of all nodes, element by element in its own place.
fn output_in_place(kernel: &Kernel, plan: &LocationPlan) -> Option<usize> {
    let of_product = |i: &usize| kernel.output_dtype(*i) == kernel.inputs()[0];
    if kernel.outputs().len() == 1 {
        return Some(0).filter(of_product);
    }
    let nodes = kernel.nodes();
    let reads = |node: &&OpNode| {
        node.sources().iter().any(|&source| nodes[source as usize].op == OpCode::Input(0))
    };
    // The loop of a later node may compute inlined values.
    let last = (0..nodes.len()).rev().find(|&id| reads(&&nodes[id])).unwrap_or(0);
    let inlined = (0..nodes.len())
        .any(|id| reads(&&nodes[id]) && matches!(plan.locations[id], Location::Inlined));
    (0..kernel.outputs().len())
        .filter(of_product)
        .find(|&i| !inlined && usize::from(kernel.outputs()[i]) >= last)
}

/// The stride of an operand along the axes of `sizes` joined into one, if it is 0 or 1.
fn column_step(strides: &[isize], sizes: &[usize]) -> Option<isize> {
    let axes = || strides.iter().zip(sizes).rev().filter(|&(_, &size)| size != 1);
    if axes().all(|(&stride, _)| stride == 0) {
        return Some(0);
    }
    let mut next = 1;
    axes()
        .all(|(&stride, &size)| {
            let follows = stride == next;
            next *= size as isize;
            follows
        })
        .then_some(1)
}

/// Whether all values are computed a block at a time, and each output in its own memory, of inputs.
fn runs_by_blocks(kernel: &Kernel, plan: &LocationPlan) -> bool {
    // An output of nothing but numbers is one number, which is repeated over a whole tile.
    let mut reads = Vec::with_capacity(kernel.nodes().len());
    for node in kernel.nodes() {
        let input = matches!(node.op, OpCode::Input(_));
        reads.push(input || node.sources().iter().any(|&source| reads[source as usize]));
    }
    let own = |(i, &output): (usize, &u16)| {
        let own =
            matches!(plan.locations[output as usize], Location::Output(o) if usize::from(o) == i);
        own && reads[output as usize]
    };
    plan.is_blocks_only(kernel.nodes()) && kernel.outputs().iter().enumerate().all(own)
}

impl Epilogue<'_> {
    /// Runs the kernel over a rectangle of the product.
    ///
    /// # Safety
    /// The rectangle is inside the product and written, and no other task reads or writes it.
    ///
    /// # Errors
    /// If allocating scratch memory fails.
    pub(crate) unsafe fn run(&self, rows: Range<usize>, columns: Range<usize>) -> Result<()> {
        let even = self.rows.row();
        let mut row = rows.start;
        while row < rows.end {
            let most = if columns.len() == 1 && self.columns > 1 { 1 } else { even };
            let count = (even - row % even).min(rows.end - row).min(most);
            // SAFETY: by contract; these rows are at equal distances in all operands.
            unsafe { self.even_rows(row, count, &columns)? };
            row += count;
        }
        Ok(())
    }

    /// Runs the kernel over the whole product, on all threads.
    ///
    /// # Safety
    /// The product is written, and no task reads or writes it.
    ///
    /// # Errors
    /// If allocating scratch memory fails.
    pub(crate) unsafe fn run_all(&self) -> Result<()> {
        let each = range_len(self.count * self.columns, cost_of(self.kernel));
        let each = each.div_ceil(self.columns.max(1));
        threads::try_for_each_range(self.count, each, |rows| {
            // SAFETY: by contract; ranges do not overlap.
            unsafe { self.run(rows, 0..self.columns) }
        })
    }

    /// [`Epilogue::run`] over `count` rows from `row` on, which have one stride.
    ///
    /// # Safety
    /// As `run`.
    unsafe fn even_rows(&self, row: usize, count: usize, columns: &Range<usize>) -> Result<()> {
        let Epilogue { cpu, kernel, .. } = *self;
        let first = row * self.columns + columns.start;
        let shape = Shape::new(&[count, columns.len()])?;
        let dtype = kernel.inputs()[0];
        let mut strides = [0; 8];
        (strides[0], strides[1]) = (self.columns as isize, 1);
        let ptr = self.product.get().wrapping_add(first * dtype.size());
        let product = View { ptr, shape, strides, dtype };
        let mut views = [product; MAX_INPUTS];
        for (i, other) in self.others.iter().enumerate() {
            let (view, step, size) = (&mut views[1 + i], self.steps[i], other.dtype.size());
            let (ptr, row_stride) = self.rows.strided_from(i, other.ptr, size, row);
            let offset = columns.start as isize * step * size as isize;
            (view.ptr, view.dtype) = (ptr.wrapping_offset(offset), other.dtype);
            (view.strides[0], view.strides[1]) = (row_stride, step);
        }
        let outs = outputs_from(kernel, &self.outs, first);
        let views = &views[..kernel.inputs().len()];
        let mut tiles = Tiles::new(cpu.level, kernel, self.plan, &shape, views, self.params);
        if columns.len() < self.columns && count > 1 {
            tiles.write_rows(self.columns);
        }
        // SAFETY: by contract. All elements are one tile if rows have gaps between them; otherwise
        // tiles follow one another in the outputs. The product may be the output: see
        // `with_epilogue`.
        unsafe { tiles.run(cpu, 0..count * columns.len(), &outs, false) }
    }
}
