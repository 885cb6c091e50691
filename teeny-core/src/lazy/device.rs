//! [`Lazy`]: the device that records.

use super::cache::{Cache, Found};
use super::describe::Listed;
use super::list::{List, Node, NodeContext, Request};
use super::plan::{ExecutionPlan, Item};
use super::reads;
use super::report::{Log, Reason, Report};
use super::run::Run;
use super::show::Drawing;
use super::value::{LazyStorage, Slot, Value, value};
use crate::context;
use crate::device::{Device, DeviceInfo, DeviceRef, Fill, ReadFuture, Stats, ToDevice, WaitFuture};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::op::{Op, Outputs, Recorded, RuntimeArgs, taken};
use crate::scalar::Scalar;
use crate::shape::Shape;
use crate::storage::{StorageRef, downcast};
use crate::tensor::Tensor;
use std::fmt;
use std::future::ready;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, ThreadId};

crate::options! {
    /// When [`Lazy`] runs recorded operations before a result is read. Defaults: 4,096 operations,
    /// 1 GiB of results; not immediate; sums have the bits of eager ones.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LazyOptions {
        /// Operations that are recorded at most before they run.
        max_nodes: usize = 4096, with_max_nodes;
        /// Bytes of results that are recorded at most before they run.
        max_bytes: usize = 1 << 30, with_max_bytes;
        /// Each operation runs when it is recorded, so that it fails at its own line.
        immediate: bool = false, with_immediate;
        /// Sums and products of floats may be computed in another order than eagerly, so that sums
        /// need not store their terms first, and a softmax or log-softmax that is written out runs
        /// as the fused operation. The last bits may then differ.
        reassociate: bool = false, with_reassociate;
    }
}

/// Counters of [`Lazy`] since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LazyStats {
    /// Operations that were recorded.
    pub recorded: u64,
    /// Operations of the device below that ran for them.
    pub executed: u64,
    /// Recorded operations that never ran because their results were dropped.
    pub dropped: u64,
    /// Fused operations that failed, so that the recorded ones ran instead.
    pub unfused: u64,
    /// Plans that were made, for lists that no plan was kept for.
    pub plans: u64,
    /// Lists that found their plan.
    pub hits: u64,
    /// Fused kernels that were built.
    pub kernels: u64,
    /// Bytes of all results of the list that ran last, as eager operations store them.
    pub recorded_bytes: u64,
    /// The most bytes of results of that list that were alive at once, by its plan.
    pub peak_bytes: u64,
    /// Lists that ran because a result was read, or given to the device below.
    pub reads: u64,
    /// Lists that ran at the first operation after [`Device::flush`].
    pub boundaries: u64,
    /// Lists that ran because of [`LazyOptions::max_nodes`], `max_bytes` or `immediate`.
    pub limits: u64,
    /// Lists that ran because of [`Device::synchronize`].
    pub synchronizations: u64,
    /// Lists of which a text was made: none unless `TEENY_DEBUG` or [`Lazy::log_to`] asks for it.
    pub reports: u64,
}

/// A device that records operations and runs them on the device that it wraps when a result is
/// needed.
///
/// An operation is checked when it is recorded: shapes and types fail at their own line. It runs, in
/// recorded order with all others, at the first of these:
///
/// - a result is read (`to_vec`, `item`, printing) or given to the device below (`to`);
/// - [`Device::synchronize`] is called;
/// - the first operation after [`Device::flush`], which an optimizer calls at the end of a step;
/// - a limit of [`LazyOptions`] is reached.
///
/// A result that no tensor holds by then, and that no other needed result is computed from, is
/// never computed and never fails. An error that only the device can find, such as an index out of
/// range or a failed allocation, is returned by the read and names the recorded operation and its
/// line. Each later read of the result, or of one computed from it, returns the same error. Other
/// results are computed.
///
/// With `TEENY_DEBUG=1` each list that runs is a line on stderr; see [`Lazy::log_to`].
/// [`Lazy::graph`] draws the recorded operations.
///
/// Without [`LazyOptions::reassociate`], results equal the wrapped device's to the bit, except for
/// the sign and payload of a NaN. Autograd goes outside and other wrappers inside:
/// `Autograd::new(Lazy::new(Trace::new(device)))`. If the wrapped device panics, the operation that
/// ran there fails.
///
/// # Example
/// ```
/// use teeny_core::{DType, Lazy, Reference, Result, Tensor};
/// # fn main() -> Result<()> {
/// let lazy = Lazy::new(Reference::new());
/// let x = Tensor::ones((2, 3), DType::F32, &lazy)?; // (2, 3)
/// let y = x.add(1.0)?.exp()?; // (2, 3)
/// x.log()?; // the result is dropped
/// assert_eq!(lazy.counters().executed, 0);
/// let sum: f32 = y.sum_all()?.item()?;
/// assert!((sum - 6.0 * 2f32.exp()).abs() < 1e-4);
/// assert_eq!(lazy.counters().dropped, 1);
/// # Ok(()) }
/// ```
pub struct Lazy {
    pub(super) inner: DeviceRef,
    pub(super) options: LazyOptions,
    /// The recorded nodes. Locked only briefly.
    recording: Mutex<Recording>,
    /// The plans of earlier lists. Locked while a list runs: the next one waits, as it may read the
    /// results.
    running: Mutex<Cache>,
    /// Where reports go, if not where `TEENY_DEBUG` sends them.
    pub(super) log: OnceLock<Log>,
    pub(super) drawing: Mutex<Drawing>,
}

#[derive(Default)]
struct Recording {
    list: List,
    /// An empty list, whose memory the next one takes.
    spare: List,
    /// The list of a captured function while it runs, on its thread.
    captured: Option<(ThreadId, List)>,
    /// The number of captured functions.
    captures: u64,
    stats: LazyStats,
    /// The first failure since the last `synchronize`.
    failure: Option<Error>,
}

impl Recording {
    /// The list of the captured function that the calling thread runs.
    fn captured(&mut self) -> Option<&mut List> {
        let (thread, list) = self.captured.as_mut()?;
        (*thread == thread::current().id()).then_some(list)
    }
}

impl Lazy {
    /// A device that records for `inner`, by the default [`LazyOptions`].
    pub fn new(inner: impl ToDevice) -> Arc<Lazy> {
        Lazy::with_options(inner, LazyOptions::default())
    }

    /// A device that records for `inner`.
    pub fn with_options(inner: impl ToDevice, options: LazyOptions) -> Arc<Lazy> {
        Arc::new(Lazy {
            inner: inner.to_device(),
            options,
            recording: Mutex::default(),
            running: Mutex::default(),
            log: OnceLock::new(),
            drawing: Mutex::default(),
        })
    }

    /// Counters since the device was created.
    pub fn counters(&self) -> LazyStats {
        self.recording().stats
    }

    /// Calls `look` with the list that has not run yet, and whether each of its slots is held.
    pub(super) fn recorded<T>(&self, look: impl FnOnce(&List, Vec<bool>) -> T) -> T {
        let list = &self.recording().list;
        look(list, list.held())
    }

    fn recording(&self) -> MutexGuard<'_, Recording> {
        self.recording.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the recorded operations that are needed. Failures are kept in the values, and the first
    /// one for `synchronize`.
    fn run_list(&self, reason: Reason) {
        let mut cache = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut list, held) = {
            let mut recording = self.recording();
            if recording.list.is_empty() {
                return;
            }
            let spare = mem::take(&mut recording.spare);
            let list = recording.list.take(spare);
            // No operation can be recorded meanwhile, so a value that is not held now never will
            // be.
            let held = list.held();
            (list, held)
        };
        let Found { plan, is_new, .. } = self.find(&mut cache, &list, held);
        let recorded_bytes = list.bytes();
        let List { nodes, contexts, slots, params, .. } = &mut list;
        let (device, reader) = (&self.inner, context::current());
        let listed = Listed { nodes, contexts, slots, params, device };
        self.drawing.lock().unwrap_or_else(PoisonError::into_inner).draw(listed, &plan);
        let report =
            Log::of(&self.log).map(|log| Report::new(log, listed, &plan, is_new, reason, reader));
        let run = Run {
            items: &plan.items,
            nodes: &plan.nodes,
            contexts,
            params,
            device,
            reader,
            is_timed: report.as_ref().is_some_and(Report::is_timed),
        };
        let ran = run.run(&mut plan.slots(slots.drain(..)));
        let reports = u64::from(report.is_some());
        if let Some(report) = report {
            report.finish(&ran.times);
        }
        let spare = list.cleared();
        let recording = &mut *self.recording();
        recording.spare = spare;
        let Recording { stats, failure, .. } = recording;
        stats.reports += reports;
        stats.executed += ran.executed;
        stats.unfused += ran.failed;
        stats.dropped += plan.dropped as u64;
        (stats.recorded_bytes, stats.peak_bytes) = (recorded_bytes as u64, plan.peak as u64);
        *match reason {
            Reason::Read => &mut stats.reads,
            Reason::Boundary => &mut stats.boundaries,
            Reason::Limit => &mut stats.limits,
            Reason::Synchronize => &mut stats.synchronizations,
        } += 1;
        if let Some(error) = ran.error {
            failure.get_or_insert(error);
        }
    }

    /// Appends an operation: its outputs, and whether a limit is reached.
    fn record(&self, request: Request<'_>) -> Result<(Outputs, bool)> {
        let mut recording = self.recording();
        if recording.list.ends && recording.captured().is_none() {
            drop(recording);
            self.run_list(Reason::Boundary);
            recording = self.recording();
        }
        recording.stats.recorded += 1;
        if let Some(list) = recording.captured() {
            return Ok((list.push(request)?, false));
        }
        let list = &mut recording.list;
        let outputs = list.push(request)?;
        let LazyOptions { max_nodes, max_bytes, immediate, .. } = self.options;
        let is_full = immediate || list.len() >= max_nodes || list.bytes() >= max_bytes;
        Ok((outputs, is_full))
    }

    /// Computes `values`, if they are not.
    pub(super) fn finish(&self, values: &[Arc<Value>]) {
        if values.iter().any(|value| value.is_pending()) {
            self.run_list(Reason::Read);
        }
    }

    /// Starts to record the calling thread's operations for a captured function. Earlier operations
    /// run first: the function may be the last to hold it.
    pub(super) fn begin_capture(&self) -> Result<()> {
        self.run_list(Reason::Boundary);
        let mut recording = self.recording();
        if recording.captured.is_some() || reads::is_recording() {
            return Err(Error::value("another captured function is being recorded")
                .help("call the inner function itself: one capture records all of it"));
        }
        recording.captures += 1;
        let number = 1 << 63 | recording.captures;
        recording.captured = Some((thread::current().id(), List::numbered(number)));
        Ok(())
    }

    /// Ends the capture and returns the operations recorded since [`Lazy::begin_capture`].
    pub(super) fn end_capture(&self) -> List {
        let captured = self.recording().captured.take();
        captured.map(|(_, list)| list).unwrap_or_default()
    }

    /// The plan of a list with these slots held.
    pub(super) fn plan(&self, list: &List, held: Vec<bool>) -> Arc<ExecutionPlan> {
        let mut cache = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        self.find(&mut cache, list, held).plan
    }

    /// [`Cache::find`], counted.
    fn find(&self, cache: &mut Cache, list: &List, held: Vec<bool>) -> Found {
        let found = cache.find(list, held, self.options.reassociate);
        let stats = &mut self.recording().stats;
        stats.kernels += found.kernels as u64;
        *if found.is_new { &mut stats.plans } else { &mut stats.hits } += 1;
        found
    }

    /// Runs items of a captured function; their first error.
    pub(super) fn replay(
        &self,
        items: &[Item],
        nodes: &[Node],
        contexts: &[NodeContext],
        params: &[Scalar],
        slots: &mut [Slot],
    ) -> Result<()> {
        let (device, reader) = (&self.inner, context::current());
        let ran =
            Run { items, nodes, contexts, params, device, reader, is_timed: false }.run(slots);
        let stats = &mut self.recording().stats;
        stats.executed += ran.executed;
        stats.unfused += ran.failed;
        ran.error.map_or(Ok(()), Err)
    }

    /// Whether two values have the same elements.
    pub(super) fn is_equal(&self, a: &Value, b: &Value) -> Result<bool> {
        let bytes = |value: &Value| {
            let storage = value.storage()?;
            let (shape, dtype) = (Shape::new(&[storage.len()])?, storage.dtype());
            let x = Tensor::from_result(storage, shape, dtype, self.inner.clone())?;
            self.inner.download(&x)
        };
        Ok(bytes(a)? == bytes(b)?)
    }

    /// Operations that are recorded at most.
    pub(super) fn max_nodes(&self) -> usize {
        self.options.max_nodes
    }

    /// The tensor of the device below behind `x`, computed if need be.
    fn ready(&self, x: &Tensor) -> Result<Tensor> {
        let value = value(x)?;
        if self.recording().captured().is_some() {
            return Err(read_inside());
        }
        if value.is_pending() {
            self.run_list(Reason::Read);
        }
        Tensor::from_parts(value.storage()?, *x.layout(), x.dtype(), self.inner.clone())
    }
}

impl Lazy {
    /// A value that the inner device has.
    fn uploaded(&self, storage: StorageRef) -> StorageRef {
        let storage = LazyStorage::ready(storage);
        if let Some(list) = self.recording().captured() {
            let slot = list.slot(storage.value());
            list.uploads.push(slot);
        }
        Arc::new(storage)
    }
}

// A method that is not passed on would act on this wrapper alone.
#[deny(clippy::missing_trait_methods)]
impl Device for Lazy {
    fn info(&self) -> DeviceInfo {
        let DeviceInfo { name, description } = self.inner.info();
        DeviceInfo { name: format!("lazy({name})"), description }
    }

    fn upload(&self, bytes: &[u8], dtype: DType) -> Result<StorageRef> {
        Ok(self.uploaded(self.inner.upload(bytes, dtype)?))
    }

    fn upload_with(
        &self,
        len: usize,
        dtype: DType,
        step: usize,
        fill: &Fill<'_>,
    ) -> Result<StorageRef> {
        Ok(self.uploaded(self.inner.upload_with(len, dtype, step, fill)?))
    }

    fn download(&self, x: &Tensor) -> Result<Vec<u8>> {
        self.inner.download(&self.ready(x)?)
    }

    fn download_async(&self, x: &Tensor) -> ReadFuture {
        match self.ready(x) {
            Ok(x) => self.inner.download_async(&x),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    fn execute(&self, op: &mut Op<'_>) -> Result<Option<Outputs>> {
        // Written over an element at a time, nothing is saved: memory is reused when the list runs.
        let Some(recorded) = Recorded::of(op) else { return Ok(None) };
        let (name, specs) = (op.name(), op.outputs()?);
        // Given up once it is recorded: until then, this or another thread may run the list that
        // computes it.
        let given_up = match op {
            Op::CopyInto { dst, .. } => Some(dst.take().ok_or_else(taken)?),
            _ => None,
        };
        let destination = given_up.as_ref().map(downcast::<LazyStorage>).transpose()?;
        let destination = destination.map(|dst| dst.value().clone());
        let request = Request {
            op: recorded,
            args: RuntimeArgs::of(op),
            operands: &op.operands(),
            destination,
            outputs: &specs,
            name,
            context: context::current(),
        };
        let (outputs, is_full) = self.record(request)?;
        drop(given_up);
        if is_full {
            self.run_list(Reason::Limit);
            if self.options.immediate {
                for storage in outputs.iter() {
                    downcast::<LazyStorage>(storage)?.value().storage()?;
                }
            }
        }
        Ok(Some(outputs))
    }

    fn synchronize(&self) -> Result<()> {
        if self.recording().captured().is_some() {
            return Err(read_inside());
        }
        self.run_list(Reason::Synchronize);
        let failure = self.recording().failure.take();
        self.inner.synchronize()?;
        failure.map_or(Ok(()), Err)
    }

    fn synchronize_async(&self) -> WaitFuture {
        if self.recording().captured().is_some() {
            return Box::pin(ready(Err(read_inside())));
        }
        self.run_list(Reason::Synchronize);
        let failure = self.recording().failure.take();
        let waiting = self.inner.synchronize_async();
        Box::pin(async {
            waiting.await?;
            failure.map_or(Ok(()), Err)
        })
    }

    /// The list that is being recorded is not submitted.
    fn ready_async(&self) -> WaitFuture {
        self.inner.ready_async()
    }

    fn flush(&self) {
        let mut recording = self.recording();
        if recording.captured().is_none() {
            recording.list.ends = !recording.list.is_empty();
        }
    }

    fn prefers_batched_kernels(&self) -> bool {
        self.inner.prefers_batched_kernels()
    }

    fn stats(&self) -> Stats {
        self.inner.stats()
    }

    fn clear_cache(&self) {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.inner.clear_cache();
    }

    fn inner(&self) -> Option<&DeviceRef> {
        Some(&self.inner)
    }

    fn wrap(&self, x: &Tensor) -> Result<StorageRef> {
        Ok(Arc::new(LazyStorage::ready(x.storage().clone())))
    }

    fn unwrap(&self, x: &Tensor) -> Result<Tensor> {
        self.ready(x)
    }
}

impl fmt::Debug for Lazy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lazy").field("inner", &self.inner).finish_non_exhaustive()
    }
}

#[cold]
fn read_inside() -> Error {
    Error::value("a captured function reads a result, which a replay would not repeat")
        .help("return the tensor from the function and read it afterwards")
}
