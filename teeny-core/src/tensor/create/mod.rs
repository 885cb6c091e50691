//! New tensors: of host data, filled, counted, random. Transfers to the host are in `io`.

mod host_data;

mod fill;

mod random;

mod nested;

pub(super) use host_data::generate;
pub use nested::Nested;
pub use random::permutation;
