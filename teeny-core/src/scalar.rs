//! One value of any element type: the constants and parameters of kernels, the elements that
//! `to_scalars` returns. Conversions to and from Rust's types are in `element`.

use crate::dtype::DType;
use std::fmt;
use std::hash::{Hash, Hasher};

/// One number, without its width: the width belongs to the [`DType`] it is used as.
///
/// Equality and hashing are by kind and bits, so that NaN equals itself and `-0.0` differs from
/// `0.0`: kernels are compared by it.
#[derive(Clone, Copy, Debug)]
pub enum Scalar {
    /// A truth value.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    UInt(u64),
    /// A float of any width, exactly representable in f64.
    Float(f64),
}

impl Scalar {
    /// The type a bare Rust number of this kind would have in promotion: bool, `I64` or `F64`.
    pub fn kind(self) -> DType {
        match self {
            Scalar::Bool(_) => DType::Bool,
            Scalar::Int(_) | Scalar::UInt(_) => DType::I64,
            Scalar::Float(_) => DType::F64,
        }
    }

    /// The value as f64 (integers above 2^53 are rounded).
    pub fn to_f64(self) -> f64 {
        match self {
            Scalar::Bool(v) => v as u8 as f64,
            Scalar::Int(v) => v as f64,
            Scalar::UInt(v) => v as f64,
            Scalar::Float(v) => v,
        }
    }

    /// The value as i64: floats are truncated toward zero and saturate, NaN is 0; large unsigned
    /// values wrap.
    pub fn to_i64_wrapping(self) -> i64 {
        match self {
            Scalar::Bool(v) => v as i64,
            Scalar::Int(v) => v,
            Scalar::UInt(v) => v as i64,
            Scalar::Float(v) => v as i64,
        }
    }

    /// The value as u64: negative integers wrap; floats are truncated toward zero and saturate, NaN
    /// is 0.
    pub fn to_u64_wrapping(self) -> u64 {
        match self {
            Scalar::Bool(v) => v as u64,
            Scalar::Int(v) => v as u64,
            Scalar::UInt(v) => v,
            Scalar::Float(v) => v as u64,
        }
    }

    /// Any integer or bool, exactly.
    pub(crate) fn to_i128(self) -> i128 {
        match self {
            Scalar::UInt(v) => v.into(),
            other => other.to_i64_wrapping().into(),
        }
    }

    /// True unless the value is zero; NaN is true.
    pub fn to_bool(self) -> bool {
        match self {
            Scalar::Bool(v) => v,
            Scalar::Int(v) => v != 0,
            Scalar::UInt(v) => v != 0,
            Scalar::Float(v) => v != 0.0,
        }
    }

    /// True if the value equals the number `value`, for any kind.
    pub fn is(self, value: f64) -> bool {
        !matches!(self, Scalar::Bool(_)) && self.to_f64() == value
    }

    fn bits(self) -> (u8, u64) {
        match self {
            Scalar::Bool(v) => (0, v as u64),
            Scalar::Int(v) => (1, v as u64),
            Scalar::UInt(v) => (2, v),
            Scalar::Float(v) => (3, v.to_bits()),
        }
    }
}

impl PartialEq for Scalar {
    fn eq(&self, other: &Scalar) -> bool {
        self.bits() == other.bits()
    }
}
impl Eq for Scalar {}
impl Hash for Scalar {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.bits().hash(state);
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Bool(v) => write!(f, "{v}"),
            Scalar::Int(v) => write!(f, "{v}"),
            Scalar::UInt(v) => write!(f, "{v}"),
            Scalar::Float(v) => write!(f, "{v:?}"),
        }
    }
}

/// `usize` is not an element type, but sizes are natural scalars.
impl From<usize> for Scalar {
    fn from(value: usize) -> Scalar {
        Scalar::Int(value as i64)
    }
}

/// The smallest value of the type: the maximum of no elements.
pub fn lowest(dtype: DType) -> Scalar {
    match dtype {
        t if t.is_float() => Scalar::Float(f64::NEG_INFINITY),
        t if t.is_signed_int() => Scalar::Int(i64::MIN >> (64 - 8 * t.size())),
        _ => Scalar::UInt(0),
    }
}
