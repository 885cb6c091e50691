//! Decodes tokens one at a time into whole characters.

use super::Tokenizer;
use std::mem;
use teeny_core::Result;

/// The number of tokens that are decoded together before older ones are dropped.
const WINDOW: usize = 32;

/// The number of tokens that are kept then, for tokenizers whose text depends on earlier tokens (a
/// space that is omitted at the start, for example).
const KEPT: usize = 8;

/// U+FFFD at the end of a text may be the first bytes of a character whose other bytes follow.
const UNFINISHED: char = char::REPLACEMENT_CHARACTER;

/// Decodes tokens one at a time: each [`DecodeStream::push`] returns the new text that later tokens
/// cannot change. The pieces together are [`Tokenizer::decode`] of all tokens.
///
/// # Example
/// ```
/// use teeny_nn::text::{ByteTokenizer, DecodeStream, Tokenizer};
/// # fn main() -> teeny_core::Result<()> {
/// let mut stream = DecodeStream::new(&ByteTokenizer);
/// let pieces = "né".bytes().map(|byte| stream.push(byte.into()));
/// let pieces: Vec<String> = pieces.collect::<Result<_, _>>()?;
/// assert_eq!(pieces, ["n", "", "é"]);                    // é is two bytes
/// assert_eq!(stream.finish()?, "");
/// # Ok(()) }
/// ```
pub struct DecodeStream<'a> {
    tokenizer: &'a dyn Tokenizer,
    tokens: Vec<u32>,
    /// The number of bytes of the text of `tokens` that were returned.
    returned: usize,
}

impl<'a> DecodeStream<'a> {
    /// A stream without tokens.
    pub fn new(tokenizer: &'a dyn Tokenizer) -> DecodeStream<'a> {
        DecodeStream { tokenizer, tokens: Vec::new(), returned: 0 }
    }

    /// Adds `token`; returns the text that it completes, which may be empty.
    ///
    /// # Errors
    /// If there is no such token; the stream has not changed then.
    pub fn push(&mut self, token: u32) -> Result<String> {
        self.tokens.push(token);
        self.complete().inspect_err(|_| self.tokens.truncate(self.tokens.len() - 1))
    }

    /// The text that the last token completes. Changes nothing if it fails.
    fn complete(&mut self) -> Result<String> {
        let text = self.tokenizer.decode(&self.tokens)?;
        // more bytes can change the last replacement character, but none before it
        let certain = text.strip_suffix(UNFINISHED).unwrap_or(&text);
        let piece = certain.get(self.returned..).unwrap_or_default().to_string();
        let mut returned = self.returned.max(certain.len());
        if self.tokens.len() >= WINDOW && certain.len() == text.len() {
            let kept = &self.tokens[WINDOW - KEPT..];
            returned = self.tokenizer.decode(kept)?.len();
            self.tokens.drain(..WINDOW - KEPT);
        }
        self.returned = returned;
        Ok(piece)
    }

    /// Returns the text that was held back because its last character is not complete, and resets
    /// the stream.
    ///
    /// # Errors
    /// None for tokens that `push` accepted. The stream has not changed then.
    pub fn finish(&mut self) -> Result<String> {
        let text = self.tokenizer.decode(&self.tokens)?;
        self.tokens.clear();
        Ok(text.get(mem::take(&mut self.returned)..).unwrap_or_default().to_string())
    }
}
