//! A training run by the common options: [`teeny_nn::train::Run`], loading, saving and the picture
//! of a step.

use crate::Common;
use crate::graph::Drawing;
use crate::options::Parsed;
use std::fmt::Display;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use teeny_core::{Result, Tensor, file::replace};
use teeny_formats::{SafeTensors, State, write};
use teeny_nn::Store;
use teeny_nn::state::Stateful;
use teeny_nn::train::{self, RunOptions, RunRanks};
use teeny_viz::Plot;

/// A [`train::Run`] that does what the common options ask for: `--resume` when it starts and at
/// each report, `--log` while it runs, `--graph` after the first steps, `--save` and `--plot` when
/// it is over. On several ranks, rank 0 prints and writes files.
///
/// # Example
/// ```
/// use examples::{Common, Run};
/// use teeny_nn::prelude::*;
/// use teeny_nn::train::RunOptions;
/// # fn main() -> Result<()> {
/// # let common = Common::default();
/// let store = Store::new(&common.device()?);
/// let model = Linear::new(&store.root(), 2, 1)?;
/// let mut sgd = Sgd::new(store.trainable(), 0.1);
/// let mut run = Run::start(&common, &store, &mut sgd, 20, RunOptions::new().bar("items"))?;
/// while let Some(step) = run.next_step() {
///     let x = Tensor::randn((8, 2), DType::F32, store.device())?; // (8, 2)
///     let loss = model.forward(&x)?.square()?.mean_all()?; // ()
///     sgd.step(&loss.backward()?)?;
///     run.push(&loss, 8)?;
///     if run.is_due(10) {
///         let loss = run.losses()?.mean(10);
///         run.report(&sgd, &format!("step {step}  loss {loss:.4}"))?;
///     }
/// }
/// # assert!(run.losses()?.mean(1) < run.losses()?.values()[0].1);
/// run.finish("A line", "mean squared error")
/// # }
/// ```
pub struct Run<'a> {
    common: &'a Common,
    store: Store,
    run: train::Run<'a>,
    drawing: Drawing,
}

impl<'a> Run<'a> {
    /// A run of `steps` steps in all that trains the parameters in `store` with `optimizer`, by
    /// `options` and the options of the command line.
    ///
    /// # Errors
    /// As [`train::Run::with_options`].
    pub fn start(
        common: &'a Common,
        store: &Store,
        optimizer: &mut impl Stateful,
        steps: u64,
        mut options: RunOptions<'a>,
    ) -> Result<Run<'a>> {
        if let Some(path) = &common.resume {
            options = options.resume(path);
        }
        if let Some(path) = &common.log {
            options = options.log(path);
        }
        if let Some(path) = &common.plot {
            options = options.plot(path);
        }
        let run = train::Run::with_options(store, optimizer, steps, options.ranks(common))?;
        Ok(Run { common, store: store.clone(), run, drawing: Drawing::new() })
    }

    /// [`train::Run::push`].
    ///
    /// # Errors
    /// As it; if the picture of `--graph` cannot be made.
    pub fn push(&mut self, loss: &Tensor, items: usize) -> Result<()> {
        self.drawing.end_step(self.common, &self.store, loss)?;
        self.run.push(loss, items)
    }

    /// [`train::Run::evaluate`].
    ///
    /// # Errors
    /// As it; if the picture of `--graph` cannot be made.
    pub fn evaluate<T>(&mut self, evaluation: impl FnOnce() -> Result<T>) -> Result<T> {
        self.run.losses()?;
        // The lists of an evaluation are not a training step.
        self.drawing.finish(self.common)?;
        self.run.evaluate(evaluation)
    }

    /// Ends the run: `--save` writes the weights, then [`train::Run::finish`].
    ///
    /// # Errors
    /// As it; if a file cannot be written.
    pub fn finish(&mut self, title: &str, loss: &str) -> Result<()> {
        self.run.losses()?;
        self.drawing.end_run(self.common)?;
        if let Some(path) = &self.common.save {
            RunRanks::save(self.common, &self.store, path)?;
            self.common.print(format_args!("saved   {}", path.display()));
        }
        self.run.finish(title, loss)
    }
}

impl<'a> Deref for Run<'a> {
    type Target = train::Run<'a>;

    fn deref(&self) -> &train::Run<'a> {
        &self.run
    }
}

impl DerefMut for Run<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.run
    }
}

impl RunRanks for Common {
    fn is_first(&self) -> bool {
        self.is_first()
    }

    fn require_same(&self, what: &str, value: &dyn Display) -> Result<()> {
        self.ranks().require_same(what, value)
    }

    fn state(&self, part: &dyn Stateful) -> Result<State> {
        self.ranks().state(part)
    }

    fn set_state(&self, part: &mut dyn Stateful, state: &State) -> Result<()> {
        self.ranks().set_state(part, state)
    }

    fn save(&self, store: &Store, path: &Path) -> Result<()> {
        let whole = self.ranks().state(store)?;
        if !self.is_first() {
            return Ok(());
        }
        if self.ranks().is_split() {
            let tensors: Vec<(String, Tensor)> = whole.tensors.into_iter().collect();
            replace(path, |writer| write(writer, &tensors, &whole.values))
        } else {
            store.save(path)
        }
    }

    fn broadcast_buffers(&self) -> Result<()> {
        self.broadcast_buffers()
    }

    fn separate_random(&self) -> Result<()> {
        self.separate_random()
    }
}

impl Common {
    /// `--load`: reads the weights in the file into `store`.
    ///
    /// # Errors
    /// If they do not match the parameters of `store`, or the file cannot be read.
    pub fn load(&self, store: &Store) -> Result<()> {
        let Some(path) = &self.load else { return Ok(()) };
        if self.ranks().is_split() {
            let file = SafeTensors::open(path)?;
            let mut state = State::default();
            for name in file.entries().keys() {
                state.tensors.insert(name.clone(), file.tensor(name, store.device())?);
            }
            self.ranks().set_state(&mut store.clone(), &state)?;
        } else {
            store.load(path)?;
        }
        self.print(format_args!("loaded  {}", path.display()));
        Ok(())
    }

    /// `--plot`: draws the curves, each a name and its points by step.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn plot(&self, title: &str, label: &str, curves: &[(&str, &[(f64, f64)])]) -> Result<()> {
        let Some(path) = self.plot.as_ref().filter(|_| self.is_first()) else { return Ok(()) };
        let plot = Plot::new(title, "step", label);
        curves.iter().fold(plot, |plot, (name, points)| plot.curve(name, points)).save(path)?;
        println!("plotted {}", path.display());
        Ok(())
    }
}

/// The length of a run as on the command line: `--epochs` or `--steps`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Length {
    /// Neither was given: the program decides.
    #[default]
    Default,
    /// Passes over the training data.
    Epochs(u64),
    /// Batches.
    Steps(u64),
}

impl Length {
    /// Sets the length that an option gives.
    ///
    /// # Errors
    /// If it is already set in the other unit.
    pub fn set(&mut self, given: Length) -> Parsed<()> {
        *self = match (*self, given) {
            (Length::Epochs(epochs), Length::Steps(steps))
            | (Length::Steps(steps), Length::Epochs(epochs)) => {
                return Err(format!(
                    "--epochs {epochs} and --steps {steps} both set the length of the run\n  \
                     help: leave one of them out; a step is one batch, an epoch is all batches of \
                     the training data"
                )
                .into());
            }
            (_, given) => given,
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Program;
    use crate::digits::{OPTIONS, Options};

    fn length(args: &[&str]) -> std::result::Result<Length, String> {
        let program = Program { about: "", options: &OPTIONS, without: &[] };
        let parsed = program.parse(Options::default(), lexopt::Parser::from_args(args));
        Ok(parsed.map_err(|error| error.to_string())?.expect("no help").0.length)
    }

    #[test]
    fn epochs_and_steps_exclude_each_other_in_any_order() {
        assert_eq!(length(&[]), Ok(Length::Default));
        assert_eq!(length(&["--epochs", "3"]), Ok(Length::Epochs(3)));
        assert_eq!(length(&["--steps=3", "--steps", "4"]), Ok(Length::Steps(4)));
        for args in [["--epochs", "3", "--steps", "70"], ["--steps", "70", "--epochs", "3"]] {
            let error = length(&args).unwrap_err();
            assert!(
                error.starts_with("--epochs 3 and --steps 70 both set the length of the run\n")
                    && error.contains("\n  help: leave one of them out"),
                "{error}"
            );
        }
        assert!(length(&["--epochs", "many"]).is_err());
    }
}
