//! Softmax, its logarithm and their gradients: one workgroup per row, one launch instead of four.
//!
//! A row is read three times (twice for gradients), the second and third time from cache. Sums are
//! f32 (f64 for f64), each thread's part first.

use crate::device::{Launch, Wgpu};
use crate::generator::{self, types};
use crate::params::Params;
use crate::pipeline::{Key, Program};
use crate::walk::Walk;
use crate::wide;
use std::fmt::Write;
use teeny_core::{DType, Layout, Result, StorageRef, Tensor};

const THREADS: usize = 64;
/// Words 0..: rows, length of a row, strides of the two inputs and the result along it.
const HEAD: usize = 5;

/// What is computed along each row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rows {
    /// `exp(x - max) / sum`.
    Softmax = 0,
    /// `x - max - log(sum)`.
    LogSoftmax = 1,
    /// `y (g - sum(g y))` of y and g.
    SoftmaxGrad = 2,
    /// `g - exp(y) sum(g)` of y and g.
    LogSoftmaxGrad = 3,
}

impl Rows {
    fn inputs(self) -> usize {
        match self {
            Rows::Softmax | Rows::LogSoftmax => 1,
            Rows::SoftmaxGrad | Rows::LogSoftmaxGrad => 2,
        }
    }
}

/// The shader; views over the rows: inputs, result.
pub(crate) fn wgsl(rank: usize, dtype: DType, rows: Rows) -> String {
    let inputs = rows.inputs();
    let ty = types::value(dtype);
    let mut text = generator::params_declaration();
    for i in 0..inputs {
        text.push_str(&wide::input(i, &format!("in{i}"), dtype));
    }
    text.push_str(&wide::output(inputs, "out", dtype));
    let _ = writeln!(text, "var<workgroup> shared_parts: array<{ty}, {THREADS}>;");
    // The value that all threads' parts make together, known to all of them afterwards.
    let larger = move |a: &str, b: &str| format!("max_{ty}({a}, {b})");
    for name in ["all_max", "all_sum"] {
        if name == "all_max" && inputs == 2 {
            continue;
        }
        let joined = match name {
            "all_max" => wide::joined("shared_parts", THREADS, larger),
            _ => wide::joined("shared_parts", THREADS, |a, b| format!("{a} + {b}")),
        };
        let _ = writeln!(
            text,
            "fn {name}(thread: u32, own: {ty}) -> {ty} {{\n    workgroupBarrier();\n    shared_parts[thread] = own;\n{joined}    return whole;\n}}"
        );
    }
    text.push_str(&wide::main(THREADS));
    let _ = writeln!(
        text,
        "    if unit >= {} {{ return; }}\n    let length = {};",
        generator::param(0),
        generator::param(1)
    );
    let mut at = HEAD + rank;
    let mut views = Vec::new();
    for i in 0..inputs {
        views.push((format!("b{i}"), generator::param(at), at + 1));
        at += 1 + rank;
    }
    views.push(("c".to_string(), "0u".to_string(), at));
    text.push_str(&wide::addresses(rank, "unit", HEAD, &views));
    let mut load = String::new();
    for i in 0..inputs {
        let _ = write!(
            load,
            "let p{i} = b{i} + r * {}; let v{i} = {}; ",
            generator::param(2 + i),
            types::load(dtype, &format!("in{i}"), &format!("p{i}"))
        );
    }
    let pass = |text: &mut String, body: &str| {
        let _ = writeln!(
            text,
            "    for (var r = thread; r < length; r += {THREADS}u) {{ {load}{body} }}"
        );
    };
    let term = match rows {
        Rows::Softmax | Rows::LogSoftmax => {
            let _ = writeln!(text, "    var top = -inf_{ty}();");
            pass(&mut text, &format!("top = max_{ty}(top, v0);"));
            text.push_str("    top = all_max(thread, top);\n");
            format!("exp_{ty}(v0 - top)")
        }
        Rows::SoftmaxGrad => "v0 * v1".to_string(),
        Rows::LogSoftmaxGrad => "v1".to_string(),
    };
    let _ = writeln!(text, "    var sum = {};", types::zero(dtype));
    pass(&mut text, &format!("sum += {term};"));
    text.push_str("    sum = all_sum(thread, sum);\n");
    let result = match rows {
        Rows::Softmax => format!("exp_{ty}(v0 - top) / sum"),
        Rows::LogSoftmax => format!("(v0 - top) - log_{ty}(sum)"),
        Rows::SoftmaxGrad => "v0 * (v1 - sum)".to_string(),
        Rows::LogSoftmaxGrad => format!("v1 - exp_{ty}(v0) * sum"),
    };
    pass(&mut text, &format!("out[c + r * {}] = {result};", generator::param(4)));
    text.push_str("}\n");
    text
}

impl Wgpu {
    /// `rows` along `axis` of the inputs.
    pub(crate) fn along_rows(
        &self,
        rows: Rows,
        inputs: &[&Tensor],
        axis: usize,
    ) -> Result<StorageRef> {
        let x = inputs[0];
        let dtype = x.dtype();
        self.require(dtype, "softmax")?;
        if x.numel() == 0 {
            return self.allocate(0, dtype);
        }
        if inputs.iter().any(|x| self.is_large(x)) || self.exceeds(x.numel(), wide::wide(dtype)) {
            let length = x.shape()[axis];
            let [y] = self.by_halves(inputs, axis, [dtype], length, |parts, axis| {
                Ok([self.along_rows(rows, parts, axis)?])
            })?;
            return Ok(y);
        }
        let out = self.allocate(x.numel(), wide::wide(dtype))?;
        let target = Layout::contiguous(*x.shape());
        let others: Vec<usize> = (0..x.ndim()).filter(|&a| a != axis).collect();
        let layouts: Vec<&Layout> = inputs.iter().map(|x| x.layout()).chain([&target]).collect();
        let walk = Walk::over(x.shape(), &layouts, &others)?.padded();
        let (rank, count) = (walk.sizes.len(), x.numel() / x.shape()[axis]);
        let mut slot = Params::new();
        slot.counts(&[count, x.shape()[axis]]);
        slot.int(x.layout().strides()[axis]);
        slot.int(inputs.get(1).map_or(0, |g| g.layout().strides()[axis]));
        slot.int(target.strides()[axis]);
        slot.counts(&walk.sizes);
        for (input, strides) in inputs.iter().zip(&walk.strides) {
            slot.int(input.layout().offset() as isize);
            slot.strides(strides);
        }
        slot.strides(&walk.strides[inputs.len()]);
        let parts = inputs.iter().map(|x| self.part(x)).collect::<Result<Vec<_>>>()?;
        self.dispatch(&Launch {
            program: Program {
                key: Key::new("softmax", [rank as u32, dtype as u32, rows as u32]),
                wgsl: &|| Ok(wgsl(rank, dtype, rows)),
            },
            inputs: &parts,
            outputs: &[self.whole(&out)?],
            params: &slot,
            groups: self.fold(count as u64)?,
        })?;
        self.narrow(out, dtype, x)
    }
}
