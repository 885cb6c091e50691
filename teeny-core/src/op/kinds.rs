//! The variants of ops: which reduction, scan and scatter mode, which order of a sort.

use crate::dtype::DType;
use crate::options::named;

named! {
    /// How the elements along the reduced axes are combined.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum ReduceOp {
        /// The sum, accumulated in a wider type or in blocks; 0 of no elements. Types: all but
        /// bool.
        Sum = "sum",
        /// The product; 1 of no elements. Types: all but bool.
        Prod = "prod",
        /// The largest; NaN if any is. Needs an element.
        Max = "max",
        /// The smallest; NaN if any is. Needs an element.
        Min = "min",
        /// The position (`I32`) of the first largest along the one axis; the first NaN wins. Needs
        /// an element.
        ArgMax = "argmax",
        /// The position (`I32`) of the first smallest along the one axis; the first NaN wins. Needs
        /// an element.
        ArgMin = "argmin",
        /// True if any bool is; false of no elements. Bool only.
        Any = "any",
        /// True if all bools are; true of no elements. Bool only.
        All = "all",
    }
}

impl ReduceOp {
    /// The dtype of the output for elements of `dtype`.
    pub const fn output(self, dtype: DType) -> DType {
        match self {
            ReduceOp::Sum | ReduceOp::Prod | ReduceOp::Max | ReduceOp::Min => dtype,
            ReduceOp::ArgMax | ReduceOp::ArgMin => DType::I32,
            ReduceOp::Any | ReduceOp::All => DType::Bool,
        }
    }

    /// True for the positions, which reduce exactly one axis.
    pub const fn is_arg(self) -> bool {
        matches!(self, ReduceOp::ArgMax | ReduceOp::ArgMin)
    }
}

named! {
    /// How a scan accumulates along its axis. Types: all but bool.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum ScanOp {
        /// Running sum, the present element included.
        Sum = "cumsum",
        /// Running product, the present element included.
        Prod = "cumprod",
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

/// How [`Op::Scatter`](super::Op::Scatter) combines an element of `src` with the destination's.
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
