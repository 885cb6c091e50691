//! The variants of ops: which reduction, scan and scatter mode, which order of a sort.

use crate::dtype::DType;

/// How the elements along the reduced axes are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReduceOp {
    /// The sum, accumulated in a wider type or in blocks; 0 of no elements. Types: all but bool.
    Sum,
    /// The product; 1 of no elements. Types: all but bool.
    Prod,
    /// The largest; NaN if any is. Needs an element.
    Max,
    /// The smallest; NaN if any is. Needs an element.
    Min,
    /// The position (`I32`) of the first largest along the one axis; the first NaN wins. Needs an
    /// element.
    ArgMax,
    /// The position (`I32`) of the first smallest along the one axis; the first NaN wins. Needs an
    /// element.
    ArgMin,
    /// True if any bool is; false of no elements. Bool only.
    Any,
    /// True if all bools are; true of no elements. Bool only.
    All,
}

impl ReduceOp {
    /// Every reduction.
    pub const ALL: [ReduceOp; 8] = [
        ReduceOp::Sum,
        ReduceOp::Prod,
        ReduceOp::Max,
        ReduceOp::Min,
        ReduceOp::ArgMax,
        ReduceOp::ArgMin,
        ReduceOp::Any,
        ReduceOp::All,
    ];

    /// The dtype of the output for elements of `dtype`.
    pub const fn output(self, dtype: DType) -> DType {
        match self {
            ReduceOp::Sum | ReduceOp::Prod | ReduceOp::Max | ReduceOp::Min => dtype,
            ReduceOp::ArgMax | ReduceOp::ArgMin => DType::I32,
            ReduceOp::Any | ReduceOp::All => DType::Bool,
        }
    }

    /// The name of the reduction as a `Tensor` method.
    pub const fn name(self) -> &'static str {
        match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Prod => "prod",
            ReduceOp::Max => "max",
            ReduceOp::Min => "min",
            ReduceOp::ArgMax => "argmax",
            ReduceOp::ArgMin => "argmin",
            ReduceOp::Any => "any",
            ReduceOp::All => "all",
        }
    }

    /// True for the positions, which reduce exactly one axis.
    pub const fn is_arg(self) -> bool {
        matches!(self, ReduceOp::ArgMax | ReduceOp::ArgMin)
    }
}

/// How a scan accumulates along its axis. Types: all but bool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScanOp {
    /// Running sum, the present element included.
    Sum,
    /// Running product, the present element included.
    Prod,
}

impl ScanOp {
    /// The name of the scan as a `Tensor` method.
    pub const fn name(self) -> &'static str {
        match self {
            ScanOp::Sum => "cumsum",
            ScanOp::Prod => "cumprod",
        }
    }
}

/// The order of sorted elements. NaN counts as the largest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SortOrder {
    /// The smallest first: `torch.sort(x)`.
    Ascending,
    /// The largest first: `torch.sort(x, descending=True)`.
    Descending,
}

/// Which elements `topk` selects and a running extremum keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extremum {
    /// The largest: `torch.topk(x, k)`, `torch.cummax`.
    Largest,
    /// The smallest: `torch.topk(x, k, largest=False)`, `torch.cummin`.
    Smallest,
}

impl Extremum {
    /// The order that sorts these elements to the front.
    pub const fn order(self) -> SortOrder {
        match self {
            Extremum::Largest => SortOrder::Descending,
            Extremum::Smallest => SortOrder::Ascending,
        }
    }
}

/// How [`Op::Scatter`](super::Op::Scatter) combines an element of `src` with that of the
/// destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScatterMode {
    /// Replaces; where positions repeat, the last in row-major order wins.
    Set,
    /// Adds, in row-major order of the source: deterministic.
    Add,
    /// Keeps the larger; NaN wins.
    Max,
    /// Keeps the smaller; NaN wins.
    Min,
}
