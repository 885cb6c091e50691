//! Rows beside each other, with a row in each lane: columns.
//!
//! ```text
//!   (n, width)   a group of neighbouring columns, whole cache lines of each position, at once
//! ```
//! Maxima and sums need no exchange between lanes. The passes over a group follow one another while
//! it is cached. Sums are of 32 terms in T, and of these in f64.

use super::functions::{Batch, FloatTerms, Function, Line, Max, Rows, Terms};
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
            F::run(Across::<T, V> { columns, of: PhantomData });
            at += lanes;
        }
    }
}

/// The columns of one group.
struct Across<T, V> {
    columns: Batch<T>,
    of: PhantomData<V>,
}

impl<T: Copy, V> Copy for Across<T, V> {}
impl<T: Copy, V> Clone for Across<T, V> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

/// All numbers as vectors of T. A loop and not `map`, which may not be inlined.
#[inline(always)]
fn vectors<T: FloatTerms, V: F32s>(numbers: &[f64; WIDEST]) -> [Vector<T, V>; GROUP] {
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
    fn lanes(self, j: usize) -> usize {
        let lanes = Vector::<T, V>::LANES;
        self.columns.rows.saturating_sub(j * lanes).min(lanes)
    }

    /// `f` of each column's number.
    #[inline(always)]
    fn of_columns(self, f: impl Fn(usize) -> f64) -> [f64; WIDEST] {
        let mut row = [0.0; WIDEST];
        let mut j = 0;
        while j < self.columns.rows.min(WIDEST) {
            row[j] = f(j);
            j += 1;
        }
        row
    }
}

impl<T: FloatTerms, V: F32s> Rows<T> for Across<T, V> {
    type Row = [f64; WIDEST];

    #[inline(always)]
    fn len(self) -> usize {
        self.columns.first.n
    }

    #[inline(always)]
    fn eps(self) -> f64 {
        self.columns.eps
    }

    #[inline(always)]
    fn number(x: f64) -> Self::Row {
        [x; WIDEST]
    }

    #[inline(always)]
    fn each<const N: usize>(x: [&Self::Row; N], f: impl Fn([f64; N]) -> f64) -> Self::Row {
        let mut row = [0.0; WIDEST];
        let mut j = 0;
        while j < WIDEST {
            let mut numbers = [0.0; N];
            let mut i = 0;
            while i < N {
                numbers[i] = x[i][j];
                i += 1;
            }
            row[j] = f(numbers);
            j += 1;
        }
        row
    }

    #[inline(always)]
    fn log(x: &Self::Row) -> Self::Row {
        if size_of::<T>() == 4 {
            return Self::each([x], |[x]| ln(x));
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
    fn largest(self) -> Self::Row {
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
        self,
        constants: &[&Self::Row],
    ) -> [Self::Row; N] {
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

    #[inline(always)]
    fn loss_gradients(self) -> Self::Row {
        // SAFETY: there is one for each column.
        self.of_columns(|j| unsafe { (*self.columns.loss_gradients.add(j)).to_f64() })
    }

    #[inline(always)]
    fn at_targets(self) -> Self::Row {
        let Line { operands: [x, ..], step, .. } = self.columns.first;
        // SAFETY: a target is a position of the column.
        let at = |j, t| unsafe { (*x.wrapping_add(t * step + j)).to_f64() };
        self.of_columns(|j| self.columns.target(j).map_or(0.0, |t| at(j, t)))
    }

    #[inline(always)]
    fn subtract_at_targets(self, x: &Self::Row) {
        let Line { y, n, step, .. } = self.columns.first;
        for (j, &x) in x.iter().enumerate().take(self.columns.rows) {
            let at = |i: usize| y.wrapping_add(i * step + j);
            // SAFETY: a target is a position of the column, which has n elements.
            unsafe {
                match self.columns.target(j) {
                    Some(t) if t < n => *at(t) = *at(t) - T::from_f64(x),
                    Some(_) => {}
                    None => (0..n).for_each(|i| at(i).write(T::ZERO)),
                }
            }
        }
    }

    #[inline(always)]
    fn write_losses(self, losses: &Self::Row) {
        for (j, &loss) in losses.iter().enumerate().take(self.columns.rows) {
            let loss = self.columns.target(j).map_or(T::ZERO, |_| T::from_f64(loss));
            // SAFETY: the loss of each column has a place.
            unsafe { self.columns.losses.add(j).write(loss) };
        }
    }

    #[inline(always)]
    fn for_rows<const N: usize>(
        self,
        x: [&Self::Row; N],
        test: impl Fn([f64; N]) -> bool,
        f: impl Fn(Line<T>),
    ) {
        let chosen = Self::each(x, |x| if test(x) { 1.0 } else { 0.0 });
        for (j, _) in chosen.iter().enumerate().take(self.columns.rows).filter(|x| *x.1 == 1.0) {
            f(self.columns.from(j, 1, j).first);
        }
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
