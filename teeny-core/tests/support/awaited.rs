//! A device whose reads and waits are not ready at once, and a loop that runs a future.
#![allow(dead_code)] // each test file uses part of it

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use teeny_core::{
    DType, Device, DeviceInfo, Error, ErrorKind, Op, Outputs, ReadFuture, Reference, Result,
    StorageRef, Tensor, WaitFuture,
};

/// Runs a future to its end.
pub fn run<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return value;
        }
    }
}

/// The reference, as a device whose futures are pending when they are first polled. It counts reads
/// and waits: the blocking ones, then the awaited ones.
#[derive(Debug)]
pub struct Awaited {
    inner: Arc<Reference>,
    counts: [AtomicUsize; 5],
    fails: AtomicBool,
    /// Calls that wait are errors, as on a GPU in a browser.
    blocks: bool,
}

impl Awaited {
    pub fn new() -> Arc<Awaited> {
        Awaited::with(false)
    }

    /// A device that can only be awaited.
    pub fn in_browser() -> Arc<Awaited> {
        Awaited::with(true)
    }

    fn with(blocks: bool) -> Arc<Awaited> {
        let (inner, counts) = (Reference::new(), Default::default());
        Arc::new(Awaited { inner, counts, fails: AtomicBool::new(false), blocks })
    }

    fn may_wait(&self) -> Result<()> {
        if self.blocks {
            return Err(Error::new(ErrorKind::WouldBlock, "this device can only be awaited"));
        }
        Ok(())
    }

    /// The numbers of calls: download, synchronize, download_async, synchronize_async, ready_async.
    pub fn counts(&self) -> [usize; 5] {
        std::array::from_fn(|i| self.counts[i].load(Relaxed))
    }

    /// The next read that is awaited fails when it is ready.
    pub fn fail(&self) {
        self.fails.store(true, Relaxed);
    }

    fn count(&self, i: usize) {
        self.counts[i].fetch_add(1, Relaxed);
    }
}

/// Pending once.
async fn once() {
    let mut ready = false;
    poll_fn(|context| {
        if std::mem::replace(&mut ready, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl Device for Awaited {
    fn info(&self) -> DeviceInfo {
        DeviceInfo { name: "awaited".into(), description: "the reference, later".into() }
    }
    fn upload(&self, bytes: &[u8], dtype: DType) -> Result<StorageRef> {
        self.inner.upload(bytes, dtype)
    }
    fn download(&self, x: &Tensor) -> Result<Vec<u8>> {
        self.count(0);
        self.may_wait()?;
        self.inner.download(x)
    }
    fn execute(&self, op: &mut Op<'_>) -> Result<Option<Outputs>> {
        self.inner.execute(op)
    }
    fn synchronize(&self) -> Result<()> {
        self.count(1);
        self.may_wait()
    }
    fn download_async(&self, x: &Tensor) -> ReadFuture {
        self.count(2);
        let (bytes, fails) = (self.inner.download(x), self.fails.swap(false, Relaxed));
        Box::pin(async move {
            once().await;
            if fails { Err(Error::device("the device was lost")) } else { bytes }
        })
    }
    fn synchronize_async(&self) -> WaitFuture {
        self.count(3);
        Box::pin(async {
            once().await;
            Ok(())
        })
    }
    fn ready_async(&self) -> WaitFuture {
        self.count(4);
        Box::pin(async {
            once().await;
            Ok(())
        })
    }
}
