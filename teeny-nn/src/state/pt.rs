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
//! become values. Tensors share no memory even if they did in the file: tied weights are two
//! tensors. Files of PyTorch before 1.6 are not zip archives and are not supported.

use super::State;
use super::file_kind;
use super::pickle::{self, Id, Node};
use super::zip::{self, Zip};
use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;
use teeny_core::{DType, DeviceRef, Error, Result, Tensor, ToDevice};

/// The limit of nesting, deeper than real files; a dictionary may contain itself.
const MOST_NESTED: usize = 32;

/// Reads the file at `path` with its tensors on `device`.
///
/// Equivalent: `torch.load(path, weights_only=True)`.
///
/// # Errors
/// If the file cannot be read, is damaged, or has values other than tensors, numbers, text and
/// containers of them, such as sparse or quantized tensors or whole models: the error names the
/// function that the file calls.
///
/// # Example
/// ```no_run
/// use teeny_nn::{Store, state::{Mapping, pt}};
/// # fn demo(store: &Store) -> teeny_core::Result<()> {
/// store.load_from(&pt::read("model.pt", store.device())?, &Mapping::new())?;
/// # Ok(()) }
/// ```
pub fn read(path: impl AsRef<Path>, device: impl ToDevice) -> Result<State> {
    let name = format!("load {:?}", path.as_ref().display().to_string());
    file_kind::require_file(path.as_ref()).map_err(|e| e.named(&name))?;
    let bytes = std::fs::read(path)
        .map_err(|e| Error::io(format!("cannot read the file: {e}")).named(&name))?;
    from_bytes(&bytes, device).map_err(|e| e.named(name))
}

/// The state in a `.pt` file in memory, with its tensors on `device`.
///
/// # Errors
/// As [`read`].
pub fn from_bytes(bytes: &[u8], device: impl ToDevice) -> Result<State> {
    if bytes.starts_with(&[0x80, 0x02]) {
        return Err(Error::format("a file of PyTorch before 1.6, which is not a zip archive")
            .help("load and save it with a newer PyTorch"));
    }
    let archive = Zip::parse(bytes).map_err(|e| zip::not_an_archive(bytes, e, "a .pt file"))?;
    let folder = archive.names().find_map(|name| {
        name.strip_suffix("data.pkl").filter(|f| f.matches('/').count() == 1).map(str::to_string)
    });
    let folder = folder.ok_or_else(|| {
        let arrays = archive.names().any(|name| name.ends_with(".npy"));
        Error::format("no data.pkl in the archive").help(if arrays {
            "this is an .npz archive: state::npz::read"
        } else {
            "a TorchScript file? save model.state_dict() instead"
        })
    })?;
    let order = format!("{folder}byteorder");
    if archive.names().any(|name| name == order) && *archive.read(&order)? != *b"little" {
        return Err(Error::format("the numbers of the file are not little-endian"));
    }
    let pickle = archive.read(&format!("{folder}data.pkl"))?;
    let (nodes, root) = pickle::run(&pickle)?;
    let mut reader = Reader {
        archive,
        folder,
        nodes,
        device: crate::track::inner_device(&device.to_device()).clone(),
        storages: HashMap::new(),
        tensors: HashMap::new(),
        // a shared node is visited once per path to it; real files have few such paths
        name_budget: (1 << 20) + 16 * pickle.len(),
        // tied weights are stored once and become two tensors
        tensor_budget: (1 << 20) + 8 * bytes.len(),
        state: State::default(),
    };
    reader.walk(root, "", 0)?;
    Ok(reader.state)
}

struct Reader<'a> {
    archive: Zip<'a>,
    folder: String,
    nodes: Vec<Node>,
    device: DeviceRef,
    storages: HashMap<String, Cow<'a, [u8]>>,
    tensors: HashMap<Id, Tensor>,
    /// Bytes of names that may still be made.
    name_budget: usize,
    /// Bytes of tensors that may still be made.
    tensor_budget: usize,
    state: State,
}

impl Reader<'_> {
    /// Adds node `id` to the state as `name`, its children as `name.key`.
    fn walk(&mut self, id: Id, name: &str, depth: usize) -> Result<()> {
        let left = self.name_budget.checked_sub(name.len() + 1).filter(|_| depth <= MOST_NESTED);
        self.name_budget = left.ok_or_else(|| {
            Error::format(format!(
                "{:?}.. is nested too deeply",
                name.chars().take(60).collect::<String>()
            ))
        })?;
        match self.nodes[id].clone() {
            Node::None => {}
            Node::Bool(v) => self.state.set(name, v),
            Node::Int(v) => self.state.set(name, v),
            Node::Float(v) => self.state.set(name, v),
            Node::Text(v) => self.state.set(name, v),
            Node::Dict(items) => {
                for (key, value) in items {
                    let key = match &self.nodes[key] {
                        Node::Text(key) => key.clone(),
                        Node::Int(key) => key.to_string(),
                        other => {
                            return Err(Error::format(format!(
                                "a dictionary key is neither text nor a number: {}",
                                kind(other)
                            )));
                        }
                    };
                    self.walk(value, &joined(name, &key), depth + 1)?;
                }
            }
            Node::List(items) | Node::Tuple(items) => {
                for (i, item) in items.into_iter().enumerate() {
                    self.walk(item, &joined(name, &i.to_string()), depth + 1)?;
                }
            }
            Node::Call(..) => {
                let tensor = self.tensor(id, 0).map_err(|e| e.note(format!("tensor {name:?}")))?;
                self.state.tensors.insert(
                    if name.is_empty() { "tensor".to_string() } else { name.to_string() },
                    tensor,
                );
            }
            other @ (Node::Global(_) | Node::Persistent(_)) => {
                return Err(Error::format(format!("{name:?} is {}", kind(&other))));
            }
        }
        Ok(())
    }

    /// The tensor that a [`Node::Call`] describes.
    fn tensor(&mut self, id: Id, depth: usize) -> Result<Tensor> {
        if let Some(tensor) = self.tensors.get(&id) {
            return Ok(tensor.clone());
        }
        let tensor = match self.nodes[id].clone() {
            // a parameter is (tensor, requires_grad, hooks)
            Node::Call(function, arguments)
                if function.ends_with("_rebuild_parameter") && depth == 0 =>
            {
                self.tensor(*arguments.first().ok_or_else(malformed)?, 1)?
            }
            Node::Call(function, arguments) if function.ends_with("_rebuild_tensor_v2") => {
                let [storage, offset, sizes, strides, ..] = arguments[..] else {
                    return Err(malformed());
                };
                let (dtype, key) = self.storage(storage)?;
                let (offset, sizes, strides) =
                    (self.size(offset)?, self.sizes(sizes)?, self.sizes(strides)?);
                self.view(dtype, &key, offset, &sizes, &strides)?
            }
            other => return Err(Error::format(format!("not a tensor but {}", kind(&other)))),
        };
        self.tensors.insert(id, tensor.clone());
        Ok(tensor)
    }

    /// Dtype and key of a storage: ("storage", torch.FloatStorage, "0", "cpu", 12).
    fn storage(&self, id: Id) -> Result<(DType, String)> {
        let Node::Persistent(id) = self.nodes[id] else { return Err(malformed()) };
        let Node::Tuple(parts) = &self.nodes[id] else { return Err(malformed()) };
        let [_, class, key, ..] = parts[..] else { return Err(malformed()) };
        let (Node::Global(class), Node::Text(key)) = (&self.nodes[class], &self.nodes[key]) else {
            return Err(malformed());
        };
        let dtype = match class.strip_prefix("torch.").unwrap_or(class) {
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
            other => {
                return Err(Error::format(format!("the dtype of a {other} is not supported")));
            }
        };
        Ok((dtype, key.clone()))
    }

    fn size(&self, id: Id) -> Result<usize> {
        match self.nodes[id] {
            Node::Int(v) => usize::try_from(v).map_err(|_| Error::format(format!("a size is {v}"))),
            _ => Err(malformed()),
        }
    }

    fn sizes(&self, id: Id) -> Result<Vec<usize>> {
        let Node::Tuple(items) = &self.nodes[id] else { return Err(malformed()) };
        items.iter().map(|&item| self.size(item)).collect()
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
            return Err(Error::format(format!(
                "sizes {sizes:?} repeat the {} elements that are stored",
                bytes.len() / width
            ))
            .help("save x.contiguous() instead of an expanded tensor"));
        }
        self.tensor_budget = self
            .tensor_budget
            .checked_sub(numel * width)
            .ok_or_else(|| Error::format("the tensors repeat the stored elements too often"))?;
        let mut elements = Vec::with_capacity(numel * width);
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
    }
}

fn malformed() -> Error {
    Error::format("the description of a tensor is not in PyTorch's format")
}
