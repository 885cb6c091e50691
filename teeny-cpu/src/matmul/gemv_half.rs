//! A vector times a matrix of 16-bit floats.
//!
//! The naive form converts the whole matrix to f32 and then takes `y[j] = Σ x[i] rows[j][i]`. Here
//! each row is converted a block at a time in L1, and the inner product of the block follows at
//! once. Decoding with a language model is this product and little else, and its time is that of
//! reading the matrix: converting all of it first would read and write five times as much.

use super::gemv::dot;
use super::select::MIN_PARALLEL_MULS;
use crate::elementwise::loops::cast::to_f32;
use crate::simd::{F32s, Work, for_pairs};
use crate::storage::{CpuStorage, Shared, View};
use crate::threads::for_each_range;
use crate::typed::slice;
use crate::{Cpu, copy};
use teeny_core::{DType, Result};

/// Elements converted at once: 2 KiB of f32, well inside L1 beside the vector.
const BLOCK: usize = 512;

/// `a (m, k) @ b (k, n)` of one 16-bit type in f32, if one of them is a vector and the other has
/// its k elements contiguous; leading axes of size 1.
pub(super) fn gemv_half(cpu: &Cpu, a: &View, b: &View) -> Result<Option<CpuStorage>> {
    let (&[ref lead @ .., m, k], &[.., n]) = (&a.shape[..], &b.shape[..]) else { return Ok(None) };
    let (row, column) = (lead.len(), lead.len() + 1);
    let (vector, matrix, inner, outer, count) = match (m, n) {
        _ if lead.iter().any(|&size| size != 1) => return Ok(None),
        (1, _) => (a, b, b.strides[row], b.strides[column], n),
        (_, 1) => (b, a, a.strides[column], a.strides[row], m),
        _ => return Ok(None),
    };
    if inner != 1 || k == 0 || count == 0 {
        return Ok(None);
    }
    let x = copy::to_compute_dtype(cpu, vector)?;
    let out = cpu.alloc(count, DType::F32)?;
    let (from, rows, to) =
        (Shared(x.ptr()), Shared(matrix.ptr.cast_mut()), Shared(out.ptr().cast::<f32>()));
    let dtype = matrix.dtype;
    for_each_range(count, MIN_PARALLEL_MULS / 4 / k, |range| {
        // SAFETY: x has k elements; row j of the matrix begins `outer` elements after row j - 1;
        // each result belongs to one range.
        unsafe {
            let x = slice::<f32>(from.get(), k);
            for j in range {
                let row = rows.get().cast::<u16>().offset(j as isize * outer);
                *to.get().add(j) = cpu.level.run(DotHalf { dtype, x, row: slice(row.cast(), k) });
            }
        }
    });
    Ok(Some(out))
}

/// `Σ x[i] row[i]`.
struct DotHalf<'a> {
    dtype: DType,
    x: &'a [f32],
    row: &'a [u16],
}

impl Work for DotHalf<'_> {
    type Out = f32;
    #[inline(always)]
    fn run<V: F32s>(self) -> f32 {
        let mut block = [0.0f32; BLOCK];
        let mut sum = 0.0f64; // of blocks, so that rounding errors do not grow with the row
        for (i, row) in self.row.chunks(BLOCK).enumerate() {
            let x = &self.x[i * BLOCK..][..row.len()];
            if self.dtype == DType::BF16 {
                for_pairs(&mut block, row, |value, bits| {
                    *value = f32::from_bits(u32::from(bits) << 16)
                });
            } else {
                // SAFETY: both have the row's length.
                unsafe {
                    to_f32(self.dtype, row.as_ptr().cast(), block.as_mut_ptr().cast(), row.len())
                };
            }
            // SAFETY: both have x's length.
            sum += f64::from(unsafe { dot::<f32, V>(x.as_ptr(), block.as_ptr(), x.len()) });
        }
        sum as f32
    }
}
