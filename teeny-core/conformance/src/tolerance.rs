//! When the results of two devices agree: exactly for integers, bools and operations that IEEE 754
//! fixes, to some units in the last place elsewhere.

use teeny_core::{DType, Error, Result, Scalar, Tensor};

/// How far a float may be from the oracle's. Integers and bools must always be equal.
#[derive(Clone, Copy, Debug)]
pub struct Tolerance {
    ulps: f64,
    floor: f64,
    zero_signs: bool,
}

/// Equal, the sign of zeros included.
pub const BITS: Tolerance = Tolerance { ulps: 0.0, floor: 0.0, zero_signs: true };
/// Equal, zeros of either sign.
pub const EQUAL: Tolerance = Tolerance { ulps: 0.0, floor: 0.0, zero_signs: false };

/// Within `ulps` units in the last place of the result.
pub const fn ulps(ulps: f64) -> Tolerance {
    Tolerance { ulps, floor: 0.0, zero_signs: false }
}

/// Within `ulps` units in the last place of the result, or of `floor` if that is larger: where
/// terms of size `floor` may cancel.
pub const fn near(ulps: f64, floor: f64) -> Tolerance {
    Tolerance { ulps, floor, zero_signs: false }
}

/// [`near`] for operations of several steps whose 16-bit results the definition rounds after each
/// step and a faster device only once, or the other way round: `ulps` are places of the type
/// itself.
pub fn stepwise(dtype: DType, ulps: f64, floor: f64) -> Tolerance {
    match dtype {
        DType::F16 => near(ulps * 8192.0, floor),
        DType::BF16 => near(ulps * 65536.0, floor),
        _ => near(ulps, floor),
    }
}

impl Tolerance {
    /// Units in the last place of the result; 0 where it must be equal.
    pub(super) fn in_ulps(self) -> f64 {
        self.ulps
    }

    /// How far a result may be from `expected`: places of the type that is computed in, and for
    /// 16-bit floats one more for the rounding at the end.
    fn allowed(self, expected: f64, dtype: DType) -> f64 {
        if self.ulps == 0.0 {
            return 0.0;
        }
        let computed = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
        let rounded = if dtype.is_half() { unit(expected, dtype) } else { 0.0 };
        self.ulps * unit(expected.abs().max(self.floor), computed) + rounded
    }
}

/// Digits after the point of a float type, and the exponent of its smallest normal number.
pub(super) fn format(dtype: DType) -> (i32, i32) {
    match dtype {
        DType::F16 => (10, -14),
        DType::BF16 => (7, -126),
        DType::F32 => (23, -126),
        _ => (52, -1022),
    }
}

/// The distance between neighbouring numbers of `dtype` around `value`.
pub(super) fn unit(value: f64, dtype: DType) -> f64 {
    let (digits, lowest) = format(dtype);
    let exponent = ((value.to_bits() >> 52) & 0x7ff) as i32 - 1023;
    // In two factors: `powi` divides by the positive power, which may overflow.
    2f64.powi(exponent.max(lowest)) * 2f64.powi(-digits)
}

/// Permitted deviations of a device.
#[derive(Default)]
pub struct Leniency {
    pub factors: Vec<(String, DType, f64)>,
    pub flushes_subnormals: bool,
    pub loses_zero_signs: bool,
    pub trusts_indices: bool,
    pub multiplies_padding: bool,
    pub simplifies_programs: bool,
}

impl Leniency {
    /// How many times as much as usual the results of `op` on `dtype` may differ.
    pub fn factor(&self, op: &str, dtype: DType) -> f64 {
        let own = self.factors.iter().filter(|f| f.0 == op && f.1 == dtype);
        own.map(|f| f.2).fold(1.0, f64::max)
    }

    /// Compares all results of the operation `op` on `dtype`.
    ///
    /// # Errors
    /// The first disagreement, or what went wrong in downloading `got`.
    pub fn compare(
        &self,
        (op, dtype): (&str, DType),
        tolerance: Tolerance,
        expected: &[Tensor],
        got: &[Tensor],
    ) -> Result<()> {
        if expected.len() != got.len() {
            return Err(Error::internal(format!("{} results, not {}", got.len(), expected.len())));
        }
        let factor = self.factor(op, dtype);
        let tolerance = Tolerance {
            ulps: tolerance.ulps.max((factor > 1.0) as u8 as f64) * factor,
            ..tolerance
        };
        for (number, (want, have)) in expected.iter().zip(got).enumerate() {
            if (want.shape(), want.dtype()) != (have.shape(), have.dtype()) {
                return Err(Error::internal(format!(
                    "result {number} is {} {}, not {} {}",
                    have.dtype(),
                    have.shape(),
                    want.dtype(),
                    want.shape()
                )));
            }
            // Results must not depend on anything a view can hide: a device's storage may be larger
            // than its elements, never smaller.
            if have.storage().len() < have.numel() && have.strides().iter().all(|&s| s != 0) {
                return Err(Error::internal(format!(
                    "result {number} has {} elements in a storage of {}",
                    have.numel(),
                    have.storage().len()
                )));
            }
            let (want, have, dtype) = (want.to_scalars()?, have.to_scalars()?, have.dtype());
            for (i, (&w, &h)) in want.iter().zip(&have).enumerate() {
                if !self.agree(w, h, dtype, tolerance) {
                    return Err(Error::internal(format!(
                        "result {number}, element {i}: expected {w}, got {h}"
                    )));
                }
            }
        }
        Ok(())
    }

    fn agree(&self, expected: Scalar, got: Scalar, dtype: DType, tolerance: Tolerance) -> bool {
        let (Scalar::Float(e), Scalar::Float(g)) = (expected, got) else { return expected == got };
        if e.is_nan() || g.is_nan() {
            return e.is_nan() && g.is_nan();
        }
        if e == g {
            let signed = tolerance.zero_signs && !self.loses_zero_signs && e == 0.0;
            return !signed || e.is_sign_negative() == g.is_sign_negative();
        }
        let normal =
            if matches!(dtype, DType::F16) { 6.103515625e-5 } else { f32::MIN_POSITIVE as f64 };
        // A term that is flushed, times a factor of at most 128, is missing in a result that is not.
        let missing = (e - g).abs() <= 128.0 * f32::MIN_POSITIVE as f64;
        if self.flushes_subnormals && (e.abs() <= normal && g.abs() <= normal || missing) {
            return true;
        }
        e.is_finite() && g.is_finite() && (e - g).abs() <= tolerance.allowed(e, dtype)
    }
}
