//! The portable GPU engine of teeny: an implementation of [`teeny_core::Device`] on wgpu, every
//! kernel a compute shader.
//!
//! ```text
//! engine        impl Device: one line for each operation
//! ops/          the operations, one module for each family, named as on the CPU
//! codegen/      WGSL from templates and scalar programs
//! shaders/      the kernels as .wgsl files; prelude/: the functions that they call
//! device/       Wgpu: allocate and dispatch; adapters, buffers, pipelines, the command stream
//! ```
//!
//! Modules import those below them in this list alone: `device` contains no WGSL, `codegen` no
//! tensor.
//!
//! # How an operation is written
//! A function of the device and the operands checks the types with `Wgpu::require`, makes its
//! outputs with `Wgpu::allocate`, fills the parameters and records a launch:
//!
//! ```text
//! shader_params! {
//!     struct RowParams(axes: usize) {
//!         rows: usize,
//!         x_step: isize,
//!         sizes: Sizes[axes],
//!         x: View[axes],
//!     }
//! }
//!
//! let y = gpu.allocate(numel, dtype)?;
//! let params = RowParams { rows, x_step, sizes, x };  // at most 256 words
//! gpu.dispatch(&Launch {
//!     program: Program {
//!         key: Key::new("family", [variant, …]),      // the text depends on the key alone
//!         wgsl: &|| wgsl(axes, dtype),
//!     },
//!     inputs: &[gpu.bind_tensor(x)?],                 // @group(0) @binding(0..), storage, read
//!     outputs: &[gpu.bind(&y)?],                      // @group(0) @binding(n..), read_write
//!     params: &params.words(),                        // @group(1) @binding(0), uniform
//!     grid: gpu.dispatch_grid(workgroups)?,           // workgroup group.y * groups.x + group.x
//! })?;
//! ```
//!
//! `wgsl` fills a template of `shaders/`: the struct `Params` is made of `RowParams`, so that
//! shader and operation read the same names; `load_x(i)` and the addresses of strided views are
//! generated; a hole without a value and a value without a hole are errors. The entry point is
//! `main`. Functions of the prelude are added where the text names them. At most 8 buffers are
//! bound; an output is never an input too. Buffers are multiples of 32 bytes, so a kernel may
//! always read and write whole groups of four elements, or of eight of at most 32 bits. Shaders
//! must stay inside their buffers without help: they run unchecked unless [`Shaders::Checked`] is
//! chosen.
//!
//! # Cost
//! Work is recorded and submitted in batches of 64 launches; only reading and
//! [`teeny_core::Device::synchronize`] wait. Mistakes that wgpu reports late are returned by the
//! next fallible call.
//!
//! Indices of gather and scatter are only seen by the GPU. One outside its axis is never followed:
//! gather writes 0 there and scatter drops it. It is recorded, and the next read or `synchronize`
//! returns the [`teeny_core::ErrorKind::Index`] error with the operation, the user's line, the
//! place and the size; every read brings the records along, which costs it no further wait. With
//! [`Shaders::Checked`] each call waits and returns the error itself.
//!
//! `TEENY_DEBUG=1` prints a line per launch (operation, shapes, microseconds, GB/s, GFLOP/s) and a
//! table by family when the device is dropped, `TEENY_DEBUG=2` also the user's line and each
//! compilation, `TEENY_DEBUG=3` also every shader with line numbers. [`Options::profile`] and
//! [`Wgpu::profile`] give the table to programs. `tracing` has the spans `dispatch` (op, family,
//! groups, bytes), `batch` and `compile`.
//!
//! # Browsers
//! A browser's program awaits the GPU instead of waiting for it: [`Wgpu::new_async`], then
//! `to_vec_async` and the other asynchronous forms of [`teeny_core::Tensor`]. A read is begun by its
//! call, so operations that follow overlap it. [`teeny_core::Device::ready_async`], awaited once a
//! step, bounds the batches that wait, which a submission does elsewhere. Calls that wait are
//! errors of kind [`teeny_core::ErrorKind::WouldBlock`], whose help names the form to await.
//! [`Shaders::Checked`] returns the error of a wrong index with the next read there.
//!
//! # Types
//! Written by the conformance run: `+` agrees with the oracle, `-` is
//! [`teeny_core::ErrorKind::Unsupported`], blank means nothing to do.
//!
#![doc = include_str!("../TYPES.md")]
//!
//! That is an adapter with all types. 64-bit ones need 64-bit arithmetic (not a browser; f64 needs
//! the integers too); elsewhere every operation on them is refused with a line of help. 16-bit
//! floats are stored packed and computed in f32 everywhere; matrix units multiply f16 themselves
//! and add in f32.
//!
//! # Bounds
//! Tensors larger than one binding (WebGPU guarantees 128 MiB) are covered window by window in
//! elementwise kernels and piece by piece elsewhere; only a single line that is sorted or
//! normalised must fit. [`Options::max_binding`] and [`Options::max_workgroups`] give any GPU such
//! limits. Subnormal numbers may be flushed and signs of zeros lost, as the hardware does. Where a
//! driver sees that an operand is zero, it may take the product for zero, for any other operand.
//! Convolutions multiply the zeros of padding, and their gradients the zeros between strided
//! positions: an infinite or NaN weight turns them into NaN.
//!
//! A small part of a larger storage is copied for the kernel. Shaders count with 32 bits:
//! reductions and products over more elements (views with stride 0 can have any number) are
//! computed in halves, whose results are reduced in the accumulation type; every other size beyond
//! that is an error, as are positions beyond an `i32`.
//!
//! # Memory
//! [`Options::memory_budget`] bounds the bytes of all buffers, [`Options::cache_bytes`] the bytes
//! of free ones. An allocation beyond that is an error of kind
//! [`teeny_core::ErrorKind::OutOfMemory`] after the free buffers were dropped, and the device stays
//! usable. A lost device returns an error at every call.
//!
//! # Precision
//! The largest errors in units in the last place of the exact result, as `tests/precision` holds
//! them; where a driver divides or takes roots less exactly than IEEE 754 (WGSL allows 2.5 units),
//! its error is added. The functions are the same on every GPU: the driver's are not used. Matrix
//! products on cooperative matrices (tensor cores) have the bound of [`CooperativeMatrices`].
//!
#![doc = include_str!("../PRECISION.md")]
#![deny(unsafe_code)] // `device::gate` allows it

mod codegen;
mod device;
mod engine;
#[cfg(test)]
mod failure_tests;
mod ops;
#[cfg(test)]
mod shader_tests;

pub use device::adapter::{Capabilities, CooperativeMatrix};
pub use device::options::{
    AdapterKind, Choice, CooperativeMatrices, MatmulKernels, Options, Shaders,
};
pub use device::profile::{Family, Profile};
pub use device::{Counters, Wgpu};

/// Registers this engine as `wgpu` with [`teeny_core::registry`], for programs that choose a device
/// by name.
pub fn register() {
    teeny_core::registry::register("wgpu", || Ok(Wgpu::new()? as teeny_core::DeviceRef));
}
