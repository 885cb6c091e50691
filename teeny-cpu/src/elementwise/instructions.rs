//! The instructions of an accumulator machine (`registers`), made of the steps of a group.
//!
//! A value that only the next step reads stays in the accumulator; every other one has memory. 16-bit
//! operands are widened into buffers of eight vectors, each once however often it is read, and results
//! are rounded from one:
//!
//! ```text
//!   widen x ─► buffer 1 ─ load buffer 1 ─ mul 0.1 ─ choose by buffer 1 ─ store buffer 0 ─► narrow y
//! ```
//! Knows no vector.

use super::loops::Loop;
use super::step::{Format, Place, Step};

/// Vectors of the accumulator.
pub(super) const VECTORS: usize = 8;
/// The most instructions, and the most operands that are one number.
const MAX_INSTRUCTIONS: usize = 48;
const MAX_NUMBERS: usize = 12;
/// The most buffers: of 16-bit results, and of one operand each.
pub(super) const MAX_BUFFERS: usize = 6;
/// Bytes of a buffer: those of the accumulator.
pub(super) const BUFFER: usize = VECTORS * 64;

/// What an instruction does with the accumulator and its operand in memory. `Back` operations have
/// the operand on their left side.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Code {
    Load,
    Store,
    Stream,
    Add,
    Sub,
    SubBack,
    Mul,
    Div,
    DivBack,
    Max,
    MaxBack,
    Min,
    MinBack,
    Neg,
    Abs,
    Sign,
    Recip,
    Sqrt,
    Rsqrt,
    Floor,
    Ceil,
    Round,
    Trunc,
    Square,
    Cube,
    /// The operand and those of the next three instructions: two that are compared, two to choose
    /// from.
    Lt,
    Le,
    Eq,
    Ne,
    /// As these, where the last operand is the accumulator.
    LtElse,
    LeElse,
    EqElse,
    NeElse,
    /// An operand of the instruction before.
    Operand,
    /// The elements of 16 bits at the operand, as f32 in the next one; without the accumulator.
    WidenBf16,
    WidenF16,
    /// The f32 in the next operand, rounded to elements of 16 bits.
    NarrowBf16,
    NarrowF16,
}

/// Whether a loop is an instruction.
pub(super) fn is_cheap(body: Loop) -> bool {
    code_of(body).is_some()
}

/// The code of `body` with its first operand in the accumulator, and with its last one; a choice has
/// all operands in memory, or all but the last.
fn code_of(body: Loop) -> Option<(Code, Code)> {
    let one = |code| Some((code, code));
    match body {
        Loop::Add => one(Code::Add),
        Loop::Sub => Some((Code::Sub, Code::SubBack)),
        Loop::Mul => one(Code::Mul),
        Loop::Div => Some((Code::Div, Code::DivBack)),
        Loop::Max => Some((Code::Max, Code::MaxBack)),
        Loop::Min => Some((Code::Min, Code::MinBack)),
        Loop::Neg => one(Code::Neg),
        Loop::Abs => one(Code::Abs),
        Loop::Sign => one(Code::Sign),
        Loop::Recip => one(Code::Recip),
        Loop::Sqrt => one(Code::Sqrt),
        Loop::Rsqrt => one(Code::Rsqrt),
        Loop::Floor => one(Code::Floor),
        Loop::Ceil => one(Code::Ceil),
        Loop::Round => one(Code::Round),
        Loop::Trunc => one(Code::Trunc),
        Loop::Square => one(Code::Square),
        Loop::Cube => one(Code::Cube),
        Loop::SelectLt => Some((Code::Lt, Code::LtElse)),
        Loop::SelectLe => Some((Code::Le, Code::LeElse)),
        Loop::SelectEq => Some((Code::Eq, Code::EqElse)),
        Loop::SelectNe => Some((Code::Ne, Code::NeElse)),
        _ => None,
    }
}

/// An instruction, and the memory of its operand or result.
#[derive(Clone, Copy)]
pub(super) struct Instruction {
    pub code: Code,
    /// The first element of the first row.
    pub first: *mut u8,
    /// Bytes to the next row.
    pub row: isize,
    /// Bytes to the next element along a row: 0 for a block, which is used again, and for a number.
    pub step: usize,
    /// All bits if consecutive vectors are in consecutive memory, none for a number.
    pub moves: usize,
}

/// One number in every lane.
#[repr(align(64))]
#[derive(Clone, Copy)]
pub(super) struct Number {
    /// Read by vectors only.
    _lanes: [u8; 64],
}

impl Number {
    fn of(bytes: [u8; 8], size: usize) -> Number {
        let mut lanes = [0; 64];
        for lane in lanes.chunks_exact_mut(size) {
            lane.copy_from_slice(&bytes[..size]);
        }
        Number { _lanes: lanes }
    }
}

/// A number that is another one in each row: where it is spread, the first, and the bytes to the
/// next.
#[derive(Clone, Copy)]
pub(super) struct Column {
    pub number: usize,
    pub first: *const u8,
    pub row: isize,
    pub format: Format,
}

/// The instructions of a group.
pub(super) struct Machine {
    list: [Instruction; MAX_INSTRUCTIONS],
    len: usize,
    pub numbers: [Number; MAX_NUMBERS],
    columns: [Column; MAX_NUMBERS],
    num_numbers: usize,
    num_columns: usize,
    pub size: usize,
    /// `MAX_BUFFERS` buffers, and the first elements and pitches of the operands in all but the first.
    buffers: *mut u8,
    widened: [(*mut u8, isize); MAX_BUFFERS - 1],
    num_widened: usize,
}

fn is_same(a: Place, b: Place) -> bool {
    match (a, b) {
        (Place::Rows(p, ..), Place::Rows(q, ..)) | (Place::Block(p), Place::Block(q)) => p == q,
        _ => false,
    }
}

/// Whether the value of step `k` is read from memory: not if only the next step reads it, once, and
/// takes it from the accumulator.
fn is_kept(steps: &[Step], k: usize) -> bool {
    let to = steps[k].to;
    if !matches!(to, Place::Block(_)) {
        return true;
    }
    for (m, step) in steps.iter().enumerate().skip(k + 1) {
        let operands = step.body.operands();
        let reads = step.from[..operands].iter().filter(|&&from| is_same(from, to)).count();
        let is_last = operands != 4 || is_same(step.from[3], to);
        if reads > 1 || reads == 1 && (m > k + 1 || !is_last) {
            return true;
        }
        if is_same(step.to, to) {
            return false;
        }
    }
    false
}

impl Machine {
    /// The machine of `steps`; `buffers` has `MAX_BUFFERS` times `BUFFER` bytes, which are only written
    /// when it runs. None if there are too many instructions, or one of the steps is none.
    pub(super) fn new(steps: &[Step], buffers: *mut u8) -> Option<Machine> {
        let (code, none) = (Code::Operand, std::ptr::null_mut());
        let empty = Instruction { code, first: none, row: 0, step: 0, moves: 0 };
        let column = Column { number: 0, first: none, row: 0, format: Format::Own };
        let mut machine = Machine {
            list: [empty; MAX_INSTRUCTIONS],
            len: 0,
            numbers: [Number { _lanes: [0; 64] }; MAX_NUMBERS],
            columns: [column; MAX_NUMBERS],
            num_numbers: 0,
            num_columns: 0,
            size: if steps[0].wide { 8 } else { 4 },
            buffers,
            widened: [(none, 0); MAX_BUFFERS - 1],
            num_widened: 0,
        };
        let mut before = None;
        for (k, step) in steps.iter().enumerate() {
            if !machine.step(step, before, is_kept(steps, k)) {
                return None;
            }
            before = Some(step.to);
        }
        Some(machine)
    }

    /// The instructions and the columns, with the numbers where they are now.
    pub(super) fn code(&mut self, numbers: *mut Number) -> (&[Instruction], &[Column]) {
        for added in &mut self.list[..self.len] {
            if added.first.is_null() && added.code.reads() {
                added.first = numbers.wrapping_offset(added.row).cast();
                added.row = 0;
            }
        }
        (&self.list[..self.len], &self.columns[..self.num_columns])
    }

    /// Buffer `k`.
    fn buffer(&self, k: usize) -> Place {
        Place::Block(self.buffers.wrapping_add(k * BUFFER))
    }

    /// Where an operand is read: the buffer of one of 16 bits, which is widened now if it is none yet.
    fn operand(&mut self, place: Place) -> Option<Place> {
        let (p, pitch, code) = match place {
            Place::Rows(p, pitch, Format::Bf16) => (p, pitch, Code::WidenBf16),
            Place::Rows(p, pitch, Format::F16) => (p, pitch, Code::WidenF16),
            _ => return Some(place),
        };
        let known = &self.widened[..self.num_widened];
        if let Some(k) = known.iter().position(|&same| same == (p, pitch)) {
            return Some(self.buffer(k + 1));
        }
        *self.widened.get_mut(self.num_widened)? = (p, pitch);
        self.num_widened += 1;
        let to = self.buffer(self.num_widened);
        (self.add(code, Some(place)) && self.add(Code::Operand, Some(to))).then_some(to)
    }

    /// Adds an instruction; false if there are too many.
    fn add(&mut self, code: Code, place: Option<Place>) -> bool {
        if self.len == MAX_INSTRUCTIONS {
            return false;
        }
        let size = self.size;
        let mut added =
            Instruction { code, first: std::ptr::null_mut(), row: 0, step: 0, moves: 0 };
        match place {
            None => {}
            Some(Place::Rows(p, pitch, format)) => {
                let size = if format == Format::Own { size } else { 2 };
                added = Instruction {
                    first: p,
                    row: pitch * size as isize,
                    step: size,
                    moves: usize::MAX,
                    ..added
                };
            }
            Some(Place::Block(p)) => {
                added = Instruction { first: p, moves: usize::MAX, ..added };
            }
            Some(Place::Splat(_) | Place::Column(..)) if self.num_numbers == MAX_NUMBERS => {
                return false;
            }
            Some(number) => {
                let index = self.num_numbers;
                match number {
                    Place::Splat(bytes) => self.numbers[index] = Number::of(bytes, size),
                    Place::Column(first, pitch, format) => {
                        let row = pitch * if format == Format::Own { size as isize } else { 2 };
                        self.columns[self.num_columns] =
                            Column { number: index, first, row, format };
                        self.num_columns += 1;
                    }
                    Place::Rows(..) | Place::Block(_) => {}
                }
                // The number's address is known when the machine no longer moves.
                added.row = index as isize;
                self.num_numbers += 1;
            }
        }
        self.list[self.len] = added;
        self.len += 1;
        true
    }

    /// The instructions of a step; `before` is the place of the value in the accumulator.
    fn step(&mut self, step: &Step, before: Option<Place>, is_kept: bool) -> bool {
        let Some((code, back)) = code_of(step.body) else { return false };
        let holds = |place| before.is_some_and(|before| is_same(before, place));
        let mut from = step.from;
        for place in from.iter_mut().take(step.body.operands()).filter(|&&mut place| !holds(place))
        {
            let Some(read) = self.operand(*place) else { return false };
            *place = read;
        }
        let [a, b, c, d] = from;
        let made = match step.body.operands() {
            1 => (holds(a) || self.add(Code::Load, Some(a))) && self.add(code, None),
            2 if holds(a) => self.add(code, Some(b)),
            2 if holds(b) => self.add(back, Some(a)),
            2 => self.add(Code::Load, Some(a)) && self.add(code, Some(b)),
            _ if holds(d) => {
                self.add(back, Some(a))
                    && self.add(Code::Operand, Some(b))
                    && self.add(Code::Operand, Some(c))
            }
            _ => {
                self.add(code, Some(a))
                    && [b, c, d].iter().all(|&p| self.add(Code::Operand, Some(p)))
            }
        };
        let aligned = matches!(step.to, Place::Rows(p, ..) if (p as usize).is_multiple_of(64));
        let store = if step.stream && aligned { Code::Stream } else { Code::Store };
        let narrow = match step.to {
            Place::Rows(_, _, Format::Bf16) => Code::NarrowBf16,
            Place::Rows(_, _, Format::F16) => Code::NarrowF16,
            _ => return made && (!is_kept || self.add(store, Some(step.to))),
        };
        let buffer = Some(self.buffer(0));
        made && self.add(Code::Store, buffer)
            && self.add(narrow, Some(step.to))
            && self.add(Code::Operand, buffer)
    }
}

impl Code {
    /// Whether an instruction has an operand in memory.
    fn reads(self) -> bool {
        use Code::*;
        matches!(
            self,
            Load | Add | Sub | SubBack | Mul | Div | DivBack | Max | MaxBack | Min | MinBack
        ) || matches!(self, Lt | Le | Eq | Ne | LtElse | LeElse | EqElse | NeElse | Operand)
    }
}
