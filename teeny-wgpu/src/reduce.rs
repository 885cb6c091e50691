//! Reductions, and reductions of a kernel's result without storing it: one generated shader for
//! both.
//!
//! ```text
//! a workgroup   per result (and chunk): threads stride through the elements, then join their parts     long rows, everything
//! 16 threads    per result: the same, eight results in a workgroup                                     rows of some hundred
//! a thread      per result (and chunk): neighbours read neighbouring elements                          columns, short rows
//! ```
//!
//! Long reductions with few results are cut into chunks, whose partial results a second pass
//! reduces; beyond what 32 bits count, halves are reduced one after the other. Floats accumulate in
//! f32 in blocks of 64, so errors grow with the number of blocks rather than of elements. The order
//! is fixed by the sizes: results are the same in every run.

use crate::device::{Launch, Wgpu};
use crate::error;
use crate::generator::{self, Body, ops, types};
use crate::params::Params;
use crate::pipeline::{Key, MAX_BINDINGS, Program};
use crate::walk::Walk;
use crate::wide;
use std::fmt::Write;
use std::sync::Arc;
use teeny_core::kernel::table::UnaryTable;
use teeny_core::{
    DType, Error, Kernel, Layout, ReduceOp, Result, Scalar, Shape, StorageRef, Tensor,
};

/// Threads of a workgroup.
pub(crate) const THREADS: usize = 128;
/// Threads that share a row of some hundred elements; rows shorter than the first bound have a
/// thread, longer than the second a workgroup.
pub(crate) const TEAM: usize = 16;
const TEAM_ROWS: (usize, usize) = (64, 512);

/// Positions in few long lines are found chunk by chunk.
const FEW: usize = 64;
const ARG_CHUNK: usize = 4096;

/// Partial results that chunks may make.
const PARTIAL: usize = 1 << 22;

static IDENTITY: UnaryTable = UnaryTable::new();

/// The chunks of each of `count` results from `elements` elements that `team` threads share.
fn chunks_of(count: usize, elements: usize, team: usize) -> usize {
    if count.saturating_mul(team) >= 1 << 16 {
        return 1;
    }
    let length = if team > 1 { 64 * team } else { 256 };
    elements.div_ceil(length).min(PARTIAL / count).max(1)
}

/// What the text depends on besides the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub op: ReduceOp,
    pub kept: usize,
    pub reduced: usize,
    /// Threads that share a result: [`THREADS`], [`TEAM`] or 1.
    pub team: usize,
}

/// The words before sizes: results, elements of each, elements of a chunk, chunks.
const HEAD: usize = 4;

impl Plan {
    fn variant(self) -> Vec<u32> {
        vec![self.op as u32, self.kept as u32, self.reduced as u32, self.team as u32]
    }

    /// The shader.
    ///
    /// # Errors
    /// If an operation of the kernel does not exist on the GPU for its type.
    pub fn wgsl(self, kernel: &Kernel) -> Result<String> {
        let inputs = generator::inputs_of(kernel, 1);
        let views = HEAD + self.kept + self.reduced;
        let per_view = 1 + self.kept + self.reduced;
        let body = Body::new(kernel, 1, views + inputs.len() * per_view)?;
        let dtype = kernel.output_dtype(0);
        let ty = types::value(wide::wide(dtype));
        let mut text = generator::params_declaration();
        for (k, &i) in inputs.iter().enumerate() {
            text.push_str(&wide::input(k, &format!("in{i}"), kernel.inputs()[i]));
        }
        text.push_str(&wide::output(inputs.len(), "out", self.op.output(dtype)));
        text.push_str(&body.text);
        let _ = writeln!(text, "struct State {{ value: {ty}, place: u32 }}");
        text.push_str(&combine(self.op, dtype));

        // The element number r of the result whose inputs begin at the given addresses.
        let arguments: Vec<String> = inputs.iter().map(|i| format!("b{i}: u32")).collect();
        let _ = writeln!(text, "fn element(r: u32, {}) -> State {{", arguments.join(", "));
        let places: Vec<(String, String, usize)> = inputs
            .iter()
            .enumerate()
            .map(|(k, i)| (format!("p{i}"), format!("b{i}"), views + k * per_view + 1 + self.kept))
            .collect();
        text.push_str(&wide::addresses(self.reduced, "r", HEAD + self.kept, &places));
        let loads: Vec<String> = inputs
            .iter()
            .map(|&i| types::load(kernel.inputs()[i], &format!("in{i}"), &format!("p{i}")))
            .collect();
        // What is reduced is the kernel's output as it would be stored.
        let value = ops::rounded(dtype, &format!("compute({}).y0", loads.join(", ")));
        let _ = writeln!(text, "    return State({}, r);\n}}", wide::widened(dtype, &value));

        text.push_str(&if self.team > 1 {
            format!("var<workgroup> shared_states: array<State, {THREADS}>;\n")
        } else {
            String::new()
        });
        text.push_str(&wide::main(THREADS));
        let [count, elements, length, chunks] = [0, 1, 2, 3].map(generator::param);
        let (team, teams) = (self.team, THREADS / self.team);
        let (first, step) = if team == THREADS {
            let _ = writeln!(
                text,
                "    if unit >= {count} * {chunks} {{ return; }}\n    let o = unit / {chunks}; let chunk = unit % {chunks};"
            );
            ("low + thread".to_string(), THREADS)
        } else if team > 1 {
            // Teams beyond the last result go along with it, since all of a workgroup meet at its
            // barrier; they do not write.
            let _ = writeln!(
                text,
                "    let n = unit * {teams}u + thread / {team}u;\n    let last = min(n, {count} * {chunks} - 1u);\n    \
                 let o = last / {chunks}; let chunk = last % {chunks};"
            );
            (format!("low + thread % {team}u"), team)
        } else {
            let _ = writeln!(
                text,
                "    let n = unit * {THREADS}u + thread;\n    if n >= {count} * {chunks} {{ return; }}\n    let o = n % {count}; let chunk = n / {count};"
            );
            ("low".to_string(), 1)
        };
        let bases: Vec<(String, String, usize)> = inputs
            .iter()
            .enumerate()
            .map(|(k, i)| {
                (format!("b{i}"), generator::param(views + k * per_view), views + k * per_view + 1)
            })
            .collect();
        text.push_str(&wide::addresses(self.kept, "o", HEAD, &bases));
        let names: Vec<String> = inputs.iter().map(|i| format!("b{i}")).collect();
        let _ = writeln!(
            text,
            "    let low = chunk * {length};\n    let high = min(low + {length}, {elements});\n    var acc = neutral();\n    var r = {first};\n    \
             while r < high {{\n        var part = neutral();\n        for (var k = 0; k < 64 && r < high; k++) {{\n            \
             part = combine(part, element(r, {}));\n            r += {step}u;\n        }}\n        acc = combine(acc, part);\n    }}",
            names.join(", ")
        );
        let result = if self.op.is_arg() { "i32(acc.place)" } else { "acc.value" };
        if team == THREADS {
            text.push_str("    shared_states[thread] = acc;\n");
            text.push_str(&wide::joined("shared_states", THREADS, |a, b| {
                format!("combine({a}, {b})")
            }));
            let _ = writeln!(
                text,
                "    if thread == 0u {{ acc = whole; out[o * {chunks} + chunk] = {result}; }}\n}}"
            );
        } else if team > 1 {
            let _ = writeln!(
                text,
                "    shared_states[thread] = acc;\n    workgroupBarrier();\n    if thread % {team}u == 0u && n < {count} * {chunks} {{\n        \
                 for (var i = 1u; i < {team}u; i++) {{ let other = shared_states[thread + i]; acc = combine(acc, other); }}\n        \
                 out[o * {chunks} + chunk] = {result};\n    }}\n}}"
            );
        } else {
            let _ = writeln!(text, "    out[o * {chunks} + chunk] = {result};\n}}");
        }
        Ok(text)
    }
}

/// The neutral state and how two states become one.
fn combine(op: ReduceOp, dtype: DType) -> String {
    let wide = wide::wide(dtype);
    let ty = types::value(wide);
    let float = wide.is_float();
    let best = |name: &str, sign: &str| match float {
        true => format!("{name}_{ty}(a.value, b.value)"),
        false => format!("select(b.value, a.value, a.value {sign} b.value)"),
    };
    let one = if wide.is_float() { format!("{ty}(1.0)") } else { format!("{ty}(1)") };
    let (neutral, value) = match op {
        ReduceOp::Sum => (types::zero(wide).to_string(), "a.value + b.value".to_string()),
        ReduceOp::Prod => (one, "a.value * b.value".to_string()),
        ReduceOp::Max => (wide::extreme(dtype, false).to_string(), best("max", ">")),
        ReduceOp::Min => (wide::extreme(dtype, true).to_string(), best("min", "<")),
        ReduceOp::Any => ("0u".to_string(), "a.value | b.value".to_string()),
        ReduceOp::All => ("1u".to_string(), "a.value & b.value".to_string()),
        ReduceOp::ArgMax | ReduceOp::ArgMin => {
            let sign = if op == ReduceOp::ArgMax { ">" } else { "<" };
            // A NaN beats every number; among equals, and among NaNs, the first wins. No place
            // means no element yet.
            let nan = |v: &str| {
                if float { format!("is_nan_{ty}({v}.value)") } else { "false".to_string() }
            };
            return format!(
                "fn neutral() -> State {{ return State({}, 0xffffffffu); }}\n\
                 fn combine(a: State, b: State) -> State {{\n    if a.place == 0xffffffffu {{ return b; }}\n    if b.place == 0xffffffffu {{ return a; }}\n    \
                 let first = a.place < b.place;\n    let nan_a = {};\n    let nan_b = {};\n    if nan_a || nan_b {{\n        \
                 if nan_a && (first || !nan_b) {{ return a; }}\n        return b;\n    }}\n    \
                 if a.value {sign} b.value || (a.value == b.value && first) {{ return a; }}\n    return b;\n}}\n",
                types::zero(wide),
                nan("a"),
                nan("b"),
            );
        }
    };
    format!(
        "fn neutral() -> State {{ return State({neutral}, 0u); }}\nfn combine(a: State, b: State) -> State {{ return State({value}, 0u); }}\n"
    )
}

impl Wgpu {
    pub(crate) fn fold_axes(&self, op: ReduceOp, x: &Tensor, axes: &[usize]) -> Result<StorageRef> {
        self.fold_kernel(IDENTITY.get(x.dtype(), |x| x)?, &[x], &[], x.shape(), op, axes)
    }

    pub(crate) fn fold_kernel(
        &self,
        kernel: &Arc<Kernel>,
        inputs: &[&Tensor],
        params: &[Scalar],
        shape: &Shape,
        op: ReduceOp,
        axes: &[usize],
    ) -> Result<StorageRef> {
        let dtype = kernel.output_dtype(0);
        for dtype in kernel
            .inputs()
            .iter()
            .chain(kernel.params())
            .copied()
            .chain(kernel.nodes().iter().map(|n| n.dtype))
        {
            self.require(dtype, "reductions")?;
        }
        let used = generator::inputs_of(kernel, 1);
        if inputs.is_empty() {
            return Err(Error::unsupported("a reduction of a kernel without inputs"));
        }
        if used.len() >= MAX_BINDINGS || used.is_empty() {
            let mut outputs = self.map(kernel, inputs, params, shape)?.into_iter();
            let storage =
                outputs.next().ok_or_else(|| Error::internal("a kernel gave no output"))?;
            return self.fold_axes(op, &self.tensor(storage, *shape, dtype, inputs[0])?, axes);
        }
        if self.hides(inputs) {
            return self.fold_kernel(
                kernel,
                &self.all_seen(inputs)?.iter().collect::<Vec<_>>(),
                params,
                shape,
                op,
                axes,
            );
        }
        let others: Vec<usize> = (0..shape.ndim()).filter(|a| !axes.contains(a)).collect();
        let [count, elements] = [&others[..], axes]
            .map(|axes| axes.iter().fold(1, |product: usize, &a| product.saturating_mul(shape[a])));
        self.room(count, op.output(dtype))?;
        if count == 0 {
            return self.allocate(0, op.output(dtype));
        }
        let large = used.iter().any(|&i| self.is_large(inputs[i]));
        if let Some(&axis) = others.iter().find(|&&a| shape[a] > 1)
            && (large || self.exceeds(count, wide::wide(op.output(dtype))))
        {
            return self.fold_kept_halves(kernel, inputs, params, shape, op, axes, axis);
        }
        if op.is_arg() {
            if elements > i32::MAX as usize {
                let message = format!(
                    "an axis of {elements} elements has positions beyond {}, the last one of an i32",
                    i32::MAX
                );
                return Err(Error::unsupported(message).help("reduce parts of the axis"));
            }
            if large {
                return self.arg_halves(kernel, inputs, params, shape, op, axes[0]);
            }
            if count < FEW && elements >= 4 * ARG_CHUNK {
                return self.arg_chunks(kernel, inputs, params, shape, op, axes[0]);
            }
        }
        let out = self.fold_wide(kernel, inputs, params, shape, op, axes)?;
        self.narrow(out, op.output(dtype), inputs[0])
    }

    /// The results in the wide type of theirs: what is reduced in parts is rounded once. More
    /// elements than a launch counts, or than a kernel sees, are reduced in halves of the longest
    /// axis, whose results are reduced together.
    fn fold_wide(
        &self,
        kernel: &Arc<Kernel>,
        inputs: &[&Tensor],
        params: &[Scalar],
        shape: &Shape,
        op: ReduceOp,
        axes: &[usize],
    ) -> Result<StorageRef> {
        let (dtype, used) = (kernel.output_dtype(0), generator::inputs_of(kernel, 1));
        let others: Vec<usize> = (0..shape.ndim()).filter(|a| !axes.contains(a)).collect();
        let [count, elements] =
            [&others[..], axes].map(|axes| axes.iter().map(|&a| shape[a]).product::<usize>());
        if elements > self.max_count || used.iter().any(|&i| self.is_large(inputs[i])) {
            let longest = axes.iter().copied().max_by_key(|&a| shape[a]).filter(|&a| shape[a] > 1);
            let Some(axis) = longest else {
                return Err(Error::internal("a tensor of one element is larger than a binding"));
            };
            let mut halves = Vec::with_capacity(2);
            for (low, high) in [(0, shape[axis] / 2), (shape[axis] / 2, shape[axis])] {
                let parts = inputs
                    .iter()
                    .map(|x| self.piece(x, axis, low, high))
                    .collect::<Result<Vec<_>>>()?;
                let parts: Vec<&Tensor> = parts.iter().collect();
                halves.push(self.fold_wide(
                    kernel,
                    &parts,
                    params,
                    &shape.with_size(axis, high - low),
                    op,
                    axes,
                )?);
            }
            let both = self.join(&halves, wide::wide(dtype), inputs[0])?;
            return self.fold_partial(op, both, &[2, count], 0, dtype, inputs[0]);
        }
        let layouts: Vec<&Layout> = used.iter().map(|&i| inputs[i].layout()).collect();
        let (kept, reduced) = (
            Walk::over(shape, &layouts, &others)?.padded(),
            Walk::over(shape, &layouts, axes)?.padded(),
        );
        // Rows whose elements are neighbours are read by whole groups; columns by neighbouring
        // threads.
        let inner = |walk: &Walk| {
            walk.strides
                .iter()
                .filter_map(|s| s.last())
                .map(|s| s.unsigned_abs())
                .max()
                .unwrap_or(usize::MAX)
        };
        let by_rows = inner(&reduced) <= inner(&kept) || count < 32;
        let team = match elements {
            _ if !by_rows || elements < TEAM_ROWS.0 => 1,
            _ if elements <= TEAM_ROWS.1 && count >= THREADS => TEAM,
            _ => THREADS,
        };
        let chunks = if op.is_arg() { 1 } else { chunks_of(count, elements, team) };
        let length = elements.div_ceil(chunks);
        let plan = Plan { op, kept: kept.sizes.len(), reduced: reduced.sizes.len(), team };

        let mut slot = Params::new();
        slot.counts(
            [count, elements, length, chunks].iter().chain(&kept.sizes).chain(&reduced.sizes),
        );
        for (v, layout) in layouts.iter().enumerate() {
            slot.int(layout.offset() as isize);
            slot.strides(kept.strides[v].iter().chain(&reduced.strides[v]));
        }
        generator::push_scalars(&mut slot, kernel, params);
        let parts = used.iter().map(|&i| self.part(inputs[i])).collect::<Result<Vec<_>>>()?;
        let out = self.allocate(count * chunks, wide::wide(op.output(dtype)))?;
        let groups = (count * chunks).div_ceil(THREADS / team);
        let key = Key { family: "reduce", kernel: Some(kernel.clone()), variant: plan.variant() };
        self.dispatch(&Launch {
            program: Program { key, wgsl: &|| plan.wgsl(kernel) },
            inputs: &parts,
            outputs: &[self.whole(&out)?],
            params: &slot,
            groups: self.fold(groups as u64)?,
        })?;
        if chunks == 1 {
            Ok(out)
        } else {
            self.fold_partial(op, out, &[count, chunks], 1, dtype, inputs[0])
        }
    }

    /// The results of `op` on `dtype` from partial ones, `shape` along `axis`, in the wide type
    /// like those.
    fn fold_partial(
        &self,
        op: ReduceOp,
        partial: StorageRef,
        shape: &[usize],
        axis: usize,
        dtype: DType,
        like: &Tensor,
    ) -> Result<StorageRef> {
        let shape = Shape::new(shape)?;
        let partial = self.tensor(partial, shape, wide::wide(dtype), like)?;
        // Truth values are 0 and 1 here: any is the largest, all the smallest.
        let op = match op {
            ReduceOp::Any => ReduceOp::Max,
            ReduceOp::All => ReduceOp::Min,
            ReduceOp::Sum
            | ReduceOp::Prod
            | ReduceOp::Max
            | ReduceOp::Min
            | ReduceOp::ArgMax
            | ReduceOp::ArgMin => op,
        };
        self.fold_wide(IDENTITY.get(partial.dtype(), |x| x)?, &[&partial], &[], &shape, op, &[axis])
    }

    /// A reduction of inputs, or to results, larger than a binding: on halves of the kept `axis`,
    /// the first one, whose results are behind each other.
    #[allow(clippy::too_many_arguments)]
    fn fold_kept_halves(
        &self,
        kernel: &Arc<Kernel>,
        inputs: &[&Tensor],
        params: &[Scalar],
        shape: &Shape,
        op: ReduceOp,
        axes: &[usize],
        axis: usize,
    ) -> Result<StorageRef> {
        let output = op.output(kernel.output_dtype(0));
        let below =
            (axis + 1..shape.ndim()).filter(|a| !axes.contains(a)).map(|a| shape[a]).product();
        let mid = Wgpu::cut(shape[axis], below, output);
        let mut halves = Vec::with_capacity(2);
        for (low, high) in [(0, mid), (mid, shape[axis])] {
            let parts = inputs
                .iter()
                .map(|x| self.piece(x, axis, low, high))
                .collect::<Result<Vec<_>>>()?;
            halves.push(self.fold_kernel(
                kernel,
                &parts.iter().collect::<Vec<_>>(),
                params,
                &shape.with_size(axis, high - low),
                op,
                axes,
            )?);
        }
        self.join(&halves, output, inputs[0])
    }

    /// The position in one line larger than a binding: the values at the positions in both halves
    /// decide.
    fn arg_halves(
        &self,
        kernel: &Arc<Kernel>,
        inputs: &[&Tensor],
        params: &[Scalar],
        shape: &Shape,
        op: ReduceOp,
        axis: usize,
    ) -> Result<StorageRef> {
        let (like, size, mid) = (inputs[0], shape[axis], shape[axis] / 2);
        let mut halves = Vec::with_capacity(2);
        for (low, high) in [(0, mid), (mid, size)] {
            let parts = inputs
                .iter()
                .map(|x| self.piece(x, axis, low, high))
                .collect::<Result<Vec<_>>>()?;
            let half = self.fold_kernel(
                kernel,
                &parts.iter().collect::<Vec<_>>(),
                params,
                &shape.with_size(axis, high - low),
                op,
                &[axis],
            )?;
            halves.push(self.tensor(half, Shape::new(&[])?, DType::I32, like)?);
        }
        let (first, second) = (&halves[0], &halves[1]);
        // Equal values and NaN keep the first.
        let value = |position: &Tensor, from: usize| -> Result<Tensor> {
            let at = usize::try_from(position.item::<i32>()?)
                .map_err(|_| Error::internal("a position is negative"))?
                + from;
            let parts = inputs
                .iter()
                .map(|x| self.piece(x, axis, at, at + 1))
                .collect::<Result<Vec<_>>>()?;
            let mut y = self
                .map(kernel, &parts.iter().collect::<Vec<_>>(), params, &shape.with_size(axis, 1))?
                .into_iter();
            let y = y.next().ok_or_else(|| Error::internal("a kernel gave no output"))?;
            self.tensor(y, Shape::new(&[1])?, kernel.output_dtype(0), like)
        };
        let values = Tensor::cat(&[&value(first, 0)?, &value(second, mid)?], 0)?;
        let better = if op == ReduceOp::ArgMax { values.argmax(0)? } else { values.argmin(0)? };
        let mid = i32::try_from(mid).map_err(|_| error::beyond(mid))?;
        Ok(better.eq(0)?.select(first, second.add(mid)?)?.storage().clone())
    }

    /// Positions in few long lines: the position within each chunk, then the best chunk. The first
    /// best wins in both.
    fn arg_chunks(
        &self,
        kernel: &Arc<Kernel>,
        inputs: &[&Tensor],
        params: &[Scalar],
        shape: &Shape,
        op: ReduceOp,
        axis: usize,
    ) -> Result<StorageRef> {
        let (like, dtype) = (inputs[0], kernel.output_dtype(0));
        let y = if kernel.passes_through(0).is_some() && inputs.len() == 1 {
            inputs[0].clone()
        } else {
            let mut y = self.map(kernel, inputs, params, shape)?.into_iter();
            self.tensor(
                y.next().ok_or_else(|| Error::internal("a kernel gave no output"))?,
                *shape,
                dtype,
                like,
            )?
        };
        let length = shape[axis];
        let (lines, chunks) = (shape.numel() / length, length.div_ceil(ARG_CHUNK));
        let flat = y.transpose(axis as isize, -1)?;
        let outer = *flat.shape();
        // What fills the last chunk comes last, so it wins against nothing that is there.
        let fill = wide::worst(dtype, op == ReduceOp::ArgMin);
        let cut = flat
            .reshape((lines, length))?
            .pad(&[(0, 0), (0, (chunks * ARG_CHUNK - length) as isize)], fill)?;
        let cut = cut.reshape((lines, chunks, ARG_CHUNK))?;
        let arg = |x: &Tensor, axis: isize| {
            if op == ReduceOp::ArgMax { x.argmax(axis) } else { x.argmin(axis) }
        };
        let within = arg(&cut, 2)?; // (lines, chunks)
        let best = cut.gather(2, &within.unsqueeze(2)?)?.squeeze(2)?;
        let chunk = arg(&best, 1)?.unsqueeze(1)?; // (lines, 1)
        let place = chunk.mul(ARG_CHUNK as i32)?.add(&within.gather(1, &chunk)?)?;
        // The axis that is reduced was last: its place is now taken by the one it was exchanged
        // with.
        let mut sizes = outer.to_vec();
        let last = sizes.len() - 1;
        sizes[last] = 1;
        self.packed(&place.reshape(&sizes[..])?.transpose(axis as isize, -1)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::MAX_COUNT;
    use teeny_core::{DeviceRef, Reference};

    #[test]
    fn chunks_cover_every_element_and_stay_few() {
        let sizes =
            [1, 2, 63, 64, 65, 8191, 8193, 1 << 20, (1 << 31) + 7, MAX_COUNT - 1, MAX_COUNT];
        for count in [1, 2, 31, 500, 60_000, 1 << 20, 1 << 31] {
            for elements in sizes {
                for team in [1, TEAM, THREADS] {
                    let chunks = chunks_of(count, elements, team);
                    let length = elements.div_ceil(chunks);
                    assert!(
                        chunks * length >= elements && (chunks == 1 || count * chunks <= PARTIAL),
                        "{count} {elements} {team}"
                    );
                    // The sum that ends a chunk in the shader stays below 2^32.
                    assert!(
                        (chunks - 1) * length + length <= u32::MAX as usize,
                        "{count} {elements} {team}"
                    );
                }
            }
        }
    }

    #[test]
    fn more_elements_than_a_launch_counts_are_reduced_in_parts() -> Result<()> {
        let Ok(mut gpu) = Wgpu::new() else { return Ok(()) };
        Arc::get_mut(&mut gpu).unwrap().max_count = 1000;
        let (device, oracle) = (gpu as DeviceRef, Reference::new() as DeviceRef);
        type Op = fn(&Tensor) -> Result<Tensor>;
        let ops: [(&str, Op); 8] = [
            ("sum", |x| x.sum_all()),
            ("sum of rows", |x| x.sum(1)),
            ("sum of columns", |x| x.sum(0)),
            ("max", |x| x.max_all()),
            ("sum of squares", |x| x.mul(x)?.sum_all()),
            ("any", |x| x.eq(4)?.any(0)),
            ("all", |x| x.le(4)?.all(1)),
            ("product", |x| x.reshape((1, x.numel()))?.matmul(&x.reshape((x.numel(), 1))?)),
        ];
        for dtype in [DType::F32, DType::F16, DType::I32, DType::U8] {
            for (name, op) in ops {
                let run = |device: &DeviceRef| {
                    // (5, 1)
                    let x = Tensor::arange(0i32, 5, 1, device)?.cast(dtype)?.unsqueeze(1)?;
                    op(&x.expand((5, 3500))?)?.to_scalars()
                };
                assert!(run(&device)? == run(&oracle)?, "{name} of {dtype}");
            }
        }
        Ok(())
    }

    #[test]
    fn positions_beyond_those_of_an_i32_are_refused() -> Result<()> {
        let Ok(gpu) = Wgpu::new() else { return Ok(()) };
        let device = gpu.clone() as DeviceRef;
        let ones = Tensor::full(1, 1, DType::U8, &device)?.expand((1usize << 31) + 8)?;
        for op in [ReduceOp::ArgMax, ReduceOp::ArgMin] {
            assert!(gpu.fold_axes(op, &ones, &[0]).is_err());
        }
        Ok(())
    }
}
