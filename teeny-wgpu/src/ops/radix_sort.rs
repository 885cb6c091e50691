//! Sorting small keys stably: a radix sort, four bits a pass, whose work grows with the number of
//! keys and not with how often they repeat.
//!
//! ```text
//! count    each tile of 2048 keys counts its digits                          counts (16, tiles)
//! offsets  where the keys of each digit and tile begin: an exclusive scan
//! place    each thread puts its 16 neighbouring keys there, in their order
//! ```
//!
//! The former positions travel with the keys. No two threads write one place and the tiles are
//! fixed, so the result does not depend on timing.

use crate::codegen::params::shader_params;
use crate::codegen::shader::{Shader, shader};
use crate::device::Wgpu;
use crate::device::launch::{Key, Launch, Program};
use teeny_core::{DType, Error, Result, StorageRef};

const THREADS: usize = 128;
/// Neighbouring keys of a thread.
const EACH: usize = 16;
const TILE: usize = THREADS * EACH;
/// Bits of a digit, and the number of digits.
const BITS: u32 = 4;
const DIGITS: usize = 1 << BITS;

shader_params! {
    /// Parameters of `radix_count.wgsl`, `radix_offsets.wgsl` and `radix_place.wgsl`.
    struct RadixParams() {
        keys: usize,
        /// The lowest bit of the digit.
        shift: u32,
        tiles: usize,
    }
}

/// The three steps of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RadixStep {
    Count,
    Offsets,
    /// In the first pass the position of a key is its number.
    Place {
        first: bool,
    },
}

impl RadixStep {
    fn code(self) -> u32 {
        match self {
            RadixStep::Count => 0,
            RadixStep::Offsets => 1,
            RadixStep::Place { first: false } => 2,
            RadixStep::Place { first: true } => 3,
        }
    }
}

/// The shader of a step.
///
/// # Errors
/// As [`Shader::render`].
pub(crate) fn wgsl(step: RadixStep) -> Result<String> {
    let constants = |shader: Shader| shader.number("threads", THREADS).number("digits", DIGITS);
    let digits = || constants(shader!("radix_digits")).number("each", EACH);
    let shader = match step {
        RadixStep::Count => shader!("radix_count").include(digits()),
        RadixStep::Offsets => constants(shader!("radix_offsets")),
        RadixStep::Place { first } => {
            shader!("radix_place").include(digits()).flag("first_pass", first)
        }
    };
    shader.params(&RadixParams::declaration()).render()
}

/// `count` keys, none above `largest`, in ascending order, equal ones in the order they had;
/// and the position that each had.
pub(crate) fn radix_sort(
    gpu: &Wgpu,
    mut keys: StorageRef,
    count: usize,
    largest: usize,
) -> Result<(StorageRef, StorageRef)> {
    let tiles = count.div_ceil(TILE);
    let bits = usize::BITS - largest.leading_zeros();
    let mut order: Option<StorageRef> = None;
    // At least one pass: it makes the positions.
    for pass in 0..bits.div_ceil(BITS).max(1) {
        let params = RadixParams { keys: count, shift: pass * BITS, tiles }.words();
        let counts = gpu.allocate(tiles * DIGITS, DType::U32)?;
        let launch = |step: RadixStep,
                      inputs: &[&StorageRef],
                      outputs: &[&StorageRef],
                      workgroups: usize| {
            gpu.dispatch(&Launch {
                program: Program {
                    key: Key::new("radix_sort", [step.code()]),
                    wgsl: &|| wgsl(step),
                },
                inputs: &inputs.iter().map(|s| gpu.bind(s)).collect::<Result<Vec<_>>>()?,
                outputs: &outputs.iter().map(|s| gpu.bind(s)).collect::<Result<Vec<_>>>()?,
                params: &params,
                grid: gpu.dispatch_grid(workgroups as u64)?,
            })
        };
        let (new_keys, new_order) =
            (gpu.allocate(count, DType::U32)?, gpu.allocate(count, DType::U32)?);
        launch(RadixStep::Count, &[&keys], &[&counts], tiles)?;
        launch(RadixStep::Offsets, &[], &[&counts], 1)?;
        match &order {
            None => launch(
                RadixStep::Place { first: true },
                &[&keys, &counts],
                &[&new_keys, &new_order],
                tiles,
            )?,
            Some(order) => launch(
                RadixStep::Place { first: false },
                &[&keys, &counts, order],
                &[&new_keys, &new_order],
                tiles,
            )?,
        }
        (keys, order) = (new_keys, Some(new_order));
    }
    let order = order.ok_or_else(|| Error::internal("a sort without a pass"))?;
    Ok((keys, order))
}
