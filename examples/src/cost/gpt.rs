//! A GPT as the cost model sees it.

use super::workload::{Layer, Workload};
use teeny_nn::GptConfig;

impl Workload {
    /// The character GPT of the example `gpt_char`: 804,096 parameters, 12 sequences of 64 tokens
    /// per rank, 768 in strong scaling.
    pub fn gpt_char() -> Workload {
        let config = GptConfig::new(65, 64, 4, 4, 128).with_bias(false);
        Workload { name: "gpt_char", joint_items: 768.0, ..Workload::gpt(&config, 12.0) }
    }

    /// GPT-2 with 124 million parameters: 12 sequences of 1,024 tokens per rank as nanoGPT's
    /// `train_gpt2.py`, 512 in strong scaling, as the half million tokens of GPT-3's smallest
    /// model (Brown et al. 2020, arXiv:2005.14165, table 2.1).
    pub fn gpt2() -> Workload {
        Workload { name: "gpt2", joint_items: 512.0, ..Workload::gpt(&GptConfig::gpt2(), 12.0) }
    }

    /// A [`Gpt`](teeny_nn::Gpt) in f32 with `items` sequences of its context per rank and at once,
    /// and 64 times as many in strong scaling.
    ///
    /// The layers are the head with the last norm, the blocks, and the embeddings, whose gradient
    /// contains a tied head's. Per block and token 12 E² matrix elements are multiplied and 4 T E
    /// flops are attention's, as in [`GptConfig::flops`]. 16 E elements are kept, without
    /// attention's weights: Korthikanti et al. 2022, arXiv:2205.05198, section 4.1, without dropout
    /// and in f32.
    pub fn gpt(config: &GptConfig, items: f64) -> Workload {
        let [v, t, e] = [config.vocab, config.context, config.n_embd].map(|n| n as f64);
        let bias = if config.bias { 1.0 } else { 0.0 };
        let norm = e + bias * e;
        let head = Layer {
            parameters: norm + if config.tied { 0.0 } else { v * e },
            flops: 2.0 * t * v * e,
            activations: 4.0 * t * (2.0 * e + v),
        };
        let block = Layer {
            parameters: 12.0 * e * e + bias * 9.0 * e + 2.0 * norm,
            flops: t * (24.0 * e * e + 4.0 * t * e),
            activations: 4.0 * t * 16.0 * e,
        };
        let embeddings = Layer { parameters: (v + t) * e, flops: 0.0, activations: 4.0 * t };
        Workload::of("gpt", head, block, config.n_layer, embeddings, items)
    }
}
