//! A21: what is recorded, and what is not.
use crate::common::{device, vector};
use teeny_autograd::{Grad, enable_grad, is_grad_enabled, no_grad};
use teeny_core::{DType, Device, Reference, Tensor};

#[test]
fn only_what_depends_on_a_leaf_is_recorded() {
    let d = device();
    let x = vector(&d, 3);
    let y = x.exp().unwrap().mul(2.0).unwrap();
    assert!(!x.is_tracked() && !y.is_tracked());
    let w = x.requires_grad().unwrap();
    assert!(w.is_tracked() && w.is_leaf() && !x.is_tracked());
    let z = w.mul(&y).unwrap();
    assert!(z.is_tracked() && !z.is_leaf());
    assert!(z.t().unwrap().is_tracked(), "a view is as tracked as what it views");
}

#[test]
fn a_plain_device_records_nothing_and_says_so() {
    let x = Tensor::new([1.0f32], Reference::new()).unwrap();
    assert!(!x.is_tracked());
    let error = x.requires_grad().unwrap_err().to_string();
    assert!(error.contains("reference records no operations"), "{error}");
    assert!(error.contains("help: let device = Autograd::new(device)"), "{error}");
}

#[test]
fn no_grad_keeps_no_graph() {
    let d = device();
    let w = vector(&d, 3).requires_grad().unwrap();
    let (y, inside) = no_grad(|| (w.mul(2.0).unwrap(), is_grad_enabled()));
    assert!(!y.is_tracked() && !inside && is_grad_enabled());
    let z = no_grad(|| enable_grad(|| w.mul(2.0).unwrap()));
    assert!(z.is_tracked());
}

#[test]
fn no_grad_ends_when_a_panic_leaves_it() {
    let caught = std::panic::catch_unwind(|| no_grad(|| panic!("on purpose")));
    assert!(caught.is_err() && is_grad_enabled());
}

#[test]
fn no_grad_frees_intermediates_at_once() {
    let d = device();
    let before = d.stats().live_bytes;
    let w = vector(&d, 100).requires_grad().unwrap();
    let y = no_grad(|| (0..20).try_fold(w.clone(), |x, _| x.exp()?.log())).unwrap();
    drop(w);
    let live = d.stats().live_bytes - before;
    drop(y);
    // Devices that count see one result; the others report zero throughout.
    assert!(live <= 100 * 8, "{live}");
}

#[test]
fn two_threads_are_independent() {
    let d = device();
    let w = vector(&d, 3).requires_grad().unwrap();
    let other = w.clone();
    no_grad(|| {
        let tracked =
            std::thread::spawn(move || other.mul(2.0).unwrap().is_tracked()).join().unwrap();
        assert!(tracked && !w.mul(2.0).unwrap().is_tracked());
    });
}

#[test]
fn detach_shares_elements_but_not_history() {
    let d = device();
    let w = vector(&d, 3).requires_grad().unwrap();
    let cut = w.mul(2.0).unwrap().detach().unwrap();
    assert!(!cut.is_tracked());
    let loss = w.mul(&cut).unwrap().sum_all().unwrap();
    let grads = loss.backward().unwrap();
    assert_eq!(grads.get(&w).unwrap().to_vec::<f64>().unwrap(), cut.to_vec::<f64>().unwrap());
}

#[test]
fn constants_of_the_inner_device_meet_tracked_tensors() {
    let d = device();
    let w = vector(&d, 2).requires_grad().unwrap();
    let data = Tensor::new([[1.0f64, 2.0], [3.0, 4.0]], d.inner().unwrap()).unwrap();
    let loss = data.matmul(&w).unwrap().sum_all().unwrap();
    assert_eq!(loss.backward().unwrap().get(&w).unwrap().to_vec::<f64>().unwrap(), [4.0, 6.0]);
    assert_eq!(loss.device().info().name, "autograd(reference)");
}

#[test]
fn only_floats_require_gradients() {
    let x = Tensor::zeros(2, DType::I32, device()).unwrap();
    let error = x.requires_grad().unwrap_err().to_string();
    assert!(error.contains("only floats have gradients, not i32"), "{error}");
}
