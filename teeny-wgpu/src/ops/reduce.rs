//! Reductions, and reductions of a kernel's result without storing it: one shader for both.
//!
//! ```text
//! a workgroup   per result (and chunk), whose threads combine their parts   long rows, everything
//! 16 threads    per result, eight results in a workgroup                    rows of some hundred
//! a thread      per result (and chunk)                                      columns, short rows
//! ```
//!
//! Long reductions with few results are split into chunks, whose partial results a second pass
//! reduces; beyond the range of 32 bits, halves are reduced one after the other. Floats accumulate
//! in f32 in blocks of 64, so errors grow with the number of blocks rather than of elements. The
//! order is fixed by the sizes: results are the same in every run.

use crate::codegen::expressions::rounded;
use crate::codegen::generator::{self, Generator};
use crate::codegen::params::{Field, Sizes, Strides, View, shader_params};
use crate::codegen::shader::{Start, shader};
use crate::codegen::types::{self, accumulated, accumulation, accumulator};
use crate::device::launch::{Key, Launch, Program};
use crate::device::limits::MAX_BINDINGS;
use crate::device::{Wgpu, error};
use crate::ops::accumulation::{cast_to_storage, highest, lowest};
use crate::ops::coalesce::Coalesced;
use crate::ops::copy::{can_compact, compact_all, contiguous, slice_of};
use crate::ops::elementwise::elementwise;
use crate::ops::pieces::{concat, split_point};
use std::fmt::Write;
use std::sync::Arc;
use teeny_core::kernel::table::UnaryTable;
use teeny_core::{
    DType, Error, Kernel, Layout, ReduceOp, Result, Scalar, Shape, StorageRef, Tensor,
};

/// Threads of a workgroup.
pub(crate) const THREADS: usize = 128;
/// Threads that share a row of some hundred elements; rows shorter than the first bound have a
/// thread, longer than the second a workgroup.
pub(crate) const TEAM: usize = 16;
const TEAM_ROWS: (usize, usize) = (64, 512);

/// Positions in few long lines are found chunk by chunk.
const FEW: usize = 64;
const ARG_CHUNK: usize = 4096;

/// The most partial results of chunks.
const PARTIAL: usize = 1 << 22;

static IDENTITY: UnaryTable = UnaryTable::new();

/// The chunks of each of `count` results from `elements` elements that `team` threads share.
fn chunks_of(count: usize, elements: usize, team: usize) -> usize {
    if count.saturating_mul(team) >= 1 << 16 {
        return 1;
    }
    let length = if team > 1 { 64 * team } else { 256 };
    elements.div_ceil(length).min(PARTIAL / count).max(1)
}

shader_params! {
    /// Parameters of `reduce.wgsl`; then for each input its view along the kept axes and its
    /// strides along the reduced ones, and the kernel's scalars.
    struct ReduceParams(kept: usize, reduced: usize) {
        results: usize,
        /// Elements of a result.
        elements: usize,
        /// Elements of a chunk.
        length: usize,
        /// Chunks of a result.
        chunks: usize,
        kept_sizes: Sizes[kept],
        reduced_sizes: Sizes[reduced],
    }
}

/// Everything that the text of the shader depends on, apart from the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub op: ReduceOp,
    /// Joint axes that are kept, and that are reduced.
    pub kept: usize,
    pub reduced: usize,
    /// Threads that share a result: [`THREADS`], [`TEAM`] or 1.
    pub team: usize,
}

impl Plan {
    fn variant(self) -> Vec<u32> {
        vec![self.op as u32, self.kept as u32, self.reduced as u32, self.team as u32]
    }

    /// The shader.
    ///
    /// # Errors
    /// If an operation of the kernel does not exist on the GPU for its type.
    pub fn wgsl(self, kernel: &Kernel) -> Result<String> {
        let inputs = generator::inputs_of(kernel, 1);
        let names: Vec<String> = inputs.iter().map(|i| format!("x{i}")).collect();
        let mut params = ReduceParams::declaration(self.kept, self.reduced);
        for name in &names {
            isize::declare(&format!("{name}_offset"), (), &mut params);
            Strides::declare(&format!("{name}_kept_strides"), self.kept, &mut params);
            Strides::declare(&format!("{name}_reduced_strides"), self.reduced, &mut params);
        }
        let compute = Generator::new(kernel, 1, &mut params)?;
        let dtype = kernel.output_dtype(0);
        let value = accumulator(dtype);
        let mut accessors = String::new();
        for (&i, name) in inputs.iter().zip(&names) {
            let input = kernel.inputs()[i];
            let (ty, load) = (types::value(input), types::load(input, name, "i"));
            let _ = writeln!(accessors, "fn load_{name}(i: u32) -> {ty} {{ return {load}; }}");
        }
        // The kernel's output as it would be stored.
        let stored = accumulated(dtype, &rounded(dtype, "y"));
        let _ = writeln!(
            accessors,
            "fn as_stored(y: {}) -> Value {{ return {stored}; }}",
            types::value(dtype)
        );
        let loads: Vec<String> =
            names.iter().map(|name| format!("load_{name}(base.{name} + at.{name})")).collect();
        let views = |start: Start| -> Vec<(&str, Start)> {
            names.iter().map(|name| (name.as_str(), start)).collect()
        };
        let (neutral, combined) = combine(self.op, dtype);
        let words = inputs.iter().map(|&i| types::word(kernel.inputs()[i]).to_string());
        let shader = shader!("reduce")
            .params(&params)
            .text("compute", compute.text)
            .function(&accessors)
            .addresses("kept", "kept_", self.kept, &views(Start::Offset))
            .addresses("reduced", "reduced_", self.reduced, &views(Start::Zero))
            .number("inputs", inputs.len())
            .text("out", accumulator(self.op.output(dtype)))
            .text("value", value)
            .text("neutral", neutral)
            .text("combined", combined)
            .text("better", if self.op == ReduceOp::ArgMax { ">" } else { "<" })
            .text("loads", loads.join(", "))
            .list("words", words)
            .list("names", names.iter().cloned())
            .number("threads", THREADS)
            .number("team", self.team)
            .flag("arg", self.op.is_arg())
            .flag("float", accumulation(dtype).is_float())
            .flag("shared", self.team > 1)
            .flag("workgroup_team", self.team == THREADS);
        match self.team == THREADS {
            true => {
                shader.workgroup_reduce("workgroup_combine", "State", THREADS, "combine", false)
            }
            false => shader.text("workgroup_combine", ""),
        }
        .render()
    }
}

/// The value of the neutral state, and that of `a` and `b` combined.
fn combine(op: ReduceOp, dtype: DType) -> (String, String) {
    let zero = types::zero(accumulation(dtype)).to_string();
    match op {
        ReduceOp::Sum => (zero, "a.value + b.value".to_string()),
        ReduceOp::Prod => (format!("{}(1)", accumulator(dtype)), "a.value * b.value".to_string()),
        ReduceOp::Max => {
            (types::lowest(dtype).to_string(), types::larger(dtype, "a.value", "b.value"))
        }
        ReduceOp::Min => {
            (types::highest(dtype).to_string(), types::smaller(dtype, "a.value", "b.value"))
        }
        ReduceOp::Any => ("0u".to_string(), "a.value | b.value".to_string()),
        ReduceOp::All => ("1u".to_string(), "a.value & b.value".to_string()),
        // Positions have their own function.
        ReduceOp::ArgMax | ReduceOp::ArgMin => (zero, String::new()),
    }
}

pub(crate) fn reduce(gpu: &Wgpu, op: ReduceOp, x: &Tensor, axes: &[usize]) -> Result<StorageRef> {
    reduce_kernel(gpu, IDENTITY.get(x.dtype(), |x| x)?, &[x], &[], x.shape(), op, axes)
}

pub(crate) fn reduce_kernel(
    gpu: &Wgpu,
    kernel: &Arc<Kernel>,
    inputs: &[&Tensor],
    params: &[Scalar],
    shape: &Shape,
    op: ReduceOp,
    axes: &[usize],
) -> Result<StorageRef> {
    let dtype = kernel.output_dtype(0);
    for dtype in kernel
        .inputs()
        .iter()
        .chain(kernel.params())
        .copied()
        .chain(kernel.nodes().iter().map(|n| n.dtype))
    {
        gpu.require(dtype, "reductions")?;
    }
    let used = generator::inputs_of(kernel, 1);
    if inputs.is_empty() {
        return Err(Error::unsupported("a reduction of a kernel without inputs"));
    }
    if used.len() >= MAX_BINDINGS || used.is_empty() {
        let mut outputs = elementwise(gpu, kernel, inputs, params, shape)?.into_iter();
        let storage = outputs.next().ok_or_else(|| Error::internal("a kernel gave no output"))?;
        return reduce(gpu, op, &gpu.tensor(storage, *shape, dtype, inputs[0])?, axes);
    }
    if can_compact(gpu, inputs) {
        return reduce_kernel(
            gpu,
            kernel,
            &compact_all(gpu, inputs)?.iter().collect::<Vec<_>>(),
            params,
            shape,
            op,
            axes,
        );
    }
    let others: Vec<usize> = (0..shape.ndim()).filter(|a| !axes.contains(a)).collect();
    let [count, elements] = [&others[..], axes]
        .map(|axes| axes.iter().fold(1, |product: usize, &a| product.saturating_mul(shape[a])));
    gpu.checked_bytes(count, op.output(dtype))?;
    if count == 0 {
        return gpu.allocate(0, op.output(dtype));
    }
    let large = used.iter().any(|&i| gpu.exceeds_binding(inputs[i]));
    if let Some(&axis) = others.iter().find(|&&a| shape[a] > 1)
        && (large || gpu.len_exceeds_binding(count, accumulation(op.output(dtype))))
    {
        return reduce_kept_halves(gpu, kernel, inputs, params, shape, op, axes, axis);
    }
    if op.is_arg() {
        if elements > i32::MAX as usize {
            let message = format!(
                "an axis of {elements} elements has positions beyond {}, the last one of an i32",
                i32::MAX
            );
            return Err(Error::unsupported(message).help("reduce parts of the axis"));
        }
        if large {
            return arg_halves(gpu, kernel, inputs, params, shape, op, axes[0]);
        }
        if count < FEW && elements >= 4 * ARG_CHUNK {
            return arg_chunks(gpu, kernel, inputs, params, shape, op, axes[0]);
        }
    }
    let out = reduce_accumulated(gpu, kernel, inputs, params, shape, op, axes)?;
    cast_to_storage(gpu, out, op.output(dtype), inputs[0])
}

/// The results in their accumulation type: a reduction in parts is rounded once. More
/// elements than a launch counts, or than a binding holds, are reduced in halves of the longest
/// axis, whose results are reduced together.
fn reduce_accumulated(
    gpu: &Wgpu,
    kernel: &Arc<Kernel>,
    inputs: &[&Tensor],
    params: &[Scalar],
    shape: &Shape,
    op: ReduceOp,
    axes: &[usize],
) -> Result<StorageRef> {
    let (dtype, used) = (kernel.output_dtype(0), generator::inputs_of(kernel, 1));
    let others: Vec<usize> = (0..shape.ndim()).filter(|a| !axes.contains(a)).collect();
    let [count, elements] =
        [&others[..], axes].map(|axes| axes.iter().map(|&a| shape[a]).product::<usize>());
    if elements > gpu.max_count || used.iter().any(|&i| gpu.exceeds_binding(inputs[i])) {
        let longest = axes.iter().copied().max_by_key(|&a| shape[a]).filter(|&a| shape[a] > 1);
        let Some(axis) = longest else {
            return Err(Error::internal("a tensor of one element is larger than a binding"));
        };
        let mut halves = Vec::with_capacity(2);
        for (low, high) in [(0, shape[axis] / 2), (shape[axis] / 2, shape[axis])] {
            let parts = inputs
                .iter()
                .map(|x| slice_of(gpu, x, axis, low, high))
                .collect::<Result<Vec<_>>>()?;
            let parts: Vec<&Tensor> = parts.iter().collect();
            halves.push(reduce_accumulated(
                gpu,
                kernel,
                &parts,
                params,
                &shape.with_size(axis, high - low),
                op,
                axes,
            )?);
        }
        let both = concat(gpu, &halves, accumulation(dtype), inputs[0])?;
        return combine_partials(gpu, op, both, &[2, count], 0, dtype, inputs[0]);
    }
    let layouts: Vec<&Layout> = used.iter().map(|&i| inputs[i].layout()).collect();
    let (kept, reduced) = (
        Coalesced::over(shape, &layouts, &others)?.padded(),
        Coalesced::over(shape, &layouts, axes)?.padded(),
    );
    // Rows whose elements are neighbours are read by whole groups; columns by neighbouring
    // threads.
    let inner = |joint: &Coalesced| {
        joint
            .strides
            .iter()
            .filter_map(|s| s.last())
            .map(|s| s.unsigned_abs())
            .max()
            .unwrap_or(usize::MAX)
    };
    let by_rows = inner(&reduced) <= inner(&kept) || count < 32;
    let team = match elements {
        _ if !by_rows || elements < TEAM_ROWS.0 => 1,
        _ if elements <= TEAM_ROWS.1 && count >= THREADS => TEAM,
        _ => THREADS,
    };
    let chunks = if op.is_arg() { 1 } else { chunks_of(count, elements, team) };
    let plan = Plan { op, kept: kept.sizes.len(), reduced: reduced.sizes.len(), team };
    let mut words = ReduceParams {
        results: count,
        elements,
        length: elements.div_ceil(chunks),
        chunks,
        kept_sizes: (&kept.sizes).into(),
        reduced_sizes: (&reduced.sizes).into(),
    }
    .words();
    for (v, layout) in layouts.iter().enumerate() {
        View::new(layout.offset(), &kept.strides[v]).push(&mut words);
        Strides::from(&reduced.strides[v]).push(&mut words);
    }
    generator::push_scalars(&mut words, kernel, params);
    let bindings = used.iter().map(|&i| gpu.bind_tensor(inputs[i])).collect::<Result<Vec<_>>>()?;
    let out = gpu.allocate(count * chunks, accumulation(op.output(dtype)))?;
    let workgroups = (count * chunks).div_ceil(THREADS / team);
    let key = Key { family: "reduce", kernel: Some(kernel.clone()), variant: plan.variant() };
    gpu.dispatch(&Launch {
        program: Program { key, wgsl: &|| plan.wgsl(kernel) },
        inputs: &bindings,
        outputs: &[gpu.bind(&out)?],
        params: &words,
        grid: gpu.dispatch_grid(workgroups as u64)?,
    })?;
    if chunks == 1 {
        Ok(out)
    } else {
        combine_partials(gpu, op, out, &[count, chunks], 1, dtype, inputs[0])
    }
}

/// The results of `op` on `dtype` from partial ones, `shape` along `axis`, both in the
/// accumulation type.
fn combine_partials(
    gpu: &Wgpu,
    op: ReduceOp,
    partial: StorageRef,
    shape: &[usize],
    axis: usize,
    dtype: DType,
    like: &Tensor,
) -> Result<StorageRef> {
    let shape = Shape::new(shape)?;
    let partial = gpu.tensor(partial, shape, accumulation(dtype), like)?;
    // Truth values are 0 and 1 here: any is the largest, all the smallest.
    let op = match op {
        ReduceOp::Any => ReduceOp::Max,
        ReduceOp::All => ReduceOp::Min,
        ReduceOp::Sum
        | ReduceOp::Prod
        | ReduceOp::Max
        | ReduceOp::Min
        | ReduceOp::ArgMax
        | ReduceOp::ArgMin => op,
    };
    reduce_accumulated(
        gpu,
        IDENTITY.get(partial.dtype(), |x| x)?,
        &[&partial],
        &[],
        &shape,
        op,
        &[axis],
    )
}

/// A reduction of inputs, or to results, larger than a binding: on halves of the kept `axis`,
/// the first one, whose results follow each other.
#[allow(clippy::too_many_arguments)]
fn reduce_kept_halves(
    gpu: &Wgpu,
    kernel: &Arc<Kernel>,
    inputs: &[&Tensor],
    params: &[Scalar],
    shape: &Shape,
    op: ReduceOp,
    axes: &[usize],
    axis: usize,
) -> Result<StorageRef> {
    let output = op.output(kernel.output_dtype(0));
    let below = (axis + 1..shape.ndim()).filter(|a| !axes.contains(a)).map(|a| shape[a]).product();
    let mid = split_point(shape[axis], below, output);
    let mut halves = Vec::with_capacity(2);
    for (low, high) in [(0, mid), (mid, shape[axis])] {
        let parts =
            inputs.iter().map(|x| slice_of(gpu, x, axis, low, high)).collect::<Result<Vec<_>>>()?;
        halves.push(reduce_kernel(
            gpu,
            kernel,
            &parts.iter().collect::<Vec<_>>(),
            params,
            &shape.with_size(axis, high - low),
            op,
            axes,
        )?);
    }
    concat(gpu, &halves, output, inputs[0])
}

/// The position in one line larger than a binding: the values at the positions in both halves
/// decide.
fn arg_halves(
    gpu: &Wgpu,
    kernel: &Arc<Kernel>,
    inputs: &[&Tensor],
    params: &[Scalar],
    shape: &Shape,
    op: ReduceOp,
    axis: usize,
) -> Result<StorageRef> {
    let (like, size, mid) = (inputs[0], shape[axis], shape[axis] / 2);
    let mut halves = Vec::with_capacity(2);
    for (low, high) in [(0, mid), (mid, size)] {
        let parts =
            inputs.iter().map(|x| slice_of(gpu, x, axis, low, high)).collect::<Result<Vec<_>>>()?;
        let half = reduce_kernel(
            gpu,
            kernel,
            &parts.iter().collect::<Vec<_>>(),
            params,
            &shape.with_size(axis, high - low),
            op,
            &[axis],
        )?;
        halves.push(gpu.tensor(half, Shape::new(&[])?, DType::I32, like)?);
    }
    let (first, second) = (&halves[0], &halves[1]);
    // Equal values and NaN keep the first.
    let value = |position: &Tensor, from: usize| -> Result<Tensor> {
        let at = usize::try_from(position.item::<i32>()?)
            .map_err(|_| Error::internal("a position is negative"))?
            + from;
        let parts = inputs
            .iter()
            .map(|x| slice_of(gpu, x, axis, at, at + 1))
            .collect::<Result<Vec<_>>>()?;
        let mut y = elementwise(
            gpu,
            kernel,
            &parts.iter().collect::<Vec<_>>(),
            params,
            &shape.with_size(axis, 1),
        )?
        .into_iter();
        let y = y.next().ok_or_else(|| Error::internal("a kernel gave no output"))?;
        gpu.tensor(y, Shape::new(&[1])?, kernel.output_dtype(0), like)
    };
    let values = Tensor::cat(&[&value(first, 0)?, &value(second, mid)?], 0)?;
    let better = if op == ReduceOp::ArgMax { values.argmax(0)? } else { values.argmin(0)? };
    let mid = i32::try_from(mid).map_err(|_| error::beyond(mid))?;
    Ok(better.eq(0)?.where_cond(first, second.add(mid)?)?.storage().clone())
}

/// Positions in few long lines: the position within each chunk, then the best chunk. The first
/// best wins in both.
fn arg_chunks(
    gpu: &Wgpu,
    kernel: &Arc<Kernel>,
    inputs: &[&Tensor],
    params: &[Scalar],
    shape: &Shape,
    op: ReduceOp,
    axis: usize,
) -> Result<StorageRef> {
    let (like, dtype) = (inputs[0], kernel.output_dtype(0));
    let y = if kernel.passes_through(0).is_some() && inputs.len() == 1 {
        inputs[0].clone()
    } else {
        let mut y = elementwise(gpu, kernel, inputs, params, shape)?.into_iter();
        gpu.tensor(
            y.next().ok_or_else(|| Error::internal("a kernel gave no output"))?,
            *shape,
            dtype,
            like,
        )?
    };
    let length = shape[axis];
    let (lines, chunks) = (shape.numel() / length, length.div_ceil(ARG_CHUNK));
    let flat = y.transpose(axis as isize, -1)?;
    let outer = *flat.shape();
    // The padding of the last chunk comes last, so it wins against no element.
    let fill = if op == ReduceOp::ArgMin { highest(dtype) } else { lowest(dtype) };
    let split = flat
        .reshape((lines, length))?
        .pad(&[(0, 0), (0, (chunks * ARG_CHUNK - length) as isize)], fill)?;
    let split = split.reshape((lines, chunks, ARG_CHUNK))?;
    let arg = |x: &Tensor, axis: isize| {
        if op == ReduceOp::ArgMax { x.argmax(axis) } else { x.argmin(axis) }
    };
    let within = arg(&split, 2)?; // (lines, chunks)
    let best = split.gather(2, &within.unsqueeze(2)?)?.squeeze(2)?;
    let chunk = arg(&best, 1)?.unsqueeze(1)?; // (lines, 1)
    let place = chunk.mul(ARG_CHUNK as i32)?.add(&within.gather(1, &chunk)?)?;
    // The axis that is reduced was last: its place is now taken by the one it was exchanged
    // with.
    let mut sizes = outer.to_vec();
    let last = sizes.len() - 1;
    sizes[last] = 1;
    contiguous(gpu, &place.reshape(&sizes[..])?.transpose(axis as isize, -1)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::limits::MAX_COUNT;
    use teeny_core::{DeviceRef, Reference};

    #[test]
    fn chunks_cover_every_element_and_stay_few() {
        let sizes =
            [1, 2, 63, 64, 65, 8191, 8193, 1 << 20, (1 << 31) + 7, MAX_COUNT - 1, MAX_COUNT];
        for count in [1, 2, 31, 500, 60_000, 1 << 20, 1 << 31] {
            for elements in sizes {
                for team in [1, TEAM, THREADS] {
                    let chunks = chunks_of(count, elements, team);
                    let length = elements.div_ceil(chunks);
                    assert!(
                        chunks * length >= elements && (chunks == 1 || count * chunks <= PARTIAL),
                        "{count} {elements} {team}"
                    );
                    // The sum that ends a chunk in the shader stays below 2^32.
                    assert!(
                        (chunks - 1) * length + length <= u32::MAX as usize,
                        "{count} {elements} {team}"
                    );
                }
            }
        }
    }

    #[test]
    fn more_elements_than_a_launch_counts_are_reduced_in_parts() -> Result<()> {
        let Ok(mut gpu) = Wgpu::new() else { return Ok(()) };
        Arc::get_mut(&mut gpu).unwrap().max_count = 1000;
        let (device, oracle) = (gpu as DeviceRef, Reference::new() as DeviceRef);
        type Op = fn(&Tensor) -> Result<Tensor>;
        let ops: [(&str, Op); 8] = [
            ("sum", |x| x.sum_all()),
            ("sum of rows", |x| x.sum(1)),
            ("sum of columns", |x| x.sum(0)),
            ("max", |x| x.max_all()),
            ("sum of squares", |x| x.mul(x)?.sum_all()),
            ("any", |x| x.eq(4)?.any(0)),
            ("all", |x| x.le(4)?.all(1)),
            ("product", |x| x.reshape((1, x.numel()))?.matmul(&x.reshape((x.numel(), 1))?)),
        ];
        for dtype in [DType::F32, DType::F16, DType::I32, DType::U8] {
            for (name, op) in ops {
                let run = |device: &DeviceRef| {
                    // (5, 1)
                    let x = Tensor::arange(0i32, 5, 1, device)?.cast(dtype)?.unsqueeze(1)?;
                    op(&x.expand((5, 3500))?)?.to_scalars()
                };
                assert!(run(&device)? == run(&oracle)?, "{name} of {dtype}");
            }
        }
        Ok(())
    }

    #[test]
    fn positions_beyond_those_of_an_i32_are_refused() -> Result<()> {
        let Ok(gpu) = Wgpu::new() else { return Ok(()) };
        let device = gpu.clone() as DeviceRef;
        let ones = Tensor::full(1, 1, DType::U8, &device)?.expand((1usize << 31) + 8)?;
        for op in [ReduceOp::ArgMax, ReduceOp::ArgMin] {
            assert!(reduce(&gpu, op, &ones, &[0]).is_err());
        }
        Ok(())
    }
}
