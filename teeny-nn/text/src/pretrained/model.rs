//! Models: they encode one word as tokens.

use super::added::Finder;
use crate::bpe::merge::{Symbol, merge};
use std::collections::HashMap;
use std::sync::Arc;
use teeny_core::file::quoted;
use teeny_core::{Error, Result};

/// The tokens of a model, by text and by number.
#[derive(Clone, Debug, Default)]
pub(super) struct Vocab {
    ids: HashMap<Arc<str>, u32>,
    texts: HashMap<u32, Arc<str>>,
    /// The length of the longest text, in bytes.
    longest: usize,
    /// The largest number.
    last: Option<u32>,
    /// The numbers of texts of one character below U+0200, which words are made of.
    chars: Vec<Option<u32>>,
}

impl Vocab {
    pub(super) fn insert(&mut self, text: &str, id: u32) {
        let mut chars = text.chars();
        if let (Some(c @ ..'\u{200}'), None) = (chars.next(), chars.next()) {
            self.chars.resize(0x200, None);
            self.chars[c as usize] = Some(id);
        }
        let text: Arc<str> = text.into();
        self.longest = self.longest.max(text.len());
        self.last = self.last.max(Some(id));
        self.ids.insert(text.clone(), id);
        self.texts.insert(id, text);
    }

    pub(super) fn id(&self, text: &str) -> Option<u32> {
        self.ids.get(text).copied()
    }

    /// The number of the text `c`.
    fn char(&self, c: char) -> Option<u32> {
        match self.chars.get(c as usize) {
            Some(id) => *id,
            None => self.id(c.encode_utf8(&mut [0; 4])),
        }
    }

    pub(super) fn text(&self, id: u32) -> Option<&str> {
        self.texts.get(&id).map(|text| &**text)
    }

    /// The number of texts.
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    /// The largest number.
    pub(super) fn last(&self) -> Option<u32> {
        self.last
    }

    /// The texts and their numbers, in any order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, u32)> {
        self.ids.iter().map(|(text, id)| (&**text, *id))
    }

    /// The numbers of the tokens `<0x00>` to `<0xFF>`.
    pub(super) fn byte_tokens(&self) -> ByteTokens {
        Box::new(std::array::from_fn(|byte| self.id(&format!("<0x{byte:02X}>"))))
    }
}

/// The token of each byte.
type ByteTokens = Box<[Option<u32>; 256]>;

/// A token of a word, and its bytes there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub id: u32,
    pub start: usize,
    pub end: usize,
}

/// How a word becomes tokens.
#[derive(Clone, Debug)]
pub(super) enum Model {
    Bpe(Box<Bpe>),
    WordPiece(WordPiece),
    SentencePiece(SentencePiece),
    Unigram(Unigram),
    /// A word is a token.
    WordLevel(Unknown),
}

impl Model {
    /// Appends the tokens of `word`, which is not empty.
    ///
    /// # Errors
    /// If the word has no token and the model has no unknown token.
    pub(super) fn encode(&self, vocab: &Vocab, word: &str, out: &mut Vec<Token>) -> Result<()> {
        match self {
            Model::Bpe(bpe) => bpe.encode(vocab, word, out),
            Model::WordPiece(model) => model.encode(vocab, word, out),
            Model::SentencePiece(model) => model.encode(vocab, word, out),
            Model::Unigram(model) => model.encode(vocab, word, out),
            Model::WordLevel(unknown) => {
                let id = vocab.id(word).map_or_else(|| unknown.id(word), Ok)?;
                out.push(Token { id, start: 0, end: word.len() });
                Ok(())
            }
        }
    }
}

/// A token for unknown text: its name, and its number if it is in the vocabulary.
#[derive(Clone, Debug)]
pub(super) struct Unknown {
    pub name: String,
    pub id: Option<u32>,
}

impl Unknown {
    /// The token `name` of `vocab`.
    pub(super) fn of(vocab: &Vocab, name: String) -> Unknown {
        Unknown { id: vocab.id(&name), name }
    }

    fn id(&self, word: &str) -> Result<u32> {
        self.id.ok_or_else(|| {
            let [name, word] = [&self.name, word].map(quoted);
            Error::value(format!("{word} has no token, and {name}, its replacement, has none"))
                .named("encode")
        })
    }
}

/// Byte-pair encoding.
#[derive(Clone, Debug, Default)]
pub(super) struct Bpe {
    /// The rank of each pair, and the token that it becomes.
    pub ranks: HashMap<(u32, u32), (u32, u32)>,
    pub unknown: Option<Unknown>,
    /// Unknown characters in a row are one token.
    pub fuse_unknown: bool,
    /// The tokens of bytes, for characters without tokens.
    pub bytes: Option<ByteTokens>,
    /// A word that is a token is not split.
    pub ignore_merges: bool,
    /// Before each character of a word except the first.
    pub prefix: String,
    /// After the last character of a word.
    pub suffix: String,
}

impl Bpe {
    fn encode(&self, vocab: &Vocab, word: &str, out: &mut Vec<Token>) -> Result<()> {
        if let Some(id) = vocab.id(word).filter(|_| self.ignore_merges) {
            out.push(Token { id, start: 0, end: word.len() });
            return Ok(());
        }
        let mut symbols: Vec<Symbol> = Vec::with_capacity(word.len());
        let mut add = |token, len| symbols.push(Symbol { token, len, start: 0 });
        let mut unknown: Option<(u32, usize)> = None;
        let (mut buffer, mut spelled) = ([0; 4], String::new());
        for (i, c) in word.char_indices() {
            let last = i + c.len_utf8() == word.len();
            let prefix = if i > 0 { self.prefix.as_str() } else { "" };
            let suffix = if last { self.suffix.as_str() } else { "" };
            let plain = prefix.is_empty() && suffix.is_empty();
            let text: &str = if plain {
                c.encode_utf8(&mut buffer)
            } else {
                spelled.clear();
                spelled.push_str(prefix);
                spelled.push(c);
                spelled.push_str(suffix);
                &spelled
            };
            if let Some(id) = if plain { vocab.char(c) } else { vocab.id(text) } {
                unknown.take().into_iter().for_each(|(id, len)| add(id, len));
                add(id, c.len_utf8());
                continue;
            }
            if let Some(ids) = bytes_of(self.bytes.as_ref(), text) {
                ids.into_iter().for_each(|id| add(id, 1));
            } else if let Some(token) = &self.unknown {
                let id = token.id(word)?;
                unknown = match unknown {
                    Some((id, len)) if self.fuse_unknown => Some((id, len + c.len_utf8())),
                    other => {
                        other.into_iter().for_each(|(id, len)| add(id, len));
                        Some((id, c.len_utf8()))
                    }
                };
            }
        }
        unknown.into_iter().for_each(|(id, len)| add(id, len));
        merge(&mut symbols, |a, b| self.ranks.get(&(a.token, b.token)).copied());
        let mut start = 0;
        out.extend(symbols.iter().map(|symbol| {
            start += symbol.len;
            Token { id: symbol.token, start: start - symbol.len, end: start }
        }));
        Ok(())
    }
}

/// The tokens of the bytes of `text`, if all have one.
fn bytes_of(bytes: Option<&ByteTokens>, text: &str) -> Option<Vec<u32>> {
    text.bytes().map(|byte| bytes?[usize::from(byte)]).collect()
}

/// WordPiece: the longest token with which the word begins, then the longest with which its rest
/// begins, and so on.
///
/// Source: Schuster & Nakajima 2012, "Japanese and Korean voice search".
#[derive(Clone, Debug)]
pub(super) struct WordPiece {
    pub unknown: Unknown,
    /// The tokens inside words, without their prefix `##`.
    pub inside: HashMap<Box<str>, u32>,
    /// The length of the longest text of `inside`, in bytes.
    pub longest: usize,
    /// Longer words are unknown.
    pub max_chars: usize,
}

impl WordPiece {
    /// The model with the tokens of `vocab`, of which those inside words begin with `prefix`.
    pub(super) fn new(vocab: &Vocab, prefix: &str, unknown: &str, max_chars: usize) -> WordPiece {
        let inside: HashMap<Box<str>, u32> = vocab
            .iter()
            .filter_map(|(text, id)| Some((text.strip_prefix(prefix)?.into(), id)))
            .collect();
        let longest = inside.keys().map(|text| text.len()).max().unwrap_or(0);
        let unknown = Unknown::of(vocab, unknown.to_string());
        WordPiece { unknown, inside, longest, max_chars }
    }

    fn encode(&self, vocab: &Vocab, word: &str, out: &mut Vec<Token>) -> Result<()> {
        let (from, mut start) = (out.len(), 0);
        let fits = word.len() <= self.max_chars || word.chars().count() <= self.max_chars;
        while fits && start < word.len() {
            let longest = if start == 0 { vocab.longest } else { self.longest };
            let mut end = word.len().min(start.saturating_add(longest));
            let id = loop {
                if end <= start {
                    break None;
                }
                if word.is_char_boundary(end) {
                    let part = &word[start..end];
                    let id = match start {
                        0 => vocab.id(part),
                        _ => self.inside.get(part).copied(),
                    };
                    if id.is_some() {
                        break id;
                    }
                }
                end -= 1;
            };
            let Some(id) = id else { break };
            out.push(Token { id, start, end });
            start = end;
        }
        if start < word.len() {
            out.truncate(from);
            out.push(Token { id: self.unknown.id(word)?, start: 0, end: word.len() });
        }
        Ok(())
    }
}

/// SentencePiece's BPE: merges the neighbouring pair that makes the token of the best score.
///
/// Source: Kudo & Richardson 2018, arXiv:1808.06226.
#[derive(Clone, Debug)]
pub(super) struct SentencePiece {
    /// The position of each token in the order of scores, best first; equal scores are equal.
    pub ranks: HashMap<u32, u32>,
    pub unknown: Option<u32>,
    /// The tokens of bytes, for characters without tokens.
    pub bytes: ByteTokens,
}

impl SentencePiece {
    fn encode(&self, vocab: &Vocab, word: &str, out: &mut Vec<Token>) -> Result<()> {
        /// A character without a token, which may be part of one.
        const NONE: u32 = u32::MAX;
        let symbol = |(start, c): (usize, char)| {
            let end = start + c.len_utf8();
            let token = vocab.char(c).unwrap_or(NONE);
            Symbol { token, len: end - start, start }
        };
        let mut symbols: Vec<Symbol> = word.char_indices().map(symbol).collect();
        merge(&mut symbols, |a, b| {
            let len = a.len + b.len;
            let id =
                vocab.id(word.get(a.start..a.start + len).filter(|_| len <= vocab.longest)?)?;
            Some((*self.ranks.get(&id)?, id))
        });
        for Symbol { token, len, start } in symbols {
            if token != NONE {
                out.push(Token { id: token, start, end: start + len });
                continue;
            }
            for i in start..start + len {
                let byte = self.bytes[usize::from(word.as_bytes()[i])].or(self.unknown);
                let id = byte.ok_or_else(|| {
                    let text = quoted(&word[start..start + len]);
                    Error::value(format!("{text} has no token, and its bytes have none"))
                        .named("encode")
                })?;
                out.push(Token { id, start: i, end: i + 1 });
            }
        }
        Ok(())
    }
}

/// The unigram model of SentencePiece: of all ways to write a word as tokens the one with the
/// largest sum of scores.
///
/// Source: Kudo 2018, arXiv:1804.10959.
#[derive(Clone, Debug)]
pub(super) struct Unigram {
    tokens: Finder,
    /// Logarithms of the probabilities of tokens.
    pub scores: Vec<f64>,
    /// The score of a character without a token.
    least: f64,
    pub unknown: Option<u32>,
    /// The tokens of bytes, for characters without tokens.
    pub bytes: Option<ByteTokens>,
}

impl Unigram {
    /// The model with a score for each token of `vocab`.
    pub(super) fn new(
        vocab: &Vocab,
        scores: Vec<f64>,
        unknown: Option<u32>,
        falls_back: bool,
    ) -> Unigram {
        let least = scores.iter().copied().fold(f64::INFINITY, f64::min) - 10.0;
        let tokens = Finder::new(vocab.ids.iter().map(|(text, id)| (text.clone(), *id)));
        let bytes = falls_back.then(|| vocab.byte_tokens());
        Unigram { tokens, scores, least, unknown, bytes }
    }

    fn encode(&self, vocab: &Vocab, word: &str, out: &mut Vec<Token>) -> Result<()> {
        // the best way to write the first bytes of the word: its sum, and its last token
        let mut best: Vec<(f64, Option<Token>)> = vec![(0.0, None); word.len() + 1];
        for (start, c) in word.char_indices() {
            let (before, mut alone) = (best[start].0, false);
            let mut add = |id: u32, len: usize, score: f64| {
                let (sum, way) = (before + score, &mut best[start + len]);
                if way.1.is_none() || sum > way.0 {
                    *way = (sum, Some(Token { id, start, end: start + len }));
                }
            };
            self.tokens.prefixes(&word.as_bytes()[start..], |len, id| {
                alone |= len == c.len_utf8();
                add(id, len, self.scores[id as usize]);
            });
            if !alone {
                add(self.unknown.unwrap_or(u32::MAX), c.len_utf8(), self.least);
            }
        }
        let is_unknown = |id| id == self.unknown.unwrap_or(u32::MAX);
        let (mut tokens, mut end): (Vec<Token>, usize) = (Vec::new(), word.len());
        while let Some(token) = best[end].1 {
            end = token.start;
            match tokens.last_mut() {
                // unknown characters in a row are one token
                Some(last) if last.id == token.id && is_unknown(token.id) => {
                    last.start = end;
                }
                _ => tokens.push(token),
            }
        }
        for token in tokens.into_iter().rev() {
            let text = &word[token.start..token.end];
            let known = Some(token.id).filter(|id| !is_unknown(*id)).or(vocab.id(text));
            let ids = match known.map(|id| vec![id]).or(bytes_of(self.bytes.as_ref(), text)) {
                Some(ids) => ids,
                None => vec![Unknown { name: "unk_id".to_string(), id: self.unknown }.id(text)?],
            };
            out.extend(ids.into_iter().map(|id| Token { id, ..token }));
        }
        Ok(())
    }
}
