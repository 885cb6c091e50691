//! A group of cheap float operations whose values stay in registers: an accumulator machine.
//!
//! The naive form (`blocks`) runs one loop for each operation over a block in L1: a value is stored
//! and loaded once more than it need be, and rows of a few elements start every loop again. Here an
//! accumulator of eight vectors stays in registers from one operation to the next, and each
//! instruction has at most one operand in memory (a choice has four):
//!
//! ```text
//!   load x ─ mul 0.1 ─ add y ─ store     elements 0 .. 128 of a row, then 128 .. 256, the rest by
//!   load x ─ mul 0.1 ─ add y ─ store     four vectors, two, and one that may be a part
//! ```
//! The same operations on the same values in the same order as in `blocks`, so the same bits.
//! Knows no node: `blocks` calls it with steps whose functions are all cheap.

use super::loops::Loop;
use super::loops::float::*;
use super::loops::select::{Eq, Le, Lt, Ne};
use super::step::{Format, Place, Step, Stream};
use crate::simd::loops::Real;
use crate::simd::{F32s, Lanes, Level, Work, prefetch};
use std::marker::PhantomData;

/// Vectors of the accumulator.
const VECTORS: usize = 8;
/// The most instructions, and the most operands that are one number.
const MAX_INSTRUCTIONS: usize = 48;
const MAX_NUMBERS: usize = 12;
/// Bytes ahead of the accumulator that are prefetched.
const AHEAD: usize = 2048;

/// What an instruction does with the accumulator and its operand in memory. `Back` operations have
/// the operand on their left side.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Code {
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
struct Instruction {
    code: Code,
    /// The first element of the first row.
    first: *mut u8,
    /// Bytes to the next row.
    row: isize,
    /// Bytes to the next element along a row: 0 for a block, which is used again, and for a number.
    step: usize,
    /// All bits if consecutive vectors are in consecutive memory, none for a number.
    moves: usize,
}

/// One number in every lane.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Number {
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
struct Column {
    number: usize,
    first: *const u8,
    row: isize,
}

/// The instructions of a group.
struct Machine {
    list: [Instruction; MAX_INSTRUCTIONS],
    len: usize,
    numbers: [Number; MAX_NUMBERS],
    columns: [Column; MAX_NUMBERS],
    num_numbers: usize,
    num_columns: usize,
    size: usize,
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
            Some(Place::Rows(p, pitch, _)) => {
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
                    Place::Column(first, pitch, _) => {
                        let row = pitch * size as isize;
                        self.columns[self.num_columns] = Column { number: index, first, row };
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
        let [a, b, c, d] = step.from;
        let holds = |place| before.is_some_and(|before| is_same(before, place));
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
        made && (!is_kept || self.add(store, Some(step.to)))
    }
}

/// Runs `steps` over `rows` rows of `n` elements as `blocks::run` does. False if one of them is not
/// cheap, or has operands of 16 bits.
///
/// # Safety
/// As `blocks::run`.
pub(super) unsafe fn run(
    level: Level,
    steps: &[Step],
    rows: usize,
    n: usize,
    prefetched: &[Stream],
) -> bool {
    let is_own = |place: &Place| !matches!(place, Place::Rows(_, _, format) | Place::Column(_, _, format) if *format != Format::Own);
    let is_cheap = |step: &Step| {
        code_of(step.body).is_some() && step.from.iter().chain([&step.to]).all(is_own)
    };
    if !steps.iter().all(is_cheap) {
        return false;
    }
    let empty =
        Instruction { code: Code::Operand, first: std::ptr::null_mut(), row: 0, step: 0, moves: 0 };
    let mut machine = Machine {
        list: [empty; MAX_INSTRUCTIONS],
        len: 0,
        numbers: [Number { _lanes: [0; 64] }; MAX_NUMBERS],
        columns: [Column { number: 0, first: std::ptr::null(), row: 0 }; MAX_NUMBERS],
        num_numbers: 0,
        num_columns: 0,
        size: if steps[0].wide { 8 } else { 4 },
    };
    let mut before = None;
    for (k, step) in steps.iter().enumerate() {
        if !machine.step(step, before, is_kept(steps, k)) {
            return false;
        }
        before = Some(step.to);
    }
    let numbers = machine.numbers.as_mut_ptr();
    for added in &mut machine.list[..machine.len] {
        if added.first.is_null() && added.code.reads() {
            // SAFETY: the index of a number.
            added.first = unsafe { numbers.offset(added.row).cast() };
            added.row = 0;
        }
    }
    let code = &machine.list[..machine.len];
    let columns = &machine.columns[..machine.num_columns];
    if machine.size == 8 {
        level.run(Rows::<f64> { code, columns, numbers, prefetched, rows, n, of: PhantomData });
    } else {
        level.run(Rows::<f32> { code, columns, numbers, prefetched, rows, n, of: PhantomData });
    }
    true
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

/// [`run`] compiled for a level.
struct Rows<'a, T> {
    code: &'a [Instruction],
    columns: &'a [Column],
    numbers: *mut Number,
    prefetched: &'a [Stream],
    rows: usize,
    n: usize,
    of: PhantomData<T>,
}

impl<T: Real> Work for Rows<'_, T> {
    type Out = ();
    const FOR_AVX512: bool = size_of::<T>() == 4;
    #[inline(always)]
    fn run<V: F32s>(self) {
        let Rows { code, columns, numbers, prefetched, rows, n, .. } = self;
        let lanes = T::Vector::<V>::LANES;
        for row in 0..rows as isize {
            // SAFETY: `run` was promised a number in each row for each column, and `n` elements in
            // each row; a block has memory for eight vectors.
            unsafe {
                for column in columns {
                    let x = *column.first.wrapping_offset(row * column.row).cast::<T>();
                    let to = numbers.add(column.number).cast::<T>();
                    for lane in (0..64 / size_of::<T>()).step_by(lanes) {
                        T::Vector::<V>::splat(x).store(to.add(lane));
                    }
                }
                let mut at = 0;
                while at + VECTORS * lanes <= n {
                    for stream in prefetched {
                        let row = stream.first.wrapping_offset(row * stream.pitch);
                        let first = row.wrapping_add(at * size_of::<T>() + AHEAD);
                        for line in 0..VECTORS * lanes * size_of::<T>() / 64 {
                            prefetch(first.wrapping_add(64 * line).cast());
                        }
                    }
                    execute::<T, V, VECTORS>(code, row, at, lanes);
                    at += VECTORS * lanes;
                }
                if at + 4 * lanes <= n {
                    execute::<T, V, 4>(code, row, at, lanes);
                    at += 4 * lanes;
                }
                if at + 2 * lanes <= n {
                    execute::<T, V, 2>(code, row, at, lanes);
                    at += 2 * lanes;
                }
                while at < n {
                    execute::<T, V, 1>(code, row, at, lanes.min(n - at));
                    at += lanes;
                }
            }
        }
    }
}

/// Runs the instructions over `N` vectors of row `row` from element `at` on. If `N` is 1, the vector
/// has `count` elements.
///
/// # Safety
/// The memory of all instructions has these elements.
#[inline(always)]
unsafe fn execute<T: Real, V: F32s, const N: usize>(
    code: &[Instruction],
    row: isize,
    at: usize,
    count: usize,
) {
    let bytes = T::Vector::<V>::LANES * size_of::<T>();
    let mut acc = [T::Vector::<V>::splat(T::default()); VECTORS];
    // Numbers of vectors as literals, so that the accumulator stays in registers.
    macro_rules! each {
        (|$j:ident| $body:expr) => {
            each!(@ $j $body, 0 1 2 3 4 5 6 7)
        };
        (@ $j:ident $body:expr, $($index:literal)*) => {{
            $(if $index < N {
                const $j: usize = $index;
                $body
            })*
        }};
    }
    let mut rest = code.iter();
    while let Some(this) = rest.next() {
        // The address of the first vector, and bytes to the next.
        let place = |of: &Instruction| {
            let first = of.first.wrapping_offset(row * of.row).wrapping_add(at * of.step);
            (first, bytes & of.moves)
        };
        let (p, step) = place(this);
        macro_rules! at {
            ($p:expr, $step:expr, $j:expr) => {
                $p.wrapping_add($j * $step).cast::<T>()
            };
        }
        macro_rules! load {
            ($p:expr, $step:expr, $j:expr) => {
                if N == 1 {
                    T::Vector::<V>::load_part(at!($p, $step, $j), count)
                } else {
                    T::Vector::<V>::load(at!($p, $step, $j))
                }
            };
        }
        macro_rules! one {
            ($f:ty) => {
                each!(|J| acc[J] = T::unary::<$f, V>(acc[J]))
            };
        }
        macro_rules! two {
            ($f:ty) => {
                each!(|J| acc[J] = T::binary::<$f, V>(acc[J], load!(p, step, J)))
            };
        }
        macro_rules! back {
            ($f:ty) => {
                each!(|J| acc[J] = T::binary::<$f, V>(load!(p, step, J), acc[J]))
            };
        }
        macro_rules! four {
            ($f:ty) => {{
                let (Some(v), Some(a), Some(b)) = (rest.next(), rest.next(), rest.next()) else {
                    return;
                };
                let (v, a, b) = (place(v), place(a), place(b));
                each!(|J| acc[J] = T::choice::<$f, V>([
                    load!(p, step, J),
                    load!(v.0, v.1, J),
                    load!(a.0, a.1, J),
                    load!(b.0, b.1, J)
                ]))
            }};
        }
        macro_rules! choose {
            ($f:ty) => {{
                let (Some(v), Some(a)) = (rest.next(), rest.next()) else { return };
                let (v, a) = (place(v), place(a));
                each!(|J| acc[J] = T::choice::<$f, V>([
                    load!(p, step, J),
                    load!(v.0, v.1, J),
                    load!(a.0, a.1, J),
                    acc[J]
                ]))
            }};
        }
        // SAFETY: by contract; a part of a vector is read and written as such.
        unsafe {
            match this.code {
                Code::Load => each!(|J| acc[J] = load!(p, step, J)),
                Code::Store | Code::Stream if N == 1 => acc[0].store_part(p.cast(), count),
                // The first element is at a 64-byte boundary, and so is each of these.
                Code::Stream if N == VECTORS => each!(|J| acc[J].stream(at!(p, step, J))),
                Code::Store | Code::Stream => each!(|J| acc[J].store(at!(p, step, J))),
                Code::Add => two!(Add),
                Code::Sub => two!(Sub),
                Code::SubBack => back!(Sub),
                Code::Mul => two!(Mul),
                Code::Div => two!(Div),
                Code::DivBack => back!(Div),
                Code::Max => two!(Max),
                Code::MaxBack => back!(Max),
                Code::Min => two!(Min),
                Code::MinBack => back!(Min),
                Code::Neg => one!(Neg),
                Code::Abs => one!(Abs),
                Code::Sign => one!(Sign),
                Code::Recip => one!(Recip),
                Code::Sqrt => one!(Sqrt),
                Code::Rsqrt => one!(Rsqrt),
                Code::Floor => one!(Floor),
                Code::Ceil => one!(Ceil),
                Code::Round => one!(Round),
                Code::Trunc => one!(Trunc),
                Code::Square => one!(Square),
                Code::Cube => one!(Cube),
                Code::Lt => four!(Lt),
                Code::LtElse => choose!(Lt),
                Code::Le => four!(Le),
                Code::LeElse => choose!(Le),
                Code::Eq => four!(Eq),
                Code::EqElse => choose!(Eq),
                Code::Ne => four!(Ne),
                Code::NeElse => choose!(Ne),
                Code::Operand => {}
            }
        }
    }
}
