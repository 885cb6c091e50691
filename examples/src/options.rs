//! The common options of the examples: device, data, files to read and write, debugging.
//!
//! Options are rows of tables ([`Opt`]); each program has its table, see [`crate::Program`].
//! Common options that it declares as unused are errors, and its help does not list them.

use crate::ranks::{Distributed, Ranks};
use lexopt::{Parser, ValueExt};
use std::ffi::OsString;
use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};
use teeny_autograd::Autograd;
use teeny_core::wrappers::{Checked, Checks, Compare, Trace, save_events};
use teeny_core::{DType, DeviceRef, Error, Lazy, LazyOptions, Result, manual_seed};
use teeny_nn::device::{Choice, choose};
#[cfg(feature = "mpi")]
use {teeny_distributed::DataParallel, teeny_nn::Store};

/// The result of parsing an option.
pub type Parsed<T> = std::result::Result<T, lexopt::Error>;

/// An option: a row in the table of a program.
pub struct Opt<O> {
    usage: &'static str,
    help: &'static str,
    /// Stores the value; none in a row about a common option.
    set: Option<fn(&mut O, Value<'_>) -> Parsed<()>>,
}

/// An option that is called `usage`, a name and what its value is called (`steps N`), or a name
/// alone; in capitals (`FILE`), the argument of the program. `set` stores its value.
pub const fn opt<O>(
    usage: &'static str,
    help: &'static str,
    set: fn(&mut O, Value<'_>) -> Parsed<()>,
) -> Opt<O> {
    Opt { usage, help, set: Some(set) }
}

/// Other help for the common option of this name.
pub const fn about<O>(usage: &'static str, help: &'static str) -> Opt<O> {
    Opt { usage, help, set: None }
}

impl<O> Opt<O> {
    /// The name without dashes.
    pub(crate) fn name(&self) -> &'static str {
        self.usage.split(' ').next().unwrap_or_default()
    }

    /// Whether it is an argument without a name, such as `FILE`.
    pub(crate) fn is_argument(&self) -> bool {
        self.usage.starts_with(char::is_uppercase)
    }

    /// Its lines in the help text.
    pub(crate) fn lines(&self) -> String {
        let help = self.help.replace('\n', &format!("\n{:19}", ""));
        let dashes = if self.is_argument() { "" } else { "--" };
        let usage = format!("{dashes}{}", self.usage);
        match usage.len() {
            ..=16 => format!("  {usage:<16} {help}\n"),
            _ => format!("  {usage}\n{:19}{help}\n", ""),
        }
    }
}

/// The type in which a model is trained, with f32 copies of its parameters in the optimizer: f32,
/// or bf16, which has the range of f32 and so needs no loss scaling.
///
/// # Errors
/// If it is another.
pub fn training_dtype(name: &str) -> std::result::Result<DType, String> {
    one_of(name, &[("f32", DType::F32), ("bf16", DType::BF16)])
}

/// Takes the value of option `name` as `table` says; false if the table does not have it.
///
/// # Errors
/// If the value is missing or invalid.
pub fn take<O>(table: &[Opt<O>], options: &mut O, name: &str, parser: &mut Parser) -> Parsed<bool> {
    let row = table.iter().find(|row| row.name() == name).and_then(|row| row.set);
    row.map_or(Ok(false), |set| set(options, Value(parser)).map(|()| true))
}

/// The value of an option, which is on the command line.
pub struct Value<'a>(&'a mut Parser);

impl Value<'_> {
    /// Sets `at` to true; the option takes no value.
    pub fn flag(self, at: &mut bool) -> Parsed<()> {
        *at = true;
        Ok(())
    }

    /// Sets `at` to the result of `parse`: [`at_least_one`], [`positive`], [`any`] or a function of
    /// the program.
    pub fn with<T, U: From<T>>(
        self,
        at: &mut U,
        parse: impl Fn(&str) -> std::result::Result<T, String>,
    ) -> Parsed<()> {
        *at = self.get(parse)?.into();
        Ok(())
    }

    /// The result of `parse`.
    pub fn get<T>(self, parse: impl Fn(&str) -> std::result::Result<T, String>) -> Parsed<T> {
        self.0.value()?.parse_with(parse)
    }

    /// Sets `at` to a text.
    pub fn text<U: From<String>>(self, at: &mut U) -> Parsed<()> {
        *at = self.0.value()?.string()?.into();
        Ok(())
    }

    /// Sets `at` to a path.
    pub fn path(self, at: &mut Option<PathBuf>) -> Parsed<()> {
        *at = Some(self.0.value()?.into());
        Ok(())
    }
}

/// The common options in the order of the help text.
#[rustfmt::skip]
pub(crate) const COMMON: [Opt<Common>; 15] = [
    opt("device NAME",
        "cpu, wgpu, reference, or auto: TEENY_DEVICE, else the first that\nworks [auto]",
        |c, v| v.text(&mut c.device)),
    opt("threads N", "threads of the CPU [RAYON_NUM_THREADS, else one for each core]",
        |c, v| v.with(&mut c.threads, at_least_one)),
    opt("seed N", "seed of all random numbers [1]", |c, v| v.with(&mut c.seed, any::<u64>)),
    opt("data PATH", "folder or file with the data; `builtin` for the built-in data
[TEENY_DATA, else ../shared/datasets, else a download, else builtin]",
        |c, v| v.path(&mut c.data)),
    opt("load FILE", "start from these weights (safetensors)", |c, v| v.path(&mut c.load)),
    opt("save FILE", "write the weights after training", |c, v| v.path(&mut c.save)),
    opt("resume FILE", "continue the run in this checkpoint; it is created if it does not exist,
and updated at each report",
        |c, v| v.path(&mut c.resume)),
    opt("plot FILE", "draw the losses and the test metric (SVG)", |c, v| v.path(&mut c.plot)),
    opt("log FILE", "write a line per step: CSV, or JSON for a FILE .jsonl",
        |c, v| v.path(&mut c.log)),
    opt("trace FILE",
        "write all operations with their times, for ui.perfetto.dev, and print\na table of them",
        |c, v| v.path(&mut c.trace)),
    opt("check", "stop at the first operation that returns NaN or an infinity",
        |c, v| v.flag(&mut c.check)),
    opt("compare NAME", "run every operation on this device too, and stop at the first\ndifference",
        |c, v| v.text(&mut c.compare)),
    opt("lazy", "record operations, fuse them and run a step at once; the step for a
token is replayed from the fifth on; --lazy=immediate runs each operation
when it is recorded, for errors at their line",
        |c, v| { c.lazy = Some(lazy_options(v.0.optional_value())?); Ok(()) }),
    opt("captured", "as --lazy, but record two steps and replay them from the third on, on new
data, without running the model",
        |c, v| { c.lazy.get_or_insert_default(); v.flag(&mut c.captured) }),
    opt("graph FILE", "draw the operations behind the first loss, or with --lazy those of the
whole second step in fused kernels, with --captured without the
updates (FILE.svg, or FILE.dot for Graphviz)",
        |c, v| v.with(&mut c.graph, picture)),
];

/// The values of the common options, defaults filled in.
#[derive(Clone, Debug)]
pub struct Common {
    /// The name of the device.
    pub device: String,
    /// The number of threads of the CPU.
    pub threads: Option<usize>,
    /// The seed of all random numbers.
    pub seed: u64,
    /// The folder or file with the data.
    pub data: Option<PathBuf>,
    /// The file with the weights to start from.
    pub load: Option<PathBuf>,
    /// The file for the weights after training.
    pub save: Option<PathBuf>,
    /// The checkpoint to continue from and to update.
    pub resume: Option<PathBuf>,
    /// The file for the plot of the losses.
    pub plot: Option<PathBuf>,
    /// The file for the losses of all steps.
    pub log: Option<PathBuf>,
    /// The file for the operations and their times.
    pub trace: Option<PathBuf>,
    /// Whether to check all results for NaN and infinities.
    pub check: bool,
    /// The device to compare with.
    pub compare: Option<String>,
    /// Whether operations are recorded, and when they run.
    pub lazy: Option<LazyOptions>,
    /// Whether steps are replayed; see [`crate::Step`].
    pub captured: bool,
    /// The file for the picture of a training step.
    pub graph: Option<PathBuf>,
    /// The wrappers for `trace`, `compare` and `lazy`, once [`Common::device`] has made them.
    wrappers: OnceLock<Wrappers>,
    /// The ranks, once [`Common::join`] has joined them.
    ranks: OnceLock<Ranks>,
    /// The training by several ranks, for the report of `--trace`.
    #[cfg(feature = "mpi")]
    data_parallel: OnceLock<Arc<DataParallel>>,
}

/// The device wrappers that report when the program ends.
#[derive(Clone, Debug)]
struct Wrappers {
    trace: Option<Arc<Trace>>,
    compare: Option<Arc<Compare>>,
    lazy: Option<Arc<Lazy>>,
}

impl Default for Common {
    fn default() -> Common {
        Common {
            device: "auto".into(),
            threads: None,
            seed: 1,
            data: None,
            load: None,
            save: None,
            resume: None,
            plot: None,
            log: None,
            trace: None,
            check: false,
            compare: None,
            lazy: None,
            captured: false,
            graph: None,
            wrappers: OnceLock::new(),
            ranks: OnceLock::new(),
            #[cfg(feature = "mpi")]
            data_parallel: OnceLock::new(),
        }
    }
}

impl Common {
    /// Joins the ranks that `options` ask for. Call it before [`Common::device`].
    ///
    /// # Errors
    /// If MPI cannot be initialised, or the ranks have other options.
    pub fn join(&self, options: &Distributed) -> Result<&Ranks> {
        let ranks = Ranks::join(options)?;
        let ranks = self.ranks.get_or_init(|| ranks);
        if ranks.size() > 1 && self.graph.is_some() {
            return Err(Error::value("--graph draws the step of one rank")
                .help("leave --distributed out, or --graph"));
        }
        Ok(ranks)
    }

    /// The ranks that run the program together.
    pub fn ranks(&self) -> &Ranks {
        self.ranks.get_or_init(Ranks::alone)
    }

    /// Whether this is the rank that prints and writes files.
    pub fn is_first(&self) -> bool {
        self.ranks().rank() == 0
    }

    /// Prints a line on one rank.
    pub fn print(&self, line: impl Display) {
        if self.is_first() {
            println!("{line}");
        }
    }

    /// Seeds the random numbers, sets the number of threads and chooses the engine. Call it once,
    /// before any tensor is made.
    ///
    /// # Errors
    /// If the device does not exist or does not work, or the threads cannot be started.
    pub fn engine(&self) -> Result<Choice> {
        // all ranks ask, also those that do not need the answer
        let share = self.ranks().threads()?;
        let threads = self.threads.or(share);
        if let Some(n) = threads {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(n).build_global();
            pool.map_err(|e| Error::value(format!("--threads {n}: {e}")))?;
        }
        manual_seed(self.seed);
        choose(&self.device)
    }

    /// Prints which engine [`Common::engine`] chose and wraps it: in the devices of `--compare`,
    /// `--check`, `--trace` and `--lazy`, then in `Autograd`.
    ///
    /// # Errors
    /// As [`Common::engine`].
    pub fn device(&self) -> Result<DeviceRef> {
        let choice = self.engine()?;
        self.print(format_args!("device  {}", choice.note));
        let ranks = self.ranks();
        if ranks.size() > 1 {
            let threads = ranks.gather(teeny_cpu::threads().to_string())?;
            let threads = threads.join(", ");
            self.print(format_args!("ranks   {}, with {threads} threads", ranks.size()));
        }
        let mut device = choice.device;
        let mut wrappers = Wrappers { trace: None, compare: None, lazy: None };
        if let Some(name) = &self.compare {
            let other = choose(name)?;
            self.print(format_args!("compare {}", other.note));
            let compare = Compare::new(device, other.device);
            device = compare.clone();
            wrappers.compare = Some(compare);
        }
        if self.check {
            device = Checked::with(device, Checks::new().with_inputs(true));
        }
        if self.trace.is_some() {
            // the clocks of all ranks start together
            ranks.require_same("the start of --trace", &true)?;
            let trace = Trace::new(device);
            device = trace.clone();
            wrappers.trace = Some(trace);
        }
        if let Some(options) = self.lazy {
            let lazy = Lazy::with_options(device, options);
            device = lazy.clone();
            wrappers.lazy = Some(lazy);
        }
        self.wrappers.get_or_init(|| wrappers);
        Ok(Autograd::new(device))
    }

    /// The device of `--lazy`, once [`Common::device`] has made it.
    pub(crate) fn lazy_device(&self) -> Option<&Arc<Lazy>> {
        self.wrappers.get()?.lazy.as_ref()
    }

    /// Training of the parameters in `store` by all ranks; `--trace` reports on it.
    ///
    /// # Errors
    /// If the ranks have other parameters, or one fails.
    #[cfg(feature = "mpi")]
    pub fn data_parallel(&self, store: &Store) -> Result<Arc<DataParallel>> {
        let data = Arc::new(DataParallel::new(store, self.ranks().data())?);
        // a program has one model that it trains
        Ok(self.data_parallel.get_or_init(|| data).clone())
    }

    /// Copies the buffers of rank 0 to the ranks with other parts of the data.
    ///
    /// # Errors
    /// If a rank fails.
    pub(crate) fn broadcast_buffers(&self) -> Result<()> {
        #[cfg(feature = "mpi")]
        if let Some(data) = self.data_parallel.get() {
            return data.broadcast_buffers();
        }
        Ok(())
    }

    /// Seeds each rank with another part of the data differently, after the random numbers of a
    /// checkpoint were restored.
    ///
    /// # Errors
    /// If a rank fails.
    pub(crate) fn separate_random(&self) -> Result<()> {
        #[cfg(feature = "mpi")]
        if let Some(data) = self.data_parallel.get() {
            return data.separate_random();
        }
        Ok(())
    }

    /// Prints and writes the reports of `--compare` and `--trace`; after an error only what needs
    /// no other rank.
    ///
    /// # Errors
    /// If the trace cannot be written, or a rank fails.
    pub(crate) fn finish(&self, failed: bool) -> Result<()> {
        let Some(Wrappers { trace, compare, .. }) = self.wrappers.get() else { return Ok(()) };
        if let Some(compare) = compare {
            self.print(format_args!(
                "compared {} operations; {} were skipped",
                compare.compared(),
                compare.skipped()
            ));
        }
        if let (Some(trace), Some(path)) = (trace, &self.trace) {
            let events = self.events(trace).join("\n");
            let all = if failed { vec![events] } else { self.ranks().gather(events)? };
            if self.is_first() {
                save_events(path, all.iter().flat_map(|events| events.lines()))?;
                #[cfg(feature = "mpi")]
                if let Some(data) = self.data_parallel.get() {
                    println!("{}", data.traffic_table());
                }
                println!("{}traced  {}", trace.summary(), path.display());
            }
        }
        Ok(())
    }

    /// The lines of this rank in the trace file: its name, its operations, and the exchanges of
    /// gradients as a separate thread.
    fn events(&self, trace: &Trace) -> Vec<String> {
        let process = self.ranks().rank() as u64 + 1;
        let mut events = trace.events(process);
        if self.ranks().size() > 1 {
            events.push(format!(
                "{{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": {process}, \
                 \"args\": {{\"name\": \"rank {}\"}}}}",
                process - 1
            ));
        }
        #[cfg(feature = "mpi")]
        if let Some(data) = self.data_parallel.get() {
            let began = trace.began();
            for span in data.spans() {
                let name = &span.name;
                let micros = |time: std::time::Duration| time.as_nanos() as f64 / 1e3;
                events.push(format!(
                    "{{\"name\": {name:?}, \"cat\": \"communication\", \"ph\": \"X\", \
                     \"pid\": {process}, \"tid\": 0, \"ts\": {}, \"dur\": {}, \
                     \"args\": {{\"bytes\": {}, \"waited us\": {}}}}}",
                    micros(span.start.saturating_duration_since(began)),
                    micros(span.end - span.start),
                    span.bytes,
                    micros(span.start.saturating_duration_since(span.ready))
                ));
            }
        }
        events
    }
}

/// The value of `--lazy`.
fn lazy_options(value: Option<OsString>) -> Parsed<LazyOptions> {
    let immediate = match value.as_ref().map(|value| value.to_str()) {
        None => false,
        Some(Some("immediate")) => true,
        Some(_) => return Err("--lazy takes no value, or =immediate".into()),
    };
    Ok(LazyOptions::new().with_immediate(immediate))
}

/// The name of a file that a picture can be written to.
fn picture(text: &str) -> std::result::Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let known = path.extension().is_some_and(|end| end == "svg" || end == "dot" || end == "gv");
    known.then_some(path).ok_or_else(|| "the name of the picture ends in .svg or .dot".into())
}

/// Any value of a type; for [`Value::with`].
///
/// # Errors
/// If `text` is not such a value.
pub fn any<T: FromStr<Err: Display>>(text: &str) -> std::result::Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

/// The one of `values` with this name; for [`Value::with`].
///
/// # Errors
/// If no name matches `text`; the error lists the names.
pub fn one_of<T: Copy>(text: &str, values: &[(&str, T)]) -> std::result::Result<T, String> {
    let found = values.iter().find(|(name, _)| *name == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = values.iter().map(|(name, _)| *name).collect();
        format!("one of {} is needed", names.join(", "))
    })
}

/// Parses a count of at least 1; for [`Value::with`].
///
/// # Errors
/// If `text` is not an integer above 0.
pub fn at_least_one(text: &str) -> std::result::Result<usize, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| "at least one is needed".into())
}

/// Parses a positive number, such as a learning rate; for [`Value::with`].
///
/// # Errors
/// If `text` is not a finite number above 0.
pub fn positive(text: &str) -> std::result::Result<f64, String> {
    text.parse()
        .ok()
        .filter(|x: &f64| x.is_finite() && *x > 0.0)
        .ok_or_else(|| "a positive number is needed".into())
}
