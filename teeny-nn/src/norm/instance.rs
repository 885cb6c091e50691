//! Instance normalisation.

use super::running::Running;
use super::standardise::standardise;
use super::{Affine, NormOptions, beside, channel_axis, require_several};
use crate::module::Module;
use crate::store::{Path, Store};
use teeny_core::context::enter;
use teeny_core::{Result, Tensor, map};

/// `y = (x - mean) / sqrt(variance + eps)` with mean and variance of each channel of each item,
/// over space.
///
/// Shapes: x (N, C, ..) → the same. By default there are neither parameters nor running statistics,
/// and training and use are the same, as with `torch.nn.InstanceNorm1d`, `2d` and `3d`; both can be
/// had by [`InstanceNorm::with_options`].
///
/// Source: Ulyanov, Vedaldi & Lempitsky 2016, arXiv:1607.08022.
#[derive(Clone, Debug)]
pub struct InstanceNorm {
    channels: usize,
    affine: Option<Affine>,
    running: Option<Running>,
    options: NormOptions,
    store: Store,
}

impl InstanceNorm {
    /// A layer at `path` with PyTorch's options: no parameters, no running statistics.
    ///
    /// # Errors
    /// None that this form can have.
    #[track_caller]
    pub fn new(path: &Path, channels: usize) -> Result<InstanceNorm> {
        let _op = enter("InstanceNorm::new");
        InstanceNorm::with_options(
            path,
            channels,
            NormOptions { affine: false, running: false, ..NormOptions::default() },
        )
    }

    /// A layer with options of your choice. Running statistics are averages over the items of each
    /// batch; batches are counted, which PyTorch forgets here.
    ///
    /// # Errors
    /// If the names are taken.
    #[track_caller]
    pub fn with_options(
        path: &Path,
        channels: usize,
        options: NormOptions,
    ) -> Result<InstanceNorm> {
        path.build("InstanceNorm::with_options", || {
            options.check()?;
            let affine = if options.affine { Some(Affine::new(path, channels)?) } else { None };
            let running = if options.running {
                Some(Running::new(path, channels, options.momentum)?)
            } else {
                None
            };
            Ok(InstanceNorm { channels, affine, running, options, store: path.store().clone() })
        })
    }
}

impl Module for InstanceNorm {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _op = enter("instance_norm");
        let axis = channel_axis(x, self.channels, self.options.channels_last, 3)?;
        let shape = beside(x, axis, self.channels);
        // (1, C, 1, 1) both
        let affine = self.affine.as_ref().map(|a| a.values(&shape)).transpose()?;
        if let Some(running) = self.running.as_ref().filter(|_| !self.store.is_training()) {
            let (eps, mean, var) = (
                self.options.eps,
                running.mean.value().reshape(&shape)?,
                running.var.value().reshape(&shape)?,
            );
            return match &affine {
                Some((w, b)) => map([x, &mean, &var, w, b], |[x, m, v, w, b]| {
                    (x - m) * (v + eps).rsqrt() * w + b
                }),
                None => map([x, &mean, &var], |[x, m, v]| (x - m) * (v + eps).rsqrt()),
            };
        }
        let axes: Vec<usize> = (1..x.ndim()).filter(|&a| a != axis).collect();
        let count = axes.iter().map(|&a| x.shape()[a]).product();
        require_several(count, x)?;
        let (y, (mean, var)) = standardise(x, affine, axes, self.options.eps)?;
        if let Some(running) = &self.running {
            let over_items = |s: &Tensor| s.mean(0)?.reshape(self.channels); // (C)
            running.update(&over_items(&mean)?, &over_items(&var)?, count)?;
        }
        Ok(y)
    }

    fn describe(&self) -> String {
        format!("InstanceNorm({})", self.channels)
    }
}
