//! A progress bar on a terminal, nothing elsewhere.

use indicatif::{ProgressBar, ProgressStyle};
use std::time::{Duration, Instant};
use teeny_nn::train::Progress;

/// The line beside the bar is written anew no sooner: some loops take less time for a step than
/// that does.
const REFRESH: Duration = Duration::from_millis(100);

/// Shows how far a loop is, how fast, how long it will take, and the loss.
pub struct Bar {
    bar: ProgressBar,
    progress: Progress,
    written: Instant,
}

impl Bar {
    /// A bar of `steps` steps that work through things called `unit`: tokens, images.
    pub fn new(steps: u64, unit: &'static str) -> Bar {
        let style = ProgressStyle::with_template("{bar:30} {msg}").expect("a fixed template");
        Bar {
            bar: ProgressBar::new(steps).with_style(style),
            progress: Progress::new(steps).items(unit),
            written: Instant::now(),
        }
    }

    /// One more step, on `items`; `loss` is the latest that is known, NaN if none is.
    pub fn step(&mut self, items: usize, loss: f64) {
        self.progress.advance(1, items as u64);
        if self.written.elapsed() > REFRESH && !self.bar.is_hidden() {
            self.written = Instant::now();
            self.bar.set_position(self.progress.done());
            let loss = if loss.is_nan() { String::new() } else { format!(", loss {loss:.3}") };
            self.bar.set_message(format!("{}{loss}", self.progress));
        }
    }

    /// Prints while the bar is out of the way.
    pub fn suspend(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
