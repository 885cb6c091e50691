//! How to make a [`crate::Wgpu`]: which adapter, which limits, which shaders.

use std::fmt;

/// The kind of hardware of an adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AdapterKind {
    /// A graphics card with its own memory.
    Discrete,
    /// A GPU that shares the processor's memory.
    Integrated,
    /// A GPU seen through a virtual machine.
    Virtual,
    /// Software on the processor, such as Mesa's llvmpipe.
    Cpu,
    /// Not reported by the driver.
    Other,
}

impl AdapterKind {
    pub(crate) fn of(kind: wgpu::DeviceType) -> AdapterKind {
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
    pub(crate) const fn rank(self) -> u8 {
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
    /// The one that `TEENY_WGPU_ADAPTER` names (a number, a kind, or part of a name); without it
    /// the fastest kind there is.
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
    pub(crate) fn parse(text: &str) -> Choice {
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

/// Which kernels compute matrix products.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MatmulKernels {
    /// The best kernel for the sizes.
    #[default]
    Auto,
    /// Always one thread per result: the baseline that the others are measured against.
    Naive,
}

/// Whether matrix products of floats run on the matrix units of the GPU (tensor cores), which
/// WGSL calls cooperative matrices.
///
/// They multiply small matrices of `f16` and add the products in `f32`, as the other kernels do;
/// [`crate::Capabilities::cooperative_matrices`] lists the types of an adapter. Operands of the
/// type `f32` are multiplied as such only where the adapter lists that type: nothing is rounded to
/// `f16` first. `bf16` and the other types use the other kernels.
///
/// # Precision
/// A product of two 16-bit floats is exact in `f32`. Matrix units may truncate the terms of a step
/// to the exponent of the largest instead of rounding each sum to nearest, so a sum of k products
/// differs from the exact one by at most `k 2^-22 Σ|a b|`; the bound of the other kernels is
/// `k 2^-24 Σ|a b|`. An `f16` result is rounded once, at the end. Steps of 8 or 16 along k are
/// added in their order, the products within one in the hardware's order, so the same product gives
/// the same bits on the same GPU. (Fasi, Higham, Mikaitis, Pranesh: Numerical behavior of NVIDIA
/// tensor cores, 2021.)
///
/// # Drivers
/// Each kernel is compared with a known product at its first use on a device. If the driver does
/// not compile it or its result differs, the other kernels are used and a warning is traced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CooperativeMatrices {
    /// Never; the feature is not even requested from the driver. The default, because one GPU alone
    /// has run the kernels (an NVIDIA H200 with driver 580: the suite and products of random sizes
    /// of `f16`), and the comparison cannot catch a driver that crashes.
    #[default]
    Never,
    /// On a GPU, where both sides of the result and k are at least 32. Software adapters compute
    /// them more slowly than the other kernels.
    Auto,
    /// Wherever the adapter has the types, for all sizes: for tests and measurements.
    Always,
}

fn default_shaders() -> Shaders {
    let checked = std::env::var("TEENY_WGPU_CHECKED").is_ok_and(|v| v == "1");
    if checked { Shaders::Checked } else { Shaders::Trusted }
}

teeny_core::options! {
    /// How to make a [`crate::Wgpu`].
    ///
    /// # Example
    /// ```
    /// use teeny_wgpu::{AdapterKind, Choice, Options, Shaders};
    /// let adapter = Choice::Kind(AdapterKind::Cpu);
    /// let options = Options::new().with_adapter(adapter).with_shaders(Shaders::Checked);
    /// ```
    #[derive(Clone, Debug)]
    pub struct Options {
        /// Which adapter.
        adapter: Choice = Choice::Auto, with_adapter;
        /// The most bytes of buffers, free ones kept for reuse included; those for reading back
        /// come on top, 64 MiB for each thread that reads. `None`: 4 GiB on a software adapter, the
        /// driver's limit elsewhere.
        memory_budget: Option<u64> = None, with_memory_budget;
        /// The most bytes of free buffers kept for reuse; 0 keeps none. `None`: 1 GiB, or as much
        /// as was in use at once if that was more, so that a repeated step allocates nothing.
        cache_bytes: Option<u64> = None, with_cache_bytes;
        /// Whether shaders are checked; trusted unless `TEENY_WGPU_CHECKED=1`.
        shaders: Shaders = default_shaders(), with_shaders;
        /// Measures every launch for [`crate::Wgpu::profile`], which slows the program down;
        /// `TEENY_DEBUG=1` does the same and prints each. Not in a browser, where the program
        /// cannot wait for the times.
        profile: bool = false, with_profile;
        /// Uses only what every WebGPU implementation has: default limits, no 64-bit types. For
        /// testing a browser's kernels natively.
        portable: bool = false, with_portable;
        /// Which kernels compute matrix products.
        matmul_kernels: MatmulKernels = MatmulKernels::Auto, with_matmul_kernels;
        /// Whether matrix products use cooperative matrices.
        cooperative_matrices: CooperativeMatrices = CooperativeMatrices::Never,
            with_cooperative_matrices;
        /// The most bytes of a tensor that a kernel sees at once, if less than the adapter's; for
        /// testing the behaviour of smaller GPUs.
        max_binding: Option<u64> = None, with_max_binding;
        /// The most workgroups along one axis of a launch, if less than the adapter's (65,535 is
        /// usual); likewise.
        max_workgroups: Option<u32> = None, with_max_workgroups;
    }
}
