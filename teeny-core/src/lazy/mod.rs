//! Recording: a device that runs nothing until a result is needed.
//!
//! ```text
//! Autograd::new(Lazy::new(device))
//!
//!   x.matmul(&w)? ─► Node { op, operands, outputs } ─► the list of the device      nothing runs
//!   y.to_vec()?   ─► what somebody still holds, in recorded order ─► device        then y is read
//! ```
//!
//! `device` is the [`Device`](crate::Device) itself; it appends nodes to the list of `stream`, whose
//! operands and outputs are the values of `value`. `run` executes a list. A tensor holds a
//! `LazyStorage`, nodes hold only the value inside: so a value that no tensor holds any more and that
//! no needed node reads is never computed.

mod device;
mod run;
mod stream;
mod value;

pub use device::{Lazy, LazyOptions, LazyStats};
