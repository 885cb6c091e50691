//! Safetensors files: named tensors, readable by every common library.
//!
//! ```text
//! length of the header (u64) | header, JSON, padded with spaces to 8 bytes          | data
//!                            | {"fc1.weight": {"dtype": "F32", "shape": [128, 784], |
//!                            |   "data_offsets": [0, 401408]}, "__metadata__": {..}} |
//! ```
//!
//! [`SafeTensors::open`] reads the header, [`SafeTensors::tensor`] the bytes of one tensor. The
//! header must describe all of the data, each byte once, before any of it is used.
//! [`SafeTensors::from_bytes`] and [`write_async`] are the forms for programs without files.
//!
//! Source: <https://github.com/huggingface/safetensors>, with the same limit of the header (100
//! MB). The crate `safetensors` would add a third to the number of crates of a build; reading and
//! writing take a page.

use super::file_kind::{self, Source};
use crate::json::Json;
use crate::names::{listed, loading, of_file};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::Path;
use teeny_core::context::enter;
use teeny_core::file::{Budget, quoted, reason, write_error};
use teeny_core::{DType, DeviceRef, Error, ErrorKind, Reference, Result, Tensor, ToDevice, memory};

/// The limit of the reference implementation: a file with a longer header is damaged.
const MAX_HEADER_BYTES: u64 = 100_000_000;

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

/// An open safetensors file, or its bytes.
#[derive(Debug)]
pub struct SafeTensors {
    label: String,
    source: Source,
    header: Header,
    data_start: u64,
}

impl SafeTensors {
    /// Opens the file at `path` and checks its header against its length.
    ///
    /// # Errors
    /// If it cannot be read or is not a valid safetensors file: truncated, with trailing bytes, or
    /// with a header whose shapes, types and offsets do not describe the data exactly.
    #[track_caller]
    pub fn open(path: impl AsRef<Path>) -> Result<SafeTensors> {
        let _op = enter("SafeTensors::open");
        let path = path.as_ref().to_path_buf();
        let name = loading(&path);
        let io = |e: std::io::Error| Error::from(e).named(&name);
        file_kind::require_file(&path, &[".safetensors"]).map_err(|e| of_file(e, &name))?;
        let file = File::open(&path).map_err(|e| {
            Error::io(format!("cannot read the file: {}", reason(&path, &e)))
                .with_source(e)
                .named(&name)
        })?;
        let length = file.metadata().map_err(io)?.len();
        let mut size = [0; 8];
        if length >= 8 {
            (&file).read_exact(&mut size).map_err(io)?;
        }
        let header = header_size(size, length).and_then(|size| {
            let mut header = memory::filled(0, size as usize)?;
            (&file).read_exact(&mut header).map_err(Error::from)?;
            Ok((parse(&header, length - 8 - size)?, 8 + size))
        });
        let (header, data_start) = header.map_err(|error| {
            // for a file of another kind, whose first bytes are not a length
            let first = (&file).rewind().ok().filter(|()| error.kind() == ErrorKind::Format);
            let other =
                first.and_then(|()| file_kind::other_kind_of_file(&file, "a safetensors file"));
            of_file(other.unwrap_or(error), &name)
        })?;
        Ok(SafeTensors { label: name, source: Source::File(file), header, data_start })
    }

    /// Reads a file that is in memory, for programs without files, such as those in a browser.
    ///
    /// # Errors
    /// As [`SafeTensors::open`].
    ///
    /// # Example
    /// ```
    /// use teeny_core::{Reference, Tensor};
    /// use teeny_formats::{SafeTensors, write};
    /// # fn main() -> teeny_core::Result<()> {
    /// let device = Reference::new();
    /// let tensors = [("x".to_string(), Tensor::new([1.0f32, 2.0], &device)?)];
    /// let mut bytes = Vec::new();
    /// write(&mut bytes, &tensors, &Default::default())?;
    /// let x = SafeTensors::from_bytes(bytes)?.tensor("x", &device)?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> Result<SafeTensors> {
        let _op = enter("SafeTensors::from_bytes");
        let (bytes, label) = (bytes.into(), "load bytes".to_string());
        let length = bytes.len() as u64;
        let size = bytes.first_chunk().copied().unwrap_or_default();
        let header = header_size(size, length).and_then(|size| {
            Ok((parse(&bytes[8..8 + size as usize], length - 8 - size)?, 8 + size))
        });
        let (header, data_start) = header.map_err(|error| {
            let other = file_kind::other_kind(&bytes, "a safetensors file");
            of_file(other.unwrap_or(error), &label)
        })?;
        Ok(SafeTensors { label, source: Source::Bytes(bytes), header, data_start })
    }

    /// The tensors of the file that can be read, by name.
    pub fn entries(&self) -> &BTreeMap<String, Entry> {
        &self.header.entries
    }

    /// The tensors of dtypes that teeny does not have, such as `F8_E4M3`, each with its error.
    pub fn unreadable(&self) -> &BTreeMap<String, Error> {
        &self.header.unreadable
    }

    /// The strings stored beside the tensors.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.header.metadata
    }

    /// Reads tensor `name` onto `device`.
    ///
    /// # Errors
    /// If the tensor does not exist (the error lists the names), teeny does not have its dtype, or
    /// the file cannot be read.
    ///
    /// # Example
    /// ```no_run
    /// # fn main() -> teeny_core::Result<()> {
    /// # let device = teeny_nn::device::device("cpu")?;
    /// let file = teeny_formats::SafeTensors::open("mlp.safetensors")?;
    /// let weight = file.tensor("fc1.weight", &device)?; // (128, 784)
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn tensor(&self, name: &str, device: impl ToDevice) -> Result<Tensor> {
        let _op = enter("SafeTensors::tensor");
        let entry = self.entry(name)?;
        let fill = |from: usize, to: &mut [u8]| {
            self.source.fill(name, self.data_start + entry.begin + from as u64, to)
        };
        let shape = entry.shape.as_slice();
        Tensor::from_bytes_with(shape, entry.dtype, device.to_device(), fill)
            .map_err(|e| of_file(e, self.label()))
    }

    /// [`SafeTensors::tensor`], a counter of 64 bits as one of 32.
    pub(crate) fn tensor_on_device(&self, name: &str, device: &DeviceRef) -> Result<Tensor> {
        if self.entry(name)?.dtype != DType::I64 || !is_counter(name) {
            return self.tensor(name, device);
        }
        // on the host: the device may lack integers of 64 bits
        self.tensor(name, Reference::new())?.cast(DType::I32)?.to(device)
    }

    /// The entry called `name`.
    ///
    /// # Errors
    /// If the tensor does not exist, or teeny does not have its dtype.
    #[track_caller]
    pub fn entry(&self, name: &str) -> Result<&Entry> {
        let _op = enter("SafeTensors::entry");
        self.header.entries.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.header.entries.keys().map(String::as_str).collect();
            let missing =
                || Error::value(format!("no tensor {name:?}; the file has {}", listed(&names)));
            self.header.unreadable.get(name).cloned().unwrap_or_else(missing).named(self.label())
        })
    }

    /// The name of this file in errors: `load "mlp.safetensors"`, or `load bytes`.
    pub fn label(&self) -> String {
        self.label.clone()
    }
}

/// The size of the header of a file of `length` bytes, which begins with `size`.
fn header_size(size: [u8; 8], length: u64) -> Result<u64> {
    if length < 8 {
        return Err(Error::format(format!("{length} bytes are too few for a safetensors file"))
            .help("the file is truncated; save or download it again"));
    }
    let size = u64::from_le_bytes(size);
    if size > MAX_HEADER_BYTES.min(length - 8) {
        let text = format!(
            "its first 8 bytes announce a header of {size} bytes, but {} follow",
            length - 8
        );
        return Err(
            Error::format(text).help("the file is truncated, or not in the safetensors format")
        );
    }
    Ok(size)
}

/// Writes named tensors and metadata in the safetensors format. A counter of batches is written
/// with 64 bits, as PyTorch has it.
///
/// # Errors
/// If a name is taken twice, a tensor cannot be downloaded, or `writer` fails.
#[track_caller]
pub fn write(
    writer: &mut dyn Write,
    tensors: &[(String, Tensor)],
    metadata: &Metadata,
) -> Result<()> {
    let _op = enter("write");
    let (header, order) = header(tensors, metadata)?;
    writer.write_all(&header).map_err(write_error)?;
    for (name, tensor) in order {
        writer.write_all(&stored(name, tensor, tensor.to_bytes()?)).map_err(write_error)?;
    }
    writer.flush().map_err(write_error)
}

/// The bytes that [`write()`] writes, as a future. The call submits the reads, so later writes do
/// not change the bytes.
///
/// # Errors
/// As [`write()`].
pub fn write_async(
    tensors: &[(String, Tensor)],
    metadata: &Metadata,
) -> impl Future<Output = Result<Vec<u8>>> + use<> {
    let begun = header(tensors, metadata).map(|(header, order)| {
        let reading = |(name, tensor): &&(String, Tensor)| {
            (name.clone(), tensor.clone(), tensor.to_bytes_async())
        };
        (header, order.iter().map(reading).collect::<Vec<_>>())
    });
    async {
        let (mut bytes, reads) = begun?;
        for (name, tensor, reading) in reads {
            bytes.extend(stored(&name, &tensor, reading.await?));
        }
        Ok(bytes)
    }
}

/// The name of the counter of a batch norm, 64 bits wide in files. On the device it has 32: GPUs,
/// and WebGPU always, may lack wider integers.
pub const COUNTER: &str = "num_batches_tracked";

/// True for the counter of a batch norm.
pub(super) fn is_counter(name: &str) -> bool {
    name.rsplit(['.', '/']).next() == Some(COUNTER)
}

/// The dtype of a tensor in a file.
fn stored_dtype(name: &str, tensor: &Tensor) -> DType {
    let is_narrow = tensor.dtype() == DType::I32 && is_counter(name);
    if is_narrow { DType::I64 } else { tensor.dtype() }
}

/// The bytes of a tensor in a file.
fn stored(name: &str, tensor: &Tensor, bytes: Vec<u8>) -> Vec<u8> {
    if stored_dtype(name, tensor) == tensor.dtype() {
        return bytes;
    }
    let (numbers, _) = bytes.as_chunks::<4>();
    numbers.iter().flat_map(|n| i64::from(i32::from_le_bytes(*n)).to_le_bytes()).collect()
}

/// The beginning of a file, and its tensors in the order of their data.
fn header<'t>(
    tensors: &'t [(String, Tensor)],
    metadata: &Metadata,
) -> Result<(Vec<u8>, Vec<&'t Named>)> {
    // the largest dtypes first, as in the reference implementation, so that every tensor begins at
    // a multiple of its element size
    let of_size = |size| {
        tensors.iter().filter(move |(name, tensor)| stored_dtype(name, tensor).size() == size)
    };
    let order: Vec<&(String, Tensor)> = [8, 4, 2, 1].into_iter().flat_map(of_size).collect();
    let mut header = Map::new();
    if !metadata.is_empty() {
        header.insert("__metadata__".into(), json!(metadata));
    }
    let mut offset = 0;
    for (name, tensor) in &order {
        let dtype = stored_dtype(name, tensor);
        let end = offset + tensor.numel() * dtype.size();
        let entry = json!({
            "dtype": dtype.name().to_uppercase(),
            "shape": &tensor.shape()[..],
            "data_offsets": [offset, end],
        });
        if name == "__metadata__" || header.insert(name.clone(), entry).is_some() {
            return Err(Error::value(format!("two tensors cannot both be called {name:?}"))
                .help("give each tensor a unique name"));
        }
        offset = end;
    }
    let mut header = Value::Object(header).to_string();
    while !header.len().is_multiple_of(8) {
        header.push(' ');
    }
    let size = (header.len() as u64).to_le_bytes();
    Ok(([size.as_slice(), header.as_bytes()].concat(), order))
}

type Named = (String, Tensor);
type Metadata = BTreeMap<String, String>;

/// Memory for an entry besides its name and shape: in maps, and in an error.
const ENTRY: usize = 512;

/// The content of a header.
#[derive(Debug, Default)]
struct Header {
    entries: BTreeMap<String, Entry>,
    /// Tensors of dtypes that teeny does not have.
    unreadable: BTreeMap<String, Error>,
    metadata: Metadata,
}

/// Reads the header of a file whose tensors have `length` bytes.
fn parse(header: &[u8], length: u64) -> Result<Header> {
    let mut budget = Budget::new(header.len());
    let (mut read, mut ranges) = (Header::default(), Vec::new());
    let mut field = |name: String, value: Json| {
        if name == "__metadata__" {
            return value
                .members(|key, text| {
                    let text = text.string().ok_or_else(|| {
                        Error::format(format!("{} of it is not text", quoted(&key)))
                    })?;
                    budget.charge(ENTRY + key.len() + text.len())?;
                    read.metadata.insert(key, text);
                    Ok(())
                })
                .map_err(|e| e.note("in the metadata of the header"));
        }
        budget.charge(ENTRY + 2 * name.len())?;
        let invalid = || {
            let [name, value] = [name.as_str(), value.text()].map(quoted);
            Error::format(format!("the header entry of tensor {name} is not valid: {value}"))
        };
        let (dtype, shape, [begin, end]) =
            entry(value).map_err(|e| invalid().note(e.message()))?.ok_or_else(invalid)?;
        budget.charge(24 * shape.len())?;
        ranges.push((begin, end));
        let known = DType::ALL.into_iter().find(|d| d.name().eq_ignore_ascii_case(&dtype));
        let Some(dtype) = known else {
            let text = format!(
                "tensor {} is {}, which is not among teeny's dtypes",
                quoted(&name),
                quoted(&dtype)
            );
            let error = Error::dtype(text).help("convert it to F32 in the program that wrote it");
            read.unreadable.insert(name, error);
            return Ok(());
        };
        let bytes = shape.iter().try_fold(dtype.size(), |n, &size| n.checked_mul(size));
        if bytes.map(|b| b as u64) != end.checked_sub(begin) {
            return Err(Error::format(format!(
                "tensor {} is {} of {dtype}, which is not the size of bytes {begin}..{end}",
                quoted(&name),
                shortened(&shape)
            )));
        }
        read.entries.insert(name, Entry { dtype, shape, begin, end });
        Ok(())
    };
    let json = Json::parse(header).map_err(|e| e.note("in the header"))?;
    json.members(&mut field)?;
    covers(ranges, length)?;
    Ok(read)
}

/// The first axes of a shape, for errors.
fn shortened(shape: &[usize]) -> String {
    match shape.get(..16) {
        Some(first) if shape.len() > 16 => format!("{first:?}.. ({} axes)", shape.len()),
        _ => format!("{shape:?}"),
    }
}

/// Dtype, shape and range of a tensor, as a header states them.
type Described = (String, Vec<usize>, [u64; 2]);

/// The description of a tensor; `None` if the value is not of the format.
fn entry(value: Json) -> Result<Option<Described>> {
    let fields = value.object()?;
    let find = || {
        let dtype = fields.get("dtype")?.string()?;
        let sizes = fields.get("shape")?.items()?;
        let shape =
            sizes.map(|size| usize::try_from(size.number()?).ok()).collect::<Option<_>>()?;
        let mut offsets = fields.get("data_offsets")?.items()?;
        let range = [offsets.next()?.number()?, offsets.next()?.number()?];
        offsets.next().is_none().then_some((dtype, shape, range))
    };
    Ok(find())
}

/// Returns an error unless the ranges cover `length` bytes, each once.
fn covers(mut ranges: Vec<(u64, u64)>, length: u64) -> Result<()> {
    ranges.sort_unstable();
    let mut reached = 0;
    for (begin, end) in ranges {
        if begin != reached || end < begin {
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
