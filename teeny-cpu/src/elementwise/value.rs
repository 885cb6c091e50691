//! A node's value over a tile, and numbers as bytes.

use crate::typed::slice_mut;
use teeny_core::{DType, Scalar};

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
        DType::F16 | DType::BF16 | DType::F32 => put(&(scalar.to_f64() as f32).to_ne_bytes()),
        DType::F64 => put(&scalar.to_f64().to_ne_bytes()),
    }
    bytes
}

/// Fills `out` with `len` copies of an element of `size` bytes.
///
/// # Safety
/// `out` has `len` elements, aligned.
pub(crate) unsafe fn fill(bytes: [u8; 8], size: usize, out: *mut u8, len: usize) {
    let word = u64::from_ne_bytes(bytes);
    // SAFETY: by contract.
    unsafe {
        match size {
            1 => slice_mut::<u8>(out, len).fill(bytes[0]),
            2 => slice_mut::<u16>(out, len).fill(u16::from_ne_bytes([bytes[0], bytes[1]])),
            4 => slice_mut::<u32>(out, len)
                .fill(u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])),
            _ => slice_mut::<u64>(out, len).fill(word),
        }
    }
}
