//! Rows of f64 of the normalisations of `norm`, by vectors of f64.
//!
//! The naive form is that of `norm`: the mean, the variance, and the result. All that a gradient
//! needs beside the mean is summed in one pass.

use super::Norm;
use super::norm::{Pass, Row};
use crate::simd::{F32s, Lanes, Work};

/// A vector of `x` at `i`, of `count` lanes that exist; of `missing` if there is no `x`.
///
/// # Safety
/// These values must be readable.
#[inline(always)]
unsafe fn load_f64<D: Lanes<f64>>(x: Option<&[f64]>, i: usize, count: usize, missing: f64) -> D {
    let Some(x) = x else { return D::splat(missing) };
    // SAFETY: the caller's.
    unsafe { D::load_up_to(x.as_ptr().add(i), count) }
}

impl Row<'_, f64> {
    /// The sums over the row of x; or, of `x - mean`, the sums of its square, of b w, and of
    /// b w times it.
    #[inline(always)]
    fn sums<D: Lanes<f64>>(&self, mean: Option<f64>, weighs: bool) -> [f64; 3] {
        const CHAINS: usize = 4;
        let n = self.x.len();
        let minus_mean = D::splat(-mean.unwrap_or(0.0));
        let mut sums = [[D::splat(0.0); 3]; CHAINS];
        let mut tail = [0.0; 3];
        let mut i = 0;
        // SAFETY: all operands have x's length.
        unsafe {
            while i + CHAINS * D::LANES <= n {
                for (j, sums) in sums.iter_mut().enumerate() {
                    let at = i + j * D::LANES;
                    let c = D::load(self.x.as_ptr().add(at)).add(minus_mean);
                    let square = if mean.is_some() { c.mul(c) } else { c };
                    sums[0] = sums[0].add(square);
                    if weighs {
                        let b: D = load_f64(self.b, at, D::LANES, 0.0);
                        let weighed = b.mul(load_f64(self.w, at, D::LANES, 1.0));
                        sums[1] = sums[1].add(weighed);
                        sums[2] = sums[2].add(weighed.mul(c));
                    }
                }
                i += CHAINS * D::LANES;
            }
        }
        for i in i..n {
            let c = self.x[i] - mean.unwrap_or(0.0);
            let weighed = self.b.map_or(0.0, |b| b[i]) * self.w.map_or(1.0, |w| w[i]);
            tail[0] += if mean.is_some() { c * c } else { c };
            tail[1] += weighed;
            tail[2] += weighed * c;
        }
        let [a, b, c, d] = sums;
        for (j, tail) in tail.iter_mut().enumerate() {
            *tail += a[j].add(b[j]).add(c[j].add(d[j])).total();
        }
        tail
    }
}

impl Work for Row<'_, f64> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let n = self.x.len() as f64;
        let layer = self.norm == Norm::Layer;
        let gradient = matches!(self.pass, Pass::Gradient);
        let mean = if layer { self.sums::<V::F64s>(None, false)[0] / n } else { 0.0 };
        let [squares, weighed, along] = self.sums::<V::F64s>(Some(mean), gradient);
        let scale = 1.0 / (squares / n + self.eps).sqrt();
        let shift = if layer { weighed / n } else { 0.0 };
        let along = along * scale / n;
        let splat = <V::F64s as Lanes<f64>>::splat;
        let (minus_mean, scales) = (splat(-mean), splat(scale));
        let (minus_shift, minus_along) = (splat(-shift), splat(-along));
        let (len, lanes) = (self.x.len(), <V::F64s as Lanes<f64>>::LANES);
        let mut i = 0;
        while i < len {
            let count = lanes.min(len - i);
            // SAFETY: all operands have x's length.
            unsafe {
                let x: V::F64s = load_f64(Some(self.x), i, count, 0.0);
                let w = load_f64(self.w, i, count, 1.0);
                let b: V::F64s = load_f64(self.b, i, count, 0.0);
                let h = x.add(minus_mean).mul(scales);
                let y = if gradient {
                    scales.mul(b.mul(w).add(minus_shift).add(h.mul(minus_along)))
                } else {
                    h.mul(w).add(b)
                };
                y.store_up_to(self.y.as_mut_ptr().add(i), count);
            }
            i += count;
        }
    }
}
