//! [`Forward`]: a device that computes directional derivatives along with values.
//!
//! ```text
//! Dual { value, tangent }     x + ε v          f(x + ε v) = f(x) + ε J v     one pass, no graph
//! ```
//!
//! It wraps a device as [`Autograd`](crate::Autograd) does, which it may wrap or be wrapped by:
//! forward over reverse is a Hessian-vector product, with one ε for each level. An op runs on the
//! values of its operands; [`rules`] then compute the tangents of its outputs, with tensors of the
//! inner device too.
//!
//! The tangents:
//!
//! - of kernels: a kernel, and of row programs a row program, from the table of derivatives
//!   (`symbolic`, `elementwise`);
//! - of copies, sums, concatenation, gather, scatter by setting or adding, mean pooling: the same
//!   operation on the tangent;
//! - of matrix products, convolution and its gradients: the product rule;
//! - of extrema, max pooling, sorting: the tangent at the positions chosen; among equals its mean,
//!   as the gradient is shared;
//! - of attention and of its gradient: by the definition in primitives;
//! - of solving and factoring matrices: by the backward rule, which is linear in the gradient;
//! - of positions, comparisons, integers, new values: none.

mod assign;
mod elementwise;
mod linalg;
mod symbolic;

use crate::dual::{Dual, tangent, value};
use crate::duals::Duals;
use crate::elementwise::Over;
use crate::rules::{self, attention::recorded_grad};
use crate::storage::own;
use elementwise::has_tangents;
use std::fmt;
use std::future::ready;
use std::sync::Arc;
use teeny_core::context::enter;
use teeny_core::device::common;
use teeny_core::{
    DType, Device, DeviceInfo, DeviceRef, Error, Fill, Op, Outputs, ReadFuture, ReduceOp, Result,
    Stats, StorageRef, Tensor, ToDevice, WaitFuture,
};

/// A device for forward-mode differentiation: tensors with a tangent give results with a tangent,
/// the directional derivative.
///
/// [`crate::jvp`] is the short form; use the device itself for functions of which intermediate
/// values are needed. [`crate::no_grad`] has no effect on it. An
/// [`attention`](Tensor::attention) of operands with tangents stores its matrix of scores.
///
/// # Example
/// ```
/// use teeny_autograd::Forward;
/// use teeny_core::{Reference, Result, Tensor};
/// # fn main() -> Result<()> {
/// let x = Tensor::new([3.0f64, 4.0], &Reference::new())?; // (2)
/// let device = Forward::new(&x);
/// let x = device.dual(&x, &x.ones_like()?)?; // (2), with the tangent (1, 1)
/// let y = x.square()?.sum_all()?; // ()
/// let (value, tangent) = device.unpack(&y)?;
/// assert_eq!(value.item::<f64>()?, 25.0);
/// assert_eq!(tangent.unwrap().item::<f64>()?, 14.0); // 2 x · v
/// # Ok(()) }
/// ```
///
/// Equivalent: `torch.autograd.forward_ad`.
#[doc(alias = "forward_ad")]
pub struct Forward {
    inner: DeviceRef,
}

impl Forward {
    /// A forward-mode device over `inner`.
    pub fn new(inner: impl ToDevice) -> Arc<Forward> {
        Arc::new(Forward { inner: inner.to_device() })
    }

    /// The elements of `x` with the tangent `tangent`: a tensor of this device. Both are on this
    /// device or one that it wraps, of one float dtype and shape; a tangent that `x` had is
    /// replaced.
    ///
    /// # Errors
    /// [`teeny_core::ErrorKind::Gradient`] if dtypes or shapes differ or are not floats; if a
    /// tensor is on a device that this one does not wrap.
    #[track_caller]
    pub fn dual(self: &Arc<Self>, x: &Tensor, tangent: &Tensor) -> Result<Tensor> {
        let _op = enter("dual");
        if x.shape() != tangent.shape() || x.dtype() != tangent.dtype() || !x.dtype().is_float() {
            let what = format!(
                "a tangent of {} {} does not fit a value of {} {}",
                tangent.dtype(),
                tangent.shape(),
                x.dtype(),
                x.shape()
            );
            return Err(Error::gradient(what)
                .help("a value and its tangent have one shape and one type of floats"));
        }
        let inner = |x: &Tensor| -> Result<Tensor> { own(value(&self.lifted(x)?)?) };
        let storage = Dual::storage(inner(x)?, Some(inner(tangent)?))?;
        Tensor::from_result(storage, *x.shape(), x.dtype(), self.clone())
    }

    /// The value of `y` and its tangent, tensors of the inner device: `None` if no tensor that `y`
    /// was computed from has a tangent.
    ///
    /// # Errors
    /// If `y` is on a device that is not this one, wrapped by it or around it.
    #[track_caller]
    pub fn unpack(self: &Arc<Self>, y: &Tensor) -> Result<(Tensor, Option<Tensor>)> {
        let _op = enter("unpack");
        let y = self.lifted(y)?;
        Ok((value(&y)?, tangent(&y)?))
    }

    /// `x` on this device.
    fn lifted(self: &Arc<Self>, x: &Tensor) -> Result<Tensor> {
        let device: DeviceRef = self.clone();
        common(&device, x.device())?;
        x.to(&device)
    }

    /// Runs `op` on the values of `operands`, of which some have a tangent; returns its outputs
    /// with their tangents.
    fn run(&self, op: &mut Op<'_>, operands: &Duals) -> Result<Vec<(Tensor, Option<Tensor>)>> {
        match *op {
            Op::Elementwise { kernel, params, shape, .. } => {
                let over = Over { shape: *shape, axes: Box::default() };
                elementwise::elementwise(&self.inner, operands, kernel, params, &over)
            }
            Op::Rows { program, params, shape, axes, .. } => {
                let over = Over { shape: *shape, axes: axes.into() };
                elementwise::elementwise(&self.inner, operands, program, params, &over)
            }
            Op::ReduceKernel { kernel, params, shape, op: ReduceOp::Sum, axes, .. } => {
                elementwise::sum_kernel(&self.inner, operands, kernel, params, shape, axes)
                    .map(|y| vec![y])
            }
            _ => {
                let inner = operands.inner();
                let values = op.with_operands(&inner).tensor_list(&self.inner)?;
                let tangents = match *op {
                    Op::Linalg { op, .. } => linalg::linalg(operands, op, &values)?,
                    _ => rules::tangents(&op.with_operands(&inner), operands, &values)?,
                };
                Ok(values.into_iter().zip(tangents).collect())
            }
        }
    }
}

impl fmt::Debug for Forward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forward").field("inner", &self.inner).finish()
    }
}

// A method that is not passed on would act on this wrapper alone.
#[deny(clippy::missing_trait_methods)]
impl Device for Forward {
    fn info(&self) -> DeviceInfo {
        let DeviceInfo { name, description } = self.inner.info();
        DeviceInfo { name: format!("forward({name})"), description }
    }
    fn upload(&self, bytes: &[u8], dtype: DType) -> Result<StorageRef> {
        Dual::constant(self.inner.upload(bytes, dtype)?, &self.inner)
    }
    fn upload_with(
        &self,
        len: usize,
        dtype: DType,
        step: usize,
        fill: &Fill<'_>,
    ) -> Result<StorageRef> {
        Dual::constant(self.inner.upload_with(len, dtype, step, fill)?, &self.inner)
    }
    fn download(&self, x: &Tensor) -> Result<Vec<u8>> {
        self.inner.download(&value(x)?)
    }
    fn download_async(&self, x: &Tensor) -> ReadFuture {
        match value(x) {
            Ok(x) => self.inner.download_async(&x),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }
    fn execute(&self, op: &mut Op<'_>) -> Result<Option<Outputs>> {
        match *op {
            // The op owns its destination.
            Op::CopyInto { ref mut dst, view, src } => {
                let dst = dst.take().ok_or_else(|| Error::internal("the destination was taken"))?;
                let storage = assign::copy_into(&self.inner, dst, view, src)?;
                return Ok(Some(storage.into()));
            }
            // The storage is a `Dual`, not one of the inner device.
            Op::ElementwiseInPlace { .. } => return Ok(None),
            _ => {}
        }
        let operands = Duals::of(&op.operands())?;
        if !operands.any_tangent() {
            let outputs = op.with_operands(&operands.inner()).run(&self.inner)?;
            return outputs
                .into_iter()
                .map(|y| Dual::constant(y, &self.inner))
                .collect::<Result<Outputs>>()
                .map(Some);
        }
        // As in reverse mode: y and the logsumexp are functions of q, k and v.
        if let Op::AttentionGrad { ref inputs, g, needs, .. } = *op {
            op.outputs()?; // checks the operands
            return recorded_grad(inputs, g, needs).map(Some);
        }
        let has_rule = match op {
            Op::Elementwise { .. } | Op::ReduceKernel { op: ReduceOp::Sum, .. } => true,
            Op::Rows { program, .. } => has_tangents(program, &operands),
            Op::Linalg { .. } => true,
            _ => rules::has_tangent(op)?,
        };
        if !has_rule {
            return Ok(None);
        }
        let outputs = self.run(op, &operands)?;
        outputs
            .into_iter()
            .map(|(y, tangent)| Dual::storage(y, tangent))
            .collect::<Result<Outputs>>()
            .map(Some)
    }
    fn synchronize(&self) -> Result<()> {
        self.inner.synchronize()
    }
    fn synchronize_async(&self) -> WaitFuture {
        self.inner.synchronize_async()
    }
    fn ready_async(&self) -> WaitFuture {
        self.inner.ready_async()
    }
    fn stats(&self) -> Stats {
        self.inner.stats()
    }
    fn flush(&self) {
        self.inner.flush();
    }
    fn prefers_batched_kernels(&self) -> bool {
        self.inner.prefers_batched_kernels()
    }
    fn clear_cache(&self) {
        self.inner.clear_cache();
    }
    fn inner(&self) -> Option<&DeviceRef> {
        Some(&self.inner)
    }
    fn wrap(&self, x: &Tensor) -> Result<StorageRef> {
        Dual::storage(x.clone(), None)
    }
    fn unwrap(&self, x: &Tensor) -> Result<Tensor> {
        value(x)
    }
}
