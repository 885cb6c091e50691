//! The device: its options and its memory. `engine` implements core's `Device` trait for it.

use crate::guard::Operation;
use crate::pool::{OutOfMemory, Pool, PoolStats, Use};
use crate::simd::Level;
use crate::storage::CpuStorage;
use std::sync::Arc;
use teeny_core::{DType, Error, Kernel, Result, memory};

/// How a [`Cpu`] multiplies matrices of floats: in `matmul`, convolutions and
/// attention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FloatMatmul {
    /// The kernels of this crate where they are faster, the `gemm` crate elsewhere. The default.
    #[default]
    Own,
    /// The `gemm` crate, for every product of floats. It chooses its instruction set by itself, at
    /// any [`Level`] of the device; the cargo feature `gemm-avx512` adds its kernels for AVX-512.
    GemmCrate,
}

teeny_core::options! {
    /// How a [`Cpu`] is made. Fields not named keep their defaults.
    #[derive(Clone, Copy, Debug)]
    pub struct CpuOptions {
        /// The most bytes that the device may have from the system at a time: storages, what tasks
        /// work in, and the cache, in whole blocks. Cached blocks are freed first; beyond that
        /// operations fail with an out-of-memory error. Not counted are what the host gets
        /// (`to_vec`) and a few hundred bytes for each tensor. None: the machine decides.
        ///
        /// The `gemm` crate multiplies at [`Level::Portable`], except by simd128 (WebAssembly) and
        /// NEON (aarch64), and operands without runs. At the first such product of a thread it
        /// allocates a buffer of the size of a second-level cache, which is not counted, and aborts
        /// the process if that fails. The device therefore allocates the same number of bytes
        /// first, releases them, and fails with an error if it gets none. gemm still aborts if
        /// other code takes the memory in between.
        memory_limit: Option<usize> = None, with_memory_limit;
        /// The most bytes kept for reuse. 1 GiB by default.
        cache_bytes: usize = 1 << 30, with_cache_bytes;
        /// The instruction set to compute with, at most the machine's.
        level: Level = Level::best(), with_level;
        /// Whether f32 convolutions with windows of 3 x 3 may use Winograd's minimal filtering: two
        /// to three times as fast, with errors of 1e-5 instead of 1e-6 of a result's size. True by
        /// default.
        winograd: bool = true, with_winograd;
        /// How floats are multiplied. [`FloatMatmul::Own`] by default.
        float_matmul: FloatMatmul = FloatMatmul::default(), with_float_matmul;
    }
}

/// The processor as a device: SIMD kernels on all threads of the current rayon pool, storages from
/// a separate pool.
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
        Cpu::with_options(CpuOptions::default())
    }

    /// A device with these options.
    pub fn with_options(options: CpuOptions) -> Arc<Cpu> {
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

    /// Changes the memory limit. Existing storages stay, even above it; cached blocks above it goes
    /// back to the system.
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
        #[cfg(test)]
        if self.pool.fails() {
            return Err(Error::out_of_memory(format!("no memory for {bytes} bytes on the host")));
        }
        memory::reserved(bytes)
    }

    /// Marks the start of an operation, which ends with the result: an overwritten guard is
    /// reported with its name.
    #[inline]
    pub(crate) fn begin(&self, name: impl std::fmt::Display) -> Option<Operation<'_>> {
        self.pool.guard().map(|guard| guard.begin(name.to_string()))
    }

    /// [`begin`](Cpu::begin) for a kernel, which is named by its operations.
    #[inline]
    pub(crate) fn begin_kernel(
        &self,
        name: impl std::fmt::Display,
        kernel: &Kernel,
    ) -> Option<Operation<'_>> {
        self.pool.guard().map(|guard| {
            let ops: Vec<&str> = kernel
                .nodes()
                .iter()
                .filter(|node| node.op.arity() > 0)
                .map(|node| node.op.name())
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

/// The error of a failed request for `what`.
#[cold]
pub(crate) fn out_of_memory(error: OutOfMemory, what: &str) -> Error {
    let error_with_use = Error::out_of_memory(format!("no memory for {what}"))
        .note(format!("{} bytes are in use on this device", error.live));
    match error.limit {
        Some(limit) => error_with_use.note(format!("the device's memory limit is {limit} bytes")),
        None => error_with_use.note(memory::refusal()),
    }
}

#[cold]
fn no_storage(error: OutOfMemory, len: usize, dtype: DType) -> Error {
    out_of_memory(error, &format!("{len} elements of {dtype} ({} bytes)", error.wanted))
}

#[cold]
fn too_large(len: usize, dtype: DType) -> Error {
    Error::out_of_memory(format!("no memory for {len} elements of {dtype}"))
        .note("their size in bytes overflows 64 bits")
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
