//! The arithmetic of attention on tiles that stay in L1: small products, and what happens to rows of scores between them.
//!
//! f32 runs on vectors and the `microkernel`; f64 runs on plain loops and the `gemm` crate. Tiles are padded to whole vectors of the widest level, so no
//! product has a tail in its columns.

use crate::gemm::{self, Float, Matrix};
use crate::microkernel;
use crate::simd::{F32s, Level, Work};
use crate::vecmath;

/// What all widths of tiles are multiples of: the lanes of the widest vector.
pub(super) const PAD: usize = 16;

/// `c = a @ b` or `c += a @ b` for (m, k) @ (k, n), n a multiple of [`PAD`]; `a` in any layout, rows of `b` and `c` without gaps.
#[derive(Clone, Copy)]
pub(super) struct Product<T> {
    pub mnk: [usize; 3],
    pub a: Matrix<T>,
    pub b: *const T,
    pub b_row: usize,
    pub c: *mut T,
    pub c_row: usize,
    pub add: bool,
}

/// Rows of scores on their way through the forward pass.
pub(super) struct Soften<'a, T> {
    /// Scores in, `exp(s - max)` out; rows [`Soften::row`] apart, `n` columns in use.
    pub s: *mut T,
    pub row: usize,
    pub n: usize,
    /// The running maximum of each row: as many as there are rows.
    pub max: &'a mut [T],
    /// The running sum of each row, in [`PAD`] parts.
    pub sum: *mut T,
    /// What has been summed with the old maximum, to be rescaled: rows of `width`.
    pub acc: *mut T,
    pub width: usize,
}

/// Rows of scores on their way through the backward pass.
pub(super) struct Retrace<'a, T> {
    /// Scores in, probabilities out.
    pub s: *mut T,
    /// Gradients of the probabilities in, of the scores out; not touched without `inner`.
    pub ds: *mut T,
    pub row: usize,
    pub n: usize,
    /// The logsumexp of each row.
    pub lse: &'a [T],
    /// `Σ g y` of each row.
    pub inner: Option<&'a [T]>,
}

/// An element type with tile arithmetic.
pub(super) trait Real: Float + PartialOrd + std::ops::Add<Output = Self> + std::ops::Div<Output = Self> {
    /// Stands for -inf in scores.
    const LOWEST: Self;
    /// The logsumexp of nothing.
    const NOTHING: Self;
    /// The number.
    fn from_f64(x: f64) -> Self;
    /// Natural logarithm.
    fn log(self) -> Self;
    /// # Safety
    /// `a` and `b` are readable and `c` writable over the sizes; `c` overlaps neither.
    unsafe fn product(level: Level, p: Product<Self>);
    /// # Safety
    /// The rows are writable.
    unsafe fn soften(level: Level, rows: Soften<'_, Self>);
    /// # Safety
    /// The rows are writable.
    unsafe fn retrace(level: Level, rows: Retrace<'_, Self>);
}

impl Real for f32 {
    const LOWEST: f32 = f32::MIN;
    const NOTHING: f32 = f32::NEG_INFINITY;
    fn from_f64(x: f64) -> f32 {
        x as f32
    }
    fn log(self) -> f32 {
        f64::from(self).ln() as f32
    }
    unsafe fn product(level: Level, p: Product<f32>) {
        let Product { mnk, a, b, b_row, c, c_row, add } = p;
        // SAFETY: by contract.
        unsafe { microkernel::Product { mnk, a, b, b_step: b_row as isize, c, c_step: c_row as isize, add }.run(level) };
    }
    unsafe fn soften(level: Level, rows: Soften<'_, f32>) {
        level.run(rows);
    }
    unsafe fn retrace(level: Level, rows: Retrace<'_, f32>) {
        level.run(rows);
    }
}

impl Work for Soften<'_, f32> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        for (r, max) in self.max.iter_mut().enumerate() {
            // SAFETY: n and `width` are multiples of the lanes, and inside the row.
            unsafe {
                let row = self.s.add(r * self.row);
                let mut best = V::splat(*max);
                for c in (0..self.n).step_by(V::LANES) {
                    // The second operand wins over a NaN: NaN goes past the maximum and into the sum.
                    best = V::load(row.add(c)).max(best);
                }
                let mut lanes = [f32::MIN; 16];
                best.store(lanes.as_mut_ptr());
                for half in [8, 4, 2, 1] {
                    for i in 0..half {
                        lanes[i] = if lanes[i + half] > lanes[i] { lanes[i + half] } else { lanes[i] };
                    }
                }
                // A row that has seen nothing is shifted by 0: its scores stay the lowest there are, and their exponentials 0.
                let shift = if lanes[0] == f32::MIN { 0.0 } else { lanes[0] };
                let mut alpha = [0.0f32; 16];
                vecmath::exp(V::splat(*max - shift)).store(alpha.as_mut_ptr());
                *max = lanes[0];
                let (shift, alpha) = (V::splat(shift), V::splat(alpha[0]));
                let mut sum = V::load(self.sum.add(r * PAD)).mul(alpha);
                for c in (0..self.n).step_by(V::LANES) {
                    let p = vecmath::exp(V::load(row.add(c)).sub(shift));
                    p.store(row.add(c));
                    sum = sum.add(p);
                }
                sum.store(self.sum.add(r * PAD));
                let acc = self.acc.add(r * self.width);
                for c in (0..self.width).step_by(V::LANES) {
                    V::load(acc.add(c)).mul(alpha).store(acc.add(c));
                }
            }
        }
    }
}

impl Work for Retrace<'_, f32> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        for (r, &lse) in self.lse.iter().enumerate() {
            // SAFETY: n is a multiple of the lanes, and inside the row.
            unsafe {
                let (row, ds) = (self.s.add(r * self.row), self.ds.wrapping_add(r * self.row));
                // Of a row that sees nothing every score is the lowest: shifted by 0, all probabilities are 0.
                let shift = V::splat(if lse == f32::NEG_INFINITY { 0.0 } else { lse });
                let inner = V::splat(self.inner.map_or(0.0, |inner| inner[r]));
                for c in (0..self.n).step_by(V::LANES) {
                    let p = vecmath::exp(V::load(row.add(c)).sub(shift));
                    p.store(row.add(c));
                    if self.inner.is_some() {
                        p.mul(V::load(ds.add(c)).sub(inner)).store(ds.add(c));
                    }
                }
            }
        }
    }
}

impl Real for f64 {
    const LOWEST: f64 = f64::MIN;
    const NOTHING: f64 = f64::NEG_INFINITY;
    fn from_f64(x: f64) -> f64 {
        x
    }
    fn log(self) -> f64 {
        self.ln()
    }
    unsafe fn product(_: Level, p: Product<f64>) {
        let c = Matrix { ptr: p.c.cast_const(), rows: p.c_row as isize, cols: 1 };
        let b = Matrix { ptr: p.b, rows: p.b_row as isize, cols: 1 };
        // SAFETY: by contract.
        unsafe { gemm::tile(p.mnk, c, if p.add { 1.0 } else { 0.0 }, 1.0, p.a, b) };
    }
    unsafe fn soften(_: Level, rows: Soften<'_, f64>) {
        for (r, max) in rows.max.iter_mut().enumerate() {
            // SAFETY: by contract.
            let (s, sum, acc) = unsafe {
                let sum = &mut *rows.sum.add(r * PAD);
                let acc = std::slice::from_raw_parts_mut(rows.acc.add(r * rows.width), rows.width);
                (std::slice::from_raw_parts_mut(rows.s.add(r * rows.row), rows.n), sum, acc)
            };
            let best = s.iter().fold(*max, |best, &v| if v > best { v } else { best });
            let shift = if best == f64::MIN { 0.0 } else { best };
            let alpha = (*max - shift).exp();
            *max = best;
            *sum *= alpha;
            for v in s {
                *v = (*v - shift).exp();
                *sum += *v;
            }
            acc.iter_mut().for_each(|v| *v *= alpha);
        }
    }
    unsafe fn retrace(_: Level, rows: Retrace<'_, f64>) {
        for (r, &lse) in rows.lse.iter().enumerate() {
            let shift = if lse == f64::NEG_INFINITY { 0.0 } else { lse };
            for c in 0..rows.n {
                // SAFETY: by contract.
                unsafe {
                    let (s, ds) = (rows.s.add(r * rows.row + c), rows.ds.wrapping_add(r * rows.row + c));
                    *s = (*s - shift).exp();
                    if let Some(inner) = rows.inner {
                        *ds = *s * (*ds - inner[r]);
                    }
                }
            }
        }
    }
}
