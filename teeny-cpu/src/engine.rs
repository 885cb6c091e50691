//! `impl Device for Cpu`: from an [`Op`] to the module that computes it. Each op is checked here,
//! by [`Op::outputs`] or by the function of [`validate`] that it calls, before a kernel makes a
//! pointer of it.

use crate::device::Cpu;
use crate::fused::{attention, named::named};
use crate::storage::{Shared, View};
use crate::threads::try_for_each_chunk;
use crate::{
    Level, border, conv, copy, cum_max, elementwise, index, matmul, pooling, quant, random, reduce,
    rows, scan, sort,
};
use std::sync::Arc;
use teeny_core::{
    DType, Device, DeviceInfo, Error, Extremum, Fill, Op, Outputs, Result, Shape, SortOrder, Stats,
    StorageRef, Tensor, validate,
};

/// The bytes that one call of a [`Fill`] writes, about: a part of the second cache.
const PART: usize = 1 << 19;

impl Device for Cpu {
    fn info(&self) -> DeviceInfo {
        let kernels = match self.level {
            // the compiler decides which instructions a module for WebAssembly has
            Level::Portable if cfg!(target_feature = "simd128") => "Simd128".to_string(),
            Level::Portable if cfg!(target_arch = "aarch64") => "Neon".to_string(),
            level => format!("{level:?}"),
        };
        let description = format!("{} with {kernels} kernels", std::env::consts::ARCH);
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

    fn upload_with(
        &self,
        len: usize,
        dtype: DType,
        step: usize,
        fill: &Fill<'_>,
    ) -> Result<StorageRef> {
        let _operation = self.begin("upload");
        let storage = self.alloc(len, dtype)?;
        let (bytes, to) = (len * dtype.size(), Shared(storage.ptr()));
        let step = step.max(1).saturating_mul(dtype.size());
        let part = (PART / step).max(1).saturating_mul(step);
        try_for_each_chunk(bytes.div_ceil(part), |i| {
            let (at, end) = (i * part, bytes.min(i.saturating_add(1).saturating_mul(part)));
            // SAFETY: parts are apart and inside the storage, which has no other owner; memory of
            // the pool is never uninitialised.
            let to = unsafe { std::slice::from_raw_parts_mut(to.get().add(at), end - at) };
            fill(at, to)?;
            validate::upload(to, dtype).map(drop)
        })?;
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
            elementwise::elementwise(cpu, kernel, inputs, params, shape)
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
    let specs = op.outputs();
    // By reference, here and in core: moving the shapes takes longer than a small copy.
    let Ok(specs) = &specs else { return specs.map(|_| None) };
    let shape = || specs.first().map_or(Shape::SCALAR, |spec| spec.0);
    let _operation = cpu.pool.guard().and_then(|_| match op {
        Op::Elementwise { kernel, .. } => cpu.begin_kernel("elementwise", kernel),
        Op::ReduceKernel { kernel, op, .. } => cpu.begin_kernel(op.name(), kernel),
        Op::Rows { program, .. } if program.row_function().is_none() => {
            cpu.begin_kernel("rows", program)
        }
        Op::MatmulKernel { kernel, .. } => cpu.begin_kernel("matmul_kernel", kernel),
        Op::ConvKernel { kernel, .. } => cpu.begin_kernel("conv_kernel", kernel),
        _ => cpu.begin(op.name()),
    });
    match *op {
        Op::Elementwise { kernel, inputs, params, shape } => {
            elementwise::elementwise(cpu, kernel, inputs, params, shape)
        }
        Op::Reduce { op, x, axes } => returned(reduce::reduce(cpu, op, x, axes)),
        Op::ReduceKernel { kernel, inputs, params, shape, op, axes } => {
            returned(reduce::reduce_kernel(cpu, kernel, inputs, params, shape, op, axes))
        }
        Op::Scan { op, x, axis } => returned(scan::scan(cpu, op, x, axis)),
        Op::CumMax { x, axis, extremum } => {
            returned(cum_max::cum_max(cpu, x, axis, extremum == Extremum::Largest))
        }
        Op::Matmul { lhs, rhs } => returned(matmul::matmul(cpu, lhs, rhs)),
        Op::MatmulKernel { lhs, rhs, kernel, others, params } => {
            matmul::matmul_kernel(cpu, [lhs, rhs], kernel, others, params, &shape())
        }
        Op::Gather { x, axis, index } => returned(index::gather(cpu, x, axis, index)),
        Op::Scatter { mode, x, axis, index, src } => {
            returned(index::scatter(cpu, mode, x, axis, index, src))
        }
        Op::CopyInto { ref mut dst, view, src } => {
            let dst = dst.take().ok_or_else(|| Error::internal("the destination was taken"))?;
            returned(copy::copy_into(cpu, dst, view, src))
        }
        Op::Sort { x, axis, order } => {
            returned(sort::sort(cpu, x, axis, order == SortOrder::Descending))
        }
        Op::TopK { x, axis, k, extremum } => {
            returned(sort::first(cpu, x, axis, k, extremum == Extremum::Largest))
        }
        Op::Random { distribution, shape, dtype, key } => {
            returned(random::random(cpu, distribution, shape.numel(), dtype, key))
        }
        Op::Contiguous { x } => {
            returned(copy::contiguous(cpu, &View::of(x)?).map(|y| Arc::new(y) as StorageRef))
        }
        Op::Cat { tensors, axis } => returned(copy::cat(cpu, tensors, axis, &shape())),
        Op::Pad { x, widths, value } => returned(
            border::pad(cpu, x, widths, value, &shape()).map(|y| Arc::new(y) as StorageRef),
        ),
        Op::Tri { x, diagonal, upper } => {
            returned(border::tri(cpu, x, diagonal, upper).map(|y| Arc::new(y) as StorageRef))
        }
        Op::Positions { indices, sizes } => returned(index::flat_positions(cpu, indices, sizes)),
        Op::Rows { program, inputs, params, shape, axes } => {
            match named(cpu, program, inputs, params, axes)? {
                Some(output) => Ok(Some(Outputs::one(output))),
                None => rows::run(cpu, program, inputs, params, shape, axes),
            }
        }
        Op::Conv { x, weight, window } => returned(conv::conv(cpu, x, weight, window, &shape())),
        Op::ConvKernel { x, weight, window, kernel, others, params } => {
            conv::conv_kernel(cpu, [x, weight], window, kernel, others, params, &shape())
        }
        Op::ConvInputGrad { g, weight, window, x_shape } => {
            returned(conv::input_grad(cpu, g, weight, window, x_shape))
        }
        Op::ConvWeightGrad { g, x, window, weight_shape } => {
            returned(conv::weight_grad(cpu, g, x, window, weight_shape))
        }
        Op::MaxPool { x, kernel_size, window } => {
            returned(pooling::max_pool(cpu, x, kernel_size, window, &shape()))
        }
        Op::MaxPoolGrad { g, positions, x_shape, spatial } => {
            returned(pooling::max_pool_grad(cpu, g, positions, x_shape, spatial))
        }
        Op::AvgPool { x, kernel_size, window } => {
            returned(pooling::avg_pool(cpu, x, kernel_size, window, &shape()))
        }
        Op::Attention { ref inputs } if attention::can_fuse(inputs) => {
            returned(attention::forward(cpu, inputs))
        }
        Op::AttentionGrad { ref inputs, y, lse, g, needs } if attention::can_fuse(inputs) => {
            let grads = attention::backward(cpu, inputs, y, lse, g, needs)?;
            Ok(Some(grads.into_iter().flatten().collect()))
        }
        Op::QuantMatmul { x, blocks, parts, exact: false } => {
            returned(quant::product(cpu, x, blocks, parts))
        }
        Op::QuantRows { blocks, index, parts, columns } => {
            returned(quant::rows(cpu, blocks, index, parts, columns))
        }
        // Core runs other attention and linear algebra by the ops above.
        _ => Ok(None),
    }
}

/// The outputs of an op. Each arm of `dispatch` returns them directly: a common end would move them
/// twice, which is a tenth of a small operation.
#[inline(always)]
fn returned(outputs: Result<impl Into<Outputs>>) -> Result<Option<Outputs>> {
    match outputs {
        Ok(outputs) => Ok(Some(outputs.into())),
        Err(error) => Err(error),
    }
}
