//! The derivative of a row program is a row program: one request forward, one for the gradients.

use std::sync::Arc;
use teeny_autograd::{Autograd, Grad, jvp};
use teeny_core::wrappers::Trace;
use teeny_core::{DType, Reference, Result, Tensor, manual_seed, map_rows};

/// The requests to the inner device while `f` runs, except sums and fills.
fn requests(trace: &Arc<Trace>, f: impl FnOnce() -> Result<()>) -> Vec<&'static str> {
    trace.clear();
    f().unwrap();
    let names = trace.spans().into_iter().map(|span| span.op);
    names.filter(|name| !["sum", "contiguous", "mul"].contains(name)).collect()
}

fn traced() -> (Arc<Trace>, Arc<Autograd>) {
    let trace = Trace::new(Reference::new());
    let device = Autograd::new(&trace);
    (trace, device)
}

#[test]
fn a_row_program_and_its_gradient_are_one_request_each() -> Result<()> {
    manual_seed(1);
    let (trace, device) = traced();
    let tracked = |shape: &[usize]| Tensor::randn(shape, DType::F64, &device)?.requires_grad();
    let (x, w) = (tracked(&[3, 5])?, tracked(&[5])?);
    // Declined by the oracle, each is traced as itself and as its definition: the last counts.
    let own = |names: Vec<&'static str>| names.iter().filter(|name| **name == "rows").count();
    let mut y = None;
    let forward = requests(&trace, || {
        y = Some(map_rows([&x, &w], -1, |[x, w]| x * w / (x.square().sum() + 0.1).sqrt())?);
        Ok(())
    });
    assert_eq!(own(forward), 1);
    let loss = y.unwrap().square()?.sum_all()?;
    let mut grads = None;
    let backward = requests(&trace, || {
        grads = Some(loss.backward()?);
        Ok(())
    });
    assert_eq!(own(backward), 1);
    assert!(grads.unwrap().contains(&w));
    // Named programs have named derivatives.
    let targets = Tensor::new([0i64, 2, 4], &device)?;
    for (named, name, f) in [
        (["softmax", "softmax_grad"], "softmax", (|x, _, _| x.softmax(-1)) as Named),
        (["cross_entropy", "cross_entropy_grad"], "loss", |x, _, t| x.cross_entropy(t, None)),
        (["layer_norm", "layer_norm_grad"], "norm", |x, w, _| x.layer_norm(1, Some(w), None, 1e-5)),
    ] {
        let names =
            requests(&trace, || f(&x, &w, &targets)?.square()?.sum_all()?.backward().map(drop));
        assert!(named.iter().all(|one| names.contains(one)), "{name}: {names:?}");
    }
    Ok(())
}

type Named = fn(&Tensor, &Tensor, &Tensor) -> Result<Tensor>;

#[test]
fn a_program_without_such_a_derivative_has_that_of_its_definition() -> Result<()> {
    let (trace, device) = traced();
    let x = Tensor::new([[2.0f64, 3.0, 4.0], [0.0, 5.0, 6.0]], &device)?.requires_grad()?;
    let names = requests(&trace, || {
        let y = map_rows([&x], 1, |[x]| x.prod())?; // (2, 1)
        let grad = y.sum_all()?.backward()?.take(&x)?;
        assert_eq!(grad.to_vec::<f64>()?, [12.0, 8.0, 6.0, 30.0, 0.0, 0.0]);
        Ok(())
    });
    assert!(!names.contains(&"rows") && names.contains(&"prod"), "{names:?}");
    let (y, t) = jvp(|x: &Tensor| map_rows([x], 1, |[x]| x.prod()), &x.detach()?, &x.detach()?)?;
    // homogeneous of degree three
    assert_eq!(t.to_vec::<f64>()?, y.mul(3.0)?.to_vec::<f64>()?);
    Ok(())
}

#[test]
fn ties_share_the_gradient_of_an_extremum() -> Result<()> {
    let (_, device) = traced();
    let x = Tensor::new([[2.0f64, 7.0, 7.0, 1.0]], &device)?.requires_grad()?;
    let grads = map_rows([&x], 1, |[x]| x.max() * 2.0)?.sum_all()?.backward()?;
    assert_eq!(grads.get(&x)?.to_vec::<f64>()?, [0.0, 1.0, 1.0, 0.0]);
    let grads = map_rows([&x], 1, |[x]| x * x.min())?.sum_all()?.backward()?;
    assert_eq!(grads.get(&x)?.to_vec::<f64>()?, [1.0, 1.0, 1.0, 18.0]);
    Ok(())
}

/// The gradient of `Σ g v` for the gradient `g` of `Σ f(x)`, by one autograd device over another.
fn gradient_twice(f: impl Fn(&Tensor) -> Result<Tensor>, x: &Tensor) -> Result<Vec<f64>> {
    let first = Autograd::new(Reference::new());
    let second = Autograd::new(first.clone());
    let x = x.to(&first)?.requires_grad()?;
    let up = x.to(&second)?.requires_grad()?;
    let gradient = f(&up)?.sum_all()?.backward()?.take(&up)?;
    gradient.sum_all()?.backward()?.take(&x)?.to_vec::<f64>()
}

#[test]
fn the_gradient_of_a_gradient_with_one_value_a_row_counts_every_element() -> Result<()> {
    let x = Tensor::new([1.0f64, 2.0, 4.0], Reference::new())?;
    let squared = |x: &Tensor| map_rows([x], 0, |[x]| x.sum().square());
    assert_eq!(gradient_twice(squared, &x)?, [6.0, 6.0, 6.0]);
    let written =
        |x: &Tensor| map_rows([x], 0, |[x]| x.index() * x.index().like(0) + x.sum().square());
    assert_eq!(gradient_twice(written, &x)?, [18.0, 18.0, 18.0]);
    Ok(())
}
