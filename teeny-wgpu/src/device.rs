//! [`Wgpu`] itself: its parts, and the two calls that every kernel of this crate goes through, [`Wgpu::allocate`] and [`Wgpu::dispatch`].

use crate::adapter::{self, AdapterKind, Capabilities, Options, Products, Shaders};
use crate::error::{self, Sticky};
use crate::fault::Faults;
use crate::params::Params;
use crate::pipeline::{MAX_BINDINGS, Pipelines, Program};
use crate::pool::{FirstUse, Pool};
use crate::storage::Memory;
use crate::stream::{Part, Stream};
use crate::transfer::Staging;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;
use teeny_core::storage::downcast;
use teeny_core::{DType, Error, Result, StorageRef, Tensor};

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
    pub(crate) staging: Staging,
    pub(crate) shaders: Shaders,
    pub(crate) products: Products,
    pub(crate) faults: Faults,
    pipelines: Pipelines,
    debug: u8,
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

/// One launch of a program. Bindings are numbered in this order: first `inputs` (declared `read`), then `outputs` (`read_write`).
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
        let adapter::Opened { device, queue, capabilities } = adapter::open(options).await?;
        let sticky = Sticky::watch(&device);
        let debug = std::env::var("TEENY_DEBUG").ok().and_then(|v| v.parse().ok()).unwrap_or(0);
        let budget = options.memory_budget.or((capabilities.kind == AdapterKind::Cpu).then_some(4 << 30));
        let pool = Arc::new(Pool::new(device.clone(), &capabilities, budget));
        let pipelines = Pipelines::new(device.clone(), options.shaders, debug);
        let ring = Stream::ring(&device, &pipelines, &capabilities);
        let stream = Stream::new(device.clone(), queue.clone(), pool.clone(), ring);
        Ok(Arc::new(Wgpu {
            device,
            queue,
            capabilities,
            sticky,
            pool,
            stream,
            staging: Staging::default(),
            shaders: options.shaders,
            products: options.products,
            faults: Faults::default(),
            pipelines,
            debug,
        }))
    }

    /// What each adapter of this machine can do, fast kinds first: the order of [`crate::Choice::Index`].
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

    /// The escape hatch: wgpu's own device and queue, for programs that draw or compute beside teeny. Everything recorded so far is submitted first.
    ///
    /// This is the only place where this crate shows wgpu's types; they change with wgpu's versions, not with this crate's.
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
        if self.capabilities.supports(dtype) { Ok(()) } else { Err(error::dtype_unsupported(&self.capabilities, dtype, op)) }
    }

    /// New storage for `len` elements of type `dtype`, its content undefined.
    ///
    /// # Errors
    /// If it is too large or there is no room, or an earlier call failed.
    pub(crate) fn allocate(&self, len: usize, dtype: DType) -> Result<StorageRef> {
        Ok(Arc::new(self.memory(len, dtype, FirstUse::Dispatch)?))
    }

    pub(crate) fn memory(&self, len: usize, dtype: DType, first_use: FirstUse) -> Result<Memory> {
        self.sticky.check()?;
        let bytes = len as u64 * dtype.size() as u64;
        // What waits in the open batch keeps its buffers alive; running it lets the driver free them.
        let release = || {
            let _ = self.stream.wait();
        };
        let block = self.pool.take(bytes, first_use, release)?;
        Ok(Memory::new(block, len, bytes, self.pool.clone()))
    }

    /// The whole storage as a shader sees it.
    ///
    /// # Errors
    /// If it is larger than one binding; such tensors need a kernel that walks through them in windows.
    pub(crate) fn whole<'a>(&self, storage: &'a StorageRef) -> Result<Part<'a>> {
        let buffer = downcast::<Memory>(storage)?.buffer();
        let limit = self.capabilities.max_binding;
        if buffer.size() > limit {
            return Err(Error::unsupported(format!(
                "a tensor of {} bytes; this kernel reaches {limit} bytes of a tensor on this GPU",
                buffer.size()
            ))
            .hint("split the tensor along an axis, or use the CPU device"));
        }
        Ok(Part { buffer, offset: 0, bytes: buffer.size() })
    }

    /// The whole storage of a tensor as a shader sees it; the shader applies strides and offset.
    ///
    /// # Errors
    /// As [`Wgpu::whole`].
    pub(crate) fn part<'a>(&self, x: &'a Tensor) -> Result<Part<'a>> {
        self.whole(x.storage())
    }

    /// `count` workgroups as a grid within the limits: more than 65,535 are folded into rows. The shader numbers them
    /// `workgroup_id.y * num_workgroups.x + workgroup_id.x` and must skip numbers from `count` on.
    ///
    /// # Errors
    /// If even the folded grid is too small.
    pub(crate) fn fold(&self, count: u64) -> Result<[u32; 3]> {
        let limit = self.capabilities.max_workgroups as u64;
        if count <= limit {
            return Ok([count as u32, 1, 1]);
        }
        let rows = count.div_ceil(limit);
        if rows > limit {
            return Err(Error::unsupported(format!("{count} workgroups in one launch; this GPU runs {}", limit * limit)));
        }
        Ok([count.div_ceil(rows) as u32, rows as u32, 1])
    }

    /// Records one launch. Nothing runs before the batch is full, somebody reads, or [`Wgpu::flush`].
    ///
    /// # Errors
    /// If the shader is rejected, or an earlier call failed.
    pub(crate) fn dispatch(&self, launch: &Launch<'_>) -> Result<()> {
        self.sticky.check()?;
        let bindings = launch.inputs.len() + launch.outputs.len();
        if bindings > MAX_BINDINGS {
            return Err(Error::internal(format!("{} binds {bindings} buffers; {MAX_BINDINGS} are portable", launch.program.key.family)));
        }
        if launch.groups.contains(&0) {
            return Ok(());
        }
        let pipeline = self.pipelines.get(&launch.program, launch.inputs.len(), launch.outputs.len())?;
        let parts: Vec<Part<'_>> = launch.inputs.iter().chain(launch.outputs).copied().collect();
        if self.debug == 0 {
            return self.stream.dispatch(&pipeline, launch.program.key.family, &parts, launch.params, launch.groups);
        }
        self.traced(launch, &parts, || self.stream.dispatch(&pipeline, launch.program.key.family, &parts, launch.params, launch.groups))
    }

    /// With `TEENY_DEBUG`: runs the launch alone, waits for it and prints a line.
    fn traced(&self, launch: &Launch<'_>, parts: &[Part<'_>], run: impl FnOnce() -> Result<()>) -> Result<()> {
        self.stream.wait()?;
        let start = Instant::now();
        run()?;
        self.stream.wait()?;
        let micros = start.elapsed().as_secs_f64() * 1e6;
        let bytes: u64 = parts.iter().map(|p| p.bytes).sum();
        let op = teeny_core::context::current().map_or("", |c| c.op);
        let (family, variant, groups) = (launch.program.key.family, &launch.program.key.variant, launch.groups);
        eprintln!("wgpu {op:14} {family:14} groups {groups:?} variant {variant:x?} {bytes} B {micros:.0} us {:.2} GB/s", bytes as f64 / micros / 1e3);
        Ok(())
    }
}

impl fmt::Debug for Wgpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wgpu({})", self.capabilities)
    }
}
