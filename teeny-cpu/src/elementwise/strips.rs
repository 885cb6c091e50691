//! Programs of f32 alone, a strip of some vectors at a time: every node's loop over one strip, then
//! over the next.
//!
//! ```text
//!   inputs ───►┌ mul ─► here ─ add ─► here ─ tanh ─► output ┐   512 elements, while the next ones are on their way from memory
//!   inputs ───►└ mul ─► here ─ add ─► here ─ tanh ─► output ┘   the next 512, in the same places
//! ```
//! What lies between two nodes never leaves L1, and arithmetic and memory do not wait for each
//! other, as they do where a whole tile goes through one loop after the other. The loops are those
//! of `simd::loops`, all in one function for each level.

use super::float::*;
use crate::simd::loops::{Map1, Map2, Operand};
use crate::simd::{F32s, Level, Work, prefetch};
use crate::vecmath::{Erf, Exp, Exp2, Log, Tanh};
use teeny_core::kernel::{MAX_INPUTS, MAX_OUTPUTS, OpCode};

/// Elements of a strip: thirty-two of the widest vectors, in which the choice of a loop is lost.
pub(crate) const STRIP: usize = 512;

/// What is computed of the operands: an operation, a choice of the third or the fourth operand as
/// the first two compare, or a whole function of one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Loop {
    Neg,
    Abs,
    Sign,
    Recip,
    Sqrt,
    Rsqrt,
    Exp,
    Exp2,
    Log,
    Tanh,
    Erf,
    Floor,
    Ceil,
    Round,
    Trunc,
    Add,
    Sub,
    Mul,
    Div,
    Max,
    Min,
    IfLess,
    IfLessOrEqual,
    IfEqual,
    IfUnequal,
    Gelu,
    GeluTanh,
    Sigmoid,
    Silu,
}

impl Loop {
    /// The loop of nodes of this operation, if there is one over vectors of f32.
    pub(crate) fn of(op: OpCode) -> Option<Loop> {
        use OpCode as O;
        Some(match op {
            O::Neg => Loop::Neg,
            O::Abs => Loop::Abs,
            O::Sign => Loop::Sign,
            O::Recip => Loop::Recip,
            O::Sqrt => Loop::Sqrt,
            O::Rsqrt => Loop::Rsqrt,
            O::Exp => Loop::Exp,
            O::Exp2 => Loop::Exp2,
            O::Log => Loop::Log,
            O::Tanh => Loop::Tanh,
            O::Erf => Loop::Erf,
            O::Floor => Loop::Floor,
            O::Ceil => Loop::Ceil,
            O::Round => Loop::Round,
            O::Trunc => Loop::Trunc,
            O::Add => Loop::Add,
            O::Sub => Loop::Sub,
            O::Mul => Loop::Mul,
            O::Div => Loop::Div,
            O::Max => Loop::Max,
            O::Min => Loop::Min,
            O::Input(_) | O::Param(_) | O::Const(_) | O::Cast | O::Where => return None,
            O::Expm1
            | O::Log2
            | O::Log1p
            | O::Sin
            | O::Cos
            | O::Tan
            | O::Atan
            | O::Pow
            | O::Rem
            | O::FloorDiv => return None,
            O::CmpLt
            | O::CmpLe
            | O::CmpEq
            | O::CmpNe
            | O::IsNan
            | O::Not
            | O::And
            | O::Or
            | O::Xor
            | O::Shl
            | O::Shr => return None,
        })
    }

    /// The loop that chooses by a comparison.
    pub(crate) fn choice(comparison: OpCode) -> Option<Loop> {
        use OpCode as O;
        Some(match comparison {
            O::CmpLt => Loop::IfLess,
            O::CmpLe => Loop::IfLessOrEqual,
            O::CmpEq => Loop::IfEqual,
            O::CmpNe => Loop::IfUnequal,
            O::Input(_)
            | O::Param(_)
            | O::Const(_)
            | O::Cast
            | O::Where
            | O::IsNan
            | O::Not
            | O::And
            | O::Or
            | O::Xor
            | O::Shl
            | O::Shr => {
                return None;
            }
            O::Neg
            | O::Abs
            | O::Sign
            | O::Recip
            | O::Sqrt
            | O::Rsqrt
            | O::Exp
            | O::Exp2
            | O::Expm1
            | O::Log
            | O::Log2
            | O::Log1p => return None,
            O::Sin
            | O::Cos
            | O::Tan
            | O::Atan
            | O::Tanh
            | O::Erf
            | O::Floor
            | O::Ceil
            | O::Round
            | O::Trunc => return None,
            O::Add | O::Sub | O::Mul | O::Div | O::Pow | O::Max | O::Min | O::Rem | O::FloorDiv => {
                return None;
            }
        })
    }

    /// How many operands it has.
    pub(crate) fn operands(self) -> usize {
        match self {
            Loop::Add | Loop::Sub | Loop::Mul | Loop::Div | Loop::Max | Loop::Min => 2,
            Loop::IfLess | Loop::IfLessOrEqual | Loop::IfEqual | Loop::IfUnequal => 4,
            Loop::Neg
            | Loop::Abs
            | Loop::Sign
            | Loop::Recip
            | Loop::Sqrt
            | Loop::Rsqrt
            | Loop::Exp
            | Loop::Exp2
            | Loop::Log
            | Loop::Tanh
            | Loop::Erf => 1,
            Loop::Floor
            | Loop::Ceil
            | Loop::Round
            | Loop::Trunc
            | Loop::Gelu
            | Loop::GeluTanh
            | Loop::Sigmoid
            | Loop::Silu => 1,
        }
    }
}

/// Where an operand or a result is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// Element i of a row at i, the next row so many elements behind.
    Run(*mut f32, isize),
    /// A strip, which the next one overwrites.
    Strip(*mut f32),
    /// The same number everywhere. Never a result.
    Splat(f32),
}

/// One loop over each strip.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub what: Loop,
    /// As many as there are operands.
    pub from: [Place; 4],
    pub to: Place,
    /// Whether the result bypasses the caches.
    pub stream: bool,
}

/// Runs `steps` over `rows` of `n` elements. With `ahead`, what comes from memory and goes to it is
/// asked for a strip early, also that behind the last one, where the next call probably goes on.
///
/// # Safety
/// Runs have n elements in each row and strips `STRIP` or n, whichever is less; results overlap no
/// operand of their step, or are the same place.
pub(crate) unsafe fn run(level: Level, steps: &[Step], rows: usize, n: usize, ahead: bool) {
    let sound = |step: &Step| {
        let reads = step.what.operands() > 1 || !matches!(step.from[0], Place::Splat(_));
        reads && !matches!(step.to, Place::Splat(_))
    };
    assert!(steps.iter().all(sound), "a loop without memory to read or to write");
    // One loop has no neighbour to share L1 with.
    let in_strips = |step: &Step| {
        step.from.iter().chain([&step.to]).any(|place| matches!(place, Place::Strip(_)))
    };
    let strip = if steps.len() == 1 && !in_strips(&steps[0]) { n } else { STRIP };
    let mut runs = [(std::ptr::null(), 0); RUNS];
    let mut known = 0;
    if ahead && steps.len() > 1 {
        for step in steps {
            for place in step.from.iter().chain(Some(&step.to).filter(|_| !step.stream)) {
                if let Place::Run(p, pitch) = *place
                    && known < RUNS
                    && !runs.contains(&(p.cast_const(), pitch))
                {
                    runs[known] = (p.cast_const(), pitch);
                    known += 1;
                }
            }
        }
    }
    level.run(Strips { steps, runs: &runs[..known], rows, n, strip });
}

/// The most runs that are asked for ahead: the inputs and outputs of a kernel.
const RUNS: usize = MAX_INPUTS + MAX_OUTPUTS;

/// `run` compiled for a level.
struct Strips<'a> {
    steps: &'a [Step],
    /// What comes from memory and goes to it, and from a row to the next.
    runs: &'a [(*const f32, isize)],
    rows: usize,
    n: usize,
    strip: usize,
}

impl Work for Strips<'_> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let (mut row, mut at) = (0, 0);
        let share = self.strip.min(self.n).div_ceil(self.steps.len()).next_multiple_of(16);
        while row < self.rows {
            let n = self.strip.min(self.n - at);
            // The next strip comes from memory while this one is computed, some lines during each
            // loop.
            let (next_row, next) = if at + n < self.n { (row, at + n) } else { (row + 1, 0) };
            let (mut line, end) = (next, next + n);
            for step in self.steps {
                let until = (line + share).min(end);
                while line < until {
                    for &(run, pitch) in self.runs {
                        prefetch(run.wrapping_offset(next_row as isize * pitch).wrapping_add(line));
                    }
                    line += 16;
                }
                step.go::<V>(row, at, n);
            }
            (row, at) = (next_row, next);
        }
    }
}

impl Step {
    /// Over the n elements of row `row` from `at` on.
    #[inline(always)]
    fn go<V: F32s>(&self, row: usize, at: usize, n: usize) {
        let here =
            |p: *mut f32, pitch: isize| p.wrapping_offset(row as isize * pitch).wrapping_add(at);
        let read = |place: Place| match place {
            Place::Run(p, pitch) => Operand::Slice(here(p, pitch)),
            Place::Strip(p) => Operand::Slice(p),
            Place::Splat(x) => Operand::Splat(x),
        };
        let [a, b, c, d] = self.from;
        let (a, b, c, d) = (read(a), read(b), read(c), read(d));
        let y = match self.to {
            Place::Run(y, pitch) => here(y, pitch),
            Place::Strip(y) => y,
            Place::Splat(_) => return,
        };
        let stream = self.stream;
        macro_rules! one {
            ($f:ty) => {
                match a {
                    // SAFETY: `run` was promised n values at each place, and results that overlap
                    // no operand.
                    Operand::Slice(x) => unsafe { Map1::<$f>::new(x, y, n, stream) }.run::<V>(),
                    Operand::Splat(_) => unreachable!("`run` has refused a splat"),
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
                choose::<V, _>($f, [a, b, c, d], y, n)
            };
        }
        match self.what {
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
            Loop::IfLess => four!(Less),
            Loop::IfLessOrEqual => four!(LessOrEqual),
            Loop::IfEqual => four!(Equal),
            Loop::IfUnequal => four!(Unequal),
            Loop::Gelu => one!(Gelu),
            Loop::GeluTanh => one!(GeluTanh),
            Loop::Sigmoid => one!(Sigmoid),
            Loop::Silu => one!(Silu),
        }
    }
}
