//! Python's pickle format, restricted to data: an interpreter that calls no function and accepts
//! only the names of functions that describe tensors.
//!
//! ```text
//! opcodes ──▶ stack of ids ──▶ nodes (an arena: no recursion, shared parts stay shared)
//! ```
//!
//! A pickle is a program that may call any function of any Python module. This interpreter only
//! builds nodes; a function outside the list below is an error that names it. It knows the opcodes
//! of protocols 2 to 4 that `torch.save` writes. Source: CPython's `pickletools.py`.

use std::collections::HashMap;
use teeny_core::{Error, Result};

/// Index of a [`Node`].
pub(super) type Id = usize;

/// A Python value.
#[derive(Clone, Debug)]
pub(super) enum Node {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    /// A storage class, `OrderedDict` or a function of [`FUNCTIONS`].
    Global(String),
    /// Also the arguments of a call.
    Tuple(Vec<Id>),
    List(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    /// A persistent id: its argument.
    Persistent(Id),
    /// A function of [`FUNCTIONS`] and its arguments; it is not called.
    Call(String, Vec<Id>),
}

/// Functions that describe a tensor. All others are errors.
const FUNCTIONS: [&str; 2] = ["torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_parameter"];

/// The limit of the stack; files of tensors stay far below it.
const MOST_STACKED: usize = 1 << 20;

/// Runs a pickle; returns the nodes and the id of the result.
pub(super) fn run(bytes: &[u8]) -> Result<(Vec<Node>, Id)> {
    let mut machine = Machine {
        bytes,
        at: 0,
        nodes: Vec::new(),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: HashMap::new(),
    };
    loop {
        let at = machine.at;
        if let Some(result) =
            machine.step().map_err(|e| e.note(format!("in the pickle at byte {at}")))?
        {
            return Ok((machine.nodes, result));
        }
    }
}

struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    nodes: Vec<Node>,
    stack: Vec<Id>,
    /// The stack length at each mark.
    marks: Vec<usize>,
    memo: HashMap<u32, Id>,
}

impl<'a> Machine<'a> {
    /// Runs one opcode; returns the result at the last.
    fn step(&mut self) -> Result<Option<Id>> {
        let op = self.take(1)?[0];
        match op {
            0x80 => {
                self.take(1)?; // PROTO: the version
            }
            0x95 => {
                self.take(8)?; // FRAME: how far to read ahead
            }
            b'.' => return self.pop().map(Some),
            b'N' => self.push(Node::None)?,
            0x88 => self.push(Node::Bool(true))?,
            0x89 => self.push(Node::Bool(false))?,
            b'K' => {
                let v = self.take(1)?[0];
                self.push(Node::Int(v.into()))?;
            }
            b'M' => {
                let v = u16::from_le_bytes(self.array()?);
                self.push(Node::Int(v.into()))?;
            }
            b'J' => {
                let v = i32::from_le_bytes(self.array()?);
                self.push(Node::Int(v.into()))?;
            }
            0x8a => self.long()?,
            b'G' => {
                let v = f64::from_be_bytes(self.array()?);
                self.push(Node::Float(v))?;
            }
            0x8c => {
                let length = self.take(1)?[0];
                self.text(length.into())?;
            }
            b'X' => {
                let length = u32::from_le_bytes(self.array()?);
                self.text(length as usize)?;
            }
            b'(' => self.marks.push(self.stack.len()),
            b')' => self.push(Node::Tuple(Vec::new()))?,
            b']' => self.push(Node::List(Vec::new()))?,
            b'}' => self.push(Node::Dict(Vec::new()))?,
            b't' => {
                let items = self.marked()?;
                self.push(Node::Tuple(items))?;
            }
            0x85..=0x87 => {
                let count = (op - 0x84) as usize;
                let start = self.stack.len().checked_sub(count).ok_or_else(empty)?;
                let items = self.stack.split_off(start);
                self.push(Node::Tuple(items))?;
            }
            b'a' => {
                let item = self.pop()?;
                self.extend(vec![item])?;
            }
            b'e' => {
                let items = self.marked()?;
                self.extend(items)?;
            }
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.insert(&[key, value])?;
            }
            b'u' => {
                let items = self.marked()?;
                self.insert(&items)?;
            }
            b'q' => {
                let i = self.take(1)?[0];
                self.memoize(i.into())?;
            }
            b'r' => {
                let i = u32::from_le_bytes(self.array()?);
                self.memoize(i)?;
            }
            0x94 => self.memoize(self.memo.len() as u32)?,
            b'h' => {
                let i = self.take(1)?[0];
                self.push_memo(i.into())?;
            }
            b'j' => {
                let i = u32::from_le_bytes(self.array()?);
                self.push_memo(i)?;
            }
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.global(&module, &name)?;
            }
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                let (Node::Text(module), Node::Text(name)) =
                    (self.nodes[module].clone(), self.nodes[name].clone())
                else {
                    return Err(Error::format("a name is not text"));
                };
                self.global(&module, &name)?;
            }
            b'Q' => {
                let argument = self.pop()?;
                self.push(Node::Persistent(argument))?;
            }
            b'R' => self.call()?,
            b'b' => {
                // attributes of an ordered dictionary: the versions of its modules, not needed
                self.pop()?;
                let target = *self.stack.last().ok_or_else(empty)?;
                if !matches!(self.nodes[target], Node::Dict(_)) {
                    return Err(Error::format("attributes of a value that is not a dictionary"));
                }
            }
            other => {
                return Err(Error::format(format!(
                    "opcode 0x{other:02x} is not one that files of tensors use"
                )));
            }
        }
        Ok(None)
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let taken = self.bytes.get(self.at..).and_then(|rest| rest.get(..count));
        self.at += count;
        taken.ok_or_else(|| Error::format("the pickle ends early"))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let bytes = self.take(N)?;
        Ok(std::array::from_fn(|i| bytes[i]))
    }

    fn line(&mut self) -> Result<String> {
        let rest = self.bytes.get(self.at..).unwrap_or(&[]);
        let length = rest
            .iter()
            .take(1000)
            .position(|&b| b == b'\n')
            .ok_or_else(|| Error::format("a name has no end"))?;
        self.at += length + 1;
        String::from_utf8(rest[..length].to_vec()).map_err(|_| Error::format("a name is not UTF-8"))
    }

    fn text(&mut self, length: usize) -> Result<()> {
        let text = String::from_utf8(self.take(length)?.to_vec())
            .map_err(|_| Error::format("a text is not UTF-8"))?;
        self.push(Node::Text(text))
    }

    /// LONG1: an integer of up to 255 bytes, of which up to 8 are supported.
    fn long(&mut self) -> Result<()> {
        let length = self.take(1)?[0] as usize;
        let bytes = self.take(length)?;
        if length > 8 {
            return Err(Error::format(format!("an integer has {length} bytes, more than 8")));
        }
        let fill = if bytes.last().is_some_and(|b| b & 0x80 != 0) { 0xff } else { 0 };
        let all = std::array::from_fn(|i| bytes.get(i).copied().unwrap_or(fill));
        self.push(Node::Int(i64::from_le_bytes(all)))
    }

    fn push(&mut self, node: Node) -> Result<()> {
        self.nodes.push(node);
        self.push_id(self.nodes.len() - 1)
    }

    fn push_id(&mut self, id: Id) -> Result<()> {
        if self.stack.len() >= MOST_STACKED {
            return Err(Error::format(format!("the stack has more than {MOST_STACKED} values")));
        }
        self.stack.push(id);
        Ok(())
    }

    fn pop(&mut self) -> Result<Id> {
        if self.marks.last() == Some(&self.stack.len()) {
            return Err(empty());
        }
        self.stack.pop().ok_or_else(empty)
    }

    fn marked(&mut self) -> Result<Vec<Id>> {
        let start = self
            .marks
            .pop()
            .filter(|&m| m <= self.stack.len())
            .ok_or_else(|| Error::format("no mark on the stack"))?;
        Ok(self.stack.split_off(start))
    }

    fn extend(&mut self, items: Vec<Id>) -> Result<()> {
        let target = *self.stack.last().ok_or_else(empty)?;
        let Node::List(list) = &mut self.nodes[target] else {
            return Err(Error::format("items are appended to a value that is not a list"));
        };
        list.extend(items);
        Ok(())
    }

    fn insert(&mut self, items: &[Id]) -> Result<()> {
        let target = *self.stack.last().ok_or_else(empty)?;
        let Node::Dict(dict) = &mut self.nodes[target] else {
            return Err(Error::format("items are set in a value that is not a dictionary"));
        };
        if !items.len().is_multiple_of(2) {
            return Err(Error::format("a key has no value"));
        }
        dict.extend(items.chunks_exact(2).map(|pair| (pair[0], pair[1])));
        Ok(())
    }

    fn memoize(&mut self, i: u32) -> Result<()> {
        let id = *self.stack.last().ok_or_else(empty)?;
        self.memo.insert(i, id);
        Ok(())
    }

    fn push_memo(&mut self, i: u32) -> Result<()> {
        let id = *self.memo.get(&i).ok_or_else(|| Error::format(format!("memo {i} is not set")))?;
        self.push_id(id)
    }

    fn global(&mut self, module: &str, name: &str) -> Result<()> {
        let full = format!("{module}.{name}");
        let storage = module == "torch"
            && name
                .strip_suffix("Storage")
                .is_some_and(|kind| kind.bytes().all(|b| b.is_ascii_alphanumeric()));
        if !storage && full != "collections.OrderedDict" && !FUNCTIONS.contains(&full.as_str()) {
            let text = format!(
                "the file calls {full:?}; \
                 only tensors, numbers, text and containers of them are read"
            );
            return Err(Error::format(text).help(
                "save model.state_dict() instead of the model, or use the safetensors format",
            ));
        }
        self.push(Node::Global(full))
    }

    fn call(&mut self) -> Result<()> {
        let (arguments, function) = (self.pop()?, self.pop()?);
        let (Node::Tuple(arguments), Node::Global(function)) =
            (&self.nodes[arguments], &self.nodes[function])
        else {
            return Err(Error::format("a call of a value that is not a function"));
        };
        let node = match function.as_str() {
            "collections.OrderedDict" if arguments.is_empty() => Node::Dict(Vec::new()),
            name if FUNCTIONS.contains(&name) && arguments.len() <= 16 => {
                Node::Call(name.to_string(), arguments.clone())
            }
            other => {
                return Err(Error::format(format!(
                    "a call of {other:?} with {} arguments",
                    arguments.len()
                )));
            }
        };
        self.push(node)
    }
}

fn empty() -> Error {
    Error::format("the stack is empty")
}
