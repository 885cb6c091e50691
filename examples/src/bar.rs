//! A progress bar on a terminal; no output elsewhere.

use crate::Common;
use indicatif::{ProgressBar, ProgressStyle};
use std::time::{Duration, Instant};
use teeny_nn::train::Progress;

/// The shortest time between two updates of the bar: an update takes longer than a step of some
/// loops.
const REFRESH: Duration = Duration::from_millis(100);

/// A progress bar of a loop with its speed, the time that is left, and the loss.
pub struct Bar {
    bar: ProgressBar,
    progress: Progress,
    updated: Instant,
}

impl Bar {
    /// A bar of `steps` steps that process items called `unit`: tokens, images. One rank shows it.
    pub fn new(common: &Common, steps: u64, unit: &'static str) -> Bar {
        let style = ProgressStyle::with_template("{bar:30} {msg}").expect("a fixed template");
        Bar {
            bar: match common.is_first() {
                true => ProgressBar::new(steps).with_style(style),
                false => ProgressBar::hidden(),
            },
            progress: Progress::new(steps).items(unit),
            updated: Instant::now(),
        }
    }

    /// Counts a step that processed `items` items; `loss` is the latest that was read, NaN if none
    /// was.
    pub fn step(&mut self, items: usize, loss: f64) {
        self.progress.advance(1, items as u64);
        if self.updated.elapsed() > REFRESH && !self.bar.is_hidden() {
            self.updated = Instant::now();
            self.bar.set_position(self.progress.done());
            let loss = if loss.is_nan() { String::new() } else { format!(", loss {loss:.3}") };
            self.bar.set_message(format!("{}{loss}", self.progress));
        }
    }

    /// Removes the bar from the terminal.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }

    /// Calls `print` while the bar is removed from the terminal.
    pub fn suspend(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
