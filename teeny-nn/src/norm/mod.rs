//! Normalisation layers: they differ in the elements that share a mean and a variance.
//!
//! ```text
//!              of x (N, C, ..), one mean and variance for        running statistics
//! BatchNorm    each channel, over batch and space                running_mean, running_var
//! InstanceNorm each channel of each item, over space             optional
//! GroupNorm    each group of channels of each item               none
//! LayerNorm    each position, over the last axes                 none
//! RmsNorm      each position, root mean square only              none
//! ```
//!
//! The first three are one [`teeny_autograd::Function`] (`standardise`); the last two are
//! `Tensor::layer_norm` and `rms_norm`.

mod batch;
mod functional;
mod group;
mod instance;
mod layer;
mod ranks;
mod running;
mod standardise;

pub use batch::{BatchNorm, BatchNormOptions};
pub use functional::{batch_norm, group_norm, instance_norm};
pub use group::{GroupNorm, GroupNormOptions};
pub use instance::{InstanceNorm, InstanceNormOptions};
pub use layer::{LayerNorm, LayerNormOptions, RmsNorm, RmsNormOptions};

use crate::init::Init;
use crate::module::require_type;
use crate::store::{Param, Path};
use teeny_core::{Error, Result, Tensor};

/// Returns an error if `eps` or `momentum` is out of range.
fn check_options(eps: f64, momentum: Option<f64>) -> Result<()> {
    if !(eps >= 0.0 && eps.is_finite()) {
        return Err(Error::value(format!("eps is {eps}, but must be 0 or more and finite"))
            .help("1e-5 is usual"));
    }
    match momentum {
        Some(momentum) if !(0.0..=1.0).contains(&momentum) => {
            Err(Error::value(format!("momentum is {momentum}, but must be within 0..=1"))
                .help("Some(0.1) is usual; None averages all batches"))
        }
        _ => Ok(()),
    }
}

/// A weight and a bias per channel.
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

    /// Weight and bias, reshaped to broadcast; an error if x has a higher float type.
    fn values(&self, x: &Tensor, shape: &[usize]) -> Result<(Tensor, Tensor)> {
        require_type(x, &self.weight)?;
        Ok((self.weight.value().reshape(shape)?, self.bias.value().reshape(shape)?))
    }
}

/// The channel axis of x, which must have `channels` of them and at least `ndim` axes.
fn channel_axis(x: &Tensor, channels: usize, last: bool, ndim: usize) -> Result<usize> {
    let axis = if last { x.ndim().saturating_sub(1) } else { 1 };
    if x.ndim() >= ndim && x.shape()[axis] == channels {
        return Ok(axis);
    }
    let expected = match (last, ndim) {
        (true, _) => format!("(.., {channels})"),
        (false, 2) => format!("(N, {channels}) or (N, {channels}, ..)"),
        (false, _) => format!("(N, {channels}, ..)"),
    };
    let error = Error::shape(format!(
        "the layer has {channels} channels, so its input must be {expected}, not {}",
        x.shape()
    ));
    let swapped = !last && x.ndim() > 2 && x.shape().last() == Some(&channels);
    Err(error.help(if swapped {
        "BatchNormOptions::with_channels_last(true) has the channels on the last axis"
    } else {
        "build the layer for the number of channels of its input"
    }))
}

/// The shape with `channels` at `axis` and 1 elsewhere, which broadcasts against x.
fn per_channel(x: &Tensor, axis: usize, channels: usize) -> Vec<usize> {
    let mut shape = vec![1; x.ndim()];
    shape[axis] = channels;
    shape
}

/// Returns an error unless `count`, the number of values per mean, is at least 2.
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

/// `x` (.., E) divided by the Euclidean length of each row, as embeddings are.
///
/// # Errors
/// If `x` has no axis or no floats.
pub fn normalized(x: &Tensor) -> Result<Tensor> {
    let length = x.vector_norm(2.0, -1)?.clamp(1e-12, f64::INFINITY)?; // (..)
    x.div(&length.unsqueeze(-1)?)
}
