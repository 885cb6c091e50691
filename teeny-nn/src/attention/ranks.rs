//! The ranks that share the heads of a layer: each has the rows of the queries, keys and values of
//! its heads, and the columns of the output projection that read them.

#[cfg(feature = "distributed")]
use super::{MultiheadAttention, MultiheadAttentionOptions};
#[cfg(feature = "distributed")]
use crate::distributed::{ColumnParallelLinear, RowParallelLinear, TensorParallel, row_parallel};
use crate::dropout::Dropout;
use crate::linear::Linear;
use crate::module::Module;
#[cfg(feature = "distributed")]
use crate::store::Path;
#[cfg(feature = "distributed")]
use teeny_core::{Error, context::enter};
use teeny_core::{Result, Tensor};

/// The ranks that share the heads; without the feature `distributed` there is one.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranks {
    #[cfg(feature = "distributed")]
    parallel: Option<TensorParallel>,
}

impl Ranks {
    /// The number of ranks.
    pub fn size(&self) -> usize {
        #[cfg(feature = "distributed")]
        if let Some(parallel) = &self.parallel {
            return parallel.size();
        }
        1
    }

    /// The input of the projections to heads, the same on all ranks.
    pub fn input(&self, x: &Tensor) -> Result<Tensor> {
        #[cfg(feature = "distributed")]
        if let Some(parallel) = &self.parallel {
            return parallel.copy(x);
        }
        Ok(x.clone())
    }

    /// The output projection of this rank's heads, summed over the ranks.
    pub fn output(&self, out: &Linear, heads: &Tensor) -> Result<Tensor> {
        #[cfg(feature = "distributed")]
        if let Some(parallel) = &self.parallel {
            return row_parallel(out, parallel, heads);
        }
        out.forward(heads)
    }

    /// Dropout of this rank's attention weights.
    pub fn dropout(&self, dropout: &Dropout, weights: &Tensor) -> Result<Tensor> {
        #[cfg(feature = "distributed")]
        if let Some(parallel) = &self.parallel {
            return parallel.dropout(dropout, weights);
        }
        dropout.forward(weights)
    }

    /// The part of a mask (B, n_head, T, S) for this rank's `n_head` heads; (B, 1, T, S) as it is.
    pub fn mask(&self, mask: Tensor, n_head: usize) -> Result<Tensor> {
        #[cfg(feature = "distributed")]
        if let Some(parallel) = &self.parallel {
            let (from, heads) = (parallel.rank() * n_head, parallel.size() * n_head);
            if mask.shape()[1] == heads {
                return mask.slice(1, from..from + n_head);
            }
        }
        let _ = n_head;
        Ok(mask)
    }
}

#[cfg(feature = "distributed")]
impl MultiheadAttention {
    /// A layer whose heads are split over ranks: `qkv` with the parts E, KV and KV
    /// ([`ColumnParallelLinear::with_parts`]), and `out` (E, E). Inputs, outputs, `n_head` and
    /// `options` describe the whole layer and are the same on all ranks; a cache has the heads of
    /// its rank. `path` is any path of the store.
    ///
    /// # Errors
    /// If the number of ranks does not divide the number of key heads, the numbers of heads do not
    /// fit the weights, or `dropout` is outside `0..=1`.
    ///
    /// Source: Shoeybi et al. 2019, arXiv:1909.08053, section 3.
    #[track_caller]
    pub fn from_parallel(
        path: &Path,
        qkv: ColumnParallelLinear,
        out: RowParallelLinear,
        n_head: usize,
        options: MultiheadAttentionOptions,
    ) -> Result<MultiheadAttention> {
        let _op = enter("MultiheadAttention::from_parallel");
        let n_kv_head = options.n_kv_head.unwrap_or(n_head);
        let ranks = qkv.parallel().size();
        if !n_kv_head.is_multiple_of(ranks) {
            let text = format!("{n_kv_head} key heads cannot be split over {ranks} ranks");
            return Err(Error::value(text).help(format!(
                "a multiple of {ranks} heads, or a number of tensor-parallel ranks that divides \
                 {n_kv_head}"
            )));
        }
        let ranks = Ranks { parallel: Some(qkv.parallel().clone()) };
        MultiheadAttention::assemble(path, (qkv.linear.into(), out.linear), n_head, options, ranks)
    }
}
