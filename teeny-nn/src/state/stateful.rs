//! [`Stateful`]: types whose state can be saved and restored, as named tensors and values.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;
use teeny_core::context::enter;
use teeny_core::file::quoted;
use teeny_core::random::{self, Generator};
use teeny_core::{Error, Key, Result, Tensor};

/// A state: tensors and values by name. Values are text, in which numbers round-trip exactly.
///
/// # Example
/// ```
/// use teeny_nn::state::State;
/// # fn main() -> teeny_core::Result<()> {
/// let state = State::default().with("best_loss", 1.88).with("dataset", "shakespeare");
/// assert_eq!(state.get::<f64>("best_loss")?, 1.88);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct State {
    /// The tensors, untracked.
    pub tensors: BTreeMap<String, Tensor>,
    /// The values as text.
    pub values: BTreeMap<String, String>,
    /// The entries of a file that cannot be read, such as tensors of a dtype that teeny does not
    /// have: the error of reading each.
    pub unreadable: BTreeMap<String, Error>,
}

impl State {
    /// Sets the value `key`.
    pub fn set(&mut self, key: &str, value: impl Display) {
        self.values.insert(key.to_string(), value.to_string());
    }

    /// The state with the value `key` added.
    pub fn with(mut self, key: &str, value: impl Display) -> State {
        self.set(key, value);
        self
    }

    /// The tensor `name`.
    ///
    /// # Errors
    /// If there is none, or it could not be read.
    #[track_caller]
    pub fn tensor(&self, name: &str) -> Result<&Tensor> {
        let _op = enter("state.tensor");
        self.tensors.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.tensors.keys().map(String::as_str).collect();
            let missing = || {
                let names = crate::names::listed(&names);
                Error::value(format!("no tensor {name:?}; there are {names}"))
                    .help("the state is of another version, or of another part")
            };
            self.unreadable.get(name).cloned().unwrap_or_else(missing)
        })
    }

    /// The value `key`.
    ///
    /// # Errors
    /// If there is none, it could not be read, or its text does not parse as `T`.
    #[track_caller]
    pub fn get<T: FromStr>(&self, key: &str) -> Result<T> {
        let _op = enter("state.get");
        self.find(key)?.ok_or_else(|| {
            let keys: Vec<&str> = self.values.keys().map(String::as_str).collect();
            Error::value(format!("no value {key:?}; there are {}", crate::names::listed(&keys)))
                .help("the state is of another version, or of another part")
        })
    }

    /// The value `key`, if there is one.
    ///
    /// # Errors
    /// If it could not be read, or its text does not parse as `T`.
    #[track_caller]
    pub fn find<T: FromStr>(&self, key: &str) -> Result<Option<T>> {
        let _op = enter("state.find");
        let wrong = |text: &String| {
            Error::value(format!(
                "the value {key:?} is {}, which is not a {}",
                quoted(text),
                std::any::type_name::<T>()
            ))
            .help("the state is of another version, or damaged")
        };
        match (self.values.get(key), self.unreadable.get(key)) {
            (Some(text), _) => text.parse().map(Some).map_err(|_| wrong(text)),
            (None, Some(error)) => Err(error.clone()),
            (None, None) => Ok(None),
        }
    }
}

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
