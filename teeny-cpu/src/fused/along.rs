//! Rows one at a time, with lanes along them.

use super::functions::{Batch, FloatTerms, Function, Line, Max, Row, Rows, Terms};
use crate::float::Vector;
use crate::simd::{F32s, Lanes, Work, prefetch_ahead};
use crate::typed::slice;
use std::marker::PhantomData;

/// Terms that a lane adds in one chain, of one chain or of more, and sums of such chains that it
/// adds before they go on in f64. These are of the row's type, within 22 units of roundoff of the
/// sum of magnitudes.
const TERMS: [usize; 2] = [8, 16];
const GROUPS: [usize; 2] = [4, 1];
const MAX_CHAINS: usize = 4;

/// Rows one after the other, each of which is packed.
pub(super) struct Rowwise<'a, T, F>(pub &'a Batch<T>, pub PhantomData<F>);

impl<T: FloatTerms, F: Function> Work for Rowwise<'_, T, F> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        for r in 0..self.0.rows {
            let row = self.0.from(r, 1, r * self.0.first.n);
            F::run(&Along::<T, V> { row, of: PhantomData });
        }
    }
}

struct Along<T, V> {
    row: Batch<T>,
    of: PhantomData<V>,
}

impl<T: FloatTerms, V: F32s> Along<T, V> {
    /// The terms of the vector at `i`, or of its first `count` lanes.
    ///
    /// # Safety
    /// The row has these elements.
    #[inline(always)]
    unsafe fn terms<F: Terms, const AGAIN: bool, const WRITE: bool>(
        &self,
        i: usize,
        count: usize,
        constants: [Vector<T, V>; 5],
    ) -> [Vector<T, V>; 4] {
        let Line { operands: [x, g, w, b], y, .. } = self.row.first;
        let [reads_g, reads_w, reads_b] = F::READS;
        let missing = |x: T| Vector::<T, V>::splat(x);
        // SAFETY: by contract.
        unsafe {
            let load = |p: *const T| Vector::<T, V>::load_up_to(p.add(i), count);
            let x = if AGAIN { load(y) } else { load(x) };
            let g = if reads_g { load(g) } else { x };
            let w = if reads_w && !w.is_null() { load(w) } else { missing(T::ONE) };
            let b = if reads_b && !b.is_null() { load(b) } else { missing(T::ZERO) };
            let terms = T::terms::<F, V>([x, g, w, b], constants);
            if WRITE {
                terms[0].store_up_to(y.add(i), count);
            }
            terms
        }
    }
}

impl<T: FloatTerms, V: F32s> Rows<T, 1> for Along<T, V> {
    #[inline(always)]
    fn batch(&self) -> &Batch<T> {
        &self.row
    }

    #[inline(always)]
    fn log([x]: &Row<1>) -> Row<1> {
        [x.ln()]
    }

    /// By four vectors, so that comparing is not one chain of latencies.
    #[inline(always)]
    fn largest(&self) -> Row<1> {
        let lanes = Vector::<T, V>::LANES;
        let lowest = T::from_f64(f64::NEG_INFINITY);
        // SAFETY: the row has n elements.
        let x: &[T] = unsafe { slice(self.row.first.operands[0].cast(), self.row.first.n) };
        let mut best = [Vector::<T, V>::splat(lowest); MAX_CHAINS];
        let (mut i, n) = (0, x.len());
        macro_rules! larger {
            ($a:expr, $b:expr) => {{
                let (a, b) = ($a, $b);
                T::quaternary::<Max, V>([a, b, b, b])
            }};
        }
        // SAFETY: loads end at or before n.
        unsafe {
            while i + MAX_CHAINS * lanes <= n {
                prefetch_ahead(&x[i..i + MAX_CHAINS * lanes]);
                for (j, best) in best.iter_mut().enumerate() {
                    *best = larger!(Vector::<T, V>::load(x.as_ptr().add(i + j * lanes)), *best);
                }
                i += MAX_CHAINS * lanes;
            }
            while i + lanes <= n {
                best[0] = larger!(Vector::<T, V>::load(x.as_ptr().add(i)), best[0]);
                i += lanes;
            }
            if i < n && n >= lanes {
                // The last vector of the row; some elements are compared twice.
                best[1] = larger!(Vector::<T, V>::load(x.as_ptr().add(n - lanes)), best[1]);
                i = n;
            }
        }
        let (a, b) = (larger!(best[0], best[1]), larger!(best[2], best[3]));
        let mut all = T::largest::<V>(larger!(a, b));
        while i < n {
            all = if x[i] > all { x[i] } else { all };
            i += 1;
        }
        [all.to_f64()]
    }

    #[inline(always)]
    fn pass<F: Terms, const N: usize, const AGAIN: bool, const WRITE: bool>(
        &self,
        constants: &[&Row<1>],
    ) -> [Row<1>; N] {
        let (n, lanes) = (self.row.first.n, Vector::<T, V>::LANES);
        let zero = Vector::<T, V>::splat(T::ZERO);
        let mut c = [zero; 5];
        let mut k = 0;
        while k < constants.len() {
            c[k] = Vector::<T, V>::splat(T::from_f64(constants[k][0]));
            k += 1;
        }
        let kind = usize::from(F::CHAINS > 1);
        let (chain, whole) = match N {
            0 => (n, n),
            _ => (F::CHAINS * TERMS[kind] * lanes, GROUPS[kind] * F::CHAINS * TERMS[kind] * lanes),
        };
        let (mut totals, mut i) = ([[0.0]; N], 0);
        macro_rules! add {
            ($parts:expr, $terms:expr) => {{
                let (parts, terms) = (&mut $parts, $terms);
                let mut k = 0;
                while k < N {
                    parts[k] = parts[k].add(terms[k]);
                    k += 1;
                }
            }};
        }
        while i < n {
            let end = n.min(i + whole);
            let mut sums = [zero; N];
            while i < end {
                let stop = end.min(i + chain);
                let mut parts = [[zero; N]; MAX_CHAINS];
                // SAFETY: the row has n elements.
                unsafe {
                    while i + F::CHAINS * lanes <= stop {
                        let mut j = 0;
                        while j < F::CHAINS {
                            let terms = self.terms::<F, AGAIN, WRITE>(i + j * lanes, lanes, c);
                            add!(parts[j], terms);
                            j += 1;
                        }
                        i += F::CHAINS * lanes;
                    }
                    while F::CHAINS > 1 && i + lanes <= stop {
                        add!(parts[0], self.terms::<F, AGAIN, WRITE>(i, lanes, c));
                        i += lanes;
                    }
                    if i < stop {
                        let mut terms = self.terms::<F, AGAIN, WRITE>(i, stop - i, c);
                        let mut k = 0;
                        while k < N {
                            terms[k] = T::part::<V>(terms[k], stop - i);
                            k += 1;
                        }
                        add!(parts[F::CHAINS.min(2) - 1], terms);
                        i = stop;
                    }
                }
                let mut k = 0;
                while k < N {
                    let [a, b, c, d] = [parts[0][k], parts[1][k], parts[2][k], parts[3][k]];
                    let all = match F::CHAINS {
                        1 => a,
                        2 => a.add(b),
                        _ => a.add(b).add(c.add(d)),
                    };
                    sums[k] = sums[k].add(all);
                    k += 1;
                }
            }
            let mut k = 0;
            while k < N {
                totals[k][0] += sums[k].total().to_f64();
                k += 1;
            }
        }
        totals
    }
}
