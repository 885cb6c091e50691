//! Blocks to numbers: the results of the Python package `gguf`, bit for bit.

use super::{IQ4_NL, MXFP4, QuantType};
use crate::error::{Error, Result};
use half::f16;

/// The 16-bit float at byte `at`.
pub(super) fn half(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// The 4-bit number of element `j` of 32: the low halves of 16 bytes, then the high ones.
fn nibble(bytes: &[u8], j: usize) -> u8 {
    if j < 16 { bytes[j] & 15 } else { bytes[j - 16] >> 4 }
}

/// [`nibble`] with bit `j` of the four bytes `high` above it.
fn five_bits(high: &[u8], bytes: &[u8], j: usize) -> u8 {
    nibble(bytes, j) | (high[j / 8] >> (j % 8) & 1) << 4
}

/// Writes `value(j)` to element j.
fn fill(to: &mut [f32], value: impl Fn(usize) -> f32) {
    to.iter_mut().enumerate().for_each(|(j, to)| *to = value(j));
}

/// The scale and the minimum of sub-block `i` of 8, each of 6 bits, packed in 12 bytes.
fn six_bits(s: &[u8], i: usize) -> [u8; 2] {
    match i {
        0..4 => [s[i] & 63, s[i + 4] & 63],
        _ => [(s[i + 4] & 15) | s[i - 4] >> 6 << 4, s[i + 4] >> 4 | s[i] >> 6 << 4],
    }
}

/// Q4_K and Q5_K: eight sub-blocks of 32, `q(g, l)` being the number of element l of sub-block g.
fn with_minima(block: &[u8], to: &mut [f32], q: impl Fn(usize, usize) -> u8) {
    let (d, minimum) = (half(block, 0), half(block, 2));
    for (i, to) in to.chunks_exact_mut(32).enumerate() {
        let [scale, least] = six_bits(&block[4..16], i).map(f32::from);
        let (d, least) = (d * scale, minimum * least);
        fill(to, |l| d * f32::from(q(i, l)) - least);
    }
}

/// The number of element l of sub-block `i`: sub-blocks 2g and 2g + 1 are the low and high halves
/// of 32 bytes.
fn paired_nibble(bytes: &[u8], i: usize, l: usize) -> u8 {
    bytes[32 * (i / 2) + l] >> (4 * (i % 2)) & 15
}

fn q6_k(block: &[u8], to: &mut [f32]) {
    let (low, high, scales, d) =
        (&block[..128], &block[128..192], &block[192..208], half(block, 208));
    for (k, to) in to.chunks_exact_mut(32).enumerate() {
        let (n, j) = (k / 4, k % 4);
        fill(to, |l| {
            let q = low[64 * n + 32 * (j % 2) + l] >> (4 * (j / 2)) & 15
                | (high[32 * n + l] >> (2 * j) & 3) << 4;
            let scale = f32::from(scales[8 * n + 2 * j + l / 16] as i8);
            d * scale * (f32::from(q) - 32.0)
        });
    }
}

fn mxfp4(block: &[u8], to: &mut [f32]) {
    let d = half_of_power(block[0]);
    fill(to, |j| d * f32::from(MXFP4[usize::from(nibble(&block[1..], j))]));
}

/// `2^(e - 128)`, subnormal for e below 2: half of the scale of a block of MXFP4.
pub fn half_of_power(e: u8) -> f32 {
    let e = u32::from(e);
    f32::from_bits(if e < 2 { 0x0020_0000 << e } else { (e - 1) << 23 })
}

impl QuantType {
    /// Writes the values of one block.
    fn decode_block(self, block: &[u8], to: &mut [f32]) {
        use QuantType::*;
        match self {
            Q8_0 => {
                let d = half(block, 0);
                fill(to, |j| d * f32::from(block[2 + j] as i8));
            }
            Q4_0 => {
                let d = half(block, 0);
                fill(to, |j| d * (f32::from(nibble(&block[2..], j)) - 8.0));
            }
            Q4_1 => {
                let (d, m) = (half(block, 0), half(block, 2));
                fill(to, |j| d * f32::from(nibble(&block[4..], j)) + m);
            }
            Q5_0 => {
                let d = half(block, 0);
                fill(to, |j| d * (f32::from(five_bits(&block[2..6], &block[6..], j)) - 16.0));
            }
            Q5_1 => {
                let (d, m) = (half(block, 0), half(block, 2));
                fill(to, |j| d * f32::from(five_bits(&block[4..8], &block[8..], j)) + m);
            }
            Iq4Nl => {
                let d = half(block, 0);
                fill(to, |j| d * f32::from(IQ4_NL[usize::from(nibble(&block[2..], j))]));
            }
            Mxfp4 => mxfp4(block, to),
            Q4K => with_minima(block, to, |i, l| paired_nibble(&block[16..], i, l)),
            Q5K => with_minima(block, to, |i, l| {
                paired_nibble(&block[48..], i, l) | (block[16 + l] >> i & 1) << 4
            }),
            Q6K => q6_k(block, to),
        }
    }

    /// Writes the values of whole blocks. Bytes and elements beyond the last whole block that both
    /// have are left alone.
    pub fn decode(self, blocks: &[u8], to: &mut [f32]) {
        let blocks = blocks.chunks_exact(self.block_bytes());
        for (to, block) in to.chunks_exact_mut(self.block_elements()).zip(blocks) {
            self.decode_block(block, to);
        }
    }

    /// Whether the scales and the minima of a block are finite.
    pub(super) fn has_finite_scales(self, block: &[u8]) -> bool {
        use QuantType::*;
        let halves: &[usize] = match self {
            Q8_0 | Q4_0 | Q5_0 | Iq4Nl => &[0],
            Q4_1 | Q5_1 | Q4K | Q5K => &[0, 2],
            Q6K => &[208],
            Mxfp4 => return block[0] != 255, // an exponent of 255 is NaN
        };
        halves.iter().all(|&at| half(block, at).is_finite())
    }

    /// An error if a scale in `blocks`, which begin with block `first`, is NaN or infinite.
    ///
    /// # Errors
    /// It names the first such block.
    pub fn check(self, blocks: &[u8], first: usize) -> Result<()> {
        let bad = |block: &[u8]| !self.has_finite_scales(block);
        match blocks.chunks_exact(self.block_bytes()).position(bad) {
            Some(i) => Err(Error::value(format!(
                "a scale of block {} of {self:?} is not finite",
                first + i
            ))
            .help("the file is damaged, or its weights were not finite")),
            None => Ok(()),
        }
    }
}
