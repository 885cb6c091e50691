//! Products with the weights of attention where keys are hidden: a weight of 0 times an infinity or
//! NaN is left out, as a masked position contributes nothing.
//!
//! Only tiles in which a query does not see a key look for such numbers, and only tiles that have
//! some are computed here, element by element.

use super::tile::Real;
use crate::Cpu;
use crate::float::are_finite;
use crate::matmul::{Matrix, Product};
use teeny_core::{DType, Result, bf16, f16};

/// Computes `c = beta c + a b`, without the terms whose weight in `a` is 0 if keys are `hidden`.
///
/// # Safety
/// As [`Product::run`].
pub(super) unsafe fn run<T: Real>(cpu: &Cpu, product: Product<T>, hidden: bool) -> Result<()> {
    let Product { mnk, a, b, b_row_stride, c, c_row_stride, beta, .. } = product;
    // SAFETY: `b` has rows of n numbers, by contract.
    let finite = |row: usize| unsafe {
        are_finite(
            cpu.level,
            std::slice::from_raw_parts(b.offset(row as isize * b_row_stride), mnk[1]),
        )
    };
    // SAFETY: by contract.
    unsafe {
        if !hidden || (0..mnk[2]).all(finite) {
            return product.run_on(cpu);
        }
        if beta == T::ZERO {
            for row in 0..mnk[0] {
                let row = c.offset(row as isize * c_row_stride);
                std::slice::from_raw_parts_mut(row, mnk[1]).fill(T::ZERO);
            }
        }
        let step = b_row_stride * size_of::<T>() as isize;
        add_seen(mnk, a, (T::DTYPE, b.cast(), step), c, c_row_stride);
    }
    Ok(())
}

/// Adds `a b` to `c`, without the terms whose weight in `a` is 0. `b` is a type, its first number
/// and the bytes from a row to the next.
///
/// # Safety
/// `a` and `b` are readable and `c` is writable over (m, k), (k, n) and (m, n).
pub(super) unsafe fn add_seen<T: Real>(
    [m, n, k]: [usize; 3],
    a: Matrix<T>,
    (dtype, b, step): (DType, *const u8, isize),
    c: *mut T,
    c_row_stride: isize,
) {
    for row in 0..m {
        for inner in 0..k {
            // SAFETY: by contract.
            unsafe {
                let weight = *a.at(row, inner).ptr;
                if weight == T::ZERO {
                    continue;
                }
                let (b, c) =
                    (b.offset(inner as isize * step), c.offset(row as isize * c_row_stride));
                for column in 0..n {
                    let x = match dtype {
                        DType::F16 => b.cast::<f16>().add(column).read().to_f64(),
                        DType::BF16 => b.cast::<bf16>().add(column).read().to_f64(),
                        DType::F32 => b.cast::<f32>().add(column).read().into(),
                        _ => b.cast::<f64>().add(column).read(),
                    };
                    *c.add(column) += weight * T::from_f64(x);
                }
            }
        }
    }
}
