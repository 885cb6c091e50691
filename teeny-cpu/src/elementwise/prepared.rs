//! Kernels of cheap f32 operations over contiguous operands, prepared once for each kernel.
//!
//! The naive form (`run_planned`) looks for the plan, walks the views, makes the loops of all nodes
//! and the instructions of these at each call, and again for each range: a microsecond before the
//! first element of ten operations. Here the instructions of a kernel are kept, with operands by
//! number, and a call writes addresses into them:
//!
//! ```text
//!   kernel ── once ──► load input 0 ─ mul number 0 ─ add input 1 ─ store output 0
//!          each range ─► load 0x7f..  ─ mul 0x7f..   ─ add 0x7f..  ─ store 0x7f..     ─► registers
//! ```
//! The same operations on the same values as in `interpreter`, node by node, so the same bits.
//! Independent of vectors; strided operands, other types and functions are left to the plan.

use super::cost::{cost_of, range_len};
use super::direct::contiguous_f32;
use super::value::scalar_bytes;
use crate::cost::Cost;
use crate::kernel_cache::{Cache, cached};
use crate::machine::instructions::{BUFFER, Code, Instruction, Splat, VECTOR};
use crate::machine::program::{Operand, Program};
use crate::machine::registers;
use crate::machine::values::{Element, Number};
use crate::simd::{self, Level};
use crate::storage::storage_of;
use crate::{Cpu, processor, threads};
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::Arc;
use teeny_core::kernel::{Kernel, MAX_INPUTS, MAX_OUTPUTS};
use teeny_core::{DType, Outputs, Result, Scalar, Tensor};

/// The most instructions, values that are kept for a later one, and numbers of a kernel.
const MAX_INSTRS: usize = 64;
const MAX_SLOTS: usize = 16;
const MAX_NUMBERS: usize = 32;

/// The instructions of a kernel: one pass of a program, without values of rows.
struct Prepared {
    program: Program,
    /// The numbers of the program, other than parameters.
    consts: Vec<Option<Splat>>,
    /// The outputs that no instruction reads.
    streams: [bool; MAX_OUTPUTS],
    outputs: usize,
    cost: Cost,
}

thread_local! {
    /// The instructions of kernels that ran before, if they have any: as many kernels as a training
    /// step of a small network has.
    static PREPARED: Cache<Option<Prepared>, 64> = const { [const { Cell::new(None) }; 64] };
}

/// The operands of a call.
struct Operands<'a> {
    /// The first element of each input, or its only one in every lane.
    inputs: [*const u8; MAX_INPUTS],
    /// Whether inputs are one number.
    is_number: [bool; MAX_INPUTS],
    /// The parameters among the numbers of the program.
    params: &'a [MaybeUninit<Splat>],
    outs: [*mut u8; MAX_OUTPUTS],
    stream: bool,
}

// SAFETY: passes addresses to the workers, which read inputs and numbers and write outputs, of
// which each touches its own elements.
unsafe impl Sync for Operands<'_> {}

/// Runs `kernel` over `n` elements by its instructions. None, without a result, if it has none or
/// an input is neither contiguous nor one number.
///
/// # Errors
/// If allocation fails; if an input is not on this device.
#[inline]
pub(super) fn run(
    cpu: &Cpu,
    kernel: &Arc<Kernel>,
    inputs: &[&Tensor],
    params: &[Scalar],
    n: usize,
) -> Result<Option<Outputs>> {
    if !cpu.level.is_native() || kernel.single().is_some() {
        return Ok(None);
    }
    let mut numbers = [const { MaybeUninit::<Splat>::uninit() }; MAX_INPUTS + MAX_NUMBERS];
    let (own, of_params) = numbers.split_at_mut(MAX_INPUTS);
    let (mut first, mut is_number) = ([std::ptr::null(); MAX_INPUTS], [false; MAX_INPUTS]);
    for (i, x) in inputs.iter().enumerate() {
        if let Some(x) = contiguous_f32(x) {
            first[i] = x.cast();
        } else if let Some(x) = number(x, n)? {
            own[i].write(Splat::of(x, 4));
            first[i] = own[i].as_ptr().cast();
            is_number[i] = true;
        } else {
            return Ok(None);
        }
    }
    cached(
        &PREPARED,
        kernel,
        || Prepared::new(kernel),
        |prepared| {
            let Some(prepared) = prepared else { return Ok(None) };
            for (to, &number) in of_params.iter_mut().zip(&prepared.program.numbers) {
                if let Number::Param(i) = number {
                    to.write(Splat::of(scalar_bytes(params[i], DType::F32), 4));
                }
            }
            let operands = Operands {
                inputs: first,
                is_number,
                params: of_params,
                outs: [std::ptr::null_mut(); MAX_OUTPUTS],
                stream: processor::streams(n * 4),
            };
            // SAFETY: inputs have `n` elements or are one number each; all parameters are written.
            unsafe { prepared.run(cpu, operands, n) }.map(Some)
        },
    )
}

/// The only element of `x`, if it is of f32 and repeated `n` times.
fn number(x: &Tensor, n: usize) -> Result<Option<[u8; 8]>> {
    let is_one = x.layout().strides().iter().zip(x.shape().iter()).all(|(&s, &d)| s == 0 || d == 1);
    if x.dtype() != DType::F32 || !is_one || n == 0 {
        return Ok(None);
    }
    let first = storage_of(x)?.ptr().cast::<f32>().wrapping_add(x.layout().offset());
    // SAFETY: `storage_of` has checked that the elements of the layout, of which there is one at
    // least, are in the storage.
    let [a, b, c, d] = unsafe { first.read() }.to_ne_bytes();
    Ok(Some([a, b, c, d, 0, 0, 0, 0]))
}

impl Prepared {
    /// The instructions of `kernel`. None if it has other types than f32, functions, or numbers
    /// that are computed; or if there are too many instructions.
    fn new(kernel: &Kernel) -> Option<Prepared> {
        let mut written = (0..kernel.outputs().len()).map(|o| kernel.output_dtype(o));
        if !written.all(|dtype| dtype == DType::F32) {
            return None;
        }
        let program = Program::of(kernel)?;
        let [pass] = &program.passes[..] else { return None };
        let is_cheap = pass.instrs.iter().all(|&(code, operand)| {
            !matches!(code, Code::Call(_)) && !matches!(operand, Operand::Row(_))
        });
        let constant = |&number: &Number| match number {
            Number::Const(x) => Some(Splat::of(scalar_bytes(x, DType::F32), 4)),
            Number::Param(_) | Number::Length => None,
        };
        let mut streams = [true; MAX_OUTPUTS];
        for &(code, operand) in &pass.instrs {
            if let (true, Operand::Output(o)) = (code != Code::Store, operand) {
                streams[o] = false;
            }
        }
        let is_known = !program.numbers.contains(&Number::Length)
            && program.elements.iter().all(|&element| element != Element::Index);
        let fits = pass.instrs.len() <= MAX_INSTRS
            && program.slots <= MAX_SLOTS
            && program.numbers.len() <= MAX_NUMBERS;
        let is_one_pass = is_cheap && is_known && fits && pass.before.is_empty();
        let consts = program.numbers.iter().map(constant).collect();
        let (outputs, cost) = (kernel.outputs().len(), cost_of(kernel));
        is_one_pass.then_some(Prepared { program, consts, streams, outputs, cost })
    }

    /// Runs the instructions over `n` elements of new outputs.
    ///
    /// # Safety
    /// The inputs have `n` elements or are one number each; the parameters of the program are
    /// written.
    #[inline]
    unsafe fn run(&self, cpu: &Cpu, mut operands: Operands<'_>, n: usize) -> Result<Outputs> {
        let mut outputs = Outputs::new();
        for out in &mut operands.outs[..self.outputs] {
            let storage = cpu.alloc(n, DType::F32)?;
            *out = storage.ptr();
            outputs.push(Arc::new(storage));
        }
        let chunk = range_len(n, self.cost);
        if chunk >= n {
            // SAFETY: passed on; the outputs are new and have `n` elements.
            unsafe { self.range(cpu.level, &operands, 0..n) };
        } else {
            let operands = &operands;
            threads::for_each_range(n, chunk, |part| {
                // SAFETY: as above; ranges do not overlap.
                unsafe { self.range(cpu.level, operands, part) };
            });
        }
        Ok(outputs)
    }

    /// Runs the instructions over some elements.
    ///
    /// # Safety
    /// The operands have them, and no other thread touches the outputs'.
    unsafe fn range(&self, level: Level, operands: &Operands<'_>, part: Range<usize>) {
        let mut slots = Slots(MaybeUninit::uninit());
        let slots = slots.0.as_mut_ptr().cast::<u8>();
        let mut list = [const { MaybeUninit::<Instruction>::uninit() }; MAX_INSTRS];
        let offset = 4 * part.start;
        let instrs = &self.program.passes[0].instrs;
        for (to, &(code, operand)) in list.iter_mut().zip(instrs) {
            let number = |x: *const Splat| Instruction::of_number(code, x.cast_mut().cast());
            let row = |p: *mut u8| Instruction::of_row(code, p.wrapping_add(offset), 4);
            to.write(match operand {
                Operand::Element(k) => {
                    let Element::Input(i) = self.program.elements[k] else {
                        unreachable!("a kernel has no rows")
                    };
                    let x = operands.inputs[i].cast_mut();
                    if operands.is_number[i] { number(x.cast()) } else { row(x) }
                }
                Operand::Output(o) => {
                    let mut this = row(operands.outs[o]);
                    if operands.stream
                        && self.streams[o]
                        && (this.first as usize).is_multiple_of(VECTOR)
                    {
                        this.code = Code::Stream;
                    }
                    this
                }
                Operand::Slot(slot) => {
                    Instruction::of_block(code, slots.wrapping_add(slot * BUFFER))
                }
                Operand::Number(i) => number(match &self.consts[i] {
                    Some(number) => number,
                    None => operands.params[i].as_ptr(),
                }),
                Operand::None => number(std::ptr::null()),
                Operand::Row(_) | Operand::Kept(_) | Operand::Fold(_) | Operand::Buffers => {
                    unreachable!("one pass of instructions on elements")
                }
            });
        }
        // SAFETY: by contract. The first instructions are written, and each slot is below
        // `MAX_SLOTS`.
        unsafe {
            let code = std::slice::from_raw_parts(list.as_ptr().cast(), instrs.len());
            registers::run_rows(level, 4, code, 0..1, 0..part.len(), false);
        }
        if operands.stream {
            simd::fence();
        }
    }
}

/// Memory of the slots, which is not initialised: instructions read only slots that were written.
#[repr(align(64))]
struct Slots(MaybeUninit<[u8; MAX_SLOTS * BUFFER]>);
