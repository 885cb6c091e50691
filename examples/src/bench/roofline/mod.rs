//! The roofline of a device: the speed of an operation, and the limit by its peaks.
//!
//! ```text
//!   possible FLOP/s = min(peak FLOP/s, intensity * peak bandwidth)
//!   intensity       = FLOP / bytes that the operation must move
//!   share           = time that the peaks allow / time of the operation
//! ```
//! Work and bytes follow [`teeny_core::Op::cost`]. The peaks are measured on the device; the
//! bandwidth is measured on a tensor beyond the caches. A share above 1 says that the operands stay
//! in a cache, or that the algorithm needs fewer operations than the definition, as Winograd's for
//! convolutions does.
//!
//! ```text
//!   timer      the time of a run: GPU timestamps, or the host's clock
//!   workloads  the operations
//! ```
//! Source: Williams, Waterman, Patterson, Roofline: an insightful visual performance model, 2009.

mod timer;
mod workloads;

use super::ops::normal;
use super::{Bench, digits};
use std::sync::Arc;
use std::time::Duration;
use teeny_core::wrappers::Trace;
use teeny_core::{Cost, DType, DeviceRef, ErrorKind, Kernel, Result};
use timer::Timer;
use workloads::{ALL, Run, Workload};

/// Elements of the tensor whose copy measures the bandwidth: 256 MiB of f32, beyond the caches.
const COPIED: usize = 1 << 26;
/// Elements of the tensor on which arithmetic is measured: 4 MiB of f32, within a cache.
const CHAINED: usize = 1 << 20;
/// Multiplications with an addition in each of the two chains of an element: 64 FLOP per byte.
const STEPS: usize = 128;
/// Sizes of the product that measures arithmetic too: a device that interprets kernels, as the CPU
/// does, keeps no chain in registers.
const PRODUCT: [usize; 2] = [512, 512];
/// The time for each peak. The machine's other work must not lower it, so it is never a quick one.
const PEAK_TIME: Duration = Duration::from_millis(700);

/// The peak rates of a device.
#[derive(Clone, Copy, Debug)]
struct Peaks {
    /// Floating-point operations a second.
    flops: f64,
    /// Bytes a second, read and written.
    bandwidth: f64,
}

/// An operation on the roofline.
#[derive(Clone, Copy, Debug)]
struct RooflineRow {
    cost: Cost,
    seconds: f64,
}

impl RooflineRow {
    /// Floating-point operations per byte.
    fn intensity(&self) -> f64 {
        self.cost.flops as f64 / self.cost.bytes.max(1) as f64
    }

    /// The floating-point operations a second that the peaks allow.
    fn possible(&self, peaks: Peaks) -> f64 {
        peaks.flops.min(self.intensity() * peaks.bandwidth)
    }

    /// The resource that limits the operation.
    fn bound(&self, peaks: Peaks) -> &'static str {
        if self.intensity() * peaks.bandwidth < peaks.flops { "memory" } else { "arithmetic" }
    }

    /// The time that the peaks allow, divided by the time taken; also for operations without
    /// arithmetic.
    fn share(&self, peaks: Peaks) -> f64 {
        let Cost { bytes, flops } = self.cost;
        (bytes as f64 / peaks.bandwidth).max(flops as f64 / peaks.flops) / self.seconds
    }
}

/// Measures the peaks and the selected workloads, and prints a line of JSON for each:
///
/// ```text
/// {"peer":"teeny","device":"wgpu","threads":2,"name":"roofline/add/4M","ms":3.1,"gflops":1.4,
///  "gbs":16.2,"intensity":0.083,"possible_gflops":1.5,"bound":"memory","share":0.93}
/// ```
///
/// # Errors
/// If the device fails.
pub fn run(b: &Bench) -> Result<()> {
    measure(b, |line| println!("{line}"))
}

/// [`run`] with the lines given to `print`.
fn measure(b: &Bench, mut print: impl FnMut(&str)) -> Result<()> {
    let timer = Timer::new(b.device.clone())?;
    let min_time = Duration::from_millis(if b.quick { 150 } else { 700 });
    let head = |name: &str| {
        let (device, threads, clock) = (&b.name, b.threads, timer.name());
        let device = format!(r#""device":"{device}","threads":{threads},"clock":"{clock}""#);
        format!(r#"{{"peer":"teeny",{device},"name":"roofline/{name}""#)
    };
    let mut best: [Option<RooflineRow>; PEAKS.len()] = [None; PEAKS.len()];
    let mut measure_peaks = || -> Result<()> {
        for (best, (_, prepare)) in best.iter_mut().zip(PEAKS) {
            let row = row(&timer, PEAK_TIME, prepare)?;
            if best.is_none_or(|best| row.seconds < best.seconds) {
                *best = Some(row);
            }
        }
        Ok(())
    };
    // Before the operations and after them: what else runs on the machine changes.
    measure_peaks()?;
    let mut rows = Vec::new();
    for (name, prepare) in ALL.into_iter().filter(|(name, _)| b.selects(name)) {
        match row(&timer, min_time, prepare) {
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                eprintln!("# {name} is left out: {error}");
            }
            row => rows.push((name, row?)),
        }
    }
    measure_peaks()?;
    let mut peaks = Peaks { flops: 0.0, bandwidth: 0.0 };
    for (&(name, _), row) in PEAKS.iter().zip(best) {
        let Some(row) = row else { continue };
        let RooflineRow { cost, seconds } = row;
        peaks.flops = peaks.flops.max(cost.flops as f64 / seconds);
        // The operands of the others are in a cache.
        if ["peak/copy", "peak/neg"].contains(&name) {
            peaks.bandwidth = peaks.bandwidth.max(cost.bytes as f64 / seconds);
        }
        let (ms, gflops, gbs) = rates(&row);
        print(&format!(r#"{},"ms":{ms},"gflops":{gflops},"gbs":{gbs}}}"#, head(name)));
    }
    for (name, row) in rows {
        let (ms, gflops, gbs) = rates(&row);
        let (intensity, possible) = (digits(row.intensity()), digits(row.possible(peaks) / 1e9));
        let (bound, share) = (row.bound(peaks), digits(row.share(peaks)));
        let reached = format!(r#""ms":{ms},"gflops":{gflops},"gbs":{gbs}"#);
        let roof = format!(r#""intensity":{intensity},"possible_gflops":{possible}"#);
        print(&format!(r#"{},{reached},{roof},"bound":"{bound}","share":{share}}}"#, head(name)));
    }
    Ok(())
}

/// Milliseconds, GFLOP/s and GB/s.
fn rates(&RooflineRow { cost, seconds }: &RooflineRow) -> (String, String, String) {
    let giga = |amount: u64| digits(amount as f64 / seconds / 1e9);
    (digits(seconds * 1e3), giga(cost.flops), giga(cost.bytes))
}

/// The cost of the work that `prepare` returns, and its time.
fn row(
    timer: &Timer,
    min_time: Duration,
    prepare: fn(&DeviceRef) -> Result<Run>,
) -> Result<RooflineRow> {
    let trace = Trace::asynchronous(timer.device.clone());
    let mut run = prepare(&(trace.clone() as DeviceRef))?;
    // The first run may create state, as optimizers do.
    run()?;
    trace.clear();
    run()?;
    let cost = trace.spans().iter().fold(Cost::default(), |sum, span| Cost {
        bytes: sum.bytes + span.bytes,
        flops: sum.flops + span.flops,
    });
    drop(run);
    let mut run = prepare(&timer.device)?;
    Ok(RooflineRow { cost, seconds: timer.least(min_time, &mut run)? })
}

/// The workloads that measure the peaks.
const PEAKS: [Workload; 4] = [
    ("peak/copy", |device| {
        let x = normal(&[COPIED], device)?;
        Ok(Box::new(move || x.copy().map(drop)))
    }),
    ("peak/neg", |device| {
        let x = normal(&[COPIED], device)?;
        Ok(Box::new(move || x.neg().map(drop)))
    }),
    ("peak/fma", |device| {
        let x = normal(&[CHAINED], device)?;
        let kernel = Arc::new(chain()?);
        Ok(Box::new(move || kernel.run(&[&x], &[]).map(drop)))
    }),
    ("peak/matmul", |device| {
        let (x, y) = (normal(&PRODUCT, device)?, normal(&PRODUCT, device)?);
        Ok(Box::new(move || x.matmul(&y).map(drop)))
    }),
];

/// Two chains of multiplications and additions in registers, each on the result before, and their
/// sum.
fn chain() -> Result<Kernel> {
    Kernel::build([DType::F32], [], |[x], []| {
        let step = |y, _| y * 0.75 + 0.125;
        [(0..STEPS).fold(x, step) + (0..STEPS).fold(x + 1.0, step)]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_bound_by_the_lower_roof() {
        let peaks = Peaks { flops: 100e9, bandwidth: 10e9 };
        let row = |bytes, flops, seconds| RooflineRow { cost: Cost { bytes, flops }, seconds };
        let copy = row(8_000_000_000, 0, 1.0);
        assert_eq!(
            (copy.bound(peaks), copy.share(peaks), copy.possible(peaks)),
            ("memory", 0.8, 0.0)
        );
        let product = row(1_000_000_000, 50_000_000_000, 1.0);
        assert_eq!((product.bound(peaks), product.share(peaks)), ("arithmetic", 0.5));
        assert_eq!((product.intensity(), product.possible(peaks)), (50.0, 100e9));
        let sum = row(1_000_000_000, 2_000_000_000, 0.5);
        assert_eq!(
            (sum.bound(peaks), sum.share(peaks), sum.possible(peaks)),
            ("memory", 0.2, 20e9)
        );
    }

    #[test]
    fn the_chain_has_the_work_of_its_steps() -> Result<()> {
        let x = teeny_core::Tensor::ones(4usize, DType::F32, teeny_core::Reference::new())?;
        let (kernel, shape) = (Arc::new(chain()?), *x.shape());
        let op = teeny_core::Op::Elementwise {
            kernel: &kernel,
            inputs: &[&x],
            params: &[],
            shape: &shape,
        };
        assert_eq!(op.cost()?, Cost { bytes: 32, flops: 4 * (4 * STEPS as u64 + 2) });
        // both chains approach the fixed point 1/2
        let y = kernel.run(&[&x], &[])?[0].to_vec::<f32>()?;
        assert!(y.iter().all(|y| (y - 1.0).abs() < 1e-6), "{y:?}");
        Ok(())
    }

    #[test]
    fn every_workload_has_a_line_with_a_share() -> Result<()> {
        let bench = Bench {
            device: teeny_cpu::Cpu::new(),
            name: "cpu".into(),
            threads: 1,
            only: vec![],
            quick: true,
            simulate: Vec::new(),
        };
        let mut lines = Vec::new();
        measure(&bench, |line| lines.push(line.to_string()))?;
        assert_eq!(lines.len(), PEAKS.len() + ALL.len());
        let number = |line: &str, key: &str| -> f64 {
            let text = line.split(&format!("\"{key}\":")).nth(1).expect("the line has the key");
            text.split([',', '}']).next().and_then(|text| text.parse().ok()).expect("a number")
        };
        for ((name, _), line) in ALL.iter().zip(&lines[PEAKS.len()..]) {
            assert!(line.contains(&format!("\"name\":\"roofline/{name}\"")), "{line}");
            let share = number(line, "share");
            assert!(share > 0.0 && share.is_finite() && number(line, "gbs") > 0.0, "{line}");
            let moves = ["copy", "gather"].iter().any(|start| name.starts_with(start));
            assert_eq!(number(line, "gflops") == 0.0, moves, "{line}");
        }
        Ok(())
    }
}
