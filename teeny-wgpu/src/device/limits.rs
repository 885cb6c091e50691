//! The limits of every launch on every adapter.

/// The largest size and the most elements of a launch. Shaders number threads with 32 bits, and a
/// dispatch grid of several rows may have up to 65,535 workgroups of 512 elements more than are
/// needed: their numbers must not wrap around to the first ones.
pub(crate) const MAX_COUNT: usize = u32::MAX as usize - (1 << 26);

/// The most storage buffers that a shader binds: the least that WebGPU guarantees.
pub(crate) const MAX_BINDINGS: usize = 8;

/// The bytes that a shader may declare for its parameters.
pub(crate) const PARAM_BYTES: u64 = 1024;
