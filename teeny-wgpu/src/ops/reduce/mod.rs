//! Reductions, and reductions of a kernel's result without storing it: one shader for both.
//!
//! ```text
//! a workgroup   per result (and chunk), whose threads combine their parts   long rows, everything
//! 8 threads     per result, sixteen results in a workgroup        thousands of rows, or of some hundred
//! a thread      per result (and chunk)                                      columns, short rows
//! ```
//!
//! Long reductions with few results are split into chunks, whose partial results a second pass
//! reduces; beyond the range of 32 bits, halves are reduced one after the other. Floats accumulate
//! in f32 in blocks of 64, so errors grow with the number of blocks rather than of elements. The
//! order is fixed by the sizes: results are the same in every run.
//!
//! ```text
//! mod          which way a reduction goes        shader  accumulate    its text and its launches
//! parts        halves and chunks of inputs that exceed one launch
//! ```

mod accumulate;
mod parts;
pub(crate) mod shader;

use crate::codegen::generator;
use crate::codegen::types::accumulation;
use crate::device::Wgpu;
use crate::device::limits::MAX_BINDINGS;
use crate::ops::accumulation::cast_to_storage;
use crate::ops::copy::{can_compact, compact_all, slice_of};
use crate::ops::elementwise::elementwise;
use parts::{ARG_CHUNK, MIN_ARG_LINES};
use std::sync::Arc;
use teeny_core::kernel::table::UnaryTable;
use teeny_core::{DType, Error, Kernel, ReduceOp, Result, Scalar, Shape, StorageRef, Tensor};

/// The kernel whose output is its input.
fn identity(dtype: DType) -> Result<&'static Arc<Kernel>> {
    static IDENTITY: UnaryTable = UnaryTable::new();
    IDENTITY.get(dtype, |x| x)
}

/// Reduces `axes` of `x`.
pub(crate) fn reduce(gpu: &Wgpu, op: ReduceOp, x: &Tensor, axes: &[usize]) -> Result<StorageRef> {
    reduce_kernel(gpu, identity(x.dtype())?, &[x], &[], x.shape(), op, axes)
}

/// The sum of `slices` results of equal size, one after the other in `storage`.
pub(crate) fn sum_slices(
    gpu: &Wgpu,
    storage: StorageRef,
    slices: usize,
    like: &Tensor,
) -> Result<StorageRef> {
    let (shape, dtype) = (Shape::new(&[slices, storage.len() / slices])?, storage.dtype());
    reduce(gpu, ReduceOp::Sum, &gpu.tensor(storage, shape, dtype, like)?, &[0])
}

/// Runs `kernel` at every index of `shape` and reduces `axes` of its result.
pub(crate) fn reduce_kernel(
    gpu: &Wgpu,
    kernel: &Arc<Kernel>,
    inputs: &[&Tensor],
    params: &[Scalar],
    shape: &Shape,
    op: ReduceOp,
    axes: &[usize],
) -> Result<StorageRef> {
    for dtype in kernel
        .inputs()
        .iter()
        .chain(kernel.params())
        .copied()
        .chain(kernel.nodes().iter().map(|n| n.dtype))
    {
        gpu.require(dtype, "reductions")?;
    }
    if inputs.is_empty() {
        return Err(Error::unsupported("a reduction of a kernel without inputs"));
    }
    Reduction { gpu, kernel, inputs, params, shape, op, axes }.run()
}

/// A reduction of a kernel's result, of the sizes `shape`, along `axes`.
#[derive(Clone, Copy)]
struct Reduction<'a> {
    gpu: &'a Wgpu,
    kernel: &'a Arc<Kernel>,
    /// At least one.
    inputs: &'a [&'a Tensor],
    params: &'a [Scalar],
    shape: &'a Shape,
    op: ReduceOp,
    axes: &'a [usize],
}

impl Reduction<'_> {
    /// The dtype of the kernel's result.
    fn dtype(&self) -> DType {
        self.kernel.output_dtype(0)
    }

    /// The inputs that the kernel reads.
    fn used(&self) -> Vec<usize> {
        generator::inputs_of(self.kernel, 1)
    }

    /// The axes that are kept.
    fn kept(&self) -> Vec<usize> {
        (0..self.shape.ndim()).filter(|a| !self.axes.contains(a)).collect()
    }

    /// The kernel's result, stored.
    fn values(&self) -> Result<Tensor> {
        let mut outputs =
            elementwise(self.gpu, self.kernel, self.inputs, self.params, self.shape)?.into_iter();
        let y = outputs.next().ok_or_else(|| Error::internal("a kernel returned no output"))?;
        self.gpu.tensor(y, *self.shape, self.dtype(), self.inputs[0])
    }

    /// Calls `f` with this reduction of the elements `low..high` along `axis`.
    fn on_part<R>(
        &self,
        axis: usize,
        low: usize,
        high: usize,
        f: impl FnOnce(&Reduction<'_>) -> Result<R>,
    ) -> Result<R> {
        let parts = self
            .inputs
            .iter()
            .map(|x| slice_of(self.gpu, x, axis, low, high))
            .collect::<Result<Vec<_>>>()?;
        let inputs: Vec<&Tensor> = parts.iter().collect();
        f(&Reduction { inputs: &inputs, shape: &self.shape.with_size(axis, high - low), ..*self })
    }

    /// [`Reduction::on_part`] for the elements before `mid` along `axis` and for the others; `f` also
    /// gets the first of them.
    fn on_halves<R>(
        &self,
        axis: usize,
        mid: usize,
        f: impl Fn(&Reduction<'_>, usize) -> Result<R>,
    ) -> Result<[R; 2]> {
        Ok([
            self.on_part(axis, 0, mid, |half| f(half, 0))?,
            self.on_part(axis, mid, self.shape[axis], |half| f(half, mid))?,
        ])
    }

    /// The results.
    fn run(&self) -> Result<StorageRef> {
        let Reduction { gpu, inputs, shape, op, axes, .. } = *self;
        let (dtype, used, kept) = (self.dtype(), self.used(), self.kept());
        if used.len() >= MAX_BINDINGS || used.is_empty() {
            return reduce(gpu, op, &self.values()?, axes);
        }
        if can_compact(gpu, inputs) {
            let inputs = compact_all(gpu, inputs)?;
            let inputs: Vec<&Tensor> = inputs.iter().collect();
            return Reduction { inputs: &inputs, ..*self }.run();
        }
        let [count, elements] = [&kept[..], axes]
            .map(|axes| axes.iter().fold(1, |product: usize, &a| product.saturating_mul(shape[a])));
        gpu.checked_bytes(count, op.output(dtype))?;
        if count == 0 {
            return gpu.allocate(0, op.output(dtype));
        }
        let large = used.iter().any(|&i| gpu.exceeds_binding(inputs[i]));
        if let Some(&axis) = kept.iter().find(|&&a| shape[a] > 1)
            && (large || gpu.len_exceeds_binding(count, accumulation(op.output(dtype))))
        {
            return self.kept_halves(axis);
        }
        if op.is_arg() {
            if elements > i32::MAX as usize {
                let message = format!(
                    "the positions of an axis of {elements} elements exceed {}, the last i32",
                    i32::MAX
                );
                return Err(Error::unsupported(message).help("reduce parts of the axis"));
            }
            if large {
                return self.arg_halves(axes[0]);
            }
            if count < MIN_ARG_LINES && elements >= 4 * ARG_CHUNK {
                return self.arg_chunks(axes[0]);
            }
        }
        cast_to_storage(gpu, self.accumulated()?, op.output(dtype), inputs[0])
    }
}
