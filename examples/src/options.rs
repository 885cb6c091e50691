//! The options that every example has: where to compute, on what, and what to keep.
//!
//! An example adds its own with a function that gets the name of an option the common ones do not know; see [`crate::Program`]. One that has no
//! use for some of these says so: it then refuses them, and its help does not mention them.

use lexopt::{Parser, ValueExt};
use std::path::PathBuf;
use teeny_autograd::Autograd;
use teeny_core::{DeviceRef, Error, Result, manual_seed};
use teeny_nn::device::choose;

/// What taking an option gives.
pub type Parsed<T> = std::result::Result<T, lexopt::Error>;

/// The common options in the order of the help text: the name without dashes, and what the help says.
pub(crate) const HELP: [(&str, &str); 9] = [
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
}

impl Default for Common {
    fn default() -> Common {
        Common { device: "auto".into(), threads: None, seed: 1, data: None, load: None, save: None, resume: None, plot: None, log: None }
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
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Seeds the random numbers, sets the number of threads, chooses the engine, says which and why, and gives an autograd device around it.
    /// To be called once, before any tensor is made.
    ///
    /// # Errors
    /// If there is no such device or it does not work, or the threads cannot be had.
    pub fn device(&self) -> Result<DeviceRef> {
        if let Some(n) = self.threads {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(n).build_global();
            pool.map_err(|e| Error::value(format!("--threads {n}: {e}")))?;
        }
        manual_seed(self.seed);
        let choice = choose(&self.device)?;
        println!("device  {}", choice.note);
        Ok(Autograd::new(choice.device))
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
    text.parse().ok().filter(|x: &f64| x.is_finite() && *x > 0.0).ok_or_else(|| "a positive number is needed".into())
}
