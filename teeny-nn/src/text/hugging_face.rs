//! Tokenizers of every kind that Hugging Face's crate `tokenizers` reads, as a [`Tokenizer`].

use super::Tokenizer;
use crate::names::loading;
use std::path::Path;
use teeny_core::context::enter;
use teeny_core::{Error, Result};

/// The tokenizer of a `tokenizer.json`: WordPiece, Unigram, BPE with any regular expression.
///
/// Encoding adds no special tokens at the ends (such as `[CLS]`) but recognises them in the text;
/// decoding keeps them.
///
/// # Example
/// ```no_run
/// use teeny_nn::text::{HuggingFace, Tokenizer};
/// # fn main() -> teeny_core::Result<()> {
/// let tokenizer = HuggingFace::load("bert-base-uncased/tokenizer.json")?;
/// println!("{:?}", tokenizer.encode("a word")?);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct HuggingFace(tokenizers::Tokenizer);

impl HuggingFace {
    /// Reads a `tokenizer.json`.
    ///
    /// # Errors
    /// If the file cannot be read or the crate does not understand it.
    #[track_caller]
    pub fn load(path: impl AsRef<Path>) -> Result<HuggingFace> {
        let _op = enter("HuggingFace::load");
        let path = path.as_ref();
        let tokenizer = tokenizers::Tokenizer::from_file(path);
        tokenizer.map(HuggingFace).map_err(|e| Error::format(e.to_string()).named(loading(path)))
    }

    /// The token with the text `name`, such as `[MASK]`, if there is one.
    pub fn token(&self, name: &str) -> Option<u32> {
        self.0.token_to_id(name)
    }
}

impl Tokenizer for HuggingFace {
    fn vocab_size(&self) -> usize {
        // the ids may have gaps, so the largest one decides
        self.0.get_vocab(true).values().max().map_or(0, |&last| last as usize + 1)
    }

    fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let encoding = self
            .0
            .encode_fast(text, false)
            .map_err(|e| Error::value(e.to_string()).named("encode"))?;
        Ok(encoding.get_ids().to_vec())
    }

    fn decode(&self, tokens: &[u32]) -> Result<String> {
        // the crate skips unknown tokens without an error
        if let Some((i, token)) =
            tokens.iter().enumerate().find(|(_, token)| self.0.id_to_token(**token).is_none())
        {
            return Err(super::tokenizer::no_such_token(i, *token, self.vocab_size()));
        }
        self.0.decode(tokens, false).map_err(|e| Error::value(e.to_string()).named("decode"))
    }
}
