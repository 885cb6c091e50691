//! Loading tensors whose names and layout are another library's.

use super::{Archive, Misfits, State};
use crate::store::{Store, set_all};
use std::collections::BTreeMap;
use teeny_core::{DeviceRef, Error, Result, Tensor};

/// Where tensors come from: a safetensors file, or a [`State`] read from another format.
pub trait TensorSource {
    /// How errors call it.
    fn label(&self) -> String;

    /// The names and shapes of the tensors, each name once.
    fn shapes(&self) -> Vec<(String, Vec<usize>)>;

    /// Tensor `name` on `device`.
    ///
    /// # Errors
    /// If there is none, or it cannot be read.
    fn read(&self, name: &str, device: &DeviceRef) -> Result<Tensor>;
}

impl TensorSource for Archive {
    fn label(&self) -> String {
        Archive::label(self)
    }

    fn shapes(&self) -> Vec<(String, Vec<usize>)> {
        self.entries().iter().map(|(name, entry)| (name.clone(), entry.shape.clone())).collect()
    }

    fn read(&self, name: &str, device: &DeviceRef) -> Result<Tensor> {
        self.tensor(name, device)
    }
}

impl TensorSource for State {
    fn label(&self) -> String {
        "load".to_string()
    }

    fn shapes(&self) -> Vec<(String, Vec<usize>)> {
        self.tensors.iter().map(|(name, tensor)| (name.clone(), tensor.shape().to_vec())).collect()
    }

    fn read(&self, name: &str, device: &DeviceRef) -> Result<Tensor> {
        self.tensors
            .get(name)
            .ok_or_else(|| Error::value(format!("no tensor {name:?}")))?
            .to(device)
    }
}

type Rename = Box<dyn Fn(&str) -> Option<String>>;

/// How a file's names and matrices become the model's.
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
    partial: bool,
}

impl Default for Mapping {
    fn default() -> Mapping {
        Mapping::new()
    }
}

impl Mapping {
    /// Every name as it is, and all of them.
    pub fn new() -> Mapping {
        Mapping {
            rename: Box::new(|name| Some(name.to_string())),
            transpose: Box::new(|_| false),
            partial: false,
        }
    }

    /// Calls the file's tensor `name` by what `rename` says; `None` leaves it out on purpose.
    pub fn rename(mut self, rename: impl Fn(&str) -> Option<String> + 'static) -> Mapping {
        self.rename = Box::new(rename);
        self
    }

    /// Transposes the matrices whose names in the file `transpose` picks.
    pub fn transpose(mut self, transpose: impl Fn(&str) -> bool + 'static) -> Mapping {
        self.transpose = Box::new(transpose);
        self
    }

    /// Whether missing and unknown names are reported instead of refused, as PyTorch's
    /// `strict=False`. Wrong shapes stay errors.
    pub fn partial(mut self, partial: bool) -> Mapping {
        self.partial = partial;
        self
    }

    /// The GPT-2 files of Hugging Face: no leading `transformer.`, no stored masks, no second copy
    /// of the embedding as the head, and the weights of `Conv1D` (in, out) become those of linear
    /// layers (out, in).
    pub fn gpt2() -> Mapping {
        let left_out = [".attn.bias", ".attn.masked_bias", "lm_head.weight"];
        let conv1d = [
            ".attn.c_attn.weight",
            ".attn.c_proj.weight",
            ".mlp.c_fc.weight",
            ".mlp.c_proj.weight",
        ];
        Mapping::new()
            .rename(move |name| {
                let kept = !left_out.iter().any(|end| name.ends_with(end));
                kept.then(|| name.strip_prefix("transformer.").unwrap_or(name).to_string())
            })
            .transpose(move |name| conv1d.iter().any(|end| name.ends_with(end)))
    }
}

/// What a load did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Parameters and buffers that have new values.
    pub loaded: Vec<String>,
    /// Parameters and buffers the file has nothing for.
    pub missing: Vec<String>,
    /// Names in the file that the model does not have.
    pub unknown: Vec<String>,
    /// Names in the file that the mapping leaves out.
    pub left_out: Vec<String>,
}

impl Store {
    /// Replaces parameters and buffers by the tensors that `mapping` gives their names.
    ///
    /// # Errors
    /// If names or shapes do not fit: all are listed, and nothing has changed. With
    /// [`Mapping::partial`], only shapes must.
    ///
    /// # Example
    /// ```no_run
    /// use teeny_nn::{Store, state::{Archive, Mapping}};
    /// # fn demo(store: &Store) -> teeny_core::Result<()> {
    /// let report = store.load_from(&Archive::open("gpt2.safetensors")?, &Mapping::gpt2().partial(true))?;
    /// println!("not in the file: {:?}", report.missing);
    /// # Ok(()) }
    /// ```
    pub fn load_from(&self, source: &dyn TensorSource, mapping: &Mapping) -> Result<Loaded> {
        self.load_mapped(source, mapping).map_err(|e| e.named(source.label()))
    }

    fn load_mapped(&self, source: &dyn TensorSource, mapping: &Mapping) -> Result<Loaded> {
        let mut report = Loaded::default();
        let mut sources: Vec<(String, Vec<usize>)> = Vec::new();
        // which of them has which name here
        let mut found: BTreeMap<String, usize> = BTreeMap::new();
        for (theirs, mut shape) in source.shapes() {
            let Some(ours) = (mapping.rename)(&theirs) else {
                report.left_out.push(theirs);
                continue;
            };
            if (mapping.transpose)(&theirs) {
                if shape.len() != 2 {
                    return Err(Error::shape(format!(
                        "{theirs:?} should be transposed, but is no matrix: {shape:?}"
                    )));
                }
                shape.reverse();
            }
            if let Some(other) = found.insert(ours.clone(), sources.len()) {
                return Err(Error::value(format!(
                    "{:?} and {theirs:?} would both be {ours:?}",
                    sources[other].0
                )));
            }
            sources.push((theirs, shape));
        }
        let mut misfits = Misfits::default();
        let mut fitting = Vec::new();
        for param in self.all() {
            let wanted = *param.value().shape();
            match found.remove(param.name()).map(|place| &sources[place]) {
                None => {
                    report.missing.push(param.name().to_string());
                    if !mapping.partial {
                        misfits.missing(param.name(), &wanted);
                    }
                }
                Some((_, shape)) if shape[..] != wanted[..] => {
                    misfits.misshapen(param.name(), shape, &wanted)
                }
                Some((theirs, _)) => fitting.push((param, theirs)),
            }
        }
        for place in found.into_values() {
            let name = &sources[place].0;
            if !mapping.partial {
                misfits.unknown(name);
            }
            report.unknown.push(name.clone());
        }
        misfits.check("the model")?;
        let device = self.device();
        let read = |theirs: &str| {
            let tensor = source.read(theirs, device)?;
            if (mapping.transpose)(theirs) { tensor.t()?.contiguous() } else { Ok(tensor) }
        };
        let tensors = fitting.iter().map(|(_, theirs)| read(theirs)).collect::<Result<Vec<_>>>()?;
        set_all(fitting.iter().map(|(param, _)| param).zip(&tensors))?;
        report.loaded.extend(fitting.iter().map(|(param, _)| param.name().to_string()));
        Ok(report)
    }
}
