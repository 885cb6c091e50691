//! A [`Gpt`], and attention, whose heads and MLPs are split over ranks.

use super::parallel_linear::{ColumnParallelLinear, RowParallelLinear, row_parallel};
use super::tensor_parallel::TensorParallel;
use std::sync::Arc;
use teeny_core::context::enter;
use teeny_core::{Result, Tensor, random};
use teeny_nn::attention::HeadRanks;
use teeny_nn::transformer::{BlockLayers, BlockLinear};
use teeny_nn::{Dropout, Gpt, GptConfig, Linear, Module, Path};

impl TensorParallel {
    /// A model at `path` that these ranks share: each has `n_head / ranks` heads and the same share
    /// of the MLP of every block. Embeddings, norms and the head are replicated.
    ///
    /// Names, and the initial weights of all ranks together, are the same as for [`Gpt::new`].
    /// Every rank passes the same tokens, and gets the same logits and gradients of replicated
    /// parameters. The caches of a rank hold its own heads. All ranks seed the random generator
    /// alike, also to pick tokens. Messages cannot be recorded: [`teeny_nn::CachedLm`] does not
    /// record steps, and [`teeny_nn::Captured`] needs one rank.
    ///
    /// # Errors
    /// As [`Gpt::new`]; if the number of ranks does not divide `n_head`.
    ///
    /// Source: Shoeybi et al. 2019, arXiv:1909.08053, section 3.
    #[track_caller]
    pub fn gpt(&self, path: &Path, config: GptConfig) -> Result<Gpt> {
        let _op = enter("TensorParallel::gpt");
        Gpt::with_layers(path, config, self)
    }

    fn columns(&self, of: BlockLinear) -> Result<ColumnParallelLinear> {
        ColumnParallelLinear::with_parts(&of.path, self, of.inputs, &of.parts, of.options)
    }

    fn rows(&self, of: BlockLinear) -> Result<RowParallelLinear> {
        RowParallelLinear::with_options(&of.path, self, of.inputs, of.outputs(), of.options)
    }
}

/// The ranks of [`MultiheadAttention::from_ranks`](teeny_nn::MultiheadAttention::from_ranks), whose
/// projections are a [`ColumnParallelLinear`] with the parts E, KV and KV and a
/// [`RowParallelLinear`].
impl HeadRanks for TensorParallel {
    fn size(&self) -> usize {
        self.size()
    }

    fn input(&self, x: &Tensor) -> Result<Tensor> {
        self.copy(x)
    }

    fn output(&self, out: &Linear, heads: &Tensor) -> Result<Tensor> {
        row_parallel(out, self, heads)
    }

    /// A dropout that draws other numbers on each rank. The common generator moves by one draw.
    fn dropout(&self, dropout: &Dropout, x: &Tensor) -> Result<Tensor> {
        if self.rank() == 0 || !dropout.drops() {
            return dropout.forward(x);
        }
        // no tensor draws blocks from the end of the counter
        let words = random::philox(random::next_key(), u64::MAX - self.rank() as u64);
        let seed = u64::from(words[0]) << 32 | u64::from(words[1]);
        random::with_seed(seed, || dropout.forward(x))
    }

    fn mask(&self, mask: Tensor, n_head: usize) -> Result<Tensor> {
        let from = self.rank() * n_head;
        let is_whole = mask.shape()[1] == self.size() * n_head;
        if is_whole { mask.slice(1, from..from + n_head) } else { Ok(mask) }
    }
}

impl BlockLayers for TensorParallel {
    fn ranks(&self) -> Arc<dyn HeadRanks> {
        Arc::new(self.clone())
    }

    fn attention(&self, qkv: BlockLinear, out: BlockLinear) -> Result<[Linear; 2]> {
        Ok([self.columns(qkv)?.linear, self.rows(out)?.linear])
    }

    fn mlp(&self, up: BlockLinear, down: BlockLinear) -> Result<[Box<dyn Module>; 2]> {
        Ok([Box::new(self.columns(up)?), Box::new(self.rows(down)?)])
    }
}
