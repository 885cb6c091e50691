//! Training that would continue without learning or with NaN weights is an error of the first step.

use crate::common::autograd;
use std::sync::atomic::{AtomicUsize, Ordering};
use teeny_autograd::Grad;
use teeny_core::{DType, ErrorKind, Result, Tensor};
use teeny_nn::optim::{
    Adagrad, Adam, AdamW, Ema, Lamb, Lars, LossScale, Muon, Optimizer, ParamGroup, ParamStates,
    RmsProp, Sgd, clip_grad_norm, clip_grad_value,
};
use teeny_nn::schedule::{Plateau, Schedule};
use teeny_nn::state::Stateful;
use teeny_nn::{Init, Linear, Module, Param, Store};

/// The loss of one or two layers.
fn loss(layers: &[&Linear], store: &Store) -> Result<Tensor> {
    let mut x = Tensor::ones((2, 3), DType::F32, store.device())?; // (2, 3)
    for layer in layers {
        x = layer.forward(&x)?;
    }
    x.square()?.sum_all()
}

fn layer(store: &Store, name: &str) -> Linear {
    Linear::new(&store.at(name), 3, 3).unwrap()
}

fn values(store: &Store) -> Vec<Vec<u8>> {
    store.all().iter().map(|p| p.value().to_bytes().unwrap()).collect()
}

/// The text of the error of a step, which must have changed nothing.
#[track_caller]
fn refused(store: &Store, step: impl FnOnce() -> Result<()>) -> String {
    let before = values(store);
    let error = step().unwrap_err();
    assert!(values(store) == before);
    let text = error.to_string();
    assert!(text.starts_with("step at ") && text.contains(file!()) && error.has_help(), "{text}");
    text
}

#[test]
fn an_optimizer_without_parameters() {
    let store = Store::new(autograd());
    let mut adam = Adam::new(store.trainable(), 0.1);
    let fc = layer(&store, "fc");
    let gradients = loss(&[&fc], &store).unwrap().backward().unwrap();
    let text = refused(&store, || adam.step(&gradients));
    assert!(
        text.contains("the optimizer has no parameters") && text.contains("after the last layer"),
        "{text}"
    );
    let text = LossScale::new().step(&mut adam, &gradients).unwrap_err().to_string();
    assert!(text.contains("the optimizer has no parameters"), "{text}");
}

#[test]
fn an_optimizer_that_was_made_before_the_last_layer() {
    let store = Store::new(autograd());
    let first = layer(&store, "first");
    let mut adam = Adam::new(store.trainable(), 0.1);
    let last = layer(&store, "last");
    let gradients = |layers: &[&Linear]| loss(layers, &store).unwrap().backward().unwrap();
    let text = refused(&store, || adam.step(&gradients(&[&first, &last])));
    assert!(
        text.contains("no optimizer has: last.weight, last.bias")
            && text.contains("set_trainable(false)"),
        "{text}"
    );
    // every cure that the message names
    let mut whole = Adam::new(store.trainable(), 0.1);
    whole.step(&gradients(&[&first, &last])).unwrap();

    let store = Store::new(autograd());
    let first = layer(&store, "first");
    let mut sgd = Sgd::new(store.trainable(), 0.1);
    let gradients = |layers: &[&Linear]| loss(layers, &store).unwrap().backward().unwrap();
    sgd.step(&gradients(&[&first])).unwrap();
    let last = layer(&store, "last"); // after the first step
    refused(&store, || sgd.step(&gradients(&[&first, &last])));
    for param in [&last.weight, last.bias.as_ref().unwrap()] {
        param.set_trainable(false).unwrap();
    }
    sgd.step(&gradients(&[&first, &last])).unwrap();
    last.weight.set_trainable(true).unwrap();
    refused(&store, || sgd.step(&gradients(&[&first, &last])));
    let mut sgd = sgd.partial(true);
    let before = last.weight.value().to_bytes().unwrap();
    sgd.step(&gradients(&[&first, &last])).unwrap();
    assert_eq!(last.weight.value().to_bytes().unwrap(), before);
}

#[test]
fn a_hyper_parameter_out_of_its_range() {
    let store = Store::new(autograd());
    let fc = layer(&store, "fc");
    fc.bias.as_ref().unwrap().set_trainable(false).unwrap(); // Muon has matrices only
    let params = || store.trainable();
    let gradients = loss(&[&fc], &store).unwrap().backward().unwrap();
    let sgd = || Sgd::new(params(), 0.1);
    let adam = || Adam::new(params(), 0.1);
    let group = |group| sgd().group(|_| true, group);
    type Make<'a> = Box<dyn Fn(f64) -> Box<dyn Optimizer> + 'a>;
    let optimizers: Vec<(&str, Make<'_>)> = vec![
        ("the learning rate", Box::new(|v| Box::new(Sgd::new(params(), v)))),
        ("the learning rate", Box::new(|v| Box::new(Muon::new(params(), v).unwrap()))),
        ("weight_decay", Box::new(|v| Box::new(sgd().weight_decay(v)))),
        ("lr_scale", Box::new(|v| Box::new(group(ParamGroup::new().lr_scale(v))))),
        ("weight_decay", Box::new(|v| Box::new(group(ParamGroup::new().weight_decay(v))))),
        ("momentum", Box::new(|v| Box::new(sgd().momentum(v)))),
        ("dampening", Box::new(|v| Box::new(sgd().momentum(0.9).dampening(v)))),
        ("beta1", Box::new(|v| Box::new(adam().betas(v, 0.9)))),
        ("beta2", Box::new(|v| Box::new(adam().betas(0.9, v)))),
        ("eps", Box::new(|v| Box::new(AdamW::new(params(), 0.1).eps(v)))),
        ("alpha", Box::new(|v| Box::new(RmsProp::new(params(), 0.1).alpha(v)))),
        ("eps", Box::new(|v| Box::new(RmsProp::new(params(), 0.1).eps(v)))),
        ("momentum", Box::new(|v| Box::new(RmsProp::new(params(), 0.1).momentum(v)))),
        ("lr_decay", Box::new(|v| Box::new(Adagrad::new(params(), 0.1).lr_decay(v)))),
        (
            "initial_accumulator_value",
            Box::new(|v| Box::new(Adagrad::new(params(), 0.1).initial_accumulator_value(v))),
        ),
        ("eps", Box::new(|v| Box::new(Adagrad::new(params(), 0.1).eps(v)))),
        ("beta1", Box::new(|v| Box::new(Lamb::new(params(), 0.1).betas(v, 0.9)))),
        ("beta2", Box::new(|v| Box::new(Lamb::new(params(), 0.1).betas(0.9, v)))),
        ("eps", Box::new(|v| Box::new(Lamb::new(params(), 0.1).eps(v)))),
        ("momentum", Box::new(|v| Box::new(Lars::new(params(), 0.1).momentum(v)))),
        (
            "trust_coefficient",
            Box::new(|v| Box::new(Lars::new(params(), 0.1).trust_coefficient(v))),
        ),
        ("eps", Box::new(|v| Box::new(Lars::new(params(), 0.1).eps(v)))),
        ("momentum", Box::new(|v| Box::new(Muon::new(params(), 0.1).unwrap().momentum(v)))),
    ];
    for (name, make) in optimizers {
        for bad in [f64::NAN, f64::INFINITY, -0.1] {
            let text = refused(&store, || make(bad).step(&gradients));
            assert!(text.contains(&format!("{name} is {bad}, but must be")), "{text}");
        }
    }
    for mut adam in [adam().betas(1.0, 0.9), adam().betas(0.9, 1.0)] {
        assert!(refused(&store, || adam.step(&gradients)).contains("within 0.0..1.0"));
    }
    // the rate of a schedule, and of a state; a valid one later is enough
    let mut sgd = sgd();
    sgd.set_lr(Schedule::linear(0.1, -0.1, 10).at(8));
    assert!(refused(&store, || sgd.step(&gradients)).contains("the learning rate is -0.06"));
    let mut scale = LossScale::new();
    assert!(scale.step(&mut sgd, &gradients).is_err());
    let mut state = sgd.state().unwrap();
    state.set("lr", f64::NAN);
    assert!(sgd.set_state(&state).unwrap_err().to_string().contains("learning rate is NaN"));
    sgd.set_lr(0.1);
    sgd.step(&gradients).unwrap();
}

#[test]
fn factors_of_losses_and_of_rates_out_of_their_ranges() {
    let store = Store::new(autograd());
    let fc = layer(&store, "fc");
    let mut sgd = Sgd::new(store.trainable(), 0.1);
    let l = loss(&[&fc], &store).unwrap();
    let gradients = l.backward().unwrap();
    for bad in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
        let mut scale = LossScale::new().initial_factor(bad);
        let text = scale.apply(&l).unwrap_err().to_string();
        assert!(text.contains(&format!("cannot be scaled by {bad}")), "{text}");
        assert!(scale.step(&mut sgd, &gradients).is_err());
        assert!(LossScale::new().set_state(&scale.state().unwrap()).is_err());
        if bad != 0.0 {
            assert!(Plateau::new(bad, 0.5, 1).is_err());
            assert!(Plateau::new(0.1, bad, 1).is_err());
            assert!(Plateau::new(0.1, 0.5, 1).unwrap().threshold(bad).is_err());
            assert!(Plateau::new(0.1, 0.5, 1).unwrap().min(bad).is_err());
        }
        assert!(Ema::new(store.trainable(), bad).is_err() || bad == 0.0);
    }
    let text = Plateau::new(0.1, 1.0, 1).unwrap_err().to_string();
    assert!(text.contains("factor is 1, but must be a finite number within 0.0..1.0"), "{text}");
}

#[test]
fn parameters_of_two_optimizers_are_nobodys_mistake() {
    let store = Store::new(autograd());
    let (first, last) = (layer(&store, "first"), layer(&store, "last"));
    let (matrices, rest): (Vec<Param>, Vec<Param>) =
        store.trainable().into_iter().partition(|p| p.value().ndim() == 2);
    let (mut muon, mut adam) = (Muon::new(matrices, 0.1).unwrap(), Adam::new(rest, 0.1));
    for _ in 0..2 {
        let gradients = loss(&[&first, &last], &store).unwrap().backward().unwrap();
        muon.step(&gradients).unwrap();
        adam.step(&gradients).unwrap();
    }
}

#[test]
fn frozen_parameters_only() {
    let store = Store::new(autograd());
    let fc = layer(&store, "fc");
    let mut adam = Adam::new(store.trainable(), 0.1);
    let other = store.at("other").param("w", 3, Init::ONES).unwrap();
    other.set_trainable(false).unwrap();
    let gradients = loss(&[&fc], &store).unwrap().backward().unwrap();
    store.all().iter().try_for_each(|p| p.set_trainable(false)).unwrap();
    let text = refused(&store, || adam.step(&gradients));
    assert!(text.contains("all 2 parameters of the optimizer are frozen"), "{text}");
}

#[test]
fn a_parameter_that_never_gets_a_gradient() {
    let store = Store::new(autograd());
    let (used, unused) = (layer(&store, "used"), layer(&store, "unused"));
    let mut adam = Adam::new(store.trainable(), 0.1);
    let gradients = loss(&[&used], &store).unwrap().backward().unwrap();
    let text = refused(&store, || adam.step(&gradients));
    assert!(
        text.contains("no gradient reaches `unused.weight`: the loss does not depend on it"),
        "{text}"
    );
    assert!(text.contains("parameter \"unused.weight\""), "{text}");
    // PyTorch's behaviour, as an option
    let mut adam = adam.skip_missing(true);
    let before = unused.weight.value().to_bytes().unwrap();
    adam.step(&gradients).unwrap();
    assert_eq!(unused.weight.value().to_bytes().unwrap(), before);
    // gradients of the values before that step are an error too
    let text = refused(&store, || adam.step(&gradients));
    assert!(text.contains("an earlier value, which a step or `set` has replaced since"), "{text}");
    let mut scale = LossScale::new();
    let gradients = scale.apply(&loss(&[&used], &store).unwrap()).unwrap().backward().unwrap();
    assert!(scale.step(&mut adam, &gradients).unwrap());
    assert_eq!(unused.weight.value().to_bytes().unwrap(), before);
    // a loss that depends on no parameter of the optimizer
    let elsewhere = Store::new(store.device());
    let other = layer(&elsewhere, "elsewhere");
    let gradients = loss(&[&other], &elsewhere).unwrap().backward().unwrap();
    let text = refused(&store, || adam.step(&gradients));
    assert!(text.contains("the loss depends on no parameter of the optimizer"), "{text}");
    assert!(scale.step(&mut adam, &gradients).is_err());
}

#[test]
fn gradients_that_are_not_finite() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let store = Store::new(autograd());
        let fc = layer(&store, "fc");
        let gradients =
            |factor: f32| loss(&[&fc], &store).unwrap().mul(factor).unwrap().backward().unwrap();
        let mut adam = Adam::new(store.trainable(), 0.1);
        let text = refused(&store, || adam.step(&gradients(bad)));
        assert!(text.contains("the gradient of \"fc.weight\" has NaN or infinite"), "{text}");
        // in every step with check_finite(1)
        let mut adam = adam.check_finite(1);
        for _ in 0..3 {
            adam.step(&gradients(1.0)).unwrap();
            refused(&store, || adam.step(&gradients(bad)));
        }
        // by default in the first step and in the 101st
        let mut sgd = Sgd::new(store.trainable(), 1e-6);
        (0..100).for_each(|_| sgd.step(&gradients(1.0)).unwrap());
        refused(&store, || sgd.step(&gradients(bad)));
        let mut sgd = Sgd::new(store.trainable(), 0.1).check_finite(0);
        sgd.step(&gradients(f32::NAN)).unwrap();
        assert!(fc.weight.value().to_vec::<f32>().unwrap().iter().all(|w| w.is_nan()));
    }
}

#[test]
fn an_optimizer_of_ones_own_is_checked_too() {
    static UPDATES: AtomicUsize = AtomicUsize::new(0);
    struct Own(ParamStates);
    impl Optimizer for Own {
        fn states(&self) -> &ParamStates {
            &self.0
        }
        fn states_mut(&mut self) -> &mut ParamStates {
            &mut self.0
        }
        fn state_names(&self) -> &'static [&'static str] {
            &[]
        }
        fn update(&mut self, i: usize, value: &Tensor, gradient: &Tensor) -> Result<Tensor> {
            UPDATES.fetch_add(1, Ordering::Relaxed);
            self.0.set_state(i, []);
            value.sub(gradient)
        }
    }
    let store = Store::new(autograd());
    let first = layer(&store, "first");
    let mut own = Own(ParamStates::new(store.trainable(), 0.1));
    layer(&store, "last");
    let gradients = loss(&[&first], &store).unwrap().backward().unwrap();
    refused(&store, || own.step(&gradients));
    own.0.set_partial(true);
    own.step(&gradients).unwrap();
    assert_eq!(UPDATES.load(Ordering::Relaxed), 2);
    assert_eq!(own.step(&gradients).unwrap_err().kind(), ErrorKind::Gradient);
}

#[test]
fn clipping_without_a_gradient_says_how_to_leave_the_parameter_out() {
    let store = Store::new(autograd());
    let (first, _unused) = (layer(&store, "first"), layer(&store, "unused"));
    let mut gradients = loss(&[&first], &store).unwrap().backward().unwrap();
    let all = store.trainable();
    let errors = [
        clip_grad_norm(&mut gradients, &all, 1.0).unwrap_err(),
        clip_grad_value(&mut gradients, &all, 1.0).unwrap_err(),
    ];
    for error in errors {
        let text = error.to_string();
        assert!(text.contains("unused.weight") && text.contains("was its layer called?"), "{text}");
        assert!(text.contains("param.set_trainable(false)?"), "{text}");
    }
    // every cure that the message names
    let used: Vec<Param> = all.iter().filter(|p| p.name().starts_with("first")).cloned().collect();
    clip_grad_norm(&mut gradients, &used, 1.0).unwrap();
    all.iter()
        .filter(|p| p.name().starts_with("unused"))
        .for_each(|p| p.set_trainable(false).unwrap());
    clip_grad_norm(&mut gradients, &all, 1.0).unwrap();
}

#[test]
fn a_loss_made_by_evaluate_names_its_line() {
    let store = Store::new(autograd());
    let fc = layer(&store, "fc");
    let line = line!() + 1;
    let evaluated = store.evaluate(|| loss(&[&fc], &store)).unwrap();
    let text = evaluated.backward().unwrap_err().to_string();
    assert!(text.contains(&format!("silent_failures.rs:{line}")), "{text}");
    assert!(text.contains("help: compute it outside of no_grad and of store.evaluate"), "{text}");
}
