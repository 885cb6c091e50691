//! The gradient of every operation, on the GPU in f32 and over the oracle: the list of cases is teeny-autograd's own.

mod common;
#[path = "../../teeny-autograd/tests/common/mod.rs"]
mod shared;

use shared::cases::{Case, all};
use std::sync::Arc;
use teeny_autograd::{Autograd, Grad};
use teeny_core::{DType, Device, ErrorKind, Reference, Result, Tensor};

/// The gradients of the sum of squares of a case's result, for inputs in f32, packed or transposed in memory.
fn gradients(case: &Case, device: &Arc<Autograd>, transposed: bool) -> Result<Vec<Vec<f32>>> {
    let base = |s: &[usize]| if transposed { s.iter().rev().copied().collect() } else { s.to_vec() };
    let inputs = case.inputs(&Reference::new(), base);
    let leaves = inputs.iter().map(|x| x.cast(DType::F32)?.to(device)?.requires_grad()).collect::<Result<Vec<_>>>()?;
    let turn = |x: &Tensor| if transposed { x.permute((0..x.ndim()).rev().collect::<Vec<_>>()) } else { Ok(x.clone()) };
    let y = (case.f)(&leaves.iter().map(turn).collect::<Result<Vec<_>>>()?)?;
    let grads = y.square()?.sum_all()?.backward()?;
    leaves.iter().filter(|x| grads.contains(x)).map(|x| grads.get(x)?.to_vec::<f32>()).collect()
}

#[test]
fn a46_gradients_agree_with_the_oracle() {
    let Some(gpu) = common::gpu() else { return };
    let counted = gpu.clone();
    let (gpu, oracle) = (Autograd::new(gpu), Autograd::new(Reference::new()));
    let mut refused = Vec::new();
    for case in all() {
        for transposed in [false, true] {
            let expected = gradients(&case, &oracle, transposed).unwrap_or_else(|e| panic!("{}: {e}", case.name));
            let got = match gradients(&case, &gpu, transposed) {
                Ok(got) => got,
                Err(error) if error.kind() == ErrorKind::Unsupported => {
                    refused.push(case.name);
                    continue;
                }
                Err(error) => panic!("{}: {error}", case.name),
            };
            assert_eq!(expected.len(), got.len(), "{}", case.name);
            for (a, b) in expected.iter().flatten().zip(got.iter().flatten()) {
                assert!((a - b).abs() <= 1e-4 * a.abs().max(b.abs()).max(1.0), "{}: {expected:?}\n{got:?}", case.name);
            }
        }
    }
    println!("{} cases, {:?}", all().len(), counted.counters());
    assert!(refused.is_empty(), "refused: {refused:?}");
    assert!(gpu.synchronize().is_ok());
}
