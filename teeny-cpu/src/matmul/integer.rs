//! Products of integers, which wrap.
//!
//! The naive form is `y[j] += a[i] * b[i][j]` for each row of the result. The loop over j is
//! innermost, so that it is vectorised where rows of b are contiguous; rows are shared by threads.

use super::select::MIN_PARALLEL_MULS;
use super::{Matrix, Request};
use crate::loops::int::Int;
use crate::simd::{F32s, Work, for_pairs};
use crate::storage::Shared;
use crate::threads::for_each_range;

/// Computes all products of `request`.
pub(super) fn run<T: Int + Default>(request: &Request<'_>) {
    let [m, n, k] = request.mnk;
    let out = Shared(request.out.get().cast::<T>());
    for_each_range(request.batch * m, MIN_PARALLEL_MULS / 4 / (n * k).max(1), |rows| {
        for row in rows {
            let a = Request::matrix::<T>(request.a, row / m).at(row % m, 0);
            let b = Request::matrix::<T>(request.b, row / m);
            // SAFETY: each row of the result belongs to one range.
            let y = unsafe { std::slice::from_raw_parts_mut(out.get().add(row * n), n) };
            request.cpu.level.run(ProductRow { y, k, a, b });
        }
    });
}

/// One row of the product.
struct ProductRow<'a, T> {
    y: &'a mut [T],
    k: usize,
    a: Matrix<T>,
    b: Matrix<T>,
}

impl<T: Int + Default> Work for ProductRow<'_, T> {
    type Out = ();
    const FOR_AVX512: bool = false;
    #[inline(always)]
    fn run<V: F32s>(self) {
        let ProductRow { y, k, a, b } = self;
        y.fill(T::default());
        for i in 0..k {
            // SAFETY: i < k and j < n, inside views that `View::of` has checked.
            unsafe {
                let (x, row) = (*a.at(0, i).ptr, b.at(i, 0).ptr);
                if b.col_stride == 1 {
                    let row = std::slice::from_raw_parts(row, y.len());
                    for_pairs(y, row, |y, b| *y = y.add(x.mul(b)));
                } else {
                    for (j, y) in y.iter_mut().enumerate() {
                        *y = y.add(x.mul(*row.offset(j as isize * b.col_stride)));
                    }
                }
            }
        }
    }
}
