//! Scalar programs over views: the device's `elementwise`.
//!
//! A kernel of one f32 operation over slices runs as one long SIMD loop. Everything else runs tile by tile: 4096 elements, one
//! loop per node, and neighbouring nodes of f32 together by `strips` of it, temporaries in L1. 16-bit floats are widened when read and rounded when written. See `program` for the tile
//! interpreter, `idioms` for functions that it knows as a whole, `int`, `float` and `cast` for its loops.

pub(crate) mod cast;
pub(crate) mod float;
mod idioms;
pub(crate) mod int;
pub(crate) mod program;
mod strips;

use crate::Cpu;
use crate::simd::loops::Operand;
use crate::storage::{CpuStorage, Shared, View};
use crate::walk::Crossing;
use crate::{simd, threads};
use program::{Plan, Program, Scratch};
use teeny_core::kernel::{Kernel, MAX_INPUTS, MAX_OUTPUTS, OpCode};
use teeny_core::storage::downcast;
use teeny_core::{DType, Outputs, Result, Scalar, Shape, Tensor};

/// Below this many elements a second thread costs more than it brings: arithmetic, and functions that take ten times as long.
const THREAD_ARITHMETIC: usize = 16 << 10;
const THREAD_FUNCTIONS: usize = 8 << 10;
/// Outputs of at least this many bytes bypass the caches: they would not survive there until they are read.
pub(crate) const STREAM: usize = 32 << 20;

/// Elements from which transposed inputs are turned over by panels.
const PANELS: usize = 1 << 10;

/// Elements per chunk: at least half of the threading threshold, at most four chunks per thread, whole tiles.
pub(crate) fn chunk_len(n: usize, threshold: usize) -> usize {
    if n < threshold {
        return n.max(1);
    }
    n.div_ceil(4 * threads::threads()).max(threshold / 2).next_multiple_of(program::TILE)
}

fn is_function(op: OpCode) -> bool {
    use OpCode::*;
    match op {
        Exp | Exp2 | Expm1 | Log | Log2 | Log1p | Sin | Cos | Tan | Atan | Tanh | Erf | Pow | Rem | FloorDiv => true,
        Input(_) | Param(_) | Const(_) | Cast | Neg | Abs | Sign | Recip | Sqrt | Rsqrt | Floor | Ceil | Round | Trunc | Not | IsNan | Add | Sub
        | Mul | Div | Max | Min | CmpLt | CmpLe | CmpEq | CmpNe | And | Or | Xor | Shl | Shr | Where => false,
    }
}

/// Runs a program with transposed inputs in blocks of some rows by a segment.
fn blocks(program: &Program<'_>, crossing: &Crossing, chunk: usize, outs: &[Shared<u8>; MAX_OUTPUTS], stream: bool) {
    let blocks = program.blocks(crossing);
    let per_chunk = (chunk / (program::PANEL * program::SEGMENT)).max(1);
    threads::for_each_chunk(blocks.div_ceil(per_chunk), |c| {
        Scratch::with(&mut |scratch| {
            let outs = std::array::from_fn(|i| outs[i].get());
            for number in c * per_chunk..((c + 1) * per_chunk).min(blocks) {
                // SAFETY: the outputs have all elements, each of one block; the inputs' layouts were checked by core.
                unsafe { program.block(scratch, crossing, &program.find(crossing, number), &outs, stream) };
            }
        });
        if stream {
            simd::fence();
        }
    });
}

/// One operation of f32 on rather few elements that lie as those of the result, and on numbers: without a plan and a walk, which would take longer than
/// the operation. `None` if this is something else.
fn at_once(cpu: &Cpu, kernel: &Kernel, inputs: &[&Tensor], params: &[Scalar], shape: &Shape) -> Result<Option<CpuStorage>> {
    let n = shape.numel();
    let Some(node) =
        kernel.single().filter(|node| n < THREAD_FUNCTIONS && node.dtype == DType::F32 && node.op.arity() <= 2 && node.op != OpCode::Cast)
    else {
        return Ok(None);
    };
    let mut operands = [Operand::Splat(0.0); 2];
    for (operand, &source) in operands.iter_mut().zip(node.sources()) {
        let source = &kernel.nodes()[source as usize];
        *operand = match source.op {
            _ if source.dtype != DType::F32 => return Ok(None),
            OpCode::Input(i) if inputs[i as usize].shape() == shape && inputs[i as usize].is_contiguous() => {
                let x = inputs[i as usize];
                Operand::Slice(downcast::<CpuStorage>(x.storage())?.ptr().cast::<f32>().wrapping_add(x.layout().offset()))
            }
            OpCode::Param(i) => Operand::Splat(params[i as usize].to_f64() as f32),
            OpCode::Const(value) => Operand::Splat(value.to_f64() as f32),
            _ => return Ok(None),
        };
    }
    let out = cpu.alloc(n, DType::F32)?;
    let y = out.ptr().cast::<f32>();
    // SAFETY: slices have the n elements of their shape, which is the result's; the result is new.
    unsafe {
        match (node.op.arity(), operands) {
            (1, [Operand::Slice(x), _]) => float::unary_f32(cpu.level, node.op, x, y, n, false),
            (2, [a, b]) => float::binary_f32(cpu.level, node.op, a, b, y, n, false),
            _ => return Ok(None),
        }
    }
    Ok(Some(out))
}

/// Runs `kernel` at every index of `shape`.
pub(crate) fn elementwise(cpu: &Cpu, kernel: &Kernel, inputs: &[&Tensor], params: &[Scalar], shape: &Shape) -> Result<Outputs> {
    if let Some(out) = at_once(cpu, kernel, inputs, params, shape)? {
        return Ok(Outputs::one(std::sync::Arc::new(out)));
    }
    tiles(cpu, kernel, inputs, params, shape)
}

/// [`elementwise`] by a plan and tiles.
#[inline(never)]
fn tiles(cpu: &Cpu, kernel: &Kernel, inputs: &[&Tensor], params: &[Scalar], shape: &Shape) -> Result<Outputs> {
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
    let mut list = [View { ptr: std::ptr::null(), shape: *shape, strides: [0; 8], dtype: teeny_core::DType::F32 }; MAX_INPUTS];
    for (view, x) in list.iter_mut().zip(inputs) {
        *view = View::of(x)?;
    }
    Plan::with(kernel, true, |plan| {
        let program = Program::new(cpu.level, kernel, plan, shape, &list[..inputs.len()], params);
        let functions = kernel.nodes().iter().any(|node| is_function(node.op));
        let chunk = chunk_len(n, if functions { THREAD_FUNCTIONS } else { THREAD_ARITHMETIC });
        let stream = n * 4 >= STREAM;
        let outs = pointers;
        if n >= PANELS
            && let Some(crossing) = program.crossing()
        {
            return blocks(&program, &crossing, chunk, &outs, stream);
        }
        let run = |c: usize| {
            Scratch::with(&mut |scratch| {
                let (mut at, end) = (c * chunk, ((c + 1) * chunk).min(n));
                while at < end {
                    let len = program.tile_len(at, end);
                    let outs = std::array::from_fn(|i| {
                        let size = if i < kernel.outputs().len() { kernel.output_dtype(i).size() } else { 0 };
                        outs[i].get().wrapping_add(at * size)
                    });
                    // SAFETY: the outputs have n elements, this tile's are touched by this chunk alone; the inputs' layouts
                    // were checked by core against their storages.
                    unsafe { program.tile(scratch, at, len, &outs, stream) };
                    at += len;
                }
            });
            if stream {
                simd::fence();
            }
        };
        match n.div_ceil(chunk) {
            1 => run(0),
            chunks => threads::for_each_chunk(chunks, run),
        }
    });
    Ok(outputs)
}
