//! [`Forward`]: a device that carries directional derivatives along with the values it computes.
//!
//! ```text
//! Dual { value, tangent }     x + ε v          f(x + ε v) = f(x) + ε J v     one pass, nothing is recorded
//! ```
//!
//! It wraps a device as [`Autograd`](crate::Autograd) does, which it may wrap or be wrapped by:
//! forward over reverse is a Hessian-vector product, each level has its own ε. This file says which
//! operation has which rule; the rules compute with tensors of the inner device.
//!
//! | operation | its tangent |
//! |---|---|
//! | kernels | a kernel, from the table of slopes (`symbolic`, `elementwise`) |
//! | copies, sums, joining, gather, scatter by setting or adding, mean pooling | the same operation on the tangent |
//! | matrix products, convolution and its gradients | the product rule |
//! | extrema, max pooling, sorting | the tangent at the places chosen; among equals its mean, as the gradient is shared |
//! | softmax, normalisation, cross-entropy | by way of the backward kernel: the Jacobians of the first two are symmetric, that of the last is a row |
//! | attention, the backward passes of softmax, normalisation and attention | by way of the definition in primitives |
//! | solving and factoring matrices | the rule of the gradient, which is linear, turned over |
//! | positions, comparisons, integers, new values | none |

mod elementwise;
mod fused;
mod rules;
pub(crate) mod storage;
mod symbolic;

use crate::storage::own;
use std::any::Any;
use std::fmt;
use std::sync::Arc;
use storage::{Dual, flat, tangent, value};
use teeny_core::context::enter;
use teeny_core::device::common;
use teeny_core::{
    AttentionInputs, DType, Device, DeviceInfo, DeviceRef, Distribution, Error, Kernel, Key,
    Layout, LinalgOp, Norm, Outputs, ReduceOp, Result, Scalar, ScanOp, ScatterMode, Shape, Stats,
    StorageRef, Tensor, ToDevice, Window,
};

/// A device for forward-mode differentiation: tensors with a tangent give results with a tangent,
/// the directional derivative.
///
/// [`crate::jvp`] is the short form; use the device itself for functions whose values are needed on
/// the way. [`crate::no_grad`] does not concern it. An [`attention`](Tensor::attention) whose
/// operands move is computed with its matrix of scores.
///
/// # Example
/// ```
/// use teeny_autograd::Forward;
/// use teeny_core::{Reference, Result, Tensor};
/// # fn main() -> Result<()> {
/// let x = Tensor::new([3.0f64, 4.0], &Reference::new())?; // (2)
/// let device = Forward::new(&x);
/// let x = device.dual(&x, &x.ones_like()?)?; // (2), moving along (1, 1)
/// let y = x.square()?.sum_all()?; // ()
/// let (value, tangent) = device.unpack(&y)?;
/// assert_eq!(value.item::<f64>()?, 25.0);
/// assert_eq!(tangent.unwrap().item::<f64>()?, 14.0); // 2 x · v
/// # Ok(()) }
/// ```
///
/// Equivalent: `torch.autograd.forward_ad`.
pub struct Forward {
    inner: DeviceRef,
}

impl Forward {
    /// A forward-mode device over `inner`.
    pub fn new(inner: impl ToDevice) -> Arc<Forward> {
        Arc::new(Forward { inner: inner.to_device() })
    }

    /// The device that does the work.
    pub(crate) fn inner_device(&self) -> &DeviceRef {
        &self.inner
    }

    /// The elements of `x`, moving along `tangent`: a tensor of this device. Both are of this
    /// device or below it, of one float type and shape; a tangent that `x` had is replaced.
    ///
    /// # Errors
    /// [`teeny_core::ErrorKind::Gradient`] if types or shapes differ or are not floats; if a tensor
    /// is on a device that is not below this one.
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
        let below = |x: &Tensor| -> Result<Tensor> { own(value(&self.lifted(x)?)?) };
        let storage = Dual::storage(below(x)?, Some(below(tangent)?))?;
        Tensor::from_result(storage, *x.shape(), x.dtype(), self.clone())
    }

    /// The value of `y` and its tangent, tensors of the inner device: `None` if nothing that `y`
    /// was computed from moves.
    ///
    /// # Errors
    /// If `y` is on a device that is not this one, below it or around it.
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

    /// The storage of a result of the inner device, of type `dtype`, and its tangent.
    fn result(
        &self,
        storage: StorageRef,
        dtype: DType,
        tangent: Option<Tensor>,
    ) -> Result<StorageRef> {
        let shape = Shape::new(&[storage.len()])?;
        Dual::storage(Tensor::from_result(storage, shape, dtype, self.inner.clone())?, tangent)
    }
}

impl fmt::Debug for Forward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forward").field("inner", &self.inner).finish()
    }
}

/// The tangents of two operands of a product, applied by its two sides.
fn product_rule(
    lhs: &Tensor,
    rhs: &Tensor,
    left: impl FnOnce(&Tensor, &Tensor) -> Result<Tensor>,
    right: impl FnOnce(&Tensor, &Tensor) -> Result<Tensor>,
) -> Result<Option<Tensor>> {
    let left = tangent(lhs)?.map(|t| left(&t, &value(rhs)?)).transpose()?;
    let right = tangent(rhs)?.map(|t| right(&value(lhs)?, &t)).transpose()?;
    rules::total([left, right])
}

impl Device for Forward {
    fn info(&self) -> DeviceInfo {
        let inner = self.inner.info();
        DeviceInfo { name: format!("forward({})", inner.name), description: inner.description }
    }
    fn as_any(&self) -> &dyn Any {
        self
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
    fn stats(&self) -> Stats {
        self.inner.stats()
    }
    fn clear_cache(&self) {
        self.inner.clear_cache();
    }
    fn synchronize(&self) -> Result<()> {
        self.inner.synchronize()
    }

    // ---- no tangent: where values come from and go to
    // -------------------------------------------------------------------------------------------

    fn upload(&self, bytes: &[u8], dtype: DType) -> Result<StorageRef> {
        self.result(self.inner.upload(bytes, dtype)?, dtype, None)
    }
    fn download(&self, x: &Tensor) -> Result<Vec<u8>> {
        self.inner.download(&value(x)?)
    }
    fn random(
        &self,
        distribution: Distribution,
        shape: &Shape,
        dtype: DType,
        key: Key,
    ) -> Result<StorageRef> {
        self.result(self.inner.random(distribution, shape, dtype, key)?, dtype, None)
    }

    // ---- kernels
    // --------------------------------------------------------------------------------------------------------------------------------

    fn elementwise(
        &self,
        kernel: &Arc<Kernel>,
        inputs: &[&Tensor],
        params: &[Scalar],
        shape: &Shape,
    ) -> Result<Outputs> {
        elementwise::elementwise(self, kernel, inputs, params, shape)
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
        elementwise::reduce_kernel(self, kernel, inputs, params, shape, op, axes)
    }

    // ---- the same operation on the tangent
    // ------------------------------------------------------------------------------------------------------

    fn contiguous(&self, x: &Tensor) -> Result<StorageRef> {
        self.result(self.inner.contiguous(&value(x)?)?, x.dtype(), tangent(x)?)
    }
    fn gather(&self, x: &Tensor, axis: usize, index: &Tensor) -> Result<StorageRef> {
        let index = value(index)?;
        let tangent = tangent(x)?.map(|t| t.gather(axis as isize, &index)).transpose()?;
        self.result(self.inner.gather(&value(x)?, axis, &index)?, x.dtype(), tangent)
    }
    fn cat(&self, tensors: &[&Tensor], axis: usize, shape: &Shape) -> Result<StorageRef> {
        let values = tensors.iter().map(|x| value(x)).collect::<Result<Vec<_>>>()?;
        let y = self.inner.cat(&values.iter().collect::<Vec<_>>(), axis, shape)?;
        self.result(y, tensors[0].dtype(), rules::cat(tensors, axis)?)
    }
    fn copy_into(&self, dst: StorageRef, view: &Layout, src: &Tensor) -> Result<StorageRef> {
        rules::copy_into(self, dst, view, src)
    }
    fn max_pool_grad(
        &self,
        g: &Tensor,
        positions: &Tensor,
        x_shape: &Shape,
        spatial: usize,
    ) -> Result<StorageRef> {
        let positions = value(positions)?;
        let spread = |g: &Tensor| self.inner.max_pool_grad(g, &positions, x_shape, spatial);
        let tangent = tangent(g)?.map(|t| flat(spread(&t)?, &t)).transpose()?;
        self.result(spread(&value(g)?)?, g.dtype(), tangent)
    }
    fn avg_pool(&self, x: &Tensor, size: &[usize], window: &Window) -> Result<StorageRef> {
        let tangent = tangent(x)?.map(|t| t.avg_pool(size, window)).transpose()?;
        self.result(self.inner.avg_pool(&value(x)?, size, window)?, x.dtype(), tangent)
    }

    // ---- the product rule
    // -----------------------------------------------------------------------------------------------------------------------

    fn matmul(&self, lhs: &Tensor, rhs: &Tensor) -> Result<StorageRef> {
        let tangent = product_rule(lhs, rhs, Tensor::matmul, Tensor::matmul)?;
        self.result(self.inner.matmul(&value(lhs)?, &value(rhs)?)?, lhs.dtype(), tangent)
    }
    fn conv(&self, x: &Tensor, weight: &Tensor, window: &Window) -> Result<StorageRef> {
        let conv = |x: &Tensor, w: &Tensor| x.conv(w, window);
        let tangent = product_rule(x, weight, conv, conv)?;
        self.result(self.inner.conv(&value(x)?, &value(weight)?, window)?, x.dtype(), tangent)
    }
    fn conv_input_grad(
        &self,
        g: &Tensor,
        weight: &Tensor,
        window: &Window,
        x_shape: &Shape,
    ) -> Result<StorageRef> {
        let back = |g: &Tensor, w: &Tensor| g.conv_transpose(w, window, &x_shape[2..]);
        let tangent = product_rule(g, weight, back, back)?;
        self.result(
            self.inner.conv_input_grad(&value(g)?, &value(weight)?, window, x_shape)?,
            g.dtype(),
            tangent,
        )
    }
    fn conv_weight_grad(
        &self,
        g: &Tensor,
        x: &Tensor,
        window: &Window,
        weight_shape: &Shape,
    ) -> Result<StorageRef> {
        let back = |g: &Tensor, x: &Tensor| g.conv_weight_grad(x, window, weight_shape);
        let tangent = product_rule(g, x, back, back)?;
        self.result(
            self.inner.conv_weight_grad(&value(g)?, &value(x)?, window, weight_shape)?,
            g.dtype(),
            tangent,
        )
    }

    // ---- choices
    // --------------------------------------------------------------------------------------------------------------------------------

    fn reduce(&self, op: ReduceOp, x: &Tensor, axes: &[usize]) -> Result<StorageRef> {
        rules::reduce(self, op, x, axes)
    }
    fn scan(&self, op: ScanOp, x: &Tensor, axis: usize) -> Result<StorageRef> {
        rules::scan(self, op, x, axis)
    }
    fn scatter(
        &self,
        mode: ScatterMode,
        x: &Tensor,
        axis: usize,
        index: &Tensor,
        src: &Tensor,
    ) -> Result<StorageRef> {
        rules::scatter(self, mode, x, axis, index, src)
    }
    fn sort(&self, x: &Tensor, axis: usize, descending: bool) -> Result<(StorageRef, StorageRef)> {
        let (y, positions) = self.inner.sort(&value(x)?, axis, descending)?;
        let order =
            Tensor::from_result(positions.clone(), *x.shape(), DType::I32, self.inner.clone())?;
        let tangent = tangent(x)?.map(|t| t.gather(axis as isize, &order)).transpose()?;
        Ok((self.result(y, x.dtype(), tangent)?, self.result(positions, DType::I32, None)?))
    }
    fn max_pool(
        &self,
        x: &Tensor,
        size: &[usize],
        window: &Window,
    ) -> Result<(StorageRef, StorageRef)> {
        let (y, positions) = self.inner.max_pool(&value(x)?, size, window)?;
        let tangent =
            tangent(x)?.map(|t| rules::at_winners(&t, &positions, size.len())).transpose()?;
        Ok((self.result(y, x.dtype(), tangent)?, self.result(positions, DType::I32, None)?))
    }

    // ---- fused operations
    // -----------------------------------------------------------------------------------------------------------------------

    fn softmax(&self, x: &Tensor, axis: usize) -> Result<StorageRef> {
        fused::softmax(self, x, axis)
    }
    fn log_softmax(&self, x: &Tensor, axis: usize) -> Result<StorageRef> {
        fused::log_softmax(self, x, axis)
    }
    fn softmax_grad(&self, y: &Tensor, g: &Tensor, axis: usize) -> Result<StorageRef> {
        fused::softmax_grad(self, y, g, axis)
    }
    fn log_softmax_grad(&self, y: &Tensor, g: &Tensor, axis: usize) -> Result<StorageRef> {
        fused::log_softmax_grad(self, y, g, axis)
    }
    fn cross_entropy(
        &self,
        x: &Tensor,
        targets: &Tensor,
        ignored: Option<i64>,
    ) -> Result<StorageRef> {
        fused::cross_entropy(self, x, targets, ignored)
    }
    fn cross_entropy_grad(
        &self,
        x: &Tensor,
        targets: &Tensor,
        ignored: Option<i64>,
        g: &Tensor,
    ) -> Result<StorageRef> {
        fused::cross_entropy_grad(self, x, targets, ignored, g)
    }
    fn norm(
        &self,
        norm: Norm,
        x: &Tensor,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> Result<StorageRef> {
        fused::norm(self, norm, x, weight, bias, eps)
    }
    fn norm_grad(
        &self,
        norm: Norm,
        x: &Tensor,
        weight: Option<&Tensor>,
        g: &Tensor,
        eps: f64,
    ) -> Result<StorageRef> {
        fused::norm_grad(self, norm, x, weight, g, eps)
    }
    fn attention(&self, inputs: &AttentionInputs<'_>) -> Result<(StorageRef, StorageRef)> {
        fused::attention(self, inputs)
    }
    fn attention_grad(
        &self,
        inputs: &AttentionInputs<'_>,
        y: &Tensor,
        lse: &Tensor,
        g: &Tensor,
        needs: [bool; 3],
    ) -> Result<[Option<StorageRef>; 3]> {
        fused::attention_grad(self, inputs, y, lse, g, needs)
    }
    fn linalg(&self, op: LinalgOp, inputs: &[&Tensor]) -> Result<Outputs> {
        rules::linalg(self, op, inputs)
    }
}
