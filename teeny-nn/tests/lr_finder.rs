//! The learning-rate finder: it leaves no trace, and suggests a rate at which the loss falls.

use crate::common::*;
use teeny_autograd::Grad;
use teeny_core::random::with_seed;
use teeny_core::{DType, Error, Result, Tensor};
use teeny_formats::State;
use teeny_nn::optim::{AdamW, Optimizer, Sgd};
use teeny_nn::state::Stateful;
use teeny_nn::train::lr_finder;
use teeny_nn::{BatchNorm, Dropout, Linear, Module, Sequential, Store};

fn model(dtype: DType) -> (Store, Sequential) {
    let store = Store::with_dtype(autograd(), dtype);
    let model = Sequential::new()
        .then(Linear::new(&store.at("a"), 4, 8).unwrap())
        .then(BatchNorm::new(&store.at("norm"), 8).unwrap())
        .then(Dropout::new(&store.root(), 0.2).unwrap())
        .then(Linear::new(&store.at("b"), 8, 1).unwrap());
    (store, model)
}

/// The loss of the model on random data: a sum that it can learn.
fn loss(store: &Store, model: &Sequential) -> Result<Tensor> {
    let x = Tensor::randn((16, 4), store.dtype(), store.device())?; // (16, 4)
    let y = x.sum_keepdim(1)?; // (16, 1)
    model.forward(&x)?.sub(&y)?.square()?.mean_all() // ()
}

fn bits(state: &State) -> Vec<(String, Vec<u64>)> {
    let numbers = |x: &Tensor| values(x).iter().map(|v| v.to_bits()).collect();
    let values = state.values.iter().map(|(name, text)| (format!("{name}={text}"), Vec::new()));
    state.tensors.iter().map(|(name, x)| (name.clone(), numbers(x))).chain(values).collect()
}

#[test]
fn weights_state_and_random_numbers_are_those_of_before_to_the_bit() {
    for dtype in [DType::F32, DType::BF16] {
        let (store, model) = model(dtype);
        let mut adam = AdamW::new(store.trainable(), 0.01).master_weights(true);
        with_seed(3, || {
            for steps_before in [0, 3] {
                for _ in 0..steps_before {
                    let loss = loss(&store, &model).unwrap();
                    adam.step(&loss.backward().unwrap()).unwrap();
                }
                let all = |adam: &AdamW| {
                    let state = [store.state().unwrap(), adam.state().unwrap()];
                    (state.each_ref().map(bits), teeny_core::random::state())
                };
                let before = all(&adam);
                let find = |adam: &mut AdamW, fails: bool| {
                    lr_finder(&store, adam, 1e-4, 1.0, 20, |step| match fails && step == 5 {
                        true => Err(Error::value("no more data")),
                        false => loss(&store, &model),
                    })
                };
                let found = find(&mut adam, false).unwrap();
                assert!(found.points.len() > 2 && before == all(&adam), "{dtype:?}");
                let error = find(&mut adam, true).unwrap_err().to_string();
                assert!(error.contains("no more data") && before == all(&adam), "{error}");
            }
        });
    }
}

#[test]
fn the_suggested_rate_is_where_the_loss_falls_and_the_end_where_it_diverges() {
    let store = Store::new(autograd());
    let w = store.root().param("w", 1, teeny_nn::Init::ONES).unwrap();
    let mut sgd = Sgd::new(store.trainable(), 0.1);
    // w² / 2 has the gradient w: rates above 2 diverge
    let loss = |_| w.value().square()?.mul(0.5)?.sum_all();
    let found = lr_finder(&store, &mut sgd, 1e-4, 1e3, 200, loss).unwrap();
    let best = found.suggestion.unwrap();
    assert!((0.003..2.0).contains(&best), "{found:?}");
    assert!(found.points.len() < 200 && found.points.iter().all(|p| p.1.is_finite()));
    let svg = found.plot().svg();
    assert!(
        svg.contains(&format!("suggestion: {best:.1e}")) && svg.matches("<circle").count() == 1
    );
    assert_eq!(sgd.lr(), 0.1);

    // a loss that does not fall has no suggestion
    let flat = |_| w.value().mul(0.0)?.add(1.0)?.sum_all();
    let found = lr_finder(&store, &mut sgd, 1e-4, 1.0, 10, flat).unwrap();
    assert_eq!((found.points.len(), found.suggestion), (10, None));
    for (min, max, steps) in [(0.0, 1.0, 10), (1.0, 0.1, 10), (f64::NAN, 1.0, 10), (0.1, 1.0, 2)] {
        let error = lr_finder(&store, &mut sgd, min, max, steps, loss).unwrap_err().to_string();
        assert!(error.contains("learning rates from"), "{error}");
    }
}
