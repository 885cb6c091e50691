//! The values that a run has recorded, for its plot.

use super::RunOptions;
use crate::state::Stateful;
use teeny_core::file::quoted;
use teeny_core::{Error, Result};
use teeny_formats::State;
use teeny_viz::Plot;

/// Points of a plot: steps and values.
type Points = Vec<(f64, f64)>;

/// The values that a program has measured on validation data.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Recorded {
    pub losses: Points,
    pub accuracies: Points,
    /// Whether weights are kept, or the run stops, by these values.
    is_needed: bool,
    /// Whether it is by the accuracies, not the losses.
    pub follows_accuracy: bool,
}

impl Recorded {
    /// No values, for a run with `options`.
    pub fn of(options: &RunOptions<'_>) -> Recorded {
        Recorded {
            is_needed: options.best.is_some() || options.stop_early.is_some(),
            follows_accuracy: options.maximize,
            ..Recorded::default()
        }
    }

    /// Returns an error if the run follows values that the program does not record: only others,
    /// or, at the end of the run, none.
    pub fn require_followed(&self, is_end: bool) -> Result<()> {
        let (losses, accuracies) = (&self.losses, &self.accuracies);
        let (followed, others, known, given) = match self.follows_accuracy {
            false => (losses, accuracies, "record_validation_loss", "accuracies"),
            true => (accuracies, losses, "record_accuracy", "validation losses"),
        };
        if !self.is_needed || !followed.is_empty() || others.is_empty() && !is_end {
            return Ok(());
        }
        let given = if others.is_empty() { "nothing" } else { given };
        let text = format!(
            "the run keeps the best weights, or stops early, by the values of run.{known}, \
             but {given} was recorded"
        );
        let help = "the run follows accuracies with RunOptions::maximize, losses without";
        Err(Error::value(text).named("Run").help(help))
    }

    /// `plot` with the values, of which the accuracies are called `metric`.
    pub fn draw(&self, mut plot: Plot, metric: &str) -> Plot {
        if !self.losses.is_empty() {
            plot = plot.curve("validation loss", &self.losses);
        }
        if !self.accuracies.is_empty() {
            plot = plot.metric(metric, &self.accuracies);
        }
        plot
    }
}

impl Stateful for Recorded {
    fn state(&self) -> Result<State> {
        let text = |points: &Points| {
            let all: Vec<String> = points.iter().map(|(x, y)| format!("{x}:{y}")).collect();
            all.join(" ")
        };
        let state = State::default().with("losses", text(&self.losses));
        Ok(state.with("accuracies", text(&self.accuracies)))
    }

    fn set_state(&mut self, state: &State) -> Result<()> {
        let points = |key: &str| -> Result<Points> {
            let text: String = state.get(key)?;
            let point = |point: &str| {
                let (x, y) = point.split_once(':')?;
                Some((x.parse().ok()?, y.parse().ok()?))
            };
            let all: Option<Points> = text.split_whitespace().map(point).collect();
            all.ok_or_else(|| {
                Error::format(format!("{key:?} is not a list of points: {}", quoted(&text)))
                    .help("restore the checkpoint of a Run")
            })
        };
        (self.losses, self.accuracies) = (points("losses")?, points("accuracies")?);
        Ok(())
    }
}
