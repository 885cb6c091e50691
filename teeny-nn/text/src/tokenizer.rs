//! The trait [`Tokenizer`], and the two tokenizers without training: characters and bytes.

use std::collections::HashMap;
use teeny_core::context::enter;
use teeny_core::{Error, Result};

/// Encodes text as numbers below [`Tokenizer::vocab_size`], and decodes them.
///
/// # Example
/// ```
/// use teeny_text::{CharTokenizer, Tokenizer};
/// # fn main() -> teeny_core::Result<()> {
/// let tokenizer = CharTokenizer::of("hello")?;           // e h l o
/// assert_eq!(tokenizer.encode("hole")?, [1, 3, 2, 0]);
/// assert_eq!(tokenizer.decode(&[1, 3, 2, 0])?, "hole");
/// # Ok(()) }
/// ```
pub trait Tokenizer: Send + Sync {
    /// The number of tokens in the vocabulary.
    fn vocab_size(&self) -> usize;

    /// The tokens of `text`.
    ///
    /// # Errors
    /// If part of `text` has no token; the error names the part and its position.
    fn encode(&self, text: &str) -> Result<Vec<u32>>;

    /// The text of `tokens`. Bytes that are not UTF-8 (part of a character, for example) become
    /// U+FFFD, so that any sequence of tokens can be decoded.
    ///
    /// # Errors
    /// If a token is not below [`Tokenizer::vocab_size`].
    fn decode(&self, tokens: &[u32]) -> Result<String>;
}

/// The error of a token that is not in the vocabulary.
pub(super) fn no_such_token(position: usize, token: u32, vocab_size: usize) -> Error {
    let last = vocab_size.saturating_sub(1);
    Error::index(format!(
        "tokens[{position}] is {token}, but there are {vocab_size} tokens (0..={last})"
    ))
    .named("decode")
    .help("a model's output layer must be as wide as its tokenizer's vocabulary")
}

/// One token per character, for a given set of characters; as in nanoGPT's character models and in
/// makemore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CharTokenizer {
    chars: Vec<char>,
    tokens: HashMap<char, u32>,
}

/// The distinct characters of `chars`, in the order of their code points.
pub(crate) fn in_order(chars: impl Iterator<Item = char>) -> Vec<char> {
    let mut chars: Vec<char> = chars.collect();
    chars.sort_unstable();
    chars.dedup();
    chars
}

impl CharTokenizer {
    /// The characters that occur in `text`, in the order of their code points.
    ///
    /// # Errors
    /// If `text` is empty.
    #[track_caller]
    pub fn of(text: &str) -> Result<CharTokenizer> {
        let _op = enter("CharTokenizer::of");
        CharTokenizer::new(in_order(text.chars()))
    }

    /// The characters `chars`; the first is token 0.
    ///
    /// # Errors
    /// If `chars` is empty, or a character occurs twice.
    #[track_caller]
    pub fn new(chars: impl IntoIterator<Item = char>) -> Result<CharTokenizer> {
        let _op = enter("CharTokenizer::new");
        let chars: Vec<char> = chars.into_iter().collect();
        let tokens: HashMap<char, u32> =
            chars.iter().zip(0..).map(|(&c, token)| (c, token)).collect();
        if chars.is_empty() {
            return Err(Error::value("0 characters, but a vocabulary needs at least one")
                .help("CharTokenizer::of(text) uses the characters of a text"));
        }
        if let Some((i, c)) = chars.iter().enumerate().find(|(i, c)| tokens[c] as usize != *i) {
            return Err(Error::value(format!(
                "character {i} of the vocabulary, {c:?}, is also character {}",
                tokens[c]
            ))
            .help("give each character once; CharTokenizer::of(text) does"));
        }
        Ok(CharTokenizer { chars, tokens })
    }

    /// The characters in the order of their tokens.
    pub fn chars(&self) -> &[char] {
        &self.chars
    }

    /// The token of `c`, if it has one.
    pub fn token(&self, c: char) -> Option<u32> {
        self.tokens.get(&c).copied()
    }
}

impl Tokenizer for CharTokenizer {
    fn vocab_size(&self) -> usize {
        self.chars.len()
    }

    fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let token = |(i, c): (usize, char)| {
            self.token(c).ok_or_else(|| {
                let line = 1 + text.chars().take(i).filter(|&c| c == '\n').count();
                let n = self.chars.len();
                let text = format!(
                    "character {i} (line {line}) is {c:?}, \
                     which is not one of the {n} in the vocabulary"
                );
                Error::value(text)
                    .named("encode")
                    .note(format!("vocabulary: {:?}", self.chars.iter().collect::<String>()))
                    .help(
                        "make the vocabulary of a text with every character (CharTokenizer::of), \
                         or use ByteTokenizer, which encodes any text",
                    )
            })
        };
        text.chars().enumerate().map(token).collect()
    }

    fn decode(&self, tokens: &[u32]) -> Result<String> {
        let char = |(i, &token): (usize, &u32)| {
            self.chars
                .get(token as usize)
                .copied()
                .ok_or_else(|| no_such_token(i, token, self.chars.len()))
        };
        tokens.iter().enumerate().map(char).collect()
    }
}

/// One token per byte of UTF-8: 256 tokens, every text has its encoding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByteTokenizer;

impl Tokenizer for ByteTokenizer {
    fn vocab_size(&self) -> usize {
        256
    }

    fn encode(&self, text: &str) -> Result<Vec<u32>> {
        Ok(text.bytes().map(u32::from).collect())
    }

    fn decode(&self, tokens: &[u32]) -> Result<String> {
        let byte = |(i, &token): (usize, &u32)| {
            u8::try_from(token).map_err(|_| no_such_token(i, token, 256))
        };
        let bytes: Vec<u8> = tokens.iter().enumerate().map(byte).collect::<Result<_>>()?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}
