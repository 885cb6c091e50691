//! Python's pickle format, restricted to data: an interpreter that calls no function.
//!
//! ```text
//! opcodes ──▶ stack of ids ──▶ nodes (an arena: no recursion, shared parts stay shared)
//! ```
//!
//! A pickle is a program that may call any function of any Python module. This interpreter only
//! builds nodes. A call of a function that does not describe a tensor becomes a node that names the
//! function, and its entry cannot be read. It knows the opcodes of protocols 2 to 4 that
//! `torch.save` writes. Source: CPython's `pickletools.py`.

use std::collections::HashMap;
use teeny_core::file::{Budget, quoted};
use teeny_core::{Error, Result};

/// Index of a [`Node`].
pub(super) type Id = u32;

/// A Python value.
#[derive(Debug)]
pub(super) enum Node<'a> {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(&'a str),
    /// A class or function: its module and name.
    Global(Box<str>),
    /// Also the arguments of a call.
    Tuple(Vec<Id>),
    List(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    /// A persistent id: its argument.
    Persistent(Id),
    /// A function that describes a tensor, and its arguments; it is not called.
    Call(Function, Vec<Id>),
    /// The function of any other call; it is not called.
    OtherCall(Box<str>),
    /// A value of a kind that is not read.
    Other(&'static str),
}

/// Functions that describe a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    /// (storage, offset, sizes, strides, ..); the class of the storage names the dtype.
    TensorV2,
    /// (storage, offset, sizes, strides, requires_grad, hooks, dtype, ..).
    TensorV3,
    /// (tensor, requires_grad, hooks).
    Parameter,
}

const FUNCTIONS: [(&str, Function); 3] = [
    ("torch._utils._rebuild_tensor_v2", Function::TensorV2),
    ("torch._utils._rebuild_tensor_v3", Function::TensorV3),
    ("torch._utils._rebuild_parameter", Function::Parameter),
];

/// The limit of the stack; files of tensors stay far below it.
const MAX_STACK_VALUES: usize = 1 << 20;

/// Memory for an id: a growing list has room for up to twice its items.
const ID: usize = 2 * size_of::<Id>();

/// Runs a pickle; returns the nodes and the id of the result.
pub(super) fn run<'a>(bytes: &'a [u8], budget: &mut Budget) -> Result<(Vec<Node<'a>>, Id)> {
    let mut machine = Machine {
        bytes,
        at: 0,
        nodes: Vec::new(),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: HashMap::new(),
        budget,
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

struct Machine<'a, 'b> {
    bytes: &'a [u8],
    at: usize,
    nodes: Vec<Node<'a>>,
    stack: Vec<Id>,
    /// The stack length at each mark.
    marks: Vec<u32>,
    memo: HashMap<u32, Id>,
    budget: &'b mut Budget,
}

impl<'a> Machine<'a, '_> {
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
                let v = self.short()?;
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
            b'G' => {
                let v = f64::from_be_bytes(self.array()?);
                self.push(Node::Float(v))?;
            }
            0x8a | 0x8c | b'C' | 0x8b | b'X' | b'B' => {
                let is_short = matches!(op, 0x8a | 0x8c | b'C');
                let length = if is_short { self.short()? } else { self.count()? } as usize;
                match op {
                    0x8a | 0x8b => self.long(length)?,
                    0x8c | b'X' => self.text(length)?,
                    _ => self.bytes(length)?,
                }
            }
            b'(' => {
                self.budget.charge(ID)?;
                self.marks.push(self.stack.len() as u32);
            }
            0x8f => self.push(Node::Other("a set"))?,
            0x90 => {
                self.marked()?;
            }
            0x91 => {
                self.marked()?;
                self.push(Node::Other("a set"))?;
            }
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
            b'q' | b'r' => {
                let i = if op == b'q' { self.short()? } else { self.count()? };
                self.memoize(i)?;
            }
            0x94 => self.memoize(self.memo.len() as u32)?,
            b'h' | b'j' => {
                let i = if op == b'h' { self.short()? } else { self.count()? };
                self.push_memo(i)?;
            }
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.global(module, name)?;
            }
            0x93 => self.stacked_global()?,
            b'Q' => {
                let argument = self.pop()?;
                self.push(Node::Persistent(argument))?;
            }
            // NEWOBJ has a class for the function
            b'R' | 0x81 => self.call()?,
            0x92 => {
                self.pop()?; // NEWOBJ_EX: arguments by keyword
                self.call()?;
            }
            b'b' => self.attributes()?,
            other => {
                return Err(Error::format(format!(
                    "opcode 0x{other:02x} is not one that files of tensors use"
                )));
            }
        }
        Ok(None)
    }

    /// A global whose module and name are on the stack.
    fn stacked_global(&mut self) -> Result<()> {
        let (name, module) = (self.pop()?, self.pop()?);
        let (Node::Text(module), Node::Text(name)) = (self.node(module), self.node(name)) else {
            return Err(Error::format("a name is not text"));
        };
        let (module, name) = (*module, *name);
        self.global(module, name)
    }

    /// Attributes of an ordered dictionary: the versions of its modules, which are not needed.
    fn attributes(&mut self) -> Result<()> {
        self.pop()?;
        match self.top()? {
            Node::Dict(_) | Node::OtherCall(_) => Ok(()),
            _ => Err(Error::format("cannot set attributes of a value that is not a dictionary")),
        }
    }

    /// A number of one byte.
    fn short(&mut self) -> Result<u32> {
        Ok(self.take(1)?[0].into())
    }

    /// A number of four bytes.
    fn count(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
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

    fn line(&mut self) -> Result<&'a str> {
        let rest = self.bytes.get(self.at..).unwrap_or(&[]);
        let length = rest
            .iter()
            .take(1000)
            .position(|&b| b == b'\n')
            .ok_or_else(|| Error::format("a name has no end"))?;
        self.at += length + 1;
        std::str::from_utf8(&rest[..length]).map_err(|_| Error::format("a name is not UTF-8"))
    }

    fn text(&mut self, length: usize) -> Result<()> {
        let text = std::str::from_utf8(self.take(length)?)
            .map_err(|_| Error::format("a text is not UTF-8"))?;
        self.push(Node::Text(text))
    }

    fn bytes(&mut self, length: usize) -> Result<()> {
        self.take(length)?;
        self.push(Node::Other("bytes"))
    }

    /// An integer of `length` bytes, of which up to 8 are supported.
    fn long(&mut self, length: usize) -> Result<()> {
        let bytes = self.take(length)?;
        if length > 8 {
            return self.push(Node::Other("an integer of more than 8 bytes"));
        }
        let fill = if bytes.last().is_some_and(|b| b & 0x80 != 0) { 0xff } else { 0 };
        let all = std::array::from_fn(|i| bytes.get(i).copied().unwrap_or(fill));
        self.push(Node::Int(i64::from_le_bytes(all)))
    }

    fn node(&self, id: Id) -> &Node<'a> {
        &self.nodes[id as usize]
    }

    /// The node on top of the stack.
    fn top(&mut self) -> Result<&mut Node<'a>> {
        let id = *self.stack.last().ok_or_else(empty)?;
        Ok(&mut self.nodes[id as usize])
    }

    fn push(&mut self, node: Node<'a>) -> Result<()> {
        self.budget.charge(2 * size_of::<Node>())?;
        self.nodes.push(node);
        self.push_id(self.nodes.len() as Id - 1)
    }

    fn push_id(&mut self, id: Id) -> Result<()> {
        if self.stack.len() >= MAX_STACK_VALUES {
            return Err(Error::format(format!(
                "the stack has more than {MAX_STACK_VALUES} values"
            )));
        }
        // on the stack, and later in a list
        self.budget.charge(2 * ID)?;
        self.stack.push(id);
        Ok(())
    }

    fn pop(&mut self) -> Result<Id> {
        if self.marks.last() == Some(&(self.stack.len() as u32)) {
            return Err(empty());
        }
        self.stack.pop().ok_or_else(empty)
    }

    fn marked(&mut self) -> Result<Vec<Id>> {
        let start = self
            .marks
            .pop()
            .filter(|&m| m as usize <= self.stack.len())
            .ok_or_else(|| Error::format("no mark on the stack"))?;
        Ok(self.stack.split_off(start as usize))
    }

    fn extend(&mut self, items: Vec<Id>) -> Result<()> {
        match self.top()? {
            Node::List(list) => list.extend(items),
            Node::OtherCall(_) => {}
            _ => return Err(Error::format("cannot append items to a value that is not a list")),
        }
        Ok(())
    }

    fn insert(&mut self, items: &[Id]) -> Result<()> {
        if !items.len().is_multiple_of(2) {
            return Err(Error::format("a key has no value"));
        }
        match self.top()? {
            Node::Dict(dict) => dict.extend(items.chunks_exact(2).map(|pair| (pair[0], pair[1]))),
            Node::OtherCall(_) => {}
            _ => return Err(Error::format("cannot set items in a value that is not a dictionary")),
        }
        Ok(())
    }

    fn memoize(&mut self, i: u32) -> Result<()> {
        let id = *self.stack.last().ok_or_else(empty)?;
        // a growing table of pairs
        self.budget.charge(4 * ID)?;
        self.memo.insert(i, id);
        Ok(())
    }

    fn push_memo(&mut self, i: u32) -> Result<()> {
        let id = *self.memo.get(&i).ok_or_else(|| Error::format(format!("memo {i} is not set")))?;
        self.push_id(id)
    }

    fn global(&mut self, module: &str, name: &str) -> Result<()> {
        self.budget.charge(module.len() + name.len() + 64)?;
        self.push(Node::Global(format!("{module}.{name}").into()))
    }

    fn call(&mut self) -> Result<()> {
        let (arguments, function) = (self.pop()?, self.pop()?);
        let (Node::Tuple(arguments), Node::Global(function)) =
            (self.node(arguments), self.node(function))
        else {
            return Err(Error::format("cannot call a value that is not a function"));
        };
        let known = FUNCTIONS.iter().find(|(name, _)| **name == **function);
        let node = match known {
            Some((_, known)) if arguments.len() <= 16 => Node::Call(*known, arguments.clone()),
            Some(_) => {
                return Err(Error::format(format!(
                    "cannot call {} with {} arguments",
                    quoted(function),
                    arguments.len()
                )));
            }
            None if **function == *"collections.OrderedDict" && arguments.is_empty() => {
                Node::Dict(Vec::new())
            }
            None => Node::OtherCall(function.clone()),
        };
        // the copies of the name or of the arguments
        self.budget.charge(match &node {
            Node::Call(_, arguments) => arguments.len() * ID,
            Node::OtherCall(function) => function.len() + 64,
            _ => 0,
        })?;
        self.push(node)
    }
}

fn empty() -> Error {
    Error::format("the stack is empty")
}
