//! Masks of classes, which change together with their images.
//!
//! Crops, flips and sizes by the nearest pixel move whole rows and columns. So two lists per image
//! record the moves, and the mask is read once, at the end:
//!
//! ```text
//! mask' (y, x) = mask (rows[y], columns[x])          rows, columns: a SourcePixels
//! ```

use super::{ImageTransforms, resample::nearest};
use teeny_core::context::enter;
use teeny_core::{DType, Error, Result, Scalar, Tensor, memory};

/// The source row of each row, and the source column of each column; None outside the source image.
pub(super) struct SourcePixels {
    pub rows: Vec<Option<usize>>,
    pub columns: Vec<Option<usize>>,
}

impl SourcePixels {
    /// The rows and columns of an unchanged image.
    pub fn new([height, width]: [usize; 2]) -> Result<SourcePixels> {
        let all = |side: usize| memory::collected((0..side).map(Some));
        Ok(SourcePixels { rows: all(height)?, columns: all(width)? })
    }

    /// Crops to the part of this size from `start`.
    pub fn crop(&mut self, start: [isize; 2], size: [usize; 2]) -> Result<()> {
        for (axis, (start, size)) in self.axes().into_iter().zip(start.into_iter().zip(size)) {
            let at = |i| {
                let i = start.checked_add_unsigned(i)?;
                *axis.get(usize::try_from(i).ok()?)?
            };
            *axis = memory::collected((0..size).map(at))?;
        }
        Ok(())
    }

    /// That of this size, by the nearest rows and columns.
    pub fn resize(&mut self, size: [usize; 2]) -> Result<()> {
        for (axis, size) in self.axes().into_iter().zip(size) {
            let mut resized = memory::reserved(size)?;
            resized.extend(nearest(axis.len(), size).take(size).map(|i| axis[i]));
            *axis = resized;
        }
        Ok(())
    }

    fn axes(&mut self) -> [&mut Vec<Option<usize>>; 2] {
        [&mut self.rows, &mut self.columns]
    }
}

impl ImageTransforms {
    /// Sets the class that masks have outside of the image, where a crop is padded; usually the
    /// ignored index of the loss. Default: 0, as for images.
    ///
    /// Equivalent: `fill={Mask: value}` of `torchvision.transforms.v2`.
    pub fn with_mask_fill(mut self, class: i64) -> ImageTransforms {
        self.mask_fill = class;
        self
    }

    /// The images of a batch, as [`ImageTransforms::batch`] to the bit, and their masks: the class
    /// of each pixel.
    ///
    /// Crops, flips and sizes change both by the same random numbers. A resized mask has the
    /// nearest pixel, whatever the filter of the images, so no class between two others arises.
    /// Colours and [`RandomErasing`](super::ImageTransform::RandomErasing) change images only: the
    /// class of an erased pixel is still the target, to be predicted from the pixels around it.
    ///
    /// Shapes: u8 (B, 3, H, W) and integers or booleans (B, H, W) → f32 (B, 3, h, w) and (B, h, w)
    /// of the type of the masks.
    ///
    /// # Errors
    /// As [`ImageTransforms::batch`]; also if the masks are something else, or their type does not
    /// have the class of [`ImageTransforms::with_mask_fill`].
    ///
    /// # Example
    /// ```
    /// use teeny_data::images::{ImageTransform, ImageTransforms};
    /// use teeny_data::DataLoader;
    /// use teeny_nn::prelude::*;
    /// # fn main() -> Result<()> {
    /// let device = device("cpu")?;
    /// let augment = ImageTransforms::new(1, [
    ///     ImageTransform::RandomCrop { size: [8, 8], padding: 2 },
    ///     ImageTransform::FlipHorizontal { p: 0.5 },
    /// ])?
    /// .with_mask_fill(255); // CrossEntropy::new().with_ignore_index(255)
    /// let images = Tensor::full((10, 3, 8, 8), 128, DType::U8, &device)?; // (N, 3, H, W)
    /// let masks = Tensor::ones((10, 8, 8), DType::U8, &device)?; // (N, H, W)
    /// let data = (images, masks).map(move |(x, y), indices, epoch| {
    ///     augment.batch_with_masks(&x, &y, indices, epoch)
    /// });
    /// let (x, y) = DataLoader::new(data, 4)?.epoch(0).next().unwrap()?; // (4, 3, 8, 8), (4, 8, 8)
    /// // black pixels are outside of the image
    /// assert_eq!(x.at(1, 0)?.eq(0)?.to_vec::<bool>()?, y.eq(255)?.to_vec::<bool>()?);
    /// # Ok(()) }
    /// ```
    ///
    /// Equivalent: transforms of an image and a `torchvision.tv_tensors.Mask`.
    #[track_caller]
    pub fn batch_with_masks(
        &self,
        images: &Tensor,
        masks: &Tensor,
        indices: &[usize],
        epoch: u64,
    ) -> Result<(Tensor, Tensor)> {
        let _op = enter("ImageTransforms::batch_with_masks");
        self.check_masks(images, masks)?;
        let (x, origins) = self.traced(images, indices, epoch)?;
        let [height, width] = [masks.shape()[1], masks.shape()[2]];
        let outside = i32::try_from(masks.numel()).map_err(|_| {
            let text = format!("masks {} have too many pixels for one batch", masks.shape());
            Error::value(text).help("use smaller batches")
        })?;
        let [h, w] = [x.shape()[2], x.shape()[3]];
        let mut index = memory::reserved(origins.len() * h * w)?;
        for (i, SourcePixels { rows, columns }) in origins.into_iter().enumerate() {
            for row in rows {
                let pixel = |column: &Option<usize>| {
                    let place = (i * height + row?) * width + (*column)?;
                    Some(place as i32) // below the number of elements, which fits
                };
                index.extend(columns.iter().map(|column| pixel(column).unwrap_or(outside)));
            }
        }
        let index = Tensor::from_vec(index, (x.shape()[0], h, w), masks)?; // (B, h, w)
        let fill = Tensor::full(1, self.mask_fill, masks.dtype(), masks)?; // (1)
        Ok((x, Tensor::cat(&[&masks.reshape(-1)?, &fill], 0)?.take(&index)?))
    }

    fn check_masks(&self, images: &Tensor, masks: &Tensor) -> Result<()> {
        let ([x, y], dtype) = ([images.shape(), masks.shape()], masks.dtype());
        if !dtype.is_int() && dtype != DType::Bool {
            return Err(Error::dtype(format!("masks are classes, so integers, not {dtype}"))
                .help("masks.cast(DType::I32)? converts"));
        }
        if x.len() == 4 && y[..] != [x[0], x[2], x[3]] {
            let error = Error::shape(format!("masks {y} do not fit images {x}"));
            return Err(match y[..] == [x[0], 1, x[2], x[3]] {
                true => error.help("masks.squeeze(1)? has no axis of channels"),
                false => error.help("images (B, 3, H, W) need masks (B, H, W): a class per pixel"),
            });
        }
        if !Scalar::Int(self.mask_fill).fits(dtype) {
            let text = format!("cannot fill masks of {dtype} with {}", self.mask_fill);
            return Err(Error::value(text)
                .help("use masks.cast(DType::I32)?, or another class in with_mask_fill"));
        }
        Ok(())
    }
}
