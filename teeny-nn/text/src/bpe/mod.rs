//! Byte-pair encoding: the tokenizer of GPT-2.
//!
//! ```text
//! one word of the text   " lower"
//! bytes                  ␣ l o w e r
//! merges by rank         l o → lo, e r → er, lo w → low, ␣ low → ␣low
//! tokens                 ␣low er
//! ```
//!
//! `words` splits text, `train` finds merges, `files` stores them, `merge` applies them. Sources:
//! P. Gage 1994; Sennrich, Haddow & Birch 2016, arXiv:1508.07909; bytes instead of characters:
//! Radford et al. 2019 (GPT-2).

mod files;
#[cfg_attr(not(feature = "pretrained"), allow(dead_code))]
pub(crate) mod merge;
mod train;
mod words;

#[cfg(feature = "pretrained")]
pub(super) use files::{TOKEN, merge_lines, merges, pair_of_line, tokens};
#[cfg(feature = "pretrained")]
pub(super) use words::words;

use super::tokenizer::{Tokenizer, no_such_token};
use merge::{Symbol, merge};
use std::collections::HashMap;
use std::ops::Range;
use teeny_core::context::enter;
use teeny_core::{Error, Result};

/// Two neighbouring tokens.
type Pair = (u32, u32);

/// Byte-pair encoding over bytes: every text can be encoded, and decoding restores it exactly.
///
/// # Example
/// ```
/// use teeny_text::{Bpe, Tokenizer};
/// # fn main() -> teeny_core::Result<()> {
/// let text = "low lower lowest, new newer newest";
/// let bpe = Bpe::train(text, 256 + 8)?;
/// let tokens = bpe.encode("newest low")?;
/// assert!(tokens.len() < "newest low".len());
/// assert_eq!(bpe.decode(&tokens)?, "newest low");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Bpe {
    /// The bytes of each token.
    tokens: Vec<Vec<u8>>,
    /// The token of each single byte.
    bytes: [u32; 256],
    /// The merged pairs by rank, lowest first.
    merges: Vec<Pair>,
    /// The rank (index in `merges`) of each pair, and the token that it becomes.
    ranks: HashMap<Pair, (u32, u32)>,
    /// Special tokens, which encoding never returns.
    specials: Vec<(u32, String)>,
}

impl Bpe {
    /// Adds `names` as special tokens, such as `<|endoftext|>`. [`Tokenizer::encode`] never returns
    /// them, so a text cannot contain them by accident; [`Bpe::special`] returns their numbers.
    ///
    /// # Errors
    /// If a name is empty or taken.
    #[track_caller]
    pub fn with_specials(mut self, names: &[&str]) -> Result<Bpe> {
        let _op = enter("Bpe::with_specials");
        for name in names {
            if name.is_empty() || self.special(name).is_some() {
                return Err(Error::value(format!("the special token {name:?} is empty or taken"))
                    .help("a name such as \"<|endoftext|>\", once"));
            }
            self.specials.push((self.tokens.len() as u32, name.to_string()));
            self.tokens.push(name.as_bytes().to_vec());
        }
        Ok(self)
    }

    /// The token of the special `name`, if there is one.
    pub fn special(&self, name: &str) -> Option<u32> {
        self.specials.iter().find(|(_, n)| n == name).map(|(token, _)| *token)
    }

    /// The bytes of `token`.
    pub fn bytes_of(&self, token: u32) -> Option<&[u8]> {
        self.tokens.get(token as usize).map(Vec::as_slice)
    }

    /// The pairs of tokens that are merged, by rank, lowest first.
    pub fn merges(&self) -> &[(u32, u32)] {
        &self.merges
    }

    /// Appends the tokens of one word to `out`.
    fn encode_word(&self, word: &[u8], out: &mut Vec<u32>) {
        let symbol =
            |(start, &byte)| Symbol { token: self.bytes[usize::from(byte)], len: 1, start };
        let mut symbols: Vec<Symbol> = word.iter().enumerate().map(symbol).collect();
        merge(&mut symbols, |a, b| self.ranks.get(&(a.token, b.token)).copied());
        out.extend(symbols.iter().map(|symbol| symbol.token));
    }
}

impl Tokenizer for Bpe {
    fn vocab_size(&self) -> usize {
        self.tokens.len()
    }

    fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let mut out = Vec::with_capacity(text.len() / 3);
        // texts repeat their words: the range in `out` of each word's first occurrence
        let mut seen: HashMap<&str, Range<usize>> = HashMap::new();
        for word in words::words(text) {
            if let Some(range) = seen.get(word) {
                out.extend_from_within(range.clone());
                continue;
            }
            let from = out.len();
            self.encode_word(word.as_bytes(), &mut out);
            seen.insert(word, from..out.len());
        }
        Ok(out)
    }

    fn decode(&self, tokens: &[u32]) -> Result<String> {
        let mut bytes = Vec::with_capacity(tokens.len() * 4);
        for (i, &token) in tokens.iter().enumerate() {
            bytes.extend_from_slice(
                self.bytes_of(token).ok_or_else(|| no_such_token(i, token, self.tokens.len()))?,
            );
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// GPT-2's printable character for each byte: the byte itself if it is printable, otherwise one
/// from U+0100 on.
pub(crate) fn alphabet() -> [char; 256] {
    let mut others = (0x100..).filter_map(char::from_u32);
    std::array::from_fn(|byte| match byte {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => byte as u8 as char,
        _ => others.next().expect("fewer than 256 are needed"),
    })
}
