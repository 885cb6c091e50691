//! Autograd around the wrapper devices: the backward pass is watched like the forward pass, and
//! nothing comes out differently.

use std::sync::Arc;
use teeny_autograd::{Autograd, Grad, cases};
use teeny_core::wrappers::{Checked, Compare, Trace};
use teeny_core::{DType, DeviceRef, Reference, Result, Tensor, random};
use teeny_cpu::Cpu;

/// The line of the caller, as errors print it.
macro_rules! here {
    () => {
        format!("{}:{}", file!(), line!())
    };
}

/// Losses of a few steps of a small network with softmax at its end, on `engine`.
fn losses(engine: DeviceRef) -> Result<Vec<f32>> {
    random::with_seed(7, || {
        let device = Autograd::new(engine);
        let x = Tensor::uniform(-1.0, 1.0, (32, 4), DType::F32, &device)?; // (32, 4)
        let target = x.argmax(1)?.unsqueeze(1)?; // (32, 1)
        // (4, 16)
        let mut w = Tensor::normal(0.0, 0.5, (4, 16), DType::F32, &device)?.requires_grad()?;
        // (16, 4)
        let mut u = Tensor::normal(0.0, 0.5, (16, 4), DType::F32, &device)?.requires_grad()?;
        (0..20)
            .map(|_| {
                let y = x.matmul(&w)?.relu()?.matmul(&u)?.log_softmax(-1)?; // (32, 4)
                let loss = y.gather(1, &target)?.neg()?.mean_all()?; // ()
                let grads = loss.backward()?;
                for p in [&mut w, &mut u] {
                    *p = p.detach()?.sub(&grads.get(p)?.mul(0.5)?)?.requires_grad()?;
                }
                loss.item()
            })
            .collect()
    })
}

#[test]
fn training_under_a_wrapper_gives_the_same_bits() -> Result<()> {
    let plain = losses(Cpu::new())?;
    assert!(plain[19] < 0.6 * plain[0], "{plain:?}");
    let trace = Trace::new(Cpu::new());
    let compare = Compare::new(Cpu::new(), Reference::new());
    for engine in [trace.clone() as DeviceRef, Checked::new(Cpu::new()), compare.clone()] {
        assert_eq!(losses(engine)?, plain);
    }
    assert!(compare.compared() > 400 && compare.skipped() == 0);
    let spans = trace.spans();
    let matmuls = |later| {
        spans.iter().filter(|s| s.op == "matmul" && s.called.unwrap().later == later).count()
    };
    assert_eq!(
        (matmuls(false), matmuls(true)),
        (40, 60),
        "two products a step forward, three backward"
    );
    assert!(trace.summary().contains("backward of matmul"), "{}", trace.summary());
    Ok(())
}

#[test]
fn every_gradient_agrees_between_the_cpu_and_the_oracle() -> Result<()> {
    let compare = Compare::new(Cpu::new(), Reference::new());
    let device = Autograd::new(compare.clone());
    for case in cases::all() {
        for dtype in [DType::F32, DType::F64] {
            case.gradients(&device, dtype, true)
                .unwrap_or_else(|error| panic!("{} {dtype}: {error}", case.name));
        }
    }
    assert!(compare.compared() > 1000, "{}", compare.compared());
    Ok(())
}

#[test]
fn what_a_gradient_makes_is_found_at_the_line_of_its_operation() -> Result<()> {
    let device = Autograd::new(Checked::new(Reference::new()));
    let x = Tensor::new([4.0f32, 0.0], &device)?.requires_grad()?; // (2)
    let (root, line) = (x.sqrt()?, here!()); // (2), and 1 / (2 sqrt(0)) on the way back
    let error = root.sum_all()?.backward().unwrap_err().to_string();
    assert!(
        error.starts_with(&format!(
            "sqrt at {line}: its gradient made inf: 1 of 2 elements, the first at [1]"
        )),
        "{error}"
    );
    Ok(())
}

#[test]
fn the_logarithm_of_zero_times_zero_is_found_forward() -> Result<()> {
    let device = Autograd::new(Checked::new(Reference::new()));
    let p = Tensor::new([0.5f32, 0.0], &device)?.requires_grad()?; // (2)
    let (error, line) = (p.log().and_then(|log| log.mul(&p)).unwrap_err().to_string(), here!());
    assert!(
        error.starts_with(&format!("log at {line}: made -inf: 1 of 2 elements, the first at [1]")),
        "{error}"
    );
    Ok(())
}

#[test]
fn gradients_of_masks_with_infinities_are_no_mistake() -> Result<()> {
    let checked = Checked::new(Cpu::new());
    let device = Autograd::new(checked.clone() as Arc<Checked>);
    // (4, 4)
    let scores =
        random::with_seed(1, || Tensor::randn((4, 4), DType::F32, &device))?.requires_grad()?;
    let mask = Tensor::ones((4, 4), DType::F32, &device)?.triu(1)?.cast(DType::Bool)?; // (4, 4)
    let grads = scores
        .masked_fill(&mask, f64::NEG_INFINITY)?
        .softmax(-1)?
        .square()?
        .sum_all()?
        .backward()?;
    assert!(grads.get(&scores)?.to_vec::<f32>()?.iter().all(|g| g.is_finite()));
    Ok(())
}
