//! Reading and writing by positions, and sorting.

use crate::duals::Duals;
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

/// The tangent of the elements at `index`; of a sort, `index` is its second output.
pub(crate) fn gather_tangent(
    operands: &Duals,
    axis: usize,
    index: &Tensor,
) -> Result<Option<Tensor>> {
    operands.map_tangent(0, |t| t.gather(axis as isize, index))
}

/// The tangent of `y`, a copy of `x` with `src` written into it.
pub(crate) fn scatter_tangent(
    operands: &Duals,
    mode: ScatterMode,
    x: &Tensor,
    axis: usize,
    index: &Tensor,
    src: &Tensor,
    y: &Tensor,
) -> Result<Option<Tensor>> {
    let (t_x, t_src) = (operands.tangent_or_zeros(0)?, operands.tangent_or_zeros(2)?);
    let axis = axis as isize;
    Ok(Some(match mode {
        ScatterMode::Set => t_x.scatter(axis, index, &t_src)?,
        ScatterMode::Add => t_x.scatter_add(axis, index, &t_src)?,
        ScatterMode::Max | ScatterMode::Min => {
            let own = x.eq(y)?;
            let written = src.eq(&y.gather(axis, index)?)?;
            let chosen =
                |which: &Tensor, t: &Tensor| map([which, t], |[w, t]| w.where_cond(t, t.like(0)));
            let sum = chosen(&own, &t_x)?.scatter_add(axis, index, &chosen(&written, &t_src)?)?;
            let dtype = t_x.dtype();
            let count = own.cast(dtype)?.scatter_add(axis, index, &written.cast(dtype)?)?;
            // 0 where nothing was counted, as in the gradient: nothing equals an extremum that is
            // NaN.
            map([&sum, &count], |[s, n]| n.eq(0).where_cond(s.like(0), s / n))?
        }
    }))
}
