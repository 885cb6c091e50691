//! Tools for training loops: losses by step, metrics and logs. They are independent of each other;
//! a [`Run`] combines those that most programs need.
//!
//! ```text
//! Run, RunOptions            resumes, logs, keeps the best, stops, plots     run, run_options
//! Losses                     read from the device several at a time          losses
//! Progress, Bar              steps and tokens per second, time left          progress
//! Mean, accuracy, Confusion  metrics of classifiers                          metrics
//! roc_auc, r2_score, ..      metrics of scores, probabilities and numbers    scores
//! Captured                   loss and gradients, recorded and replayed       captured
//! EarlyStopping              stops when a value no longer improves           stopping
//! lr_finder                  losses at growing learning rates                lr_finder
//! Log                        CSV or JSON lines                               log
//! ```

mod captured;
mod elements;
mod epoch;
mod log;
mod losses;
mod lr_finder;
mod metrics;
mod progress;
mod recorded;
mod run;
mod run_options;
mod scores;
mod stopping;

pub use captured::Captured;
pub use log::{Field, Log};
pub use losses::Losses;
pub use lr_finder::{LrFinder, lr_finder};
pub use metrics::{
    ClassScores, Confusion, Mean, accuracy, accuracy_async, perplexity, require_finite,
    top_k_accuracy, top_k_accuracy_async,
};
pub use progress::{Bar, Progress};
pub use run::Run;
pub use run_options::{RunOptions, RunRanks};
pub use scores::{average_precision, calibration_error, r2_score, roc_auc};
pub use stopping::EarlyStopping;
