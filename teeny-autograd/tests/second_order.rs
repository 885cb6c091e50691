//! A30: gradients of gradients, by an autograd device over another.
use crate::common::cases::all;
use crate::common::{close, device, values, vec};
use teeny_autograd::{Autograd, Check, Grad, gradgradcheck};
use teeny_core::{Reference, Tensor};

#[test]
fn every_gradient_can_be_differentiated_again() {
    // One more difference quotient on top of a gradient that is itself larger: a looser bound than
    // for the first derivative.
    let check = Check::new().with_tolerance(1e-5);
    for case in all() {
        let inputs = case.inputs(Reference::new(), |s| s.to_vec());
        if let Err(error) = gradgradcheck(case.f, &inputs, &check) {
            panic!("{}: {error}", case.name);
        }
    }
}

#[test]
fn the_second_derivative_of_sin_is_minus_sin() {
    let first = device();
    let second = Autograd::new(first.clone());
    let x = values((3, 4), &first).requires_grad().unwrap();
    let lifted = x.to(&second).unwrap().requires_grad().unwrap();
    let slope = lifted.sin().unwrap().sum_all().unwrap().backward().unwrap().take(&lifted).unwrap();
    close(&vec(&slope), &vec(&x.cos().unwrap()), 1e-12);
    let curvature = slope.sum_all().unwrap().backward().unwrap().take(&x).unwrap();
    close(&vec(&curvature), &vec(&x.sin().unwrap().neg().unwrap()), 1e-12);
}

#[test]
fn the_fourth_derivative_of_sin_is_sin() {
    let mut devices = vec![device()];
    for _ in 0..3 {
        devices.push(Autograd::new(devices[devices.len() - 1].clone()));
    }
    let x = values(5, devices[0].as_ref().inner_reference()).to_vec::<f64>().unwrap();
    let mut leaves = vec![Tensor::from_slice(&x, 5, &devices[0]).unwrap().requires_grad().unwrap()];
    for device in &devices[1..] {
        leaves.push(leaves[leaves.len() - 1].to(device).unwrap().requires_grad().unwrap());
    }
    let mut y = leaves[3].sin().unwrap();
    for leaf in leaves.iter().rev() {
        y = y.sum_all().unwrap().backward().unwrap().take(leaf).unwrap();
    }
    close(&vec(&y), &x.iter().map(|x| x.sin()).collect::<Vec<_>>(), 1e-12);
}

trait InnerReference {
    fn inner_reference(&self) -> &teeny_core::DeviceRef;
}
impl InnerReference for Autograd {
    fn inner_reference(&self) -> &teeny_core::DeviceRef {
        teeny_core::Device::inner(self).unwrap()
    }
}

#[test]
fn products_of_zeros_have_exact_second_derivatives() {
    let x =
        Tensor::new([[2.0f64, 0.0, 3.0, -1.0], [0.0, 4.0, 0.0, 5.0]], Reference::new()).unwrap();
    let check = Check::default();
    gradgradcheck(|x| x[0].prod(1), std::slice::from_ref(&x), &check).unwrap();
    gradgradcheck(|x| x[0].cumprod(1), std::slice::from_ref(&x), &check).unwrap();
}
