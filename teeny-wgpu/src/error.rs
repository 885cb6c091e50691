//! What can go wrong on a GPU, as errors of teeny, and the place where late errors wait.
//!
//! wgpu reports some mistakes long after the call that made them. [`Sticky`] keeps the first one; the next fallible call of the device returns it.
//! Nothing here panics, and a lost device stays lost.

use crate::adapter::{Capabilities, Choice};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use teeny_core::{DType, Error, ErrorKind, Result};

/// The content of a mutex, whether or not a thread panicked while it held it: every section under a lock of this crate leaves the content whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The first error that wgpu reported outside a call, until somebody takes it.
#[derive(Default)]
pub(crate) struct Sticky {
    raised: AtomicBool,
    lost: AtomicBool,
    error: Mutex<Option<(ErrorKind, String)>>,
}

impl Sticky {
    /// Listens to everything that `device` reports.
    pub fn watch(device: &wgpu::Device) -> Arc<Sticky> {
        let sticky = Arc::new(Sticky::default());
        let listener = sticky.clone();
        device.on_uncaptured_error(Arc::new(move |error| match error {
            wgpu::Error::OutOfMemory { .. } => listener.raise(ErrorKind::OutOfMemory, "the driver has no memory left".to_string()),
            wgpu::Error::Validation { description, .. } => listener.raise(ErrorKind::Internal, format!("wgpu refused a command: {description}")),
            wgpu::Error::Internal { description, .. } => listener.raise(ErrorKind::Device, format!("wgpu failed: {description}")),
        }));
        let listener = sticky.clone();
        device.set_device_lost_callback(move |reason, message| {
            listener.raise(ErrorKind::Device, format!("the GPU was lost ({reason:?}): {message}"));
            listener.lost.store(true, Ordering::Release);
        });
        sticky
    }

    /// Keeps an error, unless one is waiting already.
    pub fn raise(&self, kind: ErrorKind, message: String) {
        lock(&self.error).get_or_insert((kind, message));
        self.raised.store(true, Ordering::Release);
    }

    /// The waiting error. A lost device reports its loss every time, everything else once.
    ///
    /// # Errors
    /// The waiting error.
    pub fn check(&self) -> Result<()> {
        if !self.raised.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut slot = lock(&self.error);
        let lost = self.lost.load(Ordering::Acquire);
        let Some((kind, message)) = (if lost { slot.clone() } else { slot.take() }) else { return Ok(()) };
        if !lost {
            self.raised.store(false, Ordering::Release);
        }
        let error = Error::new(kind, message);
        Err(if lost { error.hint("make a new Wgpu; what was on this one cannot be read any more") } else { error })
    }
}

/// No adapter fits.
pub(crate) fn no_adapter(choice: &Choice, names: &[String]) -> Error {
    let error = match choice {
        Choice::Auto => Error::device("no GPU adapter was found, not even a software one"),
        Choice::Index(i) => Error::device(format!("there is no GPU adapter number {i}")),
        Choice::Name(name) => Error::device(format!("no GPU adapter is called {name:?}")),
        Choice::Kind(kind) => Error::device(format!("there is no {kind} GPU adapter")),
    };
    let error = names.iter().fold(error, |e, name| e.fact(name.clone()));
    if names.is_empty() { error.hint("install a Vulkan driver; Debian's mesa-vulkan-drivers has a software one") } else { error }
}

/// The adapter has no arithmetic in `dtype`.
pub(crate) fn dtype_unsupported(capabilities: &Capabilities, dtype: DType, op: &str) -> Error {
    let (need, other) = match dtype {
        DType::I64 => ("64-bit integers", "i32"),
        DType::U64 => ("64-bit integers", "u32"),
        _ => ("64-bit floats", "f32"),
    };
    Error::unsupported(format!("wgpu cannot do {op} in {dtype}: {} has no {need} in shaders", capabilities.name))
        .hint(format!("cast to {other}, or use the CPU device for {dtype}"))
}

/// A tensor larger than a buffer.
pub(crate) fn too_large(bytes: u64, limit: u64) -> Error {
    Error::out_of_memory(format!("a tensor of {bytes} bytes is larger than the largest buffer of this GPU, {limit} bytes"))
}

/// The budget is used up.
pub(crate) fn out_of_memory(bytes: u64, in_use: u64, budget: Option<u64>) -> Error {
    let error = Error::out_of_memory(format!("no room for {bytes} more bytes on the GPU"));
    match budget {
        Some(budget) => error.fact(format!("{in_use} bytes in use, budget {budget}")),
        None => error.fact(format!("{in_use} bytes in use; the driver refused more")),
    }
}
