//! A group of cheap float operations whose values stay in registers: an accumulator machine.
//!
//! The naive form (`blocks`) runs one loop for each operation over a block in L1: a value is stored
//! and loaded once more than it need be, and rows of a few elements start every loop again. Here an
//! accumulator of eight vectors stays in registers from one operation to the next, and each
//! instruction has at most one operand in memory (a choice has three):
//!
//! ```text
//!   load x ─ mul 0.1 ─ add y ─ store     elements 0 .. 128 of a row, then 128 .. 256; the rest as
//!   load x ─ mul 0.1 ─ add y ─ store     one group with a part, or one or two vectors one by one
//! ```
//! For short rows, one vector is taken from each of eight rows, so that the instructions are read
//! once for eight rows.
//!
//! The same operations on the same values in the same order as in `blocks`, so the same bits.
//! Independent of nodes. `groups` calls it with steps whose functions are all cheap and falls back
//! to `blocks`; `prepared` and `rows` call it with the instructions of their programs. Only the
//! programs of `rows` have calls and folds.

use super::accumulator::Accumulator;
use super::instructions::{Code, Column, Instruction, Machine, Memory, VECTOR, VECTORS};
use super::step::{Format, Step, Stream};
use crate::loops::each_loop;
use crate::loops::float::*;
use crate::loops::select::{SelectEq, SelectLe, SelectLt, SelectNe};
use crate::simd::loops::Real;
use crate::simd::{F32s, Lanes, Level, Work, prefetch};
use crate::vecmath::{Cube, Square};
use std::marker::PhantomData;
use std::ops::Range;
use teeny_core::{bf16, f16};

/// Runs `steps` over `rows` rows of `n` elements as `groups::run` does. False if one of them is not
/// cheap, or there are too many; and on the baseline, whose loops would take as long to compile.
///
/// # Safety
/// As `groups::run`.
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
    let (from, folds, size) = (0, false, machine.size);
    let rows = 0..rows;
    let work = Rows { level, code, columns, prefetched, rows, from, n, folds, of: PhantomData };
    work.run_as(size);
    true
}

/// Runs instructions on elements of `size` bytes over the elements `part` of each of `rows`. With
/// `folds`, rows shorter than [`SHORT`] vectors are combined with the first vector at the operand
/// of a fold, other rows with eight of them. Not on the baseline.
///
/// # Safety
/// The memory of all instructions has these elements; results overlap no operand of another place.
pub(crate) unsafe fn run_rows(
    level: Level,
    size: usize,
    code: &[Instruction],
    rows: Range<usize>,
    part: Range<usize>,
    folds: bool,
) {
    let (from, n, prefetched) = (part.start, part.end, &[][..]);
    let (columns, of) = (&[][..], PhantomData);
    let work = Rows::<f32> { level, code, columns, prefetched, rows, from, n, folds, of };
    work.run_as(size);
}

/// Vectors at the end of a row up to which they are computed one by one.
const MAX_SINGLE: usize = 2;

/// Vectors of a row from which eight of them are computed at once, not one each of eight rows.
pub(crate) const SHORT: usize = 2 * VECTORS;

/// [`run`] compiled for a level.
struct Rows<'a, T> {
    level: Level,
    code: &'a [Instruction],
    columns: &'a [Option<Column>],
    prefetched: &'a [Stream],
    rows: Range<usize>,
    /// The first element of each row, and the end.
    from: usize,
    n: usize,
    /// See [`run_rows`].
    folds: bool,
    of: PhantomData<T>,
}

impl<'a> Rows<'a, f32> {
    /// Runs the instructions on elements of `size` bytes.
    fn run_as(self, size: usize) {
        let level = self.level;
        if size == 4 {
            return level.run(self);
        }
        let Rows { code, columns, prefetched, rows, from, n, folds, .. } = self;
        let of = PhantomData;
        level.run(Rows::<f64> { level, code, columns, prefetched, rows, from, n, folds, of });
    }
}

impl<T: Real> Work for Rows<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        // Never on the baseline, for which this is not compiled.
        if !V::NATIVE {
            return;
        }
        let Rows { level, code, columns, prefetched, rows: Range { start, end: rows }, .. } = self;
        let Rows { from, n, folds, of, .. } = self;
        let lanes = T::Vector::<V>::LANES;
        let streams = code.iter().any(|this| this.code == Code::Stream);
        // Parts of vectors cost as much as whole ones. Results of long rows may bypass the caches.
        let most = if streams { VECTORS } else { 2 * VECTORS } * lanes;
        let (mut row, is_short) = (start, n < most);
        if is_short {
            while row + VECTORS <= rows {
                // SAFETY: `run` was promised a number in each row for each column, and `n` elements
                // in each row; a block has memory for eight vectors.
                unsafe {
                    for column in columns.iter().flatten() {
                        (0..VECTORS).for_each(|j| splat_rows::<T, V>(column, row + j, j));
                    }
                    for stream in prefetched {
                        for j in 0..VECTORS as isize {
                            let first = stream.stride * (row as isize + VECTORS as isize + j);
                            let first = stream.first.wrapping_offset(first);
                            for line in 0..(n * size_of::<T>()).div_ceil(64) {
                                prefetch(first.wrapping_add(64 * line).cast());
                            }
                        }
                    }
                    for at in (from..n).step_by(lanes) {
                        let (row, counts) = (row as isize, [lanes.min(n - at); VECTORS]);
                        V::call(Parts::<T> { level, code, row, at, counts, rowwise: true, of });
                    }
                }
                row += VECTORS;
            }
        }
        for row in row..rows {
            // SAFETY: as above.
            unsafe {
                columns.iter().flatten().for_each(|column| splat_rows::<T, V>(column, row, 0));
                let (mut at, row) = (from, row as isize);
                let one_by_one = folds && is_short;
                while at + VECTORS * lanes <= n && !one_by_one {
                    let counts = [lanes; VECTORS];
                    execute::<T, V, VECTORS, false>(level, code, row, at, counts, false);
                    at += VECTORS * lanes;
                }
                // More than a few vectors, of which the last may be a part, as one.
                if n > at + MAX_SINGLE * lanes && !one_by_one {
                    let mut counts = [0; VECTORS];
                    let mut left = n - at;
                    let mut j = 0;
                    while j < VECTORS {
                        counts[j] = if left < lanes { left } else { lanes };
                        left -= counts[j];
                        j += 1;
                    }
                    V::call(Parts::<T> { level, code, row, at, counts, rowwise: false, of });
                    at = n;
                }
                while at < n {
                    let counts = [lanes.min(n - at); VECTORS];
                    execute::<T, V, 1, false>(level, code, row, at, counts, false);
                    at += lanes;
                }
            }
        }
    }
}

/// Runs [`execute`] for eight vectors, some of which may be parts. Two loops call this function; it is
/// compiled once.
struct Parts<'a, T> {
    level: Level,
    code: &'a [Instruction],
    row: isize,
    at: usize,
    counts: [usize; VECTORS],
    rowwise: bool,
    of: PhantomData<T>,
}

impl<T: Real> Work for Parts<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let Parts { level, code, row, at, counts, rowwise, .. } = self;
        // SAFETY: `Rows` was promised these elements.
        unsafe { execute::<T, V, VECTORS, true>(level, code, row, at, counts, rowwise) };
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

/// Runs the instructions over `N` vectors of row `row` from element `at` on. With `PARTS`, or if `N`
/// is 1, vector `j` has `counts[j]` elements; with `rowwise` there is one vector of each of `N` rows,
/// and all have as many.
///
/// # Safety
/// The memory of all instructions has these elements.
#[inline(always)]
unsafe fn execute<T: Real, V: F32s, const N: usize, const PARTS: bool>(
    level: Level,
    code: &[Instruction],
    row: isize,
    at: usize,
    counts: [usize; VECTORS],
    rowwise: bool,
) {
    let mut acc = Accumulator::<T, V, N, PARTS>::new(row, at, counts, rowwise);
    let mut rest = code.iter();
    while let Some(this) = rest.next() {
        let x = acc.place(this);
        macro_rules! by_code {
            (cheap: $($cheap:ident)*; cheap_pairs: $($cheap_pair:ident)*;
             functions: $($function:ident)*; pairs: $($pair:ident)*; choices: $($choice:ident)*;) => {
                match this.code {
                    Code::Load => acc.load(x, this.is_column),
                    Code::Store => acc.store(x, false),
                    Code::Stream => acc.store(x, true),
                    $(Code::$cheap => acc.unary::<$cheap>(),)*
                    $(Code::$cheap_pair => acc.binary::<$cheap_pair, false>(x, this.is_column),)*
                    Code::RSub => acc.binary::<Sub, true>(x, this.is_column),
                    Code::RDiv => acc.binary::<Div, true>(x, this.is_column),
                    Code::RMax => acc.binary::<Max, true>(x, this.is_column),
                    Code::RMin => acc.binary::<Min, true>(x, this.is_column),
                    $(Code::$choice => {
                        let (Some(v), Some(a)) = (rest.next(), rest.next()) else { return };
                        acc.choice::<$choice>(x, acc.place(v), acc.place(a));
                    })*
                    Code::Operand => {}
                    Code::LoadBf16 => acc.load_half::<bf16>(x),
                    Code::LoadF16 => acc.load_half::<f16>(x),
                    Code::WidenBf16 | Code::WidenF16 => {
                        let Some(buffer) = rest.next() else { return };
                        match this.code {
                            Code::WidenBf16 => acc.widen::<bf16>(x, buffer.first),
                            _ => acc.widen::<f16>(x, buffer.first),
                        }
                    }
                    Code::StoreBf16 => acc.store_half::<bf16>(x),
                    Code::StoreF16 => acc.store_half::<f16>(x),
                    Code::FoldSum => acc.fold::<Add>(x),
                    Code::FoldProd => acc.fold::<Mul>(x),
                    Code::FoldMax => acc.fold::<Max>(x),
                    Code::FoldMin => acc.fold::<Min>(x),
                    Code::Call(body) => {
                        let Some(block) = rest.next() else { return };
                        acc.call(level, body, x, block.first);
                    }
                }
            };
        }
        // SAFETY: by contract; a part of a vector is read and written as such.
        unsafe { each_loop!(by_code) }
    }
}
