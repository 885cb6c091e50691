//! Options of a [`super::Run`], and the interface of a run to several ranks.

use crate::options::setters;
use crate::state::Stateful;
use crate::{Schedule, Store};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use teeny_core::Result;
use teeny_formats::State;

/// The options of a [`super::Run`]; none is set at first.
#[derive(Clone)]
pub struct RunOptions<'a> {
    pub(super) resume: Option<PathBuf>,
    pub(super) log: Option<PathBuf>,
    pub(super) plot: Option<PathBuf>,
    pub(super) best: Option<PathBuf>,
    pub(super) stop_early: Option<u64>,
    pub(super) maximize: bool,
    pub(super) metric: &'static str,
    pub(super) schedule: Option<Schedule>,
    pub(super) unit: Option<&'static str>,
    pub(super) ranks: &'a dyn RunRanks,
    #[cfg(feature = "interrupt")]
    interrupt: bool,
}

impl Default for RunOptions<'_> {
    fn default() -> Self {
        RunOptions::new()
    }
}

impl<'a> RunOptions<'a> {
    /// No options.
    pub fn new() -> RunOptions<'a> {
        RunOptions {
            resume: None,
            log: None,
            plot: None,
            best: None,
            stop_early: None,
            maximize: false,
            metric: "test accuracy, %",
            schedule: None,
            unit: None,
            ranks: &OneRank,
            #[cfg(feature = "interrupt")]
            interrupt: false,
        }
    }

    setters! {
        /// Continues from the checkpoint at `path` if it exists; each report writes it.
        resume(path: impl Into<PathBuf>) => resume = Some(path.into());
        /// Logs step, loss and learning rate of every step to `path`, as a [`super::Log`].
        log(path: impl Into<PathBuf>) => log = Some(path.into());
        /// Draws the losses and the recorded values to `path` at the end, as a [`teeny_viz::Plot`].
        plot(path: impl Into<PathBuf>) => plot = Some(path.into());
        /// Keeps the weights of the best validation loss in the file `path`, for [`Store::load`].
        best(path: impl Into<PathBuf>) => best = Some(path.into());
        /// Ends the run after `patience` validation losses in a row that are not the best, as
        /// [`super::EarlyStopping`]. The checkpoint has their number.
        stop_early(patience: u64) => stop_early = Some(patience);
    }

    /// Has [`RunOptions::best`] and [`RunOptions::stop_early`] follow the recorded accuracies, of
    /// which larger ones are better, in place of the validation losses.
    pub fn maximize(mut self) -> Self {
        self.maximize = true;
        self
    }

    setters! {
        /// Names the recorded accuracies in the plot, if they are another value of which larger
        /// ones are better: `return`.
        metric(name: &'static str) => metric = name;
        /// Gives the learning rates of [`super::Run::lr`], which the program sets in each step:
        /// `optimizer.set_lr(run.lr())`. Without, it is the optimizer's.
        schedule(schedule: Schedule) => schedule = Some(schedule);
        /// Shows a progress bar on a terminal, which counts items by name: `images`, `tokens`.
        bar(unit: &'static str) => unit = Some(unit);
        /// Makes the run one of several ranks.
        ranks(ranks: &'a dyn RunRanks) => ranks = ranks;
    }

    /// Has Ctrl-C end the run after its current step: [`super::Run::is_due`] is true then, so that
    /// a report writes the checkpoint, and [`super::Run::next_step`] is `None`. A second Ctrl-C
    /// ends the program at once with exit code 130, as does one after the run.
    #[cfg(feature = "interrupt")]
    pub fn interrupt(mut self) -> Self {
        self.interrupt = true;
        self
    }

    /// The flag that Ctrl-C sets, if the run has one.
    #[cfg(not(feature = "interrupt"))]
    pub(super) fn interrupt_flag(&self) -> Result<Option<Arc<AtomicBool>>> {
        Ok(None)
    }

    /// The flag that Ctrl-C sets, if the run has one: the same for all runs of the process.
    #[cfg(feature = "interrupt")]
    pub(super) fn interrupt_flag(&self) -> Result<Option<Arc<AtomicBool>>> {
        use signal_hook::{consts::SIGINT, flag};
        use std::sync::{Mutex, PoisonError, atomic::Ordering};
        static FLAG: Mutex<Option<Arc<AtomicBool>>> = Mutex::new(None);
        if !self.interrupt {
            return Ok(None);
        }
        let mut known = FLAG.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_none() {
            let new = Arc::new(AtomicBool::new(false));
            // in this order: the signal that sets the flag does not yet end the program
            flag::register_conditional_shutdown(SIGINT, 130, new.clone())
                .and_then(|_| flag::register(SIGINT, new.clone()))
                .map_err(|e| teeny_core::Error::io(format!("cannot watch for Ctrl-C: {e}")))?;
            *known = Some(new);
        }
        known.iter().for_each(|flag| flag.store(false, Ordering::Relaxed));
        Ok(known.clone())
    }
}

/// The ranks of a [`super::Run`] that train together. Each method is called on all of them; the
/// defaults are for one rank.
pub trait RunRanks {
    /// Whether this is the rank that prints and writes files.
    fn is_first(&self) -> bool {
        true
    }

    /// Returns an error unless `value` is the same on all ranks; `what` names it.
    ///
    /// # Errors
    /// If it differs, or a rank fails.
    fn require_same(&self, what: &str, value: &dyn Display) -> Result<()> {
        let _ = (what, value);
        Ok(())
    }

    /// The state of `part` of the whole model, for a checkpoint.
    ///
    /// # Errors
    /// If the state or a rank fails.
    fn state(&self, part: &dyn Stateful) -> Result<State> {
        part.state()
    }

    /// Sets `part` to its part of the state of the whole model.
    ///
    /// # Errors
    /// If `state` does not fit `part`.
    fn set_state(&self, part: &mut dyn Stateful, state: &State) -> Result<()> {
        part.set_state(state)
    }

    /// Writes the weights in `store` to `path`, on the first rank.
    ///
    /// # Errors
    /// If the file cannot be written, or a rank fails.
    fn save(&self, store: &Store, path: &Path) -> Result<()> {
        if self.is_first() { store.save(path) } else { Ok(()) }
    }

    /// Copies the buffers of one rank to all, before an evaluation.
    ///
    /// # Errors
    /// If a rank fails.
    fn broadcast_buffers(&self) -> Result<()> {
        Ok(())
    }

    /// Seeds ranks with other parts of the data differently, after the random numbers of a
    /// checkpoint were restored.
    ///
    /// # Errors
    /// If a rank fails.
    fn separate_random(&self) -> Result<()> {
        Ok(())
    }
}

/// A run by itself.
struct OneRank;

impl RunRanks for OneRank {}
