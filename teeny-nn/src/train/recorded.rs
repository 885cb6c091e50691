//! The values that a run has recorded, for its plot.

use super::Plot;
use crate::state::{State, Stateful};
use teeny_core::file::quoted;
use teeny_core::{Error, Result};

/// Points of a plot: steps and values.
type Points = Vec<(f64, f64)>;

/// The values that a program has measured on validation data.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Recorded {
    pub losses: Points,
    pub accuracies: Points,
}

impl Recorded {
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
                Error::format(format!("{key:?} are no points: {}", quoted(&text)))
                    .help("restore the checkpoint of a Run")
            })
        };
        *self = Recorded { losses: points("losses")?, accuracies: points("accuracies")? };
        Ok(())
    }
}
