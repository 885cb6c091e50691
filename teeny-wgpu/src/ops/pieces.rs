//! Tensors larger than one binding. Elementwise kernels cover them window by window; the other
//! operations work on halves: an operation along lines is run on halves along another axis, each
//! half copied if it has to be, and the copy engine, which has no bindings, puts the results one
//! after the other.
//!
//! That moves the data twice more, which is the price of a rare case: the bound is 128 MiB in the
//! least capable browser and 2 GiB on most cards.

use crate::device::Wgpu;
use crate::device::storage::Memory;
use crate::ops::copy::{can_compact, compact_all, contiguous, slice_of, write_view};
use teeny_core::storage::downcast;
use teeny_core::{DType, Error, Layout, Result, Shape, StorageRef, Tensor};

/// Where an axis of `size` is split: near the middle, and so that each piece of `below` elements a
/// step begins at a whole word if that is possible.
pub(crate) fn split_point(size: usize, below: usize, dtype: DType) -> usize {
    let half = size / 2;
    let aligned = half / 4 * 4;
    if aligned > 0 && !half.wrapping_mul(below).wrapping_mul(dtype.size()).is_multiple_of(4) {
        aligned
    } else {
        half
    }
}

/// The elements of all pieces, one after the other.
pub(crate) fn concat(
    gpu: &Wgpu,
    pieces: &[StorageRef],
    dtype: DType,
    like: &Tensor,
) -> Result<StorageRef> {
    let out = gpu.allocate(pieces.iter().map(|p| p.len()).sum(), dtype)?;
    let all = Layout::contiguous(Shape::new(&[out.len()])?);
    let mut at = 0;
    for piece in pieces {
        let (start, bytes) = ((at * dtype.size()) as u64, (piece.len() * dtype.size()) as u64);
        if start.is_multiple_of(4) {
            gpu.stream.copy(
                downcast::<Memory>(piece)?.buffer(),
                downcast::<Memory>(piece)?.start(),
                downcast::<Memory>(&out)?.buffer(),
                start,
                bytes.next_multiple_of(4),
            );
        } else {
            // This piece begins within a word of the one before.
            let piece = gpu.tensor(piece.clone(), Shape::new(&[piece.len()])?, dtype, like)?;
            write_view(gpu, &out, &all.slice(0, at, piece.numel(), 1), &piece)?;
        }
        at += piece.len();
    }
    Ok(out)
}

/// An operation along `axis` on tensors of one shape, some too large for a kernel: done on halves
/// along another axis. `run` gets the halves and the number that the axis has now; it returns
/// row-major results of their shape with `length` elements along the axis.
///
/// # Errors
/// If no other axis can be split.
pub(crate) fn by_halves<const N: usize>(
    gpu: &Wgpu,
    inputs: &[&Tensor],
    axis: usize,
    types: [DType; N],
    length: usize,
    run: impl Fn(&[&Tensor], usize) -> Result<[StorageRef; N]>,
) -> Result<[StorageRef; N]> {
    if can_compact(gpu, inputs) {
        return run(&compact_all(gpu, inputs)?.iter().collect::<Vec<_>>(), axis);
    }
    let x = inputs[0];
    for dtype in types {
        gpu.checked_bytes((x.numel() / x.shape()[axis].max(1)).saturating_mul(length), dtype)?;
    }
    let longest = (0..x.ndim()).filter(|&a| a != axis).max_by_key(|&a| x.shape()[a]);
    let Some(split) = longest.filter(|&a| x.shape()[a] > 1) else {
        let limit = gpu.capabilities.max_binding;
        return Err(Error::unsupported(format!(
            "one line of {} {} elements exceeds the {limit} bytes that a kernel reaches",
            x.shape()[axis],
            x.dtype()
        ))
        .help("split the tensor along the axis, or use the CPU device"));
    };
    // The axis that is split comes first, so that the results of the halves follow each other.
    let order: Vec<usize> =
        std::iter::once(split).chain((0..x.ndim()).filter(|&a| a != split)).collect();
    let now = order.iter().position(|&a| a == axis).unwrap_or_default();
    let permuted = inputs.iter().map(|x| x.permute(&order[..])).collect::<Result<Vec<_>>>()?;
    let size = x.shape()[split];
    let below = x.numel() / size / x.shape()[axis].max(1) * length;
    let mid = types.iter().fold(size / 2, |mid, &dtype| mid.min(split_point(size, below, dtype)));
    let mut halves = Vec::with_capacity(2);
    for (low, high) in [(0, mid), (mid, size)] {
        let parts =
            permuted.iter().map(|x| slice_of(gpu, x, 0, low, high)).collect::<Result<Vec<_>>>()?;
        halves.push(run(&parts.iter().collect::<Vec<_>>(), now)?);
    }
    let shape = permuted[0].shape().with_size(now, length);
    let back: Vec<usize> =
        (0..x.ndim()).map(|a| order.iter().position(|&b| b == a).unwrap_or_default()).collect();
    let mut results = Vec::with_capacity(N);
    for (i, &dtype) in types.iter().enumerate() {
        let joined = concat(gpu, &[halves[0][i].clone(), halves[1][i].clone()], dtype, x)?;
        let view = Tensor::from_parts(
            joined.clone(),
            Layout::contiguous(shape).permute(&back),
            dtype,
            x.device().clone(),
        )?;
        results.push(if view.is_contiguous() { joined } else { contiguous(gpu, &view)? });
    }
    results.try_into().map_err(|_| Error::internal("a piece returned too few results"))
}
