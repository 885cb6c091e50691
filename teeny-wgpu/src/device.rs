//! [`Wgpu`] itself: its parts, and the two calls that every kernel of this crate goes through,
//! [`Wgpu::allocate`] and [`Wgpu::dispatch`].

use crate::adapter::{self, AdapterKind, Capabilities, Options, Products, Shaders};
use crate::error::{self, Sticky};
use crate::fault::Faults;
use crate::params::{MAX_COUNT, Params};
use crate::pipeline::{MAX_BINDINGS, Pipelines, Program};
use crate::pool::{FirstUse, Pool};
use crate::profile::{self, Described, Profile, Record};
use crate::storage::Memory;
use crate::stream::{Part, Stream};
use std::fmt;
use std::sync::Arc;
use teeny_core::storage::downcast;
use teeny_core::{DType, Error, Result, Shape, StorageRef, Tensor};

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
    pub(crate) device: wgpu::Device,
    pub(crate) queue: wgpu::Queue,
    pub(crate) capabilities: Capabilities,
    pub(crate) sticky: Arc<Sticky>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) stream: Stream,
    pub(crate) shaders: Shaders,
    pub(crate) products: Products,
    pub(crate) faults: Faults,
    /// The most elements that a reduction counts in one launch.
    pub(crate) max_count: usize,
    pipelines: Pipelines,
    debug: u8,
    /// Whether launches are measured.
    profiled: bool,
}

/// How much work a device was given; for tests and for finding out what a program costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Shaders compiled.
    pub compiles: u64,
    /// Kernels launched.
    pub dispatches: u64,
    /// Batches of them given to the driver.
    pub submissions: u64,
}

/// One launch of a program. Bindings are numbered in this order: first `inputs` (declared `read`),
/// then `outputs` (`read_write`).
pub(crate) struct Launch<'a> {
    pub program: Program<'a>,
    pub inputs: &'a [Part<'a>],
    pub outputs: &'a [Part<'a>],
    pub params: &'a Params,
    /// Workgroups along x, y, z; see [`Wgpu::fold`].
    pub groups: [u32; 3],
}

impl Wgpu {
    /// The fastest GPU of this machine, or the one that `TEENY_WGPU_ADAPTER` names.
    ///
    /// # Errors
    /// If there is no adapter, or it cannot be opened.
    pub fn new() -> Result<Arc<Wgpu>> {
        Wgpu::with_options(&Options::default())
    }

    /// The GPU that `options` describe.
    ///
    /// # Errors
    /// As [`Wgpu::new`]. The error lists the adapters there are.
    pub fn with_options(options: &Options) -> Result<Arc<Wgpu>> {
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
    pub(crate) fn over(
        adapter::Opened { device, queue, capabilities }: adapter::Opened,
        options: &Options,
        debug: u8,
    ) -> Arc<Wgpu> {
        let sticky = Sticky::watch(&device);
        let profiled = options.profile || debug >= 1;
        let budget =
            options.memory_budget.or((capabilities.kind == AdapterKind::Cpu).then_some(4 << 30));
        let pool = Arc::new(Pool::new(device.clone(), &capabilities, budget, options.cache_bytes));
        let pipelines = Pipelines::new(device.clone(), options.shaders, debug);
        let ring = Stream::ring(&device, &pipelines, &capabilities);
        let stream = Stream::new(
            device.clone(),
            queue.clone(),
            pool.clone(),
            ring,
            profiled.then_some(debug),
        );
        Arc::new(Wgpu {
            device,
            queue,
            capabilities,
            sticky,
            pool,
            stream,
            shaders: options.shaders,
            products: options.products,
            faults: Faults::default(),
            max_count: MAX_COUNT,
            pipelines,
            debug,
            profiled,
        })
    }

    /// What each adapter of this machine can do, fast kinds first: the order of
    /// [`crate::Choice::Index`].
    pub fn adapters() -> Vec<Capabilities> {
        pollster::block_on(adapter::list())
    }

    /// What this device is and can do.
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// How much was compiled, launched and submitted so far.
    pub fn counters(&self) -> Counters {
        let (dispatches, submissions) = self.stream.counts();
        Counters { compiles: self.pipelines.compiles(), dispatches, submissions }
    }

    /// The escape hatch: wgpu's own device and queue, for programs that draw or compute beside
    /// teeny. Everything recorded so far is submitted first.
    ///
    /// This is the only place where this crate shows wgpu's types; they change with wgpu's
    /// versions, not with this crate's.
    pub fn raw(&self) -> (&wgpu::Device, &wgpu::Queue) {
        self.stream.flush();
        (&self.device, &self.queue)
    }

    /// Hands everything recorded so far to the GPU without waiting for it.
    pub fn flush(&self) {
        self.stream.flush();
    }

    /// Refuses element types that this adapter cannot compute with.
    pub(crate) fn require(&self, dtype: DType, op: &str) -> Result<()> {
        if self.capabilities.supports(dtype) {
            Ok(())
        } else {
            Err(error::dtype_unsupported(&self.capabilities, dtype, op))
        }
    }

    /// New storage for `len` elements of type `dtype`, its content undefined.
    ///
    /// # Errors
    /// If it is too large or there is no room, or an earlier call failed.
    pub(crate) fn allocate(&self, len: usize, dtype: DType) -> Result<StorageRef> {
        Ok(Arc::new(self.memory(len, dtype, FirstUse::Dispatch)?))
    }

    pub(crate) fn memory(&self, len: usize, dtype: DType, first_use: FirstUse) -> Result<Memory> {
        self.check()?;
        let bytes = self.room(len, dtype)?;
        // What waits in the open batch keeps its buffers alive; running it lets the driver free
        // them.
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
    pub(crate) fn room(&self, len: usize, dtype: DType) -> Result<u64> {
        let bytes = (len as u64)
            .checked_mul(dtype.size() as u64)
            .ok_or_else(|| error::uncountable(len, dtype))?;
        if bytes > self.capabilities.max_buffer {
            Err(error::too_large(bytes, self.capabilities.max_buffer))
        } else {
            Ok(bytes)
        }
    }

    /// The whole storage as a shader sees it.
    ///
    /// # Errors
    /// If it is larger than one binding; such tensors need a kernel that walks through them in
    /// windows.
    pub(crate) fn whole<'a>(&self, storage: &'a StorageRef) -> Result<Part<'a>> {
        let memory = downcast::<Memory>(storage)?;
        let (bytes, limit) = (memory.bound(), self.capabilities.max_binding);
        if bytes > limit {
            let message = format!(
                "a tensor of {bytes} bytes; this kernel reaches {limit} bytes of a tensor on this GPU"
            );
            return Err(Error::unsupported(message)
                .help("split the tensor along an axis, or use the CPU device"));
        }
        Ok(Part { buffer: memory.buffer(), offset: 0, bytes })
    }

    /// The whole storage of a tensor as a shader sees it; the shader applies strides and offset.
    ///
    /// # Errors
    /// As [`Wgpu::whole`].
    pub(crate) fn part<'a>(&self, x: &'a Tensor) -> Result<Part<'a>> {
        self.whole(x.storage())
    }

    /// `count` workgroups as a grid within the limits: more than 65,535 are folded into rows. The
    /// shader numbers them `workgroup_id.y * num_workgroups.x + workgroup_id.x` and must skip
    /// numbers from `count` on.
    ///
    /// # Errors
    /// If even the folded grid is too small.
    pub(crate) fn fold(&self, count: u64) -> Result<[u32; 3]> {
        let limit = u64::from(self.capabilities.max_workgroups);
        let rows = count.div_ceil(limit).max(1);
        match (u32::try_from(count.div_ceil(rows)), u32::try_from(rows)) {
            (Ok(columns), Ok(rows)) if u64::from(rows) <= limit => Ok([columns, rows, 1]),
            _ => Err(Error::unsupported(format!(
                "{count} workgroups in one launch; this GPU runs {}",
                limit * limit
            ))),
        }
    }

    /// Records one launch. Nothing runs before the batch is full, somebody reads, or
    /// [`Wgpu::flush`].
    ///
    /// # Errors
    /// If a count does not fit 32 bits, the shader is rejected, or an earlier call failed.
    pub(crate) fn dispatch(&self, launch: &Launch<'_>) -> Result<()> {
        self.check()?;
        launch.params.check()?;
        let bindings = launch.inputs.len() + launch.outputs.len();
        if bindings > MAX_BINDINGS {
            return Err(Error::internal(format!(
                "{} binds {bindings} buffers; {MAX_BINDINGS} are portable",
                launch.program.key.family
            )));
        }
        if launch.groups.contains(&0) {
            return Ok(());
        }
        let pipeline = self
            .pipelines
            .get(&launch.program, launch.inputs.len(), launch.outputs.len())
            .map_err(|e| self.caused(e))?;
        let parts: Vec<Part<'_>> = launch.inputs.iter().chain(launch.outputs).copied().collect();
        let key = &launch.program.key;
        let op = || teeny_core::context::current().map_or("", |c| c.op);
        let bytes = || parts.iter().map(|part| part.bytes).sum::<u64>();
        let _span = tracing::trace_span!("dispatch", op = op(), family = key.family, groups = ?launch.groups, bytes = bytes()).entered();
        let record = self.profiled.then(|| Record::of(launch));
        self.stream.dispatch(&pipeline, &parts, launch.params, launch.groups, record)
    }

    /// What the launches were and how long they took, by family of kernels; waits for those under
    /// way. Empty but for the compilations unless [`Options::profile`] is set or `TEENY_DEBUG` is 1
    /// or more, which also prints the table when the device is dropped.
    pub fn profile(&self) -> Profile {
        let compiled = self.pipelines.compiled();
        self.stream
            .with_profiler(|profiler| profiler.report(&compiled))
            .unwrap_or_else(|| profile::unmeasured(&compiled))
    }

    /// Says for the profile what the launches until the guard's end are for; see
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
            eprintln!("{self:?}\n{}", self.profile());
        }
    }
}

impl fmt::Debug for Wgpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wgpu({})", self.capabilities)
    }
}
