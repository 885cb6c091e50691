//! Text from tokens that arrive one at a time, whole characters only.

use super::Tokenizer;
use std::mem;
use teeny_core::Result;

/// How many tokens are decoded together before the older ones are let go.
const WINDOW: usize = 32;

/// How many of them stay, for tokenizers whose text depends on the tokens before (a space that is
/// left out at the start, say).
const KEPT: usize = 8;

/// What U+FFFD looks like at the end of a text: perhaps half a character whose other half is still
/// to come.
const UNFINISHED: char = char::REPLACEMENT_CHARACTER;

/// Decodes tokens as they come: each [`DecodeStream::push`] gives the text that is certain by now,
/// and all the pieces together are what [`Tokenizer::decode`] gives for all the tokens.
///
/// # Example
/// ```
/// use teeny_nn::text::{ByteTokenizer, DecodeStream, Tokenizer};
/// # fn main() -> teeny_core::Result<()> {
/// let mut stream = DecodeStream::new(&ByteTokenizer);
/// let pieces: Vec<String> = "né".bytes().map(|byte| stream.push(byte.into())).collect::<Result<_, _>>()?;
/// assert_eq!(pieces, ["n", "", "é"]);                    // é is two bytes
/// assert_eq!(stream.finish()?, "");
/// # Ok(()) }
/// ```
pub struct DecodeStream<'a> {
    tokenizer: &'a dyn Tokenizer,
    tokens: Vec<u32>,
    /// How many bytes of the text of `tokens` were given out.
    given: usize,
}

impl<'a> DecodeStream<'a> {
    /// A stream without tokens.
    pub fn new(tokenizer: &'a dyn Tokenizer) -> DecodeStream<'a> {
        DecodeStream { tokenizer, tokens: Vec::new(), given: 0 }
    }

    /// Takes `token` and gives the text that it completes, perhaps none.
    ///
    /// # Errors
    /// If there is no such token; the stream stays as it was.
    pub fn push(&mut self, token: u32) -> Result<String> {
        self.tokens.push(token);
        self.complete().inspect_err(|_| self.tokens.truncate(self.tokens.len() - 1))
    }

    /// The text that the last token completes. After an error nothing has changed.
    fn complete(&mut self) -> Result<String> {
        let text = self.tokenizer.decode(&self.tokens)?;
        // more bytes can change the last replacement character, but none before it
        let certain = text.strip_suffix(UNFINISHED).unwrap_or(&text);
        let piece = certain.get(self.given..).unwrap_or_default().to_string();
        let mut given = self.given.max(certain.len());
        if self.tokens.len() >= WINDOW && certain.len() == text.len() {
            let kept = &self.tokens[WINDOW - KEPT..];
            given = self.tokenizer.decode(kept)?.len();
            self.tokens.drain(..WINDOW - KEPT);
        }
        self.given = given;
        Ok(piece)
    }

    /// The text that was held back because its last character is not complete; the stream starts
    /// over.
    ///
    /// # Errors
    /// None for tokens that were accepted. The stream stays as it was.
    pub fn finish(&mut self) -> Result<String> {
        let text = self.tokenizer.decode(&self.tokens)?;
        self.tokens.clear();
        Ok(text.get(mem::take(&mut self.given)..).unwrap_or_default().to_string())
    }
}
