//! [`ElementType`]: the type of the elements of a tensor in a file.

use std::fmt;
use teeny_core::{DType, QuantType};

/// The type of the elements of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementType {
    /// Elements of a dtype.
    Plain(DType),
    /// Blocks of quantised numbers.
    Quantized(QuantType),
}

/// Its name in GGUF.
impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ElementType::Plain(dtype) => f.pad(&dtype.to_string().to_uppercase()),
            ElementType::Quantized(kind) => f.pad(kind.name()),
        }
    }
}

impl From<DType> for ElementType {
    fn from(dtype: DType) -> ElementType {
        ElementType::Plain(dtype)
    }
}

impl From<QuantType> for ElementType {
    fn from(kind: QuantType) -> ElementType {
        ElementType::Quantized(kind)
    }
}
