//! Reading and writing by positions, and sorting.

use crate::cuts::Cut;
use crate::device::Autograd;
use crate::record::{Operands, here, record, record_by, when};
use crate::storage::{Tracked, tracked, unwrap};
use teeny_core::{DType, Result, ScatterMode, StorageRef, Tensor, map};

pub(crate) fn gather(
    device: &Autograd,
    x: &Tensor,
    axis: usize,
    index: &Tensor,
) -> Result<StorageRef> {
    let cuts = tracked(index)?.cuts.clone();
    let (inner, index) = (unwrap(x)?, unwrap(index)?);
    let y = device.value(
        device.inner_device().gather(&inner, axis, &index)?,
        *index.shape(),
        x.dtype(),
    )?;
    let full = *x.shape();
    // Positions that were read several times add up.
    record_by([x], &cuts, y, |_| {
        move |g: &Tensor| {
            Ok([Some(Tensor::zeros(full, g.dtype(), g)?.scatter_add(axis as isize, &index, g)?)])
        }
    })
}

pub(crate) fn scatter(
    device: &Autograd,
    mode: ScatterMode,
    x: &Tensor,
    axis: usize,
    index: &Tensor,
    src: &Tensor,
) -> Result<StorageRef> {
    let cuts = tracked(index)?.cuts.clone();
    let (a, index, b) = (unwrap(x)?, unwrap(index)?, unwrap(src)?);
    let y = device.value(
        device.inner_device().scatter(mode, &a, axis, &index, &b)?,
        *x.shape(),
        x.dtype(),
    )?;
    let axis = axis as isize;
    match mode {
        ScatterMode::Set => record_by([x, src], &cuts, y, |[need_x, need_src]| {
            let full = *x.shape();
            move |g: &Tensor| {
                let d_x =
                    when(need_x, || g.scatter(axis, &index, &Tensor::zeros((), g.dtype(), g)?))?;
                let d_src = when(need_src, || {
                    map([&winners(&index, axis, full)?, &g.gather(axis, &index)?], |[w, g]| {
                        w.select(g, g.like(0))
                    })
                })?;
                Ok([d_x, d_src])
            }
        }),
        ScatterMode::Add => record_by([x, src], &cuts, y, |[need_x, need_src]| {
            move |g: &Tensor| {
                Ok([need_x.then(|| g.clone()), when(need_src, || g.gather(axis, &index))?])
            }
        }),
        ScatterMode::Max | ScatterMode::Min => {
            let saved = y.clone();
            record_by([x, src], &cuts, y, |[need_x, need_src]| {
                move |g: &Tensor| {
                    // As torch.scatter_reduce: whoever equals the result shares its gradient
                    // evenly, the former element included.
                    let own = a.eq(&saved)?.cast(g.dtype())?;
                    let given = b.eq(&saved.gather(axis, &index)?)?.cast(g.dtype())?;
                    let count = own.scatter_add(axis, &index, &given)?;
                    let share = map([g, &count], |[g, n]| n.eq(0).select(g.like(0), g / n))?;
                    let d_x = when(need_x, || share.mul(&own))?;
                    let d_src = when(need_src, || share.gather(axis, &index)?.mul(&given))?;
                    Ok([d_x, d_src])
                }
            })
        }
    }
}

/// True where an element was not overwritten by a later one at the same place.
fn winners(index: &Tensor, axis: isize, full: teeny_core::Shape) -> Result<Tensor> {
    let order = Tensor::arange(0i64, index.numel() as i64, 1, index)?.reshape(index.shape())?;
    let last = Tensor::zeros(full, DType::I64, index)?.scatter(axis, index, &order)?;
    last.gather(axis, index)?.eq(&order)
}

pub(crate) fn sort(
    device: &Autograd,
    x: &Tensor,
    axis: usize,
    descending: bool,
) -> Result<(StorageRef, StorageRef)> {
    let (values, positions) = device.inner_device().sort(&unwrap(x)?, axis, descending)?;
    let values = device.value(values, *x.shape(), x.dtype())?;
    let positions = device.value(positions, *x.shape(), DType::I32)?;
    let index = positions.clone();
    // The positions have no slope; that they come from x is remembered as a cut.
    let mut operands = Operands::of(&[x])?;
    if operands.recording {
        operands.cuts.push(Cut { op: "the positions of sort", ..here(operands.mask) });
    }
    let positions = Tracked::storage(positions, None, operands.cuts);
    let values = record([x], values, |_| {
        move |g: &Tensor| Ok([Some(g.zeros_like()?.scatter(axis as isize, &index, g)?)])
    })?;
    Ok((values, positions))
}
