//! A22: the capstone's own check, f = (Wx + b)², against its closed form.
use crate::common::{device, values, vec};
use teeny_autograd::{Check, Function, Grad, Saved, apply, gradcheck};
use teeny_core::{DType, Result, Tensor};

fn rmse(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    (a.iter().zip(b).map(|(x, y)| (x - y).powi(2)).sum::<f64>() / a.len() as f64).sqrt()
}

/// The gradients of W, x and b, by hand in f64: `2 r xᵀ`, `2 Wᵀ r` and `2 r` with `r = W x + b`.
fn closed_form(w: &[f64], x: &[f64], b: &[f64]) -> [Vec<f64>; 3] {
    let n = x.len();
    let r: Vec<f64> = b
        .iter()
        .enumerate()
        .map(|(i, b)| b + (0..n).map(|j| w[i * n + j] * x[j]).sum::<f64>())
        .collect();
    let d_w = r.iter().flat_map(|r| x.iter().map(move |x| 2.0 * r * x)).collect();
    let d_x =
        (0..n).map(|j| r.iter().enumerate().map(|(i, r)| 2.0 * r * w[i * n + j]).sum()).collect();
    [d_w, d_x, r.iter().map(|r| 2.0 * r).collect()]
}

fn errors(dtype: DType) -> [f64; 3] {
    let d = device();
    let leaf = |shape: &[usize]| values(shape, &d).cast(dtype).unwrap().requires_grad().unwrap();
    let (w, x, b) = (leaf(&[7, 5]), leaf(&[5]), leaf(&[7]));
    let loss = w.matmul(&x).unwrap().add(&b).unwrap().square().unwrap().sum_all().unwrap();
    let grads = loss.backward().unwrap();
    let wide = |t: &Tensor| vec(&t.cast(DType::F64).unwrap());
    let expected = closed_form(&wide(&w), &wide(&x), &wide(&b));
    let got = [&w, &x, &b].map(|t| wide(grads.get(t).unwrap()));
    [0, 1, 2].map(|i| rmse(&got[i], &expected[i]))
}

#[test]
fn the_gradients_of_a_squared_affine_map_have_their_closed_form() {
    assert!(errors(DType::F64).iter().all(|e| *e < 1e-12), "{:?}", errors(DType::F64));
    assert!(errors(DType::F32).iter().all(|e| *e < 1e-6), "{:?}", errors(DType::F32));
}

/// The product with its rules exchanged: shapes fit where all matrices are square, values do not.
struct Swapped;
impl Function for Swapped {
    fn name(&self) -> &'static str {
        "swapped_matmul"
    }
    fn forward(&self, x: &[&Tensor], saved: &mut Saved) -> Result<Tensor> {
        x.iter().for_each(|x| saved.save_for_backward(x));
        x[0].matmul(x[1])
    }
    fn backward(&self, saved: &Saved, g: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let [lhs, rhs] = saved.tensors() else { unreachable!("two were saved") };
        Ok(vec![Some(lhs.t()?.matmul(g)?), Some(g.matmul(&rhs.t()?)?)])
    }
}

#[test]
fn a_matmul_with_exchanged_rules_is_caught() {
    let d = device();
    let (w, x) = (values((4, 4), &d), values((4, 4), &d).neg().unwrap());
    let right =
        gradcheck(|x| x[0].matmul(&x[1])?.square(), &[w.clone(), x.clone()], &Check::default());
    assert!(right.is_ok(), "{right:?}");
    let wrong =
        gradcheck(|x| apply(Swapped, &[&x[0], &x[1]])?.square(), &[w, x], &Check::default());
    assert!(wrong.unwrap_err().to_string().contains("central differences give"));
}
