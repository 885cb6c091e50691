//! Instance normalisation.

use super::functional::by_statistics;
use super::ranks::Ranks;
use super::running::Running;
use super::standardise::standardise;
use super::{Affine, channel_axis, check_options, per_channel, require_several};
use crate::module::Module;
use crate::options::options;
use crate::store::{Param, Path, Store};
use teeny_core::context::enter;
use teeny_core::{Result, Tensor};

options! {
    /// Options of an [`InstanceNorm`], with PyTorch's defaults.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct InstanceNormOptions {
        /// Added to the variance, so that constant channels do not divide by 0; 1e-5.
        eps: f64 = 1e-5, with_eps;
        /// The weight of each batch in the running statistics, or None for the plain average over
        /// all batches; 0.1.
        momentum: Option<f64> = Some(0.1), with_momentum;
        /// Whether there are `weight` and `bias`; false.
        affine: bool = false, with_affine;
        /// Whether there are running statistics, which normalise outside training; false. They are
        /// averages over the items of each batch; batches are counted, other than in PyTorch.
        track_running_stats: bool = false, with_track_running_stats;
        /// Whether the channels are the last axis, (B, T, C), instead of axis 1; false.
        channels_last: bool = false, with_channels_last;
    }
}

/// `y = (x - mean) / sqrt(variance + eps) * weight + bias` with mean and variance of each channel
/// of each item, over space.
///
/// Shapes: x (N, C, ..) → the same. By default there are neither parameters nor running statistics,
/// and training changes nothing.
///
/// Source: Ulyanov, Vedaldi & Lempitsky 2016, arXiv:1607.08022. Equivalent:
/// `torch.nn.InstanceNorm1d`, `InstanceNorm2d`, `InstanceNorm3d`.
#[doc(alias = "InstanceNorm1d", alias = "InstanceNorm2d", alias = "InstanceNorm3d")]
#[derive(Clone, Debug)]
pub struct InstanceNorm {
    channels: usize,
    affine: Option<Affine>,
    running: Option<Running>,
    options: InstanceNormOptions,
    store: Store,
}

impl InstanceNorm {
    /// A layer at `path` with PyTorch's defaults: no parameters, no running statistics.
    ///
    /// # Errors
    /// None with these options.
    #[track_caller]
    pub fn new(path: &Path, channels: usize) -> Result<InstanceNorm> {
        let _op = enter("InstanceNorm::new");
        InstanceNorm::with_options(path, channels, InstanceNormOptions::default())
    }

    /// A layer at `path` with `options`.
    ///
    /// # Errors
    /// If an option is out of range, or the names are taken.
    #[track_caller]
    pub fn with_options(
        path: &Path,
        channels: usize,
        options: InstanceNormOptions,
    ) -> Result<InstanceNorm> {
        path.build("InstanceNorm::with_options", || {
            check_options(options.eps, options.momentum)?;
            let affine = if options.affine { Some(Affine::new(path, channels)?) } else { None };
            let running = || Running::new(path, channels, options.momentum);
            let running = options.track_running_stats.then(running).transpose()?;
            Ok(InstanceNorm { channels, affine, running, options, store: path.store().clone() })
        })
    }
}

impl Module for InstanceNorm {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _op = enter("instance_norm");
        let axis = channel_axis(x, self.channels, self.options.channels_last, 3)?;
        let shape = per_channel(x, axis, self.channels);
        // (1, C, 1, 1) both
        let affine = self.affine.as_ref().map(|a| a.values(x, &shape)).transpose()?;
        if let Some(running) = self.running.as_ref().filter(|_| !self.store.is_training()) {
            let value = |p: &Param| p.value().reshape(&shape);
            let running = (value(&running.mean)?, value(&running.var)?);
            return by_statistics(x, &running, affine.as_ref(), self.options.eps);
        }
        let axes: Vec<usize> = (1..x.ndim()).filter(|&a| a != axis).collect();
        let count = axes.iter().map(|&a| x.shape()[a]).product();
        require_several(count, x)?;
        let (y, statistics) = standardise(x, affine, axes, self.options.eps, Ranks::default())?;
        if let Some(running) = &self.running {
            let over_items = |s: &Tensor| s.mean(0)?.reshape(self.channels); // (C)
            let (mean, variance) =
                (over_items(&statistics.mean)?, over_items(&statistics.variance)?);
            running.update(&mean, &variance, count)?;
        }
        Ok(y)
    }

    fn describe(&self) -> String {
        format!("InstanceNorm({})", self.channels)
    }
}
