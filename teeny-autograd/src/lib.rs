//! Automatic differentiation as a device that wraps a device.
//!
//! ```text
//!   w ──leaf──┐                               loss.backward()?
//!             ├─ matmul ── add ── relu ─ … ─ loss      walks node ids downwards: no recursion
//!   x ────────┘    │                                   each node's rule gives its operands' gradients
//!                  └ Node { id, edges, rule }          adjoint(view) brings them back to whole values
//! ```
//!
//! [`Autograd::new`] wraps any device in one that records an operation if an operand requires a
//! gradient. A tensor on it stands for a tensor of the inner device seen through the same layout,
//! so view operations need no rules: an edge keeps the view, and one function, the adjoint of a
//! strided view, maps a gradient back to the whole value. Elementwise kernels are differentiated
//! symbolically, one rule per `OpCode` (`symbolic`), and the backward of a kernel is a kernel.
//! Rules compute with ordinary tensors of the inner device; if that is an autograd device too,
//! gradients have gradients.
//!
//! # How to read a graph
//!
//! A *leaf* is made by [`requires_grad`](Grad::requires_grad). Every operation that reads a tracked
//! tensor makes a *node*: its id is larger than its inputs' ids, its edges name the values it read
//! and the view of each, and its closure turns the gradient `g` of its result into the gradients of
//! its operands. [`backward`](Grad::backward) takes the pending node with the largest id, runs its
//! closure, maps each gradient back through its view and accumulates it, until only leaves are
//! left. Where a path ends (`detach`, `no_grad`, `argmax`) a *detach point* keeps
//! the line, for the error of [`Gradients::get`].
//!
//! # The other direction
//!
//! [`Forward`] computes derivatives along with the values instead of recording: a pass computes the
//! derivative along one direction, where a backward pass gives the gradient of one number. [`jvp`],
//! [`vjp`], [`jacobian`], [`hvp`] and [`hessian`] take a function and choose.
//!
//! # Example
//! ```
//! use teeny_autograd::{Autograd, Grad};
//! use teeny_core::{Reference, Result, Tensor};
//! # fn main() -> Result<()> {
//! let device = Autograd::new(Reference::new());
//! let w = Tensor::new([[2.0f64, -1.0]], &device)?.requires_grad_named("w")?; // (1, 2)
//! let x = Tensor::new([[3.0f64], [4.0]], &device)?; // (2, 1)
//! let loss = w.matmul(&x)?.square()?.sum_all()?; // (w x)²: ()
//! let grads = loss.backward()?;
//! assert_eq!(grads.get(&w)?.to_vec::<f64>()?, [12.0, 16.0]); // 2 (w x) xᵀ
//! # Ok(()) }
//! ```
//!
//! Read next: `device` (which method goes where), `record` (what is recorded), `backward` (the
//! engine, one page), `forward` (the same without a graph).
#![forbid(unsafe_code)]

mod adjoint;
mod backward;
mod cache;
#[cfg(feature = "conformance")]
pub mod cases;
mod check;
mod checkpoint;
mod composite;
mod derivative;
mod detach_points;
mod detached;
mod device;
mod dual;
mod duals;
mod elementwise;
mod forward;
mod function;
mod functional;
mod grad;
mod gradients;
mod graph;
mod hook_list;
mod hooks;
mod known;
mod mode;
mod nesting;
mod node;
mod record;
mod rules;
mod storage;
mod symbolic;

pub use check::{Check, Report, gradcheck, gradgradcheck};
pub use checkpoint::checkpoint;
pub use detached::{detached, inner_device};
pub use device::Autograd;
pub use forward::Forward;
pub use function::{Function, Saved, apply};
pub use functional::{
    Point, allow_unused, grad, hessian, hvp, jacobian, jacobian_columns, jacobian_rows, jvp, vjp,
};
pub use grad::Grad;
pub use gradients::Gradients;
pub use graph::graph;
pub use hooks::Hook;
pub use mode::{enable_grad, is_grad_enabled, is_recomputing, no_grad};

/// The program of the crate's README must compile and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
