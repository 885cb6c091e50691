//! Images as the input of models.

mod processor;
mod resample;

pub use processor::{ImageProcessor, ImageSize};
pub use resample::Resample;
