//! Pretrained models: opens a folder of Hugging Face or a GGUF file as a model that runs and
//! trains.
//!
//! ```text
//! config.json, or metadata ─ sizes, and the family by `model_type`   *_family, rotary, gguf_keys
//! weights of any kind ────── names and layout of the family ─► parameters       Mapping
//! preprocessor_config.json ─ how images become the input of a model                     vision
//! modules.json ───────────── how states become the embedding of a text               pooling
//! generation_config.json ─── how tokens are chosen                                generation
//! ```
//!
//! | here | contents |
//! |---|---|
//! | [`Decoder`] [`Session`] [`GenerationConfig`] | continues texts, several at once |
//! | `Chat` `ChatTemplate` | answers messages (feature `chat`) |
//! | [`Encoder`] [`Pooling`] [`Head`] | states, embeddings and classes of texts |
//! | [`ImageEncoder`] [`Clip`] [`ImageProcessor`] | the same of images |
//! | [`TextSamples`] [`LabeledTexts`] [`TextPairs`] | texts to train on |
//! | [`lora`] | small trained matrices beside frozen weights, quantised or not; peft's files |
//! | [`GgufModel`] | a folder as a GGUF file |
//!
//! A family is a row of a table: its keys, its defaults, its names. Each parameter is read when its
//! layer is built. Layers come from [`teeny_nn`], tokenizers from [`teeny_text`].
#![forbid(unsafe_code)]

#[cfg(feature = "chat")]
mod chat;
mod completion;
mod decoder;
mod decoder_family;
mod encoder;
mod encoder_family;
mod family;
mod generation;
mod gguf_keys;
mod gguf_model;
mod head;
mod layer_names;
pub mod lora;
mod model_files;
mod options;
mod pooling;
mod rotary;
mod samples;
mod session;
mod source_folder;
mod texts;
mod vision;

#[cfg(feature = "chat")]
pub use chat::{ChatOptions, ChatTemplate, Message};
#[cfg(feature = "chat")]
pub use completion::Chat;
pub use completion::Completion;
pub use decoder::Decoder;
pub use encoder::Encoder;
pub use generation::GenerationConfig;
pub use gguf_model::GgufModel;
pub use head::{Head, Task};
pub use options::OpenOptions;
pub use pooling::{Pooling, PoolingMode};
pub use samples::{
    LabeledBatch, LabeledText, LabeledTexts, PairBatch, SampleReport, TableReport, TextPair,
    TextPairs, TextSample, TextSamples,
};
pub use session::{Finish, Generated, Session};
pub use texts::EncoderBatch;
pub use vision::{Clip, ImageEncoder, ImageProcessor, ImageSize, Resample};

/// The README's programs must compile and run.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
