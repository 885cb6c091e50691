//! Elementwise operations: methods (`math`), operators, and closures of the user (`map`). All of
//! them run a [`Kernel`](crate::Kernel) by `kernel`.

mod math;

mod special;

mod map;

mod kernel;

mod operators;

pub(super) use kernel::{broadcast_shape, no_output, run_one};
pub use map::{map, map_n, map_rows, map_sum};
pub(super) use math::Either;
pub use math::Operand;
