//! [`Autograd`]: a device that computes on the device it wraps and records how.
//!
//! An op runs on the inner device, on the inner tensors of its operands, and a node is recorded if
//! an operand is tracked. Kernels are differentiated symbolically ([`elementwise`]); the rules of
//! all other ops are in [`rules`], by subject.

use crate::cache::Cache;
use crate::detach_points;
use crate::elementwise::{self, Over};
use crate::record::Recorder;
use crate::rules;
use crate::storage::{Tracked, tracked, unwrap};
use crate::symbolic::Derivative;
use std::fmt;
use std::future::ready;
use std::sync::{Arc, LazyLock};
use teeny_core::{
    DType, Device, DeviceInfo, DeviceRef, Fill, Op, Outputs, ReadFuture, Result, Shape, Stats,
    StorageRef, Tensor, ToDevice, WaitFuture,
};

/// A device that records operations on tensors that require gradients. Everything is computed by
/// the device it wraps, which may be another `Autograd`: then gradients have gradients.
///
/// # Example
/// ```
/// use teeny_autograd::{Autograd, Grad};
/// use teeny_core::{Reference, Result, Tensor};
/// # fn main() -> Result<()> {
/// let first = Autograd::new(Reference::new());
/// // gradients on `second` are tensors of `first`, recorded there
/// let second = Autograd::new(first.clone());
/// let x = Tensor::new(1.0f64, &first)?.requires_grad()?; // ()
/// let lifted = x.to(&second)?.requires_grad()?; // ()
/// let slope = lifted.sin()?.backward()?.take(&lifted)?; // cos(x), on `first`
/// let curvature = slope.backward()?.take(&x)?; // -sin(x)
/// assert!((curvature.item::<f64>()? + 1f64.sin()).abs() < 1e-12);
/// # Ok(()) }
/// ```
pub struct Autograd {
    recorder: Recorder,
}

impl Autograd {
    /// An autograd device over `inner`.
    pub fn new(inner: impl ToDevice) -> Arc<Autograd> {
        Arc::new(Autograd { recorder: Recorder::new(inner.to_device(), Cache::default()) })
    }

    /// The device that computes.
    pub(crate) fn inner_device(&self) -> &DeviceRef {
        self.recorder.inner()
    }

    /// A device for one call of a function like [`crate::grad`]: it shares its derivatives with all
    /// others of its kind.
    pub(crate) fn with_shared_cache(inner: impl ToDevice) -> Arc<Autograd> {
        static SHARED: LazyLock<Cache<Derivative>> = LazyLock::new(Cache::default);
        Arc::new(Autograd { recorder: Recorder::new(inner.to_device(), SHARED.clone()) })
    }

    /// How many kernels have had their derivative built: stays the same while a training step
    /// repeats.
    pub fn cached_derivatives(&self) -> usize {
        self.recorder.cached_derivatives()
    }
}

impl fmt::Debug for Autograd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Autograd").field("inner", self.inner_device()).finish_non_exhaustive()
    }
}

/// The outer tensor over `storage`, row-major in the shape, type and device of `like`.
pub(crate) fn from_inner(storage: StorageRef, like: &Tensor) -> Result<Tensor> {
    Tensor::from_result(storage, *like.shape(), like.dtype(), like.device().clone())
}

/// Records for messages that a recorded value leaves the device.
fn note_leaving(x: &Tensor) -> Result<()> {
    if let Some(handle) = &tracked(x)?.handle {
        detach_points::record_move(handle.node.mask, x.numel());
    }
    Ok(())
}

/// Storage of an untracked value.
fn plain(value: Tensor) -> StorageRef {
    Tracked::storage(value, None, Default::default())
}

impl Autograd {
    /// A value that the inner device has.
    fn uploaded(&self, storage: StorageRef) -> Result<StorageRef> {
        let (shape, dtype) = (Shape::new(&[storage.len()])?, storage.dtype());
        Ok(plain(self.recorder.value(storage, shape, dtype)?))
    }
}

// A method that is not passed on would act on this wrapper alone.
#[deny(clippy::missing_trait_methods)]
impl Device for Autograd {
    fn info(&self) -> DeviceInfo {
        let DeviceInfo { name, description } = self.inner_device().info();
        DeviceInfo { name: format!("autograd({name})"), description }
    }
    fn upload(&self, bytes: &[u8], dtype: DType) -> Result<StorageRef> {
        self.uploaded(self.inner_device().upload(bytes, dtype)?)
    }
    fn upload_with(
        &self,
        len: usize,
        dtype: DType,
        step: usize,
        fill: &Fill<'_>,
    ) -> Result<StorageRef> {
        self.uploaded(self.inner_device().upload_with(len, dtype, step, fill)?)
    }
    fn download(&self, x: &Tensor) -> Result<Vec<u8>> {
        note_leaving(x)?;
        self.inner_device().download(&unwrap(x)?)
    }
    fn download_async(&self, x: &Tensor) -> ReadFuture {
        match note_leaving(x).and_then(|()| unwrap(x)) {
            Ok(x) => self.inner_device().download_async(&x),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }
    fn execute(&self, op: &mut Op<'_>) -> Result<Option<Outputs>> {
        match *op {
            Op::Elementwise { kernel, inputs, params, shape } => {
                elementwise::elementwise(&self.recorder, kernel, inputs, params, shape).map(Some)
            }
            Op::Rows { program, inputs, params, shape, axes } => {
                let over = Over { shape: *shape, axes: axes.into() };
                elementwise::rows(&self.recorder, program, inputs, params, &over)
            }
            // A recorded operand keeps its values.
            Op::ElementwiseInPlace { .. } => Ok(None),
            _ => rules::execute(&self.recorder, op),
        }
    }
    fn synchronize(&self) -> Result<()> {
        self.inner_device().synchronize()
    }
    fn synchronize_async(&self) -> WaitFuture {
        self.inner_device().synchronize_async()
    }
    fn ready_async(&self) -> WaitFuture {
        self.inner_device().ready_async()
    }
    fn stats(&self) -> Stats {
        self.inner_device().stats()
    }
    fn flush(&self) {
        self.inner_device().flush();
    }
    fn prefers_batched_kernels(&self) -> bool {
        self.inner_device().prefers_batched_kernels()
    }
    fn clear_cache(&self) {
        self.inner_device().clear_cache();
    }
    fn inner(&self) -> Option<&DeviceRef> {
        Some(self.inner_device())
    }
    fn wrap(&self, x: &Tensor) -> Result<StorageRef> {
        Ok(plain(x.clone()))
    }
    fn unwrap(&self, x: &Tensor) -> Result<Tensor> {
        note_leaving(x)?;
        unwrap(x)
    }
}
