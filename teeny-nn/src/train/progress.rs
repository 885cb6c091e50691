//! The progress of a run: steps done, speed, time left, and a bar on a terminal.

use std::collections::VecDeque;
use std::fmt;
use std::io::{IsTerminal, Write, stderr, stdout};
use std::time::Duration;
use teeny_core::clock::Instant;

/// Speeds are averages over this last period, so that a slow start does not count for long.
const WINDOW: Duration = Duration::from_secs(10);
/// The smallest time between two stored marks.
const SPACING: Duration = Duration::from_millis(100);

/// Counts steps and items, such as tokens or images. Prints as a line:
/// `120/400 steps, 12.3 steps/s, 45.1k tokens/s, 0:23 left`.
///
/// # Example
/// ```
/// use teeny_nn::train::Progress;
/// let mut progress = Progress::new(400).items("tokens");
/// for step in 0..400 {
///     // .. a step on a batch of 16 x 64 tokens
///     progress.advance(1, 16 * 64);
///     if step % 100 == 99 {
///         println!("{progress}");
///     }
/// }
/// assert_eq!((progress.done(), progress.eta().is_zero()), (400, true));
/// ```
#[derive(Clone, Debug)]
pub struct Progress {
    total: u64,
    unit: &'static str,
    done: u64,
    items: u64,
    began: Instant,
    /// Times with the steps and items done by then; the oldest is just outside the window.
    marks: VecDeque<(Instant, u64, u64)>,
}

impl Progress {
    /// The progress of a run of `total` steps that begins now.
    pub fn new(total: u64) -> Progress {
        let now = Instant::now();
        Progress {
            total,
            unit: "items",
            done: 0,
            items: 0,
            began: now,
            marks: VecDeque::from([(now, 0, 0)]),
        }
    }

    /// Sets the name of the items.
    pub fn items(mut self, unit: &'static str) -> Progress {
        self.unit = unit;
        self
    }

    /// Adds `steps` steps with `items` items in total.
    pub fn advance(&mut self, steps: u64, items: u64) {
        self.advance_at(Instant::now(), steps, items);
    }

    fn advance_at(&mut self, now: Instant, steps: u64, items: u64) {
        self.done += steps;
        self.items += items;
        // the newest mark is replaced until it is SPACING after the one before
        if self.marks.len() > 1 && now - self.marks[self.marks.len() - 2].0 < SPACING {
            self.marks.pop_back();
        }
        self.marks.push_back((now, self.done, self.items));
        while self.marks.len() > 2 && now - self.marks[1].0 >= WINDOW {
            self.marks.pop_front();
        }
    }

    /// The number of steps done.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// The time since the run began.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// The recent speed in steps per second; 0 before the first step.
    pub fn steps_per_second(&self) -> f64 {
        self.rate(|mark| mark.1)
    }

    /// The recent speed in items per second; 0 before the first step.
    pub fn items_per_second(&self) -> f64 {
        self.rate(|mark| mark.2)
    }

    fn rate(&self, count: impl Fn(&(Instant, u64, u64)) -> u64) -> f64 {
        let (Some(first), Some(last)) = (self.marks.front(), self.marks.back()) else { return 0.0 };
        let seconds = (last.0 - first.0).as_secs_f64();
        if seconds > 0.0 { (count(last) - count(first)) as f64 / seconds } else { 0.0 }
    }

    /// The time that the remaining steps take at this speed; 0 before the first step.
    pub fn eta(&self) -> Duration {
        let seconds = self.total.saturating_sub(self.done) as f64 / self.steps_per_second();
        Duration::try_from_secs_f64(seconds).unwrap_or_default()
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}/{} steps, {} steps/s",
            self.done,
            self.total,
            short(self.steps_per_second())
        )?;
        if self.items > 0 {
            write!(f, ", {} {}/s", short(self.items_per_second()), self.unit)?;
        }
        let seconds = self.eta().as_secs();
        match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
            (0, minutes, seconds) => write!(f, ", {minutes}:{seconds:02} left"),
            (hours, minutes, seconds) => write!(f, ", {hours}:{minutes:02}:{seconds:02} left"),
        }
    }
}

/// The shortest time between two updates of a bar: an update takes longer than a step of some
/// loops.
const REFRESH: Duration = Duration::from_millis(100);
/// The columns of a bar.
const COLUMNS: u64 = 30;

/// A progress bar of one line with speed, time left and loss, on standard error if that is a
/// terminal.
///
/// # Example
/// ```
/// use teeny_nn::train::Bar;
/// let mut bar = Bar::new(400, Some("tokens"));
/// for step in 0..400 {
///     // .. a step on a batch of 16 x 64 tokens
///     bar.step(16 * 64, 2.3);
/// }
/// bar.clear(); // also before another line is printed; the next step shows the bar again
/// ```
pub struct Bar {
    progress: Progress,
    is_shown: bool,
    is_drawn: bool,
    updated: Instant,
}

impl Bar {
    /// A bar of `steps` steps that process items called `unit`: tokens, images. Without a unit the
    /// bar is not shown.
    pub fn new(steps: u64, unit: Option<&'static str>) -> Bar {
        Bar {
            progress: Progress::new(steps).items(unit.unwrap_or("items")),
            is_shown: unit.is_some() && stderr().is_terminal(),
            is_drawn: false,
            updated: Instant::now(),
        }
    }

    /// Counts a step that processed `items` items; `loss` is the latest that was read, NaN if none
    /// was.
    pub fn step(&mut self, items: usize, loss: f64) {
        self.progress.advance(1, items as u64);
        if self.is_shown && self.updated.elapsed() > REFRESH {
            self.updated = Instant::now();
            self.is_drawn = true;
            // without line wrap, so that a narrow terminal cuts the line
            self.put(&format!("\r\x1b[?7l{}\x1b[K\x1b[?7h", self.line(loss)));
        }
    }

    /// Removes the bar from the terminal.
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.is_drawn) {
            self.put("\r\x1b[K");
        }
    }

    /// Writes `text`. A terminal that does not take it is not a reason to end a run.
    fn put(&self, text: &str) {
        let mut terminal = stderr().lock();
        let _ = terminal.write_all(text.as_bytes()).and_then(|()| terminal.flush());
    }

    fn line(&self, loss: f64) -> String {
        let Progress { done, total, .. } = self.progress;
        let full = (COLUMNS as f64 * done.min(total) as f64 / total.max(1) as f64) as usize;
        let loss = if loss.is_nan() { String::new() } else { format!(", loss {loss:.3}") };
        let empty = COLUMNS as usize - full;
        format!("{}{} {}{loss}", "█".repeat(full), "░".repeat(empty), self.progress)
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.clear();
    }
}

/// A number with about three digits: `0.52`, `12.3`, `451`, `45.1k`, `1.2M`.
fn short(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{:.1}M", v / 1e6),
        v if v >= 1e4 => format!("{:.1}k", v / 1e3),
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

/// Prints a line. An output that is closed, as by `head -n 1`, is not a reason to end a run.
pub(super) fn print(line: fmt::Arguments<'_>) {
    let _ = writeln!(stdout(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_those_of_late_and_tell_the_time_that_is_left() {
        let mut progress = Progress::new(1000).items("tokens");
        assert_eq!((progress.steps_per_second(), progress.eta()), (0.0, Duration::ZERO));
        let began = progress.began;
        // a slow first step, then two steps a second
        progress.advance_at(began + Duration::from_secs(20), 1, 100);
        for i in 1..=100 {
            progress.advance_at(
                began + Duration::from_secs(20) + Duration::from_millis(500 * i),
                1,
                100,
            );
        }
        assert!(
            (progress.steps_per_second() - 2.0).abs() < 1e-9
                && (progress.items_per_second() - 200.0).abs() < 1e-6
        );
        assert!((progress.eta().as_secs_f64() - 899.0 / 2.0).abs() < 1e-6);
        assert_eq!(progress.to_string(), "101/1000 steps, 2.00 steps/s, 200 tokens/s, 7:29 left");
    }

    #[test]
    fn many_quick_steps_need_no_memory() {
        let mut progress = Progress::new(1_000_000);
        let began = progress.began;
        (1..=100_000)
            .for_each(|i| progress.advance_at(began + Duration::from_micros(100 * i), 1, 0));
        assert!(progress.marks.len() < 150, "{}", progress.marks.len());
        assert!((progress.steps_per_second() - 10_000.0).abs() < 100.0);
        assert_eq!(progress.to_string().split(',').next(), Some("100000/1000000 steps"));
        assert!(!progress.to_string().contains("items"));
    }

    #[test]
    fn a_bar_fills_and_says_speed_and_loss() {
        let mut bar = Bar::new(40, Some("images"));
        assert!(bar.line(f64::NAN).starts_with(&"░".repeat(30)));
        (0..20).for_each(|_| bar.step(8, 0.25));
        let line = bar.line(0.25);
        let half = "█".repeat(15) + &"░".repeat(15) + " 20/40 steps, ";
        assert!(line.starts_with(&half) && line.ends_with(" left, loss 0.250"), "{line}");
        assert!(line.contains(" images/s, "), "{line}");
        (0..30).for_each(|_| bar.step(8, 0.25)); // more than were announced
        assert!(bar.line(f64::NAN).starts_with(&"█".repeat(30)));
        assert!(Bar::new(0, None).line(1.0).ends_with(" left, loss 1.000"));
    }

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!(
            [0.123, 12.34, 451.2, 45_123.0, 1.23e6].map(short),
            ["0.12", "12.3", "451", "45.1k", "1.2M"]
        );
    }
}
