//! Every wrapper of this room as a [`Device`]: each method becomes a [`Call`], which the wrapper
//! passes on as it likes.

use super::call::{Call, Storages};
use crate::attention::AttentionInputs;
use crate::device::{
    Device, DeviceInfo, DeviceRef, Norm, Outputs, ReduceOp, ScanOp, ScatterMode, Stats, Window,
};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernel::Kernel;
use crate::layout::Layout;
use crate::linalg::LinalgOp;
use crate::random::{Distribution, Key};
use crate::scalar::Scalar;
use crate::shape::Shape;
use crate::storage::StorageRef;
use crate::tensor::Tensor;
use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

/// What a wrapper adds to the device it wraps. Its tensors have that device's own storages, unless
/// it says otherwise.
pub(super) trait Wrapper: Any + Send + Sync + fmt::Debug {
    /// The registry name, e.g. `trace(cpu)`.
    fn title(&self) -> String;

    /// The device that does the work.
    fn below(&self) -> &DeviceRef;

    /// Has the call carried out.
    fn call(&self, call: &Call<'_>) -> Result<Storages>;

    /// The elements of `x`.
    fn read(&self, x: &Tensor) -> Result<Vec<u8>> {
        self.below().download(&self.lower(x)?)
    }

    /// Returns when everything is done.
    fn wait(&self) -> Result<()> {
        self.below().synchronize()
    }

    /// The storage that stands for `x`, a tensor of the device below.
    fn lift(&self, x: &Tensor) -> Result<StorageRef> {
        Ok(x.storage().clone())
    }

    /// The tensor of the device below that `x` stands for.
    fn lower(&self, x: &Tensor) -> Result<Tensor> {
        Tensor::from_parts(x.storage().clone(), *x.layout(), x.dtype(), self.below().clone())
    }

    /// The one result of a call.
    fn one(&self, call: Call<'_>) -> Result<StorageRef> {
        first(&mut self.call(&call)?.into_iter())
    }

    /// The two results of a call.
    fn two(&self, call: Call<'_>) -> Result<(StorageRef, StorageRef)> {
        let mut storages = self.call(&call)?.into_iter();
        Ok((first(&mut storages)?, first(&mut storages)?))
    }
}

fn first(storages: &mut impl Iterator<Item = Option<StorageRef>>) -> Result<StorageRef> {
    storages.next().flatten().ok_or_else(|| Error::internal("a device gave too few results"))
}

// A method with a default would otherwise run its definition through the wrapper, and never reach
// the kernel of the device below.
#[deny(clippy::missing_trait_methods)]
impl<W: Wrapper> Device for W {
    fn info(&self) -> DeviceInfo {
        DeviceInfo { name: self.title(), description: self.below().info().description }
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn inner(&self) -> Option<&DeviceRef> {
        Some(self.below())
    }
    fn wrap(&self, x: &Tensor) -> Result<StorageRef> {
        self.lift(x)
    }
    fn unwrap(&self, x: &Tensor) -> Result<Tensor> {
        self.lower(x)
    }
    fn stats(&self) -> Stats {
        self.below().stats()
    }
    fn clear_cache(&self) {
        self.below().clear_cache();
    }
    fn synchronize(&self) -> Result<()> {
        self.wait()
    }
    fn download(&self, x: &Tensor) -> Result<Vec<u8>> {
        self.read(x)
    }
    fn upload(&self, bytes: &[u8], dtype: DType) -> Result<StorageRef> {
        self.one(Call::Upload { bytes, dtype })
    }
    fn random(
        &self,
        distribution: Distribution,
        shape: &Shape,
        dtype: DType,
        key: Key,
    ) -> Result<StorageRef> {
        self.one(Call::Random { distribution, shape, dtype, key })
    }
    fn elementwise(
        &self,
        kernel: &Arc<Kernel>,
        inputs: &[&Tensor],
        params: &[Scalar],
        shape: &Shape,
    ) -> Result<Outputs> {
        let mut outputs = Outputs::new();
        self.call(&Call::Elementwise { kernel, inputs, params, shape })?
            .into_iter()
            .flatten()
            .for_each(|storage| outputs.push(storage));
        Ok(outputs)
    }
    // A wrapper sees every result as a new storage.
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
        self.one(Call::ReduceKernel { kernel, inputs, params, shape, op, axes })
    }
    fn reduce(&self, op: ReduceOp, x: &Tensor, axes: &[usize]) -> Result<StorageRef> {
        self.one(Call::Reduce { op, x, axes })
    }
    fn scan(&self, op: ScanOp, x: &Tensor, axis: usize) -> Result<StorageRef> {
        self.one(Call::Scan { op, x, axis })
    }
    fn matmul(&self, lhs: &Tensor, rhs: &Tensor) -> Result<StorageRef> {
        self.one(Call::Matmul { lhs, rhs })
    }
    fn gather(&self, x: &Tensor, axis: usize, index: &Tensor) -> Result<StorageRef> {
        self.one(Call::Gather { x, axis, index })
    }
    fn scatter(
        &self,
        mode: ScatterMode,
        x: &Tensor,
        axis: usize,
        index: &Tensor,
        src: &Tensor,
    ) -> Result<StorageRef> {
        self.one(Call::Scatter { mode, x, axis, index, src })
    }
    fn copy_into(&self, dst: StorageRef, view: &Layout, src: &Tensor) -> Result<StorageRef> {
        self.one(Call::CopyInto { dst: Cell::new(Some(dst)), view, src })
    }
    fn sort(&self, x: &Tensor, axis: usize, descending: bool) -> Result<(StorageRef, StorageRef)> {
        self.two(Call::Sort { x, axis, descending })
    }
    fn contiguous(&self, x: &Tensor) -> Result<StorageRef> {
        self.one(Call::Contiguous { x })
    }
    fn cat(&self, tensors: &[&Tensor], axis: usize, shape: &Shape) -> Result<StorageRef> {
        self.one(Call::Cat { tensors, axis, shape })
    }
    fn softmax(&self, x: &Tensor, axis: usize) -> Result<StorageRef> {
        self.one(Call::Softmax { x, axis })
    }
    fn log_softmax(&self, x: &Tensor, axis: usize) -> Result<StorageRef> {
        self.one(Call::LogSoftmax { x, axis })
    }
    fn softmax_grad(&self, y: &Tensor, g: &Tensor, axis: usize) -> Result<StorageRef> {
        self.one(Call::SoftmaxGrad { y, g, axis })
    }
    fn log_softmax_grad(&self, y: &Tensor, g: &Tensor, axis: usize) -> Result<StorageRef> {
        self.one(Call::LogSoftmaxGrad { y, g, axis })
    }
    fn cross_entropy(
        &self,
        x: &Tensor,
        targets: &Tensor,
        ignored: Option<i64>,
    ) -> Result<StorageRef> {
        self.one(Call::CrossEntropy { x, targets, ignored })
    }
    fn cross_entropy_grad(
        &self,
        x: &Tensor,
        targets: &Tensor,
        ignored: Option<i64>,
        g: &Tensor,
    ) -> Result<StorageRef> {
        self.one(Call::CrossEntropyGrad { x, targets, ignored, g })
    }
    fn norm(
        &self,
        norm: Norm,
        x: &Tensor,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> Result<StorageRef> {
        self.one(Call::Norm { norm, x, weight, bias, eps })
    }
    fn norm_grad(
        &self,
        norm: Norm,
        x: &Tensor,
        weight: Option<&Tensor>,
        g: &Tensor,
        eps: f64,
    ) -> Result<StorageRef> {
        self.one(Call::NormGrad { norm, x, weight, g, eps })
    }
    fn conv(&self, x: &Tensor, weight: &Tensor, window: &Window) -> Result<StorageRef> {
        self.one(Call::Conv { x, weight, window })
    }
    fn conv_input_grad(
        &self,
        g: &Tensor,
        weight: &Tensor,
        window: &Window,
        x_shape: &Shape,
    ) -> Result<StorageRef> {
        self.one(Call::ConvInputGrad { g, weight, window, x_shape })
    }
    fn conv_weight_grad(
        &self,
        g: &Tensor,
        x: &Tensor,
        window: &Window,
        weight_shape: &Shape,
    ) -> Result<StorageRef> {
        self.one(Call::ConvWeightGrad { g, x, window, weight_shape })
    }
    fn max_pool(
        &self,
        x: &Tensor,
        size: &[usize],
        window: &Window,
    ) -> Result<(StorageRef, StorageRef)> {
        self.two(Call::MaxPool { x, size, window })
    }
    fn max_pool_grad(
        &self,
        g: &Tensor,
        positions: &Tensor,
        x_shape: &Shape,
        spatial: usize,
    ) -> Result<StorageRef> {
        self.one(Call::MaxPoolGrad { g, positions, x_shape, spatial })
    }
    fn avg_pool(&self, x: &Tensor, size: &[usize], window: &Window) -> Result<StorageRef> {
        self.one(Call::AvgPool { x, size, window })
    }
    fn linalg(&self, op: LinalgOp, inputs: &[&Tensor]) -> Result<Outputs> {
        let mut outputs = Outputs::new();
        self.call(&Call::Linalg { op, inputs })?
            .into_iter()
            .flatten()
            .for_each(|storage| outputs.push(storage));
        Ok(outputs)
    }
    fn attention(&self, inputs: &AttentionInputs<'_>) -> Result<(StorageRef, StorageRef)> {
        self.two(Call::Attention { inputs })
    }
    fn attention_grad(
        &self,
        inputs: &AttentionInputs<'_>,
        y: &Tensor,
        lse: &Tensor,
        g: &Tensor,
        needs: [bool; 3],
    ) -> Result<[Option<StorageRef>; 3]> {
        let storages = self.call(&Call::AttentionGrad { inputs, y, lse, g, needs })?;
        storages
            .try_into()
            .map_err(|_| Error::internal("a device gave another number of gradients"))
    }
}
