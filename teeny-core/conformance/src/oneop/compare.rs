//! When a result agrees with the oracle's.

use crate::tolerance::{format, unit};
use teeny_core::{DType, Scalar};

/// How far a float may be from the expected one. Integers and bools must be equal; NaN must meet
/// NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tolerance {
    /// The same bits.
    Bits,
    /// Equal, zeros of either sign.
    Equal,
    /// Within this number of units in the last place of the compute type, of the result or of a
    /// floor if that is larger; for 16-bit floats one rounding more.
    Ulps(f64, f64),
    /// Within this number of unit roundoffs of the compute type, times a scale that the case
    /// computes: the sum of the magnitudes of the terms, for instance.
    Scaled(f64),
}

/// Permitted deviations of a device.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Subnormal numbers may be read or written as zeros.
    pub flushes_subnormals: bool,
    /// The sign of a zero may be lost.
    pub loses_zero_signs: bool,
    /// Zeros beyond the edge of an image are multiplied where the oracle leaves them out: a weight
    /// that is infinite or NaN makes NaN of them.
    pub multiplies_padding: bool,
    /// Results of 16-bit floats may be rounded after each step, as the definitions in primitives
    /// do.
    pub rounds_each_step: bool,
    /// Programs of several operations may be simplified by real arithmetic: the product of a known
    /// zero is zero, so that a NaN may be missing.
    pub simplifies_programs: bool,
    /// Tolerances are multiplied by this.
    pub factor: f64,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            flushes_subnormals: false,
            loses_zero_signs: false,
            multiplies_padding: false,
            rounds_each_step: false,
            simplifies_programs: false,
            factor: 1.0,
        }
    }
}

/// The unit roundoff of `dtype` as a multiple of the unit roundoff of its compute dtype.
pub fn coarseness(dtype: DType) -> f64 {
    2f64.powi(format(dtype.compute()).0 - format(dtype).0)
}

impl Tolerance {
    /// Whether the float `got` of type `dtype` may stand for `want`.
    pub fn float(
        self,
        want: f64,
        got: f64,
        dtype: DType,
        scale: Option<f64>,
        rules: Rules,
    ) -> bool {
        if want.is_nan() || got.is_nan() {
            return want.is_nan() && got.is_nan() || overflows(scale, dtype);
        }
        if want == got {
            let signed = self == Tolerance::Bits && want == 0.0 && !rules.loses_zero_signs;
            return !signed || want.is_sign_negative() == got.is_sign_negative();
        }
        if rules.loses_zero_signs && want.is_infinite() && got.is_infinite() {
            return true; // 1 / -0 or 1 / 0
        }
        let (_, lowest) = format(dtype);
        if rules.flushes_subnormals && want.abs().max(got.abs()) <= 2f64.powi(lowest) {
            return true;
        }
        let computed = dtype.compute();
        let rounding = if dtype == computed { 0.0 } else { unit(want, dtype) };
        let allowed = match self {
            Tolerance::Bits | Tolerance::Equal => return false,
            Tolerance::Ulps(ulps, floor) => {
                ulps * rules.factor * unit(want.abs().max(floor), computed) + rounding
            }
            Tolerance::Scaled(factor) => {
                let scale = scale.filter(|s| s.is_finite()).unwrap_or(0.0).max(want.abs());
                let scale = if scale.is_finite() { scale } else { 0.0 };
                let roundoff = 2f64.powi(-1 - format(computed).0);
                let steps = if rules.rounds_each_step { coarseness(dtype) } else { 1.0 };
                factor * steps * rules.factor * (scale * roundoff + unit(0.0, computed))
                    + unit(want, dtype)
            }
        };
        // A number next to the largest may be rounded to an infinity, or a partial result may have
        // been.
        if want.is_infinite() || got.is_infinite() {
            let finite = if want.is_infinite() { got } else { want };
            let infinite = if want.is_infinite() { want } else { got };
            let near = finite.signum() == infinite.signum()
                && finite.abs() + allowed + unit(largest(dtype), dtype) >= largest(dtype);
            return near && finite.is_finite() || overflows(scale, dtype);
        }
        (want - got).abs() <= allowed
    }

    /// Whether `got` may stand for `want`; `want` may be of a wider float type than `dtype`.
    pub fn agrees(
        self,
        want: Scalar,
        got: Scalar,
        dtype: DType,
        scale: Option<f64>,
        rules: Rules,
    ) -> bool {
        match (want, got) {
            (Scalar::Float(want), Scalar::Float(got)) => {
                // A wider oracle's result is rounded first, as storing it would.
                let rounded = Scalar::Float(want).cast(dtype).to_f64();
                let want = if rounded.is_infinite() { rounded } else { want };
                self.float(want, got, dtype, scale, rules)
            }
            _ => want == got,
        }
    }
}

/// The largest finite number of a float type.
fn largest(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 65504.0,
        DType::BF16 => 3.3895313892515355e38,
        DType::F32 => f32::MAX as f64,
        _ => f64::MAX,
    }
}

/// True if terms of this size may overflow on the way to a result that does not.
fn overflows(scale: Option<f64>, dtype: DType) -> bool {
    scale.is_some_and(|s| s.is_finite() && s >= largest(dtype.compute()) / 4.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Neighbouring numbers are one unit apart down to the smallest, also where the unit itself is
    /// subnormal.
    #[test]
    fn one_unit_is_the_distance_of_neighbours_at_every_exponent() {
        for exponent in -1074..=1023 {
            let low = if exponent < -1022 {
                f64::from_bits(1 << (exponent + 1074))
            } else {
                f64::from_bits(((exponent + 1023) as u64) << 52)
            };
            let high = f64::from_bits(low.to_bits() + 1);
            let agrees = |ulps| {
                let tolerance = Tolerance::Ulps(ulps, 0.0);
                tolerance.float(low, high, DType::F64, None, Rules::default())
            };
            assert!(agrees(1.0) && !agrees(0.4), "{low:e}");
        }
    }
}
