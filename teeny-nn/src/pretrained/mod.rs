//! Models of others: a folder of Hugging Face, or a GGUF file, as a model of this crate.
//!
//! ```text
//! config.json, or metadata ─ sizes, and the family by `model_type`        *_family, rotary, gguf
//! weights of any kind ────── names and layout of the family ─► parameters       Mapping
//! preprocessor_config.json ─ how images become the input of a model                     vision
//! modules.json ───────────── how states become the embedding of a text               pooling
//! generation_config.json ─── how tokens are chosen                                generation
//! ```
//!
//! A family is a row of a table: its keys, its defaults, its names. Parameters are read as they are
//! made. [`GgufModel`] is the way back: a folder as a GGUF file.

#[cfg(feature = "chat")]
mod chat;
mod completion;
mod decoder;
mod decoder_family;
mod encoder;
mod encoder_family;
mod family;
mod generation;
mod gguf;
mod gguf_model;
mod head;
mod lora;
mod opened;
mod options;
mod origin;
mod pooling;
mod rotary;
mod samples;
mod session;
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
