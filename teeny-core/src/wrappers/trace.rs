//! Profiling: every operation with its shapes, bytes, floating-point operations and time; a table
//! by operation, and a file for a viewer.

use super::{pass_on, pass_through, place, unwrap};
use crate::clock::Instant;
use crate::context::{self, OpContext, enter};
use crate::device::{Device, DeviceInfo, DeviceRef, Fill, ReadFuture, ToDevice};
use crate::dtype::DType;
use crate::error::Result;
use crate::file::{replace, write_error};
use crate::op::{Cost, Op, Outputs};
use crate::storage::StorageRef;
use crate::tensor::Tensor;
use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::future::ready;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Spans that are kept one by one, some 50 MB of them; later operations are still counted in the
/// table.
const MAX_SPANS: usize = 1 << 18;

/// A device that records the operations of the device it wraps and their times.
///
/// [`Trace::new`] waits for the device after every operation: a time is then the operation's, and
/// the device does not work asynchronously. [`Trace::asynchronous`] does not wait: times cover the
/// submission, and the work is measured where a result is read. On the CPU, which computes
/// synchronously, both are the same.
///
/// With the feature `tracing` each operation is also a span `op` of the `tracing` crate (op,
/// called, shapes, bytes, flops).
///
/// # Example
/// ```
/// use teeny_core::{DType, Reference, Result, Tensor, wrappers::Trace};
/// # fn main() -> Result<()> {
/// let trace = Trace::new(Reference::new());
/// let x = Tensor::ones((8, 16), DType::F32, &trace)?; // (8, 16)
/// x.matmul(&x.t()?)?.relu()?;
/// let span = trace.spans().into_iter().find(|span| span.op == "matmul").unwrap();
/// assert_eq!((span.flops, span.bytes), (2 * 8 * 16 * 8, 4 * (2 * 8 * 16 + 8 * 8)));
/// println!("{}", trace.summary());
/// # Ok(()) }
/// ```
pub struct Trace {
    inner: DeviceRef,
    waits: bool,
    began: Instant,
    record: Mutex<Record>,
}

#[derive(Default)]
struct Record {
    spans: Vec<Span>,
    totals: HashMap<TotalKey, Total>,
}

/// The key of a table row: the device's operation, the user's operation, and whether in its
/// gradient.
type TotalKey = (&'static str, &'static str, bool);

#[derive(Clone, Copy, Default)]
struct Total {
    count: u64,
    bytes: u64,
    flops: u64,
    time: Duration,
}

/// One operation of the device.
#[derive(Clone, Debug)]
pub struct Span {
    /// The device's operation: `matmul`, the operation of a kernel that has only one, or `kernel`.
    pub op: &'static str,
    /// The operation it was part of, with the user's line.
    pub called: Option<OpContext>,
    /// The operands: `f32 (8, 16), f32 (16, 8)`.
    pub shapes: String,
    /// Bytes of operands and results.
    pub bytes: u64,
    /// Floating-point operations by definition.
    pub flops: u64,
    /// When it began, counted from the making of the [`Trace`].
    pub start: Duration,
    /// How long it took; see [`Trace`].
    pub time: Duration,
    /// A number of the calling thread.
    pub thread: u64,
}

impl Trace {
    /// A device that traces `inner` and waits for it after every operation.
    pub fn new(inner: impl ToDevice) -> Arc<Trace> {
        Arc::new(Trace {
            inner: inner.to_device(),
            waits: true,
            began: Instant::now(),
            record: Mutex::default(),
        })
    }

    /// A device that traces `inner` without waiting for it.
    pub fn asynchronous(inner: impl ToDevice) -> Arc<Trace> {
        Arc::new(Trace {
            inner: inner.to_device(),
            waits: false,
            began: Instant::now(),
            record: Mutex::default(),
        })
    }

    /// The recorded operations, at most a quarter of a million.
    pub fn spans(&self) -> Vec<Span> {
        self.record().spans.clone()
    }

    /// Clears the recorded operations: after a warm-up, or between phases.
    pub fn clear(&self) {
        *self.record() = Record::default();
    }

    /// A table of operations, sorted by decreasing time: `backward of linear` are the operations in
    /// the gradient of `linear`.
    pub fn summary(&self) -> String {
        let record = self.record();
        let mut rows: Vec<(TotalKey, Total)> =
            record.totals.iter().map(|(row, total)| (*row, *total)).collect();
        rows.sort_by(|(a, x), (b, y)| y.time.cmp(&x.time).then(a.cmp(b)));
        let all: Duration = rows.iter().map(|(_, total)| total.time).sum();
        let mut text = format!(
            "{:<20} {:<28} {:>9} {:>10} {:>6} {:>10} {:>8} {:>9}\n",
            "op", "called by", "count", "ms", "%", "us each", "GB/s", "GFLOP/s"
        );
        for ((op, called, later), Total { count, bytes, flops, time }) in rows {
            let seconds = time.as_secs_f64().max(1e-9);
            let called = format!("{}{called}", if later { "backward of " } else { "" });
            // writing to a String cannot fail
            let _ = writeln!(
                text,
                "{op:<20} {called:<28} {count:>9} {:>10.2} {:>6.1} {:>10.1} {:>8.2} {:>9.2}",
                seconds * 1e3,
                100.0 * seconds / all.as_secs_f64().max(1e-9),
                seconds * 1e6 / count as f64,
                bytes as f64 / seconds / 1e9,
                flops as f64 / seconds / 1e9
            );
        }
        let _ = writeln!(
            text,
            "{:.2} ms in operations of {}",
            all.as_secs_f64() * 1e3,
            self.inner.info().name
        );
        text
    }

    /// When the trace began: the time from which [`Span::start`] counts.
    pub fn began(&self) -> Instant {
        self.began
    }

    /// The operations as events of a trace file, each a line with a JSON object; `process` is the
    /// number of the process that they are of.
    pub fn events(&self, process: u64) -> Vec<String> {
        let event = |span: &Span| {
            let mut line = String::new();
            span.event(process, &mut line);
            line
        };
        self.spans().iter().map(event).collect()
    }

    /// Writes the operations as a trace for <https://ui.perfetto.dev> or `chrome://tracing`.
    ///
    /// # Errors
    /// If the file cannot be written.
    #[track_caller]
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let _op = enter("trace.save");
        save_events(path, self.events(1).iter().map(String::as_str))
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `work` and records it.
    fn span<T>(
        &self,
        op: &'static str,
        operands: &[&Tensor],
        Cost { bytes, flops }: Cost,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let called = context::current();
        let shapes = operands
            .iter()
            .map(|x| format!("{} {}", x.dtype(), x.shape()))
            .collect::<Vec<_>>()
            .join(", ");
        #[cfg(feature = "tracing")]
        let _span =
            tracing::debug_span!("op", op, called = place(called), shapes, bytes, flops).entered();
        let start = self.began.elapsed();
        let result = work();
        let waited = if self.waits { self.inner.synchronize() } else { Ok(()) };
        let time = self.began.elapsed() - start;
        let span = Span { op, called, shapes, bytes, flops, start, time, thread: thread() };
        let mut record = self.record();
        let total = record
            .totals
            .entry((op, called.map_or("", |c| c.op), called.is_some_and(|c| c.later)))
            .or_default();
        *total = Total {
            count: total.count + 1,
            bytes: total.bytes + bytes,
            flops: total.flops + flops,
            time: total.time + time,
        };
        if record.spans.len() < MAX_SPANS {
            record.spans.push(span);
        }
        drop(record);
        let result = result?;
        waited?;
        Ok(result)
    }
}

// A method that is not passed on would act on this wrapper alone.
#[deny(clippy::missing_trait_methods)]
impl Device for Trace {
    fn info(&self) -> DeviceInfo {
        let DeviceInfo { name, description } = self.inner.info();
        DeviceInfo { name: format!("trace({name})"), description }
    }
    fn execute(&self, op: &mut Op<'_>) -> Result<Option<Outputs>> {
        if matches!(op, Op::ElementwiseInPlace { .. }) {
            return Ok(None); // traced as the op with new storage that core runs instead
        }
        let (name, operands, cost) = (op.name(), op.operands(), op.cost()?);
        self.span(name, &operands, cost, || pass_on(op, &self.inner).map(Some))
    }
    fn upload(&self, bytes: &[u8], dtype: DType) -> Result<StorageRef> {
        let cost = Cost { bytes: bytes.len() as u64, flops: 0 };
        self.span("upload", &[], cost, || self.inner.upload(bytes, dtype))
    }
    fn upload_with(
        &self,
        len: usize,
        dtype: DType,
        step: usize,
        fill: &Fill<'_>,
    ) -> Result<StorageRef> {
        let cost = Cost { bytes: (len as u64).saturating_mul(dtype.size() as u64), flops: 0 };
        self.span("upload", &[], cost, || self.inner.upload_with(len, dtype, step, fill))
    }
    fn download(&self, x: &Tensor) -> Result<Vec<u8>> {
        let cost = Cost { bytes: (x.numel() * x.dtype().size()) as u64, flops: 0 };
        self.span("download", &[x], cost, || self.inner.download(&unwrap(x, &self.inner)?))
    }
    /// The span covers only the start of the read, unless the trace waits.
    fn download_async(&self, x: &Tensor) -> ReadFuture {
        let cost = Cost { bytes: (x.numel() * x.dtype().size()) as u64, flops: 0 };
        let started = self.span("download", &[x], cost, || {
            unwrap(x, &self.inner).map(|x| self.inner.download_async(&x))
        });
        started.unwrap_or_else(|error| Box::pin(ready(Err(error))))
    }
    pass_through!(
        inner: inner, flush, prefers_batched_kernels, stats, clear_cache, synchronize,
        synchronize_async, ready_async, wrap, unwrap
    );
}

/// Writes events, such as [`Trace::events`] of several processes, as a trace file.
///
/// # Errors
/// If the file cannot be written.
#[track_caller]
pub fn save_events<'a>(
    path: impl AsRef<Path>,
    events: impl Iterator<Item = &'a str>,
) -> Result<()> {
    let _op = enter("save_events");
    let mut events = events.peekable();
    replace(path.as_ref(), |writer| {
        let mut put = |text: &str| writer.write_all(text.as_bytes()).map_err(write_error);
        put("{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n")?;
        while let Some(event) = events.next() {
            put(event)?;
            put(if events.peek().is_some() { ",\n" } else { "\n" })?;
        }
        put("]}\n")
    })
}

impl Span {
    /// One complete event of the trace format:
    /// <https://perfetto.dev/docs/getting-started/other-formats>.
    fn event(&self, process: u64, text: &mut String) {
        let micros = |time: Duration| time.as_nanos() as f64 / 1e3;
        let Span { op, called, shapes, bytes, flops, start, time, thread } = self;
        let category = if called.is_some_and(|c| c.later) { "backward" } else { "forward" };
        let called = place(*called);
        let _ = write!(
            text,
            "{{\"name\": {}, \"cat\": \"{category}\", \"ph\": \"X\", \"pid\": {process}, \"tid\": {thread}, \"ts\": {}, \"dur\": {}, \
             \"args\": {{\"called\": {}, \"shapes\": {}, \"bytes\": {bytes}, \"flops\": {flops}}}}}",
            quoted(op),
            micros(*start),
            micros(*time),
            quoted(&called),
            quoted(shapes)
        );
    }
}

/// `text` as a JSON string.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if c < ' ' => _ = write!(out, "\\u{:04x}", c as u32),
            c => out.push(c),
        }
    }
    out + "\""
}

/// A number of this thread: 1 for the first that calls.
fn thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").field("inner", &self.inner).finish_non_exhaustive()
    }
}
