//! The order of work: one encoder with one open compute pass that collects dispatches, submitted in
//! batches.
//!
//! ```text
//! dispatch dispatch … dispatch  │ flush: write the parameters, submit │ dispatch …
//! └── one pass, no submit ──────┘ after 64, before a read-back, before waiting
//! ```
//!
//! A submit costs tens of microseconds, a dispatch in an open pass about one. Dispatches of a pass
//! run in order; wgpu inserts the barriers.

use crate::device::adapter::Capabilities;
use crate::device::launch::Binding;
use crate::device::lock::lock;
use crate::device::params::{Params, Ring};
use crate::device::pipeline::{Pipeline, Pipelines};
use crate::device::pool::Pool;
use crate::device::profile::{Profiler, Record, print};
use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use teeny_core::clock::Instant;
use teeny_core::{Error, Result};

/// Dispatches after which a batch is submitted.
const BATCH: u32 = 64;
/// Batches that may wait for the GPU at a time.
pub(crate) const IN_FLIGHT: usize = 4;
/// Bytes of uploads after which the queue starts them: until then they wait in the driver's memory.
pub(crate) const UPLOADS: u64 = 64 << 20;

struct Open {
    encoder: Option<wgpu::CommandEncoder>,
    pass: Option<wgpu::ComputePass<'static>>,
    dispatches: u32,
    ring: Ring,
    submitted: VecDeque<wgpu::SubmissionIndex>,
    last: Option<wgpu::SubmissionIndex>,
    profiler: Option<Profiler>,
}

/// The command stream of a device. One lock; submitting from several threads at once gains nothing.
pub(crate) struct Stream {
    device: wgpu::Device,
    queue: wgpu::Queue,
    pool: Arc<Pool>,
    open: Mutex<Open>,
    dispatches: AtomicU64,
    submissions: AtomicU64,
    /// Bytes uploaded since the last submission.
    uploads: AtomicU64,
}

impl Stream {
    /// `profile` is the level of `TEENY_DEBUG` if launches are to be measured.
    pub fn new(
        device: wgpu::Device,
        queue: wgpu::Queue,
        pool: Arc<Pool>,
        ring: Ring,
        profile: Option<u8>,
    ) -> Stream {
        let profiler = profile.map(|level| Profiler::new(&device, &queue, BATCH, level));
        let open = Open {
            encoder: None,
            pass: None,
            dispatches: 0,
            ring,
            submitted: VecDeque::new(),
            last: None,
            profiler,
        };
        let [dispatches, submissions, uploads] = [0; 3].map(AtomicU64::new);
        Stream { device, queue, pool, open: Mutex::new(open), dispatches, submissions, uploads }
    }

    /// Runs `f` on the profiler, if launches are measured. Recorded launches are measured first.
    pub fn with_profiler<T>(&self, f: impl FnOnce(&Profiler) -> T) -> Option<T> {
        let mut open = lock(&self.open);
        self.submit(&mut open);
        open.profiler.as_ref().map(f)
    }

    /// The numbers of dispatches recorded and of batches submitted.
    pub fn counts(&self) -> (u64, u64) {
        (self.dispatches.load(Ordering::Relaxed), self.submissions.load(Ordering::Relaxed))
    }

    /// Records one dispatch: first the buffers read, then those written, in the order of the
    /// shader's bindings. `record` describes it to the profiler.
    ///
    /// # Errors
    /// If there are too many parameters.
    pub fn dispatch(
        &self,
        pipeline: &Pipeline,
        bindings: &[Binding<'_>],
        params: &Params,
        grid: [u32; 3],
        record: Option<Record>,
    ) -> Result<()> {
        let entries: Vec<_> = bindings
            .iter()
            .enumerate()
            .map(|(i, binding)| wgpu::BindGroupEntry {
                binding: i as u32,
                resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                    buffer: binding.buffer,
                    offset: binding.offset,
                    size: NonZeroU64::new(binding.bytes),
                }),
            })
            .collect();
        let descriptor = wgpu::BindGroupDescriptor {
            label: None,
            layout: &pipeline.storages,
            entries: &entries,
        };
        let group = self.device.create_bind_group(&descriptor);
        let mut open = lock(&self.open);
        if !open.ring.fits(params) {
            self.submit(&mut open);
        }
        let alone = open.profiler.as_ref().is_some_and(Profiler::one_by_one);
        if alone {
            self.submit(&mut open);
            let _ = self.device.poll(wgpu::PollType::wait_indefinitely());
        }
        let offset = open.ring.push(params)?;
        let Open { encoder, pass, ring, profiler, .. } = &mut *open;
        let mut timestamp_writes = None;
        if let (Some(profiler), Some(record)) = (profiler, record) {
            *pass = None; // only whole passes are measured
            timestamp_writes = profiler.begin(record);
        }
        let pass = pass.get_or_insert_with(|| {
            let encoder = encoder.get_or_insert_with(|| {
                self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor { label: None })
            });
            encoder
                .begin_compute_pass(&wgpu::ComputePassDescriptor { label: None, timestamp_writes })
                .forget_lifetime()
        });
        pass.set_pipeline(&pipeline.pipeline);
        pass.set_bind_group(0, &group, &[]);
        pass.set_bind_group(1, &ring.group, &[offset]);
        pass.dispatch_workgroups(grid[0], grid[1], grid[2]);
        open.dispatches += 1;
        self.pool.record();
        self.dispatches.fetch_add(1, Ordering::Relaxed);
        if open.dispatches >= BATCH || alone {
            self.submit(&mut open);
        }
        Ok(())
    }

    /// Records a copy of `bytes` bytes between two buffers; offsets and length are multiples of 4.
    pub fn copy(
        &self,
        from: &wgpu::Buffer,
        from_offset: u64,
        to: &wgpu::Buffer,
        to_offset: u64,
        bytes: u64,
    ) {
        let mut open = lock(&self.open);
        open.pass = None; // a copy cannot be part of a compute pass
        let encoder = open.encoder.get_or_insert_with(|| {
            self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor { label: None })
        });
        encoder.copy_buffer_to_buffer(from, from_offset, to, to_offset, bytes);
        open.dispatches += 1;
        self.pool.record();
    }

    /// Notes that `bytes` bytes were uploaded, and submits where many wait.
    pub fn uploaded(&self, bytes: u64) {
        if self.uploads.fetch_add(bytes, Ordering::Relaxed) + bytes > UPLOADS {
            self.flush();
        }
    }

    /// Submits the recorded commands.
    pub fn flush(&self) {
        self.submit(&mut lock(&self.open));
    }

    fn submit(&self, open: &mut Open) {
        open.pass = None; // ends the pass, which must precede finishing its encoder
        let encoder = open.encoder.take();
        if self.uploads.swap(0, Ordering::Relaxed) == 0 && encoder.is_none() {
            return;
        }
        let _span = tracing::debug_span!("batch", commands = open.dispatches).entered();
        let start = open.profiler.is_some().then(Instant::now);
        let commands = encoder.map(|mut encoder| {
            open.ring.write(&self.queue);
            if let Some(profiler) = &open.profiler {
                profiler.resolve(&mut encoder);
            }
            encoder.finish()
        });
        let index = self.queue.submit(commands);
        open.dispatches = 0;
        self.pool.submit();
        self.submissions.fetch_add(1, Ordering::Relaxed);
        open.last = Some(index.clone());
        open.submitted.push_back(index);
        if open.submitted.len() > IN_FLIGHT
            && let Some(oldest) = open.submitted.pop_front()
        {
            // Bounds the memory of waiting batches; errors of this wait are reported by the next
            // wait for everything.
            let _ = self
                .device
                .poll(wgpu::PollType::Wait { submission_index: Some(oldest), timeout: None });
        }
        if let Some(profiler) = &mut open.profiler {
            if profiler.one_by_one() {
                let _ = self.device.poll(wgpu::PollType::wait_indefinitely());
            }
            if let Err(error) = profiler
                .collect(&self.device, start.map_or(Duration::ZERO, |start| start.elapsed()))
            {
                print(format_args!("wgpu {error}"));
            }
        }
    }

    /// Submits the recorded commands and returns the last submission, if there was one.
    pub fn submit_all(&self) -> Option<wgpu::SubmissionIndex> {
        let mut open = lock(&self.open);
        self.submit(&mut open);
        open.last.clone()
    }

    /// The number of submissions and the last one.
    pub fn submitted(&self) -> (u64, Option<wgpu::SubmissionIndex>) {
        let open = lock(&self.open);
        (self.submissions.load(Ordering::Relaxed), open.last.clone())
    }

    /// Waits for a submission.
    ///
    /// # Errors
    /// If the GPU does not answer.
    pub fn wait_for(&self, submission_index: Option<wgpu::SubmissionIndex>) -> Result<()> {
        let done = self.device.poll(wgpu::PollType::Wait { submission_index, timeout: None });
        done.map(|_| ()).map_err(|e| Error::device(format!("waiting for the GPU failed: {e}")))
    }

    /// Submits and waits until the GPU is done with everything.
    ///
    /// # Errors
    /// If the GPU does not answer.
    pub fn wait(&self) -> Result<()> {
        self.flush();
        self.wait_for(None)
    }

    /// The buffer pipelines use for parameters must have this layout.
    pub fn ring(device: &wgpu::Device, pipelines: &Pipelines, capabilities: &Capabilities) -> Ring {
        Ring::new(device, &pipelines.uniform, capabilities)
    }
}
