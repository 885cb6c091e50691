//! Tools for training loops: losses by step, metrics, logs and plots. They are independent of each
//! other.
//!
//! ```text
//! Losses                     read from the device several at a time          losses
//! Progress                   steps and tokens per second, time left          progress
//! Mean, accuracy, Confusion  metrics of classifiers                          metrics
//! Captured                   loss and gradients, recorded and replayed       captured
//! EarlyStopping              stops when a value no longer improves           stopping
//! Log, Plot                  CSV or JSON lines, SVG                          log, plot, ticks
//! ```

mod captured;
mod log;
mod losses;
mod metrics;
mod plot;
mod progress;
mod stopping;
mod ticks;

pub use captured::Captured;
pub use log::{Field, Log};
pub use losses::Losses;
pub use metrics::{
    Confusion, Mean, accuracy, accuracy_async, perplexity, require_finite, top_k_accuracy,
    top_k_accuracy_async,
};
pub use plot::Plot;
pub use progress::Progress;
pub use stopping::EarlyStopping;
