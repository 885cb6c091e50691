//! Saving and loading parameters by name.
//!
//! [`archive`](Archive) knows the safetensors format, [`teeny_core::file`] how to put a file in another's place without ever losing
//! both; this file connects them to a [`Store`].

mod archive;

pub use archive::{Archive, Entry, write};

use crate::store::{Param, Store};
use std::collections::BTreeMap;
use std::path::Path;
use teeny_core::{Error, Result, Tensor};

/// The first names, and how many more there are; for errors.
pub(crate) fn listed(names: &[&str]) -> String {
    match names {
        [] => "none".to_string(),
        names if names.len() <= 12 => names.join(", "),
        names => format!("{}, and {} more", names[..12].join(", "), names.len() - 12),
    }
}

impl Store {
    /// Writes all parameters and buffers to the safetensors file `path`, with PyTorch's names.
    ///
    /// # Errors
    /// If the file cannot be written, for example on a full disk; the file that was at `path` before is then untouched.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let tensors: Vec<(String, Tensor)> = self.all().into_iter().map(|p| (p.name().to_string(), p.value())).collect();
        teeny_core::file::replace(path.as_ref(), |writer| write(writer, &tensors, &BTreeMap::new()))
    }

    /// Replaces every parameter and buffer by the tensor of its name in the safetensors file `path`.
    ///
    /// # Errors
    /// If the file is unsound, lacks a name, has one too many, or a shape differs. Nothing is changed unless everything fits.
    pub fn load(&self, path: impl AsRef<Path>) -> Result<()> {
        let archive = Archive::open(path)?;
        let params = self.all();
        for param in &params {
            let (entry, value) = (archive.entry(param.name())?, param.value());
            if entry.shape != value.shape()[..] {
                let text = format!("tensor {:?} is {:?} in the file, the model's is {}", param.name(), entry.shape, value.shape());
                return Err(Error::shape(text).named(archive.label()));
            }
        }
        let unknown: Vec<&str> = archive.entries().keys().map(String::as_str).filter(|name| !params.iter().any(|p| p.name() == *name)).collect();
        if !unknown.is_empty() {
            let names: Vec<&str> = params.iter().map(Param::name).collect();
            return Err(Error::value(format!("the model has no {}; it has {}", listed(&unknown), listed(&names))).named(archive.label()));
        }
        let device = self.device();
        let tensors = params.iter().map(|p| archive.tensor(p.name(), device)).collect::<Result<Vec<_>>>()?;
        params.iter().zip(tensors).try_for_each(|(param, tensor)| param.set(&tensor))
    }
}
