//! The portable GPU engine of teeny: an implementation of [`teeny_core::Device`] on wgpu, every kernel a compute shader.
//!
//! ```text
//! engine        impl Device: which room does what
//! elementwise reduce scan matmul index sort softmax    one family of kernels each, and copy random transfer
//! walk wide     merged axes; results one element at a time
//! generator/    Kernel → WGSL; prelude/*.wgsl   the functions that shaders call
//! device        Wgpu: allocate, dispatch        the two calls that all kernels go through
//! pipeline      WGSL → pipelines, cached by key
//! stream params one open pass, one ring of parameters, batches
//! pool storage  buffers by size class, a budget, exact statistics
//! adapter error which GPU, what it can do, what went wrong
//! ```
//!
//! # How a kernel is made
//! A room (one file) checks the types with `Wgpu::require`, makes its outputs with `Wgpu::allocate`, describes the launch and records it:
//!
//! ```text
//! let y = self.allocate(numel, dtype)?;
//! let mut params = Params::new();                      // u32 words: sizes, strides, offsets, scalars; at most 256
//! params.push(rows as u32); params.int(stride); params.scalar(value, dtype);
//! self.dispatch(&Launch {
//!     program: Program { key: Key::new("family", [variant, …]), wgsl: &|| Ok(text) },   // the text depends on the key alone
//!     inputs: &[self.part(x)?],                        // @group(0) @binding(0..)  var<storage, read>
//!     outputs: &[self.whole(&y)?],                     // @group(0) @binding(n..)  var<storage, read_write>
//!     params: &params,                                 // @group(1) @binding(0)    var<uniform>, a struct or generator::params_declaration()
//!     groups: self.fold(workgroups)?,                  // number them by group.y * groups.x + group.x
//! })?;
//! ```
//!
//! The entry point is `main`. Functions of the prelude are added where the text names them. At most 8 buffers are bound; an output is never an input too.
//! Buffers are multiples of 32 bytes, so a kernel may always read and write whole groups of four elements; `generator::types` knows how each type lies
//! in memory. Shaders must stay inside their buffers without help: they run unchecked unless [`Shaders::Checked`] is chosen.
//!
//! # What costs what
//! Work is recorded and submitted in batches of 64 launches; only reading and [`teeny_core::Device::synchronize`] wait. Mistakes that wgpu reports late are
//! returned by the next fallible call. `TEENY_DEBUG=1` prints a line per launch, `TEENY_DEBUG=3` every shader with line numbers.
//!
//! # Types
//! From the conformance run on llvmpipe (Mesa 22.3.6): `+` agrees with the oracle, `-` is [`teeny_core::ErrorKind::Unsupported`], blank means nothing to do.
//!
//! | | bool | u8 u16 i8 i16 | u32 i32 | u64 i64 | f16 bf16 | f32 | f64 |
//! |---|---|---|---|---|---|---|---|
//! | transfers, copies, views, assignment, joining | + | + | + | + | + | + | + |
//! | arithmetic, comparisons, rounding, casts | + | + | + | + | + | + | + |
//! | exp log sin tanh erf pow rem … | | + | + | + | + | + | - |
//! | sum prod max min argmax any all, scans | + | + | + | + | + | + | + |
//! | gather, scatter, sort, topk | + | + | + | + | + | + | + |
//! | random numbers | + | + | + | + | + | + | - |
//! | softmax and its gradient | | | | | + | + | - |
//! | matmul, convolution, pooling | | + | + | + | + | + | + |
//!
//! 64-bit types need an adapter with 64-bit arithmetic (not a browser); elsewhere every operation on them is refused with a hint. 16-bit floats are stored
//! packed and computed in f32 everywhere. Convolution and pooling are made of the primitives, as `teeny_core::Device` defines them.
//!
//! # Bounds
//! Elementwise kernels cover tensors larger than one binding by windows. The other families reach one binding (128 MiB is the least that WebGPU promises)
//! and refuse more. Subnormal numbers may be flushed and signs of zeros lost, as the hardware does.
#![deny(unsafe_code)] // one gate in `pipeline` allows it

mod adapter;
mod conv;
mod copy;
mod device;
mod elementwise;
mod engine;
mod error;
mod fault;
mod generator;
mod index;
mod large;
mod matmul;
mod order;
mod params;
mod pipeline;
mod pool;
mod pooling;
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

/// Makes this engine known as `wgpu` to [`teeny_core::registry`], for programs that choose a device by name.
pub fn register() {
    teeny_core::registry::register("wgpu", || Ok(Wgpu::new()? as teeny_core::DeviceRef));
}
