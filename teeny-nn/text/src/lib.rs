//! Tokenizers, and sampling of tokens from logits.
//!
//! ```text
//! Tokenizer      text ↔ tokens     CharTokenizer, ByteTokenizer, WordTokenizer, Bpe;
//!                                  PretrainedTokenizer (feature `pretrained`)
//! DecodeStream   tokens → text     one token at a time, whole characters
//! Sampler        logits → tokens   greedy, or drawn: temperature, top-k, top-p, min-p
//! Names          text → tensors    a list of names as windows or sequences of characters
//! ```
//!
//! A token is a `u32`, its index in the vocabulary; in tensors it is an `I32`, like every index.
//! The crate depends on files ([`teeny_formats`]), but not on layers.
#![forbid(unsafe_code)]

mod bpe;
pub mod names;
#[cfg(feature = "pretrained")]
mod pretrained;
mod sample;
#[cfg_attr(not(feature = "pretrained"), allow(dead_code))]
mod section;
mod stream;
mod tokenizer;
mod words;

pub use bpe::Bpe;
pub use names::Names;
#[cfg(feature = "pretrained")]
pub use pretrained::{
    Batch, EncodeInput, EncodeOptions, Encoding, PretrainedTokenizer, Side, Truncation, end_tokens,
    special_tokens,
};
pub use sample::{Replacement, Sampler, multinomial, repetition_penalty};
pub use stream::DecodeStream;
pub use tokenizer::{ByteTokenizer, CharTokenizer, Tokenizer};
pub use words::{WordOptions, WordTokenizer};
