//! Layers, losses, optimizers, data and checkpoints on teeny tensors.
//!
//! ```text
//! device("auto")   which engine                    device
//! Store            parameters by name              store     init draws their first values
//! Module           forward: Linear, Conv2d, ..     module linear conv pool dropout embedding norm/ recurrent/
//! Gpt              whole transformers              transformer/  attention/: heads, rotary positions, a cache
//! cross_entropy    what to make small              loss/
//! Sgd, Adam, Muon  gradients → new parameters      optim/    one kernel per update; groups, clipping, averages
//! Schedule         learning rates by step          schedule
//! DataLoader       batches                         data/
//! Tokenizer        text ↔ tokens                   text/
//! Store::save      safetensors, .npz, .pt          state/    Checkpoint: a whole run in one file
//! ```
//!
//! Everything is written with `teeny_core::Tensor` methods and knows no backend but by name. A
//! parameter's value is immutable like any tensor; training puts a new value under its name.
#![forbid(unsafe_code)]

mod attention;
mod conv;
pub mod data;
pub mod device;
mod dropout;
mod embedding;
pub mod init;
mod linear;
pub mod loss;
mod module;
mod norm;
pub mod optim;
mod pool;
pub mod prelude;
mod recurrent;
mod schedule;
pub mod state;
mod store;
pub mod text;
mod track;
pub mod train;
mod transformer;

pub use attention::{Attend, KvCache, MultiheadAttention, Pairs, Rope};
pub use conv::{
    Conv, Conv1d, Conv2d, Conv3d, ConvTranspose, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d,
};
pub use device::device;
pub use dropout::Dropout;
pub use embedding::Embedding;
pub use init::Init;
pub use linear::Linear;
pub use module::{Activation, Flatten, Module, Sequential};
pub use norm::{BatchNorm, GroupNorm, InstanceNorm, LayerNorm, NormOptions, RmsNorm};
pub use pool::{AdaptiveAvgPool, AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d};
pub use pool::{AdaptiveMaxPool, AdaptiveMaxPool1d, AdaptiveMaxPool2d, AdaptiveMaxPool3d};
pub use pool::{
    AvgPool, AvgPool1d, AvgPool2d, AvgPool3d, MaxPool, MaxPool1d, MaxPool2d, MaxPool3d,
};
pub use recurrent::{Gru, GruCell, Lstm, LstmCell, RecurrentOptions, Rnn, RnnCell};
pub use schedule::{Plateau, Schedule};
pub use store::{Param, Path, Store};
pub use transformer::{
    Gpt, GptConfig, TransformerConfig, TransformerDecoderLayer, TransformerEncoderLayer,
};

/// The README's programs must compile and run.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
