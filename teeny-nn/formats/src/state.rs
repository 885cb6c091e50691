//! [`State`]: the named tensors and values of a checkpoint.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;
use teeny_core::context::enter;
use teeny_core::file::quoted;
use teeny_core::{Error, Result, Tensor};

/// A state: tensors and values by name. Values are text, in which numbers round-trip exactly.
///
/// # Example
/// ```
/// use teeny_formats::State;
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
    /// If the tensor does not exist or could not be read.
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
    /// If the value does not exist, could not be read, or does not parse as `T`.
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
