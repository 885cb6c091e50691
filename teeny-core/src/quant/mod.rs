//! Quantised numbers: rows of a matrix as blocks of small integers with scales.
//!
//! ```text
//! mod      QuantType: the types, their sizes, the fields of a block
//! decode   blocks to f32              encode   f32 to blocks
//! pack     rows of a file ↔ groups of 16 rows, as devices keep them
//! ```
//!
//! A block has a scale d, sometimes a minimum m, and small integers q, of one row:
//!
//! ```text
//! Q8_0  w = d q                       Q4_0 Q5_0  w = d (q - 8), d (q - 16)
//! Q4_1 Q5_1  w = d q + m              IQ4_NL  w = d T[q]
//! Q4_K Q5_K  w = d s q - e t          MXFP4  w = 2^(e - 127) F[q]
//! Q6_K  w = d s (q - 32)              K types: 256 elements in sub-blocks with integers s and t
//! ```
//!
//! Functions of bytes, independent of tensors; [`crate::QuantTensor`] is a matrix of them. Source:
//! the layouts of <https://github.com/ggml-org/ggml>.

mod decode;
mod encode;
mod pack;

use crate::context::enter;
use crate::error::{Error, Result};
pub use decode::half_of_power;
pub use pack::{GROUP, Part, packed_parts};
use std::fmt;

/// The values of IQ4_NL's integers.
pub const IQ4_NL: [i8; 16] =
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Twice the values of MXFP4's integers.
pub const MXFP4: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// An element type of quantised matrices, by its name in GGUF files.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum QuantType {
    /// `Q8_0`: 8.5 bits a weight.
    Q8_0,
    /// `Q4_0`: 4.5 bits.
    Q4_0,
    /// `Q4_1`: 5 bits, with a minimum.
    Q4_1,
    /// `Q5_0`: 5.5 bits.
    Q5_0,
    /// `Q5_1`: 6 bits, with a minimum.
    Q5_1,
    /// `IQ4_NL`: 4.5 bits, integers that select one of 16 values.
    Iq4Nl,
    /// `MXFP4`: 4.25 bits, floats of 4 bits with a power of two for each block.
    Mxfp4,
    /// `Q4_K`: 4.5 bits.
    Q4K,
    /// `Q5_K`: 5.5 bits.
    Q5K,
    /// `Q6_K`: 6.5625 bits.
    Q6K,
}

use QuantType::*;

/// A range of the bytes of a block: where it begins, its length, and the bytes that stay together
/// when rows are interleaved.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// The first byte.
    pub at: usize,
    /// The number of bytes, a multiple of `unit`.
    pub len: usize,
    /// The bytes that stay together.
    pub unit: usize,
}

const fn field(at: usize, len: usize, unit: usize) -> Field {
    Field { at, len, unit }
}

impl QuantType {
    /// Every type, in the order of the enum.
    pub const ALL: [QuantType; 10] = [Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Iq4Nl, Mxfp4, Q4K, Q5K, Q6K];

    /// The name and the number of the type in GGUF files.
    const fn gguf(self) -> (&'static str, u32) {
        match self {
            Q8_0 => ("Q8_0", 8),
            Q4_0 => ("Q4_0", 2),
            Q4_1 => ("Q4_1", 3),
            Q5_0 => ("Q5_0", 6),
            Q5_1 => ("Q5_1", 7),
            Iq4Nl => ("IQ4_NL", 20),
            Mxfp4 => ("MXFP4", 39),
            Q4K => ("Q4_K", 12),
            Q5K => ("Q5_K", 13),
            Q6K => ("Q6_K", 14),
        }
    }

    /// The name in GGUF files, such as `Q4_K`.
    pub const fn name(self) -> &'static str {
        self.gguf().0
    }

    /// The type with this name, in capitals or not.
    ///
    /// # Errors
    /// If the name is unknown; the error lists the names.
    #[track_caller]
    pub fn by_name(name: &str) -> Result<QuantType> {
        let _op = enter("QuantType::by_name");
        let found = QuantType::ALL.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(name));
        found.ok_or_else(|| {
            let names = QuantType::ALL.map(QuantType::name).join(", ");
            Error::value(format!("no quantised type {name:?}")).help(format!("one of {names}"))
        })
    }

    /// The number of the type in GGUF files.
    pub const fn gguf_id(self) -> u32 {
        self.gguf().1
    }

    /// The elements of a block; a row has a multiple of them.
    pub const fn block_elements(self) -> usize {
        match self {
            Q8_0 | Q4_0 | Q4_1 | Q5_0 | Q5_1 | Iq4Nl | Mxfp4 => 32,
            Q4K | Q5K | Q6K => 256,
        }
    }

    /// The bytes of a block.
    pub const fn block_bytes(self) -> usize {
        let fields = self.fields();
        let last = fields[fields.len() - 1];
        last.at + last.len
    }

    /// The bytes of the largest block.
    pub const MAX_BLOCK_BYTES: usize = 210;

    /// Whether a block has minima beside its scales.
    pub const fn has_minimum(self) -> bool {
        match self {
            Q4_1 | Q5_1 | Q4K | Q5K => true,
            Q8_0 | Q4_0 | Q5_0 | Iq4Nl | Mxfp4 | Q6K => false,
        }
    }

    /// The fields of a block, one after another.
    pub const fn fields(self) -> &'static [Field] {
        match self {
            Q8_0 => const { &[field(0, 2, 2), field(2, 32, 4)] }, // d, q
            Q4_0 | Iq4Nl => const { &[field(0, 2, 2), field(2, 16, 4)] }, // d, q
            Q4_1 => const { &[field(0, 2, 2), field(2, 2, 2), field(4, 16, 4)] }, // d, m, q
            // d, high bits, q
            Q5_0 => const { &[field(0, 2, 2), field(2, 4, 4), field(6, 16, 4)] },
            // d, m, high bits, q
            Q5_1 => const { &[field(0, 2, 2), field(2, 2, 2), field(4, 4, 4), field(8, 16, 4)] },
            Mxfp4 => const { &[field(0, 1, 1), field(1, 16, 4)] }, // exponent, q
            // d, e, s and t, q
            Q4K => const { &[field(0, 2, 2), field(2, 2, 2), field(4, 12, 4), field(16, 128, 4)] },
            // d, e, s and t, high bits, q
            Q5K => {
                const {
                    &[
                        field(0, 2, 2),
                        field(2, 2, 2),
                        field(4, 12, 4),
                        field(16, 32, 4),
                        field(48, 128, 4),
                    ]
                }
            }
            // low bits, high bits, s, d
            Q6K => {
                const { &[field(0, 128, 4), field(128, 64, 4), field(192, 16, 4), field(208, 2, 2)] }
            }
        }
    }

    /// The type for rows of `columns` elements: itself if they are whole blocks, for K types one of
    /// blocks of 32 elsewhere (`Q4_K` becomes `Q5_0`, `Q5_K` `Q5_1`, `Q6_K` `Q8_0`, as in
    /// llama.cpp), and none if they are not whole blocks of these either.
    pub fn fitting(self, columns: usize) -> Option<QuantType> {
        let smaller = match self {
            Q4K => Q5_0,
            Q5K => Q5_1,
            Q6K => Q8_0,
            other => other,
        };
        let fits = |kind: &QuantType| columns > 0 && columns.is_multiple_of(kind.block_elements());
        [self, smaller].into_iter().find(fits)
    }

    /// The bytes of a row of `columns` elements.
    ///
    /// # Errors
    /// If the row is not whole blocks, or its bytes overflow.
    pub fn row_bytes(self, columns: usize) -> Result<usize> {
        let elements = self.block_elements();
        if columns == 0 || !columns.is_multiple_of(elements) {
            let text = format!("rows of {columns} elements are not whole blocks of {self:?}");
            return Err(
                Error::shape(text).help(format!("the row length must be a multiple of {elements}"))
            );
        }
        (columns / elements).checked_mul(self.block_bytes()).ok_or_else(|| {
            Error::value(format!("the bytes of {columns} elements of {self:?} overflow"))
                .help("divide the matrix")
        })
    }
}

/// Its name in GGUF files.
impl fmt::Debug for QuantType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for QuantType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
