//! Convolution and its two gradients. All three are bilinear and are each other's gradients, so a
//! convolution can be differentiated any number of times:
//!
//! ```text
//! <conv(x, w), g>  =  <x, input_grad(g, w)>  =  <w, weight_grad(g, x)>
//! ```

use crate::duals::Duals;
use crate::record::{Operands, Rule, if_needed};
use teeny_core::{Result, Shape, Tensor, Window};

/// The rule of convolving `x` with `weight`.
pub(crate) fn conv(operands: &Operands<'_>, x: &Tensor, weight: &Tensor, window: &Window) -> Rule {
    let (x_shape, w_shape, window) = (*x.shape(), *weight.shape(), window.clone());
    let (x, w) = (operands.need(1).then(|| x.clone()), operands.need(0).then(|| weight.clone()));
    Rule::new(operands, move |g| {
        let d_x = w.as_ref().map(|w| g.conv_transpose(w, &window, &x_shape[2..])).transpose()?;
        let d_w = x.as_ref().map(|x| g.conv_weight_grad(x, &window, &w_shape)).transpose()?;
        Ok([d_x, d_w])
    })
}

/// The rule of the gradient for a convolution's input.
pub(crate) fn conv_input_grad(
    operands: &Operands<'_>,
    g: &Tensor,
    weight: &Tensor,
    window: &Window,
) -> Rule {
    let (need_g, need_w, w_shape) = (operands.need(0), operands.need(1), *weight.shape());
    let (g, w, window) = (g.clone(), weight.clone(), window.clone());
    Rule::new(operands, move |upper| {
        let d_g = if_needed(need_g, || upper.conv(&w, &window))?;
        let d_w = if_needed(need_w, || g.conv_weight_grad(upper, &window, &w_shape))?;
        Ok([d_g, d_w])
    })
}

/// The rule of the gradient for a convolution's weight.
pub(crate) fn conv_weight_grad(
    operands: &Operands<'_>,
    g: &Tensor,
    x: &Tensor,
    window: &Window,
) -> Rule {
    let (need_g, need_x, x_shape) = (operands.need(0), operands.need(1), *x.shape());
    let (g, x, window) = (g.clone(), x.clone(), window.clone());
    Rule::new(operands, move |upper| {
        let d_g = if_needed(need_g, || x.conv(upper, &window))?;
        let d_x = if_needed(need_x, || g.conv_transpose(upper, &window, &x_shape[2..]))?;
        Ok([d_g, d_x])
    })
}

/// The product rule.
pub(crate) fn conv_tangent(
    operands: &Duals,
    x: &Tensor,
    weight: &Tensor,
    window: &Window,
) -> Result<Option<Tensor>> {
    operands.product_rule(|t| t.conv(weight, window), |t| x.conv(t, window))
}

/// The product rule.
pub(crate) fn conv_input_grad_tangent(
    operands: &Duals,
    g: &Tensor,
    weight: &Tensor,
    window: &Window,
    x_shape: &Shape,
) -> Result<Option<Tensor>> {
    let product = |g: &Tensor, weight: &Tensor| g.conv_transpose(weight, window, &x_shape[2..]);
    operands.product_rule(|t| product(t, weight), |t| product(g, t))
}

/// The product rule.
pub(crate) fn conv_weight_grad_tangent(
    operands: &Duals,
    g: &Tensor,
    x: &Tensor,
    window: &Window,
    weight_shape: &Shape,
) -> Result<Option<Tensor>> {
    let product = |g: &Tensor, x: &Tensor| g.conv_weight_grad(x, window, weight_shape);
    operands.product_rule(|t| product(t, x), |t| product(g, t))
}
