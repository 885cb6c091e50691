//! Pooling: a maximum sends its gradient to the winner, a mean spreads it over the window.

use crate::record::{Operands, Rule};
use teeny_core::{Op, Shape, Tensor, Window, definition};

/// The rule of max-pooling `x` over its last `spatial` axes, with the winners at `positions`.
pub(crate) fn max_pool(
    operands: &Operands<'_>,
    x: &Tensor,
    spatial: usize,
    positions: &Tensor,
) -> Rule {
    let (winners, full) = (positions.clone(), *x.shape());
    Rule::new(operands, move |g| {
        let op = Op::MaxPoolGrad { g, positions: &winners, x_shape: &full, spatial };
        Ok([Some(op.tensor(g.device())?)])
    })
    .detaching(1, Some("the positions of max_pool"))
}

/// The rule of the gradient of max-pooling, which is linear in `g`. Its transpose reads at the
/// positions.
pub(crate) fn max_pool_grad(
    operands: &Operands<'_>,
    g: &Tensor,
    positions: &Tensor,
    spatial: usize,
) -> Rule {
    let (out, positions) = (*g.shape(), positions.clone());
    Rule::new(operands, move |upper| {
        let lead = (out.ndim() - spatial) as isize;
        let (flat, places) = (upper.flatten(lead, -1)?, positions.flatten(lead, -1)?);
        Ok([Some(definition::at_winners(&flat, &places)?.reshape(out)?), None])
    })
}

/// The rule of average pooling. A mean is a convolution of one channel with equal weights; its
/// gradient is that convolution's.
pub(crate) fn avg_pool(
    operands: &Operands<'_>,
    x: &Tensor,
    kernel_size: &[usize],
    window: &Window,
) -> Rule {
    let (size, window, full) = (kernel_size.to_vec(), window.clone(), *x.shape());
    Rule::new(operands, move |g| {
        let lead = full.ndim() - size.len();
        let images = |shape: &Shape| [&[full[..lead].iter().product(), 1], &shape[lead..]].concat();
        let kernel = [&[1, 1], &size[..]].concat();
        let weight =
            Tensor::full(kernel, 1.0 / size.iter().product::<usize>() as f64, g.dtype(), g)?;
        let spread =
            g.reshape(images(g.shape()))?.conv_transpose(&weight, &window, &full[lead..])?;
        Ok([Some(spread.reshape(full)?)])
    })
}
