//! Choosing an adapter and finding out what it can do.
//!
//! A machine may offer several adapters (a discrete GPU, the processor's own, a software one).
//! [`Options`] says which one is wanted; what it can do is read once into [`Capabilities`], and
//! from then on nothing asks wgpu again. Knows nothing of tensors.

use crate::error;
use std::fmt;
use teeny_core::{DType, Error, Result};

/// The largest binding that is used: 32-bit numbers address all bytes of it, and all of its
/// elements as `I32` positions.
const LARGEST_BINDING: u64 = 1 << 31;

/// What kind of hardware an adapter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AdapterKind {
    /// A graphics card with memory of its own.
    Discrete,
    /// A GPU that shares the processor's memory.
    Integrated,
    /// A GPU seen through a virtual machine.
    Virtual,
    /// Software on the processor, such as Mesa's llvmpipe.
    Cpu,
    /// The driver does not say.
    Other,
}

impl AdapterKind {
    fn of(kind: wgpu::DeviceType) -> AdapterKind {
        match kind {
            wgpu::DeviceType::DiscreteGpu => AdapterKind::Discrete,
            wgpu::DeviceType::IntegratedGpu => AdapterKind::Integrated,
            wgpu::DeviceType::VirtualGpu => AdapterKind::Virtual,
            wgpu::DeviceType::Cpu => AdapterKind::Cpu,
            wgpu::DeviceType::Other => AdapterKind::Other,
        }
    }

    /// The name that `TEENY_WGPU_ADAPTER` understands.
    pub const fn name(self) -> &'static str {
        match self {
            AdapterKind::Discrete => "discrete",
            AdapterKind::Integrated => "integrated",
            AdapterKind::Virtual => "virtual",
            AdapterKind::Cpu => "cpu",
            AdapterKind::Other => "other",
        }
    }

    /// Fast hardware first.
    const fn rank(self) -> u8 {
        match self {
            AdapterKind::Discrete => 0,
            AdapterKind::Integrated => 1,
            AdapterKind::Virtual => 2,
            AdapterKind::Other => 3,
            AdapterKind::Cpu => 4,
        }
    }
}

impl fmt::Display for AdapterKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Which adapter to use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// What `TEENY_WGPU_ADAPTER` says (a number, a kind, or part of a name); without it the fastest
    /// kind there is.
    #[default]
    Auto,
    /// The adapter of this number in [`crate::Wgpu::adapters`].
    Index(usize),
    /// The first adapter whose name contains this text, case ignored.
    Name(String),
    /// The first adapter of this kind.
    Kind(AdapterKind),
}

impl Choice {
    /// The choice that a text such as `1`, `discrete` or `radeon` describes.
    fn parse(text: &str) -> Choice {
        const KINDS: [AdapterKind; 5] = [
            AdapterKind::Discrete,
            AdapterKind::Integrated,
            AdapterKind::Virtual,
            AdapterKind::Cpu,
            AdapterKind::Other,
        ];
        let text = text.trim();
        match (text.parse(), KINDS.into_iter().find(|k| k.name() == text.to_lowercase())) {
            (Ok(index), _) => Choice::Index(index),
            (_, Some(kind)) => Choice::Kind(kind),
            _ => Choice::Name(text.to_string()),
        }
    }
}

/// Whether shaders keep the checks that wgpu inserts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shaders {
    /// Every access, loop and division is checked: for tests, and for finding out whether a kernel
    /// reaches outside.
    Checked,
    /// No checks: the kernels of this crate stay inside by construction. Several times faster in
    /// tight loops.
    Trusted,
}

/// Which kernels make matrix products.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Products {
    /// The best kernel for the sizes.
    #[default]
    Auto,
    /// One thread per result, always: what the others are measured against.
    Naive,
}

/// How to make a [`crate::Wgpu`].
///
/// # Example
/// ```
/// use teeny_wgpu::{AdapterKind, Choice, Options, Shaders};
/// let options = Options { adapter: Choice::Kind(AdapterKind::Cpu), shaders: Shaders::Checked, ..Options::default() };
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    /// Which adapter.
    pub adapter: Choice,
    /// The most bytes of buffers, free ones kept for reuse included; those for reading back come on
    /// top, 64 MiB for each thread that reads. `None`: 4 GiB on a software adapter, what the driver
    /// gives elsewhere.
    pub memory_budget: Option<u64>,
    /// The most bytes of free buffers kept for reuse; 0 keeps none. `None`: 1 GiB, or as much as
    /// was in use at once if that was more, so that a repeated step asks the driver for nothing.
    pub cache_bytes: Option<u64>,
    /// Whether shaders are checked; trusted unless `TEENY_WGPU_CHECKED=1`.
    pub shaders: Shaders,
    /// Measures every launch for [`crate::Wgpu::profile`], which slows the program down;
    /// `TEENY_DEBUG=1` does the same and prints each.
    pub profile: bool,
    /// Uses only what every WebGPU implementation has: default limits, no 64-bit types. For testing
    /// natively what a browser would run.
    pub portable: bool,
    /// Which kernels make matrix products.
    pub products: Products,
    /// The most bytes of a tensor that a kernel sees at once, if less than the adapter's; for
    /// trying out what smaller GPUs would do.
    pub max_binding: Option<u64>,
    /// The most workgroups along one axis of a launch, if less than the adapter's (65,535 is
    /// usual); likewise.
    pub max_workgroups: Option<u32>,
}

impl Default for Options {
    fn default() -> Options {
        let checked = std::env::var("TEENY_WGPU_CHECKED").is_ok_and(|v| v == "1");
        Options {
            adapter: Choice::Auto,
            memory_budget: None,
            cache_bytes: None,
            shaders: if checked { Shaders::Checked } else { Shaders::Trusted },
            profile: false,
            portable: false,
            products: Products::Auto,
            max_binding: None,
            max_workgroups: None,
        }
    }
}

/// What the chosen adapter is and can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The adapter's name, e.g. `NVIDIA H200`.
    pub name: String,
    /// Driver and version.
    pub driver: String,
    /// `vulkan`, `metal`, `dx12`, `webgpu`.
    pub backend: String,
    /// The kind of hardware.
    pub kind: AdapterKind,
    /// 64-bit integers in shaders.
    pub int64: bool,
    /// 64-bit floats in shaders.
    pub float64: bool,
    /// Arithmetic in 16-bit floats. Kernels do not need it: halves are stored packed and computed
    /// in f32.
    pub float16: bool,
    /// Operations across the threads of a subgroup.
    pub subgroups: bool,
    /// The largest buffer, in bytes.
    pub max_buffer: u64,
    /// The largest part of a buffer that a kernel sees at once, in bytes.
    pub max_binding: u64,
    /// The alignment of such a part's start, in bytes.
    pub binding_alignment: u64,
    /// The alignment of parameters, in bytes.
    pub uniform_alignment: u64,
    /// Bytes of memory shared by a workgroup.
    pub workgroup_memory: u32,
    /// Threads of a workgroup.
    pub workgroup_threads: u32,
    /// Workgroups along one axis of a dispatch.
    pub max_workgroups: u32,
}

impl Capabilities {
    fn of(
        adapter: &wgpu::Adapter,
        features: wgpu::Features,
        limits: &wgpu::Limits,
    ) -> Capabilities {
        let info = adapter.get_info();
        Capabilities {
            name: info.name,
            driver: format!("{} {}", info.driver, info.driver_info).trim().to_string(),
            backend: format!("{:?}", info.backend).to_lowercase(),
            kind: AdapterKind::of(info.device_type),
            int64: features.contains(wgpu::Features::SHADER_INT64),
            float64: features.contains(wgpu::Features::SHADER_F64),
            float16: features.contains(wgpu::Features::SHADER_F16),
            subgroups: features.contains(wgpu::Features::SUBGROUP),
            max_buffer: limits.max_buffer_size,
            max_binding: limits.max_storage_buffer_binding_size.min(LARGEST_BINDING) / 256 * 256,
            binding_alignment: limits.min_storage_buffer_offset_alignment as u64,
            uniform_alignment: limits.min_uniform_buffer_offset_alignment as u64,
            workgroup_memory: limits.max_compute_workgroup_storage_size,
            workgroup_threads: limits.max_compute_invocations_per_workgroup,
            max_workgroups: limits.max_compute_workgroups_per_dimension,
        }
    }

    /// True if kernels can compute with elements of this type.
    pub fn supports(&self, dtype: DType) -> bool {
        match dtype {
            DType::I64 | DType::U64 => self.int64,
            // The functions of f64 work on its bits.
            DType::F64 => self.float64 && self.int64,
            _ => true,
        }
    }
}

impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, {}, {})", self.name, self.kind, self.backend, self.driver)
    }
}

/// A device of wgpu with its queue and what it can do.
pub(crate) struct Opened {
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
    pub capabilities: Capabilities,
}

fn instance() -> Result<wgpu::Instance> {
    if wgpu::Instance::enabled_backend_features().is_empty() {
        return Err(Error::device("wgpu was built without a backend for this target"));
    }
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle_from_env();
    descriptor.memory_budget_thresholds.for_resource_creation = Some(95);
    Ok(wgpu::Instance::new(descriptor))
}

/// All adapters, fast kinds first; the order that [`Choice::Index`] counts.
async fn found(instance: &wgpu::Instance) -> Vec<wgpu::Adapter> {
    let mut adapters = instance.enumerate_adapters(wgpu::Backends::all()).await;
    adapters.retain(|a| {
        a.get_downlevel_capabilities().flags.contains(wgpu::DownlevelFlags::COMPUTE_SHADERS)
    });
    adapters.sort_by_key(|a| AdapterKind::of(a.get_info().device_type).rank());
    adapters
}

/// What each adapter of this machine can do.
pub(crate) async fn list() -> Vec<Capabilities> {
    let Ok(instance) = instance() else { return Vec::new() };
    found(&instance).await.iter().map(|a| Capabilities::of(a, a.features(), &a.limits())).collect()
}

/// Opens the adapter that `options` ask for, with the GPU's clock if launches are `timed`.
pub(crate) async fn open(options: &Options, timed: bool) -> Result<Opened> {
    open_from(&instance()?, options, timed).await
}

/// [`open`] among the adapters of `instance`.
pub(crate) async fn open_from(
    instance: &wgpu::Instance,
    options: &Options,
    timed: bool,
) -> Result<Opened> {
    let adapters = found(instance).await;
    let names: Vec<String> = adapters
        .iter()
        .enumerate()
        .map(|(i, a)| format!("{i}: {}", Capabilities::of(a, a.features(), &a.limits())))
        .collect();
    let from_env = std::env::var("TEENY_WGPU_ADAPTER").ok().filter(|v| !v.is_empty());
    let choice = match (&options.adapter, from_env) {
        (Choice::Auto, Some(text)) => Choice::parse(&text),
        (choice, _) => choice.clone(),
    };
    let index = match &choice {
        Choice::Auto => (!adapters.is_empty()).then_some(0),
        Choice::Index(i) => (*i < adapters.len()).then_some(*i),
        Choice::Name(name) => adapters
            .iter()
            .position(|a| a.get_info().name.to_lowercase().contains(&name.to_lowercase())),
        Choice::Kind(kind) => {
            adapters.iter().position(|a| AdapterKind::of(a.get_info().device_type) == *kind)
        }
    };
    let Some(adapter) = index.map(|i| &adapters[i]) else {
        return Err(error::no_adapter(&choice, &names));
    };

    let optional = wgpu::Features::SHADER_INT64
        | wgpu::Features::SHADER_F64
        | wgpu::Features::SHADER_F16
        | wgpu::Features::SUBGROUP;
    let features =
        if options.portable { wgpu::Features::empty() } else { adapter.features() & optional };
    let clock = if timed {
        adapter.features() & wgpu::Features::TIMESTAMP_QUERY
    } else {
        wgpu::Features::empty()
    };
    let limits = if options.portable { wgpu::Limits::default() } else { adapter.limits() };
    let mut capabilities = Capabilities::of(adapter, features, &limits);
    if let Some(bytes) = options.max_binding {
        capabilities.max_binding = capabilities.max_binding.min((bytes / 256 * 256).max(256));
    }
    if let Some(count) = options.max_workgroups {
        capabilities.max_workgroups = capabilities.max_workgroups.min(count.max(1));
    }
    let descriptor = wgpu::DeviceDescriptor {
        label: Some("teeny"),
        required_features: features | clock,
        required_limits: limits,
        experimental_features: wgpu::ExperimentalFeatures::disabled(),
        memory_hints: wgpu::MemoryHints::Performance,
        trace: wgpu::Trace::Off,
    };
    let (device, queue) = adapter
        .request_device(&descriptor)
        .await
        .map_err(|e| Error::device(format!("{capabilities} cannot be opened: {e}")))?;
    Ok(Opened { device, queue, capabilities })
}
