//! Text to tokens and back.
//!
//! [`Tokenizer`] is the trait; a token is a `u32`, its place in the vocabulary. [`DecodeStream`] prints tokens as a model makes them.

mod stream;
mod tokenizer;

pub use stream::DecodeStream;
pub use tokenizer::{ByteTokenizer, CharTokenizer, Tokenizer};
