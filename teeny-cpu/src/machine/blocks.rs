//! A group of float nodes, a block of 512 elements at a time: every node's loop over one block, then
//! over the next.
//!
//! The naive form runs each node's loop over the whole tile, so that memory waits for arithmetic
//! and arithmetic for memory. By blocks, values between two nodes never leave L1, and the next
//! block of the inputs is prefetched while this one is computed:
//!
//! ```text
//!   inputs ──►┌ mul ─► block ─ add ─► block ─ tanh ─► output ┐   512 elements, the next prefetched
//!   inputs ──►└ mul ─► block ─ add ─► block ─ tanh ─► output ┘   the next 512, in the same blocks
//! ```
//! The nodes of a group are all of f32 or all of f64. Inputs and outputs of 16-bit floats are
//! converted a block at a time, between memory and L1. The loops come from `simd::loops`, all in
//! one function for each level and type; `half_pairs` has the loops of 16-bit floats.

use super::step::{Format, Place, Step, Stream};
use crate::half;
use crate::loops::float::*;
use crate::loops::select::{SelectEq, SelectLe, SelectLt, SelectNe, select_by};
use crate::loops::{Loop, each_loop};
use crate::simd::loops::{Binary, Map1, Map2, Operand, Real, Unary};
use crate::simd::{F32s, Level, Work, prefetch};
use crate::vecmath::*;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use teeny_core::{bf16, f16};

/// Elements of a block: thirty-two of the widest vectors, beside which the choice of a loop costs
/// nothing.
pub(crate) const BLOCK: usize = 512;

/// Runs `steps`, which are all of one type, over `rows` rows of `n` elements, `block` at a time.
///
/// # Safety
/// As `groups::run`.
pub(super) unsafe fn run(
    level: Level,
    steps: &[Step],
    prefetched: &[Stream],
    (rows, n, block): (usize, usize, usize),
) {
    if steps.first().is_some_and(|step| step.wide) {
        level.run(Blocks::<f64> { steps, prefetched, rows, n, block, of: PhantomData });
    } else {
        level.run(Blocks::<f32> { steps, prefetched, rows, n, block, of: PhantomData });
    }
}

/// Runs one loop over `n` elements, at most a block.
///
/// # Safety
/// As [`run`], of one row.
pub(super) unsafe fn run_one(level: Level, step: &Step, n: usize) {
    // SAFETY: passed on.
    unsafe { run(level, std::slice::from_ref(step), &[], (1, n, BLOCK)) };
}

/// [`run`] compiled for a level.
struct Blocks<'a, T> {
    steps: &'a [Step],
    prefetched: &'a [Stream],
    rows: usize,
    n: usize,
    block: usize,
    of: PhantomData<T>,
}

impl<T: Real> Work for Blocks<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let (mut row, mut at) = (0, 0);
        // A single loop goes over all rows by itself. One call for both, as its loops are compiled
        // where they are called.
        let rows = match self.steps {
            [step] if step.is_in_place() => self.rows,
            _ => 1,
        };
        let share = self.block.min(self.n).div_ceil(self.steps.len()).next_multiple_of(16);
        while row < self.rows {
            let n = self.block.min(self.n - at);
            // The next block is prefetched while this one is computed, some cache lines before each
            // loop.
            let (next_row, next) = if at + n < self.n { (row, at + n) } else { (row + rows, 0) };
            let (mut line, end) = (next, next + n);
            for step in self.steps {
                let until = (line + share).min(end);
                while line < until && !self.prefetched.is_empty() {
                    for stream in self.prefetched {
                        let row = stream.first.wrapping_offset(next_row as isize * stream.stride);
                        prefetch(row.wrapping_add(line * stream.size).cast());
                    }
                    line += 64 / size_of::<T>();
                }
                step.run::<T, V>(row, rows, at, n);
            }
            (row, at) = (next_row, next);
        }
    }
}

/// A block in which 16-bit elements are converted.
#[repr(align(64))]
struct Converted(MaybeUninit<[f32; BLOCK]>);

impl Converted {
    const NEW: Converted = Converted(MaybeUninit::uninit());
}

/// An operand in memory: its first element, the stride between rows, and whether it is one number
/// per row.
#[derive(Clone, Copy)]
struct Source<T> {
    first: *const T,
    stride: isize,
    is_number: bool,
}

impl<T: Real> Source<T> {
    /// The first element of row `row`.
    #[inline(always)]
    fn at(self, row: usize) -> *const T {
        self.first.wrapping_offset(row as isize * self.stride)
    }

    /// The operand of row `row`.
    ///
    /// # Safety
    /// There is a number in this row.
    #[inline(always)]
    unsafe fn row(self, row: usize) -> Operand<T> {
        match self.is_number {
            // SAFETY: the caller's.
            true => Operand::Splat(unsafe { *self.at(row) }),
            false => Operand::Slice(self.at(row)),
        }
    }
}

impl Step {
    /// Whether the loop reads and writes rows where they are, without a block in between.
    fn is_in_place(&self) -> bool {
        let own = |place: &Place| match place {
            Place::Rows(_, _, format) | Place::Column(_, _, format) => *format == Format::Own,
            Place::Splat(_) => true,
            Place::Block(_) => false,
        };
        self.from.iter().chain([&self.to]).all(own)
    }

    /// Runs the loop over the n elements of each of `rows` rows, the first of which is `row`, from
    /// `at` on; over at most a block of one row if a place has 16-bit elements.
    #[inline(always)]
    fn run<T: Real, V: F32s>(&self, row: usize, rows: usize, at: usize, n: usize) {
        let here = |p: *mut u8, stride: isize, size: usize| {
            p.wrapping_offset((row as isize * stride + at as isize) * size as isize)
        };
        let mut converted = [Converted::NEW; 4];
        let mut numbers = [T::default(); 4];
        let numbers = numbers.as_mut_ptr();
        let number =
            |i| Source { first: numbers.wrapping_add(i).cast_const(), stride: 0, is_number: true };
        let mut operands = [number(0), number(1), number(2), number(3)];
        for i in 0..self.body.operands() {
            let source = &mut operands[i];
            match self.from[i] {
                Place::Rows(p, stride, Format::Own) => {
                    let first = here(p, stride, size_of::<T>()).cast_const().cast();
                    *source = Source { first, stride, is_number: false };
                }
                Place::Rows(p, stride, format) => {
                    let to = converted[i].0.as_mut_ptr().cast::<f32>();
                    let from = here(p, stride, 2).cast_const().cast();
                    // SAFETY: `run` was promised n elements, a block at most as there is one of 16
                    // bits.
                    unsafe {
                        match format {
                            Format::Bf16 => half::widen::<V, bf16>(from, to, n),
                            _ => half::widen::<V, f16>(from, to, n),
                        }
                    }
                    let first = to.cast_const().cast();
                    *source = Source { first, stride: 0, is_number: false };
                }
                Place::Block(p) => {
                    let first = p.cast_const().cast();
                    *source = Source { first, stride: 0, is_number: false };
                }
                // SAFETY: there are four numbers.
                Place::Splat(bytes) => unsafe { *numbers.add(i) = T::from_bytes(bytes) },
                Place::Column(p, stride, Format::Own) => {
                    (source.first, source.stride) =
                        (p.cast::<T>().wrapping_offset(row as isize * stride), stride);
                }
                Place::Column(p, stride, format) => {
                    // SAFETY: there is a number for each row.
                    let bits = unsafe { *p.cast::<u16>().wrapping_offset(row as isize * stride) };
                    let number = match format {
                        Format::Bf16 => bf16::from_bits(bits).to_f32_const(),
                        _ => f16::from_bits(bits).to_f32_const(),
                    };
                    // SAFETY: there are four numbers.
                    unsafe { *numbers.add(i) = T::from_bytes(number.to_bytes()) };
                }
            }
        }
        let mut result = Converted::NEW;
        let (y, stride, half): (*mut T, _, _) = match self.to {
            Place::Rows(y, stride, Format::Own) => {
                (here(y, stride, size_of::<T>()).cast(), stride, None)
            }
            Place::Rows(y, stride, format) => {
                (result.0.as_mut_ptr().cast(), 0, Some((here(y, stride, 2).cast::<u16>(), format)))
            }
            Place::Block(y) => (y.cast(), 0, None),
            Place::Splat(_) | Place::Column(..) => return,
        };
        let (step, from, to) = (self, operands, (y, stride));
        // Three functions take the compiler half as long as one.
        match self.body.operands() {
            1 => V::call(Loops::<T, 1> { step, from, to, rows, n }),
            2 => V::call(Loops::<T, 2> { step, from, to, rows, n }),
            _ => V::call(Loops::<T, 4> { step, from, to, rows, n }),
        }
        // SAFETY: as above.
        unsafe {
            match half {
                Some((to, Format::Bf16)) => half::narrow::<V, bf16>(y.cast_const().cast(), to, n),
                Some((to, _)) => half::narrow::<V, f16>(y.cast_const().cast(), to, n),
                None => {}
            }
        }
    }
}

/// The loops of functions of `N` operands, which are in memory, for each row.
struct Loops<'a, T, const N: usize> {
    step: &'a Step,
    from: [Source<T>; 4],
    to: (*mut T, isize),
    rows: usize,
    n: usize,
}

impl<T: Real, const N: usize> Work for Loops<'_, T, N> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let Loops { step, from: [a, b, c, d], to: (y, stride), rows, n } = self;
        let stream = step.stream;
        macro_rules! loop_of {
            ($f:ty, $loop:expr) => {
                if <$f>::LONG { V::call($loop) } else { $loop.run::<V>() }
            };
        }
        // SAFETY, of all rows: `blocks::run` was promised n values at each place, a number for each
        // row, and results that overlap no operand.
        macro_rules! one {
            ($f:ty) => {
                for row in 0..rows {
                    let y = y.wrapping_offset(row as isize * stride);
                    // For a per-row number: compute one element, then copy the result.
                    let len = if a.is_number { n.min(1) } else { n };
                    // SAFETY: as above.
                    let work = unsafe { Map1::<$f, T>::new(a.at(row), y, len, stream) };
                    loop_of!($f, work);
                    // SAFETY: as above.
                    (len..n).for_each(|i| unsafe { *y.add(i) = *y });
                }
            };
        }
        macro_rules! binary {
            ($f:ty) => {
                for row in 0..rows {
                    let y = y.wrapping_offset(row as isize * stride);
                    // SAFETY: as above.
                    let work = unsafe { Map2::<$f, T>::new(a.row(row), b.row(row), y, n, stream) };
                    loop_of!($f, work)
                }
            };
        }
        macro_rules! four {
            ($f:ty) => {
                for row in 0..rows {
                    let y = y.wrapping_offset(row as isize * stride);
                    // SAFETY: as above.
                    let from = unsafe { [a.row(row), b.row(row), c.row(row), d.row(row)] };
                    select_by::<V, T, $f>(from, y, n)
                }
            };
        }
        macro_rules! by_loop {
            (cheap: $($cheap:ident)*; cheap_pairs: $($cheap_pair:ident)*;
             functions: $($function:ident)*; pairs: $($pair:ident)*; choices: $($choice:ident)*;) => {
                match step.body {
                    $(Loop::$cheap if const { N == 1 } => one!($cheap),)*
                    $(Loop::$function if const { N == 1 } => one!($function),)*
                    $(Loop::$cheap_pair if const { N == 2 } => binary!($cheap_pair),)*
                    $(Loop::$pair if const { N == 2 } => binary!($pair),)*
                    $(Loop::$choice if const { N == 4 } => four!($choice),)*
                    // Loops of another number of operands.
                    _ => {}
                }
            };
        }
        each_loop!(by_loop)
    }
}
