//! Copies that keep bits: row-major copies of views, and writing into a view in place.
//!
//! The two need each other where a tensor is larger than a binding: the halves of a copy are
//! written into its result, and a source that is written is copied half by half.

use crate::codegen::elementwise::THREADS;
use crate::codegen::params::{Sizes, Strides, View, shader_params};
use crate::codegen::shader::{Start, shader};
use crate::device::Wgpu;
use crate::device::launch::{Key, Launch, Program};
use crate::device::storage::{Memory, PART_ALIGNMENT};
use crate::ops::binding::bind_window;
use crate::ops::coalesce::Coalesced;
use crate::ops::elementwise::direct::contiguous_directly;
use crate::ops::transpose::{Through, transposed};
use std::sync::Arc;
use teeny_core::storage::downcast;
use teeny_core::{DType, Error, Layout, Result, StorageRef, Tensor};

/// Contiguous copies of at least this many bytes leave the compute pass for the copy engine.
const COPY_ENGINE: u64 = 256 << 10;

shader_params! {
    /// Parameters of `copy_into.wgsl`.
    struct CopyParams(axes: usize) {
        elements: usize,
        sizes: Sizes[axes],
        src: View[axes],
        /// Where the view begins in the window of the destination that is bound.
        dst_offset: isize,
        dst_strides: Strides[axes],
    }
}

/// The shader that writes elements of `words` words of type `unit` to the places of a view.
///
/// # Errors
/// As [`crate::codegen::shader::Shader::render`].
pub(crate) fn wgsl(axes: usize, unit: DType, words: usize) -> Result<String> {
    shader!("copy_into")
        .params(&CopyParams::declaration(axes))
        .addresses("element", "", axes, &[("src", Start::Offset), ("dst", Start::Offset)])
        .number("threads", THREADS)
        .number("words", words)
        .number("per_word", 4 / unit.size())
        .flag("packed", unit.size() < 4)
        .render()
}

/// A row-major copy of `x`, its bits untouched.
pub(crate) fn contiguous(gpu: &Wgpu, x: &Tensor) -> Result<StorageRef> {
    if let Some(copy) = transposed(gpu, x, Through::fastest(gpu))? {
        return Ok(copy);
    }
    match contiguous_directly(gpu, x)? {
        Some(copy) => Ok(copy),
        None => contiguous_halves(gpu, x),
    }
}

/// The tensor, or a copy of its elements where they are a small part of a storage larger than a
/// binding. Expanded axes stay expanded.
pub(crate) fn compact(gpu: &Wgpu, x: &Tensor) -> Result<Tensor> {
    if !gpu.exceeds_binding(x) {
        return Ok(x.clone());
    }
    let expanded = (0..x.ndim()).filter(|&a| x.strides()[a] == 0 && x.shape()[a] > 1);
    let part = expanded.clone().try_fold(x.clone(), |x, a| x.slice(a as isize, 0..1))?;
    if gpu.len_exceeds_binding(part.numel(), x.dtype()) {
        return Ok(x.clone());
    }
    let part = gpu.tensor(contiguous(gpu, &part)?, *part.shape(), x.dtype(), x)?;
    if expanded.count() == 0 { Ok(part) } else { part.expand(*x.shape()) }
}

/// True if one of `inputs` is a small part of a storage larger than a binding: [`compact`] makes
/// it small.
pub(crate) fn can_compact(gpu: &Wgpu, inputs: &[&Tensor]) -> bool {
    let distinct = |x: &Tensor| {
        (0..x.ndim())
            .filter(|&a| x.strides()[a] != 0)
            .map(|a| x.shape()[a])
            .fold(1, usize::saturating_mul)
    };
    inputs.iter().any(|x| {
        gpu.exceeds_binding(x) && !gpu.len_exceeds_binding(distinct(x).min(x.numel()), x.dtype())
    })
}

/// [`compact`] for each of `inputs`.
pub(crate) fn compact_all(gpu: &Wgpu, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
    inputs.iter().map(|x| compact(gpu, x)).collect()
}

/// A slice of a tensor along an axis; of a tensor larger than a binding a copy, or a part of its
/// buffer where the slice is row-major and begins where a binding may.
pub(crate) fn slice_of(
    gpu: &Wgpu,
    x: &Tensor,
    axis: usize,
    low: usize,
    high: usize,
) -> Result<Tensor> {
    let part = x.slice(axis as isize, low as isize..high as isize)?;
    if !gpu.exceeds_binding(x) {
        return Ok(part);
    }
    let start = (part.layout().offset() * x.dtype().size()) as u64;
    let storage: StorageRef = match part.is_contiguous() && start.is_multiple_of(PART_ALIGNMENT) {
        true => Arc::new(downcast::<Memory>(x.storage())?.part(start, part.numel())),
        false => contiguous(gpu, &part)?,
    };
    gpu.tensor(storage, *part.shape(), x.dtype(), x)
}

/// A row-major copy of a view whose neighbours are far apart: both halves along the axis of its
/// longest steps, one after the other.
fn contiguous_halves(gpu: &Wgpu, x: &Tensor) -> Result<StorageRef> {
    let out = gpu.allocate(x.numel(), x.dtype())?;
    let target = Layout::contiguous(*x.shape());
    let axis = (0..x.ndim())
        .filter(|&a| x.shape()[a] > 1)
        .max_by_key(|&a| (x.shape()[a] - 1) * x.strides()[a].unsigned_abs());
    let Some(axis) = axis else {
        return Err(Error::internal("one element is larger than a binding"));
    };
    let (size, mid) = (x.shape()[axis], x.shape()[axis] / 2);
    for (low, high) in [(0, mid), (mid, size)] {
        let half = x.slice(axis as isize, low as isize..high as isize)?;
        let half = gpu.tensor(contiguous(gpu, &half)?, *half.shape(), x.dtype(), x)?;
        write_view(gpu, &out, &target.slice(axis, low, high - low, 1), &half)?;
    }
    Ok(out)
}

/// Writes `src` to the elements of `view` in `dst`; in a copy of `dst` if that is shared.
pub(crate) fn copy_into(
    gpu: &Wgpu,
    mut dst: StorageRef,
    view: &Layout,
    src: &Tensor,
) -> Result<StorageRef> {
    let dtype = src.dtype();
    // The source may be a neighbour in a shared buffer.
    if Arc::get_mut(&mut dst).is_none() || downcast::<Memory>(&dst)?.is_shared() {
        dst = duplicate(gpu, &dst, dtype)?;
    }
    if src.numel() > 0 {
        write_view(gpu, &dst, view, src)?;
    }
    Ok(dst)
}

/// A storage with the same elements.
fn duplicate(gpu: &Wgpu, storage: &StorageRef, dtype: DType) -> Result<StorageRef> {
    let copy = gpu.allocate(storage.len(), dtype)?;
    let bytes = gpu.checked_bytes(storage.len(), dtype)?.next_multiple_of(4);
    if !storage.is_empty() {
        gpu.stream.copy(
            downcast::<Memory>(storage)?.buffer(),
            downcast::<Memory>(storage)?.start(),
            downcast::<Memory>(&copy)?.buffer(),
            0,
            bytes,
        );
    }
    Ok(copy)
}

/// Writes `src` to the elements of `view` in `dst`, which has one owner.
pub(crate) fn write_view(gpu: &Wgpu, dst: &StorageRef, view: &Layout, src: &Tensor) -> Result<()> {
    let size = src.dtype().size();
    let bytes = gpu.checked_bytes(src.numel(), src.dtype())?;
    let (start, end) = ((src.layout().offset() * size) as u64, (view.offset() * size) as u64);
    let aligned = start % 4 == 0 && end % 4 == 0 && bytes.is_multiple_of(4);
    if bytes >= COPY_ENGINE && aligned && view.is_contiguous() && src.is_contiguous() {
        gpu.stream.copy(
            downcast::<Memory>(src.storage())?.buffer(),
            downcast::<Memory>(src.storage())?.start() + start,
            downcast::<Memory>(dst)?.buffer(),
            downcast::<Memory>(dst)?.start() + end,
            bytes,
        );
        return Ok(());
    }
    if can_compact(gpu, &[src]) {
        return write_view(gpu, dst, view, &compact(gpu, src)?);
    }
    let (low, high) = Coalesced::new(src.shape(), &[view]).reach(0, 0, src.numel());
    let target =
        bind_window(dst, view.offset() as isize, size, low, high, gpu.capabilities.max_binding)?;
    let Some((target, to)) = target.filter(|_| !gpu.exceeds_binding(src)) else {
        // The source or the view reaches further than a kernel sees: half of it at a time.
        let axis = (0..src.ndim()).max_by_key(|&a| src.shape()[a]).filter(|&a| src.shape()[a] > 1);
        let Some(axis) = axis else {
            return Err(Error::internal("one element is larger than a binding"));
        };
        let (size, mid) = (src.shape()[axis], src.shape()[axis] / 2);
        for (low, high) in [(0, mid), (mid, size)] {
            write_view(
                gpu,
                dst,
                &view.slice(axis, low, high - low, 1),
                &slice_of(gpu, src, axis, low, high)?,
            )?;
        }
        return Ok(());
    };
    // Bits are moved as integers of the element's width; 64-bit elements as pairs of words,
    // whether or not the adapter computes with them.
    let (unit, words) = match size {
        1 => (DType::U8, 1),
        2 => (DType::U16, 1),
        4 => (DType::U32, 1),
        _ => (DType::U32, 2),
    };
    let joint = Coalesced::new(src.shape(), &[src.layout(), view]).padded();
    let axes = joint.sizes.len();
    let params = CopyParams {
        elements: src.numel(),
        sizes: (&joint.sizes).into(),
        src: View::new(src.layout().offset(), &joint.strides[0]),
        dst_offset: to,
        dst_strides: (&joint.strides[1]).into(),
    };
    let source = gpu.bind_tensor(src)?;
    let grid = gpu.dispatch_grid(src.numel().div_ceil(THREADS) as u64)?;
    gpu.dispatch(&Launch {
        program: Program {
            key: Key::new("copy_into", [axes as u32, unit as u32, words]),
            wgsl: &|| wgsl(axes, unit, words as usize),
        },
        inputs: &[source],
        outputs: &[target],
        params: &params.words(),
        grid,
    })
}
