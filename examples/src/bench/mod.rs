//! The `bench` program: the clock, and the workloads by family.
//!
//! A workload is a closure that does the work once and returns its result. The clock repeats it
//! until there are enough samples for a median, and prints a line of JSON. `sweep` draws workloads
//! at random instead; `roofline` compares operations with the device's peaks.

pub mod models;
pub mod ops;
pub mod overhead;
pub mod roofline;
pub mod sweep;

use std::hint::black_box;
use std::time::{Duration, Instant};
use teeny_core::{DeviceRef, Lazy, Result};

/// The amount of work in one run of a workload. It decides the unit of the rate.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// Floating-point operations.
    Flops(f64),
    /// The least number of bytes that must be read and written.
    Bytes(f64),
    /// Operations.
    Ops(f64),
    /// Elements, of which one takes nanoseconds.
    Elements(f64),
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
            Work::Elements(n) => ("ns/element", seconds * 1e9 / n),
            Work::Step => ("steps/s", 1.0 / seconds),
            Work::Tokens(n) => ("tokens/s", n / seconds),
        }
    }
}

/// Times the selected workloads and prints a line of JSON for each:
///
/// ```text
/// {"peer":"teeny","device":"cpu","threads":2,"name":"matmul/1024","ms":4.3,
///  "unit":"GFLOP/s","rate":499}
/// ```
pub struct Bench {
    /// The device that does the work.
    pub device: DeviceRef,
    /// Its name in the output.
    pub name: String,
    /// The number of threads in the output.
    pub threads: usize,
    /// Prefixes of the names of the workloads to time; all of them if empty.
    pub only: Vec<String>,
    /// Whether to measure for 0.3 s instead of 1 s.
    pub quick: bool,
    /// Numbers of threads whose times are computed from a run on one; none to measure.
    pub simulate: Vec<usize>,
}

impl Bench {
    /// Whether the workload `name` is selected.
    pub fn selects(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|start| name.starts_with(start.as_str()))
    }

    /// Times the workload `name` if it is selected. `prepare` makes the operands and returns the
    /// work.
    ///
    /// There are at least three runs in at least 0.3 s to warm up, then at least seven samples in
    /// at least one second. Each result is complete before the next run begins; the time includes
    /// dropping it. A sample of short runs is a group of them that takes about 0.1 ms. `ms` is the
    /// median of the samples.
    ///
    /// # Errors
    /// If the work fails.
    pub fn time<T, F: FnMut() -> Result<T>>(
        &self,
        name: &str,
        work: Work,
        prepare: impl FnOnce(&DeviceRef) -> Result<F>,
    ) -> Result<()> {
        self.time_on(&self.device, name, work, prepare)
    }

    /// [`Bench::time`] on another device.
    ///
    /// # Errors
    /// If the work fails.
    pub fn time_on<T, F: FnMut() -> Result<T>>(
        &self,
        device: &DeviceRef,
        name: &str,
        work: Work,
        prepare: impl FnOnce(&DeviceRef) -> Result<F>,
    ) -> Result<()> {
        if !self.selects(name) {
            return Ok(());
        }
        #[cfg(feature = "simulate")]
        if !self.simulate.is_empty() {
            return self.simulate(device, name, prepare(device)?);
        }
        let mut clock = Clock::new(device.clone(), prepare(device)?)?;
        let (min_time, min_samples) = self.least();
        let start = Instant::now();
        while clock.samples.len() < min_samples || start.elapsed() < min_time {
            clock.sample()?;
        }
        self.print(name, work, clock.seconds(), "");
        Ok(())
    }

    /// [`Bench::time`], and the workloads `lazy/name` and `captured/name` on devices that record
    /// for the same one; `prepare` is told whether the work is captured. All are sampled in turn;
    /// the lines of the others have the ratio of the first.
    ///
    /// # Errors
    /// If the work fails.
    pub fn time_recorded<T, F: FnMut() -> Result<T>>(
        &self,
        name: &str,
        work: Work,
        prepare: impl Fn(&DeviceRef, bool) -> Result<F>,
    ) -> Result<()> {
        let recorded = [("lazy", false), ("captured", true)]
            .map(|(way, is_captured)| (format!("{way}/{name}"), is_captured))
            .into_iter()
            .filter(|(name, _)| self.simulate.is_empty() && self.selects(name))
            .map(|(name, is_captured)| {
                let device: DeviceRef = Lazy::new(self.device.clone());
                Ok((name, Clock::new(device.clone(), prepare(&device, is_captured)?)?))
            });
        let mut recorded = recorded.collect::<Result<Vec<_>>>()?;
        if recorded.is_empty() {
            return self.time(name, work, |device| prepare(device, false));
        }
        let mut eager = Clock::new(self.device.clone(), prepare(&self.device, false)?)?;
        let (min_time, min_samples) = self.least();
        let start = Instant::now();
        let clocks = 1 + recorded.len() as u32;
        while eager.samples.len() < min_samples || start.elapsed() < clocks * min_time {
            eager.sample()?;
            recorded.iter_mut().try_for_each(|(_, clock)| clock.sample())?;
        }
        let eager = eager.seconds();
        if self.selects(name) {
            self.print(name, work, eager, "");
        }
        for (name, clock) in &mut recorded {
            let seconds = clock.seconds();
            self.print(name, work, seconds, &format!(r#","eager":{}"#, digits(eager / seconds)));
        }
        Ok(())
    }

    /// Prints the time of the work with each number of threads of [`Bench::simulate`], and what
    /// part of the threads' time it uses.
    #[cfg(feature = "simulate")]
    fn simulate<T>(
        &self,
        device: &DeviceRef,
        name: &str,
        mut run: impl FnMut() -> Result<T>,
    ) -> Result<()> {
        let mut once = |threads| {
            let (result, report) = teeny_cpu::simulate(threads, || {
                let result = run()?;
                device.synchronize()?;
                Ok::<_, teeny_core::Error>(result)
            });
            result.map(|result| drop(black_box(result)))?;
            Ok::<_, teeny_core::Error>(report.predicted.as_secs_f64())
        };
        let mut seconds = |threads| {
            let start = Instant::now();
            let mut samples = Vec::new();
            while samples.len() < 6 || start.elapsed() < self.least().0 {
                samples.push(once(threads)?);
            }
            // the least: what interrupts one chunk would count as many times as there are threads
            Ok::<_, teeny_core::Error>(samples.into_iter().fold(f64::INFINITY, f64::min))
        };
        let one = seconds(1)?;
        for &threads in &self.simulate {
            let many = if threads == 1 { one } else { seconds(threads)? };
            let (ms, efficiency) = (digits(many * 1e3), one / (many * threads as f64));
            print!(r#"{{"peer":"teeny","device":"simulated","threads":{threads},"name":"{name}","#);
            println!(r#""ms":{ms},"efficiency":{efficiency:.2}}}"#);
        }
        Ok(())
    }

    /// The least time and number of samples of a workload.
    fn least(&self) -> (Duration, usize) {
        if self.quick { (Duration::from_millis(300), 5) } else { (Duration::from_secs(1), 7) }
    }

    fn print(&self, name: &str, work: Work, seconds: f64, more: &str) {
        let (unit, rate) = work.rate(seconds);
        let (device, threads, ms, rate) =
            (&self.name, self.threads, digits(seconds * 1e3), digits(rate));
        print!(r#"{{"peer":"teeny","device":"{device}","threads":{threads},"name":"{name}","#);
        println!(r#""ms":{ms},"unit":"{unit}","rate":{rate}{more}}}"#);
    }
}

/// One workload on one device, and how long its runs took.
struct Clock<F> {
    device: DeviceRef,
    run: F,
    /// Runs of a sample.
    group: usize,
    samples: Vec<f64>,
}

impl<T, F: FnMut() -> Result<T>> Clock<F> {
    /// Runs the work until it is warm.
    fn new(device: DeviceRef, run: F) -> Result<Clock<F>> {
        let mut clock = Clock { device, run, group: 1, samples: Vec::new() };
        let start = Instant::now();
        while clock.samples.len() < 3 || start.elapsed() < Duration::from_millis(300) {
            clock.sample()?;
        }
        let one = median(&mut clock.samples[1..]);
        clock.group = ((1e-4 / one).ceil() as usize).clamp(1, 10_000);
        clock.samples.clear();
        Ok(clock)
    }

    fn sample(&mut self) -> Result<()> {
        let start = Instant::now();
        for _ in 0..self.group {
            let result = (self.run)()?;
            self.device.synchronize()?;
            drop(black_box(result));
        }
        self.samples.push(start.elapsed().as_secs_f64() / self.group as f64);
        Ok(())
    }

    /// The median of the samples.
    fn seconds(&mut self) -> f64 {
        median(&mut self.samples)
    }
}

fn median(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    let n = samples.len();
    (samples[(n - 1) / 2] + samples[n / 2]) / 2.0
}

/// Five significant digits.
fn digits(x: f64) -> String {
    let integer = if x > 0.0 { x.log10().floor() as i32 + 1 } else { 1 };
    format!("{x:.*}", (5 - integer).clamp(0, 12) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_five_significant_digits_and_medians_are_exact() {
        assert_eq!(
            [digits(123456.7), digits(12.345678), digits(0.00123456), digits(0.0)],
            ["123457", "12.346", "0.0012346", "0.0000"]
        );
        assert_eq!((median(&mut [3.0, 1.0, 2.0]), median(&mut [4.0, 1.0, 2.0, 3.0])), (2.0, 2.5));
    }
}
