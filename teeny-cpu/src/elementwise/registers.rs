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
//! Knows no node. `groups` calls it with steps whose functions are all cheap and falls back to
//! `blocks`; `prepared` and `rows` call it with the instructions of their programs. Only those of
//! `rows` have calls and folds.

use super::calls::{Exponentials, call};
use super::chains::Chain;
use super::instructions::{BUFFER, Code, Column, Instruction, Machine, Memory, VECTOR, VECTORS};
use super::loops::float::*;
use super::loops::select::{SelectEq, SelectLe, SelectLt, SelectNe};
use super::loops::{Loop, each_loop};
use super::step::{Format, Step, Stream};
use crate::half;
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
    let Some(machine) = Machine::new(steps, &mut memory).filter(|_| level.is_native()) else {
        return false;
    };
    let (code, columns) = (machine.code(), machine.columns());
    let (from, folds, size) = (0, false, machine.size);
    let rows = 0..rows;
    let work = Rows { level, code, columns, prefetched, rows, from, n, folds, of: PhantomData };
    work.run_as(size);
    true
}

/// Runs instructions on f32 over one row of `n` elements. Not on the baseline.
///
/// # Safety
/// The memory of all instructions has these elements; results overlap no operand of another place.
pub(super) unsafe fn run_row(level: Level, code: &[Instruction], n: usize) {
    // SAFETY: passed on.
    unsafe { run_rows(level, 4, code, 0..1, 0..n, false) };
}

/// Runs instructions on elements of `size` bytes over the elements `part` of each of `rows`. With
/// `folds`, those of rows shorter than [`SHORT`] vectors are combined with the first vector at the
/// operand of a fold, otherwise with eight of them.
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
    let columns = &[];
    let work =
        Rows::<f32> { level, code, columns, prefetched, rows, from, n, folds, of: PhantomData };
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
        let Rows { from, n, folds, .. } = self;
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
                            let first = stream.pitch * (row as isize + VECTORS as isize + j);
                            let first = stream.first.wrapping_offset(first);
                            for line in 0..(n * size_of::<T>()).div_ceil(64) {
                                prefetch(first.wrapping_add(64 * line).cast());
                            }
                        }
                    }
                    for at in (from..n).step_by(lanes) {
                        let counts = [lanes.min(n - at); VECTORS];
                        let row = row as isize;
                        execute::<T, V, VECTORS, true>(level, code, row, at, counts, true);
                    }
                }
                row += VECTORS;
            }
        }
        if folds && !is_short && V::NATIVE {
            let chain = Chain { code, rows: row..rows, from, n, of: PhantomData::<T> };
            if V::call(chain) {
                return;
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
                    execute::<T, V, VECTORS, true>(level, code, row, at, counts, false);
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
    let bytes = T::Vector::<V>::LANES * size_of::<T>();
    let mut acc = [T::Vector::<V>::splat(T::default()); VECTORS];
    // Numbers of vectors as literals, so that the accumulator stays in registers. Conditions are
    // constants, so that what is not needed for N and PARTS is not compiled.
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
            (first, if PARTS && rowwise { of.down as usize } else { bytes & of.moves })
        };
        let (p, step) = place(this);
        macro_rules! at {
            ($p:expr, $step:expr, $j:expr) => {
                $p.wrapping_add($step.wrapping_mul($j)).cast::<T>()
            };
        }
        macro_rules! load {
            ($p:expr, $step:expr, $j:expr) => {
                if const { PARTS || N == 1 } {
                    T::Vector::<V>::load_part(at!($p, $step, $j), counts[$j])
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
                if const { PARTS || N == 1 } {
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
                if const { N > 1 && !PARTS } && step == 0 && v == a && v.1 != 0 {
                    let k = T::Vector::<V>::load(p.cast());
                    each!(|J| {
                        let x = T::Vector::<V>::load(at!(v.0, bytes, J));
                        acc[J] = T::quaternary::<$f, V>([k, x, x, acc[J]]);
                    })
                } else {
                    each!(|J| acc[J] = T::quaternary::<$f, V>([
                        load!(p, step, J),
                        load!(v.0, v.1, J),
                        load!(a.0, a.1, J),
                        acc[J]
                    ]))
                }
            }};
        }
        // From one vector of 16-bit elements to the next.
        let half_step = if PARTS && rowwise { step } else { bytes / 2 };
        macro_rules! half {
            ($j:expr) => {
                p.wrapping_add(half_step.wrapping_mul($j)).cast::<u16>()
            };
        }
        // Elements of a vector.
        macro_rules! len {
            ($j:expr) => {
                if PARTS || N == 1 { counts[$j] } else { V::LANES }
            };
        }
        macro_rules! load_half {
            ($half:ty) => {
                if const { size_of::<T>() == 4 } {
                    each!(|J| acc[J] = T::from_f32s::<V>(half::load::<V, $half>(half!(J), len!(J))))
                }
            };
        }
        macro_rules! store_half {
            ($half:ty) => {
                if const { size_of::<T>() == 4 } {
                    each!(|J| half::store::<V, $half>(T::to_f32s::<V>(acc[J]), half!(J), len!(J)))
                }
            };
        }
        // 16-bit elements at p as f32 in a buffer.
        macro_rules! widen {
            ($half:ty) => {{
                let Some(buffer) = rest.next() else { return };
                let next = if PARTS && rowwise { VECTOR } else { bytes };
                if const { size_of::<T>() == 4 } {
                    each!(|J| {
                        let to = buffer.first.wrapping_add(next * J).cast::<f32>();
                        half::load::<V, $half>(half!(J), len!(J)).store(to);
                    })
                }
            }};
        }
        // Vectors of one number for all rows are combined with each other first.
        macro_rules! fold {
            ($f:ty) => {
                if PARTS && step == 0 {
                    let mut all = acc[0];
                    each!(|J| if const { J > 0 } {
                        all = T::binary::<$f, V>(all, acc[J])
                    });
                    let before = load!(p, step, 0);
                    T::binary::<$f, V>(before, all).store_part(at!(p, step, 0), counts[0]);
                } else {
                    each!(|J| {
                        let before = load!(p, step, J);
                        let all = T::binary::<$f, V>(before, acc[J]);
                        if const { PARTS || N == 1 } {
                            all.store_part(at!(p, step, J), counts[J])
                        } else {
                            all.store(at!(p, step, J))
                        }
                    })
                }
            };
        }
        macro_rules! by_code {
            (cheap: $($cheap:ident)*; cheap_pairs: $($cheap_pair:ident)*;
             functions: $($function:ident)*; pairs: $($pair:ident)*; choices: $($choice:ident)*;) => {
                match this.code {
                    Code::Load if this.is_column => {
                        each!(|J| acc[J] = number!(at!(p, step, J)));
                    }
                    // A part of a vector takes longer than a whole one at some levels.
                    Code::Load if PARTS && counts[VECTORS - 1] == T::Vector::<V>::LANES => {
                        each!(|J| acc[J] = T::Vector::<V>::load(at!(p, step, J)));
                    }
                    Code::Load => each!(|J| acc[J] = load!(p, step, J)),
                    Code::Store | Code::Stream
                        if PARTS && counts[VECTORS - 1] < T::Vector::<V>::LANES
                            || N == 1 && counts[0] < T::Vector::<V>::LANES =>
                    {
                        each!(|J| acc[J].store_part(at!(p, step, J), counts[J]));
                    }
                    // The first element of each row is at a 64-byte boundary, and so is each of these.
                    Code::Stream if N == VECTORS && !PARTS => {
                        each!(|J| acc[J].stream(at!(p, step, J)))
                    }
                    Code::Store | Code::Stream => each!(|J| acc[J].store(at!(p, step, J))),
                    $(Code::$cheap => one!($cheap),)*
                    $(Code::$cheap_pair => binary!($cheap_pair),)*
                    Code::RSub => reversed!(Sub),
                    Code::RDiv => reversed!(Div),
                    Code::RMax => reversed!(Max),
                    Code::RMin => reversed!(Min),
                    $(Code::$choice => select!($choice),)*
                    Code::Operand => {}
                    // Only groups of f32 have elements of 16 bits.
                    Code::LoadBf16 => load_half!(bf16),
                    Code::LoadF16 => load_half!(f16),
                    Code::WidenBf16 => widen!(bf16),
                    Code::WidenF16 => widen!(f16),
                    Code::StoreBf16 => store_half!(bf16),
                    Code::StoreF16 => store_half!(f16),
                    Code::FoldSum => fold!(Add),
                    Code::FoldProd => fold!(Mul),
                    Code::FoldMax => fold!(Max),
                    Code::FoldMin => fold!(Min),
                    Code::Call(body) => {
                        let Some(block) = rest.next() else { return };
                        let block = block.first;
                        each!(|J| acc[J].store(at!(block, bytes, J)));
                        if body.operands() == 2 {
                            let second = block.wrapping_add(BUFFER);
                            each!(|J| load!(p, step, J).store(at!(second, bytes, J)));
                        }
                        if matches!(body, Loop::Exp) {
                            V::call(Exponentials::<T> { block: block.cast(), vectors: N });
                        } else {
                            call(level, size_of::<T>() == 8, body, block, N * bytes / size_of::<T>());
                        }
                        each!(|J| acc[J] = T::Vector::<V>::load(at!(block, bytes, J)));
                    }
                }
            };
        }
        // SAFETY: by contract; a part of a vector is read and written as such.
        unsafe { each_loop!(by_code) }
    }
}
