//! A24: gradients add up over uses and over backward passes, and never share memory that could
//! change.
use crate::common::{device, values, vec};
use teeny_autograd::Grad;
use teeny_core::{DType, Tensor};

#[test]
fn two_uses_add_up() {
    let x = Tensor::new(3.0f64, device()).unwrap().requires_grad().unwrap();
    let y = (&x * &x) + &x;
    assert_eq!(y.backward().unwrap().get(&x).unwrap().item::<f64>().unwrap(), 7.0);
}

#[test]
fn a_thousand_uses_add_up() {
    let x = values(3, device()).requires_grad().unwrap();
    let y = (1..1000).fold(x.clone(), |y, _| y + &x);
    assert_eq!(vec(y.sum_all().unwrap().backward().unwrap().get(&x).unwrap()), [1000.0; 3]);
}

#[test]
fn backward_passes_add_up() {
    let x = values(3, device()).requires_grad().unwrap();
    let w = values(3, x.device()).requires_grad().unwrap();
    let first = x.mul(2.0).unwrap().sum_all().unwrap().backward().unwrap();
    let second = x.mul(&w).unwrap().sum_all().unwrap().backward().unwrap();
    let mut both = first.clone();
    both.accumulate(&second).unwrap();
    assert_eq!(vec(both.get(&x).unwrap()), vec(&w.add(2.0).unwrap()));
    assert_eq!(vec(both.get(&w).unwrap()), vec(&x));
    assert_eq!(vec(first.get(&x).unwrap()), [2.0; 3], "the summands are as they were");
    assert_eq!(both.len(), 2);
}

#[test]
fn changing_one_gradient_never_changes_another() {
    let d = device();
    let (x, y) = (values(3, &d).requires_grad().unwrap(), values(3, &d).requires_grad().unwrap());
    let loss = x.add(&y).unwrap().mul(2.0).unwrap().sum_all().unwrap();
    let mut grads = loss.backward().unwrap();
    let taken = grads.take(&x).unwrap();
    let changed =
        taken.slice_assign(0, .., &Tensor::full((), 9.0, DType::F64, &d).unwrap()).unwrap();
    assert_eq!(vec(&changed), [9.0; 3]);
    assert_eq!(vec(grads.get(&y).unwrap()), [2.0; 3]);
    assert_eq!(vec(loss.backward().unwrap().get(&x).unwrap()), [2.0; 3]);
}

#[test]
fn the_gradient_given_to_backward_is_not_changed_by_it() {
    let x = values(3, device()).requires_grad().unwrap();
    let g = Tensor::new([1.0f64, 2.0, 3.0], x.device()).unwrap();
    let mut grads = x.add(&x).unwrap().backward_with(&g).unwrap();
    let doubled = grads.take(&x).unwrap();
    drop(doubled.slice_assign(0, .., &Tensor::zeros((), DType::F64, x.device()).unwrap()).unwrap());
    assert_eq!(vec(&g), [1.0, 2.0, 3.0]);
}

#[test]
fn gradients_can_be_replaced_and_mapped() {
    let x = values(3, device()).requires_grad().unwrap();
    let mut grads = x.mul(2.0).unwrap().sum_all().unwrap().backward().unwrap();
    grads = grads.map(|g| g.mul(0.5)).unwrap();
    assert_eq!(vec(grads.get(&x).unwrap()), [1.0; 3]);
    grads.set(&x, grads.get(&x).unwrap().mul(3.0).unwrap()).unwrap();
    assert_eq!(vec(grads.get(&x).unwrap()), [3.0; 3]);
    let wrong = Tensor::zeros(2, DType::F64, x.device()).unwrap();
    assert!(
        grads
            .set(&x, wrong)
            .unwrap_err()
            .to_string()
            .contains("a gradient of f64 (2,) does not fit a value of f64 (3,)")
    );
}
