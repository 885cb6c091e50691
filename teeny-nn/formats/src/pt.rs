//! PyTorch's `.pt` and `.pth` files, read without running the code in them.
//!
//! ```text
//! zip archive ── archive/data.pkl     a pickle: dictionaries, numbers, and tensors as
//!                                     (storage key, offset, sizes, strides)
//!             ── archive/data/0       the bytes of storage 0
//!             ── archive/byteorder    "little"
//! ```
//!
//! A state dictionary, or nested dictionaries and lists of them, become one flat [`State`]:
//! `{"model": {"fc.weight": ..}}` becomes the tensor `model.fc.weight`; numbers, text and booleans
//! become values. Other entries, such as NumPy scalars, tensors of 8-bit floats or whole models,
//! are in [`State::unreadable`]. Tensors share no memory even if they did in the file: tied weights
//! are two tensors. Files of PyTorch before 1.6 are not zip archives and are not supported.

use super::State;
use super::file_kind;
use super::pickle::{self, Function, Id, Node};
use super::zip::{self, Zip};
use crate::names::{loading, of_file, with_help};
use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;
use teeny_core::context::enter;
use teeny_core::file::quoted;
use teeny_core::{DType, DeviceRef, Error, ErrorKind, Result, Tensor, ToDevice, memory};

/// The limit of nesting, deeper than real files; a dictionary may contain itself.
const MAX_DEPTH: usize = 32;

/// Memory for an entry of a state besides its name and text.
const ENTRY: usize = 112;

/// Reads the file at `path` with its tensors on `device`.
///
/// Equivalent: `torch.load(path, weights_only=True)`.
///
/// # Errors
/// If the file cannot be read or is damaged, or if all of it is a value other than tensors,
/// numbers, text and containers of them, such as a whole model: the error names the function that
/// the file calls.
///
/// # Example
/// ```no_run
/// use teeny_formats::{Mapping, pt};
/// use teeny_nn::Store;
/// # fn demo(store: &Store) -> teeny_core::Result<()> {
/// store.load_from(&pt::read("model.pt", store.device())?, &Mapping::new())?;
/// # Ok(()) }
/// ```
#[doc(alias = "load")]
#[track_caller]
pub fn read(path: impl AsRef<Path>, device: impl ToDevice) -> Result<State> {
    let _op = enter("pt::read");
    let name = loading(path.as_ref());
    file_kind::read(path.as_ref(), &[".pt", ".pth", ".bin"])
        .and_then(|bytes| parse(&bytes, device))
        .map_err(|e| of_file(e, name))
}

/// The state in a `.pt` file in memory, with its tensors on `device`.
///
/// # Errors
/// As [`read`].
#[track_caller]
pub fn from_bytes(bytes: &[u8], device: impl ToDevice) -> Result<State> {
    let _op = enter("pt::from_bytes");
    parse(bytes, device).map_err(|e| of_file(e, "load bytes"))
}

fn parse(bytes: &[u8], device: impl ToDevice) -> Result<State> {
    if bytes.starts_with(&[0x80, 0x02]) {
        return Err(Error::format("cannot read the format of PyTorch before 1.6: not a zip file")
            .help("load it and save it again with a newer PyTorch"));
    }
    let mut archive = Zip::parse(bytes).map_err(|e| zip::not_an_archive(bytes, e, "a .pt file"))?;
    let folder = archive.names().find_map(|name| {
        name.strip_suffix("data.pkl").filter(|f| f.matches('/').count() == 1).map(str::to_string)
    });
    let folder = folder.ok_or_else(|| {
        let arrays = archive.names().any(|name| name.ends_with(".npy"));
        Error::format("no data.pkl in the archive").help(if arrays {
            "this is an .npz archive: npz::read"
        } else {
            "a TorchScript file? save model.state_dict() instead"
        })
    })?;
    let order = format!("{folder}byteorder");
    if archive.names().any(|name| name == order) && *archive.read(&order)? != *b"little" {
        return Err(Error::format("the numbers of the file are not little-endian"));
    }
    let pickle = archive.read(&format!("{folder}data.pkl"))?;
    let (nodes, root) = pickle::run(&pickle, &mut archive.budget).map_err(|error| {
        let help = "torch.save(model.state_dict(), path) writes files that are read; this one \
                    holds something else, or is damaged";
        with_help(error, help)
    })?;
    let mut reader = Reader {
        archive,
        folder,
        nodes: &nodes,
        device: device.to_device(),
        storages: HashMap::new(),
        tensors: HashMap::new(),
        state: State::default(),
    };
    reader.walk(root, "", 0)?;
    match reader.state.unreadable.remove("") {
        Some(error) => Err(error),
        None => Ok(reader.state),
    }
}

struct Reader<'a, 'n> {
    archive: Zip<'a>,
    folder: String,
    nodes: &'n [Node<'n>],
    device: DeviceRef,
    storages: HashMap<String, Cow<'a, [u8]>>,
    tensors: HashMap<Id, Tensor>,
    state: State,
}

impl<'n> Reader<'_, 'n> {
    fn node(&self, id: Id) -> &'n Node<'n> {
        &self.nodes[id as usize]
    }

    /// Adds node `id` to the state as `name`, its children as `name.key`. An entry of a kind that
    /// is not read is added with its error.
    fn walk(&mut self, id: Id, name: &str, depth: usize) -> Result<()> {
        if depth > MAX_DEPTH {
            return Err(Error::format(format!("{} is nested too deeply", quoted(name))));
        }
        // the name is in the state and in the call of this function
        self.archive.budget.charge(ENTRY + 2 * name.len())?;
        match self.node(id) {
            Node::None => {}
            Node::Bool(v) => self.set(name, &v.to_string())?,
            Node::Int(v) => self.set(name, &v.to_string())?,
            Node::Float(v) => self.set(name, &v.to_string())?,
            Node::Text(v) => self.set(name, v)?,
            Node::Dict(items) => {
                for &(key, value) in items {
                    match self.node(key) {
                        Node::Text(key) => self.walk(value, &joined(name, key), depth + 1)?,
                        Node::Int(key) => {
                            self.walk(value, &joined(name, &key.to_string()), depth + 1)?;
                        }
                        _ => {
                            let key = self.shown(key, 0);
                            let text = format!("the dictionary key {key} is not text or a number");
                            let help = "rename it, and save the dictionary again";
                            let error = Error::unsupported(text).help(help);
                            self.refuse(&joined(name, &key), error)?;
                        }
                    }
                }
            }
            Node::List(items) | Node::Tuple(items) => {
                for (i, &item) in items.iter().enumerate() {
                    self.walk(item, &joined(name, &i.to_string()), depth + 1)?;
                }
            }
            Node::Call(..) => match self.tensor(id, 0) {
                Ok(tensor) => {
                    let name = if name.is_empty() { "tensor" } else { name };
                    self.require_new(name)?;
                    self.state.tensors.insert(name.to_string(), tensor);
                }
                Err(e) if matches!(e.kind(), ErrorKind::DType | ErrorKind::Unsupported) => {
                    self.refuse(name, e)?;
                }
                Err(e) => return Err(e.note(format!("tensor {}", quoted(name)))),
            },
            Node::OtherCall(function) => {
                let text = format!(
                    "the file calls {}; only tensors, numbers, text and containers of them are \
                     read",
                    quoted(function)
                );
                self.refuse(name, Error::unsupported(text).help(other_call_help(function)))?;
            }
            Node::Global(_) | Node::Persistent(_) | Node::Other(_) => {
                let text = format!("it is {}", kind(self.node(id)));
                let error = Error::unsupported(text).help("save model.state_dict() instead");
                self.refuse(name, error)?;
            }
        }
        Ok(())
    }

    /// Adds an entry that is not read.
    fn refuse(&mut self, name: &str, error: Error) -> Result<()> {
        self.archive.budget.charge(4 * ENTRY + 2 * name.len())?;
        self.require_new(name)?;
        let error = match name {
            "" => error,
            name => error.note(format!("in entry {}", quoted(name))),
        };
        self.state.unreadable.insert(name.to_string(), error);
        Ok(())
    }

    fn set(&mut self, name: &str, value: &str) -> Result<()> {
        self.archive.budget.charge(value.len())?;
        self.require_new(name)?;
        self.state.set(name, value);
        Ok(())
    }

    /// Returns an error if the file has an entry `name` already: `{"a.b": 1, "a": {"b": 2}}`.
    fn require_new(&self, name: &str) -> Result<()> {
        let State { tensors, values, unreadable } = &self.state;
        let taken = tensors.contains_key(name)
            || values.contains_key(name)
            || unreadable.contains_key(name);
        match taken {
            true => Err(Error::format(format!("two entries are called {}", quoted(name)))),
            false => Ok(()),
        }
    }

    /// A dictionary key for errors, as Python shows it.
    fn shown(&self, key: Id, depth: usize) -> String {
        match self.node(key) {
            Node::Text(text) => quoted(text),
            Node::Int(v) => v.to_string(),
            Node::Float(v) => v.to_string(),
            Node::Bool(true) => "True".to_string(),
            Node::Bool(false) => "False".to_string(),
            Node::Tuple(items) if depth == 0 && items.len() <= 8 => {
                let items: Vec<String> = items.iter().map(|&item| self.shown(item, 1)).collect();
                format!("({})", items.join(", "))
            }
            other => kind(other).to_string(),
        }
    }

    /// The tensor that a [`Node::Call`] describes.
    fn tensor(&mut self, id: Id, depth: usize) -> Result<Tensor> {
        if let Some(tensor) = self.tensors.get(&id) {
            return Ok(tensor.clone());
        }
        let tensor = match self.node(id) {
            Node::Call(Function::Parameter, arguments) if depth == 0 => {
                self.tensor(*arguments.first().ok_or_else(malformed)?, 1)?
            }
            Node::Call(Function::TensorV2 | Function::TensorV3, arguments) => {
                let [storage, offset, sizes, strides, ref rest @ ..] = arguments[..] else {
                    return Err(malformed());
                };
                let (class, key) = self.storage(storage)?;
                // requires_grad and hooks come before a dtype
                let dtype = match (self.node(id), rest) {
                    (Node::Call(Function::TensorV3, _), [_, _, dtype, ..]) => self.dtype(*dtype)?,
                    _ => storage_dtype(class)?,
                };
                let (offset, sizes, strides) =
                    (self.size(offset)?, self.sizes(sizes)?, self.sizes(strides)?);
                self.view(dtype, key, offset, &sizes, &strides)?
            }
            other => return Err(Error::format(format!("not a tensor but {}", kind(other)))),
        };
        self.tensors.insert(id, tensor.clone());
        Ok(tensor)
    }

    /// Class and key of a storage: ("storage", torch.FloatStorage, "0", "cpu", 12).
    fn storage(&self, id: Id) -> Result<(&'n str, &'n str)> {
        let Node::Persistent(id) = self.node(id) else { return Err(malformed()) };
        let Node::Tuple(parts) = self.node(*id) else { return Err(malformed()) };
        let [_, class, key, ..] = parts[..] else { return Err(malformed()) };
        match (self.node(class), self.node(key)) {
            (Node::Global(class), Node::Text(key)) => Ok((class, key)),
            _ => Err(malformed()),
        }
    }

    /// The dtype of `torch.uint16` and other names.
    fn dtype(&self, id: Id) -> Result<DType> {
        let Node::Global(name) = self.node(id) else { return Err(malformed()) };
        Ok(match name.strip_prefix("torch.").unwrap_or(name) {
            "uint16" => DType::U16,
            "uint32" => DType::U32,
            "uint64" => DType::U64,
            other => return Err(unsupported_dtype(other)),
        })
    }

    fn size(&self, id: Id) -> Result<usize> {
        match self.node(id) {
            Node::Int(v) => usize::try_from(*v)
                .map_err(|_| Error::format(format!("expected a size of 0 or more, got {v}"))),
            _ => Err(malformed()),
        }
    }

    fn sizes(&self, id: Id) -> Result<Vec<usize>> {
        let Node::Tuple(items) = self.node(id) else { return Err(malformed()) };
        // more axes than a shape has are an error later
        items.iter().take(teeny_core::MAX_NDIM + 1).map(|&item| self.size(item)).collect()
    }

    /// The elements of a strided view of storage `key`, in row-major order.
    fn view(
        &mut self,
        dtype: DType,
        key: &str,
        offset: usize,
        sizes: &[usize],
        strides: &[usize],
    ) -> Result<Tensor> {
        let shape = teeny_core::Shape::new(sizes)?;
        if !self.storages.contains_key(key) {
            let content = self.archive.read(&format!("{}data/{key}", self.folder))?;
            self.storages.insert(key.to_string(), content);
        }
        let bytes = &self.storages[key];
        let width = dtype.size();
        let outside = || {
            Error::format(format!(
                "sizes {sizes:?}, strides {strides:?}, offset {offset} exceed {} elements",
                bytes.len() / width
            ))
        };
        if sizes.len() != strides.len() {
            return Err(outside());
        }
        let numel = shape.numel();
        let last = sizes.iter().zip(strides).try_fold(offset, |last, (&size, &stride)| {
            last.checked_add(size.saturating_sub(1).checked_mul(stride)?)
        });
        if numel > 0 && last.is_none_or(|last| last >= bytes.len() / width) {
            return Err(outside());
        }
        if numel > bytes.len() / width {
            return Err(Error::unsupported(format!(
                "sizes {sizes:?} repeat the {} elements that are stored",
                bytes.len() / width
            ))
            .help("save x.contiguous() instead of an expanded tensor"));
        }
        // the elements, and the tensor
        self.archive.budget.charge(2 * numel * width)?;
        let mut elements = memory::reserved(numel * width)?;
        let mut index = vec![0usize; sizes.len()];
        for _ in 0..numel {
            let at = (offset
                + index.iter().zip(strides).map(|(i, stride)| i * stride).sum::<usize>())
                * width;
            elements.extend_from_slice(&bytes[at..at + width]);
            for axis in (0..sizes.len()).rev() {
                index[axis] += 1;
                if index[axis] < sizes[axis] {
                    break;
                }
                index[axis] = 0;
            }
        }
        Tensor::from_bytes(&elements, shape, dtype, &self.device)
    }
}

fn joined(name: &str, key: &str) -> String {
    if name.is_empty() { key.to_string() } else { format!("{name}.{key}") }
}

/// The dtype of the elements of a storage class.
fn storage_dtype(class: &str) -> Result<DType> {
    Ok(match class.strip_prefix("torch.").unwrap_or(class) {
        "FloatStorage" => DType::F32,
        "DoubleStorage" => DType::F64,
        "HalfStorage" => DType::F16,
        "BFloat16Storage" => DType::BF16,
        "LongStorage" => DType::I64,
        "IntStorage" => DType::I32,
        "ShortStorage" => DType::I16,
        "CharStorage" => DType::I8,
        "ByteStorage" => DType::U8,
        "BoolStorage" => DType::Bool,
        other => return Err(unsupported_dtype(other)),
    })
}

fn unsupported_dtype(name: &str) -> Error {
    let text = format!("the dtype {} is not among teeny's dtypes", quoted(name));
    Error::dtype(text).help("convert it in Python before torch.save: x.to(torch.float32)")
}

fn other_call_help(function: &str) -> &'static str {
    match function.split('.').next() {
        Some("numpy" | "_codecs") => {
            "x.item() in Python makes a NumPy scalar a number, \
            torch.from_numpy(x) makes an array a tensor"
        }
        _ => "save model.state_dict() instead of the model, or use the safetensors format",
    }
}

/// The kind of a node, for errors.
fn kind(node: &Node) -> &'static str {
    match node {
        Node::None => "None",
        Node::Bool(_) => "a boolean",
        Node::Int(_) | Node::Float(_) => "a number",
        Node::Text(_) => "text",
        Node::Global(_) => "a class",
        Node::Tuple(_) => "a tuple",
        Node::List(_) => "a list",
        Node::Dict(_) => "a dictionary",
        Node::Persistent(_) => "a storage",
        Node::Call(..) => "a tensor",
        Node::OtherCall(_) => "the result of a function",
        Node::Other(kind) => kind,
    }
}

fn malformed() -> Error {
    Error::format("the description of a tensor is not in PyTorch's format")
}
