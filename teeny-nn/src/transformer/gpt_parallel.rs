//! A [`Gpt`] whose heads and perceptrons are split over ranks.

use super::gpt::{Gpt, GptConfig, Layers, STD, attention_options, linear_options, residual_std};
use crate::attention::MultiheadAttention;
use crate::distributed::{ColumnParallelLinear, RowParallelLinear, TensorParallel};
use crate::module::Module;
use crate::store::Path;
use teeny_core::Result;

impl Gpt {
    /// A model at `path` that the ranks of `parallel` share: each has `n_head / ranks` heads and
    /// the same share of the perceptron of every block. Embeddings, norms and the head are
    /// replicated.
    ///
    /// Names are those of [`Gpt::new`], and so are the initial weights of all ranks together. Every
    /// rank passes the same tokens, and gets the same logits and gradients of replicated
    /// parameters. The caches of a rank hold its own heads. All ranks seed the random generator
    /// alike ([`TensorParallel`]), also to pick tokens. Messages are no part of a recording:
    /// [`super::Decoder`] and [`crate::Captured`] need one rank.
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
            let mut gpt = Gpt::assemble(path, config, parallel)?;
            gpt.ranks = parallel.size();
            Ok(gpt)
        })
    }
}

impl Layers for TensorParallel {
    fn attention(&self, path: &Path, config: &GptConfig) -> Result<MultiheadAttention> {
        let n = config.n_embd;
        let (c_attn, c_proj) = (path.at("c_attn"), path.at("c_proj"));
        let (first, last) =
            (linear_options(config, STD), linear_options(config, residual_std(config)));
        let qkv = ColumnParallelLinear::with_parts(&c_attn, self, n, &[n; 3], first)?;
        let out = RowParallelLinear::with_options(&c_proj, self, n, n, last)?;
        let options = attention_options(config);
        MultiheadAttention::from_parallel(path, qkv, out, config.n_head, options)
    }

    fn perceptron(&self, path: &Path, config: &GptConfig) -> Result<[Box<dyn Module>; 2]> {
        let (n, hidden) = (config.n_embd, config.n_embd.saturating_mul(4));
        let (c_fc, c_proj) = (path.at("c_fc"), path.at("c_proj"));
        let (first, last) =
            (linear_options(config, STD), linear_options(config, residual_std(config)));
        let c_fc = ColumnParallelLinear::with_options(&c_fc, self, n, hidden, first)?;
        let c_proj = RowParallelLinear::with_options(&c_proj, self, hidden, n, last)?;
        Ok([Box::new(c_fc), Box::new(c_proj)])
    }
}
