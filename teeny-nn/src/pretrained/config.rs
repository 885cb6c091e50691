//! `config.json`: sizes under the keys that a family uses.

use crate::names::loading;
use serde_json::Value;
use std::path::{Path, PathBuf};
use teeny_core::file::quoted;
use teeny_core::{Error, Result};

/// A `config.json`.
pub(super) struct Config {
    path: PathBuf,
    values: Value,
}

impl Config {
    pub fn open(folder: &Path) -> Result<Config> {
        if folder.is_file() {
            return Err(Error::io("this is a file, not the folder of a model")
                .named(loading(folder))
                .help("use the folder that has config.json and the weights"));
        }
        read(folder.join("config.json")).map(|(path, values)| Config { path, values })
    }

    /// An error about this file.
    pub fn error(&self, text: String) -> Error {
        Error::value(text).named(loading(&self.path))
    }

    /// The value of the first of `keys` that is there and not null.
    fn get(&self, keys: &[&str]) -> Option<&Value> {
        keys.iter().filter_map(|key| self.values.get(key)).find(|value| !value.is_null())
    }

    /// The text of `key`.
    ///
    /// # Errors
    /// If it is something else.
    pub fn text(&self, key: &str) -> Result<Option<&str>> {
        let Some(value) = self.get(&[key]) else { return Ok(None) };
        match value.as_str() {
            Some(text) => Ok(Some(text)),
            None => Err(self.wrong(&[key], value, "a text")),
        }
    }

    /// The size of the first of `keys` that is there, otherwise `default`.
    pub fn size(&self, keys: &[&str], default: usize) -> Result<usize> {
        let Some(value) = self.get(keys) else { return Ok(default) };
        let size = value.as_u64().and_then(|size| u32::try_from(size).ok());
        size.map(|size| size as usize).ok_or_else(|| self.wrong(keys, value, "a size"))
    }

    /// The number of the first of `keys` that is there, otherwise `default`.
    pub fn number(&self, keys: &[&str], default: f64) -> Result<f64> {
        let Some(value) = self.get(keys) else { return Ok(default) };
        value.as_f64().ok_or_else(|| self.wrong(keys, value, "a number"))
    }

    pub fn is_true(&self, key: &str) -> bool {
        self.get(&[key]).is_some_and(|value| value.as_bool() == Some(true))
    }

    pub fn has(&self, key: &str) -> bool {
        self.get(&[key]).is_some()
    }

    fn wrong(&self, keys: &[&str], value: &Value, wanted: &str) -> Error {
        let key = keys.iter().find(|key| self.get(&[key]).is_some()).unwrap_or(&keys[0]);
        let shown = match value.as_str() {
            Some(text) => quoted(text),
            None => quoted(&value.to_string()).trim_matches('"').to_string(),
        };
        self.error(format!("{key:?} is {shown}, not {wanted}"))
    }
}

/// The values of the JSON file at `path`, which is an object.
pub(super) fn read(path: PathBuf) -> Result<(PathBuf, Value)> {
    let values = teeny_core::file::read(&path).and_then(|bytes| {
        serde_json::from_slice(&bytes).map_err(|e| Error::format(format!("not JSON: {e}")))
    });
    values.map_err(|error| error.named(loading(&path))).map(|values| (path, values))
}
