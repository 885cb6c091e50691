//! Cross-entropy of logits and its gradient: one launch each. See `shaders/cross_entropy.wgsl`.

use crate::codegen::params::{Number, shader_params};
use crate::codegen::shader::shader;
use crate::codegen::types::{self, accumulation};
use crate::device::Wgpu;
use crate::device::launch::{Key, Launch, Program};
use crate::ops::accumulation::cast_to_storage;
use crate::ops::indexing::{AxisRange, axis_position, check_indices};
use teeny_core::{DType, Result, Scalar, StorageRef, Tensor};

const THREADS: usize = 64;

/// Rows of at most this many classes have a thread, longer ones a workgroup.
const SHORT: usize = 128;

shader_params! {
    /// Parameters of `cross_entropy.wgsl`.
    struct CrossEntropyParams(index: DType) {
        rows: usize,
        classes: usize,
        x_offset: isize,
        x_row_stride: isize,
        x_class_stride: isize,
        targets_offset: isize,
        targets_stride: isize,
        /// 0 without a gradient.
        g_offset: isize,
        g_stride: isize,
        axis_size: usize,
        range_low: usize,
        range_length: usize,
        error_record: u32,
        ignored: Number[index],
    }
}

/// Everything that the shader's text depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CrossEntropyPlan {
    pub dtype: DType,
    pub index: DType,
    pub gradient: bool,
    pub ignores: bool,
    pub workgroup_rows: bool,
    /// Whether a gradient of 16-bit floats is written in its type, two elements at a time.
    pub pairs: bool,
}

impl CrossEntropyPlan {
    fn variant(&self) -> [u32; 3] {
        let CrossEntropyPlan { dtype, index, gradient, ignores, workgroup_rows, pairs } = *self;
        let flags = [gradient, ignores, workgroup_rows, pairs];
        let flags = flags.iter().rev().fold(0, |bits, &flag| bits << 1 | u32::from(flag));
        [dtype as u32, index as u32, flags]
    }

    /// The shader.
    ///
    /// # Errors
    /// As [`crate::codegen::shader::Shader::render`].
    pub fn wgsl(&self) -> Result<String> {
        let value = types::value(self.dtype);
        let mut shader = shader!("cross_entropy")
            .params(&CrossEntropyParams::declaration(accumulation(self.index)))
            .input("x", self.dtype)
            .input("targets", self.index);
        if self.gradient {
            shader = shader.input("g", self.dtype).flag("pairs", self.pairs);
        }
        shader = match self.pairs {
            true => shader.store_pairs("result", self.dtype),
            false => shader.text("result_word", value),
        };
        if self.workgroup_rows {
            let max = format!("max_{value}");
            shader = shader
                .workgroup_reduce("workgroup_max", value, THREADS, &max, false)
                .workgroup_reduce("workgroup_sum", value, THREADS, "add", true);
        }
        shader
            .include(axis_position(3 + usize::from(self.gradient), self.index))
            .text("value", value)
            .text("zero", types::zero(self.dtype))
            .text("one", if self.dtype == DType::F64 { "1.0lf" } else { "1.0f" })
            .number("threads", THREADS)
            .flag("gradient", self.gradient)
            .flag("ignores", self.ignores)
            .flag("workgroup_rows", self.workgroup_rows)
            .render()
    }
}

/// The losses of the rows of `x`, or with the gradient `g` of the losses that of `x`; nothing if
/// some tensor is empty or larger than a binding.
pub(crate) fn cross_entropy(
    gpu: &Wgpu,
    x: &Tensor,
    targets: &Tensor,
    ignored: Option<Scalar>,
    g: Option<&Tensor>,
) -> Result<Option<StorageRef>> {
    let (dtype, index) = (x.dtype(), targets.dtype());
    gpu.require(dtype, "cross_entropy")?;
    gpu.require(index, "cross_entropy")?;
    let (rows, classes) = (x.shape()[0], x.shape()[1]);
    if x.numel() == 0
        || [Some(x), Some(targets), g].into_iter().flatten().any(|x| gpu.exceeds_binding(x))
        || gpu.len_exceeds_binding(x.numel(), accumulation(dtype))
    {
        return Ok(None);
    }
    let plan = CrossEntropyPlan {
        dtype,
        index,
        gradient: g.is_some(),
        ignores: ignored.is_some(),
        workgroup_rows: classes > SHORT,
        pairs: g.is_some() && dtype.is_half() && classes.is_multiple_of(2),
    };
    let written = if plan.pairs { dtype } else { accumulation(dtype) };
    let out = gpu.allocate(if g.is_some() { x.numel() } else { rows }, written)?;
    let range = AxisRange::all(classes);
    let column = targets.unsqueeze(1)?; // (rows, 1), as the definition gathers
    let (records, error_record) = range.record(gpu, &column);
    let place = |x: &Tensor| (x.layout().offset() as isize, x.strides()[0]);
    let ((targets_offset, targets_stride), (g_offset, g_stride)) =
        (place(targets), g.map_or((0, 0), place));
    let params = CrossEntropyParams {
        rows,
        classes,
        x_offset: x.layout().offset() as isize,
        x_row_stride: x.strides()[0],
        x_class_stride: x.strides()[1],
        targets_offset,
        targets_stride,
        g_offset,
        g_stride,
        axis_size: range.size,
        range_low: range.low,
        range_length: range.length,
        error_record,
        ignored: Number { value: ignored.unwrap_or(Scalar::Int(0)), dtype: accumulation(index) },
    };
    let inputs = [Some(x), Some(targets), g].into_iter().flatten().map(|x| gpu.bind_tensor(x));
    let groups = if plan.workgroup_rows { rows } else { rows.div_ceil(THREADS) };
    gpu.dispatch(&Launch {
        program: Program { key: Key::new("cross_entropy", plan.variant()), wgsl: &|| plan.wgsl() },
        inputs: &inputs.collect::<Result<Vec<_>>>()?,
        outputs: &[gpu.bind(&out)?, records],
        params: &params.words(),
        grid: gpu.dispatch_grid(groups as u64)?,
    })?;
    if g.is_none() {
        check_indices(gpu, &column, 1, x.shape())?;
    }
    cast_to_storage(gpu, out, dtype, x).map(Some)
}
