//! Running sums and products: one workgroup per line goes through it tile by tile, a scan in shared memory and a carry from tile to tile.
//!
//! REGRET: a single long line occupies one workgroup; a three-pass scan would use the whole GPU.

use crate::device::{Launch, Wgpu};
use crate::generator::{self, types};
use crate::params::Params;
use crate::pipeline::{Key, Program};
use crate::walk::Walk;
use crate::wide;
use std::fmt::Write;
use teeny_core::{DType, Layout, Result, ScanOp, StorageRef, Tensor};

const THREADS: usize = 128;
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
        let out = self.allocate(x.numel(), wide::wide(dtype))?;
        if x.numel() == 0 {
            return self.narrow(out, dtype, x);
        }
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
}
