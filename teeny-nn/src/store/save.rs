//! Saving and loading parameters by name, as safetensors files.

use super::{Param, Store};
use crate::state::Stateful;
use crate::track;
use std::collections::BTreeMap;
use std::path::Path;
use teeny_core::context::enter;
use teeny_core::file::write_error;
use teeny_core::{Error, Result, Tensor};
use teeny_formats::{Mapped, Mapping, SafeTensors, State, TensorSource, write, write_async};

impl Store {
    /// Writes all parameters and buffers to the safetensors file `path`, with PyTorch's names.
    ///
    /// # Errors
    /// If the file cannot be written, for example on a full disk; the old file at `path` is then
    /// unchanged.
    #[track_caller]
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let _op = enter("store.save");
        let tensors = self.named_tensors();
        let metadata = self.block_types();
        teeny_core::file::replace(path.as_ref(), |writer| write(writer, &tensors, &metadata))
    }

    /// Writes all parameters and buffers to the safetensors file `path` with the names and the
    /// layout of the files that `mapping` is for, so that the library they come from reads it.
    ///
    /// # Errors
    /// As [`Store::save`] and [`Mapping::apply`]; if the file would not be read back under the
    /// same names.
    ///
    /// # Example
    /// ```no_run
    /// # fn demo(store: &teeny_nn::Store) -> teeny_core::Result<()> {
    /// // the weights of a `Gpt` for `GPT2LMHeadModel.from_pretrained`
    /// store.save_as("out/model.safetensors", &teeny_formats::Mapping::gpt2())?;
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn save_as(&self, path: impl AsRef<Path>, mapping: &Mapping) -> Result<()> {
        let _op = enter("store.save_as");
        let state = self.state()?;
        let mapped = self.renamed_back(&state, mapping)?;
        let names = mapped.shapes().into_iter().map(|(name, _)| name);
        self.write_mapped(path.as_ref(), &mapped, names)
    }

    /// Writes the parameters for another library, as [`Store::save_as`], into the folder `path`:
    /// `model.safetensors`, or parts of at most `part` bytes with an index, if they are more. A
    /// larger tensor has a part alone.
    ///
    /// # Errors
    /// As [`Store::save_as`].
    #[track_caller]
    pub fn save_parts(&self, path: impl AsRef<Path>, mapping: &Mapping, part: u64) -> Result<()> {
        let _op = enter("store.save_parts");
        let (path, state) = (path.as_ref(), self.state()?);
        let mapped = self.renamed_back(&state, mapping)?;
        let bytes = |shape: &[usize]| shape.iter().product::<usize>() as u64;
        // all parameters of a store have one dtype; few buffers have another
        let size = self.all().first().map_or(4, |param| param.stored().dtype().size()) as u64;
        let (mut parts, mut names, mut last, mut total) = (Vec::new(), Vec::new(), 0, 0);
        for (name, shape) in mapped.shapes() {
            let bytes = bytes(&shape) * size;
            if last > 0 && last + bytes > part {
                parts.push(std::mem::take(&mut names));
                last = 0;
            }
            (last, total) = (last + bytes, total + bytes);
            names.push(name);
        }
        parts.push(names);
        let (whole, index_path) =
            (path.join("model.safetensors"), path.join("model.safetensors.index.json"));
        // old files must not be read in place of the new ones
        let remove = |path: &Path| match std::fs::remove_file(path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io(format!("cannot remove {}: {e}", path.display())).with_source(e))
            }
            _ => Ok(()),
        };
        if parts.len() == 1 {
            self.write_mapped(&whole, &mapped, parts.swap_remove(0))?;
            return remove(&index_path);
        }
        let (count, mut files) = (parts.len(), serde_json::Map::new());
        for (i, names) in parts.into_iter().enumerate() {
            let file = format!("model-{:05}-of-{count:05}.safetensors", i + 1);
            files.extend(names.iter().map(|name| (name.clone(), file.as_str().into())));
            self.write_mapped(&path.join(file), &mapped, names)?;
        }
        let index = serde_json::json!({"metadata": {"total_size": total}, "weight_map": files});
        teeny_core::file::replace(&index_path, |writer| {
            serde_json::to_writer_pretty(writer, &index).map_err(write_error)
        })?;
        remove(&whole)
    }

    /// `state` under the names of `mapping`, from which it can be read back.
    fn renamed_back<'a>(&self, state: &'a State, mapping: &Mapping) -> Result<Mapped<&'a State>> {
        if let Some(param) = self.all().iter().find(|param| param.quantized().is_some()) {
            return Err(Error::value(format!("{:?} is quantised", param.name()))
                .help("store.dequantize()? first: other libraries read floats"));
        }
        let mapped = mapping.inverse().apply(state)?;
        let again = mapping.apply(&mapped)?.shapes();
        if let Some((name, _)) = state.shapes().into_iter().find(|own| !again.contains(own)) {
            return Err(Error::value(format!("{name:?} is not read back under this name"))
                .help("the rules of the mapping cannot be inverted; see Mapping::inverse"));
        }
        Ok(mapped)
    }

    fn write_mapped(
        &self,
        path: &Path,
        mapped: &Mapped<&State>,
        names: impl IntoIterator<Item = String>,
    ) -> Result<()> {
        let read = |name: String| {
            let tensor = mapped.read(&name, self.device())?;
            Ok((name, tensor))
        };
        let tensors = names.into_iter().map(read).collect::<Result<Vec<_>>>()?;
        // transformers reads no file without it
        let metadata = BTreeMap::from([("format".to_string(), "pt".to_string())]);
        teeny_core::file::replace(path, |writer| write(writer, &tensors, &metadata))
    }

    /// The bytes of the file that [`Store::save`] writes.
    ///
    /// # Errors
    /// If a parameter cannot be read.
    ///
    /// # Example
    /// ```
    /// use teeny_nn::{Linear, Store, device::device};
    /// # fn main() -> teeny_core::Result<()> {
    /// let [a, b] = [Store::new(&device("cpu")?), Store::new(&device("cpu")?)];
    /// Linear::new(&a.at("fc1"), 4, 3)?;
    /// Linear::new(&b.at("fc1"), 4, 3)?;
    /// b.load_bytes(a.to_bytes()?)?;
    /// assert_eq!(a.to_bytes()?, b.to_bytes()?);
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let _op = enter("store.to_bytes");
        let mut bytes = Vec::new();
        write(&mut bytes, &self.named_tensors(), &self.block_types())?;
        Ok(bytes)
    }

    /// [`Store::to_bytes`] as a future. The bytes have the parameters at the time of the call;
    /// training may go on meanwhile.
    ///
    /// # Errors
    /// As [`Store::to_bytes`].
    pub fn to_bytes_async(&self) -> impl Future<Output = Result<Vec<u8>>> + use<> {
        write_async(&self.named_tensors(), &self.block_types())
    }

    /// For each quantised weight, whose tensor is the bytes of its blocks, what these are.
    fn block_types(&self) -> BTreeMap<String, String> {
        let types = |param: Param| Some((quantized_key(&param), param.quantized()?.describe()));
        self.all().into_iter().filter_map(types).collect()
    }

    /// Returns an error if the blocks of a file, of which `metadata` are the entries, are of other
    /// types.
    fn check_block_types(&self, metadata: &BTreeMap<String, String>) -> Result<()> {
        for (key, own) in self.block_types() {
            if metadata.get(&key) != Some(&own) {
                let theirs = metadata.get(&key).map_or("not there", String::as_str);
                let text = format!("the entry {key:?} is {theirs}, the weight is {own}");
                return Err(Error::value(text)
                    .help("quantise the model as the saved one, or dequantise both"));
            }
        }
        Ok(())
    }

    fn load_archive(&self, file: &SafeTensors) -> Result<()> {
        self.check_block_types(file.metadata()).map_err(|e| e.named(file.label()))?;
        self.load_from(file, &Mapping::new()).map(|_| ()).map_err(|error| {
            let format = file.metadata().get("format");
            match format.is_some_and(|format| format.starts_with("teeny checkpoint")) {
                true => error.help(
                    "it is a checkpoint: Checkpoint::load(path, &device)?.restore(part, &mut store)?",
                ),
                false => error,
            }
        })
    }

    fn named_tensors(&self) -> Vec<(String, Tensor)> {
        self.all().into_iter().map(|p| (p.name().to_string(), p.stored())).collect()
    }

    /// Replaces every parameter and buffer by the tensor of its name in the safetensors file
    /// `path`. [`Store::load_from`] reads files with other names or with only some of them.
    ///
    /// # Errors
    /// If the file is damaged, or there are missing keys, unexpected keys or shape mismatches: the
    /// error lists all of them. Nothing has changed then.
    #[track_caller]
    pub fn load(&self, path: impl AsRef<Path>) -> Result<()> {
        let _op = enter("store.load");
        self.load_archive(&SafeTensors::open(path)?)
    }

    /// [`Store::load`] of a file with these bytes.
    ///
    /// # Errors
    /// As [`Store::load`].
    #[track_caller]
    pub fn load_bytes(&self, bytes: impl Into<Vec<u8>>) -> Result<()> {
        let _op = enter("store.load_bytes");
        self.load_archive(&SafeTensors::from_bytes(bytes)?)
    }
}

impl Stateful for Store {
    fn state(&self) -> Result<State> {
        let tensors = self
            .all()
            .into_iter()
            .map(|p| Ok((p.name().to_string(), track::detached(&p.stored())?)))
            .collect::<Result<_>>()?;
        Ok(State { tensors, values: self.block_types(), ..State::default() })
    }

    fn set_state(&mut self, state: &State) -> Result<()> {
        self.check_block_types(&state.values)?;
        self.load_from(state, &Mapping::new()).map(|_| ())
    }
}

/// The name of the entry with the types of a quantised weight.
fn quantized_key(param: &Param) -> String {
    format!("quantized.{}", param.name())
}
