//! A29: deep and wide graphs: no recursion, and memory is freed during the backward pass.
use crate::common;
use crate::common::{device, values, vec};
use teeny_autograd::{Autograd, Grad, checkpoint};
use teeny_core::{DType, Device, Lazy, Reference, Tensor};

/// Long enough to overflow any stack that spends a frame per node.
const DEEP: usize = 1_000_000;

fn chain(x: &Tensor, length: usize) -> Tensor {
    (0..length).fold(x.clone(), |y, _| y.neg().unwrap())
}

#[test]
fn a_chain_of_a_million_nodes_goes_backward() {
    let x = Tensor::new(1.0f32, device()).unwrap().requires_grad().unwrap();
    let grads = chain(&x, DEEP).into_backward().unwrap();
    assert_eq!(grads.get(&x).unwrap().item::<f32>().unwrap(), 1.0);
}

#[test]
fn a_recorded_chain_of_a_million_nodes_goes_backward() {
    let lazy = Lazy::new(Reference::new());
    let x = Tensor::new(1.0f32, Autograd::new(lazy.clone())).unwrap().requires_grad().unwrap();
    let grads = chain(&x, DEEP).into_backward().unwrap();
    assert_eq!(grads.get(&x).unwrap().item::<f32>().unwrap(), 1.0);
    let counters = lazy.counters();
    assert!(counters.recorded >= 2 * DEEP as u64 - 1 && counters.plans < 10, "{counters:?}");
}

#[test]
fn a_chain_of_a_million_nodes_is_dropped() {
    let x = Tensor::new(1.0f32, device()).unwrap().requires_grad().unwrap();
    let y = chain(&x, DEEP);
    // A thread with a tiny stack: recursion of any kind would end it.
    std::thread::Builder::new()
        .stack_size(64 * 1024)
        .spawn(move || drop(y))
        .unwrap()
        .join()
        .unwrap();
}

#[test]
fn a_wide_graph_adds_up() {
    let x = values(2, device()).requires_grad().unwrap();
    let branches: Vec<Tensor> = (0..10_000).map(|i| x.mul(i as f64).unwrap()).collect();
    let y = branches.iter().skip(1).fold(branches[0].clone(), |y, b| y + b);
    assert_eq!(
        vec(y.sum_all().unwrap().into_backward().unwrap().get(&x).unwrap()),
        [49_995_000.0; 2]
    );
}

/// A multilayer perceptron's layers, and the bytes its forward pass has to save: one activation per
/// layer.
const LAYERS: usize = 100;
const BATCH: usize = 64;
const WIDTH: usize = 16;

fn step(consume: bool) -> (u64, u64, u64) {
    let d = device();
    let scale = |w: Tensor| w.mul(0.2).unwrap().requires_grad().unwrap();
    let weights: Vec<Tensor> = (0..LAYERS).map(|_| scale(values((WIDTH, WIDTH), &d))).collect();
    let x = values((BATCH, WIDTH), &d);
    let before = d.stats().live_bytes;
    let mut h = x.clone();
    for w in &weights {
        h = h.matmul(w).unwrap().relu().unwrap();
    }
    let loss = h.square().unwrap().mean_all().unwrap();
    drop(h);
    let saved = d.stats().live_bytes - before;
    let grads = if consume { loss.into_backward() } else { loss.backward() }.unwrap();
    let peak = d.stats().peak_bytes - before;
    assert_eq!(grads.len(), LAYERS);
    drop(grads);
    (saved, peak, d.stats().live_bytes - before)
}

#[test]
fn a_training_step_peaks_below_saved_activations_plus_a_fifth() {
    let (saved, peak, after) = step(true);
    assert!((peak as f64) < 1.2 * saved as f64, "peak {peak}, saved {saved}");
    assert_eq!(after, 0, "everything is given back");
}

#[test]
fn each_layer_saves_its_operands_once() {
    let (saved, _, _) = step(true);
    // matmul reads its input (the relu's output), relu its operand: two activations a layer.
    let activations = (2 * LAYERS * BATCH * WIDTH * 8) as u64;
    assert!(
        saved <= activations + activations / 20,
        "{saved} bytes for {activations} of activations"
    );
}

#[test]
fn a_checkpoint_saves_only_its_inputs() {
    let d = device();
    let weight = values((8, 8), &d).mul(0.3).unwrap().requires_grad().unwrap();
    let x = values((32, 8), &d);
    let block = |w: &Tensor, x: &Tensor| (0..10).try_fold(x.clone(), |h, _| h.matmul(w)?.tanh());
    let run = |remember: bool| {
        let before = d.stats().live_bytes;
        let y = if remember {
            block(&weight, &x).unwrap()
        } else {
            let w = weight.clone();
            checkpoint(move |x| block(&w, &x[0]), &[&x]).unwrap()
        };
        let kept = d.stats().live_bytes - before;
        (
            kept,
            vec(y.square().unwrap().sum_all().unwrap().backward().unwrap().get(&weight).unwrap()),
        )
    };
    let ((full, expected), (small, got)) = (run(true), run(false));
    assert_eq!(expected, got);
    assert!(small * 5 < full, "{small} and {full} bytes");
}

#[test]
fn a_checkpoint_draws_the_same_random_numbers_again() {
    let d = device();
    let x = values((4, 5), &d).requires_grad().unwrap();
    let dropout =
        |x: &Tensor| x.mul(&Tensor::bernoulli(0.5, x.shape(), x)?.cast(DType::F64)?)?.exp();
    let y = checkpoint(move |x| dropout(&x[0]), &[&x]).unwrap();
    let g = y.sum_all().unwrap().backward().unwrap().take(&x).unwrap();
    // exp(x m) has the slope m exp(x m): 0 where dropped (y = 1), y elsewhere.
    let expected: Vec<f64> = vec(&y).iter().map(|y| if *y == 1.0 { 0.0 } else { *y }).collect();
    common::close(&vec(&g), &expected, 1e-12);
}

#[test]
fn a_hook_on_a_captured_weight_sees_one_complete_gradient() {
    let d = device();
    let (w, x) = (values(3, &d).requires_grad().unwrap(), values(3, &d));
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let log = seen.clone();
    w.register_hook(move |g| {
        log.lock().unwrap().push(vec(g));
        Ok(None)
    })
    .unwrap();
    let weight = w.clone();
    let y = checkpoint(move |x| x[0].mul(&weight), &[&x]).unwrap().add(&w).unwrap();
    let g = y.sum_all().unwrap().backward().unwrap().take(&w).unwrap();
    assert_eq!(vec(&g), vec(&x.add(1.0).unwrap()));
    assert_eq!(*seen.lock().unwrap(), [vec(&g)]);
}

#[test]
fn derivatives_are_built_once_per_kernel() {
    let d = device();
    let x = values(5, &d).requires_grad().unwrap();
    let run = || drop(x.gelu().unwrap().mul(&x).unwrap().sum_all().unwrap().backward().unwrap());
    run();
    let built = d.cached_derivatives();
    (0..100).for_each(|_| run());
    assert_eq!(d.cached_derivatives(), built);
}
