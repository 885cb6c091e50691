//! Between host and GPU: uploads through the queue, downloads through staging buffers.
//!
//! An upload overtakes the open batch, so it goes to a buffer that no command of that batch uses.
//! Reading is the only thing that waits, and returns the errors of earlier work.

use crate::device::index_errors::RECORD_BYTES;
use crate::device::pool::FirstUse;
use crate::device::storage::Memory;
use crate::device::stream::UPLOADS;
use crate::device::{Wgpu, error};
use crate::ops::copy::contiguous;
use std::sync::Arc;
use teeny_core::storage::downcast;
use teeny_core::{DType, Element, Error, Result, StorageRef, Tensor};

/// New storage with these bytes.
pub(crate) fn upload(gpu: &Wgpu, bytes: &[u8], dtype: DType) -> Result<StorageRef> {
    let memory = gpu.memory(bytes.len() / dtype.size(), dtype, FirstUse::Upload)?;
    let (mut at, whole) = (0, bytes.len() / 4 * 4);
    for part in bytes[..whole].chunks(UPLOADS as usize) {
        gpu.queue.write_buffer(memory.buffer(), at, part);
        at += part.len() as u64;
        gpu.stream.uploaded(part.len() as u64);
    }
    if whole < bytes.len() {
        let mut rest = [0u8; 4];
        rest[..bytes.len() - whole].copy_from_slice(&bytes[whole..]);
        gpu.queue.write_buffer(memory.buffer(), at, &rest);
        gpu.stream.uploaded(4);
    }
    gpu.check()?; // the driver may lack the memory in which uploads wait
    Ok(Arc::new(memory))
}

/// The elements of `x` in row-major order, as little-endian bytes.
pub(crate) fn download(gpu: &Wgpu, x: &Tensor) -> Result<Vec<u8>> {
    pollster::block_on(read_bytes(gpu, x, true))
}

async fn read_bytes(gpu: &Wgpu, x: &Tensor, blocking: bool) -> Result<Vec<u8>> {
    gpu.check()?;
    let size = x.dtype().size();
    let len =
        x.numel().checked_mul(size).ok_or_else(|| error::uncountable(x.numel(), x.dtype()))?;
    if len == 0 {
        return Ok(Vec::new());
    }
    let start = x.layout().offset() * size;
    if !x.is_contiguous() || !start.is_multiple_of(4) {
        let packed = gpu.tensor(contiguous(gpu, x)?, *x.shape(), x.dtype(), x)?;
        return Box::pin(read_bytes(gpu, &packed, blocking)).await;
    }
    let buffer = downcast::<Memory>(x.storage())?.buffer();
    // The records of wrong indices come along: no further wait, and no wrong number is read in
    // silence.
    let records = gpu.index_errors.unchecked();
    let mut bytes = gpu
        .read_range(buffer, start as u64, len, records.map(|(buffer, _)| buffer), blocking)
        .await?;
    if let Some((_, launches)) = records {
        let records = &bytes[bytes.len() - RECORD_BYTES as usize..];
        gpu.index_errors.check(&gpu.queue, records, launches)?;
    }
    bytes.truncate(len);
    Ok(bytes)
}

impl Wgpu {
    /// The elements of a tensor of this device in row-major order, as little-endian bytes, without
    /// blocking the thread where the platform can.
    ///
    /// # Errors
    /// The errors of earlier work, or of reading.
    pub async fn read(&self, x: &Tensor) -> Result<Vec<u8>> {
        read_bytes(self, x, false).await
    }

    /// [`Tensor::to_vec`] as [`Wgpu::read`] reads.
    ///
    /// # Errors
    /// As [`Wgpu::read`], or if the tensor does not hold `T`.
    ///
    /// # Example
    /// ```no_run
    /// # async fn f() -> teeny_core::Result<()> {
    /// let gpu = teeny_wgpu::Wgpu::new_async(&Default::default()).await?;
    /// let x = teeny_core::Tensor::new([1.0f32, 2.0], &gpu)?.mul(3.0)?; // (2,)
    /// assert_eq!(gpu.to_vec_async::<f32>(&x).await?, [3.0, 6.0]);
    /// # Ok(()) }
    /// ```
    pub async fn to_vec_async<T: Element>(&self, x: &Tensor) -> Result<Vec<T>> {
        if T::DTYPE != x.dtype() {
            return Err(Error::dtype(format!("the tensor holds {}, not {}", x.dtype(), T::DTYPE)));
        }
        T::from_bytes(&self.read(x).await?)
    }
}
