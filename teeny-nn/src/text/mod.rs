//! Tokenizers, and sampling of tokens from logits.
//!
//! ```text
//! Tokenizer      text ↔ tokens     CharTokenizer, ByteTokenizer, WordTokenizer, Bpe;
//!                                  PretrainedTokenizer (feature `pretrained`)
//! DecodeStream   tokens → text     one token at a time, whole characters
//! Sampler        logits → tokens   greedy, or drawn: temperature, top-k, top-p, min-p
//! ```
//!
//! A token is a `u32`, its index in the vocabulary; in tensors it is an `I32`, like every index.

mod bpe;
#[cfg(feature = "pretrained")]
mod pretrained;
mod sample;
#[cfg_attr(not(feature = "pretrained"), allow(dead_code))]
mod section;
mod stream;
mod tokenizer;
mod words;

pub use bpe::Bpe;
#[cfg(feature = "pretrained")]
pub(crate) use pretrained::end_tokens;
#[cfg(feature = "chat")]
pub(crate) use pretrained::special_tokens;
#[cfg(feature = "pretrained")]
pub use pretrained::{
    Batch, EncodeInput, EncodeOptions, Encoding, PretrainedTokenizer, Side, Truncation,
};
pub use sample::{Replacement, Sampler, multinomial, repetition_penalty};
pub use stream::DecodeStream;
pub(crate) use tokenizer::in_order;
pub use tokenizer::{ByteTokenizer, CharTokenizer, Tokenizer};
pub use words::{WordOptions, WordTokenizer};
