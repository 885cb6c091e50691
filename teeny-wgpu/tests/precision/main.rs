//! How exact the functions of the shaders are: each held against f64 over all magnitudes of its
//! arguments, in units in the last place.

mod table;
mod ulp;

use std::sync::Arc;
use table::{BINARY, UNARY};
use teeny_core::{DType, Tensor, map};
use teeny_wgpu::Wgpu;
use ulp::{F32, F64, Format};

/// The largest error found, and where.
struct Worst {
    error: f64,
    at: [f64; 2],
}

fn tensor(x: &[f64], dtype: DType, gpu: &Arc<Wgpu>) -> Tensor {
    let bytes: Vec<u8> = if dtype == DType::F32 {
        x.iter().flat_map(|&x| (x as f32).to_ne_bytes()).collect()
    } else {
        x.iter().flat_map(|x| x.to_ne_bytes()).collect()
    };
    Tensor::from_bytes(&bytes, x.len(), dtype, gpu).unwrap()
}

fn values(y: &Tensor) -> Vec<f64> {
    if y.dtype() == DType::F32 {
        y.to_vec::<f32>().unwrap().into_iter().map(f64::from).collect()
    } else {
        y.to_vec::<f64>().unwrap()
    }
}

fn worst(errors: impl Iterator<Item = (f64, [f64; 2])>) -> Worst {
    errors.fold(Worst { error: 0.0, at: [f64::NAN; 2] }, |worst, (error, at)| {
        if error > worst.error { Worst { error, at } } else { worst }
    })
}

/// The errors of all functions in the order of the table.
fn measure(gpu: &Arc<Wgpu>, format: Format, count: u64) -> Vec<Worst> {
    let x = format.sweep(count);
    let input = tensor(&x, format.dtype, gpu);
    let mut found = Vec::new();
    for row in &UNARY {
        let y = values(&map([&input], |[x]| (row.kernel)(x)).unwrap());
        let inside = x.iter().zip(&y).filter(|(x, _)| x.is_nan() || x.abs() <= row.reach);
        found.push(worst(
            inside.map(|(&x, &y)| (format.error(y, x, row.truth, row.floor), [x, f64::NAN])),
        ));
    }
    let (a, b) = pairs(format, count / 4);
    let (lhs, rhs) = (tensor(&a, format.dtype, gpu), tensor(&b, format.dtype, gpu));
    for row in &BINARY {
        let y = values(&map([&lhs, &rhs], |[a, b]| (row.kernel)(a, b)).unwrap());
        let all = a.iter().zip(&b).zip(&y);
        found.push(worst(all.map(|((&a, &b), &y)| (format.error2(y, [a, b], row.truth), [a, b]))));
    }
    found
}

/// Pairs of numbers: all special ones with each other, then random ones of all magnitudes and of
/// moderate magnitudes.
fn pairs(format: Format, count: u64) -> (Vec<f64>, Vec<f64>) {
    let special = [
        0.0,
        0.25,
        0.5,
        1.0,
        1.5,
        2.0,
        3.0,
        7.0,
        31.0,
        1e-45,
        2f64.powi(-126),
        16777215.0,
        16777216.0,
        f32::MAX as f64,
        f64::INFINITY,
        f64::NAN,
    ];
    let fit = |x: f64| if format.dtype == DType::F32 { x as f32 as f64 } else { x };
    let signed: Vec<f64> = special.iter().flat_map(|&x| [fit(x), -fit(x)]).collect();
    let mut pairs: Vec<(f64, f64)> =
        signed.iter().flat_map(|&a| signed.iter().map(move |&b| (a, b))).collect();
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 32) << 32 | (state >> 11) & 0xffff_ffff
    };
    for i in 0..count {
        let (a, b) = (next(), next());
        // The exponents of moderate pairs are within 16 of the exponent of 1.
        let moderate = |bits: u64| {
            f64::from_bits((bits & 0x800f_ffff_ffff_ffff) | (1007 + (bits >> 52) % 32) << 52)
        };
        pairs.push(if i % 2 == 0 {
            (format.number(a), format.number(b))
        } else {
            (fit(moderate(a)), fit(moderate(b)))
        });
    }
    pairs.into_iter().unzip()
}

/// The document: a row per function with its bounds, and the largest errors found by the run that
/// wrote it.
fn document(gpu: &Wgpu, single: &[Worst], double: Option<&[Worst]>) -> String {
    let mut text = String::from(
        "| function | f32: ulp at most | found | f64: ulp at most | found | |\n\
         |---|---|---|---|---|---|\n",
    );
    for (i, (name, bounds, floor, reach)) in rows().enumerate() {
        let mut notes = Vec::new();
        if floor > 0.0 {
            notes.push(format!("results below {floor:e} by absolute error"));
        }
        if reach < f64::INFINITY {
            notes.push(format!("for arguments up to {reach:e}"));
        }
        let found =
            |worst: Option<&Worst>| worst.map_or("".to_string(), |w| format!("{:.2}", w.error));
        let columns = [
            bounds[0].to_string(),
            found(single.get(i)),
            bounds[1].to_string(),
            found(double.and_then(|d| d.get(i))),
        ];
        text += &format!("| {name} | {} | {} |\n", columns.join(" | "), notes.join(", "));
    }
    text + &format!("\nFound on {}.\n", gpu.capabilities())
}

/// Name, bounds, floor and reach of every function.
fn rows() -> impl Iterator<Item = (&'static str, [f64; 2], f64, f64)> {
    let unary = UNARY.iter().map(|row| (row.name, row.bounds, row.floor, row.reach));
    unary.chain(BINARY.iter().map(|row| (row.name, row.bounds, 0.0, f64::INFINITY)))
}

/// A document without the numbers that depend on the adapter.
fn promises(document: &str) -> Vec<String> {
    let rows = document
        .lines()
        .filter(|line| line.starts_with('|'))
        .map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
    rows.map(|columns| [columns[1], columns[2], columns[4], columns[6]].join(" | ")).collect()
}

#[test]
fn functions_keep_the_bounds_that_the_documentation_states() {
    let Some(gpu) = crate::common::gpu() else { return };
    let single = measure(&gpu, F32, 1 << 20);
    let double = gpu.capabilities().supports(DType::F64).then(|| measure(&gpu, F64, 1 << 17));
    let text = document(&gpu, &single, double.as_deref());
    println!("{text}");
    for (found, column) in [Some(&single), double.as_ref()].into_iter().flatten().zip(0..) {
        for ((name, bounds, _, _), worst) in rows().zip(found) {
            assert!(
                worst.error <= bounds[column],
                "{name}: {:.2} ulp at {:e}, {:e}",
                worst.error,
                worst.at[0],
                worst.at[1]
            );
        }
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/PRECISION.md");
    if std::env::var("TEENY_BLESS").is_ok_and(|v| v == "1") {
        std::fs::write(path, &text).unwrap();
    }
    assert_eq!(
        promises(&std::fs::read_to_string(path).unwrap()),
        promises(&text),
        "TEENY_BLESS=1 updates PRECISION.md"
    );
}

#[test]
fn the_sine_of_a_huge_number_is_right() {
    let Some(gpu) = crate::common::gpu() else { return };
    // sin(1e22) is the example of K. C. Ng, "Argument reduction for huge arguments: good to the
    // last bit" (1992).
    let x = Tensor::from_slice(&[1e30f32, -1e30], 2, &gpu).unwrap();
    let truth = (1e30f32 as f64).sin();
    for (y, want) in x.sin().unwrap().to_vec::<f32>().unwrap().into_iter().zip([truth, -truth]) {
        assert!((y as f64 - want).abs() < 1e-7, "{y} {want}");
    }
    if gpu.capabilities().supports(DType::F64) {
        let y = Tensor::from_slice(&[1e22f64], 1, &gpu)
            .unwrap()
            .sin()
            .unwrap()
            .to_vec::<f64>()
            .unwrap()[0];
        assert!((y + 0.8522008497671888).abs() < 4e-16, "{y}");
    }
}
