//! Sorting, unique elements, counts. `Op::Sort` is the only primitive here; `Op::TopK`
//! selects the first of its outputs.

mod sort;

mod unique;

mod histogram;

mod statistics;

pub use sort::Side;
pub use statistics::QuantileMethod;
