//! Wrapper devices for profiling and debugging: time per operation, the first NaN, the first
//! disagreement of two devices.
//!
//! ```text
//! Autograd::new(Trace::new(device))            time, bytes and flops of every operation
//! Autograd::new(Checked::new(device))          stops at the first NaN or infinity
//! Autograd::new(Compare::new(device, other))   stops at the first disagreement
//! Autograd::new(Faulty::new(device))           fails the k-th request, for tests
//!
//! trace  checked  compare  faulty      one device each, a method `execute` that matches the op
//! ```
//!
//! Autograd goes outermost: then the backward pass is watched like the forward pass. A wrapper
//! takes tensors of the device it wraps as constants, and [`Tensor::to`](crate::Tensor::to) unwraps
//! its own.

mod checked;
mod compare;
mod faulty;
mod trace;

pub use checked::{Checked, Checks};
pub use compare::{Compare, Tolerance};
pub use faulty::{Faulty, Lasting, Request};
pub use trace::{Span, Trace, save_events};

use crate::context::{self, OpContext};
use crate::device::DeviceRef;
use crate::error::Result;
use crate::op::{Op, Outputs};
use crate::tensor::Tensor;

/// The tensor of `inner` behind `x`, for a wrapper that uses the storages of `inner`.
fn unwrap(x: &Tensor, inner: &DeviceRef) -> Result<Tensor> {
    Tensor::from_parts(x.storage().clone(), *x.layout(), x.dtype(), inner.clone())
}

/// Runs `op` on `inner`, for a wrapper that uses the storages of `inner`.
fn pass_on(op: &mut Op<'_>, inner: &DeviceRef) -> Result<Outputs> {
    op.run_mapped(inner, &|x| unwrap(x, inner))
}

/// Implements the methods of a [`Device`](crate::Device) that pass through a wrapper unchanged;
/// `$inner` is its field with the wrapped device.
macro_rules! pass_through {
    ($inner:ident: $($method:ident),+) => { $($crate::wrappers::pass_through!(@ $inner $method);)+ };
    (@ $inner:ident inner) => {
        fn inner(&self) -> Option<&$crate::device::DeviceRef> {
            Some(&self.$inner)
        }
    };
    (@ $inner:ident stats) => {
        fn stats(&self) -> $crate::device::Stats {
            self.$inner.stats()
        }
    };
    (@ $inner:ident flush) => {
        fn flush(&self) {
            self.$inner.flush();
        }
    };
    (@ $inner:ident prefers_batched_kernels) => {
        fn prefers_batched_kernels(&self) -> bool {
            self.$inner.prefers_batched_kernels()
        }
    };
    (@ $inner:ident clear_cache) => {
        fn clear_cache(&self) {
            self.$inner.clear_cache();
        }
    };
    (@ $inner:ident synchronize) => {
        fn synchronize(&self) -> $crate::error::Result<()> {
            self.$inner.synchronize()
        }
    };
    (@ $inner:ident synchronize_async) => {
        fn synchronize_async(&self) -> $crate::device::WaitFuture {
            self.$inner.synchronize_async()
        }
    };
    (@ $inner:ident ready_async) => {
        fn ready_async(&self) -> $crate::device::WaitFuture {
            self.$inner.ready_async()
        }
    };
    (@ $inner:ident download_async) => {
        fn download_async(&self, x: &$crate::tensor::Tensor) -> $crate::device::ReadFuture {
            match $crate::wrappers::unwrap(x, &self.$inner) {
                Ok(x) => self.$inner.download_async(&x),
                Err(error) => Box::pin(std::future::ready(Err(error))),
            }
        }
    };
    (@ $inner:ident upload) => {
        fn upload(
            &self,
            bytes: &[u8],
            dtype: $crate::dtype::DType,
        ) -> $crate::error::Result<$crate::storage::StorageRef> {
            self.$inner.upload(bytes, dtype)
        }
    };
    (@ $inner:ident upload_with) => {
        fn upload_with(
            &self,
            len: usize,
            dtype: $crate::dtype::DType,
            step: usize,
            fill: &$crate::device::Fill<'_>,
        ) -> $crate::error::Result<$crate::storage::StorageRef> {
            self.$inner.upload_with(len, dtype, step, fill)
        }
    };
    // for a device that has to see the bytes
    (@ $inner:ident upload_filled) => {
        fn upload_with(
            &self,
            len: usize,
            dtype: $crate::dtype::DType,
            _step: usize,
            fill: &$crate::device::Fill<'_>,
        ) -> $crate::error::Result<$crate::storage::StorageRef> {
            self.upload(&$crate::device::filled(len, dtype, fill)?, dtype)
        }
    };
    (@ $inner:ident download) => {
        fn download(&self, x: &$crate::tensor::Tensor) -> $crate::error::Result<Vec<u8>> {
            self.$inner.download(&$crate::wrappers::unwrap(x, &self.$inner)?)
        }
    };
    (@ $inner:ident wrap) => {
        fn wrap(
            &self,
            x: &$crate::tensor::Tensor,
        ) -> $crate::error::Result<$crate::storage::StorageRef> {
            Ok(x.storage().clone())
        }
    };
    (@ $inner:ident unwrap) => {
        fn unwrap(
            &self,
            x: &$crate::tensor::Tensor,
        ) -> $crate::error::Result<$crate::tensor::Tensor> {
            $crate::wrappers::unwrap(x, &self.$inner)
        }
    };
}
use pass_through;

/// The operation in progress as text: `relu at src/main.rs:4`, or `relu at src/main.rs:4,
/// backward`.
fn place(context: Option<OpContext>) -> String {
    match context {
        Some(OpContext { op, location, later, .. }) => {
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
