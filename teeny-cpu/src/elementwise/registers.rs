//! A group of cheap float operations whose values stay in registers: an accumulator machine.
//!
//! The naive form (`blocks`) runs one loop for each operation over a block in L1: a value is stored
//! and loaded once more than it need be, and rows of a few elements start every loop again. Here an
//! accumulator of eight vectors stays in registers from one operation to the next, and each
//! instruction has at most one operand in memory (a choice has three):
//!
//! ```text
//!   load x ─ mul 0.1 ─ add y ─ store     elements 0 .. 128 of a row, then 128 .. 256, the rest by
//!   load x ─ mul 0.1 ─ add y ─ store     one vector, the last of which may be a part
//! ```
//! For short rows, one vector is taken from each of eight rows, so that the instructions are read
//! once for eight rows.
//!
//! The same operations on the same values in the same order as in `blocks`, so the same bits.
//! Knows no node: `blocks` calls it with steps whose functions are all cheap, and `instructions`
//! makes the machine of them.

use super::half_pairs::convert;
use super::instructions::{Code, Column, Instruction, Machine, Memory, VECTOR, VECTORS};
use super::loops::float::*;
use super::loops::select::{Eq, Le, Lt, Ne};
use super::step::{Format, Step, Stream};
use crate::simd::loops::Real;
use crate::simd::{F32s, Lanes, Level, Work, prefetch};
use crate::vecmath::{Cube, Square};
use std::marker::PhantomData;
use teeny_core::{bf16, f16};

/// Runs `steps` over `rows` rows of `n` elements as `blocks::run` does. False if one of them is not
/// cheap, or there are too many; and on the baseline, whose loops would take as long to compile.
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
    if !level.is_native() {
        return false;
    }
    let mut memory = Memory::new();
    let Some(machine) = Machine::new(steps, &mut memory) else { return false };
    let (code, columns) = (machine.code(), machine.columns());
    if machine.size == 8 {
        level.run(Rows::<f64> { code, columns, prefetched, rows, n, of: PhantomData })
    } else {
        level.run(Rows::<f32> { code, columns, prefetched, rows, n, of: PhantomData })
    }
}

/// Runs instructions on f32 over one row of `n` elements. Not on the baseline.
///
/// # Safety
/// The memory of all instructions has these elements; results overlap no operand of another place.
pub(super) unsafe fn run_row(level: Level, code: &[Instruction], n: usize) {
    let rows = Rows::<f32> { code, columns: &[], prefetched: &[], rows: 1, n, of: PhantomData };
    let done = level.run(rows);
    assert!(done, "instructions on the baseline");
}

/// [`run`] compiled for a level.
struct Rows<'a, T> {
    code: &'a [Instruction],
    columns: &'a [Option<Column>],
    prefetched: &'a [Stream],
    rows: usize,
    n: usize,
    of: PhantomData<T>,
}

impl<T: Real> Work for Rows<'_, T> {
    type Out = bool;
    #[inline(always)]
    fn run<V: F32s>(self) -> bool {
        if !V::NATIVE {
            return false;
        }
        let Rows { code, columns, prefetched, rows, n, .. } = self;
        let lanes = T::Vector::<V>::LANES;
        let streams = code.iter().any(|this| this.code == Code::Stream);
        // Parts of vectors cost as much as whole ones. Results of long rows may bypass the caches.
        let most = if streams { VECTORS } else { 2 * VECTORS } * lanes;
        let mut row = 0;
        if n < most {
            while row + VECTORS <= rows {
                // SAFETY: `run` was promised a number in each row for each column, and `n` elements
                // in each row; a block has memory for eight vectors.
                unsafe {
                    for column in columns.iter().flatten() {
                        (0..VECTORS).for_each(|j| splat_rows::<T, V>(column, row + j, j));
                    }
                    for stream in prefetched {
                        for j in 0..VECTORS as isize {
                            let first = stream.pitch * (row as isize + VECTORS as isize + j);
                            let first = stream.first.wrapping_offset(first);
                            for line in 0..(n * size_of::<T>()).div_ceil(64) {
                                prefetch(first.wrapping_add(64 * line).cast());
                            }
                        }
                    }
                    for at in (0..n).step_by(lanes) {
                        execute::<T, V, VECTORS, true>(code, row as isize, at, lanes.min(n - at));
                    }
                }
                row += VECTORS;
            }
        }
        for row in row..rows {
            // SAFETY: as above.
            unsafe {
                columns.iter().flatten().for_each(|column| splat_rows::<T, V>(column, row, 0));
                let (mut at, row) = (0, row as isize);
                while at + VECTORS * lanes <= n {
                    execute::<T, V, VECTORS, false>(code, row, at, lanes);
                    at += VECTORS * lanes;
                }
                while at < n {
                    execute::<T, V, 1, false>(code, row, at, lanes.min(n - at));
                    at += lanes;
                }
            }
        }
        true
    }
}

/// Writes the number of row `row` into every lane of number `j` of `column`.
///
/// # Safety
/// The column has this row, and numbers up to `j`.
#[inline(always)]
unsafe fn splat_rows<T: Real, V: F32s>(column: &Column, row: usize, j: usize) {
    let first = column.first.wrapping_offset(row as isize * column.row);
    // SAFETY: by contract; a number has the bytes of the widest vector.
    unsafe {
        let x = match column.format {
            Format::Own => *first.cast::<T>(),
            Format::Bf16 => T::from_bytes(bf16::from_bits(*first.cast()).to_f32_const().to_bytes()),
            Format::F16 => T::from_bytes(f16::from_bits(*first.cast()).to_f32_const().to_bytes()),
        };
        let to = column.to.add(j).cast::<T>();
        for lane in (0..VECTOR / size_of::<T>()).step_by(T::Vector::<V>::LANES) {
            T::Vector::<V>::splat(x).store(to.add(lane));
        }
    }
}

/// Runs the instructions over `N` vectors of row `row` from element `at` on, or with `ROWWISE` over
/// one vector of each of `N` rows. With `ROWWISE`, or if `N` is 1, a vector has `count` elements.
///
/// # Safety
/// The memory of all instructions has these elements.
#[inline(always)]
unsafe fn execute<T: Real, V: F32s, const N: usize, const ROWWISE: bool>(
    code: &[Instruction],
    row: isize,
    at: usize,
    count: usize,
) {
    let bytes = T::Vector::<V>::LANES * size_of::<T>();
    let mut acc = [T::Vector::<V>::splat(T::default()); VECTORS];
    // Numbers of vectors as literals, so that the accumulator stays in registers. Conditions are
    // constants, so that what is not needed for N and ROWWISE is not compiled.
    macro_rules! each {
        (|$j:ident| $body:expr) => {
            each!(@ $j $body, 0 1 2 3 4 5 6 7)
        };
        (@ $j:ident $body:expr, $($index:literal)*) => {{
            $(if const { $index < N } {
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
            (first, if ROWWISE { of.down as usize } else { bytes & of.moves })
        };
        let (p, step) = place(this);
        macro_rules! at {
            ($p:expr, $step:expr, $j:expr) => {
                $p.wrapping_add($step.wrapping_mul($j)).cast::<T>()
            };
        }
        macro_rules! load {
            ($p:expr, $step:expr, $j:expr) => {
                if const { ROWWISE || N == 1 } {
                    T::Vector::<V>::load_part(at!($p, $step, $j), count)
                } else {
                    T::Vector::<V>::load(at!($p, $step, $j))
                }
            };
        }
        macro_rules! number {
            ($p:expr) => {
                T::Vector::<V>::splat(*$p)
            };
        }
        macro_rules! one {
            ($f:ty) => {
                each!(|J| acc[J] = T::unary::<$f, V>(acc[J]))
            };
        }
        // A number is loaded once. Vectors of one row are a literal apart.
        macro_rules! operand {
            (|$x:ident, $acc:ident| $body:expr) => {
                if const { ROWWISE || N == 1 } {
                    if this.is_column {
                        each!(|J| {
                            let ($x, $acc) = (number!(at!(p, step, J)), acc[J]);
                            acc[J] = $body;
                        })
                    } else {
                        each!(|J| {
                            let ($x, $acc) = (load!(p, step, J), acc[J]);
                            acc[J] = $body;
                        })
                    }
                } else if step == 0 {
                    let $x = match this.is_column {
                        true => number!(p.cast::<T>()),
                        false => T::Vector::<V>::load(p.cast()),
                    };
                    each!(|J| {
                        let $acc = acc[J];
                        acc[J] = $body;
                    })
                } else {
                    each!(|J| {
                        let ($x, $acc) = (T::Vector::<V>::load(at!(p, bytes, J)), acc[J]);
                        acc[J] = $body;
                    })
                }
            };
        }
        macro_rules! binary {
            ($f:ty) => {
                operand!(|x, y| T::binary::<$f, V>(y, x))
            };
        }
        macro_rules! reversed {
            ($f:ty) => {
                operand!(|x, y| T::binary::<$f, V>(x, y))
            };
        }
        macro_rules! select {
            ($f:ty) => {{
                let (Some(v), Some(a)) = (rest.next(), rest.next()) else { return };
                let (v, a) = (place(v), place(a));
                // A number is compared with what is chosen, as in most activations.
                if const { N > 1 && !ROWWISE } && step == 0 && v == a && v.1 != 0 {
                    let k = T::Vector::<V>::load(p.cast());
                    each!(|J| {
                        let x = T::Vector::<V>::load(at!(v.0, bytes, J));
                        acc[J] = T::choice::<$f, V>([k, x, x, acc[J]]);
                    })
                } else {
                    each!(|J| acc[J] = T::choice::<$f, V>([
                        load!(p, step, J),
                        load!(v.0, v.1, J),
                        load!(a.0, a.1, J),
                        acc[J]
                    ]))
                }
            }};
        }
        // From one vector of 16-bit elements to the next.
        let half_step = if ROWWISE { step } else { bytes / 2 };
        macro_rules! half {
            ($j:expr) => {
                p.wrapping_add(half_step.wrapping_mul($j)).cast::<u16>()
            };
        }
        // Elements of a vector.
        let len = if ROWWISE || N == 1 { count } else { V::LANES };
        macro_rules! load_half {
            ($half:ty) => {
                if const { size_of::<T>() == 4 } {
                    each!(|J| acc[J] = T::from_f32s::<V>(convert::load::<V, $half>(half!(J), len)))
                }
            };
        }
        macro_rules! store_half {
            ($half:ty) => {
                if const { size_of::<T>() == 4 } {
                    each!(|J| convert::store::<V, $half>(T::to_f32s::<V>(acc[J]), half!(J), len))
                }
            };
        }
        // 16-bit elements at p as f32 in a buffer.
        macro_rules! widen {
            ($half:ty) => {{
                let Some(buffer) = rest.next() else { return };
                let next = if ROWWISE { VECTOR } else { bytes };
                if const { size_of::<T>() == 4 } {
                    each!(|J| {
                        let to = buffer.first.wrapping_add(next * J).cast::<f32>();
                        convert::load::<V, $half>(half!(J), len).store(to);
                    })
                }
            }};
        }
        // SAFETY: by contract; a part of a vector is read and written as such.
        unsafe {
            match this.code {
                // A part of a vector takes longer than a whole one at some levels.
                Code::Load if ROWWISE && count == T::Vector::<V>::LANES => {
                    each!(|J| acc[J] = T::Vector::<V>::load(at!(p, step, J)));
                }
                Code::Load => each!(|J| acc[J] = load!(p, step, J)),
                Code::Store | Code::Stream
                    if (ROWWISE || N == 1) && count < T::Vector::<V>::LANES =>
                {
                    each!(|J| acc[J].store_part(at!(p, step, J), count));
                }
                // The first element of each row is at a 64-byte boundary, and so is each of these.
                Code::Stream if N == VECTORS && !ROWWISE => {
                    each!(|J| acc[J].stream(at!(p, step, J)))
                }
                Code::Store | Code::Stream => each!(|J| acc[J].store(at!(p, step, J))),
                Code::Add => binary!(Add),
                Code::Sub => binary!(Sub),
                Code::RSub => reversed!(Sub),
                Code::Mul => binary!(Mul),
                Code::Div => binary!(Div),
                Code::RDiv => reversed!(Div),
                Code::Max => binary!(Max),
                Code::RMax => reversed!(Max),
                Code::Min => binary!(Min),
                Code::RMin => reversed!(Min),
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
                Code::SelectLt => select!(Lt),
                Code::SelectLe => select!(Le),
                Code::SelectEq => select!(Eq),
                Code::SelectNe => select!(Ne),
                Code::Operand => {}
                // Only groups of f32 have elements of 16 bits.
                Code::LoadBf16 => load_half!(bf16),
                Code::LoadF16 => load_half!(f16),
                Code::WidenBf16 => widen!(bf16),
                Code::WidenF16 => widen!(f16),
                Code::StoreBf16 => store_half!(bf16),
                Code::StoreF16 => store_half!(f16),
            }
        }
    }
}
