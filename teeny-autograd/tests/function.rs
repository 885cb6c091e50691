//! A31: operations defined outside the library, with their own backward function.
use crate::common::{close, device, values, vec};
use teeny_autograd::{Check, Function, Grad, Saved, apply, gradcheck, gradgradcheck};
use teeny_core::{DType, Device, Reference, Result, Tensor};

/// `x² y`, with both operands saved.
struct Weighted;
impl Function for Weighted {
    fn name(&self) -> &'static str {
        "weighted"
    }
    fn forward(&self, inputs: &[&Tensor], saved: &mut Saved) -> Result<Tensor> {
        inputs.iter().for_each(|x| saved.save_for_backward(x));
        inputs[0].square()?.mul(inputs[1])
    }
    fn backward(&self, saved: &Saved, g: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let [x, y] = saved.tensors() else { unreachable!("two were saved") };
        Ok(vec![Some(g.mul(x)?.mul(y)?.mul(2.0)?), Some(g.mul(&x.square()?)?)])
    }
}

#[test]
fn a_function_passes_gradcheck_once_and_twice() {
    let inputs =
        [values((3, 4), Reference::new()), values((3, 4), Reference::new()).neg().unwrap()];
    let f = |x: &[Tensor]| apply(Weighted, &[&x[0], &x[1]]);
    gradcheck(f, &inputs, &Check::default()).unwrap();
    gradgradcheck(f, &inputs, &Check::default()).unwrap();
    let strided = |x: &[Tensor]| apply(Weighted, &[&x[0].t()?, &x[1].t()?.flip(0)?]);
    gradcheck(strided, &inputs, &Check::default()).unwrap();
}

#[test]
fn a_function_is_one_node_that_mixes_with_others() {
    let d = device();
    let (x, y) = (values(3, &d).requires_grad().unwrap(), values(3, &d));
    let z = apply(Weighted, &[&x.exp().unwrap(), &y]).unwrap().sum_all().unwrap();
    let expected = x.mul(2.0).unwrap().exp().unwrap().mul(&y).unwrap();
    close(&[z.item::<f64>().unwrap()], &[vec(&expected).iter().sum()], 1e-12);
    close(&vec(z.backward().unwrap().get(&x).unwrap()), &vec(&expected.mul(2.0).unwrap()), 1e-12);
}

#[test]
fn a_function_runs_on_a_plain_device_and_under_no_grad() {
    let d = device();
    let x = values(3, d.inner().unwrap());
    let y = apply(Weighted, &[&x, &x]).unwrap();
    close(&vec(&y), &vec(&x.pow(3).unwrap()), 1e-12);
    let w = x.to(&d).unwrap().requires_grad().unwrap();
    assert!(!teeny_autograd::no_grad(|| apply(Weighted, &[&w, &w]).unwrap()).is_tracked());
    let mixed = apply(Weighted, &[&w, &x]).unwrap();
    assert!(mixed.is_tracked(), "constants of the inner device are lifted");
}

/// Says by its result whether a backward pass may follow, and how many tensors it keeps.
struct Asked;
impl Function for Asked {
    fn name(&self) -> &'static str {
        "asked"
    }
    fn forward(&self, inputs: &[&Tensor], saved: &mut Saved) -> Result<Tensor> {
        saved.save_for_backward(inputs[0]);
        let kept = saved.tensors().len() as f64;
        Tensor::new([f64::from(u8::from(saved.is_needed())), kept], inputs[0])
    }
    fn backward(&self, _: &Saved, _: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![None])
    }
}

#[test]
fn a_function_knows_whether_a_backward_pass_may_follow() {
    let d = device();
    let x = values(3, &d);
    let w = x.requires_grad().unwrap();
    let asked = |x: &Tensor| vec(&apply(Asked, &[x]).unwrap());
    assert_eq!(asked(&w), [1.0, 1.0]);
    assert_eq!(asked(&x), [0.0, 0.0], "no operand is tracked");
    assert_eq!(teeny_autograd::no_grad(|| asked(&w)), [0.0, 0.0]);
    assert_eq!(asked(&values(3, d.inner().unwrap())), [0.0, 0.0], "a plain device");
}

/// Gives whatever it is told as gradients.
struct Careless(fn(&Tensor) -> Result<Vec<Option<Tensor>>>);
impl Function for Careless {
    fn name(&self) -> &'static str {
        "careless"
    }
    fn forward(&self, inputs: &[&Tensor], _: &mut Saved) -> Result<Tensor> {
        inputs[0].t()
    }
    fn backward(&self, _: &Saved, g: &Tensor) -> Result<Vec<Option<Tensor>>> {
        self.0(g)
    }
}

#[test]
fn wrong_gradients_are_refused_by_name() {
    let x = values((2, 3), device()).requires_grad().unwrap();
    let refusal = |f| {
        apply(Careless(f), &[&x])
            .unwrap()
            .sum_all()
            .unwrap()
            .backward()
            .map(|_| ())
            .unwrap_err()
            .to_string()
    };
    let text = refusal(|_| Ok(vec![]));
    assert!(
        text.contains("the backward function of careless gave 0 gradients for 1 inputs"),
        "{text}"
    );
    let text = refusal(|g| Ok(vec![Some(g.clone())]));
    assert!(
        text.contains(
            "the backward function of careless gave f64 (3, 2) for input 0, which is f64 (2, 3)"
        ),
        "{text}"
    );
    let text = refusal(|g| Ok(vec![Some(g.t()?.cast(DType::F32)?)]));
    assert!(text.contains("gave f32 (2, 3) for input 0, which is f64 (2, 3)"), "{text}");
    let none =
        apply(Careless(|_| Ok(vec![None])), &[&x]).unwrap().sum_all().unwrap().backward().unwrap();
    assert!(none.is_empty());
}

#[test]
fn a_view_may_be_the_result() {
    let x = values((2, 3), device()).requires_grad().unwrap();
    let y = apply(Careless(|g| Ok(vec![Some(g.t()?)])), &[&x]).unwrap();
    close(&vec(&y), &vec(&x.t().unwrap()), 0.0);
    let g = y.square().unwrap().sum_all().unwrap().backward().unwrap().take(&x).unwrap();
    close(&vec(&g), &vec(&x.mul(2.0).unwrap()), 1e-12);
}
