//! Running statistics: averages of the batches' means and variances, for use outside training.

use crate::init::Init;
use crate::store::{Param, Path};
use crate::track;
use teeny_core::{DType, Result, Tensor, map_n};
use teeny_formats::COUNTER;

/// The buffers `running_mean` (C), `running_var` (C) and `num_batches_tracked` (), with PyTorch's
/// names.
#[derive(Clone, Debug)]
pub(super) struct Running {
    pub mean: Param,
    pub var: Param,
    batches: Param,
    momentum: Option<f64>,
}

impl Running {
    pub fn new(path: &Path, channels: usize, momentum: Option<f64>) -> Result<Running> {
        Ok(Running {
            mean: path.buffer("running_mean", channels, Init::ZEROS)?, // (C)
            var: path.buffer("running_var", channels, Init::ONES)?,    // (C)
            batches: path.buffer_as(COUNTER, (), Init::ZEROS, DType::I32)?, // ()
            momentum,
        })
    }

    /// Adds a batch with this mean and biased variance (C), of `count` values each. The running
    /// variance is unbiased, as in PyTorch.
    pub fn update(&self, mean: &Tensor, var: &Tensor, count: usize) -> Result<()> {
        let detached = |p: &Param| track::detached(&p.value());
        let batches = detached(&self.batches)?.add(1)?; // ()
        let (unbias, momentum) = (count as f64 / (count as f64 - 1.0), self.momentum);
        let inputs = [&detached(&self.mean)?, mean, &detached(&self.var)?, var, &batches];
        let [mean, var] = map_n(inputs, |[old_mean, mean, old_var, var, batches]| {
            let weight =
                momentum.map_or_else(|| batches.cast(mean.dtype()).recip(), |m| mean.like(m));
            [old_mean + (mean - old_mean) * weight, old_var + (var * unbias - old_var) * weight]
        })?; // (C), (C)
        // all three or none: a counted batch has moved mean and variance
        Param::set_all([(&self.mean, &mean), (&self.var, &var), (&self.batches, &batches)])
    }
}
