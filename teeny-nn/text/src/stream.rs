//! Decodes tokens one at a time into whole characters.

use super::Tokenizer;
use teeny_core::Result;
use teeny_core::context::enter;

/// The number of tokens that are decoded together before older ones are dropped.
const WINDOW: usize = 32;

/// The least number of tokens that are kept then, for tokenizers whose text depends on earlier
/// tokens (a space that is omitted at the start, for example).
const MIN_KEPT_TOKENS: usize = 8;

/// At the end of a text, the first bytes of a character whose other bytes may follow.
const UNFINISHED: char = char::REPLACEMENT_CHARACTER;

/// Decodes tokens one at a time: each [`DecodeStream::push`] returns the new text that is complete.
/// Text that ends in U+FFFD is held back, because later bytes may complete its last character.
/// Tokenizers with byte fallback decode an unfinished character to one U+FFFD per byte.
///
/// The pieces together are [`Tokenizer::decode`] of all tokens, except after malformed bytes of
/// byte fallback: they turn the bytes before them into U+FFFD, but a returned piece stays.
///
/// # Example
/// ```
/// use teeny_text::{ByteTokenizer, DecodeStream, Tokenizer};
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
    /// The text that was returned for the first tokens of `tokens`.
    returned: String,
    /// The number of these tokens.
    complete: usize,
}

impl<'a> DecodeStream<'a> {
    /// A stream without tokens.
    pub fn new(tokenizer: &'a dyn Tokenizer) -> DecodeStream<'a> {
        DecodeStream { tokenizer, tokens: Vec::new(), returned: String::new(), complete: 0 }
    }

    /// Adds `token`; returns the text that it completes, which may be empty.
    ///
    /// # Errors
    /// If the token does not exist; the stream has not changed then.
    #[track_caller]
    pub fn push(&mut self, token: u32) -> Result<String> {
        let _op = enter("stream.push");
        self.tokens.push(token);
        let piece = self.new_text().and_then(|(text, piece)| {
            if text.ends_with(UNFINISHED) {
                return Ok(String::new());
            }
            let kept = self.kept(&text)?;
            (self.returned, self.complete) = (text, self.tokens.len());
            if let Some((from, text)) = kept {
                self.tokens.drain(..from);
                (self.returned, self.complete) = (text, self.tokens.len());
            }
            Ok(piece)
        });
        piece.inspect_err(|_| self.tokens.truncate(self.tokens.len() - 1))
    }

    /// The text of all tokens, and the part of it that was not returned.
    fn new_text(&self) -> Result<(String, String)> {
        let text = self.tokenizer.decode(&self.tokens)?;
        let piece = match text.strip_prefix(&self.returned) {
            Some(piece) => piece.to_string(),
            None => self.tokenizer.decode(&self.tokens[self.complete..])?,
        };
        Ok((text, piece))
    }

    /// After every `WINDOW` tokens: the index of the first token that is kept, and the text of
    /// those kept. It is the end of `text`, so they begin with a whole character.
    fn kept(&self, text: &str) -> Result<Option<(usize, String)>> {
        if !self.tokens.len().is_multiple_of(WINDOW) {
            return Ok(None);
        }
        for from in (1..=self.tokens.len() - MIN_KEPT_TOKENS).rev() {
            let end = self.tokenizer.decode(&self.tokens[from..])?;
            if text.ends_with(&end) {
                return Ok(Some((from, end)));
            }
        }
        Ok(None)
    }

    /// Returns the text that was held back because its last character is not complete, and resets
    /// the stream.
    ///
    /// # Errors
    /// None for tokens that `push` accepted. The stream has not changed then.
    #[track_caller]
    pub fn finish(&mut self) -> Result<String> {
        let _op = enter("stream.finish");
        let (_, piece) = self.new_text()?;
        *self = DecodeStream::new(self.tokenizer);
        Ok(piece)
    }
}
