//! Indices along an axis, for gather and scatter: the range of the axis that a launch serves,
//! testing indices in the shader, and the errors of those outside.

use crate::codegen::params::Strides;
use crate::codegen::shader::{Shader, shader};
use crate::codegen::types;
use crate::device::Wgpu;
use crate::device::launch::Binding;
use crate::device::mapping::CAN_WAIT;
use crate::device::options::Shaders;
use crate::ops::transfer::download;
use teeny_core::{DType, Error, Layout, Result, Shape, Tensor};

/// Threads of a workgroup of the kernels that follow indices.
pub(crate) const THREADS: usize = 128;

/// The part of an axis that a launch serves. Indices outside the axis are noted; indices that are
/// inside the axis but outside the range belong to another launch.
#[derive(Clone, Copy)]
pub(crate) struct AxisRange {
    /// The length of the whole axis.
    pub size: usize,
    /// Where the range begins.
    pub low: usize,
    pub length: usize,
    /// True if the launch sees all of the index, so that its places are also the user's.
    pub whole_index: bool,
}

impl AxisRange {
    /// All of an axis.
    pub fn all(size: usize) -> AxisRange {
        AxisRange { size, low: 0, length: size, whole_index: true }
    }

    /// The same range for a piece of the index.
    pub fn for_piece(self) -> AxisRange {
        AxisRange { whole_index: false, ..self }
    }

    /// Both halves of the range: where each begins and ends in it, and the half itself.
    pub fn halves(self) -> [(usize, usize, AxisRange); 2] {
        let mid = self.length / 2;
        [(0, mid), (mid, self.length)].map(|(from, to)| {
            let low = self.low + from;
            (from, to, AxisRange { low, length: to - from, whole_index: false, ..self })
        })
    }

    /// The records of wrong indices for a launch with this range and this index, and the first word
    /// of the launch's record.
    pub fn record<'a>(&self, gpu: &'a Wgpu, index: &Tensor) -> (Binding<'a>, u32) {
        let layout = self.whole_index.then_some(index.layout());
        gpu.index_errors.next(&gpu.device, &gpu.queue, self.size, layout)
    }
}

/// The function `axis_position(k, place)` for indices of type `index`, with the records of wrong
/// ones at `binding`. Reads the parameters `axis_size`, `range_low`, `range_length` and
/// `error_record`.
pub(crate) fn axis_position(binding: usize, index: DType) -> Shader {
    let ty = types::value(index);
    let inside = match ty {
        "u32" => "k < params.axis_size",
        "i32" => "k >= 0 && u32(k) < params.axis_size",
        "u64" => "k < u64(params.axis_size)",
        _ => "k >= 0li && k < i64(params.axis_size)",
    };
    let biased = match ty {
        "u32" => "min(k, 0x7fffffffu) + 0x80000000u",
        "i32" => "bitcast<u32>(k) ^ 0x80000000u",
        "u64" => "u32(min(k, 0x7ffffffflu)) + 0x80000000u",
        _ => {
            "select(select(u32(bitcast<u64>(k) & 0xfffffffflu) ^ 0x80000000u, 0u, \
             k < -2147483648li), 0xffffffffu, k > 2147483647li)"
        }
    };
    shader!("axis_index")
        .text("index", ty)
        .text("inside", inside)
        .text("biased", biased)
        .number("binding", binding)
}

/// The strides with 0 for `axis`.
pub(crate) fn strides_without(layout: &Layout, axis: usize) -> Strides {
    layout.strides().iter().enumerate().map(|(a, &s)| if a == axis { 0 } else { s }).collect()
}

/// With checked shaders: waits, and names the first element of `index` outside the axis of
/// `shape`. In a browser, where that cannot wait, the next read returns the error.
///
/// # Errors
/// That error.
pub(crate) fn check_indices(gpu: &Wgpu, index: &Tensor, axis: usize, shape: &Shape) -> Result<()> {
    let Err(error) = check_index_errors(gpu) else { return Ok(()) };
    find_wrong_index(gpu, index, axis, shape)?;
    Err(error)
}

/// With checked shaders, where it can wait: waits for the records of wrong indices.
///
/// # Errors
/// The error of a wrong index.
pub(crate) fn check_index_errors(gpu: &Wgpu) -> Result<()> {
    match gpu.shaders == Shaders::Trusted || !CAN_WAIT {
        true => Ok(()),
        false => gpu.check_index_errors(),
    }
}

/// Waits, and names the first element of `index` outside the axis of `shape`.
///
/// # Errors
/// That error.
pub(crate) fn find_wrong_index(
    gpu: &Wgpu,
    index: &Tensor,
    axis: usize,
    shape: &Shape,
) -> Result<()> {
    let (size, ty) = (shape[axis], index.dtype());
    for (flat, bytes) in download(gpu, index)?.chunks(ty.size()).enumerate() {
        let mut word =
            [if ty.is_signed_int() && bytes[bytes.len() - 1] > 127 { 0xff } else { 0 }; 16];
        word[..bytes.len()].copy_from_slice(bytes);
        let value = i128::from_le_bytes(word);
        if value < 0 || value >= size as i128 {
            let place = index.layout().distinct_coordinates(flat);
            let outside = format!("axis {axis} of {shape} has size {size}");
            return Err(Error::position(&place, value, size, outside));
        }
    }
    Ok(())
}
