//! Rows beside each other, with a row in each lane: columns.
//!
//! ```text
//!   (n, width)   a group of neighbouring columns, whole cache lines of each position, at once
//! ```
//! Maxima and sums need no exchange between lanes. The passes over a group follow one another while
//! it is cached. Sums are of 32 terms in T, and of these in f64.

use super::functions::{Batch, FloatTerms, Function, Line, Max, Row, Rows, Terms, each};
use crate::float::Vector;
use crate::simd::{F32s, Lanes, Work, for_pairs};
use crate::vecmath::double::log;
use std::marker::PhantomData;

/// Vectors of a group.
const GROUP: usize = 4;
/// Columns of the widest group.
pub(super) const WIDEST: usize = GROUP * 16;
/// Terms that are added in T.
const TERMS: usize = 32;

/// Rows that are neighbours at each position.
pub(super) struct Columns<'a, T, F>(pub &'a Batch<T>, pub PhantomData<F>);

impl<T: FloatTerms, F: Function> Work for Columns<'_, T, F> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let lanes = GROUP * Vector::<T, V>::LANES;
        let mut at = 0;
        while at < self.0.rows {
            let columns = self.0.from(at, lanes.min(self.0.rows - at), at);
            F::run(&Across::<T, V> { columns, of: PhantomData });
            at += lanes;
        }
    }
}

/// The columns of one group.
struct Across<T, V> {
    columns: Batch<T>,
    of: PhantomData<V>,
}

/// All numbers as vectors of T. A loop and not `map`, which may not be inlined.
#[inline(always)]
fn vectors<T: FloatTerms, V: F32s>(numbers: &Row<WIDEST>) -> [Vector<T, V>; GROUP] {
    let mut lanes = [T::ZERO; WIDEST];
    for_pairs(&mut lanes, numbers, |to, number| *to = T::from_f64(number));
    let mut all = [Vector::<T, V>::splat(T::ZERO); GROUP];
    let mut j = 0;
    while j < GROUP {
        // SAFETY: there are lanes for the widest vectors.
        all[j] = unsafe { Vector::<T, V>::load(lanes.as_ptr().add(j * Vector::<T, V>::LANES)) };
        j += 1;
    }
    all
}

impl<T: FloatTerms, V: F32s> Across<T, V> {
    /// How many lanes of vector `j` are columns.
    #[inline(always)]
    fn lanes(&self, j: usize) -> usize {
        let lanes = Vector::<T, V>::LANES;
        self.columns.rows.saturating_sub(j * lanes).min(lanes)
    }
}

impl<T: FloatTerms, V: F32s> Rows<T, WIDEST> for Across<T, V> {
    #[inline(always)]
    fn batch(&self) -> &Batch<T> {
        &self.columns
    }

    #[inline(always)]
    fn log(x: &Row<WIDEST>) -> Row<WIDEST> {
        if size_of::<T>() == 4 {
            return each([x], |[x]| ln(x));
        }
        let mut logs = *x;
        for i in (0..WIDEST).step_by(V::F64s::LANES) {
            let p = logs.as_mut_ptr().wrapping_add(i);
            // SAFETY: whole vectors of the array.
            unsafe { log(V::F64s::load(p)).store(p) };
        }
        logs
    }

    #[inline(always)]
    fn largest(&self) -> Row<WIDEST> {
        let lanes = Vector::<T, V>::LANES;
        let mut best = [Vector::<T, V>::splat(T::from_f64(f64::NEG_INFINITY)); GROUP];
        for i in 0..self.columns.first.n {
            for (j, best) in best.iter_mut().enumerate() {
                let from = self.columns.first.operands[0]
                    .wrapping_add(i * self.columns.first.step + j * lanes);
                // SAFETY: these lanes are columns of position i.
                let x = unsafe { Vector::<T, V>::load_up_to(from, self.lanes(j)) };
                *best = T::quaternary::<Max, V>([x, x, *best, x]);
            }
        }
        let (mut row, mut all) = ([T::ZERO; WIDEST], [0.0; WIDEST]);
        for (j, best) in best.into_iter().enumerate() {
            // SAFETY: there are lanes for the widest vectors.
            unsafe { best.store(row.as_mut_ptr().add(j * lanes)) };
        }
        for_pairs(&mut all, &row, |to, x| *to = x.to_f64());
        all
    }

    #[inline(always)]
    fn pass<F: Terms, const N: usize, const AGAIN: bool, const WRITE: bool>(
        &self,
        constants: &[&Row<WIDEST>],
    ) -> [Row<WIDEST>; N] {
        let Line { operands: [x, g, w, b], y, n, step } = self.columns.first;
        let lanes = Vector::<T, V>::LANES;
        let zero = Vector::<T, V>::splat(T::ZERO);
        let mut c = [[zero; GROUP]; 5];
        let mut k = 0;
        while k < constants.len() {
            c[k] = vectors::<T, V>(constants[k]);
            k += 1;
        }
        let mut totals = [[0.0; WIDEST]; N];
        let [reads_g, reads_w, reads_b] = F::READS;
        let x = if AGAIN { y.cast_const() } else { x };
        let mut first = 0;
        while first < n {
            let end = if N == 0 { n } else { n.min(first + TERMS) };
            let mut parts = [[zero; GROUP]; N];
            for i in first..end {
                // SAFETY: the weight and the bias have n elements.
                let line = |p: *const T, reads: bool, missing: T| unsafe {
                    if reads && !p.is_null() { *p.add(i) } else { missing }
                };
                let w = Vector::<T, V>::splat(line(w, reads_w, T::ONE));
                let b = Vector::<T, V>::splat(line(b, reads_b, T::ZERO));
                let mut j = 0;
                while j < GROUP {
                    let (offset, count) = (i * step + j * lanes, self.lanes(j));
                    // SAFETY: these lanes are columns of position i, this task's own in y.
                    unsafe {
                        let x = Vector::<T, V>::load_up_to(x.wrapping_add(offset), count);
                        let g = match reads_g {
                            true => Vector::<T, V>::load_up_to(g.wrapping_add(offset), count),
                            false => x,
                        };
                        let c = [c[0][j], c[1][j], c[2][j], c[3][j], c[4][j]];
                        let terms = T::terms::<F, V>([x, g, w, b], c);
                        if WRITE {
                            terms[0].store_up_to(y.wrapping_add(offset), count);
                        }
                        let mut k = 0;
                        while k < N {
                            parts[k][j] = parts[k][j].add(terms[k]);
                            k += 1;
                        }
                    }
                    j += 1;
                }
            }
            let mut k = 0;
            while k < N {
                let mut row = [T::ZERO; WIDEST];
                for (j, part) in parts[k].into_iter().enumerate() {
                    // SAFETY: there are lanes for the widest vectors.
                    unsafe { part.store(row.as_mut_ptr().add(j * lanes)) };
                }
                for_pairs(&mut totals[k], &row, |total, part| *total += part.to_f64());
                k += 1;
            }
            first = end;
        }
        totals
    }
}

/// The natural logarithm of a normal number, within 2e-11; NaN of NaN. Without a branch or a call,
/// so that a loop of it is vectorised: `2 artanh(f)` by its series, where the mantissa m is between
/// the roots of 1/2 and 2, and f = (m - 1) / (m + 1).
#[inline(always)]
fn ln(x: f64) -> f64 {
    const HALF_ROOT: u64 = 0x3fe6_a09e_667f_3bcd;
    let above = x.to_bits().wrapping_sub(HALF_ROOT);
    let exponent = (above as i64 >> 52) as i32;
    let mantissa = f64::from_bits((above & 0x000f_ffff_ffff_ffff).wrapping_add(HALF_ROOT));
    let f = (mantissa - 1.0) / (mantissa + 1.0);
    let s = f * f;
    let series = 1.0 / 9.0 + s * (1.0 / 11.0 + s * (1.0 / 13.0 + s * (1.0 / 15.0)));
    let series = 1.0 + s * (1.0 / 3.0 + s * (1.0 / 5.0 + s * (1.0 / 7.0 + s * series)));
    let log = f64::from(exponent) * std::f64::consts::LN_2 + 2.0 * f * series;
    if x.is_nan() { x } else { log }
}

#[cfg(test)]
mod tests {
    #[test]
    fn logarithms_of_sums_are_near_the_exact_ones() {
        let mut x = 1.0f64;
        while x < 1e9 {
            let error = (super::ln(x) - x.ln()).abs();
            assert!(error <= 2e-11, "{x}: {error:e}");
            x *= 1.003;
        }
        assert!(super::ln(f64::NAN).is_nan() && super::ln(1.0) == 0.0);
    }
}
