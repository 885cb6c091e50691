//! Attention without the matrix of scores: a workgroup takes 16 rows of one side past tiles of 16
//! rows of the other.
//!
//! ```text
//! forward    own 16 queries, past the keys they see    running maximum and sum, y rescaled as they grow     (Dao 2023, arXiv:2307.08691)
//! dq         own 16 queries, past the keys             p again from the logsumexp, ds = p (g v' - sum g y), dq += ds k
//! dk, dv     own 16 keys, past the queries             the same p, dv += p' g, dk += ds' q
//! ```
//!
//! Tiles that no query of the group sees are never visited. Scores that are not seen are the lowest
//! finite number, so nothing is computed with infinities. Each result is summed by one thread in a
//! fixed order. Heads wider than 256, f64, very few queries and tensors larger than a binding take
//! the definition.

use crate::device::{Launch, Wgpu};
use crate::generator::{self, types};
use crate::params::Params;
use crate::pipeline::{Key, Program};
use crate::walk::Walk;
use crate::wide;
use std::fmt::Write;
use teeny_core::{AttentionInputs, DType, Layout, Result, Scalar, StorageRef, Tensor};

/// Rows of a tile.
const ROWS: usize = 16;
const THREADS: usize = ROWS * ROWS;
/// Columns of an operand in workgroup memory at a time, and from one row there to the next.
const WIDTH: usize = 64;
const PITCH: usize = WIDTH + 1;
/// Fewer queries than this leave most of a tile empty.
const FEW: usize = 4;
/// Farther than every key: limits of the band end here, so that sums of them and positions stay
/// signed numbers.
const FAR: usize = i32::MAX as usize / 4;
/// Words 0..: batches, T, S, hs, hv, tiles of the own side, scale, offset, window, kind of mask;
/// then per operand offset, row stride, column stride.
const HEAD: usize = 10;
const OPERANDS: [&str; 5] = ["q", "k", "v", "g", "mask"];

/// What is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Forward,
    Queries,
    Keys,
}

/// What limits the scores besides the band.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mask {
    None = 0,
    Bool = 1,
    Added = 2,
}

/// What the text depends on. These shaders are long, so whatever can be data is: the mask, the
/// sizes, and all but the magnitude of the widths.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub kind: Kind,
    pub dtype: DType,
    /// Axes of the batch: 4, or 8.
    pub rank: usize,
    /// Groups of 64 columns: 1, 2 or 4.
    pub groups: usize,
}

impl Plan {
    fn variant(self) -> Vec<u32> {
        [self.kind as u32, self.dtype as u32, self.rank as u32, self.groups as u32].to_vec()
    }

    fn has(self, operand: usize) -> bool {
        match OPERANDS[operand] {
            "g" => self.kind != Kind::Forward,
            _ => true,
        }
    }

    fn word(operand: usize, at: usize) -> String {
        generator::param(HEAD + 3 * operand + at)
    }

    /// Statements that fill the workgroup array `to` with 16 rows of an operand from row `row` on,
    /// 64 columns from column `column` on.
    fn fetch(self, to: &str, operand: usize, row: &str, column: &str) -> String {
        let name = OPERANDS[operand];
        let rows = generator::param(if matches!(name, "q" | "g") { 1 } else { 2 });
        let columns = generator::param(if matches!(name, "q" | "k") { 3 } else { 4 });
        let load = types::load(self.dtype, &format!("in_{name}"), "p");
        format!(
            "    for (var e = thread; e < {}u; e += {THREADS}u) {{\n        let r = {row} + e / {WIDTH}u;\n        let c = {column} + e % {WIDTH}u;\n        \
             var value = 0.0f;\n        if r < {rows} && c < {columns} {{ let p = base_{name} + r * {} + c * {}; value = {load}; }}\n        \
             {to}[(e / {WIDTH}u) * {PITCH}u + e % {WIDTH}u] = value;\n    }}\n",
            ROWS * WIDTH,
            Self::word(operand, 1),
            Self::word(operand, 2),
        )
    }

    /// The sum over all columns of the products of own row i and other row j.
    fn dot(self, name: &str, own: usize, other: usize) -> String {
        let columns = generator::param(if matches!(OPERANDS[own], "q" | "k") { 3 } else { 4 });
        format!(
            "    var {name} = 0.0f;\n    for (var c0 = 0u; c0 < {columns}; c0 += {WIDTH}u) {{\n    workgroupBarrier();\n{}{}    workgroupBarrier();\n    \
             for (var c = 0u; c < {WIDTH}u; c += 1u) {{ {name} += own_tile[i * {PITCH}u + c] * other_tile[j * {PITCH}u + c]; }}\n    }}\n",
            self.fetch("own_tile", own, "own0", "c0"),
            self.fetch("other_tile", other, "other0", "c0"),
        )
    }

    /// Adds the other rows, weighted by the row of `weights`, to the accumulators `name`.
    fn gather(self, name: &str, weights: &str, other: usize, groups: usize) -> String {
        let mut text = String::new();
        for group in 0..groups {
            text.push_str("    workgroupBarrier();\n");
            text.push_str(&self.fetch(
                "other_tile",
                other,
                "other0",
                &format!("{}u", group * WIDTH),
            ));
            text.push_str("    workgroupBarrier();\n");
            let _ = writeln!(
                text,
                "    for (var r = 0u; r < {ROWS}u; r += 1u) {{\n        let w = {weights}[i * 17u + r];"
            );
            for part in 0..WIDTH / ROWS {
                let _ = writeln!(
                    text,
                    "        {name}{group}_{part} += w * other_tile[r * {PITCH}u + j + {}u];",
                    part * ROWS
                );
            }
            text.push_str("    }\n");
        }
        text
    }

    fn accumulators(name: &str, groups: usize, each: impl Fn(&str) -> String) -> String {
        (0..groups)
            .flat_map(|g| (0..WIDTH / ROWS).map(move |p| (g, p)))
            .map(|(g, p)| each(&format!("{name}{g}_{p}")))
            .collect()
    }

    /// Statements that write the accumulators to row own0 + i of `out`, whose rows have `columns`
    /// elements.
    fn store(
        name: &str,
        out: &str,
        groups: usize,
        columns: &str,
        own: &str,
        factor: &str,
    ) -> String {
        let mut text = format!(
            "    if own0 + i < {own} {{\n        let start = (batch * {own} + own0 + i) * {columns};\n"
        );
        for group in 0..groups {
            for part in 0..WIDTH / ROWS {
                let column = group * WIDTH + part * ROWS;
                let _ = writeln!(
                    text,
                    "        if j + {column}u < {columns} {{ {out}[start + j + {column}u] = {name}{group}_{part}{factor}; }}"
                );
            }
        }
        text.push_str("    }\n");
        text
    }

    /// The shader.
    pub fn wgsl(self) -> String {
        let [q, k, v, g, mask] = [0, 1, 2, 3, 4];
        let mut text = generator::params_declaration();
        let present: Vec<usize> = (0..OPERANDS.len()).filter(|&o| self.has(o)).collect();
        for (binding, &operand) in present.iter().enumerate() {
            // A mask is bytes or numbers, so it is declared as words.
            let dtype = if operand == mask { DType::U32 } else { self.dtype };
            text.push_str(&wide::input(binding, &format!("in_{}", OPERANDS[operand]), dtype));
        }
        let mut binding = present.len();
        if self.kind != Kind::Forward {
            text.push_str(&wide::input(binding, "in_stats", DType::F32));
            binding += 1;
        }
        let outputs: &[&str] = match self.kind {
            Kind::Forward => &["out_y", "out_lse"],
            Kind::Queries => &["out_q"],
            Kind::Keys => &["out_k", "out_v"],
        };
        for (i, name) in outputs.iter().enumerate() {
            text.push_str(&wide::output(binding + i, name, DType::F32));
        }
        let tile = ROWS * PITCH;
        let _ = writeln!(
            text,
            "var<workgroup> own_tile: array<f32, {tile}>;\nvar<workgroup> other_tile: array<f32, {tile}>;"
        );
        let _ = writeln!(
            text,
            "var<workgroup> weights: array<f32, {0}>;\nvar<workgroup> slopes: array<f32, {0}>;",
            ROWS * 17
        );
        text.push_str(&wide::main(THREADS));
        let word = generator::param;
        let (queries, keys, hs, hv) = (word(1), word(2), word(3), word(4));
        let _ = writeln!(
            text,
            "    let batch = unit / {tiles};\n    if batch >= {} {{ return; }}\n    let own0 = (unit % {tiles}) * {ROWS}u;\n    \
             let i = thread / {ROWS}u;\n    let j = thread % {ROWS}u;\n    let scale = bitcast<f32>({});\n    let offset = i32({});\n    let window = i32({});",
            word(0),
            word(6),
            word(7),
            word(8),
            tiles = word(5),
        );
        let sizes = HEAD + 3 * OPERANDS.len();
        let views: Vec<(String, String, usize)> = (0..OPERANDS.len())
            .map(|o| {
                (format!("base_{}", OPERANDS[o]), Self::word(o, 0), sizes + self.rank * (1 + o))
            })
            .collect();
        text.push_str(&wide::addresses(self.rank, "batch", sizes, &views));
        // The rows of the other side that any own row meets: query t sees key s exactly if 0 <= t +
        // offset - s < window.
        let (low, high, other_rows, query, key) = match self.kind {
            Kind::Forward | Kind::Queries => (
                "i32(own0) + offset - window + 1",
                format!("i32(own0) + {ROWS} + offset"),
                &keys,
                "own0 + i",
                "other0 + j",
            ),
            Kind::Keys => (
                "i32(own0) - offset",
                format!("i32(own0) + {} - offset + window", ROWS - 1),
                &queries,
                "other0 + j",
                "own0 + i",
            ),
        };
        let _ = writeln!(
            text,
            "    let low = u32(max({low}, 0)) / {ROWS}u * {ROWS}u;\n    let high = min(u32(max({high}, 0)), {other_rows});\n    let lowest = -3.4028234e38f;"
        );
        let zero = |name: &str| format!("    var {name} = 0.0f;\n");
        match self.kind {
            Kind::Forward => {
                text.push_str("    var top = lowest;\n    var sum = 0.0f;\n");
                text.push_str(&Self::accumulators("y", self.groups, zero));
            }
            Kind::Queries => text.push_str(&Self::accumulators("dq", self.groups, zero)),
            Kind::Keys => {
                text.push_str(&Self::accumulators("dk", self.groups, zero));
                text.push_str(&Self::accumulators("dv", self.groups, zero));
            }
        }
        let _ = writeln!(text, "    for (var other0 = low; other0 < high; other0 += {ROWS}u) {{");
        let (own, other) = if self.kind == Kind::Keys { (k, q) } else { (q, k) };
        text.push_str(&self.dot("s", own, other));
        let _ = writeln!(
            text,
            "    s = s * scale;\n    let t = {query};\n    let u = {key};\n    let behind = i32(t) + offset - i32(u);\n    \
             var seen = t < {queries} && u < {keys} && behind >= 0 && behind < window;"
        );
        let added = match self.dtype {
            DType::F32 => "bitcast<f32>(in_mask[p])".to_string(),
            half => types::load(half, "in_mask", "p"),
        };
        let _ = writeln!(
            text,
            "    if seen && {mode} != 0u {{\n        let p = base_mask + t * {} + u * {};\n        \
             if {mode} == 1u {{ seen = {}; }} else {{ s = s + {added}; }}\n    }}",
            Self::word(mask, 1),
            Self::word(mask, 2),
            types::load(DType::Bool, "in_mask", "p"),
            mode = word(9),
        );
        // NaN is seen, and so reaches the result.
        text.push_str("    if s <= lowest { seen = false; }\n");
        match self.kind {
            Kind::Forward => {
                let _ = writeln!(
                    text,
                    "    workgroupBarrier();\n    weights[i * 17u + j] = select(lowest, s, seen);\n    workgroupBarrier();\n    var peak = top;\n    \
                     for (var r = 0u; r < {ROWS}u; r += 1u) {{ peak = max_f32(peak, weights[i * 17u + r]); }}\n    workgroupBarrier();\n    \
                     let own = select(0.0f, exp_f32(s - peak), seen);\n    weights[i * 17u + j] = own;\n    workgroupBarrier();\n    \
                     let shrink = exp_f32(top - peak);\n    var row = 0.0f;\n    for (var r = 0u; r < {ROWS}u; r += 1u) {{ row += weights[i * 17u + r]; }}\n    \
                     sum = sum * shrink + row;\n    top = peak;"
                );
                text.push_str(&Self::accumulators("y", self.groups, |name| {
                    format!("    {name} = {name} * shrink;\n")
                }));
                text.push_str(&self.gather("y", "weights", v, self.groups));
            }
            Kind::Queries | Kind::Keys => {
                let (own, other) = if self.kind == Kind::Keys { (v, g) } else { (g, v) };
                text.push_str(&self.dot("d", own, other));
                let _ = writeln!(
                    text,
                    "    var w = 0.0f;\n    var slope = 0.0f;\n    if seen {{\n        let at = batch * {queries} + t;\n        w = exp_f32(s - in_stats[at]);\n        \
                     slope = w * (d - in_stats[{} * {queries} + at]) * scale;\n    }}\n    workgroupBarrier();\n    weights[i * 17u + j] = w;\n    \
                     slopes[i * 17u + j] = slope;\n    workgroupBarrier();",
                    word(0)
                );
                if self.kind == Kind::Queries {
                    text.push_str(&self.gather("dq", "slopes", k, self.groups));
                } else {
                    text.push_str(&self.gather("dk", "slopes", q, self.groups));
                    text.push_str(&self.gather("dv", "weights", g, self.groups));
                }
            }
        }
        text.push_str("    }\n");
        match self.kind {
            Kind::Forward => {
                text.push_str("    let part = select(1.0f / sum, 0.0f, sum == 0.0f);\n");
                text.push_str(&Self::store("y", "out_y", self.groups, &hv, &queries, " * part"));
                let _ = writeln!(
                    text,
                    "    if j == 0u && own0 + i < {queries} {{\n        var lse = -inf_f32();\n        if sum != 0.0f {{ lse = top + log_f32(sum); }}\n        \
                     out_lse[batch * {queries} + own0 + i] = lse;\n    }}"
                );
            }
            Kind::Queries => {
                text.push_str(&Self::store("dq", "out_q", self.groups, &hs, &queries, ""))
            }
            Kind::Keys => {
                text.push_str(&Self::store("dk", "out_k", self.groups, &hs, &keys, ""));
                text.push_str(&Self::store("dv", "out_v", self.groups, &hv, &keys, ""));
            }
        }
        text.push_str("}\n");
        text
    }
}

impl Wgpu {
    /// True if the fused kernels take these operands.
    fn fuses(&self, inputs: &AttentionInputs<'_>) -> bool {
        let [queries, keys, hs, hv] = inputs.sizes();
        let all = [Some(inputs.q), Some(inputs.k), Some(inputs.v), inputs.mask];
        let empty = inputs.q.numel() == 0 || inputs.v.numel() == 0 || keys == 0;
        let widest = inputs
            .q
            .numel()
            .max(inputs.k.numel())
            .max(inputs.v.numel())
            .max(inputs.q.numel() / hs.max(1) * hv);
        inputs.q.dtype() != DType::F64
            && !empty
            && queries >= FEW
            && queries.saturating_add(keys) < FAR
            && hs.max(hv) <= 4 * WIDTH
            && !all.into_iter().flatten().any(|x| self.is_large(x))
            && !self.exceeds(widest, DType::F32)
    }

    /// Records one of the kernels; `rest` are g and the statistics of a backward pass.
    fn attend(
        &self,
        kind: Kind,
        inputs: &AttentionInputs<'_>,
        rest: Option<(&Tensor, &Tensor)>,
        outputs: &[StorageRef],
    ) -> Result<()> {
        let [queries, keys, hs, hv] = inputs.sizes();
        let q = inputs.q;
        let lead = q.ndim() - 2;
        let operands =
            [Some(inputs.q), Some(inputs.k), Some(inputs.v), rest.map(|r| r.0), inputs.mask];
        let layouts: Vec<&Layout> = operands.iter().map(|x| x.unwrap_or(q).layout()).collect();
        let leading: Vec<usize> = (0..lead).collect();
        let walk = Walk::over(q.shape(), &layouts, &leading)?.padded_to(4);
        let batches: usize = q.shape()[..lead].iter().product();
        let own = if kind == Kind::Keys { keys } else { queries };
        let tiles = own.div_ceil(ROWS);
        let mut slot = Params::new();
        slot.counts(&[batches, queries, keys, hs, hv, tiles]);
        slot.scalar(Scalar::Float(inputs.options.factor(hs)), DType::F32);
        // Without a causal limit every key is in the band: the offset is that of the last key, the
        // window has no end.
        let (offset, window) = match inputs.options.causal {
            Some(_) => inputs.options.band(queries, keys),
            None => (keys, queries + keys + 1),
        };
        slot.counts(&[offset.min(FAR), window.min(FAR)]);
        let mask = match inputs.mask {
            None => Mask::None,
            Some(mask) if mask.dtype() == DType::Bool => Mask::Bool,
            Some(_) => Mask::Added,
        };
        slot.push(mask as u32);
        for x in operands {
            let x = x.unwrap_or(q);
            slot.strides(&[x.layout().offset() as isize, x.strides()[lead], x.strides()[lead + 1]]);
        }
        slot.counts(&walk.sizes);
        slot.strides(walk.strides.iter().flatten());
        let groups = hs.max(hv).div_ceil(WIDTH).next_power_of_two();
        let plan = Plan { kind, dtype: q.dtype(), rank: walk.sizes.len(), groups };
        // Where there is no mask, the queries stand in for it; nothing is read there.
        let bound = [operands[0], operands[1], operands[2], operands[3], inputs.mask.or(Some(q))];
        let mut parts =
            bound.into_iter().flatten().map(|x| self.part(x)).collect::<Result<Vec<_>>>()?;
        if let Some((_, stats)) = rest {
            parts.push(self.part(stats)?);
        }
        let written = outputs.iter().map(|out| self.whole(out)).collect::<Result<Vec<_>>>()?;
        self.dispatch(&Launch {
            program: Program {
                key: Key::new("attention", plan.variant()),
                wgsl: &|| Ok(plan.wgsl()),
            },
            inputs: &parts,
            outputs: &written,
            params: &slot,
            groups: self.fold((batches * tiles) as u64)?,
        })
    }

    /// y and the logsumexp, or nothing if the definition is to be used.
    pub(crate) fn attention_forward(
        &self,
        inputs: &AttentionInputs<'_>,
    ) -> Result<Option<(StorageRef, StorageRef)>> {
        if !self.fuses(inputs) {
            return Ok(None);
        }
        let [_, _, hs, hv] = inputs.sizes();
        let rows = inputs.q.numel() / hs;
        let (y, lse) = (self.allocate(rows * hv, DType::F32)?, self.allocate(rows, DType::F32)?);
        self.attend(Kind::Forward, inputs, None, &[y.clone(), lse.clone()])?;
        Ok(Some((self.narrow(y, inputs.q.dtype(), inputs.q)?, lse)))
    }

    /// The gradients that `needs` asks for, or nothing if the definition is to be used.
    pub(crate) fn attention_backward(
        &self,
        inputs: &AttentionInputs<'_>,
        y: &Tensor,
        lse: &Tensor,
        g: &Tensor,
        needs: [bool; 3],
    ) -> Result<Option<[Option<StorageRef>; 3]>> {
        if !self.fuses(inputs) || self.is_large(g) {
            return Ok(None);
        }
        let dtype = inputs.q.dtype();
        // What both kernels need of each query: its logsumexp and sum(g y).
        let along = g.cast(DType::F32)?.mul(&y.cast(DType::F32)?)?.sum(-1)?;
        let stats = Tensor::stack(&[&lse.cast(DType::F32)?, &along], 0)?;
        let mut grads = [None, None, None];
        if needs[0] {
            let d_q = self.allocate(inputs.q.numel(), DType::F32)?;
            self.attend(Kind::Queries, inputs, Some((g, &stats)), std::slice::from_ref(&d_q))?;
            grads[0] = Some(self.narrow(d_q, dtype, inputs.q)?);
        }
        if needs[1] || needs[2] {
            let (d_k, d_v) = (
                self.allocate(inputs.k.numel(), DType::F32)?,
                self.allocate(inputs.v.numel(), DType::F32)?,
            );
            self.attend(Kind::Keys, inputs, Some((g, &stats)), &[d_k.clone(), d_v.clone()])?;
            grads[1] = if needs[1] { Some(self.narrow(d_k, dtype, inputs.q)?) } else { None };
            grads[2] = if needs[2] { Some(self.narrow(d_v, dtype, inputs.q)?) } else { None };
        }
        Ok(Some(grads))
    }
}
