//! `impl Device for Wgpu`: checks an op, describes it to the profile and calls the function of
//! [`ops`] that dispatches its shaders.

use crate::device::Wgpu;
use crate::device::mapping::Submitted;
use crate::ops::epilogue::Epilogue;
use crate::ops::pooling::{self, Pool};
use crate::ops::{self, attention, conv, copy};
use std::future::ready;
use teeny_core::{
    DType, Device, DeviceInfo, Error, Fill, Op, Outputs, ReadFuture, Result, SortOrder, Stats,
    StorageRef, Tensor, WaitFuture, validate,
};

impl Device for Wgpu {
    fn info(&self) -> DeviceInfo {
        DeviceInfo { name: "wgpu".to_string(), description: self.capabilities().to_string() }
    }

    fn upload(&self, bytes: &[u8], dtype: DType) -> Result<StorageRef> {
        validate::upload(bytes, dtype)?;
        ops::transfer::upload(self, bytes, dtype)
    }

    fn upload_with(
        &self,
        len: usize,
        dtype: DType,
        step: usize,
        fill: &Fill<'_>,
    ) -> Result<StorageRef> {
        ops::transfer::upload_with(self, len, dtype, step, fill)
    }

    fn download(&self, x: &Tensor) -> Result<Vec<u8>> {
        ops::transfer::download(self, x)
    }

    fn download_async(&self, x: &Tensor) -> ReadFuture {
        match self.shared() {
            Ok(gpu) => ops::transfer::download_async(gpu, x),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    fn execute(&self, op: &mut Op<'_>) -> Result<Option<Outputs>> {
        if matches!(op, Op::ElementwiseInPlace { .. }) {
            return Ok(None); // new storage from the pool is no slower
        }
        let specs = op.outputs()?;
        let _work = match specs.first().filter(|_| self.profiled) {
            Some((shape, dtype)) => self.describe(&op.operands(), shape, *dtype, op.cost()?.flops),
            None => None,
        };
        dispatch(self, op)
    }

    fn synchronize(&self) -> Result<()> {
        self.require_wait("await the work: device.synchronize_async().await")?;
        self.stream.wait().map_err(|e| self.caused(e))?;
        self.check()?;
        self.check_index_errors()
    }

    fn synchronize_async(&self) -> WaitFuture {
        let started = self.shared().and_then(|gpu| {
            let records = gpu.begin_index_check()?;
            Ok((Submitted::all(&gpu), records, gpu))
        });
        Box::pin(async move {
            let (submitted, records, gpu) = started?;
            submitted.done(&gpu).await.map_err(|e| gpu.caused(e))?;
            gpu.check()?;
            match records {
                Some((read, launches)) => {
                    let records = read.finish(&gpu).await?;
                    gpu.index_errors.check(&gpu.queue, &records, launches)
                }
                None => Ok(()),
            }
        })
    }

    fn ready_async(&self) -> WaitFuture {
        let waiting = self.shared().map(|gpu| (gpu.awaited(), gpu));
        Box::pin(async move {
            let (submitted, gpu) = waiting?;
            if let Some(submitted) = submitted {
                submitted.done(&gpu).await.map_err(|e| gpu.caused(e))?;
            }
            gpu.check()
        })
    }

    fn prefers_batched_kernels(&self) -> bool {
        true
    }

    fn stats(&self) -> Stats {
        self.pool.stats()
    }

    fn clear_cache(&self) {
        self.pool.trim();
    }
}

/// Runs a validated op; `None` if it has no shader.
fn dispatch(gpu: &Wgpu, op: &mut Op<'_>) -> Result<Option<Outputs>> {
    Ok(Some(match *op {
        Op::Elementwise { kernel, inputs, params, shape } => {
            ops::elementwise::elementwise(gpu, kernel, inputs, params, shape)?
        }
        Op::ElementwiseMany { kernel, inputs, params, shapes } => {
            return ops::elementwise::many::elementwise_many(gpu, kernel, inputs, params, shapes);
        }
        Op::Reduce { op, x, axes } => ops::reduce::reduce(gpu, op, x, axes)?.into(),
        Op::ReduceKernel { kernel, inputs, params, shape, op, axes } => {
            ops::reduce::reduce_kernel(gpu, kernel, inputs, params, shape, op, axes)?.into()
        }
        Op::Scan { op, x, axis } => ops::scan::scan(gpu, op, x, axis)?.into(),
        Op::Matmul { lhs, rhs } => ops::matmul::matmul(gpu, lhs, rhs)?.into(),
        Op::MatmulKernel { lhs, rhs, kernel, others, params } => {
            let shape = &validate::matmul(lhs, rhs)?.0;
            ops::matmul::matmul_kernel(gpu, lhs, rhs, &Epilogue { kernel, others, params, shape })?
        }
        Op::ConvKernel { x, weight, window, kernel, others, params } => {
            let shape = &validate::conv(x, weight, window)?.0;
            let epilogue = Epilogue { kernel, others, params, shape };
            return conv::conv_kernel(gpu, x, weight, window, &epilogue);
        }
        Op::Gather { x, axis, index } => ops::gather::gather(gpu, x, axis, index)?.into(),
        Op::Scatter { mode, x, axis, index, src } => {
            ops::scatter::scatter(gpu, mode, x, axis, index, src)?.into()
        }
        Op::CopyInto { ref mut dst, view, src } => {
            let dst = dst.take().ok_or_else(|| Error::internal("the destination was taken"))?;
            copy::copy_into(gpu, dst, view, src)?.into()
        }
        Op::Sort { x, axis, order } => {
            ops::sort::sort(gpu, x, axis, order == SortOrder::Descending)?.into()
        }
        Op::Random { distribution, shape, dtype, key } => {
            ops::random::random(gpu, distribution, shape, dtype, key)?.into()
        }
        Op::Contiguous { x } => copy::contiguous(gpu, x)?.into(),
        Op::Rows { program, inputs, params, shape, axes } => {
            return ops::rows::rows(gpu, program, inputs, params, shape, axes);
        }
        Op::Conv { x, weight, window } => {
            return Ok(conv::conv(gpu, x, weight, window)?.map(Outputs::one));
        }
        Op::ConvInputGrad { g, weight, window, x_shape } => {
            return Ok(conv::conv_input_grad(gpu, g, weight, window, x_shape)?.map(Outputs::one));
        }
        Op::ConvWeightGrad { g, x, window, weight_shape } => {
            let grad = conv::conv_weight_grad(gpu, g, x, window, weight_shape)?;
            return Ok(grad.map(Outputs::one));
        }
        Op::MaxPool { x, kernel_size, window } => {
            return pooling::pool(gpu, Pool::Max, x, kernel_size, window);
        }
        Op::AvgPool { x, kernel_size, window } => {
            return pooling::pool(gpu, Pool::Mean, x, kernel_size, window);
        }
        Op::Cat { tensors, axis } => {
            return Ok(ops::cat::cat(gpu, tensors, axis)?.map(Outputs::one));
        }
        Op::Attention { ref inputs } => {
            return Ok(attention::attention(gpu, inputs)?.map(Outputs::from));
        }
        Op::AttentionGrad { ref inputs, y, lse, g, needs } => {
            let grads = attention::attention_grad(gpu, inputs, y, lse, g, needs)?;
            return Ok(grads.map(|grads| grads.into_iter().flatten().collect()));
        }
        // On this device x is never quantised.
        Op::QuantMatmul { x, blocks, parts, .. } => {
            return Ok(ops::quant::product(gpu, x, blocks, parts)?.map(Outputs::one));
        }
        Op::QuantRows { blocks, index, parts, columns } => {
            return Ok(ops::quant::rows(gpu, blocks, index, parts, columns)?.map(Outputs::one));
        }
        // Core runs padding, selection and linear algebra by the ops above.
        _ => return Ok(None),
    }))
}
