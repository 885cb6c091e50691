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
//! Knows no vector; strided operands, other types and functions are left to the plan.

use super::cost::{cost_of, range_len};
use super::direct::contiguous_f32;
use super::plan::{Location, LocationPlan};
use super::value::scalar_bytes;
use crate::cost::Cost;
use crate::kernel_cache::{Cache, cached};
use crate::loops::Loop;
use crate::machine::instructions::{self, BUFFER, Code, Instruction, Splat, VECTOR};
use crate::machine::registers;
use crate::simd::{self, Level};
use crate::storage::storage_of;
use crate::{Cpu, processor, threads};
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::Arc;
use teeny_core::kernel::{Arithmetic, Id, Kernel, MAX_INPUTS, MAX_OUTPUTS, OpCode, OpNode};
use teeny_core::{DType, Element, Outputs, Result, Scalar, Tensor};

/// The most instructions, and the most values that are neither in the accumulator nor outputs.
const MAX_LINES: usize = 64;
const MAX_SLOTS: usize = 16;
/// The most parameters that are read, and numbers that differ from call to call: these, and inputs
/// of one element.
const MAX_PARAMS: usize = 16;
const MAX_NUMBERS: usize = MAX_PARAMS + MAX_INPUTS;

/// The operand or result of an instruction.
#[derive(Clone, Copy, PartialEq)]
enum Operand {
    /// An operation on the accumulator alone.
    None,
    Input(u8),
    Output(u8),
    /// A block of vectors that the next block overwrites.
    Slot(u8),
    Const(u8),
    /// A parameter, by its place in [`Prepared::params`].
    Param(u8),
}

/// The instructions of a kernel.
struct Prepared {
    lines: Vec<(Code, Operand)>,
    consts: Vec<Splat>,
    /// The parameters that are read.
    params: Vec<u8>,
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
    /// The values of the parameters that are read.
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
/// If there is no memory; if an input is not one of this device.
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
    let mut numbers = [const { MaybeUninit::<Splat>::uninit() }; MAX_NUMBERS];
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
    let make = || LocationPlan::with(kernel, true, |plan| Prepared::new(kernel, plan));
    cached(&PREPARED, kernel, make, |prepared| {
        let Some(prepared) = prepared else { return Ok(None) };
        for (to, &param) in of_params.iter_mut().zip(&prepared.params) {
            to.write(Splat::of(scalar_bytes(params[usize::from(param)], DType::F32), 4));
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
    })
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
    /// The instructions of `kernel`. None if a node has no instruction, or there are too many.
    fn new(kernel: &Kernel, plan: &LocationPlan) -> Option<Prepared> {
        let nodes = kernel.nodes();
        let in_outputs = kernel.outputs().iter().enumerate().all(|(i, &id)| {
            matches!(plan.locations[id as usize], Location::Output(o) if usize::from(o) == i)
        });
        if !in_outputs || !plan.is_blocks_only(nodes) {
            return None;
        }
        let mut reads = Vec::with_capacity(nodes.len());
        let mut steps = Vec::new();
        for (id, node) in nodes.iter().enumerate() {
            let is_input = matches!(node.op, OpCode::Input(_));
            reads.push(is_input || node.sources().iter().any(|&id| reads[usize::from(id)]));
            if matches!(plan.locations[id], Location::Inlined) {
                continue;
            }
            // A value of nothing but numbers is one number, which the interpreter computes as one.
            if node.dtype != DType::F32 || node.op.arity() > 0 && !reads[id] {
                return None;
            }
            if node.op.arity() > 0 {
                steps.push(NodeStep::of(nodes, plan, id)?);
            }
        }
        let mut prepared = Prepared {
            lines: Vec::new(),
            consts: Vec::new(),
            params: Vec::new(),
            streams: [true; MAX_OUTPUTS],
            outputs: kernel.outputs().len(),
            cost: cost_of(kernel),
        };
        let mut before = None;
        for (k, step) in steps.iter().enumerate() {
            prepared.step(nodes, plan, &steps[k..], before)?;
            before = Some(step.id);
        }
        for &(code, operand) in &prepared.lines {
            if let (true, Operand::Output(i)) = (code != Code::Store, operand) {
                prepared.streams[usize::from(i)] = false;
            }
        }
        (prepared.lines.len() <= MAX_LINES && prepared.params.len() <= MAX_PARAMS)
            .then_some(prepared)
    }

    /// Adds the instructions of the first step; `before` is the node in the accumulator.
    fn step(
        &mut self,
        nodes: &[OpNode],
        plan: &LocationPlan,
        steps: &[NodeStep],
        before: Option<Id>,
    ) -> Option<()> {
        let NodeStep { id, body, from } = steps[0];
        instructions::lower(body, from, before, |code, id| {
            let operand = id.map_or(Some(Operand::None), |id| self.operand(nodes, plan, id));
            self.lines.push((code, operand?));
            Some(())
        })?;
        let to = self.operand(nodes, plan, id)?;
        let next = steps[1..].iter().map(|step| (step.body, step.from));
        if matches!(to, Operand::Output(_)) || instructions::is_read(id, next) {
            self.lines.push((Code::Store, to));
        }
        Some(())
    }

    /// Where the value of a node is. None if there is no memory for it.
    fn operand(&mut self, nodes: &[OpNode], plan: &LocationPlan, id: Id) -> Option<Operand> {
        let node = &nodes[id as usize];
        Some(match (node.op, plan.locations[id as usize]) {
            (OpCode::Input(i), _) => Operand::Input(i),
            (OpCode::Const(value), _) => {
                self.consts.push(Splat::of(scalar_bytes(value, node.dtype), 4));
                Operand::Const(u8::try_from(self.consts.len() - 1).ok()?)
            }
            (OpCode::Param(i), _) => {
                let known = self.params.iter().position(|&param| param == i);
                let place = known.unwrap_or(self.params.len());
                if known.is_none() {
                    self.params.push(i);
                }
                Operand::Param(u8::try_from(place).ok()?)
            }
            (_, Location::Output(i)) => Operand::Output(i),
            (_, Location::Block(slot)) if usize::from(slot) < MAX_SLOTS => {
                Operand::Slot(slot as u8)
            }
            (_, Location::Block(_) | Location::Slot(_) | Location::Inlined) => return None,
        })
    }

    /// Runs the instructions over `n` elements of new outputs.
    ///
    /// # Safety
    /// The inputs have `n` elements or are one number each; the parameters that are read are
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
    /// The operands have them, and no other thread touches those of the outputs.
    unsafe fn range(&self, level: Level, operands: &Operands<'_>, part: Range<usize>) {
        let mut slots = Slots(MaybeUninit::uninit());
        let slots = slots.0.as_mut_ptr().cast::<u8>();
        let mut list = [const { MaybeUninit::<Instruction>::uninit() }; MAX_LINES];
        let offset = 4 * part.start;
        for (to, &(code, operand)) in list.iter_mut().zip(&self.lines) {
            let number = |x: *const Splat| Instruction::of_number(code, x.cast_mut().cast());
            let row = |p: *mut u8| Instruction::of_row(code, p.wrapping_add(offset), 4);
            to.write(match operand {
                Operand::None => Instruction::of_number(code, std::ptr::null_mut()),
                Operand::Input(i) => {
                    let (i, x) = (usize::from(i), operands.inputs[usize::from(i)].cast_mut());
                    if operands.is_number[i] { number(x.cast()) } else { row(x) }
                }
                Operand::Output(i) => {
                    let mut this = row(operands.outs[usize::from(i)]);
                    let streams = operands.stream && self.streams[usize::from(i)];
                    if streams && (this.first as usize).is_multiple_of(VECTOR) {
                        this.code = Code::Stream;
                    }
                    this
                }
                Operand::Slot(slot) => {
                    Instruction::of_block(code, slots.wrapping_add(usize::from(slot) * BUFFER))
                }
                Operand::Const(i) => number(&raw const self.consts[usize::from(i)]),
                Operand::Param(i) => number(operands.params[usize::from(i)].as_ptr()),
            });
        }
        // SAFETY: by contract. The first instructions are written, and each slot is below
        // `MAX_SLOTS`.
        unsafe {
            let code = std::slice::from_raw_parts(list.as_ptr().cast(), self.lines.len());
            registers::run_rows(level, 4, code, 0..1, 0..part.len(), false);
        }
        if operands.stream {
            simd::fence();
        }
    }
}

/// Memory of the slots, which is not initialised: no instruction reads what none has written.
#[repr(align(64))]
struct Slots(MaybeUninit<[u8; MAX_SLOTS * BUFFER]>);

/// A node that is computed.
#[derive(Clone, Copy)]
struct NodeStep {
    id: Id,
    body: Loop,
    /// The nodes of its operands; entries beyond their number repeat the first.
    from: [Id; 4],
}

impl NodeStep {
    /// The step of node `id`, if it has an instruction.
    fn of(nodes: &[OpNode], plan: &LocationPlan, id: usize) -> Option<NodeStep> {
        let node = &nodes[id];
        let src = node.src;
        let mut body = plan.body(nodes, id)?;
        if node.op == OpCode::Arithmetic(Arithmetic::Pow)
            && let OpCode::Const(exponent) = nodes[src[1] as usize].op
            && !matches!(nodes[src[0] as usize].op, OpCode::Const(_) | OpCode::Param(_))
        {
            body = Loop::of_power(f64::from(f32::from_scalar(exponent))).unwrap_or(body);
        }
        let from = match body.operands() {
            1 => [src[0]; 4],
            2 => [src[0], src[1], src[0], src[0]],
            _ => {
                let compared = nodes[src[0] as usize].src;
                [compared[0], compared[1], src[1], src[2]]
            }
        };
        Some(NodeStep { id: id as Id, body, from })
    }
}
