//! The common options of the examples: device, data, files to read and write, debugging.
//!
//! An example handles its other options with a function that gets their names; see
//! [`crate::Program`]. Common options that it declares as unused are errors, and its help does not
//! list them.

use lexopt::{Parser, ValueExt};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use teeny_autograd::Autograd;
use teeny_core::wrappers::{Checked, Checks, Compare, Trace};
use teeny_core::{DeviceRef, Error, Result, manual_seed};
use teeny_nn::device::{Choice, choose};

/// The result of parsing an option.
pub type Parsed<T> = std::result::Result<T, lexopt::Error>;

/// The common options in the order of the help text: the name without dashes, and its help lines.
pub(crate) const HELP: [(&str, &str); 12] = [
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
    /// The wrappers for `trace` and `compare`, once [`Common::device`] has made them.
    wrappers: OnceLock<Wrappers>,
}

/// The device wrappers that report when the program ends.
#[derive(Clone, Debug)]
struct Wrappers {
    trace: Option<Arc<Trace>>,
    compare: Option<Arc<Compare>>,
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
            wrappers: OnceLock::new(),
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
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Seeds the random numbers, sets the number of threads and chooses the engine. Call it once,
    /// before any tensor is made.
    ///
    /// # Errors
    /// If there is no such device or it does not work, or the threads cannot be started.
    pub fn engine(&self) -> Result<Choice> {
        if let Some(n) = self.threads {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(n).build_global();
            pool.map_err(|e| Error::value(format!("--threads {n}: {e}")))?;
        }
        manual_seed(self.seed);
        choose(&self.device)
    }

    /// Prints which engine [`Common::engine`] chose and wraps it: in the devices of `--compare`,
    /// `--check` and `--trace`, then in `Autograd`.
    ///
    /// # Errors
    /// As [`Common::engine`].
    pub fn device(&self) -> Result<DeviceRef> {
        let choice = self.engine()?;
        println!("device  {}", choice.note);
        let mut device = choice.device;
        let mut wrappers = Wrappers { trace: None, compare: None };
        if let Some(name) = &self.compare {
            let other = choose(name)?;
            println!("compare {}", other.note);
            let compare = Compare::new(device, other.device);
            device = compare.clone();
            wrappers.compare = Some(compare);
        }
        if self.check {
            device = Checked::with(device, Checks { inputs: true, ..Checks::default() });
        }
        if self.trace.is_some() {
            let trace = Trace::new(device);
            device = trace.clone();
            wrappers.trace = Some(trace);
        }
        self.wrappers.get_or_init(|| wrappers);
        Ok(Autograd::new(device))
    }

    /// Prints and writes the reports of `--compare` and `--trace`.
    ///
    /// # Errors
    /// If the trace cannot be written.
    pub(crate) fn finish(&self) -> Result<()> {
        let Some(Wrappers { trace, compare }) = self.wrappers.get() else { return Ok(()) };
        if let Some(compare) = compare {
            println!(
                "compared {} operations; {} were skipped",
                compare.compared(),
                compare.skipped()
            );
        }
        if let (Some(trace), Some(path)) = (trace, &self.trace) {
            trace.save(path)?;
            println!("{}traced  {}", trace.summary(), path.display());
        }
        Ok(())
    }
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
