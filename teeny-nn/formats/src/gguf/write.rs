//! [`Writer`]: writes a GGUF file.

use super::Value;
use super::blocks::{self, Type, TypeKind};
use crate::element_type::ElementType;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use teeny_core::context::enter;
use teeny_core::file::{quoted, replace, write_error};
use teeny_core::{DType, Error, Result};

/// The bytes to whose multiples tensors are aligned.
const ALIGNMENT: u64 = 32;

/// The most axes that readers of GGUF take.
const MAX_AXES: usize = 4;

/// The number in files of a type, and its sizes.
pub(super) fn described(of: ElementType) -> Result<(u32, Type)> {
    let plain = |dtype: DType| {
        let is_it = |of: Type| matches!(of.kind, TypeKind::Plain(own) if own == dtype);
        (0..64).find(|&id| blocks::by_id(id).is_some_and(is_it))
    };
    let id = match of {
        ElementType::Plain(dtype) => plain(dtype),
        ElementType::Quantized(kind) => Some(kind.gguf_id()),
    };
    let found = id.and_then(|id| Some((id, blocks::by_id(id)?)));
    found.ok_or_else(|| {
        Error::dtype(format!("GGUF has no type for {of:?}")).help("cast the tensor to f32")
    })
}

/// A GGUF file to be written: metadata and the table of tensors, whose bytes are asked for one
/// after another.
///
/// Values of the metadata take the type of llama.cpp's own files: integers 32 bits if they fit,
/// numbers f32 if they are such.
///
/// # Example
/// ```
/// use teeny_core::{DType, Reference};
/// use teeny_formats::Gguf;
/// use teeny_formats::gguf::{ElementType, Value, Writer};
/// # fn main() -> teeny_core::Result<()> {
/// let architecture = Value::Text("llama".to_string());
/// let mut writer = Writer::new([("general.architecture".to_string(), architecture)].into());
/// writer.add("output_norm.weight", &[2], ElementType::Plain(DType::F32))?;
/// let path = std::env::temp_dir().join(format!("example-{}.gguf", std::process::id()));
/// writer.write(&path, |_name| Ok([1.0f32, 2.0].map(f32::to_le_bytes).concat()))?;
/// let x = Gguf::open(&path)?.tensor("output_norm.weight", &Reference::new())?;
/// assert_eq!(x.to_vec::<f32>()?, [1.0, 2.0]);
/// # std::fs::remove_file(&path).ok();
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Writer {
    metadata: BTreeMap<String, Value>,
    tensors: Vec<Planned>,
    names: HashSet<String>,
}

/// A row of the table of tensors.
#[derive(Clone, Debug)]
struct Planned {
    name: String,
    shape: Vec<usize>,
    id: u32,
    bytes: u64,
    /// The first byte, counted from the beginning of the data.
    offset: u64,
}

impl Writer {
    /// A file without tensors. `general.alignment` and the keys `split.*` of a divided model are
    /// left out: the file is aligned to 32 bytes, and one.
    pub fn new(mut metadata: BTreeMap<String, Value>) -> Writer {
        metadata.retain(|key, _| key != "general.alignment" && !key.starts_with("split."));
        Writer { metadata, tensors: Vec::new(), names: HashSet::new() }
    }

    /// Adds a tensor: its name, its sizes, outermost first, and its type.
    ///
    /// # Errors
    /// If there is a tensor of this name, it has more than 4 axes, GGUF does not have the type, its
    /// rows are not whole blocks, or its size overflows.
    #[track_caller]
    pub fn add(&mut self, name: &str, shape: &[usize], of: ElementType) -> Result<()> {
        let _op = enter("gguf::Writer::add");
        let (id, of) = described(of)?;
        if shape.len() > MAX_AXES {
            let text = format!("tensor {name:?} has {} axes", shape.len());
            return Err(Error::shape(text).help("GGUF has at most 4; reshape the tensor"));
        }
        let columns = shape.last().copied().unwrap_or(1);
        if !columns.is_multiple_of(of.elements) {
            let text = format!(
                "tensor {name:?} has rows of {columns} elements, but {} has blocks of {}",
                of.name, of.elements
            );
            return Err(Error::shape(text).help("QuantType::fitting is a type for such rows"));
        }
        let mut rest = shape.iter().rev().skip(1);
        let blocks = rest.try_fold(columns / of.elements, |n, &size| n.checked_mul(size));
        let bytes = blocks.and_then(|n| u64::try_from(n.checked_mul(of.bytes)?).ok());
        let offset = match self.tensors.last() {
            Some(last) => (last.offset + last.bytes).checked_next_multiple_of(ALIGNMENT),
            None => Some(0),
        };
        let end = bytes.zip(offset).filter(|(bytes, offset)| offset.checked_add(*bytes).is_some());
        let Some((bytes, offset)) = end else {
            return Err(Error::shape(format!("tensor {name:?} of {shape:?} overflows")));
        };
        if !self.names.insert(name.to_string()) {
            return Err(Error::value(format!("two tensors are called {}", quoted(name)))
                .help("give each tensor a unique name"));
        }
        let (name, shape) = (name.to_string(), shape.to_vec());
        self.tensors.push(Planned { name, shape, id, bytes, offset });
        Ok(())
    }

    /// Writes the file, or leaves what is at `path` as it is. `bytes` returns the elements of each
    /// tensor in the order of [`Writer::add`]: little-endian, of a quantised one the blocks of its
    /// rows, as [`teeny_core::QuantTensor::to_blocks`] returns them.
    ///
    /// # Errors
    /// If `bytes` fails or returns another number of bytes, or the file cannot be written.
    #[track_caller]
    pub fn write(
        &self,
        path: impl AsRef<Path>,
        mut bytes: impl FnMut(&str) -> Result<Vec<u8>>,
    ) -> Result<()> {
        let _op = enter("gguf::Writer::write");
        let header = self.header()?;
        replace(path.as_ref(), |file| {
            let aligned = |n: u64| vec![0; (n.next_multiple_of(ALIGNMENT) - n) as usize];
            file.write_all(&header).map_err(write_error)?;
            file.write_all(&aligned(header.len() as u64)).map_err(write_error)?;
            for tensor in &self.tensors {
                let name = &tensor.name;
                let data = bytes(name).map_err(|e| e.note(format!("tensor {name:?}")))?;
                if data.len() as u64 != tensor.bytes {
                    let (found, wanted) = (data.len(), tensor.bytes);
                    let text = format!("tensor {name:?} has {found} bytes, not {wanted}");
                    return Err(Error::value(text).help("see its shape and type in Writer::add"));
                }
                file.write_all(&data).map_err(write_error)?;
                file.write_all(&aligned(tensor.bytes)).map_err(write_error)?;
            }
            Ok(())
        })
    }

    fn header(&self) -> Result<Vec<u8>> {
        let mut to = b"GGUF\x03\0\0\0".to_vec();
        to.extend((self.tensors.len() as u64).to_le_bytes());
        to.extend((self.metadata.len() as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            put_text(&mut to, key);
            let id = type_id(value).map_err(|e| e.note(format!("in {key:?}")))?;
            to.extend(id.to_le_bytes());
            put_value(&mut to, value, id)?;
        }
        for tensor in &self.tensors {
            put_text(&mut to, &tensor.name);
            to.extend((tensor.shape.len() as u32).to_le_bytes());
            tensor.shape.iter().rev().for_each(|size| to.extend((*size as u64).to_le_bytes()));
            to.extend(tensor.id.to_le_bytes());
            to.extend(tensor.offset.to_le_bytes());
        }
        Ok(to)
    }
}

fn put_text(to: &mut Vec<u8>, text: impl AsRef<[u8]>) {
    to.extend((text.as_ref().len() as u64).to_le_bytes());
    to.extend(text.as_ref());
}

const U32: u32 = 4;
const I32: u32 = 5;
const F32: u32 = 6;
const BOOL: u32 = 7;
const TEXT: u32 = 8;
const LIST: u32 = 9;
const U64: u32 = 10;
const I64: u32 = 11;
const F64: u32 = 12;

/// The number of the type in which a value is written.
fn type_id(value: &Value) -> Result<u32> {
    Ok(match value {
        Value::Unsigned(n) => [U64, U32][usize::from(u32::try_from(*n).is_ok())],
        Value::Signed(n) => [I64, I32][usize::from(i32::try_from(*n).is_ok())],
        // not a number is one in each type
        Value::Float(x) => [F64, F32][usize::from(x.is_nan() || f64::from(*x as f32) == *x)],
        Value::Bool(_) => BOOL,
        Value::Text(_) | Value::Bytes(_) => TEXT,
        Value::List(values) => {
            element_id(values)?;
            LIST
        }
    })
}

/// The element type of a list: the wider type of numbers, text if the list is empty.
fn element_id(values: &[Value]) -> Result<u32> {
    let mut ids = Vec::new();
    for value in values {
        let id = type_id(value)?;
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    ids.sort_unstable();
    match ids[..] {
        [] => Ok(TEXT),
        [id] => Ok(id),
        [U32, U64] => Ok(U64),
        [I32, I64] => Ok(I64),
        [F32, F64] => Ok(F64),
        _ => {
            let text = format!("cannot write a list of {} values of several types", values.len());
            Err(Error::value(text).help("all values of a list must have the same type"))
        }
    }
}

/// Writes a value in the type with the number `id`.
fn put_value(to: &mut Vec<u8>, value: &Value, id: u32) -> Result<()> {
    match (value, id) {
        (Value::Unsigned(n), U32) => to.extend((*n as u32).to_le_bytes()),
        (Value::Unsigned(n), _) => to.extend(n.to_le_bytes()),
        (Value::Signed(n), I32) => to.extend((*n as i32).to_le_bytes()),
        (Value::Signed(n), _) => to.extend(n.to_le_bytes()),
        (Value::Float(x), F32) => to.extend((*x as f32).to_le_bytes()),
        (Value::Float(x), _) => to.extend(x.to_le_bytes()),
        (Value::Bool(b), _) => to.push(u8::from(*b)),
        (Value::Text(text), _) => put_text(to, text),
        (Value::Bytes(text), _) => put_text(to, text),
        (Value::List(values), _) => {
            let id = element_id(values)?;
            to.extend(id.to_le_bytes());
            to.extend((values.len() as u64).to_le_bytes());
            values.iter().try_for_each(|value| put_value(to, value, id))?;
        }
    }
    Ok(())
}
