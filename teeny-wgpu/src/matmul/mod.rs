//! Matrix products of batches of strided views.
//!
//! Three kernels: `Tiled` shares pieces of both matrices among 256 threads; `Dot` gives each result a workgroup that runs along k, for thin matrices;
//! `Single` gives each result a thread, for what is left. All read the operands where they lie: a transposed view is another pair of strides. 16-bit floats
//! are accumulated in f32, integers wrap; the order of additions is fixed, so the same product gives the same bits.

use crate::device::{Launch, Wgpu};
use crate::generator::{self, types};
use crate::params::Params;
use crate::pipeline::{Key, Program};
use crate::walk::Walk;
use crate::wide;
use std::fmt::Write;
use teeny_core::{DType, Result, Scalar, Shape, StorageRef, Tensor};

/// Results along each side of a tile, and the part of that side that one thread has.
const TILE: usize = 64;
const PART: usize = 4;
const TILED_THREADS: usize = 256;
/// Columns of lhs in workgroup memory at a time.
const DEPTH: usize = 16;
const THREADS: usize = 64;
/// Words 0..: m, k, n, strides of lhs (row, k) and rhs (k, column), their offsets, number of matrices, tiles down and across.
const HEAD: usize = 12;

/// Which kernel makes the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Tiles; whether k is the faster axis of lhs and of rhs decides how threads share the loading.
    Tiled { lhs_k_fastest: bool, rhs_k_fastest: bool },
    /// A workgroup per result.
    Dot,
    /// A thread per result.
    Single,
}

impl Way {
    fn choose(m: usize, k: usize, n: usize, lhs: [isize; 2], rhs: [isize; 2]) -> Way {
        let k_fastest = |other: isize, k: isize| k.unsigned_abs() < other.unsigned_abs();
        if m >= DEPTH && n >= DEPTH {
            return Way::Tiled { lhs_k_fastest: k_fastest(lhs[0], lhs[1]), rhs_k_fastest: k_fastest(rhs[1], rhs[0]) };
        }
        // Along k neighbouring threads should read neighbouring elements of the larger matrix.
        let (larger_k, long) = (if m >= n { lhs[1] } else { rhs[0] }, k >= 2 * THREADS);
        if long && (larger_k.unsigned_abs() <= 1 || m * n < 1024) { Way::Dot } else { Way::Single }
    }

    fn code(self) -> u32 {
        match self {
            Way::Tiled { lhs_k_fastest, rhs_k_fastest } => lhs_k_fastest as u32 | (rhs_k_fastest as u32) << 1,
            Way::Dot => 4,
            Way::Single => 5,
        }
    }
}

/// The shader for operands of type `dtype` with `rank` batch axes.
pub(crate) fn wgsl(way: Way, rank: usize, dtype: DType) -> String {
    let value = types::value(wide::wide(dtype));
    let mut text = generator::params_declaration();
    for (i, name) in ["lhs", "rhs"].into_iter().enumerate() {
        text.push_str(&wide::input(i, name, dtype));
    }
    text.push_str(&wide::output(2, "out", dtype));
    let words = ["ROWS", "INNER", "COLUMNS", "LHS_ROW", "LHS_K", "RHS_K", "RHS_COLUMN"];
    let fill = |template: &str| words.iter().enumerate().fold(template.to_string(), |text, (at, word)| text.replace(word, &generator::param(at)));
    let load = |name: &str, at: &str| types::load(dtype, name, at);
    let addresses = |from: &str| {
        let view = |name: &str, i: usize| (name.to_string(), generator::param(7 + i), HEAD + rank * (1 + i));
        wide::addresses(rank, from, HEAD, &[view("a", 0), view("b", 1)])
    };
    match way {
        Way::Tiled { lhs_k_fastest, rhs_k_fastest } => {
            let template =
                include_str!("tiled.wgsl").replace("VALUE", value).replace("LOAD_LHS", &load("lhs", "p")).replace("LOAD_RHS", &load("rhs", "p"));
            let template = template.replace("LHS_K_FASTEST", &lhs_k_fastest.to_string()).replace("RHS_K_FASTEST", &rhs_k_fastest.to_string());
            text.push_str(&fill(&template));
            text.push_str(&wide::main(TILED_THREADS));
            let (down, across) = (generator::param(10), generator::param(11));
            let _ = writeln!(
                text,
                "    let tiles = {down} * {across};\n    let matrix = unit / tiles;\n    if matrix >= {} {{ return; }}",
                generator::param(9)
            );
            let _ = writeln!(text, "    let row0 = ((unit % tiles) / {across}) * {TILE}u;\n    let column0 = ((unit % tiles) % {across}) * {TILE}u;");
            text.push_str(&addresses("matrix"));
            text.push_str(&fill(&tile(value)));
        }
        Way::Dot => {
            let _ = writeln!(text, "var<workgroup> parts: array<{value}, {THREADS}>;");
            text.push_str(&wide::main(THREADS));
            text.push_str(&fill("    let size = ROWS * COLUMNS;\n    let matrix = unit / size;\n"));
            let _ = writeln!(text, "    if matrix >= {} {{ return; }}", generator::param(9));
            text.push_str(&addresses("matrix"));
            let body = format!(
                "    let x = a + ((unit % size) / COLUMNS) * LHS_ROW;\n    let y = b + ((unit % size) % COLUMNS) * RHS_COLUMN;\n    var sum = {value}(0);\n    \
                 for (var k = thread; k < INNER; k += {THREADS}u) {{ let p = x + k * LHS_K; let q = y + k * RHS_K; sum += {} * {}; }}\n    \
                 parts[thread] = sum;\n    for (var half = {}u; half > 0u; half = half >> 1u) {{\n        workgroupBarrier();\n        \
                 if thread < half {{ parts[thread] += parts[thread + half]; }}\n    }}\n    if thread == 0u {{ out[unit] = parts[0]; }}\n}}\n",
                load("lhs", "p"),
                load("rhs", "q"),
                THREADS / 2
            );
            text.push_str(&fill(&body));
        }
        Way::Single => {
            text.push_str(&wide::main(THREADS));
            let _ = writeln!(text, "    let at = unit * {THREADS}u + thread;");
            text.push_str(&fill("    let size = ROWS * COLUMNS;\n    let matrix = at / size;\n"));
            let _ = writeln!(text, "    if matrix >= {} {{ return; }}", generator::param(9));
            text.push_str(&addresses("matrix"));
            let body = format!(
                "    let x = a + ((at % size) / COLUMNS) * LHS_ROW;\n    let y = b + ((at % size) % COLUMNS) * RHS_COLUMN;\n    var sum = {value}(0);\n    \
                 for (var k = 0u; k < INNER; k += 1u) {{ let p = x + k * LHS_K; let q = y + k * RHS_K; sum += {} * {}; }}\n    out[at] = sum;\n}}\n",
                load("lhs", "p"),
                load("rhs", "q")
            );
            text.push_str(&fill(&body));
        }
    }
    text
}

/// The loop over k and the writing of a thread's results, unrolled: accumulators in an array would not stay in registers everywhere.
fn tile(value: &str) -> String {
    let mut text = format!("    let row = (thread / {0}u) * {PART}u;\n    let column = (thread % {0}u) * {PART}u;\n", TILE / PART);
    let cells = || (0..PART).flat_map(|i| (0..PART).map(move |j| (i, j)));
    for (i, j) in cells() {
        let _ = writeln!(text, "    var s{i}{j} = {value}(0);");
    }
    let _ = writeln!(
        text,
        "    for (var k0 = 0u; k0 < INNER; k0 += {DEPTH}u) {{\n        load_left(a, row0, k0, thread);\n        load_right(b, column0, k0, thread);\n        \
         workgroupBarrier();\n        for (var k = 0u; k < {DEPTH}u; k += 1u) {{"
    );
    for i in 0..PART {
        let _ = writeln!(text, "            let l{i} = left[k * {TILE}u + row + {i}u];\n            let r{i} = right[k * {TILE}u + column + {i}u];");
    }
    for (i, j) in cells() {
        let _ = writeln!(text, "            s{i}{j} += l{i} * r{j};");
    }
    text.push_str("        }\n        workgroupBarrier();\n    }\n    let first = matrix * (ROWS * COLUMNS);\n");
    for (i, j) in cells() {
        let _ = writeln!(
            text,
            "    if row0 + row + {i}u < ROWS && column0 + column + {j}u < COLUMNS {{ out[first + (row0 + row + {i}u) * COLUMNS + column0 + column + {j}u] = s{i}{j}; }}"
        );
    }
    text.push_str("}\n");
    text
}

impl Wgpu {
    /// The product of two batches of matrices with equal leading sizes.
    pub(crate) fn product(&self, lhs: &Tensor, rhs: &Tensor) -> Result<StorageRef> {
        let dtype = lhs.dtype();
        self.require(dtype, "matmul")?;
        let axes = lhs.ndim();
        let (m, k, n) = (lhs.shape()[axes - 2], lhs.shape()[axes - 1], rhs.shape()[axes - 1]);
        let batch: usize = lhs.shape()[..axes - 2].iter().product();
        let count = batch * m * n;
        if count == 0 {
            return self.allocate(0, dtype);
        }
        if k == 0 {
            let zeros = Tensor::full(Shape::new(&[count])?, Scalar::Int(0), dtype, lhs)?;
            return Ok(zeros.storage().clone());
        }
        let out = self.allocate(count, wide::wide(dtype))?;
        let leading: Vec<usize> = (0..axes - 2).collect();
        let walk = Walk::over(lhs.shape(), &[lhs.layout(), rhs.layout()], &leading)?.padded();
        let last = |x: &Tensor| [x.strides()[axes - 2], x.strides()[axes - 1]];
        let (a, b) = (last(lhs), last(rhs));
        let (down, across) = (m.div_ceil(TILE), n.div_ceil(TILE));
        let mut slot = Params::new();
        for size in [m, k, n] {
            slot.int(size as isize);
        }
        for stride in [a[0], a[1], b[0], b[1], lhs.layout().offset() as isize, rhs.layout().offset() as isize] {
            slot.int(stride);
        }
        for size in [batch, down, across].iter().chain(&walk.sizes) {
            slot.int(*size as isize);
        }
        walk.strides.iter().flatten().for_each(|&s| _ = slot.int(s));
        let (way, rank) = (Way::choose(m, k, n, a, b), walk.sizes.len());
        let groups = match way {
            Way::Tiled { .. } => batch * down * across,
            Way::Dot => count,
            Way::Single => count.div_ceil(THREADS),
        };
        self.dispatch(&Launch {
            program: Program { key: Key::new("matmul", [rank as u32, dtype as u32, way.code()]), wgsl: &|| Ok(wgsl(way, rank, dtype)) },
            inputs: &[self.part(lhs)?, self.part(rhs)?],
            outputs: &[self.whole(&out)?],
            params: &slot,
            groups: self.fold(groups as u64)?,
        })?;
        self.narrow(out, dtype, lhs)
    }
}
