//! The outputs of an op: shapes and dtypes before it runs, storages after. [`Op::outputs`] is in
//! `validate`.
//!
//! [`Op::outputs`]: super::Op::outputs

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape::Shape;
use crate::storage::StorageRef;
use std::ops::Deref;

/// Shape and dtype of an output.
pub type TensorSpec = (Shape, DType);

/// The shapes and dtypes of an op's outputs.
pub type TensorSpecs = PerOutput<TensorSpec>;

/// The storages of an op's outputs.
pub type Outputs = PerOutput<StorageRef>;

/// A value for each output of an op, in order: a slice. A single one is stored inline, as nearly
/// every op has one output.
pub struct PerOutput<T>(Values<T>);

enum Values<T> {
    One([T; 1]),
    Many(Vec<T>),
}

impl<T> PerOutput<T> {
    /// No outputs yet.
    #[inline]
    pub const fn new() -> PerOutput<T> {
        PerOutput(Values::Many(Vec::new()))
    }

    /// A single output.
    #[inline]
    pub const fn one(value: T) -> PerOutput<T> {
        PerOutput(Values::One([value]))
    }

    /// Adds an output.
    pub fn push(&mut self, value: T) {
        *self = match std::mem::take(self).0 {
            Values::Many(values) if values.is_empty() => PerOutput::one(value),
            Values::Many(mut values) => {
                values.push(value);
                PerOutput(Values::Many(values))
            }
            Values::One([first]) => PerOutput::from((first, value)),
        };
    }

    /// Applies `f` to each index and value.
    ///
    /// # Errors
    /// The first of `f`.
    #[inline]
    pub fn try_map<U>(self, mut f: impl FnMut(usize, T) -> Result<U>) -> Result<PerOutput<U>> {
        Ok(PerOutput(match self.0 {
            Values::One([value]) => Values::One([f(0, value)?]),
            Values::Many(values) => {
                let values = values.into_iter().enumerate();
                Values::Many(values.map(|(o, value)| f(o, value)).collect::<Result<_>>()?)
            }
        }))
    }

    /// The first output alone.
    #[inline]
    pub fn into_first(self) -> Option<T> {
        match self.0 {
            Values::One([value]) => Some(value),
            Values::Many(values) => values.into_iter().next(),
        }
    }
}

impl<T> Default for PerOutput<T> {
    fn default() -> PerOutput<T> {
        PerOutput::new()
    }
}

impl<T> Deref for PerOutput<T> {
    type Target = [T];
    #[inline]
    fn deref(&self) -> &[T] {
        match &self.0 {
            Values::One(value) => value,
            Values::Many(values) => values,
        }
    }
}

impl<T> From<T> for PerOutput<T> {
    #[inline]
    fn from(value: T) -> PerOutput<T> {
        PerOutput::one(value)
    }
}

impl<T> From<(T, T)> for PerOutput<T> {
    fn from((first, second): (T, T)) -> PerOutput<T> {
        PerOutput(Values::Many(vec![first, second]))
    }
}

impl<T> From<PerOutput<T>> for Vec<T> {
    fn from(values: PerOutput<T>) -> Vec<T> {
        values.into_iter().collect()
    }
}

impl<T> FromIterator<T> for PerOutput<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> PerOutput<T> {
        let mut values = values.into_iter();
        let Some(first) = values.next() else { return PerOutput::new() };
        match values.next() {
            None => PerOutput::one(first),
            Some(second) => {
                PerOutput(Values::Many([first, second].into_iter().chain(values).collect()))
            }
        }
    }
}

impl<T> IntoIterator for PerOutput<T> {
    type Item = T;
    type IntoIter = std::iter::Chain<std::option::IntoIter<T>, std::vec::IntoIter<T>>;
    fn into_iter(self) -> Self::IntoIter {
        let (one, many) = match self.0 {
            Values::One([value]) => (Some(value), Vec::new()),
            Values::Many(values) => (None, values),
        };
        one.into_iter().chain(many)
    }
}

/// The error of an op whose destination has been taken.
#[cold]
pub(crate) fn taken() -> Error {
    Error::internal("the destination of copy_into has been taken: an op runs once")
}
