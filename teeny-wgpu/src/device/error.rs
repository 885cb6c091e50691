//! Errors of a GPU as errors of teeny, and the place where late errors wait.
//!
//! wgpu reports some mistakes long after the call that made them. [`Sticky`] keeps the first one;
//! the next fallible call of the device returns it. The loss of the device takes precedence over
//! errors that follow from it, and lasts.

use crate::device::limits::MAX_COUNT;
use crate::device::lock::lock;
use crate::device::mapping::CAN_WAIT;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use teeny_core::{DType, Error, ErrorKind, Result};

/// The first error that wgpu reported outside a call, until a call returns it.
#[derive(Default)]
pub(crate) struct Sticky {
    raised: AtomicBool,
    state: Mutex<WaitFuture>,
}

#[derive(Default)]
struct WaitFuture {
    /// Why the device was lost. Everything that goes wrong afterwards follows from it.
    lost: Option<String>,
    error: Option<(ErrorKind, String)>,
}

impl Sticky {
    /// Listens to everything that `device` reports.
    pub fn watch(device: &wgpu::Device) -> Arc<Sticky> {
        let sticky = Arc::new(Sticky::default());
        let listener = sticky.clone();
        device.on_uncaptured_error(Arc::new(move |error| match error {
            wgpu::Error::OutOfMemory { .. } => {
                listener.raise(ErrorKind::OutOfMemory, "the driver has no memory left".to_string())
            }
            wgpu::Error::Validation { description, .. } => listener
                .raise(ErrorKind::Internal, format!("wgpu refused a command: {description}")),
            wgpu::Error::Internal { description, .. } => {
                listener.raise(ErrorKind::Device, format!("wgpu failed: {description}"))
            }
        }));
        let listener = sticky.clone();
        device.set_device_lost_callback(move |reason, message| {
            let why = match (message.is_empty(), reason) {
                (false, _) => format!(": {message}"),
                (true, wgpu::DeviceLostReason::Destroyed) => ": it was destroyed".to_string(),
                (true, _) => ", and the driver gave no reason".to_string(),
            };
            listener.lose(format!("the GPU was lost{why}"))
        });
        sticky
    }

    /// Keeps an error, unless one waits already.
    pub fn raise(&self, kind: ErrorKind, message: String) {
        lock(&self.state).error.get_or_insert((kind, message));
        self.raised.store(true, Ordering::Release);
    }

    /// Notes that the device is lost, for good.
    pub fn lose(&self, message: String) {
        lock(&self.state).lost.get_or_insert(message);
        self.raised.store(true, Ordering::Release);
    }

    /// True if the device is lost.
    pub fn is_lost(&self) -> bool {
        lock(&self.state).lost.is_some()
    }

    /// True if nothing waits.
    pub fn is_quiet(&self) -> bool {
        !self.raised.load(Ordering::Acquire)
    }

    /// The loss of the device, every time; else the waiting error, once.
    ///
    /// # Errors
    /// That error.
    pub fn check(&self) -> Result<()> {
        if self.is_quiet() {
            return Ok(());
        }
        let mut state = lock(&self.state);
        if let Some(message) = &state.lost {
            return Err(Error::device(message.clone())
                .help("make a new Wgpu; tensors on this one can no longer be read"));
        }
        let waiting = state.error.take();
        self.raised.store(false, Ordering::Release);
        waiting.map_or(Ok(()), |(kind, message)| Err(Error::new(kind, message)))
    }
}

/// A tensor larger than a buffer.
pub(crate) fn too_large(bytes: u64, limit: u64) -> Error {
    Error::out_of_memory(format!(
        "a tensor of {bytes} bytes is larger than the largest buffer of this GPU, {limit} bytes"
    ))
}

/// The error of a tensor whose size in bytes overflows 64 bits.
pub(crate) fn uncountable(len: usize, dtype: DType) -> Error {
    Error::out_of_memory(format!(
        "a tensor of {len} {dtype} elements is larger than the largest buffer of this GPU"
    ))
}

/// More elements than a shader counts.
pub(crate) fn beyond(count: usize) -> Error {
    let message =
        format!("expected sizes up to {MAX_COUNT}, which shaders count with 32 bits, got {count}");
    Error::unsupported(message).help("split the tensor along an axis, or use the CPU device")
}

/// The budget is used up.
pub(crate) fn out_of_memory(bytes: u64, in_use: u64, budget: Option<u64>) -> Error {
    let error = Error::out_of_memory(format!("cannot allocate {bytes} more bytes on the GPU"));
    match budget {
        Some(budget) => error.note(format!("{in_use} bytes are in use, the budget is {budget}")),
        None => error.note(format!("{in_use} bytes are in use; the driver refused more")),
    }
}

/// Runs `body` and returns the error that wgpu found in it.
pub(crate) fn scoped<T>(
    device: &wgpu::Device,
    filter: wgpu::ErrorFilter,
    body: impl FnOnce() -> T,
) -> std::result::Result<T, wgpu::Error> {
    // In a browser no thread may wait; errors are reported by the device's sticky error instead.
    if !CAN_WAIT {
        return Ok(body());
    }
    let scope = device.push_error_scope(filter);
    let value = body();
    match pollster::block_on(scope.pop()) {
        None => Ok(value),
        Some(error) => Err(error),
    }
}
