//! The portable GPU engine of teeny: an implementation of [`teeny_core::Device`] on wgpu, every
//! kernel a compute shader.
//!
//! ```text
//! engine        impl Device: which room does what
//! elementwise reduce scan matmul index scatter sort softmax    one family of kernels each, and copy random transfer
//! walk wide     merged axes; results one element at a time
//! large order   tensors beyond one binding; the stable order of small keys
//! generator/    Kernel → WGSL; prelude/*.wgsl   the functions that shaders call
//! device        Wgpu: allocate, dispatch        the two calls that all kernels go through
//! pipeline      WGSL → pipelines, cached by key
//! stream params one open pass, one ring of parameters, batches
//! pool storage  buffers by size class, a budget, a cap on what is cached, exact statistics
//! profile       what each launch was and how long it took
//! adapter error which GPU, what it can do, what went wrong; fault   indices outside their axis
//! ```
//!
//! # How a kernel is made
//! A room (one file) checks the types with `Wgpu::require`, makes its outputs with
//! `Wgpu::allocate`, describes the launch and records it:
//!
//! ```text
//! let y = self.allocate(numel, dtype)?;
//! let mut params = Params::new();                      // u32 words: sizes, strides, offsets, scalars; at most 256
//! params.count(rows); params.int(stride); params.scalar(value, dtype);
//! self.dispatch(&Launch {
//!     program: Program { key: Key::new("family", [variant, …]), wgsl: &|| Ok(text) },   // the text depends on the key alone
//!     inputs: &[self.part(x)?],                        // @group(0) @binding(0..)  var<storage, read>
//!     outputs: &[self.whole(&y)?],                     // @group(0) @binding(n..)  var<storage, read_write>
//!     params: &params,                                 // @group(1) @binding(0)    var<uniform>, a struct or generator::params_declaration()
//!     groups: self.fold(workgroups)?,                  // number them by group.y * groups.x + group.x
//! })?;
//! ```
//!
//! The entry point is `main`. Functions of the prelude are added where the text names them. At most
//! 8 buffers are bound; an output is never an input too. Buffers are multiples of 32 bytes, so a
//! kernel may always read and write whole groups of four elements; `generator::types` knows how
//! each type lies in memory. Shaders must stay inside their buffers without help: they run
//! unchecked unless [`Shaders::Checked`] is chosen.
//!
//! # What costs what
//! Work is recorded and submitted in batches of 64 launches; only reading and
//! [`teeny_core::Device::synchronize`] wait. Mistakes that wgpu reports late are returned by the
//! next fallible call.
//!
//! Indices of gather and scatter are only seen by the GPU. One outside its axis is never followed:
//! gather gives 0 there and scatter drops it. It is noted, and the next read or `synchronize`
//! returns the [`teeny_core::ErrorKind::Index`] error with the operation, the user's line, the
//! place and the size; every read brings the notes along, which costs it no further wait. With
//! [`Shaders::Checked`] each call waits and returns the error itself.
//!
//! `TEENY_DEBUG=1` prints a line per launch (operation, shapes, microseconds, GB/s, GFLOP/s) and a
//! table by family when the device is dropped, `TEENY_DEBUG=2` also the user's line and each
//! compilation, `TEENY_DEBUG=3` also every shader with line numbers. [`Options::profile`] and
//! [`Wgpu::profile`] give the table to programs. `tracing` has the spans `dispatch` (op, family,
//! groups, bytes), `batch` and `compile`.
//!
//! # Types
//! Written by the conformance run: `+` agrees with the oracle, `-` is
//! [`teeny_core::ErrorKind::Unsupported`], blank means nothing to do.
//!
#![doc = include_str!("../TYPES.md")]
//!
//! That is an adapter with all types. 64-bit ones need 64-bit arithmetic (not a browser; f64 needs
//! the integers too); elsewhere every operation on them is refused with a line of help. 16-bit
//! floats are stored packed and computed in f32 everywhere.
//!
//! # Bounds
//! Tensors larger than one binding (128 MiB is the least that WebGPU promises) are covered by
//! windows in elementwise kernels and by pieces elsewhere; only a single line to be sorted or
//! normalised must fit. [`Options::max_binding`] and [`Options::max_workgroups`] make any GPU as
//! narrow as that. Subnormal numbers may be flushed and signs of zeros lost, as the hardware does.
//! Where a driver sees that an operand is zero, it may take the product for zero, whatever the
//! other operand is. Convolutions multiply the zeros of padding, and their gradients those of
//! places that a stride skips: a weight that is infinite or NaN makes NaN of them.
//!
//! A small part of a larger storage is copied for the kernel. Shaders count with 32 bits:
//! reductions and products over more elements (views with stride 0 have as many as they like) are
//! made in halves, whose results are reduced in the type that they are computed in; every other
//! size beyond that is an error, as are positions beyond those of an `i32`.
//!
//! # Memory
//! [`Options::memory_budget`] bounds the bytes of all buffers, [`Options::cache_bytes`] those of
//! free ones. What does not fit is [`teeny_core::ErrorKind::OutOfMemory`] after the free buffers
//! were dropped, and the device goes on. A lost device says so at every call.
//!
//! # Precision
//! The largest errors in units in the last place of the exact result, as `tests/precision` holds
//! them; where a driver divides or takes roots less exactly than IEEE 754 (WGSL allows 2.5 units),
//! its error is added. The functions are the same on every GPU: none of the driver's own is called.
//!
#![doc = include_str!("../PRECISION.md")]
#![deny(unsafe_code)] // one gate in `pipeline` allows it

mod adapter;
mod attention;
mod conv;
mod copy;
mod device;
mod elementwise;
mod engine;
mod error;
#[cfg(test)]
mod failures;
mod fault;
mod generator;
mod index;
mod large;
mod matmul;
mod norm;
mod order;
mod params;
mod pipeline;
mod pool;
mod pooling;
mod profile;
mod random;
mod reduce;
mod scan;
mod scatter;
#[cfg(test)]
mod shaders;
mod softmax;
mod sort;
mod storage;
mod stream;
mod transfer;
mod walk;
mod wide;

pub use adapter::{AdapterKind, Capabilities, Choice, Options, Products, Shaders};
pub use device::{Counters, Wgpu};
pub use profile::{Family, Profile};

/// Makes this engine known as `wgpu` to [`teeny_core::registry`], for programs that choose a device
/// by name.
pub fn register() {
    teeny_core::registry::register("wgpu", || Ok(Wgpu::new()? as teeny_core::DeviceRef));
}
