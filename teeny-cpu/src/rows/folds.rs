//! Combines the vectors that the instructions reduce rows to into row values.
//!
//! Sums and products go on in f64. A sum of f32 that overflowed by rounding is added again, each
//! term in f64.

use crate::float::{Number, Vector};
use crate::loops::float::{Add, Max, Min, Mul};
use crate::simd::loops::Binary;
use crate::simd::{F32s, Lanes, Work};
use teeny_core::kernel::Fold;

/// Lanes of the widest vector.
const WIDEST: usize = 16;

/// The number that changes nothing.
pub(super) fn identity(fold: Fold) -> f64 {
    match fold {
        Fold::Sum => 0.0,
        Fold::Prod => 1.0,
        Fold::Max => f64::NEG_INFINITY,
        Fold::Min => f64::INFINITY,
        Fold::Any | Fold::All => f64::NAN,
    }
}

/// A piece of rows whose results go on in f64.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    /// Whether no piece has been before, and whether none comes after.
    pub first: bool,
    pub last: bool,
}

/// Combines rows of vectors with the earlier results. False if a sum or product is not finite.
pub(super) struct Along<T> {
    pub fold: Fold,
    /// The first vector of the first row, the row stride in bytes, and the number of vectors.
    pub from: *const u8,
    pub row_stride: usize,
    pub vectors: usize,
    pub rows: usize,
    pub piece: Piece,
    /// Whether lanes are combined in f64.
    pub wide: bool,
    /// Sums and products of the earlier pieces.
    pub totals: *mut f64,
    pub results: *mut T,
}

impl<T: Number> Along<T> {
    /// The combination of all lanes of a row.
    ///
    /// # Safety
    /// There is such a row.
    #[inline(always)]
    unsafe fn row<V: F32s, F: Binary>(&self, row: usize) -> Vector<T, V> {
        let lanes = Vector::<T, V>::LANES;
        let first = self.from.wrapping_add(row * self.row_stride).cast::<T>();
        // SAFETY: by contract.
        unsafe {
            let (mut all, mut j) = (Vector::<T, V>::load(first), 1);
            while j < self.vectors {
                all = T::binary::<F, V>(all, Vector::<T, V>::load(first.add(j * lanes)));
                j += 1;
            }
            all
        }
    }
}

impl<T: Number> Along<T> {
    /// The sum or product of `before` and the lanes of the first vector.
    ///
    /// # Safety
    /// There is such a row.
    #[inline(always)]
    unsafe fn wide<V: F32s>(&self, row: usize, before: f64) -> f64 {
        let lanes = Vector::<T, V>::LANES;
        let first = self.from.wrapping_add(row * self.row_stride).cast::<T>();
        let (mut all, mut lane) = (before, 0);
        while lane < lanes {
            // SAFETY: by contract.
            let x = unsafe { (*first.add(lane)).to_f64() };
            all = if self.fold == Fold::Sum { all + x } else { all * x };
            lane += 1;
        }
        all
    }
}

/// Halves of the lanes combined, until one is left.
macro_rules! halved {
    ($x:expr, $f:expr) => {{
        let mut all = [T::ZERO; WIDEST];
        // Inside `unsafe`: there are lanes for the widest vector.
        $x.store(all.as_mut_ptr());
        let mut width = Vector::<T, V>::LANES / 2;
        while width > 0 {
            let mut i = 0;
            while i < width {
                all[i] = $f(all[i], all[i + width]);
                i += 1;
            }
            width /= 2;
        }
        all[0]
    }};
}

impl<T: Number> Work for Along<T> {
    type Out = bool;
    #[inline(always)]
    fn run<V: F32s>(self) -> bool {
        if !V::NATIVE {
            return true; // see `run_rows`
        }
        let (Piece { first, last }, mut zeros) = (self.piece, 0.0);
        let mut next = 0;
        while next < self.rows {
            let r = next;
            next += 1;
            // SAFETY: made of memory for these rows, which the task owns.
            unsafe {
                let (result, total) = (self.results.add(r), self.totals.add(r));
                match self.fold {
                    Fold::Sum | Fold::Prod => {
                        let all = match self.fold {
                            _ if self.wide => {
                                let before = match (first, self.fold) {
                                    (true, fold) => identity(fold),
                                    (false, _) => *total,
                                };
                                self.wide::<V>(r, before)
                            }
                            Fold::Sum => {
                                let sum = self.row::<V, Add>(r).total().to_f64();
                                if first { sum } else { *total + sum }
                            }
                            _ => {
                                let all = self.row::<V, Mul>(r);
                                let all = halved!(all, times).to_f64();
                                if first { all } else { *total * all }
                            }
                        };
                        *total = all;
                        if last {
                            *result = T::from_f64(all);
                            // Zero times an infinity or NaN is NaN.
                            zeros += all * 0.0;
                        }
                    }
                    Fold::Max => {
                        let all = self.row::<V, Max>(r);
                        let x = halved!(all, larger);
                        *result = if first { x } else { larger(*result, x) };
                    }
                    _ => {
                        let all = self.row::<V, Min>(r);
                        let x = halved!(all, smaller);
                        *result = if first { x } else { smaller(*result, x) };
                    }
                }
            }
        }
        zeros == 0.0
    }
}

/// The product.
#[inline(always)]
fn times<T: Number>(a: T, b: T) -> T {
    a * b
}

/// The larger; NaN if one is.
#[inline(always)]
#[allow(clippy::eq_op)]
fn larger<T: Number>(a: T, b: T) -> T {
    if a > b || a != a { a } else { b }
}

#[inline(always)]
#[allow(clippy::eq_op)]
fn smaller<T: Number>(a: T, b: T) -> T {
    if a < b || a != a { a } else { b }
}

/// Sums and products of lanes whose accumulation continues in f64.
pub(super) struct Across<T> {
    pub fold: Fold,
    pub rows: usize,
    pub piece: Piece,
    pub totals: *mut f64,
    /// The results of this piece, and finally of all pieces.
    pub results: *mut T,
}

impl<T: Number> Work for Across<T> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        if !V::NATIVE {
            return; // see `run_rows`
        }
        let Across { fold, rows, piece: Piece { first, last }, totals, results } = self;
        macro_rules! each {
            (|$r:ident| $body:expr) => {{
                let mut $r = 0;
                while $r < rows {
                    $body;
                    $r += 1;
                }
            }};
        }
        // SAFETY: made of memory for these rows, which the task owns.
        unsafe {
            match (first, fold) {
                (true, _) if last => {}
                (true, _) => each!(|r| *totals.add(r) = (*results.add(r)).to_f64()),
                (_, Fold::Sum) => each!(|r| *totals.add(r) += (*results.add(r)).to_f64()),
                _ => each!(|r| *totals.add(r) *= (*results.add(r)).to_f64()),
            }
            if last && !first {
                each!(|r| *results.add(r) = T::from_f64(*totals.add(r)));
            }
        }
    }
}
