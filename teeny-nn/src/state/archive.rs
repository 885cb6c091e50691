//! Safetensors files: named tensors, readable by every common library.
//!
//! ```text
//! length of the header (u64) | header, JSON, padded with spaces to 8 bytes          | data
//!                            | {"fc1.weight": {"dtype": "F32", "shape": [128, 784], |
//!                            |   "data_offsets": [0, 401408]}, "__metadata__": {..}} |
//! ```
//!
//! [`Archive::open`] reads the header, [`Archive::tensor`] the bytes of one tensor. The header must
//! describe all of the data, each byte once, before any of it is used.
//!
//! Source: <https://github.com/huggingface/safetensors>, with the same limit of the header (100
//! MB). The crate `safetensors` and its dependencies would add a third to the crates of a build;
//! reading and writing take a page.

use super::file_kind;
use crate::names::listed;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use teeny_core::{DType, Error, Result, Tensor, ToDevice};

/// The limit of the reference implementation: a file with a longer header is damaged.
const MOST_HEADER_BYTES: u64 = 100_000_000;

/// Dtype, shape and position of one tensor of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The element type.
    pub dtype: DType,
    /// The sizes of the axes.
    pub shape: Vec<usize>,
    begin: u64,
    end: u64,
}

/// An open safetensors file.
#[derive(Debug)]
pub struct Archive {
    path: PathBuf,
    file: File,
    entries: BTreeMap<String, Entry>,
    metadata: BTreeMap<String, String>,
    data_start: u64,
}

impl Archive {
    /// Opens the file at `path` and checks its header against its length.
    ///
    /// # Errors
    /// If it cannot be read or is not a valid safetensors file: truncated, with trailing bytes, or
    /// with a header whose shapes, types and offsets do not describe the data exactly.
    pub fn open(path: impl AsRef<Path>) -> Result<Archive> {
        let path = path.as_ref().to_path_buf();
        let name = label(&path);
        let io = |e: std::io::Error| Error::io(e.to_string()).named(&name);
        file_kind::require_file(&path).map_err(|e| e.named(&name))?;
        let file = File::open(&path).map_err(io)?;
        let length = file.metadata().map_err(io)?.len();
        // for a file of another kind, whose first bytes are no length
        let other = |error: Error| match (&file)
            .rewind()
            .ok()
            .and_then(|()| file_kind::other_kind_of_file(&file, "a safetensors file"))
        {
            Some(recognised) => recognised.named(&name),
            None => error.named(&name),
        };
        if length < 8 {
            return Err(other(
                Error::format(format!("{length} bytes are too few for a safetensors file"))
                    .help("the file is truncated; save or download it again"),
            ));
        }
        let mut size = [0; 8];
        (&file).read_exact(&mut size).map_err(io)?;
        let size = u64::from_le_bytes(size);
        if size > MOST_HEADER_BYTES.min(length - 8) {
            let text = format!(
                "its first 8 bytes announce a header of {size} bytes, but {} follow",
                length - 8
            );
            return Err(other(
                Error::format(text).help("the file is truncated, or not in the safetensors format"),
            ));
        }
        let mut header = vec![0; size as usize];
        (&file).read_exact(&mut header).map_err(io)?;
        let data_start = 8 + size;
        let (entries, metadata) = parse(&header)
            .and_then(|(entries, metadata)| {
                covers(&entries, length - data_start).map(|()| (entries, metadata))
            })
            .map_err(|e| e.named(&name))?;
        Ok(Archive { path, file, entries, metadata, data_start })
    }

    /// The tensors of the file, by name.
    pub fn entries(&self) -> &BTreeMap<String, Entry> {
        &self.entries
    }

    /// The strings stored beside the tensors.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// Reads tensor `name` onto `device`.
    ///
    /// # Errors
    /// If there is no such tensor (the error lists the names), or the file cannot be read.
    ///
    /// # Example
    /// ```no_run
    /// # fn main() -> teeny_core::Result<()> {
    /// # let device = teeny_nn::device::device("cpu")?;
    /// let file = teeny_nn::state::Archive::open("mlp.safetensors")?;
    /// let weight = file.tensor("fc1.weight", &device)?; // (128, 784)
    /// # Ok(()) }
    /// ```
    pub fn tensor(&self, name: &str, device: impl ToDevice) -> Result<Tensor> {
        let entry = self.entry(name)?;
        let mut bytes = vec![0; (entry.end - entry.begin) as usize];
        let mut file = &self.file;
        file.seek(SeekFrom::Start(self.data_start + entry.begin))
            .and_then(|_| file.read_exact(&mut bytes))
            .map_err(|e| Error::io(format!("tensor {name:?}: {e}")).named(self.label()))?;
        Tensor::from_bytes(&bytes, entry.shape.as_slice(), entry.dtype, &device.to_device())
            .map_err(|e| e.named(self.label()))
    }

    /// The entry called `name`.
    ///
    /// # Errors
    /// If there is none.
    pub fn entry(&self, name: &str) -> Result<&Entry> {
        self.entries.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.entries.keys().map(String::as_str).collect();
            Error::value(format!("no tensor {name:?}; the file has {}", listed(&names)))
                .named(self.label())
        })
    }

    /// The name of this file in errors: `load "mlp.safetensors"`.
    pub fn label(&self) -> String {
        label(&self.path)
    }
}

fn label(path: &Path) -> String {
    format!("load {:?}", path.display().to_string())
}

/// Writes named tensors and metadata in the safetensors format.
///
/// # Errors
/// If a name is taken twice, a tensor cannot be downloaded, or `writer` fails.
pub fn write(
    writer: &mut dyn Write,
    tensors: &[(String, Tensor)],
    metadata: &BTreeMap<String, String>,
) -> Result<()> {
    // the largest dtypes first, as in the reference implementation, so that every tensor begins at
    // a multiple of its element size
    let of_size = |size| tensors.iter().filter(move |(_, tensor)| tensor.dtype().size() == size);
    let order: Vec<&(String, Tensor)> = [8, 4, 2, 1].into_iter().flat_map(of_size).collect();
    let mut header = Map::new();
    if !metadata.is_empty() {
        header.insert("__metadata__".into(), json!(metadata));
    }
    let mut offset = 0;
    for (name, tensor) in &order {
        let end = offset + tensor.numel() * tensor.dtype().size();
        let entry = json!({
            "dtype": tensor.dtype().name().to_uppercase(),
            "shape": &tensor.shape()[..],
            "data_offsets": [offset, end],
        });
        if name == "__metadata__" || header.insert(name.clone(), entry).is_some() {
            return Err(Error::value(format!("two tensors cannot both be called {name:?}")));
        }
        offset = end;
    }
    let mut header = Value::Object(header).to_string();
    while !header.len().is_multiple_of(8) {
        header.push(' ');
    }
    let io = |e: std::io::Error| Error::io(format!("cannot write: {e}"));
    writer
        .write_all(&(header.len() as u64).to_le_bytes())
        .and_then(|()| writer.write_all(header.as_bytes()))
        .map_err(io)?;
    for (_, tensor) in order {
        writer.write_all(&tensor.to_bytes()?).map_err(io)?;
    }
    writer.flush().map_err(io)
}

type Header = (BTreeMap<String, Entry>, BTreeMap<String, String>);

fn parse(header: &[u8]) -> Result<Header> {
    let Ok(Value::Object(fields)) = serde_json::from_slice(header) else {
        return Err(Error::format("the header is not a JSON object"));
    };
    let mut entries = BTreeMap::new();
    let mut metadata = BTreeMap::new();
    for (name, value) in fields {
        if name == "__metadata__" {
            let strings = value.as_object().into_iter().flatten();
            metadata
                .extend(strings.filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_string()))));
            continue;
        }
        let entry = entry(&value).ok_or_else(|| {
            Error::format(format!("the header entry of tensor {name:?} is not valid: {value}"))
        })?;
        let bytes = entry.shape.iter().try_fold(entry.dtype.size(), |n, &size| n.checked_mul(size));
        if bytes.map(|b| b as u64) != entry.end.checked_sub(entry.begin) {
            return Err(Error::format(format!(
                "tensor {name:?} is {:?} of {}, which is not the size of bytes {}..{}",
                entry.shape, entry.dtype, entry.begin, entry.end
            )));
        }
        entries.insert(name, entry);
    }
    Ok((entries, metadata))
}

fn entry(value: &Value) -> Option<Entry> {
    let dtype = value.get("dtype")?.as_str()?;
    let dtype = DType::ALL.into_iter().find(|d| d.name().eq_ignore_ascii_case(dtype))?;
    let shape = value
        .get("shape")?
        .as_array()?
        .iter()
        .map(|v| usize::try_from(v.as_u64()?).ok())
        .collect::<Option<_>>()?;
    let [begin, end] = value.get("data_offsets")?.as_array()?.as_slice() else { return None };
    Some(Entry { dtype, shape, begin: begin.as_u64()?, end: end.as_u64()? })
}

/// An error unless the entries cover `length` bytes, each once.
fn covers(entries: &BTreeMap<String, Entry>, length: u64) -> Result<()> {
    let mut ranges: Vec<(u64, u64)> = entries.values().map(|e| (e.begin, e.end)).collect();
    ranges.sort_unstable();
    let mut reached = 0;
    for (begin, end) in ranges {
        if begin != reached {
            return Err(Error::format(format!(
                "tensors overlap or leave a gap at byte {reached} of the data"
            )));
        }
        reached = end;
    }
    if reached == length {
        return Ok(());
    }
    Err(Error::format(format!(
        "the header describes {reached} bytes of data, the file has {length}"
    ))
    .help("the file is truncated, or was appended to"))
}
