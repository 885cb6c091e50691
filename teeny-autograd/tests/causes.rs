//! Why a gradient is missing: each cause has its own message.

use crate::common::{device, values};
use teeny_autograd::{Function, Grad, Gradients, Saved, apply};
use teeny_core::{DType, Reference, Result, SortOrder, Tensor};

/// Twice the sum of its inputs, with a gradient for the first one only.
struct Half;

impl Function for Half {
    fn name(&self) -> &'static str {
        "half_known"
    }
    fn forward(&self, inputs: &[&Tensor], _: &mut Saved) -> Result<Tensor> {
        inputs[0].add(inputs[1])?.mul(2.0)
    }
    fn backward(&self, _: &Saved, g: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(g.mul(2.0)?), None])
    }
}

fn leaf(name: &str) -> Tensor {
    values(3, device()).requires_grad_named(name).unwrap()
}

fn on(x: &Tensor, name: &str) -> Tensor {
    values(3, x.device()).requires_grad_named(name).unwrap()
}

fn backward(loss: &Tensor) -> Gradients {
    loss.sum_all().unwrap().backward().unwrap()
}

#[track_caller]
fn says(grads: &Gradients, x: &Tensor, parts: &[&str]) {
    let error = grads.get(x).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with(&format!("grads.get at {}:", file!())), "{text}");
    parts.iter().for_each(|part| assert!(text.contains(part), "no {part:?} in: {text}"));
}

#[test]
fn a_function_that_gave_none() {
    let a = leaf("a");
    let b = on(&a, "b");
    let line = line!() + 1;
    let y = apply(Half, &[&a, &b.mul(3.0).unwrap()]).unwrap();
    let grads = backward(&y);
    grads.get(&a).unwrap();
    says(
        &grads,
        &b,
        &[
            "no gradient reaches `b`",
            &format!(
                "the backward function of half_known at {}:{line} gave None for input 1",
                file!()
            ),
        ],
    );
}

#[test]
fn a_value_that_was_replaced() {
    let old = leaf("fc.weight");
    // what a step does: another leaf of the same name
    let new = old.detach().unwrap().mul(0.5).unwrap().requires_grad_named("fc.weight").unwrap();
    let grads = backward(&old.square().unwrap());
    says(
        &grads,
        &new,
        &[
            "this value of `fc.weight` has no gradient: the gradient is of an earlier \
             value, which a step or `set` has replaced since",
            "again after a step",
        ],
    );
    assert!(grads.is_stale(&new) && !grads.is_stale(&old));
    let grads = backward(&new.square().unwrap());
    says(
        &grads,
        &old,
        &[
            "of a later value: this tensor is one that a step or `set` has replaced",
            "param.value()",
        ],
    );
    assert!(grads.is_stale(&old) && !grads.is_stale(&on(&old, "fc.bias")));
}

#[test]
fn integers_have_no_gradient() {
    let x = leaf("x");
    let w = on(&x, "w");
    let by_line = |line: u32, what: &str| format!("stopped by {what} at {}:{line}", file!());
    let hot = x.argmax(0).unwrap().one_hot(3, DType::F64).unwrap();
    says(&backward(&w.mul(&hot).unwrap()), &x, &[&by_line(line!() - 1, "argmax")]);
    let hot = x.cast(DType::I64).unwrap().clamp(0, 2).unwrap().one_hot(3, DType::F64).unwrap();
    says(&backward(&w.mul(hot.sum(0).unwrap()).unwrap()), &x, &[&by_line(line!() - 1, "cast")]);
    let picked = w.index_select(0, &x.argsort(0, SortOrder::Ascending).unwrap()).unwrap();
    says(&backward(&picked), &x, &["stopped by the positions of sort at"]);
    let spread = w.scatter_add(0, &x.cast(DType::I32).unwrap().clamp(0, 2).unwrap(), &w).unwrap();
    says(&backward(&spread), &x, &["stopped by cast at"]);
}

#[test]
fn a_round_trip_through_another_device() {
    let x = leaf("x");
    let w = on(&x, "w");
    let autograd = x.device().clone();
    let elsewhere = Reference::new();
    for other in [autograd.inner().unwrap().clone(), elsewhere] {
        let line = line!() + 1;
        let copy = x.mul(2.0).unwrap().to(&other).unwrap();
        let grads = backward(&w.mul(copy.to(&autograd).unwrap()).unwrap());
        let left =
            format!("left the device by `to` at {}:{line}: the copy has no history", file!());
        says(
            &grads,
            &x,
            &[
                "no gradient reaches `x`: the loss does not depend on it",
                &left,
                "keep it on the device that records",
            ],
        );
    }
    let line = line!() + 1;
    let read = x.to_vec::<f64>().unwrap();
    let grads = backward(&w.mul(Tensor::from_vec(read, 3, &autograd).unwrap()).unwrap());
    says(&grads, &x, &[&format!("by `to_vec` at {}:{line}", file!())]);
}

/// Also where 128 leaves have been made since, of which a value was copied: the leaf shares its bit
/// with one of them.
#[test]
fn a_leaf_that_was_not_used() {
    let x = leaf("x");
    let unused = on(&x, "head.bias");
    let others: Vec<Tensor> = (0..128).map(|i| on(&x, &format!("other {i}"))).collect();
    let sum = others.iter().fold(x.clone(), |sum, other| sum.add(other).unwrap());
    sum.to_vec::<f64>().unwrap();
    says(
        &backward(&x.square().unwrap()),
        &unused,
        &[
            "no gradient reaches `head.bias`: the loss does not depend on it",
            "was its layer called?",
        ],
    );
}
