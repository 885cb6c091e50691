//! Running sums and products.
//!
//! ```text
//! short lines, many lines   a thread goes through each line
//! lines                     a workgroup goes through each, 1024 elements at a time, with a carry
//! few long lines            totals of chunks │ their scan │ chunks with the total before them
//! ```
//!
//! Sums are made of blocks whose places depend on the sizes alone: the same bits in every run, and
//! errors that grow slower than the line.

use crate::codegen::params::{Sizes, Strides, View, shader_params};
use crate::codegen::shader::{Start, shader};
use crate::codegen::types::{self, accumulation, accumulator};
use crate::device::Wgpu;
use crate::device::launch::{Key, Launch, Program};
use crate::ops::accumulation::cast_to_storage;
use crate::ops::coalesce::Coalesced;
use crate::ops::copy::{can_compact, compact, slice_of};
use crate::ops::pieces::{by_halves, concat, split_point};
use teeny_core::{DType, Layout, Result, ScanOp, Shape, StorageRef, Tensor};

const THREADS: usize = 128;
/// Consecutive elements that a thread scans.
const ITEMS_PER_THREAD: usize = 8;
const TILE: usize = THREADS * ITEMS_PER_THREAD;
/// Threads that scan the totals of all threads.
const SCAN_THREADS: usize = 8;
/// Lines up to this length are short.
const SHORT: usize = 64;
/// Lines that keep a GPU busy with a thread each, and with a workgroup each.
const MANY: usize = 4096;
const LINES: usize = 64;
/// The least elements of a chunk of a long line, and the most chunks.
const CHUNK: usize = 2 * TILE;
const CHUNKS: usize = 1024;

shader_params! {
    /// Parameters of `scan_lines.wgsl`, `scan_totals.wgsl` and `scan_chunks.wgsl`.
    struct ScanParams(axes: usize) {
        lines: usize,
        /// Elements of a line.
        length: usize,
        x_step: isize,
        y_step: isize,
        /// Chunks of a line.
        chunks: usize,
        /// Elements of a chunk.
        chunk: usize,
        sizes: Sizes[axes],
        x: View[axes],
        y_strides: Strides[axes],
    }
}

/// The kernel of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// Scans lines, a thread for each.
    Lines = 0,
    /// Scans lines, a workgroup for each.
    Chunks = 1,
    /// The total of every chunk.
    Totals = 2,
    /// Scans chunks, each beginning with the total of the earlier ones.
    CarriedChunks = 3,
}

/// The shader of a pass. The axes other than the scanned one are merged into `axes` axes, whose index
/// is the number of a line.
///
/// # Errors
/// As [`crate::codegen::shader::Shader::render`].
pub(crate) fn wgsl(pass: Pass, axes: usize, dtype: DType, op: ScanOp) -> Result<String> {
    let value_type = accumulator(dtype);
    let (identity, operator) = match op {
        ScanOp::Sum => (types::zero(accumulation(dtype)).to_string(), "+"),
        ScanOp::Prod => (format!("{value_type}(1)"), "*"),
    };
    let (x, y) = (("x", Start::Offset), ("y", Start::Zero));
    let shader =
        match pass {
            Pass::Lines => shader!("scan_lines").addresses("line", "", axes, &[x, y]),
            Pass::Totals => shader!("scan_totals")
                .addresses("line", "", axes, &[x])
                .workgroup_reduce("workgroup_combine", value_type, THREADS, "combine", false),
            Pass::Chunks | Pass::CarriedChunks => shader!("scan_chunks")
                .addresses("line", "", axes, &[x, y])
                .number("items_per_thread", ITEMS_PER_THREAD)
                .number("scan_threads", SCAN_THREADS)
                .flag("carried", pass == Pass::CarriedChunks),
        };
    shader
        .params(&ScanParams::declaration(axes))
        .input("x", dtype)
        .text("value_type", value_type)
        .text("identity", identity)
        .text("operator", operator)
        .number("threads", THREADS)
        .render()
}

pub(crate) fn scan(gpu: &Wgpu, op: ScanOp, x: &Tensor, axis: usize) -> Result<StorageRef> {
    let dtype = x.dtype();
    gpu.require(dtype, "scans")?;
    if x.numel() == 0 {
        return gpu.allocate(0, dtype);
    }
    let length = x.shape()[axis];
    if gpu.exceeds_binding(x) || gpu.len_exceeds_binding(x.numel(), accumulation(dtype)) {
        gpu.checked_bytes(x.numel(), dtype)?;
        if can_compact(gpu, &[x]) {
            return scan(gpu, op, &compact(gpu, x)?, axis);
        }
        if x.numel() == length {
            return scan_halves(gpu, op, x, axis);
        }
        let [y] = by_halves(gpu, &[x], axis, [dtype], length, |parts, axis| {
            Ok([scan(gpu, op, parts[0], axis)?])
        })?;
        return Ok(y);
    }
    let lines = x.numel() / length;
    let neighbours = x.layout().strides()[axis].unsigned_abs() <= 1;
    let out = gpu.allocate(x.numel(), accumulation(dtype))?;
    if length <= SHORT || (lines >= MANY && !neighbours) {
        launch_pass(gpu, Pass::Lines, op, x, axis, (1, length), None, &out)?;
    } else if length < 2 * CHUNK || lines >= LINES {
        launch_pass(gpu, Pass::Chunks, op, x, axis, (1, length), None, &out)?;
    } else {
        let chunk = length.div_ceil(CHUNKS).next_multiple_of(TILE).max(CHUNK);
        let chunks = length.div_ceil(chunk);
        let totals = gpu.allocate(lines * chunks, accumulation(dtype))?;
        launch_pass(gpu, Pass::Totals, op, x, axis, (chunks, chunk), None, &totals)?;
        let totals = gpu.tensor(totals, Shape::new(&[lines, chunks])?, accumulation(dtype), x)?;
        let totals = scan(gpu, op, &totals, 1)?;
        launch_pass(gpu, Pass::CarriedChunks, op, x, axis, (chunks, chunk), Some(&totals), &out)?;
    }
    cast_to_storage(gpu, out, dtype, x)
}

/// One launch, for `chunks` chunks of `chunk` elements in each line.
#[allow(clippy::too_many_arguments)]
fn launch_pass(
    gpu: &Wgpu,
    pass: Pass,
    op: ScanOp,
    x: &Tensor,
    axis: usize,
    (chunks, chunk): (usize, usize),
    totals: Option<&StorageRef>,
    out: &StorageRef,
) -> Result<()> {
    let target = Layout::contiguous(*x.shape());
    let others: Vec<usize> = (0..x.ndim()).filter(|&a| a != axis).collect();
    let joint = Coalesced::over(x.shape(), &[x.layout(), &target], &others)?.padded();
    let (axes, lines) = (joint.sizes.len(), x.numel() / x.shape()[axis]);
    let params = ScanParams {
        lines,
        length: x.shape()[axis],
        x_step: x.strides()[axis],
        y_step: target.strides()[axis],
        chunks,
        chunk,
        sizes: (&joint.sizes).into(),
        x: View::new(x.layout().offset(), &joint.strides[0]),
        y_strides: (&joint.strides[1]).into(),
    };
    let mut inputs = vec![gpu.bind_tensor(x)?];
    if let Some(totals) = totals {
        inputs.push(gpu.bind(totals)?);
    }
    let variant = [axes as u32, x.dtype() as u32, op as u32, pass as u32];
    gpu.dispatch(&Launch {
        program: Program {
            key: Key::new("scan", variant),
            wgsl: &|| wgsl(pass, axes, x.dtype(), op),
        },
        inputs: &inputs,
        outputs: &[gpu.bind(out)?],
        params: &params.words(),
        grid: gpu.dispatch_grid(if pass == Pass::Lines {
            lines.div_ceil(THREADS)
        } else {
            lines * chunks
        } as u64)?,
    })
}

/// A step of the scan.
fn combine(op: ScanOp, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    match op {
        ScanOp::Sum => a.add(b),
        ScanOp::Prod => a.mul(b),
    }
}

/// The scan of one line larger than a binding.
fn scan_halves(gpu: &Wgpu, op: ScanOp, x: &Tensor, axis: usize) -> Result<StorageRef> {
    let (length, dtype) = (x.shape()[axis], x.dtype());
    let mid = split_point(length, 1, dtype);
    let [low, high] = [(0, mid), (mid, length)].map(|(from, to)| {
        let part = slice_of(gpu, x, axis, from, to)?;
        gpu.tensor(scan(gpu, op, &part, axis)?, *part.shape(), dtype, x)
    });
    let (low, high) = (low?, high?);
    let last = low.slice(axis as isize, -1..)?;
    concat(gpu, &[low.storage().clone(), combine(op, &high, &last)?.storage().clone()], dtype, x)
}
