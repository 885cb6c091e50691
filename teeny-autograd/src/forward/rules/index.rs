//! Reading and writing by positions, and sorting, which reads in order.

use crate::forward::operands::Operands;
use teeny_core::{Result, ScatterMode, Tensor, map};

/// The tangent of the elements at `index`; of a sort, `index` is its second output.
pub(super) fn gather(operands: &Operands, axis: usize, index: &Tensor) -> Result<Option<Tensor>> {
    operands.map_tangent(0, |t| t.gather(axis as isize, index))
}

/// The tangent of `y`, a copy of `x` with `src` written into it.
pub(super) fn scatter(
    operands: &Operands,
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
