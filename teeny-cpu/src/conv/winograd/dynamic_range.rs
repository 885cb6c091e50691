//! Whether the elements under a band of tiles are of similar size, so that Winograd's rounding
//! errors, which are relative to the largest element of a tile, are small relative to the elements
//! that each window sees.
//!
//! ```text
//!   p = Σ_c |x[c]|        6 rows of the band       (of infinities and NaN: infinity)
//!   window = max p        3 x 3 of them, for each of the 4 x 4 pixels of a tile
//!   tile   = max p        6 x 6
//!   even:  tile <= SPREAD * window for every window of every tile
//! ```

use super::{IN, OUT};
use crate::simd::{F32s, Work, prefetch};

/// The largest allowed ratio of a tile's largest pixel to the largest pixel of each window.
pub(super) const SPREAD: f32 = 32.0;
/// Sizes of pixels whose products and interpolation stay far inside the range of f32.
const RANGE: std::ops::RangeInclusive<f32> = 1e-25..=1e25;

/// Rows of scratch memory for a band: 6 of pixels with padding, 6 of sums without it, 1 of the
/// least window and 1 of the largest pixel of each column.
pub(super) const ROWS: usize = 2 * IN + 2;

/// One band of tiles.
pub(super) struct Band<'a> {
    /// The image: planes of all channels.
    pub x: &'a [f32],
    /// Its height and width.
    pub size: [usize; 2],
    /// The first row of windows.
    pub top: usize,
    pub padding: [usize; 2],
    /// Rows and columns of windows that exist.
    pub pixels: [usize; 2],
    /// `ROWS` rows of memory, each of `row` elements: the columns of whole tiles, two columns and
    /// two vectors.
    pub rows: &'a mut [f32],
    pub row: usize,
}

impl Work for Band<'_> {
    type Out = bool;
    #[inline(always)]
    fn run<V: F32s>(self) -> bool {
        let Band { x, size: [height, width], top, padding, pixels: [down, along], rows, row } =
            self;
        let (pixels, rest) = rows.split_at_mut(IN * row);
        let (sums, rest) = rest.split_at_mut(IN * row);
        let (least, largest) = rest.split_at_mut(row);
        // Rows and columns of padding keep their zeros.
        pixels.fill(0.0);
        let above = padding[0].saturating_sub(top).min(IN);
        let first = (top + above).saturating_sub(padding[0]).min(height);
        let sums = &mut sums[..(height - first).min(IN - above) * width];
        magnitudes::<V>(x, height * width, first * width, sums);
        for (from, to) in sums.chunks_exact(width).zip(pixels[above * row..].chunks_exact_mut(row))
        {
            to[padding[1]..][..width].copy_from_slice(from);
        }
        // Windows and columns by vectors: elements after the last column are read and not used.
        let tiles = along.div_ceil(OUT);
        let columns = OUT * tiles + 2;
        assert!(
            columns + 2 + V::LANES <= row && largest.len() == row && down <= OUT,
            "{along} pixels"
        );
        for x in (0..columns).step_by(V::LANES) {
            // SAFETY: x < columns, so a vector from x + 2 on ends inside the row of memory.
            let at = |r: usize, x: usize| unsafe { V::load(pixels[r * row + x..].as_ptr()) };
            let mut across = [V::splat(0.0); IN];
            let mut most = V::splat(0.0);
            for (r, across) in across.iter_mut().enumerate() {
                let here = at(r, x);
                *across = here.max(at(r, x + 1)).max(at(r, x + 2));
                most = most.max(here);
            }
            let mut low = V::splat(f32::INFINITY);
            for r in 0..down {
                low = low.min(across[r].max(across[r + 1]).max(across[r + 2]));
            }
            // SAFETY: as above; both are rows of memory.
            unsafe {
                low.store(least[x..].as_mut_ptr());
                most.store(largest[x..].as_mut_ptr());
            }
        }
        (0..tiles).all(|tile| {
            let from = OUT * tile;
            let larger = |a: f32, &b: &f32| if b > a { b } else { a };
            let most = largest[from..from + IN].iter().fold(0.0, larger);
            let low = least[from..along.min(from + OUT)]
                .iter()
                .fold(f32::INFINITY, |a, &b| if b < a { b } else { a });
            most == 0.0 || RANGE.contains(&most) && most <= SPREAD * low
        })
    }
}

/// `Σ_c |x[c]|` of the `to.len()` elements from `first` on of each plane; of infinities and NaN
/// infinity. Channels outside, so that memory is read along the rows.
#[inline(always)]
fn magnitudes<V: F32s>(x: &[f32], plane: usize, first: usize, to: &mut [f32]) {
    const TOGETHER: usize = 4;
    let n = to.len();
    assert!(first + n <= plane);
    let channels = x.len() / plane;
    to.fill(0.0);
    let at = |c: usize, i: usize| x[c * plane + first + i..].as_ptr();
    let mut c = 0;
    while c < channels {
        let together = TOGETHER.min(channels - c);
        for next in c + TOGETHER..channels.min(c + 2 * TOGETHER) {
            (0..n).step_by(16).for_each(|i| prefetch(at(next, i)));
        }
        for i in (0..n).step_by(V::LANES) {
            let count = V::LANES.min(n - i);
            // SAFETY: `count` elements of plane c + k and of `to`, from i on.
            unsafe {
                if count == V::LANES && together == TOGETHER {
                    let load = |k: usize| V::load(at(c + k, i)).abs();
                    let sum = load(0).add(load(1)).add(load(2).add(load(3)));
                    V::load(to[i..].as_ptr()).add(sum).store(to[i..].as_mut_ptr());
                } else {
                    let mut sum = V::load_part(to[i..].as_ptr(), count);
                    for k in 0..together {
                        sum = sum.add(V::load_part(at(c + k, i), count).abs());
                    }
                    sum.store_part(to[i..].as_mut_ptr(), count);
                }
            }
        }
        c += together;
    }
    to.iter_mut().for_each(|p| *p = if *p < f32::INFINITY { *p } else { f32::INFINITY });
}

/// Bound of the weights, so that products with pixels in [`RANGE`] are finite.
const MAX_WEIGHT: f32 = 1e10;

/// True if all magnitudes are less than [`MAX_WEIGHT`]; false for infinities and NaN.
pub(crate) struct AllInRange<'a>(pub &'a [f32]);

impl Work for AllInRange<'_> {
    type Out = bool;
    #[inline(always)]
    fn run<V: F32s>(self) -> bool {
        are_below::<V>(self.0, MAX_WEIGHT)
    }
}

/// Whether none is infinite or NaN.
pub(crate) struct Finite<'a>(pub &'a [f32]);

impl Work for Finite<'_> {
    type Out = bool;
    #[inline(always)]
    fn run<V: F32s>(self) -> bool {
        are_below::<V>(self.0, f32::INFINITY)
    }
}

#[inline(always)]
fn are_below<V: F32s>(x: &[f32], bound: f32) -> bool {
    let (zero, bound) = (V::splat(0.0), V::splat(bound));
    let mut outside = zero;
    for part in x.chunks(V::LANES) {
        // SAFETY: a part of the slice.
        let x = unsafe { V::load_part(part.as_ptr(), part.len()) };
        outside = outside.add(V::select(x.abs().lt(bound), zero, V::splat(1.0)));
    }
    outside.total() == 0.0
}
