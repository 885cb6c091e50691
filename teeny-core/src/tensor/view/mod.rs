//! Shape operations: views, which share the storage, and rearrangements, which copy.

mod concat;
mod pad;
mod rearrange;
mod reshape;

pub use pad::PadMode;
pub use reshape::SliceRange;
pub(super) use reshape::{no_expand, sliced};
