//! The table of operators, `OPERATORS.md` in the root of the repository: written from a run of the
//! conformance suite, and compared with one.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;
use teeny_autograd::{Autograd, Grad};
use teeny_conformance::{Cell, Report, Suite};
use teeny_core::{DType, DeviceRef, Reference, Tensor};
use teeny_cpu::Cpu;

const HEAD: &str = "\
# Operators

Every operation of the conformance suite, with the dtypes that each device supports, and whether a
gradient flows through it. Written by
`TEENY_BLESS=1 cargo test --release -p teeny-autograd --test all operators`; a run without the variable
compares. The column wgpu repeats [teeny-wgpu/TYPES.md](teeny-wgpu/TYPES.md): it is for an adapter
with all dtypes, and empty for an operation that is not in that file.

- *all*: the thirteen dtypes; *numbers*: all but bool; *floats*: f16, bf16, f32, f64; *integers*: u8
  to u64 and i8 to i64.
- Gradient: *yes* if the result of the operation on tensors that require gradients has a gradient,
  in f32 on the CPU; *none* if the operation is not differentiable (positions, comparisons); empty
  if it has no float operand.

";

/// The types in which all cases pass.
type Types = [bool; DType::ALL.len()];

/// A set of types in words.
fn words(types: &Types) -> String {
    let all = |is: fn(DType) -> bool| DType::ALL.map(is);
    let named: [(&str, Types); 6] = [
        ("all", all(|_| true)),
        ("numbers", all(|t| t != DType::Bool)),
        ("floats", all(|t| t.is_float())),
        ("integers", all(|t| t.is_int())),
        ("bool, integers", all(|t| !t.is_float())),
        ("", all(|_| false)),
    ];
    match named.iter().find(|(_, set)| set == types) {
        Some((name, _)) => name.to_string(),
        None => DType::ALL
            .iter()
            .zip(types)
            .filter(|(_, has)| **has)
            .map(|(t, _)| t.name())
            .collect::<Vec<_>>()
            .join(", "),
    }
}

/// Operations in the suite's order, with the types in which a device that passed has them.
fn supported(report: &Report) -> Vec<(&'static str, Types)> {
    assert!(report.passed(), "{report}");
    report
        .rows()
        .iter()
        .map(|(op, cells)| (*op, cells.each_ref().map(|cell| matches!(cell, Cell::Passed(_)))))
        .collect()
}

/// What teeny-wgpu's own table says: lines of operations in backticks, and a mark for each type.
fn wgpu_table(text: &str) -> HashMap<String, Types> {
    let mut table = HashMap::new();
    for line in text.lines().skip(2) {
        let mut cells = line.trim_matches('|').split('|');
        let ops = cells.next().unwrap_or_default();
        let marks: Vec<bool> = cells.map(|mark| mark.trim() == "+").collect();
        let types: Types =
            marks.try_into().unwrap_or_else(|_| panic!("a line without thirteen marks: {line}"));
        table.extend(ops.split('`').skip(1).step_by(2).map(|op| (op.to_string(), types)));
    }
    table
}

/// Whether a gradient flows through each operation.
fn gradients() -> HashMap<&'static str, &'static str> {
    let device = Autograd::new(Cpu::new());
    let mut table = HashMap::new();
    teeny_conformance::each(|trial| {
        if trial.dtype() != DType::F32 {
            return;
        }
        let leaves = std::cell::RefCell::new(Vec::new());
        let prepare = |x: Tensor| {
            let x = if x.dtype().is_float() && x.numel() > 0 { x.requires_grad()? } else { x };
            leaves.borrow_mut().extend(x.is_leaf().then(|| x.clone()));
            Ok(x)
        };
        let Ok(results) = trial.run(&device, prepare) else { return };
        if leaves.borrow().is_empty() || results.iter().all(|y| y.numel() == 0) {
            return;
        }
        let cell = table.entry(trial.op()).or_insert("none");
        for y in results.iter().filter(|y| y.is_tracked() && y.dtype().is_float() && y.numel() > 0)
        {
            let grads = match y.sum_all().and_then(|sum| sum.backward()) {
                Ok(grads) => grads,
                // decompositions, which gradients of matrices need, refuse such a matrix
                Err(error) if error.to_string().contains("contains NaN or an infinity") => return,
                Err(error) => panic!("{}: {error}", trial.op()),
            };
            assert!(
                leaves.borrow().iter().any(|x| grads.contains(x)),
                "{}: no gradient arrives",
                trial.op()
            );
            *cell = "yes";
        }
    });
    table
}

#[test]
fn the_table_of_operators_is_true() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let oracle: DeviceRef = Reference::new();
    let reports = Suite::new(&oracle).run_on(&[oracle.clone(), Cpu::new()]);
    let (reference, cpu) = (supported(&reports[0]), supported(&reports[1]));
    let wgpu = wgpu_table(&std::fs::read_to_string(root.join("teeny-wgpu/TYPES.md")).unwrap());
    let gradients = gradients();
    let mut text =
        format!("{HEAD}| operation | reference | cpu | wgpu | gradient |\n|---|---|---|---|---|\n");
    for ((op, ours), (same, fast)) in reference.iter().zip(&cpu) {
        assert_eq!(op, same);
        let (gpu, gradient) = (
            wgpu.get(*op).map(words).unwrap_or_default(),
            gradients.get(op).copied().unwrap_or_default(),
        );
        writeln!(text, "| `{op}` | {} | {} | {gpu} | {gradient} |", words(ours), words(fast))
            .unwrap();
    }
    let path = root.join("OPERATORS.md");
    if std::env::var("TEENY_BLESS").is_ok_and(|v| v == "1") {
        std::fs::write(&path, &text).unwrap();
    }
    assert_eq!(
        std::fs::read_to_string(path).unwrap_or_default(),
        text,
        "TEENY_BLESS=1 updates OPERATORS.md"
    );
}
