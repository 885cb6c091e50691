//! From a [`Kernel`] to WGSL.
//!
//! [`Body`] is the scalar program as one function, `compute(x0, x1, …) -> Values`, that knows
//! nothing of memory; the room that uses it (elementwise, reduce) writes the loads and stores
//! around it. Numbers that change from launch to launch, and constants that WGSL has no literal
//! for, are words of the parameter slot, declared here by [`params_declaration`] and read by
//! [`param`].

pub(crate) mod ops;
pub(crate) mod prelude;
pub(crate) mod types;

use crate::params::{Params, SLOT_BYTES};
use std::fmt::Write;
use teeny_core::{DType, Kernel, OpCode, Result, Scalar};

/// The parameter slot as generated shaders declare it.
pub(crate) fn params_declaration() -> String {
    format!("@group(1) @binding(0) var<uniform> params: array<vec4<u32>, {}>;\n", SLOT_BYTES / 16)
}

/// Word number `at` of the parameter slot.
pub(crate) fn param(at: usize) -> String {
    format!("params[{}].{}", at / 4, ["x", "y", "z", "w"][at % 4])
}

/// The number of type `dtype` at word `at` of the slot.
pub(crate) fn scalar_param(at: usize, dtype: DType) -> String {
    let (low, high) = (param(at), param(at + 1));
    let wide = format!("(u64({low}) | (u64({high}) << 32u))");
    match types::value(dtype) {
        "bool" => format!("({low} != 0u)"),
        "u32" => low,
        "i32" => format!("bitcast<i32>({low})"),
        "f32" => format!("bitcast<f32>({low})"),
        "u64" => wide,
        other => format!("bitcast<{other}>({wide})"),
    }
}

/// The words that the scalars of a kernel take in the parameter slot.
pub(crate) const fn scalar_words(dtype: DType) -> usize {
    if dtype.size() == 8 { 2 } else { 1 }
}

/// The constants of a kernel that WGSL has no literal for, and zeros that something is divided by:
/// Mesa's software driver folds `x / 0.0` to 0.
fn odd_constants(kernel: &Kernel) -> impl Iterator<Item = (usize, Scalar, DType)> + '_ {
    let divides = |id: usize| {
        kernel.nodes().iter().any(|node| node.op == OpCode::Div && usize::from(node.src[1]) == id)
    };
    kernel.nodes().iter().enumerate().filter_map(move |(id, node)| match node.op {
        OpCode::Const(value)
            if ops::literal(value, node.dtype).is_none()
                || value.to_f64() == 0.0 && divides(id) =>
        {
            Some((id, value, node.dtype))
        }
        _ => None,
    })
}

/// Appends the kernel's parameters and odd constants to the slot, in the order in which [`Body`]
/// expects them.
pub(crate) fn push_scalars(slot: &mut Params, kernel: &Kernel, params: &[Scalar]) {
    for (&value, &dtype) in params.iter().zip(kernel.params()) {
        slot.scalar(value, dtype);
    }
    for (_, value, dtype) in odd_constants(kernel) {
        slot.scalar(value, dtype);
    }
}

/// A scalar program as WGSL.
pub(crate) struct Body {
    /// The struct `Values` and the function `compute`.
    pub text: String,
    /// The inputs that `compute` takes, in order.
    pub inputs: Vec<usize>,
}

/// The inputs that the outputs in the bit set `outputs` depend on, ascending.
pub(crate) fn inputs_of(kernel: &Kernel, outputs: u32) -> Vec<usize> {
    let needed = needed(kernel, outputs);
    let mut inputs: Vec<usize> = kernel
        .nodes()
        .iter()
        .zip(&needed)
        .filter_map(|(node, &needed)| match node.op {
            OpCode::Input(i) if needed => Some(i as usize),
            _ => None,
        })
        .collect();
    inputs.sort_unstable();
    inputs
}

fn needed(kernel: &Kernel, outputs: u32) -> Vec<bool> {
    let mut needed = vec![false; kernel.nodes().len()];
    for (i, &id) in kernel.outputs().iter().enumerate() {
        needed[id as usize] |= outputs >> i & 1 == 1;
    }
    for id in (0..needed.len()).rev().filter(|&id| needed[id]).collect::<Vec<_>>() {
        mark(kernel, &mut needed, id);
    }
    needed
}

fn mark(kernel: &Kernel, needed: &mut [bool], from: usize) {
    let mut stack = vec![from];
    while let Some(id) = stack.pop() {
        for &source in kernel.nodes()[id].sources() {
            if !std::mem::replace(&mut needed[source as usize], true) {
                stack.push(source as usize);
            }
        }
    }
}

impl Body {
    /// The part of `kernel` that computes the outputs in the bit set `outputs`; its scalars begin
    /// at word `scalars` of the slot.
    ///
    /// # Errors
    /// If an operation does not exist on the GPU for its type.
    pub fn new(kernel: &Kernel, outputs: u32, scalars: usize) -> Result<Body> {
        let nodes = kernel.nodes();
        let needed = needed(kernel, outputs);
        let mut param_at = Vec::new();
        let mut at = scalars;
        for &dtype in kernel.params() {
            param_at.push(at);
            at += scalar_words(dtype);
        }
        let mut constant_at = vec![None; nodes.len()];
        for (id, _, dtype) in odd_constants(kernel) {
            constant_at[id] = Some(at);
            at += scalar_words(dtype);
        }
        let chosen: Vec<usize> =
            (0..kernel.outputs().len()).filter(|i| outputs >> i & 1 == 1).collect();
        let inputs = inputs_of(kernel, outputs);
        let mut text = String::from("struct Values {");
        for &i in &chosen {
            let _ = write!(text, " y{i}: {},", types::value(kernel.output_dtype(i)));
        }
        let arguments: Vec<String> =
            inputs.iter().map(|&i| format!("x{i}: {}", types::value(kernel.inputs()[i]))).collect();
        let _ = writeln!(text, " }}\nfn compute({}) -> Values {{", arguments.join(", "));
        for (id, node) in nodes.iter().enumerate().filter(|(id, _)| needed[*id]) {
            let name = |source: u16| format!("v{source}");
            let expression = match node.op {
                OpCode::Input(i) => format!("x{i}"),
                OpCode::Param(i) => scalar_param(param_at[i as usize], node.dtype),
                OpCode::Const(value) => match constant_at[id] {
                    Some(at) => scalar_param(at, node.dtype),
                    None => ops::literal(value, node.dtype).unwrap_or_default(),
                },
                OpCode::Cast => {
                    let source = &nodes[node.src[0] as usize];
                    ops::cast(source.dtype, node.dtype, &name(node.src[0]))
                }
                op => {
                    let dtype =
                        node.sources().last().map_or(node.dtype, |&s| nodes[s as usize].dtype);
                    ops::expression(
                        op,
                        dtype,
                        &name(node.src[0]),
                        &name(node.src[1]),
                        &name(node.src[2]),
                    )
                }
            };
            let _ = writeln!(text, "    let v{id} = {expression};");
        }
        let results: Vec<String> =
            chosen.iter().map(|&i| format!("v{}", kernel.outputs()[i])).collect();
        let _ = writeln!(text, "    return Values({});\n}}", results.join(", "));
        Ok(Body { text, inputs })
    }
}
