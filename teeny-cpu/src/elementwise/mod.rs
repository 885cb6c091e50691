//! Scalar programs over views: `Op::Elementwise` and `Op::ElementwiseInPlace`.
//!
//! A kernel of one f32 operation over contiguous operands runs as one loop (`direct`). Every other
//! kernel is planned (`plan`) and runs tile by tile (`program`, `interpreter`).
//!
//! ```text
//!   kernel of cheap f32 operations, contiguous ─► prepared ─► registers
//!   kernel of one operation that is not of float vectors ─► rows ─► loops
//!   kernel ─► plan: locations and groups ─► program: kernel and views ─► interpreter ─► loops
//!               └─ patterns: gelu, silu ..     └─ periodic: broadcasts     ├─ blocks: float nodes
//!                                                                          │    └─ registers: cheap ones
//!                                                                          └─ slabs: transposes
//! ```

// REGRET: `prepared`, `registers` with `instructions`, and `crate::rows` each compile nodes to the
// same instructions. The compiler of `crate::rows` can serve all: a kernel is a program without
// folds.

mod accumulator;
mod blocks;
mod calls;
mod direct;
mod epilogue;
mod groups;
mod half_pairs;
pub(crate) mod instructions;
mod interpreter;
pub(crate) mod loops;
mod patterns;
mod periodic;
pub(crate) mod plan;
mod prepared;
pub(crate) mod program;
pub(crate) mod registers;
mod rows;
mod slabs;
mod step;
pub(crate) mod value;

use crate::cost::Cost;
use crate::storage::{CpuStorage, View};
use crate::walk::TransposedInputs;
use crate::{Cpu, processor, simd, threads};
use direct::{contiguous_f32, run_direct};
pub(crate) use epilogue::{Epilogue, with_epilogue};
use loops::FloatLoop;
use plan::LocationPlan;
use program::{Outs, Program, alloc_outputs};
use rows::RowLoop;
use std::sync::Arc;
use teeny_core::kernel::{Arithmetic, FloatFunction, Kernel, MAX_INPUTS, OpCode};
use teeny_core::storage::{Storage, StorageRef, downcast_mut};
use teeny_core::{DType, Outputs, Result, Scalar, Shape, Tensor, validate};

/// Elements below which an operation on contiguous operands runs as one loop at once.
const MAX_DIRECT: usize = 8 << 10;

/// Elements from which transposed inputs are transposed by slabs.
const MIN_SLAB_ELEMENTS: usize = 1 << 10;

/// Elements per range of a loop over `n` elements: what its cost asks for, at most four ranges for
/// each thread, whole tiles.
pub(crate) fn range_len(n: usize, cost: Cost) -> usize {
    if !cost.is_shared(n) {
        return n.max(1);
    }
    let threads = threads::threads();
    if threads == 1 {
        return n;
    }
    n.div_ceil(4 * threads).max(cost.range(n)).next_multiple_of(program::TILE / 4)
}

/// The cost of an element of this kernel, as its nodes and the memory of its operands take it.
fn cost_of(kernel: &Kernel) -> Cost {
    let outputs = (0..kernel.outputs().len()).map(|i| kernel.output_dtype(i));
    let bytes = kernel.inputs().iter().copied().chain(outputs).map(DType::size).sum();
    kernel
        .nodes()
        .iter()
        .fold(Cost::bytes(bytes), |cost, node| cost_with(cost, node.op, node.dtype))
}

/// `cost` and that of one operation on values of `dtype`.
fn cost_with(cost: Cost, op: OpCode, dtype: DType) -> Cost {
    use Arithmetic::{Div, FloorDiv, Pow, Rem};
    use FloatFunction::{Recip, Rsqrt, Sqrt};
    let words = dtype.compute().size().div_ceil(4);
    match op {
        OpCode::Input(_) | OpCode::Param(_) | OpCode::Const(_) => cost,
        OpCode::At | OpCode::Index | OpCode::Length => cost,
        OpCode::Fold(_) => cost.arithmetic(words),
        OpCode::Float(Recip | Sqrt | Rsqrt) => cost.divisions(words),
        OpCode::Float(f) => match loops::float_function(f) {
            FloatLoop::Vectors(_) => cost.functions(2 * words - 1),
            FloatLoop::Calls(_) => cost.calls(1),
        },
        OpCode::Arithmetic(Pow) if dtype.is_float() => cost.functions(3 * words),
        OpCode::Arithmetic(Pow | Rem | FloorDiv) => cost.steps(words),
        OpCode::Arithmetic(Div) => cost.divisions(words),
        OpCode::Cast | OpCode::Round(_) | OpCode::Sign(_) | OpCode::Not | OpCode::IsNan => {
            cost.arithmetic(words)
        }
        OpCode::Arithmetic(_) | OpCode::Compare(_) | OpCode::Bitwise(_) | OpCode::Where => {
            cost.arithmetic(words)
        }
    }
}

/// Runs a program over `n` elements, with transposed inputs, slab by slab; a range should have
/// `chunk` elements.
fn run_slabs(
    cpu: &Cpu,
    program: &Program<'_>,
    inputs: &TransposedInputs,
    (n, chunk): (usize, usize),
    outs: &Outs,
    stream: bool,
) -> Result<()> {
    let count = program.slab_count(inputs);
    threads::try_for_each_range(count, chunk.saturating_mul(count) / n, |numbers| {
        program.with_scratch(cpu, slabs::bytes(inputs), &mut |scratch| {
            for number in numbers.clone() {
                let slab = program.slab(inputs, number);
                // SAFETY: the outputs have all elements, each in one slab; `View::of` has checked
                // the inputs.
                unsafe { program.run_slab(scratch, inputs, &slab, outs, stream) };
            }
        })?;
        if stream {
            simd::fence();
        }
        Ok(())
    })
}

/// Runs `kernel`, of one output, in place: `storage` is its input `input_index` and becomes the
/// result; `other` is the other input. False if this kernel is not computed in place.
pub(crate) fn in_place(
    cpu: &Cpu,
    kernel: &Kernel,
    storage: &mut StorageRef,
    input_index: usize,
    other: Option<&Tensor>,
    params: &[Scalar],
    shape: &Shape,
) -> Result<bool> {
    let Some(own) = downcast_mut::<CpuStorage>(storage) else { return Ok(false) };
    let whole = (own.len(), own.dtype());
    validate::elementwise_in_place(kernel, whole, input_index, other, params, shape)?;
    let y = own.ptr().cast::<f32>();
    let input =
        |i: usize| if i == input_index { Some(y.cast_const()) } else { contiguous_f32(other?) };
    // SAFETY: the storage has one owner, so that the other input is in another storage.
    unsafe { run_direct(cpu.level, kernel, params, shape.numel(), input, || Ok(y)) }
}

/// Runs `kernel` at every index of `shape`. Always `Some`: the engine returns this result
/// unchanged, as converting it takes a twentieth of a small operation.
pub(crate) fn elementwise(
    cpu: &Cpu,
    kernel: &Arc<Kernel>,
    inputs: &[&Tensor],
    params: &[Scalar],
    shape: &Shape,
) -> Result<Option<Outputs>> {
    let n = shape.numel();
    if n < MAX_DIRECT {
        let mut result = None;
        let out = || Ok(result.insert(cpu.alloc(n, DType::F32)?).ptr().cast());
        // SAFETY: the inputs have the shape of the result, which is new.
        unsafe { run_direct(cpu.level, kernel, params, n, |i| contiguous_f32(inputs[i]), out)? };
        if let Some(result) = result {
            return Ok(Some(Outputs::one(Arc::new(result))));
        }
    }
    if let Some(outputs) = prepared::run(cpu, kernel, inputs, params, n)? {
        return Ok(Some(outputs));
    }
    run_planned(cpu, kernel, inputs, params, shape).map(Some)
}

/// [`elementwise`] by a plan, tile by tile.
#[inline(never)]
fn run_planned(
    cpu: &Cpu,
    kernel: &Arc<Kernel>,
    inputs: &[&Tensor],
    params: &[Scalar],
    shape: &Shape,
) -> Result<Outputs> {
    let n = shape.numel();
    let (outputs, outs) = alloc_outputs(cpu, kernel, n)?;
    if n == 0 {
        return Ok(outputs);
    }
    let mut list =
        [View { ptr: std::ptr::null(), shape: *shape, strides: [0; 8], dtype: DType::F32 };
            MAX_INPUTS];
    for (view, x) in list.iter_mut().zip(inputs) {
        *view = View::of(x)?;
    }
    if let Some(rows) = RowLoop::bind(cpu.level, kernel, shape, &list[..inputs.len()], params) {
        let (chunk, out) = (range_len(n, cost_of(kernel)), outs[0]);
        // SAFETY: the output has n elements, ranges do not overlap, and `View::of` has checked the
        // inputs.
        threads::for_each_range(n, chunk, |part| unsafe { rows.run(part, out.get()) });
        return Ok(outputs);
    }
    let repeated = periodic::expand(cpu, shape, &mut list[..inputs.len()])?;
    let chunk = range_len(n, cost_of(kernel));
    let (shape, chunk) = match &repeated {
        // Ranges of whole rows.
        Some((shape, _)) => (shape, chunk.next_multiple_of(shape[1])),
        None => (shape, chunk),
    };
    LocationPlan::with(kernel, true, |plan| {
        let views = &list[..inputs.len()];
        let program = Program::new(cpu.level, kernel, plan, shape, views, params);
        let stream = processor::streams(n * 4);
        if n >= MIN_SLAB_ELEMENTS
            && let Some(inputs) = program.transposed_inputs()
        {
            return run_slabs(cpu, &program, &inputs, (n, chunk), &outs, stream);
        }
        threads::try_for_each_range(n, chunk, |part| {
            // SAFETY: the outputs have n elements, and ranges do not overlap; `View::of` has
            // checked the inputs.
            unsafe { program.run(cpu, part, &outs, stream) }
        })
    })?;
    Ok(outputs)
}
