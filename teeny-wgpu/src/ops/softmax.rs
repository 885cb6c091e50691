//! Softmax, its logarithm and their gradients: one workgroup per row, one launch instead of four.
//! See `shaders/softmax.wgsl` and `softmax_grad.wgsl`, and for rows of neighbours
//! `softmax_quads.wgsl` and `softmax_grad_quads.wgsl`.

use crate::codegen::params::{Sizes, Strides, View, shader_params};
use crate::codegen::shader::{Start, shader};
use crate::codegen::types;
use crate::device::Wgpu;
use crate::device::launch::{Key, Launch, Program};
use crate::ops::accumulation::cast_to_storage;
use crate::ops::coalesce::Coalesced;
use crate::ops::pieces::by_halves;
use crate::ops::row_quads::{RowQuads, has_row_quads};
use teeny_core::{DType, Layout, Result, StorageRef, Tensor};

const THREADS: usize = 64;

/// The result along each row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SoftmaxKind {
    /// `exp(x - max) / sum`.
    Softmax = 0,
    /// `x - max - log(sum)`.
    LogSoftmax = 1,
    /// `y (g - sum(g y))` of y and g.
    SoftmaxGrad = 2,
    /// `g - exp(y) sum(g)` of y and g.
    LogSoftmaxGrad = 3,
}

impl SoftmaxKind {
    fn is_log(self) -> bool {
        matches!(self, SoftmaxKind::LogSoftmax | SoftmaxKind::LogSoftmaxGrad)
    }

    fn is_grad(self) -> bool {
        matches!(self, SoftmaxKind::SoftmaxGrad | SoftmaxKind::LogSoftmaxGrad)
    }
}

shader_params! {
    /// Parameters of `softmax.wgsl`.
    struct SoftmaxParams(axes: usize) {
        rows: usize,
        /// Elements of a row.
        length: usize,
        x_step: isize,
        y_step: isize,
        sizes: Sizes[axes],
        x: View[axes],
        y_strides: Strides[axes],
    }
}

shader_params! {
    /// Parameters of `softmax_grad.wgsl`.
    struct SoftmaxGradParams(axes: usize) {
        rows: usize,
        /// Elements of a row.
        length: usize,
        y_step: isize,
        g_step: isize,
        x_grad_step: isize,
        sizes: Sizes[axes],
        y: View[axes],
        g: View[axes],
        x_grad_strides: Strides[axes],
    }
}

/// The shader for rows that are counted along `axes` joint axes.
///
/// # Errors
/// As [`crate::codegen::shader::Shader::render`].
pub(crate) fn wgsl(axes: usize, dtype: DType, kind: SoftmaxKind) -> Result<String> {
    let value = types::value(dtype);
    let shader = match kind {
        SoftmaxKind::Softmax | SoftmaxKind::LogSoftmax => shader!("softmax")
            .params(&SoftmaxParams::declaration(axes))
            .input("x", dtype)
            .addresses("row", "", axes, &[("x", Start::Offset), ("y", Start::Zero)])
            .workgroup_reduce("workgroup_max", value, THREADS, &format!("max_{value}"), false)
            .workgroup_reduce("workgroup_sum", value, THREADS, "add", true),
        SoftmaxKind::SoftmaxGrad | SoftmaxKind::LogSoftmaxGrad => shader!("softmax_grad")
            .params(&SoftmaxGradParams::declaration(axes))
            .input("y", dtype)
            .input("g", dtype)
            .addresses(
                "row",
                "",
                axes,
                &[("y", Start::Offset), ("g", Start::Offset), ("x_grad", Start::Zero)],
            )
            .workgroup_reduce("workgroup_sum", value, THREADS, "add", false),
    };
    shader
        .text("value", value)
        .text("zero", types::zero(dtype))
        .number("threads", THREADS)
        .flag("log", kind.is_log())
        .render()
}

/// The shader for rows of neighbours that a workgroup holds.
///
/// # Errors
/// As [`crate::codegen::shader::Shader::render`].
pub(crate) fn quads_wgsl(
    axes: usize,
    dtype: DType,
    kind: SoftmaxKind,
    rows: RowQuads,
) -> Result<String> {
    let shader = match kind {
        SoftmaxKind::Softmax | SoftmaxKind::LogSoftmax => shader!("softmax_quads")
            .params(&SoftmaxParams::declaration(axes))
            .input_quads("x", dtype)
            .store_quads("y", dtype)
            .addresses("row", "", axes, &[("x", Start::Offset), ("y", Start::Zero)]),
        SoftmaxKind::SoftmaxGrad | SoftmaxKind::LogSoftmaxGrad => shader!("softmax_grad_quads")
            .params(&SoftmaxGradParams::declaration(axes))
            .input_quads("y", dtype)
            .input_quads("g", dtype)
            .store_quads("x_grad", dtype)
            .addresses(
                "row",
                "",
                axes,
                &[("y", Start::Offset), ("g", Start::Offset), ("x_grad", Start::Zero)],
            ),
    };
    let reductions: &[&str] = if kind.is_grad() { &["sum"] } else { &["max", "sum"] };
    rows.fill(shader.flag("log", kind.is_log()), reductions).render()
}

/// Softmax along `axis` of the input, or its gradient from result and gradient of the result.
pub(crate) fn softmax(
    gpu: &Wgpu,
    kind: SoftmaxKind,
    inputs: &[&Tensor],
    axis: usize,
) -> Result<StorageRef> {
    let x = inputs[0];
    let dtype = x.dtype();
    gpu.require(dtype, "softmax")?;
    if x.numel() == 0 {
        return gpu.allocate(0, dtype);
    }
    if inputs.iter().any(|x| gpu.exceeds_binding(x))
        || gpu.len_exceeds_binding(x.numel(), types::accumulation(dtype))
    {
        let length = x.shape()[axis];
        let [y] = by_halves(gpu, inputs, axis, [dtype], length, |parts, axis| {
            Ok([softmax(gpu, kind, parts, axis)?])
        })?;
        return Ok(y);
    }
    let quads = match axis == x.ndim() - 1 && inputs.iter().all(|x| has_row_quads(x)) {
        true => RowQuads::of(x.shape()[axis], gpu.capabilities.subgroups),
        false => None,
    };
    let written = if quads.is_some() { dtype } else { types::accumulation(dtype) };
    let out = gpu.allocate(x.numel(), written)?;
    let target = Layout::contiguous(*x.shape());
    let others: Vec<usize> = (0..x.ndim()).filter(|&a| a != axis).collect();
    let layouts: Vec<&Layout> = inputs.iter().map(|x| x.layout()).chain([&target]).collect();
    let joint = Coalesced::over(x.shape(), &layouts, &others)?.padded();
    let (axes, rows) = (joint.sizes.len(), x.numel() / x.shape()[axis]);
    let view = |i: usize| View::new(inputs[i].layout().offset(), &joint.strides[i]);
    let step = |i: usize| inputs[i].strides()[axis];
    let sizes = (&joint.sizes).into();
    let params = match kind {
        SoftmaxKind::Softmax | SoftmaxKind::LogSoftmax => SoftmaxParams {
            rows,
            length: x.shape()[axis],
            x_step: step(0),
            y_step: target.strides()[axis],
            sizes,
            x: view(0),
            y_strides: (&joint.strides[1]).into(),
        }
        .words(),
        SoftmaxKind::SoftmaxGrad | SoftmaxKind::LogSoftmaxGrad => SoftmaxGradParams {
            rows,
            length: x.shape()[axis],
            y_step: step(0),
            g_step: step(1),
            x_grad_step: target.strides()[axis],
            sizes,
            y: view(0),
            g: view(1),
            x_grad_strides: (&joint.strides[2]).into(),
        }
        .words(),
    };
    let bindings = inputs.iter().map(|x| gpu.bind_tensor(x)).collect::<Result<Vec<_>>>()?;
    gpu.dispatch(&Launch {
        program: Program {
            key: Key::new(
                "softmax",
                [axes as u32, dtype as u32, kind as u32, quads.map_or(0, RowQuads::code)],
            ),
            wgsl: &|| match quads {
                Some(rows) => quads_wgsl(axes, dtype, kind, rows),
                None => wgsl(axes, dtype, kind),
            },
        },
        inputs: &bindings,
        outputs: &[gpu.bind(&out)?],
        params: &params,
        grid: gpu.dispatch_grid(rows as u64)?,
    })?;
    cast_to_storage(gpu, out, dtype, x)
}
