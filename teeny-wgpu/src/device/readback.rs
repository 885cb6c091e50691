//! Reading buffers back through pooled staging buffers. A read has two halves: the call submits the
//! copy and asks for the mapping, and only the wait for it is awaited.

use crate::device::index_errors::RECORD_BYTES;
use crate::device::mapping::{CAN_WAIT, Signal, Submitted};
use crate::device::{Wgpu, error};
use teeny_core::{Error, ErrorKind, Result};

/// Bytes that are read at a time.
const READ: usize = (64 << 20) - 4096; // with the records of wrong indices no more than 64 MiB

/// Part of a buffer: the buffer, the start and the length in bytes, multiples of 4.
type Part<'a> = (&'a wgpu::Buffer, u64, u64);

/// A copy that is submitted, on its way to the host.
struct Copied {
    staging: wgpu::Buffer,
    bytes: u64,
    mapped: Submitted<std::result::Result<(), wgpu::BufferAsyncError>>,
}

/// A read whose first copy is submitted.
pub(crate) struct RangeRead {
    /// Where the bytes go, with capacity for all of them.
    out: Vec<u8>,
    /// The copies that are submitted later: of a range too long for one staging buffer.
    buffer: wgpu::Buffer,
    start: u64,
    len: usize,
    records: Option<wgpu::Buffer>,
    at: usize,
    copied: Option<Copied>,
}

impl RangeRead {
    /// Submits the recorded commands and the first copy of a read of `len` bytes of a buffer from
    /// `start` on, a multiple of 4.
    pub fn begin(
        gpu: &Wgpu,
        buffer: &wgpu::Buffer,
        start: u64,
        len: usize,
        records: Option<&wgpu::Buffer>,
    ) -> Result<RangeRead> {
        let mut out = Vec::new();
        let size = len.checked_add(4 + RECORD_BYTES as usize);
        if size.is_none_or(|size| out.try_reserve_exact(size).is_err()) {
            return Err(Error::out_of_memory(format!("cannot allocate {len} bytes on the host")));
        }
        let (buffer, records) = (buffer.clone(), records.cloned());
        let mut read = RangeRead { out, buffer, start, len, records, at: 0, copied: None };
        read.next(gpu)?;
        Ok(read)
    }

    /// True if all copies are submitted: the buffer may be written again.
    pub fn is_copied(&self) -> bool {
        self.at >= self.len
    }

    /// Submits the next copy, if there is one.
    fn next(&mut self, gpu: &Wgpu) -> Result<()> {
        if self.is_copied() {
            return Ok(());
        }
        let len = (self.len - self.at).min(READ);
        let part = (&self.buffer, self.start + self.at as u64, len.next_multiple_of(4) as u64);
        self.at += len;
        let records = self.records.as_ref().filter(|_| self.is_copied());
        let parts: Vec<Part<'_>> =
            [part].into_iter().chain(records.map(|records| (records, 0, RECORD_BYTES))).collect();
        self.copied = Some(gpu.copy_out(&parts).map_err(|e| gpu.caused(e))?);
        Ok(())
    }

    /// The bytes, up to three more, and the bytes of the records.
    ///
    /// # Errors
    /// If the GPU fails, or has reported an error before.
    pub async fn finish(mut self, gpu: &Wgpu) -> Result<Vec<u8>> {
        while let Some(copied) = self.copied.take() {
            gpu.arrived(copied, &mut self.out).await.map_err(|e| gpu.caused(e))?;
            self.next(gpu)?;
        }
        Ok(self.out)
    }
}

impl Wgpu {
    /// Submits a copy of parts of buffers to a staging buffer, and asks for its mapping.
    fn copy_out(&self, parts: &[Part<'_>]) -> Result<Copied> {
        let bytes = parts.iter().map(|part| part.2).sum();
        let staging = self.staging_buffer(bytes)?;
        let mut at = 0;
        for &(buffer, start, len) in parts {
            self.stream.copy(buffer, start, &staging, at, len);
            at += len;
        }
        let index = self.stream.submit_all();
        let signal = Signal::new();
        let raised = signal.clone();
        staging.slice(..bytes).map_async(wgpu::MapMode::Read, move |result| raised.raise(result));
        Ok(Copied { staging, bytes, mapped: Submitted { signal, index } })
    }

    /// Appends the bytes of a copy to `out` once they have arrived.
    async fn arrived(&self, copied: Copied, out: &mut Vec<u8>) -> Result<()> {
        let Copied { staging, bytes, mapped } = copied;
        let mapped = mapped.done(self).await?;
        self.check()?;
        let failed =
            |e: &dyn std::fmt::Display| Error::device(format!("reading from the GPU failed: {e}"));
        mapped.map_err(|e| failed(&e))?;
        let view = staging.slice(..bytes).get_mapped_range().map_err(|e| failed(&e))?;
        out.extend_from_slice(&view);
        drop(view);
        staging.unmap();
        self.pool.keep_staging(staging);
        Ok(())
    }

    /// A buffer of at least `bytes` bytes to read through.
    fn staging_buffer(&self, bytes: u64) -> Result<wgpu::Buffer> {
        let size = bytes.next_power_of_two().max(4096).min(self.capabilities.max_buffer / 4 * 4);
        if bytes > size {
            return Err(error::too_large(bytes, self.capabilities.max_buffer));
        }
        if let Some(buffer) = self.pool.take_staging(size) {
            return Ok(buffer);
        }
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let descriptor = wgpu::BufferDescriptor {
            label: Some("teeny staging"),
            size,
            usage,
            mapped_at_creation: false,
        };
        let create = || {
            error::scoped(&self.device, wgpu::ErrorFilter::OutOfMemory, || {
                self.device.create_buffer(&descriptor)
            })
        };
        create().or_else(|_| {
            self.pool.trim();
            self.stream.wait()?;
            create().map_err(|_| error::out_of_memory(size, self.pool.stats().live_bytes, None))
        })
    }

    /// The read of the records, if an index outside its axis may be among them that no call has
    /// returned yet, and the number of launches that it covers.
    pub(crate) fn begin_index_check(&self) -> Result<Option<(RangeRead, u64)>> {
        let Some((buffer, launches)) = self.index_errors.unchecked() else { return Ok(None) };
        let read = RangeRead::begin(self, buffer, 0, RECORD_BYTES as usize, None)?;
        Ok(Some((read, launches)))
    }

    /// The error of an index outside its axis that no call has returned yet; waits if there may be
    /// one.
    ///
    /// # Errors
    /// That error.
    pub(crate) fn check_index_errors(&self) -> Result<()> {
        let Some((read, launches)) = self.begin_index_check()? else { return Ok(()) };
        let records = pollster::block_on(read.finish(self))?;
        self.index_errors.check(&self.queue, &records, launches)
    }

    /// Refuses to wait where that is impossible. `instead` is the call to use.
    ///
    /// # Errors
    /// In a browser.
    pub(crate) fn require_wait(&self, instead: &str) -> Result<()> {
        if CAN_WAIT {
            return Ok(());
        }
        let text = "a browser does not let a program wait for the GPU";
        Err(Error::new(ErrorKind::WouldBlock, text).help(instead))
    }
}
