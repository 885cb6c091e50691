//! Normalisation along the last axis and its gradient for the input: one workgroup per row, one
//! launch. See `shaders/norm.wgsl` and `norm_grad.wgsl`, which include `norm_row.wgsl`, and for
//! rows of neighbours `norm_quads.wgsl` and `norm_grad_quads.wgsl`.

use crate::codegen::params::{Number, Sizes, View, shader_params};
use crate::codegen::shader::{Start, shader};
use crate::codegen::types::{accumulation, accumulator, zero};
use crate::device::Wgpu;
use crate::device::launch::{Key, Launch, Program};
use crate::ops::accumulation::cast_to_storage;
use crate::ops::coalesce::Coalesced;
use crate::ops::copy::{can_compact, compact};
use crate::ops::pieces::by_halves;
use crate::ops::row_quads::{RowQuads, has_row_quads};
use teeny_core::{DType, Error, Layout, Result, Scalar, StorageRef, Tensor};

const THREADS: usize = 64;

/// The kind of a normalisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Norm {
    /// `(x - mean) / sqrt(variance + eps)`
    Layer = 0,
    /// `x / sqrt(mean(x^2) + eps)`
    Rms = 1,
}

shader_params! {
    /// Parameters of `norm.wgsl` and `norm_grad.wgsl`.
    struct NormParams(axes: usize, dtype: DType) {
        rows: usize,
        /// Elements of a row.
        length: usize,
        inverse_length: Number[dtype],
        eps: Number[dtype],
        x_step: isize,
        g_step: isize,
        weight_step: isize,
        bias_step: isize,
        bias_offset: usize,
        sizes: Sizes[axes],
        x: View[axes],
        g: View[axes],
        weight: View[axes],
    }
}

/// The operands beside x; with g it is the gradient.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operands {
    pub g: bool,
    pub weight: bool,
    pub bias: bool,
}

impl Operands {
    /// The operands with rows of their own.
    fn views(self) -> Vec<(&'static str, Start)> {
        let given = [("x", true), ("g", self.g), ("weight", self.weight)];
        let given = given.into_iter().filter(|(_, given)| *given);
        given.map(|(name, _)| (name, Start::Offset)).collect()
    }

    fn bits(self) -> u32 {
        self.g as u32 | (self.weight as u32) << 1 | (self.bias as u32) << 2
    }
}

/// The shader for rows that are counted along `axes` joint axes.
///
/// # Errors
/// As [`crate::codegen::shader::Shader::render`].
pub(crate) fn wgsl(axes: usize, dtype: DType, norm: Norm, operands: Operands) -> Result<String> {
    let value = accumulator(dtype);
    let Operands { g, weight, bias } = operands;
    let mut shader = match g {
        false => shader!("norm"),
        true => shader!("norm_grad").input("g", dtype),
    };
    shader = shader.addresses("row", "", axes, &operands.views());
    shader = shader.input("x", dtype).flag("has_weight", weight);
    if weight {
        shader = shader.input("weight", dtype);
    }
    if !g {
        if bias {
            shader = shader.input("bias", dtype);
        }
        shader = shader
            .flag("has_bias", bias)
            .number("weight_binding", 1)
            .number("bias_binding", 1 + weight as usize)
            .number("y_binding", 1 + weight as usize + bias as usize);
    }
    let (layer, zero) = (norm == Norm::Layer, zero(accumulation(dtype)));
    if g {
        shader = shader.flag("layer", layer).text("zero", zero);
    }
    let row = shader!("norm_row")
        .workgroup_reduce("workgroup_sum", value, THREADS, "add", true)
        .flag("layer", layer)
        .text("zero", zero);
    shader
        .include(row)
        .params(&NormParams::declaration(axes, accumulation(dtype)))
        .text("value", value)
        .number("threads", THREADS)
        .render()
}

/// The shader for rows of neighbours that a workgroup holds.
///
/// # Errors
/// As [`crate::codegen::shader::Shader::render`].
pub(crate) fn quads_wgsl(
    axes: usize,
    dtype: DType,
    norm: Norm,
    operands: Operands,
    rows: RowQuads,
) -> Result<String> {
    let Operands { g, weight, bias } = operands;
    let layer = norm == Norm::Layer;
    let mut shader = match g {
        false => shader!("norm_quads")
            .store_quads("y", dtype)
            .flag("has_bias", bias)
            .number("weight_binding", 1)
            .number("bias_binding", 1 + weight as usize)
            .number("y_binding", 1 + weight as usize + bias as usize),
        true => shader!("norm_grad_quads")
            .store_quads("x_grad", dtype)
            .input_quads("g", dtype)
            .flag("layer", layer),
    };
    shader = shader
        .addresses("row", "", axes, &operands.views())
        .params(&NormParams::declaration(axes, accumulation(dtype)))
        .input_quads("x", dtype)
        .flag("has_weight", weight);
    for (name, given) in [("weight", weight), ("bias", bias)] {
        if given {
            shader = shader.input_quads(name, dtype);
        }
    }
    let statistics = shader!("norm_quads_statistics")
        .number("quads", rows.quads)
        .flag("layer", layer)
        .text_of()?;
    rows.fill(shader.text("statistics", statistics), &["sum"]).render()
}

/// The normalised `x`, or with `g` the gradient for `x`. `weight` and `bias` have the shape of `x`;
/// all rows of the bias are one.
pub(crate) fn norm(
    gpu: &Wgpu,
    kind: Norm,
    x: &Tensor,
    g: Option<&Tensor>,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    eps: Scalar,
) -> Result<StorageRef> {
    let dtype = x.dtype();
    gpu.require(dtype, "normalisation")?;
    let axis = x.ndim() - 1;
    let length = x.shape()[axis];
    if x.numel() == 0 {
        return gpu.allocate(0, dtype);
    }
    let vectors: Vec<&Tensor> = [weight, bias].into_iter().flatten().collect();
    if can_compact(gpu, &vectors) {
        let [weight, bias] = [weight, bias].map(|x| x.map(|x| compact(gpu, x)).transpose());
        return norm(gpu, kind, x, g, weight?.as_ref(), bias?.as_ref(), eps);
    }
    if [Some(x), g, weight].into_iter().flatten().any(|x| gpu.exceeds_binding(x))
        || gpu.len_exceeds_binding(x.numel(), accumulation(dtype))
    {
        let inputs: Vec<&Tensor> = [Some(x), g, weight, bias].into_iter().flatten().collect();
        let run = |parts: &[&Tensor], _| {
            let mut parts = parts.iter().copied();
            let mut part = |x: Option<&Tensor>| x.and_then(|_| parts.next());
            let (x, g, weight, bias) = (part(Some(x)), part(g), part(weight), part(bias));
            let x = x.ok_or_else(|| Error::internal("a half without rows"))?;
            Ok([norm(gpu, kind, x, g, weight, bias, eps)?])
        };
        let [y] = by_halves(gpu, &inputs, axis, [dtype], length, run)?;
        return Ok(y);
    }
    let all_quads = [Some(x), g, weight, bias].into_iter().flatten().all(has_row_quads);
    let quads = match all_quads {
        true => RowQuads::of(length, gpu.capabilities.subgroups),
        false => None,
    };
    let written = if quads.is_some() { dtype } else { accumulation(dtype) };
    let out = gpu.allocate(x.numel(), written)?;
    let others: Vec<usize> = (0..axis).collect();
    let empty = Layout::contiguous(*x.shape());
    let layouts = [Some(x), g, weight].map(|x| x.map_or(&empty, |x| x.layout()));
    let joint = Coalesced::over(x.shape(), &layouts, &others)?.padded();
    let (axes, rows) = (joint.sizes.len(), x.numel() / length);
    let step = |t: Option<&Tensor>| t.map_or(0, |t| t.strides()[t.ndim() - 1]);
    let offset = |t: Option<&Tensor>| t.map_or(0, |t| t.layout().offset());
    let number = |value| Number { value, dtype };
    let params = NormParams {
        rows,
        length,
        inverse_length: number(Scalar::Float(1.0 / length as f64)),
        eps: number(eps),
        x_step: step(Some(x)),
        g_step: step(g),
        weight_step: step(weight),
        bias_step: step(bias),
        bias_offset: offset(bias),
        sizes: (&joint.sizes).into(),
        x: View::new(x.layout().offset(), &joint.strides[0]),
        g: View::new(offset(g), &joint.strides[1]),
        weight: View::new(offset(weight), &joint.strides[2]),
    };
    let operands = Operands { g: g.is_some(), weight: weight.is_some(), bias: bias.is_some() };
    let bindings = [Some(x), g, weight, bias]
        .into_iter()
        .flatten()
        .map(|t| gpu.bind_tensor(t))
        .collect::<Result<Vec<_>>>()?;
    gpu.dispatch(&Launch {
        program: Program {
            key: Key::new(
                "norm",
                [
                    axes as u32,
                    dtype as u32,
                    kind as u32,
                    operands.bits(),
                    quads.map_or(0, RowQuads::code),
                ],
            ),
            wgsl: &|| match quads {
                Some(rows) => quads_wgsl(axes, dtype, kind, operands, rows),
                None => wgsl(axes, dtype, kind, operands),
            },
        },
        inputs: &bindings,
        outputs: &[gpu.bind(&out)?],
        params: &params.words(),
        grid: gpu.dispatch_grid(rows as u64)?,
    })?;
    cast_to_storage(gpu, out, dtype, x)
}
