//! [`Run`]: everything in a training loop except the training step.

use super::epoch::{Epoch, other_batches};
use super::progress::print;
use super::recorded::Recorded;
use super::{Bar, EarlyStopping, Log, Losses, RunOptions, RunRanks, stopping::Stop};
use crate::data::{DataLoader, Dataset};
use crate::state::{Checkpoint, Position, Random, Stateful};
use crate::{Schedule, Store};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use teeny_core::clock::Instant;
use teeny_core::context::enter;
use teeny_core::{Error, Result, Tensor};
use teeny_formats::{State, names::with_help};
use teeny_viz::Plot;

/// A training run. It counts steps and epochs, and does what its [`RunOptions`] say: it continues
/// from a checkpoint and writes one at each report, logs losses, keeps the best weights, stops
/// early or at Ctrl-C, shows a progress bar, and plots the losses when it is over. The loop itself
/// and the step are the program's.
///
/// # Example
/// ```
/// use teeny_nn::prelude::*;
/// use teeny_nn::train::{Run, RunOptions};
/// # fn main() -> Result<()> {
/// # let folder = std::env::temp_dir().join(format!("teeny-run-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).unwrap();
/// let store = Store::new(&Autograd::new(device("cpu")?));
/// let model = Linear::new(&store.root(), 2, 1)?;
/// let mut sgd = Sgd::new(store.trainable(), 0.1);
/// let options = RunOptions::new()
///     .resume(folder.join("run.ckpt")) // a later call of the program continues from here
///     .best(folder.join("best.safetensors"))
///     .stop_early(3)
///     .log(folder.join("loss.csv"))
///     .plot(folder.join("loss.svg"))
///     .schedule(Schedule::cosine(0.1, 0.01, 200))
///     .bar("items");
/// let mut run = Run::with_options(&store, &mut sgd, 200, options)?;
/// while let Some(step) = run.next_step() {
///     let x = Tensor::randn((8, 2), DType::F32, store.device())?; // (8, 2)
///     let loss = model.forward(&x)?.square()?.mean_all()?; // ()
///     sgd.set_lr(run.lr());
///     sgd.step(&loss.backward()?)?;
///     run.push(&loss, 8)?;
///     if run.is_due(50) {
///         let held_out = Tensor::ones((1, 2), DType::F32, store.device())?; // (1, 2)
///         let error = run.evaluate(|| model.forward(&held_out)?.square()?.item::<f32>())?;
///         run.record_validation_loss(error.into())?;
///         let loss = run.losses()?.mean(50);
///         run.report(&sgd, &format!("step {step}  loss {loss:.4}  validation {error:.4}"))?;
///     }
/// }
/// assert!(run.losses()?.mean(1) < run.losses()?.values()[0].1);
/// run.finish("A line", "mean squared error")?;
/// store.load(folder.join("best.safetensors"))
/// # .map(|()| std::fs::remove_dir_all(&folder).unwrap())
/// # }
/// ```
pub struct Run<'a> {
    store: Store,
    steps: u64,
    resume: Option<PathBuf>,
    plot: Option<PathBuf>,
    best: Option<PathBuf>,
    metric: &'static str,
    ranks: &'a dyn RunRanks,
    schedule: Schedule,
    stopping: EarlyStopping,
    stop: Stop,
    position: Position,
    /// The epoch that [`Run::next_epoch`] returned last, if the run counts epochs.
    epoch: Option<Epoch>,
    /// Whether a step has ended.
    has_trained: bool,
    /// [`DataLoader::order_hash`] of the loader, or of the checkpoint's loader.
    order: Option<u64>,
    /// How often the step was requested since the last one ended.
    asked: u32,
    /// Whether a step may end: no schedule was given, or its rate was requested.
    has_rate: AtomicBool,
    losses: Losses,
    log: Option<Log>,
    recorded: Recorded,
    bar: Bar,
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
    /// A run of `steps` steps without options; see [`Run::with_options`].
    ///
    /// # Errors
    /// If the state of `optimizer` has no `lr`.
    #[track_caller]
    pub fn new(store: &Store, optimizer: &mut impl Stateful, steps: u64) -> Result<Run<'a>> {
        let _op = enter("Run::new");
        Run::with_options(store, optimizer, steps, RunOptions::new())
    }

    /// A run of `steps` steps in all that trains the parameters in `store` with `optimizer`. If the
    /// file of [`RunOptions::resume`] exists, the run continues where that was written: the states
    /// of `store`, `optimizer` and the random numbers are set to those in the file. With more
    /// that must continue, `optimizer` is a pair: `&mut (&mut adam, &mut average)`.
    ///
    /// # Errors
    /// If the checkpoint cannot be read or belongs to a program with other options, or the log
    /// cannot be written.
    #[track_caller]
    pub fn with_options(
        store: &Store,
        optimizer: &mut impl Stateful,
        steps: u64,
        options: RunOptions<'a>,
    ) -> Result<Run<'a>> {
        let _op = enter("Run::with_options");
        let ranks = options.ranks;
        let (mut store, mut position) = (store.clone(), Position::default());
        let (mut losses, mut recorded, mut order) = (None, Recorded::of(&options), None);
        let mut stopping = EarlyStopping::new(options.stop_early.unwrap_or(u64::MAX));
        if options.maximize {
            stopping = stopping.maximize();
        }
        let existing = options.resume.as_ref().filter(|path| path.exists());
        ranks.require_same("whether the checkpoint to resume from exists", &existing.is_some())?;
        if let Some(path) = existing {
            let checkpoint = Checkpoint::load(path, store.device())?;
            let named = |part: &str, error: Error| {
                let error =
                    error.named(format!("resume {:?}, part {part:?}", path.display().to_string()));
                with_help(
                    error,
                    "a run with another model begins with another file, or without this one",
                )
            };
            ranks
                .set_state(&mut store, checkpoint.part("model")?)
                .map_err(|error| named("model", error))?;
            ranks
                .set_state(optimizer, checkpoint.part("optimizer")?)
                .map_err(|error| named("optimizer", error))?;
            checkpoint.restore("random", &mut Random)?;
            checkpoint.restore("position", &mut position)?;
            // files of earlier versions lack some parts
            let has = |name: &str| checkpoint.parts().any(|part| part == name);
            if has("stopping") {
                checkpoint.restore("stopping", &mut stopping)?;
            }
            if has("losses") && has("recorded") {
                checkpoint.restore("recorded", &mut recorded)?;
                let mut before = Losses::new();
                checkpoint.restore("losses", &mut before)?;
                losses = Some(before).filter(|losses| !losses.values().is_empty());
            }
            if has("data") {
                order = checkpoint.part("data")?.find("order")?;
            }
            ranks.separate_random()?;
            if ranks.is_first() {
                let is_over = position.step >= steps || stopping.should_stop();
                let over = if is_over { ", where it ended" } else { "" };
                let (path, step) = (path.display(), position.step);
                print(format_args!("resumed {path} at step {step} of {steps}{over}"));
            }
        }
        ranks.require_same("the step to resume from", &position.step)?;
        let stop = Stop::new(&stopping, options.interrupt_flag()?);
        let columns = ["step", "loss", "lr"];
        let log = match options.log.as_ref().filter(|_| ranks.is_first()) {
            // a run that is over leaves its log as it is
            Some(path) if position.step < steps => Some(match &options.resume {
                // removes lines that a killed run logged after its last checkpoint
                Some(_) => Log::resume(path, &columns, position.step)?,
                None => Log::create(path, &columns)?,
            }),
            _ => None,
        };
        let unit = options.unit.filter(|_| ranks.is_first());
        let losses = losses.unwrap_or_else(|| Losses::new().from_step(position.step));
        Ok(Run {
            has_rate: AtomicBool::new(options.schedule.is_none()),
            schedule: match options.schedule {
                Some(schedule) => schedule,
                None => Schedule::constant(optimizer.state()?.get("lr")?),
            },
            resume: options.resume,
            plot: options.plot.filter(|_| ranks.is_first()),
            best: options.best,
            metric: options.metric,
            ranks,
            store,
            steps,
            stopping,
            stop,
            epoch: None,
            has_trained: false,
            order,
            asked: 0,
            reported: Report { losses: losses.values().len(), seconds: 0.0 },
            losses,
            log,
            recorded,
            bar: Bar::new(steps.saturating_sub(position.step), unit),
            position,
            started: Instant::now(),
            paused: Duration::ZERO,
        })
    }

    /// The number of the next step, counted from 0; `None` if the run is over: all steps are done,
    /// it stops early, or it was interrupted. [`Run::push`] ends a step.
    ///
    /// # Panics
    /// If a step was asked for a thousand times and did not end.
    pub fn next_step(&mut self) -> Option<u64> {
        let step = self.position.step;
        if step < self.steps && !self.stop.is_set() {
            self.asked += 1;
            assert!(
                self.asked <= 1000,
                "Run::next_step: step {step} was asked for {} times, and did not end\n  help: \
                 run.push(&loss, items)? ends a step",
                self.asked
            );
            return Some(step);
        }
        self.bar.clear();
        None
    }

    /// The batches of the next epoch that this run trains on; `None` if the run is over. The first
    /// epoch of a resumed run and the last epoch of any run may be a part of one. Each batch is a
    /// step of the run, which [`Run::push`] ends, also where the optimizer's step follows several
    /// of them.
    ///
    /// In place of the first batch there is an error if not all batches of the epoch before were
    /// steps, or if the run continues in the middle of an epoch of a loader with other batches.
    pub fn next_epoch<'l, D: Dataset>(
        &mut self,
        loader: &'l DataLoader<D>,
    ) -> Option<impl Iterator<Item = Result<D::Batch>> + use<'l, D>> {
        let left = self.steps - self.next_step()?;
        let error = self.begin_epoch(loader).err();
        let left = if error.is_some() { 0 } else { left.try_into().unwrap_or(usize::MAX) };
        let epoch = Epoch::new(&self.position, loader.batches());
        let Position { epoch: number, batch, .. } = self.position;
        let stop = self.stop.clone();
        let batches = loader.epoch_from(number, batch).take(left);
        let batches = epoch.counted(batches.take_while(move |_| !stop.is_set()));
        self.epoch = Some(epoch);
        Some(error.map(Err).into_iter().chain(batches))
    }

    /// Returns an error if not all batches of the epoch before were steps, or if `loader` does not
    /// continue the epoch of the checkpoint.
    fn begin_epoch<D: Dataset>(&mut self, loader: &DataLoader<D>) -> Result<()> {
        if let Some(epoch) = &self.epoch {
            return epoch.require_steps(&self.position);
        }
        let (order, before) = (loader.order_hash(), self.order);
        self.order = Some(order);
        // a file of an earlier version has no order
        let is_past = self.position.batch >= loader.batches();
        if is_past || before.is_some_and(|before| before != order) {
            return other_batches(&self.position, loader.batches());
        }
        Ok(())
    }

    /// The number of steps that are done, with those before a resumed run.
    pub fn step(&self) -> u64 {
        self.position.step
    }

    /// The number of the current epoch, counted from 1.
    pub fn epoch(&self) -> u64 {
        self.epoch.as_ref().map_or(0, Epoch::number)
    }

    /// Whether Ctrl-C ends the run; see the feature `interrupt`.
    pub fn is_interrupted(&self) -> bool {
        self.stop.is_interrupted()
    }

    /// The learning rate of the next step by the schedule: `optimizer.set_lr(run.lr())`.
    pub fn lr(&self) -> f64 {
        self.has_rate.store(true, Ordering::Relaxed);
        self.schedule.at(self.position.step)
    }

    /// Ends a step that trained on `items` items with `loss`, a tensor of one element. The loss is
    /// read from the device later, with others.
    ///
    /// # Errors
    /// If a loss read now is NaN or infinite, the device fails, or the log cannot be written; if
    /// [`RunOptions::schedule`] was given, and nothing has asked for [`Run::lr`].
    #[track_caller]
    pub fn push(&mut self, loss: &Tensor, items: usize) -> Result<()> {
        let _op = enter("run.push");
        if !self.has_rate.load(Ordering::Relaxed) {
            let text = "the run has a schedule, but the step did not ask for its learning rate";
            return Err(Error::value(text)
                .named("Run::push")
                .help("optimizer.set_lr(run.lr()) in each step, or a run without a schedule"));
        }
        (self.asked, self.has_trained) = (0, true);
        let known = self.losses.values().len();
        self.losses.push(loss)?;
        self.log_from(known)?;
        let position = &mut self.position;
        position.step += 1;
        if let Some(epoch) = &self.epoch {
            epoch.advance(position);
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

    /// Whether the last step was a multiple of `every`, or the last of the run, also because the
    /// run was interrupted: time for a report.
    pub fn is_due(&self, every: u64) -> bool {
        let step = self.position.step;
        step.is_multiple_of(every) || step == self.steps || self.stop.is_set()
    }

    /// The result of `evaluation`, during which nothing is recorded for gradients, the layers are
    /// in evaluation mode, and the clock of the run stands still.
    ///
    /// # Errors
    /// If `evaluation` fails, a loss is NaN or infinite, or the log cannot be written.
    pub fn evaluate<T>(&mut self, evaluation: impl FnOnce() -> Result<T>) -> Result<T> {
        self.losses()?;
        self.ranks.broadcast_buffers()?;
        let start = Instant::now();
        let result = self.store.evaluate(evaluation);
        self.paused += start.elapsed();
        result
    }

    /// Adds a point to the plot: the accuracy on the validation data after this step, in percent,
    /// or what [`RunOptions::metric`] says.
    /// With [`RunOptions::maximize`] it is the value by which weights are kept and the run stops:
    /// returns true if it is the best yet. It must be the same on all ranks.
    ///
    /// # Errors
    /// If the weights cannot be written.
    #[track_caller]
    pub fn record_accuracy(&mut self, percent: f64) -> Result<bool> {
        let _op = enter("run.record_accuracy");
        self.recorded.accuracies.push((self.position.step as f64, percent));
        self.follow(percent, true)
    }

    /// Adds a point to the plot: the loss on the validation data after this step. Unless the run
    /// has [`RunOptions::maximize`], it is the value by which weights are kept and the run stops:
    /// returns true if it is the best yet. It must be the same on all ranks.
    ///
    /// # Errors
    /// If the weights cannot be written.
    #[track_caller]
    pub fn record_validation_loss(&mut self, loss: f64) -> Result<bool> {
        let _op = enter("run.record_validation_loss");
        self.recorded.losses.push((self.position.step as f64, loss));
        self.follow(loss, false)
    }

    /// Keeps the weights if `value` is the best yet; returns whether it is.
    fn follow(&mut self, value: f64, is_accuracy: bool) -> Result<bool> {
        if is_accuracy != self.recorded.follows_accuracy {
            return Ok(false);
        }
        let better = self.stopping.update(self.position.step, value);
        if let Some(path) = self.best.as_ref().filter(|_| better) {
            self.ranks.save(&self.store, path)?;
        }
        let stops_now = self.stop.follow(&self.stopping);
        if let (true, Some((step, best))) = (stops_now, self.stopping.best())
            && self.ranks.is_first()
        {
            self.bar.clear();
            print(format_args!(
                "stopped early: no value is better than {best:.4} after {step} steps"
            ));
        }
        Ok(better)
    }

    /// The best value that the run followed, and the number of steps that were done then.
    pub fn best(&self) -> Option<(u64, f64)> {
        self.stopping.best()
    }

    /// Prints `line` and, with [`RunOptions::resume`], writes the checkpoint that a later run
    /// continues from.
    ///
    /// # Errors
    /// If a loss is NaN or infinite, or the checkpoint cannot be written; the previous checkpoint
    /// is then untouched.
    #[track_caller]
    pub fn report(&mut self, optimizer: &impl Stateful, line: &str) -> Result<()> {
        let _op = enter("run.report");
        let losses = self.losses()?.values().len();
        self.recorded.require_followed(false)?;
        self.reported = Report { losses, seconds: self.seconds() };
        let start = Instant::now();
        self.bar.clear();
        if self.ranks.is_first() {
            print(format_args!("{line}"));
        }
        if let Some(path) = &self.resume {
            let mut checkpoint = Checkpoint::new();
            checkpoint
                .put("model", &self.ranks.state(&self.store)?)?
                .put("optimizer", &self.ranks.state(optimizer)?)?
                .put("random", &Random)?
                .put("position", &self.position)?
                .put("stopping", &self.stopping)?
                .put("losses", &self.losses)?
                .put("recorded", &self.recorded)?;
            if let Some(order) = self.order {
                checkpoint.put("data", &State::default().with("order", order))?;
            }
            if self.ranks.is_first() {
                checkpoint.save(path)?;
            }
        }
        self.paused += start.elapsed();
        Ok(())
    }

    /// Reports the end of an epoch of a classifier: its loss, the accuracy on the validation data
    /// in percent, and the seconds of training.
    ///
    /// # Errors
    /// As [`Run::report`] and [`Run::record_accuracy`].
    #[track_caller]
    pub fn report_epoch(&mut self, optimizer: &impl Stateful, percent: f64) -> Result<()> {
        let _op = enter("run.report_epoch");
        self.record_accuracy(percent)?;
        let reported = self.reported;
        let losses = self.losses()?;
        let recent = losses.mean(losses.values().len() - reported.losses);
        let mut lines = match losses.values() {
            [(0, first), ..] if reported.losses == 0 => format!("first loss {first:.4}\n"),
            _ => String::new(),
        };
        lines += &format!(
            "epoch {:2}  loss {recent:.4}  test accuracy {percent:.2} %  {:.2} s",
            self.epoch(),
            self.seconds() - reported.seconds
        );
        self.report(optimizer, &lines)
    }

    /// The losses of all steps, with those before a resumed run, read from the device if they were
    /// not yet.
    ///
    /// # Errors
    /// If a loss is NaN or infinite, the device fails, or the log cannot be written.
    #[track_caller]
    pub fn losses(&mut self) -> Result<&Losses> {
        let _op = enter("run.losses");
        let known = self.losses.values().len();
        self.losses.read()?;
        self.log_from(known)?;
        Ok(&self.losses)
    }

    /// The seconds since the start without those spent on evaluation and reports.
    pub fn seconds(&self) -> f64 {
        (self.started.elapsed().saturating_sub(self.paused)).as_secs_f64()
    }

    /// Ends the run: [`RunOptions::plot`] draws the losses, named `loss`, with their moving average
    /// and the values that were recorded. A run without a step leaves the plot of an earlier one.
    ///
    /// # Errors
    /// If a loss is NaN or infinite, or a file cannot be written; if the run should keep the best
    /// weights or stop early, and none of the values that it follows was recorded.
    #[track_caller]
    pub fn finish(&mut self, title: &str, loss: &str) -> Result<()> {
        let _op = enter("run.finish");
        let points = self.losses()?.curve();
        self.bar.clear();
        self.recorded.require_followed(self.has_trained && !self.is_interrupted())?;
        let Some(path) = self.plot.as_ref().filter(|_| self.has_trained) else { return Ok(()) };
        // about a fiftieth of the run: short enough to follow it, long enough to average noise
        let span = (points.len() / 50).max(5);
        let plot = Plot::new(title, "step", "loss").smoothed_curve(loss, &points, span);
        self.recorded.draw(plot, self.metric).save(path)?;
        print(format_args!("plotted {}", path.display()));
        Ok(())
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.stop.end();
    }
}
