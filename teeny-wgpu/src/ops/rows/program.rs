//! Any row program in one launch; see `shaders/rows.wgsl`.
//!
//! ```text
//! a workgroup       per row      all rows but these:
//! a thread          per row      up to 32 elements, rows across neighbours in memory, all but a
//!                                few rows on a software adapter
//! ```
//!
//! Rows of neighbours are read and written in groups of four, others one element after the other.
//! Tensors larger than a binding, and a few very long rows, run as the definition.

use crate::codegen::generator;
use crate::codegen::params::{Field, Strides, View};
use crate::codegen::rows::{
    Access, AtParams, Reads, RowsParams, RowsPlan, element_operations, folds_by_subgroups,
    is_supported, lengths_of, visits,
};
use crate::codegen::types::{LANES, accumulation};
use crate::device::Wgpu;
use crate::device::launch::{Key, Launch, Program};
use crate::device::limits::{MAX_BINDINGS, MAX_COUNT, PARAM_BYTES};
use crate::ops::accumulation::cast_to_storage;
use crate::ops::coalesce::Coalesced;
use crate::ops::indexing::{AxisRange, axis_position, check_index_errors};
use std::sync::Arc;
use teeny_core::kernel::Extent;
use teeny_core::{Kernel, Layout, Outputs, Result, Scalar, Shape, Tensor};

/// Threads of a workgroup whose rows have a thread or a few each.
const THREADS: usize = 128;

/// So many rows are a thread each where neighbours in memory are of different rows: enough threads
/// for a device.
const MANY: usize = 2048;

/// Rows that are enough for a software adapter's processors: a thread has a row.
const MIN_SOFTWARE_ROWS: usize = 2;

/// The most operations of single elements in unrolled loops: longer texts compile slowly.
const MAX_UNROLLED: usize = 1024;

/// The definition runs rows of at least this many elements if there are fewer than
/// [`MIN_LONG_ROWS`] rows: its reductions use several workgroups for a row.
const LONG: usize = 1 << 17;
const MIN_LONG_ROWS: usize = 16;

/// The outputs of `program` on the rows along `axes` of `shape`; nothing if a launch does not reach
/// them. `software`: as on a software adapter.
pub(super) fn run(
    gpu: &Wgpu,
    software: bool,
    program: &Arc<Kernel>,
    inputs: &[&Tensor],
    params: &[Scalar],
    shape: &Shape,
    axes: &[usize],
) -> Result<Option<Outputs>> {
    let outputs = program.outputs().len();
    let one = shape.reduced(axes, true);
    let output_len = |o: usize| match program.output_extent(o) {
        Extent::Element => shape.numel(),
        Extent::Row => one.numel(),
    };
    (0..outputs)
        .try_for_each(|o| gpu.checked_bytes(output_len(o), program.output_dtype(o)).map(drop))?;
    let length = axes.iter().fold(1usize, |n, &axis| n.saturating_mul(shape[axis]));
    if shape.numel() == 0 || shape.numel() > MAX_COUNT || length > i32::MAX as usize {
        return Ok(None);
    }
    let rows = shape.numel() / length;
    let reads = Reads::of(program);
    let records = usize::from(reads.position.is_some());
    let types = program.nodes().iter().map(|node| node.dtype).chain(program.params().to_vec());
    let used: Vec<&Tensor> = reads.inputs.iter().map(|&i| inputs[i]).collect();
    let too_large =
        |o: usize| gpu.len_exceeds_binding(output_len(o), accumulation(program.output_dtype(o)));
    if types.into_iter().any(|dtype| gpu.require(dtype, "rows").is_err())
        // Results of the position alone have no addresses.
        || used.is_empty() && !reads.has_element_outputs
        || used.len() + outputs + records > MAX_BINDINGS
        || used.iter().any(|x| gpu.exceeds_binding(x))
        || (0..outputs).any(too_large)
        || length >= LONG && rows < MIN_LONG_ROWS
    {
        return Ok(None);
    }
    let expanded = used.iter().map(|x| x.expand(*shape)).collect::<Result<Vec<_>>>()?;
    let target = Layout::contiguous(*shape);
    let mut layouts: Vec<&Layout> = expanded.iter().map(|x| x.layout()).collect();
    if reads.has_element_outputs {
        layouts.push(&target);
    }
    let others: Vec<usize> = (0..shape.ndim()).filter(|axis| !axes.contains(axis)).collect();
    let joint = |axes: &[usize]| -> Result<Coalesced> {
        let joint = Coalesced::over(shape, &layouts, axes)?.padded();
        Ok(if joint.sizes.is_empty() { joint.padded_to(1) } else { joint })
    };
    let (kept, along) = (joint(&others)?, joint(axes)?);
    let subgroups = gpu.capabilities.subgroups;
    let plan = plan([software, subgroups], program, &reads, &layouts, &kept, &along);
    if !is_supported(program, plan.threads) {
        return Ok(None);
    }
    let mut words = RowsParams {
        rows,
        groups: length / plan.lanes,
        kept_sizes: (&kept.sizes).into(),
        along_sizes: (&along.sizes).into(),
    }
    .words();
    let bindings = used.iter().map(|x| gpu.bind_tensor(x)).collect::<Result<Vec<_>>>()?;
    let record = reads.position.map(|_| {
        let range = AxisRange::all(length);
        let (binding, error_record) = match reads.position_input {
            Some(i) => range.record(gpu, inputs[i]),
            None => range.for_piece().record(gpu, inputs[0]),
        };
        let (axis_size, range_low, range_length) = (range.size, range.low, range.length);
        AtParams { axis_size, range_low, range_length, error_record }.push_to(&mut words);
        binding
    });
    for (v, layout) in layouts.iter().enumerate() {
        match v < used.len() {
            true => View::new(layout.offset(), &kept.strides[v]).push(&mut words),
            false => Strides::from(&kept.strides[v]).push(&mut words),
        }
        Strides::from(&along.strides[v]).push(&mut words);
    }
    generator::push_scalars(&mut words, program, params);
    for (_, dtype) in lengths_of(program) {
        words.scalar(Scalar::Int(length as i64).cast(dtype), dtype);
    }
    if 4 * words.len() as u64 > PARAM_BYTES {
        return Ok(None);
    }
    let storages = (0..outputs)
        .map(|o| {
            let dtype = program.output_dtype(o);
            let written = plan.writes_groups(program, o);
            gpu.allocate(output_len(o), if written { dtype } else { accumulation(dtype) })
        })
        .collect::<Result<Vec<_>>>()?;
    let written = storages.iter().map(|storage| gpu.bind(storage));
    let written = written.chain(record.map(Ok)).collect::<Result<Vec<_>>>()?;
    let key = Key { family: "rows", kernel: Some(program.clone()), variant: plan.variant() };
    gpu.dispatch(&Launch {
        program: Program { key, wgsl: &|| plan.wgsl(program, axis_position) },
        inputs: &bindings,
        outputs: &written,
        params: &words,
        grid: gpu.dispatch_grid(rows.div_ceil(plan.threads / plan.team) as u64)?,
    })?;
    if reads.position.is_some() {
        check_index_errors(gpu)?;
    }
    let stored = |(o, storage)| cast_to_storage(gpu, storage, program.output_dtype(o), inputs[0]);
    Ok(Some(storages.into_iter().enumerate().map(stored).collect::<Result<Outputs>>()?))
}

/// The mapping of rows to threads.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowThreads {
    /// Threads of a workgroup, and threads that share a row.
    pub(super) threads: usize,
    pub(super) team: usize,
    /// Groups that a thread keeps in registers.
    pub(super) held: usize,
}

impl RowThreads {
    /// For `rows` rows of `length` elements, in groups of `lanes` neighbours. Few answers, since
    /// each is a shader. On a software adapter barriers are slow, and threads without an element
    /// take as long as others.
    pub(super) fn of(length: usize, lanes: usize, software: bool, rows: usize) -> RowThreads {
        let (threads, team, held) = match (length, lanes) {
            _ if software && rows >= MIN_SOFTWARE_ROWS => (THREADS, 1, 0),
            (..=32, _) => (THREADS, 1, 0),
            (..=1024, LANES) => (64, 64, 4),
            (..=8192, LANES) => (256, 256, 8),
            (_, LANES) => (256, 256, 0),
            _ => (THREADS, THREADS, 0),
        };
        RowThreads { threads, team, held }
    }
}

/// The mapping of the rows of these views to threads: the views of the inputs, then of element
/// results. `software` and `subgroups` describe the adapter.
fn plan(
    [software, subgroups]: [bool; 2],
    program: &Kernel,
    reads: &Reads,
    layouts: &[&Layout],
    kept: &Coalesced,
    along: &Coalesced,
) -> RowsPlan {
    let length: usize = along.sizes.iter().product();
    let rows: usize = kept.sizes.iter().product();
    let inner = |joint: &Coalesced| {
        let last = joint.strides.iter().filter_map(|strides| strides.last());
        last.map(|stride| stride.unsigned_abs()).max().unwrap_or(usize::MAX)
    };
    let by_rows = inner(along) <= inner(kept) || rows < 32;
    // A row of one element is read by the shader that reads longer rows.
    let is_row = |v: usize| {
        let of_row = |&i: &usize| program.input_extent(i) == Extent::Row;
        along.is_scalar(v) && (length > 1 || reads.inputs.get(v).is_some_and(of_row))
    };
    let is_quads = |v: usize| {
        let whole = |strides: &[isize]| strides.iter().all(|s| s % LANES as isize == 0);
        along.is_row_groups(v, LANES)
            && whole(&kept.strides[v])
            && layouts[v].offset().is_multiple_of(LANES)
    };
    let inputs = 0..reads.inputs.len();
    let by_groups = along.has_whole_rows(LANES)
        && (!reads.has_element_outputs || is_quads(layouts.len() - 1))
        && (reads.has_element_outputs || inputs.clone().any(|v| !is_row(v) && is_quads(v)));
    let lanes = if by_groups { LANES } else { 1 };
    let access = |v: usize| match () {
        () if is_row(v) => Access::Row,
        () if by_groups && is_quads(v) => Access::Quads,
        () => Access::Strided,
    };
    let groups = length / lanes;
    let across = !by_rows && (rows >= MANY || software || groups <= 128);
    let RowThreads { threads, team, held } = match across {
        true => RowThreads { threads: THREADS, team: 1, held: 0 },
        false => RowThreads::of(length, lanes, software, rows),
    };
    let fits = held > 0
        && element_operations(program) * held * lanes <= MAX_UNROLLED
        && visits(program) > 1;
    let held = if fits { held } else { 0 };
    RowsPlan {
        kept: kept.sizes.len(),
        along: along.sizes.len(),
        threads,
        team,
        lanes,
        held,
        subgroups: subgroups && team == threads && folds_by_subgroups(program),
        inputs: inputs.map(access).collect(),
    }
}
