//! A [`Gpt`] whose heads and MLPs are split over ranks.

use super::block::{Layers, Place, attention_options, linears};
use super::gpt::{Gpt, GptConfig};
use crate::attention::MultiheadAttention;
use crate::distributed::{ColumnParallelLinear, RowParallelLinear, TensorParallel};
use crate::module::Module;
use crate::store::Path;
use teeny_core::Result;

impl Gpt {
    /// A model at `path` that the ranks of `parallel` share: each has `n_head / ranks` heads and
    /// the same share of the MLP of every block. Embeddings, norms and the head are replicated.
    ///
    /// Names, and the initial weights of all ranks together, are the same as for [`Gpt::new`].
    /// Every rank passes the same tokens, and gets the same logits and gradients of replicated
    /// parameters. The caches of a rank hold its own heads. All ranks seed the random generator
    /// alike ([`TensorParallel`]), also to pick tokens. Messages cannot be recorded:
    /// [`super::CachedLm`] does not record steps, and [`crate::Captured`] needs one rank.
    ///
    /// # Errors
    /// As [`Gpt::new`]; if the number of ranks does not divide `n_head`.
    ///
    /// Source: Shoeybi et al. 2019, arXiv:1909.08053, section 3.
    #[track_caller]
    pub fn tensor_parallel(
        path: &Path,
        config: GptConfig,
        parallel: &TensorParallel,
    ) -> Result<Gpt> {
        path.build("Gpt::tensor_parallel", || {
            Gpt::assemble(path, config, parallel, parallel.size())
        })
    }
}

impl Layers for TensorParallel {
    fn attention(&self, (path, names, config): Place<'_>) -> Result<MultiheadAttention> {
        let (e, [q, kv]) = (config.n_embd, config.widths());
        let (qkv, out) = (path.at(names.qkv), path.at(names.out));
        let [[first, last], _] = linears(config);
        let qkv = ColumnParallelLinear::with_parts(&qkv, self, e, &[q, kv, kv], first)?;
        let out = RowParallelLinear::with_options(&out, self, q, e, last)?;
        let options = attention_options(config);
        MultiheadAttention::from_parallel(path, qkv, out, config.n_head, options)
    }

    fn perceptron(&self, (path, names, config): Place<'_>) -> Result<[Box<dyn Module>; 2]> {
        let (e, hidden) = (config.n_embd, config.hidden);
        let parts = if config.gated { &[hidden; 2][..] } else { &[hidden][..] };
        let (up, down) = (path.at(names.up), path.at(names.down));
        let [_, [first, last]] = linears(config);
        let up = ColumnParallelLinear::with_parts(&up, self, e, parts, first)?;
        let down = RowParallelLinear::with_options(&down, self, hidden, e, last)?;
        Ok([Box::new(up), Box::new(down)])
    }
}
