//! The Rust types that can be elements of a tensor, and the host-side conversions between them.

use crate::dtype::DType;
use crate::error::Result;
use crate::memory;
use crate::scalar::Scalar;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use half::{bf16, f16};
use std::borrow::Cow;

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that is stored in tensors: `bool`, the integers of 8 to 64 bits, `f16`, `bf16`,
/// `f32`, `f64`.
///
/// The trait is sealed: the thirteen types are the thirteen [`DType`]s.
pub trait Element:
    sealed::Sealed + Copy + PartialEq + PartialOrd + Default + std::fmt::Debug + Send + Sync + 'static
{
    /// The type as data.
    const DTYPE: DType;
    /// This value as a [`Scalar`], exactly.
    fn to_scalar(self) -> Scalar;
    /// The nearest value of this type, by the rules of [`Scalar::cast`].
    fn from_scalar(scalar: Scalar) -> Self;
    /// The little-endian bytes of `values`; on a little-endian machine the memory itself.
    fn to_bytes(values: &[Self]) -> Cow<'_, [u8]>;
    /// The values whose little-endian bytes are `bytes`; trailing bytes of an incomplete element
    /// are ignored. A bool is true if its byte is not 0.
    ///
    /// # Errors
    /// If the host has no memory for the values.
    fn from_bytes(bytes: &[u8]) -> Result<Vec<Self>>;
}

/// `v` with its lower 32 bits folded into the last bit above them: rounding to odd (Boldo &
/// Melquiond 2008), after which rounding to 16 bits, through f32 or through the upper word as
/// `half` does it, equals rounding `v` directly.
fn to_odd(v: f64) -> f64 {
    let bits = v.to_bits();
    let lost = bits & 0xffff_ffff;
    f64::from_bits((bits ^ lost) | u64::from(lost != 0) << 32)
}

/// `s` as f64. For an integer beyond 2^53, the last 12 bits become one sticky bit (round to odd),
/// so that the next rounding, to f32 or 16 bits, is the only one.
fn exact_or_odd(s: Scalar) -> f64 {
    const EXACT: u64 = 1 << 53;
    match s {
        Scalar::Int(v) if v.unsigned_abs() > EXACT => {
            (v & !0xfff | ((v & 0xfff) + 0xfff) >> 1 & 0x800) as f64
        }
        Scalar::UInt(v) if v > EXACT => (v & !0xfff | ((v & 0xfff) + 0xfff) >> 1 & 0x800) as f64,
        s => s.to_f64(),
    }
}

/// `$words` reinterprets a slice of `$t` as integers or floats `$word` of the same size, whose
/// bytes may be copied; `$values` is the inverse.
macro_rules! element {
    ($($t:ty as $word:ty, $dtype:ident, $to:expr, $from:expr, $words:expr, $values:expr;)*) => {$(
        impl sealed::Sealed for $t {}
        impl Element for $t {
            const DTYPE: DType = DType::$dtype;
            #[inline]
            fn to_scalar(self) -> Scalar { ($to)(self) }
            #[inline]
            fn from_scalar(scalar: Scalar) -> Self { ($from)(scalar) }
            fn to_bytes(values: &[Self]) -> Cow<'_, [u8]> {
                if cfg!(target_endian = "little") {
                    let words: fn(&[$t]) -> &[$word] = $words;
                    return Cow::Borrowed(bytemuck::cast_slice(words(values)));
                }
                Cow::Owned(values.iter().flat_map(|v| v.to_le_bytes()).collect())
            }
            fn from_bytes(bytes: &[u8]) -> Result<Vec<Self>> {
                const SIZE: usize = size_of::<$t>();
                let whole = bytes.len() / SIZE * SIZE;
                // An allocation is aligned for every type; a slice of one may not be.
                let words = bytemuck::try_cast_slice(&bytes[..whole]);
                if let (true, Ok(words)) = (cfg!(target_endian = "little"), words) {
                    let values: fn(&[$word]) -> &[$t] = $values;
                    let mut out = memory::reserved(words.len())?;
                    out.extend_from_slice(values(words));
                    return Ok(out);
                }
                let value = |c: &[u8]| <$t>::from_le_bytes(c.try_into().expect("a chunk of SIZE bytes"));
                memory::collected(bytes.chunks_exact(SIZE).map(value))
            }
        }
    )*};
}

macro_rules! number {
    ($($t:ty, $dtype:ident, $to:expr, $from:expr;)*) => {
        element! { $($t as $t, $dtype, $to, $from, |v| v, |v| v;)* }
    };
}

number! {
    u8, U8, |v| Scalar::UInt(v as u64), |s: Scalar| match s { Scalar::Float(v) => v as u8, s => s.to_u64_wrapping() as u8 };
    u16, U16, |v| Scalar::UInt(v as u64), |s: Scalar| match s { Scalar::Float(v) => v as u16, s => s.to_u64_wrapping() as u16 };
    u32, U32, |v| Scalar::UInt(v as u64), |s: Scalar| match s { Scalar::Float(v) => v as u32, s => s.to_u64_wrapping() as u32 };
    u64, U64, Scalar::UInt, |s: Scalar| s.to_u64_wrapping();
    i8, I8, |v| Scalar::Int(v as i64), |s: Scalar| match s { Scalar::Float(v) => v as i8, s => s.to_i64_wrapping() as i8 };
    i16, I16, |v| Scalar::Int(v as i64), |s: Scalar| match s { Scalar::Float(v) => v as i16, s => s.to_i64_wrapping() as i16 };
    i32, I32, |v| Scalar::Int(v as i64), |s: Scalar| match s { Scalar::Float(v) => v as i32, s => s.to_i64_wrapping() as i32 };
    i64, I64, Scalar::Int, |s: Scalar| s.to_i64_wrapping();
    f32, F32, |v| Scalar::Float(v as f64), |s: Scalar| exact_or_odd(s) as f32;
    f64, F64, Scalar::Float, |s: Scalar| s.to_f64();
}

element! {
    f16 as u16, F16, |v: f16| Scalar::Float(v.to_f64()), |s: Scalar| f16::from_f64(to_odd(exact_or_odd(s))), |v| v.reinterpret_cast(), |w| w.reinterpret_cast();
    bf16 as u16, BF16, |v: bf16| Scalar::Float(v.to_f64()), |s: Scalar| bf16::from_f64(to_odd(exact_or_odd(s))), |v| v.reinterpret_cast(), |w| w.reinterpret_cast();
}

impl sealed::Sealed for bool {}
impl Element for bool {
    const DTYPE: DType = DType::Bool;
    #[inline]
    fn to_scalar(self) -> Scalar {
        Scalar::Bool(self)
    }
    #[inline]
    fn from_scalar(scalar: Scalar) -> Self {
        scalar.to_bool()
    }
    fn to_bytes(values: &[Self]) -> Cow<'_, [u8]> {
        Cow::Borrowed(bytemuck::cast_slice(values))
    }
    fn from_bytes(bytes: &[u8]) -> Result<Vec<Self>> {
        memory::collected(bytes.iter().map(|&b| b != 0))
    }
}

impl Scalar {
    /// The value as `dtype` would hold it.
    ///
    /// To a float: rounded to nearest even, overflow to infinity. Float to integer: truncated
    /// toward zero, saturating at the ends of the target type, NaN gives 0 (C and PyTorch leave
    /// this undefined; Rust and WGSL agree on it). Integer to integer: low bits (two's complement).
    /// To bool: not zero.
    #[inline]
    pub fn cast(self, dtype: DType) -> Scalar {
        crate::with_element!(dtype, T => T::from_scalar(self).to_scalar())
    }

    /// True if `dtype` holds this number exactly: `U8` cannot hold -100, and `I8` cannot hold 300.
    pub fn fits(self, dtype: DType) -> bool {
        let whole = |s: Scalar| match s {
            Scalar::Float(_) => None,
            Scalar::UInt(v) => Some(v as i128),
            s => Some(s.to_i64_wrapping() as i128),
        };
        let there = self.cast(dtype);
        match (whole(self), whole(there)) {
            (Some(a), Some(b)) => a == b,
            // A float that rounds to an integer beyond f64's digits is compared as that integer.
            (Some(a), None) => there.to_f64().is_finite() && there.to_f64() as i128 == a,
            _ => there.to_f64() == self.to_f64(),
        }
    }
}

impl<T: Element> From<T> for Scalar {
    fn from(value: T) -> Scalar {
        value.to_scalar()
    }
}

/// How many elements are converted at a time.
const PIECE: usize = 1024;

/// The values whose little-endian bytes are `bytes`, of type `dtype`.
pub(crate) fn decode(bytes: &[u8], dtype: DType) -> Result<Vec<Scalar>> {
    fn of<T: Element>(bytes: &[u8]) -> Result<Vec<Scalar>> {
        let mut scalars = memory::reserved(bytes.len() / size_of::<T>())?;
        // Piece by piece, as a scalar takes up to sixteen times the bytes of an element anyway.
        for piece in bytes.chunks(PIECE * size_of::<T>()) {
            scalars.extend(T::from_bytes(piece)?.into_iter().map(T::to_scalar));
        }
        Ok(scalars)
    }
    crate::with_element!(dtype, T => of::<T>(bytes))
}

/// The little-endian bytes of `scalars` as elements of type `dtype`.
pub(crate) fn encode(scalars: &[Scalar], dtype: DType) -> Result<Vec<u8>> {
    fn of<T: Element>(scalars: &[Scalar]) -> Result<Vec<u8>> {
        let mut bytes = memory::reserved(scalars.len().saturating_mul(size_of::<T>()))?;
        let mut values = [T::default(); PIECE];
        for piece in scalars.chunks(PIECE) {
            for (value, &scalar) in values.iter_mut().zip(piece) {
                *value = T::from_scalar(scalar);
            }
            bytes.extend_from_slice(&T::to_bytes(&values[..piece.len()]));
        }
        Ok(bytes)
    }
    crate::with_element!(dtype, T => of::<T>(scalars))
}

/// Runs `$body` with the type alias `$t` standing for the Rust type of `$dtype`: the one place
/// where a [`DType`] becomes a type.
///
/// # Example
/// ```
/// use teeny_core::{DType, with_element};
/// let bytes = with_element!(DType::F16, T => size_of::<T>());
/// assert_eq!(bytes, 2);
/// ```
#[macro_export]
macro_rules! with_element {
    ($dtype:expr, $t:ident => $body:expr) => {
        $crate::with_element!(
            @match $dtype, $t, $body, Bool bool, U8 u8, U16 u16, U32 u32, U64 u64, I8 i8, I16 i16,
            I32 i32, I64 i64, F16 $crate::f16, BF16 $crate::bf16, F32 f32, F64 f64
        )
    };
    (@match $dtype:expr, $t:ident, $body:expr, $($name:ident $type:ty),*) => {
        match $dtype {
            $($crate::DType::$name => {
                type $t = $type;
                $body
            })*
        }
    };
}
