//! Up to four rows times a matrix of 16-bit floats with contiguous rows, which is read once, where
//! it is.
//!
//! The naive form is `for p in 0..k { for j in 0..n { c[i][j] += a[i][p] * b[p][j] } }` for each
//! row i. Here some vectors of c stay in registers while p runs, and b is converted in registers,
//! once for all rows.

use super::pack::widen;
use super::{Tile, with_half};
use crate::Cpu;
use crate::matmul::dots::load_half_part;
use crate::matmul::matrix::Matrix;
use crate::matmul::microkernel::MAX_CHAIN;
use crate::scratch::with_scratch;
use crate::simd::{F32s, Half, Work};
use std::marker::PhantomData;
use teeny_core::{DType, Result, bf16, f16};

/// Computes `c`, of contiguous rows.
///
/// # Safety
/// The operands are readable and `c` is writable; there are at most [`super::select::MAX_ROWS`]
/// rows, and the rows of b are contiguous.
///
/// # Errors
/// If allocating scratch memory fails.
pub(super) unsafe fn run(cpu: &Cpu, tile: Tile, c: Matrix<f32>) -> Result<()> {
    let ([m, n, k], level) = (tile.mnk, cpu.level);
    with_scratch(cpu, [m * k], |[x]: [&mut [f32]; 1]| {
        // SAFETY: by contract; x has m rows of k elements.
        unsafe { widen(level, tile.dtype, tile.a, [m, k], x.as_mut_ptr(), k) };
        for from in (0..k).step_by(MAX_CHAIN) {
            let (depth, b) = (MAX_CHAIN.min(k - from), tile.b.at(from, 0));
            with_half!(tile.dtype, H => level.run(RowsOf::<H>(
                HalfRows {
                    mnk: [m, n, depth],
                    a: x.as_ptr().wrapping_add(from),
                    a_row_stride: k,
                    b: b.ptr,
                    b_row_stride: b.row_stride,
                    c: c.ptr.cast_mut(),
                    c_row_stride: n,
                    adds: from > 0,
                },
                PhantomData,
            )));
        }
    })
}

/// `c (m, n) = a (m, k) @ b (k, n)`, or added to c if `adds`. There are at most four rows; the rows
/// of all matrices are contiguous.
pub(crate) struct HalfRows {
    pub mnk: [usize; 3],
    pub a: *const f32,
    pub a_row_stride: usize,
    pub b: *const u16,
    pub b_row_stride: isize,
    pub c: *mut f32,
    pub c_row_stride: usize,
    pub adds: bool,
}

/// [`HalfRows`] with the type of b.
pub(crate) struct RowsOf<H>(pub HalfRows, pub PhantomData<H>);

impl<H: Half> Work for RowsOf<H> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        // SAFETY: by contract of `run` above.
        unsafe {
            match self.0.mnk[0] {
                1 => self.columns::<V, 1>(),
                2 => self.columns::<V, 2>(),
                3 => self.columns::<V, 3>(),
                _ => self.columns::<V, 4>(),
            }
        }
    }
}

impl<H: Half> RowsOf<H> {
    #[inline(always)]
    unsafe fn columns<V: F32s, const R: usize>(&self) {
        let (n, mut j) = (self.0.mnk[1], 0);
        // SAFETY: columns below n.
        unsafe {
            while const { V::NATIVE } && j + 4 * V::LANES <= n {
                self.register_tile::<V, R, 4>(j, V::LANES);
                j += 4 * V::LANES;
            }
            while j < n {
                let part = V::LANES.min(n - j);
                self.register_tile::<V, R, 1>(j, part);
                j += part;
            }
        }
    }

    /// `R` rows by `NV` vectors of c, of which the last has `part` lanes.
    #[inline(always)]
    unsafe fn register_tile<V: F32s, const R: usize, const NV: usize>(
        &self,
        j: usize,
        part: usize,
    ) {
        let k = self.0.mnk[2];
        let mut sums = [[V::splat(0.0); NV]; R];
        // SAFETY: by contract.
        unsafe {
            for p in 0..k {
                let b = self.0.b.wrapping_offset(p as isize * self.0.b_row_stride).wrapping_add(j);
                let mut row = [V::splat(0.0); NV];
                let mut v = 0;
                while v < NV {
                    let at = b.add(v * V::LANES);
                    row[v] = match part < V::LANES {
                        true => load_half_part::<H, V>(at, part),
                        false => V::load_half::<H>(at),
                    };
                    v += 1;
                }
                let mut r = 0;
                while r < R {
                    let x = V::splat(*self.0.a.add(r * self.0.a_row_stride + p));
                    let mut v = 0;
                    while v < NV {
                        sums[r][v] = x.mul_add(row[v], sums[r][v]);
                        v += 1;
                    }
                    r += 1;
                }
            }
            for (r, sums) in sums.into_iter().enumerate() {
                for (v, sum) in sums.into_iter().enumerate() {
                    let to = self.0.c.add(r * self.0.c_row_stride + j + v * V::LANES);
                    let sum = if self.0.adds { sum.add(V::load_part(to, part)) } else { sum };
                    sum.store_part(to, part);
                }
            }
        }
    }
}
