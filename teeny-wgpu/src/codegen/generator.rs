//! From a [`Kernel`] to WGSL: the scalar program as one function, `compute(x0, x1, ..) -> Values`,
//! without loads and stores. The operation that uses it writes those around it.
//!
//! Numbers that change from launch to launch, and constants that WGSL has no literal for, are
//! parameters: `params.scalar_0`, `params.scalar_1`, ..

use crate::codegen::params::Declaration;
use crate::codegen::{expressions, types};
use crate::device::params::Params;
use std::fmt::Write;
use teeny_core::{Arithmetic, DType, Kernel, OpCode, Result, Scalar};

/// The constants of a kernel that WGSL has no literal for, and zeros in products and quotients:
/// Mesa's software driver folds `x / 0.0` and `x * 0.0` to 0, also where x is infinite or NaN.
fn odd_constants(kernel: &Kernel) -> impl Iterator<Item = (usize, Scalar, DType)> + '_ {
    use Arithmetic::{Div, Mul};
    let folds = |id: usize| {
        kernel.nodes().iter().any(|node| {
            matches!(node.op, OpCode::Arithmetic(Mul | Div))
                && node.src[..2].iter().any(|&src| usize::from(src) == id)
        })
    };
    kernel.nodes().iter().enumerate().filter_map(move |(id, node)| match node.op {
        OpCode::Const(value)
            if expressions::literal(value, node.dtype).is_none()
                || value.to_f64() == 0.0 && folds(id) =>
        {
            Some((id, value, node.dtype))
        }
        _ => None,
    })
}

/// Appends the values of the kernel's parameters and odd constants, in the order in which
/// [`Generator`] declares them.
pub(crate) fn push_scalars(words: &mut Params, kernel: &Kernel, params: &[Scalar]) {
    for (&value, &dtype) in params.iter().zip(kernel.params()) {
        words.scalar(value, dtype);
    }
    for (_, value, dtype) in odd_constants(kernel) {
        words.scalar(value, dtype);
    }
}

/// A scalar program as WGSL.
pub(crate) struct Generator {
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

/// The names of a kernel's run-time parameters and odd constants in a shader.
pub(crate) struct Scalars {
    parameters: Vec<String>,
    /// One per node.
    constants: Vec<Option<String>>,
}

impl Scalars {
    /// Declares the scalars of `kernel` as the last members of `params`.
    pub fn new(kernel: &Kernel, params: &mut Declaration) -> Scalars {
        let mut names = (0..).map(|i| format!("scalar_{i}"));
        let mut number = |dtype: DType| params.number(&names.next().unwrap_or_default(), dtype);
        let parameters: Vec<String> = kernel.params().iter().map(|&dtype| number(dtype)).collect();
        let mut constants = vec![None; kernel.nodes().len()];
        for (id, _, dtype) in odd_constants(kernel) {
            constants[id] = Some(number(dtype));
        }
        Scalars { parameters, constants }
    }

    /// The expression of node `id` of `kernel`, an operation of single elements whose sources have
    /// the names `v0`, `v1`, .. by their numbers; input `i` is `x{i}`.
    pub fn expression(&self, kernel: &Kernel, id: usize) -> String {
        let nodes = kernel.nodes();
        let node = &nodes[id];
        let name = |i: usize| format!("v{}", node.src[i]);
        match node.op {
            OpCode::Input(i) => format!("x{i}"),
            OpCode::Param(i) => self.parameters[i as usize].clone(),
            OpCode::Const(value) => match &self.constants[id] {
                Some(parameter) => parameter.clone(),
                None => expressions::literal(value, node.dtype).unwrap_or_default(),
            },
            OpCode::Cast => {
                let source = &nodes[node.src[0] as usize];
                expressions::cast(source.dtype, node.dtype, &name(0))
            }
            op => {
                let dtype = node.sources().last().map_or(node.dtype, |&s| nodes[s as usize].dtype);
                expressions::expression(op, dtype, &name(0), &name(1), &name(2))
            }
        }
    }
}

impl Generator {
    /// The part of `kernel` that computes the outputs in the bit set `outputs`. Declares its
    /// scalars as the last members of `params`.
    ///
    /// # Errors
    /// If an operation does not exist on the GPU for its type.
    pub fn new(kernel: &Kernel, outputs: u32, params: &mut Declaration) -> Result<Generator> {
        let needed = needed(kernel, outputs);
        let scalars = Scalars::new(kernel, params);
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
        for id in (0..needed.len()).filter(|&id| needed[id]) {
            let _ = writeln!(text, "    let v{id} = {};", scalars.expression(kernel, id));
        }
        let results: Vec<String> =
            chosen.iter().map(|&i| format!("v{}", kernel.outputs()[i])).collect();
        let _ = writeln!(text, "    return Values({});\n}}", results.join(", "));
        Ok(Generator { text, inputs })
    }
}
