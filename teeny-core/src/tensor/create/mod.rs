//! New tensors: from host data, filled, counted, random.

mod fill;
mod nested;

pub(crate) use fill::index_end;
pub use fill::permutation;
pub(super) use fill::{generate, wide};
pub use nested::Nested;
