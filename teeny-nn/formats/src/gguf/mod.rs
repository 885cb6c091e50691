//! GGUF files, the format of llama.cpp and related programs: named tensors, often quantised, and
//! metadata such as the sizes of the model and its vocabulary.
//!
//! ```text
//! "GGUF", version, counts | metadata: key, type, value | tensors: name, sizes, type, offset | data
//! ```
//!
//! [`Gguf::open`] reads the header, [`Gguf::tensor`] one tensor: f32, f16 and bf16 as they are,
//! quantised ones as f32; [`Gguf::quantized`] keeps their blocks. A model that is divided into
//! `NAME-00001-of-00003.gguf` and so on is one [`Gguf`]. The header is checked against the length
//! of the file before any of it is used. [`Writer`] writes such files, [`save`] writes a model.
//!
//! Source: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

mod blocks;
mod header;
mod save;
mod write;

use super::TensorSource;
pub use super::element_type::ElementType;
use super::file_kind::{self, Source};
use super::source::refused;
use crate::names::{listed, loading, of_file};
use blocks::TypeKind;
pub use header::{Entry, Value};
pub use save::{WriteOptions, Written, save};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Seek};
use std::path::{Path, PathBuf};
use teeny_core::context::enter;
use teeny_core::file::reason;
use teeny_core::{DeviceRef, Error, QuantTensor, Result, Tensor, ToDevice, memory};
pub use write::Writer;

/// An open GGUF file, or its bytes.
#[derive(Debug)]
pub struct Gguf {
    label: String,
    sources: Vec<Source>,
    metadata: BTreeMap<String, Value>,
    entries: BTreeMap<String, Entry>,
    unreadable: BTreeMap<String, Error>,
}

impl Gguf {
    /// Opens the file at `path`, of a divided model its first part, and checks its header against
    /// its length.
    ///
    /// # Errors
    /// If it cannot be read or is not a valid GGUF file, or a part of the model is missing.
    ///
    /// # Example
    /// ```no_run
    /// # fn main() -> teeny_core::Result<()> {
    /// # let device = teeny_nn::device::device("cpu")?;
    /// let file = teeny_formats::Gguf::open("smollm2.gguf")?;
    /// let layers = file.metadata()["llama.block_count"].as_u64();
    /// let embedding = file.tensor("token_embd.weight", &device)?; // (vocabulary, features)
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn open(path: impl AsRef<Path>) -> Result<Gguf> {
        let _op = enter("Gguf::open");
        let path = path.as_ref();
        let label = loading(path);
        let mut model = Gguf::open_part(path).map_err(|e| of_file(e, &label))?;
        model.label = label;
        for (part, path) in other_parts(path, &model.metadata).into_iter().enumerate() {
            let name = loading(&path);
            model.add(part + 1, Gguf::open_part(&path).map_err(|e| of_file(e, &name))?)?;
        }
        Ok(model)
    }

    fn open_part(path: &Path) -> Result<Gguf> {
        file_kind::require_file(path, &[".gguf"])?;
        let mut file = File::open(path).map_err(|e| {
            Error::io(format!("cannot read the file: {}", reason(path, &e))).with_source(e)
        })?;
        let length = file.metadata().map_err(Error::from)?.len();
        let header = header::read(&mut BufReader::new(&file), length).map_err(|error| {
            let first = file.rewind().ok();
            first.and_then(|()| file_kind::other_kind_of_file(&file, WANTED)).unwrap_or(error)
        })?;
        Ok(Gguf::of(header, Source::File(file)))
    }

    /// The model whose file has these bytes, for programs without files.
    ///
    /// # Errors
    /// As [`Gguf::open`].
    #[track_caller]
    pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> Result<Gguf> {
        let _op = enter("Gguf::from_bytes");
        let bytes = bytes.into();
        let header = header::read(&mut bytes.as_slice(), bytes.len() as u64).map_err(|error| {
            of_file(file_kind::other_kind(&bytes, WANTED).unwrap_or(error), "load bytes")
        })?;
        Ok(Gguf::of(header, Source::Bytes(bytes)))
    }

    fn of(header: header::Header, source: Source) -> Gguf {
        let header::Header { metadata, entries, unreadable } = header;
        let (label, sources) = ("load bytes".to_string(), vec![source]);
        Gguf { label, sources, metadata, entries, unreadable }
    }

    /// Adds the tensors of part `part`.
    fn add(&mut self, part: usize, mut other: Gguf) -> Result<()> {
        for (name, mut entry) in std::mem::take(&mut other.entries) {
            entry.part = part;
            if self.entries.insert(name.clone(), entry).is_some() {
                let text = format!("tensor {name:?} is in two parts of the model");
                return Err(of_file(Error::format(text), &self.label));
            }
        }
        self.unreadable.append(&mut other.unreadable);
        self.sources.append(&mut other.sources);
        Ok(())
    }

    /// The metadata, such as `general.architecture` and `tokenizer.ggml.tokens`.
    pub fn metadata(&self) -> &BTreeMap<String, Value> {
        &self.metadata
    }

    /// The tensors that can be read, by name.
    pub fn entries(&self) -> &BTreeMap<String, Entry> {
        &self.entries
    }

    /// The tensors of unsupported types, each with its error.
    pub fn unreadable(&self) -> &BTreeMap<String, Error> {
        &self.unreadable
    }

    /// Reads tensor `name` onto `device`: a plain one in its dtype, a quantised one as f32.
    ///
    /// # Errors
    /// If the tensor does not exist (the error lists the names), its type is not supported, or the
    /// file cannot be read.
    #[track_caller]
    pub fn tensor(&self, name: &str, device: impl ToDevice) -> Result<Tensor> {
        let _op = enter("gguf.tensor");
        self.read_tensor(name, &device.to_device()).map_err(|e| of_file(e, &self.label))
    }

    /// Reads the bytes of a tensor from byte `from` on.
    fn fill(&self, name: &str, entry: &Entry, from: usize, to: &mut [u8]) -> Result<()> {
        self.sources[entry.part].fill(name, entry.at + from as u64, to)
    }

    fn read_tensor(&self, name: &str, device: &DeviceRef) -> Result<Tensor> {
        let Some(entry) = self.entries.get(name) else {
            let names: Vec<&str> = self.entries.keys().map(String::as_str).collect();
            let missing =
                || Error::value(format!("no tensor {name:?}; the file has {}", listed(&names)));
            return Err(self.unreadable.get(name).cloned().unwrap_or_else(missing));
        };
        let fill = |from: usize, to: &mut [u8]| self.fill(name, entry, from, to);
        let shape = entry.shape.as_slice();
        let elements = entry.bytes as usize / entry.of.bytes * entry.of.elements;
        let decoded = |decode: &dyn Fn(&[u8], &mut [f32])| {
            let mut bytes = memory::filled(0, entry.bytes as usize)?;
            fill(0, &mut bytes)?;
            let mut values = memory::filled(0f32, elements)?;
            decode(&bytes, &mut values);
            Tensor::from_vec(values, shape, device)
        };
        match entry.of.kind {
            TypeKind::Plain(dtype) => Tensor::from_bytes_with(shape, dtype, device, fill),
            TypeKind::Quantized(kind) => decoded(&|blocks, to| kind.decode(blocks, to)),
            TypeKind::Blocks(decode) => decoded(&|blocks, to| {
                let blocks = blocks.chunks_exact(entry.of.bytes);
                let to = to.chunks_exact_mut(entry.of.elements);
                to.zip(blocks).for_each(|(to, block)| decode(block, to));
            }),
        }
    }

    /// Reads tensor `name` onto `device` as the quantised matrix that it is; none if it has another
    /// type, which [`Gguf::tensor`] reads.
    ///
    /// # Errors
    /// As [`Gguf::tensor`]; if a scale is not finite.
    #[track_caller]
    pub fn quantized(&self, name: &str, device: impl ToDevice) -> Result<Option<QuantTensor>> {
        let _op = enter("gguf.quantized");
        let named = |e: Error| of_file(e.note(format!("tensor {name:?}")), &self.label);
        let Some(entry) = self.entries.get(name) else {
            return self.tensor(name, device).map(|_| None);
        };
        match (entry.of.kind, &entry.shape[..]) {
            (TypeKind::Quantized(kind), &[rows, columns]) => {
                let fill = |from: usize, to: &mut [u8]| self.fill(name, entry, from, to);
                let matrix = QuantTensor::from_blocks_with(kind, [rows, columns], device, fill);
                matrix.map(Some).map_err(named)
            }
            _ => Ok(None),
        }
    }
}

/// The kind of file that [`Gguf`] reads, in errors.
const WANTED: &str = "a GGUF file";

/// The paths of the parts after the first of a divided model, whose first part is at `path`.
fn other_parts(path: &Path, metadata: &BTreeMap<String, Value>) -> Vec<PathBuf> {
    let number = |key: &str| metadata.get(key).and_then(Value::as_u64);
    let (count, name) = (number("split.count").unwrap_or(1), path.to_string_lossy());
    let end = format!("-00001-of-{count:05}.gguf");
    match name.strip_suffix(&end) {
        Some(begin) if number("split.no").unwrap_or(0) == 0 && count <= 99_999 => {
            (2..=count).map(|k| format!("{begin}-{k:05}-of-{count:05}.gguf").into()).collect()
        }
        _ => Vec::new(),
    }
}

impl TensorSource for Gguf {
    fn label(&self) -> String {
        self.label.clone()
    }

    fn shapes(&self) -> Vec<(String, Vec<usize>)> {
        self.entries.iter().map(|(name, entry)| (name.clone(), entry.shape.clone())).collect()
    }

    fn read(&self, name: &str, device: &DeviceRef) -> Result<Tensor> {
        self.tensor(name, device)
    }

    fn read_quantized(&self, name: &str, device: &DeviceRef) -> Result<Option<QuantTensor>> {
        self.quantized(name, device)
    }

    fn element_type(&self, name: &str) -> Option<ElementType> {
        self.entries.get(name)?.element_type()
    }

    fn unreadable(&self) -> Vec<(String, Error)> {
        refused(&self.unreadable)
    }
}
