//! Normalisation along the last axis and its gradient for the input: one workgroup per row, one
//! launch.
//!
//! A row is read again for each sum and for the result, from cache. The variance is that of the
//! differences from the mean, never a difference of sums.

use crate::device::{Launch, Wgpu};
use crate::generator::{self, types};
use crate::params::Params;
use crate::pipeline::{Key, Program};
use crate::walk::Walk;
use crate::wide;
use std::fmt::Write;
use teeny_core::{DType, Layout, Norm, Result, StorageRef, Tensor};

const THREADS: usize = 64;
/// Words 0..: rows, length of a row, 1 / length, eps (two words each), then stride along the row
/// and offset of x, g, weight and bias.
const HEAD: usize = 14;
/// Inputs that may follow x, in the order of their bindings.
const G: u32 = 1;
const WEIGHT: u32 = 2;
const BIAS: u32 = 4;

/// The shader; `given` is the set of inputs beside x: with g it is the gradient. Views over the
/// rows: x, g.
pub(crate) fn wgsl(rank: usize, dtype: DType, norm: Norm, given: u32) -> String {
    let value = types::value(wide::wide(dtype));
    let names = ["x", "g", "weight", "bias"];
    let has = |name: usize| name == 0 || given >> (name - 1) & 1 == 1;
    let present: Vec<usize> = (0..4).filter(|&i| has(i)).collect();
    let mut text = generator::params_declaration();
    for (binding, &i) in present.iter().enumerate() {
        text.push_str(&wide::input(binding, &format!("in_{}", names[i]), dtype));
    }
    text.push_str(&wide::output(present.len(), "out", dtype));
    let _ = writeln!(text, "var<workgroup> shared_parts: array<{value}, {THREADS}>;");
    let joined = wide::joined("shared_parts", THREADS, |a, b| format!("{a} + {b}"));
    let _ = writeln!(
        text,
        "fn all_sum(thread: u32, own: {value}) -> {value} {{\n    workgroupBarrier();\n    shared_parts[thread] = own;\n{joined}    return whole;\n}}"
    );
    text.push_str(&wide::main(THREADS));
    let (length, part, eps) = (
        generator::param(1),
        generator::scalar_param(2, wide::wide(dtype)),
        generator::scalar_param(4, wide::wide(dtype)),
    );
    let _ = writeln!(text, "    if unit >= {} {{ return; }}", generator::param(0));
    let views = [
        ("base_x".to_string(), generator::param(7), HEAD + rank),
        ("base_g".to_string(), generator::param(9), HEAD + 2 * rank),
    ];
    text.push_str(&wide::addresses(rank, "unit", HEAD, &views));
    let load = |i: usize| {
        let start = if i < 2 { format!("base_{}", names[i]) } else { generator::param(7 + 2 * i) };
        let load = types::load(dtype, &format!("in_{}", names[i]), &format!("p_{}", names[i]));
        format!(
            "let p_{0} = {start} + r * {1}; let {0} = {load}; ",
            names[i],
            generator::param(6 + 2 * i)
        )
    };
    let pass = |text: &mut String, inputs: &[usize], body: &str| {
        let loads: String = inputs.iter().filter(|&&i| has(i)).map(|&i| load(i)).collect();
        let _ = writeln!(
            text,
            "    for (var r = thread; r < {length}; r += {THREADS}u) {{ {loads}{body} }}"
        );
    };
    let centred = match norm {
        Norm::Layer => "(x - mean)",
        Norm::Rms => "x",
    };
    let zero = types::zero(wide::wide(dtype));
    if norm == Norm::Layer {
        let _ = writeln!(text, "    var mean = {zero};");
        pass(&mut text, &[0], "mean += x;");
        let _ = writeln!(text, "    mean = all_sum(thread, mean) * {part};");
    }
    let _ = writeln!(text, "    var squares = {zero};\n    var rest = {zero};");
    match norm {
        Norm::Layer => {
            // What rounding left of the mean is taken out of both: rows of nearly equal elements
            // would show it otherwise.
            pass(&mut text, &[0], "let d = x - mean; rest += d; squares += d * d;");
            let _ = writeln!(text, "    rest = all_sum(thread, rest) * {part};\n    mean += rest;");
        }
        Norm::Rms => pass(&mut text, &[0], "squares += x * x;"),
    }
    let _ = writeln!(
        text,
        "    let variance = max(all_sum(thread, squares) * {part} - rest * rest, {zero});"
    );
    let _ = writeln!(text, "    let scale = {value}(1) / sqrt(variance + {eps});");
    if has(1) {
        let u = if has(2) { "g * weight" } else { "g" };
        let _ = writeln!(text, "    var sum_u = {zero};\n    var sum_uh = {zero};");
        pass(
            &mut text,
            &[0, 1, 2],
            &format!("let u = {u}; sum_u += u; sum_uh += u * {centred} * scale;"),
        );
        let _ = writeln!(text, "    sum_uh = all_sum(thread, sum_uh) * {part};");
        let mean_u = match norm {
            Norm::Layer => {
                let _ = writeln!(text, "    sum_u = all_sum(thread, sum_u) * {part};");
                " - sum_u"
            }
            Norm::Rms => "",
        };
        let body = format!(
            "out[unit * {length} + r] = scale * ({u}{mean_u} - {centred} * scale * sum_uh);"
        );
        pass(&mut text, &[0, 1, 2], &body);
    } else {
        let weight = if has(2) { " * weight" } else { "" };
        let bias = if has(3) { " + bias" } else { "" };
        pass(
            &mut text,
            &[0, 2, 3],
            &format!("out[unit * {length} + r] = {centred} * scale{weight}{bias};"),
        );
    }
    text.push_str("}\n");
    text
}

impl Wgpu {
    /// The normalised `x`, or with `g` the gradient for `x`.
    pub(crate) fn normalise(
        &self,
        norm: Norm,
        x: &Tensor,
        g: Option<&Tensor>,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> Result<StorageRef> {
        let dtype = x.dtype();
        self.require(dtype, "normalisation")?;
        let axis = x.ndim() - 1;
        let length = x.shape()[axis];
        if x.numel() == 0 {
            return self.allocate(0, dtype);
        }
        if self.is_large(x)
            || g.is_some_and(|g| self.is_large(g))
            || self.exceeds(x.numel(), wide::wide(dtype))
        {
            let inputs: Vec<&Tensor> = [Some(x), g].into_iter().flatten().collect();
            let run = |parts: &[&Tensor], _| {
                Ok([self.normalise(norm, parts[0], parts.get(1).copied(), weight, bias, eps)?])
            };
            let [y] = self.by_halves(&inputs, axis, [dtype], length, run)?;
            return Ok(y);
        }
        let given: Vec<&Tensor> = [weight, bias].into_iter().flatten().collect();
        if self.hides(&given) {
            let [weight, bias] = [weight, bias].map(|x| x.map(|x| self.seen(x)).transpose());
            return self.normalise(norm, x, g, weight?.as_ref(), bias?.as_ref(), eps);
        }
        let out = self.allocate(x.numel(), wide::wide(dtype))?;
        let others: Vec<usize> = (0..axis).collect();
        let empty = Layout::contiguous(*x.shape());
        let layouts = [x.layout(), g.map_or(&empty, |g| g.layout())];
        let walk = Walk::over(x.shape(), &layouts, &others)?.padded();
        let (rank, rows) = (walk.sizes.len(), x.numel() / length);
        let mut slot = Params::new();
        slot.counts(&[rows, length]);
        for (at, value) in [(2, 1.0 / length as f64), (4, eps)] {
            slot.scalar(teeny_core::Scalar::Float(value), dtype);
            slot.pad(at + 1);
        }
        for input in [Some(x), g, weight, bias] {
            slot.int(input.map_or(0, |t| t.strides()[t.ndim() - 1]));
            slot.int(input.map_or(0, |t| t.layout().offset() as isize));
        }
        slot.counts(&walk.sizes);
        slot.strides(walk.strides.iter().flatten());
        let given = [(g, G), (weight, WEIGHT), (bias, BIAS)]
            .iter()
            .filter(|(t, _)| t.is_some())
            .map(|(_, bit)| bit)
            .sum();
        let parts = [Some(x), g, weight, bias]
            .into_iter()
            .flatten()
            .map(|t| self.part(t))
            .collect::<Result<Vec<_>>>()?;
        self.dispatch(&Launch {
            program: Program {
                key: Key::new("norm", [rank as u32, dtype as u32, norm as u32, given]),
                wgsl: &|| Ok(wgsl(rank, dtype, norm, given)),
            },
            inputs: &parts,
            outputs: &[self.whole(&out)?],
            params: &slot,
            groups: self.fold(rows as u64)?,
        })?;
        self.narrow(out, dtype, x)
    }
}
