//! Running statistics: what batches were like, kept for when there is no batch.

use crate::init::Init;
use crate::store::{Param, Path, set_all};
use crate::track;
use teeny_core::{DType, Result, Tensor, map_n};

/// The buffers `running_mean` (C), `running_var` (C) and `num_batches_tracked` (), named as PyTorch
/// names them.
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
            batches: path.buffer_as("num_batches_tracked", (), Init::ZEROS, DType::I64)?, // ()
            momentum,
        })
    }

    /// Takes in a batch of this mean and biased variance (C), of `count` values each. What is kept
    /// is the unbiased variance, as in PyTorch.
    pub fn update(&self, mean: &Tensor, var: &Tensor, count: usize) -> Result<()> {
        let below = |p: &Param| track::below(&p.value());
        let batches = below(&self.batches)?.add(1)?; // ()
        let (unbias, momentum) = (count as f64 / (count as f64 - 1.0), self.momentum);
        let inputs = [&below(&self.mean)?, mean, &below(&self.var)?, var, &batches];
        let [mean, var] = map_n(inputs, |[old_mean, mean, old_var, var, batches]| {
            let share =
                momentum.map_or_else(|| batches.cast(mean.dtype()).recip(), |m| mean.like(m));
            [old_mean + (mean - old_mean) * share, old_var + (var * unbias - old_var) * share]
        })?; // (C), (C)
        // all three or none: a batch that is counted has moved mean and variance
        set_all([(&self.mean, &mean), (&self.var, &var), (&self.batches, &batches)].into_iter())
    }
}
