//! A25: graphs whose values and gradients are known exactly.
use crate::common::{close, device, vec};
use teeny_autograd::Grad;
use teeny_core::{DType, Tensor};

fn leaf(value: f64, dtype: DType, device: impl teeny_core::ToDevice) -> Tensor {
    Tensor::new(value, device).unwrap().cast(dtype).unwrap().requires_grad().unwrap()
}

fn number(x: &Tensor) -> f64 {
    x.cast(DType::F64).unwrap().item::<f64>().unwrap()
}

/// Runs `check` in both precisions with the tolerance of each.
fn in_both(check: impl Fn(DType, f64)) {
    check(DType::F64, 1e-10);
    check(DType::F32, 1e-5);
}

/// The example of micrograd's README.
#[test]
fn micrograd_readme() {
    in_both(|dtype, tolerance| {
        let d = device();
        let (a, b) = (leaf(-4.0, dtype, &d), leaf(2.0, dtype, &d));
        let c = &a + &b;
        let e = &a * &b + b.pow(3).unwrap();
        let c = &c + (&c + 1.0);
        let c: Tensor = &c + ((1.0 + &c) + (-&a));
        let e = &e + (&e * 2.0 + (&b + &a).relu().unwrap());
        let e: Tensor = &e + (3.0 * &e + (&b - &a).relu().unwrap());
        let f = (&c - &e).square().unwrap();
        let g = &f / 2.0 + 10.0 / &f;
        close(&[number(&g)], &[24.70408163265306], tolerance);
        let grads = g.backward().unwrap();
        close(
            &[number(grads.get(&a).unwrap()), number(grads.get(&b).unwrap())],
            &[138.83381924198252, 645.5772594752186],
            tolerance,
        );
    });
}

/// micrograd's `test_sanity_check`.
#[test]
fn micrograd_sanity() {
    in_both(|dtype, tolerance| {
        let x = leaf(-4.0, dtype, device());
        let z: Tensor = 2.0 * &x + 2.0 + &x;
        let q = z.relu().unwrap() + &z * &x;
        let h = z.square().unwrap().relu().unwrap();
        let y = &h + &q + &q * &x;
        close(&[number(&y)], &[-20.0], tolerance);
        close(&[number(y.backward().unwrap().get(&x).unwrap())], &[46.0], tolerance);
    });
}

#[test]
fn tanh_neuron() {
    in_both(|dtype, tolerance| {
        let d = device();
        let [x1, x2, w1, w2, b] =
            [2.0, 0.0, -3.0, 1.0, 6.881373587019543].map(|v| leaf(v, dtype, &d));
        let o = (&x1 * &w1 + &x2 * &w2 + &b).tanh().unwrap();
        close(&[number(&o)], &[std::f64::consts::FRAC_1_SQRT_2], tolerance);
        let grads = o.backward().unwrap();
        let got = [&x1, &w1, &x2, &w2].map(|t| number(grads.get(t).unwrap()));
        close(&got, &[-1.5, 1.0, 0.5, 0.0], tolerance);
    });
}

/// f(x, y) = exp(x) sin²(y) at (9, 10).
#[test]
fn sitp_function_of_two_numbers() {
    in_both(|dtype, tolerance| {
        let d = device();
        let (x, y) = (leaf(9.0, dtype, &d), leaf(10.0, dtype, &d));
        let f = x.exp().unwrap() * y.sin().unwrap().pow(2).unwrap();
        let grads = f.backward().unwrap();
        let got = [number(&f), number(grads.get(&x).unwrap()), number(grads.get(&y).unwrap())];
        close(&got, &[2398.1803656817, 2398.1803656817, 7397.6719879273], tolerance);
    });
}

#[test]
fn product_of_counted_matrices() {
    let d = device();
    let a = Tensor::arange(0.0f64, 12.0, 1.0, &d)
        .unwrap()
        .reshape((3, 4))
        .unwrap()
        .requires_grad()
        .unwrap();
    let b = Tensor::arange(0.0f64, 20.0, 1.0, &d)
        .unwrap()
        .reshape((4, 5))
        .unwrap()
        .requires_grad()
        .unwrap();
    let y = a.matmul(&b).unwrap();
    let rows = [
        [70.0, 76.0, 82.0, 88.0, 94.0],
        [190.0, 212.0, 234.0, 256.0, 278.0],
        [310.0, 348.0, 386.0, 424.0, 462.0],
    ];
    assert_eq!(vec(&y), rows.concat());
    let grads = y.backward_with(&y.ones_like().unwrap()).unwrap();
    assert_eq!(vec(grads.get(&a).unwrap()), [10.0, 35.0, 60.0, 85.0].repeat(3));
    assert_eq!(vec(grads.get(&b).unwrap()), [[12.0; 5], [15.0; 5], [18.0; 5], [21.0; 5]].concat());
}

#[test]
fn a_row_times_the_identity() {
    let d = device();
    let x = Tensor::eye(3, DType::F64, &d).unwrap().requires_grad().unwrap();
    let y = Tensor::new([[2.0f64, 0.0, -2.0]], &d).unwrap().requires_grad().unwrap();
    let grads = y.matmul(&x).unwrap().sum_all().unwrap().backward().unwrap();
    assert_eq!(vec(grads.get(&x).unwrap()), [2.0, 2.0, 2.0, 0.0, 0.0, 0.0, -2.0, -2.0, -2.0]);
    assert_eq!(vec(grads.get(&y).unwrap()), [1.0, 1.0, 1.0]);
}
