//! Everything in a training program besides the training: loading and saving, resuming, the log,
//! the plot, the progress bar, the clock.

use crate::graph::Drawing;
use crate::options::Parsed;
use crate::{Bar, Common};
use std::time::{Duration, Instant};
use teeny_core::{Result, Tensor, file::replace};
use teeny_nn::data::{DataLoader, Dataset};
use teeny_nn::state::{Archive, Checkpoint, Position, Random, State, Stateful, write};
use teeny_nn::train::{Log, Losses, Plot};
use teeny_nn::{Schedule, Store};

/// A training run. It counts steps and epochs, and does what the common options ask for: `--resume`
/// when it starts and at each report, `--log` while it runs, `--graph` after the first steps,
/// `--save` and `--plot` when it is over. Of several ranks, rank 0 prints and writes files.
///
/// # Example
/// ```
/// use examples::{Common, Run};
/// use teeny_nn::prelude::*;
/// # fn main() -> Result<()> {
/// # let common = Common::default();
/// let store = Store::new(&common.device()?);
/// let model = Linear::new(&store.root(), 2, 1)?;
/// let mut sgd = Sgd::new(store.trainable(), 0.1);
/// let mut run = Run::start(&common, &store, &mut sgd, 20)?;
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
    steps: u64,
    schedule: Schedule,
    position: Position,
    /// The number of batches in an epoch, if the run counts epochs.
    batches: Option<usize>,
    /// The epoch that [`Run::next_epoch`] returned last, counted from 1.
    epoch: u64,
    losses: Losses,
    log: Option<Log>,
    accuracies: Vec<(f64, f64)>,
    validation_losses: Vec<(f64, f64)>,
    bar: Bar,
    drawing: Drawing,
    started: Instant,
    /// Time since the start that was spent on evaluation and reports.
    paused: Duration,
    reported: Report,
}

/// The state of a run at its last report.
#[derive(Clone, Copy, Default)]
struct Report {
    losses: usize,
    seconds: f64,
}

impl<'a> Run<'a> {
    /// A run of `steps` steps in all that trains the parameters in `store` with `optimizer`. With
    /// `--resume` it continues where the checkpoint was written, if the file exists: the states of
    /// `store`, `optimizer` and the random numbers are set to those in the checkpoint.
    ///
    /// # Errors
    /// If the checkpoint cannot be read or belongs to a program with other options, or the log
    /// cannot be written.
    pub fn start(
        common: &'a Common,
        store: &Store,
        optimizer: &mut impl Stateful,
        steps: u64,
    ) -> Result<Run<'a>> {
        let (mut store, mut position) = (store.clone(), Position::default());
        let resumes = common.resume.as_ref().is_some_and(|path| path.exists());
        common.ranks().require_same("whether the file of --resume exists", &resumes)?;
        if let Some(path) = common.resume.as_ref().filter(|path| path.exists()) {
            let checkpoint = Checkpoint::load(path, store.device())?;
            common.ranks().set_state(&mut store, checkpoint.part("model")?)?;
            common.ranks().set_state(optimizer, checkpoint.part("optimizer")?)?;
            checkpoint.restore("random", &mut Random)?;
            checkpoint.restore("position", &mut position)?;
            common.separate_random()?;
            common.print(format_args!("resumed {}", path.display()));
        }
        common.ranks().require_same("the step of --resume", &position.step)?;
        let columns = ["step", "loss", "lr"];
        let log = match common.log.as_ref().filter(|_| common.is_first()) {
            // a run that is over leaves its log as it is
            Some(path) if position.step < steps => Some(match &common.resume {
                // removes lines that a killed run logged after its last checkpoint
                Some(_) => Log::resume(path, &columns, position.step)?,
                None => Log::create(path, &columns)?,
            }),
            _ => None,
        };
        Ok(Run {
            common,
            store,
            steps,
            schedule: Schedule::constant(optimizer.state()?.get("lr")?),
            batches: None,
            epoch: 0,
            losses: Losses::new().from_step(position.step),
            log,
            accuracies: Vec::new(),
            validation_losses: Vec::new(),
            bar: Bar::new(common, steps.saturating_sub(position.step), "items"),
            position,
            drawing: Drawing::new(),
            started: Instant::now(),
            paused: Duration::ZERO,
            reported: Report::default(),
        })
    }

    /// The run with learning rates by `schedule`; see [`Run::lr`]. Without, the learning rate is
    /// the optimizer's.
    pub fn schedule(mut self, schedule: Schedule) -> Run<'a> {
        self.schedule = schedule;
        self
    }

    /// The run with a progress bar that counts `items` per second: `images`, `tokens`.
    pub fn items(mut self, items: &'static str) -> Run<'a> {
        self.bar = Bar::new(self.common, self.steps.saturating_sub(self.position.step), items);
        self
    }

    /// The number of the next step, counted from 0; `None` if the run is over.
    pub fn next_step(&mut self) -> Option<u64> {
        if self.position.step < self.steps {
            return Some(self.position.step);
        }
        self.bar.clear();
        None
    }

    /// The batches of the next epoch that this run trains on; `None` if the run is over. The first
    /// epoch of a resumed run and the last epoch of any run may be a part of one.
    pub fn next_epoch<'l, D: Dataset>(
        &mut self,
        loader: &'l DataLoader<D>,
    ) -> Option<impl Iterator<Item = Result<D::Batch>> + use<'l, D>> {
        let left = self.steps - self.next_step()?;
        self.batches = Some(loader.batches());
        let Position { epoch, batch, .. } = self.position;
        self.epoch = epoch + 1;
        Some(loader.epoch_from(epoch, batch).take(usize::try_from(left).unwrap_or(usize::MAX)))
    }

    /// The number of the current epoch, counted from 1.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The learning rate of the next step by the schedule: `optimizer.set_lr(run.lr())`.
    pub fn lr(&self) -> f64 {
        self.schedule.at(self.position.step)
    }

    /// Ends a step that trained on `items` items with `loss`, a tensor of one element. The loss is
    /// read from the device later, with others.
    ///
    /// # Errors
    /// If a loss read now is NaN or infinite, the device fails, or the log cannot be written.
    pub fn push(&mut self, loss: &Tensor, items: usize) -> Result<()> {
        self.drawing.end_step(self.common, &self.store, loss)?;
        let known = self.losses.values().len();
        self.losses.push(loss)?;
        self.log_from(known)?;
        let position = &mut self.position;
        position.step += 1;
        if let Some(batches) = self.batches {
            position.batch += 1;
            if position.batch >= batches {
                (position.epoch, position.batch) = (position.epoch + 1, 0);
            }
        }
        self.bar.step(items, self.losses.last());
        Ok(())
    }

    /// Logs the losses from number `known` on.
    fn log_from(&mut self, known: usize) -> Result<()> {
        let Some(log) = &mut self.log else { return Ok(()) };
        self.losses.values()[known..].iter().try_for_each(|&(step, loss)| {
            log.write(&[step.into(), loss.into(), self.schedule.at(step).into()])
        })
    }

    /// Whether the last step was a multiple of `every`, or the last of the run: time for a report.
    pub fn is_due(&self, every: u64) -> bool {
        self.position.step.is_multiple_of(every) || self.position.step == self.steps
    }

    /// The result of `evaluation`, during which the layers are in evaluation mode and the clock of
    /// the run stands still.
    ///
    /// # Errors
    /// Those of `evaluation`; if a loss is NaN or infinite, or the log cannot be written.
    pub fn evaluate<T>(&mut self, evaluation: impl FnOnce() -> Result<T>) -> Result<T> {
        self.losses()?;
        self.common.broadcast_buffers()?;
        // The lists of an evaluation are no training step.
        self.drawing.finish(self.common)?;
        let start = Instant::now();
        self.store.set_training(false);
        let result = evaluation();
        self.store.set_training(true);
        self.paused += start.elapsed();
        result
    }

    /// Adds a point to the plot: the accuracy on the test data after this step, in percent.
    pub fn record_accuracy(&mut self, percent: f64) {
        self.accuracies.push((self.position.step as f64, percent));
    }

    /// Adds a point to the plot: the loss on the validation data after this step.
    pub fn record_validation_loss(&mut self, loss: f64) {
        self.validation_losses.push((self.position.step as f64, loss));
    }

    /// Prints `line` and, with `--resume`, writes the checkpoint that a later run continues from.
    ///
    /// # Errors
    /// If a loss is NaN or infinite, or the checkpoint cannot be written; the previous checkpoint
    /// is then untouched.
    pub fn report(&mut self, optimizer: &impl Stateful, line: &str) -> Result<()> {
        let losses = self.losses()?.values().len();
        self.reported = Report { losses, seconds: self.seconds() };
        let start = Instant::now();
        self.bar.suspend(|| self.common.print(line));
        if let Some(path) = &self.common.resume {
            let ranks = self.common.ranks();
            let mut checkpoint = Checkpoint::new();
            checkpoint
                .put("model", &ranks.state(&self.store)?)?
                .put("optimizer", &ranks.state(optimizer)?)?
                .put("random", &Random)?
                .put("position", &self.position)?;
            if self.common.is_first() {
                checkpoint.save(path)?;
            }
        }
        self.paused += start.elapsed();
        Ok(())
    }

    /// Reports the end of an epoch of a classifier: its loss, the accuracy on the test data in
    /// percent, and the seconds of training.
    ///
    /// # Errors
    /// As [`Run::report`].
    pub fn report_epoch(&mut self, optimizer: &impl Stateful, percent: f64) -> Result<()> {
        self.record_accuracy(percent);
        let reported = self.reported;
        let losses = self.losses()?;
        let recent = losses.mean(losses.values().len() - reported.losses);
        let mut lines = match losses.values() {
            [(0, first), ..] if reported.losses == 0 => format!("first loss {first:.4}\n"),
            _ => String::new(),
        };
        lines += &format!(
            "epoch {:2}  loss {recent:.4}  test accuracy {percent:.2} %  {:.2} s",
            self.epoch,
            self.seconds() - reported.seconds
        );
        self.report(optimizer, &lines)
    }

    /// The losses of all steps, read from the device if they were not yet.
    ///
    /// # Errors
    /// If a loss is NaN or infinite, the device fails, or the log cannot be written.
    pub fn losses(&mut self) -> Result<&Losses> {
        let known = self.losses.values().len();
        self.losses.read()?;
        self.log_from(known)?;
        Ok(&self.losses)
    }

    /// The seconds since the start without those spent on evaluation and reports.
    pub fn seconds(&self) -> f64 {
        (self.started.elapsed().saturating_sub(self.paused)).as_secs_f64()
    }

    /// Ends the run: `--save` writes the weights, `--plot` draws the losses, named `loss`, with
    /// their moving average and what was recorded beside them.
    ///
    /// # Errors
    /// If a loss is NaN or infinite, or a file cannot be written.
    pub fn finish(&mut self, title: &str, loss: &str) -> Result<()> {
        let points = self.losses()?.curve();
        self.bar.clear();
        self.drawing.end_run(self.common)?;
        self.common.save(&self.store)?;
        if points.is_empty() {
            return Ok(()); // a plot of an earlier run stays
        }
        self.common.draw(|| {
            // about a fiftieth of the run: short enough to follow it, long enough to average noise
            let span = (points.len() / 50).max(5);
            let mut plot = Plot::new(title, "step", "loss").smoothed_curve(loss, &points, span);
            if !self.validation_losses.is_empty() {
                plot = plot.curve("validation loss", &self.validation_losses);
            }
            if !self.accuracies.is_empty() {
                plot = plot.metric("test accuracy, %", &self.accuracies);
            }
            plot
        })
    }
}

impl Common {
    /// `--load`: reads the weights in the file into `store`.
    ///
    /// # Errors
    /// If they are not those of `store`, or the file cannot be read.
    pub fn load(&self, store: &Store) -> Result<()> {
        let Some(path) = &self.load else { return Ok(()) };
        if self.ranks().is_split() {
            let file = Archive::open(path)?;
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

    /// `--save`: writes the weights in `store` to the file.
    ///
    /// # Errors
    /// If it cannot be written.
    fn save(&self, store: &Store) -> Result<()> {
        let Some(path) = &self.save else { return Ok(()) };
        let whole = self.ranks().state(store)?;
        if !self.is_first() {
            return Ok(());
        }
        if self.ranks().is_split() {
            let tensors: Vec<(String, Tensor)> = whole.tensors.into_iter().collect();
            replace(path, |writer| write(writer, &tensors, &whole.values))?;
        } else {
            store.save(path)?;
        }
        println!("saved   {}", path.display());
        Ok(())
    }

    /// `--plot`: draws the curves, each a name and its points by step.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn plot(&self, title: &str, label: &str, curves: &[(&str, &[(f64, f64)])]) -> Result<()> {
        self.draw(|| {
            curves.iter().fold(Plot::new(title, "step", label), |plot, (name, points)| {
                plot.curve(name, points)
            })
        })
    }

    fn draw(&self, plot: impl FnOnce() -> Plot) -> Result<()> {
        let Some(path) = self.plot.as_ref().filter(|_| self.is_first()) else { return Ok(()) };
        plot().save(path)?;
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
