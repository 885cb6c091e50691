//! Gradients over the GPU against those over the oracle: every operation that autograd knows,
//! packed and transposed.

use crate::common;
use teeny_autograd::{Autograd, cases};
use teeny_core::{DType, Reference};

/// The largest difference of two lists, each relative to the larger of the two numbers or 1.
fn apart(a: &[f64], b: &[f64]) -> f64 {
    let differences = a.iter().zip(b).map(|(x, y)| (x - y).abs() / x.abs().max(y.abs()).max(1.0));
    differences.fold(0.0, |worst, d| if d <= worst { worst } else { d }) // max would lose a NaN
}

#[test]
fn gradients_over_the_gpu_equal_those_over_the_oracle() {
    let Some(gpu) = common::gpu() else { return };
    let (gpu, oracle) = (Autograd::new(gpu), Autograd::new(Reference::new()));
    let (mut checked, mut failures) = (0, Vec::new());
    for case in cases::all() {
        for transposed in [false, true] {
            let name =
                format!("{}{}", case.name, if transposed { " of transposed inputs" } else { "" });
            let expected = case
                .gradients(&oracle, DType::F32, transposed)
                .unwrap_or_else(|e| panic!("{name}: {e}"));
            match case.gradients(&gpu, DType::F32, transposed) {
                Ok(got) if got.len() != expected.len() => failures.push(format!(
                    "{name}: {} gradients, expected {}",
                    got.len(),
                    expected.len()
                )),
                Ok(got) => {
                    let worst = got
                        .iter()
                        .zip(&expected)
                        .map(|(a, b)| if a.len() == b.len() { apart(a, b) } else { f64::NAN });
                    worst
                        .filter(|d| d.is_nan() || *d > 1e-4)
                        .for_each(|d| failures.push(format!("{name}: {d:e} apart")));
                    checked += 1;
                }
                Err(e) => failures.push(format!("{name}: {e}")),
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    println!("{checked} gradients agree");
}
