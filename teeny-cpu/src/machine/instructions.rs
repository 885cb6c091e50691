//! The instructions of an accumulator machine (`registers`), made of the steps of a group.
//!
//! A value that only the next step reads stays in the accumulator; every other value is stored.
//! 16-bit operands are widened into the accumulator if one step begins with them, otherwise into
//! buffers of eight vectors, each once however often it is read. Results are rounded from the
//! accumulator:
//!
//! ```text
//!   widen x ─► buffer 0 ─ load buffer 0 ─ mul 0.1 ─ choose by buffer 0 ─ store y in 16 bits
//! ```
//! Independent of vectors.

use super::step::{Format, Place, Step};
use crate::loops::{Loop, each_loop};
use std::mem::MaybeUninit;

/// Vectors of the accumulator.
pub(crate) const VECTORS: usize = 8;
/// The maximum number of instructions.
const MAX_INSTRUCTIONS: usize = 48;
/// The maximum number of scalars. An operand with the same scalar in all rows takes one; an operand
/// with a scalar per row takes [`VECTORS`], one for each row.
const MAX_NUMBERS: usize = 28;
const MAX_COLUMNS: usize = MAX_NUMBERS / VECTORS;
/// The maximum number of buffers; each holds one 16-bit operand.
pub(super) const MAX_BUFFERS: usize = 5;
/// Bytes of the widest vector, and the stride of vectors in buffers and of scalars.
pub(crate) const VECTOR: usize = 64;
/// Bytes of a buffer, as of the accumulator.
pub(crate) const BUFFER: usize = VECTORS * VECTOR;

macro_rules! declare {
    (cheap: $($cheap:ident)*; cheap_pairs: $($cheap_pair:ident)*; functions: $($function:ident)*;
     pairs: $($pair:ident)*; choices: $($choice:ident)*;) => {
        /// The operation of an instruction, on the accumulator and an operand in memory.
        #[derive(Clone, Copy, PartialEq, Debug)]
        pub(crate) enum Code {
            Load,
            Store,
            Stream,
            $($cheap,)*
            $($cheap_pair,)*
            // With the operand on the left side.
            RSub,
            RDiv,
            RMax,
            RMin,
            // Compares the operand with the next instruction's; chooses the operand of the one
            // after if that is true, otherwise the accumulator.
            $($choice,)*
            /// An operand of the instruction before.
            Operand,
            /// The elements of 16 bits at the operand, as f32 in the next one; without the
            /// accumulator.
            WidenBf16,
            WidenF16,
            /// As `Load` and `Store` of elements of 16 bits.
            LoadBf16,
            LoadF16,
            StoreBf16,
            StoreF16,
            /// A function with a separate loop: of the accumulator and, if it has two
            /// operands, this one. The next instruction is memory for two buffers.
            Call(Loop),
            /// Combines the accumulator, which stays as it is, with the numbers at the operand.
            FoldSum,
            FoldProd,
            FoldMax,
            FoldMin,
        }

        impl Code {
            /// The code of a loop that is an instruction, with its first operand in the
            /// accumulator.
            fn of(body: Loop) -> Option<Code> {
                Some(match body {
                    $(Loop::$cheap => Code::$cheap,)*
                    $(Loop::$cheap_pair => Code::$cheap_pair,)*
                    $(Loop::$choice => Code::$choice,)*
                    $(Loop::$function)|* | $(Loop::$pair)|* => return None,
                })
            }
        }
    };
}
each_loop!(declare);

impl Code {
    /// Whether it combines the accumulator with its operand.
    pub(crate) fn has_two_operands(self) -> bool {
        use Code::{Add, Div, Max, Min, Mul, RDiv, RMax, RMin, RSub, Sub};
        let all = [Add, Sub, RSub, Mul, Div, RDiv, Max, RMax, Min, RMin];
        all.contains(&self)
    }
}

/// Whether a loop is an instruction.
pub(crate) fn is_cheap(body: Loop) -> bool {
    code_of(body).is_some()
}

/// The code of `body` with its first operand in the accumulator, and with its last one; a choice
/// always has the last one there.
pub(crate) fn code_of(body: Loop) -> Option<(Code, Code)> {
    let code = Code::of(body)?;
    let back = match code {
        Code::Sub => Code::RSub,
        Code::Div => Code::RDiv,
        Code::Max => Code::RMax,
        Code::Min => Code::RMin,
        code => code,
    };
    Some((code, back))
}

/// Calls `emit` with the instructions that compute `body` of the values at `from` into the
/// accumulator, which holds the value of `before`. None if no instruction computes `body`, or
/// `emit` returns None.
pub(crate) fn lower<P: Copy + PartialEq>(
    body: Loop,
    from: [P; 4],
    before: Option<P>,
    mut emit: impl FnMut(Code, Option<P>) -> Option<()>,
) -> Option<()> {
    let ((code, back), operands) = (code_of(body)?, body.operands());
    let [a, b, c, d] = from;
    let holds = |place| before == Some(place);
    if operands == 2 && !holds(a) && holds(b) {
        return emit(back, Some(a));
    }
    let first = if operands == 4 { d } else { a };
    if !holds(first) {
        emit(Code::Load, Some(first))?;
    }
    match operands {
        1 => emit(code, None),
        2 => emit(code, Some(b)),
        _ => {
            emit(code, Some(a))?;
            emit(Code::Operand, Some(b))?;
            emit(Code::Operand, Some(c))
        }
    }
}

/// Whether one of the next steps, loops of values, reads `value` from memory: not if only the next
/// one reads it, once, and takes it from the accumulator.
pub(crate) fn is_read<P: Copy + PartialEq>(
    value: P,
    mut steps: impl Iterator<Item = (Loop, [P; 4])>,
) -> bool {
    let reads = |(body, from): (Loop, [P; 4])| {
        from[..body.operands()].iter().filter(|&&place| place == value).count()
    };
    let Some(next @ (body, from)) = steps.next() else { return false };
    let held = match code_of(body) {
        _ if body.operands() == 4 => from[3],
        None => from[0],
        Some(_) => value,
    };
    reads(next) > usize::from(held == value) || steps.any(|step| reads(step) > 0)
}

/// An instruction, and the memory of its operand or result.
#[derive(Clone, Copy)]
pub(crate) struct Instruction {
    pub code: Code,
    /// The first element of the first row.
    pub first: *mut u8,
    /// Bytes to the next row.
    pub row: isize,
    /// Bytes to the next element along a row: 0 for a block, which is used again, and for a number.
    pub step: usize,
    /// All bits if consecutive vectors are in consecutive memory, none for a number.
    pub moves: usize,
    /// Bytes to the next vector if vectors are of consecutive rows.
    pub down: isize,
    /// Whether the operand is one number in each row, at `first` in the first.
    pub is_column: bool,
}

impl Instruction {
    /// An instruction whose operand is one number, in every lane at `first`, or that has none.
    pub(crate) fn of_number(code: Code, first: *mut u8) -> Instruction {
        Instruction { code, first, row: 0, step: 0, moves: 0, down: 0, is_column: false }
    }

    /// An instruction over the elements of `size` bytes of one row.
    pub(crate) fn of_row(code: Code, first: *mut u8, size: usize) -> Instruction {
        Instruction { step: size, moves: usize::MAX, ..Instruction::of_number(code, first) }
    }

    /// An instruction over a block of vectors.
    pub(crate) fn of_block(code: Code, first: *mut u8) -> Instruction {
        let own = Instruction::of_number(code, first);
        Instruction { moves: usize::MAX, down: VECTOR as isize, ..own }
    }
}

/// One number in every lane. Written and read by vectors only.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub(crate) struct Splat([u64; VECTOR / 8]);

impl Splat {
    pub(crate) fn of(bytes: [u8; 8], size: usize) -> Splat {
        let [a, b, c, d, ..] = bytes;
        let bytes = if size == 8 { bytes } else { [a, b, c, d, a, b, c, d] };
        Splat([u64::from_ne_bytes(bytes); VECTOR / 8])
    }
}

/// A number that is another one in each row: where it is spread, the first, and the bytes to the
/// next.
#[derive(Clone, Copy)]
pub(super) struct Column {
    pub to: *mut Splat,
    pub first: *const u8,
    pub row: isize,
    pub format: Format,
}

/// The memory of a machine, which is not initialised: that would take longer than a short run.
#[repr(align(64))]
pub(super) struct Memory {
    numbers: [MaybeUninit<Splat>; MAX_NUMBERS],
    buffers: MaybeUninit<[u8; MAX_BUFFERS * BUFFER]>,
    list: [MaybeUninit<Instruction>; MAX_INSTRUCTIONS],
}

impl Memory {
    pub(super) fn new() -> Memory {
        let buffers = MaybeUninit::uninit();
        let list = [const { MaybeUninit::uninit() }; MAX_INSTRUCTIONS];
        Memory { numbers: [const { MaybeUninit::uninit() }; MAX_NUMBERS], buffers, list }
    }
}

/// The instructions of a group.
pub(super) struct Machine<'a> {
    list: &'a mut [MaybeUninit<Instruction>; MAX_INSTRUCTIONS],
    len: usize,
    numbers: *mut Splat,
    num_numbers: usize,
    columns: [Option<Column>; MAX_COLUMNS],
    pub size: usize,
    buffers: *mut u8,
    /// The first elements and row strides of the operands in the buffers.
    widened: [(*mut u8, isize); MAX_BUFFERS],
    num_widened: usize,
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
        let reads = step.from[..operands].iter().filter(|&&from| from == to).count();
        let is_last = operands != 4 || step.from[3] == to;
        if reads > 1 || reads == 1 && (m > k + 1 || !is_last) {
            return true;
        }
        if step.to == to {
            return false;
        }
    }
    false
}

impl<'a> Machine<'a> {
    /// The machine of `steps`. `None` if it needs too many instructions, or a step has none.
    pub(super) fn new(steps: &[Step], memory: &'a mut Memory) -> Option<Machine<'a>> {
        let mut machine = Machine {
            numbers: memory.numbers.as_mut_ptr().cast(),
            buffers: memory.buffers.as_mut_ptr().cast(),
            list: &mut memory.list,
            len: 0,
            num_numbers: 0,
            columns: [None; MAX_COLUMNS],
            size: if steps[0].wide { 8 } else { 4 },
            widened: [(std::ptr::null_mut(), 0); MAX_BUFFERS],
            num_widened: 0,
        };
        let mut before = None;
        for (k, step) in steps.iter().enumerate() {
            if !machine.step(steps, step, before, is_kept(steps, k)) {
                return None;
            }
            before = Some(step.to);
        }
        Some(machine)
    }

    /// The instructions.
    pub(super) fn code(&self) -> &[Instruction] {
        // SAFETY: `add` has written the first `len`.
        unsafe { std::slice::from_raw_parts(self.list.as_ptr().cast(), self.len) }
    }

    /// The columns, which must be spread before the instructions run.
    pub(super) fn columns(&self) -> &[Option<Column>] {
        &self.columns
    }

    /// Buffer `k`.
    fn buffer(&self, k: usize) -> Place {
        Place::Block(self.buffers.wrapping_add(k * BUFFER))
    }

    /// The place that an operand is read from: for 16 bits a buffer, which is filled with f32 if it
    /// is new.
    fn operand(&mut self, place: Place) -> Option<Place> {
        let (p, stride, code) = match place {
            Place::Rows(p, stride, Format::Bf16) => (p, stride, Code::WidenBf16),
            Place::Rows(p, stride, Format::F16) => (p, stride, Code::WidenF16),
            _ => return Some(place),
        };
        let known = &self.widened[..self.num_widened];
        if let Some(k) = known.iter().position(|&same| same == (p, stride)) {
            return Some(self.buffer(k));
        }
        *self.widened.get_mut(self.num_widened)? = (p, stride);
        let to = self.buffer(self.num_widened);
        self.num_widened += 1;
        (self.add(code, Some(place)) && self.add(Code::Operand, Some(to))).then_some(to)
    }

    /// Adds an instruction; false if there are too many.
    fn add(&mut self, code: Code, place: Option<Place>) -> bool {
        if self.len == MAX_INSTRUCTIONS {
            return false;
        }
        let size = self.size;
        let mut added = Instruction::of_number(code, std::ptr::null_mut());
        match place {
            None => {}
            Some(Place::Rows(first, stride, format)) => {
                let step = if format == Format::Own { size } else { 2 };
                let row = stride * step as isize;
                added = Instruction { row, down: row, ..Instruction::of_row(code, first, step) };
            }
            Some(Place::Block(first)) => {
                added = Instruction::of_block(code, first);
            }
            Some(Place::Splat(bytes)) => {
                let Some(to) = self.numbers(1) else { return false };
                // SAFETY: in the memory of numbers, which this borrows.
                unsafe { to.write(Splat::of(bytes, size)) };
                added.first = to.cast();
            }
            Some(Place::Column(first, stride, Format::Own)) if code.has_two_operands() => {
                let row = stride * size as isize;
                let first = first.cast_mut();
                added = Instruction { first, row, down: row, is_column: true, ..added };
            }
            Some(Place::Column(first, stride, format)) => {
                let row = stride * if format == Format::Own { size as isize } else { 2 };
                let Some(column) = self.columns.iter().position(Option::is_none) else {
                    return false;
                };
                let Some(to) = self.numbers(VECTORS) else { return false };
                self.columns[column] = Some(Column { to, first, row, format });
                added = Instruction { first: to.cast(), down: VECTOR as isize, ..added };
            }
        }
        self.list[self.len].write(added);
        self.len += 1;
        true
    }

    /// The next `n` numbers.
    fn numbers(&mut self, n: usize) -> Option<*mut Splat> {
        let first = self.num_numbers;
        self.num_numbers += n;
        (self.num_numbers <= MAX_NUMBERS).then(|| self.numbers.wrapping_add(first))
    }

    /// The instructions of a step; `before` is the place of the value in the accumulator.
    fn step(&mut self, steps: &[Step], step: &Step, before: Option<Place>, is_kept: bool) -> bool {
        let holds = |place| before == Some(place);
        let operands = step.body.operands();
        let mut from = step.from;
        // The only reader of an operand of 16 bits may load it.
        let loads = operands <= 2 && !from[..operands].iter().any(|&place| holds(place)) && {
            let all = steps.iter().flat_map(|step| &step.from[..step.body.operands()]);
            all.filter(|&&place| place == from[0]).count() == 1
        };
        let first = usize::from(loads);
        for place in from[..operands].iter_mut().skip(first).filter(|&&mut place| !holds(place)) {
            let Some(read) = self.operand(*place) else { return false };
            *place = read;
        }
        let made = lower(step.body, from, before, |code, place| {
            let code = match (code, place) {
                (Code::Load, Some(Place::Rows(_, _, Format::Bf16))) => Code::LoadBf16,
                (Code::Load, Some(Place::Rows(_, _, Format::F16))) => Code::LoadF16,
                _ => code,
            };
            self.add(code, place).then_some(())
        });
        // Every row must be aligned.
        let aligned = matches!(step.to, Place::Rows(p, stride, Format::Own)
            if (p as usize).is_multiple_of(VECTOR)
                && stride.unsigned_abs().wrapping_mul(self.size).is_multiple_of(VECTOR));
        let store = if step.stream && aligned { Code::Stream } else { Code::Store };
        let (store, is_kept) = match step.to {
            Place::Rows(_, _, Format::Bf16) => (Code::StoreBf16, true),
            Place::Rows(_, _, Format::F16) => (Code::StoreF16, true),
            _ => (store, is_kept),
        };
        made.is_some() && (!is_kept || self.add(store, Some(step.to)))
    }
}
