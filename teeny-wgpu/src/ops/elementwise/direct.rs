//! Elementwise kernels whose inputs are within reach: launches that cover the result, each with a
//! window of every buffer.
//!
//! Sizes, strides and offsets are parameters: a new shape with the same number of axes and the same
//! access classes compiles nothing.

use crate::codegen::elementwise::{Access, ElementwisePlan, THREADS};
use crate::codegen::{generator, types};
use crate::device::launch::{Binding, Key, Launch, Program};
use crate::device::limits::{MAX_BINDINGS, MAX_COUNT};
use crate::device::params::Params;
use crate::device::storage::Memory;
use crate::device::{Wgpu, error};
use crate::ops::binding::{WINDOW_ALIGNMENT, bind_window};
use crate::ops::coalesce::Coalesced;
use crate::ops::software;
use std::sync::Arc;
use teeny_core::kernel::table::UnaryTable;
use teeny_core::storage::downcast;
use teeny_core::{
    DType, Error, Kernel, Layout, Outputs, Result, Scalar, Shape, StorageRef, Tensor,
};

/// Elements from which groups of eight pay: below, most of the time is the launch's, and the shader
/// of groups of four, which takes half as long to compile, does.
pub(crate) const MANY: usize = 1 << 14;

/// A view that a kernel reads, without its tensor.
struct OwnedView {
    storage: StorageRef,
    layout: Layout,
    dtype: DType,
}

/// Nothing if 256 neighbouring elements of the result need more of an input at once than a
/// kernel sees.
pub(crate) fn try_elementwise(
    gpu: &Wgpu,
    kernel: &Arc<Kernel>,
    inputs: &[&Tensor],
    params: &[Scalar],
    shape: &Shape,
) -> Result<Option<Outputs>> {
    for dtype in kernel
        .inputs()
        .iter()
        .chain(kernel.params())
        .copied()
        .chain(kernel.nodes().iter().map(|n| n.dtype))
    {
        gpu.require(dtype, "elementwise work")?;
    }
    let numel = shape.numel();
    (0..kernel.outputs().len())
        .try_for_each(|i| gpu.checked_bytes(numel, kernel.output_dtype(i)).map(drop))?;
    if numel > MAX_COUNT {
        return Err(error::beyond(numel));
    }
    let storages = (0..kernel.outputs().len())
        .map(|i| gpu.allocate(numel, kernel.output_dtype(i)))
        .collect::<Result<Vec<_>>>()?;
    let count = storages.len();
    if numel > 0 {
        let all = (1u32 << count) - 1;
        // Too many buffers for one launch: one launch per output.
        let fits = generator::inputs_of(kernel, all).len() + count <= MAX_BINDINGS;
        let sets: Vec<u32> = if fits { vec![all] } else { (0..count).map(|i| 1 << i).collect() };
        for set in sets {
            if !compute_outputs(gpu, kernel, inputs, params, shape, set, &storages)? {
                return Ok(None);
            }
        }
    }
    let mut outputs = Outputs::new();
    storages.into_iter().for_each(|s| outputs.push(s));
    Ok(Some(outputs))
}

/// Computes the outputs in the bit set `outputs` into their storages; false if an input is out
/// of reach.
fn compute_outputs(
    gpu: &Wgpu,
    kernel: &Arc<Kernel>,
    inputs: &[&Tensor],
    params: &[Scalar],
    shape: &Shape,
    outputs: u32,
    storages: &[StorageRef],
) -> Result<bool> {
    let used = generator::inputs_of(kernel, outputs);
    let mut views: Vec<OwnedView> = used
        .iter()
        .map(|&i| OwnedView {
            storage: inputs[i].storage().clone(),
            layout: *inputs[i].layout(),
            dtype: inputs[i].dtype(),
        })
        .collect();
    let mut bindings: Vec<usize> = (0..views.len()).collect();
    if views.len() + outputs.count_ones() as usize > MAX_BINDINGS {
        let Some(shared) = share_binding(gpu, &mut views, inputs, &used)? else {
            return Ok(false);
        };
        bindings = shared;
    }
    let layouts: Vec<&Layout> = views.iter().map(|v| &v.layout).collect();
    let joint = Coalesced::new(shape, &layouts).padded();
    let targets: Vec<usize> = (0..storages.len()).filter(|i| outputs >> i & 1 == 1).collect();
    let numel = shape.numel();
    let mut start = 0;
    while start < numel {
        let mut end = numel;
        loop {
            if compute_range(
                gpu,
                kernel,
                params,
                (outputs, &targets),
                storages,
                &views,
                &bindings,
                &joint,
                start..end,
            )? {
                break;
            }
            let half = ((end - start) / 2).next_multiple_of(WINDOW_ALIGNMENT);
            if half >= end - start {
                return Ok(false);
            }
            end = start + half;
        }
        start = end;
    }
    Ok(true)
}

/// One launch over the elements `range`; false if they reach further than a binding.
#[allow(clippy::too_many_arguments)]
fn compute_range(
    gpu: &Wgpu,
    kernel: &Arc<Kernel>,
    params: &[Scalar],
    (outputs, targets): (u32, &[usize]),
    storages: &[StorageRef],
    views: &[OwnedView],
    bindings: &[usize],
    joint: &Coalesced,
    range: std::ops::Range<usize>,
) -> Result<bool> {
    let limit = gpu.capabilities.max_binding;
    let shared = bindings.iter().enumerate().any(|(i, &s)| i != s);
    let mut parts = Vec::with_capacity(MAX_BINDINGS);
    let mut offsets = Vec::with_capacity(views.len());
    for (v, view) in views.iter().enumerate() {
        let (low, high) = joint.reach(v, range.start, range.end);
        let Some((part, offset)) = bind_window(
            &view.storage,
            view.layout.offset() as isize,
            view.dtype.size(),
            low,
            high,
            limit,
        )?
        else {
            return Ok(false);
        };
        if bindings[v] == parts.len() {
            parts.push(part);
        }
        offsets.push(offset);
    }
    let access = |v: usize, lanes: usize| {
        let begins_whole = offsets[v] % lanes as isize == 0 && !shared;
        match () {
            () if joint.is_scalar(v) => Access::Scalar,
            () if joint.is_linear(v) && offsets[v] == 0 && range.start == 0 && !shared => {
                Access::Whole
            }
            () if joint.is_linear(v) && begins_whole => Access::Group,
            () if !joint.has_whole_rows(lanes) => Access::Strided,
            () if joint.strides[v].last() == Some(&0) => Access::RowScalar,
            () if joint.is_row_groups(v, lanes) && begins_whole => Access::RowGroup,
            () => Access::Strided,
        }
    };
    let results = targets.iter().map(|&i| kernel.output_dtype(i));
    let octets = software::reads_octets(&gpu.capabilities)
        && range.len() >= MANY
        && views.iter().map(|view| view.dtype).chain(results).all(|dtype| dtype.size() <= 4)
        && (0..views.len()).all(|v| access(v, types::OCTET) == access(v, types::LANES));
    let lanes = if octets { types::OCTET } else { types::LANES };
    let inputs: Vec<_> = (0..views.len()).map(|v| (access(v, lanes), bindings[v])).collect();
    let axes = if inputs.iter().any(|i| i.0.has_strides()) { joint.sizes.len() } else { 0 };
    let plan = ElementwisePlan { outputs, lanes, axes, inputs };
    let mut written = Vec::with_capacity(targets.len());
    for &i in targets {
        let (low, high) = (range.start as isize, range.end as isize - 1);
        let Some((part, _)) =
            bind_window(&storages[i], 0, kernel.output_dtype(i).size(), low, high, limit)?
        else {
            return Ok(false);
        };
        // The shader writes relative to the beginning of its range.
        let offset = range.start as u64 * kernel.output_dtype(i).size() as u64;
        written.push(Binding {
            buffer: part.buffer,
            offset,
            bytes: part.offset + part.bytes - offset,
        });
    }
    let mut words = Params::new();
    words.count(range.end);
    words.count(range.start);
    if plan.axes > 0 {
        joint.sizes[1..].iter().for_each(|&size| words.count(size));
    }
    for (v, &(access, _)) in plan.inputs.iter().enumerate() {
        match access {
            Access::Whole => {}
            Access::Group => words.int(offsets[v] / lanes as isize),
            _ => words.int(offsets[v]),
        }
        if access.has_strides() {
            joint.strides[v].iter().for_each(|&stride| words.int(stride));
        }
    }
    generator::push_scalars(&mut words, kernel, params);
    let grid = gpu.dispatch_grid((range.len().div_ceil(lanes * THREADS)) as u64)?;
    let key = Key { family: "elementwise", kernel: Some(kernel.clone()), variant: plan.variant() };
    gpu.dispatch(&Launch {
        program: Program { key, wgsl: &|| plan.wgsl(kernel) },
        inputs: &parts,
        outputs: &written,
        params: &words,
        grid,
    })?;
    Ok(true)
}

/// Copies two inputs of one type into one buffer, so that a kernel of eight inputs fits the eight
/// bindings. The binding of each input; nothing if they are too large for that.
fn share_binding(
    gpu: &Wgpu,
    views: &mut [OwnedView],
    inputs: &[&Tensor],
    used: &[usize],
) -> Result<Option<Vec<usize>>> {
    let pair = (0..views.len())
        .flat_map(|i| (i + 1..views.len()).map(move |j| (i, j)))
        .find(|&(i, j)| views[i].dtype == views[j].dtype);
    let Some((i, j)) = pair else {
        return Err(Error::unsupported(format!(
            "a kernel has {} inputs of as many dtypes, the GPU binds {MAX_BINDINGS} buffers",
            views.len()
        )));
    };
    let (dtype, size) = (views[i].dtype, views[i].dtype.size());
    let [Some(first), Some(second)] =
        [contiguous_directly(gpu, inputs[used[i]])?, contiguous_directly(gpu, inputs[used[j]])?]
    else {
        return Ok(None);
    };
    let packed = [first, second];
    let shape = *views[i].layout.shape();
    let numel = shape.numel();
    let stride = numel.next_multiple_of(32);
    let both = gpu.allocate(2 * stride, dtype)?;
    for (k, (v, source)) in [i, j].into_iter().zip(&packed).enumerate() {
        let from = downcast::<Memory>(source)?;
        let bytes = ((numel * size) as u64).next_multiple_of(4);
        gpu.stream.copy(
            from.buffer(),
            from.start(),
            downcast::<Memory>(&both)?.buffer(),
            (k * stride * size) as u64,
            bytes,
        );
        views[v] = OwnedView {
            storage: both.clone(),
            layout: Layout::strided(
                shape,
                Layout::contiguous(shape).strides(),
                k * stride,
                2 * stride,
            )?,
            dtype,
        };
    }
    Ok(Some((0..views.len()).map(|v| if v == j { i } else { v - (v > j) as usize }).collect()))
}

/// A row-major copy of `x`, its bits untouched; nothing if that takes more than one kernel.
pub(crate) fn contiguous_directly(gpu: &Wgpu, x: &Tensor) -> Result<Option<StorageRef>> {
    static IDENTITY: UnaryTable = UnaryTable::new();
    let view = bits_of(gpu, x)?;
    let kernel = IDENTITY.get(view.dtype(), |x| x)?;
    let Some(outputs) = try_elementwise(gpu, kernel, &[&view], &[], x.shape())? else {
        return Ok(None);
    };
    let copy =
        outputs.into_iter().next().ok_or_else(|| Error::internal("a kernel returned no output"))?;
    Ok(Some(Arc::new(downcast::<Memory>(&copy)?.reinterpreted(x.dtype())?)))
}

/// The same view with its elements as integers of the same width: copying them leaves the bits of
/// NaN and subnormal numbers alone.
fn bits_of(gpu: &Wgpu, x: &Tensor) -> Result<Tensor> {
    let dtype = match x.dtype() {
        DType::Bool => DType::U8,
        DType::F16 | DType::BF16 => DType::U16,
        DType::F32 => DType::U32,
        DType::F64 if gpu.capabilities.int64 => DType::U64,
        other => other,
    };
    let bits: StorageRef = Arc::new(downcast::<Memory>(x.storage())?.reinterpreted(dtype)?);
    Tensor::from_parts(bits, *x.layout(), dtype, x.device().clone())
}
