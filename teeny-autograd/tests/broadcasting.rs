//! A26: a gradient through broadcasting is summed to the shape of the operand, for every pair of
//! shapes of ranks 0 to 4.
use crate::common::{close, device, positive, vec};
use teeny_autograd::Grad;
use teeny_core::{Result, Shape, Tensor};

/// Every shape of ranks 0 to 4 that broadcasts into (2, 3, 2, 2): the trailing axes, each full or
/// 1.
fn shapes() -> Vec<Vec<usize>> {
    let full = [2, 3, 2, 2];
    let of_rank = |rank: usize| {
        (0..1 << rank).map(move |ones: usize| {
            (0..rank).map(|a| if ones >> a & 1 == 1 { 1 } else { full[4 - rank + a] }).collect()
        })
    };
    (0..=4).flat_map(of_rank).collect()
}

/// `g` summed on the host to `shape`.
fn summed(g: &[f64], from: &Shape, shape: &[usize]) -> Vec<f64> {
    let shift = from.ndim() - shape.len();
    let mut out = vec![0.0; shape.iter().product()];
    for (place, g) in g.iter().enumerate() {
        let (mut rest, mut target, mut step) = (place, 0, 1);
        for axis in (0..from.ndim()).rev() {
            let i = rest % from[axis];
            rest /= from[axis];
            if axis >= shift && shape[axis - shift] > 1 {
                target += i * step;
                step *= shape[axis - shift];
            }
        }
        out[target] += g;
    }
    out
}

fn check(name: &str, op: fn(&Tensor, &Tensor) -> Result<Tensor>) {
    let d = device();
    for a_shape in shapes() {
        for b_shape in shapes() {
            let (a, b) = (
                positive(&a_shape, &d).requires_grad().unwrap(),
                positive(&b_shape, &d).mul(1.1).unwrap().requires_grad().unwrap(),
            );
            let y = op(&a, &b).unwrap();
            let shape = *y.shape();
            let whole = |t: &Tensor| {
                t.detach().unwrap().expand(shape).unwrap().copy().unwrap().requires_grad().unwrap()
            };
            let (wide_a, wide_b) = (whole(&a), whole(&b));
            let direction = positive(shape, &d);
            let grads = y.backward_with(&direction).unwrap();
            let wide = op(&wide_a, &wide_b).unwrap().backward_with(&direction).unwrap();
            for (narrow, wide_leaf, s) in [(&a, &wide_a, &a_shape), (&b, &wide_b, &b_shape)] {
                let got = grads.get(narrow).unwrap();
                assert_eq!(got.shape(), narrow.shape(), "{name} {a_shape:?} {b_shape:?}");
                close(&vec(got), &summed(&vec(wide.get(wide_leaf).unwrap()), &shape, s), 1e-6);
            }
        }
    }
}

#[test]
fn add() {
    check("add", |a, b| a.add(b));
}
#[test]
fn sub() {
    check("sub", |a, b| a.sub(b));
}
#[test]
fn mul() {
    check("mul", |a, b| a.mul(b));
}
#[test]
fn div() {
    check("div", |a, b| a.div(b));
}
#[test]
fn pow() {
    check("pow", |a, b| a.pow(b));
}
#[test]
fn maximum() {
    check("maximum", |a, b| a.maximum(b));
}
