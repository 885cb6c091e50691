//! What a training loop wants besides the training: numbers that summarise it, a file of them, and a picture. Pieces to pick from, not a framework.

mod log;
mod losses;
mod metrics;
mod plot;

pub use log::{Field, Log};
pub use losses::Losses;
pub use metrics::{Mean, accuracy, require_finite};
pub use plot::Plot;
