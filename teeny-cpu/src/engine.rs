//! `impl Device for Cpu`: from an [`Op`] to the module that computes it. Each op is checked here, by
//! [`Op::outputs`] or by the function of [`validate`] that it calls, before a kernel makes a pointer
//! of it.

use crate::device::Cpu;
use crate::fused::softmax::{self, Row};
use crate::fused::{attention, cross_entropy, norm};
use crate::storage::View;
use crate::{conv, copy, elementwise, index, matmul, pooling, random, reduce, scan, sort};
use std::sync::Arc;
use teeny_core::{
    DType, Device, DeviceInfo, Error, Op, Outputs, Result, Shape, Stats, StorageRef, Tensor,
    validate,
};

impl Device for Cpu {
    fn info(&self) -> DeviceInfo {
        let description = format!("{} with {:?} kernels", std::env::consts::ARCH, self.level);
        DeviceInfo { name: "cpu".to_string(), description }
    }

    fn upload(&self, bytes: &[u8], dtype: DType) -> Result<StorageRef> {
        validate::upload(bytes, dtype)?;
        let _operation = self.begin("upload");
        let storage = self.alloc(bytes.len() / dtype.size(), dtype)?;
        // SAFETY: the storage holds whole elements and has no other owner.
        unsafe {
            std::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                storage.ptr(),
                bytes.len() / dtype.size() * dtype.size(),
            )
        };
        Ok(Arc::new(storage))
    }

    fn download(&self, x: &Tensor) -> Result<Vec<u8>> {
        let _operation = self.begin("download");
        copy::download(self, &View::of(x)?)
    }

    #[inline]
    fn execute(&self, op: &mut Op<'_>) -> Result<Option<Outputs>> {
        execute(self, op)
    }

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }

    fn stats(&self) -> Stats {
        let pool = self.pool.stats();
        Stats {
            allocations: (pool.requests - pool.scratch_requests) as u64,
            os_allocations: pool.os_allocations as u64,
            live_bytes: pool.live_bytes as u64,
            peak_bytes: pool.peak_live_bytes as u64,
            cached_bytes: pool.cached_bytes as u64,
        }
    }

    fn clear_cache(&self) {
        self.pool.clear();
    }
}

/// Executes `op`, or declines with `None`.
#[inline]
fn execute(cpu: &Cpu, op: &mut Op<'_>) -> Result<Option<Outputs>> {
    // These two first and alone: a small one takes hardly longer than the `match` of `dispatch`.
    match *op {
        Op::Elementwise { kernel, inputs, params, shape } if cpu.pool.guard().is_none() => {
            validate::elementwise(kernel, inputs, params, shape)?;
            elementwise::elementwise(cpu, kernel, inputs, params, shape).map(Some)
        }
        Op::ElementwiseInPlace { kernel, ref mut storage, input_index, other, params, shape } => {
            let _operation = cpu.begin_kernel("elementwise in place", kernel);
            let done =
                elementwise::in_place(cpu, kernel, storage, input_index, other, params, shape)?;
            Ok(done.then(Outputs::new))
        }
        _ => dispatch(cpu, op),
    }
}

#[inline(never)]
fn dispatch(cpu: &Cpu, op: &mut Op<'_>) -> Result<Option<Outputs>> {
    let specs = op.outputs()?;
    let shape = || specs.first().map_or(Shape::SCALAR, |spec| spec.0);
    let _operation = cpu.pool.guard().and_then(|_| match op {
        Op::Elementwise { kernel, .. } => cpu.begin_kernel("elementwise", kernel),
        Op::ReduceKernel { kernel, op, .. } => cpu.begin_kernel(op.name(), kernel),
        _ => cpu.begin(op.name()),
    });
    Ok(Some(match *op {
        Op::Elementwise { kernel, inputs, params, shape } => {
            elementwise::elementwise(cpu, kernel, inputs, params, shape)?
        }
        Op::Reduce { op, x, axes } => reduce::reduce(cpu, op, x, axes)?.into(),
        Op::ReduceKernel { kernel, inputs, params, shape, op, axes } => {
            reduce::reduce_kernel(cpu, kernel, inputs, params, shape, op, axes)?.into()
        }
        Op::Scan { op, x, axis } => scan::scan(cpu, op, x, axis)?.into(),
        Op::Matmul { lhs, rhs } => matmul::matmul(cpu, lhs, rhs)?.into(),
        Op::Gather { x, axis, index } => index::gather(cpu, x, axis, index)?.into(),
        Op::Scatter { mode, x, axis, index, src } => {
            index::scatter(cpu, mode, x, axis, index, src)?.into()
        }
        Op::CopyInto { ref mut dst, view, src } => {
            let dst = dst.take().ok_or_else(|| Error::internal("there is no destination"))?;
            copy::copy_into(cpu, dst, view, src)?.into()
        }
        Op::Sort { x, axis, descending } => sort::sort(cpu, x, axis, descending)?.into(),
        Op::Random { distribution, shape, dtype, key } => {
            random::random(cpu, distribution, shape.numel(), dtype, key)?.into()
        }
        Op::Contiguous { x } => Outputs::one(Arc::new(copy::contiguous(cpu, &View::of(x)?)?)),
        Op::Softmax { x, axis } => softmax::rows(cpu, Row::Softmax, x, None, axis)?.into(),
        Op::LogSoftmax { x, axis } => softmax::rows(cpu, Row::LogSoftmax, x, None, axis)?.into(),
        Op::SoftmaxGrad { y, g, axis } => {
            softmax::rows(cpu, Row::SoftmaxGrad, y, Some(g), axis)?.into()
        }
        Op::LogSoftmaxGrad { y, g, axis } => {
            softmax::rows(cpu, Row::LogSoftmaxGrad, y, Some(g), axis)?.into()
        }
        Op::CrossEntropy { x, targets, ignore_index } => {
            cross_entropy::losses(cpu, x, targets, ignore_index)?.into()
        }
        Op::CrossEntropyGrad { x, targets, ignore_index, g } => {
            cross_entropy::gradient(cpu, x, targets, ignore_index, g)?.into()
        }
        Op::Norm { norm: kind, x, weight, bias, eps } => {
            norm::forward(cpu, kind, x, weight, bias, eps)?.into()
        }
        Op::NormGrad { norm: kind, x, weight, g, eps } => {
            norm::gradient(cpu, kind, x, weight, g, eps)?.into()
        }
        Op::Conv { x, weight, window } => conv::conv(cpu, x, weight, window, &shape())?.into(),
        Op::ConvInputGrad { g, weight, window, x_shape } => {
            conv::input_grad(cpu, g, weight, window, x_shape)?.into()
        }
        Op::ConvWeightGrad { g, x, window, weight_shape } => {
            conv::weight_grad(cpu, g, x, window, weight_shape)?.into()
        }
        Op::MaxPool { x, kernel_size, window } => {
            pooling::max_pool(cpu, x, kernel_size, window, &shape())?.into()
        }
        Op::MaxPoolGrad { g, positions, x_shape, spatial } => {
            pooling::max_pool_grad(cpu, g, positions, x_shape, spatial)?.into()
        }
        Op::AvgPool { x, kernel_size, window } => {
            pooling::avg_pool(cpu, x, kernel_size, window, &shape())?.into()
        }
        Op::Attention { ref inputs } if !attention::is_small(inputs) => {
            attention::forward(cpu, inputs)?.into()
        }
        Op::AttentionGrad { ref inputs, y, lse, g, needs } if !attention::is_small(inputs) => {
            attention::backward(cpu, inputs, y, lse, g, needs)?.into_iter().flatten().collect()
        }
        // Small attention, joining and linear algebra are what core makes of the ops above.
        _ => return Ok(None),
    }))
}
