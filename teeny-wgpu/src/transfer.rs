//! Between host and GPU: uploads through the queue, read-back through pooled staging buffers.
//!
//! An upload overtakes the open batch, so it goes to a buffer that no command of that batch has
//! seen. Reading is the only thing that waits, and what went wrong meanwhile comes along with it.

use crate::device::Wgpu;
use crate::error::{self, lock};
use crate::fault;
use crate::pool::FirstUse;
use crate::storage::Memory;
use crate::stream::UPLOADS;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};
use teeny_core::storage::downcast;
use teeny_core::{DType, Element, Error, Result, StorageRef, Tensor};

/// Bytes that are read at a time.
const READ: usize = (64 << 20) - 4096; // with the notes no more than 64 MiB
/// How long the callback of a mapping may take after the GPU has done its work.
const PATIENCE: Duration = Duration::from_secs(60);

impl Wgpu {
    pub(crate) fn upload_bytes(&self, bytes: &[u8], dtype: DType) -> Result<StorageRef> {
        let memory = self.memory(bytes.len() / dtype.size(), dtype, FirstUse::Upload)?;
        let (mut at, whole) = (0, bytes.len() / 4 * 4);
        for part in bytes[..whole].chunks(UPLOADS as usize) {
            self.queue.write_buffer(memory.buffer(), at, part);
            at += part.len() as u64;
            self.stream.uploaded(part.len() as u64);
        }
        if whole < bytes.len() {
            let mut rest = [0u8; 4];
            rest[..bytes.len() - whole].copy_from_slice(&bytes[whole..]);
            self.queue.write_buffer(memory.buffer(), at, &rest);
            self.stream.uploaded(4);
        }
        self.check()?; // the driver may lack the memory in which uploads wait
        Ok(Arc::new(memory))
    }

    pub(crate) fn download_bytes(&self, x: &Tensor) -> Result<Vec<u8>> {
        pollster::block_on(self.read_bytes(x, true))
    }

    /// The elements of a tensor of this device in row-major order, as little-endian bytes, without
    /// blocking the thread where the platform can.
    ///
    /// # Errors
    /// What went wrong in the work so far, or in reading.
    pub async fn read(&self, x: &Tensor) -> Result<Vec<u8>> {
        self.read_bytes(x, false).await
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

    async fn read_bytes(&self, x: &Tensor, blocking: bool) -> Result<Vec<u8>> {
        self.check()?;
        let size = x.dtype().size();
        let len =
            x.numel().checked_mul(size).ok_or_else(|| error::uncountable(x.numel(), x.dtype()))?;
        if len == 0 {
            return Ok(Vec::new());
        }
        let start = x.layout().offset() * size;
        if !x.is_contiguous() || !start.is_multiple_of(4) {
            let packed = self.tensor(self.packed(x)?, *x.shape(), x.dtype(), x)?;
            return Box::pin(self.read_bytes(&packed, blocking)).await;
        }
        let buffer = downcast::<Memory>(x.storage())?.buffer();
        // The notes about indices come along: no further wait, and no wrong number is read in
        // silence.
        let notes = self.faults.outstanding();
        let mut bytes = self
            .read_range(buffer, start as u64, len, notes.map(|(notes, _)| notes), blocking)
            .await?;
        if let Some((_, upto)) = notes {
            self.check_notes(&bytes[bytes.len() - fault::BYTES as usize..], upto)?;
        }
        bytes.truncate(len);
        Ok(bytes)
    }

    /// `len` bytes of a buffer from `start` on, a multiple of 4, and up to three more; then the
    /// bytes of `notes`. Submits what was recorded.
    pub(crate) async fn read_range(
        &self,
        buffer: &wgpu::Buffer,
        start: u64,
        len: usize,
        notes: Option<&wgpu::Buffer>,
        blocking: bool,
    ) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        let room = len.checked_add(4 + fault::BYTES as usize);
        if room.is_none_or(|room| out.try_reserve_exact(room).is_err()) {
            return Err(Error::out_of_memory(format!("no room for {len} bytes on the host")));
        }
        for at in (0..len).step_by(READ) {
            let mut parts =
                vec![(buffer, start + at as u64, (len - at).min(READ).next_multiple_of(4) as u64)];
            if at + READ >= len {
                parts.extend(notes.map(|notes| (notes, 0, fault::BYTES)));
            }
            self.read_parts(&parts, blocking, &mut out).await.map_err(|e| self.caused(e))?;
        }
        Ok(out)
    }

    /// Parts of buffers behind each other, appended to `out`: each a buffer, where its part begins
    /// and how long it is, in bytes, multiples of 4.
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
            crate::pipeline::scoped(&self.device, wgpu::ErrorFilter::OutOfMemory, || {
                self.device.create_buffer(&descriptor)
            })
        };
        create().or_else(|_| {
            self.pool.trim();
            self.stream.wait()?;
            create().map_err(|_| error::out_of_memory(size, self.pool.stats().live_bytes, None))
        })
    }
}

/// What a mapping came to whose commands are done. Another thread that waits as well may have taken
/// its callback out of wgpu and not called it yet.
///
/// # Errors
/// If the callback does not come, which is so if the device is `lost`.
pub(crate) fn answer<T>(
    receiver: &mpsc::Receiver<T>,
    device: &wgpu::Device,
    lost: impl Fn() -> bool,
) -> Result<T> {
    let start = Instant::now();
    loop {
        match receiver.recv_timeout(Duration::from_millis(100)) {
            Ok(result) => return Ok(result),
            Err(mpsc::RecvTimeoutError::Timeout) if start.elapsed() < PATIENCE && !lost() => {
                let _ = device.poll(wgpu::PollType::wait_indefinitely());
            }
            Err(_) => return Err(Error::device("reading from the GPU failed: it does not answer")),
        }
    }
}

/// A future that is ready once raised.
#[derive(Default)]
struct Signal(Mutex<(bool, Option<std::task::Waker>)>);

impl Signal {
    fn raise(&self) {
        let mut state = lock(&self.0);
        state.0 = true;
        if let Some(waker) = state.1.take() {
            waker.wake();
        }
    }
}

impl Future for &Signal {
    type Output = ();
    fn poll(
        self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<()> {
        let mut state = lock(&self.0);
        if state.0 {
            return std::task::Poll::Ready(());
        }
        state.1 = Some(context.waker().clone());
        std::task::Poll::Pending
    }
}
