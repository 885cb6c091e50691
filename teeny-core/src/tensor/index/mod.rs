//! Indexing: `x.index(s![..])` and its assignment, and reading and writing by index tensors.
//!
//! `subscript` turns Rust's syntax into items, `indexing` gives them their meaning for a shape,
//! `advanced` and `assign` read and write the elements.

mod subscript;

mod indexing;

mod advanced;

mod assign;

mod gather_scatter;

mod scatter_reduce;

mod nonzero;

pub(crate) use advanced::flat_positions;
pub use scatter_reduce::{BagMode, ScatterReduce};
pub use subscript::{Ellipsis, IntoIndex, NewAxis, Subscript};
