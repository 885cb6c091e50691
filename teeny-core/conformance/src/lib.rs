//! The suite every device must pass: each operation, on each kind of layout, in each element type,
//! held against [`Reference`].
//!
//! ```text
//! cases      one row per operation: inputs, the Tensor methods, the tolerance
//! layouts    memory layouts: packed, transposed, sliced, stepped, flipped, expanded
//! tolerance  when two results agree
//! limits     ends of integer types and exact results, against separate definitions
//! report     a table of operations × types, with the first counterexample of each failure
//! fuzz       random graphs of operations instead of written cases
//! oneop      random single operations
//! dice       random choices; operand: random values in a random view; both serve fuzz and oneop
//! ```
//!
//! A device of another crate runs all of it in a test of six lines:
//!
//! ```
//! # let device: teeny_core::DeviceRef = teeny_core::Reference::new();
//! let suite = teeny_conformance::Suite::new(&device).only("matmul");
//! let report = suite.run();
//! assert!(report.passed(), "{report}");
//! ```
//!
//! The row `request` has requests as any code may make them, most of them invalid, and the row
//! `random operation` a fixed number of cases of [`oneop`].
//!
//! An [`ErrorKind::Unsupported`] error of a device is reported, not a failure. Where hardware
//! is less exact than IEEE 754, the caller excuses it with a reason, which the report repeats.
#![forbid(unsafe_code)]

mod cases;
mod dice;
pub mod fuzz;
pub mod golden;
mod layouts;
pub mod limits;
#[cfg(test)]
mod mutation;
pub mod oneop;
mod operand;
mod report;
mod tolerance;

pub use cases::requests::{invalid_requests, valid_requests};
pub use dice::Dice;
pub use fuzz::fuzz;
pub use layouts::Arrangement;
pub use report::{Cell, Report};

use cases::{Case, Input, requests};
use std::collections::HashSet;
use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice;
use std::time::Duration;
use teeny_core::clock::Instant;
use teeny_core::random::with_seed;
use teeny_core::{DType, DeviceRef, Error, ErrorKind, Reference, Result, Tensor, ToDevice};
use tolerance::Leniency;

/// Runs the whole suite on `device`; the error is the report with its counterexamples.
///
/// # Errors
/// If any case fails.
pub fn run(device: impl ToDevice) -> std::result::Result<Report, Report> {
    let report = Suite::new(device).run();
    if report.passed() { Ok(report) } else { Err(report) }
}

/// For tests that take a sample of the suite, by [`Suite::every`]: `n`, or 1 if the environment
/// variable `TEENY_TESTS` is `full`, as in continuous integration. Prints that it is a sample.
pub fn every(n: usize) -> usize {
    if env::var("TEENY_TESTS").is_ok_and(|v| v == "full") {
        return 1;
    }
    println!("every {n}th case of the suite; TEENY_TESTS=full runs all of them");
    n
}

/// A case of the suite for other purposes than comparing devices, such as automatic
/// differentiation.
pub struct Trial<'a>(&'a Case);

impl Trial<'_> {
    /// The operation, a row of the report.
    pub fn op(&self) -> &'static str {
        self.0.op
    }

    /// The type it is tried in, a column of the report.
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }

    /// Runs the case on `device`, each input passed through `prepare` first.
    ///
    /// # Errors
    /// As `prepare` and the operation; some cases are mistakes on purpose.
    pub fn run(
        &self,
        device: impl ToDevice,
        prepare: impl Fn(Tensor) -> Result<Tensor>,
    ) -> Result<Vec<Tensor>> {
        let device = device.to_device();
        with_seed(1, || {
            (self.0.body)(
                &device,
                &self
                    .0
                    .inputs
                    .iter()
                    .map(|input| prepare(input.on(&device)?))
                    .collect::<Result<Vec<_>>>()?,
            )
        })
    }
}

/// Shows every case of the suite to `visit`.
pub fn each(mut visit: impl FnMut(&Trial<'_>)) {
    cases::each(&mut |case| visit(&Trial(&case)));
}

/// How far apart the first cases of a sample are: a power of two.
const SAMPLE: u32 = 128;

/// The row of single operations on random operands, and the seed and the number of their cases.
const RANDOM: &str = "random operation";
const RANDOM_SEED: u64 = 17;
const RANDOM_CASES: u64 = 2_000;
/// How much less exact a sum of some thousand terms in one chain is than one in blocks.
const ONE_CHAIN: f64 = 16.0;

/// The suite with what is particular to one device.
pub struct Suite {
    device: DeviceRef,
    dtypes: Vec<DType>,
    only: Option<String>,
    without: Vec<String>,
    every: usize,
    /// Of cases with a number in the program one of this many runs.
    numbers: usize,
    time: Option<Duration>,
    leniency: Leniency,
    excused: Vec<(String, DType, String)>,
}

impl Suite {
    /// The whole suite at full strictness.
    pub fn new(device: impl ToDevice) -> Suite {
        Suite {
            device: device.to_device(),
            dtypes: DType::ALL.to_vec(),
            only: None,
            without: Vec::new(),
            every: 1,
            numbers: 1,
            time: None,
            leniency: Leniency::default(),
            excused: Vec::new(),
        }
    }

    /// Only the given element types.
    pub fn dtypes(mut self, dtypes: &[DType]) -> Suite {
        self.dtypes = dtypes.to_vec();
        self
    }

    /// Only operations whose name contains `op`.
    pub fn only(mut self, op: &str) -> Suite {
        self.only = Some(op.to_string());
        self
    }

    /// Not the operation `op`: for a second run that differs in something that `op` does not depend
    /// on.
    pub fn without(mut self, op: &str) -> Suite {
        self.without.push(op.to_string());
        self
    }

    /// Runs the first case of each operation and dtype and every `n`-th of all cases. The sample is
    /// the same in every run. 0 counts as 1.
    pub fn every(mut self, n: usize) -> Suite {
        self.every = n.max(1);
        self
    }

    /// Runs one or two of the 24 numbers for each operation with a number and each type: for a
    /// device that compiles a program for each number.
    pub fn compiles_numbers(mut self) -> Suite {
        self.numbers = 17;
        self
    }

    /// No case is begun after this `time`: a sample of the suite, in which cases far apart in it
    /// come first, so that every operation has some.
    pub fn within(mut self, time: Duration) -> Suite {
        self.time = Some(time);
        self
    }

    /// Results of `op` in `dtype` may differ `factor` times as much as usual, for a `reason` that
    /// the report repeats.
    pub fn allow(mut self, op: &str, dtype: DType, factor: f64, reason: &str) -> Suite {
        self.leniency.factors.push((op.to_string(), dtype, factor));
        self.excused.push((op.to_string(), dtype, format!("tolerance × {factor}: {reason}")));
        self
    }

    /// Subnormal numbers may be read or written as zeros, as GPUs do.
    pub fn flushes_subnormals(mut self) -> Suite {
        self.leniency.flushes_subnormals = true;
        self
    }

    /// The sign of a zero may be lost, as WGSL permits.
    pub fn loses_zero_signs(mut self) -> Suite {
        self.leniency.loses_zero_signs = true;
        self
    }

    /// Zeros beyond the edge of an image may be multiplied: a weight that is infinite or NaN makes
    /// NaN of them.
    pub fn multiplies_padding(mut self) -> Suite {
        self.leniency.multiplies_padding = true;
        self
    }

    /// Programs of several operations may be simplified by real arithmetic, so that a NaN may be
    /// missing.
    pub fn simplifies_programs(mut self) -> Suite {
        self.leniency.simplifies_programs = true;
        self
    }

    /// Positions outside an axis may be reported by the next read, where noticing them earlier
    /// would mean waiting for the device.
    pub fn trusts_indices(mut self) -> Suite {
        self.leniency.trusts_indices = true;
        self
    }

    /// Runs the cases and returns a report.
    pub fn run(&self) -> Report {
        self.run_on(slice::from_ref(&self.device)).remove(0)
    }

    /// Runs the cases on each of `devices` in place of the suite's, and returns their reports. The
    /// oracle, which takes most of the time, runs each case once.
    pub fn run_on(&self, devices: &[DeviceRef]) -> Vec<Report> {
        let reference: DeviceRef = Reference::new();
        let mut reports: Vec<_> = devices.iter().map(|device| self.report(device)).collect();
        let mut hold = |case: &Case| {
            let expected = outcome(case, &case.inputs, &reference);
            for (device, report) in devices.iter().zip(&mut reports) {
                let got = outcome(case, &case.inputs, device);
                report.add(case.op, case.dtype, self.judge(case, &reference, &expected, &got));
            }
        };
        let all = self.time.map(|_| self.cases());
        let start = Instant::now();
        let in_time = || self.time.is_none_or(|time| start.elapsed() < time);
        match all {
            None => self.each(&mut |case| hold(&case)),
            Some(all) => sampled(&all).take_while(|_| in_time()).for_each(hold),
        }
        for number in (0..RANDOM_CASES).step_by(self.every).take_while(|_| in_time()) {
            for (device, report) in devices.iter().zip(&mut reports) {
                self.random(number, device, report);
            }
        }
        reports
    }

    /// Random operation `number`.
    fn random(&self, number: u64, device: &DeviceRef, report: &mut Report) {
        if !self.wants_op(RANDOM) {
            return;
        }
        let mut rules = oneop::Rules {
            flushes_subnormals: self.leniency.flushes_subnormals,
            loses_zero_signs: self.leniency.loses_zero_signs,
            multiplies_padding: self.leniency.multiplies_padding,
            simplifies_programs: self.leniency.simplifies_programs,
            rounds_each_step: true,
            factor: 1.0,
        };
        let case = oneop::generate(RANDOM_SEED, number, None);
        let case = case.expect("the suite's operations are legal").under(rules);
        let dtype = case.dtype();
        // Infinities too may be missing in a program that is simplified.
        if !self.dtypes.contains(&dtype) || rules.simplifies_programs && case.is_program() {
            return;
        }
        rules.factor = ONE_CHAIN * self.leniency.factor(RANDOM, dtype);
        let cell = match oneop::check(&case, &[&oneop::Alone(device)], rules) {
            Ok(oneop::Verdict::Unsupported) => Cell::Undefined, // which other rows report
            Ok(oneop::Verdict::Agreed | oneop::Verdict::Refused) => Cell::Passed(1),
            Err(why) => Cell::Failed(format!(
                "{}: {why} (seed {RANDOM_SEED}, case {number})",
                case.describe()
            )),
        };
        report.add(RANDOM, dtype, cell);
    }

    /// [`Suite::run`] for a device that can only be awaited, a GPU in a browser: results are
    /// awaited and compared on the host. A case that reads inside is a refusal; random operations
    /// do, and are left out. `pause` is awaited before each case.
    pub async fn run_async<P: Future<Output = ()>>(&self, pause: impl Fn() -> P) -> Report {
        let reference: DeviceRef = Reference::new();
        let mut report = self.report(&self.device);
        let all = self.cases();
        let start = Instant::now();
        for case in sampled(&all) {
            pause().await;
            if self.time.is_some_and(|time| start.elapsed() >= time) {
                break;
            }
            let got = match outcome(case, &case.inputs, &self.device) {
                Ok(results) => on_host(results, &reference).await,
                error => error,
            };
            let cell = match got {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    Cell::Unsupported(error.to_string())
                }
                got => {
                    let expected = outcome(case, &case.inputs, &reference);
                    self.judge(case, &reference, &expected, &got)
                }
            };
            report.add(case.op, case.dtype, cell);
        }
        report
    }

    /// A report on `device` without cases.
    fn report(&self, device: &DeviceRef) -> Report {
        let mut report = Report::new(device.info());
        for (op, dtype, reason) in &self.excused {
            report.note(format!("{op} {dtype}: {reason}"));
        }
        report
    }

    fn wants(&self, case: &Case) -> bool {
        self.dtypes.contains(&case.dtype) && self.wants_op(case.op)
    }

    fn wants_op(&self, op: &str) -> bool {
        self.only.as_ref().is_none_or(|only| op.contains(only.as_str()))
            && !self.without.iter().any(|other| other == op)
    }

    /// Shows the suite's cases to `visit`.
    fn each(&self, visit: &mut dyn FnMut(Case)) {
        let (mut number, mut numbered, mut seen) = (0, 0, HashSet::new());
        cases::each(&mut |case| {
            let is_numbered = cases::elementwise::is_numbered(case.op);
            numbered += usize::from(is_numbered);
            let is_left_out = is_numbered && numbered % self.numbers != 0;
            if self.wants(&case) && !is_left_out {
                if seen.insert((case.op, case.dtype)) || number % self.every == 0 {
                    visit(case);
                }
                number += 1;
            }
        });
    }

    fn cases(&self) -> Vec<Case> {
        let mut all = Vec::new();
        self.each(&mut |case| all.push(case));
        all
    }

    /// Compares the results `got` with the oracle's. On a device that flushes subnormal numbers, a
    /// result may agree with the oracle's on flushed inputs instead.
    fn judge(
        &self,
        case: &Case,
        reference: &DeviceRef,
        expected: &Result<Vec<Tensor>>,
        got: &Result<Vec<Tensor>>,
    ) -> Cell {
        let cell = self.compare(case, expected, got);
        if self.leniency.flushes_subnormals && matches!(cell, Cell::Failed(_)) {
            let inputs: Vec<Input> = case.inputs.iter().map(Input::flushed).collect();
            let flushed = self.compare(case, &outcome(case, &inputs, reference), got);
            return if matches!(flushed, Cell::Failed(_)) { cell } else { flushed };
        }
        cell
    }

    fn compare(
        &self,
        case: &Case,
        expected: &Result<Vec<Tensor>>,
        got: &Result<Vec<Tensor>>,
    ) -> Cell {
        let failed = |expected: &str, got: &str| Cell::Failed(case.counterexample(expected, got));
        match (expected, got) {
            (Err(expected), Err(error)) if error.message().starts_with(PANICKED) => {
                failed(&format!("the error {expected}"), error.message())
            }
            // Which of several mistakes a device finds first is its choice.
            (Err(_), Err(_)) if case.op == requests::ROW => Cell::Passed(1),
            (Ok(_), Err(error))
                if case.op == requests::ROW && error.kind() == ErrorKind::Unsupported =>
            {
                Cell::Undefined // of another type than that of the column
            }
            (_, Err(error)) if error.kind() == ErrorKind::Unsupported => {
                Cell::Unsupported(error.to_string())
            }
            (Err(expected), Err(error)) if expected.kind() == error.kind() => match expected.kind()
            {
                ErrorKind::Index => Cell::Passed(1),
                _ => Cell::Undefined,
            },
            (Err(expected), Ok(got))
                if self.leniency.trusts_indices && expected.kind() == ErrorKind::Index =>
            {
                match got.iter().find_map(|y| y.to_scalars().err()) {
                    Some(error) if error.kind() == ErrorKind::Index => Cell::Passed(1),
                    Some(error) => failed(
                        &format!("the error {expected}, at the latest when the result is read"),
                        &error.to_string(),
                    ),
                    None => failed(
                        &format!("the error {expected}, at the latest when the result is read"),
                        "a result",
                    ),
                }
            }
            (Err(expected), Ok(_)) => failed(&format!("the error {expected}"), "a result"),
            (Err(expected), Err(error)) => failed(
                &format!("{:?}: {expected}", expected.kind()),
                &format!("{:?}: {error}", error.kind()),
            ),
            (Ok(_), Err(error)) => failed("a result", &error.to_string()),
            (Ok(expected), Ok(got)) => {
                match self.leniency.compare((case.op, case.dtype), case.tolerance, expected, got) {
                    Ok(()) => Cell::Passed(1),
                    Err(error) if error.kind() == ErrorKind::Unsupported => {
                        Cell::Unsupported(error.to_string())
                    }
                    Err(error) => failed("", error.message()),
                }
            }
        }
    }
}

/// The order of a sample: the first case of each operation, then every 128th case, then those
/// half-way between, and so on.
fn sampled(all: &[Case]) -> impl Iterator<Item = &Case> {
    let mut seen = HashSet::new();
    let is_first: Vec<bool> = all.iter().map(|case| seen.insert(case.op)).collect();
    let places =
        (0..SAMPLE).map(|pass| (pass.reverse_bits() >> (u32::BITS - SAMPLE.ilog2())) as usize);
    let others = places.flat_map(|first| (first..all.len()).step_by(SAMPLE as usize));
    let first: Vec<usize> = (0..all.len()).filter(|&i| is_first[i]).collect();
    let order = first.into_iter().chain(others.filter(move |&i| !is_first[i]));
    order.map(|i| &all[i])
}

/// Copies of `results` on the oracle.
async fn on_host(results: Vec<Tensor>, reference: &DeviceRef) -> Result<Vec<Tensor>> {
    let mut copies = Vec::with_capacity(results.len());
    for y in results {
        copies.push(y.to_async(reference).await?);
    }
    Ok(copies)
}

/// The beginning of the error of a device that panicked.
const PANICKED: &str = "the device panicked";

/// The results of a case on a device, from these inputs.
fn outcome(case: &Case, inputs: &[Input], device: &DeviceRef) -> Result<Vec<Tensor>> {
    guarded(|| {
        with_seed(1, || {
            inputs
                .iter()
                .map(|input| input.on(device))
                .collect::<Result<Vec<_>>>()
                .and_then(|x| (case.body)(device, &x))
        })
    })
}

/// The result of `run`. A panic is a failure of the device and does not end the suite.
fn guarded<T>(run: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()));
        Err(Error::internal(format!("{PANICKED}: {}", text.unwrap_or_default())))
    })
}

/// The program of the crate's README must compile and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
