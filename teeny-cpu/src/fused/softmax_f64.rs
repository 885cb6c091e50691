//! Softmax, its relatives and their gradients in f64, a row at a time.
//!
//! The naive form calls `exp` element by element. Here lanes are the elements of a row. Next:
//! `softmax`, which chooses.

use super::Row;
use crate::simd::{F32s, F64s, Work};
use crate::vecmath::double::exp;

/// Vectors whose sums or maxima are not one chain of latencies.
const VECTORS: usize = 4;
/// Lanes of the widest vector.
const WIDEST: usize = 8;

/// `exp(x - a)`
const EXP_BELOW: u8 = 0;
/// `x / a`
const SHARE: u8 = 1;
/// `x - a - b`
const BELOW: u8 = 2;
/// `x g`
const PRODUCT: u8 = 3;
/// `x (g - a)`
const CENTRED: u8 = 4;
/// `g`
const PLAIN: u8 = 5;
/// `g - exp(x) a`
const LESS_EXP: u8 = 6;

#[inline(always)]
fn term<D: F64s, const OP: u8>(x: D, g: D, a: D, b: D) -> D {
    match OP {
        EXP_BELOW => exp(x.sub(a)),
        SHARE => x.div(a),
        BELOW => x.sub(a).sub(b),
        PRODUCT => x.mul(g),
        CENTRED => x.mul(g.sub(a)),
        PLAIN => g,
        _ => g.sub(exp(x).mul(a)),
    }
}

/// The largest element that is not NaN: a NaN makes every sum of exponentials NaN anyway.
#[inline(always)]
fn largest<D: F64s>(x: &[f64]) -> f64 {
    let mut best = [D::splat(f64::NEG_INFINITY); VECTORS];
    let (mut i, n) = (0, x.len());
    // SAFETY: loads end at or before n.
    unsafe {
        while i + VECTORS * D::LANES <= n {
            for (j, best) in best.iter_mut().enumerate() {
                // max returns the second operand if either is NaN.
                *best = D::load(x.as_ptr().add(i + j * D::LANES)).max(*best);
            }
            i += VECTORS * D::LANES;
        }
        while i + D::LANES <= n {
            best[0] = D::load(x.as_ptr().add(i)).max(best[0]);
            i += D::LANES;
        }
    }
    let mut lanes = [f64::NEG_INFINITY; WIDEST];
    // SAFETY: the array has the lanes of the widest vector.
    unsafe { best[0].max(best[1]).max(best[2].max(best[3])).store(lanes.as_mut_ptr()) };
    let mut largest = f64::NEG_INFINITY;
    let mut j = 0;
    while j < D::LANES {
        largest = if lanes[j] > largest { lanes[j] } else { largest };
        j += 1;
    }
    while i < n {
        largest = if x[i] > largest { x[i] } else { largest };
        i += 1;
    }
    largest
}

/// The terms of a row, written to `y` unless it is null, and their sum.
///
/// # Safety
/// `n` values are readable at `x` and `g`, and writable at `y`.
#[inline(always)]
unsafe fn pass<D: F64s, const OP: u8>(
    x: *const f64,
    g: *const f64,
    y: *mut f64,
    n: usize,
    a: f64,
    b: f64,
) -> f64 {
    let (a, b) = (D::splat(a), D::splat(b));
    let mut sums = [D::splat(0.0); VECTORS];
    let mut i = 0;
    // SAFETY: by contract.
    unsafe {
        while i + VECTORS * D::LANES <= n {
            for (j, sum) in sums.iter_mut().enumerate() {
                let at = i + j * D::LANES;
                let v = term::<D, OP>(D::load(x.add(at)), D::load(g.add(at)), a, b);
                if !y.is_null() {
                    v.store(y.add(at));
                }
                *sum = sum.add(v);
            }
            i += VECTORS * D::LANES;
        }
        let mut total = sums[0].add(sums[1]).add(sums[2].add(sums[3])).total();
        while i < n {
            let count = D::LANES.min(n - i);
            let v =
                term::<D, OP>(D::load_part(x.add(i), count), D::load_part(g.add(i), count), a, b);
            let mut lanes = [0.0; WIDEST];
            v.store(lanes.as_mut_ptr());
            let mut j = 0;
            while j < count {
                total += lanes[j];
                if !y.is_null() {
                    *y.add(i + j) = lanes[j];
                }
                j += 1;
            }
            i += count;
        }
        total
    }
}

/// A row of any of the functions.
pub(super) struct RowF64<'a> {
    pub row: Row,
    pub x: &'a [f64],
    pub g: &'a [f64],
    pub y: &'a mut [f64],
}

impl Work for RowF64<'_> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let n = self.x.len().min(self.g.len()).min(self.y.len());
        let (x, g, y) = (self.x.as_ptr(), self.g.as_ptr(), self.y.as_mut_ptr());
        let none = std::ptr::null_mut();
        // SAFETY: all have n elements.
        unsafe {
            match self.row {
                Row::Softmax => {
                    let max = largest::<V::F64s>(self.x);
                    let sum = pass::<V::F64s, EXP_BELOW>(x, x, y, n, max, 0.0);
                    pass::<V::F64s, SHARE>(y, y, y, n, sum, 0.0);
                }
                Row::LogSoftmax => {
                    let max = largest::<V::F64s>(self.x);
                    let sum = pass::<V::F64s, EXP_BELOW>(x, x, none, n, max, 0.0);
                    pass::<V::F64s, BELOW>(x, x, y, n, max, sum.ln());
                }
                Row::SoftmaxGrad => {
                    let sum = pass::<V::F64s, PRODUCT>(x, g, none, n, 0.0, 0.0);
                    pass::<V::F64s, CENTRED>(x, g, y, n, sum, 0.0);
                }
                Row::LogSoftmaxGrad => {
                    let sum = pass::<V::F64s, PLAIN>(x, g, none, n, 0.0, 0.0);
                    pass::<V::F64s, LESS_EXP>(x, g, y, n, sum, 0.0);
                }
            }
        }
    }
}

/// The largest score of a row and the sum of the exponentials below it; these are written to `y` if
/// it has elements.
pub(super) struct Exponentials<'a> {
    pub x: &'a [f64],
    pub y: &'a mut [f64],
}

impl Work for Exponentials<'_> {
    type Out = (f64, f64);
    #[inline(always)]
    fn run<V: F32s>(self) -> (f64, f64) {
        let max = largest::<V::F64s>(self.x);
        let (x, n) = (self.x.as_ptr(), self.x.len());
        let y = if self.y.len() < n { std::ptr::null_mut() } else { self.y.as_mut_ptr() };
        // SAFETY: x has n elements, and so has y unless it is null.
        (max, unsafe { pass::<V::F64s, EXP_BELOW>(x, x, y, n, max, 0.0) })
    }
}
