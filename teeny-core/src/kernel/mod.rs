//! Scalar programs: the representation of elementwise work for all devices, derivatives and
//! fusions.
//!
//! A [`Kernel`] is a small typed program in static single assignment form, run at every index of
//! the output. A single `add` is a program of one operation, AdamW's update one of a dozen
//! operations and three outputs. Devices read `nodes` in order: a node's sources always come before
//! it.
//!
//! ```text
//! (x + b).gelu()     %0 = input 0      %2 = add %0 %1        …      outputs %9
//!                    %1 = input 1      %3 = mul %2 const 0.7071
//! ```
//!
//! The table in `ops` lists the operations, [`OpCode`] is one of them; `group` has the laws that
//! they obey. [`build`] makes kernels
//! (hash-consing, types, promotion), [`simplify`](self) shrinks them while they are built, [`eval`]
//! defines each operation, [`table`] keeps the kernels of single operations.

pub mod build;
mod errors;
pub mod eval;
mod expression;
// methods beside the operators: `a.div(b)` inside `map`, as on tensors
#[allow(clippy::should_implement_trait)]
pub mod functions;
mod group;
mod hash;
mod named;
pub mod op_code;
pub(crate) mod ops;
mod parts;
mod row_functions;
pub mod rows;
mod simplify;
mod special;
pub mod table;

pub use named::RowFunction;
pub use op_code::{Arithmetic, Bitwise, Comparison, FloatFunction, OpCode, Rounding, SignFunction};
pub(crate) use parts::Leaf;
pub use rows::{Extent, Fold};

use crate::dtype::DType;
use hash::NodeHasher;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::OnceLock;

/// The most tensors a kernel reads.
pub const MAX_INPUTS: usize = 8;
/// The most tensors a kernel writes.
pub const MAX_OUTPUTS: usize = 4;

/// The number of a node in a kernel.
pub type Id = u16;

/// One step of a program: an operation, the nodes it reads and the type it yields.
///
/// Only the first `op.arity()` sources are used; the rest are 0. Apart from `Cast` (any source
/// type) and `Where` (whose first source is a bool) all sources of a node have one type, which is
/// also the node's unless the operation is a predicate. Nodes of type `F16` and `BF16` are computed
/// in f32 and not rounded before they are written to an output or pass a `Cast`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpNode {
    /// The operation.
    pub op: OpCode,
    /// The nodes it reads.
    pub src: [Id; 3],
    /// The type of the result.
    pub dtype: DType,
}

impl OpNode {
    /// The sources that are read.
    #[inline]
    pub fn sources(&self) -> &[Id] {
        &self.src[..self.op.arity()]
    }
}

/// In two words or three.
impl Hash for OpNode {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        let [a, b, c] = self.src.map(u64::from);
        state.write_u64(a | b << 16 | c << 32 | (self.dtype as u64) << 48);
        self.op.hash(state);
    }
}

/// A scalar program with its inputs, run-time parameters and outputs. Immutable; compared by
/// content, hashed once.
#[derive(Clone)]
pub struct Kernel {
    inputs: Vec<DType>,
    params: Vec<DType>,
    nodes: Vec<OpNode>,
    outputs: Vec<Id>,
    /// The inputs, as bits, and the outputs, after them, that have one value a row.
    row_values: u16,
    /// See [`Kernel::is_pointwise`].
    pointwise: bool,
    /// See [`Kernel::row_function`].
    function: OnceLock<Option<RowFunction>>,
    hash: u64,
}

impl Kernel {
    /// `row_values` has a bit for each input and, from bit [`MAX_INPUTS`] on, for each output that
    /// has one value a row.
    pub(crate) fn new(
        inputs: Vec<DType>,
        params: Vec<DType>,
        nodes: Vec<OpNode>,
        outputs: Vec<Id>,
        row_values: u16,
    ) -> Kernel {
        let mut hasher = NodeHasher::default();
        (&inputs, &params, &nodes, &outputs).hash(&mut hasher);
        let pointwise = row_values == 0 && !nodes.iter().any(|node| node.op.is_of_rows());
        if !pointwise {
            row_values.hash(&mut hasher);
        }
        let (hash, function) = (hasher.finish(), OnceLock::new());
        Kernel { inputs, params, nodes, outputs, row_values, pointwise, function, hash }
    }

    /// The types of the tensors read.
    #[inline]
    pub fn inputs(&self) -> &[DType] {
        &self.inputs
    }

    /// The types of the numbers given at each launch.
    #[inline]
    pub fn params(&self) -> &[DType] {
        &self.params
    }

    /// The program, sources before users. Every node is needed by an output.
    #[inline]
    pub fn nodes(&self) -> &[OpNode] {
        &self.nodes
    }

    /// The nodes that are written to memory.
    #[inline]
    pub fn outputs(&self) -> &[Id] {
        &self.outputs
    }

    /// The type of output `i`.
    #[inline]
    pub fn output_dtype(&self, i: usize) -> DType {
        self.nodes[self.outputs[i] as usize].dtype
    }

    /// The operation of a program that has exactly one, on leaves: a device runs it as a direct
    /// loop.
    #[inline]
    pub fn single(&self) -> Option<&OpNode> {
        let last = self.nodes.last()?;
        let leaves = &self.nodes[..self.nodes.len() - 1];
        let only = self.outputs.len() == 1
            && self.outputs[0] as usize == leaves.len()
            && last.op.arity() > 0
            && leaves.iter().all(|n| n.op.arity() == 0);
        only.then_some(last)
    }

    /// True if the program reads input `i`.
    pub fn reads(&self, i: usize) -> bool {
        self.nodes.iter().any(|n| n.op == OpCode::Input(i as u8))
    }

    /// If output `i` is input `j` unchanged: `j`. Such an output needs no work.
    pub fn passes_through(&self, i: usize) -> Option<usize> {
        match self.nodes[self.outputs[i] as usize].op {
            OpCode::Input(j) => Some(j as usize),
            _ => None,
        }
    }

    /// A hash of the program; for caches, which then compare whole kernels.
    #[inline]
    pub fn content_hash(&self) -> u64 {
        self.hash
    }
}

impl PartialEq for Kernel {
    fn eq(&self, other: &Kernel) -> bool {
        self.hash == other.hash
            && self.nodes == other.nodes
            && self.outputs == other.outputs
            && self.inputs == other.inputs
            && self.params == other.params
            && self.row_values == other.row_values
    }
}
impl Eq for Kernel {}
impl Hash for Kernel {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash.hash(state);
    }
}

/// One node per line: `%3: f32 = mul %2 %1`.
impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (id, node) in self.nodes.iter().enumerate() {
            write!(f, "%{id}: {} = {}", node.dtype, node.op.name())?;
            match node.op {
                OpCode::Input(i) | OpCode::Param(i) => write!(f, " {i}")?,
                OpCode::Const(value) => write!(f, " {value}")?,
                _ => {}
            }
            for source in node.sources() {
                write!(f, " %{source}")?;
            }
            writeln!(f)?;
        }
        let outputs = self.outputs.iter().map(|o| format!("%{o}")).collect::<Vec<_>>().join(" ");
        write!(f, "outputs {outputs}")
    }
}
