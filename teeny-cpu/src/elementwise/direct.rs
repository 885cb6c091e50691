//! Kernels of one f32 operation over contiguous operands, without a plan and a walk: these two take
//! longer than a thousand additions.

use super::cost::{cost_with, range_len};
use super::floats::run_f32;
use crate::cost::Cost;
use crate::simd::Level;
use crate::simd::loops::Operand;
use crate::storage::{CpuStorage, Shared};
use crate::threads;
use teeny_core::kernel::{Kernel, OpCode};
use teeny_core::storage::{Storage, downcast};
use teeny_core::{DType, Element, Result, Scalar, Tensor};

/// Elements below which no operation is worth a second thread, so that its cost is not asked for.
const MIN_SHARED: usize = 256;

/// The first element of `x` if it is a contiguous tensor of f32.
#[inline(always)]
pub(super) fn contiguous_f32(x: &Tensor) -> Option<*const f32> {
    let storage = downcast::<CpuStorage>(x.storage()).ok()?;
    let (layout, inside) = (x.layout(), |end| end <= storage.len());
    if storage.dtype() != DType::F32
        || !layout.is_contiguous()
        || !layout.offset().checked_add(layout.numel()).is_some_and(inside)
    {
        return None;
    }
    Some(storage.ptr().cast::<f32>().wrapping_add(x.layout().offset()).cast_const())
}

/// Runs a kernel of one f32 operation on contiguous inputs and numbers. `input` returns the address
/// of an input, or `None` if it is not contiguous; `out` is the address of the result. Returns
/// false, without a result, for any other kernel.
///
/// # Safety
/// `n` elements are readable at the addresses that `input` returns and writable at `out`, which is
/// an input's address or overlaps none.
#[inline(always)]
pub(super) unsafe fn run_direct(
    level: Level,
    kernel: &Kernel,
    params: &[Scalar],
    n: usize,
    input: impl Fn(usize) -> Option<*const f32>,
    out: impl FnOnce() -> Result<*mut f32>,
) -> Result<bool> {
    let Some(node) = kernel
        .single()
        .filter(|node| node.dtype == DType::F32 && node.op.arity() <= 2 && node.op != OpCode::Cast)
    else {
        return Ok(false);
    };
    let mut operands = [Operand::Splat(0.0); 2];
    for (i, &source) in node.sources().iter().enumerate() {
        let source = &kernel.nodes()[source as usize];
        operands[i] = match source.op {
            _ if source.dtype != DType::F32 => return Ok(false),
            OpCode::Input(i) => match input(i as usize) {
                Some(x) => Operand::Slice(x),
                None => return Ok(false),
            },
            OpCode::Param(i) => Operand::Splat(f32::from_scalar(params[i as usize])),
            OpCode::Const(value) => Operand::Splat(f32::from_scalar(value)),
            _ => return Ok(false),
        };
    }
    if node.op.arity() == 1 && matches!(operands[0], Operand::Splat(_)) {
        return Ok(false);
    }
    let y = out()?;
    // SAFETY: passed on.
    unsafe {
        if n < MIN_SHARED {
            run_f32(level, node.op, operands, y, n);
        } else {
            by_ranges(level, node.op, operands, y, n);
        }
    }
    Ok(true)
}

/// `run_f32` by all threads.
///
/// # Safety
/// As `run_f32`.
#[inline(never)]
unsafe fn by_ranges(level: Level, op: OpCode, operands: [Operand; 2], y: *mut f32, n: usize) {
    let cost = cost_with(Cost::bytes(4 * (op.arity() + 1)), op, DType::F32);
    if !cost.is_shared(n) {
        // SAFETY: by contract.
        return unsafe { run_f32(level, op, operands, y, n) };
    }
    let chunk = range_len(n, cost);
    let y = Shared(y);
    threads::for_each_range(n, chunk, |part| {
        let from = operands.map(|operand| match operand {
            Operand::Slice(x) => Operand::Slice(x.wrapping_add(part.start)),
            Operand::Splat(x) => Operand::Splat(x),
        });
        // SAFETY: by contract; ranges do not overlap.
        unsafe { run_f32(level, op, from, y.get().add(part.start), part.len()) }
    });
}
