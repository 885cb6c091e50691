//! Devices around a device that watch what it does: where the time goes, where the first NaN comes
//! from, where two devices disagree.
//!
//! ```text
//! Autograd::new(Trace::new(device))            every operation, forward and backward, with its time, bytes and floating-point operations
//! Autograd::new(Checked::new(device))          stops at the first operation that makes NaN or an infinity
//! Autograd::new(Compare::new(device, other))   stops at the first operation that the two devices carry out differently
//! Autograd::new(Faulty::new(device))           fails the k-th request: for tests of what a program does then
//!
//! call      what a device is asked, as plain data         cost     its bytes and floating-point operations
//! device    a wrapper as a device: method → call          trace  checked  compare  faulty
//! ```
//!
//! Autograd goes outermost: then the backward pass is watched like the forward pass. A wrapper
//! takes tensors of the device it wraps as constants, and [`Tensor::to`](crate::Tensor::to) brings
//! its own back.

mod call;
mod checked;
mod compare;
mod cost;
mod device;
mod faulty;
#[cfg(all(test, feature = "conformance"))]
mod mutants;
mod trace;

pub use checked::{Checked, Checks};
pub use compare::{Compare, Tolerance};
pub use faulty::{Faulty, Lasting, Request};
pub use trace::{Span, Trace};

use crate::context::{self, OpContext};

/// The operation in progress for a reader: `relu at src/main.rs:4`, or
/// `relu at src/main.rs:4, backward`.
fn place(context: Option<OpContext>) -> String {
    match context {
        Some(OpContext { op, location, later }) => {
            format!(
                "{op} at {}:{}{}",
                location.file(),
                location.line(),
                if later { ", backward" } else { "" }
            )
        }
        None => "outside any operation".into(),
    }
}

/// True while a gradient is computed.
fn backward() -> bool {
    context::current().is_some_and(|context| context.later)
}
