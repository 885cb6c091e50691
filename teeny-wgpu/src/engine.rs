//! `impl Device for Wgpu`: checks a request, describes it to the profile, and calls the operation.

use crate::device::{Wgpu, profile};
use crate::ops;
use crate::ops::softmax::{SoftmaxKind, softmax};
use std::any::Any;
use std::sync::Arc;
use teeny_core::{
    AttentionInputs, DType, Device, DeviceInfo, Distribution, Kernel, Layout, Norm, Outputs,
    ReduceOp, Result, Scalar, ScanOp, ScatterMode, Shape, Stats, StorageRef, Tensor, Window,
    definition, validate,
};

impl Device for Wgpu {
    fn info(&self) -> DeviceInfo {
        DeviceInfo { name: "wgpu".to_string(), description: self.capabilities().to_string() }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn upload(&self, bytes: &[u8], dtype: DType) -> Result<StorageRef> {
        validate::upload(bytes, dtype)?;
        ops::transfer::upload(self, bytes, dtype)
    }

    fn download(&self, x: &Tensor) -> Result<Vec<u8>> {
        ops::transfer::download(self, x)
    }

    fn elementwise(
        &self,
        kernel: &Arc<Kernel>,
        inputs: &[&Tensor],
        params: &[Scalar],
        shape: &Shape,
    ) -> Result<Outputs> {
        validate::elementwise(kernel, inputs, params, shape)?;
        let _work = self.describe(inputs, shape, kernel.output_dtype(0), 0);
        ops::elementwise::elementwise(self, kernel, inputs, params, shape)
    }

    fn reduce(&self, op: ReduceOp, x: &Tensor, axes: &[usize]) -> Result<StorageRef> {
        validate::reduce(op, x, axes)?;
        let _work = self.describe(&[x], &x.shape().reduced(axes, false), op.output(x.dtype()), 0);
        ops::reduce::reduce(self, op, x, axes)
    }

    fn scan(&self, op: ScanOp, x: &Tensor, axis: usize) -> Result<StorageRef> {
        validate::scan(op, x, axis)?;
        let _work = self.describe(&[x], x.shape(), x.dtype(), 0);
        ops::scan::scan(self, op, x, axis)
    }

    fn matmul(&self, lhs: &Tensor, rhs: &Tensor) -> Result<StorageRef> {
        validate::matmul(lhs, rhs)?;
        let shape = lhs.shape().with_size(lhs.ndim() - 1, rhs.shape()[rhs.ndim() - 1]);
        let _work = self.describe(
            &[lhs, rhs],
            &shape,
            lhs.dtype(),
            profile::flops(&[shape.numel(), lhs.shape()[lhs.ndim() - 1]]),
        );
        ops::matmul::matmul(self, lhs, rhs)
    }

    fn gather(&self, x: &Tensor, axis: usize, index: &Tensor) -> Result<StorageRef> {
        validate::gather(x, axis, index)?;
        let _work = self.describe(&[x, index], index.shape(), x.dtype(), 0);
        ops::gather::gather(self, x, axis, index)
    }

    fn scatter(
        &self,
        mode: ScatterMode,
        x: &Tensor,
        axis: usize,
        index: &Tensor,
        src: &Tensor,
    ) -> Result<StorageRef> {
        validate::scatter(mode, x, axis, index, src)?;
        let _work = self.describe(&[x, index, src], x.shape(), x.dtype(), 0);
        ops::scatter::scatter(self, mode, x, axis, index, src)
    }

    fn copy_into(&self, dst: StorageRef, view: &Layout, src: &Tensor) -> Result<StorageRef> {
        validate::copy_into(&dst, view, src)?;
        let _work = self.describe(&[src], src.shape(), src.dtype(), 0);
        ops::copy::copy_into(self, dst, view, src)
    }

    fn sort(&self, x: &Tensor, axis: usize, descending: bool) -> Result<(StorageRef, StorageRef)> {
        validate::sort(x, axis)?;
        let _work = self.describe(&[x], x.shape(), x.dtype(), 0);
        ops::sort::sort(self, x, axis, descending)
    }

    fn random(
        &self,
        distribution: Distribution,
        shape: &Shape,
        dtype: DType,
        key: teeny_core::Key,
    ) -> Result<StorageRef> {
        validate::random(distribution, shape, dtype)?;
        let _work = self.describe(&[], shape, dtype, 0);
        ops::random::random(self, distribution, shape, dtype, key)
    }

    fn synchronize(&self) -> Result<()> {
        self.stream.wait().map_err(|e| self.caused(e))?;
        self.check()?;
        self.check_index_errors()
    }

    fn stats(&self) -> Stats {
        self.pool.stats()
    }

    fn clear_cache(&self) {
        self.pool.trim();
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
        validate::reduce_kernel(kernel, inputs, params, shape, op, axes)?;
        let _work = self.describe(
            inputs,
            &shape.reduced(axes, false),
            op.output(kernel.output_dtype(0)),
            0,
        );
        ops::reduce::reduce_kernel(self, kernel, inputs, params, shape, op, axes)
    }

    fn contiguous(&self, x: &Tensor) -> Result<StorageRef> {
        let _work = self.describe(&[x], x.shape(), x.dtype(), 0);
        ops::copy::contiguous(self, x)
    }

    fn softmax(&self, x: &Tensor, axis: usize) -> Result<StorageRef> {
        validate::softmax(x, axis)?;
        let _work = self.describe(&[x], x.shape(), x.dtype(), 0);
        softmax(self, SoftmaxKind::Softmax, &[x], axis)
    }

    fn log_softmax(&self, x: &Tensor, axis: usize) -> Result<StorageRef> {
        validate::softmax(x, axis)?;
        let _work = self.describe(&[x], x.shape(), x.dtype(), 0);
        softmax(self, SoftmaxKind::LogSoftmax, &[x], axis)
    }

    fn softmax_grad(&self, y: &Tensor, g: &Tensor, axis: usize) -> Result<StorageRef> {
        validate::softmax_grad(y, g, axis)?;
        let _work = self.describe(&[y, g], y.shape(), y.dtype(), 0);
        softmax(self, SoftmaxKind::SoftmaxGrad, &[y, g], axis)
    }

    fn log_softmax_grad(&self, y: &Tensor, g: &Tensor, axis: usize) -> Result<StorageRef> {
        validate::softmax_grad(y, g, axis)?;
        let _work = self.describe(&[y, g], y.shape(), y.dtype(), 0);
        softmax(self, SoftmaxKind::LogSoftmaxGrad, &[y, g], axis)
    }

    fn norm(
        &self,
        norm: Norm,
        x: &Tensor,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> Result<StorageRef> {
        validate::norm(x, weight, bias)?;
        let _work = self.describe(&[x], x.shape(), x.dtype(), 0);
        ops::norm::norm(self, norm, x, None, weight, bias, eps)
    }

    fn norm_grad(
        &self,
        norm: Norm,
        x: &Tensor,
        weight: Option<&Tensor>,
        g: &Tensor,
        eps: f64,
    ) -> Result<StorageRef> {
        validate::norm_grad(x, weight, g)?;
        let _work = self.describe(&[x, g], x.shape(), x.dtype(), 0);
        ops::norm::norm(self, norm, x, Some(g), weight, None, eps)
    }

    fn attention(&self, inputs: &AttentionInputs<'_>) -> Result<(StorageRef, StorageRef)> {
        validate::attention(inputs)?;
        let [_, keys, hs, hv] = inputs.sizes();
        let shape = inputs.q.shape().with_size(inputs.q.ndim() - 1, hv);
        let flops = profile::flops(&[shape.numel() / hv.max(1), keys, hs + hv]);
        let _work = self.describe(&[inputs.q, inputs.k, inputs.v], &shape, inputs.q.dtype(), flops);
        if let Some(results) = ops::attention::attention(self, inputs)? {
            return Ok(results);
        }
        let (y, lse) = inputs.composed()?;
        Ok((ops::copy::contiguous(self, &y)?, ops::copy::contiguous(self, &lse)?))
    }

    fn attention_grad(
        &self,
        inputs: &AttentionInputs<'_>,
        y: &Tensor,
        lse: &Tensor,
        g: &Tensor,
        needs: [bool; 3],
    ) -> Result<[Option<StorageRef>; 3]> {
        validate::attention_grad(inputs, y, lse, g)?;
        let _work = self.describe(
            &[inputs.q, inputs.k, inputs.v, g],
            inputs.q.shape(),
            inputs.q.dtype(),
            0,
        );
        if let Some(grads) = ops::attention::attention_grad(self, inputs, y, lse, g, needs)? {
            return Ok(grads);
        }
        let [q, k, v] = inputs.composed_grad(Some((y, lse)), g, needs)?;
        let finish = |x: Option<Tensor>| x.map(|x| ops::copy::contiguous(self, &x)).transpose();
        Ok([finish(q)?, finish(k)?, finish(v)?])
    }

    fn conv(&self, x: &Tensor, weight: &Tensor, window: &Window) -> Result<StorageRef> {
        validate::conv(x, weight, window)?;
        match ops::conv::conv(self, x, weight, window)? {
            Some(y) => Ok(y),
            None => definition::conv(x, weight, window),
        }
    }

    fn conv_input_grad(
        &self,
        g: &Tensor,
        weight: &Tensor,
        window: &Window,
        x_shape: &Shape,
    ) -> Result<StorageRef> {
        validate::conv_input_grad(g, weight, window, x_shape)?;
        match ops::conv::conv_input_grad(self, g, weight, window, x_shape)? {
            Some(x) => Ok(x),
            None => definition::conv_input_grad(g, weight, window, x_shape),
        }
    }

    fn conv_weight_grad(
        &self,
        g: &Tensor,
        x: &Tensor,
        window: &Window,
        weight_shape: &Shape,
    ) -> Result<StorageRef> {
        validate::conv_weight_grad(g, x, window, weight_shape)?;
        match ops::conv::conv_weight_grad(self, g, x, window, weight_shape)? {
            Some(weight) => Ok(weight),
            None => definition::conv_weight_grad(g, x, window, weight_shape),
        }
    }

    fn max_pool(
        &self,
        x: &Tensor,
        size: &[usize],
        window: &Window,
    ) -> Result<(StorageRef, StorageRef)> {
        validate::max_pool(x, size, window)?;
        match ops::pooling::max_pool(self, x, size, window)? {
            Some(results) => Ok(results),
            None => definition::max_pool(x, size, window),
        }
    }
}
