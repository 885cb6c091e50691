//! Measuring launches: the lines of `TEENY_DEBUG`, and
//! [`Wgpu::profile`](crate::Wgpu::profile).
//!
//! With timestamps every launch has its own pass, and a batch's times are read together after
//! it has run. Without them every launch is submitted alone and the host's clock is read around it,
//! which counts tens of microseconds of driver too. Either way launches stop overlapping: a profile
//! says where time goes, not how long the program takes without one.

use crate::device::launch::{Binding, Launch};
use crate::device::mapping::{self, Signal};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::time::Duration;
use teeny_core::context::{self, OpContext};
use teeny_core::{DType, Error, Result, Shape, Tensor};

/// The time that a device has spent, by family of kernels. Prints as a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// One row a family, the most expensive first.
    pub families: Vec<Family>,
    /// True if the GPU measured the times; false if the host's clock did, driver included.
    pub by_gpu: bool,
}

/// The launches of one family of kernels.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Family {
    /// Its name, as in [`crate::Wgpu`]'s debug lines: `elementwise`, `matmul`, …
    pub name: &'static str,
    /// How many launches were measured.
    pub launches: u64,
    /// Their time together, in microseconds.
    pub micros: f64,
    /// The bytes that they must read and write at least, each counted once a launch.
    pub bytes: u64,
    /// Floating-point operations, as [`teeny_core::Op::cost`] counts them.
    pub flops: u64,
    /// Shaders compiled.
    pub compiles: u64,
    /// The time that took on the host, in milliseconds.
    pub compile_millis: f64,
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clock = if self.by_gpu { "GPU timestamps" } else { "the host's clock" };
        let columns = ["launches", "us", "GB/s", "GFLOP/s", "compiled", "ms"];
        writeln!(
            f,
            "{:<16}{:>10}{:>12}{:>9}{:>10}{:>10}{:>10}  (by {clock})",
            "family", columns[0], columns[1], columns[2], columns[3], columns[4], columns[5]
        )?;
        for row in &self.families {
            let rate = |amount: u64| {
                if amount == 0 || row.micros == 0.0 {
                    "-".to_string()
                } else {
                    format!("{:.2}", amount as f64 / row.micros / 1e3)
                }
            };
            write!(
                f,
                "{:<16}{:>10}{:>12.0}{:>9}{:>10}",
                row.name,
                row.launches,
                row.micros,
                rate(row.bytes),
                rate(row.flops)
            )?;
            writeln!(f, "{:>10}{:>10.1}", row.compiles, row.compile_millis)?;
        }
        Ok(())
    }
}

/// The operands and the result of an operation of the device, for the lines of its launches.
struct Work {
    text: String,
    inputs: Vec<u64>,
    output: u64,
    flops: u64,
}

thread_local! {
    static WORK: RefCell<Option<Work>> = const { RefCell::new(None) };
}

/// Ends the description when dropped.
#[must_use = "the description ends when the guard is dropped"]
pub(crate) struct Described(Option<Work>);

impl Drop for Described {
    fn drop(&mut self) {
        WORK.set(self.0.take());
    }
}

/// Describes the launches until the guard's end: a result of `shape` from `inputs`, by `flops`
/// floating-point operations.
pub(crate) fn describe(inputs: &[&Tensor], shape: &Shape, dtype: DType, flops: u64) -> Described {
    // An expanded axis is read once.
    let distinct = |x: &Tensor| {
        (0..x.ndim())
            .filter(|&axis| x.strides()[axis] != 0)
            .map(|axis| x.shape()[axis] as u64)
            .product::<u64>()
    };
    let mut text = String::new();
    for (i, x) in inputs.iter().enumerate() {
        let _ = write!(text, "{}{} {}", if i == 0 { "" } else { ", " }, x.dtype(), x.shape());
    }
    let _ = write!(text, " -> {dtype} {shape}");
    let work = Work {
        text,
        inputs: inputs.iter().map(|x| distinct(x) * x.dtype().size() as u64).collect(),
        output: (shape.numel() as u64).saturating_mul(dtype.size() as u64),
        flops,
    };
    Described(WORK.replace(Some(work)))
}

/// One launch, as it will be reported.
pub(crate) struct Record {
    context: Option<OpContext>,
    family: &'static str,
    variant: Vec<u32>,
    grid: [u32; 3],
    shapes: String,
    bytes: u64,
    flops: u64,
}

impl Record {
    pub fn of(launch: &Launch<'_>) -> Record {
        let sum = |parts: &[Binding<'_>], most: &dyn Fn(usize) -> Option<u64>| -> u64 {
            parts
                .iter()
                .enumerate()
                .map(|(i, part)| most(i).map_or(part.bytes, |most| most.min(part.bytes)))
                .sum()
        };
        WORK.with_borrow_mut(|work| {
            let bytes = match work {
                Some(work) => {
                    sum(launch.inputs, &|i| work.inputs.get(i).copied())
                        + sum(launch.outputs, &|_| Some(work.output))
                }
                None => sum(launch.inputs, &|_| None) + sum(launch.outputs, &|_| None),
            };
            Record {
                context: context::current(),
                family: launch.program.key.family,
                variant: launch.program.key.variant.clone(),
                grid: launch.grid,
                shapes: work.as_ref().map_or_else(String::new, |w| w.text.clone()),
                bytes,
                // The first launch of an operation does the work, others gather its parts.
                flops: work.as_mut().map_or(0, |w| std::mem::take(&mut w.flops)),
            }
        })
    }

    /// The line of `TEENY_DEBUG=1`; from 2 on with the user's line and the shader's variant.
    fn line(&self, micros: f64, level: u8) -> String {
        let op = self.context.map_or("-", |c| c.op);
        let mut text = format!(
            "wgpu {op:<16} {:<48} {micros:>9.1} us {:>8.2} GB/s",
            self.shapes,
            self.bytes as f64 / micros / 1e3
        );
        if self.flops > 0 {
            let _ = write!(text, " {:>8.2} GFLOP/s", self.flops as f64 / micros / 1e3);
        }
        let _ = write!(text, "  {} {:?}", self.family, self.grid);
        if level >= 2 {
            let _ = write!(text, " variant {:x?}", self.variant);
            if let Some(context) = self.context {
                let _ = write!(text, " at {}:{}", context.location.file(), context.location.line());
            }
        }
        text
    }
}

/// Where times come from.
enum Clock {
    /// Two queries a launch, resolved into one buffer and copied into one that the host can read.
    Gpu {
        queries: wgpu::QuerySet,
        resolved: wgpu::Buffer,
        readable: wgpu::Buffer,
        nanoseconds: f64,
    },
    Host,
}

/// The measuring part of a command stream.
pub(crate) struct Profiler {
    clock: Clock,
    level: u8,
    waiting: Vec<Record>,
    totals: BTreeMap<&'static str, Family>,
}

/// Prints the report that `TEENY_DEBUG` turns on. A closed output is not an error.
pub(super) fn print(text: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

impl Profiler {
    /// For batches of at most `launches`; `level` is the level of `TEENY_DEBUG`.
    pub fn new(device: &wgpu::Device, queue: &wgpu::Queue, launches: u32, level: u8) -> Profiler {
        let clock = if device.features().contains(wgpu::Features::TIMESTAMP_QUERY) {
            let size = u64::from(launches) * 16;
            let buffer = |usage| {
                device.create_buffer(&wgpu::BufferDescriptor {
                    label: Some("teeny times"),
                    size,
                    usage,
                    mapped_at_creation: false,
                })
            };
            let descriptor = wgpu::QuerySetDescriptor {
                label: Some("teeny times"),
                ty: wgpu::QueryType::Timestamp,
                count: 2 * launches,
            };
            Clock::Gpu {
                queries: device.create_query_set(&descriptor),
                resolved: buffer(wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC),
                readable: buffer(wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST),
                nanoseconds: queue.get_timestamp_period().into(),
            }
        } else {
            Clock::Host
        };
        if level >= 1 {
            let how = if matches!(clock, Clock::Gpu { .. }) {
                "GPU timestamps, a pass for each launch"
            } else {
                "the host's clock, a submission for each launch"
            };
            print(format_args!("wgpu times are measured by {how}"));
        }
        Profiler { clock, level, waiting: Vec::new(), totals: BTreeMap::new() }
    }

    /// True if launches must be submitted one by one to be timed.
    pub fn one_by_one(&self) -> bool {
        matches!(self.clock, Clock::Host)
    }

    /// Notes a launch and where the GPU shall write its times.
    pub fn begin(&mut self, record: Record) -> Option<wgpu::ComputePassTimestampWrites<'_>> {
        let first = 2 * self.waiting.len() as u32;
        self.waiting.push(record);
        match &self.clock {
            Clock::Gpu { queries, .. } => Some(wgpu::ComputePassTimestampWrites {
                query_set: queries,
                beginning_of_pass_write_index: Some(first),
                end_of_pass_write_index: Some(first + 1),
            }),
            Clock::Host => None,
        }
    }

    /// At the end of a batch: the commands that bring its times to the host.
    pub fn resolve(&self, encoder: &mut wgpu::CommandEncoder) {
        let launches = self.waiting.len() as u32;
        if let Clock::Gpu { queries, resolved, readable, .. } = &self.clock
            && launches > 0
        {
            encoder.resolve_query_set(queries, 0..2 * launches, resolved, 0);
            encoder.copy_buffer_to_buffer(resolved, 0, readable, 0, u64::from(launches) * 16);
        }
    }

    /// After a batch was submitted: waits for it and reports its launches. `elapsed` is the host's
    /// measurement.
    ///
    /// # Errors
    /// If the times cannot be read.
    pub fn collect(&mut self, device: &wgpu::Device, elapsed: Duration) -> Result<()> {
        let waiting = std::mem::take(&mut self.waiting);
        if waiting.is_empty() {
            return Ok(());
        }
        let times: Vec<f64> = match &self.clock {
            Clock::Host => vec![elapsed.as_secs_f64() * 1e6 / waiting.len() as f64; waiting.len()],
            Clock::Gpu { readable, nanoseconds, .. } => {
                let failed = |e: &dyn fmt::Display| {
                    Error::device(format!("reading the GPU's timestamps failed: {e}"))
                };
                let slice = readable.slice(..waiting.len() as u64 * 16);
                let signal = Signal::new();
                let raised = signal.clone();
                slice.map_async(wgpu::MapMode::Read, move |result| raised.raise(result));
                device.poll(wgpu::PollType::wait_indefinitely()).map_err(|e| failed(&e))?;
                mapping::answer(&signal, device, || false)?.map_err(|e| failed(&e))?;
                let view = slice.get_mapped_range().map_err(|e| failed(&e))?;
                let number = |bytes: &[u8]| {
                    bytes.iter().rev().fold(0u64, |n, &byte| n << 8 | u64::from(byte))
                };
                let times = view.chunks_exact(16).map(|pair| {
                    number(&pair[8..]).saturating_sub(number(&pair[..8])) as f64 * nanoseconds / 1e3
                });
                let times = times.collect();
                drop(view);
                readable.unmap();
                times
            }
        };
        for (record, micros) in waiting.iter().zip(times) {
            if self.level >= 1 {
                print(format_args!("{}", record.line(micros, self.level)));
            }
            let total = self.totals.entry(record.family).or_default();
            total.launches += 1;
            total.micros += micros;
            total.bytes += record.bytes;
            total.flops += record.flops;
        }
        Ok(())
    }

    /// The measurements, with the compilations that `compiled` lists by family.
    pub fn report(&self, compiled: &Compiled) -> Profile {
        table(&self.totals, compiled, !self.one_by_one())
    }
}

/// How many shaders of each family were compiled, and the time that took.
pub(crate) type Compiled = BTreeMap<&'static str, (u64, Duration)>;

/// The profile of a device that measures no launches.
pub(crate) fn unmeasured(compiled: &Compiled) -> Profile {
    table(&BTreeMap::new(), compiled, false)
}

fn table(totals: &BTreeMap<&'static str, Family>, compiled: &Compiled, by_gpu: bool) -> Profile {
    let names: BTreeSet<_> = totals.keys().chain(compiled.keys()).copied().collect();
    let row = |name: &'static str| {
        let (compiles, time) = compiled.get(name).copied().unwrap_or_default();
        Family {
            name,
            compiles,
            compile_millis: time.as_secs_f64() * 1e3,
            ..totals.get(name).cloned().unwrap_or_default()
        }
    };
    let mut families: Vec<Family> = names.into_iter().map(row).collect();
    families.sort_by(|a, b| b.micros.total_cmp(&a.micros));
    Profile { families, by_gpu }
}

#[cfg(test)]
mod tests {
    use super::describe;
    use crate::Wgpu;
    use crate::{Options, Profile};
    use std::sync::Arc;
    use teeny_core::{DType, Reference, Tensor, Window};

    fn profiled() -> Option<Arc<Wgpu>> {
        Wgpu::with_options(&Options::new().with_profile(true)).ok()
    }

    fn row<'a>(profile: &'a Profile, name: &str) -> &'a super::Family {
        profile
            .families
            .iter()
            .find(|f| f.name == name)
            .unwrap_or_else(|| panic!("no {name} in {profile}"))
    }

    #[test]
    fn a_profile_counts_launches_bytes_and_arithmetic_by_family() {
        let Some(gpu) = profiled() else { return };
        let x = Tensor::full((64, 32), 1.5, DType::F32, &gpu).unwrap();
        let before = gpu.counters();
        let y = (0..100).fold(x.clone(), |y, _| y.add(&x).unwrap()); // more than one batch
        let _ = y.matmul(&x.t().unwrap()).unwrap();
        let (image, window) = (x.reshape((2, 4, 16, 16)).unwrap(), Window::new(2));
        let weight = Tensor::ones((3, 4, 5, 5), DType::F32, &gpu).unwrap();
        let _ = image.conv(&weight, &window).unwrap(); // (2, 3, 12, 12)
        let dispatches = gpu.counters().dispatches - before.dispatches;
        let profile = gpu.profile();
        let (adds, product) = (row(&profile, "elementwise"), row(&profile, "matmul"));
        assert_eq!(
            profile.families.iter().map(|f| f.launches).sum::<u64>(),
            dispatches + before.dispatches
        );
        assert!(
            adds.launches >= 100 && adds.bytes >= 100 * 3 * 8192 && adds.micros > 0.0,
            "{profile}"
        );
        assert_eq!((adds.flops, product.flops), (100 * 64 * 32, 2 * 64 * 64 * 32));
        assert_eq!(row(&profile, "conv").flops, 2 * (2 * 3 * 12 * 12) * (4 * 5 * 5));
        assert!(adds.compiles >= 1 && adds.compile_millis > 0.0, "{profile}");
        assert!(profile.to_string().contains("GFLOP/s"), "{profile}");
    }

    #[test]
    fn profiling_changes_no_result() {
        let (Some(gpu), Ok(plain)) = (profiled(), Wgpu::new()) else { return };
        let run = |gpu: &Arc<Wgpu>| {
            let x = Tensor::arange(0.0f32, 96.0, 1.0, gpu)
                .unwrap()
                .mul(0.01)
                .unwrap()
                .reshape((8, 12))
                .unwrap();
            let y = x.matmul(&x.t().unwrap()).unwrap().softmax(1).unwrap();
            Tensor::cat(&[&y, &y.exp().unwrap()], 0).unwrap().cumsum(0).unwrap().to_bytes().unwrap()
        };
        assert_eq!(run(&gpu), run(&plain));
        assert_eq!(
            plain.profile().families.iter().map(|f| f.launches).sum::<u64>(),
            0,
            "a device that measures nothing reports compilations alone"
        );
    }

    #[test]
    fn a_line_names_operation_shapes_and_rates() {
        let device = Reference::new();
        let x = Tensor::zeros((3, 1), DType::F32, &device).unwrap().expand((3, 4)).unwrap();
        let _work = describe(&[&x, &x], x.shape(), DType::F32, 24_000);
        let record = super::Record {
            context: None,
            family: "family",
            variant: vec![255],
            grid: [1, 1, 1],
            shapes: super::WORK.with_borrow(|w| w.as_ref().unwrap().text.clone()),
            bytes: 2_000,
            flops: 24_000,
        };
        let line = record.line(2.0, 1);
        assert!(
            line.contains("f32 (3, 4), f32 (3, 4) -> f32 (3, 4)")
                && line.contains("2.0 us")
                && line.contains("1.00 GB/s"),
            "{line}"
        );
        assert!(line.contains("12.00 GFLOP/s") && !line.contains("variant"), "{line}");
        assert!(record.line(2.0, 2).contains("family [1, 1, 1] variant [ff]"));
    }
}
