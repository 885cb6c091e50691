//! The text of the four kernels that multiply matrices. Sizes, strides and offsets are words of the parameter slot.

use super::{Fetch, HEAD, Shape, Way};
use crate::generator::{self, types};
use crate::wide;
use std::fmt::Write;
use teeny_core::DType;

/// Threads of a workgroup that makes a tile.
pub(super) const TILED_THREADS: usize = 256;
/// Threads of the other kernels.
pub(super) const THREADS: usize = 64;
/// Threads along a row of results, in kernels that read across rhs.
pub(super) const ACROSS: usize = 32;

/// Replaces the names of sizes and strides by their words.
fn fill(template: &str) -> String {
    const WORDS: [&str; 7] = ["ROWS", "INNER", "COLUMNS", "LHS_ROW", "LHS_K", "RHS_K", "RHS_COLUMN"];
    WORDS.iter().enumerate().fold(template.to_string(), |text, (at, word)| text.replace(word, &generator::param(at)))
}

/// The shader for operands of type `dtype` with `rank` batch axes.
pub(crate) fn wgsl(way: Way, rank: usize, dtype: DType) -> String {
    let value = types::value(wide::wide(dtype));
    let mut text = generator::params_declaration();
    let quads = |fetch: Fetch| fetch == Fetch::Quads;
    let (lhs, rhs) = match way {
        Way::Tiled { lhs, rhs, .. } => (lhs, rhs),
        Way::Dot | Way::Across | Way::Single => (Fetch::AlongK, Fetch::AlongK),
    };
    for (i, (name, fetch)) in [("lhs", lhs), ("rhs", rhs)].into_iter().enumerate() {
        let element = if quads(fetch) { types::quad(dtype) } else { types::word(dtype) };
        let _ = writeln!(text, "@group(0) @binding({i}) var<storage, read> {name}: array<{element}>;");
    }
    text.push_str(&wide::output(2, "out", dtype));
    let addresses = || {
        let view = |name: &str, i: usize| (name.to_string(), generator::param(7 + i), HEAD + rank * (1 + i));
        wide::addresses(rank, "matrix", HEAD, &[view("a", 0), view("b", 1)])
    };
    let matrices = generator::param(9);
    let load = |name: &str, at: &str| types::load(dtype, name, at);
    match way {
        Way::Tiled { shape, lhs, rhs } => text.push_str(&tiled(shape, lhs, rhs, dtype, &addresses())),
        Way::Dot => {
            let _ = writeln!(text, "var<workgroup> parts: array<{value}, {THREADS}>;\n{}", wide::main(THREADS));
            let _ = writeln!(
                text,
                "    let size = ROWS * COLUMNS;\n    let matrix = unit / size;\n    if matrix >= {matrices} {{ return; }}\n{}",
                addresses()
            );
            let _ = writeln!(
                text,
                "    let x = a + ((unit % size) / COLUMNS) * LHS_ROW;\n    let y = b + ((unit % size) % COLUMNS) * RHS_COLUMN;\n    var sum = {value}(0);\n    \
                 for (var k = thread; k < INNER; k += {THREADS}u) {{ let p = x + k * LHS_K; let q = y + k * RHS_K; sum += {} * {}; }}\n    \
                 parts[thread] = sum;\n{}    if thread == 0u {{ out[unit] = whole; }}\n}}",
                load("lhs", "p"),
                load("rhs", "q"),
                wide::joined("parts", THREADS, |a, b| format!("{a} + {b}"))
            );
        }
        Way::Across => {
            let slices = TILED_THREADS / ACROSS;
            let _ = writeln!(text, "var<workgroup> parts: array<{value}, {TILED_THREADS}>;\n{}", wide::main(TILED_THREADS));
            let _ = writeln!(
                text,
                "    let strips = (COLUMNS + {}u) / {ACROSS}u;\n    let line = unit / strips;\n    let matrix = line / ROWS;\n    \
                 if matrix >= {matrices} {{ return; }}\n    let column = (unit % strips) * {ACROSS}u + thread % {ACROSS}u;\n{}",
                ACROSS - 1,
                addresses()
            );
            let _ = writeln!(
                text,
                "    let x = a + (line % ROWS) * LHS_ROW;\n    let y = b + column * RHS_COLUMN;\n    var sum = {value}(0);\n    if column < COLUMNS {{\n        \
                 for (var k = thread / {ACROSS}u; k < INNER; k += {slices}u) {{ let p = x + k * LHS_K; let q = y + k * RHS_K; sum += {} * {}; }}\n    }}\n    \
                 parts[thread] = sum;\n    workgroupBarrier();\n    if thread < {ACROSS}u && column < COLUMNS {{\n        \
                 for (var i = 1u; i < {slices}u; i++) {{ sum += parts[thread + i * {ACROSS}u]; }}\n        out[line * COLUMNS + column] = sum;\n    }}\n}}",
                load("lhs", "p"),
                load("rhs", "q"),
            );
        }
        Way::Single => {
            let _ = writeln!(text, "{}    let at = unit * {THREADS}u + thread;", wide::main(THREADS));
            let _ = writeln!(
                text,
                "    let size = ROWS * COLUMNS;\n    let matrix = at / size;\n    if matrix >= {matrices} {{ return; }}\n{}",
                addresses()
            );
            let _ = writeln!(
                text,
                "    let x = a + ((at % size) / COLUMNS) * LHS_ROW;\n    let y = b + ((at % size) % COLUMNS) * RHS_COLUMN;\n    var sum = {value}(0);\n    \
                 for (var k = 0u; k < INNER; k += 1u) {{ let p = x + k * LHS_K; let q = y + k * RHS_K; sum += {} * {}; }}\n    out[at] = sum;\n}}",
                load("lhs", "p"),
                load("rhs", "q")
            );
        }
    }
    fill(&text)
}

/// The tiled kernel: the template with its loops over a thread's results unrolled, since accumulators in an array would not stay in registers everywhere.
fn tiled(shape: Shape, lhs: Fetch, rhs: Fetch, dtype: DType, addresses: &str) -> String {
    let value = types::value(wide::wide(dtype));
    let (edge, part) = (shape.edge(), shape.part());
    let (quads, depth, side) = (edge / 4, 1024 / edge, edge / part);
    let lanes = ["x", "y", "z", "w"];
    let (mut accumulators, mut products, mut results) = (String::new(), String::new(), String::new());
    for i in 0..part {
        for q in 0..part / 4 {
            let _ = writeln!(accumulators, "    var s{i}_{q} = vec4<{value}>();");
        }
    }
    for q in 0..part / 4 {
        let _ = writeln!(products, "            let l{q} = left[k * {quads}u + row / 4u + {q}u];");
        let _ = writeln!(products, "            let r{q} = right[k * {quads}u + column / 4u + {q}u];");
    }
    for i in 0..part {
        for q in 0..part / 4 {
            let _ = writeln!(products, "            s{i}_{q} += l{}.{} * r{q};", i / 4, lanes[i % 4]);
        }
    }
    for i in 0..part {
        let _ = writeln!(results, "    if row0 + row + {i}u < ROWS {{\n        let p = first + (row0 + row + {i}u) * COLUMNS + column0 + column;");
        for j in 0..part {
            let _ = writeln!(results, "        if column0 + column + {j}u < COLUMNS {{ out[p + {j}u] = s{i}_{}.{}; }}", j / 4, lanes[j % 4]);
        }
        results.push_str("    }\n");
    }
    // Which group of the tile a thread carries: neighbours take neighbours in memory.
    let slot = |fetch: Fetch| match fetch {
        Fetch::AlongK => (format!("thread % {depth}u"), format!("thread / {depth}u")),
        Fetch::Across | Fetch::Quads => (format!("thread / {quads}u"), format!("thread % {quads}u")),
    };
    let place = |fetch: Fetch| {
        let (k, quad) = slot(fetch);
        format!("({k}) * {quads}u + {quad}")
    };
    let fetch = |name: &str, array: &str, [across, along]: [&str; 2], size: &str, fetch: Fetch| {
        let (k, quad) = slot(fetch);
        let mut text = format!(
            "fn fetch_{name}(base: u32, start: u32, k0: u32, end: u32, thread: u32) -> vec4<{value}> {{\n    let k = k0 + {k};\n    \
             let at = start + 4u * ({quad});\n    var v = vec4<{value}>();\n    if k >= end {{ return v; }}\n"
        );
        let _ = writeln!(text, "    let p = base + at * {across} + k * {along};");
        if fetch == Fetch::Quads {
            let (load, values) = types::load_quad(dtype, array, "(p >> 2u)", "four");
            let _ = writeln!(text, "    if at < {size} {{ {load} v = vec4<{value}>({}); }}", values.join(", "));
        } else {
            for (i, lane) in lanes.iter().enumerate() {
                let load = types::load(dtype, array, "q");
                let _ = writeln!(text, "    if at + {i}u < {size} {{ let q = p + {i}u * {across}; v.{lane} = {load}; }}");
            }
        }
        text.push_str("    return v;\n}\n");
        text
    };
    let words = [("DOWN", 10), ("ACROSS", 11), ("MATRICES", 9), ("SPLITS", 12), ("SPLIT_LENGTH", 13)];
    let template = include_str!("tiled.wgsl")
        .lines()
        .filter(|line| !line.starts_with("//"))
        .collect::<Vec<_>>()
        .join("\n")
        .replace("FETCH_LEFT", &fetch("left", "lhs", ["LHS_ROW", "LHS_K"], "ROWS", lhs))
        .replace("FETCH_RIGHT", &fetch("right", "rhs", ["RHS_COLUMN", "RHS_K"], "COLUMNS", rhs))
        .replace("LEFT_SLOT", &place(lhs))
        .replace("RIGHT_SLOT", &place(rhs))
        .replace("MAIN", &wide::main(TILED_THREADS))
        .replace("ADDRESSES", addresses)
        .replace("ACCUMULATORS", &accumulators)
        .replace("PRODUCTS", &products)
        .replace("RESULTS", &results)
        .replace("EDGE", &edge.to_string())
        .replace("SIDE", &side.to_string())
        .replace("PART", &part.to_string())
        .replace("DEPTH", &depth.to_string())
        .replace("VALUE", value);
    // The longer name first: one begins with the other.
    words.iter().rev().fold(template, |text, (word, at)| text.replace(word, &generator::param(*at))) + "\n"
}
