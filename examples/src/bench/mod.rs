//! The `bench` program: the clock, and the workloads by family.
//!
//! A workload is a closure that does the work once and gives what it made. The clock runs it until
//! the median is worth something and prints one JSON line.

pub mod models;
pub mod ops;

use std::hint::black_box;
use std::time::{Duration, Instant};
use teeny_core::{DeviceRef, Result};

/// What one run of a workload amounts to.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// Floating-point operations.
    Flops(f64),
    /// Bytes that must at least be read and written.
    Bytes(f64),
    /// Operations.
    Ops(f64),
    /// One training step.
    Step,
    /// Tokens.
    Tokens(f64),
}

impl Work {
    fn rate(self, seconds: f64) -> (&'static str, f64) {
        match self {
            Work::Flops(n) => ("GFLOP/s", n / seconds / 1e9),
            Work::Bytes(n) => ("GB/s", n / seconds / 1e9),
            Work::Ops(n) => ("Mop/s", n / seconds / 1e6),
            Work::Step => ("steps/s", 1.0 / seconds),
            Work::Tokens(n) => ("tokens/s", n / seconds),
        }
    }
}

/// Runs the workloads that are wanted and prints a line for each:
/// `{"peer":"teeny","device":"cpu","threads":2,"name":"matmul/1024","ms":4.3,"unit":"GFLOP/s","rate":499}`.
pub struct Bench {
    /// Where the work is done.
    pub device: DeviceRef,
    /// Its name in the output.
    pub name: String,
    /// The number of threads in the output.
    pub threads: usize,
    /// Beginnings of names; all workloads if empty.
    pub only: Vec<String>,
    /// Whether a third of the time will do.
    pub quick: bool,
}

impl Bench {
    /// Whether a workload of this name is to be run.
    pub fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|start| name.starts_with(start.as_str()))
    }

    /// Times workload `name` if it is wanted: `prepare` makes what the work needs, the work itself
    /// is what it gives.
    ///
    /// At least three runs and 0.3 s to warm up, then at least seven and one second. Each result is
    /// complete before the next run begins, and dropped inside the time. Runs too short for the
    /// clock are timed in groups of about 0.1 ms. `ms` is the median.
    ///
    /// # Errors
    /// Those of the work.
    pub fn time<T, F: FnMut() -> Result<T>>(
        &self,
        name: &str,
        work: Work,
        prepare: impl FnOnce(&DeviceRef) -> Result<F>,
    ) -> Result<()> {
        if !self.wants(name) {
            return Ok(());
        }
        let mut run = prepare(&self.device)?;
        let mut group = |n: usize| -> Result<f64> {
            let start = Instant::now();
            for _ in 0..n {
                let made = run()?;
                self.device.synchronize()?;
                drop(black_box(made));
            }
            Ok(start.elapsed().as_secs_f64() / n as f64)
        };
        let mut warm = Vec::new();
        let start = Instant::now();
        while warm.len() < 3 || start.elapsed() < Duration::from_millis(300) {
            warm.push(group(1)?);
        }
        let n = ((1e-4 / median(&mut warm[1..])).ceil() as usize).clamp(1, 10_000);
        let (least, enough) =
            if self.quick { (Duration::from_millis(300), 5) } else { (Duration::from_secs(1), 7) };
        let mut samples = Vec::new();
        let start = Instant::now();
        while samples.len() < enough || start.elapsed() < least {
            samples.push(group(n)?);
        }
        let seconds = median(&mut samples);
        let (unit, rate) = work.rate(seconds);
        let (device, threads, ms, rate) =
            (&self.name, self.threads, digits(seconds * 1e3), digits(rate));
        println!(
            r#"{{"peer":"teeny","device":"{device}","threads":{threads},"name":"{name}","ms":{ms},"unit":"{unit}","rate":{rate}}}"#
        );
        Ok(())
    }
}

fn median(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    let n = samples.len();
    (samples[(n - 1) / 2] + samples[n / 2]) / 2.0
}

/// Five significant digits.
fn digits(x: f64) -> String {
    let before = if x > 0.0 { x.log10().floor() as i32 + 1 } else { 1 };
    format!("{x:.*}", (5 - before).clamp(0, 12) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_five_digits_and_medians_are_in_the_middle() {
        assert_eq!(
            [digits(123456.7), digits(12.345678), digits(0.00123456), digits(0.0)],
            ["123457", "12.346", "0.0012346", "0.0000"]
        );
        assert_eq!((median(&mut [3.0, 1.0, 2.0]), median(&mut [4.0, 1.0, 2.0, 3.0])), (2.0, 2.5));
    }
}
