//! Scalar programs over views: `Op::Elementwise` and `Op::ElementwiseInPlace`.
//!
//! A kernel of one f32 operation over contiguous operands runs as one loop (`direct`). Every other
//! kernel is planned (`plan`) and runs tile by tile (`tiles`, `interpreter`).
//!
//! ```text
//!   kernel of cheap f32 operations, contiguous ─► prepared ─► machine: registers
//!   kernel of one operation that is not of float vectors ─► rows ─► loops
//!   kernel ─► plan: locations and groups ─► tiles: kernel and views ─► interpreter ─► loops
//!               └─ patterns: gelu, silu ..     └─ periodic: broadcasts   ├─ machine: float nodes
//!                                                                        └─ slabs: transposes
//! ```

mod cost;
mod direct;
mod epilogue;
mod floats;
mod interpreter;
mod patterns;
mod periodic;
pub(crate) mod plan;
mod prepared;
mod rows;
mod slabs;
pub(crate) mod tiles;
pub(crate) mod value;

use crate::storage::{CpuStorage, View};
use crate::walk::TransposedInputs;
use crate::{Cpu, processor, simd, threads};
use cost::{cost_of, range_len};
use direct::{contiguous_f32, run_direct};
pub(crate) use epilogue::{Epilogue, with_epilogue};
use plan::LocationPlan;
use rows::RowLoop;
use std::sync::Arc;
use teeny_core::kernel::{Kernel, MAX_INPUTS};
use teeny_core::storage::{Storage, StorageRef, downcast_mut};
use teeny_core::{DType, Outputs, Result, Scalar, Shape, Tensor, validate};
use tiles::{Outs, Tiles, alloc_outputs};

/// Elements below which an operation on contiguous operands runs as one loop at once.
const MAX_DIRECT: usize = 8 << 10;

/// Elements from which transposed inputs are transposed by slabs.
const MIN_SLAB_ELEMENTS: usize = 1 << 10;

/// Runs tiles over `n` elements, with transposed inputs, slab by slab; a range should have
/// `chunk` elements.
fn run_slabs(
    cpu: &Cpu,
    tiles: &Tiles<'_>,
    inputs: &TransposedInputs,
    (n, chunk): (usize, usize),
    outs: &Outs,
    stream: bool,
) -> Result<()> {
    let count = tiles.slab_count(inputs);
    threads::try_for_each_range(count, chunk.saturating_mul(count) / n, |numbers| {
        tiles.with_scratch(cpu, slabs::bytes(inputs), &mut |scratch| {
            for number in numbers.clone() {
                let slab = tiles.slab(inputs, number);
                // SAFETY: the outputs have all elements, each in one slab; `View::of` has checked
                // the inputs.
                unsafe { tiles.run_slab(scratch, inputs, &slab, outs, stream) };
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
        let tiles = Tiles::new(cpu.level, kernel, plan, shape, views, params);
        let stream = processor::streams(n * 4);
        if n >= MIN_SLAB_ELEMENTS
            && let Some(inputs) = tiles.transposed_inputs()
        {
            return run_slabs(cpu, &tiles, &inputs, (n, chunk), &outs, stream);
        }
        threads::try_for_each_range(n, chunk, |part| {
            // SAFETY: the outputs have n elements, and ranges do not overlap; `View::of` has
            // checked the inputs.
            unsafe { tiles.run(cpu, part, &outs, stream) }
        })
    })?;
    Ok(outputs)
}
