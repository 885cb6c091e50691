//! A group of f32 nodes, a block of 512 elements at a time: every node's loop over one block, then
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
//! The loops are those of `simd::loops`, all in one function for each level.

use super::loops::Loop;
use super::loops::float::*;
use super::loops::select::{Eq, Le, Lt, Ne, select_by};
use crate::simd::loops::{Map1, Map2, Operand};
use crate::simd::{F32s, Level, Work, prefetch};
use crate::vecmath::{Erf, Exp, Exp2, Log, Tanh};
use teeny_core::kernel::{MAX_INPUTS, MAX_OUTPUTS};

/// Elements of a block: thirty-two of the widest vectors, beside which the choice of a loop costs
/// nothing.
pub(crate) const BLOCK: usize = 512;

/// The memory of an operand or of a result.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// Rows: the first element of the first, and the distance from a row to the next.
    Rows(*mut f32, isize),
    /// A block, which the next block of the same node overwrites.
    Block(*mut f32),
    /// The same number everywhere. Never a result.
    Splat(f32),
}

/// One loop over each block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub body: Loop,
    /// The operands; entries beyond their number mean nothing.
    pub from: [Place; 4],
    pub to: Place,
    /// Whether the result bypasses the caches.
    pub stream: bool,
}

/// Runs `steps` over `rows` rows of `n` elements. With `prefetch`, rows are prefetched one block
/// early, the block behind the last one too, where the next call probably continues.
///
/// # Safety
/// `Place::Rows` have n elements in each row and `Place::Block` have `BLOCK` or n, whichever is
/// less; a result overlaps no operand of its step, or is the same place.
pub(crate) unsafe fn run(level: Level, steps: &[Step], rows: usize, n: usize, prefetch: bool) {
    let is_sound = |step: &Step| {
        let reads = step.body.operands() > 1 || !matches!(step.from[0], Place::Splat(_));
        reads && !matches!(step.to, Place::Splat(_))
    };
    assert!(steps.iter().all(is_sound), "a loop without memory to read or to write");
    // A single loop has no neighbour that reads its values from L1.
    let uses_blocks = |step: &Step| {
        step.from.iter().chain([&step.to]).any(|place| matches!(place, Place::Block(_)))
    };
    let block = if steps.len() == 1 && !uses_blocks(&steps[0]) { n } else { BLOCK };
    let mut streams = [(std::ptr::null(), 0); MAX_PREFETCHED];
    let mut count = 0;
    if prefetch && steps.len() > 1 {
        for step in steps {
            for place in step.from.iter().chain(Some(&step.to).filter(|_| !step.stream)) {
                if let Place::Rows(p, pitch) = *place
                    && count < MAX_PREFETCHED
                    && !streams.contains(&(p.cast_const(), pitch))
                {
                    streams[count] = (p.cast_const(), pitch);
                    count += 1;
                }
            }
        }
    }
    level.run(Blocks { steps, prefetched: &streams[..count], rows, n, block });
}

/// The most rows that are prefetched: the inputs and outputs of a kernel.
const MAX_PREFETCHED: usize = MAX_INPUTS + MAX_OUTPUTS;

/// `run` compiled for a level.
struct Blocks<'a> {
    steps: &'a [Step],
    /// Rows in memory that are prefetched, and the distance from a row to the next.
    prefetched: &'a [(*const f32, isize)],
    rows: usize,
    n: usize,
    block: usize,
}

impl Work for Blocks<'_> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let (mut row, mut at) = (0, 0);
        let share = self.block.min(self.n).div_ceil(self.steps.len()).next_multiple_of(16);
        while row < self.rows {
            let n = self.block.min(self.n - at);
            // The next block is prefetched while this one is computed, some cache lines before each
            // loop.
            let (next_row, next) = if at + n < self.n { (row, at + n) } else { (row + 1, 0) };
            let (mut line, end) = (next, next + n);
            for step in self.steps {
                let until = (line + share).min(end);
                while line < until {
                    for &(first, pitch) in self.prefetched {
                        prefetch(
                            first.wrapping_offset(next_row as isize * pitch).wrapping_add(line),
                        );
                    }
                    line += 16;
                }
                step.run::<V>(row, at, n);
            }
            (row, at) = (next_row, next);
        }
    }
}

impl Step {
    /// Runs the loop over the n elements of row `row` from `at` on.
    #[inline(always)]
    fn run<V: F32s>(&self, row: usize, at: usize, n: usize) {
        let here =
            |p: *mut f32, pitch: isize| p.wrapping_offset(row as isize * pitch).wrapping_add(at);
        let read = |place: Place| match place {
            Place::Rows(p, pitch) => Operand::Slice(here(p, pitch)),
            Place::Block(p) => Operand::Slice(p),
            Place::Splat(x) => Operand::Splat(x),
        };
        let [a, b, c, d] = self.from;
        let (a, b, c, d) = (read(a), read(b), read(c), read(d));
        let y = match self.to {
            Place::Rows(y, pitch) => here(y, pitch),
            Place::Block(y) => y,
            Place::Splat(_) => return,
        };
        let stream = self.stream;
        macro_rules! one {
            ($f:ty) => {
                match a {
                    // SAFETY: `run` was promised n values at each place, and results that overlap
                    // no operand.
                    Operand::Slice(x) => unsafe { Map1::<$f>::new(x, y, n, stream) }.run::<V>(),
                    Operand::Splat(_) => {
                        unreachable!("`run` has refused a number as the only operand")
                    }
                }
            };
        }
        macro_rules! two {
            ($f:ty) => {
                // SAFETY: as for one operand.
                unsafe { Map2::<$f>::new(a, b, y, n, stream) }.run::<V>()
            };
        }
        macro_rules! four {
            ($f:ident) => {
                select_by::<V, _>($f, [a, b, c, d], y, n)
            };
        }
        match self.body {
            Loop::Neg => one!(Neg),
            Loop::Abs => one!(Abs),
            Loop::Sign => one!(Sign),
            Loop::Recip => one!(Recip),
            Loop::Sqrt => one!(Sqrt),
            Loop::Rsqrt => one!(Rsqrt),
            Loop::Exp => one!(Exp),
            Loop::Exp2 => one!(Exp2),
            Loop::Log => one!(Log),
            Loop::Tanh => one!(Tanh),
            Loop::Erf => one!(Erf),
            Loop::Floor => one!(Floor),
            Loop::Ceil => one!(Ceil),
            Loop::Round => one!(Round),
            Loop::Trunc => one!(Trunc),
            Loop::Add => two!(Add),
            Loop::Sub => two!(Sub),
            Loop::Mul => two!(Mul),
            Loop::Div => two!(Div),
            Loop::Max => two!(Max),
            Loop::Min => two!(Min),
            Loop::SelectLt => four!(Lt),
            Loop::SelectLe => four!(Le),
            Loop::SelectEq => four!(Eq),
            Loop::SelectNe => four!(Ne),
            Loop::Gelu => one!(Gelu),
            Loop::GeluTanh => one!(GeluTanh),
            Loop::Sigmoid => one!(Sigmoid),
            Loop::Silu => one!(Silu),
        }
    }
}
