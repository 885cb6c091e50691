//! The options that every example has: where to compute, on what, and what to keep.
//!
//! An example adds its own with a function that gets the name of an option the common ones do not
//! know; see [`crate::Program`]. One that has no use for some of these says so: it then refuses
//! them, and its help does not mention them.

use lexopt::{Parser, ValueExt};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use teeny_autograd::Autograd;
use teeny_core::wrappers::{Checked, Checks, Compare, Trace};
use teeny_core::{DeviceRef, Error, Result, manual_seed};
use teeny_nn::device::{Choice, choose};

/// What taking an option gives.
pub type Parsed<T> = std::result::Result<T, lexopt::Error>;

/// The common options in the order of the help text: the name without dashes, and what the help
/// says.
pub(crate) const HELP: [(&str, &str); 12] = [
    ("device", "  --device NAME    cpu, wgpu, reference, or auto: TEENY_DEVICE, else the first that works [auto]\n"),
    ("threads", "  --threads N      threads of the CPU [all; or RAYON_NUM_THREADS]\n"),
    ("seed", "  --seed N         of everything random [1]\n"),
    (
        "data",
        "  --data PATH      folder or file with the data; `builtin` for what the program brings along
                   [TEENY_DATA, else ../shared/datasets, else a download, else builtin]\n",
    ),
    ("load", "  --load FILE      start from these weights (safetensors)\n"),
    ("save", "  --save FILE      keep the weights after training\n"),
    ("resume", "  --resume FILE    continue the run in this checkpoint, which is made if it is not there and kept up to date\n"),
    ("plot", "  --plot FILE      draw the loss curve (SVG)\n"),
    ("log", "  --log FILE       write a line per step, by the file's ending as CSV or JSONL\n"),
    ("trace", "  --trace FILE     write every operation with its time, for ui.perfetto.dev, and print a table of them\n"),
    ("check", "  --check          stop at the first operation that makes NaN or an infinity\n"),
    ("compare", "  --compare NAME   have this device carry out every operation too, and stop where it disagrees\n"),
];

/// The values of the common options, defaults filled in.
#[derive(Clone, Debug)]
pub struct Common {
    /// Device name.
    pub device: String,
    /// Threads of the CPU.
    pub threads: Option<usize>,
    /// Seed of everything random.
    pub seed: u64,
    /// Where the data are.
    pub data: Option<PathBuf>,
    /// Weights to start from.
    pub load: Option<PathBuf>,
    /// Where to keep the weights.
    pub save: Option<PathBuf>,
    /// The checkpoint to continue from and to keep up to date.
    pub resume: Option<PathBuf>,
    /// Where to draw the loss.
    pub plot: Option<PathBuf>,
    /// Where to write the numbers of every step.
    pub log: Option<PathBuf>,
    /// Where to write the operations and their times.
    pub trace: Option<PathBuf>,
    /// Whether to look for NaN and infinities.
    pub check: bool,
    /// The device to compare with.
    pub compare: Option<String>,
    /// The devices that `trace` and `compare` ask for, once they are made.
    watching: OnceLock<Watching>,
}

/// What has something to say when the program ends.
#[derive(Clone, Debug)]
struct Watching {
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
            watching: OnceLock::new(),
        }
    }
}

impl Common {
    /// Takes the value of option `name` from `parser`; false if that is none of the common options.
    ///
    /// # Errors
    /// If the value is missing or no good.
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

    /// Seeds the random numbers, sets the number of threads and chooses the engine. To be called
    /// once, before any tensor is made.
    ///
    /// # Errors
    /// If there is no such device or it does not work, or the threads cannot be had.
    pub fn engine(&self) -> Result<Choice> {
        if let Some(n) = self.threads {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(n).build_global();
            pool.map_err(|e| Error::value(format!("--threads {n}: {e}")))?;
        }
        manual_seed(self.seed);
        choose(&self.device)
    }

    /// [`Common::engine`], said out loud, with what is to watch it around it, and autograd around
    /// that.
    ///
    /// # Errors
    /// As [`Common::engine`].
    pub fn device(&self) -> Result<DeviceRef> {
        let choice = self.engine()?;
        println!("device  {}", choice.note);
        let mut device = choice.device;
        let mut watching = Watching { trace: None, compare: None };
        if let Some(name) = &self.compare {
            let other = choose(name)?;
            println!("compare {}", other.note);
            let compare = Compare::new(device, other.device);
            device = compare.clone();
            watching.compare = Some(compare);
        }
        if self.check {
            device = Checked::with(device, Checks { inputs: true, ..Checks::default() });
        }
        if self.trace.is_some() {
            let trace = Trace::new(device);
            device = trace.clone();
            watching.trace = Some(trace);
        }
        self.watching.get_or_init(|| watching);
        Ok(Autograd::new(device))
    }

    /// What the devices that watched have to say at the end: `--trace` and `--compare`.
    ///
    /// # Errors
    /// If the trace cannot be written.
    pub(crate) fn finish(&self) -> Result<()> {
        let Some(Watching { trace, compare }) = self.watching.get() else { return Ok(()) };
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

/// A number of things that cannot be none; for `parse_with`.
///
/// # Errors
/// If `text` is no such number.
pub fn at_least_one(text: &str) -> std::result::Result<usize, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| "at least one is needed".into())
}

/// A learning rate, a temperature; for `parse_with`.
///
/// # Errors
/// If `text` is no finite number above 0.
pub fn positive(text: &str) -> std::result::Result<f64, String> {
    text.parse()
        .ok()
        .filter(|x: &f64| x.is_finite() && *x > 0.0)
        .ok_or_else(|| "a positive number is needed".into())
}
