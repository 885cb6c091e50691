//! Group normalisation.

use super::standardise::standardise;
use super::{Affine, channel_axis};
use crate::module::Module;
use crate::store::Path;
use teeny_core::context::enter;
use teeny_core::{Error, Result, Tensor};

/// `y = (x - mean) / sqrt(variance + eps) * weight + bias` with mean and variance of each group of
/// neighbouring channels of each item.
///
/// Shapes: x (N, C) or (N, C, ..) → the same; `weight` and `bias` (C). Training and use are the
/// same. One group is layer normalisation over all but the batch; as many as channels is instance
/// normalisation.
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
    /// A layer at `path` with weight 1, bias 0 and eps 1e-5.
    ///
    /// # Errors
    /// If `groups` does not divide `channels`, or the names are taken.
    #[track_caller]
    pub fn new(path: &Path, groups: usize, channels: usize) -> Result<GroupNorm> {
        path.build("GroupNorm::new", || {
            let layer = GroupNorm::without_affine(groups, channels)?;
            Ok(GroupNorm { affine: Some(Affine::new(path, channels)?), ..layer })
        })
    }

    /// A layer without parameters.
    ///
    /// # Errors
    /// If `groups` does not divide `channels`.
    #[track_caller]
    pub fn without_affine(groups: usize, channels: usize) -> Result<GroupNorm> {
        let _op = enter("GroupNorm::without_affine");
        if groups == 0 || !channels.is_multiple_of(groups) {
            return Err(Error::value(format!("{groups} groups do not divide {channels} channels"))
                .help("groups must be at least 1 and divide the number of channels"));
        }
        Ok(GroupNorm { groups, channels, affine: None, eps: 1e-5 })
    }

    /// The same layer with another `eps`.
    pub fn eps(self, eps: f64) -> GroupNorm {
        GroupNorm { eps, ..self }
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
        let affine = self.affine.as_ref().map(|a| a.values(&[1, groups, width, 1])).transpose()?;
        let grouped = x.reshape([x.shape()[0], groups, width, space])?; // (N, G, C/G, HW)
        let (y, _) = standardise(&grouped, affine, vec![2, 3], self.eps)?; // (N, G, C/G, HW)
        y.reshape(*x.shape())
    }

    fn describe(&self) -> String {
        format!("GroupNorm({} groups of {})", self.groups, self.channels / self.groups)
    }
}
