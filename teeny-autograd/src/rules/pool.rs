//! Pooling: a maximum sends its gradient to the winner, a mean spreads it over the window.

use super::tensor;
use crate::cuts::Cut;
use crate::device::Autograd;
use crate::record::{Operands, here, record};
use crate::storage::{Tracked, unwrap};
use teeny_core::{Result, Shape, StorageRef, Tensor, Window, definition, validate};

pub(crate) fn max_pool(
    device: &Autograd,
    x: &Tensor,
    size: &[usize],
    window: &Window,
) -> Result<(StorageRef, StorageRef)> {
    let [(shape, dtype), (_, places)] = validate::max_pool(x, size, window)?;
    let (values, positions) = device.inner_device().max_pool(&unwrap(x)?, size, window)?;
    let values = device.value(values, shape, dtype)?;
    let positions = device.value(positions, shape, places)?;
    let mut operands = Operands::of(&[x])?;
    if operands.recording {
        operands.cuts.push(Cut { op: "the positions of max_pool", ..here(operands.mask) });
    }
    let (winners, full, spatial) = (positions.clone(), *x.shape(), size.len());
    let values = record([x], values, |_| {
        move |g: &Tensor| {
            Ok([Some(tensor(g.device().max_pool_grad(g, &winners, &full, spatial)?, full, g)?)])
        }
    })?;
    Ok((values, Tracked::storage(positions, None, operands.cuts)))
}

pub(crate) fn max_pool_grad(
    device: &Autograd,
    g: &Tensor,
    positions: &Tensor,
    x_shape: &Shape,
    spatial: usize,
) -> Result<StorageRef> {
    let positions = unwrap(positions)?;
    let y = device.value(
        device.inner_device().max_pool_grad(&unwrap(g)?, &positions, x_shape, spatial)?,
        *x_shape,
        g.dtype(),
    )?;
    let out = *g.shape();
    // Linear in g, and its own transpose is reading at the positions.
    record([g], y, |_| {
        move |upper: &Tensor| {
            let lead = out.ndim() - spatial;
            let flat = upper.flatten(lead as isize, -1)?; // (lead.., places)
            Ok([Some(
                definition::at_winners(&flat, &positions.flatten(lead as isize, -1)?)?
                    .reshape(out)?,
            )])
        }
    })
}

pub(crate) fn avg_pool(
    device: &Autograd,
    x: &Tensor,
    size: &[usize],
    window: &Window,
) -> Result<StorageRef> {
    let (shape, dtype) = validate::avg_pool(x, size, window)?;
    let y =
        device.value(device.inner_device().avg_pool(&unwrap(x)?, size, window)?, shape, dtype)?;
    let (size, window, full) = (size.to_vec(), window.clone(), *x.shape());
    // A mean is a convolution of one channel with equal weights; its gradient is that
    // convolution's.
    record([x], y, |_| {
        move |g: &Tensor| {
            let lead = full.ndim() - size.len();
            let images =
                |shape: &Shape| [&[full[..lead].iter().product(), 1], &shape[lead..]].concat();
            let kernel = [&[1, 1], &size[..]].concat();
            let weight =
                Tensor::full(kernel, 1.0 / size.iter().product::<usize>() as f64, g.dtype(), g)?;
            let spread =
                g.reshape(images(g.shape()))?.conv_transpose(&weight, &window, &full[lead..])?;
            Ok([Some(spread.reshape(full)?)])
        }
    })
}
