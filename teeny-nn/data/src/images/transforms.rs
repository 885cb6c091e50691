//! [`ImageTransforms`]: a list of image transforms; random ones draw new numbers for each epoch and
//! item.
//!
//! Images are bytes until all of them have one size; the batch is normalised on the device. A
//! random number depends on the seed, the epoch, the index of the item and its position among the
//! draws of the item, so any number of threads and any batch size give the same images.

use super::draws::Draws;
use super::masks::SourcePixels;
use super::{ImageSize, Pixels, Resample, size_mismatch};
use teeny_core::context::enter;
use teeny_core::{DType, Error, Key, Result, Tensor, ToDevice};

/// A change of an image. The equivalents are those of `torchvision.transforms.v2` for bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum ImageTransform {
    /// Another size, by Pillow's [`Resample`]. Equivalent: `Resize(size, filter)`.
    Resize {
        /// The size.
        size: ImageSize,
        /// The filter.
        filter: Resample,
    },
    /// This height and width around the centre, with black where the image is smaller. Equivalent:
    /// `CenterCrop(size)`.
    CenterCrop([usize; 2]),
    /// A random part. Equivalent: `RandomCrop(size, padding)`.
    RandomCrop {
        /// Height and width of the part.
        size: [usize; 2],
        /// Black pixels at each side of the image before the part is chosen.
        padding: usize,
    },
    /// A random part of random area and proportion, resized. After ten parts that do not fit, the
    /// centre. Equivalent: `RandomResizedCrop(size, scale, ratio)`.
    RandomResizedCrop {
        /// Height and width of the result.
        size: [usize; 2],
        /// The smallest and the largest share of the area; usually 0.08 and 1.
        scale: [f64; 2],
        /// The smallest and the largest width / height; usually 3/4 and 4/3.
        ratio: [f64; 2],
        /// The filter.
        filter: Resample,
    },
    /// Exchanges left and right. Equivalent: `RandomHorizontalFlip(p)`.
    FlipHorizontal {
        /// The probability.
        p: f64,
    },
    /// Exchanges top and bottom. Equivalent: `RandomVerticalFlip(p)`.
    FlipVertical {
        /// The probability.
        p: f64,
    },
    /// Changes of colours, in random order, by factors of `max(0, 1 - x)` to `1 + x` each: towards
    /// black, the mean grey, and grey. Equivalent: `ColorJitter(brightness, contrast, saturation)`.
    ColorJitter {
        /// 0 for no change.
        brightness: f64,
        /// 0 for no change.
        contrast: f64,
        /// 0 for no change.
        saturation: f64,
    },
    /// One colour in a random rectangle. None after ten that do not fit. Masks keep the classes of
    /// the erased pixels. Equivalent: `RandomErasing(p, scale, ratio, value)`.
    RandomErasing {
        /// The probability.
        p: f64,
        /// The smallest and the largest share of the area; usually 0.02 and 0.33.
        scale: [f64; 2],
        /// The smallest and the largest height / width; usually 0.3 and 3.3.
        ratio: [f64; 2],
        /// The colour.
        value: [u8; 3],
    },
}

/// A list of [`ImageTransform`], and how bytes become numbers: `(byte / 255 - mean) / std`.
///
/// # Example
/// Images in memory, with other flips and crops in each epoch. `ImageFolder` has transforms of its
/// own; masks of classes change together with their images by
/// [`batch_with_masks`](ImageTransforms::batch_with_masks).
/// ```
/// use teeny_data::images::{ImageTransform, ImageTransforms};
/// use teeny_data::DataLoader;
/// use teeny_nn::prelude::*;
/// # fn main() -> Result<()> {
/// let device = device("cpu")?;
/// let augment = ImageTransforms::new(1, [
///     ImageTransform::RandomCrop { size: [8, 8], padding: 1 },
///     ImageTransform::FlipHorizontal { p: 0.5 },
/// ])?
/// .with_normalize([0.5; 3], [0.25; 3])?;
/// let images = Tensor::full((10, 3, 8, 8), 128, DType::U8, &device)?; // (N, 3, H, W)
/// let labels = Tensor::zeros(10, DType::I32, &device)?; // (N)
/// let data = (images, labels)
///     .map(move |(x, y), indices, epoch| Ok((augment.batch(&x, indices, epoch)?, y)));
/// let (x, _y) = DataLoader::new(data, 4)?.epoch(0).next().unwrap()?; // (4, 3, 8, 8) of F32
/// # assert_eq!((&x.shape()[..], x.dtype()), (&[4, 3, 8, 8][..], DType::F32));
/// # Ok(()) }
/// ```
///
/// Equivalent: `torchvision.transforms.v2.Compose`, with `ToDtype(float32, scale=True)` and
/// `Normalize` at its end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImageTransforms {
    seed: u64,
    steps: Vec<ImageTransform>,
    normalize: Option<[[f32; 3]; 2]>,
    pub(super) mask_fill: i64,
}

impl ImageTransforms {
    /// These transforms, one after the other, with random numbers of `seed`.
    ///
    /// # Errors
    /// If a probability is not in 0..=1, a size is 0, a range is not one of positive numbers, or a
    /// change of colours is negative or not finite.
    #[track_caller]
    pub fn new(
        seed: u64,
        steps: impl IntoIterator<Item = ImageTransform>,
    ) -> Result<ImageTransforms> {
        let _op = enter("ImageTransforms::new");
        let steps: Vec<ImageTransform> = steps.into_iter().collect();
        for step in &steps {
            step.check().map_err(|help| Error::value(format!("{step:?}")).help(help))?;
        }
        Ok(ImageTransforms { seed, steps, normalize: None, mask_fill: 0 })
    }

    /// Subtracts `mean` and divides by `std` of each channel, after the division by 255.
    ///
    /// Equivalent: `torchvision.transforms.v2.Normalize(mean, std)`.
    ///
    /// # Errors
    /// If a number is not finite, or a deviation is not above 0.
    #[track_caller]
    pub fn with_normalize(mut self, mean: [f32; 3], std: [f32; 3]) -> Result<ImageTransforms> {
        let _op = enter("ImageTransforms::with_normalize");
        let all = mean.iter().chain(&std);
        if !all.clone().all(|x| x.is_finite()) || !std.iter().all(|x| *x > 0.0) {
            return Err(Error::value(format!("cannot use mean {mean:?} and std {std:?}"))
                .help("pass finite numbers for pixels of 0..=1, and deviations above 0"));
        }
        self.normalize = Some([mean, std]);
        Ok(self)
    }

    /// The images of a batch as epoch number `epoch` sees them; `indices` are those of the items in
    /// the data set.
    ///
    /// Shapes: u8 (B, 3, H, W) → f32 (B, 3, h, w).
    ///
    /// # Errors
    /// If the images are something else, there is not one index for each, a crop is larger than its
    /// image, or the results have different sizes.
    #[track_caller]
    pub fn batch(&self, images: &Tensor, indices: &[usize], epoch: u64) -> Result<Tensor> {
        let _op = enter("ImageTransforms::batch");
        Ok(self.traced(images, indices, epoch)?.0)
    }

    /// The images of a batch as [`ImageTransforms::batch`], and the origins of their pixels.
    pub(super) fn traced(
        &self,
        images: &Tensor,
        indices: &[usize],
        epoch: u64,
    ) -> Result<(Tensor, Vec<SourcePixels>)> {
        let [count, 3, height @ (1..), width @ (1..)] = images.shape()[..] else {
            let text = format!("expected images (B, 3, H, W), got {}", images.shape());
            return Err(Error::shape(text).help("images are u8 with H and W above 0"));
        };
        if count != indices.len() || images.dtype() != DType::U8 {
            let text = format!("{count} images of {}, {} indices", images.dtype(), indices.len());
            return Err(Error::value(text).help("pass images of u8, and the index of each item"));
        }
        let bytes = images.to_vec::<u8>()?;
        let planes = bytes.chunks_exact(3 * height * width);
        let (mut batch, mut origins) = (ImageBatch::default(), Vec::new());
        for (planes, &index) in planes.zip(indices) {
            let image = Pixels::from_planes([height, width], planes)?;
            let item = self.item(image, index, epoch)?;
            batch.push(&item.image, || format!("image {index}"))?;
            origins.push(item.origin);
        }
        Ok((self.tensor(batch, images)?, origins))
    }

    /// `image`, item `index`, as epoch number `epoch` sees it.
    #[cfg(feature = "image")]
    pub(super) fn applied(&self, image: Pixels, index: usize, epoch: u64) -> Result<Pixels> {
        Ok(self.item(image, index, epoch)?.image)
    }

    fn item(&self, image: Pixels, index: usize, epoch: u64) -> Result<Item> {
        let key = Key { seed: self.seed, draw: epoch }.fold_in(index as u64);
        let mut draws = Draws::new(key);
        let mut item = Item { origin: SourcePixels::new([image.height, image.width])?, image };
        self.steps.iter().try_for_each(|step| step.apply(&mut item, &mut draws))?;
        Ok(item)
    }

    /// The numbers of a batch on `device`: f32 (B, 3, h, w).
    pub(super) fn tensor(&self, batch: ImageBatch, device: impl ToDevice) -> Result<Tensor> {
        let device = device.to_device();
        let [height, width] = batch.first.map_or([0; 2], |(_, size)| size);
        // bytes are uploaded, a quarter of the size of floats
        let shape = (batch.count, 3, height, width);
        let x = Tensor::from_vec(batch.planes, shape, &device)?.div(255.0)?;
        let Some([mean, std]) = self.normalize else { return Ok(x) };
        let [mean, std] = [mean, std].map(|x| Tensor::from_vec(x.to_vec(), (3, 1, 1), &device));
        x.sub(&mean?)?.div(&std?)
    }
}

/// The changes of [`ImageTransform::ColorJitter`].
#[derive(Clone, Copy)]
enum Color {
    Brightness,
    Contrast,
    Saturation,
}

/// An image while it is changed.
struct Item {
    image: Pixels,
    origin: SourcePixels,
}

impl Item {
    fn crop(&mut self, start: [isize; 2], size: [usize; 2]) -> Result<()> {
        self.image = self.image.crop(start, size)?;
        self.origin.crop(start, size)
    }

    fn resize(&mut self, size @ [h, w]: [usize; 2], filter: Resample) -> Result<()> {
        self.image = filter.resized(&self.image, size, [0..h, 0..w])?;
        self.origin.resize(size)
    }
}

/// Images of one size.
#[derive(Default)]
pub(super) struct ImageBatch {
    planes: Vec<u8>,
    count: usize,
    first: Option<(String, [usize; 2])>,
}

impl ImageBatch {
    /// Adds an image, which errors call `name`.
    pub fn push(&mut self, image: &Pixels, name: impl Fn() -> String) -> Result<()> {
        let size = [image.height, image.width];
        let (first, own) = self.first.get_or_insert_with(|| (name(), size));
        if *own != size {
            return Err(size_mismatch((first, *own), (&name(), size)));
        }
        self.count += 1;
        image.append_planes(&mut self.planes)
    }
}

impl ImageTransform {
    /// Checks the numbers; the error says the valid range.
    fn check(&self) -> std::result::Result<(), &'static str> {
        let size = |size: [usize; 2]| match size.contains(&0) {
            true => Err("a size is at least 1"),
            false => Ok(()),
        };
        let range =
            |[low, high]: [f64; 2], most: f64| match low > 0.0 && low <= high && high <= most {
                true => Ok(()),
                false => {
                    Err("ranges are above 0, the smaller number first; shares of an area at most 1")
                }
            };
        let probability = |p: f64| match (0.0..=1.0).contains(&p) {
            true => Ok(()),
            false => Err("a probability is in 0..=1"),
        };
        match *self {
            ImageTransform::Resize { size: ImageSize::Exact(sizes), .. } => size(sizes),
            ImageTransform::Resize { size: ImageSize::ShortestEdge(edge), .. } => size([edge; 2]),
            ImageTransform::CenterCrop(sizes) => size(sizes),
            ImageTransform::RandomCrop { size: sizes, .. } => size(sizes),
            ImageTransform::RandomResizedCrop { size: sizes, scale, ratio, .. } => {
                size(sizes)?;
                range(scale, 1.0)?;
                range(ratio, f64::MAX)
            }
            ImageTransform::FlipHorizontal { p } | ImageTransform::FlipVertical { p } => {
                probability(p)
            }
            ImageTransform::ColorJitter { brightness, contrast, saturation } => {
                match [brightness, contrast, saturation].iter().all(|x| *x >= 0.0 && x.is_finite())
                {
                    true => Ok(()),
                    false => Err("changes of colours are at least 0, and finite"),
                }
            }
            ImageTransform::RandomErasing { p, scale, ratio, .. } => {
                probability(p)?;
                range(scale, 1.0)?;
                range(ratio, f64::MAX)
            }
        }
    }

    /// Changes the item in this way.
    fn apply(&self, item: &mut Item, draws: &mut Draws) -> Result<()> {
        let own @ [height, width] = [item.image.height, item.image.width];
        match *self {
            ImageTransform::Resize { size, filter } => item.resize(size.of(own), filter)?,
            ImageTransform::CenterCrop(size) => {
                item.crop([0, 1].map(|axis| centred(own[axis], size[axis])), size)?;
            }
            ImageTransform::RandomCrop { size, padding } => {
                let rest = [0, 1].map(|axis| {
                    own[axis].checked_add(padding.checked_mul(2)?)?.checked_sub(size[axis])
                });
                let [Some(rows), Some(columns)] = rest else {
                    let ([h, w], [crop_h, crop_w]) = (own, size);
                    let text = format!("cannot crop {crop_h} x {crop_w} from images of {h} x {w}");
                    return Err(Error::shape(format!("{text} with {padding} pixels of padding"))
                        .help(
                            "use a smaller crop, more padding, or ImageTransform::Resize first",
                        ));
                };
                let start = [rows, columns].map(|rest| draws.below(rest + 1) as isize);
                item.crop(start.map(|start| start - padding as isize), size)?;
            }
            ImageTransform::RandomResizedCrop { size, scale, ratio, filter } => {
                let (start, part) = (0..10)
                    .find_map(|_| {
                        // the ratio of torchvision is width / height here
                        let [w, h] = draws.rectangle(own, scale, ratio);
                        draws.place(own, [h, w], own)
                    })
                    .unwrap_or_else(|| {
                        let own_ratio = width as f64 / height as f64;
                        let [h, w] = match own_ratio {
                            r if r < ratio[0] => {
                                [(width as f64 / ratio[0]).round_ties_even(), width as f64]
                            }
                            r if r > ratio[1] => {
                                [height as f64, (height as f64 * ratio[1]).round_ties_even()]
                            }
                            _ => [height as f64, width as f64],
                        };
                        let size = [(h as usize).clamp(1, height), (w as usize).clamp(1, width)];
                        ([(height - size[0]) / 2, (width - size[1]) / 2], size)
                    });
                item.crop(start.map(|x| x as isize), part)?;
                item.resize(size, filter)?;
            }
            ImageTransform::FlipHorizontal { p } => {
                if draws.unit() < p {
                    for row in item.image.bytes.chunks_exact_mut(3 * width) {
                        row.reverse(); // which exchanges red and blue, too
                        row.chunks_exact_mut(3).for_each(|pixel| pixel.reverse());
                    }
                    item.origin.columns.reverse();
                }
            }
            ImageTransform::FlipVertical { p } => {
                if draws.unit() < p {
                    let rows = item.image.bytes.chunks_exact(3 * width).rev();
                    item.image.bytes = rows.flatten().copied().collect();
                    item.origin.rows.reverse();
                }
            }
            ImageTransform::ColorJitter { brightness, contrast, saturation } => {
                let mut order = [
                    (Color::Brightness, brightness),
                    (Color::Contrast, contrast),
                    (Color::Saturation, saturation),
                ];
                (1..3).rev().for_each(|i| order.swap(i, draws.below(i + 1)));
                for (kind, change) in order.into_iter().filter(|(_, change)| *change > 0.0) {
                    let factor = draws.between([(1.0 - change).max(0.0), 1.0 + change]);
                    item.image.adjust(kind, factor);
                }
            }
            ImageTransform::RandomErasing { p, scale, ratio, value } => {
                if draws.unit() >= p {
                    return Ok(());
                }
                let inside = own.map(|side| side.saturating_sub(1)); // less than all of a side
                let found = (0..10).find_map(|_| {
                    let size = draws.rectangle(own, scale, ratio);
                    draws.place(own, size, inside)
                });
                if let Some(([top, left], [h, w])) = found {
                    let rows = item.image.bytes.chunks_exact_mut(3 * width);
                    for row in rows.skip(top).take(h) {
                        row[3 * left..3 * (left + w)]
                            .chunks_exact_mut(3)
                            .for_each(|pixel| pixel.copy_from_slice(&value));
                    }
                }
            }
        }
        Ok(())
    }
}

impl Pixels {
    /// The part of this size from `start`, with black outside of the image.
    fn crop(&self, start: [isize; 2], [height, width]: [usize; 2]) -> Result<Pixels> {
        let bytes = height.checked_mul(width).and_then(|area| area.checked_mul(3));
        let too_large = || {
            Error::value(format!("a crop to {height} x {width} is too large"))
                .help("a smaller size")
        };
        let mut bytes = teeny_core::memory::filled(0, bytes.ok_or_else(too_large)?)?;
        // the columns of the image that are kept, and where the first one is in the crop
        let [top, left] = start;
        let from = left.clamp(0, self.width as isize) as usize;
        let to = left.saturating_add_unsigned(width).clamp(from as isize, self.width as isize);
        let (to, at) = (to as usize, left.min(0).unsigned_abs().min(width));
        let kept = 3 * (to - from);
        for (y, row) in bytes.chunks_exact_mut(3 * width).enumerate() {
            let y = top.saturating_add_unsigned(y);
            if (0..self.height as isize).contains(&y) {
                let source = 3 * (y as usize * self.width + from);
                row[3 * at..3 * at + kept].copy_from_slice(&self.bytes[source..source + kept]);
            }
        }
        Ok(Pixels { height, width, bytes })
    }

    /// Changes all pixels by a factor.
    fn adjust(&mut self, color: Color, factor: f64) {
        match color {
            Color::Brightness => self.blend(factor, |_| 0.0),
            Color::Contrast => {
                let greys = self.bytes.chunks_exact(3).map(|pixel| f64::from(grey(pixel)));
                let mean = (greys.sum::<f64>() / (self.height * self.width) as f64) as f32;
                self.blend(factor, |_| mean);
            }
            Color::Saturation => self.blend(factor, grey),
        }
    }

    /// `factor * x + (1 - factor) * other(pixel)` for each byte x, rounded down.
    fn blend(&mut self, factor: f64, other: impl Fn(&[u8]) -> f32) {
        let [factor, rest] = [factor, 1.0 - factor].map(|x| x as f32);
        for pixel in self.bytes.chunks_exact_mut(3) {
            let other = rest * other(pixel);
            pixel.iter_mut().for_each(|x| *x = (factor * f32::from(*x) + other) as u8); // clamps
        }
    }
}

/// The brightness of a pixel, rounded down.
fn grey(pixel: &[u8]) -> f32 {
    // the weights of ITU-R BT.601 as torchvision has them
    let [r, g, b] = [0, 1, 2].map(|c| f32::from(pixel[c]));
    (0.2989 * r + 0.587 * g + 0.114 * b).floor()
}

/// The start of a crop around the centre; halves are rounded to even numbers, as in torchvision.
fn centred(own: usize, size: usize) -> isize {
    match own.checked_sub(size) {
        Some(rest) => (rest as f64 / 2.0).round_ties_even() as isize,
        None => -(((size - own) / 2) as isize),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of torchvision's formulas, computed by torch 2.15.
    #[test]
    fn colours_have_the_bytes_of_torchvision() {
        let planes = [0, 1, 10, 255, 100, 101, 7, 13, 200, 55, 201, 90];
        #[rustfmt::skip]
        let cases = [
            (Color::Brightness, 0.3, [0, 0, 3, 76, 30, 30, 2, 3, 60, 16, 60, 27]),
            (Color::Contrast, 0.3, [47, 47, 50, 123, 77, 77, 49, 51, 107, 63, 107, 74]),
            (Color::Saturation, 0.3, [56, 45, 24, 142, 86, 75, 23, 69, 116, 62, 81, 92]),
            (Color::Brightness, 1.7, [0, 1, 17, 255, 170, 171, 11, 22, 255, 93, 255, 153]),
            (Color::Contrast, 1.7, [0, 0, 0, 255, 122, 124, 0, 0, 255, 46, 255, 105]),
            (Color::Saturation, 1.7, [0, 0, 0, 255, 113, 126, 0, 0, 255, 48, 255, 87]),
        ];
        for (color, factor, want) in cases {
            let mut image = Pixels::from_planes([2, 2], &planes).unwrap();
            image.adjust(color, factor);
            let mut got = Vec::new();
            image.append_planes(&mut got).unwrap();
            assert_eq!(got, want);
        }
    }
}
