//! Mistakes other libraries made, one test each, named after the mistake.
use crate::common::{close, device, values, vec};
use teeny_autograd::{Check, Grad, gradcheck};
use teeny_core::{Reference, Result, Tensor};

fn leaf(values: &[f64]) -> Tensor {
    Tensor::from_slice(values, values.len(), device()).unwrap().requires_grad().unwrap()
}

fn slope(x: &Tensor, f: impl FnOnce(&Tensor) -> Result<Tensor>) -> Vec<f64> {
    vec(f(x).unwrap().sum_all().unwrap().backward().unwrap().get(x).unwrap())
}

#[test]
fn gradient_lost_through_a_view() {
    let x = values((2, 3, 4), Reference::new());
    let views: [fn(&Tensor) -> Result<Tensor>; 9] = [
        |x| x.reshape((4, 6)),
        |x| x.permute([2, 0, 1]),
        |x| x.transpose(0, 2),
        |x| x.unsqueeze(1)?.expand((2, 5, 3, 4)),
        |x| x.slice(1, 1..3),
        |x| x.slice_step(2, .., 2),
        |x| x.flip([0, 2]),
        |x| x.diagonal(0, 1, 2),
        |x| x.unfold(2, 2, 1),
    ];
    for view in views {
        gradcheck(|x| view(&x[0])?.square(), std::slice::from_ref(&x), &Check::default()).unwrap();
    }
}

#[test]
fn reshape_of_a_transposed_tensor_scrambles_its_gradient() {
    let x = values((2, 3), device()).requires_grad().unwrap();
    let weights = Tensor::new([1.0f64, 2.0, 3.0, 4.0, 5.0, 6.0], x.device()).unwrap();
    assert_eq!(slope(&x, |x| x.t()?.reshape(6)?.mul(&weights)), [1.0, 3.0, 5.0, 2.0, 4.0, 6.0]);
}

#[test]
fn one_gradient_object_stored_for_two_inputs() {
    let (x, y) = (leaf(&[1.0, 2.0]), leaf(&[3.0, 4.0]));
    let y = y.to(x.device()).unwrap().requires_grad().unwrap();
    let mut grads = x.add(&y).unwrap().sum_all().unwrap().backward().unwrap();
    let g = grads
        .take(&x)
        .unwrap()
        .slice_assign(0, .., &Tensor::new(5.0f64, x.device()).unwrap())
        .unwrap();
    assert_eq!((vec(&g), vec(grads.get(&y).unwrap())), (vec![5.0; 2], vec![1.0; 2]));
}

#[test]
fn matmul_backward_only_for_matrices() {
    let shapes: [&[usize]; 4] = [&[3], &[2, 3], &[4, 2, 3], &[2, 1, 2, 3]];
    for lhs in shapes {
        for rhs in [&[3][..], &[3, 2], &[4, 3, 2], &[2, 4, 3, 2]] {
            let inputs = [values(lhs, Reference::new()), values(rhs, Reference::new())];
            gradcheck(|x| x[0].matmul(&x[1]), &inputs, &Check::default())
                .unwrap_or_else(|e| panic!("{lhs:?} @ {rhs:?}: {e}"));
        }
    }
}

#[test]
fn the_exponents_gradient_by_the_log_of_a_base_that_is_not_positive() {
    let base = leaf(&[0.0, 0.0, 0.0, -2.0, -2.0]);
    let constant = Tensor::new([2.0f64, 1.0, 0.0, 3.0, 2.0], base.device()).unwrap();
    assert_eq!(vec(&base.pow(&constant).unwrap()), [0.0, 0.0, 1.0, -8.0, 4.0]);
    assert_eq!(slope(&base, |x| x.pow(&constant)), [0.0, 1.0, 0.0, 12.0, -4.0]);
    let exponent = constant.requires_grad().unwrap();
    let g = slope(&exponent, |e| base.detach()?.pow(e));
    assert_eq!(g[..3], [0.0; 3], "0 to a power that is not negative");
    assert!(
        g[3].is_nan() && g[4].is_nan(),
        "a negative base has no slope in its exponent, as in PyTorch"
    );
    assert_eq!(slope(&base, |x| x.pow(2)), [0.0, 0.0, 0.0, -4.0, -4.0]);
    assert_eq!(slope(&base, |x| x.pow(0)), [0.0; 5]);
}

#[test]
fn sigmoid_with_the_wrong_sign() {
    let x = leaf(&[2.0]);
    close(&vec(&x.sigmoid().unwrap()), &[0.880797077977882], 1e-12);
    close(&slope(&x, |x| x.sigmoid()), &[0.104993585403507], 1e-12);
}

#[test]
fn large_arguments_turn_gradients_into_nan() {
    let x = leaf(&[-2000.0, 2000.0]);
    assert_eq!(slope(&x, |x| x.sigmoid()), [0.0, 0.0]);
    assert_eq!(slope(&x, |x| x.silu()), [0.0, 1.0]);
    assert_eq!(slope(&x, |x| x.softplus()), [0.0, 1.0]);
    assert_eq!(slope(&x, |x| x.log_sigmoid()), [1.0, 0.0]);
    assert_eq!(slope(&x, |x| x.tanh()), [0.0, 0.0]);
    assert_eq!(slope(&x, |x| x.mish()), [0.0, 1.0]);
    assert_eq!(slope(&x, |x| x.softmax(0)?.slice(0, 1..)), [0.0, 0.0]);
}

#[test]
fn the_gradient_of_a_slope_is_zero_where_an_infinite_argument_is_positive() {
    let x = leaf(&[f64::INFINITY, -2.0]);
    let slopes = Tensor::new([0.1, 0.2], &x).unwrap().requires_grad().unwrap();
    assert_eq!(slope(&slopes, |slopes| x.detach()?.leaky_relu(slopes)), [0.0, -2.0]);
    assert_eq!(slope(&x, |x| x.leaky_relu(&slopes.detach()?)), [1.0, 0.2]);
}

#[test]
fn kinks_where_two_terms_cancel() {
    let x = leaf(&[0.0]);
    assert_eq!(slope(&x, |x| x.softplus()), [0.5]);
    assert_eq!(slope(&x, |x| x.sinh()), [1.0]);
    assert_eq!(slope(&x, |x| x.cosh()), [0.0]);
    assert_eq!(slope(&x, |x| x.elu(0.7)), [0.7]);
    assert_eq!(slope(&x, |x| x.log_sigmoid()), [0.5]);
}

#[test]
fn subgradients_that_differ_from_pytorch() {
    let x = leaf(&[0.0]);
    assert_eq!(slope(&x, |x| x.relu()), [0.0]);
    assert_eq!(slope(&x, |x| x.abs()), [0.0]);
    assert_eq!(slope(&x, |x| x.sign()), [0.0]);
    assert_eq!(slope(&x, |x| x.clamp(0.0, 1.0)), [0.0]);
    assert_eq!(slope(&x, |x| x.clamp(-1.0, 0.0)), [0.0]);
    assert_eq!(slope(&x, |x| x.add(1.0)?.hardtanh()), [0.0]);
    let y = x.mul(1.0).unwrap();
    assert_eq!(slope(&x, |x| x.maximum(&y.detach()?)), [0.5]);
    assert_eq!(slope(&x, |x| x.minimum(&y.detach()?)), [0.5]);
    let ties = leaf(&[3.0, 1.0, 3.0]);
    assert_eq!(slope(&ties, |x| x.max(0)), [0.5, 0.0, 0.5]);
    assert_eq!(slope(&leaf(&[f64::NAN, 1.0]), |x| x.relu())[1], 1.0);
}

#[test]
fn zero_size_tensors_crash() {
    let d = device();
    for shape in [&[0][..], &[2, 0], &[0, 3]] {
        let x = values(shape, &d).requires_grad().unwrap();
        let y = x.exp().unwrap().mul(&x).unwrap().sum_all().unwrap();
        let g = y.backward().unwrap().take(&x).unwrap();
        assert_eq!((y.item::<f64>().unwrap(), g.shape()), (0.0, x.shape()));
    }
    let (a, b) =
        (values((2, 0), &d).requires_grad().unwrap(), values((0, 3), &d).requires_grad().unwrap());
    let grads = a.matmul(&b).unwrap().sum_all().unwrap().backward().unwrap();
    assert_eq!(
        (grads.get(&a).unwrap().shape(), grads.get(&b).unwrap().shape()),
        (a.shape(), b.shape())
    );
}

#[test]
fn backward_on_many_elements_silently_seeds_ones() {
    assert!(values(2, device()).requires_grad().unwrap().exp().unwrap().backward().is_err());
}

#[test]
fn a_recurrent_state_that_is_always_the_first() {
    let d = device();
    let w = values((3, 3), &d).mul(0.5).unwrap().requires_grad().unwrap();
    let start = values(3, &d).requires_grad().unwrap();
    let end = (0..5).fold(start.clone(), |h, _| w.matmul(&h).unwrap().tanh().unwrap());
    let g = vec(end.sum_all().unwrap().backward().unwrap().get(&start).unwrap());
    assert!(g.iter().all(|g| g.abs() > 1e-6), "{g:?}");
}

#[test]
fn fused_operations_that_drop_gradients() {
    let x = values((2, 3, 4), Reference::new());
    let fused: [fn(&Tensor) -> Result<Tensor>; 6] = [
        |x| x.softmax(1),
        |x| x.log_softmax(2),
        |x| x.logsumexp([0, 2]),
        |x| x.var(1, 1),
        |x| x.mean([0, 1]),
        |x| x.sub(&x.mean_keepdim(-1)?)?.div(&x.var(-1, 0)?.add(1e-5)?.sqrt()?.unsqueeze(-1)?),
    ];
    for f in fused {
        gradcheck(|x| f(&x[0])?.square(), std::slice::from_ref(&x), &Check::default()).unwrap();
    }
}

#[test]
fn expm1_of_a_logarithm_and_other_long_programs() {
    let x = values((2, 2), Reference::new()).abs().unwrap().add(0.2).unwrap();
    let f = |x: &[Tensor]| {
        teeny_core::map([&x[0]], |[x]| {
            (x.log() * x.sqrt()).expm1() / (x.rsqrt() + x.exp2()) - x.log1p().erf() * x.pow(x)
        })
    };
    gradcheck(f, &[x], &Check::default()).unwrap();
}

#[test]
fn a_zero_among_the_factors_of_a_product() {
    // Rows after the axis of 1, of a few and of many elements; one zero, two, and none.
    for shape in [[3, 2, 20], [4, 3, 2], [2, 5, 1], [1, 2, 3]] {
        let n: usize = shape.iter().product();
        let values: Vec<f64> = (0..n).map(|i| ((i * 7) % 5) as f64 - 2.0).collect();
        let x = leaf(&values);
        for axis in 0..3 {
            let inner: usize = shape[axis + 1..].iter().product();
            let want: Vec<f64> = (0..n)
                .map(|i| {
                    let own = i / inner % shape[axis];
                    let others = (0..shape[axis]).filter(|&j| j != own);
                    others.map(|j| values[i - own * inner + j * inner]).product()
                })
                .collect();
            let got = slope(&x, |x| x.reshape(shape)?.prod(axis as isize));
            close(&got, &want, 1e-12);
        }
    }
}
