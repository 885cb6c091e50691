//! Tangents of reductions, scans, scattering, joining and assignment. Ties are treated as the
//! gradients treat them, so that both modes agree everywhere.

use super::Forward;
use super::storage::{Dual, flat, tangent, tangent_or_zeros, value};
use crate::rules::linalg::tangents;
use crate::rules::reduce::prod_grad;
use crate::rules::scan::{first_zeros, without_each};
use crate::rules::spread;
use crate::storage::differentiated;
use teeny_core::storage::{downcast, downcast_mut};
use teeny_core::{
    DType, Layout, LinalgOp, Outputs, ReduceOp, Result, ScanOp, ScatterMode, Shape, StorageRef,
    Tensor, definition, map,
};

/// The sum of the tangents that there are.
pub(super) fn total<const N: usize>(terms: [Option<Tensor>; N]) -> Result<Option<Tensor>> {
    let mut terms = terms.into_iter().flatten();
    let Some(first) = terms.next() else { return Ok(None) };
    terms.try_fold(first, |sum, term| sum.add(&term)).map(Some)
}

pub(super) fn reduce(
    device: &Forward,
    op: ReduceOp,
    x: &Tensor,
    axes: &[usize],
) -> Result<StorageRef> {
    let inner = value(x)?;
    let y = device.inner_device().reduce(op, &inner, axes)?;
    let dtype = op.output(x.dtype());
    let Some(t) = tangent(x)? else { return device.result(y, dtype, None) };
    let shape = x.shape().reduced(axes, false);
    let tangent = match op {
        ReduceOp::ArgMax | ReduceOp::ArgMin | ReduceOp::Any | ReduceOp::All => None,
        ReduceOp::Sum => Some(t.sum(axes)?),
        ReduceOp::Prod => Some(prod_grad(&inner, &t, axes)?.sum(axes)?),
        ReduceOp::Max | ReduceOp::Min => {
            let best = Tensor::from_result(y.clone(), shape, dtype, inner.device().clone())?;
            let chosen = inner.eq(&spread(&best, x.shape(), axes)?)?;
            let sum = map([&chosen, &t], |[c, t]| c.select(t, t.like(0)))?.sum(axes)?;
            Some(sum.div(&chosen.cast(t.dtype())?.sum(axes)?)?)
        }
    };
    device.result(y, dtype, tangent)
}

/// `sum / count`, 0 where nothing was counted, as in the gradient: nothing equals an extremum that
/// is NaN.
fn mean(sum: &Tensor, count: &Tensor) -> Result<Tensor> {
    map([sum, count], |[s, n]| n.eq(0).select(s.like(0), s / n))
}

pub(super) fn scan(device: &Forward, op: ScanOp, x: &Tensor, axis: usize) -> Result<StorageRef> {
    let inner = value(x)?;
    let y = device.inner_device().scan(op, &inner, axis)?;
    let Some(t) = tangent(x)? else { return device.result(y, x.dtype(), None) };
    let tangent = match op {
        ScanOp::Sum => t.cumsum(axis as isize)?,
        ScanOp::Prod if differentiated(&inner) || differentiated(&t) => {
            let (others, until) = without_each(&inner, axis)?; // (.., i, k)
            let t = t.transpose(axis as isize, -1)?.unsqueeze(-1)?; // (.., i, 1)
            map([&others, &until, &t], |[p, u, t]| u.select(p * t, t.like(0)))?
                .sum(-2)?
                .transpose(axis as isize, -1)?
        }
        ScanOp::Prod => {
            // Before the first zero y_k Σ t_i / x_i; from there on only the product without this
            // zero moves.
            let (filled, zeros, first) = first_zeros(&inner, axis)?;
            let product = filled.cumprod(axis as isize)?;
            let relative = map([&t, &filled, &first], |[t, x, f]| f.select(t.like(0), t / x))?
                .cumsum(axis as isize)?;
            let at = map([&t, &first], |[t, f]| f.select(t, t.like(0)))?.cumsum(axis as isize)?;
            map([&product, &zeros, &relative, &at], |[p, n, r, a]| p * n.eq(0).select(r, a))?
        }
    };
    device.result(y, x.dtype(), Some(tangent))
}

pub(super) fn scatter(
    device: &Forward,
    mode: ScatterMode,
    x: &Tensor,
    axis: usize,
    index: &Tensor,
    src: &Tensor,
) -> Result<StorageRef> {
    let (a, index, b) = (value(x)?, value(index)?, value(src)?);
    let y = device.inner_device().scatter(mode, &a, axis, &index, &b)?;
    if tangent(x)?.is_none() && tangent(src)?.is_none() {
        return device.result(y, x.dtype(), None);
    }
    let (t_x, t_src) = (tangent_or_zeros(x)?, tangent_or_zeros(src)?);
    let axis = axis as isize;
    let tangent = match mode {
        ScatterMode::Set => t_x.scatter(axis, &index, &t_src)?,
        ScatterMode::Add => t_x.scatter_add(axis, &index, &t_src)?,
        ScatterMode::Max | ScatterMode::Min => {
            let best = Tensor::from_result(y.clone(), *x.shape(), x.dtype(), a.device().clone())?;
            let own = a.eq(&best)?;
            let given = b.eq(&best.gather(axis, &index)?)?;
            let chosen =
                |which: &Tensor, t: &Tensor| map([which, t], |[w, t]| w.select(t, t.like(0)));
            let sum = chosen(&own, &t_x)?.scatter_add(axis, &index, &chosen(&given, &t_src)?)?;
            mean(
                &sum,
                &own.cast(t_x.dtype())?.scatter_add(axis, &index, &given.cast(t_x.dtype())?)?,
            )?
        }
    };
    device.result(y, x.dtype(), Some(tangent))
}

/// The tangent of the tensors joined along `axis`.
pub(super) fn cat(tensors: &[&Tensor], axis: usize) -> Result<Option<Tensor>> {
    let moving = tensors
        .iter()
        .try_fold(false, |any, x| Ok::<_, teeny_core::Error>(any || tangent(x)?.is_some()))?;
    if !moving {
        return Ok(None);
    }
    let parts = tensors.iter().map(|x| tangent_or_zeros(x)).collect::<Result<Vec<_>>>()?;
    Ok(Some(Tensor::cat(&parts.iter().collect::<Vec<_>>(), axis as isize)?))
}

pub(super) fn copy_into(
    device: &Forward,
    mut dst: StorageRef,
    view: &Layout,
    src: &Tensor,
) -> Result<StorageRef> {
    let inner = value(src)?;
    // If nobody else holds the outer storage, the inner ones are handed on, so that the inner
    // device can write in place.
    let (below, moving) = match downcast_mut::<Dual>(&mut dst) {
        Some(mine) => (std::mem::replace(&mut mine.value, inner.clone()), mine.tangent.take()),
        None => {
            let theirs = downcast::<Dual>(&dst)?;
            (theirs.value.clone(), theirs.tangent.clone())
        }
    };
    drop(dst);
    let tangent = if moving.is_some() || tangent(src)?.is_some() {
        let whole = moving
            .map_or_else(|| Tensor::zeros(below.storage().len(), below.dtype(), &inner), Ok)?;
        let (storage, ..) = whole.into_parts();
        Some(flat(
            device.inner_device().copy_into(storage, view, &tangent_or_zeros(src)?)?,
            &inner,
        )?)
    } else {
        None
    };
    let (storage, _, dtype, _) = below.into_parts();
    device.result(device.inner_device().copy_into(storage, view, &inner)?, dtype, tangent)
}

/// The elements of `t` at the positions (one per window) that a max pooling over the last `spatial`
/// axes has found.
pub(super) fn at_winners(t: &Tensor, positions: &StorageRef, spatial: usize) -> Result<Tensor> {
    let lead = t.ndim() - spatial;
    let rows = t.shape()[..lead].iter().product::<usize>();
    let windows = positions.len().checked_div(rows).unwrap_or(0);
    let index = Tensor::from_result(
        positions.clone(),
        Shape::new(&[rows, windows])?,
        DType::I32,
        t.device().clone(),
    )?;
    let places = t.shape()[lead..].iter().product::<usize>();
    definition::at_winners(&t.reshape((rows, places))?, &index) // (rows, windows)
}

pub(super) fn linalg(device: &Forward, op: LinalgOp, inputs: &[&Tensor]) -> Result<Outputs> {
    let forms = op.results(inputs)?;
    let values = inputs.iter().map(|x| value(x)).collect::<Result<Vec<_>>>()?;
    let moving = inputs.iter().map(|x| tangent(x)).collect::<Result<Vec<_>>>()?;
    let storages = device.inner_device().linalg(op, &values.iter().collect::<Vec<_>>())?;
    let tensor = |(storage, (shape, dtype))| {
        Tensor::from_result(storage, shape, dtype, device.inner_device().clone())
    };
    let results = storages.into_iter().zip(forms).map(tensor).collect::<Result<Vec<_>>>()?;
    let tangents = if moving.iter().all(Option::is_none) {
        vec![None; results.len()]
    } else {
        tangents(op, &values, &results, &moving)?
    };
    let mut outputs = Outputs::new();
    for (y, tangent) in results.into_iter().zip(tangents) {
        outputs.push(Dual::storage(y, tangent)?);
    }
    Ok(outputs)
}
