//! Running sums and products.
//!
//! ```text
//! short lines, or many with neighbours in other lines    a thread goes through each line
//! lines                                                  a workgroup goes through each, 1024 elements at a time, with a carry
//! few long lines     totals of chunks │ their scan │ chunks with the total before them as the carry     the whole GPU, x read twice
//! ```
//!
//! Sums are made of blocks whose places depend on the sizes alone: the same bits in every run, and
//! errors that grow slower than the line.

use crate::device::{Launch, Wgpu};
use crate::generator::{self, types};
use crate::params::Params;
use crate::pipeline::{Key, Program};
use crate::walk::Walk;
use crate::wide;
use std::fmt::Write;
use teeny_core::{DType, Layout, Result, ScanOp, Shape, StorageRef, Tensor};

const THREADS: usize = 128;
/// Neighbouring elements of a thread.
const EACH: usize = 8;
const TILE: usize = THREADS * EACH;
/// Threads that scan the threads' parts, and how many parts each has.
const PARTS: usize = 8;
const SHARE: usize = THREADS / PARTS;
/// Lines up to this length are short.
const SHORT: usize = 64;
/// Lines that keep a GPU busy with a thread each, and with a workgroup each.
const MANY: usize = 4096;
const LINES: usize = 64;
/// The least elements of a chunk of a long line, and the most chunks.
const CHUNK: usize = 2 * TILE;
const CHUNKS: usize = 1024;
/// Words 0..: lines, length of a line, stride of x and of the result along it, chunks of a line,
/// their length.
const HEAD: usize = 6;

/// What a launch does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// Scans lines, a thread for each.
    Threads = 0,
    /// Scans lines, a workgroup for each.
    Groups = 1,
    /// The total of every chunk.
    Totals = 2,
    /// Scans chunks, each beginning with the total of those before it.
    Carried = 3,
}

/// The shader; views over the lines: x, result.
pub(crate) fn wgsl(pass: Pass, rank: usize, dtype: DType, op: ScanOp) -> String {
    let wide_type = wide::wide(dtype);
    let ty = types::value(wide_type);
    let (neutral, sign) = match op {
        ScanOp::Sum => (types::zero(wide_type).to_string(), "+"),
        ScanOp::Prod => (format!("{ty}({})", if wide_type.is_float() { "1.0" } else { "1" }), "*"),
    };
    let [lines, length, step_x, step_y, chunks, chunk] = [0, 1, 2, 3, 4, 5].map(generator::param);
    let (x, y) = (HEAD + rank, HEAD + 2 * rank + 1);
    let views =
        [("a".to_string(), generator::param(x), x + 1), ("b".to_string(), "0u".to_string(), y)];
    let load = wide::widened(dtype, &types::load(dtype, "source", "p"));
    let mut text = generator::params_declaration();
    text.push_str(&wide::input(0, "source", dtype));
    if pass == Pass::Carried {
        text.push_str(&wide::input(1, "totals", wide_type));
    }
    text.push_str(&wide::output(if pass == Pass::Carried { 2 } else { 1 }, "out", dtype));
    if pass == Pass::Threads {
        let _ = writeln!(
            text,
            "{}    let line = unit * {THREADS}u + thread;\n    if line >= {lines} {{ return; }}\n{}    var sum = {neutral};\n    \
             for (var r = 0u; r < {length}; r++) {{ let p = a + r * {step_x}; sum = sum {sign} {load}; out[b + r * {step_y}] = sum; }}\n}}",
            wide::main(THREADS),
            wide::addresses(rank, "line", HEAD, &views)
        );
        return text;
    }
    let _ = writeln!(
        text,
        "var<workgroup> parts: array<{ty}, {THREADS}>;\nvar<workgroup> sums: array<{ty}, {PARTS}>;"
    );
    let _ = writeln!(
        text,
        "{}    if unit >= {lines} * {chunks} {{ return; }}\n    let line = unit / {chunks};\n    let low = unit % {chunks} * {chunk};\n    \
         let high = min(low + {chunk}, {length});\n{}",
        wide::main(THREADS),
        wide::addresses(rank, "line", HEAD, &views)
    );
    if pass == Pass::Totals {
        let _ = writeln!(
            text,
            "    var sum = {neutral};\n    for (var r = low + thread; r < high; r += {THREADS}u) {{ let p = a + r * {step_x}; sum = sum {sign} {load}; }}\n    \
             parts[thread] = sum;\n{}    if thread == 0u {{ out[unit] = whole; }}\n}}",
            wide::joined("parts", THREADS, |a, b| format!("{a} {sign} {b}"))
        );
        return text;
    }
    let carry = match pass {
        Pass::Carried => format!(
            "    var carry = {neutral};\n    if low > 0u {{ carry = totals[unit - 1u]; }}\n"
        ),
        Pass::Threads | Pass::Groups | Pass::Totals => format!("    var carry = {neutral};\n"),
    };
    // Each thread's part; eight threads scan sixteen parts each; then every thread knows what comes
    // before it.
    let _ = writeln!(
        text,
        "{carry}    for (var tile = low; tile < high; tile += {TILE}u) {{\n        let first = tile + thread * {EACH}u;\n        \
         let last = min(first + {EACH}u, high);\n        var own = {neutral};\n        \
         for (var r = first; r < last; r++) {{ let p = a + r * {step_x}; own = own {sign} {load}; }}\n        parts[thread] = own;\n        \
         workgroupBarrier();\n        if thread < {PARTS}u {{\n            var sum = {neutral};\n            \
         for (var i = thread * {SHARE}u; i < (thread + 1u) * {SHARE}u; i++) {{ let here = parts[i]; parts[i] = sum; sum = sum {sign} here; }}\n            \
         sums[thread] = sum;\n        }}\n        workgroupBarrier();\n        var before = {neutral};\n        \
         for (var i = 0u; i < thread / {SHARE}u; i++) {{ before = before {sign} sums[i]; }}\n        \
         var value = carry {sign} (before {sign} parts[thread]);\n        \
         for (var r = first; r < last; r++) {{ let p = a + r * {step_x}; value = value {sign} {load}; out[b + r * {step_y}] = value; }}\n        \
         var all = {neutral};\n        for (var i = 0u; i < {PARTS}u; i++) {{ all = all {sign} sums[i]; }}\n        carry = carry {sign} all;\n        \
         workgroupBarrier();\n    }}\n}}"
    );
    text
}

impl Wgpu {
    pub(crate) fn scan_along(&self, op: ScanOp, x: &Tensor, axis: usize) -> Result<StorageRef> {
        let dtype = x.dtype();
        self.require(dtype, "scans")?;
        if x.numel() == 0 {
            return self.allocate(0, dtype);
        }
        let length = x.shape()[axis];
        if self.is_large(x) || self.exceeds(x.numel(), wide::wide(dtype)) {
            self.room(x.numel(), dtype)?;
            if self.hides(&[x]) {
                return self.scan_along(op, &self.seen(x)?, axis);
            }
            if x.numel() == length {
                return self.scan_halves(op, x, axis);
            }
            let [y] = self.by_halves(&[x], axis, [dtype], length, |parts, axis| {
                Ok([self.scan_along(op, parts[0], axis)?])
            })?;
            return Ok(y);
        }
        let lines = x.numel() / length;
        let neighbours = x.layout().strides()[axis].unsigned_abs() <= 1;
        let out = self.allocate(x.numel(), wide::wide(dtype))?;
        if length <= SHORT || (lines >= MANY && !neighbours) {
            self.scan_pass(Pass::Threads, op, x, axis, (1, length), None, &out)?;
        } else if length < 2 * CHUNK || lines >= LINES {
            self.scan_pass(Pass::Groups, op, x, axis, (1, length), None, &out)?;
        } else {
            let chunk = length.div_ceil(CHUNKS).next_multiple_of(TILE).max(CHUNK);
            let chunks = length.div_ceil(chunk);
            let totals = self.allocate(lines * chunks, wide::wide(dtype))?;
            self.scan_pass(Pass::Totals, op, x, axis, (chunks, chunk), None, &totals)?;
            let totals =
                self.tensor(totals, Shape::new(&[lines, chunks])?, wide::wide(dtype), x)?;
            let totals = self.scan_along(op, &totals, 1)?;
            self.scan_pass(Pass::Carried, op, x, axis, (chunks, chunk), Some(&totals), &out)?;
        }
        self.narrow(out, dtype, x)
    }

    /// One launch, for `chunks` chunks of `chunk` elements in each line.
    #[allow(clippy::too_many_arguments)]
    fn scan_pass(
        &self,
        pass: Pass,
        op: ScanOp,
        x: &Tensor,
        axis: usize,
        (chunks, chunk): (usize, usize),
        totals: Option<&StorageRef>,
        out: &StorageRef,
    ) -> Result<()> {
        let target = Layout::contiguous(*x.shape());
        let others: Vec<usize> = (0..x.ndim()).filter(|&a| a != axis).collect();
        let walk = Walk::over(x.shape(), &[x.layout(), &target], &others)?.padded();
        let (rank, lines) = (walk.sizes.len(), x.numel() / x.shape()[axis]);
        let mut slot = Params::new();
        slot.counts(&[lines, x.shape()[axis]]);
        slot.int(x.layout().strides()[axis]);
        slot.int(target.strides()[axis]);
        slot.counts([chunks, chunk].iter().chain(&walk.sizes));
        slot.int(x.layout().offset() as isize);
        slot.strides(walk.strides.iter().flatten());
        let mut inputs = vec![self.part(x)?];
        if let Some(totals) = totals {
            inputs.push(self.whole(totals)?);
        }
        let variant = [rank as u32, x.dtype() as u32, op as u32, pass as u32];
        self.dispatch(&Launch {
            program: Program {
                key: Key::new("scan", variant),
                wgsl: &|| Ok(wgsl(pass, rank, x.dtype(), op)),
            },
            inputs: &inputs,
            outputs: &[self.whole(out)?],
            params: &slot,
            groups: self.fold(if pass == Pass::Threads {
                lines.div_ceil(THREADS)
            } else {
                lines * chunks
            } as u64)?,
        })
    }

    /// Both operands as one: what a scan does at each step.
    fn joined(op: ScanOp, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        match op {
            ScanOp::Sum => a.add(b),
            ScanOp::Prod => a.mul(b),
        }
    }

    /// The scan of one line larger than a binding.
    fn scan_halves(&self, op: ScanOp, x: &Tensor, axis: usize) -> Result<StorageRef> {
        let (length, dtype) = (x.shape()[axis], x.dtype());
        let mid = Wgpu::cut(length, 1, dtype);
        let [low, high] = [(0, mid), (mid, length)].map(|(from, to)| {
            let part = self.piece(x, axis, from, to)?;
            self.tensor(self.scan_along(op, &part, axis)?, *part.shape(), dtype, x)
        });
        let (low, high) = (low?, high?);
        let last = low.slice(axis as isize, -1..)?;
        self.join(
            &[low.storage().clone(), Self::joined(op, &high, &last)?.storage().clone()],
            dtype,
            x,
        )
    }
}
