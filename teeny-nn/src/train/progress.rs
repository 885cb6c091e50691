//! The progress of a run: steps done, speed, time left.

use std::collections::VecDeque;
use std::fmt;
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
    fn numbers_have_three_digits() {
        assert_eq!(
            [0.123, 12.34, 451.2, 45_123.0, 1.23e6].map(short),
            ["0.12", "12.3", "451", "45.1k", "1.2M"]
        );
    }
}
