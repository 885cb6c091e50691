//! Between host and GPU: uploads through the queue, downloads through staging buffers.
//!
//! An upload overtakes the open batch, so it goes to a buffer that no command of that batch uses.
//! Reading is the only thing that waits, and returns the errors of earlier work. The call submits
//! the copy; what waits is a future, which a synchronous read runs to its end.

use crate::device::index_errors::RECORD_BYTES;
use crate::device::pool::FirstUse;
use crate::device::readback::RangeRead;
use crate::device::storage::Memory;
use crate::device::stream::UPLOADS;
use crate::device::{Wgpu, error};
use crate::ops::copy::contiguous;
use std::future::ready;
use std::sync::Arc;
use teeny_core::storage::downcast;
use teeny_core::{DType, ReadFuture, Result, StorageRef, Tensor};

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

/// A download whose copy is submitted.
struct Download {
    read: RangeRead,
    len: usize,
    /// The number of launches whose records come with the bytes.
    launches: Option<u64>,
    /// Keeps the storage from being written while copies are still to be made.
    _storage: Option<StorageRef>,
}

/// The elements of `x` in row-major order, as little-endian bytes.
pub(crate) fn download(gpu: &Wgpu, x: &Tensor) -> Result<Vec<u8>> {
    gpu.require_wait(
        "await the read: x.to_vec_async().await, item_async or to_bytes_async; an operation that \
         reads its operand, such as nonzero, works on a copy on the CPU: x.to_async(&cpu).await",
    )?;
    match begin(gpu, x)? {
        Some(download) => pollster::block_on(finish(gpu, download)),
        None => Ok(Vec::new()),
    }
}

/// [`download`], of which the returned future only waits.
pub(crate) fn download_async(gpu: Arc<Wgpu>, x: &Tensor) -> ReadFuture {
    match begin(&gpu, x) {
        Ok(Some(download)) => Box::pin(async move { finish(&gpu, download).await }),
        Ok(None) => Box::pin(ready(Ok(Vec::new()))),
        Err(error) => Box::pin(ready(Err(error))),
    }
}

/// Submits the copy of `x`; `None` if it is empty.
fn begin(gpu: &Wgpu, x: &Tensor) -> Result<Option<Download>> {
    gpu.check()?;
    let size = x.dtype().size();
    let len =
        x.numel().checked_mul(size).ok_or_else(|| error::uncountable(x.numel(), x.dtype()))?;
    if len == 0 {
        return Ok(None);
    }
    let start = x.layout().offset() * size;
    if !x.is_contiguous() || !start.is_multiple_of(4) {
        let packed = gpu.tensor(contiguous(gpu, x)?, *x.shape(), x.dtype(), x)?;
        return begin(gpu, &packed);
    }
    let memory = downcast::<Memory>(x.storage())?;
    let (buffer, start) = (memory.buffer(), memory.start() as usize + start);
    // The records of wrong indices come along: no further wait, and no wrong number is read in
    // silence.
    let records = gpu.index_errors.unchecked();
    let read = RangeRead::begin(gpu, buffer, start as u64, len, records.map(|(buffer, _)| buffer))?;
    let storage = (!read.is_copied()).then(|| x.storage().clone());
    let launches = records.map(|(_, launches)| launches);
    Ok(Some(Download { read, len, launches, _storage: storage }))
}

async fn finish(gpu: &Wgpu, download: Download) -> Result<Vec<u8>> {
    let Download { read, len, launches, _storage } = download;
    let mut bytes = read.finish(gpu).await?;
    if let Some(launches) = launches {
        let records = &bytes[bytes.len() - RECORD_BYTES as usize..];
        gpu.index_errors.check(&gpu.queue, records, launches)?;
    }
    bytes.truncate(len);
    Ok(bytes)
}
