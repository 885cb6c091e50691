//! Sorting small keys stably: a radix sort, four bits a pass, whose work grows with the number of
//! keys and not with how often they repeat.
//!
//! ```text
//! count    each tile of 2048 keys says how many it has of each digit          counts (16, tiles)
//! offsets  where the keys of each digit and tile begin: an exclusive scan
//! place    each thread puts its 16 neighbouring keys there, in their order
//! ```
//!
//! The former positions travel with the keys. No two threads write one place and the tiles are
//! fixed, so the result does not depend on timing.

use crate::device::{Launch, Wgpu};
use crate::generator;
use crate::params::Params;
use crate::pipeline::{Key, Program};
use crate::wide;
use std::fmt::Write;
use teeny_core::{DType, Result, StorageRef};

const THREADS: usize = 128;
/// Neighbouring keys of a thread.
const EACH: usize = 16;
const TILE: usize = THREADS * EACH;
/// Bits of a digit, and how many digits there are.
const BITS: u32 = 4;
const DIGITS: usize = 1 << BITS;

/// The three steps of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Count,
    Offsets,
    /// The first pass finds the keys where they were made, so their positions are their numbers.
    Place {
        first: bool,
    },
}

impl Step {
    fn code(self) -> u32 {
        match self {
            Step::Count => 0,
            Step::Offsets => 1,
            Step::Place { first: false } => 2,
            Step::Place { first: true } => 3,
        }
    }
}

/// The shader of a step. Words: keys, shift of the digit, tiles.
pub(crate) fn wgsl(step: Step) -> String {
    let mut text = generator::params_declaration();
    let [count, shift, tiles] = [0, 1, 2].map(generator::param);
    let counted = format!(
        "    if unit >= {tiles} {{ return; }}\n    for (var d = 0u; d < {DIGITS}u; d++) {{ places[d * {THREADS}u + thread] = 0u; }}\n    \
         let low = unit * {TILE}u + thread * {EACH}u;\n    let high = min(low + {EACH}u, {count});\n    \
         for (var i = low; i < high; i++) {{ places[((keys[i] >> {shift}) & {}u) * {THREADS}u + thread] += 1u; }}\n    workgroupBarrier();\n",
        DIGITS - 1
    );
    let shared = format!("var<workgroup> places: array<u32, {}>;\n", DIGITS * THREADS);
    match step {
        Step::Count => {
            text.push_str(&wide::input(0, "keys", DType::U32));
            text.push_str(&wide::output(1, "counts", DType::U32));
            let _ = writeln!(
                text,
                "{shared}{}{counted}    if thread < {DIGITS}u {{\n        var sum = 0u;\n        \
                 for (var j = 0u; j < {THREADS}u; j++) {{ sum += places[thread * {THREADS}u + j]; }}\n        \
                 counts[thread * {tiles} + unit] = sum;\n    }}\n}}",
                wide::main(THREADS)
            );
        }
        Step::Offsets => {
            text.push_str(&wide::output(0, "counts", DType::U32));
            let _ = writeln!(
                text,
                "var<workgroup> sums: array<u32, {THREADS}>;\n{}    if unit > 0u {{ return; }}\n    let total = {tiles} * {DIGITS}u;\n    \
                 let each = (total + {}u) / {THREADS}u;\n    let low = min(thread * each, total);\n    let high = min(low + each, total);\n    \
                 var sum = 0u;\n    for (var i = low; i < high; i++) {{ sum += counts[i]; }}\n    sums[thread] = sum;\n    workgroupBarrier();\n    \
                 var at = 0u;\n    for (var i = 0u; i < thread; i++) {{ at += sums[i]; }}\n    \
                 for (var i = low; i < high; i++) {{ let here = counts[i]; counts[i] = at; at += here; }}\n}}",
                wide::main(THREADS),
                THREADS - 1
            );
        }
        Step::Place { first } => {
            text.push_str(&wide::input(0, "keys", DType::U32));
            text.push_str(&wide::input(1, "counts", DType::U32));
            if !first {
                text.push_str(&wide::input(2, "order", DType::U32));
            }
            let outputs = if first { 2 } else { 3 };
            text.push_str(&wide::output(outputs, "new_keys", DType::U32));
            text.push_str(&wide::output(outputs + 1, "new_order", DType::U32));
            let _ = writeln!(
                text,
                "{shared}{}{counted}    if thread < {DIGITS}u {{\n        var at = counts[thread * {tiles} + unit];\n        \
                 for (var j = thread * {THREADS}u; j < (thread + 1u) * {THREADS}u; j++) {{ let here = places[j]; places[j] = at; at += here; }}\n    }}\n    \
                 workgroupBarrier();\n    for (var i = low; i < high; i++) {{\n        let key = keys[i];\n        \
                 let slot = ((key >> {shift}) & {}u) * {THREADS}u + thread;\n        let to = places[slot];\n        places[slot] = to + 1u;\n        \
                 new_keys[to] = key;\n        new_order[to] = {};\n    }}\n}}",
                wide::main(THREADS),
                DIGITS - 1,
                if first { "i" } else { "order[i]" }
            );
        }
    }
    text
}

impl Wgpu {
    /// `count` keys, none above `largest`, in ascending order, equal ones in the order they had;
    /// and the position that each had.
    pub(crate) fn ordered(
        &self,
        mut keys: StorageRef,
        count: usize,
        largest: usize,
    ) -> Result<(StorageRef, StorageRef)> {
        let tiles = count.div_ceil(TILE);
        let bits = usize::BITS - largest.leading_zeros();
        let mut order: Option<StorageRef> = None;
        // At least one pass: it makes the positions.
        for pass in 0..bits.div_ceil(BITS).max(1) {
            let mut slot = Params::new();
            slot.counts(&[count, (pass * BITS) as usize, tiles]);
            let counts = self.allocate(tiles * DIGITS, DType::U32)?;
            let launch = |step: Step,
                          inputs: &[&StorageRef],
                          outputs: &[&StorageRef],
                          groups: usize| {
                self.dispatch(&Launch {
                    program: Program {
                        key: Key::new("order", [step.code()]),
                        wgsl: &|| Ok(wgsl(step)),
                    },
                    inputs: &inputs.iter().map(|s| self.whole(s)).collect::<Result<Vec<_>>>()?,
                    outputs: &outputs.iter().map(|s| self.whole(s)).collect::<Result<Vec<_>>>()?,
                    params: &slot,
                    groups: self.fold(groups as u64)?,
                })
            };
            let (new_keys, new_order) =
                (self.allocate(count, DType::U32)?, self.allocate(count, DType::U32)?);
            launch(Step::Count, &[&keys], &[&counts], tiles)?;
            launch(Step::Offsets, &[], &[&counts], 1)?;
            match &order {
                None => launch(
                    Step::Place { first: true },
                    &[&keys, &counts],
                    &[&new_keys, &new_order],
                    tiles,
                )?,
                Some(order) => launch(
                    Step::Place { first: false },
                    &[&keys, &counts, order],
                    &[&new_keys, &new_order],
                    tiles,
                )?,
            }
            (keys, order) = (new_keys, Some(new_order));
        }
        let order = order.ok_or_else(|| teeny_core::Error::internal("a sort without a pass"))?;
        Ok((keys, order))
    }
}
