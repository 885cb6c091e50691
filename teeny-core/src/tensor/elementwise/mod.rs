//! Elementwise operations: methods, operators, and functions of the user (`map`).

mod map;
mod math;
mod operators;

pub(super) use map::at_least_one;
pub use map::{map, map_n, map_sum};
pub(super) use math::Either;
pub use math::Operand;
