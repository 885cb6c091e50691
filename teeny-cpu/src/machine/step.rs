//! A loop over each block of a group of nodes, and the memory that it reads and writes, as data.
//!
//! Independent of the bodies of loops. `interpreter` makes steps, `blocks` and `half_pairs` run
//! them.

use crate::loops::Loop;
use crate::simd::loops::Real;
use teeny_core::DType;

/// How elements are stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Format {
    /// In the type that the group computes.
    Own,
    /// In 16 bits, in a group of f32.
    Bf16,
    F16,
}

impl Format {
    /// The format in which elements of `dtype` are stored.
    pub(crate) fn of(dtype: DType) -> Format {
        match dtype {
            DType::BF16 => Format::Bf16,
            DType::F16 => Format::F16,
            _ => Format::Own,
        }
    }

    /// The type of 16 bits.
    pub(super) fn half(self) -> Option<DType> {
        match self {
            Format::Own => None,
            Format::Bf16 => Some(DType::BF16),
            Format::F16 => Some(DType::F16),
        }
    }
}

/// The memory of an operand or of a result.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// Rows: the first element of the first, and the distance from a row to the next, in elements.
    Rows(*mut u8, isize, Format),
    /// One number for each row: the first, and the distance to the next, in elements.
    Column(*const u8, isize, Format),
    /// A block, which the next block of the same node overwrites.
    Block(*mut u8),
    /// The same number everywhere, in its first bytes. Never a result.
    Splat([u8; 8]),
}

/// Whether both are the same memory.
impl PartialEq for Place {
    fn eq(&self, other: &Place) -> bool {
        match (*self, *other) {
            (Place::Rows(p, ..), Place::Rows(q, ..)) | (Place::Block(p), Place::Block(q)) => p == q,
            _ => false,
        }
    }
}

/// One loop over each block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub body: Loop,
    /// Whether values are f64; otherwise f32.
    pub wide: bool,
    /// The operands; entries beyond their number mean nothing.
    pub from: [Place; 4],
    pub to: Place,
    /// Whether the result bypasses the caches.
    pub stream: bool,
}

/// Rows in memory that are prefetched: the first, the row stride in bytes, and the bytes of an
/// element.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Stream {
    pub first: *const u8,
    pub stride: isize,
    pub size: usize,
}

impl Step {
    /// The same step, a power with a frequent exponent by its own loop.
    pub(crate) fn simplified(mut self) -> Step {
        if let (Loop::Pow, Place::Splat(bytes)) = (self.body, self.from[1]) {
            let exponent =
                if self.wide { f64::from_bytes(bytes) } else { f64::from(f32::from_bytes(bytes)) };
            if !matches!(self.from[0], Place::Splat(_))
                && let Some(body) = Loop::of_power(exponent)
            {
                self.body = body;
            }
        }
        self
    }
}
