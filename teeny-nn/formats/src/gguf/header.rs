//! The header of a GGUF file: metadata and the table of tensors.

use super::blocks::{self, Type, TypeKind};
use crate::element_type::ElementType;
use std::collections::BTreeMap;
use std::io::Read;
use teeny_core::file::{Budget, quoted};
use teeny_core::{Error, Result, memory};

/// The deepest nesting of arrays in metadata.
const MAX_DEPTH: usize = 4;

/// Memory for an entry besides its name: in maps, and in an error.
const ENTRY: usize = 512;

/// The bytes of a header from which its budget of memory is made, if the file is longer.
const LONG_HEADER: u64 = 1 << 28;

/// A value of the metadata.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// An integer without a sign.
    Unsigned(u64),
    /// An integer with a sign.
    Signed(i64),
    /// A number of 32 or 64 bits.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// A text.
    Text(String),
    /// A text that is not UTF-8.
    Bytes(Vec<u8>),
    /// Values of one type.
    List(Vec<Value>),
}

impl Value {
    /// The integer, if it is one that is not negative.
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Value::Unsigned(n) => Some(*n),
            Value::Signed(n) => u64::try_from(*n).ok(),
            _ => None,
        }
    }

    /// The number, of any type.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Value::Unsigned(n) => Some(*n as f64),
            Value::Signed(n) => Some(*n as f64),
            Value::Float(x) => Some(*x),
            _ => None,
        }
    }

    /// The truth value.
    pub fn as_bool(&self) -> Option<bool> {
        if let Value::Bool(b) = self { Some(*b) } else { None }
    }

    /// The text.
    pub fn as_str(&self) -> Option<&str> {
        if let Value::Text(text) = self { Some(text) } else { None }
    }

    /// The values of a list.
    pub fn as_list(&self) -> Option<&[Value]> {
        if let Value::List(values) = self { Some(values) } else { None }
    }
}

/// One tensor of a file.
#[derive(Clone, Debug)]
pub struct Entry {
    pub(super) shape: Vec<usize>,
    pub(super) of: Type,
    /// The first byte in the file, and the number of bytes.
    pub(super) at: u64,
    pub(super) bytes: u64,
    /// Which file of a divided model.
    pub(super) part: usize,
}

impl Entry {
    /// The sizes of the axes, outermost first: a linear layer is (out, in).
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The name of the element type, such as `F16` or `Q4_K`.
    pub fn type_name(&self) -> &'static str {
        self.of.name
    }

    /// The element type, if files are written in it; none for Q2_K and Q3_K.
    pub fn element_type(&self) -> Option<ElementType> {
        match self.of.kind {
            TypeKind::Plain(dtype) => Some(ElementType::Plain(dtype)),
            TypeKind::Quantized(kind) => Some(ElementType::Quantized(kind)),
            TypeKind::Blocks(_) => None,
        }
    }

    /// The bytes that the tensor has in the file.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// The content of a header.
#[derive(Debug, Default)]
pub(super) struct Header {
    pub metadata: BTreeMap<String, Value>,
    pub entries: BTreeMap<String, Entry>,
    /// Tensors of types that are not read.
    pub unreadable: BTreeMap<String, Error>,
}

/// The header of a file of `length` bytes.
pub(super) fn read(from: &mut dyn Read, length: u64) -> Result<Header> {
    let budget = Budget::new(length.min(LONG_HEADER) as usize);
    let mut input = Input { from, left: length, budget };
    if input.bytes()? != *b"GGUF" {
        return Err(Error::format("the file does not begin with GGUF"));
    }
    match input.u32()? {
        2 | 3 => {}
        version if version.swap_bytes() <= 3 => {
            return Err(Error::format("the numbers of the file are not little-endian"));
        }
        version => {
            return Err(Error::format(format!("version {version} of GGUF is not supported"))
                .help("versions 2 and 3 are supported; convert the model with a newer program"));
        }
    }
    let (tensors, keys) = (input.u64()?, input.u64()?);
    let mut header = Header::default();
    for _ in 0..keys {
        let key = input.text()?;
        let kind = input.u32()?;
        let value = input.value(kind, 0).map_err(|e| e.note(format!("in {}", quoted(&key))))?;
        input.budget.charge(ENTRY)?;
        if header.metadata.contains_key(&key) {
            return Err(Error::format(format!("the key {} comes twice", quoted(&key))));
        }
        header.metadata.insert(key, value);
    }
    let alignment = match header.metadata.get("general.alignment") {
        None => 32,
        Some(value) => value.as_u64().filter(|n| n.is_power_of_two()).ok_or_else(|| {
            Error::format(format!("general.alignment is {value:?}, which is not a power of two"))
        })?,
    };
    let mut described = Vec::new();
    for _ in 0..tensors {
        let tensor = Described::read(&mut input)?;
        input.budget.charge(ENTRY + tensor.name.len())?;
        described.push(tensor);
    }
    let data_start = (length - input.left).next_multiple_of(alignment);
    let data_bytes = length.saturating_sub(data_start);
    let mut ranges = Vec::new();
    for tensor in described {
        let name = tensor.name.clone();
        if header.entries.contains_key(&name) || header.unreadable.contains_key(&name) {
            return Err(Error::format(format!("two tensors are called {}", quoted(&name))));
        }
        match tensor.entry(alignment, data_start, data_bytes)? {
            Ok(entry) => {
                ranges.push((entry.at, entry.bytes));
                header.entries.insert(name, entry);
            }
            Err(error) => drop(header.unreadable.insert(name, error)),
        }
    }
    ranges.sort_unstable();
    if let Some(pair) = ranges.windows(2).find(|pair| pair[0].0 + pair[0].1 > pair[1].0) {
        return Err(Error::format(format!(
            "two tensors overlap at byte {} of the file",
            pair[1].0
        )));
    }
    Ok(header)
}

/// A tensor as the table describes it.
struct Described {
    name: String,
    /// Innermost first.
    sizes: Vec<u64>,
    id: u32,
    offset: u64,
}

impl Described {
    fn read(input: &mut Input<'_>) -> Result<Described> {
        let name = input.text()?;
        let axes = input.u32()?;
        if axes > 8 {
            return Err(Error::format(format!("tensor {} has {axes} axes", quoted(&name))));
        }
        let sizes = (0..axes).map(|_| input.u64()).collect::<Result<_>>()?;
        Ok(Described { name, sizes, id: input.u32()?, offset: input.u64()? })
    }

    /// The entry of a file whose data are the `data_bytes` bytes from `data_start` on; the inner
    /// error says that the type cannot be read.
    fn entry(
        self,
        alignment: u64,
        data_start: u64,
        data_bytes: u64,
    ) -> Result<std::result::Result<Entry, Error>> {
        let name = quoted(&self.name);
        if !self.offset.is_multiple_of(alignment) || self.offset > data_bytes {
            return Err(Error::format(format!(
                "tensor {name} is at byte {} of the {data_bytes} bytes of data, aligned to \
                 {alignment}",
                self.offset
            )));
        }
        let Some(of) = blocks::by_id(self.id) else {
            let ty = blocks::unread_name(self.id)
                .map_or_else(|| format!("number {}", self.id), str::to_string);
            return Ok(Err(Error::dtype(format!(
                "tensor {name} has the GGUF type {ty}, which is not supported"
            ))
            .help("quantise the model to Q8_0, Q6_K or Q4_K")));
        };
        let inner = self.sizes.first().copied().unwrap_or(1);
        if !inner.is_multiple_of(of.elements as u64) {
            return Err(Error::format(format!(
                "tensor {name} has rows of {inner} elements, but {} has blocks of {}",
                of.name, of.elements
            )));
        }
        let blocks = self
            .sizes
            .iter()
            .skip(1)
            .try_fold(inner / of.elements as u64, |n, &size| n.checked_mul(size));
        let bytes = blocks.and_then(|n| n.checked_mul(of.bytes as u64));
        let shape: Option<Vec<usize>> =
            self.sizes.iter().rev().map(|&size| usize::try_from(size).ok()).collect();
        let (Some(bytes), Some(shape)) = (bytes.filter(|n| *n <= data_bytes - self.offset), shape)
        else {
            return Err(Error::format(format!(
                "tensor {name} of sizes {:?} ({}) does not fit into the {data_bytes} bytes of data",
                self.sizes, of.name
            ))
            .help("the file is truncated; download it again"));
        };
        Ok(Ok(Entry { shape, of, at: data_start + self.offset, bytes, part: 0 }))
    }
}

/// The bytes of a header that are left.
struct Input<'a> {
    from: &'a mut dyn Read,
    left: u64,
    budget: Budget,
}

impl Input<'_> {
    /// Counts `n` bytes of the file.
    fn take(&mut self, n: u64) -> Result<()> {
        self.left = self.left.checked_sub(n).ok_or_else(|| {
            Error::format(format!("{n} bytes are announced, but {} follow", self.left))
                .help("the file is truncated; download it again")
        })?;
        Ok(())
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.take(N as u64)?;
        let mut bytes = [0; N];
        self.from.read_exact(&mut bytes).map_err(Error::from)?;
        Ok(bytes)
    }

    fn u32(&mut self) -> Result<u32> {
        self.bytes().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64> {
        self.bytes().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Result<String> {
        String::from_utf8(self.text_bytes()?)
            .map_err(|e| Error::format(format!("a name of the header is not UTF-8: {e}")))
    }

    fn text_bytes(&mut self) -> Result<Vec<u8>> {
        let length = self.u64()?;
        self.take(length)?;
        self.budget.charge(length as usize)?;
        let mut bytes = memory::filled(0, length as usize)?;
        self.from.read_exact(&mut bytes).map_err(Error::from)?;
        Ok(bytes)
    }

    /// A value of the type `kind`.
    fn value(&mut self, kind: u32, depth: usize) -> Result<Value> {
        Ok(match kind {
            0 => Value::Unsigned(self.bytes::<1>()?[0].into()),
            1 => Value::Signed((self.bytes::<1>()?[0] as i8).into()),
            2 => Value::Unsigned(u16::from_le_bytes(self.bytes()?).into()),
            3 => Value::Signed(i16::from_le_bytes(self.bytes()?).into()),
            4 => Value::Unsigned(self.u32()?.into()),
            5 => Value::Signed(i32::from_le_bytes(self.bytes()?).into()),
            6 => Value::Float(f32::from_le_bytes(self.bytes()?).into()),
            7 => match self.bytes::<1>()?[0] {
                0 => Value::Bool(false),
                1 => Value::Bool(true),
                byte => return Err(Error::format(format!("a bool is {byte}, not 0 or 1"))),
            },
            8 => match String::from_utf8(self.text_bytes()?) {
                Ok(text) => Value::Text(text),
                Err(other) => Value::Bytes(other.into_bytes()),
            },
            9 if depth < MAX_DEPTH => {
                let (kind, count) = (self.u32()?, self.u64()?);
                let mut values = Vec::new();
                for _ in 0..count {
                    // twice: a vector that grows keeps its old memory for a moment
                    self.budget.charge(2 * size_of::<Value>())?;
                    values.push(self.value(kind, depth + 1)?);
                }
                Value::List(values)
            }
            9 => return Err(Error::format("an array is nested too deeply")),
            10 => Value::Unsigned(self.u64()?),
            11 => Value::Signed(i64::from_le_bytes(self.bytes()?)),
            12 => Value::Float(f64::from_le_bytes(self.bytes()?)),
            _ => return Err(Error::format(format!("a value has the unknown type {kind}"))),
        })
    }
}
