//! The options of encoders of images.

use crate::config::Config;
use crate::pretrained::encoder_family::layers;
use crate::transformer::VisionConfig;
use teeny_core::Result;

/// Sizes and options of an encoder of images.
pub(super) fn vision(config: &Config) -> Result<VisionConfig> {
    let options = VisionConfig { layer: layers(config)?, ..VisionConfig::read(config)? };
    if options.patches() == 0 {
        let (image, patch) = (options.image, options.patch);
        return Err(config.error(format!(
            "images of {image:?} have no patch of {patch:?}: \"image_size\" and \"patch_size\""
        )));
    }
    Ok(options)
}
