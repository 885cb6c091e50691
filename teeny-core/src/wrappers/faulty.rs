//! A device that fails on demand: the k-th request returns an error, to test error handling.

use super::{pass_on, pass_through, unwrap};
use crate::device::{Device, DeviceInfo, DeviceRef, ReadFuture, ToDevice, WaitFuture};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::op::{Op, Outputs};
use crate::storage::StorageRef;
use crate::tensor::Tensor;
use std::fmt;
use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Which requests a [`Faulty`] device counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// Every request.
    Any,
    /// Operations, each of which allocates its result: all requests that compute.
    Execute,
    /// Data from the host.
    Upload,
    /// Data to the host.
    Download,
    /// [`Device::synchronize`](crate::Device::synchronize).
    Synchronize,
}

impl Request {
    /// Every kind of request.
    pub const ALL: [Request; 5] =
        [Request::Any, Request::Execute, Request::Upload, Request::Download, Request::Synchronize];
}

/// How long a fault lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lasting {
    /// One request fails. The next one works again.
    Once,
    /// Every request of the kind fails from then on, until [`Faulty::heal`].
    Forever,
}

/// A device that passes every request on to the device it wraps, except those selected to fail.
///
/// A request that fails does not reach the wrapped device. Requests are counted from the last
/// [`Faulty::fail`], so a test fails the k-th request of a piece of work, for all k until
/// [`Faulty::failures`] stays 0.
///
/// # Example
/// ```
/// use teeny_core::wrappers::{Faulty, Lasting, Request};
/// use teeny_core::{ErrorKind, Reference, Result, Tensor};
/// # fn main() -> Result<()> {
/// let device = Faulty::new(Reference::new());
/// let x = Tensor::new([1.0f32, 4.0], &device)?; // (2)
/// device.fail(Request::Execute, 1, ErrorKind::OutOfMemory, Lasting::Once);
/// let y = x.sqrt()?; // request 0 works
/// assert_eq!(y.exp().unwrap_err().kind(), ErrorKind::OutOfMemory); // request 1 fails
/// assert_eq!(y.exp()?.shape()[..], [2]); // request 2 works again
/// assert_eq!((device.requests(Request::Execute), device.failures()), (3, 1));
/// # Ok(()) }
/// ```
pub struct Faulty {
    inner: DeviceRef,
    state: Mutex<FaultyState>,
}

#[derive(Default)]
struct FaultyState {
    fault: Option<Fault>,
    /// By kind, in the order of [`Request::ALL`].
    counts: [u64; Request::ALL.len()],
    failures: u64,
}

#[derive(Clone, Copy)]
struct Fault {
    request: Request,
    number: u64,
    kind: ErrorKind,
    lasting: Lasting,
}

impl Faulty {
    /// A device around `inner` that fails nothing yet.
    pub fn new(inner: impl ToDevice) -> Arc<Faulty> {
        Arc::new(Faulty { inner: inner.to_device(), state: Mutex::default() })
    }

    /// Fails request number `number` of this kind, counted from 0 from now on, with an error of
    /// `kind`. Replaces an earlier fault.
    pub fn fail(&self, request: Request, number: u64, kind: ErrorKind, lasting: Lasting) {
        *self.state() = FaultyState {
            fault: Some(Fault { request, number, kind, lasting }),
            ..FaultyState::default()
        };
    }

    /// Removes the fault. The counts stay.
    pub fn heal(&self) {
        self.state().fault = None;
    }

    /// The number of requests of this kind since the last [`Faulty::fail`], failed ones included.
    pub fn requests(&self, request: Request) -> u64 {
        self.state().counts[request as usize]
    }

    /// The number of requests that failed since the last [`Faulty::fail`].
    pub fn failures(&self) -> u64 {
        self.state().failures
    }

    /// Counts a request of this kind, and fails it if it is selected.
    fn request(&self, request: Request, name: &str) -> Result<()> {
        let mut state = self.state();
        for counted in [request, Request::Any] {
            state.counts[counted as usize] += 1;
        }
        let Some(fault) = state.fault else { return Ok(()) };
        let Some(number) = state.counts[fault.request as usize].checked_sub(1) else {
            return Ok(()); // none of its kind yet
        };
        let due = match fault.lasting {
            Lasting::Once => number == fault.number,
            Lasting::Forever => number >= fault.number,
        };
        if !due || (fault.request != Request::Any && fault.request != request) {
            return Ok(());
        }
        state.failures += 1;
        drop(state);
        Err(Error::new(fault.kind, format!("request {number} ({name}) was told to fail"))
            .help("faulty.heal() ends the fault"))
    }

    fn state(&self) -> MutexGuard<'_, FaultyState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// A method that is not passed on would act on this wrapper alone.
#[deny(clippy::missing_trait_methods)]
impl Device for Faulty {
    fn info(&self) -> DeviceInfo {
        let DeviceInfo { name, description } = self.inner.info();
        DeviceInfo { name: format!("faulty({name})"), description }
    }
    fn execute(&self, op: &mut Op<'_>) -> Result<Option<Outputs>> {
        if matches!(op, Op::ElementwiseInPlace { .. }) {
            return Ok(None); // counted as the op with new storage that core runs instead
        }
        self.request(Request::Execute, op.name())?;
        pass_on(op, &self.inner).map(Some)
    }
    fn upload(&self, bytes: &[u8], dtype: DType) -> Result<StorageRef> {
        self.request(Request::Upload, "upload")?;
        self.inner.upload(bytes, dtype)
    }
    fn download(&self, x: &Tensor) -> Result<Vec<u8>> {
        self.request(Request::Download, "download")?;
        self.inner.download(&unwrap(x, &self.inner)?)
    }
    fn download_async(&self, x: &Tensor) -> ReadFuture {
        let requested = self.request(Request::Download, "download");
        match requested.and_then(|()| unwrap(x, &self.inner)) {
            Ok(x) => self.inner.download_async(&x),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }
    fn synchronize_async(&self) -> WaitFuture {
        match self.request(Request::Synchronize, "synchronize") {
            Ok(()) => self.inner.synchronize_async(),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }
    fn synchronize(&self) -> Result<()> {
        self.request(Request::Synchronize, "synchronize")?;
        self.inner.synchronize()
    }
    pass_through!(
        inner: inner, upload_filled, flush, prefers_batched_kernels, stats, clear_cache,
        ready_async, wrap, unwrap
    );
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faulty").field("inner", &self.inner).finish_non_exhaustive()
    }
}
