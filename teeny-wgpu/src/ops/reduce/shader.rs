//! The shader of a reduction: `reduce.wgsl`, filled for a kernel, an operation and the numbers of
//! merged axes. Independent of tensors.

use crate::codegen::expressions::rounded;
use crate::codegen::generator::{self, Generator};
use crate::codegen::params::{Field, Sizes, Strides, shader_params};
use crate::codegen::shader::{Start, shader};
use crate::codegen::types::{self, accumulated, accumulation, accumulator};
use std::fmt::Write;
use teeny_core::{DType, Kernel, ReduceOp, Result};

/// Threads of a workgroup.
pub(crate) const THREADS: usize = 128;
/// Threads that share a row of some hundred elements.
pub(crate) const TEAM: usize = 8;

shader_params! {
    /// Parameters of `reduce.wgsl`; then for each input its view along the kept axes and its
    /// strides along the reduced ones, and the kernel's scalars.
    pub(super) struct ReduceParams(kept: usize, reduced: usize) {
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
pub(crate) struct ReducePlan {
    pub op: ReduceOp,
    /// Joint axes that are kept, and that are reduced.
    pub kept: usize,
    pub reduced: usize,
    /// Threads that share a result: [`THREADS`], [`TEAM`] or 1.
    pub team: usize,
    /// Elements that are read, and counted, at once: 1, [`types::LANES`] or [`types::OCTET`].
    pub lanes: usize,
}

impl ReducePlan {
    pub fn variant(self) -> Vec<u32> {
        let lanes = self.lanes as u32;
        vec![self.op as u32, self.kept as u32, self.reduced as u32, self.team as u32, lanes]
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
            let ty = types::value(input);
            if self.lanes > 1 {
                let (load, values) = types::load_group(input, self.lanes, name, "i", "group");
                let (all, values) = (format!("array<{ty}, {}>", self.lanes), values.join(", "));
                let _ = writeln!(
                    accessors,
                    "fn group_{name}(i: u32) -> {all} {{ {load} return {all}({values}); }}"
                );
                continue;
            }
            let load = types::load(input, name, "i");
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
        let word = |dtype: DType| match self.lanes {
            1 => types::word(dtype),
            lanes => types::group(dtype, lanes),
        };
        let words = inputs.iter().map(|&i| word(kernel.inputs()[i]).to_string());
        let lane = |l: usize| (0..inputs.len()).map(|i| format!("v{i}[{l}]")).collect::<Vec<_>>();
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
            .list("operands", (0..self.lanes).map(|l| lane(l).join(", ")))
            .number("lanes", self.lanes)
            .flag("groups", self.lanes > 1)
            .flag("octets", self.lanes == types::OCTET)
            // Blocks of 64 elements.
            .number("block", 64 / self.lanes)
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

/// The values of the neutral state and of `a` and `b` combined.
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
