//! Convolution and its gradients: the product rule.

use crate::forward::operands::Operands;
use teeny_core::{Result, Shape, Tensor, Window};

pub(super) fn conv(
    operands: &Operands,
    x: &Tensor,
    weight: &Tensor,
    window: &Window,
) -> Result<Option<Tensor>> {
    operands.product_rule(|t| t.conv(weight, window), |t| x.conv(t, window))
}

pub(super) fn conv_input_grad(
    operands: &Operands,
    g: &Tensor,
    weight: &Tensor,
    window: &Window,
    x_shape: &Shape,
) -> Result<Option<Tensor>> {
    let product = |g: &Tensor, weight: &Tensor| g.conv_transpose(weight, window, &x_shape[2..]);
    operands.product_rule(|t| product(t, weight), |t| product(g, t))
}

pub(super) fn conv_weight_grad(
    operands: &Operands,
    g: &Tensor,
    x: &Tensor,
    window: &Window,
    weight_shape: &Shape,
) -> Result<Option<Tensor>> {
    let product = |g: &Tensor, x: &Tensor| g.conv_weight_grad(x, window, weight_shape);
    operands.product_rule(|t| product(t, x), |t| product(g, t))
}
