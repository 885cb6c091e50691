//! Indexing: `x.index(s![..])` and its assignment, and reading and writing by index tensors.

mod gather_scatter;
mod indexing;
mod subscript;

pub(super) use gather_scatter::integers;
pub(super) use indexing::{broadcasts, place};
pub use subscript::{Ellipsis, IntoIndex, NewAxis, Subscript};
