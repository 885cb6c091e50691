//! Models as functions of their parameters: gradients, Hessian products, Jacobians and per-sample
//! gradients by `Store::with_values`, against the backward pass.

use crate::common::{assert_close, autograd};
use teeny_autograd::{Autograd, Grad, grad, hessian, hvp, jacobian, jvp, vjp};
use teeny_core::{DType, ErrorKind, Reference, Result, Tensor, random};
use teeny_nn::loss::{Reduction, cross_entropy, mse};
use teeny_nn::{Activation, BatchNorm, Linear, Module, Param, Sequential, Store};

/// A network with normalisation in f64, a batch, and the parameters that are trained.
struct Setup {
    store: Store,
    model: Sequential,
    x: Tensor,
    targets: Tensor,
    params: Vec<Param>,
    values: Vec<Tensor>,
}

impl Setup {
    fn new() -> Setup {
        random::with_seed(3, Setup::drawn)
    }

    fn drawn() -> Setup {
        let store = Store::with_dtype(autograd(), DType::F64);
        let model = Sequential::new()
            .then(Linear::new(&store.at("fc1"), 3, 4).unwrap())
            .then(BatchNorm::new(&store.at("bn"), 4).unwrap())
            .then(Activation::Tanh)
            .then(Linear::new(&store.at("fc2"), 4, 2).unwrap());
        let x = Tensor::randn((5, 3), DType::F64, store.device()).unwrap(); // (5, 3)
        let targets = Tensor::new([0i32, 1, 1, 0, 1], store.device()).unwrap(); // (5)
        let params = store.trainable();
        let values = params.iter().map(Param::value).collect();
        Setup { store, model, x, targets, params, values }
    }

    fn loss(&self) -> Result<Tensor> {
        cross_entropy(&self.model.forward(&self.x)?, &self.targets)
    }

    /// The result of `f` with the parameters `w`.
    fn with<T>(&self, w: &[Tensor], f: impl FnOnce() -> Result<T>) -> Result<T> {
        self.store.with_values(self.params.iter().map(Param::name).zip(w), f)
    }

    fn directions(&self) -> Vec<Tensor> {
        self.values.iter().map(|w| w.ones_like().unwrap()).collect()
    }
}

fn vec(x: &Tensor) -> Vec<f64> {
    x.to_vec().unwrap()
}

fn dot(a: &[Tensor], b: &[Tensor]) -> f64 {
    a.iter().zip(b).flat_map(|(a, b)| vec(a).into_iter().zip(vec(b))).map(|(a, b)| a * b).sum()
}

#[test]
fn the_gradient_of_a_model_is_that_of_the_backward_pass() {
    let s = Setup::new();
    let gradients = s.loss().unwrap().backward().unwrap();
    let by_function = grad(|w: &Vec<Tensor>| s.with(w, || s.loss()), &s.values).unwrap();
    let one = Tensor::ones((), DType::F64, s.store.device()).unwrap();
    let (value, by_vjp) = vjp(|w: &Vec<Tensor>| s.with(w, || s.loss()), &s.values, &one).unwrap();
    assert_eq!(vec(&value), vec(&s.loss().unwrap()));
    for (i, w) in s.values.iter().enumerate() {
        let expected = vec(gradients.get(w).unwrap());
        assert_close(&vec(&by_function[i]), &expected, 1e-12, &s.params[i].name());
        assert_close(&vec(&by_vjp[i]), &expected, 1e-12, &s.params[i].name());
    }
    let along =
        jvp(|w: &Vec<Tensor>| s.with(w, || s.loss()), &s.values, &s.directions()).unwrap().1;
    assert_close(&vec(&along), &[dot(&by_function, &s.directions())], 1e-12, &"jvp");
}

#[test]
fn hessian_products_of_a_model_are_differences_of_its_gradients() {
    let s = Setup::new();
    let of = |w: &Vec<Tensor>| s.with(w, || s.loss());
    let v = s.directions();
    let (gradient, product) = hvp(of, &s.values, &v).unwrap();
    let shifted = |step: f64| {
        let w = s.values.iter().map(|w| w.add(step).unwrap()).collect::<Vec<_>>();
        grad(of, &w).unwrap()
    };
    let (high, low) = (shifted(1e-5), shifted(-1e-5));
    for i in 0..v.len() {
        let numeric = high[i].sub(&low[i]).unwrap().div(2e-5).unwrap();
        assert_close(&vec(&product[i]), &vec(&numeric), 1e-6, &s.params[i].name());
    }
    let gradients = s.loss().unwrap().backward().unwrap();
    assert_close(&vec(&gradient[0]), &vec(gradients.get(&s.values[0]).unwrap()), 1e-12, &"hvp");
    // of one parameter among others, which stay parameters
    let last = [s.params.last().unwrap().name()];
    let bias = |b: &Tensor| s.store.with_values(last.into_iter().zip([b]), || s.loss());
    let h = hessian(bias, s.values.last().unwrap()).unwrap(); // (2, 2)
    assert_close(&[vec(&h)[0] + vec(&h)[1]], &[0.0], 1e-12, &"softmax ignores a common shift");
}

#[test]
fn jacobians_and_gradients_of_single_samples() {
    let s = Setup::new();
    s.store.set_training(false);
    let w1 = &s.values[0];
    let outputs = |w: &Tensor| s.with(std::slice::from_ref(w), || s.model.forward(&s.x)?.sum(1));
    let j = jacobian(outputs, w1).unwrap(); // (5, 4, 3)
    assert_eq!(j.shape()[..], [5, 4, 3]);
    for i in 0..5 {
        let row = s.x.slice(0, i..i + 1).unwrap();
        let one = |w: &Tensor| s.with(std::slice::from_ref(w), || s.model.forward(&row)?.sum_all());
        let of_sample = grad(one, w1).unwrap();
        assert_close(&vec(&of_sample), &vec(&j.at(0, i as isize).unwrap()), 1e-12, &i);
    }
}

#[test]
fn the_former_values_are_back_also_after_errors_and_panics() {
    let s = Setup::new();
    let zeros = vec![s.values[0].zeros_like().unwrap()];
    let same = || s.params.iter().zip(&s.values).all(|(p, w)| p.value().leaf_id() == w.leaf_id());
    s.with(&zeros, || {
        assert_eq!(vec(&s.params[0].value()), vec![0.0; 12]);
        assert!(!same());
        Ok(())
    })
    .unwrap();
    assert!(same());
    let failed = || s.with(&zeros, || s.x.matmul(&s.x)).unwrap_err().to_string();
    assert!(failed().starts_with("matmul at teeny-nn/tests/functional.rs"), "{}", failed());
    assert!(same());
    let panics = || s.with(&zeros, || -> Result<()> { panic!("in the body") });
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
    assert!(same());
    // gradients of the loss before are still found
    let gradients = s.loss().unwrap().backward().unwrap();
    let _ = s.with(&zeros, || s.loss()).unwrap();
    gradients.get(&s.params[0].value()).unwrap();
}

#[test]
fn running_statistics_keep_no_graph() {
    let s = Setup::new();
    let of = |w: &Vec<Tensor>| s.with(w, || s.loss());
    hvp(of, &s.values, &s.directions()).unwrap();
    let _ = grad(|w: &Tensor| s.with(std::slice::from_ref(w), || s.loss()), &s.values[0]).unwrap();
    for buffer in s.store.all().iter().filter(|p| !p.is_trainable()) {
        let value = buffer.value();
        assert!(!value.is_tracked(), "{}", buffer.name());
        assert_eq!(value.device().info().name, s.store.device().info().name);
    }
}

#[test]
fn values_that_do_not_fit() {
    let s = Setup::new();
    let (w, bias) = (&s.values[0], &s.values[1]);
    let error = |values: &[(&str, &Tensor)]| {
        let error = s.store.with_values(values.iter().copied(), || Ok(())).unwrap_err();
        assert!(error.has_help());
        error
    };
    let text = error(&[("fc9.weight", w)]).to_string();
    assert!(text.starts_with("store.with_values at teeny-nn/tests/functional.rs"), "{text}");
    assert!(text.contains("no parameter \"fc9.weight\""), "{text}");
    let text = error(&[("fc1.weight", bias)]).to_string();
    assert!(
        text.contains("parameter \"fc1.weight\" is (4, 3), but the new value is (4,)"),
        "{text}"
    );
    let text = error(&[("fc1.weight", &w.cast(DType::F32).unwrap())]).to_string();
    assert!(text.contains("got f32") && text.contains("DType::F64"), "{text}");
    let text = error(&[("fc1.weight", w), ("fc1.weight", w)]).to_string();
    assert!(text.contains("two values of \"fc1.weight\""), "{text}");
}

#[test]
fn a_function_that_does_not_use_its_argument_names_the_parameter() {
    let s = Setup::new();
    let w = &s.values[0];
    let set = |w: &Tensor| {
        s.params[0].set(w)?;
        s.loss()
    };
    for result in [
        grad(|_| s.loss(), w).map(|_| ()),
        hvp(|_| s.loss(), w, w).map(|_| ()),
        jvp(|_| s.loss(), w, w).map(|_| ()),
        grad(set, w).map(|_| ()),
    ] {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Gradient, "{error}");
        let text = error.to_string();
        assert!(text.contains("does not use `fc1.weight`, f64 (4, 3)"), "{text}");
        assert!(text.contains("store.with_values("), "{text}");
    }
}

#[test]
fn values_on_a_device_of_their_own() {
    // a store without gradients, and values that are tracked
    let store = Store::with_dtype(Reference::new(), DType::F64);
    let model = Linear::new(&store.root(), 2, 1).unwrap();
    let x = Tensor::new([[1.0f64, 2.0]], store.device()).unwrap(); // (1, 2)
    let w = Tensor::new([[3.0f64, 4.0]], store.device()).unwrap(); // (1, 2)
    let w = w.to(Autograd::new(store.device())).unwrap().requires_grad().unwrap(); // (1, 2)
    let y = store.with_values([("weight", &w)], || model.forward(&x)).unwrap(); // (1, 1)
    let loss = mse(&y, &y.zeros_like().unwrap(), Reduction::Sum).unwrap();
    let gradients = loss.backward().unwrap();
    let y = y.to_vec::<f64>().unwrap()[0];
    assert_close(&vec(gradients.get(&w).unwrap()), &[2.0 * y, 4.0 * y], 1e-12, &"weight");
    assert!(!model.weight.value().is_tracked());
}
