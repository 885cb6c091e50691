//! What the MNIST example is asked to do, from its command line.

use lexopt::{Arg, Parser, ValueExt};
use std::path::PathBuf;

/// The help text.
pub const USAGE: &str = "\
Trains a classifier of handwritten digits.

  --arch mlp|cnn   784-128-10 (default), or two convolutions of 8 and 16 channels
  --epochs N       passes over the training data [5; for the small built-in data 40]
  --batch N        images per step [64]
  --lr X           learning rate [mlp 0.4, cnn 0.1]
  --seed N         of the first weights and the order of images [1]
  --device NAME    cpu, wgpu, reference, or auto: TEENY_DEVICE, else the first that works [auto]
  --threads N      threads of the CPU [all; or RAYON_NUM_THREADS]
  --data DIR       folder with MNIST's four files; `builtin` for the digits inside the program
                   [TEENY_DATA, else an earlier download, else a download, else builtin]
  --load FILE      start from these weights (safetensors)
  --save FILE      keep the weights after training
  --plot FILE      draw the loss curve (SVG)
";

/// The network to train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arch {
    /// One hidden layer.
    Mlp,
    /// Two convolutions.
    Cnn,
}

/// The options, defaults filled in.
#[derive(Clone, Debug)]
pub struct Options {
    /// See [`USAGE`], here and below.
    pub arch: Arch,
    /// Passes over the data; none if the data decides.
    pub epochs: Option<u64>,
    /// Images per step.
    pub batch: usize,
    /// Learning rate.
    pub lr: f64,
    /// Seed of everything random.
    pub seed: u64,
    /// Device name.
    pub device: String,
    /// Threads of the CPU.
    pub threads: Option<usize>,
    /// The value of `--data`.
    pub data: Option<PathBuf>,
    /// Weights to start from.
    pub load: Option<PathBuf>,
    /// Where to keep the weights.
    pub save: Option<PathBuf>,
    /// Where to draw the loss.
    pub plot: Option<PathBuf>,
}

impl Options {
    /// The options in `parser`, or `None` if help is asked for.
    ///
    /// # Errors
    /// If an option is unknown, or its value is missing or no good.
    pub fn parse(mut parser: Parser) -> Result<Option<Options>, lexopt::Error> {
        let mut options = Options {
            arch: Arch::Mlp,
            epochs: None,
            batch: 64,
            lr: f64::NAN,
            seed: 1,
            device: "auto".into(),
            threads: None,
            data: None,
            load: None,
            save: None,
            plot: None,
        };
        while let Some(arg) = parser.next()? {
            match arg {
                Arg::Long("arch") => {
                    options.arch = match parser.value()?.string()?.as_str() {
                        "mlp" => Arch::Mlp,
                        "cnn" => Arch::Cnn,
                        other => return Err(format!("--arch is mlp or cnn, not {other}").into()),
                    }
                }
                Arg::Long("epochs") => options.epochs = Some(parser.value()?.parse()?),
                Arg::Long("batch") => options.batch = parser.value()?.parse()?,
                Arg::Long("lr") => options.lr = parser.value()?.parse_with(learning_rate)?,
                Arg::Long("seed") => options.seed = parser.value()?.parse()?,
                Arg::Long("device") => options.device = parser.value()?.string()?,
                Arg::Long("threads") => options.threads = Some(parser.value()?.parse_with(at_least_one)?),
                Arg::Long("data") => options.data = Some(parser.value()?.into()),
                Arg::Long("load") => options.load = Some(parser.value()?.into()),
                Arg::Long("save") => options.save = Some(parser.value()?.into()),
                Arg::Long("plot") => options.plot = Some(parser.value()?.into()),
                Arg::Short('h') | Arg::Long("help") => return Ok(None),
                other => return Err(other.unexpected()),
            }
        }
        if options.lr.is_nan() {
            options.lr = match options.arch {
                Arch::Mlp => 0.4,
                Arch::Cnn => 0.1,
            };
        }
        Ok(Some(options))
    }
}

fn learning_rate(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|lr: &f64| lr.is_finite() && *lr > 0.0).ok_or_else(|| "a learning rate is a positive number".into())
}

fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| "at least one is needed".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &str) -> Result<Option<Options>, lexopt::Error> {
        Options::parse(Parser::from_args(args.split_whitespace()))
    }

    #[test]
    fn options_have_defaults_by_architecture() {
        let options = parse("").unwrap().unwrap();
        assert_eq!((options.arch, options.epochs, options.batch, options.lr), (Arch::Mlp, None, 64, 0.4));
        assert_eq!(parse("--arch cnn").unwrap().unwrap().lr, 0.1);
        assert_eq!(parse("--lr 0.2 --arch=cnn --data x").unwrap().unwrap().lr, 0.2);
        assert!(parse("--epochs 3 --help").unwrap().is_none());
    }

    #[test]
    fn options_that_make_no_sense_are_refused() {
        for args in ["--arch rnn", "--lr nan", "--lr -1", "--threads 0", "--batch x", "--bogus", "stray", "--save"] {
            assert!(parse(args).is_err(), "{args}");
        }
    }
}
