//! Whether operands are finite: zero times an infinity or NaN is NaN. Only filters that are finite
//! may leave out taps that see nothing but padding, and the gradient of the input may only be
//! computed as a convolution, which multiplies padding, if they are.

use super::columns::Correlation;
use crate::Cpu;
use crate::float::Float;
use crate::matmul::MAX_CHAIN;
use crate::scratch::with_scratch;
use crate::simd::{F32s, Lanes, Work};
use crate::threads::try_for_each_chunk;
use teeny_core::Result;

/// Whether no element is infinite or NaN.
pub(super) fn are_finite<T: Float>(cpu: &Cpu, x: &[T]) -> bool {
    struct Products<'a, T>(&'a [T]);
    impl<T: Float> Work for Products<'_, T> {
        type Out = bool;
        #[inline(always)]
        fn run<V: F32s>(self) -> bool {
            // Zero times what is not finite is NaN, and stays so.
            let zero = <T::Vector<V> as Lanes<T>>::splat(T::ZERO);
            let (mut sums, lanes) = ([zero; 4], <T::Vector<V> as Lanes<T>>::LANES);
            let (x, n) = (self.0.as_ptr(), self.0.len());
            let mut i = 0;
            // SAFETY: vectors are inside the slice.
            unsafe {
                while i + 4 * lanes <= n {
                    let mut k = 0;
                    while k < 4 {
                        let x = <T::Vector<V> as Lanes<T>>::load(x.add(i + k * lanes));
                        sums[k] = x.mul_add(zero, sums[k]);
                        k += 1;
                    }
                    i += 4 * lanes;
                }
                while i < n {
                    let count = if n - i < lanes { n - i } else { lanes };
                    let x = <T::Vector<V> as Lanes<T>>::load_part(x.add(i), count);
                    sums[0] = x.mul_add(zero, sums[0]);
                    i += lanes;
                }
            }
            sums[0].add(sums[1]).add(sums[2].add(sums[3])).total() == T::ZERO
        }
    }
    cpu.level.run(Products(x))
}

/// The gradient of the input from filters that are not finite, of `c`, the convolution, whose input
/// is not read: each product of a filter's element and one of `g` that a window pairs, and no other.
/// Images are `c.y`, (images, groups · in_channels, input), all zero.
pub(super) fn input_grad<T: Float>(cpu: &Cpu, c: &Correlation<'_, T>, g: &[T]) -> Result<()> {
    let (grid, taps, plane) = (c.grid, c.grid.taps.len(), c.grid.plane());
    let (pixels, step) = (grid.pixels(), grid.last().step);
    let panel = grid.panel(cpu, [0, pixels], [0, 0])?;
    let rows = panel.runs.len();
    try_for_each_chunk(c.images * c.groups, |i| {
        let weight = &c.weight[i % c.groups * c.out_channels * c.rows()..];
        with_scratch(cpu, [plane], |[part]: [&mut [T]; 1]| {
            for channel in 0..c.in_channels {
                let to = c.y.get().wrapping_add((i * c.in_channels + channel) * plane);
                // SAFETY: a plane of this image and group alone.
                let to = unsafe { std::slice::from_raw_parts_mut(to, plane) };
                // No chain is longer than those of other products.
                for first in (0..c.out_channels).step_by((MAX_CHAIN / taps).max(1)) {
                    let end = (first + (MAX_CHAIN / taps).max(1)).min(c.out_channels);
                    part.fill(T::ZERO);
                    for (o, tap) in (first..end).flat_map(|o| (0..taps).map(move |tap| (o, tap))) {
                        let w = weight[o * c.rows() + channel * taps + tap];
                        let g = &g[(i * c.out_channels + o) * pixels..][..pixels];
                        for span in &panel.spans[tap * rows..(tap + 1) * rows] {
                            for j in 0..span.inside {
                                part[span.from + j * step] += w * g[span.at + span.before + j];
                            }
                        }
                    }
                    to.iter_mut().zip(&*part).for_each(|(to, &part)| *to += part);
                }
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_number_that_is_not_finite_is_found_anywhere() {
        let cpu = Cpu::new();
        for n in [0, 1, 5, 64, 67, 200] {
            let mut x = vec![f32::MAX; n];
            assert!(are_finite(&cpu, &x));
            for i in 0..n {
                for value in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
                    let before = std::mem::replace(&mut x[i], value);
                    assert!(!are_finite(&cpu, &x), "{value} at {i} of {n}");
                    assert!(!are_finite(
                        &cpu,
                        &x.iter().map(|&x| f64::from(x)).collect::<Vec<_>>()
                    ));
                    x[i] = before;
                }
            }
        }
    }
}
