//! The requirements of convolution and pooling, and of their gradients. The number of windows is
//! counted in `op/conv_shape`.

use super::{float, like, positions};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::messages::converts;
use crate::op::{TensorSpec, Window, conv_shape, pool_shape};
use crate::shape::Shape;
use crate::tensor::Tensor;

/// [`Op::Conv`](crate::Op::Conv).
///
/// # Errors
/// As [`conv_shape`]; if the operands are not of one float type.
pub fn conv(x: &Tensor, weight: &Tensor, window: &Window) -> Result<TensorSpec> {
    floats(x, "weight", weight)?;
    Ok((conv_shape(x.shape(), weight.shape(), window)?, x.dtype()))
}

/// [`Op::ConvInputGrad`](crate::Op::ConvInputGrad).
///
/// # Errors
/// As [`conv`]; if `g` is not the shape of a convolution of `x_shape`.
pub fn conv_input_grad(
    g: &Tensor,
    weight: &Tensor,
    window: &Window,
    x_shape: &Shape,
) -> Result<TensorSpec> {
    floats(g, "weight", weight)?;
    like("g", g, &conv_shape(x_shape, weight.shape(), window)?, g.dtype())?;
    Ok((*x_shape, g.dtype()))
}

/// [`Op::ConvWeightGrad`](crate::Op::ConvWeightGrad).
///
/// # Errors
/// As [`conv`]; if `g` is not the shape of a convolution by a weight of `weight_shape`.
pub fn conv_weight_grad(
    g: &Tensor,
    x: &Tensor,
    window: &Window,
    weight_shape: &Shape,
) -> Result<TensorSpec> {
    floats(g, "x", x)?;
    like("g", g, &conv_shape(x.shape(), weight_shape, window)?, g.dtype())?;
    Ok((*weight_shape, g.dtype()))
}

fn floats(x: &Tensor, name: &str, other: &Tensor) -> Result<()> {
    float(x)?;
    if other.dtype() == x.dtype() {
        Ok(())
    } else {
        Err(Error::dtype(format!("{name} is {}, not {}", other.dtype(), x.dtype()))
            .help(converts(name, x.dtype())))
    }
}

/// [`Op::MaxPool`](crate::Op::MaxPool): values and positions.
///
/// # Errors
/// As [`pool_shape`]; if the elements are bools, or the pooled axes have more positions than `I32`.
pub fn max_pool(x: &Tensor, size: &[usize], window: &Window) -> Result<(TensorSpec, TensorSpec)> {
    if x.dtype() == DType::Bool {
        return Err(Error::dtype("expected numbers, got bools").help("x.cast(DType::U8)? converts"));
    }
    let shape = pool_shape(x.shape(), size, window)?;
    positions(x.shape()[x.ndim() - size.len()..].iter().product())?;
    Ok(((shape, x.dtype()), (shape, DType::I32)))
}

/// [`Op::MaxPoolGrad`](crate::Op::MaxPoolGrad). The positions' values are for the
/// device to check.
///
/// # Errors
/// If `g` is not of floats, or `positions` and `g` are not pooled from `x_shape` over its last
/// `spatial` axes.
pub fn max_pool_grad(
    g: &Tensor,
    positions: &Tensor,
    x_shape: &Shape,
    spatial: usize,
) -> Result<TensorSpec> {
    float(g)?;
    like("positions", positions, g.shape(), DType::I32)?;
    let lead = x_shape.ndim().checked_sub(spatial).filter(|_| spatial > 0);
    match lead {
        Some(lead) if g.ndim() == x_shape.ndim() && g.shape()[..lead] == x_shape[..lead] => {
            Ok((*x_shape, g.dtype()))
        }
        _ => Err(Error::shape(format!(
            "{} was not pooled from the last {spatial} axes of {x_shape}",
            g.shape()
        ))
        .help(
            "pass the shape of the tensor that was pooled, and the number of axes that were pooled",
        )),
    }
}

/// [`Op::AvgPool`](crate::Op::AvgPool).
///
/// # Errors
/// As [`pool_shape`]; if the elements are not floats.
pub fn avg_pool(x: &Tensor, size: &[usize], window: &Window) -> Result<TensorSpec> {
    float(x)?;
    Ok((pool_shape(x.shape(), size, window)?, x.dtype()))
}
