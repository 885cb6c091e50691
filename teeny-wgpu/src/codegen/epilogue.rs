//! The end of a product: it stores a result, or runs a kernel on it first. See
//! `shaders/epilogue.wgsl`.

use crate::codegen::generator::Generator;
use crate::codegen::params::Declaration;
use crate::codegen::shader::{Shader, shader};
use crate::codegen::types::{self, accumulator};
use std::fmt::Write;
use teeny_core::{DType, Kernel, Result};

/// The part of an epilogue that the shader's text depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EpiloguePlan<'a> {
    /// The kernel; its first input is the product.
    pub kernel: &'a Kernel,
    /// The merged axes over which its other inputs are read.
    pub axes: usize,
    /// Whether results of two neighbouring columns are stored at once, 16-bit floats in their type.
    pub pairs: bool,
}

/// The first binding after the operands.
const FIRST: usize = 2;

/// Sets the hole `results` of the shader of a product of type `dtype`: its bindings after the
/// operands, and the function `store(place, product)`, or `store_pair(place, products)`. Declares
/// the parameters of the epilogue after the product's.
///
/// # Errors
/// If an operation does not exist on the GPU for its type.
pub(crate) fn results(
    shader: Shader,
    dtype: DType,
    epilogue: Option<EpiloguePlan<'_>>,
    params: &mut Declaration,
) -> Result<Shader> {
    let text = match epilogue {
        None => shader!("store").text("value", accumulator(dtype)).text_of()?,
        Some(epilogue) => epilogue.text(dtype, params)?,
    };
    Ok(shader.text("results", text))
}

/// Sets the hole `results` as [`results`] does without an epilogue, to the function
/// `store_quad(place / 4, products)`, which writes four results in the type `dtype`.
///
/// # Errors
/// As [`Shader::render`].
pub(crate) fn packed_results(shader: Shader, dtype: DType) -> Result<Shader> {
    let store = types::store_quad(dtype, "out", "i", ["v.x", "v.y", "v.z", "v.w"]);
    let text = shader!("store_quad")
        .text("word", types::quad(dtype))
        .text("value", accumulator(dtype))
        .text("store", store)
        .text_of()?;
    Ok(shader.text("results", text))
}

impl EpiloguePlan<'_> {
    fn text(&self, dtype: DType, params: &mut Declaration) -> Result<String> {
        let EpiloguePlan { kernel, axes, pairs } = *self;
        (1..axes).for_each(|axis| params.member(&format!("after_sizes_{axis}"), "u32"));
        for k in 1..kernel.inputs().len() {
            params.member(&format!("after_offset_{k}"), "u32");
            (0..axes).for_each(|axis| params.member(&format!("after_strides_{k}_{axis}"), "u32"));
        }
        let outputs = kernel.outputs().len();
        let compute = Generator::new(kernel, (1 << outputs) - 1, params)?;
        let (mut bindings, mut loads, mut stores) = (String::new(), String::new(), String::new());
        for k in 1..kernel.inputs().len() {
            let (binding, ty) = (FIRST + k - 1, types::word(kernel.inputs()[k]));
            let _ = writeln!(
                bindings,
                "@group(0) @binding({binding}) var<storage, read> other{k}: array<{ty}>;"
            );
        }
        for i in 0..outputs {
            let dtype = kernel.output_dtype(i);
            let binding = FIRST + kernel.inputs().len() - 1 + i;
            let packed = pairs && dtype.is_half();
            let ty = if packed { types::pair(dtype) } else { accumulator(dtype) };
            let _ = writeln!(
                bindings,
                "@group(0) @binding({binding}) var<storage, read_write> result{i}: array<{ty}>;"
            );
            let result = format!("result{i}");
            if packed {
                let store = types::store_pair(dtype, &result, "place / 2u", &format!("v{i}"));
                let pair = format!("vec2<f32>(y.y{i}, next.y{i})");
                let _ = writeln!(stores, "    let v{i} = {pair};\n    {store}");
                continue;
            }
            let value = |y: &str| types::accumulated(dtype, &format!("{y}.y{i}"));
            let _ = writeln!(stores, "    {result}[place] = {};", value("y"));
            if pairs {
                let _ = writeln!(stores, "    {result}[place + 1u] = {};", value("next"));
            }
        }
        let mut arguments = Vec::with_capacity(compute.inputs.len());
        for &k in &compute.inputs {
            if k == 0 {
                arguments.push(types::stored(dtype, "product"));
                continue;
            }
            let address = (0..axes).fold(format!("params.after_offset_{k}"), |sum, axis| {
                format!("{sum} + c{axis} * params.after_strides_{k}_{axis}")
            });
            let load = types::load(kernel.inputs()[k], &format!("other{k}"), &format!("at{k}"));
            let _ = writeln!(loads, "    let at{k} = {address};\n    let x{k} = {load};");
            arguments.push(format!("x{k}"));
        }
        shader!("epilogue")
            .text("bindings", bindings)
            .text("compute", compute.text)
            .text("value", accumulator(dtype))
            .text("loads", loads)
            .text("arguments", arguments.join(", "))
            .text("stores", stores)
            .number("axes", axes)
            .flag("strided", axes > 0)
            .flag("pairs", pairs)
            .text_of()
    }
}
