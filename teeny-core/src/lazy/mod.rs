//! Recording: a device that runs nothing until a result is needed.
//!
//! ```text
//! Autograd::new(Lazy::new(device))
//!
//!   x.matmul(&w)? ─► Node { op, operands, outputs } ─► the list of the device      nothing runs
//!   y.to_vec()?   ─► the values still held, in recorded order ─► device         then y is read
//! ```
//!
//! `device` is the [`Device`](crate::Device) itself; it appends nodes to the `list`, whose slots
//! are the values of `value`. A tensor holds a `LazyStorage`, the list only the value inside: so a
//! value that no tensor holds and no needed node reads is never computed.
//!
//! A list runs by a plan. The `cache` has the one that was made for a list of the same nodes, or one
//! is made (`plan`): `rules` rewrite a copy of the list, a `graph`, so that equal nodes are one and
//! copies of whole values vanish; `rows` finds row programs that are written out, whatever their
//! spelling. The nodes that remain are fused into groups (`fuse`, `cost`), each of which becomes one
//! kernel (`program`). `run` executes a plan. `capture` keeps the plan of a function whose
//! `recording`s agree and runs it without calling the function, where sizes may depend on a
//! `symbol`; `reads` is what the function depends on beside its inputs.
//!
//! `inspect` has the methods that show a list: as text (`report`) or as a picture (`show`), both by
//! what `describe` says about its nodes.

mod cache;
mod capture;
mod cost;
mod describe;
mod device;
mod fuse;
mod graph;
mod inspect;
mod list;
mod plan;
mod program;
mod reads;
mod recording;
mod replay;
mod report;
mod rows;
mod rules;
mod run;
mod show;
mod symbol;
mod value;

pub use capture::Capture;
pub use device::{Lazy, LazyOptions, LazyStats};
