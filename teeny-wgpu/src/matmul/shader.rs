//! The text of the four kernels that multiply matrices. Sizes, strides and offsets are words of the
//! parameter slot.

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
    const WORDS: [&str; 7] =
        ["ROWS", "INNER", "COLUMNS", "LHS_ROW", "LHS_K", "RHS_K", "RHS_COLUMN"];
    WORDS
        .iter()
        .enumerate()
        .fold(template.to_string(), |text, (at, word)| text.replace(word, &generator::param(at)))
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
        let _ =
            writeln!(text, "@group(0) @binding({i}) var<storage, read> {name}: array<{element}>;");
    }
    text.push_str(&wide::output(2, "out", dtype));
    let addresses = || {
        let view = |name: &str, i: usize| {
            (name.to_string(), generator::param(7 + i), HEAD + rank * (1 + i))
        };
        wide::addresses(rank, "matrix", HEAD, &[view("a", 0), view("b", 1)])
    };
    let matrices = generator::param(9);
    let load = |name: &str, at: &str| types::load(dtype, name, at);
    match way {
        Way::Tiled { shape, lhs, rhs } => {
            text.push_str(&tiled(shape, lhs, rhs, dtype, &addresses()))
        }
        Way::Dot => {
            let _ = writeln!(
                text,
                "var<workgroup> parts: array<{value}, {THREADS}>;\n{}",
                wide::main(THREADS)
            );
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
            let _ = writeln!(
                text,
                "var<workgroup> parts: array<{value}, {TILED_THREADS}>;\n{}",
                wide::main(TILED_THREADS)
            );
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
            let _ =
                writeln!(text, "{}    let at = unit * {THREADS}u + thread;", wide::main(THREADS));
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

/// The tiled kernel of a product.
fn tiled(shape: Shape, lhs: Fetch, rhs: Fetch, dtype: DType, addresses: &str) -> String {
    let value = types::value(wide::wide(dtype));
    let fetch = |name: &str,
                 array: &str,
                 base: &str,
                 [across, along]: [&str; 2],
                 size: &str,
                 fetch: Fetch| {
        let across_k = fetch != Fetch::AlongK;
        let (k, quad) =
            if name == "left" { shape.left_slot(across_k) } else { shape.right_slot(across_k) };
        let mut text = format!(
            "var<private> {base}: u32;\nfn fetch_{name}(start: u32, k0: u32, end: u32, thread: u32) -> vec4<{value}> {{\n    let k = k0 + {k};\n    \
             let at = start + 4u * ({quad});\n    var v = vec4<{value}>();\n    if k >= end {{ return v; }}\n"
        );
        let _ = writeln!(text, "    let p = {base} + at * {across} + k * {along};");
        if fetch == Fetch::Quads {
            let (load, values) = types::load_quad(dtype, array, "(p >> 2u)", "four");
            let _ = writeln!(
                text,
                "    if at < {size} {{ {load} v = vec4<{value}>({}); }}",
                values.join(", ")
            );
        } else {
            for (i, lane) in LANES.iter().enumerate() {
                let load = types::load(dtype, array, "q");
                let _ = writeln!(
                    text,
                    "    if at + {i}u < {size} {{ let q = p + {i}u * {across}; v.{lane} = {load}; }}"
                );
            }
        }
        text.push_str("    return v;\n}\n");
        text
    };
    let mut operands = fetch("left", "lhs", "lhs_base", ["LHS_ROW", "LHS_K"], "ROWS", lhs);
    operands.push_str(&fetch("right", "rhs", "rhs_base", ["RHS_COLUMN", "RHS_K"], "COLUMNS", rhs));
    operands.push_str(
        "fn row_part(matrix: u32, row: u32) -> u32 { return (matrix * ROWS + row) * COLUMNS; }\n",
    );
    operands.push_str("fn column_part(column: u32) -> u32 { return column; }\n");
    let setup = format!("{addresses}    lhs_base = a;\n    rhs_base = b;\n");
    template(shape, value, &operands, [&setup, ""], [lhs != Fetch::AlongK, rhs != Fetch::AlongK])
}

const LANES: [&str; 4] = ["x", "y", "z", "w"];

impl Shape {
    /// Which group of the left operand's tile a thread carries: its k within the tile, and its
    /// number across. Neighbouring threads take neighbours across, or along k.
    pub(crate) fn left_slot(self, across: bool) -> (String, String) {
        self.slot(self.tall() / 4, across)
    }

    /// As [`Shape::left_slot`], of the right operand.
    pub(crate) fn right_slot(self, across: bool) -> (String, String) {
        self.slot(self.wide() / 4, across)
    }

    fn slot(self, quads: usize, across: bool) -> (String, String) {
        let depth = self.depth();
        match across {
            true => (format!("thread / {quads}u"), format!("thread % {quads}u")),
            false => (format!("thread % {depth}u"), format!("thread / {depth}u")),
        }
    }
}

/// The template with its holes filled and its loops over a thread's results unrolled, since
/// accumulators in an array would not stay in registers everywhere. `across` says for each operand
/// which neighbours threads take: see [`Shape::slot`].
pub(crate) fn template(
    shape: Shape,
    value: &str,
    operands: &str,
    [setup, ahead]: [&str; 2],
    across: [bool; 2],
) -> String {
    let (part, depth, side) = (shape.part(), shape.depth(), shape.wide() / shape.part());
    let [tall, wide] = [shape.tall() / 4, shape.wide() / 4];
    let (mut accumulators, mut products, mut results) =
        (String::new(), String::new(), String::new());
    for i in 0..part {
        for q in 0..part / 4 {
            let _ = writeln!(accumulators, "    var s{i}_{q} = vec4<{value}>();");
        }
    }
    for q in 0..part / 4 {
        let _ = writeln!(products, "            let l{q} = left[k * {tall}u + row / 4u + {q}u];");
        let _ =
            writeln!(products, "            let r{q} = right[k * {wide}u + column / 4u + {q}u];");
    }
    for i in 0..part {
        for q in 0..part / 4 {
            let _ =
                writeln!(products, "            s{i}_{q} += l{}.{} * r{q};", i / 4, LANES[i % 4]);
        }
    }
    for j in 0..part {
        let _ = writeln!(results, "    let c{j} = column_part(column0 + column + {j}u);");
    }
    for i in 0..part {
        let _ = writeln!(
            results,
            "    if row0 + row + {i}u < ROWS {{\n        let p = first + row_part(matrix, row0 + row + {i}u);"
        );
        for j in 0..part {
            let _ = writeln!(
                results,
                "        if column0 + column + {j}u < COLUMNS {{ out[p + c{j}] = s{i}_{}.{}; }}",
                j / 4,
                LANES[j % 4]
            );
        }
        results.push_str("    }\n");
    }
    let place = |(k, quad): (String, String), quads: usize| format!("({k}) * {quads}u + {quad}");
    // Where the left operand has fewer groups than there are threads, the others carry nothing.
    let groups = tall * depth;
    let store = format!("left[{}] = next_left;", place(shape.left_slot(across[0]), tall));
    let store =
        if groups < TILED_THREADS { format!("if thread < {groups}u {{ {store} }}") } else { store };
    let words = [
        ("DOWN", 10),
        ("ACROSS", 11),
        ("MATRICES", 9),
        ("SPLITS", 12),
        ("SPLIT_LENGTH", 13),
        ("ROWS", 0),
        ("INNER", 1),
        ("COLUMNS", 2),
    ];
    let template = include_str!("tiled.wgsl")
        .lines()
        .filter(|line| !line.starts_with("//"))
        .collect::<Vec<_>>()
        .join("\n")
        .replace("OPERANDS", operands)
        .replace("STORE_LEFT", &store)
        .replace("LEFT_GROUPS", &groups.to_string())
        .replace("RIGHT_SLOT", &place(shape.right_slot(across[1]), wide))
        .replace("AHEAD", ahead)
        .replace("MAIN", &wide::main(TILED_THREADS))
        .replace("SETUP", setup)
        .replace("ACCUMULATORS", &accumulators)
        .replace("PRODUCTS", &products)
        .replace("RESULTS", &results)
        .replace("TALL", &shape.tall().to_string())
        .replace("WIDE", &shape.wide().to_string())
        .replace("SIDE", &side.to_string())
        .replace("PART", &part.to_string())
        .replace("DEPTH", &depth.to_string())
        .replace("VALUE", value);
    // The longer name first: one begins with the other.
    words[..5]
        .iter()
        .rev()
        .chain(&words[5..])
        .fold(template, |text, (word, at)| text.replace(word, &generator::param(*at)))
        + "\n"
}
