//! Activations as integers of 8 bits, in blocks of 32 with a scale each: from -127 to 127, never
//! -128, which `Rows::dot_signed` could not multiply.

use super::panel::{SUB, SUBS};
use crate::Cpu;
use crate::cost::Cost;
use crate::scratch::Array;
use crate::storage::Shared;
use crate::threads::for_each_range;
use teeny_core::Result;

/// The scale and the sums of a block.
#[derive(Clone, Copy, Default)]
pub(super) struct Block {
    /// The elements are the integers times this; NaN if one element is not finite.
    pub scale: f32,
    /// The sums of the integers of each half.
    pub sums: [i32; 2],
}

/// Rows of activations in the order (blocks / 8, rows, 8): eight consecutive blocks of a row, then
/// the same eight of the next row, so that the factors of a panel are contiguous. The last eight
/// are padded with zeros.
pub(super) struct Activations {
    pub integers: Array<[i8; SUB]>,
    pub blocks: Array<Block>,
    /// Blocks of a row.
    pub count: usize,
    rows: usize,
}

impl Activations {
    /// Quantises `rows` rows of `columns` elements, which follow each other at `x`.
    ///
    /// # Safety
    /// They are readable, and `columns` is a multiple of [`SUB`].
    pub unsafe fn new(
        cpu: &Cpu,
        x: *const f32,
        rows: usize,
        columns: usize,
    ) -> Result<Activations> {
        let count = columns / SUB;
        let places = rows * count.next_multiple_of(SUBS);
        let mut integers = Array::filled(cpu, places, [0i8; SUB])?;
        let mut blocks = Array::filled(cpu, places, Block::default())?;
        let (to, about) = (Shared(integers.as_mut_ptr()), Shared(blocks.as_mut_ptr()));
        let from = Shared(x.cast_mut());
        let least = Cost::bytes(5 * SUB).arithmetic(4 * SUB).range(rows * count);
        for_each_range(rows * count, least, |range| {
            for i in range {
                let place = place(rows, i / count, i % count);
                // SAFETY: block i of x and its place, which no other range has.
                unsafe {
                    let x = &*from.get().add(SUB * i).cast::<[f32; SUB]>();
                    *about.get().add(place) = quantize(x, &mut *to.get().add(place));
                }
            }
        });
        Ok(Activations { integers, blocks, count, rows })
    }

    /// The place of block `b` of row `row`.
    #[inline(always)]
    pub fn index(&self, row: usize, b: usize) -> usize {
        place(self.rows, row, b)
    }

    /// The integers of block `b` of row `row`, four in a word. Aligned, since an `Array` begins at
    /// a cache line.
    #[inline(always)]
    pub fn words(&self, row: usize, b: usize) -> *const i32 {
        self.integers[self.index(row, b)].as_ptr().cast()
    }

    #[inline(always)]
    pub fn block(&self, row: usize, b: usize) -> &Block {
        &self.blocks[self.index(row, b)]
    }
}

/// The place of block `b` of row `row` of `rows`.
#[inline(always)]
fn place(rows: usize, row: usize, b: usize) -> usize {
    (b / SUBS * rows + row) * SUBS + b % SUBS
}

/// Adding it rounds a small number to an integer, ties to even; the result has it in its low bits.
const ROUND: f32 = 12_582_912.0; // 1.5 * 2^23

/// Blocks whose largest magnitude is below this become zeros: 127 divided by it could overflow.
const MIN_MAGNITUDE: f32 = 1e-36;

fn quantize(x: &[f32; SUB], to: &mut [i8; SUB]) -> Block {
    // magnitudes are ordered as their bits are, NaN last
    let most = x.iter().fold(0, |most: u32, x| most.max(x.to_bits() & 0x7fff_ffff));
    let most = f32::from_bits(most);
    if !most.is_finite() {
        *to = [0; SUB];
        return Block { scale: f32::NAN, sums: [0; 2] };
    }
    let scale = most / 127.0;
    let inverse = if most < MIN_MAGNITUDE { 0.0 } else { 127.0 / most };
    let mut sums = [0; 2];
    for (half, sum) in sums.iter_mut().enumerate() {
        for j in 16 * half..16 * half + 16 {
            let q =
                ((x[j] * inverse + ROUND).to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
            to[j] = q as i8;
            *sum += q;
        }
    }
    Block { scale, sums }
}
