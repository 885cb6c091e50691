//! Waiting for a buffer to be mapped.

use crate::device::lock::lock;
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};
use teeny_core::{Error, Result};

/// How long the callback of a mapping may take after the GPU has done its work.
const PATIENCE: Duration = Duration::from_secs(60);

/// The result of a mapping whose commands are done. Another thread that waits as well may have
/// taken its callback out of wgpu and not called it yet.
///
/// # Errors
/// If the callback does not come, as on a device that is `lost`.
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
pub(crate) struct Signal(Mutex<(bool, Option<std::task::Waker>)>);

impl Signal {
    pub fn raise(&self) {
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
