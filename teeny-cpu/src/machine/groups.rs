//! How a group of float nodes runs: as one loop, in registers, or in blocks.

use super::blocks::{self, BLOCK};
use super::half_pairs;
use super::registers;
use super::step::{Format, Place, Step, Stream};
use crate::simd::Level;
use teeny_core::kernel::{MAX_INPUTS, MAX_OUTPUTS};

/// The most rows that are prefetched: the inputs and outputs of a kernel.
const MAX_PREFETCHED: usize = MAX_INPUTS + MAX_OUTPUTS;

/// Elements of a row from which a single loop over each row costs at most as much as `registers`.
const MIN_LOOP: usize = 32;

/// Runs `steps`, which are all of one type, over `rows` rows of `n` elements. With `prefetch`, rows
/// are prefetched one block early, the block after the last one too, where the next call probably
/// continues.
///
/// # Safety
/// `Place::Rows` have n elements in each row and `Place::Block` have `BLOCK` or n, whichever is
/// less; a result overlaps no operand of its step, or is the same place.
pub(crate) unsafe fn run(level: Level, steps: &[Step], rows: usize, n: usize, prefetch: bool) {
    let is_sound = |step: &Step| {
        let number = |place| matches!(place, Place::Splat(_) | Place::Column(..));
        let reads = step.body.operands() > 1 || !matches!(step.from[0], Place::Splat(_));
        reads && !number(step.to) && step.wide == steps[0].wide
    };
    assert!(steps.iter().all(is_sound), "a loop without memory to read or to write");
    // A single loop has no neighbour that reads its values from L1.
    let uses_blocks = |step: &Step| {
        let used = |place: &Place| match place {
            Place::Block(_) => true,
            Place::Rows(_, _, format) => *format != Format::Own,
            Place::Splat(_) | Place::Column(..) => false,
        };
        step.from.iter().chain([&step.to]).any(used)
    };
    let single = steps.len() == 1;
    // SAFETY: passed on.
    if single && unsafe { half_pairs::run(level, &steps[0], rows, n) } {
        return;
    }
    let block = if single && !uses_blocks(&steps[0]) { n } else { BLOCK };
    let mut streams = [Stream { first: std::ptr::null(), stride: 0, size: 0 }; MAX_PREFETCHED];
    let mut count = 0;
    let own = if steps.first().is_some_and(|step| step.wide) { 8 } else { 4 };
    if prefetch && !single {
        for step in steps {
            for place in step.from.iter().chain(Some(&step.to).filter(|_| !step.stream)) {
                if let Place::Rows(p, stride, format) = *place {
                    let size = if format == Format::Own { own } else { 2 };
                    let stream =
                        Stream { first: p.cast_const(), stride: stride * size as isize, size };
                    // A row that is read again and again is in a cache.
                    let is_new = (stride != 0 || rows == 1) && !streams.contains(&stream);
                    if is_new && count < MAX_PREFETCHED {
                        streams[count] = stream;
                        count += 1;
                    }
                }
            }
        }
    }
    let prefetched = &streams[..count];
    // One loop over long rows needs no registers between loops, unless operands are converted, and one
    // block takes less time than the instructions take to be made.
    let is_long = rows > 1 || n >= BLOCK;
    let in_registers = is_long && (!single || uses_blocks(&steps[0])) || rows > 1 && n < MIN_LOOP;
    // SAFETY: passed on.
    if in_registers && unsafe { registers::run(level, steps, rows, n, prefetched) } {
        return;
    }
    // SAFETY: passed on.
    unsafe { blocks::run(level, steps, prefetched, (rows, n, block)) };
}
