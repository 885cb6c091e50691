//! Transfers between host and GPU: uploads through the queue, downloads through staging buffers.
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
use teeny_core::{DType, Fill, ReadFuture, Result, StorageRef, Tensor, memory, validate};

/// New storage with these bytes.
pub(crate) fn upload(gpu: &Wgpu, bytes: &[u8], dtype: DType) -> Result<StorageRef> {
    let memory = gpu.memory(bytes.len() / dtype.size(), dtype, FirstUse::Upload)?;
    for (i, part) in bytes.chunks(UPLOADS as usize).enumerate() {
        write(gpu, &memory, i * UPLOADS as usize, part);
    }
    gpu.check()?; // the driver may lack the memory in which uploads wait
    Ok(Arc::new(memory))
}

/// New storage of `len` elements with the bytes that `fill` writes, of which the host has a part at
/// a time.
pub(crate) fn upload_with(
    gpu: &Wgpu,
    len: usize,
    dtype: DType,
    step: usize,
    fill: &Fill<'_>,
) -> Result<StorageRef> {
    let memory = gpu.memory(len, dtype, FirstUse::Upload)?;
    let (bytes, step) = (len * dtype.size(), step.max(1).saturating_mul(4 * dtype.size()));
    let length = (UPLOADS as usize / step).max(1).saturating_mul(step);
    let mut part = memory::filled(0, length.min(bytes))?;
    for at in (0..bytes).step_by(length) {
        let part = &mut part[..length.min(bytes - at)];
        fill(at, part)?;
        validate::upload(part, dtype)?;
        write(gpu, &memory, at, part);
    }
    gpu.check()?;
    Ok(Arc::new(memory))
}

/// Writes `bytes` from byte `at` on, a multiple of 4.
fn write(gpu: &Wgpu, memory: &Memory, at: usize, bytes: &[u8]) {
    let (words, rest) = bytes.split_at(bytes.len() / 4 * 4);
    let mut last = [0u8; 4];
    last[..rest.len()].copy_from_slice(rest);
    let last = if rest.is_empty() { &[][..] } else { &last };
    for (at, part) in [(at, words), (at + words.len(), last)] {
        if !part.is_empty() {
            gpu.queue.write_buffer(memory.buffer(), at as u64, part);
            gpu.stream.uploaded(part.len() as u64);
        }
    }
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
