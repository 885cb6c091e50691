//! The arithmetic of attention on tiles that stay in L1: the softmax of rows of scores between the
//! matrix products.
//!
//! The naive form takes the maximum of a whole row, then `exp(s - max)` and their sum. The online
//! form takes a row in parts: a part with a larger maximum scales the sum of the parts before by `α
//! = exp(old max - new max)`. f32 and f64 have the same loops. Tiles of scores are padded to whole
//! vectors of the widest level.

use super::QUERIES;
use super::finish::{Finish, FinishHalf};
use super::softmax::{OnlineSoftmax, PAD, SoftmaxBackward};
use crate::float::{Float, Number, Vector};
use crate::fused::functions::Max;
use crate::loops::float::{Mul, Sub};
use crate::matmul::{Dots, DotsHalf, HalfRows, Matrix, Product, RowsOf, dot};
use crate::simd::loops::{Map2, Operand};
use crate::simd::{F32s, Lanes, Level, Work};
use crate::transpose::transpose;
use crate::vecmath::Exp;
use std::marker::PhantomData;
use teeny_core::{DType, bf16, f16};

/// An element type with tile arithmetic.
pub(super) trait Real: Number + std::ops::Div<Output = Self> {
    /// Stands for -inf in scores.
    const LOWEST: Self;
    /// The type as data.
    const DTYPE: DType;
    /// The logsumexp of nothing.
    const NOTHING: Self;
    /// Natural logarithm.
    fn log(self) -> Self;
    /// `e^self`
    fn exponential(self) -> Self;
    /// `scale` times the rows of `from`, in rows without gaps.
    ///
    /// # Safety
    /// `from` is readable and `to` writable, and they do not overlap.
    unsafe fn scaled(
        level: Level,
        from: Matrix<Self>,
        [rows, columns]: [usize; 2],
        scale: Self,
        to: *mut Self,
    ) {
        for r in 0..rows {
            let row = from.at(r, 0);
            // SAFETY: by contract.
            unsafe {
                let to = to.add(r * columns);
                if row.col_stride == 1 {
                    let acc = std::slice::from_raw_parts(row.ptr, columns);
                    level.run(Finish { acc, factor: scale, to });
                } else {
                    for c in 0..columns {
                        *to.add(c) = *row.at(0, c).ptr * scale;
                    }
                }
            }
        }
    }
    /// `to[c] = factor acc[c]`, rounded to `dtype`.
    ///
    /// # Safety
    /// As many values of `dtype` are writable; it is computed in this type.
    unsafe fn finish(level: Level, dtype: DType, acc: &[Self], factor: Self, to: *mut u8);
    /// `s (m, n) = q (m, k) @ keysᵀ`: rows of `k` numbers of `q` by `n` lines of `dtype`, with the
    /// bytes from one to the next.
    ///
    /// # Safety
    /// The operands are readable and `s` is writable; `dtype` is computed in this type.
    unsafe fn scores(
        level: Level,
        dtype: DType,
        mnk: [usize; 3],
        q: *const Self,
        keys: (*const u8, isize),
        s: Matrix<Self>,
    );
    /// `acc (m, n) += p (m, k) @ values`: `k` lines of `n` numbers of `dtype`, as in `scores`. Rows
    /// of `acc` are `width` apart.
    ///
    /// # Safety
    /// As `scores`; there are at most four rows.
    unsafe fn add_product(
        level: Level,
        dtype: DType,
        mnk: [usize; 3],
        p: Matrix<Self>,
        values: (*const u8, isize),
        acc: &mut [Self],
        width: usize,
    );
    /// `scale` times the transpose of `from` (rows, columns) to rows of `step` elements.
    ///
    /// # Safety
    /// `from` is readable, `to` writable for `columns` rows, and they do not overlap.
    unsafe fn transposed(
        level: Level,
        from: Matrix<Self>,
        [rows, columns]: [usize; 2],
        scale: Self,
        to: *mut Self,
        step: usize,
    ) {
        // SAFETY: by contract.
        unsafe {
            if from.col_stride != 1 {
                for (c, r) in (0..columns).flat_map(|c| (0..rows).map(move |r| (c, r))) {
                    *to.add(c * step + r) = *from.at(r, c).ptr * scale;
                }
                return;
            }
            transpose(level, from.ptr, from.row_stride, to, step as isize, (columns, rows), false);
            if scale != Self::ONE {
                // Whole tiles have no gaps between their rows.
                let (count, len) = if step == rows { (1, columns * rows) } else { (columns, rows) };
                for line in (0..count).map(|i| to.add(i * step)) {
                    let (x, scale) = (Operand::Slice(line.cast_const()), Operand::Splat(scale));
                    level.run(Map2::<Mul, Self>::new(x, scale, line, len, false));
                }
            }
        }
    }
    /// `Σ a b` of rows.
    ///
    /// # Safety
    /// `a` and `b` are readable for n columns.
    unsafe fn inner(level: Level, a: Matrix<Self>, b: Matrix<Self>, n: usize) -> Self {
        if a.col_stride == 1 && b.col_stride == 1 {
            return level.run(Inner { a: a.ptr, b: b.ptr, n });
        }
        // SAFETY: by contract.
        (0..n).fold(Self::ZERO, |sum, c| sum + unsafe { *a.at(0, c).ptr * *b.at(0, c).ptr })
    }
}

impl Real for f32 {
    const LOWEST: f32 = f32::MIN;
    const DTYPE: DType = DType::F32;
    const NOTHING: f32 = f32::NEG_INFINITY;
    fn log(self) -> f32 {
        f64::from(self).ln() as f32
    }
    fn exponential(self) -> f32 {
        f64::from(self).exp() as f32
    }
    unsafe fn finish(level: Level, dtype: DType, acc: &[f32], factor: f32, to: *mut u8) {
        let half = Finish { acc, factor, to: to.cast::<u16>() };
        match dtype {
            DType::BF16 => level.run(FinishHalf::<bf16>(half, PhantomData)),
            DType::F16 => level.run(FinishHalf::<f16>(half, PhantomData)),
            _ => level.run(Finish { acc, factor, to: to.cast::<f32>() }),
        }
    }
    unsafe fn scores(
        level: Level,
        dtype: DType,
        mnk: [usize; 3],
        a: *const f32,
        (b, b_step): (*const u8, isize),
        c: Matrix<f32>,
    ) {
        let a_step = (mnk[2] * size_of::<f32>()) as isize;
        let (beta, alpha) = (0.0, 1.0);
        if dtype == DType::F32 {
            return level.run(Dots { mnk, a, a_step, b: b.cast::<f32>(), b_step, c, beta, alpha });
        }
        let dots = Dots { mnk, a, a_step, b: b.cast::<u16>(), b_step, c, beta, alpha };
        if dtype == DType::BF16 {
            level.run(DotsHalf::<bf16>(dots, PhantomData));
        } else {
            level.run(DotsHalf::<f16>(dots, PhantomData));
        }
    }
    unsafe fn add_product(
        level: Level,
        dtype: DType,
        mnk: [usize; 3],
        p: Matrix<f32>,
        (values, step): (*const u8, isize),
        acc: &mut [f32],
        width: usize,
    ) {
        if dtype == DType::F32 {
            // SAFETY: by contract.
            return unsafe { add_product(level, mnk, p, (values, step), acc, width) };
        }
        let rows = HalfRows {
            mnk,
            a: p.ptr,
            a_row_stride: p.row_stride as usize,
            b: values.cast(),
            b_row_stride: step / 2,
            c: acc.as_mut_ptr(),
            c_row_stride: width,
            adds: true,
        };
        if dtype == DType::BF16 {
            level.run(RowsOf::<bf16>(rows, PhantomData));
        } else {
            level.run(RowsOf::<f16>(rows, PhantomData));
        }
    }
}

/// [`Real::add_product`] of the same type.
unsafe fn add_product<T: Real>(
    level: Level,
    mnk: [usize; 3],
    a: Matrix<T>,
    (values, step): (*const u8, isize),
    acc: &mut [T],
    width: usize,
) {
    let product = Product {
        mnk,
        a,
        b: values.cast::<T>(),
        b_row_stride: step / size_of::<T>() as isize,
        c: acc.as_mut_ptr(),
        c_row_stride: width as isize,
        beta: T::ONE,
        alpha: T::ONE,
    };
    // SAFETY: by contract.
    unsafe { product.run(level) };
}

struct Inner<T> {
    a: *const T,
    b: *const T,
    n: usize,
}

impl<T: Float> Work for Inner<T> {
    type Out = T;
    #[inline(always)]
    fn run<V: F32s>(self) -> T {
        // SAFETY: `inner` promises n elements of each.
        unsafe { dot::<T, T::Vector<V>>(self.a, self.b, self.n) }
    }
}

impl<T: Real> Work for OnlineSoftmax<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let lanes = Vector::<T, V>::LANES;
        // The maxima first, so that the factors α of a whole vector of rows take one exponential.
        let (mut shifts, mut alphas) = ([T::ZERO; QUERIES], [T::ZERO; QUERIES]);
        for (r, max) in self.max.iter_mut().enumerate() {
            // SAFETY: n is a multiple of the lanes, and inside the row.
            unsafe {
                let row = self.s.add(r * self.row);
                let mut best = Vector::<T, V>::splat(*max);
                for c in (0..self.n).step_by(lanes) {
                    // A NaN does not reach the maximum, but it does reach the sum.
                    let x = Vector::<T, V>::load(row.add(c));
                    best = T::quaternary::<Max, V>([x, x, best, x]);
                }
                let best = T::largest::<V>(best);
                // A row that sees no key is shifted by 0: its scores stay the lowest numbers, and
                // their exponentials are 0.
                shifts[r] = if best == T::LOWEST { T::ZERO } else { best };
                alphas[r] = *max - shifts[r];
                *max = best;
            }
        }
        for alphas in alphas.chunks_exact_mut(lanes) {
            // SAFETY: a whole vector: QUERIES is a multiple of the lanes.
            unsafe {
                let alpha = Vector::<T, V>::load(alphas.as_ptr());
                T::unary::<Exp, V>(alpha).store(alphas.as_mut_ptr());
            }
        }
        for r in 0..self.max.len() {
            // SAFETY: n and `width` are multiples of the lanes, and inside the row.
            unsafe {
                let row = self.s.add(r * self.row);
                let (shift, alpha) =
                    (Vector::<T, V>::splat(shifts[r]), Vector::<T, V>::splat(alphas[r]));
                // Each tile is summed first, so rounding errors grow with the number of tiles, not
                // of keys.
                let old = Vector::<T, V>::load(self.sum.add(r * PAD)).mul(alpha);
                let mut sums = [Vector::<T, V>::splat(T::ZERO); 2];
                let mut c = 0;
                while c + 2 * lanes <= self.n {
                    let p = exp_sub::<T, V>(row.add(c), shift);
                    let q = exp_sub::<T, V>(row.add(c + lanes), shift);
                    p.store(row.add(c));
                    q.store(row.add(c + lanes));
                    sums = [sums[0].add(p), sums[1].add(q)];
                    c += 2 * lanes;
                }
                if c < self.n {
                    let p = exp_sub::<T, V>(row.add(c), shift);
                    p.store(row.add(c));
                    sums[0] = sums[0].add(p);
                }
                sums[0].add(sums[1]).add(old).store(self.sum.add(r * PAD));
                if alphas[r] != T::ONE {
                    let acc = self.acc.add(r * self.width);
                    for c in (0..self.width).step_by(lanes) {
                        Vector::<T, V>::load(acc.add(c)).mul(alpha).store(acc.add(c));
                    }
                }
            }
        }
    }
}

/// `exp(s - shift)` of a vector at `s`.
///
/// # Safety
/// It is readable.
#[inline(always)]
unsafe fn exp_sub<T: Number, V: F32s>(s: *const T, shift: Vector<T, V>) -> Vector<T, V> {
    // SAFETY: by contract.
    T::unary::<Exp, V>(T::binary::<Sub, V>(unsafe { Vector::<T, V>::load(s) }, shift))
}

impl<T: Real> Work for SoftmaxBackward<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let splat = Vector::<T, V>::splat;
        for (r, &lse) in self.lse.iter().enumerate() {
            // SAFETY: n is a multiple of the lanes, and inside the row.
            unsafe {
                let (row, ds) = (self.s.add(r * self.row), self.ds.wrapping_add(r * self.row));
                // All scores of a row that sees no key are the lowest number: shifted by 0, all
                // probabilities are 0.
                let shift = splat(if lse == T::NOTHING { T::ZERO } else { lse });
                let inner = splat(self.inner.map_or(T::ZERO, |inner| inner[r]));
                let scale = splat(self.scale);
                for c in (0..self.n).step_by(Vector::<T, V>::LANES) {
                    let p = exp_sub::<T, V>(row.add(c), shift);
                    p.store(row.add(c));
                    if self.inner.is_some() {
                        let ds = ds.add(c);
                        let g = T::binary::<Sub, V>(Vector::<T, V>::load(ds), inner);
                        p.mul(g).mul(scale).store(ds);
                    }
                }
            }
        }
    }
}

impl Real for f64 {
    const LOWEST: f64 = f64::MIN;
    const DTYPE: DType = DType::F64;
    const NOTHING: f64 = f64::NEG_INFINITY;
    fn log(self) -> f64 {
        self.ln()
    }
    fn exponential(self) -> f64 {
        self.exp()
    }
    unsafe fn finish(level: Level, _: DType, acc: &[f64], factor: f64, to: *mut u8) {
        level.run(Finish { acc, factor, to: to.cast::<f64>() });
    }
    unsafe fn scores(
        level: Level,
        _: DType,
        mnk: [usize; 3],
        a: *const f64,
        (b, b_step): (*const u8, isize),
        c: Matrix<f64>,
    ) {
        let (a_step, b) = ((mnk[2] * size_of::<f64>()) as isize, b.cast::<f64>());
        level.run(Dots { mnk, a, a_step, b, b_step, c, beta: 0.0, alpha: 1.0 });
    }
    unsafe fn add_product(
        level: Level,
        _: DType,
        mnk: [usize; 3],
        p: Matrix<f64>,
        values: (*const u8, isize),
        acc: &mut [f64],
        width: usize,
    ) {
        // SAFETY: by contract.
        unsafe { add_product(level, mnk, p, values, acc, width) };
    }
}
