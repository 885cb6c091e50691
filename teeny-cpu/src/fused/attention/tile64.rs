//! The softmax of attention on tiles of f64: the loops of `tile` in a form that the compiler
//! vectorises at each level.

use super::softmax::{OnlineSoftmax, PAD, SoftmaxBackward};
use crate::simd::{F32s, Work};

/// Numbers that are computed at a time: rows are padded to whole groups.
const GROUP: usize = 8;
const _: () = assert!(PAD.is_multiple_of(GROUP));

/// `e^x` for x that is at most about 0, within 2 ulp; 0 for results that are subnormal. NaN gives
/// NaN.
///
/// `x = n ln 2 + r`, with ln 2 in two parts (Cody and Waite 1980), and the Taylor polynomial of
/// `e^r` for |r| <= 0.347, whose first term left out is 4e-18.
#[inline(always)]
fn exp(x: f64) -> f64 {
    const LOG2_E: f64 = std::f64::consts::LOG2_E;
    const LN2_HI: f64 = 6.931_471_803_691_238e-1; // 33 bits: n LN2_HI is exact
    const LN2_LO: f64 = 1.908_214_929_270_587_7e-10;
    const ROUND: f64 = 6_755_399_441_055_744.0; // 1.5 2^52: the last bits of a sum are its integer
    const TERMS: [f64; 12] = [
        1.0 / 479_001_600.0,
        1.0 / 39_916_800.0,
        1.0 / 3_628_800.0,
        1.0 / 362_880.0,
        1.0 / 40_320.0,
        1.0 / 5_040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
    ];
    let large = if x > 709.0 { 709.0 } else { x };
    let shifted = large * LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (large - n * LN2_HI) - n * LN2_LO;
    let mut p = 1.0 / 6_227_020_800.0;
    let mut i = 0;
    while i < TERMS.len() {
        p = p * r + TERMS[i];
        i += 1;
    }
    let p = p * r + 1.0;
    let y = f64::from_bits(p.to_bits().wrapping_add(shifted.to_bits() << 52));
    let y = if x < -708.0 { 0.0 } else { y };
    #[allow(clippy::eq_op)]
    if x == x { y } else { x }
}

/// `f` of each number of a row, in place, and their sums by lane.
#[inline(always)]
fn exponentials(row: &mut [f64], shift: f64) -> [f64; GROUP] {
    let mut sums = [0.0; GROUP];
    let mut at = 0;
    while at + GROUP <= row.len() {
        let group = &mut row[at..at + GROUP];
        let mut i = 0;
        while i < GROUP {
            group[i] = exp(group[i] - shift);
            sums[i] += group[i];
            i += 1;
        }
        at += GROUP;
    }
    sums
}

impl Work for OnlineSoftmax<'_, f64> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        for (r, max) in self.max.iter_mut().enumerate() {
            // SAFETY: the rows are writable, for whole groups.
            let (s, sum, acc) = unsafe {
                (
                    std::slice::from_raw_parts_mut(self.s.add(r * self.row), self.n),
                    std::slice::from_raw_parts_mut(self.sum.add(r * PAD), PAD),
                    std::slice::from_raw_parts_mut(self.acc.add(r * self.width), self.width),
                )
            };
            let mut lanes = [*max; GROUP];
            let mut at = 0;
            while at + GROUP <= s.len() {
                let group = &s[at..at + GROUP];
                let mut i = 0;
                while i < GROUP {
                    // A NaN does not reach the maximum, but it does reach the sum.
                    lanes[i] = if group[i] > lanes[i] { group[i] } else { lanes[i] };
                    i += 1;
                }
                at += GROUP;
            }
            let mut best = *max;
            let mut i = 0;
            while i < GROUP {
                best = if lanes[i] > best { lanes[i] } else { best };
                i += 1;
            }
            let shift = if best == f64::MIN { 0.0 } else { best };
            let alpha = (*max - shift).exp();
            *max = best;
            let sums = exponentials(s, shift);
            let mut i = 0;
            while i < GROUP {
                sum[i] = sum[i] * alpha + sums[i];
                i += 1;
            }
            if alpha != 1.0 {
                let mut i = 0;
                while i < acc.len() {
                    acc[i] *= alpha;
                    i += 1;
                }
            }
        }
    }
}

impl Work for SoftmaxBackward<'_, f64> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        for (r, &lse) in self.lse.iter().enumerate() {
            let shift = if lse == f64::NEG_INFINITY { 0.0 } else { lse };
            // SAFETY: the rows are writable, and those of `ds` are if there are inner products.
            unsafe {
                let s = std::slice::from_raw_parts_mut(self.s.add(r * self.row), self.n);
                exponentials(s, shift);
                if let Some(inner) = self.inner {
                    let ds = std::slice::from_raw_parts_mut(self.ds.add(r * self.row), self.n);
                    let (inner, mut i) = (inner[r], 0);
                    while i < ds.len() {
                        ds[i] = s[i] * (ds[i] - inner) * self.scale;
                        i += 1;
                    }
                }
            }
        }
    }
}

/// Multiplies a row by `scale`.
pub(super) struct Scale<'a> {
    pub row: &'a mut [f64],
    pub scale: f64,
}

impl Work for Scale<'_> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let mut i = 0;
        while i < self.row.len() {
            self.row[i] *= self.scale;
            i += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::exp;

    #[test]
    fn exponentials_are_within_two_ulp() {
        let mut x = -707.9;
        while x <= 1.0 {
            let want = f64::exp(x);
            assert!((exp(x) - want).abs() <= 2.0 * f64::EPSILON * want, "{x}: {} {want}", exp(x));
            x += 0.001_37;
        }
        assert_eq!([exp(0.0), exp(-1e9), exp(f64::MIN)], [1.0, 0.0, 0.0]);
        assert!(exp(f64::NAN).is_nan() && exp(f64::from_bits(0x7ff8_0000_0000_0fff)).is_nan());
    }
}
