//! What a training loop wants besides the training: numbers that summarise it, and a picture.

mod metrics;
mod plot;

pub use metrics::{Mean, accuracy, require_finite};
pub use plot::Plot;
