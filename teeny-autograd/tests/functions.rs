//! A30: Jacobians, Hessians and their products as functions of functions, what they cost, and how
//! they nest.
use crate::common::counter::Counter;
use crate::common::{close, values, vec};
use teeny_autograd::{
    Autograd, Grad, allow_unused, checkpoint, grad, hessian, hvp, jacobian, jacobian_columns,
    jacobian_rows, jvp, no_grad, vjp,
};
use teeny_core::{DType, ErrorKind, Reference, Result, Tensor};

/// A function of 12 numbers with 10 results, in which everything depends on everything.
fn network(x: &Tensor) -> Result<Tensor> {
    let w = values((4, 5), x);
    x.matmul(&w)?.layer_norm(1, None, None, 1e-3)?.tanh()?.softmax(0)?.slice(0, 1..)
}

#[test]
fn the_jacobian_by_columns_is_the_jacobian_by_rows() {
    let x = values((3, 4), Reference::new());
    let rows = jacobian_rows(network, &x).unwrap();
    assert_eq!(rows.shape().to_vec(), [2, 5, 3, 4]);
    let columns = jacobian_columns(network, &x).unwrap();
    assert_eq!((columns.shape(), columns.is_contiguous()), (rows.shape(), true));
    close(&vec(&rows), &vec(&columns), 1e-10);
    close(&vec(&rows), &vec(&jacobian(network, &x).unwrap()), 1e-10);
    // Its products equal the results of the functions that never form it.
    let (v, g) = (x.add(0.5).unwrap(), values((2, 5), &x).sub(0.2).unwrap());
    let matrix = rows.reshape((10, 12)).unwrap();
    close(
        &vec(&matrix.matmul(&v.reshape(12).unwrap()).unwrap()),
        &vec(&jvp(network, &x, &v).unwrap().1),
        1e-10,
    );
    close(
        &vec(&g.reshape(10).unwrap().matmul(&matrix).unwrap()),
        &vec(&vjp(network, &x, &g).unwrap().1),
        1e-10,
    );
}

#[test]
fn rows_cost_a_pass_per_result_and_columns_one_per_argument() {
    let device = Counter::new(Reference::new());
    for (n, m) in [(7, 3), (2, 5)] {
        let (x, w) = (values(n, &device), values((m, n), &device));
        let f = |x: &Tensor| w.matmul(x)?.sin();
        let matmuls = |run: &dyn Fn() -> Tensor| {
            device.take();
            let jacobian = run();
            (device.take().matmul, vec(&jacobian))
        };
        let (by_rows, rows) = matmuls(&|| jacobian_rows(f, &x).unwrap());
        let (by_columns, columns) = matmuls(&|| jacobian_columns(f, &x).unwrap());
        close(&rows, &columns, 1e-12);
        assert_eq!(by_rows, 1 + m, "one run, then a backward pass for each of {m} results");
        assert_eq!(by_columns, 2 * n, "for each of {n} arguments the value and its tangent");
        let (by_fewer, fewer) = matmuls(&|| jacobian(f, &x).unwrap());
        close(&rows, &fewer, 1e-12);
        assert_eq!(
            by_fewer,
            if m <= n { 1 + m } else { 1 + 2 * n },
            "the cheaper of the two, after one recorded run"
        );
    }
}

#[test]
fn a_hessian_product_costs_twice_a_gradient() {
    let device = Counter::new(Reference::new());
    let (x, w) = (values(6, &device), values((4, 6), &device));
    let f = |x: &Tensor| w.matmul(x)?.tanh()?.square()?.sum_all();
    device.take();
    let _ = grad(f, &x).unwrap();
    let once = device.take().matmul;
    let _ = hvp(f, &x, &x).unwrap();
    assert_eq!((once, device.take().matmul), (2, 4));
}

#[test]
fn the_derivatives_of_sin_by_every_mix_of_modes() {
    let x = values((), Reference::new());
    let one = x.ones_like().unwrap();
    let forward = |f: &dyn Fn(&Tensor) -> Result<Tensor>, x: &Tensor| Ok(jvp(f, x, &one)?.1);
    let reverse = |f: &dyn Fn(&Tensor) -> Result<Tensor>, x: &Tensor| grad(f, x);
    let value = x.item::<f64>().unwrap();
    type Derivative<'a> = &'a dyn Fn(&dyn Fn(&Tensor) -> Result<Tensor>, &Tensor) -> Result<Tensor>;
    let modes: [Derivative<'_>; 2] = [&forward, &reverse];
    for a in modes {
        for b in modes {
            let second = a(&|x| b(&|x| x.sin(), x), &x).unwrap();
            close(&[second.item().unwrap()], &[-value.sin()], 1e-14);
            for c in modes {
                let third = a(&|x| b(&|x| c(&|x| x.sin(), x), x), &x).unwrap();
                close(&[third.item().unwrap()], &[-value.cos()], 1e-14);
            }
        }
    }
}

#[test]
fn levels_do_not_confuse_their_tangents() {
    // d/dx (x d/dy (x + y)) = 1: an inner derivative that took the outer tangent for its own would
    // give 2 (Siskind & Pearlmutter 2005).
    let x = Tensor::new(1.0f64, Reference::new()).unwrap();
    let one = x.ones_like().unwrap();
    let outer = |x: &Tensor| x.mul(&jvp(|y| x.add(y), &one, &one)?.1);
    assert_eq!(jvp(outer, &x, &one).unwrap().1.item::<f64>().unwrap(), 1.0);
    let mixed = |x: &Tensor| x.mul(&grad(|y| x.add(y), &one)?);
    assert_eq!(jvp(mixed, &x, &one).unwrap().1.item::<f64>().unwrap(), 1.0);
    assert_eq!(grad(outer, &x).unwrap().item::<f64>().unwrap(), 1.0);
}

#[test]
fn the_hessian_of_several_tensors_has_a_block_for_each_pair() {
    // f = a' M b with a: (2), b: (3): the mixed blocks are M and its transpose, the others 0.
    let m = values((2, 3), Reference::new());
    let (a, b) = (values(2, &m), values(3, &m));
    let f = |[a, b]: &[Tensor; 2]| a.matmul(&m)?.matmul(b);
    let [[aa, ab], [ba, bb]] = hessian(f, &[a.clone(), b.clone()]).unwrap();
    assert_eq!((vec(&aa), vec(&bb)), (vec![0.0; 4], vec![0.0; 9]));
    close(&vec(&ab), &vec(&m), 1e-14);
    close(&vec(&ba), &vec(&m.t().unwrap()), 1e-14);
    assert_eq!(ba.shape().to_vec(), [3, 2]);
    // The same of a vector of tensors.
    let rows = hessian(|x: &Vec<Tensor>| x[0].matmul(&m)?.matmul(&x[1]), &vec![a, b]).unwrap();
    close(&vec(&rows[0][1]), &vec(&m), 1e-14);
}

#[test]
fn the_hessian_is_the_jacobian_of_the_gradient_and_symmetric() {
    let x = values((3, 4), Reference::new());
    let f = |x: &Tensor| network(x)?.mul(values((2, 5), x))?.square()?.sum_all();
    let h = hessian(f, &x).unwrap();
    assert_eq!(h.shape().to_vec(), [3, 4, 3, 4]);
    close(&vec(&h), &vec(&h.permute([2, 3, 0, 1]).unwrap()), 1e-10);
    close(&vec(&h), &vec(&jacobian_rows(|x| grad(f, x), &x).unwrap()), 1e-10);
    let v = x.add(0.5).unwrap();
    let product = h.reshape((12, 12)).unwrap().matmul(&v.reshape(12).unwrap()).unwrap();
    let (gradient, along) = hvp(f, &x, &v).unwrap();
    close(&vec(&product), &vec(&along), 1e-10);
    close(&vec(&gradient), &vec(&grad(f, &x).unwrap()), 1e-12);
}

#[test]
fn an_unused_argument_has_zero_derivatives_where_that_is_allowed() {
    let x = values(3, Reference::new());
    let c = values(2, &x);
    let constant = |_: &Tensor| Ok(c.clone());
    assert_eq!(vec(&allow_unused(|| jvp(constant, &x, &x)).unwrap().1), [0.0; 2]);
    let (y, g) = allow_unused(|| vjp(constant, &x, &c)).unwrap();
    assert_eq!((vec(&y), vec(&g)), (vec(&c), vec![0.0; 3]));
    for j in allow_unused(|| [jacobian_rows(constant, &x), jacobian_columns(constant, &x)]) {
        let j = j.unwrap();
        assert_eq!((j.shape().to_vec(), vec(&j)), (vec![2, 3], vec![0.0; 6]));
    }
    let first = |[a, _]: &[Tensor; 2]| a.sum_all();
    let partial = allow_unused(|| grad(first, &[x.clone(), c.clone()])).unwrap();
    assert_eq!((vec(&partial[0]), vec(&partial[1])), (vec![1.0; 3], vec![0.0; 2]));
    // the permission ends with the body, also after a panic
    let panics = || allow_unused(|| -> () { panic!("in the body") });
    assert!(std::panic::catch_unwind(panics).is_err());
    assert!(vjp(constant, &x, &c).is_err());
}

#[test]
fn an_argument_that_the_function_does_not_use() {
    let device = Autograd::new(Reference::new());
    let x = values(3, &device).requires_grad_named("w").unwrap();
    let (a, c) = (values(3, &device), values((), &device));
    let constant = |_: &Tensor| Ok(c.clone());
    #[rustfmt::skip]
    let errors = [
        ("grad", line!(), grad(constant, &x).map(|_| ())),
        ("vjp", line!(), vjp(constant, &x, &c).map(|_| ())),
        ("jvp", line!(), jvp(constant, &x, &a).map(|_| ())),
        ("hvp", line!(), hvp(constant, &x, &a).map(|_| ())),
        ("hessian", line!(), hessian(constant, &x).map(|_| ())),
        ("jacobian", line!(), jacobian(constant, &x).map(|_| ())),
        ("jacobian", line!(), jacobian_rows(constant, &x).map(|_| ())),
        ("jacobian", line!(), jacobian_columns(constant, &x).map(|_| ())),
        // the values reach the function, but not as its argument
        ("grad", line!(), grad(|w| w.detach()?.sum_all(), &x).map(|_| ())),
        ("grad", line!(), grad(|w| w.to(a.device())?.sum_all(), &x).map(|_| ())),
        ("grad", line!(), grad(|w| w.to_vec::<f64>().and_then(|w| c.mul(w[0])), &x).map(|_| ())),
    ];
    for (name, line, result) in errors {
        let error = result.unwrap_err();
        let text = error.to_string();
        assert_eq!(error.kind(), ErrorKind::Gradient, "{text}");
        assert!(text.starts_with(&format!("{name} at {}:{line}", file!())), "{text}");
        assert!(text.contains("the function does not use `w`, f64 (3,)"), "{text}");
        assert!(text.contains("allow_unused"), "{text}");
    }
    // each argument counts
    let second = |[_, b]: &[Tensor; 2]| b.sum_all();
    let both = [a.clone(), x.clone()];
    for error in [
        grad(second, &both).map(|_| ()).unwrap_err(),
        jvp(second, &both, &both).map(|_| ()).unwrap_err(),
        hvp(second, &both, &both).map(|_| ()).unwrap_err(),
        jacobian_columns(second, &both).map(|_| ()).unwrap_err(),
    ] {
        assert!(error.to_string().contains("does not use argument 0, f64 (3,)"), "{error}");
    }
}

#[test]
fn a_used_argument_may_have_zero_derivatives() {
    let x = values(3, Reference::new());
    let linear = |x: &Tensor| x.mul(2.0)?.sum_all();
    assert_eq!(vec(&hvp(linear, &x, &x).unwrap().1), [0.0; 3]);
    assert_eq!(vec(&hessian(linear, &x).unwrap()), [0.0; 9]);
    assert_eq!(vec(&grad(|x| grad(linear, x)?.sum_all(), &x).unwrap()), [0.0; 3]);
    assert_eq!(vec(&grad(|x| x.floor()?.sum_all(), &x).unwrap()), [0.0; 3]);
    assert_eq!(vec(&jvp(|x| x.gt(0.0), &x, &x).unwrap().1.cast(DType::F64).unwrap()), [0.0; 3]);
    assert_eq!(vec(&jvp(|x| x.argmax(0), &x, &x).unwrap().1.cast(DType::F64).unwrap()), [0.0]);
    // views of the argument, and the argument itself
    assert_eq!(vec(&jvp(|x| x.flip(0), &x, &x.ones_like().unwrap()).unwrap().1), [1.0; 3]);
    assert_eq!(vec(&grad(|x| x.at(0, 1), &x).unwrap()), [0.0, 1.0, 0.0]);
    let whole = jacobian_rows(|x| Ok(x.clone()), &x).unwrap();
    assert_eq!(vec(&whole.sum_all().unwrap()), [3.0]);
    // written into, and behind a checkpoint
    let assigned = |x: &Tensor| x.clone().slice_assign(0, 0..3, &x.zeros_like()?)?.sum_all();
    assert_eq!(vec(&grad(assigned, &x).unwrap()), [0.0; 3]);
    assert_eq!(vec(&jvp(assigned, &x, &x).unwrap().1), [0.0]);
    let saved = |x: &Tensor| checkpoint(|x| x[0].square(), &[x])?.sum_all();
    close(&vec(&grad(saved, &x).unwrap()), &vec(&x.mul(2.0).unwrap()), 1e-14);
}

#[test]
fn empty_arguments_and_results_have_empty_jacobians() {
    let x = values(3, Reference::new());
    let none = x.slice(0, ..0).unwrap();
    for j in [
        jacobian_rows(|x| x.slice(0, ..0), &x).unwrap(),
        jacobian_columns(|x| x.slice(0, ..0), &x).unwrap(),
    ] {
        assert_eq!(j.shape().to_vec(), [0, 3]);
    }
    for j in [
        jacobian_rows(|e| Tensor::cat(&[e, &x], 0), &none).unwrap(),
        jacobian_columns(|e| Tensor::cat(&[e, &x], 0), &none).unwrap(),
    ] {
        assert_eq!(j.shape().to_vec(), [3, 0]);
    }
}

#[test]
fn detach_stops_derivatives_of_every_order() {
    let x = Tensor::new(3.0f64, Reference::new()).unwrap();
    let one = x.ones_like().unwrap();
    let f = |x: &Tensor| x.mul(&x.detach()?);
    assert_eq!(jvp(f, &x, &one).unwrap().1.item::<f64>().unwrap(), 3.0);
    let (gradient, along) = hvp(f, &x, &one).unwrap();
    assert_eq!((gradient.item::<f64>().unwrap(), along.item::<f64>().unwrap()), (3.0, 0.0));
    assert_eq!(grad(|x| grad(f, x), &x).unwrap().item::<f64>().unwrap(), 0.0);
}

#[test]
fn functions_differentiate_under_no_grad_and_over_tracked_tensors() {
    let device = Autograd::new(Reference::new());
    let w = values(3, &device).requires_grad().unwrap();
    let f = |x: &Tensor| x.mul(&w)?.sin()?.sum_all();
    let x = values(3, &device).add(0.5).unwrap();
    let expected = vec(&w.mul(x.mul(&w).unwrap().cos().unwrap()).unwrap());
    // Recorded below: the gradient by x has itself a gradient by w.
    let slope = grad(f, &x).unwrap();
    close(&vec(&slope), &expected, 1e-14);
    assert!(slope.sum_all().unwrap().backward().unwrap().contains(&w));
    let plain = no_grad(|| grad(f, &x)).unwrap();
    close(&vec(&plain), &expected, 1e-14);
    assert!(!plain.is_tracked());
    close(
        &vec(&no_grad(|| jvp(f, &x, &x.ones_like()?)).unwrap().1),
        &[expected.iter().sum()],
        1e-14,
    );
}

#[test]
fn mistakes_are_told_by_their_name() {
    let x = values(3, Reference::new());
    let sin = |x: &Tensor| x.sin();
    let error = jvp(sin, &x, &values(2, &x)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Gradient);
    let text = error.to_string();
    assert!(
        text.starts_with("jvp at teeny-autograd/tests/functions.rs:")
            && text.contains("direction 0 is f64 (2,), the argument f64 (3,)"),
        "{text}"
    );
    let text = grad(sin, &x).unwrap_err().to_string();
    assert!(
        text.starts_with("grad at ")
            && text.contains("expected a function of one number, got (3,)"),
        "{text}"
    );
    let text = vjp(sin, &x, &values(2, &x)).unwrap_err().to_string();
    assert!(
        text.starts_with("vjp at ")
            && text.contains("expected a gradient of f64 (3,), got f64 (2,)"),
        "{text}"
    );
    let whole = x.cast(DType::I64).unwrap();
    assert!(
        jvp(|x| x.square(), &whole, &whole).unwrap_err().to_string().contains("a tangent of i64")
    );
    let text =
        jvp(|x: &Vec<Tensor>| x[0].sin(), &vec![x.clone()], &vec![]).unwrap_err().to_string();
    assert!(text.contains("needs 1 tensors, not 0"), "{text}");
    // An error of the function names the line in the function.
    let text = jvp(|x| x.matmul(&values((4, 4), x)), &x, &x).unwrap_err().to_string();
    assert!(text.starts_with("matmul at teeny-autograd/tests/functions.rs:"), "{text}");
}
