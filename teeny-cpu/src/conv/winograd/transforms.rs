//! The transforms of tiles and filters: Bᵀ d B, G w Gᵀ, Aᵀ M A, and the transposes of the last two.
//!
//! The naive form multiplies by the matrices. Here the sums and differences that the points ±p
//! share are computed once, lanes are channels, and a tile's rows and columns stay in registers.

use super::tiles::Tiles;
use super::{IN, OUT};
use crate::simd::{F32s, Level, Work};
use std::marker::PhantomData;

/// The squares of the points other than 0 and ∞.
const A2: f32 = 25.0 / 64.0;
const B2: f32 = 9.0 / 4.0;
const A1: f32 = 5.0 / 8.0;
const B1: f32 = 3.0 / 2.0;

/// A transform along one axis of a tile.
pub(super) trait Transform1d<const M: usize, const N: usize> {
    /// N values from M.
    fn apply<V: F32s>(x: [V; M]) -> [V; N];
}

/// Bᵀ d: six elements of the input at the six points.
pub(super) struct Evaluate;
impl Transform1d<IN, IN> for Evaluate {
    #[inline(always)]
    fn apply<V: F32s>(d: [V; IN]) -> [V; IN] {
        let (a2, b2, product, sum) =
            (V::splat(-A2), V::splat(-B2), V::splat(A2 * B2), V::splat(-(A2 + B2)));
        let (even_a, odd_a) = (d[2].mul_add(b2, d[4]), d[1].mul_add(b2, d[3]).mul(V::splat(A1)));
        let (even_b, odd_b) = (d[2].mul_add(a2, d[4]), d[1].mul_add(a2, d[3]).mul(V::splat(B1)));
        [
            d[0].mul_add(product, d[2].mul_add(sum, d[4])),
            even_a.add(odd_a),
            even_a.sub(odd_a),
            even_b.add(odd_b),
            even_b.sub(odd_b),
            d[1].mul_add(product, d[3].mul_add(sum, d[5])),
        ]
    }
}

/// Aᵀ m: four pixels from the values at the six points.
pub(super) struct Interpolate;
impl Transform1d<IN, OUT> for Interpolate {
    #[inline(always)]
    fn apply<V: F32s>(m: [V; IN]) -> [V; OUT] {
        let (sum_a, difference_a) = (m[1].add(m[2]), m[1].sub(m[2]));
        let (sum_b, difference_b) = (m[3].add(m[4]), m[3].sub(m[4]));
        [
            m[0].add(sum_a).add(sum_b),
            difference_a.mul(V::splat(A1)).add(difference_b.mul(V::splat(B1))),
            sum_a.mul(V::splat(A2)).add(sum_b.mul(V::splat(B2))),
            difference_b.mul_add(V::splat(B1 * B2), difference_a.mul_add(V::splat(A1 * A2), m[5])),
        ]
    }
}

/// A g: the transpose of [`Interpolate`].
pub(super) struct Distribute;
impl Transform1d<OUT, IN> for Distribute {
    #[inline(always)]
    fn apply<V: F32s>(g: [V; OUT]) -> [V; IN] {
        let (even_a, odd_a) =
            (g[2].mul_add(V::splat(A2), g[0]), g[3].mul_add(V::splat(A2), g[1]).mul(V::splat(A1)));
        let (even_b, odd_b) =
            (g[2].mul_add(V::splat(B2), g[0]), g[3].mul_add(V::splat(B2), g[1]).mul(V::splat(B1)));
        [g[0], even_a.add(odd_a), even_a.sub(odd_a), even_b.add(odd_b), even_b.sub(odd_b), g[3]]
    }
}

/// Factors of the values at the points: one over the products of the points' distances.
const AT_0: f32 = 1.0 / (A2 * B2);
const AT_A: f32 = 1.0 / (2.0 * A2 * (A2 - B2));
const AT_B: f32 = 1.0 / (2.0 * B2 * (B2 - A2));

/// G w: three taps at the six points.
pub(super) struct TransformFilter;
impl Transform1d<3, IN> for TransformFilter {
    #[inline(always)]
    fn apply<V: F32s>(w: [V; 3]) -> [V; IN] {
        let (even_a, odd_a) =
            (w[2].mul_add(V::splat(A2), w[0]).mul(V::splat(AT_A)), w[1].mul(V::splat(A1 * AT_A)));
        let (even_b, odd_b) =
            (w[2].mul_add(V::splat(B2), w[0]).mul(V::splat(AT_B)), w[1].mul(V::splat(B1 * AT_B)));
        [
            w[0].mul(V::splat(AT_0)),
            even_a.add(odd_a),
            even_a.sub(odd_a),
            even_b.add(odd_b),
            even_b.sub(odd_b),
            w[2],
        ]
    }
}

/// Gᵀ u: the transpose of [`TransformFilter`].
pub(super) struct Collect;
impl Transform1d<IN, 3> for Collect {
    #[inline(always)]
    fn apply<V: F32s>(u: [V; IN]) -> [V; 3] {
        let (sum_a, sum_b) =
            (u[1].add(u[2]).mul(V::splat(AT_A)), u[3].add(u[4]).mul(V::splat(AT_B)));
        let (difference_a, difference_b) =
            (u[1].sub(u[2]).mul(V::splat(AT_A * A1)), u[3].sub(u[4]).mul(V::splat(AT_B * B1)));
        [
            u[0].mul_add(V::splat(AT_0), sum_a.add(sum_b)),
            difference_a.add(difference_b),
            sum_b.mul_add(V::splat(B2), sum_a.mul_add(V::splat(A2), u[5])),
        ]
    }
}

/// A transform of `count` tiles with `channels` lanes, a multiple of 16: along the columns of each,
/// then along the rows of the result.
pub(super) struct Transform<T, const M: usize, const N: usize> {
    transform: PhantomData<T>,
    count: usize,
    channels: usize,
    from: Tiles<*const f32>,
    to: Tiles<*mut f32>,
}

impl<T: Transform1d<M, N>, const M: usize, const N: usize> Transform<T, M, N> {
    /// # Safety
    /// All these tiles are readable and writable.
    pub(super) unsafe fn run(
        level: Level,
        count: usize,
        channels: usize,
        from: Tiles<*const f32>,
        to: Tiles<*mut f32>,
    ) {
        level.run(Transform { transform: PhantomData::<T>, count, channels, from, to });
    }
}

impl<T: Transform1d<M, N>, const M: usize, const N: usize> Work for Transform<T, M, N> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let Transform { count, channels, from, to, .. } = self;
        for tile in 0..count {
            for c in (0..channels).step_by(V::LANES) {
                // SAFETY: by contract of `run`.
                unsafe {
                    let (read, write) =
                        (from.first.add(tile * from.next + c), to.first.add(tile * to.next + c));
                    let mut columns = [[V::splat(0.0); N]; M];
                    for (x, column) in columns.iter_mut().enumerate() {
                        let mut values = [V::splat(0.0); M];
                        for (y, value) in values.iter_mut().enumerate() {
                            *value = V::load(read.add(y * from.row + x * from.column));
                        }
                        *column = T::apply(values);
                    }
                    for y in 0..N {
                        let mut values = [V::splat(0.0); M];
                        for (x, column) in columns.iter().enumerate() {
                            values[x] = column[y];
                        }
                        for (x, value) in T::apply(values).into_iter().enumerate() {
                            value.store(write.add(y * to.row + x * to.column));
                        }
                    }
                }
            }
        }
    }
}
