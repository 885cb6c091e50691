//! The ranks that share the heads of a layer.

use crate::dropout::Dropout;
use crate::linear::Linear;
use crate::module::Module;
use std::fmt;
use teeny_core::{Result, Tensor};

/// The ranks that share the heads of a [`super::MultiheadAttention`]: each has the rows of the
/// queries, keys and values of its heads, and the columns of the output projection that read them.
/// The defaults are for one rank; `TensorParallel` of the crate `teeny-distributed` is several.
pub trait HeadRanks: fmt::Debug + Send + Sync {
    /// The number of ranks.
    fn size(&self) -> usize {
        1
    }

    /// The input of the projections to heads, the same on all ranks: its gradient is the sum over
    /// the ranks.
    ///
    /// # Errors
    /// If a rank fails.
    fn input(&self, x: &Tensor) -> Result<Tensor> {
        Ok(x.clone())
    }

    /// The output projection of this rank's heads, summed over the ranks.
    ///
    /// # Errors
    /// If a rank fails.
    fn output(&self, out: &Linear, heads: &Tensor) -> Result<Tensor> {
        out.forward(heads)
    }

    /// Dropout of this rank's attention weights.
    ///
    /// # Errors
    /// If the device fails.
    fn dropout(&self, dropout: &Dropout, weights: &Tensor) -> Result<Tensor> {
        dropout.forward(weights)
    }

    /// The part of a mask (B, n, T, S) for this rank's `n_head` heads; (B, 1, T, S) as it is.
    ///
    /// # Errors
    /// If the device fails.
    fn mask(&self, mask: Tensor, _n_head: usize) -> Result<Tensor> {
        Ok(mask)
    }
}

/// A layer that no ranks share.
#[derive(Debug)]
pub(crate) struct OneRank;

impl HeadRanks for OneRank {}
