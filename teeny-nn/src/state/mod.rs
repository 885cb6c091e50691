//! Checkpoints save and restore anything [`Stateful`], as the named tensors and values of a
//! [`State`].

mod checkpoint;

pub use checkpoint::Checkpoint;
use std::collections::BTreeMap;
use teeny_core::random::{self, Generator};
use teeny_core::{Key, Result};
use teeny_data::TableEncoder;
use teeny_formats::State;

/// Anything with a state for a checkpoint: a [`crate::Store`], optimizers, averages, schedules with
/// a memory, the random number generator.
pub trait Stateful {
    /// The current state. Tensors are shared, not copied; they are immutable.
    ///
    /// # Errors
    /// If the device fails.
    fn state(&self) -> Result<State>;

    /// Restores `state`.
    ///
    /// # Errors
    /// If there are missing keys, unexpected keys or shape mismatches: the error lists all of them,
    /// and nothing has changed.
    fn set_state(&mut self, state: &State) -> Result<()>;
}

/// The names of the second part of a pair begin with it.
const SECOND: &str = "second/";

/// Two parts as one, such as an optimizer with an average that must continue with it:
/// `(&mut adam, &mut average)`. Names of the first are as they are.
impl<A: Stateful + ?Sized, B: Stateful + ?Sized> Stateful for (&mut A, &mut B) {
    fn state(&self) -> Result<State> {
        fn add<T>(to: &mut BTreeMap<String, T>, from: BTreeMap<String, T>) {
            to.extend(from.into_iter().map(|(name, value)| (format!("{SECOND}{name}"), value)));
        }
        let (mut both, second) = (self.0.state()?, self.1.state()?);
        add(&mut both.tensors, second.tensors);
        add(&mut both.values, second.values);
        Ok(both)
    }

    fn set_state(&mut self, state: &State) -> Result<()> {
        fn split<T: Clone>(all: &BTreeMap<String, T>) -> [BTreeMap<String, T>; 2] {
            let mut parts = [BTreeMap::new(), BTreeMap::new()];
            for (name, value) in all {
                let (part, name) = name.strip_prefix(SECOND).map_or((0, &name[..]), |n| (1, n));
                parts[part].insert(name.to_string(), value.clone());
            }
            parts
        }
        let [tensors, second_tensors] = split(&state.tensors);
        let [values, second_values] = split(&state.values);
        let [unreadable, second_unreadable] = split(&state.unreadable);
        let before = self.0.state()?;
        self.0.set_state(&State { tensors, values, unreadable })?;
        let second =
            State { tensors: second_tensors, values: second_values, unreadable: second_unreadable };
        self.1.set_state(&second).inspect_err(|_| {
            // the state that it had fits
            let _ = self.0.set_state(&before);
        })
    }
}

/// The columns of a table with their statistics.
impl Stateful for TableEncoder {
    fn state(&self) -> Result<State> {
        self.state()
    }

    fn set_state(&mut self, state: &State) -> Result<()> {
        self.set_state(state)
    }
}

/// For values of the program itself.
impl Stateful for State {
    fn state(&self) -> Result<State> {
        Ok(self.clone())
    }

    fn set_state(&mut self, state: &State) -> Result<()> {
        *self = state.clone();
        Ok(())
    }
}

/// The random number generator of dropout and initial weights: seed and draw counter of
/// [`teeny_core::random`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Random;

impl Stateful for Random {
    fn state(&self) -> Result<State> {
        Ok(state_of(random::state()))
    }

    fn set_state(&mut self, state: &State) -> Result<()> {
        random::set_state(key_of(state)?);
        Ok(())
    }
}

/// Its seed and its count of draws.
impl Stateful for Generator {
    fn state(&self) -> Result<State> {
        Ok(state_of(Generator::state(self)))
    }

    fn set_state(&mut self, state: &State) -> Result<()> {
        Generator::set_state(self, key_of(state)?);
        Ok(())
    }
}

fn state_of(Key { seed, draw }: Key) -> State {
    State::default().with("seed", seed).with("draw", draw)
}

fn key_of(state: &State) -> Result<Key> {
    Ok(Key { seed: state.get("seed")?, draw: state.get("draw")? })
}

/// The position of a run: steps taken, and the next batch. A schedule needs the step, a loader
/// needs epoch and batch ([`crate::data::DataLoader::epoch_from`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Steps taken.
    pub step: u64,
    /// The current epoch.
    pub epoch: u64,
    /// The next batch of the epoch.
    pub batch: usize,
}

impl Stateful for Position {
    fn state(&self) -> Result<State> {
        Ok(State::default()
            .with("step", self.step)
            .with("epoch", self.epoch)
            .with("batch", self.batch))
    }

    fn set_state(&mut self, state: &State) -> Result<()> {
        *self = Position {
            step: state.get("step")?,
            epoch: state.get("epoch")?,
            batch: state.get("batch")?,
        };
        Ok(())
    }
}
