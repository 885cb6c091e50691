//! A launch as data: the program, its bindings, its parameters and its grid.

use crate::device::params::Params;
use std::sync::Arc;
use teeny_core::{Kernel, Result};

/// Everything that a shader's text depends on. Compared whole, so that a collision of hashes cannot
/// run the wrong kernel.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Key {
    /// The operation that writes the shader; also its label.
    pub family: &'static str,
    /// The scalar program inside, if there is one.
    pub kernel: Option<Arc<Kernel>>,
    /// Everything else: types, access classes, numbers of axes, tile sizes.
    pub variant: Vec<u32>,
}

impl Key {
    /// A shader without a scalar program.
    pub fn new(family: &'static str, variant: impl Into<Vec<u32>>) -> Key {
        Key { family, kernel: None, variant: variant.into() }
    }
}

/// A shader that is compiled at its first use. `wgsl` writes its text.
pub(crate) struct Program<'a> {
    pub key: Key,
    pub wgsl: &'a dyn Fn() -> Result<String>,
}

/// A range of a buffer, as a shader sees it.
#[derive(Clone, Copy)]
pub(crate) struct Binding<'a> {
    pub buffer: &'a wgpu::Buffer,
    /// Where it begins, in bytes: a multiple of the binding alignment.
    pub offset: u64,
    /// How long it is, in bytes: a multiple of 4.
    pub bytes: u64,
}

/// One launch of a program. Bindings are numbered in this order: first `inputs` (declared `read`),
/// then `outputs` (`read_write`).
pub(crate) struct Launch<'a> {
    pub program: Program<'a>,
    pub inputs: &'a [Binding<'a>],
    pub outputs: &'a [Binding<'a>],
    pub params: &'a Params,
    /// Workgroups along x, y, z; see [`crate::Wgpu::dispatch_grid`].
    pub grid: [u32; 3],
}
