//! Normalisations as functions of tensors, without a layer or a store.

use super::ranks::Ranks;
use super::standardise::standardise;
use super::{check_options, per_channel};
use teeny_core::context::enter;
use teeny_core::{Error, Result, Tensor, map};

/// `(x - mean) / sqrt(variance + eps) * weight + bias` with mean and variance of each channel: from
/// `running`, or over the batch and space if it is `None`.
///
/// Shapes: x (N, C, ..), statistics, weight and bias (C). Running statistics are not changed.
/// Equivalent: `torch.nn.functional.batch_norm`, with `training` if `running` is `None`.
///
/// # Errors
/// If the shapes do not fit or the types are not floats.
#[track_caller]
pub fn batch_norm(
    x: &Tensor,
    running: Option<(&Tensor, &Tensor)>,
    affine: Option<(&Tensor, &Tensor)>,
    eps: f64,
) -> Result<Tensor> {
    let _op = enter("batch_norm");
    let shape = channels(x, eps)?;
    let affine = pair(affine, &shape)?;
    if let Some(running) = pair(running, &shape)? {
        return by_statistics(x, &running, affine.as_ref(), eps);
    }
    let axes = (0..x.ndim()).filter(|&a| a != 1).collect();
    Ok(standardise(x, affine, axes, eps, Ranks::default())?.0)
}

/// `x` normalised by a mean and a variance, then scaled and shifted by `affine`.
pub(super) fn by_statistics(
    x: &Tensor,
    (mean, variance): &(Tensor, Tensor),
    affine: Option<&(Tensor, Tensor)>,
    eps: f64,
) -> Result<Tensor> {
    match affine {
        Some((weight, bias)) => map([x, mean, variance, weight, bias], |[x, m, v, w, b]| {
            (x - m) * (v + eps).rsqrt() * w + b
        }),
        None => map([x, mean, variance], |[x, m, v]| (x - m) * (v + eps).rsqrt()),
    }
}

/// [`batch_norm`] with mean and variance of each channel of each item, over space.
///
/// Shapes: x (N, C, ..), weight and bias (C). Equivalent: `torch.nn.functional.instance_norm`.
///
/// # Errors
/// If the shapes do not fit or the types are not floats.
#[track_caller]
pub fn instance_norm(x: &Tensor, affine: Option<(&Tensor, &Tensor)>, eps: f64) -> Result<Tensor> {
    let _op = enter("instance_norm");
    let shape = channels(x, eps)?;
    let affine = pair(affine, &shape)?;
    Ok(standardise(x, affine, (2..x.ndim()).collect(), eps, Ranks::default())?.0)
}

/// [`batch_norm`] with mean and variance of each of `groups` groups of neighbouring channels of
/// each item.
///
/// Shapes: x (N, C, ..), weight and bias (C). Equivalent: `torch.nn.functional.group_norm`.
///
/// # Errors
/// If `groups` does not divide C, the shapes do not fit, or the types are not floats.
#[track_caller]
pub fn group_norm(
    x: &Tensor,
    groups: usize,
    affine: Option<(&Tensor, &Tensor)>,
    eps: f64,
) -> Result<Tensor> {
    let _op = enter("group_norm");
    let count = channels(x, eps)?[1];
    if groups == 0 || !count.is_multiple_of(groups) {
        return Err(Error::value(format!("{groups} groups do not divide {count} channels"))
            .help("groups must be at least 1 and divide the number of channels"));
    }
    let affine = pair(affine, &[1, groups, count / groups, 1])?;
    let space: usize = x.shape()[2..].iter().product();
    let grouped = x.reshape([x.shape()[0], groups, count / groups, space])?; // (N, G, C/G, HW)
    let (y, _) = standardise(&grouped, affine, vec![2, 3], eps, Ranks::default())?;
    y.reshape(*x.shape())
}

/// The shape (1, C, 1, ..) of values per channel of x.
fn channels(x: &Tensor, eps: f64) -> Result<Vec<usize>> {
    check_options(eps, None)?;
    if x.ndim() < 2 {
        return Err(Error::shape(format!("inputs are (N, C, ..), not {}", x.shape()))
            .help("x.unsqueeze(0)? makes a batch of one"));
    }
    Ok(per_channel(x, 1, x.shape()[1]))
}

/// Both tensors in `shape`.
fn pair(of: Option<(&Tensor, &Tensor)>, shape: &[usize]) -> Result<Option<(Tensor, Tensor)>> {
    of.map(|(a, b)| Ok((a.reshape(shape)?, b.reshape(shape)?))).transpose()
}
