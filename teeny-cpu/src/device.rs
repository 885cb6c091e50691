//! The device: options, allocation, and the door from core's `Device` trait to the rooms of this
//! crate.

use crate::fused::softmax::{self, Row};
use crate::fused::{attention, cross_entropy, norm};
use crate::guard::Operation;
use crate::matmul::FloatMatmul;
use crate::pool::{OutOfMemory, Pool, PoolStats, Use};
use crate::simd::Level;
use crate::storage::{CpuStorage, View};
use crate::{conv, copy, elementwise, index, matmul, pooling, random, reduce, scan, sort};
use std::any::Any;
use std::sync::Arc;
use teeny_core::storage::StorageRef;
use teeny_core::{
    AttentionInputs, DType, Device, DeviceInfo, Distribution, Error, Kernel, Key, Layout, Norm,
    Outputs, ReduceOp, Result, Scalar, ScanOp, ScatterMode, Shape, Stats, Tensor, Window, validate,
};

/// How a [`Cpu`] is made. Fields not named keep their defaults.
#[derive(Clone, Copy, Debug)]
pub struct CpuOptions {
    /// The most bytes that the device may have from the system at a time: storages, what tasks work
    /// in, and the cache, in whole blocks. Cached blocks make room; beyond that operations fail
    /// with an out-of-memory error. Not counted are what the host gets (`to_vec`) and a few hundred
    /// bytes for each tensor. None: the machine decides.
    ///
    /// The `gemm` crate multiplies on other processors than x86, at [`Level::Portable`], and
    /// operands without runs. It allocates a few MiB for each thread and aborts the process if that
    /// fails. The device therefore counts and allocates the same number of bytes first, releases
    /// them, and fails with an error if it gets none. gemm still aborts if another thread takes the
    /// memory in between.
    pub memory_limit: Option<usize>,
    /// The most bytes kept for reuse. 1 GiB by default.
    pub cache_bytes: usize,
    /// The instruction set to compute with, lowered to what the machine has.
    pub level: Level,
    /// Whether f32 convolutions with windows of 3 x 3 may use Winograd's minimal filtering: two to
    /// three times as fast, with errors of 1e-5 instead of 1e-6 of a result's size. True by
    /// default.
    pub winograd: bool,
    /// How floats are multiplied. [`FloatMatmul::Own`] by default.
    pub float_matmul: FloatMatmul,
}

impl Default for CpuOptions {
    fn default() -> Self {
        CpuOptions {
            memory_limit: None,
            cache_bytes: 1 << 30,
            level: Level::best(),
            winograd: true,
            float_matmul: FloatMatmul::default(),
        }
    }
}

/// The processor as a device: SIMD kernels on all threads of the current rayon pool, storages from
/// a pool of its own.
///
/// Results do not depend on the number of threads. `gather` and `scatter` check their indices.
///
/// # Example
/// ```
/// use teeny_core::Tensor;
/// let cpu = teeny_cpu::Cpu::new();
/// let x = Tensor::new([[1.0f32, 2.0], [3.0, 4.0]], &cpu)?;
/// assert_eq!(x.matmul(&x)?.to_vec::<f32>()?, [7.0, 10.0, 15.0, 22.0]);
/// # Ok::<(), teeny_core::Error>(())
/// ```
pub struct Cpu {
    pub(crate) pool: Pool,
    pub(crate) level: Level,
    pub(crate) winograd: bool,
    pub(crate) float_matmul: FloatMatmul,
}

impl Cpu {
    /// A device with the default options.
    #[allow(clippy::new_ret_no_self)]
    pub fn new() -> Arc<Cpu> {
        Cpu::with(CpuOptions::default())
    }

    /// A device with these options.
    pub fn with(options: CpuOptions) -> Arc<Cpu> {
        let guarded = std::env::var_os("TEENY_POOL_GUARD")
            .map_or(cfg!(debug_assertions), |value| value == "1");
        let pool = Pool::new(options.cache_bytes, options.memory_limit, guarded);
        Arc::new(Cpu {
            pool,
            level: options.level.supported(),
            winograd: options.winograd,
            float_matmul: options.float_matmul,
        })
    }

    /// The counters of the memory pool.
    pub fn pool_stats(&self) -> PoolStats {
        self.pool.stats()
    }

    /// Returns cached memory to the system, largest blocks first, until at most `keep` bytes are
    /// cached.
    pub fn trim_cache(&self, keep: usize) {
        self.pool.trim(keep);
    }

    /// The most bytes in use or cached at a time: see [`CpuOptions::memory_limit`].
    pub fn memory_limit(&self) -> Option<usize> {
        self.pool.limit()
    }

    /// Changes the memory limit. Storages that exist stay, even above it; what is cached above it
    /// goes back to the system.
    pub fn set_memory_limit(&self, limit: Option<usize>) {
        self.pool.set_limit(limit);
    }

    /// Storage for `len` elements, holding anything.
    #[inline]
    pub(crate) fn alloc(&self, len: usize, dtype: DType) -> Result<CpuStorage> {
        let Some(bytes) = len.checked_mul(dtype.size()) else { return Err(too_large(len, dtype)) };
        match self.pool.alloc(bytes, Use::Storage) {
            Ok(buffer) => Ok(CpuStorage::new(buffer, len, dtype)),
            Err(error) => Err(no_storage(error, len, dtype)),
        }
    }

    /// `bytes` bytes of the host's memory, empty.
    pub(crate) fn host(&self, bytes: usize) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        #[cfg(test)]
        let refused = self.pool.fails() || out.try_reserve_exact(bytes).is_err();
        #[cfg(not(test))]
        let refused = out.try_reserve_exact(bytes).is_err();
        if refused {
            return Err(Error::out_of_memory(format!("no memory for {bytes} bytes on the host"))
                .note("the operating system gave none"));
        }
        Ok(out)
    }

    /// Says that an operation begins, which ends with the result: an overwritten guard is reported
    /// with its name.
    #[inline]
    fn begin(&self, name: impl std::fmt::Display) -> Option<Operation<'_>> {
        self.pool.guard().map(|guard| guard.begin(name.to_string()))
    }

    /// [`begin`](Cpu::begin) for a kernel, which is named by its operations.
    #[inline]
    fn begin_kernel(&self, name: impl std::fmt::Display, kernel: &Kernel) -> Option<Operation<'_>> {
        self.pool.guard().map(|guard| {
            let ops: Vec<String> = kernel
                .nodes()
                .iter()
                .filter(|node| node.op.arity() > 0)
                .map(|node| format!("{:?}", node.op))
                .collect();
            guard.begin(format!("{name} [{}]", ops.join(" ")))
        })
    }

    /// Storage for `len` elements, all bytes zero.
    pub(crate) fn zeros(&self, len: usize, dtype: DType) -> Result<CpuStorage> {
        let storage = self.alloc(len, dtype)?;
        // SAFETY: the storage has these bytes and no other owner.
        unsafe { std::ptr::write_bytes(storage.ptr(), 0, len * dtype.size()) };
        Ok(storage)
    }
}

/// The error of a request for `what`.
#[cold]
pub(crate) fn out_of_memory(error: OutOfMemory, what: &str) -> Error {
    let error_with_use = Error::out_of_memory(format!("no memory for {what}"))
        .note(format!("{} bytes are in use on this device", error.live));
    match error.limit {
        Some(limit) => error_with_use.note(format!("the device's memory limit is {limit} bytes")),
        None => error_with_use.note("the operating system gave none"),
    }
}

#[cold]
fn no_storage(error: OutOfMemory, len: usize, dtype: DType) -> Error {
    out_of_memory(error, &format!("{len} elements of {dtype} ({} bytes)", error.wanted))
}

#[cold]
fn too_large(len: usize, dtype: DType) -> Error {
    Error::out_of_memory(format!("no memory for {len} elements of {dtype}"))
        .note("their bytes are more than a number of 64 bits can say")
}

impl std::fmt::Debug for Cpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cpu")
            .field("level", &self.level)
            .field("float_matmul", &self.float_matmul)
            .field("pool", &self.pool.stats())
            .finish()
    }
}

impl Device for Cpu {
    fn info(&self) -> DeviceInfo {
        let description = format!("{} with {:?} kernels", std::env::consts::ARCH, self.level);
        DeviceInfo { name: "cpu".to_string(), description }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn upload(&self, bytes: &[u8], dtype: DType) -> Result<StorageRef> {
        validate::upload(bytes, dtype)?;
        let _operation = self.begin("upload");
        let storage = self.alloc(bytes.len() / dtype.size(), dtype)?;
        // SAFETY: the storage has room for whole elements and no other owner.
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

    fn elementwise(
        &self,
        kernel: &Arc<Kernel>,
        inputs: &[&Tensor],
        params: &[Scalar],
        shape: &Shape,
    ) -> Result<Outputs> {
        validate::elementwise(kernel, inputs, params, shape)?;
        if self.pool.guard().is_none() {
            return elementwise::elementwise(self, kernel, inputs, params, shape);
        }
        let _operation = self.begin_kernel("elementwise", kernel);
        elementwise::elementwise(self, kernel, inputs, params, shape)
    }

    fn elementwise_over(
        &self,
        kernel: &Arc<Kernel>,
        storage: &mut StorageRef,
        number: usize,
        other: Option<&Tensor>,
        params: &[Scalar],
        shape: &Shape,
    ) -> Result<bool> {
        if self.pool.guard().is_none() {
            return elementwise::over(self, kernel, storage, number, other, params, shape);
        }
        let _operation = self.begin_kernel("elementwise_over", kernel);
        elementwise::over(self, kernel, storage, number, other, params, shape)
    }

    fn reduce(&self, op: ReduceOp, x: &Tensor, axes: &[usize]) -> Result<StorageRef> {
        validate::reduce(op, x, axes)?;
        let _operation = self.begin(format_args!("reduce {op:?}"));
        reduce::reduce(self, op, x, axes)
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
        let _operation = self.begin_kernel(format_args!("reduce {op:?}"), kernel);
        reduce::reduce_kernel(self, kernel, inputs, params, shape, op, axes)
    }

    fn scan(&self, op: ScanOp, x: &Tensor, axis: usize) -> Result<StorageRef> {
        validate::scan(op, x, axis)?;
        let _operation = self.begin(format_args!("scan {op:?}"));
        scan::scan(self, op, x, axis)
    }

    fn matmul(&self, lhs: &Tensor, rhs: &Tensor) -> Result<StorageRef> {
        validate::matmul(lhs, rhs)?;
        let _operation = self.begin("matmul");
        matmul::matmul(self, lhs, rhs)
    }

    fn gather(&self, x: &Tensor, axis: usize, index: &Tensor) -> Result<StorageRef> {
        validate::gather(x, axis, index)?;
        let _operation = self.begin("gather");
        index::gather(self, x, axis, index)
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
        let _operation = self.begin("scatter");
        index::scatter(self, mode, x, axis, index, src)
    }

    fn copy_into(&self, dst: StorageRef, view: &Layout, src: &Tensor) -> Result<StorageRef> {
        validate::copy_into(&dst, view, src)?;
        let _operation = self.begin("copy_into");
        copy::copy_into(self, dst, view, src)
    }

    fn contiguous(&self, x: &Tensor) -> Result<StorageRef> {
        let _operation = self.begin("contiguous");
        Ok(Arc::new(copy::contiguous(self, &View::of(x)?)?))
    }

    fn sort(&self, x: &Tensor, axis: usize, descending: bool) -> Result<(StorageRef, StorageRef)> {
        validate::sort(x, axis)?;
        let _operation = self.begin("sort");
        sort::sort(self, x, axis, descending)
    }

    fn random(
        &self,
        distribution: Distribution,
        shape: &Shape,
        dtype: DType,
        key: Key,
    ) -> Result<StorageRef> {
        validate::random(distribution, shape, dtype)?;
        let _operation = self.begin("random");
        random::random(self, distribution, shape.numel(), dtype, key)
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

    fn softmax(&self, x: &Tensor, axis: usize) -> Result<StorageRef> {
        validate::softmax(x, axis)?;
        let _operation = self.begin("softmax");
        softmax::rows(self, Row::Softmax, x, None, axis)
    }

    fn log_softmax(&self, x: &Tensor, axis: usize) -> Result<StorageRef> {
        validate::softmax(x, axis)?;
        let _operation = self.begin("log_softmax");
        softmax::rows(self, Row::LogSoftmax, x, None, axis)
    }

    fn softmax_grad(&self, y: &Tensor, g: &Tensor, axis: usize) -> Result<StorageRef> {
        validate::softmax_grad(y, g, axis)?;
        let _operation = self.begin("softmax_grad");
        softmax::rows(self, Row::SoftmaxGrad, y, Some(g), axis)
    }

    fn log_softmax_grad(&self, y: &Tensor, g: &Tensor, axis: usize) -> Result<StorageRef> {
        validate::softmax_grad(y, g, axis)?;
        let _operation = self.begin("log_softmax_grad");
        softmax::rows(self, Row::LogSoftmaxGrad, y, Some(g), axis)
    }

    fn cross_entropy(
        &self,
        x: &Tensor,
        targets: &Tensor,
        ignored: Option<i64>,
    ) -> Result<StorageRef> {
        validate::cross_entropy(x, targets)?;
        let _operation = self.begin("cross_entropy");
        cross_entropy::losses(self, x, targets, ignored)
    }

    fn cross_entropy_grad(
        &self,
        x: &Tensor,
        targets: &Tensor,
        ignored: Option<i64>,
        g: &Tensor,
    ) -> Result<StorageRef> {
        validate::cross_entropy_grad(x, targets, g)?;
        let _operation = self.begin("cross_entropy_grad");
        cross_entropy::gradient(self, x, targets, ignored, g)
    }

    fn norm(
        &self,
        kind: Norm,
        x: &Tensor,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> Result<StorageRef> {
        validate::norm(x, weight, bias)?;
        let _operation = self.begin("norm");
        norm::forward(self, kind, x, weight, bias, eps)
    }

    fn norm_grad(
        &self,
        kind: Norm,
        x: &Tensor,
        weight: Option<&Tensor>,
        g: &Tensor,
        eps: f64,
    ) -> Result<StorageRef> {
        validate::norm_grad(x, weight, g)?;
        let _operation = self.begin("norm_grad");
        norm::gradient(self, kind, x, weight, g, eps)
    }

    fn conv(&self, x: &Tensor, weight: &Tensor, window: &Window) -> Result<StorageRef> {
        let (shape, _) = validate::conv(x, weight, window)?;
        let _operation = self.begin("conv");
        conv::conv(self, x, weight, window, &shape)
    }

    fn conv_input_grad(
        &self,
        g: &Tensor,
        weight: &Tensor,
        window: &Window,
        x_shape: &Shape,
    ) -> Result<StorageRef> {
        validate::conv_input_grad(g, weight, window, x_shape)?;
        let _operation = self.begin("conv_input_grad");
        conv::input_grad(self, g, weight, window, x_shape)
    }

    fn conv_weight_grad(
        &self,
        g: &Tensor,
        x: &Tensor,
        window: &Window,
        weight_shape: &Shape,
    ) -> Result<StorageRef> {
        validate::conv_weight_grad(g, x, window, weight_shape)?;
        let _operation = self.begin("conv_weight_grad");
        conv::weight_grad(self, g, x, window, weight_shape)
    }

    fn max_pool(
        &self,
        x: &Tensor,
        size: &[usize],
        window: &Window,
    ) -> Result<(StorageRef, StorageRef)> {
        let [(shape, _), _] = validate::max_pool(x, size, window)?;
        let _operation = self.begin("max_pool");
        pooling::max_pool(self, x, size, window, &shape)
    }

    fn max_pool_grad(
        &self,
        g: &Tensor,
        positions: &Tensor,
        x_shape: &Shape,
        spatial: usize,
    ) -> Result<StorageRef> {
        validate::max_pool_grad(g, positions, x_shape, spatial)?;
        let _operation = self.begin("max_pool_grad");
        pooling::max_pool_grad(self, g, positions, x_shape, spatial)
    }

    fn avg_pool(&self, x: &Tensor, size: &[usize], window: &Window) -> Result<StorageRef> {
        let (shape, _) = validate::avg_pool(x, size, window)?;
        let _operation = self.begin("avg_pool");
        pooling::avg_pool(self, x, size, window, &shape)
    }

    fn attention(&self, inputs: &AttentionInputs<'_>) -> Result<(StorageRef, StorageRef)> {
        validate::attention(inputs)?;
        let _operation = self.begin("attention");
        if attention::is_small(inputs) {
            return inputs.composed_storages();
        }
        attention::forward(self, inputs)
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
        let _operation = self.begin("attention_grad");
        if attention::is_small(inputs) {
            return inputs.composed_grad_storages(y, lse, g, needs);
        }
        attention::backward(self, inputs, y, lse, g, needs)
    }
}
