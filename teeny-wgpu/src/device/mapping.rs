//! Waiting for the GPU: the report of a wgpu callback, awaited or waited for.
//!
//! Natively callbacks run while some thread polls the device, so a wait polls until the submission
//! is done. In a browser they run between two events; no thread can wait there, only await.

use crate::device::Wgpu;
use crate::device::lock::lock;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use teeny_core::clock::Instant;
use teeny_core::{Error, Result};

/// False in a browser, where no thread can wait for the GPU.
pub(crate) const CAN_WAIT: bool = !cfg!(all(target_family = "wasm", target_os = "unknown"));

/// How long a callback may take after the GPU has done its work.
const PATIENCE: Duration = Duration::from_secs(60);

/// A value that a callback brings.
pub(crate) struct Signal<T> {
    state: Mutex<(Option<T>, Option<Waker>)>,
    raised: Condvar,
}

impl<T> Signal<T> {
    pub fn new() -> Arc<Signal<T>> {
        Arc::new(Signal { state: Mutex::new((None, None)), raised: Condvar::new() })
    }

    /// Brings the value.
    pub fn raise(&self, value: T) {
        let mut state = lock(&self.state);
        state.0 = Some(value);
        let waker = state.1.take();
        drop(state);
        self.raised.notify_all();
        waker.into_iter().for_each(Waker::wake);
    }

    /// The value, for a thread that waits; `None` after `time`.
    fn wait(&self, time: Duration) -> Option<T> {
        let state = lock(&self.state);
        let waited = self.raised.wait_timeout_while(state, time, |state| state.0.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.0.take()
    }
}

impl<T> Future for &Signal<T> {
    type Output = T;
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut state = lock(&self.state);
        match state.0.take() {
            Some(value) => Poll::Ready(value),
            None => {
                state.1 = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// The value of a callback that follows submitted commands. Another thread that waits as well may
/// have taken the callback out of wgpu and not called it yet.
///
/// # Errors
/// If the callback does not come, as on a device that is `lost`.
pub(crate) fn answer<T>(
    signal: &Signal<T>,
    device: &wgpu::Device,
    lost: impl Fn() -> bool,
) -> Result<T> {
    let start = Instant::now();
    loop {
        match signal.wait(Duration::from_millis(100)) {
            Some(value) => return Ok(value),
            None if start.elapsed() < PATIENCE && !lost() => {
                let _ = device.poll(wgpu::PollType::wait_indefinitely());
            }
            None => return Err(Error::device("waiting for the GPU failed: it does not answer")),
        }
    }
}

/// Submitted commands and the callback that follows them.
pub(crate) struct Submitted<T> {
    pub signal: Arc<Signal<T>>,
    /// `None` if nothing was ever submitted.
    pub index: Option<wgpu::SubmissionIndex>,
}

impl Submitted<()> {
    /// Everything that is recorded now, which this submits.
    pub fn all(gpu: &Wgpu) -> Submitted<()> {
        Submitted::until(gpu, gpu.stream.submit_all())
    }

    /// Everything that has been submitted; `index` is the last submission.
    pub fn until(gpu: &Wgpu, index: Option<wgpu::SubmissionIndex>) -> Submitted<()> {
        let signal = Signal::new();
        let raised = signal.clone();
        gpu.queue.on_submitted_work_done(move || raised.raise(()));
        Submitted { signal, index }
    }
}

impl<T> Submitted<T> {
    /// The value of the callback. Natively the thread that polls the future waits, for these
    /// commands alone.
    ///
    /// # Errors
    /// If the GPU does not answer.
    pub async fn done(&self, gpu: &Wgpu) -> Result<T> {
        if !CAN_WAIT {
            return Ok((&*self.signal).await);
        }
        gpu.stream.wait_for(self.index.clone())?;
        answer(&self.signal, &gpu.device, || gpu.sticky.is_lost())
    }
}
