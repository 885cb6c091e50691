//! Tensors one after another along an axis. See `shaders/cat.wgsl`.

use crate::codegen::elementwise::THREADS;
use crate::codegen::params::Declaration;
use crate::codegen::shader::shader;
use crate::codegen::types::{self, LANES};
use crate::device::Wgpu;
use crate::device::launch::{Key, Launch, Program};
use crate::device::limits::{MAX_BINDINGS, MAX_COUNT};
use crate::device::params::Params;
use crate::ops::coalesce::Coalesced;
use std::fmt::Write;
use teeny_core::{DType, Layout, Result, StorageRef, Tensor, validate};

/// Everything that the shader's text depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CatPlan {
    pub tensors: usize,
    /// The merged axes, and the one along which the tensors are joined.
    pub axes: usize,
    pub axis: usize,
    /// The integer of an element's width, at most 32 bits.
    pub unit: DType,
}

impl CatPlan {
    /// The parameters: elements, all sizes but the first, and of each tensor its end along the
    /// axis, its offset and its strides.
    fn declaration(&self) -> Declaration {
        let mut params = Declaration::default();
        params.member("elements", "u32");
        (1..self.axes).for_each(|axis| params.member(&format!("sizes_{axis}"), "u32"));
        for i in 0..self.tensors {
            params.member(&format!("end_{i}"), "u32");
            params.member(&format!("offset_{i}"), "u32");
            (0..self.axes).for_each(|axis| params.member(&format!("strides_{i}_{axis}"), "u32"));
        }
        params
    }

    /// The shader.
    ///
    /// # Errors
    /// As [`crate::codegen::shader::Shader::render`].
    pub fn wgsl(&self) -> Result<String> {
        let (mut bindings, mut branches) = (String::new(), String::new());
        let word = types::word(self.unit);
        for i in 0..self.tensors {
            let _ = writeln!(
                bindings,
                "@group(0) @binding({i}) var<storage, read> x{i}: array<{word}>;"
            );
            let address = (0..self.axes).fold(format!("params.offset_{i}"), |sum, axis| {
                format!("{sum} + c{axis} * params.strides_{i}_{axis}")
            });
            let load = types::load(self.unit, &format!("x{i}"), "at");
            let body = format!("let at = {address}; return {load};");
            let _ = match i + 1 == self.tensors {
                true => writeln!(branches, "    {body}"),
                false => writeln!(branches, "    if along < params.end_{i} {{ {body} }}"),
            };
        }
        let _ = writeln!(
            bindings,
            "@group(0) @binding({}) var<storage, read_write> y: array<{}>;",
            self.tensors,
            types::quad(self.unit)
        );
        let lanes: [String; LANES] = std::array::from_fn(|lane| format!("y{lane}"));
        shader!("cat")
            .params(&self.declaration())
            .text("bindings", bindings)
            .text("branches", branches)
            .text("store", types::store_quad(self.unit, "y", "t", lanes.each_ref().map(|l| &l[..])))
            .number("threads", THREADS)
            .number("axes", self.axes)
            .number("axis_of_cat", self.axis)
            .render()
    }
}

/// The tensors one after another along `axis`; nothing if some tensor is larger than a binding.
pub(crate) fn cat(gpu: &Wgpu, tensors: &[&Tensor], axis: usize) -> Result<Option<StorageRef>> {
    let (shape, dtype) = validate::cat(tensors, axis)?;
    if tensors.iter().any(|x| gpu.exceeds_binding(x))
        || gpu.len_exceeds_binding(shape.numel(), dtype)
        || shape.numel().saturating_mul(2) > MAX_COUNT
    {
        return Ok(None);
    }
    let tensors: Vec<&Tensor> = tensors.iter().copied().filter(|x| x.numel() > 0).collect();
    // Vectors and matrices have few enough parameters for as many buffers as can be bound.
    let most = match shape.ndim() {
        0..=2 => gpu.capabilities.max_storage_buffers as usize - 1,
        _ => MAX_BINDINGS - 1,
    };
    if tensors.len() <= most {
        return launch(gpu, &tensors, axis, shape.numel(), dtype).map(Some);
    }
    // More tensors than a launch binds: groups of them, then the groups.
    let mut groups = Vec::with_capacity(tensors.len().div_ceil(most));
    for group in tensors.chunks(most) {
        let (shape, _) = validate::cat(group, axis)?;
        let part = launch(gpu, group, axis, shape.numel(), dtype)?;
        groups.push(gpu.tensor(part, shape, dtype, group[0])?);
    }
    cat(gpu, &groups.iter().collect::<Vec<_>>(), axis)
}

/// One launch of tensors, none of them empty.
fn launch(
    gpu: &Wgpu,
    tensors: &[&Tensor],
    axis: usize,
    numel: usize,
    dtype: DType,
) -> Result<StorageRef> {
    let out = gpu.allocate(numel, dtype)?;
    let Some(first) = tensors.first() else { return Ok(out) };
    // 64-bit elements are two words: an inner axis of two steps of one, all others doubled.
    let (unit, words) = match dtype.size() {
        1 => (DType::U8, 1),
        2 => (DType::U16, 1),
        4 => (DType::U32, 1),
        _ => (DType::U32, 2),
    };
    let layouts: Vec<&Layout> = tensors.iter().map(|x| x.layout()).collect();
    let joint = |axes: std::ops::Range<usize>| {
        Coalesced::over(first.shape(), &layouts, &axes.collect::<Vec<_>>()).map(Coalesced::padded)
    };
    let (outer, inner) = (joint(0..axis)?, joint(axis + 1..first.ndim())?);
    let total: usize = tensors.iter().map(|x| x.shape()[axis]).sum();
    let mut sizes = [&outer.sizes[..], &[total], &inner.sizes].concat();
    if words == 2 {
        sizes.push(2);
    }
    let plan = CatPlan { tensors: tensors.len(), axes: sizes.len(), axis: outer.sizes.len(), unit };
    let mut params = Params::new();
    params.count(numel * words);
    sizes[1..].iter().for_each(|&size| params.count(size));
    let mut end = 0;
    for (i, x) in tensors.iter().enumerate() {
        let (scale, step) = (words as isize, x.strides()[axis]);
        let offset = x.layout().offset() as isize - (end as isize).wrapping_mul(step);
        end += x.shape()[axis];
        params.count(end);
        params.int(offset.wrapping_mul(scale));
        let strides = outer.strides[i].iter().chain([&step]).chain(&inner.strides[i]);
        strides.for_each(|stride| params.int(stride.wrapping_mul(scale)));
        if words == 2 {
            params.int(1);
        }
    }
    let variant = [plan.tensors, plan.axes, plan.axis, unit as usize].map(|number| number as u32);
    let inputs = tensors.iter().map(|x| gpu.bind_tensor(x)).collect::<Result<Vec<_>>>()?;
    gpu.dispatch(&Launch {
        program: Program { key: Key::new("cat", variant), wgsl: &|| plan.wgsl() },
        inputs: &inputs,
        outputs: &[gpu.bind(&out)?],
        params: &params,
        grid: gpu.dispatch_grid((numel * words).div_ceil(LANES * THREADS) as u64)?,
    })?;
    Ok(out)
}
