//! Loading tensors with the names and layout of another library.

use super::archive::is_counter;
use super::{Archive, KeyMismatch, State};
use crate::store::{Store, set_all};
use std::collections::BTreeMap;
use teeny_core::{DType, DeviceRef, Error, Reference, Result, Tensor};

/// A source of named tensors: a safetensors file, or a [`State`] read from another format.
pub trait TensorSource {
    /// The name of the source in errors.
    fn label(&self) -> String;

    /// The names and shapes of the tensors, each name once.
    fn shapes(&self) -> Vec<(String, Vec<usize>)>;

    /// Reads tensor `name` onto `device`.
    ///
    /// # Errors
    /// If there is no such tensor, or it cannot be read.
    fn read(&self, name: &str, device: &DeviceRef) -> Result<Tensor>;

    /// The tensors that cannot be read, each with the error of reading it.
    fn unreadable(&self) -> Vec<(String, Error)> {
        Vec::new()
    }
}

impl TensorSource for Archive {
    fn label(&self) -> String {
        Archive::label(self)
    }

    fn shapes(&self) -> Vec<(String, Vec<usize>)> {
        self.entries().iter().map(|(name, entry)| (name.clone(), entry.shape.clone())).collect()
    }

    fn read(&self, name: &str, device: &DeviceRef) -> Result<Tensor> {
        self.tensor_on_device(name, device)
    }

    fn unreadable(&self) -> Vec<(String, Error)> {
        listed(Archive::unreadable(self))
    }
}

fn listed(errors: &BTreeMap<String, Error>) -> Vec<(String, Error)> {
    errors.iter().map(|(name, error)| (name.clone(), error.clone())).collect()
}

impl TensorSource for State {
    fn label(&self) -> String {
        "load".to_string()
    }

    fn shapes(&self) -> Vec<(String, Vec<usize>)> {
        self.tensors.iter().map(|(name, tensor)| (name.clone(), tensor.shape().to_vec())).collect()
    }

    fn read(&self, name: &str, device: &DeviceRef) -> Result<Tensor> {
        let tensor = self.tensor(name)?;
        if tensor.dtype() == DType::I64 && is_counter(name) {
            // on the host: the device may lack integers of 64 bits
            return tensor.to(&Reference::new())?.cast(DType::I32)?.to(device);
        }
        tensor.to(device)
    }

    fn unreadable(&self) -> Vec<(String, Error)> {
        listed(&self.unreadable)
    }
}

type Rename = Box<dyn Fn(&str) -> Option<String>>;

/// Maps the names and matrices of a file to those of the model.
///
/// # Example
/// ```
/// use teeny_nn::state::Mapping;
/// // the file says `encoder.0.kernel` (in, out), the model `layers.0.weight` (out, in)
/// let mapping = Mapping::new()
///     .rename(|name| Some(name.replace("encoder", "layers").replace("kernel", "weight")))
///     .transpose(|name| name.ends_with("kernel"));
/// # let _ = mapping;
/// ```
pub struct Mapping {
    rename: Rename,
    transpose: Box<dyn Fn(&str) -> bool>,
    /// The name in the model of a copy, which is skipped if the model does not have it.
    copy: Option<&'static str>,
    strict: bool,
}

impl Default for Mapping {
    fn default() -> Mapping {
        Mapping::new()
    }
}

impl Mapping {
    /// The identity: all names are unchanged, and every key must match.
    pub fn new() -> Mapping {
        Mapping {
            rename: Box::new(|name| Some(name.to_string())),
            transpose: Box::new(|_| false),
            copy: None,
            strict: true,
        }
    }

    /// Renames the file's tensor `name` to `rename(name)`; `None` skips the tensor.
    pub fn rename(mut self, rename: impl Fn(&str) -> Option<String> + 'static) -> Mapping {
        self.rename = Box::new(rename);
        self
    }

    /// Transposes the matrices for whose names in the file `transpose` returns true.
    pub fn transpose(mut self, transpose: impl Fn(&str) -> bool + 'static) -> Mapping {
        self.transpose = Box::new(transpose);
        self
    }

    /// Sets whether missing and unexpected keys are errors, the default; otherwise they are only
    /// reported. Shape mismatches are always errors. Equivalent: `strict` of PyTorch's
    /// `load_state_dict`.
    pub fn strict(mut self, strict: bool) -> Mapping {
        self.strict = strict;
        self
    }

    /// The mapping for Hugging Face's GPT-2 files: removes the prefix `transformer.`, skips the
    /// stored masks, and transposes the weights of `Conv1D` (in, out) to those of linear layers
    /// (out, in). `lm_head.weight` is skipped if the model does not have it: its head is then the
    /// embedding, and the file has a copy.
    pub fn gpt2() -> Mapping {
        let skipped = [".attn.bias", ".attn.masked_bias"];
        let conv1d = [
            ".attn.c_attn.weight",
            ".attn.c_proj.weight",
            ".mlp.c_fc.weight",
            ".mlp.c_proj.weight",
        ];
        Mapping { copy: Some("lm_head.weight"), ..Mapping::new() }
            .rename(move |name| {
                let kept = !skipped.iter().any(|end| name.ends_with(end));
                kept.then(|| name.strip_prefix("transformer.").unwrap_or(name).to_string())
            })
            .transpose(move |name| conv1d.iter().any(|end| name.ends_with(end)))
    }

    /// The model's name of the file's tensor `name`.
    #[cfg(feature = "distributed")]
    pub(crate) fn renamed(&self, name: &str) -> Option<String> {
        (self.rename)(name)
    }

    /// Whether the file's matrix `name` is transposed.
    #[cfg(feature = "distributed")]
    pub(crate) fn transposes(&self, name: &str) -> bool {
        (self.transpose)(name)
    }
}

/// The result of [`Store::load_from`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadReport {
    /// Parameters and buffers with a new value.
    pub loaded: Vec<String>,
    /// Parameters and buffers that are not in the file.
    pub missing_keys: Vec<String>,
    /// Names in the file that the model does not have.
    pub unexpected_keys: Vec<String>,
    /// Names in the file that the mapping skips.
    pub skipped: Vec<String>,
}

impl Store {
    /// Replaces parameters and buffers by the tensors of `source`, renamed by `mapping`.
    ///
    /// # Errors
    /// If there are missing keys, unexpected keys or shape mismatches: the error lists all of them,
    /// and nothing has changed. With `Mapping::strict(false)` only shape mismatches are errors.
    ///
    /// # Example
    /// ```no_run
    /// use teeny_nn::{Store, state::{Archive, Mapping}};
    /// # fn demo(store: &Store) -> teeny_core::Result<()> {
    /// let file = Archive::open("gpt2.safetensors")?;
    /// let report = store.load_from(&file, &Mapping::gpt2().strict(false))?;
    /// println!("not in the file: {:?}", report.missing_keys);
    /// # Ok(()) }
    /// ```
    pub fn load_from(&self, source: &dyn TensorSource, mapping: &Mapping) -> Result<LoadReport> {
        self.load_mapped(source, mapping).map_err(|e| e.named(source.label()))
    }

    fn load_mapped(&self, source: &dyn TensorSource, mapping: &Mapping) -> Result<LoadReport> {
        let mut report = LoadReport::default();
        let mut sources: Vec<(String, Vec<usize>)> = Vec::new();
        // the index in `sources` of each of the model's names
        let mut found: BTreeMap<String, usize> = BTreeMap::new();
        for (theirs, mut shape) in source.shapes() {
            let Some(ours) = (mapping.rename)(&theirs) else {
                report.skipped.push(theirs);
                continue;
            };
            if (mapping.transpose)(&theirs) {
                if shape.len() != 2 {
                    return Err(Error::shape(format!(
                        "cannot transpose {theirs:?}: {shape:?} is not a matrix"
                    )));
                }
                shape.reverse();
            }
            if let Some(other) = found.insert(ours.clone(), sources.len()) {
                return Err(Error::value(format!(
                    "{:?} and {theirs:?} are both renamed to {ours:?}",
                    sources[other].0
                )));
            }
            sources.push((theirs, shape));
        }
        let mut mismatch = KeyMismatch::default();
        let mut unreadable = BTreeMap::new();
        for (theirs, error) in source.unreadable() {
            match (mapping.rename)(&theirs) {
                None => report.skipped.push(theirs),
                Some(ours) => drop(unreadable.insert(ours, (theirs, error))),
            }
        }
        let mut matching = Vec::new();
        for param in self.all() {
            let expected = *param.value().shape();
            match found.remove(param.name()).map(|place| &sources[place]) {
                None => {
                    if let Some((_, error)) = unreadable.remove(param.name()) {
                        return Err(error);
                    }
                    report.missing_keys.push(param.name().to_string());
                    if mapping.strict {
                        mismatch.missing(param.name(), &expected);
                    }
                }
                Some((_, shape)) if shape[..] != expected[..] => {
                    mismatch.shape(param.name(), shape, &expected)
                }
                Some((theirs, _)) => matching.push((param, theirs)),
            }
        }
        if let Some(place) = mapping.copy.and_then(|copy| found.remove(copy)) {
            report.skipped.push(sources[place].0.clone());
        }
        let others = found.into_values().map(|place| sources[place].0.clone());
        for name in others.chain(unreadable.into_values().map(|(name, _)| name)) {
            if mapping.strict {
                mismatch.unexpected(&name);
            }
            report.unexpected_keys.push(name);
        }
        mismatch.check("the model")?;
        let device = self.device();
        let read = |theirs: &str| {
            let tensor = source.read(theirs, device)?;
            if (mapping.transpose)(theirs) { tensor.t()?.contiguous() } else { Ok(tensor) }
        };
        let tensors =
            matching.iter().map(|(_, theirs)| read(theirs)).collect::<Result<Vec<_>>>()?;
        set_all(matching.iter().map(|(param, _)| param).zip(&tensors))?;
        report.loaded.extend(matching.iter().map(|(param, _)| param.name().to_string()));
        Ok(report)
    }
}
