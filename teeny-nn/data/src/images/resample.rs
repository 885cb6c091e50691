//! [`Resample`]: images of u8 in other sizes, with the bits of Pillow.
//!
//! ```text
//! image (H, W, 3) ─ along rows: Σ weight * pixel, rounded ─ (H, w, 3) ─ along columns ─ (h, w, 3)
//! ```
//!
//! A pixel of the result is a weighted mean of the pixels around its centre. When an image becomes
//! smaller, the filter becomes wider by the same factor, so that every pixel counts (antialiasing).
//! Weights are integers with [`PRECISION`] bits after the binary point; each axis rounds to u8.
//!
//! Source: Pillow's `Image.resize`, up to version 12, whose results the tests compare. Pillow 13
//! sums along columns first where `H - h` is positive and more than `2 (W - w)`; values then differ
//! from these in the rounding between the sums.

use super::Pixels;
use std::f64::consts::PI;
use std::ops::Range;
use teeny_core::context::enter;
use teeny_core::{DType, Error, Result, Tensor, memory};

/// The bits of a weight after the binary point: a product with 8 bits of a pixel and two more bits,
/// for sums and a sign, fits in 32.
const PRECISION: u32 = 32 - 8 - 2;

/// The height and the width of an image at most.
const MAX_SIDE: usize = 1 << 20;

/// The number of pixels of an image at most.
pub const MAX_PIXELS: usize = 1 << 28;

/// The filter by which an image is resized. The numbers are those of `resample` in
/// `preprocessor_config.json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Resample {
    /// 0: the nearest pixel.
    Nearest,
    /// 1: `sinc(x) sinc(x / 3)` for `|x| < 3`.
    Lanczos,
    /// 2: `1 - |x|` for `|x| < 1`.
    Bilinear,
    /// 3: Keys' cubic polynomials with a = -0.5 for `|x| < 2`.
    Bicubic,
}

impl Resample {
    /// The filters in the order of their numbers.
    pub const ALL: [Resample; 4] =
        [Resample::Nearest, Resample::Lanczos, Resample::Bilinear, Resample::Bicubic];
}

impl Pixels {
    /// The weighted means of pixels of each row.
    fn columns(&self, windows: &[Window]) -> Result<Pixels> {
        let mut bytes = memory::reserved(self.height * windows.len() * 3)?;
        for row in self.bytes.chunks_exact((self.width * 3).max(1)) {
            for Window { start, weights } in windows {
                let pixels = row[start * 3..].chunks_exact(3).zip(weights);
                let sums = pixels.fold([ROUND; 3], |[r, g, b], (pixel, weight)| {
                    let [x, y, z] = [0, 1, 2].map(|c| weight * i32::from(pixel[c]));
                    [r + x, g + y, b + z]
                });
                bytes.extend(sums.map(clipped));
            }
        }
        Ok(Pixels { height: self.height, width: windows.len(), bytes })
    }

    /// The weighted means of pixels of each column.
    fn rows(&self, windows: &[Window]) -> Result<Pixels> {
        let stride = self.width * 3;
        let mut bytes = memory::reserved(windows.len() * stride)?;
        let mut sums = memory::filled(0i32, stride)?;
        for Window { start, weights } in windows {
            sums.fill(ROUND);
            let rows = self.bytes[start * stride..].chunks_exact(stride.max(1));
            for (row, weight) in rows.zip(weights) {
                sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += weight * i32::from(*x));
            }
            bytes.extend(sums.iter().map(|sum| clipped(*sum)));
        }
        Ok(Pixels { height: windows.len(), width: self.width, bytes })
    }
}

/// The pixels of the source from `start`, and their weights, for a pixel of the result.
struct Window {
    start: usize,
    weights: Vec<i32>,
}

impl Resample {
    /// `image` (H, W, 3) of u8 in another height and width → (h, w, 3) of u8. The bits are those of
    /// Pillow's `Image.resize`, up to version 12.
    ///
    /// # Errors
    /// If the image is something else, or a size is 0 or too large.
    #[track_caller]
    pub fn resize(self, image: &Tensor, [height, width]: [usize; 2]) -> Result<Tensor> {
        let _op = enter("resize");
        let shape = *image.shape();
        if shape.len() != 3 || shape[2] != 3 || image.dtype() != DType::U8 {
            let text = format!("expected u8 of (H, W, 3), got {} of {shape}", image.dtype());
            return Err(Error::shape(text).help("images are u8 of (H, W, 3)"));
        }
        let pixels = Pixels { height: shape[0], width: shape[1], bytes: image.to_vec::<u8>()? };
        let resized = self.resized(&pixels, [height, width], [0..height, 0..width])?;
        Tensor::from_vec(resized.bytes, (height, width, 3), image.device())
    }

    /// `image` in another height and width, and of that the given rows and columns.
    ///
    /// # Errors
    /// If the rows or columns are outside, a side is 0 or above 1,048,576, or an image on the way
    /// has more than [`MAX_PIXELS`] pixels.
    pub fn resized(
        self,
        image: &Pixels,
        [height, width]: [usize; 2],
        [rows, columns]: [Range<usize>; 2],
    ) -> Result<Pixels> {
        let sides = [image.height, image.width, height, width];
        // between the passes, and after them
        let sizes = [(image.height, columns.len()), (rows.len(), columns.len())];
        if sides.iter().any(|side| !(1..=MAX_SIDE).contains(side))
            || rows.end > height
            || columns.end > width
            || sizes.iter().any(|(h, w)| h * w > MAX_PIXELS)
        {
            let [h, w] = [image.height, image.width];
            return Err(Error::value(format!(
                "an image of {h} x {w} cannot become one of {height} x {width}"
            ))
            .help(format!("sides are 1 to {MAX_SIDE}, and at most {MAX_PIXELS} pixels")));
        }
        let columns = self.windows(image.width, width, columns);
        let rows = self.windows(image.height, height, rows);
        // along columns first where Pillow bounds the memory of a tall image
        match image.height > 100 * image.width && height < image.height {
            true => image.rows(&rows)?.columns(&columns),
            false => image.columns(&columns)?.rows(&rows),
        }
    }

    /// The distance from its centre at which the filter becomes zero.
    fn support(self) -> f64 {
        match self {
            Resample::Nearest => 0.0,
            Resample::Bilinear => 1.0,
            Resample::Bicubic => 2.0,
            Resample::Lanczos => 3.0,
        }
    }

    fn weight(self, x: f64) -> f64 {
        let sinc = |x: f64| if x == 0.0 { 1.0 } else { (x * PI).sin() / (x * PI) };
        const A: f64 = -0.5;
        let d = x.abs();
        match self {
            Resample::Nearest => 1.0,
            Resample::Bilinear => (1.0 - d).max(0.0),
            Resample::Bicubic if d < 1.0 => ((A + 2.0) * d - (A + 3.0)) * d * d + 1.0,
            Resample::Bicubic if d < 2.0 => (((d - 5.0) * d + 8.0) * d - 4.0) * A,
            Resample::Lanczos if (-3.0..3.0).contains(&x) => sinc(x) * sinc(x / 3.0),
            _ => 0.0,
        }
    }

    /// The windows of the positions `kept` of an axis of `input` pixels that gets `output`.
    fn windows(self, input: usize, output: usize, kept: Range<usize>) -> Vec<Window> {
        let scale = input as f64 / output as f64;
        if self == Resample::Nearest {
            let pixel = |start| Window { start, weights: vec![1 << PRECISION] };
            let starts = nearest(input, output).skip(kept.start).take(kept.len());
            return starts.map(pixel).collect();
        }
        let filter_scale = scale.max(1.0);
        let support = self.support() * filter_scale;
        let window = |i: usize| {
            let centre = (i as f64 + 0.5) * scale;
            let start = (centre - support + 0.5).max(0.0) as usize;
            let end = ((centre + support + 0.5) as usize).min(input);
            let at = |x: usize| (x as f64 - centre + 0.5) * (1.0 / filter_scale);
            let weights: Vec<f64> = (start..end).map(|x| self.weight(at(x))).collect();
            let total: f64 = weights.iter().sum();
            let weights = weights.iter().map(|w| if total == 0.0 { *w } else { w / total });
            // halves away from zero
            let fixed = |w: f64| (w * f64::from(1 << PRECISION) + 0.5f64.copysign(w)) as i32;
            Window { start, weights: weights.map(fixed).collect() }
        };
        kept.map(window).collect()
    }
}

/// The nearest of `input` pixels of an axis to each of the `output` pixels that it gets, and to
/// further ones. Neither number is 0.
pub(super) fn nearest(input: usize, output: usize) -> impl Iterator<Item = usize> {
    let scale = input as f64 / output as f64;
    // positions are added up, as Pillow does, which differs from products in the last bits
    let centres = std::iter::successors(Some(scale * 0.5), move |x| Some(x + scale));
    centres.map(move |x| (x as usize).min(input - 1))
}

/// Half of the last bit that is kept.
const ROUND: i32 = 1 << (PRECISION - 1);

fn clipped(sum: i32) -> u8 {
    (sum >> PRECISION).clamp(0, 255) as u8
}
