//! A node's value over a tile, and numbers as bytes.

use crate::simd::{F32s, Lanes, Level, Work};
use crate::typed::slice_mut;
use teeny_core::{DType, Element, Scalar};

/// A node's value over one tile.
#[derive(Clone, Copy)]
pub(crate) enum Value {
    /// Elements of the type that the node is computed in.
    Slice(*const u8),
    /// A block at a time.
    Block(*mut u8),
    /// Rows as they are stored, and the distance from one to the next.
    Rows(*const u8, isize, DType),
    /// One number for each row, and the distance from one to the next.
    Column(*const u8, isize, DType),
    /// One element's bytes, everywhere.
    Splat([u8; 8]),
}

/// The bytes of `scalar` in the compute dtype of `dtype`.
pub(crate) fn scalar_bytes(scalar: Scalar, dtype: DType) -> [u8; 8] {
    let mut bytes = [0; 8];
    let mut put = |b: &[u8]| bytes[..b.len()].copy_from_slice(b);
    match dtype {
        DType::Bool => put(&[u8::from(scalar.to_bool())]),
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => match scalar.cast(dtype) {
            Scalar::UInt(v) => put(&v.to_le_bytes()),
            s @ (Scalar::Bool(_) | Scalar::Int(_) | Scalar::Float(_)) => {
                put(&s.to_u64_wrapping().to_le_bytes())
            }
        },
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => {
            put(&scalar.cast(dtype).to_i64_wrapping().to_le_bytes())
        }
        DType::F16 | DType::BF16 | DType::F32 => put(&f32::from_scalar(scalar).to_ne_bytes()),
        DType::F64 => put(&scalar.to_f64().to_ne_bytes()),
    }
    bytes
}

/// Fills `out` with `len` copies of an element of `size` bytes.
///
/// # Safety
/// `out` has `len` elements, aligned.
#[inline]
pub(crate) unsafe fn fill(level: Level, bytes: [u8; 8], size: usize, out: *mut u8, len: usize) {
    // The element times 1 + 2^16 + .. in a register: bytes written one by one would be read late.
    let mask = u64::MAX >> (64 - 8 * size);
    let word = (u64::from_le_bytes(bytes) & mask) * (u64::MAX / mask);
    // SAFETY: by contract.
    level.run(Fill { word, out: unsafe { slice_mut(out, len * size) } });
}

/// Eight bytes over and over.
struct Fill<'a> {
    word: u64,
    out: &'a mut [u8],
}

impl Work for Fill<'_> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let x = V::F64s::splat(f64::from_bits(self.word));
        let mut vectors = self.out.chunks_exact_mut(8 * V::F64s::LANES);
        for vector in &mut vectors {
            // SAFETY: the bytes of a vector.
            unsafe { x.store(vector.as_mut_ptr().cast()) };
        }
        let bytes = self.word.to_le_bytes();
        for (i, byte) in vectors.into_remainder().iter_mut().enumerate() {
            *byte = bytes[i % 8];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_of_every_size_are_repeated_to_the_end_and_not_beyond() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8];
        for level in Level::available() {
            for size in [1, 2, 4, 8] {
                for len in 0..80 {
                    let mut memory = [0u64; 82];
                    // SAFETY: the memory has more than 80 elements, aligned.
                    unsafe { fill(level, bytes, size, memory.as_mut_ptr().cast(), len) };
                    let got: Vec<u8> = memory.iter().flat_map(|word| word.to_ne_bytes()).collect();
                    let end = size * len;
                    assert!(got[..end].chunks(size).all(|x| *x == bytes[..size]), "{size} {len}");
                    assert!(got[end..].iter().all(|&x| x == 0), "{size} {len}");
                }
            }
        }
    }
}
