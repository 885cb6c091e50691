//! [`Autograd`]: a device that computes on the device it wraps and records how.
//!
//! This file only says which rule belongs to which operation; the rules are in `rules/`, by
//! subject. Every method unwraps its inputs (the inner storage seen through the outer layout), asks
//! the inner device, and records a node if an input is tracked.

use crate::cuts;
use crate::elementwise::{self, Cache};
use crate::record::record;
use crate::rules;
use crate::storage::{Tracked, tracked, unwrap};
use crate::symbolic::{Derivative, derive};
use std::any::Any;
use std::fmt;
use std::sync::{Arc, LazyLock};
use teeny_core::{
    AttentionInputs, DType, Device, DeviceInfo, DeviceRef, Distribution, Kernel, Key, Layout,
    LinalgOp, Norm, Outputs, ReduceOp, Result, Scalar, ScanOp, ScatterMode, Shape, Stats,
    StorageRef, Tensor, ToDevice, Window,
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
/// let second = Autograd::new(first.clone()); // gradients on `second` are tensors of `first`, recorded there
/// let x = Tensor::new(1.0f64, &first)?.requires_grad()?; // ()
/// let lifted = x.to(&second)?.requires_grad()?; // ()
/// let slope = lifted.sin()?.backward()?.take(&lifted)?; // cos(x), on `first`
/// let curvature = slope.backward()?.take(&x)?; // -sin(x)
/// assert!((curvature.item::<f64>()? + 1f64.sin()).abs() < 1e-12);
/// # Ok(()) }
/// ```
pub struct Autograd {
    inner: DeviceRef,
    cache: Cache<Derivative>,
}

impl Autograd {
    /// An autograd device over `inner`.
    pub fn new(inner: impl ToDevice) -> Arc<Autograd> {
        Arc::new(Autograd { inner: inner.to_device(), cache: Cache::default() })
    }

    /// The device that does the work.
    pub(crate) fn inner_device(&self) -> &DeviceRef {
        &self.inner
    }

    /// A device for one call of a function like [`crate::grad`]: it shares its derivatives with all
    /// others of its kind.
    pub(crate) fn passing(inner: impl ToDevice) -> Arc<Autograd> {
        static SHARED: LazyLock<Cache<Derivative>> = LazyLock::new(Cache::default);
        Arc::new(Autograd { inner: inner.to_device(), cache: SHARED.clone() })
    }

    /// The derivative of `kernel` for the operands in `needs`.
    pub(crate) fn derivative(
        &self,
        kernel: &Arc<Kernel>,
        needs: u8,
        stored: bool,
    ) -> Result<Arc<Derivative>> {
        self.cache.at_hand(kernel, needs, stored, || derive(kernel, needs, stored))
    }

    /// How many kernels have had their derivative built: stays the same while a training step
    /// repeats.
    pub fn cached_derivatives(&self) -> usize {
        self.cache.len()
    }

    /// A result of the inner device as a tensor: row-major `shape`.
    pub(crate) fn value(&self, storage: StorageRef, shape: Shape, dtype: DType) -> Result<Tensor> {
        Tensor::from_result(storage, shape, dtype, self.inner.clone())
    }
}

impl fmt::Debug for Autograd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Autograd").field("inner", &self.inner).finish_non_exhaustive()
    }
}

/// The outer tensor over `storage`, row-major in the shape, type and device of `like`.
pub(crate) fn from_inner(storage: StorageRef, like: &Tensor) -> Result<Tensor> {
    Tensor::from_result(storage, *like.shape(), like.dtype(), like.device().clone())
}

/// Remembers for messages that a recorded value leaves the device.
fn note_leaving(x: &Tensor) -> Result<()> {
    if let Some(handle) = &tracked(x)?.handle {
        cuts::leaves(handle.node.mask, x.numel());
    }
    Ok(())
}

/// Storage of an untracked value.
fn plain(value: Tensor) -> StorageRef {
    Tracked::storage(value, None, Default::default())
}

// A method with a default would be recorded step by step, and never reach the kernel of the device
// below.
#[deny(clippy::missing_trait_methods)]
impl Device for Autograd {
    fn info(&self) -> DeviceInfo {
        let inner = self.inner.info();
        DeviceInfo { name: format!("autograd({})", inner.name), description: inner.description }
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn inner(&self) -> Option<&DeviceRef> {
        Some(&self.inner)
    }
    fn wrap(&self, x: &Tensor) -> Result<StorageRef> {
        Ok(plain(x.clone()))
    }
    fn unwrap(&self, x: &Tensor) -> Result<Tensor> {
        note_leaving(x)?;
        unwrap(x)
    }
    fn stats(&self) -> Stats {
        self.inner.stats()
    }
    fn clear_cache(&self) {
        self.inner.clear_cache();
    }
    fn synchronize(&self) -> Result<()> {
        self.inner.synchronize()
    }

    // ---- no rule: where values come from and go to
    // ----------------------------------------------------------------------------------------------

    fn upload(&self, bytes: &[u8], dtype: DType) -> Result<StorageRef> {
        let numel = bytes.len() / dtype.size();
        Ok(plain(self.value(self.inner.upload(bytes, dtype)?, Shape::new(&[numel])?, dtype)?))
    }
    fn download(&self, x: &Tensor) -> Result<Vec<u8>> {
        note_leaving(x)?;
        self.inner.download(&unwrap(x)?)
    }
    fn random(
        &self,
        distribution: Distribution,
        shape: &Shape,
        dtype: DType,
        key: Key,
    ) -> Result<StorageRef> {
        Ok(plain(self.value(self.inner.random(distribution, shape, dtype, key)?, *shape, dtype)?))
    }

    // ---- one line each: the rules are in the files named
    // ----------------------------------------------------------------------------------------

    fn elementwise(
        &self,
        kernel: &Arc<Kernel>,
        inputs: &[&Tensor],
        params: &[Scalar],
        shape: &Shape,
    ) -> Result<Outputs> {
        elementwise::elementwise(self, kernel, inputs, params, shape)
    }
    fn contiguous(&self, x: &Tensor) -> Result<StorageRef> {
        let value = self.value(self.inner.contiguous(&unwrap(x)?)?, *x.shape(), x.dtype())?;
        record([x], value, |_| |g: &Tensor| Ok([Some(g.clone())]))
    }
    fn reduce(&self, op: ReduceOp, x: &Tensor, axes: &[usize]) -> Result<StorageRef> {
        rules::reduce::reduce(self, op, x, axes)
    }
    // What is recorded keeps its operands.
    fn elementwise_over(
        &self,
        _: &Arc<Kernel>,
        _: &mut StorageRef,
        _: usize,
        _: Option<&Tensor>,
        _: &[Scalar],
        _: &Shape,
    ) -> Result<bool> {
        Ok(false)
    }
    fn reduce_kernel(
        &self,
        kernel: &Arc<Kernel>,
        inputs: &[&Tensor],
        params: &[Scalar],
        shape: &Shape,
        op: ReduceOp,
        axes: &[usize],
    ) -> Result<StorageRef> {
        rules::reduce::reduce_kernel(self, kernel, inputs, params, shape, op, axes)
    }
    fn scan(&self, op: ScanOp, x: &Tensor, axis: usize) -> Result<StorageRef> {
        rules::scan::scan(self, op, x, axis)
    }
    fn matmul(&self, lhs: &Tensor, rhs: &Tensor) -> Result<StorageRef> {
        rules::matmul::matmul(self, lhs, rhs)
    }
    fn gather(&self, x: &Tensor, axis: usize, index: &Tensor) -> Result<StorageRef> {
        rules::index::gather(self, x, axis, index)
    }
    fn scatter(
        &self,
        mode: ScatterMode,
        x: &Tensor,
        axis: usize,
        index: &Tensor,
        src: &Tensor,
    ) -> Result<StorageRef> {
        rules::index::scatter(self, mode, x, axis, index, src)
    }
    fn copy_into(&self, dst: StorageRef, view: &Layout, src: &Tensor) -> Result<StorageRef> {
        rules::assign::copy_into(self, dst, view, src)
    }
    fn sort(&self, x: &Tensor, axis: usize, descending: bool) -> Result<(StorageRef, StorageRef)> {
        rules::index::sort(self, x, axis, descending)
    }
    fn cat(&self, tensors: &[&Tensor], axis: usize, shape: &Shape) -> Result<StorageRef> {
        rules::join::cat(self, tensors, axis, shape)
    }
    fn softmax(&self, x: &Tensor, axis: usize) -> Result<StorageRef> {
        rules::softmax::softmax(self, x, axis)
    }
    fn log_softmax(&self, x: &Tensor, axis: usize) -> Result<StorageRef> {
        rules::softmax::log_softmax(self, x, axis)
    }
    fn softmax_grad(&self, y: &Tensor, g: &Tensor, axis: usize) -> Result<StorageRef> {
        rules::softmax::softmax_grad(self, y, g, axis)
    }
    fn log_softmax_grad(&self, y: &Tensor, g: &Tensor, axis: usize) -> Result<StorageRef> {
        rules::softmax::log_softmax_grad(self, y, g, axis)
    }
    fn cross_entropy(
        &self,
        x: &Tensor,
        targets: &Tensor,
        ignored: Option<i64>,
    ) -> Result<StorageRef> {
        rules::softmax::cross_entropy(self, x, targets, ignored)
    }
    fn cross_entropy_grad(
        &self,
        x: &Tensor,
        targets: &Tensor,
        ignored: Option<i64>,
        g: &Tensor,
    ) -> Result<StorageRef> {
        rules::softmax::cross_entropy_grad(self, x, targets, ignored, g)
    }
    fn norm(
        &self,
        norm: Norm,
        x: &Tensor,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> Result<StorageRef> {
        rules::norm::norm(self, norm, x, weight, bias, eps)
    }
    fn norm_grad(
        &self,
        norm: Norm,
        x: &Tensor,
        weight: Option<&Tensor>,
        g: &Tensor,
        eps: f64,
    ) -> Result<StorageRef> {
        rules::norm::norm_grad(self, norm, x, weight, g, eps)
    }
    fn conv(&self, x: &Tensor, weight: &Tensor, window: &Window) -> Result<StorageRef> {
        rules::conv::conv(self, x, weight, window)
    }
    fn conv_input_grad(
        &self,
        g: &Tensor,
        weight: &Tensor,
        window: &Window,
        x_shape: &Shape,
    ) -> Result<StorageRef> {
        rules::conv::conv_input_grad(self, g, weight, window, x_shape)
    }
    fn conv_weight_grad(
        &self,
        g: &Tensor,
        x: &Tensor,
        window: &Window,
        weight_shape: &Shape,
    ) -> Result<StorageRef> {
        rules::conv::conv_weight_grad(self, g, x, window, weight_shape)
    }
    fn max_pool(
        &self,
        x: &Tensor,
        size: &[usize],
        window: &Window,
    ) -> Result<(StorageRef, StorageRef)> {
        rules::pool::max_pool(self, x, size, window)
    }
    fn max_pool_grad(
        &self,
        g: &Tensor,
        positions: &Tensor,
        x_shape: &Shape,
        spatial: usize,
    ) -> Result<StorageRef> {
        rules::pool::max_pool_grad(self, g, positions, x_shape, spatial)
    }
    fn avg_pool(&self, x: &Tensor, size: &[usize], window: &Window) -> Result<StorageRef> {
        rules::pool::avg_pool(self, x, size, window)
    }
    fn attention(&self, inputs: &AttentionInputs<'_>) -> Result<(StorageRef, StorageRef)> {
        rules::attention::attention(self, inputs)
    }
    fn attention_grad(
        &self,
        inputs: &AttentionInputs<'_>,
        y: &Tensor,
        lse: &Tensor,
        g: &Tensor,
        needs: [bool; 3],
    ) -> Result<[Option<StorageRef>; 3]> {
        rules::attention::attention_grad(self, inputs, y, lse, g, needs)
    }
    fn linalg(&self, op: LinalgOp, inputs: &[&Tensor]) -> Result<Outputs> {
        rules::linalg::linalg(self, op, inputs)
    }
}
