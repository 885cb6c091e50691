//! Softmax and its relatives along an axis that is not the last.
//!
//! ```text
//!   (outer, n, inner)   a group of neighbouring columns, whole cache lines of each row, at once
//! ```
//! The naive form gathers each column to a row, and brings the result back: four passes over memory
//! more. Here lanes are columns, so that maxima and sums need no exchange between lanes. The passes
//! over a group follow one another while it is cached. Sums are of 32 terms in f32, and of these in
//! f64, as those of rows; f32 and f64 have the same loops. Next: `softmax`, for rows, and `terms`,
//! the functions.

use super::SoftmaxKind;
use super::terms::{DivSum, ExpSubMax, Grad, Max, MulGrad, MulSubSum, SubExpMul, SubMaxLog, Term};
use crate::Cpu;
use crate::float::{Number, Vector};
use crate::simd::{F32s, Lanes, Work, for_pairs};
use crate::storage::Shared;
use crate::threads::for_each_range;
use crate::vecmath::double::log;

/// Vectors of a group.
const GROUP: usize = 4;
/// Columns of the widest group.
const WIDEST: usize = GROUP * 16;
/// Terms that are added in f32.
const TERMS: usize = 32;
/// Columns from which they are not gathered to rows.
const MIN_COLUMNS: usize = 8;
/// Elements below which one thread computes.
const CHUNK: usize = 4 << 10;

/// Whether columns of `inner` elements beside each other are computed where they are.
pub(super) fn in_place(inner: usize) -> bool {
    inner >= MIN_COLUMNS
}

/// The row function of `(outer, n, inner)` along the middle axis; `g` is read by the gradients.
///
/// # Safety
/// All three have these elements, and the result has no other owner.
pub(super) unsafe fn columns<T: Number>(
    cpu: &Cpu,
    kind: SoftmaxKind,
    x: *const T,
    g: *const T,
    y: *mut T,
    [outer, n, inner]: [usize; 3],
) {
    let groups = inner.div_ceil(WIDEST);
    let (x, g, y) = (Shared(x.cast_mut()), Shared(g.cast_mut()), Shared(y));
    for_each_range(outer * groups, CHUNK / (n * inner.min(WIDEST)), |tasks| {
        for task in tasks {
            let first = task % groups * WIDEST;
            let at = task / groups * n * inner + first;
            cpu.level.run(Columns {
                kind,
                x: x.get().wrapping_add(at),
                g: g.get().wrapping_add(at),
                y: y.get().wrapping_add(at),
                n,
                step: inner,
                width: WIDEST.min(inner - first),
            });
        }
    });
}

/// Columns of `n` elements that are `step` apart.
pub(super) struct Columns<T> {
    pub kind: SoftmaxKind,
    pub x: *const T,
    pub g: *const T,
    pub y: *mut T,
    pub n: usize,
    pub step: usize,
    pub width: usize,
}

/// A number of each column of a group.
type Group<T, V> = [Vector<T, V>; GROUP];

impl<T: Number> Columns<T> {
    /// How many lanes of vector `j` of the group at `at` are columns.
    #[inline(always)]
    fn lanes<V: F32s, const FULL: bool>(&self, at: usize, j: usize) -> usize {
        let (first, lanes) = (at + j * Vector::<T, V>::LANES, Vector::<T, V>::LANES);
        if FULL { lanes } else { self.width.saturating_sub(first).min(lanes) }
    }

    /// The largest element of each column; a NaN is ignored, as every sum of exponentials has it.
    #[inline(always)]
    fn largest<V: F32s, const FULL: bool>(&self, at: usize) -> Group<T, V> {
        let mut best = [Vector::<T, V>::splat(T::from_f64(f64::NEG_INFINITY)); GROUP];
        for i in 0..self.n {
            for (j, best) in best.iter_mut().enumerate() {
                let from = self.x.wrapping_add(i * self.step + at + j * Vector::<T, V>::LANES);
                // SAFETY: these lanes are columns of row i.
                let x = unsafe { Vector::<T, V>::load_up_to(from, self.lanes::<V, FULL>(at, j)) };
                *best = T::quaternary::<Max, V>([x, x, *best, x]);
            }
        }
        best
    }

    /// Computes the terms of the columns from `at` on with the constants c, a and b, and returns
    /// their sums; they are written with `WRITE`. Reads the result instead of x if `again`.
    #[inline(always)]
    fn pass<V: F32s, F: Term, const FULL: bool, const WRITE: bool>(
        &self,
        at: usize,
        again: bool,
        [c, a, b]: [&Group<T, V>; 3],
        sums: Option<&mut [f64; WIDEST]>,
    ) {
        let mut none = [0.0; WIDEST];
        let adds = sums.is_some();
        let sums = sums.unwrap_or(&mut none);
        let x = if again { self.y.cast_const() } else { self.x };
        let lanes = Vector::<T, V>::LANES;
        for first in (0..self.n).step_by(TERMS) {
            let mut parts = [Vector::<T, V>::splat(T::ZERO); GROUP];
            for i in first..self.n.min(first + TERMS) {
                for (j, part) in parts.iter_mut().enumerate() {
                    let offset = i * self.step + at + j * lanes;
                    let n = self.lanes::<V, FULL>(at, j);
                    // SAFETY: these lanes are columns of row i, which belong to this task in y.
                    unsafe {
                        let x = Vector::<T, V>::load_up_to(x.wrapping_add(offset), n);
                        let g = match F::READS_G {
                            true => Vector::<T, V>::load_up_to(self.g.wrapping_add(offset), n),
                            false => c[j],
                        };
                        let v = T::quaternary::<F, V>([x, g, a[j], b[j]]);
                        *part = part.add(v);
                        if WRITE {
                            v.store_up_to(self.y.wrapping_add(offset), n);
                        }
                    }
                }
            }
            if adds {
                let mut row = [T::ZERO; WIDEST];
                for (j, part) in parts.into_iter().enumerate() {
                    // SAFETY: there are lanes for the widest vectors.
                    unsafe { part.store(row.as_mut_ptr().add(j * lanes)) };
                }
                for_pairs(&mut sums[..], &row, |sum, part| *sum += part.to_f64());
            }
        }
    }

    #[inline(always)]
    fn group<V: F32s, const FULL: bool>(&self, at: usize) {
        let zero = &[Vector::<T, V>::splat(T::ZERO); GROUP];
        let mut sums = [0.0f64; WIDEST];
        let sum = Some(&mut sums);
        match self.kind {
            SoftmaxKind::Softmax => {
                let max = &self.largest::<V, FULL>(at);
                self.pass::<V, ExpSubMax, FULL, true>(at, false, [zero, max, zero], sum);
                let sums = &vectors::<T, V>(&rounded(&sums));
                self.pass::<V, DivSum, FULL, true>(at, true, [zero, sums, zero], None);
            }
            SoftmaxKind::LogSoftmax => {
                let max = &self.largest::<V, FULL>(at);
                self.pass::<V, ExpSubMax, FULL, false>(at, false, [zero, max, zero], sum);
                logarithms::<T, V>(&mut sums);
                let logs = rounded::<T>(&sums);
                for_pairs(&mut sums[..], &logs, |sum, log| *sum -= log.to_f64());
                let (logs, rests) = (&vectors::<T, V>(&logs), &vectors::<T, V>(&rounded(&sums)));
                self.pass::<V, SubMaxLog, FULL, true>(at, false, [rests, max, logs], None);
            }
            SoftmaxKind::SoftmaxGrad => {
                self.pass::<V, MulGrad, FULL, false>(at, false, [zero; 3], sum);
                let sums = &vectors::<T, V>(&rounded(&sums));
                self.pass::<V, MulSubSum, FULL, true>(at, false, [zero, sums, zero], None);
            }
            SoftmaxKind::LogSoftmaxGrad => {
                self.pass::<V, Grad, FULL, false>(at, false, [zero; 3], sum);
                let sums = &vectors::<T, V>(&rounded(&sums));
                self.pass::<V, SubExpMul, FULL, true>(at, false, [zero, sums, zero], None);
            }
        }
    }
}

/// All numbers as T. A loop and not `map`, which may not be inlined.
#[inline(always)]
fn rounded<T: Number>(numbers: &[f64; WIDEST]) -> [T; WIDEST] {
    let mut out = [T::ZERO; WIDEST];
    for_pairs(&mut out, numbers, |to, number| *to = T::from_f64(number));
    out
}

/// The logarithms of all numbers, in their place, as exact as T.
#[inline(always)]
fn logarithms<T: Number, V: F32s>(numbers: &mut [f64; WIDEST]) {
    if size_of::<T>() == 4 {
        let sums = *numbers;
        return for_pairs(&mut numbers[..], &sums, |log, sum| *log = ln(sum));
    }
    for i in (0..WIDEST).step_by(V::F64s::LANES) {
        let p = numbers.as_mut_ptr().wrapping_add(i);
        // SAFETY: whole vectors of the array.
        unsafe { log(V::F64s::load(p)).store(p) };
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

/// The first lanes as the vectors of a group.
#[inline(always)]
fn vectors<T: Number, V: F32s>(lanes: &[T; WIDEST]) -> Group<T, V> {
    // SAFETY: there are lanes for the widest vectors.
    std::array::from_fn(|j| unsafe {
        Vector::<T, V>::load(lanes.as_ptr().add(j * Vector::<T, V>::LANES))
    })
}

impl<T: Number> Work for Columns<T> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let group = GROUP * Vector::<T, V>::LANES;
        let mut at = 0;
        while at < self.width {
            if at + group <= self.width {
                self.group::<V, true>(at);
            } else {
                self.group::<V, false>(at);
            }
            at += group;
        }
    }
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
