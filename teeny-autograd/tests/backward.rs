//! A28: the backward API, and the text of every refusal.
use crate::common::{close, device, values, vec};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use teeny_autograd::{Grad, Gradients, grad, no_grad};
use teeny_core::{DType, ErrorKind, Reference, Result, SortOrder, Tensor};

fn refusal<T>(result: Result<T>) -> String {
    let error = result.err().expect("a refusal");
    assert_eq!(error.kind(), ErrorKind::Gradient, "{error}");
    error.to_string()
}

fn assert_says(text: &str, parts: &[&str]) {
    parts.iter().for_each(|part| assert!(text.contains(part), "no {part:?} in:\n{text}"));
}

#[test]
fn only_a_scalar_can_go_without_a_direction() {
    let x = values((2, 3), device()).requires_grad().unwrap();
    let text = refusal(x.mul(2.0).unwrap().backward());
    assert_says(
        &text,
        &[
            "backward at ",
            "backward.rs",
            "the tensor (2, 3) is not a scalar",
            "help: take the gradient of x.sum_all()?",
            "x.backward_with(&g)?",
        ],
    );
    assert!(
        x.slice(0, ..1).unwrap().slice(1, ..1).unwrap().backward().is_ok(),
        "one element is enough"
    );
}

#[test]
fn a_direction_has_the_shape_and_type_of_the_tensor() {
    let d = device();
    let y = values((2, 3), &d).requires_grad().unwrap().mul(2.0).unwrap();
    let text = refusal(y.backward_with(&values((3, 2), &d)));
    assert_says(
        &text,
        &[
            "backward_with at ",
            "expected a gradient of f64 (2, 3), got f64 (3, 2)",
            "one shape and one type",
        ],
    );
    let text = refusal(y.backward_with(&values((2, 3), &d).cast(DType::F32).unwrap()));
    assert_says(&text, &["got f32 (2, 3)"]);
}

#[test]
fn only_floats_go_backward() {
    let x = values(3, device()).requires_grad().unwrap();
    assert_says(
        &refusal(x.argmax(0).unwrap().backward()),
        &["only floats have gradients, not i32"],
    );
    assert_says(
        &refusal(x.gt(0.0).unwrap().any(0).unwrap().backward()),
        &["only floats have gradients, not bool"],
    );
}

#[test]
fn a_gradient_of_a_gradient_says_how_to_nest() {
    let x = values(3, device()).requires_grad().unwrap();
    let plain = values(3, Reference::new());
    let again = |x: &Tensor| x.square()?.sum_all()?.backward()?.take(x)?.sum_all()?.backward();
    for refused in [again(&x).map(|_| ()), grad(|x| again(x)?.take(x), &plain).map(|_| ())] {
        let nested = "grad(|x| grad(f, x)?.sum_all(), &x)";
        let inside = "a gradient is a tensor of the device inside";
        assert_says(&refusal(refused), &[inside, nested]);
    }
}

#[test]
fn a_loss_without_history_says_why() {
    let d = device();
    let plain = values(3, Reference::new()).sum_all().unwrap();
    assert_says(
        &refusal(plain.backward()),
        &[
            "computed on reference, which records nothing",
            "help: run the model on Autograd::new(device)",
        ],
    );
    let constant = values(3, &d).sum_all().unwrap();
    assert_says(
        &refusal(constant.backward()),
        &[
            "nothing it was computed from requires a gradient",
            "help: parameters are made by x.requires_grad()?",
        ],
    );
    let x = values(3, &d).requires_grad().unwrap();
    let line = line!() + 1;
    let unrecorded = no_grad(|| x.sum_all().unwrap());
    assert_says(
        &refusal(unrecorded.backward()),
        &[
            "the tensor has no history: stopped by no_grad at ",
            &format!("backward.rs:{line}"),
            "help: compute it outside of no_grad and of store.evaluate",
        ],
    );
    let detached = x.sum_all().unwrap().detach().unwrap();
    assert_says(
        &refusal(detached.backward()),
        &["stopped by detach at ", "help: compute it without that operation"],
    );
}

/// A loss that depends on `kept` and, through `cut`, no longer on the leaf `lost`.
fn lost(cut: impl Fn(&Tensor) -> Tensor) -> (Gradients, Tensor) {
    let d = device();
    let kept = values(3, &d).requires_grad().unwrap();
    let lost = values(3, &d).requires_grad_named("fc1.weight").unwrap();
    let hidden = cut(&lost.mul(2.0).unwrap()).cast(DType::F64).unwrap();
    let loss = kept.mul(hidden.exp().unwrap()).unwrap().sum_all().unwrap();
    let grads = loss.backward().unwrap();
    assert!(grads.contains(&kept) && !grads.contains(&lost));
    (grads, lost)
}

#[test]
fn a_missing_gradient_names_detach_and_its_line() {
    let (grads, x) = lost(|x| x.detach().unwrap());
    let line = line!() - 1;
    let text = refusal(grads.get(&x));
    assert_says(
        &text,
        &[
            "grads.get at ",
            &format!(
                "no gradient reaches `fc1.weight`: stopped by detach at teeny-autograd/tests/backward.rs:{line}"
            ),
        ],
    );
}

#[test]
fn a_missing_gradient_names_no_grad_and_its_line() {
    let (grads, x) = lost(|x| no_grad(|| x.mul(3.0).unwrap()));
    let line = line!() - 1;
    assert_says(
        &refusal(grads.get(&x)),
        &[
            "no gradient reaches `fc1.weight`: stopped by no_grad at ",
            &format!("backward.rs:{line}"),
        ],
    );
}

#[test]
fn a_missing_gradient_names_the_operation_without_one() {
    let (grads, x) = lost(|x| x.argmax(0).unwrap());
    let line = line!() - 1;
    assert_says(
        &refusal(grads.get(&x)),
        &["stopped by argmax at ", &format!("backward.rs:{line}")],
    );
    let (grads, x) = lost(|x| x.gt(0.5).unwrap());
    assert_says(&refusal(grads.get(&x)), &["stopped by gt at "]);
    let (grads, x) = lost(|x| x.cast(DType::I32).unwrap());
    assert_says(&refusal(grads.get(&x)), &["stopped by cast at "]);
    let (grads, x) = lost(|x| x.sort(0, SortOrder::Ascending).unwrap().1);
    assert_says(&refusal(grads.get(&x)), &["stopped by the positions of sort at "]);
}

#[test]
fn a_new_leaf_cuts_its_past_too() {
    let (grads, x) = lost(|x| x.requires_grad().unwrap());
    assert_says(&refusal(grads.get(&x)), &["stopped by requires_grad at "]);
}

#[test]
fn several_cuts_are_all_named() {
    let (grads, x) = lost(|x| x.detach().unwrap() + x.argmax(0).unwrap().cast(DType::F64).unwrap());
    assert_says(
        &refusal(grads.get(&x)),
        &["stopped by detach at ", "\n  also stopped by argmax at "],
    );
}

#[test]
fn cuts_cost_bounded_memory() {
    let d = device();
    let x = values(3, &d).requires_grad_named("x").unwrap();
    let mut state = values(3, &d);
    for _ in 0..10_000 {
        state = state.mul(0.5).unwrap().add(x.detach().unwrap()).unwrap();
    }
    let w = values(3, &d).requires_grad().unwrap();
    let grads = w.mul(&state).unwrap().sum_all().unwrap().backward().unwrap();
    let text = refusal(grads.get(&x));
    assert_eq!(text.matches("stopped by").count(), 1, "{text}");
}

#[test]
fn a_leaf_off_the_path_has_no_gradient() {
    let d = device();
    let (x, other) = (
        values(3, &d).requires_grad().unwrap(),
        values(2, &d).requires_grad_named("head.bias").unwrap(),
    );
    let grads = x.sum_all().unwrap().backward().unwrap();
    assert_says(
        &refusal(grads.get(&other)),
        &["no gradient reaches `head.bias`: the loss does not depend on it"],
    );
}

#[test]
fn what_requires_no_gradient_has_none() {
    let d = device();
    let x = values(3, &d).requires_grad().unwrap();
    let grads = x.sum_all().unwrap().backward().unwrap();
    assert_says(
        &refusal(grads.get(&values(3, &d))),
        &["no gradient reaches the tensor (3,): it does not require one"],
    );
    assert_says(
        &refusal(grads.get(&x.detach().unwrap())),
        &["no gradient reaches the tensor (3,): stopped by detach at "],
    );
    assert_says(
        &refusal(grads.get(&values(3, Reference::new()))),
        &["is on reference, which records nothing"],
    );
}

#[test]
fn intermediates_are_kept_on_request() {
    let x = values((2, 3), device()).requires_grad().unwrap();
    let h = x.mul(2.0).unwrap();
    let text = refusal(h.sum_all().unwrap().backward().unwrap().get(&h));
    assert_says(
        &text,
        &["the gradient of the mul (2, 3) at ", "was not kept", "help: let x = x.retain_grad()?"],
    );
    let h = h.retain_grad().unwrap();
    let grads = h.square().unwrap().sum_all().unwrap().backward().unwrap();
    close(&vec(grads.get(&h).unwrap()), &vec(&h.mul(2.0).unwrap()), 1e-12);
    close(&vec(grads.get(&x).unwrap()), &vec(&x.mul(8.0).unwrap()), 1e-12);
}

#[test]
fn views_have_gradients_as_values_of_their_own() {
    let x = values((2, 3), device()).requires_grad_named("w").unwrap();
    let grads = x.square().unwrap().sum_all().unwrap().backward().unwrap();
    assert_says(
        &refusal(grads.get(&x.t().unwrap())),
        &["the tensor (3, 2) is a view of `w` (2, 3)", "x.retain_grad()?"],
    );
    let part = x.t().unwrap().retain_grad().unwrap();
    let grads = part.square().unwrap().sum_all().unwrap().backward().unwrap();
    assert_eq!(*grads.get(&part).unwrap().shape(), [3, 2]);
    close(&vec(grads.get(&part).unwrap()), &vec(&x.t().unwrap().mul(2.0).unwrap()), 1e-12);
    close(&vec(grads.get(&x).unwrap()), &vec(&x.mul(2.0).unwrap()), 1e-12);
}

#[test]
fn backward_twice_is_legal_and_gives_the_same() {
    let x = values((3, 3), device()).requires_grad().unwrap();
    let loss = x
        .matmul(&x)
        .unwrap()
        .tanh()
        .unwrap()
        .softmax(0)
        .unwrap()
        .square()
        .unwrap()
        .sum_all()
        .unwrap();
    let (first, second) = (loss.backward().unwrap(), loss.backward().unwrap());
    assert_eq!(vec(first.get(&x).unwrap()), vec(second.get(&x).unwrap()));
    assert_eq!(vec(loss.into_backward().unwrap().get(&x).unwrap()), vec(first.get(&x).unwrap()));
}

#[test]
fn hooks_see_complete_gradients_and_may_replace_them() {
    let x = values(3, device()).requires_grad().unwrap();
    let h = x.mul(2.0).unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let watching = h.register_hook(move |g| {
        log.lock().unwrap().push(vec(g));
        Ok(None)
    });
    let doubling = h.register_hook(|g| Ok(Some(g.mul(10.0)?))).unwrap();
    let loss = (&h + &h).sum_all().unwrap();
    assert_eq!(vec(loss.backward().unwrap().get(&x).unwrap()), [40.0; 3]);
    doubling.remove();
    assert_eq!(vec(loss.backward().unwrap().get(&x).unwrap()), [4.0; 3]);
    assert_eq!(
        *seen.lock().unwrap(),
        [[2.0; 3], [2.0; 3]],
        "once per pass, with both uses added up"
    );
    drop(watching.unwrap());
    assert_says(
        &refusal(h.t().unwrap().slice(0, 1..).unwrap().register_hook(|_| Ok(None))),
        &["is a view of the mul (3,)"],
    );
    assert_says(
        &refusal(values(3, x.device()).register_hook(|_| Ok(None))),
        &["it is not tracked"],
    );
}

#[test]
fn an_error_in_a_hook_or_rule_is_an_error_of_backward() {
    let x = values(3, device()).requires_grad().unwrap();
    let _hook = x.register_hook(|g| g.matmul(&g.reshape((1, 3))?).map(Some)).unwrap();
    let text = x.exp().unwrap().sum_all().unwrap().backward().unwrap_err().to_string();
    assert_says(&text, &["backward at ", "cannot multiply (3,) @ (1, 3)"]);
}

#[test]
fn an_error_in_a_rule_names_the_operation_and_its_line() {
    struct Broken;
    impl teeny_autograd::Function for Broken {
        fn name(&self) -> &'static str {
            "broken"
        }
        fn forward(&self, x: &[&Tensor], _: &mut teeny_autograd::Saved) -> Result<Tensor> {
            x[0].copy()
        }
        fn backward(&self, _: &teeny_autograd::Saved, g: &Tensor) -> Result<Vec<Option<Tensor>>> {
            Ok(vec![Some(g.reshape((7, 7))?)])
        }
    }
    let x = values(3, device()).requires_grad().unwrap();
    let y = teeny_autograd::apply(Broken, &[&x]).unwrap();
    let line = line!() - 1;
    let text = y.sum_all().unwrap().backward().unwrap_err().to_string();
    assert_says(
        &text,
        &[&format!("broken at teeny-autograd/tests/backward.rs:{line}: (3,) cannot become (7, 7)")],
    );
}

#[test]
fn a_hook_may_be_called_from_several_threads() {
    let x = values(3, device()).requires_grad().unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let counter = count.clone();
    x.register_hook(move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
        Ok(None)
    })
    .unwrap();
    let loss = x.exp().unwrap().sum_all().unwrap();
    std::thread::scope(|s| (0..4).for_each(|_| drop(s.spawn(|| loss.backward().unwrap()))));
    assert_eq!(count.load(Ordering::Relaxed), 4);
}
