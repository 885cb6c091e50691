//! Encoders of images, and CLIP, which compares images with texts.

mod clip;
mod encoder;
mod processor;

pub use clip::Clip;
pub use encoder::ImageEncoder;
pub use processor::ImageProcessor;
pub use teeny_data::images::{ImageSize, Resample};

use crate::encoder_family::layers;
use teeny_autograd::no_grad;
use teeny_core::{Result, Tensor};
use teeny_formats::config::Config;
use teeny_nn::transformer::VisionConfig;

/// The images of a batch at most.
const IMAGES: usize = 16;

/// `compute` (B, 3, H, W) → (B, width) of all images, in their order, on the device and of the
/// dtype of `like`.
fn in_batches(
    images: &[Tensor],
    processor: &ImageProcessor,
    (width, like): (usize, &Tensor),
    compute: &dyn Fn(&Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    if images.is_empty() {
        return Tensor::zeros((0, width), like.dtype(), like);
    }
    let rows = images.chunks(IMAGES).map(|images| {
        let pixels = processor.process(images, like)?; // (B, 3, H, W)
        no_grad(|| compute(&pixels))
    });
    let rows = rows.collect::<Result<Vec<Tensor>>>()?;
    Tensor::cat(&rows, 0) // (N, width)
}

/// Sizes and options of an encoder of images.
fn vision(config: &Config) -> Result<VisionConfig> {
    let mut options = VisionConfig::read(config)?;
    options.layer = layers(config)?;
    if options.patches() == 0 {
        let (image, patch) = (options.image, options.patch);
        return Err(config.error(format!(
            "images of {image:?} have no patch of {patch:?}: \"image_size\" and \"patch_size\""
        )));
    }
    Ok(options)
}
