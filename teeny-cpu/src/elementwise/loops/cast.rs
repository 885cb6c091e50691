//! Conversions between compute dtypes, and between the 16-bit floats and f32. The naive form is
//! `y[i] = x[i] as T`, vectorised by the compiler; the rules are those of `Scalar::cast`.

use super::int::each;
use crate::typed::{slice, slice_mut, with_bits, with_compute, with_int, with_wrapping};
use half::slice::HalfFloatSliceExt;
use teeny_core::{DType, Scalar, bf16, f16};

/// Converts `n` values from the compute dtype of `from` to that of `to`, with the rounding that a
/// stored value of either dtype has.
///
/// # Safety
/// `x` and `y` have `n` values and do not overlap.
pub(crate) unsafe fn cast(from: DType, to: DType, x: *const u8, y: *mut u8, n: usize) {
    // SAFETY: by contract.
    unsafe {
        if from.is_half() && from != to {
            // The value is an f32 that was not rounded yet.
            let mut rounded = [0.0f32; PIECE];
            for (i, x) in slice::<f32>(x, n).chunks(PIECE).enumerate() {
                rounded
                    .iter_mut()
                    .zip(x)
                    .for_each(|(to, &x)| *to = round_to(from, f64::from(x)) as f32);
                plain(
                    DType::F32,
                    to,
                    rounded.as_ptr().cast(),
                    y.add(i * PIECE * to.compute().size()),
                    x.len(),
                );
            }
            return;
        }
        plain(from, to, x, y, n);
    }
}

#[allow(clippy::unnecessary_cast)]
unsafe fn plain(from: DType, to: DType, x: *const u8, y: *mut u8, n: usize) {
    // SAFETY: by contract of `cast`.
    unsafe {
        match (to, from) {
            (DType::Bool, _) => {
                with_wrapping!(from, S => each(slice::<S>(x, n), slice_mut(y, n), |x| u8::from(x != 0 as S)))
            }
            (DType::F16 | DType::BF16, _) => {
                let mut exact = [0.0f64; PIECE];
                for (i, y) in slice_mut::<f32>(y, n).chunks_mut(PIECE).enumerate() {
                    plain(
                        from,
                        DType::F64,
                        x.add(i * PIECE * from.compute().size()),
                        exact.as_mut_ptr().cast(),
                        y.len(),
                    );
                    each(&exact[..y.len()], y, |x| round_to(to, x) as f32);
                }
            }
            // Through f64, as core defines it; only 64-bit integers are rounded there.
            (DType::F32, DType::U64 | DType::I64) => {
                with_int!(from, S => each(slice::<S>(x, n), slice_mut(y, n), |x| x as f64 as f32))
            }
            (DType::F32, _) => {
                with_compute!(from, S => each(slice::<S>(x, n), slice_mut(y, n), |x| x as f32))
            }
            (DType::F64, _) => {
                with_compute!(from, S => each(slice::<S>(x, n), slice_mut(y, n), |x| x as f64))
            }
            // Integers keep their low bits, signed or not; floats saturate at the limits.
            (_, DType::F16 | DType::BF16 | DType::F32) => {
                with_int!(to, T => each(slice::<f32>(x, n), slice_mut(y, n), |x| x as T))
            }
            (_, DType::F64) => {
                with_int!(to, T => each(slice::<f64>(x, n), slice_mut(y, n), |x| x as T))
            }
            _ => {
                with_int!(from, S => with_bits!(to, T => each(slice::<S>(x, n), slice_mut(y, n), |x| x as T)))
            }
        }
    }
}

/// Elements that are rounded at a time.
const PIECE: usize = 512;

/// The nearest value of a 16-bit float type, as core rounds it (`half` itself reads only the upper
/// 32 bits of `x`).
pub(crate) fn round_to(half: DType, x: f64) -> f64 {
    Scalar::Float(x).cast(half).to_f64()
}

/// Converts `n` stored 16-bit floats to f32.
///
/// # Safety
/// As `cast`.
pub(crate) unsafe fn to_f32(half: DType, x: *const u8, y: *mut u8, n: usize) {
    // SAFETY: by contract.
    unsafe {
        let y = slice_mut::<f32>(y, n);
        if half == DType::F16 {
            slice::<f16>(x, n).convert_to_f32_slice(y);
        } else {
            each(slice::<u16>(x, n), y, |x| f32::from_bits(u32::from(x) << 16));
        }
    }
}

/// Rounds `n` f32 to stored 16-bit floats.
///
/// # Safety
/// As `cast`.
pub(crate) unsafe fn from_f32(half: DType, x: *const u8, y: *mut u8, n: usize) {
    // SAFETY: by contract.
    unsafe {
        let x = slice::<f32>(x, n);
        if half == DType::F16 {
            slice_mut::<f16>(y, n).convert_from_f32_slice(x);
        } else {
            each(x, slice_mut::<bf16>(y, n), bf16::from_f32);
        }
    }
}
