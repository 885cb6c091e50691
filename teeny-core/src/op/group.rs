//! The groups of operations: how a result depends on the operands.

use super::recorded::Recorded;

/// What an operation does with its operands' elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpGroup {
    /// Makes elements from numbers alone.
    Leaf,
    /// A scalar program at every index.
    Map,
    /// Removes axes.
    Reduce,
    /// Running results along an axis.
    Scan,
    /// Sums of products: matmul and convolutions.
    Product,
    /// Elements at other places, unchanged.
    Movement,
    /// Places that are known only from the operands' elements.
    Index,
    /// Numbers that differ each time.
    Random,
    /// Stands for several others, its definition.
    Fused,
    /// An algorithm of the host or of a library.
    Opaque,
}

impl Recorded {
    /// The group of the operation.
    pub(crate) fn group(&self) -> OpGroup {
        match self {
            Recorded::Elementwise { kernel, .. } if kernel.inputs().is_empty() => OpGroup::Leaf,
            Recorded::Elementwise { .. } => OpGroup::Map,
            Recorded::Reduce { .. } | Recorded::ReduceKernel { .. } => OpGroup::Reduce,
            Recorded::Scan { .. } | Recorded::CumMax { .. } => OpGroup::Scan,
            Recorded::Matmul
            | Recorded::Conv { .. }
            | Recorded::ConvInputGrad { .. }
            | Recorded::ConvWeightGrad { .. }
            | Recorded::MatmulKernel { .. }
            | Recorded::ConvKernel { .. } => OpGroup::Product,
            Recorded::CopyInto { .. }
            | Recorded::Contiguous
            | Recorded::Cat { .. }
            | Recorded::Pad { .. }
            | Recorded::Tri { .. } => OpGroup::Movement,
            Recorded::Gather { .. }
            | Recorded::Scatter { .. }
            | Recorded::Sort { .. }
            | Recorded::TopK { .. }
            | Recorded::Positions { .. } => OpGroup::Index,
            Recorded::Random { .. } => OpGroup::Random,
            Recorded::ElementwiseMany { .. }
            | Recorded::Rows { .. }
            | Recorded::MaxPool { .. }
            | Recorded::MaxPoolGrad { .. }
            | Recorded::AvgPool { .. }
            | Recorded::Attention { .. }
            | Recorded::AttentionGrad { .. } => OpGroup::Fused,
            Recorded::Linalg { .. } => OpGroup::Opaque,
        }
    }
}
