//! Row programs: scalar programs whose values can be reduced along a row and used again.
//!
//! A node of a row program has an [`Extent`]: it differs along the row, or is one value per row. A
//! per-element node that reads a per-row value broadcasts it; this is the only broadcasting.
//!
//! ```text
//! softmax      %0 = input 0      %1 = max %0      %2 = sub %0 %1      %3 = exp %2
//!              %4 = sum %3       %5 = div %3 %4                       outputs %5
//! ```
//!
//! A kernel without these operations is a scalar program, which has no rows
//! ([`Kernel::is_pointwise`]). [`Op::Rows`](crate::Op::Rows) runs a row program; its definition, in
//! kernels and reductions, follows from the program.

use super::{Kernel, MAX_INPUTS, OpCode, OpNode};
use crate::options::named;

named! {
    /// How a row program reduces a row. Of no elements as [`ReduceOp`](crate::ReduceOp).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Fold {
        /// The sum, accumulated as [`ReduceOp::Sum`](crate::ReduceOp::Sum) is.
        Sum = "sum",
        /// The product.
        Prod = "prod",
        /// The largest; NaN if any is.
        Max = "max",
        /// The smallest; NaN if any is.
        Min = "min",
        /// True if any bool is.
        Any = "any",
        /// True if all bools are.
        All = "all",
    }
}

/// Whether a value of a row program differs along the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extent {
    /// It differs along the row.
    Element,
    /// One value a row.
    Row,
}

/// The extent of `node`, given the extents of the inputs and of the earlier nodes.
pub(super) fn extent(node: &OpNode, row_inputs: &[bool], before: &[Extent]) -> Extent {
    let is_element = match node.op {
        OpCode::Input(i) => !row_inputs.get(usize::from(i)).copied().unwrap_or(false),
        OpCode::Index => true,
        OpCode::Fold(_) | OpCode::At => false,
        _ => node.sources().iter().any(|&s| before[s as usize] == Extent::Element),
    };
    if is_element { Extent::Element } else { Extent::Row }
}

impl Kernel {
    /// True for a scalar program: no operation of rows, no input or output of one value a row.
    #[inline]
    pub fn is_pointwise(&self) -> bool {
        self.pointwise
    }

    /// Whether input `i` has an element at each position of a row, or one for all.
    #[inline]
    pub fn input_extent(&self, i: usize) -> Extent {
        if self.row_values >> i & 1 == 1 { Extent::Row } else { Extent::Element }
    }

    /// Whether output `i` has an element at each position of a row, or one for all.
    #[inline]
    pub fn output_extent(&self, i: usize) -> Extent {
        if self.row_values >> (MAX_INPUTS + i) & 1 == 1 { Extent::Row } else { Extent::Element }
    }

    /// The extent of each node.
    pub fn extents(&self) -> Vec<Extent> {
        let rows: Vec<bool> =
            (0..self.inputs.len()).map(|i| self.input_extent(i) == Extent::Row).collect();
        let mut extents = Vec::with_capacity(self.nodes.len());
        self.nodes.iter().for_each(|node| extents.push(extent(node, &rows, &extents)));
        extents
    }

    /// For each node: the number of reductions on the longest path to it.
    pub fn levels(&self) -> Vec<usize> {
        let mut levels: Vec<usize> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let below = node.sources().iter().map(|&s| levels[s as usize]).max().unwrap_or(0);
            levels.push(below + usize::from(matches!(node.op, OpCode::Fold(_))));
        }
        levels
    }
}
