//! Saving and loading: parameters by name, whole runs, and other libraries' files.
//!
//! ```text
//! Store::save, load, load_from     weights by name                       here, mapping
//! Checkpoint                       everything a run is resumed from      checkpoint    parts: stateful
//! Archive, write                   safetensors                           archive
//! npz::read, write                 NumPy's archives                      npz, zip
//! pt::read                         PyTorch's files, without running any  pt, pickle, zip
//! ```
//!
//! [`teeny_core::file`] knows how to put a file in another's place without ever losing both. No
//! reader believes a header before it has been held against the bytes that are there.

mod archive;
mod checkpoint;
mod foreign;
mod mapping;
mod misfits;
pub mod npz;
mod pickle;
pub mod pt;
mod stateful;
mod zip;

pub use archive::{Archive, Entry, write};
pub use checkpoint::Checkpoint;
pub use mapping::{Loaded, Mapping, TensorSource};
pub(crate) use misfits::Misfits;
pub use stateful::{Position, Random, State, Stateful};

use crate::store::Store;
use crate::track;
use std::collections::BTreeMap;
use std::path::Path;
use teeny_core::{Result, Tensor};

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
    /// If the file cannot be written, for example on a full disk; the file that was at `path`
    /// before is then untouched.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let tensors: Vec<(String, Tensor)> =
            self.all().into_iter().map(|p| (p.name().to_string(), p.value())).collect();
        teeny_core::file::replace(path.as_ref(), |writer| write(writer, &tensors, &BTreeMap::new()))
    }

    /// Replaces every parameter and buffer by the tensor of its name in the safetensors file
    /// `path`. See [`Store::load_from`] for files with other names, or with a part of them.
    ///
    /// # Errors
    /// If the file is unsound, or names are missing, unknown or of another shape: all of them are
    /// listed. Nothing is changed unless everything fits.
    pub fn load(&self, path: impl AsRef<Path>) -> Result<()> {
        self.load_from(&Archive::open(path)?, &Mapping::new()).map(|_| ())
    }
}

impl Stateful for Store {
    fn state(&self) -> Result<State> {
        let tensors = self
            .all()
            .into_iter()
            .map(|p| Ok((p.name().to_string(), track::below(&p.value())?)))
            .collect::<Result<_>>()?;
        Ok(State { tensors, ..State::default() })
    }

    fn set_state(&mut self, state: &State) -> Result<()> {
        self.load_from(state, &Mapping::new()).map(|_| ())
    }
}
