//! Reading and writing by positions, and sorting.

use crate::record::{Operands, Rule, if_needed};
use teeny_core::{DType, Result, ScatterMode, Shape, Tensor, map};

/// The rule of gathering from `x`: positions that were read several times add up.
pub(crate) fn gather(operands: &Operands<'_>, x: &Tensor, axis: usize, index: &Tensor) -> Rule {
    let (full, index) = (*x.shape(), index.clone());
    Rule::new(operands, move |g| {
        // One zero for all: the device writes the result once.
        let zeros = Tensor::zeros((), g.dtype(), g)?.expand(full)?;
        Ok([Some(zeros.scatter_add(axis as isize, &index, g)?), None])
    })
}

/// The rule of scattering `src` into a copy of `x`, which made `y`.
pub(crate) fn scatter(
    operands: &Operands<'_>,
    mode: ScatterMode,
    x: &Tensor,
    axis: usize,
    index: &Tensor,
    src: &Tensor,
    y: &Tensor,
) -> Rule {
    let (need_x, need_src, axis) = (operands.need(0), operands.need(2), axis as isize);
    let (full, index) = (*x.shape(), index.clone());
    match mode {
        ScatterMode::Set => Rule::new(operands, move |g| {
            let d_x =
                if_needed(need_x, || g.scatter(axis, &index, &Tensor::zeros((), g.dtype(), g)?))?;
            let d_src = if_needed(need_src, || {
                map([&winners(&index, axis, full)?, &g.gather(axis, &index)?], |[w, g]| {
                    w.where_cond(g, g.like(0))
                })
            })?;
            Ok([d_x, None, d_src])
        }),
        ScatterMode::Add => Rule::new(operands, move |g| {
            let d_src = if_needed(need_src, || g.gather(axis, &index))?;
            Ok([need_x.then(|| g.clone()), None, d_src])
        }),
        ScatterMode::Max | ScatterMode::Min => {
            let (a, b, y) = (x.clone(), src.clone(), y.clone());
            Rule::new(operands, move |g| {
                // As torch.scatter_reduce: all that equal the result share its gradient evenly,
                // the former element included.
                let own = a.eq(&y)?.cast(g.dtype())?;
                let given = b.eq(&y.gather(axis, &index)?)?.cast(g.dtype())?;
                let count = own.scatter_add(axis, &index, &given)?;
                let share = map([g, &count], |[g, n]| n.eq(0).where_cond(g.like(0), g / n))?;
                let d_x = if_needed(need_x, || share.mul(&own))?;
                let d_src = if_needed(need_src, || share.gather(axis, &index)?.mul(&given))?;
                Ok([d_x, None, d_src])
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

/// The rule of sorting elements of `shape` along `axis`, or of the first of them in that order,
/// which took the elements from `positions`.
pub(crate) fn sort(
    operands: &Operands<'_>,
    shape: &Shape,
    axis: usize,
    positions: &Tensor,
) -> Rule {
    let (index, shape) = (positions.clone(), *shape);
    Rule::new(operands, move |g| {
        let zeros = Tensor::zeros((), g.dtype(), g)?.expand(shape)?;
        Ok([Some(zeros.scatter(axis as isize, &index, g)?)])
    })
    .detaching(1, Some("the positions of sort"))
}
