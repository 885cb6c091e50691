//! Automatic differentiation as a device that wraps a device.
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
