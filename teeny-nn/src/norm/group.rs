//! Group normalisation.

use super::ranks::Ranks;
use super::standardise::standardise;
use super::{Affine, channel_axis, check_options};
use crate::module::Module;
use crate::options::options;
use crate::store::Path;
use teeny_core::context::enter;
use teeny_core::{Error, Result, Tensor};

options! {
    /// Options of a [`GroupNorm`], with PyTorch's defaults.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct GroupNormOptions {
        /// Added to the variance, so that constant groups do not divide by 0; 1e-5.
        eps: f64 = 1e-5, with_eps;
        /// Whether there are `weight` and `bias`; true.
        affine: bool = true, with_affine;
    }
}

/// `y = (x - mean) / sqrt(variance + eps) * weight + bias` with mean and variance of each group of
/// neighbouring channels of each item.
///
/// Shapes: x (N, C) or (N, C, ..) → the same; `weight` and `bias` (C). Training changes nothing.
/// One group is layer normalisation over all axes except the batch; one group per channel is
/// instance normalisation.
///
/// Source: Wu & He 2018, arXiv:1803.08494. Equivalent: `torch.nn.GroupNorm`.
#[derive(Clone, Debug)]
pub struct GroupNorm {
    groups: usize,
    channels: usize,
    affine: Option<Affine>,
    eps: f64,
}

impl GroupNorm {
    /// A layer at `path` with PyTorch's defaults.
    ///
    /// # Errors
    /// If `groups` does not divide `channels`, or the names are taken.
    #[track_caller]
    pub fn new(path: &Path, groups: usize, channels: usize) -> Result<GroupNorm> {
        let _op = enter("GroupNorm::new");
        GroupNorm::with_options(path, groups, channels, GroupNormOptions::default())
    }

    /// A layer at `path` with `options`.
    ///
    /// # Errors
    /// If `groups` does not divide `channels`, an option is out of range, or the names are taken.
    #[track_caller]
    pub fn with_options(
        path: &Path,
        groups: usize,
        channels: usize,
        options: GroupNormOptions,
    ) -> Result<GroupNorm> {
        path.build("GroupNorm::with_options", || {
            if groups == 0 || !channels.is_multiple_of(groups) {
                let text = format!("{groups} groups do not divide {channels} channels");
                return Err(Error::value(text)
                    .help("groups must be at least 1 and divide the number of channels"));
            }
            check_options(options.eps, None)?;
            let affine = if options.affine { Some(Affine::new(path, channels)?) } else { None };
            Ok(GroupNorm { groups, channels, affine, eps: options.eps })
        })
    }
}

impl Module for GroupNorm {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _op = enter("group_norm");
        channel_axis(x, self.channels, false, 2)?;
        let (groups, width) = (self.groups, self.channels / self.groups);
        let space: usize = x.shape()[2..].iter().product();
        // (1, G, C/G, 1) both
        let affine =
            self.affine.as_ref().map(|a| a.values(x, &[1, groups, width, 1])).transpose()?;
        let grouped = x.reshape([x.shape()[0], groups, width, space])?; // (N, G, C/G, HW)
        // (N, G, C/G, HW)
        let (y, _) = standardise(&grouped, affine, vec![2, 3], self.eps, Ranks::default())?;
        y.reshape(*x.shape())
    }

    fn describe(&self) -> String {
        format!("GroupNorm({} groups of {})", self.groups, self.channels / self.groups)
    }
}
