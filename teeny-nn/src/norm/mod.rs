//! Normalisation layers: they differ in which elements share a mean and a variance.
//!
//! ```text
//!              of x (N, C, ..), one mean and variance for        kept for use
//! BatchNorm    each channel, over batch and space                running_mean, running_var
//! InstanceNorm each channel of each item, over space             nothing, unless asked
//! GroupNorm    each group of channels of each item               nothing
//! LayerNorm    each position, over the last axes                 nothing
//! RmsNorm      the same, by the root mean square alone           nothing
//! ```
//!
//! The first three are one operation with a gradient of its own (`standardise`); the last two are
//! `Tensor::layer_norm` and `rms_norm`.

mod batch;
mod group;
mod instance;
mod layer;
mod running;
mod standardise;

pub use batch::BatchNorm;
pub use group::GroupNorm;
pub use instance::InstanceNorm;
pub use layer::{LayerNorm, RmsNorm};

use crate::init::Init;
use crate::store::{Param, Path};
use teeny_core::{Error, Result, Tensor};

/// What [`BatchNorm`] and [`InstanceNorm`] can be told.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NormOptions {
    /// Added to the variance, so that constant channels do not divide by 0.
    pub eps: f64,
    /// How much of each batch enters the running statistics; `None` for the plain average over all
    /// batches.
    pub momentum: Option<f64>,
    /// Whether there is a `weight` and a `bias` per channel.
    pub affine: bool,
    /// Whether there are running statistics, which use (as opposed to training) normalises by.
    pub running: bool,
    /// Whether channels are the last axis, (B, T, C), instead of axis 1.
    pub channels_last: bool,
}

impl Default for NormOptions {
    /// PyTorch's values for batch normalisation: eps 1e-5, momentum 0.1, affine, with running
    /// statistics, channels on axis 1.
    fn default() -> NormOptions {
        NormOptions {
            eps: 1e-5,
            momentum: Some(0.1),
            affine: true,
            running: true,
            channels_last: false,
        }
    }
}

impl NormOptions {
    /// An error if a number is out of range.
    fn check(&self) -> Result<()> {
        if !(self.eps >= 0.0 && self.eps.is_finite()) {
            return Err(Error::value(format!(
                "eps is {}, but must be 0 or more and finite",
                self.eps
            ))
            .help("1e-5 is usual"));
        }
        match self.momentum {
            Some(momentum) if !(0.0..=1.0).contains(&momentum) => {
                Err(Error::value(format!("momentum is {momentum}, but must be within 0..=1"))
                    .help("Some(0.1) is usual; None averages all batches"))
            }
            _ => Ok(()),
        }
    }
}

/// A factor and a summand per channel.
#[derive(Clone, Debug)]
struct Affine {
    weight: Param,
    bias: Param,
}

impl Affine {
    fn new(path: &Path, channels: usize) -> Result<Affine> {
        // (C), (C)
        Ok(Affine {
            weight: path.param("weight", channels, Init::ONES)?,
            bias: path.param("bias", channels, Init::ZEROS)?,
        })
    }

    /// Both, in a shape that broadcasts.
    fn values(&self, shape: &[usize]) -> Result<(Tensor, Tensor)> {
        Ok((self.weight.value().reshape(shape)?, self.bias.value().reshape(shape)?))
    }
}

/// Where the channels of x are, if it has `channels` of them and at least `ndim` axes.
fn channel_axis(x: &Tensor, channels: usize, last: bool, ndim: usize) -> Result<usize> {
    let axis = if last { x.ndim().saturating_sub(1) } else { 1 };
    if x.ndim() >= ndim && x.shape()[axis] == channels {
        return Ok(axis);
    }
    let wanted = match (last, ndim) {
        (true, _) => format!("(.., {channels})"),
        (false, 2) => format!("(N, {channels}) or (N, {channels}, ..)"),
        (false, _) => format!("(N, {channels}, ..)"),
    };
    let error = Error::shape(format!(
        "the layer has {channels} channels, so its input must be {wanted}, not {}",
        x.shape()
    ));
    let swapped = !last && x.ndim() > 2 && x.shape().last() == Some(&channels);
    Err(error.help(if swapped {
        "for channels on the last axis set `channels_last` in NormOptions"
    } else {
        "build the layer for the number of channels of its input"
    }))
}

/// `channels` at `axis` among ones: the shape of what belongs to a channel.
fn beside(x: &Tensor, axis: usize, channels: usize) -> Vec<usize> {
    let mut shape = vec![1; x.ndim()];
    shape[axis] = channels;
    shape
}

/// An error unless `count` values, which share a mean, can have a variance.
fn require_several(count: usize, x: &Tensor) -> Result<()> {
    if count > 1 {
        return Ok(());
    }
    let error = Error::value(format!(
        "training needs more than one value per channel, and {} has {count}",
        x.shape()
    ));
    Err(error.help("a larger batch, or store.set_training(false)"))
}
