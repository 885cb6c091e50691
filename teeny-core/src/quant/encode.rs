//! Encodes numbers as blocks.
//!
//! Q8_0, Q4_0, Q4_1, Q5_0 and Q5_1 have the bits of the Python package `gguf`. The scales of the K
//! types are searched: about twenty step sizes are tried for each sub-block, scale and minimum are
//! fitted by weighted least squares, and the one with the smallest weighted error is kept.

use super::QuantType;
use crate::error::{Error, Result};
use half::f16;

/// The first places of the high bit and of the low bits of Q5_K's and of Q4_K's numbers.
const Q5K_BITS: [usize; 2] = [16, 48];
const Q4K_BITS: usize = 16;

/// Writes `x` as a 16-bit float at byte `at`, and returns the rounded value.
fn put(block: &mut [u8], at: usize, x: f32) -> f32 {
    let x = f16::from_f32(x);
    block[at..at + 2].copy_from_slice(&x.to_le_bytes());
    x.to_f32()
}

/// Writes the scale `d` of integers that are fitted to it, and returns what was written and the
/// factor of the integers. A subnormal one is rounded up, so that the integers still reach the
/// largest number: it has too few bits to be a rounding away from it.
fn put_scale(block: &mut [u8], at: usize, d: f32) -> [f32; 2] {
    let mut written = put(block, at, d);
    if d.abs() >= f16::MIN_POSITIVE.to_f32() {
        return [written, inverse(d)];
    }
    if written.abs() < d.abs() {
        written = put(block, at, written + f16::MIN_POSITIVE_SUBNORMAL.to_f32().copysign(d));
    }
    [written, inverse(written)]
}

/// `1 / d`, or 0 where that is not finite.
fn inverse(d: f32) -> f32 {
    let inverse = 1.0 / d;
    if d == 0.0 || !inverse.is_finite() { 0.0 } else { inverse }
}

/// The number of largest magnitude, with its sign; the first of equal ones.
fn extreme(x: &[f32]) -> f32 {
    x.iter().fold(0.0f32, |best, &x| if x.abs() > best.abs() { x } else { best })
}

fn range(x: &[f32]) -> [f32; 2] {
    x.iter().fold([f32::INFINITY, f32::NEG_INFINITY], |[low, high], &x| [low.min(x), high.max(x)])
}

/// Writes numbers of 4 bits, of 32 elements: the first half low, the second high.
fn put_nibbles(q: [u8; 32], to: &mut [u8]) {
    (0..16).for_each(|j| to[j] = q[j] & 15 | q[j + 16] << 4);
}

/// [`put_nibbles`] after their fifth bits.
fn put_five_bits(q: [u8; 32], to: &mut [u8]) {
    to[..4].fill(0);
    (0..32).for_each(|j| to[j / 8] |= (q[j] >> 4) << (j % 8));
    put_nibbles(q, &mut to[4..]);
}

/// The integers `q(x)` of 32 elements, at most `most`.
fn integers(x: &[f32], most: u8, q: impl Fn(f32) -> f32) -> [u8; 32] {
    let mut all = [0; 32];
    all.iter_mut().zip(x).for_each(|(to, &x)| *to = (q(x) as u8).min(most));
    all
}

/// Q4_0 and Q5_0: the extreme becomes the lowest of `2 half` steps.
fn centred(x: &[f32], half: u8, block: &mut [u8]) -> [u8; 32] {
    let d = extreme(x) / -f32::from(half);
    let inverse = inverse(d);
    put(block, 0, d);
    integers(x, 2 * half - 1, |x| x * inverse + (f32::from(half) + 0.5))
}

/// Q4_1 and Q5_1: `most` steps from the lowest to the highest.
fn from_lowest(x: &[f32], most: u8, block: &mut [u8]) -> [u8; 32] {
    let [low, high] = range(x);
    let d = (high - low) / f32::from(most);
    let inverse = inverse(d);
    put(block, 0, d);
    put(block, 2, low);
    integers(x, most, |x| (x - low) * inverse + 0.5)
}

/// A step and a minimum, at most 0, of numbers `0..=most` that fit `x` with the smallest weighted
/// squared error.
fn fitted(x: &[f32], most: f32) -> [f32; 2] {
    let mean: f32 = x.iter().map(|x| x * x).sum::<f32>() / x.len() as f32;
    let weight = |x: f32| mean.sqrt() + x.abs();
    let [low, high] = range(x);
    let low = low.min(0.0);
    if high <= low {
        return [0.0, low];
    }
    let quantized = |x: f32, step: f32, low: f32| ((x - low) / step).round().clamp(0.0, most);
    let error = |[step, low]: [f32; 2]| -> f32 {
        let off = |x: f32| quantized(x, step, low) * step + low - x;
        x.iter().map(|&x| weight(x) * off(x) * off(x)).sum()
    };
    let mut best = [(high - low) / most, low];
    let mut least = error(best);
    for k in 0..=20 {
        let step = (high - low) / (most - 1.0 + 0.1 * k as f32);
        let mut sums = [0.0f32; 5]; // of u, u q, u q q, u x, u q x
        for &x in x {
            let (u, q) = (weight(x), quantized(x, step, low));
            [u, u * q, u * q * q, u * x, u * q * x]
                .iter()
                .zip(&mut sums)
                .for_each(|(x, s)| *s += x);
        }
        let [u, q, qq, x, qx] = sums;
        let determinant = u * qq - q * q;
        if determinant <= 0.0 {
            continue;
        }
        let mut fit = [(u * qx - q * x) / determinant, (qq * x - q * qx) / determinant];
        if fit[1] > 0.0 {
            fit = [qx / qq, 0.0];
        }
        let now = if fit[0] > 0.0 { error(fit) } else { f32::INFINITY };
        if now < least {
            (best, least) = (fit, now);
        }
    }
    best
}

/// Q4_K and Q5_K: numbers `0..=most` of eight sub-blocks; scales and minima are written.
fn with_minima(x: &[f32], most: f32, block: &mut [u8]) -> [[u8; 32]; 8] {
    let mut fits = [[0.0f32; 2]; 8];
    fits.iter_mut().zip(x.chunks_exact(32)).for_each(|(fit, x)| *fit = fitted(x, most));
    let [scale, lowest] = [0, 1].map(|i| fits.iter().fold(0.0f32, |m, fit| m.max(fit[i].abs())));
    let [d, to_scale] = put_scale(block, 0, scale / 63.0);
    let [e, to_least] = put_scale(block, 2, lowest / 63.0);
    let mut all = [[0; 32]; 8];
    for (i, (x, fit)) in x.chunks_exact(32).zip(fits).enumerate() {
        let code = |x: f32, factor: f32| (x.abs() * factor).round_ties_even().min(63.0) as u8;
        let (s, t) = (code(fit[0], to_scale), code(fit[1], to_least));
        let codes = &mut block[4..16];
        if i < 4 {
            codes[i] |= s;
            codes[i + 4] |= t;
        } else {
            codes[i + 4] |= s & 15 | t << 4;
            codes[i - 4] |= s >> 4 << 6;
            codes[i] |= t >> 4 << 6;
        }
        let (step, low) = (inverse(d * f32::from(s)), e * f32::from(t));
        all[i] = integers(x, most as u8, |x| ((x + low) * step).round_ties_even().max(0.0));
    }
    all
}

/// Writes numbers of 4 bits of eight sub-blocks, two of them in 32 bytes.
fn put_pairs(all: [[u8; 32]; 8], to: &mut [u8]) {
    for (i, q) in all.iter().enumerate() {
        let to = &mut to[32 * (i / 2)..][..32];
        to.iter_mut().zip(q).for_each(|(to, q)| *to |= (q & 15) << (4 * (i % 2)));
    }
}

/// The step of numbers `-32..32` that fits 16 elements, with the sign that makes the extreme -32.
fn step_of_sixteen(x: &[f32]) -> f32 {
    let most = extreme(x);
    if inverse(most) == 0.0 {
        return 0.0;
    }
    let (mut best, mut gain) = (most / -32.0, 0.0f32);
    for k in -9..=9 {
        let factor = -(32.0 + 0.1 * k as f32) / most;
        let (mut with_x, mut with_q) = (0.0f32, 0.0f32);
        for &x in x {
            let q = (x * factor).round_ties_even().clamp(-32.0, 31.0);
            with_x += x * x * x * q;
            with_q += x * x * q * q;
        }
        // the weighted error falls by this, with the best step for these numbers
        if with_q > 0.0 && with_x * with_x > gain * with_q {
            (best, gain) = (with_x / with_q, with_x * with_x / with_q);
        }
    }
    best
}

fn q6_k(x: &[f32], block: &mut [u8]) {
    let mut steps = [0.0f32; 16];
    steps.iter_mut().zip(x.chunks_exact(16)).for_each(|(to, x)| *to = step_of_sixteen(x));
    let [d, factor] = put_scale(block, 208, extreme(&steps) / -128.0);
    for (i, (x, step)) in x.chunks_exact(16).zip(steps).enumerate() {
        let scale = (step * factor).round_ties_even().clamp(-128.0, 127.0) as i8;
        block[192 + i] = scale as u8;
        let inverse = inverse(d * f32::from(scale));
        for (l, &x) in x.iter().enumerate() {
            let q = ((x * inverse).round_ties_even().clamp(-32.0, 31.0) + 32.0) as u8;
            let (n, j, l) = (i / 8, i / 2 % 4, 16 * (i % 2) + l); // half, group, place
            block[64 * n + 32 * (j % 2) + l] |= (q & 15) << (4 * (j / 2));
            block[128 + 32 * n + l] |= q >> 4 << (2 * j);
        }
    }
}

fn q8_0(x: &[f32], block: &mut [u8]) {
    let d = extreme(x).abs() / 127.0;
    let inverse = inverse(d);
    put(block, 0, d);
    let q = |x: &f32| (x * inverse).round() as i8 as u8;
    block[2..].iter_mut().zip(x).for_each(|(to, x)| *to = q(x));
}

fn q5_k(x: &[f32], block: &mut [u8]) {
    let q = with_minima(x, 31.0, block);
    let [high, low] = Q5K_BITS;
    put_pairs(q, &mut block[low..]);
    for (i, q) in q.iter().enumerate() {
        block[high..low].iter_mut().zip(q).for_each(|(to, q)| *to |= q >> 4 << i);
    }
}

/// Writes the numbers of a block to zeros.
type Writer = fn(&[f32], &mut [u8]);

impl QuantType {
    /// Whether [`QuantType::encode`] writes it.
    pub const fn is_written(self) -> bool {
        self.writer().is_some()
    }

    /// The function that writes a block of zeros; `None` for a type that is only read.
    const fn writer(self) -> Option<Writer> {
        use QuantType::*;
        Some(match self {
            Q8_0 => q8_0,
            Q4_0 => |x, block| put_nibbles(centred(x, 8, block), &mut block[2..]),
            Q5_0 => |x, block| put_five_bits(centred(x, 16, block), &mut block[2..]),
            Q4_1 => |x, block| put_nibbles(from_lowest(x, 15, block), &mut block[4..]),
            Q5_1 => |x, block| put_five_bits(from_lowest(x, 31, block), &mut block[4..]),
            Q4K => |x, block| put_pairs(with_minima(x, 15.0, block), &mut block[Q4K_BITS..]),
            Q5K => q5_k,
            Q6K => q6_k,
            Iq4Nl | Mxfp4 => return None,
        })
    }

    /// Writes whole blocks of `x` to `blocks`, as many as both have.
    ///
    /// # Errors
    /// If the type is only read, a number is not finite (the error has its position), or a scale is
    /// too large for 16 bits.
    pub fn encode(self, x: &[f32], blocks: &mut [u8]) -> Result<()> {
        let Some(write) = self.writer() else {
            let others = QuantType::ALL.into_iter().filter(|kind| kind.is_written());
            let names = others.map(QuantType::name).collect::<Vec<_>>().join(", ");
            return Err(Error::unsupported(format!("{self:?} is read, not written"))
                .help(format!("types that are written: {names}")));
        };
        if let Some(i) = x.iter().position(|x| !x.is_finite()) {
            return Err(Error::value(format!("cannot quantise element {i}: it is {}", x[i]))
                .help("weights are finite: see where training went wrong"));
        }
        let elements = self.block_elements();
        for (k, (x, block)) in
            x.chunks_exact(elements).zip(blocks.chunks_exact_mut(self.block_bytes())).enumerate()
        {
            block.fill(0);
            write(x, block);
            if !self.has_finite_scales(block) {
                return Err(Error::value(format!(
                    "cannot quantise elements {} to {}: magnitude {} overflows a 16-bit scale",
                    k * elements,
                    (k + 1) * elements - 1,
                    extreme(x)
                ))
                .help("divide the weights by a number, and multiply the result by it"));
            }
        }
        Ok(())
    }
}
