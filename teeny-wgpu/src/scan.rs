//! Running sums and products: one workgroup per line goes through it tile by tile, a scan in shared memory and a carry from tile to tile.
//!
//! Few long lines are cut into chunks, each scanned as a line of its own; then the chunks' totals are scanned, and what comes before a chunk is added to it:
//! three passes that use the whole GPU instead of one workgroup.

use crate::device::{Launch, Wgpu};
use crate::generator::{self, types};
use crate::params::Params;
use crate::pipeline::{Key, Program};
use crate::walk::Walk;
use crate::wide;
use std::fmt::Write;
use teeny_core::{DType, Layout, Result, Scalar, ScanOp, StorageRef, Tensor};

const THREADS: usize = 128;
/// Elements of a chunk of a long line.
const CHUNK: usize = 2048;
/// Lines that keep a GPU busy without being cut.
const LINES: usize = 64;
/// Words 0..: lines, length of a line, stride of x and of the result along it.
const HEAD: usize = 4;

/// The shader; views over the lines: x, result.
pub(crate) fn wgsl(rank: usize, dtype: DType, op: ScanOp) -> String {
    let wide_type = wide::wide(dtype);
    let ty = types::value(wide_type);
    let (neutral, sign) = match op {
        ScanOp::Sum => (types::zero(wide_type).to_string(), "+"),
        ScanOp::Prod => (format!("{ty}({})", if wide_type.is_float() { "1.0" } else { "1" }), "*"),
    };
    let (x, y) = (HEAD + rank, HEAD + 2 * rank + 1);
    let mut text = generator::params_declaration();
    text.push_str(&wide::input(0, "source", dtype));
    text.push_str(&wide::output(1, "out", dtype));
    let _ = writeln!(text, "var<workgroup> tile: array<{ty}, {THREADS}>;");
    text.push_str(&wide::main(THREADS));
    let _ = writeln!(text, "    if unit >= {} {{ return; }}", generator::param(0));
    let views = [("a".to_string(), generator::param(x), x + 1), ("b".to_string(), "0u".to_string(), y)];
    text.push_str(&wide::addresses(rank, "unit", HEAD, &views));
    let (length, step_x, step_y) = (generator::param(1), generator::param(2), generator::param(3));
    let load = wide::widened(dtype, &types::load(dtype, "source", "p"));
    let _ = writeln!(
        text,
        "    var carry = {neutral};\n    for (var low = 0u; low < {length}; low += {THREADS}u) {{\n        let r = low + thread;\n        \
         var value = {neutral};\n        if r < {length} {{ let p = a + r * {step_x}; value = {load}; }}\n        tile[thread] = value;\n        \
         workgroupBarrier();\n        for (var reach = 1u; reach < {THREADS}u; reach = reach << 1u) {{\n            var before = {neutral};\n            \
         if thread >= reach {{ before = tile[thread - reach]; }}\n            workgroupBarrier();\n            \
         if thread >= reach {{ tile[thread] = before {sign} tile[thread]; }}\n            workgroupBarrier();\n        }}\n        \
         if r < {length} {{ out[b + r * {step_y}] = carry {sign} tile[thread]; }}\n        carry = carry {sign} tile[{}u];\n        \
         workgroupBarrier();\n    }}\n}}",
        THREADS - 1
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
            if x.numel() == length {
                return self.scan_halves(op, x, axis);
            }
            let [y] = self.by_halves(&[x], axis, [dtype], length, |parts, axis| Ok([self.scan_along(op, parts[0], axis)?]))?;
            return Ok(y);
        }
        if length >= 4 * CHUNK && x.numel() / length < LINES {
            return self.scan_chunks(op, x, axis);
        }
        let out = self.allocate(x.numel(), wide::wide(dtype))?;
        let target = Layout::contiguous(*x.shape());
        let others: Vec<usize> = (0..x.ndim()).filter(|&a| a != axis).collect();
        let walk = Walk::over(x.shape(), &[x.layout(), &target], &others)?.padded();
        let lines = x.numel() / x.shape()[axis];
        let rank = walk.sizes.len();
        let mut slot = Params::new();
        slot.int(lines as isize);
        slot.int(x.shape()[axis] as isize);
        slot.int(x.layout().strides()[axis]);
        slot.int(target.strides()[axis]);
        walk.sizes.iter().for_each(|&n| _ = slot.int(n as isize));
        slot.int(x.layout().offset() as isize);
        walk.strides.iter().flatten().for_each(|&s| _ = slot.int(s));
        self.dispatch(&Launch {
            program: Program { key: Key::new("scan", [rank as u32, dtype as u32, op as u32]), wgsl: &|| Ok(wgsl(rank, dtype, op)) },
            inputs: &[self.part(x)?],
            outputs: &[self.whole(&out)?],
            params: &slot,
            groups: self.fold(lines as u64)?,
        })?;
        self.narrow(out, dtype, x)
    }

    /// Both operands as one: what a scan does at each step.
    fn joined(op: ScanOp, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        match op {
            ScanOp::Sum => a.add(b),
            ScanOp::Prod => a.mul(b),
        }
    }

    /// The scan of few long lines, by chunks.
    fn scan_chunks(&self, op: ScanOp, x: &Tensor, axis: usize) -> Result<StorageRef> {
        let (length, axis) = (x.shape()[axis], axis as isize);
        let (lines, chunks) = (x.numel() / length, length.div_ceil(CHUNK));
        let neutral = match op {
            ScanOp::Sum => Scalar::Int(0),
            ScanOp::Prod => Scalar::Int(1),
        };
        let flat = x.transpose(axis, -1)?.reshape((lines, length))?;
        let cut = flat.pad(&[(0, 0), (0, (chunks * CHUNK - length) as isize)], neutral)?.reshape((lines * chunks, CHUNK))?;
        let scanned = self.tensor(self.scan_along(op, &cut, 1)?, *cut.shape(), x.dtype(), x).reshape((lines, chunks, CHUNK))?;
        let totals = scanned.slice(2, -1..)?.squeeze(2)?; // (lines, chunks)
        let totals = self.tensor(self.scan_along(op, &totals, 1)?, *totals.shape(), x.dtype(), x);
        let before = totals.pad(&[(0, 0), (1, -1)], neutral)?.unsqueeze(2)?; // (lines, chunks, 1)
        let whole = Self::joined(op, &scanned, &before)?.reshape((lines, chunks * CHUNK))?.slice(1, 0..length as isize)?;
        let turned: Vec<usize> = x.transpose(axis, -1)?.shape().to_vec();
        self.packed(&whole.reshape(&turned[..])?.transpose(axis, -1)?)
    }

    /// The scan of one line larger than a binding.
    fn scan_halves(&self, op: ScanOp, x: &Tensor, axis: usize) -> Result<StorageRef> {
        let (length, dtype) = (x.shape()[axis], x.dtype());
        let mid = Wgpu::cut(length, 1, dtype);
        let [low, high] = [(0, mid), (mid, length)].map(|(from, to)| {
            let part = self.piece(x, axis, from, to)?;
            Ok::<_, teeny_core::Error>(self.tensor(self.scan_along(op, &part, axis)?, *part.shape(), dtype, x))
        });
        let (low, high) = (low?, high?);
        let last = low.slice(axis as isize, -1..)?;
        self.join(&[low.storage().clone(), Self::joined(op, &high, &last)?.storage().clone()], dtype, x)
    }
}
