//! Shape operations: views, which share the storage, and rearrangements, which copy.
//!
//! `reshape`, `axes` and `slice` make views by methods of [`Layout`](crate::Layout); `concat`,
//! `repeat` and `pad` copy.

mod reshape;

mod axes;

mod slice;

mod concat;

mod stack;

mod repeat;

mod pad;

pub use pad::PadMode;
pub(crate) use pad::framed;
pub use slice::SliceRange;
pub(super) use slice::{place, sliced};
