//! Batch normalisation.

use super::ranks::Ranks;
use super::running::Running;
use super::standardise::standardise;
use super::{Affine, channel_axis, check_options, per_channel, require_several};
use crate::module::Module;
use crate::options::options;
use crate::ranks::SumOverRanks;
use crate::store::{Path, Store};
use std::sync::Arc;
use teeny_core::context::enter;
use teeny_core::{Error, Result, Tensor, map};

options! {
    /// Options of a [`BatchNorm`], with PyTorch's defaults.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct BatchNormOptions {
        /// Added to the variance, so that constant channels do not divide by 0; 1e-5.
        eps: f64 = 1e-5, with_eps;
        /// The weight of each batch in the running statistics, or None for the plain average over
        /// all batches; 0.1.
        momentum: Option<f64> = Some(0.1), with_momentum;
        /// Whether there are `weight` and `bias`; true.
        affine: bool = true, with_affine;
        /// Whether there are running statistics, which normalise outside training; true.
        track_running_stats: bool = true, with_track_running_stats;
        /// Whether the channels are the last axis, (B, T, C), instead of axis 1; false.
        channels_last: bool = false, with_channels_last;
    }
}

/// `y = (x - mean) / sqrt(variance + eps) * weight + bias` with mean and variance of each channel.
///
/// Shapes: x (N, C) or (N, C, ..) → the same; with [`BatchNormOptions::channels_last`] (.., C),
/// such as (B, T, C). Parameters `weight` and `bias` (C), buffers `running_mean`, `running_var` (C)
/// and `num_batches_tracked` (): checkpoints of PyTorch's `BatchNorm1d`, `2d` and `3d` load.
///
/// In training the batch's statistics are used, over all axes except the channels, and the running
/// statistics move towards them. Otherwise ([`Store::set_training`]) the running statistics
/// normalise, so that an item's output does not depend on the other items.
///
/// A forward pass that fails inside this layer leaves the running statistics unchanged; one that
/// fails in a later layer of the model has moved them, as in PyTorch.
///
/// # Example
/// ```
/// use teeny_core::{DType, Tensor};
/// use teeny_nn::{BatchNorm, Module, Store, device::device};
/// # fn main() -> teeny_core::Result<()> {
/// let store = Store::new(device("cpu")?);
/// let norm = BatchNorm::new(&store.at("bn"), 8)?;
/// let x = Tensor::randn((4, 8, 5, 5), DType::F32, store.device())?; // (4, 8, 5, 5)
/// let y = norm.forward(&x)?; // (4, 8, 5, 5), each channel with mean 0 and variance 1
/// assert_eq!(store.get("bn.num_batches_tracked")?.value().item::<i32>()?, 1);
/// # let _ = y; Ok(()) }
/// ```
/// Source: Ioffe & Szegedy 2015, arXiv:1502.03167. Equivalent: `torch.nn.BatchNorm1d`,
/// `BatchNorm2d`, `BatchNorm3d`.
#[doc(alias = "BatchNorm1d", alias = "BatchNorm2d", alias = "BatchNorm3d")]
#[derive(Clone, Debug)]
pub struct BatchNorm {
    channels: usize,
    affine: Option<Affine>,
    running: Option<Running>,
    options: BatchNormOptions,
    store: Store,
    ranks: Ranks,
}

impl BatchNorm {
    /// A layer at `path` with PyTorch's defaults.
    ///
    /// # Errors
    /// If the names are taken.
    #[track_caller]
    pub fn new(path: &Path, channels: usize) -> Result<BatchNorm> {
        let _op = enter("BatchNorm::new");
        BatchNorm::with_options(path, channels, BatchNormOptions::default())
    }

    /// A layer at `path` with `options`.
    ///
    /// # Errors
    /// If an option is out of range, or the names are taken.
    #[track_caller]
    pub fn with_options(
        path: &Path,
        channels: usize,
        options: BatchNormOptions,
    ) -> Result<BatchNorm> {
        path.build("BatchNorm::with_options", || {
            check_options(options.eps, options.momentum)?;
            let affine = if options.affine { Some(Affine::new(path, channels)?) } else { None };
            let running = || Running::new(path, channels, options.momentum);
            let running = options.track_running_stats.then(running).transpose()?;
            let store = path.store().clone();
            Ok(BatchNorm { channels, affine, running, options, store, ranks: Ranks::default() })
        })
    }

    /// Computes the statistics over the batches of all ranks in training: for batches that are
    /// small on each rank.
    ///
    /// Outputs, gradients and running statistics then equal one layer on the joint batch. Batches
    /// may have different sizes, also 0. The gradient of x is the gradient of the sum of the ranks'
    /// losses; the gradients of `weight` and `bias` cover the rank's own batch, for the program to
    /// sum or average as all others. All ranks call the layer in the same order, in the forward and
    /// in the backward pass: two messages of a few numbers per channel in the former, one in the
    /// latter. Outside training nothing is sent. A second derivative is not supported.
    ///
    /// # Example
    /// ```
    /// use std::sync::Arc;
    /// use teeny_core::{Reference, Tensor};
    /// use teeny_distributed::{Communicator, Threads};
    /// use teeny_nn::{BatchNorm, Module, Store};
    /// let y = Threads::run(2, |comm| {
    ///     let store = Store::new(&Reference::new());
    ///     let x = Tensor::new([[comm.rank() as f32]], store.device())?; // (1, 1)
    ///     let norm = BatchNorm::new(&store.at("bn"), 1)?.synchronised(Arc::new(comm));
    ///     norm.forward(&x)?.to_vec::<f32>()
    /// }).unwrap();
    /// assert!((y[0][0] + 1.0).abs() < 1e-4 && (y[1][0] - 1.0).abs() < 1e-4);
    /// ```
    /// Equivalent: `torch.nn.SyncBatchNorm`.
    #[doc(alias = "SyncBatchNorm")]
    pub fn synchronised(mut self, ranks: Arc<dyn SumOverRanks>) -> BatchNorm {
        self.ranks = Ranks(Some(ranks));
        self
    }

    /// By the running statistics: `x scale + shift`, with scale and shift computed per channel.
    fn by_running(&self, x: &Tensor, running: &Running, shape: &[usize]) -> Result<Tensor> {
        let (eps, mean) = (self.options.eps, running.mean.value().reshape(shape)?); // (1, C, 1, 1)
        // (1, C, 1, 1)
        let scale = map([&running.var.value().reshape(shape)?], |[v]| (v + eps).rsqrt())?;
        let Some((weight, bias)) = self.affine.as_ref().map(|a| a.values(x, shape)).transpose()?
        else {
            return map([x, &mean, &scale], |[x, m, r]| (x - m) * r);
        };
        let scale = scale.mul(&weight)?; // (1, C, 1, 1)
        let shift = map([&mean, &scale, &bias], |[m, r, b]| b - m * r)?; // (1, C, 1, 1)
        map([x, &scale, &shift], |[x, r, s]| x * r + s)
    }
}

impl Module for BatchNorm {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _op = enter("batch_norm");
        let axis = channel_axis(x, self.channels, self.options.channels_last, 2)?;
        if !x.dtype().is_float() {
            return Err(Error::dtype(format!("needs floats, not {}", x.dtype()))
                .help("x.cast(DType::F32)? converts"));
        }
        let shape = per_channel(x, axis, self.channels);
        let training = self.store.is_training();
        if let Some(running) = self.running.as_ref().filter(|_| !training) {
            return self.by_running(x, running, &shape);
        }
        // of one rank outside training, as in PyTorch
        let ranks = if training { self.ranks.clone() } else { Ranks::default() };
        if training && !ranks.are_several() {
            require_several(x.numel() / self.channels.max(1), x)?;
        }
        let axes = (0..x.ndim()).filter(|&a| a != axis).collect();
        let affine = self.affine.as_ref().map(|a| a.values(x, &shape)).transpose()?;
        let (y, statistics) = standardise(x, affine, axes, self.options.eps, ranks)?;
        if training {
            require_several(statistics.count, x)?; // of all ranks
        }
        if let Some(running) = &self.running {
            let of_channels = |t: &Tensor| t.reshape(self.channels);
            let (mean, variance) =
                (of_channels(&statistics.mean)?, of_channels(&statistics.variance)?);
            running.update(&mean, &variance, statistics.count)?;
        }
        Ok(y)
    }

    fn describe(&self) -> String {
        format!("BatchNorm({})", self.channels)
    }
}
