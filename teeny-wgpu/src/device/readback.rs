//! Reading buffers back through pooled staging buffers: the only thing that waits.

use crate::device::index_errors::RECORD_BYTES;
use crate::device::mapping::{Signal, answer};
use crate::device::{Wgpu, error};
use std::sync::{Arc, mpsc};
use teeny_core::{Error, Result};

/// Bytes that are read at a time.
const READ: usize = (64 << 20) - 4096; // with the records of wrong indices no more than 64 MiB

impl Wgpu {
    /// `len` bytes of a buffer from `start` on, a multiple of 4, and up to three more; then the
    /// bytes of `records`. Submits the recorded commands.
    pub(crate) async fn read_range(
        &self,
        buffer: &wgpu::Buffer,
        start: u64,
        len: usize,
        records: Option<&wgpu::Buffer>,
        blocking: bool,
    ) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        let size = len.checked_add(4 + RECORD_BYTES as usize);
        if size.is_none_or(|size| out.try_reserve_exact(size).is_err()) {
            return Err(Error::out_of_memory(format!("cannot allocate {len} bytes on the host")));
        }
        for at in (0..len).step_by(READ) {
            let mut parts =
                vec![(buffer, start + at as u64, (len - at).min(READ).next_multiple_of(4) as u64)];
            if at + READ >= len {
                parts.extend(records.map(|records| (records, 0, RECORD_BYTES)));
            }
            self.read_parts(&parts, blocking, &mut out).await.map_err(|e| self.caused(e))?;
        }
        Ok(out)
    }

    /// Appends parts of buffers to `out`: each a buffer, the start and the length of the part in
    /// bytes, multiples of 4.
    async fn read_parts(
        &self,
        parts: &[(&wgpu::Buffer, u64, u64)],
        blocking: bool,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let bytes = parts.iter().map(|p| p.2).sum();
        let staging = self.staging_buffer(bytes)?;
        let mut at = 0;
        for &(buffer, start, len) in parts {
            self.stream.copy(buffer, start, &staging, at, len);
            at += len;
        }
        self.stream.flush();
        let (sender, receiver) = mpsc::channel();
        let signal = Arc::new(Signal::default());
        let wake = signal.clone();
        let slice = staging.slice(..bytes);
        slice.map_async(wgpu::MapMode::Read, move |result| {
            let _ = sender.send(result);
            wake.raise();
        });
        let mapped = if cfg!(target_arch = "wasm32") {
            if !blocking {
                (&*signal).await;
            }
            receiver.try_recv().map_err(|_| {
                Error::device("this platform cannot wait for the GPU")
                    .help("read with Wgpu::read(..).await")
            })?
        } else {
            self.stream.wait()?;
            answer(&receiver, &self.device, || self.sticky.is_lost())?
        };
        self.check()?;
        let failed =
            |e: &dyn std::fmt::Display| Error::device(format!("reading from the GPU failed: {e}"));
        mapped.map_err(|e| failed(&e))?;
        let view = slice.get_mapped_range().map_err(|e| failed(&e))?;
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

    /// The error of an index outside its axis that no call has returned yet; waits if there may be
    /// one.
    ///
    /// # Errors
    /// That error.
    pub(crate) fn check_index_errors(&self) -> Result<()> {
        let Some((buffer, launches)) = self.index_errors.unchecked() else { return Ok(()) };
        let len = RECORD_BYTES as usize;
        let records = pollster::block_on(self.read_range(buffer, 0, len, None, true))?;
        self.index_errors.check(&self.queue, &records, launches)
    }
}
