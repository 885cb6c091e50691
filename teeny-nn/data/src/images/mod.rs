//! Images: their transforms, and folders of files (feature `image`).
//!
//! ```text
//! file ─ read ─ u8 (3, H, W) ─ ImageTransforms ─ u8 (B, 3, h, w) ─ / 255, normalise ─ f32
//! ```
//!
//! | module | contents |
//! |---|---|
//! | here | [`ImageSize`], and how bytes become RGB |
//! | `transforms` | [`ImageTransform`], [`ImageTransforms`] |
//! | `masks` | [`ImageTransforms::batch_with_masks`] |
//! | `mixup` | [`mixup()`] |
//! | `draws` | the random numbers of an item |
//! | `resample` | [`Resample`], Pillow's way to resize |
//! | `folder` | `ImageFolder`, `read_image`, `write_png` (feature `image`) |

mod draws;
#[cfg(feature = "image")]
mod folder;
mod masks;
mod mixup;
mod resample;
mod transforms;

#[cfg(feature = "image")]
pub use folder::{ImageFolder, read_image, write_png};
pub use mixup::mixup;
pub use resample::{MAX_PIXELS, Resample};
use teeny_core::{Error, Result, memory};
pub use transforms::{ImageTransform, ImageTransforms};

/// The size of an image after it is resized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ImageSize {
    /// This height and width.
    Exact([usize; 2]),
    /// This length of the shorter side; the longer one keeps the proportion, rounded down.
    ShortestEdge(usize),
}

impl ImageSize {
    /// The height and the width that an image of height and width `own`, not 0, gets.
    pub fn of(self, own: [usize; 2]) -> [usize; 2] {
        match self {
            ImageSize::Exact(size) => size,
            ImageSize::ShortestEdge(edge) => {
                let [short, long] = [own[0].min(own[1]), own[0].max(own[1])];
                let long = edge.saturating_mul(long) / short;
                if own[0] < own[1] { [edge, long] } else { [long, edge] }
            }
        }
    }
}

/// An image of RGB, row-major, three bytes for each pixel.
#[derive(Clone, Debug, PartialEq)]
pub struct Pixels {
    height: usize,
    width: usize,
    bytes: Vec<u8>,
}

impl Pixels {
    /// The image of `bytes` (height, width, channels): grey, grey and alpha, RGB, or RGB and alpha.
    /// Transparent pixels are laid over white.
    ///
    /// # Errors
    /// If there are not `height * width * channels` bytes, or 0 or more than 4 channels.
    pub fn new([height, width]: [usize; 2], channels: usize, bytes: Vec<u8>) -> Result<Pixels> {
        let size = height.checked_mul(width).and_then(|area| area.checked_mul(channels));
        if size != Some(bytes.len()) || !(1..=4).contains(&channels) {
            let text = format!("an image of ({height}, {width}, {channels})");
            return Err(Error::shape(format!("{} bytes do not fill {text}", bytes.len()))
                .help("pass a byte for each channel of each pixel, and 1 to 4 channels"));
        }
        if channels == 3 {
            return Ok(Pixels { height, width, bytes });
        }
        let mut rgb = memory::reserved(height * width * 3)?;
        for pixel in bytes.chunks_exact(channels) {
            let (color, alpha) = match *pixel {
                [r, g, b, alpha] => ([r, g, b], alpha),
                [grey, alpha] => ([grey; 3], alpha),
                _ => ([pixel[0]; 3], 255),
            };
            let alpha = f64::from(alpha) / 255.0;
            let over = |x: u8| alpha * f64::from(x) + (1.0 - alpha) * 255.0;
            rgb.extend(color.map(|x| over(x).round_ties_even() as u8));
        }
        Ok(Pixels { height, width, bytes: rgb })
    }

    /// The height and the width.
    pub fn sides(&self) -> [usize; 2] {
        [self.height, self.width]
    }

    /// Three bytes for each pixel.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The image of `planes` (3, height, width).
    fn from_planes([height, width]: [usize; 2], planes: &[u8]) -> Result<Pixels> {
        let area = height * width;
        let mut bytes = memory::reserved(3 * area)?;
        (0..area).for_each(|i| bytes.extend([0, 1, 2].map(|c| planes[c * area + i])));
        Ok(Pixels { height, width, bytes })
    }

    /// Appends the planes (3, height, width) to `planes`.
    fn append_planes(&self, planes: &mut Vec<u8>) -> Result<()> {
        planes
            .try_reserve(self.bytes.len())
            .map_err(|e| Error::out_of_memory(e.to_string()).help("smaller images or batches"))?;
        (0..3).for_each(|c| planes.extend(self.bytes.iter().skip(c).step_by(3)));
        Ok(())
    }
}

/// The error of images of different sizes in one batch; `first` and `second` name them.
fn size_mismatch(first: (&str, [usize; 2]), second: (&str, [usize; 2])) -> Error {
    let text =
        |(name, [height, width]): (&str, [usize; 2])| format!("{name} is {height} x {width}");
    Error::shape(format!("the images of a batch differ in size: {}, {}", text(first), text(second)))
        .help("ImageTransform::Resize (resize) or a crop gives all images one size")
}
