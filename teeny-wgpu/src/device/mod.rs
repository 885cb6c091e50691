//! [`Wgpu`] itself: its parts, and the two calls that every operation of this crate goes through,
//! [`Wgpu::allocate`] and [`Wgpu::dispatch`].
//!
//! ```text
//! options adapter          which GPU, and its capabilities
//! launch params limits     a launch as data, its parameters as words
//! pipeline gate            WGSL to pipelines, cached by key; unchecked shaders
//! pool storage             buffers by size class, within a budget
//! stream profile           one open pass, submitted in batches; how long each launch took
//! error index_errors       errors that wgpu, and shaders, report late
//! mapping readback         reading buffers back
//! ```
//!
//! Contains no operation and no WGSL.

pub(crate) mod adapter;
pub(crate) mod error;
pub(crate) mod gate;
pub(crate) mod index_errors;
pub(crate) mod launch;
pub(crate) mod limits;
pub(crate) mod lock;
pub(crate) mod mapping;
pub(crate) mod options;
pub(crate) mod params;
pub(crate) mod pipeline;
pub(crate) mod pool;
pub(crate) mod profile;
pub(crate) mod readback;
pub(crate) mod storage;
pub(crate) mod stream;

use adapter::Capabilities;
use error::Sticky;
use index_errors::IndexErrors;
use launch::{Binding, Launch};
use limits::MAX_COUNT;
use lock::lock;
use mapping::{CAN_WAIT, Submitted};
use options::{AdapterKind, CooperativeMatrices, MatmulKernels, Options, Shaders};
use pipeline::Pipelines;
use pool::{FirstUse, Pool};
use profile::{Described, Profile, Record};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use storage::Memory;
use stream::{IN_FLIGHT, Stream};
use teeny_core::storage::downcast;
use teeny_core::{DType, Error, ErrorKind, Result, Shape, StorageRef, Tensor};

/// A GPU, through wgpu: Vulkan, Metal, DirectX 12 or a browser's WebGPU.
///
/// # Example
/// ```no_run
/// use teeny_core::Tensor;
/// # fn main() -> teeny_core::Result<()> {
/// let gpu = teeny_wgpu::Wgpu::new()?;
/// let x = Tensor::new([1.0f32, 2.0, 3.0], &gpu)?; // (3,)
/// assert_eq!(x.add(&x)?.to_vec::<f32>()?, [2.0, 4.0, 6.0]);
/// # Ok(()) }
/// ```
pub struct Wgpu {
    /// Weak self-reference, for futures that outlive the call.
    this: Weak<Wgpu>,
    pub(crate) device: wgpu::Device,
    pub(crate) queue: wgpu::Queue,
    pub(crate) capabilities: Capabilities,
    pub(crate) sticky: Arc<Sticky>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) stream: Stream,
    pub(crate) shaders: Shaders,
    pub(crate) matmul_kernels: MatmulKernels,
    pub(crate) cooperative_matrices: CooperativeMatrices,
    /// Kernels on cooperative matrices that were compared with a known product, and whether they
    /// computed it.
    pub(crate) compared: Mutex<HashMap<(DType, u32), bool>>,
    pub(crate) index_errors: IndexErrors,
    /// The most elements that a reduction counts in one launch.
    pub(crate) max_count: usize,
    /// The batches that [`Device::ready_async`](teeny_core::Device::ready_async) waits for.
    pub(crate) unready: Mutex<VecDeque<(u64, Submitted<()>)>>,
    pipelines: Pipelines,
    debug: u8,
    /// Whether launches are measured.
    pub(crate) profiled: bool,
}

/// The numbers of compilations, launches and submissions of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Shaders compiled.
    pub compiles: u64,
    /// Kernels launched.
    pub dispatches: u64,
    /// Batches of them submitted to the driver.
    pub submissions: u64,
}

impl Wgpu {
    /// The fastest GPU of this machine, or the one that `TEENY_WGPU_ADAPTER` names.
    ///
    /// # Errors
    /// If no adapter is found, or it cannot be opened.
    pub fn new() -> Result<Arc<Wgpu>> {
        Wgpu::with_options(&Options::default())
    }

    /// The GPU that `options` describe.
    ///
    /// # Errors
    /// As [`Wgpu::new`]. The error lists the adapters there are. In a browser, always: use
    /// [`Wgpu::new_async`].
    pub fn with_options(options: &Options) -> Result<Arc<Wgpu>> {
        if !CAN_WAIT {
            let text = "a browser does not let a program wait for an adapter";
            return Err(Error::new(ErrorKind::WouldBlock, text)
                .help("open the GPU with Wgpu::new_async(&options).await"));
        }
        pollster::block_on(Wgpu::new_async(options))
    }

    /// [`Wgpu::with_options`] for programs that may not block, such as those in a browser.
    ///
    /// # Errors
    /// As [`Wgpu::with_options`].
    pub async fn new_async(options: &Options) -> Result<Arc<Wgpu>> {
        let debug = std::env::var("TEENY_DEBUG").ok().and_then(|v| v.parse().ok()).unwrap_or(0);
        let opened = adapter::open(options, options.profile || debug >= 1).await?;
        Ok(Wgpu::over(opened, options, debug))
    }

    /// The engine on a device of wgpu; `debug` is the level of `TEENY_DEBUG`.
    pub(crate) fn over(opened: adapter::Opened, options: &Options, debug: u8) -> Arc<Wgpu> {
        Arc::new_cyclic(|this| Wgpu::build(this.clone(), opened, options, debug))
    }

    /// The content of [`Wgpu::over`].
    pub(crate) fn build(
        this: Weak<Wgpu>,
        adapter::Opened { device, queue, capabilities }: adapter::Opened,
        options: &Options,
        debug: u8,
    ) -> Wgpu {
        let sticky = Sticky::watch(&device);
        let profiled = CAN_WAIT && (options.profile || debug >= 1);
        let budget =
            options.memory_budget.or((capabilities.kind == AdapterKind::Cpu).then_some(4 << 30));
        let pool = Arc::new(Pool::new(device.clone(), &capabilities, budget, options.cache_bytes));
        let pipelines =
            Pipelines::new(device.clone(), options.shaders, capabilities.rounds_quotients(), debug);
        let ring = Stream::ring(&device, &pipelines, &capabilities);
        let stream = Stream::new(
            device.clone(),
            queue.clone(),
            pool.clone(),
            ring,
            profiled.then_some(debug),
        );
        Wgpu {
            this,
            device,
            queue,
            capabilities,
            sticky,
            pool,
            stream,
            shaders: options.shaders,
            matmul_kernels: options.matmul_kernels,
            cooperative_matrices: options.cooperative_matrices,
            compared: Mutex::default(),
            index_errors: IndexErrors::default(),
            max_count: MAX_COUNT,
            unready: Mutex::default(),
            pipelines,
            debug,
            profiled,
        }
    }

    /// The capabilities of each adapter of this machine, fast kinds first: the order of
    /// [`crate::Choice::Index`]. Empty in a browser: use [`Wgpu::adapters_async`].
    pub fn adapters() -> Vec<Capabilities> {
        if CAN_WAIT { pollster::block_on(adapter::list()) } else { Vec::new() }
    }

    /// [`Wgpu::adapters`] for programs that may not block.
    pub async fn adapters_async() -> Vec<Capabilities> {
        adapter::list().await
    }

    /// The adapter's name, features and limits.
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// The batches to wait for before more work is submitted: those submitted before an earlier
    /// call of this function, if the maximum number of batches follows them.
    pub(crate) fn awaited(&self) -> Option<Submitted<()>> {
        let (submissions, last) = self.stream.submitted();
        let mut unready = lock(&self.unready);
        if last.is_some() && unready.back().is_none_or(|(number, _)| *number < submissions) {
            unready.push_back((submissions, Submitted::until(self, last)));
        }
        let mut awaited = None;
        while unready.front().is_some_and(|(number, _)| number + IN_FLIGHT as u64 <= submissions) {
            awaited = unready.pop_front().map(|(_, submitted)| submitted);
        }
        awaited
    }

    /// This device, for a future.
    ///
    /// # Errors
    /// If it is being dropped.
    pub(crate) fn shared(&self) -> Result<Arc<Wgpu>> {
        self.this.upgrade().ok_or_else(|| Error::internal("the device is being dropped"))
    }

    /// The numbers of compilations, launches and submissions.
    pub fn counters(&self) -> Counters {
        let (dispatches, submissions) = self.stream.counts();
        Counters { compiles: self.pipelines.compiles(), dispatches, submissions }
    }

    /// The escape hatch: wgpu's own device and queue, for programs that draw or compute beside
    /// teeny. Recorded commands are submitted first.
    ///
    /// This is the only place where this crate shows wgpu's types; they change with wgpu's
    /// versions, not with this crate's.
    pub fn raw(&self) -> (&wgpu::Device, &wgpu::Queue) {
        self.stream.flush();
        (&self.device, &self.queue)
    }

    /// Submits the recorded commands without waiting for them.
    pub fn flush(&self) {
        self.stream.flush();
    }

    /// Refuses element types that this adapter cannot compute with.
    pub(crate) fn require(&self, dtype: DType, op: &str) -> Result<()> {
        self.capabilities.require(dtype, op)
    }

    /// New storage for `len` elements of type `dtype`, its content undefined.
    ///
    /// # Errors
    /// If it is too large, the memory is used up, or an earlier call failed.
    pub(crate) fn allocate(&self, len: usize, dtype: DType) -> Result<StorageRef> {
        Ok(Arc::new(self.memory(len, dtype, FirstUse::Dispatch)?))
    }

    pub(crate) fn memory(&self, len: usize, dtype: DType, first_use: FirstUse) -> Result<Memory> {
        self.check()?;
        let bytes = self.checked_bytes(len, dtype)?;
        // The commands of the open batch keep their buffers alive; running them lets the driver
        // free those.
        let release = || {
            let _ = self.stream.wait();
        };
        let block = self.pool.take(bytes, first_use, release).map_err(|e| self.caused(e))?;
        Ok(Memory::new(block, len, dtype, bytes, self.pool.clone()))
    }

    /// The bytes of `len` elements.
    ///
    /// # Errors
    /// If no buffer is as large. For work in pieces, which would find that at its end, this is the
    /// test at its beginning.
    pub(crate) fn checked_bytes(&self, len: usize, dtype: DType) -> Result<u64> {
        let bytes = (len as u64)
            .checked_mul(dtype.size() as u64)
            .ok_or_else(|| error::uncountable(len, dtype))?;
        if bytes > self.capabilities.max_buffer {
            Err(error::too_large(bytes, self.capabilities.max_buffer))
        } else {
            Ok(bytes)
        }
    }

    /// True if one binding does not reach all of the storage of `x`.
    pub(crate) fn exceeds_binding(&self, x: &Tensor) -> bool {
        self.len_exceeds_binding(x.storage().len(), x.dtype())
    }

    /// True if one binding does not reach `len` elements.
    pub(crate) fn len_exceeds_binding(&self, len: usize, dtype: DType) -> bool {
        len.saturating_mul(dtype.size()) as u64 > self.capabilities.max_binding / 32 * 32
    }

    /// A new row-major tensor on `storage`, of the device of `like`.
    pub(crate) fn tensor(
        &self,
        storage: StorageRef,
        shape: Shape,
        dtype: DType,
        like: &Tensor,
    ) -> Result<Tensor> {
        Tensor::from_result(storage, shape, dtype, like.device().clone())
    }

    /// The binding of a whole storage.
    ///
    /// # Errors
    /// If it is larger than one binding; such tensors need an operation that goes through them
    /// piece by piece.
    pub(crate) fn bind<'a>(&self, storage: &'a StorageRef) -> Result<Binding<'a>> {
        let memory = downcast::<Memory>(storage)?;
        let (bytes, limit) = (memory.bound(), self.capabilities.max_binding);
        if bytes > limit {
            let message = format!(
                "a tensor of {bytes} bytes exceeds the {limit} bytes that this kernel reaches"
            );
            return Err(Error::unsupported(message)
                .help("split the tensor along an axis, or use the CPU device"));
        }
        Ok(Binding { buffer: memory.buffer(), offset: memory.start(), bytes })
    }

    /// The binding of the whole storage of a tensor; the shader applies strides and offset.
    ///
    /// # Errors
    /// As [`Wgpu::bind`].
    pub(crate) fn bind_tensor<'a>(&self, x: &'a Tensor) -> Result<Binding<'a>> {
        self.bind(x.storage())
    }

    /// The grid of `count` workgroups within the limits: more than 65,535 take several rows. The
    /// shader numbers them `workgroup_id.y * num_workgroups.x + workgroup_id.x` and must skip
    /// numbers from `count` on.
    ///
    /// # Errors
    /// If there are more than a grid of rows holds.
    pub(crate) fn dispatch_grid(&self, count: u64) -> Result<[u32; 3]> {
        let limit = u64::from(self.capabilities.max_workgroups);
        let rows = count.div_ceil(limit).max(1);
        match (u32::try_from(count.div_ceil(rows)), u32::try_from(rows)) {
            (Ok(columns), Ok(rows)) if u64::from(rows) <= limit => Ok([columns, rows, 1]),
            _ => Err(Error::unsupported(format!(
                "cannot launch {count} workgroups: this GPU runs {}",
                limit * limit
            ))),
        }
    }

    /// The error that waits. The loss of the device takes precedence, even where wgpu reports its
    /// consequences first.
    ///
    /// # Errors
    /// That error.
    pub(crate) fn check(&self) -> Result<()> {
        if self.sticky.is_quiet() {
            return Ok(());
        }
        self.poll_events();
        self.sticky.check()
    }

    /// The loss of the device in place of `error`, if that is the cause.
    pub(crate) fn caused(&self, error: Error) -> Error {
        self.poll_events();
        if self.sticky.is_lost() { self.sticky.check().err().unwrap_or(error) } else { error }
    }

    /// Lets wgpu report a loss, which it does while waiting only.
    fn poll_events(&self) {
        let _ = self.device.poll(wgpu::PollType::Wait {
            submission_index: None,
            timeout: Some(Duration::from_secs(1)),
        });
    }

    /// Records one launch. Nothing runs before the batch is full, a tensor is read, or
    /// [`Wgpu::flush`].
    ///
    /// # Errors
    /// If a count does not fit 32 bits, the shader is rejected, or an earlier call failed.
    pub(crate) fn dispatch(&self, launch: &Launch<'_>) -> Result<()> {
        self.check()?;
        launch.params.check()?;
        let bindings = launch.inputs.len() + launch.outputs.len();
        let limit = self.capabilities.max_storage_buffers;
        if bindings > limit as usize {
            return Err(Error::internal(format!(
                "{} binds {bindings} buffers; this GPU binds {limit}",
                launch.program.key.family
            )));
        }
        if launch.grid.contains(&0) {
            return Ok(());
        }
        let pipeline = self
            .pipelines
            .get(&launch.program, launch.inputs.len(), launch.outputs.len())
            .map_err(|e| self.caused(e))?;
        let bound: Vec<Binding<'_>> = launch.inputs.iter().chain(launch.outputs).copied().collect();
        let key = &launch.program.key;
        let op = || teeny_core::context::current().map_or("", |c| c.op);
        let bytes = || bound.iter().map(|binding| binding.bytes).sum::<u64>();
        let (family, groups) = (key.family, launch.grid);
        let _span = tracing::trace_span!("dispatch", op = op(), family, ?groups, bytes = bytes());
        let _span = _span.entered();
        let record = self.profiled.then(|| Record::of(launch));
        self.stream.dispatch(&pipeline, &bound, launch.params, launch.grid, record)
    }

    /// The launches and how long they took, by family of kernels; waits for those that run. It has
    /// compilations only, unless [`Options::profile`] is set or `TEENY_DEBUG` is 1
    /// or more, which also prints the table when the device is dropped.
    pub fn profile(&self) -> Profile {
        let compiled = self.pipelines.compiled();
        self.stream
            .with_profiler(|profiler| profiler.report(&compiled))
            .unwrap_or_else(|| profile::unmeasured(&compiled))
    }

    /// Describes the launches until the guard's end to the profile; see
    /// [`profile::describe`].
    pub(crate) fn describe(
        &self,
        inputs: &[&Tensor],
        shape: &Shape,
        dtype: DType,
        flops: u64,
    ) -> Option<Described> {
        self.profiled.then(|| profile::describe(inputs, shape, dtype, flops))
    }
}

impl Drop for Wgpu {
    fn drop(&mut self) {
        if self.debug >= 1 {
            profile::print(format_args!("{self:?}\n{}", self.profile()));
        }
    }
}

impl fmt::Debug for Wgpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wgpu({})", self.capabilities)
    }
}
