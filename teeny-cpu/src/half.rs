//! A vector times a matrix of 16-bit floats, whose rows are widened a block at a time in L1.
//!
//! Decoding with a language model is this product and nothing else, and its time is that of reading
//! the matrix. Widening the whole matrix first, as other products do, would read and write five
//! times as much.

use crate::elementwise::cast::{slice, widen};
use crate::gemm::THREAD;
use crate::simd::{F32s, Work, for_pairs};
use crate::storage::{CpuStorage, Shared, View};
use crate::thin::dot;
use crate::threads::for_each_range;
use crate::{Cpu, copy};
use teeny_core::{DType, Result};

/// Elements widened at once: 2 KiB of f32, well inside L1 beside the vector.
const BLOCK: usize = 512;

/// `a (m, k) @ b (k, n)` of one 16-bit type in f32, if one of them is a vector and the other has
/// its k elements side by side; leading axes of size 1.
pub(crate) fn product(cpu: &Cpu, a: &View, b: &View) -> Result<Option<CpuStorage>> {
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
    let x = copy::computed(cpu, vector)?;
    let out = cpu.alloc(count, DType::F32)?;
    let (from, rows, to) =
        (Shared(x.ptr()), Shared(matrix.ptr.cast_mut()), Shared(out.ptr().cast::<f32>()));
    let dtype = matrix.dtype;
    for_each_range(count, THREAD / 4 / k, |here| {
        // SAFETY: x has k elements; row j of the matrix begins `outer` elements after row j - 1;
        // each result belongs to one range.
        unsafe {
            let x = slice::<f32>(from.get(), k);
            for j in here {
                let row = rows.get().cast::<u16>().offset(j as isize * outer);
                *to.get().add(j) = cpu.level.run(Dot { dtype, x, row: slice(row.cast(), k) });
            }
        }
    });
    Ok(Some(out))
}

/// `Σ x[i] row[i]`.
struct Dot<'a> {
    dtype: DType,
    x: &'a [f32],
    row: &'a [u16],
}

impl Work for Dot<'_> {
    type Out = f32;
    #[inline(always)]
    fn run<V: F32s>(self) -> f32 {
        let mut block = [0.0f32; BLOCK];
        let mut sum = 0.0f64; // of blocks, so that rounding errors do not grow with the row
        for (i, row) in self.row.chunks(BLOCK).enumerate() {
            let x = &self.x[i * BLOCK..][..row.len()];
            if self.dtype == DType::BF16 {
                for_pairs(&mut block, row, |wide, bits| {
                    *wide = f32::from_bits(u32::from(bits) << 16)
                });
            } else {
                // SAFETY: both have the row's length.
                unsafe {
                    widen(self.dtype, row.as_ptr().cast(), block.as_mut_ptr().cast(), row.len())
                };
            }
            // SAFETY: both have x's length.
            sum += f64::from(unsafe { dot::<f32, V>(x.as_ptr(), block.as_ptr(), x.len()) });
        }
        sum as f32
    }
}
