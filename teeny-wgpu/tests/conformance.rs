//! The suite that every device must pass, with shaders checked and trusted, and random graphs of
//! operations.

use crate::common;
use std::sync::Arc;
use teeny_conformance::limits::{exact_points, integers};
use teeny_conformance::{Cell, Report, Suite, every};
use teeny_core::DType;
use teeny_wgpu::{Options, Shaders, Wgpu};

/// The deviations that GPUs are allowed.
fn suite(gpu: &Arc<Wgpu>) -> Suite {
    Suite::new(gpu)
        .flushes_subnormals()
        .loses_zero_signs()
        .multiplies_padding()
        .simplifies_programs()
        .compiles_numbers()
}

fn run(options: Options, types: &[DType]) -> Option<Report> {
    common::gpu()?;
    let trusted = options.shaders == Shaders::Trusted;
    let gpu = Wgpu::with_options(&options).unwrap();
    let mut suite = suite(&gpu).dtypes(types).every(every(4));
    if trusted {
        suite = suite.trusts_indices();
    }
    if types.len() < DType::ALL.len() {
        // Requests need a thousand extra shaders, and are rejected before a kernel is selected.
        suite = suite.without("request");
    }
    if let Ok(op) = std::env::var("TEENY_ONLY") {
        suite = suite.only(&op);
    }
    let report = suite.run();
    println!("{}", report.markdown());
    println!("{:?}", gpu.counters());
    assert!(report.passed(), "{report}");
    Some(report)
}

/// The report as the crate's documentation shows it: operations that exist in the same types share
/// a row.
fn types_document(report: &Report) -> String {
    let mark = |cell: &Cell| match cell {
        Cell::Undefined => "",
        Cell::Passed(_) => "+",
        Cell::Unsupported(_) => "-",
        Cell::Failed(_) => "wrong",
    };
    let mut rows: Vec<(Vec<&str>, String)> = Vec::new();
    for (op, cells) in report.rows() {
        let marks = cells.iter().map(mark).collect();
        match rows.iter_mut().find(|(other, _)| *other == marks) {
            Some((_, ops)) => *ops += &format!(" `{op}`"),
            None => rows.push((marks, format!("`{op}`"))),
        }
    }
    let mut text = format!(
        "| | {} |\n|---|{}\n",
        DType::ALL.map(|t| t.name()).join(" | "),
        "---|".repeat(DType::ALL.len())
    );
    for (marks, ops) in rows {
        text += &format!("| {ops} | {} |\n", marks.join(" | "));
    }
    text
}

#[test]
fn the_suite_passes_with_trusted_shaders_as_the_documentation_says() {
    let Some(report) = run(Options::new().with_shaders(Shaders::Trusted), &DType::ALL) else {
        return;
    };
    let Some(gpu) = common::gpu() else { return };
    let complete = std::env::var("TEENY_ONLY").is_err()
        && every(4) == 1
        && DType::ALL.into_iter().all(|t| gpu.capabilities().supports(t));
    if complete {
        let (path, text) =
            (concat!(env!("CARGO_MANIFEST_DIR"), "/TYPES.md"), types_document(&report));
        if std::env::var("TEENY_BLESS").is_ok_and(|v| v == "1") {
            std::fs::write(path, &text).unwrap();
        }
        assert_eq!(std::fs::read_to_string(path).unwrap(), text, "TEENY_BLESS=1 updates TYPES.md");
    }
}

#[test]
fn the_suite_passes_with_checked_shaders() {
    // These stand for their classes: packed, whole, wide, rounded. The others double the time where
    // the driver has not compiled their shaders before.
    let some = [DType::Bool, DType::I8, DType::U32, DType::I64, DType::F16, DType::F32];
    let all = std::env::var("TEENY_ALL_TYPES").is_ok_and(|v| v == "1");
    run(Options::new().with_shaders(Shaders::Checked), if all { &DType::ALL } else { &some });
}

#[test]
fn the_suite_passes_with_what_every_browser_has() {
    // One type of each size and kind. Sums and casts that give 64-bit integers are refused, the
    // rest is not.
    let types = [DType::Bool, DType::I8, DType::U32, DType::F16, DType::F32];
    let Some(report) =
        run(Options::new().with_portable(true).with_shaders(Shaders::Trusted), &types)
    else {
        return;
    };
    let gpu = Wgpu::with_options(&Options::new().with_portable(true)).unwrap();
    let found = gpu.capabilities();
    assert_eq!(
        (
            found.int64,
            found.float64,
            found.float16,
            found.workgroup_memory,
            found.workgroup_threads
        ),
        (false, false, false, 16384, 256)
    );
    for (op, cells) in report.rows() {
        for cell in cells {
            if let Cell::Unsupported(why) = cell {
                assert!(why.contains("64-bit"), "{op}: {why}");
            }
        }
    }
}

#[test]
fn integers_wrap_at_the_ends_of_their_types() {
    let Some(gpu) = common::gpu() else { return };
    integers(&gpu).unwrap_or_else(|why| panic!("{why}"));
}

/// Powers are not exact, but within the bound of PRECISION.md.
#[test]
fn functions_with_an_exact_result_return_it() {
    let Some(gpu) = common::gpu() else { return };
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        let Err(found) = exact_points(&gpu, dtype) else { continue };
        let others: Vec<&str> = found.lines().filter(|line| !line.starts_with("pow")).collect();
        assert!(others.is_empty(), "{}", others.join("\n"));
    }
}
