//! Maxima of windows that see only padding: a constant, whose gradient and tangent are 0.

use teeny_autograd::{Autograd, Forward, Grad};
use teeny_core::{Reference, Result, Tensor, Window};

#[test]
fn a_window_of_padding_passes_no_gradient() -> Result<()> {
    let device = Autograd::new(Reference::new());
    let x = Tensor::new([[5.0f64, 7.0, 6.0]], &device)?.requires_grad()?; // (1, 3)
    let window = Window::new(1).padding(1).dilation(2).stride(1);
    let y = x.max_pool(&[2], &window)?; // (1, 3)
    assert_eq!(y.to_vec::<f64>()?, [7.0, 6.0, 7.0]);
    let all = Window::new(1).padding(1).dilation(4);
    let nothing = x.max_pool(&[2], &all)?; // (1, 1)
    assert_eq!(nothing.to_vec::<f64>()?, [f64::NEG_INFINITY]);
    let grads = y.sum_all()?.add(&nothing.sum_all()?)?.backward()?;
    assert_eq!(grads.get(&x)?.to_vec::<f64>()?, [0.0, 2.0, 1.0]);
    Ok(())
}

#[test]
fn a_window_of_padding_has_no_tangent() -> Result<()> {
    let inner = Reference::new();
    let device = Forward::new(inner.clone());
    let x = Tensor::new([[5.0f64, 7.0, 6.0]], &inner)?; // (1, 3)
    let x = device.dual(&x, &x.ones_like()?)?;
    let y = x.max_pool(&[2], &Window::new(1).padding(1).dilation(4))?;
    let (value, tangent) = device.unpack(&y)?;
    assert_eq!(value.to_vec::<f64>()?, [f64::NEG_INFINITY]);
    assert_eq!(tangent.expect("x moves").to_vec::<f64>()?, [0.0]);
    Ok(())
}
