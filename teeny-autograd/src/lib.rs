//! Automatic differentiation as a device that wraps a device.
//!
//! ```text
//!            Tensor on autograd(cpu)                       Tensor on cpu
//!   x ──┐   storage: inner tensor + node      unwrap   ┌──▶ x'
//!   w ──┼─▶ Autograd: matmul ──────────────────────────┼──▶ w'  ─▶ cpu: matmul ─▶ y'
//!       │        │ records, if x or w is tracked        │
//!       │        ▼                                      │
//!       │   node 7: matmul, edges to x and w, a closure over x' and w'
//!       └── y = y' + node 7
//! ```
//!
//! The same code trains and runs: on `Autograd::new(cpu)` operations on tensors that [`requires_grad`](Grad::requires_grad) are recorded, on `cpu` there
//! is no graph and no cost. Constants of the inner device may meet tracked tensors.
//!
//! # How to read the graph
//!
//! A *leaf* is made by `requires_grad`. Every operation that reads a tracked tensor makes a *node*: its id is larger than those of its inputs, its edges
//! say which values it read and through which view, its closure turns the gradient `g` of its result into those of its operands.
//! [`backward`](Grad::backward) takes the pending node with the largest id, runs its closure, brings each gradient back through its view, and adds it to
//! what is pending below, until only leaves are left. There is no recursion.
//!
//! | part | file | in one line |
//! |---|---|---|
//! | values and nodes | `storage`, `node`, `record` | what is remembered, and when |
//! | scalar programs | `derivative`, `symbolic`, `elementwise` | the derivative of a kernel is a kernel |
//! | views | `adjoint` | one function for all of them |
//! | everything else | `rules/` | one closure per structural operation |
//! | going back | `backward`, `gradients`, `hooks` | largest id first |
//! | saying no | `cuts` | which line cut a path |
//!
//! Rules use public `Tensor` operations on inner tensors. So they run on any device, and on an autograd device over another they are recorded themselves:
//! that is the second derivative.
//!
//! # Example
//! ```
//! use teeny_autograd::{Autograd, Grad, no_grad};
//! use teeny_core::{Reference, Result, Tensor};
//! # fn main() -> Result<()> {
//! let device = Autograd::new(Reference::new());
//! // Points on y = 2 x - 1, and a line to fit.
//! let x = Tensor::new([[0.0f32], [1.0], [2.0], [3.0]], &device)?; // (4, 1)
//! let y = x.mul(2.0)?.sub(1.0)?; // (4, 1)
//! let mut w = Tensor::new([[0.0f32]], &device)?.requires_grad_named("w")?; // (1, 1)
//! let mut b = Tensor::new([0.0f32], &device)?.requires_grad_named("b")?; // (1)
//! for _ in 0..200 {
//!     let loss = x.matmul(&w)?.add(&b)?.sub(&y)?.square()?.mean_all()?; // ()
//!     let grads = loss.into_backward()?; // frees the graph on the way down
//!     let step = |p: &Tensor| no_grad(|| p.sub(&grads.get(p)?.mul(0.1)?))?.requires_grad();
//!     (w, b) = (step(&w)?, step(&b)?);
//! }
//! assert!((w.item::<f32>()? - 2.0).abs() < 1e-2 && (b.item::<f32>()? + 1.0).abs() < 1e-2);
//! # Ok(()) }
//! ```
#![forbid(unsafe_code)]

mod adjoint;
mod backward;
mod check;
mod checkpoint;
mod cuts;
mod derivative;
mod device;
mod elementwise;
mod function;
mod grad;
mod gradients;
mod hooks;
mod mode;
mod node;
mod record;
mod rules;
mod storage;
mod symbolic;

pub use check::{Check, Report, gradcheck, gradgradcheck};
pub use checkpoint::checkpoint;
pub use device::Autograd;
pub use function::{Function, Saved, apply};
pub use grad::Grad;
pub use gradients::Gradients;
pub use hooks::Hook;
pub use mode::{enable_grad, is_grad_enabled, no_grad};
