//! Images of tensors as PNG files: grids of pictures, filters, matrices by colour.

use super::numbers;
use super::svg::{base64, save};
use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};
use std::io::Write as _;
use std::path::Path;
use teeny_core::context::enter;
use teeny_core::{Error, Result, Tensor};

/// The most pixels of an image, 50 MB of them.
const MAX_PIXELS: usize = 1 << 24;
/// The colour between images of a grid, and of values that are not finite.
const GAP: [u8; 3] = [128, 128, 128];

/// An image of rows of red, green and blue pixels.
///
/// # Example
/// Four images of 8 x 8 pixels, two in a row.
/// ```
/// use teeny_core::{DType, Reference, Tensor};
/// use teeny_viz::Image;
/// # fn main() -> teeny_core::Result<()> {
/// let x = Tensor::rand((4, 1, 8, 8), DType::F32, &Reference::new())?; // (4, 1, 8, 8)
/// let image = Image::grid(&x, 2)?.enlarged(4)?;
/// assert_eq!(&image.png()[1..4], b"PNG"); // image.save("digits.png")?
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    width: usize,
    pixels: Vec<[u8; 3]>,
}

impl Image {
    /// Images (N, C, H, W) of one or three channels as a grid with `columns` in a row, each pixel
    /// from black at the smallest value of all to white at the largest.
    ///
    /// # Errors
    /// If the shape is another, there is nothing to show, no value is finite, or the image is too
    /// large.
    #[track_caller]
    pub fn grid(images: &Tensor, columns: usize) -> Result<Image> {
        let _op = enter("Image::grid");
        let values = numbers(images)?;
        let range = range_of(&values)?;
        Image::arranged(images, &values, columns, |_| range)
    }

    /// The filters of a convolution, weights (O, I, kh, kw), as a grid with `columns` in a row.
    /// Filters of 1 or 3 channels are O images; of others, each channel is an image. Each image has
    /// its own range of values.
    ///
    /// # Errors
    /// As [`Image::grid`].
    #[track_caller]
    pub fn filters(weight: &Tensor, columns: usize) -> Result<Image> {
        let _op = enter("Image::filters");
        let weight = match weight.shape()[..] {
            [o, i, h, w] if i != 1 && i != 3 => &weight.reshape((o * i, 1, h, w))?,
            _ => weight,
        };
        let values = numbers(weight)?;
        let size = values.len() / weight.shape().first().copied().unwrap_or(1).max(1);
        range_of(&values)?;
        Image::arranged(weight, &values, columns, |i| {
            range_of(&values[i * size..(i + 1) * size]).unwrap_or((0.0, 1.0))
        })
    }

    /// Images (N, C, H, W) with these values; `range` returns the values that are black and white
    /// in an image.
    fn arranged(
        images: &Tensor,
        values: &[f64],
        columns: usize,
        range: impl Fn(usize) -> (f64, f64),
    ) -> Result<Image> {
        let (n, c, h, w) = match images.shape()[..] {
            [n, c @ (1 | 3), h, w] => (n, c, h, w),
            _ => {
                let text =
                    format!("images must be (N, 1, H, W) or (N, 3, H, W), not {}", images.shape());
                return Err(Error::shape(text).help(match images.shape()[..] {
                    [_, _, _, 1 | 3] => "x.permute((0, 3, 1, 2))? moves the channels".to_string(),
                    [_, _, h, w] => format!(
                        "x.reshape((-1, 1, {h}, {w}))? shows each channel, x.slice(1, ..1)? the \
                         first; three are red, green and blue"
                    ),
                    [_, _, _] => "x.unsqueeze(1)? adds the axis of the channel".to_string(),
                    _ => "x.reshape((n, 1, h, w))?".to_string(),
                }));
            }
        };
        let columns = columns.clamp(1, n);
        let (width, height) = (columns * (w + 1) + 1, n.div_ceil(columns) * (h + 1) + 1);
        let mut image = Image::filled(width, height)?;
        for i in 0..n {
            let (left, top) = (1 + i % columns * (w + 1), 1 + i / columns * (h + 1));
            let (low, high) = range(i);
            for (y, x) in (0..h).flat_map(|y| (0..w).map(move |x| (y, x))) {
                let channel = |k: usize| {
                    let value = values[((i * c + k % c) * h + y) * w + x];
                    let part = if high > low { (value - low) / (high - low) } else { 0.5 };
                    (part * 255.0).round() as u8
                };
                let pixel = [0, 1, 2].map(channel);
                let is_finite = (0..c).all(|k| values[((i * c + k) * h + y) * w + x].is_finite());
                image.pixels[(top + y) * width + left + x] = if is_finite { pixel } else { GAP };
            }
        }
        Ok(image)
    }

    /// An image of this size without content.
    pub(super) fn filled(width: usize, height: usize) -> Result<Image> {
        let count = width.checked_mul(height).filter(|n| *n <= MAX_PIXELS).ok_or_else(|| {
            Error::value(format!("an image of {width} x {height} pixels is too large"))
                .help("show a part: x.slice(axis, range)")
        })?;
        Ok(Image { width, pixels: vec![GAP; count] })
    }

    /// An image whose pixel in column x and row y is `pixel(x, y)`; `None` is grey.
    pub(super) fn from_fn(
        width: usize,
        height: usize,
        pixel: impl Fn(usize, usize) -> Option<[u8; 3]>,
    ) -> Result<Image> {
        let mut image = Image::filled(width, height)?;
        for (i, place) in image.pixels.iter_mut().enumerate() {
            *place = pixel(i % width, i / width).unwrap_or(GAP);
        }
        Ok(image)
    }

    /// The image with each pixel as a square of `scale` x `scale` pixels.
    ///
    /// # Errors
    /// If it is too large.
    #[track_caller]
    pub fn enlarged(&self, scale: usize) -> Result<Image> {
        let (scale, width) = (scale.max(1), self.width);
        let large = |size: usize| size.saturating_mul(scale);
        Image::from_fn(large(width), large(self.height()), |x, y| {
            Some(self.pixels[y / scale * width + x / scale])
        })
    }

    /// The number of pixels of a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The number of rows.
    pub fn height(&self) -> usize {
        self.pixels.len() / self.width.max(1)
    }

    /// The pixels by row.
    pub fn pixels(&self) -> &[[u8; 3]] {
        &self.pixels
    }

    /// The image as PNG. Source: the PNG specification, third edition, W3C.
    pub fn png(&self) -> Vec<u8> {
        let mut lines = ZlibEncoder::new(Vec::new(), Compression::default());
        for row in self.pixels.chunks(self.width.max(1)) {
            // a line begins with its filter, none; writing to a Vec cannot fail
            let _ = lines.write_all(&[0]).and_then(|()| lines.write_all(row.as_flattened()));
        }
        let size = |n: usize| (n as u32).to_be_bytes();
        // 8 bits a channel, RGB, and the only methods there are
        let head = [&size(self.width)[..], &size(self.height()), &[8, 2, 0, 0, 0]].concat();
        let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
        for (kind, data) in
            [(b"IHDR", head), (b"IDAT", lines.finish().unwrap_or_default()), (b"IEND", vec![])]
        {
            let mut crc = Crc::new();
            crc.update(kind);
            crc.update(&data);
            png.extend([&size(data.len())[..], kind, &data, &crc.sum().to_be_bytes()].concat());
        }
        png
    }

    /// Writes the image to `path`, as PNG.
    ///
    /// # Errors
    /// If the file cannot be written.
    #[track_caller]
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let _op = enter("image.save");
        save(path.as_ref(), &self.png())
    }
}

/// An image in a picture, stretched to a rectangle: pixels that grow stay squares.
pub(super) fn embedded(image: &Image, [x, y, width, height]: [f64; 4], opacity: f64) -> String {
    let growing = if image.width() as f64 <= width { "pixelated" } else { "auto" };
    format!(
        "<image x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
         opacity=\"{opacity}\" preserveAspectRatio=\"none\" style=\"image-rendering:{growing}\" \
         href=\"data:image/png;base64,{}\"/>\n",
        base64(&image.png())
    )
}

/// The smallest and the largest finite value.
pub(super) fn range_of(values: &[f64]) -> Result<(f64, f64)> {
    let finite = values.iter().copied().filter(|value| value.is_finite());
    let range = finite.fold(None, |range, v| {
        let (low, high) = range.unwrap_or((v, v));
        Some((f64::min(low, v), f64::max(high, v)))
    });
    range.ok_or_else(|| {
        Error::value(format!("none of {} values is finite: there is nothing to show", values.len()))
            .help("a picture of NaN tells nothing: look for the step that made them")
    })
}

/// A colour of a scale through `stops` of equal distance, for a part from 0 to 1.
fn scale_colour(stops: &[[u8; 3]], part: f64) -> [u8; 3] {
    let at = part.clamp(0.0, 1.0) * (stops.len() - 1) as f64;
    let below = (at as usize).min(stops.len() - 2);
    let rest = at - below as f64;
    [0, 1, 2].map(|i| {
        let (a, b) = (f64::from(stops[below][i]), f64::from(stops[below + 1][i]));
        (a + (b - a) * rest).round() as u8
    })
}

/// A colour from dark blue over green to yellow. Source: five stops of matplotlib's viridis.
pub(super) fn sequential(part: f64) -> [u8; 3] {
    let stops = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
    scale_colour(&stops, part)
}

/// A colour from blue over white to red. Source: three stops of ColorBrewer's RdBu.
pub(super) fn diverging(part: f64) -> [u8; 3] {
    scale_colour(&[[33, 102, 172], [247, 247, 247], [178, 24, 43]], part)
}
