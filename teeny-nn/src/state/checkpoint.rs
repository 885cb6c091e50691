//! One file to resume a run from.
//!
//! ```text
//! a safetensors file:
//! model/fc1.weight             tensors, named part/name
//! optimizer/fc1.weight.mean
//! __metadata__                 format, and values as part/key:
//!                              "optimizer/lr": "0.001", "random/draw": "812", ..
//! ```
//!
//! A part is anything [`Stateful`]. The program chooses the parts of a run and their names.

use super::Stateful;
use std::collections::BTreeMap;
use std::path::Path;
use teeny_core::context::enter;
use teeny_core::{Error, Result, Tensor, ToDevice};
use teeny_formats::names::{listed, of_file};
use teeny_formats::{SafeTensors, State, TensorSource, write, write_async};

/// The value of the metadata entry `format`.
const FORMAT: &str = "teeny checkpoint 1";

/// The state of a run, by part.
///
/// # Example
/// ```
/// use teeny_nn::state::{Checkpoint, Position, Random};
/// use teeny_nn::{Linear, Store, device::device, optim::Adam};
/// # fn main() -> teeny_core::Result<()> {
/// # let path = std::env::temp_dir().join(format!("teeny-doc-{}.ckpt", std::process::id()));
/// let store = Store::new(&device("cpu")?);
/// Linear::new(&store.at("fc1"), 4, 3)?;
/// let mut adam = Adam::new(store.trainable(), 1e-3);
/// let mut position = Position { step: 100, epoch: 3, batch: 10 };
///
/// let mut checkpoint = Checkpoint::new();
/// checkpoint.put("model", &store)?.put("optimizer", &adam)?;
/// checkpoint.put("random", &Random)?.put("position", &position)?;
/// checkpoint.save(&path)?;
///
/// let checkpoint = Checkpoint::load(&path, store.device())?;
/// checkpoint.restore("model", &mut store.clone())?.restore("optimizer", &mut adam)?;
/// checkpoint.restore("random", &mut Random)?.restore("position", &mut position)?;
/// # std::fs::remove_file(&path).unwrap();
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// Sorted by name.
    parts: Vec<(String, State)>,
    label: String,
}

impl Default for Checkpoint {
    fn default() -> Checkpoint {
        Checkpoint::new()
    }
}

impl Checkpoint {
    /// A checkpoint without parts.
    pub fn new() -> Checkpoint {
        Checkpoint { parts: Vec::new(), label: "checkpoint".to_string() }
    }

    /// Adds the current state of `part` as `name`, or replaces the part of that name. Later steps
    /// do not change it.
    ///
    /// # Errors
    /// If [`Stateful::state`] fails, or the name is empty or contains `/`.
    #[track_caller]
    pub fn put(&mut self, name: &str, part: &dyn Stateful) -> Result<&mut Checkpoint> {
        let _op = enter("checkpoint.put");
        if name.is_empty() || name.contains('/') {
            return Err(Error::value(format!("a part cannot be called {name:?}"))
                .named("checkpoint")
                .help("a name without '/', such as \"model\""));
        }
        *self.part_mut(name) = part.state()?;
        Ok(self)
    }

    /// Sets `part` to the state called `name`.
    ///
    /// Restore the model before the optimizer: the optimizer's f32 copies of 16-bit parameters
    /// belong to the restored values.
    ///
    /// # Errors
    /// If the part does not exist, or has missing keys, unexpected keys or shape mismatches: the
    /// error lists all of them, and `part` has not changed.
    #[track_caller]
    pub fn restore(&self, name: &str, part: &mut dyn Stateful) -> Result<&Checkpoint> {
        let _op = enter("checkpoint.restore");
        part.set_state(self.part(name)?)
            .map_err(|e| e.named(format!("{}, part {name:?}", self.label)))?;
        Ok(self)
    }

    /// The state called `name`.
    ///
    /// # Errors
    /// If the part does not exist; the error lists the parts.
    #[track_caller]
    pub fn part(&self, name: &str) -> Result<&State> {
        let _op = enter("checkpoint.part");
        self.parts.iter().find(|(own, _)| own == name).map(|(_, state)| state).ok_or_else(|| {
            let names: Vec<&str> = self.parts().collect();
            Error::value(format!("no part {name:?}; there are {}", listed(&names)))
                .help("checkpoint.parts() lists them")
                .named(&self.label)
        })
    }

    /// The names of the parts.
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().map(|(name, _)| name.as_str())
    }

    /// The state called `name`; an empty state is inserted if it does not exist.
    fn part_mut(&mut self, name: &str) -> &mut State {
        let place = self.parts.partition_point(|(own, _)| own.as_str() < name);
        if self.parts.get(place).is_none_or(|(own, _)| own != name) {
            self.parts.insert(place, (name.to_string(), State::default()));
        }
        &mut self.parts[place].1
    }

    /// Writes all parts to `path`, atomically: the old file stays until the new one is on disk,
    /// even if the process is killed.
    ///
    /// # Errors
    /// If the file cannot be written.
    #[track_caller]
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let _op = enter("checkpoint.save");
        let (tensors, metadata) = self.content();
        teeny_core::file::replace(path.as_ref(), |writer| write(writer, &tensors, &metadata))
    }

    /// The bytes of the file that [`Checkpoint::save`] writes.
    ///
    /// # Errors
    /// If a tensor cannot be read.
    #[track_caller]
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let _op = enter("checkpoint.to_bytes");
        let (tensors, metadata) = self.content();
        let mut bytes = Vec::new();
        write(&mut bytes, &tensors, &metadata)?;
        Ok(bytes)
    }

    /// [`Checkpoint::to_bytes`] as a future.
    ///
    /// # Errors
    /// As [`Checkpoint::to_bytes`].
    pub fn to_bytes_async(&self) -> impl Future<Output = Result<Vec<u8>>> + use<> {
        let (tensors, metadata) = self.content();
        write_async(&tensors, &metadata)
    }

    /// The tensors and the metadata of the file.
    fn content(&self) -> (Vec<(String, Tensor)>, BTreeMap<String, String>) {
        let mut tensors: Vec<(String, Tensor)> = Vec::new();
        let mut metadata = BTreeMap::from([("format".to_string(), FORMAT.to_string())]);
        for (part, state) in &self.parts {
            // keeps parts without tensors and values
            metadata.insert(format!("{part}/"), String::new());
            metadata.extend(
                state.values.iter().map(|(key, value)| (format!("{part}/{key}"), value.clone())),
            );
            tensors.extend(
                state
                    .tensors
                    .iter()
                    .map(|(name, tensor)| (format!("{part}/{name}"), tensor.clone())),
            );
        }
        (tensors, metadata)
    }

    /// Reads the checkpoint at `path` with its tensors on `device` (on the inner device of an
    /// autograd device).
    ///
    /// # Errors
    /// If the file cannot be read, is damaged, or is not a checkpoint.
    #[track_caller]
    pub fn load(path: impl AsRef<Path>, device: impl ToDevice) -> Result<Checkpoint> {
        let _op = enter("Checkpoint::load");
        Checkpoint::read(&SafeTensors::open(path)?, device)
    }

    /// [`Checkpoint::load`] of a file with these bytes.
    ///
    /// # Errors
    /// As [`Checkpoint::load`].
    #[track_caller]
    pub fn from_bytes(bytes: impl Into<Vec<u8>>, device: impl ToDevice) -> Result<Checkpoint> {
        let _op = enter("Checkpoint::from_bytes");
        Checkpoint::read(&SafeTensors::from_bytes(bytes)?, device)
    }

    fn read(archive: &SafeTensors, device: impl ToDevice) -> Result<Checkpoint> {
        let label = archive.label();
        if archive.metadata().get("format").is_none_or(|format| format != FORMAT) {
            let error =
                Error::format(format!("not a checkpoint: the metadata lack format {FORMAT:?}"))
                    .named(&label);
            return Err(error.help("store.load(path) loads a file with weights only"));
        }
        let device = device.to_device();
        let device = crate::track::inner_device(&device);
        let mut checkpoint = Checkpoint { parts: Vec::new(), label };
        for (name, value) in archive.metadata() {
            let Some((part, key)) = name.split_once('/') else { continue };
            let state = checkpoint.part_mut(part);
            if !key.is_empty() {
                state.values.insert(key.to_string(), value.clone());
            }
        }
        for name in archive.entries().keys().chain(archive.unreadable().keys()) {
            let Some((part, key)) = name.split_once('/') else {
                let error = Error::format(format!("tensor {name:?} belongs to no part"));
                return Err(of_file(error, &checkpoint.label));
            };
            checkpoint
                .part_mut(part)
                .tensors
                .insert(key.to_string(), TensorSource::read(archive, name, device)?);
        }
        Ok(checkpoint)
    }
}
