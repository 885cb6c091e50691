//! Scalar programs over views: the device's `elementwise`.
//!
//! A kernel of one f32 operation over slices runs as one long SIMD loop. Everything else runs tile
//! by tile: 4096 elements, one loop per node, and neighbouring nodes of f32 together by `strips` of
//! it, temporaries in L1. 16-bit floats are widened when read and rounded when written. See
//! `program` for the tile interpreter, `idioms` for functions that it knows as a whole, `int`,
//! `float` and `cast` for its loops.

pub(crate) mod cast;
pub(crate) mod float;
mod idioms;
pub(crate) mod int;
pub(crate) mod program;
mod strips;

use crate::Cpu;
use crate::simd::Level;
use crate::simd::loops::Operand;
use crate::storage::{CpuStorage, Shared, View};
use crate::walk::Crossing;
use crate::{simd, threads};
use program::{Plan, Program};
use teeny_core::kernel::{Kernel, MAX_INPUTS, MAX_OUTPUTS, OpCode};
use teeny_core::storage::{Storage, StorageRef, downcast, downcast_mut};
use teeny_core::{DType, Outputs, Result, Scalar, Shape, Tensor, validate};

/// Below this many elements a second thread costs more than it brings: arithmetic, and functions
/// that take ten times as long.
const THREAD_ARITHMETIC: usize = 16 << 10;
const THREAD_FUNCTIONS: usize = THREAD_ARITHMETIC / 2;
/// Outputs of at least this many bytes bypass the caches: they would not survive there until they
/// are read.
pub(crate) const STREAM: usize = 32 << 20;

/// Elements from which transposed inputs are turned over by panels.
const PANELS: usize = 1 << 10;

/// Elements per chunk: at least half of the threading threshold, at most four chunks per thread,
/// whole tiles.
pub(crate) fn chunk_len(n: usize, threshold: usize) -> usize {
    if n < threshold {
        return n.max(1);
    }
    n.div_ceil(4 * threads::threads()).max(threshold / 2).next_multiple_of(program::TILE)
}

/// What an operation weighs when threads are thought of. Functions take ten times as long as
/// arithmetic, but memory takes longer than that.
fn work(op: OpCode) -> usize {
    use OpCode::*;
    match op {
        Exp | Exp2 | Expm1 | Log | Log2 | Log1p | Sin | Cos | Tan | Atan | Tanh | Erf | Pow
        | Rem | FloorDiv => 2,
        Input(_) | Param(_) | Const(_) => 0,
        Cast | Neg | Abs | Sign | Recip | Sqrt | Rsqrt | Floor | Ceil | Round | Trunc | Not
        | IsNan | Add | Sub | Mul | Div | Max | Min | CmpLt | CmpLe | CmpEq | CmpNe | And | Or
        | Xor | Shl | Shr | Where => 1,
    }
}

/// Runs a program with transposed inputs in blocks of some rows by a segment.
fn blocks(
    cpu: &Cpu,
    program: &Program<'_>,
    crossing: &Crossing,
    chunk: usize,
    outs: &[Shared<u8>; MAX_OUTPUTS],
    stream: bool,
) -> Result<()> {
    let blocks = program.blocks(crossing);
    threads::try_for_each_range(blocks, chunk / (program::PANEL * program::SEGMENT), |numbers| {
        program.with_scratch(cpu, Some(crossing), &mut |scratch| {
            let outs = std::array::from_fn(|i| outs[i].get());
            for number in numbers.clone() {
                // SAFETY: the outputs have all elements, each of one block; `View::of` has checked
                // the inputs.
                unsafe {
                    program.block(scratch, crossing, &program.find(crossing, number), &outs, stream)
                };
            }
        })?;
        if stream {
            simd::fence();
        }
        Ok(())
    })
}

/// The first element of `x`, of the shape of the result, if its elements lie as those of the
/// result.
#[inline(always)]
fn alongside(x: &Tensor) -> Option<*const f32> {
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

/// One operation of f32 on elements that lie as those of the result, and on numbers: without a plan
/// and a walk, which would take longer than a thousand additions. `input` says where an input lies,
/// `out` where the result goes. False if this is something else.
///
/// # Safety
/// What `input` gives is readable for `n` elements, what `out` gives is writable, and is one of the
/// inputs or overlaps none.
#[inline(always)]
unsafe fn directly(
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
            OpCode::Param(i) => Operand::Splat(params[i as usize].to_f64() as f32),
            OpCode::Const(value) => Operand::Splat(value.to_f64() as f32),
            _ => return Ok(false),
        };
    }
    if node.op.arity() == 1 && matches!(operands[0], Operand::Splat(_)) {
        return Ok(false);
    }
    let y = out()?;
    // SAFETY: passed on.
    unsafe {
        if n < THREAD_FUNCTIONS {
            apply(level, node.op, operands, y, n);
        } else {
            by_chunks(level, node.op, operands, y, n);
        }
    }
    Ok(true)
}

/// `y = op(operands)`, through the caches.
///
/// # Safety
/// As `float::binary_f32`; an operation of one operand has no splat.
#[inline(always)]
unsafe fn apply(level: Level, op: OpCode, operands: [Operand; 2], y: *mut f32, n: usize) {
    // SAFETY: by contract.
    unsafe {
        match (op.arity(), operands) {
            (1, [Operand::Slice(x), _]) => float::unary_f32(level, op, x, y, n, false),
            (_, [a, b]) => float::binary_f32(level, op, a, b, y, n, false),
        }
    }
}

/// [`apply`] by all threads.
///
/// # Safety
/// As `apply`.
#[inline(never)]
unsafe fn by_chunks(level: Level, op: OpCode, operands: [Operand; 2], y: *mut f32, n: usize) {
    let chunk = chunk_len(n, THREAD_ARITHMETIC / work(op));
    let y = Shared(y);
    threads::for_each_range(n, chunk, |part| {
        let from = operands.map(|operand| match operand {
            Operand::Slice(x) => Operand::Slice(x.wrapping_add(part.start)),
            Operand::Splat(x) => Operand::Splat(x),
        });
        // SAFETY: by contract; every range has elements of its own.
        unsafe { apply(level, op, from, y.get().add(part.start), part.len()) }
    });
}

/// Runs `kernel`, of one output, over the elements of `storage`, which is its input of that number;
/// `other` is the other one.
pub(crate) fn over(
    cpu: &Cpu,
    kernel: &Kernel,
    storage: &mut StorageRef,
    number: usize,
    other: Option<&Tensor>,
    params: &[Scalar],
    shape: &Shape,
) -> Result<bool> {
    let Some(own) = downcast_mut::<CpuStorage>(storage) else { return Ok(false) };
    validate::elementwise_over(kernel, (own.len(), own.dtype()), number, other, params, shape)?;
    let y = own.ptr().cast::<f32>();
    let input = |i: usize| if i == number { Some(y.cast_const()) } else { alongside(other?) };
    // SAFETY: nobody else holds the storage, so that the other input does not lie in it.
    unsafe { directly(cpu.level, kernel, params, shape.numel(), input, || Ok(y)) }
}

/// Runs `kernel` at every index of `shape`.
pub(crate) fn elementwise(
    cpu: &Cpu,
    kernel: &Kernel,
    inputs: &[&Tensor],
    params: &[Scalar],
    shape: &Shape,
) -> Result<Outputs> {
    let n = shape.numel();
    if n < THREAD_FUNCTIONS {
        let mut result = None;
        let out = || Ok(result.insert(cpu.alloc(n, DType::F32)?).ptr().cast());
        // SAFETY: `alongside` gives what has the shape of the result, which is new.
        unsafe { directly(cpu.level, kernel, params, n, |i| alongside(inputs[i]), out)? };
        if let Some(result) = result {
            return Ok(Outputs::one(std::sync::Arc::new(result)));
        }
    }
    tiles(cpu, kernel, inputs, params, shape)
}

/// [`elementwise`] by a plan and tiles.
#[inline(never)]
fn tiles(
    cpu: &Cpu,
    kernel: &Kernel,
    inputs: &[&Tensor],
    params: &[Scalar],
    shape: &Shape,
) -> Result<Outputs> {
    let n = shape.numel();
    let mut outputs = Outputs::new();
    let mut pointers = [Shared(std::ptr::null_mut::<u8>()); MAX_OUTPUTS];
    for (i, pointer) in pointers.iter_mut().enumerate().take(kernel.outputs().len()) {
        let storage = cpu.alloc(n, kernel.output_dtype(i))?;
        *pointer = Shared(storage.ptr());
        outputs.push(std::sync::Arc::new(storage));
    }
    if n == 0 {
        return Ok(outputs);
    }
    let mut list = [View {
        ptr: std::ptr::null(),
        shape: *shape,
        strides: [0; 8],
        dtype: teeny_core::DType::F32,
    }; MAX_INPUTS];
    for (view, x) in list.iter_mut().zip(inputs) {
        *view = View::of(x)?;
    }
    Plan::with(kernel, true, |plan| {
        let program = Program::new(cpu.level, kernel, plan, shape, &list[..inputs.len()], params);
        let work: usize = kernel.nodes().iter().map(|node| work(node.op)).sum();
        let chunk = chunk_len(n, THREAD_ARITHMETIC / work.clamp(1, 4));
        let stream = n * 4 >= STREAM;
        let outs = pointers;
        if n >= PANELS
            && let Some(crossing) = program.crossing()
        {
            return blocks(cpu, &program, &crossing, chunk, &outs, stream);
        }
        threads::try_for_each_range(n, chunk, |part| {
            program.with_scratch(cpu, None, &mut |scratch| {
                let mut at = part.start;
                while at < part.end {
                    let len = program.tile_len(at, part.end);
                    let outs = std::array::from_fn(|i| {
                        let size = if i < kernel.outputs().len() {
                            kernel.output_dtype(i).size()
                        } else {
                            0
                        };
                        outs[i].get().wrapping_add(at * size)
                    });
                    // SAFETY: the outputs have n elements, this tile's are touched by this chunk
                    // alone; `View::of` has checked the inputs.
                    unsafe { program.tile(scratch, at, len, &outs, stream) };
                    at += len;
                }
            })?;
            if stream {
                simd::fence();
            }
            Ok(())
        })
    })?;
    Ok(outputs)
}
