//! The common options of the examples: device, data, files to read and write, debugging.
//!
//! An example handles its other options with a function that gets their names; see
//! [`crate::Program`]. Common options that it declares as unused are errors, and its help does not
//! list them.

use crate::ranks::{Distributed, Ranks};
use lexopt::{Parser, ValueExt};
use std::ffi::OsString;
use std::fmt::Display;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use teeny_autograd::Autograd;
use teeny_core::wrappers::{Checked, Checks, Compare, Trace, save_events};
use teeny_core::{DeviceRef, Error, Lazy, LazyOptions, Result, manual_seed};
use teeny_nn::device::{Choice, choose};
#[cfg(feature = "mpi")]
use teeny_nn::{Store, distributed::DataParallel};

/// The result of parsing an option.
pub type Parsed<T> = std::result::Result<T, lexopt::Error>;

/// The common options in the order of the help text: the name without dashes, and its help lines.
pub(crate) const HELP: [(&str, &str); 15] = [
    (
        "device",
        "  --device NAME    cpu, wgpu, reference, or auto: TEENY_DEVICE, else the first that
                   works [auto]\n",
    ),
    ("threads", "  --threads N      threads of the CPU [all; or RAYON_NUM_THREADS]\n"),
    ("seed", "  --seed N         seed of all random numbers [1]\n"),
    (
        "data",
        "  --data PATH      folder or file with the data; `builtin` for the built-in data
                   [TEENY_DATA, else ../shared/datasets, else a download, else builtin]\n",
    ),
    ("load", "  --load FILE      start from these weights (safetensors)\n"),
    ("save", "  --save FILE      write the weights after training\n"),
    (
        "resume",
        "  --resume FILE    continue the run in this checkpoint; it is created if it does not exist,
                   and updated at each report\n",
    ),
    ("plot", "  --plot FILE      draw the losses and the test metric (SVG)\n"),
    ("log", "  --log FILE       write a line per step: CSV, or JSON for a FILE .jsonl\n"),
    (
        "trace",
        "  --trace FILE     write all operations with their times, for ui.perfetto.dev, and print
                   a table of them\n",
    ),
    ("check", "  --check          stop at the first operation that returns NaN or an infinity\n"),
    (
        "compare",
        "  --compare NAME   run every operation on this device too, and stop at the first
                   difference\n",
    ),
    (
        "lazy",
        "  --lazy           record operations, fuse them and run a step at once;
                   --lazy=immediate runs each when it is recorded, for errors at their line\n",
    ),
    (
        "captured",
        "  --captured       as --lazy, but record two steps and replay them from the third on, on new
                   data, without running the model; generated tokens are replayed alike\n",
    ),
    (
        "graph",
        "  --graph FILE     draw the operations behind the first loss, or with --lazy those of the
                   whole second step in fused kernels, with --captured without the
                   updates (FILE.svg, or FILE.dot for Graphviz)\n",
    ),
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
    /// Takes the value of option `name` from `parser`; false if that is not a common option.
    ///
    /// # Errors
    /// If the value is missing or invalid.
    pub fn take(&mut self, name: &str, parser: &mut Parser) -> Parsed<bool> {
        match name {
            "device" => self.device = parser.value()?.string()?,
            "threads" => self.threads = Some(parser.value()?.parse_with(at_least_one)?),
            "seed" => self.seed = parser.value()?.parse()?,
            "data" => self.data = Some(parser.value()?.into()),
            "load" => self.load = Some(parser.value()?.into()),
            "save" => self.save = Some(parser.value()?.into()),
            "resume" => self.resume = Some(parser.value()?.into()),
            "plot" => self.plot = Some(parser.value()?.into()),
            "log" => self.log = Some(parser.value()?.into()),
            "trace" => self.trace = Some(parser.value()?.into()),
            "check" => self.check = true,
            "compare" => self.compare = Some(parser.value()?.string()?),
            "lazy" => self.lazy = Some(lazy_options(parser.optional_value())?),
            "captured" => {
                self.captured = true;
                self.lazy.get_or_insert_default();
            }
            "graph" => self.graph = Some(parser.value()?.parse_with(picture)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Joins the ranks that `options` ask for. Call it before [`Common::device`].
    ///
    /// # Errors
    /// If MPI cannot be initialized, or the ranks have other options.
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
    /// If there is no such device or it does not work, or the threads cannot be started.
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
            let threads = ranks.gather(rayon::current_num_threads().to_string())?;
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
            device = Checked::with(device, Checks { inputs: true, ..Checks::default() });
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
    /// gradients as a thread of their own.
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
    Ok(LazyOptions { immediate, ..LazyOptions::default() })
}

/// The name of a file that a picture can be written to.
fn picture(text: &str) -> std::result::Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let known = path.extension().is_some_and(|end| end == "svg" || end == "dot" || end == "gv");
    known.then_some(path).ok_or_else(|| "the name of the picture ends in .svg or .dot".into())
}

/// Parses a count of at least 1; for `parse_with`.
///
/// # Errors
/// If `text` is not an integer above 0.
pub fn at_least_one(text: &str) -> std::result::Result<usize, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| "at least one is needed".into())
}

/// Parses a positive number, such as a learning rate; for `parse_with`.
///
/// # Errors
/// If `text` is not a finite number above 0.
pub fn positive(text: &str) -> std::result::Result<f64, String> {
    text.parse()
        .ok()
        .filter(|x: &f64| x.is_finite() && *x > 0.0)
        .ok_or_else(|| "a positive number is needed".into())
}
