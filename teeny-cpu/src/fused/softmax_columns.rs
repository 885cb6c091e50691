//! Softmax and its relatives along an axis that is not the last.
//!
//! ```text
//!   (outer, n, inner)   a group of neighbouring columns, whole cache lines of each row, at once
//! ```
//! The naive form gathers each column to a row, and brings the result back: four passes over memory
//! more. Here lanes are columns, so that maxima and sums need no exchange between lanes. The passes
//! over a group follow one another while it is cached. Sums are of 32 terms in f32, and of these in
//! f64, as those of rows. Next: `softmax`, for rows and the functions.

use super::Row;
use crate::Cpu;
use crate::simd::{F32s, Work, for_pairs};
use crate::storage::Shared;
use crate::threads::for_each_range;
use crate::vecmath;

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
pub(super) unsafe fn columns(
    cpu: &Cpu,
    row: Row,
    x: *const f32,
    g: *const f32,
    y: *mut f32,
    [outer, n, inner]: [usize; 3],
) {
    let groups = inner.div_ceil(WIDEST);
    let (x, g, y) = (Shared(x.cast_mut()), Shared(g.cast_mut()), Shared(y));
    for_each_range(outer * groups, CHUNK / (n * inner.min(WIDEST)), |tasks| {
        for task in tasks {
            let first = task % groups * WIDEST;
            let at = task / groups * n * inner + first;
            cpu.level.run(Columns {
                row,
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
pub(super) struct Columns {
    pub row: Row,
    pub x: *const f32,
    pub g: *const f32,
    pub y: *mut f32,
    pub n: usize,
    pub step: usize,
    pub width: usize,
}

/// A function of one vector each of x and g with the constants of their columns.
trait Term<V> {
    /// Whether it reads g.
    const READS_G: bool = false;
    fn term(&self, x: V, g: V, j: usize) -> V;
}

/// `exp(x - max)`
struct ExpBelow<'a, V>(&'a [V; GROUP]);
/// `x / sum`
struct Share<'a, V>(&'a [V; GROUP]);
/// `x - max - rest - log`
struct Below<'a, V>(&'a [V; GROUP], &'a [V; GROUP], &'a [V; GROUP]);
/// `x g`
struct Product;
/// `x (g - sum)`
struct Centred<'a, V>(&'a [V; GROUP]);
/// `g`
struct Plain;
/// `g - exp(x) sum`
struct LessExp<'a, V>(&'a [V; GROUP]);

impl<V: F32s> Term<V> for ExpBelow<'_, V> {
    #[inline(always)]
    fn term(&self, x: V, _: V, j: usize) -> V {
        vecmath::exp(x.sub(self.0[j]))
    }
}
impl<V: F32s> Term<V> for Share<'_, V> {
    #[inline(always)]
    fn term(&self, x: V, _: V, j: usize) -> V {
        x.div(self.0[j])
    }
}
impl<V: F32s> Term<V> for Below<'_, V> {
    #[inline(always)]
    fn term(&self, x: V, _: V, j: usize) -> V {
        x.sub(self.0[j]).sub(self.1[j]).sub(self.2[j])
    }
}
impl<V: F32s> Term<V> for Product {
    const READS_G: bool = true;
    #[inline(always)]
    fn term(&self, x: V, g: V, _: usize) -> V {
        x.mul(g)
    }
}
impl<V: F32s> Term<V> for Centred<'_, V> {
    const READS_G: bool = true;
    #[inline(always)]
    fn term(&self, x: V, g: V, j: usize) -> V {
        x.mul(g.sub(self.0[j]))
    }
}
impl<V: F32s> Term<V> for Plain {
    const READS_G: bool = true;
    #[inline(always)]
    fn term(&self, _: V, g: V, _: usize) -> V {
        g
    }
}
impl<V: F32s> Term<V> for LessExp<'_, V> {
    const READS_G: bool = true;
    #[inline(always)]
    fn term(&self, x: V, g: V, j: usize) -> V {
        g.sub(vecmath::exp(x).mul(self.0[j]))
    }
}

/// The lanes of a group of columns that exist.
#[derive(Clone, Copy)]
struct Lanes {
    width: usize,
}

impl Lanes {
    /// How many lanes of vector `j`.
    #[inline(always)]
    fn of<V: F32s, const FULL: bool>(self, j: usize) -> usize {
        if FULL { V::LANES } else { self.width.saturating_sub(j * V::LANES).min(V::LANES) }
    }
}

impl Columns {
    /// The largest element of each column; a NaN is ignored, as every sum of exponentials has it.
    #[inline(always)]
    fn largest<V: F32s, const FULL: bool>(&self, at: usize, lanes: Lanes) -> [V; GROUP] {
        let mut best = [V::splat(f32::NEG_INFINITY); GROUP];
        for i in 0..self.n {
            for (j, best) in best.iter_mut().enumerate() {
                // SAFETY: these lanes are columns of row i.
                let x = unsafe {
                    V::load_up_to(
                        self.x.wrapping_add(i * self.step + at + j * V::LANES),
                        lanes.of::<V, FULL>(j),
                    )
                };
                // max returns the second operand if either is NaN.
                *best = x.max(*best);
            }
        }
        best
    }

    /// Writes the terms of the columns from `at` on, or of the result if `again`, and returns their
    /// sums.
    #[inline(always)]
    fn pass<V: F32s, const FULL: bool, const WRITE: bool, T: Term<V>>(
        &self,
        at: usize,
        lanes: Lanes,
        again: bool,
        sums: Option<&mut [f64; WIDEST]>,
        term: T,
    ) {
        let mut none = [0.0; WIDEST];
        let adds = sums.is_some();
        let sums = sums.unwrap_or(&mut none);
        let x = if again { self.y.cast_const() } else { self.x };
        for first in (0..self.n).step_by(TERMS) {
            let mut parts = [V::splat(0.0); GROUP];
            for i in first..self.n.min(first + TERMS) {
                for (j, part) in parts.iter_mut().enumerate() {
                    let (offset, n) = (i * self.step + at + j * V::LANES, lanes.of::<V, FULL>(j));
                    // SAFETY: these lanes are columns of row i, which belong to this task in y.
                    unsafe {
                        let x = V::load_up_to(x.wrapping_add(offset), n);
                        let g = match T::READS_G {
                            true => V::load_up_to(self.g.wrapping_add(offset), n),
                            false => x,
                        };
                        let v = term.term(x, g, j);
                        *part = part.add(v);
                        if WRITE {
                            v.store_up_to(self.y.wrapping_add(offset), n);
                        }
                    }
                }
            }
            if adds {
                let mut row = [0.0f32; WIDEST];
                for (j, part) in parts.into_iter().enumerate() {
                    // SAFETY: there are lanes for the widest vectors.
                    unsafe { part.store(row.as_mut_ptr().add(j * V::LANES)) };
                }
                for_pairs(&mut sums[..], &row, |sum, part| *sum += f64::from(part));
            }
        }
    }

    #[inline(always)]
    fn group<V: F32s, const FULL: bool>(&self, at: usize, lanes: Lanes) {
        let mut sums = [0.0f64; WIDEST];
        match self.row {
            Row::Softmax => {
                let max = self.largest::<V, FULL>(at, lanes);
                self.pass::<V, FULL, true, _>(at, lanes, false, Some(&mut sums), ExpBelow(&max));
                let sums = vectors(&rounded(&sums));
                self.pass::<V, FULL, true, _>(at, lanes, true, None, Share(&sums));
            }
            Row::LogSoftmax => {
                let max = self.largest::<V, FULL>(at, lanes);
                self.pass::<V, FULL, false, _>(at, lanes, false, Some(&mut sums), ExpBelow(&max));
                let mut logs = [0.0; WIDEST];
                for_pairs(&mut logs, &sums, |log, sum| *log = ln(sum));
                let (high, mut rests) = (rounded(&logs), [0.0; WIDEST]);
                for_pairs(&mut logs, &high, |log, high| *log -= f64::from(high));
                for_pairs(&mut rests, &logs, |rest, log| *rest = log as f32);
                let (logs, rests) = (vectors(&high), vectors(&rests));
                self.pass::<V, FULL, true, _>(at, lanes, false, None, Below(&max, &rests, &logs));
            }
            Row::SoftmaxGrad => {
                self.pass::<V, FULL, false, _>(at, lanes, false, Some(&mut sums), Product);
                let sums = vectors(&rounded(&sums));
                self.pass::<V, FULL, true, _>(at, lanes, false, None, Centred(&sums));
            }
            Row::LogSoftmaxGrad => {
                self.pass::<V, FULL, false, _>(at, lanes, false, Some(&mut sums), Plain);
                let sums = vectors(&rounded(&sums));
                self.pass::<V, FULL, true, _>(at, lanes, false, None, LessExp(&sums));
            }
        }
    }
}

/// All numbers as f32. A loop and not `map`, which may not be inlined.
#[inline(always)]
fn rounded(numbers: &[f64; WIDEST]) -> [f32; WIDEST] {
    let mut out = [0.0; WIDEST];
    for_pairs(&mut out, numbers, |to, number| *to = number as f32);
    out
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
fn vectors<V: F32s>(lanes: &[f32; WIDEST]) -> [V; GROUP] {
    // SAFETY: there are lanes for the widest vectors.
    std::array::from_fn(|j| unsafe { V::load(lanes.as_ptr().add(j * V::LANES)) })
}

impl Work for Columns {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let mut at = 0;
        while at < self.width {
            let width = (self.width - at).min(GROUP * V::LANES);
            if width == GROUP * V::LANES {
                self.group::<V, true>(at, Lanes { width });
            } else {
                self.group::<V, false>(at, Lanes { width });
            }
            at += GROUP * V::LANES;
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
