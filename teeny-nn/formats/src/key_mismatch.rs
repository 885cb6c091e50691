//! One error that lists all differences between the keys of a file or state and the expected keys.

use std::collections::HashSet;
use teeny_core::{Error, Result, Shape};

/// Missing keys, unexpected keys and shape mismatches, collected while a state is loaded.
#[derive(Debug, Default)]
pub struct KeyMismatch {
    /// Keys with their shapes.
    missing: Vec<(String, Shape)>,
    unexpected: Vec<String>,
    /// Whole sentences.
    shapes: Vec<String>,
    /// The first matrix whose transpose has the expected shape.
    transposed: Option<String>,
}

impl KeyMismatch {
    /// The owner needs `key`, the state has none.
    pub fn missing(&mut self, key: &str, shape: &Shape) {
        self.missing.push((key.to_string(), *shape));
    }

    /// The state has `key`, the owner has none.
    pub fn unexpected(&mut self, key: &str) {
        self.unexpected.push(key.to_string());
    }

    /// `key` has shape `found` in the state and `expected` in the owner.
    pub fn shape(&mut self, key: &str, found: &[usize], expected: &Shape) {
        if matches!((found, &expected[..]), ([a, b], [c, d]) if (a, b) == (d, c)) {
            self.transposed.get_or_insert_with(|| key.to_string());
        }
        // a file may claim more axes than a shape has
        let found =
            Shape::new(found).map_or_else(|_| format!("{found:?}"), |shape| shape.to_string());
        self.shapes.push(format!("{key} is {found}, but should be {expected}"));
    }

    /// An error that lists all differences, if there are any; `owner` is the model or optimizer
    /// that the state is loaded into.
    pub fn check(self, owner: &str) -> Result<()> {
        let count = |n: usize, one: &str, many: &str| match n {
            0 => None,
            1 => Some(format!("1 {one}")),
            n => Some(format!("{n} {many}")),
        };
        let counts: Vec<String> = [
            count(self.missing.len(), "missing key", "missing keys"),
            count(self.unexpected.len(), "unexpected key", "unexpected keys"),
            count(self.shapes.len(), "shape mismatch", "shape mismatches"),
        ]
        .into_iter()
        .flatten()
        .collect();
        if counts.is_empty() {
            return Ok(());
        }
        let mut error = Error::shape(format!("does not match {owner}: {}", counts.join(", ")));
        if !self.missing.is_empty() {
            let missing: Vec<String> =
                self.missing.iter().map(|(key, shape)| format!("{key} {shape}")).collect();
            error = error.note(format!("missing keys: {}", missing.join(", ")));
        }
        if !self.unexpected.is_empty() {
            error = error.note(format!("unexpected keys: {}", self.unexpected.join(", ")));
        }
        let transposed = self.transposed.as_ref().filter(|_| owner == "the model");
        let help = self.prefix_help().or_else(|| {
            let key = transposed?;
            Some(format!(
                "the transpose of {key} would fit: Mapping::new().transpose({key:?}), with the \
                 file's name, for store.load_from"
            ))
        });
        let help = help.unwrap_or_else(|| match (owner, &counts[..]) {
            ("the model", [_]) if !self.shapes.is_empty() => {
                "make the model with the sizes of the file".to_string()
            }
            ("the model", _) => "make the model that the file was saved from, or a Mapping for \
                                 store.load_from that renames, skips or allows keys"
                .to_string(),
            _ => format!("make {owner}, its kind and its model, as the saved one was made"),
        });
        Err(self.shapes.into_iter().fold(error, Error::note).help(help))
    }

    /// Help for keys that differ only by a prefix that all keys of one side have.
    fn prefix_help(&self) -> Option<String> {
        let missing: Vec<&str> = self.missing.iter().map(|(key, _)| key.as_str()).collect();
        let unexpected: Vec<&str> = self.unexpected.iter().map(String::as_str).collect();
        if let Some(prefix) = common_prefix(&unexpected, &missing) {
            return Some(format!(
                "every key of the file begins with {prefix:?}: \
                 Mapping::new().rename(\"{prefix}*\", \"*\") removes it, for store.load_from"
            ));
        }
        let prefix = common_prefix(&missing, &unexpected)?;
        Some(format!(
            "every key of the model begins with {prefix:?}: \
             Mapping::new().rename(\"*\", \"{prefix}*\") adds it, for store.load_from"
        ))
    }
}

/// The prefix, parts that end in a full stop, without which most of `longer` are in `shorter`.
fn common_prefix<'a>(longer: &[&'a str], shorter: &[&str]) -> Option<&'a str> {
    let first = *longer.first()?;
    let prefixes = first.match_indices('.').map(|(i, _)| &first[..=i]);
    let shorter: HashSet<&str> = shorter.iter().copied().collect();
    let matches = |prefix: &str| {
        longer
            .iter()
            .filter(|key| key.strip_prefix(prefix).is_some_and(|rest| shorter.contains(rest)))
            .count()
    };
    prefixes
        .filter(|prefix| longer.iter().all(|key| key.starts_with(prefix)))
        .find(|prefix| 2 * matches(prefix) > longer.len())
}
