//! The scalar programs between the reductions of a row program.

use super::build::{Builder, Expr};
use super::{Id, Kernel, OpCode};
use crate::dtype::DType;
use crate::error::Result;

/// An input of a [`Part`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Leaf {
    /// An input of the row program.
    Input(usize),
    /// The value of a node of the row program, in its compute type.
    Node(Id),
    /// The position along the row, `I32`.
    Index,
}

/// A scalar program that computes values of a row program.
#[derive(Debug)]
pub(crate) struct Part {
    /// The program. Its run-time parameters are the row program's in their compute dtypes, then the
    /// row length if it is read.
    pub kernel: Kernel,
    /// The inputs of the program.
    pub leaves: Vec<Leaf>,
    /// The types of the parameters that are the length of the row.
    pub lengths: Vec<DType>,
}

impl Kernel {
    /// The scalar program of the nodes `targets` from inputs, the position and the nodes that
    /// `is_known`, among which are all folds. Each output is stored as its target's compute type,
    /// or as the target's type where `rounded`.
    ///
    /// # Errors
    /// If it would have more inputs or outputs than a kernel has.
    pub(crate) fn part(
        &self,
        targets: &[Id],
        is_known: &dyn Fn(Id) -> bool,
        rounded: bool,
    ) -> Result<Part> {
        let builder = Builder::new();
        // As they are computed, like every value of a part.
        let wide = |&dtype: &DType| builder.param(dtype.compute());
        let params: Vec<Expr<'_>> = self.params.iter().map(wide).collect();
        let (mut leaves, mut lengths) = (Vec::new(), Vec::new());
        let needed = self.needed(targets, is_known);
        let mut values: Vec<Option<Expr<'_>>> = vec![None; self.nodes.len()];
        for id in (0..self.nodes.len()).filter(|&id| needed[id]) {
            let (node, wide) = (&self.nodes[id], self.nodes[id].dtype.compute());
            let mut leaf = |leaf, dtype| {
                leaves.push(leaf);
                builder.input(dtype)
            };
            let source = |i: usize| values[node.src[i] as usize].map_or(0, |e| e.id);
            let value = match node.op {
                _ if is_known(id as Id) => leaf(Leaf::Node(id as Id), wide),
                OpCode::Input(i) => leaf(Leaf::Input(i.into()), node.dtype).cast(wide),
                OpCode::Index => leaf(Leaf::Index, node.dtype),
                OpCode::Length => {
                    lengths.push(wide);
                    builder.param(wide)
                }
                OpCode::Param(i) => params[usize::from(i)],
                OpCode::Const(value) => builder.constant(value, wide),
                OpCode::Cast => {
                    // A 16-bit float is rounded before it is converted, and after.
                    let from = self.nodes[node.src[0] as usize].dtype;
                    let x = builder.add(OpCode::Cast, [source(0), 0, 0], from);
                    builder.add(OpCode::Cast, [x.id, 0, 0], node.dtype).cast(wide)
                }
                op => builder.add(op, [source(0), source(1), source(2)], wide),
            };
            values[id] = Some(value);
        }
        let outputs: Vec<Expr<'_>> = targets
            .iter()
            .filter_map(|&id| {
                let dtype = self.nodes[id as usize].dtype;
                values[id as usize].map(|e| if rounded { e.cast(dtype) } else { e })
            })
            .collect();
        let (kernel, read) = builder.finish_pruned(&outputs)?;
        Ok(Part { kernel, leaves: read.into_iter().map(|i| leaves[i]).collect(), lengths })
    }

    /// Which nodes `targets` are computed from, themselves included, if `is_known` ones are not
    /// computed again.
    fn needed(&self, targets: &[Id], is_known: &dyn Fn(Id) -> bool) -> Vec<bool> {
        let mut needed = vec![false; self.nodes.len()];
        targets.iter().for_each(|&id| needed[id as usize] = true);
        for id in (0..self.nodes.len()).rev() {
            if needed[id] && !is_known(id as Id) {
                self.nodes[id].sources().iter().for_each(|&s| needed[s as usize] = true);
            }
        }
        needed
    }

    /// The operations that [`Kernel::part`] would contain besides `targets`, sources before users.
    pub(crate) fn sources(&self, targets: &[Id], is_known: &dyn Fn(Id) -> bool) -> Vec<Id> {
        let needed = self.needed(targets, is_known);
        let is_source = |id: &Id| {
            let computed = self.nodes[*id as usize].op.arity() > 0 && !is_known(*id);
            needed[*id as usize] && computed && !targets.contains(id)
        };
        (0..self.nodes.len() as Id).filter(is_source).collect()
    }

    /// The nodes whose values become inputs of [`Kernel::part`]: folds and reads at a position.
    pub(crate) fn is_reduction(&self, id: Id) -> bool {
        matches!(self.nodes[id as usize].op, OpCode::Fold(_) | OpCode::At)
    }
}
