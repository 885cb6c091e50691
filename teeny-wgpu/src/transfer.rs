//! Between host and GPU: uploads through the queue, read-back through pooled staging buffers.
//!
//! An upload overtakes the open batch, so it goes to a buffer that no command of that batch has seen. Reading is the only thing that waits, and what went
//! wrong meanwhile comes along with it.

use crate::device::Wgpu;
use crate::error::{self, lock};
use crate::fault;
use crate::pool::FirstUse;
use crate::storage::Memory;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use teeny_core::storage::downcast;
use teeny_core::{DType, Element, Error, Result, StorageRef, Tensor};

/// Bytes of uploads after which the queue is made to start them: until then they wait in the driver's memory.
const UPLOADS: u64 = 64 << 20;
/// Staging buffers larger than this are not kept.
const KEEP: u64 = 64 << 20;

/// Buffers for reading back, and the bytes of uploads since the last submission.
#[derive(Default)]
pub(crate) struct Staging {
    free: Mutex<Vec<wgpu::Buffer>>,
    uploaded: AtomicU64,
}

impl Wgpu {
    pub(crate) fn upload_bytes(&self, bytes: &[u8], dtype: DType) -> Result<StorageRef> {
        let memory = self.memory(bytes.len() / dtype.size(), dtype, FirstUse::Upload)?;
        let whole = bytes.len() / 4 * 4;
        if whole > 0 {
            self.queue.write_buffer(memory.buffer(), 0, &bytes[..whole]);
        }
        if whole < bytes.len() {
            let mut rest = [0u8; 4];
            rest[..bytes.len() - whole].copy_from_slice(&bytes[whole..]);
            self.queue.write_buffer(memory.buffer(), whole as u64, &rest);
        }
        let waiting = self.staging.uploaded.fetch_add(bytes.len() as u64, Ordering::Relaxed) + bytes.len() as u64;
        if waiting > UPLOADS {
            self.staging.uploaded.store(0, Ordering::Relaxed);
            self.stream.flush();
            self.queue.submit([]);
        }
        Ok(Arc::new(memory))
    }

    pub(crate) fn download_bytes(&self, x: &Tensor) -> Result<Vec<u8>> {
        pollster::block_on(self.read_bytes(x, true))
    }

    /// The elements of a tensor of this device in row-major order, as little-endian bytes, without blocking the thread where the platform can.
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
        Ok(T::from_bytes(&self.read(x).await?))
    }

    async fn read_bytes(&self, x: &Tensor, blocking: bool) -> Result<Vec<u8>> {
        self.sticky.check()?;
        let size = x.dtype().size();
        let len = x.numel() * size;
        if len == 0 {
            return Ok(Vec::new());
        }
        let start = x.layout().offset() * size;
        if !x.is_contiguous() || !start.is_multiple_of(4) {
            let packed = Tensor::from_parts(self.packed(x)?, teeny_core::Layout::contiguous(*x.shape()), x.dtype(), x.device().clone());
            return Box::pin(self.read_bytes(&packed, blocking)).await;
        }
        let buffer = downcast::<Memory>(x.storage())?.buffer();
        // The notes about indices come along: no further wait, and no wrong number is read in silence.
        let Some((notes, upto)) = self.faults.outstanding() else { return self.read_plain(buffer, start as u64, len, blocking).await };
        let notes_at = (len as u64).next_multiple_of(4);
        let mut bytes = self.read_parts(&[(buffer, start as u64, notes_at), (notes, 0, fault::BYTES)], blocking).await?;
        self.check_notes(&bytes[notes_at as usize..], upto)?;
        bytes.truncate(len);
        Ok(bytes)
    }

    /// `len` bytes of a buffer from `start` on, a multiple of 4. Submits what was recorded.
    pub(crate) async fn read_plain(&self, buffer: &wgpu::Buffer, start: u64, len: usize, blocking: bool) -> Result<Vec<u8>> {
        let mut bytes = self.read_parts(&[(buffer, start, (len as u64).next_multiple_of(4))], blocking).await?;
        bytes.truncate(len);
        Ok(bytes)
    }

    /// Parts of buffers behind each other: each a buffer, where its part begins and how long it is, in bytes, multiples of 4.
    async fn read_parts(&self, parts: &[(&wgpu::Buffer, u64, u64)], blocking: bool) -> Result<Vec<u8>> {
        let bytes = parts.iter().map(|p| p.2).sum();
        let staging = self.staging_buffer(bytes)?;
        let mut at = 0;
        for &(buffer, start, len) in parts {
            self.stream.copy(buffer, start, &staging, at, len);
            at += len;
        }
        self.stream.flush();
        let (sender, receiver) = mpsc::channel();
        let slice = staging.slice(..bytes);
        let signal = Arc::new(Signal::default());
        let wake = signal.clone();
        slice.map_async(wgpu::MapMode::Read, move |result| {
            let _ = sender.send(result);
            wake.raise();
        });
        if blocking || !cfg!(target_arch = "wasm32") {
            self.stream.wait()?;
        } else {
            (&*signal).await;
        }
        let mapped = receiver.try_recv();
        self.sticky.check()?;
        match mapped {
            Ok(Ok(())) => {}
            Ok(Err(e)) => return Err(Error::device(format!("reading from the GPU failed: {e}"))),
            Err(_) => return Err(Error::device("this platform cannot wait for the GPU").hint("read with Wgpu::read(..).await")),
        }
        let view = slice.get_mapped_range().map_err(|e| Error::device(format!("reading from the GPU failed: {e}")))?;
        let out = view.to_vec();
        drop(view);
        staging.unmap();
        if staging.size() <= KEEP {
            lock(&self.staging.free).push(staging);
        }
        Ok(out)
    }

    fn staging_buffer(&self, bytes: u64) -> Result<wgpu::Buffer> {
        let size = bytes.next_power_of_two().max(4096).min(self.capabilities.max_buffer / 4 * 4);
        let mut free = lock(&self.staging.free);
        if let Some(i) = free.iter().position(|b| b.size() == size) {
            return Ok(free.swap_remove(i));
        }
        drop(free);
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let descriptor = wgpu::BufferDescriptor { label: Some("teeny staging"), size, usage, mapped_at_creation: false };
        crate::pipeline::scoped(&self.device, wgpu::ErrorFilter::OutOfMemory, || self.device.create_buffer(&descriptor))
            .map_err(|_| error::out_of_memory(size, self.pool.stats().live_bytes, None))
    }

    /// Drops the staging buffers kept for reuse.
    pub(crate) fn clear_staging(&self) {
        lock(&self.staging.free).clear();
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
    fn poll(self: std::pin::Pin<&mut Self>, context: &mut std::task::Context<'_>) -> std::task::Poll<()> {
        let mut state = lock(&self.0);
        if state.0 {
            return std::task::Poll::Ready(());
        }
        state.1 = Some(context.waker().clone());
        std::task::Poll::Pending
    }
}
