//! Indexing: `x.index(s![..])` and its assignment, and reading and writing by index tensors.

mod subscript;

mod indexing;

mod advanced;

mod assign;

mod gather_scatter;

mod nonzero;

pub(super) use gather_scatter::integers;
pub use subscript::{Ellipsis, IntoIndex, NewAxis, Subscript};
