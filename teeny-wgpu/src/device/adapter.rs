//! Choosing an adapter and reading its capabilities.
//!
//! A machine may offer several adapters (a discrete GPU, an integrated one, a software one).
//! [`Options`] says which one is wanted; its features and limits are read once into
//! [`Capabilities`], which all other modules read. Tensors do not appear here.

use crate::device::gate::experimental_features;
use crate::device::mapping::CAN_WAIT;
use crate::device::options::{AdapterKind, Choice, CooperativeMatrices, Options};
use std::fmt;
use teeny_core::{DType, Error, Result};

/// The largest binding that is used: 32-bit numbers address all bytes of it, and all of its
/// elements as `I32` positions.
const MAX_BINDING_BYTES: u64 = 1 << 31;

/// The features of kernels that use cooperative matrices.
const COOPERATIVE: wgpu::Features = wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX
    .union(wgpu::Features::SHADER_F16)
    .union(wgpu::Features::SUBGROUP);

/// The most buffers that a kernel binds: enough for the gradients of a small model.
const MAX_BUFFERS: u32 = 32;

/// A type of matrices that the threads of a subgroup multiply together: `size` rows and columns of
/// `input` elements, products added to `size` x `size` sums of the type `accumulator`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CooperativeMatrix {
    /// Rows and columns: 8 or 16.
    pub size: u32,
    /// The type of both operands.
    pub input: DType,
    /// The type of the sums.
    pub accumulator: DType,
}

impl CooperativeMatrix {
    /// The square matrices of floats of an adapter with `features`: kernels need them square, WGSL
    /// needs floats.
    fn of(adapter: &wgpu::Adapter, features: wgpu::Features) -> Vec<CooperativeMatrix> {
        if !features.contains(COOPERATIVE) {
            return Vec::new();
        }
        let float = |ty| match ty {
            wgpu::CooperativeScalarType::F16 => Some(DType::F16),
            wgpu::CooperativeScalarType::F32 => Some(DType::F32),
            _ => None,
        };
        let mut found: Vec<CooperativeMatrix> = Vec::new();
        for p in adapter.cooperative_matrix_properties() {
            let square = p.m_size == p.n_size && p.n_size == p.k_size;
            if let (true, Some(input), Some(accumulator)) =
                (square, float(p.ab_type), float(p.cr_type))
            {
                let matrix = CooperativeMatrix { size: p.m_size, input, accumulator };
                if !p.saturating_accumulation && !found.contains(&matrix) {
                    found.push(matrix);
                }
            }
        }
        found
    }
}

/// The chosen adapter: its name, its features and its limits.
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
    /// Arithmetic in 16-bit floats. Only products on cooperative matrices need it: elsewhere halves
    /// are stored packed and computed in f32.
    pub float16: bool,
    /// Operations across the threads of a subgroup.
    pub subgroups: bool,
    /// The types of matrices that subgroups multiply (tensor cores); none without the feature, or
    /// if [`Options::cooperative_matrices`] does not ask for it.
    pub cooperative_matrices: Vec<CooperativeMatrix>,
    /// The fewest and the most threads of a subgroup.
    pub subgroup_threads: (u32, u32),
    /// The largest buffer, in bytes.
    pub max_buffer: u64,
    /// The largest part of a buffer that a kernel sees at once, in bytes.
    pub max_binding: u64,
    /// The alignment of such a part's start, in bytes.
    pub binding_alignment: u64,
    /// The alignment of parameters, in bytes.
    pub uniform_alignment: u64,
    /// Buffers that a kernel binds, at most 32. Kernels of a fixed number bind at most 8, which
    /// every adapter has.
    pub max_storage_buffers: u32,
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
            cooperative_matrices: CooperativeMatrix::of(adapter, features),
            subgroup_threads: (info.subgroup_min_size, info.subgroup_max_size),
            max_buffer: limits.max_buffer_size,
            max_binding: limits.max_storage_buffer_binding_size.min(MAX_BINDING_BYTES) / 256 * 256,
            binding_alignment: limits.min_storage_buffer_offset_alignment as u64,
            uniform_alignment: limits.min_uniform_buffer_offset_alignment as u64,
            max_storage_buffers: limits.max_storage_buffers_per_shader_stage.min(MAX_BUFFERS),
            workgroup_memory: limits.max_compute_workgroup_storage_size,
            workgroup_threads: limits.max_compute_invocations_per_workgroup,
            max_workgroups: limits.max_compute_workgroups_per_dimension,
        }
    }

    /// Whether quotients and roots of f32 are rounded correctly, for divisors of any size: on
    /// software adapters, which use the processor's. NVIDIA's are wrong by up to 2 ulp, and 0 for a
    /// divisor above 2^126 (found on an H200, driver 580).
    pub(crate) fn rounds_quotients(&self) -> bool {
        self.kind == AdapterKind::Cpu
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

    /// Refuses element types that this adapter cannot compute with.
    ///
    /// # Errors
    /// If `dtype` is one of them; the error names `op`.
    pub(crate) fn require(&self, dtype: DType, op: &str) -> Result<()> {
        if self.supports(dtype) {
            return Ok(());
        }
        let (need, other) = match dtype {
            DType::I64 => ("64-bit integers", "i32"),
            DType::U64 => ("64-bit integers", "u32"),
            _ => ("64-bit floats", "f32"),
        };
        Err(Error::unsupported(format!(
            "wgpu cannot run {op} in {dtype}: {} has no {need} in shaders",
            self.name
        ))
        .help(format!("cast to {other}, or use the CPU device for {dtype}")))
    }
}

impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, {}, {})", self.name, self.kind, self.backend, self.driver)
    }
}

/// A device of wgpu with its queue and its capabilities.
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

/// The capabilities of each adapter of this machine.
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
        return Err(no_adapter(&choice, &names));
    };

    let mut optional = wgpu::Features::SHADER_INT64
        | wgpu::Features::SHADER_F64
        | wgpu::Features::SHADER_F16
        | wgpu::Features::SUBGROUP;
    let wanted = match options.cooperative_matrices {
        CooperativeMatrices::Auto => {
            AdapterKind::of(adapter.get_info().device_type) != AdapterKind::Cpu
        }
        CooperativeMatrices::Always => true,
        CooperativeMatrices::Never => false,
    };
    if wanted && !CooperativeMatrix::of(adapter, adapter.features()).is_empty() {
        optional |= COOPERATIVE;
    }
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
        experimental_features: if features.contains(COOPERATIVE) {
            experimental_features()
        } else {
            wgpu::ExperimentalFeatures::disabled()
        },
        memory_hints: wgpu::MemoryHints::Performance,
        trace: wgpu::Trace::Off,
    };
    let (device, queue) = adapter
        .request_device(&descriptor)
        .await
        .map_err(|e| Error::device(format!("{capabilities} cannot be opened: {e}")))?;
    Ok(Opened { device, queue, capabilities })
}

/// No adapter fits.
fn no_adapter(choice: &Choice, names: &[String]) -> Error {
    let error = match choice {
        Choice::Auto => Error::device("no GPU adapter was found, not even a software one"),
        Choice::Index(i) => Error::device(format!("no GPU adapter has the number {i}")),
        Choice::Name(name) => Error::device(format!("no GPU adapter is called {name:?}")),
        Choice::Kind(kind) => Error::device(format!("no {kind} GPU adapter was found")),
    };
    let error = names.iter().fold(error, |e, name| e.note(name.clone()));
    if !CAN_WAIT {
        error.help(
            "this browser has no WebGPU, or blocks this GPU: update it, enable WebGPU in its \
             settings, or use the CPU device",
        )
    } else if names.is_empty() {
        error.help("install a Vulkan driver; Debian's mesa-vulkan-drivers has a software one")
    } else {
        error
    }
}
