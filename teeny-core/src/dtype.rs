//! The thirteen element types and PyTorch's promotion rules.
//!
//! Independent of tensors. [`crate::scalar`] holds single values of these types, [`crate::element`]
//! maps them to Rust's own.

use crate::options::named;
use std::fmt;

named! {
    /// The type of a tensor's elements.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum DType {
        /// `false` or `true`, one byte each.
        Bool = "bool",
        /// Unsigned 8-bit integer.
        U8 = "u8",
        /// Unsigned 16-bit integer.
        U16 = "u16",
        /// Unsigned 32-bit integer.
        U32 = "u32",
        /// Unsigned 64-bit integer.
        U64 = "u64",
        /// Signed 8-bit integer.
        I8 = "i8",
        /// Signed 16-bit integer.
        I16 = "i16",
        /// Signed 32-bit integer.
        I32 = "i32",
        /// Signed 64-bit integer.
        I64 = "i64",
        /// IEEE 754 half precision: storage only, computed in f32.
        F16 = "f16",
        /// bfloat16, the upper half of an f32: storage only, computed in f32.
        BF16 = "bf16",
        /// IEEE 754 single precision.
        F32 = "f32",
        /// IEEE 754 double precision.
        F64 = "f64",
    }
}

use DType::*;

impl DType {
    /// Bytes per element.
    pub const fn size(self) -> usize {
        match self {
            Bool | U8 | I8 => 1,
            U16 | I16 | F16 | BF16 => 2,
            U32 | I32 | F32 => 4,
            U64 | I64 | F64 => 8,
        }
    }

    /// The name as Rust code writes it, for help lines.
    pub(crate) fn variant(self) -> String {
        if self == Bool { "Bool".into() } else { self.name().to_uppercase() }
    }

    /// True for `F16`, `BF16`, `F32` and `F64`.
    pub const fn is_float(self) -> bool {
        matches!(self, F16 | BF16 | F32 | F64)
    }

    /// True for the two 16-bit floats, which are stored but never computed in.
    pub const fn is_half(self) -> bool {
        matches!(self, F16 | BF16)
    }

    /// True for signed and unsigned integers; `Bool` is not one.
    pub const fn is_int(self) -> bool {
        matches!(self, U8 | U16 | U32 | U64 | I8 | I16 | I32 | I64)
    }

    /// True for `I8` to `I64`.
    pub const fn is_signed_int(self) -> bool {
        matches!(self, I8 | I16 | I32 | I64)
    }

    /// True for `U8` to `U64`.
    pub const fn is_unsigned_int(self) -> bool {
        matches!(self, U8 | U16 | U32 | U64)
    }

    /// The type in which a device computes values of this type: `F32` for the 16-bit floats, the
    /// type itself otherwise.
    pub const fn compute(self) -> DType {
        match self {
            F16 | BF16 => F32,
            Bool | U8 | U16 | U32 | U64 | I8 | I16 | I32 | I64 | F32 | F64 => self,
        }
    }

    /// The type of `self op other` for two tensors, as in PyTorch.
    ///
    /// Floats win over integers, integers over bool; two different 16-bit floats promote to `F32`;
    /// `U8` and a signed integer to the smallest signed type that holds both. Where PyTorch returns
    /// an error (`U16`, `U32` or `U64` with a signed integer, or with each other), teeny uses the
    /// smallest type that holds both, and `F32` if no type does (`U64` with a signed integer).
    pub fn promote(self, other: DType) -> DType {
        if self == other {
            return self;
        }
        let (low, high) =
            if self.category() <= other.category() { (self, other) } else { (other, self) };
        if low.category() != high.category() {
            return high;
        }
        match (low, high) {
            (F64, _) | (_, F64) => F64,
            (F16 | BF16 | F32, F16 | BF16 | F32) => F32,
            (a, b) if a.is_unsigned_int() == b.is_unsigned_int() => {
                if a.size() >= b.size() {
                    a
                } else {
                    b
                }
            }
            (a, b) => {
                let (unsigned, signed) = if a.is_unsigned_int() { (a, b) } else { (b, a) };
                let bytes = signed.size().max(unsigned.size() * 2);
                match bytes {
                    2 => I16,
                    4 => I32,
                    8 => I64,
                    _ => F32,
                }
            }
        }
    }

    /// The type of `self op scalar` for a tensor of this type and a Rust number: the tensor's type,
    /// unless the scalar is of a higher kind (a float with an integer tensor gives `F32`, an
    /// integer with a bool tensor gives `I64`), as in PyTorch.
    pub fn promote_scalar(self, scalar: DType) -> DType {
        if scalar.category() <= self.category() {
            return self;
        }
        match scalar.category() {
            0 => Bool,
            1 => I64,
            _ => F32,
        }
    }

    /// The type of true division, `sqrt`, `exp` … of this type: itself for floats, `F32` otherwise,
    /// as in PyTorch.
    pub fn to_float(self) -> DType {
        if self.is_float() { self } else { F32 }
    }

    /// The type of `sum` and `prod` of this type: `I64` for bool and integers except `U64`, itself
    /// for floats and `U64`.
    pub fn sum_type(self) -> DType {
        match self {
            Bool | U8 | U16 | U32 | I8 | I16 | I32 | I64 => I64,
            U64 => U64,
            F16 | BF16 | F32 | F64 => self,
        }
    }

    fn category(self) -> u8 {
        match self {
            Bool => 0,
            U8 | U16 | U32 | U64 | I8 | I16 | I32 | I64 => 1,
            F16 | BF16 | F32 | F64 => 2,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Debug for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
