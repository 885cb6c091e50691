//! `impl Device for Wgpu`: the list of what this engine does and which room does it.

use crate::device::Wgpu;
use crate::profile;
use crate::softmax::Rows;
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
        self.upload_bytes(bytes, dtype)
    }

    fn download(&self, x: &Tensor) -> Result<Vec<u8>> {
        self.download_bytes(x)
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
        self.map(kernel, inputs, params, shape)
    }

    fn reduce(&self, op: ReduceOp, x: &Tensor, axes: &[usize]) -> Result<StorageRef> {
        validate::reduce(op, x, axes)?;
        let _work = self.describe(&[x], &x.shape().reduced(axes, false), op.output(x.dtype()), 0);
        self.fold_axes(op, x, axes)
    }

    fn scan(&self, op: ScanOp, x: &Tensor, axis: usize) -> Result<StorageRef> {
        validate::scan(op, x, axis)?;
        let _work = self.describe(&[x], x.shape(), x.dtype(), 0);
        self.scan_along(op, x, axis)
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
        self.product(lhs, rhs)
    }

    fn gather(&self, x: &Tensor, axis: usize, index: &Tensor) -> Result<StorageRef> {
        validate::gather(x, axis, index)?;
        let _work = self.describe(&[x, index], index.shape(), x.dtype(), 0);
        self.gather_along(x, axis, index)
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
        self.scatter_along(mode, x, axis, index, src)
    }

    fn copy_into(&self, dst: StorageRef, view: &Layout, src: &Tensor) -> Result<StorageRef> {
        validate::copy_into(&dst, view, src)?;
        let _work = self.describe(&[src], src.shape(), src.dtype(), 0);
        self.overwrite(dst, view, src)
    }

    fn sort(&self, x: &Tensor, axis: usize, descending: bool) -> Result<(StorageRef, StorageRef)> {
        validate::sort(x, axis)?;
        let _work = self.describe(&[x], x.shape(), x.dtype(), 0);
        self.sort_along(x, axis, descending)
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
        self.draw(distribution, shape, dtype, key)
    }

    fn synchronize(&self) -> Result<()> {
        self.stream.wait().map_err(|e| self.caused(e))?;
        self.check()?;
        self.check_fault()
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
        self.fold_kernel(kernel, inputs, params, shape, op, axes)
    }

    fn contiguous(&self, x: &Tensor) -> Result<StorageRef> {
        let _work = self.describe(&[x], x.shape(), x.dtype(), 0);
        self.packed(x)
    }

    fn softmax(&self, x: &Tensor, axis: usize) -> Result<StorageRef> {
        validate::softmax(x, axis)?;
        let _work = self.describe(&[x], x.shape(), x.dtype(), 0);
        self.along_rows(Rows::Softmax, &[x], axis)
    }

    fn log_softmax(&self, x: &Tensor, axis: usize) -> Result<StorageRef> {
        validate::softmax(x, axis)?;
        let _work = self.describe(&[x], x.shape(), x.dtype(), 0);
        self.along_rows(Rows::LogSoftmax, &[x], axis)
    }

    fn softmax_grad(&self, y: &Tensor, g: &Tensor, axis: usize) -> Result<StorageRef> {
        validate::softmax_grad(y, g, axis)?;
        let _work = self.describe(&[y, g], y.shape(), y.dtype(), 0);
        self.along_rows(Rows::SoftmaxGrad, &[y, g], axis)
    }

    fn log_softmax_grad(&self, y: &Tensor, g: &Tensor, axis: usize) -> Result<StorageRef> {
        validate::softmax_grad(y, g, axis)?;
        let _work = self.describe(&[y, g], y.shape(), y.dtype(), 0);
        self.along_rows(Rows::LogSoftmaxGrad, &[y, g], axis)
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
        self.normalise(norm, x, None, weight, bias, eps)
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
        self.normalise(norm, x, Some(g), weight, None, eps)
    }

    fn attention(&self, inputs: &AttentionInputs<'_>) -> Result<(StorageRef, StorageRef)> {
        validate::attention(inputs)?;
        let [_, keys, hs, hv] = inputs.sizes();
        let shape = inputs.q.shape().with_size(inputs.q.ndim() - 1, hv);
        let flops = profile::flops(&[shape.numel() / hv.max(1), keys, hs + hv]);
        let _work = self.describe(&[inputs.q, inputs.k, inputs.v], &shape, inputs.q.dtype(), flops);
        if let Some(results) = self.attention_forward(inputs)? {
            return Ok(results);
        }
        let (y, lse) = inputs.composed()?;
        Ok((self.packed(&y)?, self.packed(&lse)?))
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
        if let Some(grads) = self.attention_backward(inputs, y, lse, g, needs)? {
            return Ok(grads);
        }
        let [q, k, v] = inputs.composed_grad(Some((y, lse)), g, needs)?;
        let finish = |x: Option<Tensor>| x.map(|x| self.packed(&x)).transpose();
        Ok([finish(q)?, finish(k)?, finish(v)?])
    }

    fn conv(&self, x: &Tensor, weight: &Tensor, window: &Window) -> Result<StorageRef> {
        validate::conv(x, weight, window)?;
        match self.convolution(x, weight, window)? {
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
        match self.convolution_input_grad(g, weight, window, x_shape)? {
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
        match self.convolution_weight_grad(g, x, window, weight_shape)? {
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
        match self.largest(x, size, window)? {
            Some(results) => Ok(results),
            None => definition::max_pool(x, size, window),
        }
    }
}
