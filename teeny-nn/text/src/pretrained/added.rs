//! Added tokens: texts that are one token wherever they occur, such as `[MASK]` and `<|im_end|>`.

use super::aligned::{Segment, Text};
use super::normalize::Normalizer;
use super::unicode;
use crate::section::Section;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use teeny_core::{Error, Result};

/// The longest text of an added token, in bytes. It bounds the time that a search takes.
const MAX_LENGTH: usize = 4096;

/// The bytes of all added tokens at most, as the normaliser spells them.
const MAX_SPELLED: usize = 64 << 20;

/// An added token, as in the file.
#[derive(Clone, Debug)]
pub(super) struct AddedToken {
    pub id: u32,
    pub content: String,
    /// Not within a word.
    pub single_word: bool,
    /// With the white space before it.
    pub lstrip: bool,
    /// With the white space after it.
    pub rstrip: bool,
    /// Searched in the normalised text.
    pub normalized: bool,
    /// Left out when decoding without special tokens.
    pub special: bool,
}

impl AddedToken {
    /// A special token, searched in the original text.
    pub(super) fn special(id: u32, content: &str) -> AddedToken {
        AddedToken {
            id,
            content: content.to_string(),
            single_word: false,
            lstrip: false,
            rstrip: false,
            normalized: false,
            special: true,
        }
    }

    /// Reads the object `section`.
    ///
    /// # Errors
    /// If a member is missing or of the wrong type, or the text is too long.
    pub(super) fn parse(section: &Section) -> Result<AddedToken> {
        let id = section.number("id")?.and_then(|id| u32::try_from(id).ok());
        let id = id.ok_or_else(|| section.wrong("id", "the number of a token"))?;
        AddedToken::numbered(section, id)
    }

    /// Reads the object `section`, whose number is `id`.
    ///
    /// # Errors
    /// As [`AddedToken::parse`].
    pub(super) fn numbered(section: &Section, id: u32) -> Result<AddedToken> {
        let special = section.flag("special", false)?;
        let content = section.string("content")?;
        if content.len() > MAX_LENGTH {
            let expected = format!("at most {MAX_LENGTH} bytes");
            return Err(section.wrong("content", &expected));
        }
        Ok(AddedToken {
            id,
            content,
            single_word: section.flag("single_word", false)?,
            lstrip: section.flag("lstrip", false)?,
            rstrip: section.flag("rstrip", false)?,
            normalized: section.flag("normalized", !special)?,
            special,
        })
    }
}

/// An added token in a text.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub id: u32,
    /// Its range in the original text, if that is tracked.
    pub origin: (usize, usize),
    /// The white-space characters at its start and end, which `lstrip` and `rstrip` took.
    pub spaces: (usize, usize),
}

/// A text, divided at added tokens.
pub(super) enum Part<'a> {
    Text(Segment<'a>),
    Token(Found),
}

/// The added tokens of a tokenizer.
#[derive(Clone, Debug, Default)]
pub(super) struct Added {
    tokens: Vec<AddedToken>,
    /// The spelling of each token when it is decoded.
    spellings: Vec<String>,
    original: Finder,
    normalized: Finder,
    specials: HashSet<String>,
    /// The index of each token by its text.
    by_content: HashMap<String, usize>,
    /// The index of each token by its number.
    by_id: HashMap<u32, usize>,
    /// The largest number.
    last: Option<u32>,
}

impl Added {
    /// Added tokens; `normalizer` is the same as for texts.
    ///
    /// # Errors
    /// If normalising a token fails.
    pub(super) fn new(tokens: Vec<AddedToken>, normalizer: Option<&Normalizer>) -> Result<Added> {
        let mut total = 0;
        let spell = |token: &AddedToken| -> Result<String> {
            let mut text = Text::new(&token.content, 0, false);
            if let Some(normalizer) = normalizer.filter(|_| token.normalized) {
                normalizer.apply(&mut text)?;
            }
            total += text.as_str().len();
            if total > MAX_SPELLED {
                let error = format!("added tokens of over {MAX_SPELLED} bytes when normalised");
                return Err(Error::format(error));
            }
            Ok(text.as_str().to_string())
        };
        let spellings: Vec<String> = tokens.iter().map(spell).collect::<Result<_>>()?;
        let finder = |normalized: bool| {
            let all = tokens.iter().zip(&spellings).enumerate();
            Finder::new(
                all.filter(|(_, (token, _))| token.normalized == normalized)
                    .map(|(i, (_, spelling))| (spelling.as_str().into(), i as u32)),
            )
        };
        let (original, normalized) = (finder(false), finder(true));
        let special = tokens.iter().filter(|token| token.special);
        let specials = special.map(|token| token.content.clone()).collect();
        let indices = || tokens.iter().enumerate();
        let by_content = indices().map(|(i, token)| (token.content.clone(), i)).collect();
        let by_id = indices().map(|(i, token)| (token.id, i)).collect();
        let last = tokens.iter().map(|token| token.id).max();
        Ok(Added { tokens, spellings, original, normalized, specials, by_content, by_id, last })
    }

    /// All tokens.
    pub(super) fn tokens(&self) -> &[AddedToken] {
        &self.tokens
    }

    /// The number of the token with the text `content`.
    pub(super) fn id(&self, content: &str) -> Option<u32> {
        Some(self.tokens[*self.by_content.get(content)?].id)
    }

    /// The token `id`.
    pub(super) fn get(&self, id: u32) -> Option<&AddedToken> {
        Some(&self.tokens[*self.by_id.get(&id)?])
    }

    /// The text of token `id`.
    pub(super) fn content(&self, id: u32) -> Option<&str> {
        self.get(id).map(|token| token.content.as_str())
    }

    /// The spelling of token `id` when it is decoded.
    pub(super) fn spelling(&self, id: u32) -> Option<&str> {
        Some(&self.spellings[*self.by_id.get(&id)?])
    }

    /// The largest number.
    pub(super) fn last(&self) -> Option<u32> {
        self.last
    }

    /// True if a special token is spelled `spelling`.
    pub(super) fn is_special(&self, spelling: &str) -> bool {
        self.specials.contains(spelling)
    }

    /// Divides `text` at added tokens, and normalises what is between them.
    ///
    /// # Errors
    /// If the normalised text is much longer than the original.
    pub(super) fn divide<'a>(
        &self,
        text: &'a str,
        normalizer: Option<&Normalizer>,
        tracked: bool,
    ) -> Result<Vec<Part<'a>>> {
        let mut parts = Vec::new();
        for (range, token) in self.find(&self.original, text) {
            let mut part = Text::new(&text[range.clone()], range.start, tracked);
            if let Some(token) = token {
                let origin = part.origin(0..range.len()).unwrap_or_default();
                parts.push(Part::Token(self.found(token, part.as_str(), origin)));
                continue;
            }
            if let Some(normalizer) = normalizer {
                normalizer.apply(&mut part)?;
            }
            let found = self.find(&self.normalized, part.as_str());
            if let [(_, None)] = found.as_slice() {
                parts.push(Part::Text(Segment::new(part)));
                continue;
            }
            for (range, token) in found {
                parts.push(match token {
                    None => Part::Text(Segment::new(part.slice(range))),
                    Some(token) => {
                        let origin = part.origin(range.clone()).unwrap_or_default();
                        Part::Token(self.found(token, &part.as_str()[range], origin))
                    }
                });
            }
        }
        Ok(parts)
    }

    fn found(&self, token: usize, text: &str, origin: (usize, usize)) -> Found {
        Found { id: self.tokens[token].id, origin, spaces: spaces(text) }
    }

    /// The ranges of `text`, in order, each with the index of its token.
    fn find(&self, finder: &Finder, text: &str) -> Vec<(Range<usize>, Option<usize>)> {
        let (mut parts, mut last, mut at) = (Vec::new(), 0, 0);
        while let Some((found, index)) = finder.find(text, at) {
            at = found.end;
            let index = index as usize;
            let token = &self.tokens[index];
            let (before, after) = (&text[..found.start], &text[found.end..]);
            if token.single_word
                && (before.chars().next_back().is_some_and(unicode::is_word)
                    || after.chars().next().is_some_and(unicode::is_word))
            {
                continue;
            }
            let (mut start, mut end) = (found.start, found.end);
            if token.lstrip {
                start = last + text[last..found.start.max(last)].trim_end().len();
            }
            if token.rstrip {
                end += after.len() - after.trim_start().len();
            }
            // the token before may have taken the white space that this one is made of
            if start > end {
                continue;
            }
            if last < start {
                parts.push((last..start, None));
            }
            parts.push((start..end, Some(index)));
            last = end;
        }
        if last < text.len() {
            parts.push((last..text.len(), None));
        }
        parts
    }
}

/// The number of white-space characters at the start and at the end of `text`, in which GPT-2's
/// spelling of a space counts too.
pub(super) fn spaces(text: &str) -> (usize, usize) {
    let space = |c: &char| *c == '\u{120}' || c.is_whitespace();
    (text.chars().take_while(space).count(), text.chars().rev().take_while(space).count())
}

/// Finds texts.
#[derive(Clone, Debug, Default)]
pub(super) struct Finder {
    /// The texts with their numbers, sorted.
    texts: Vec<(Arc<str>, u32)>,
    /// The texts that begin with each byte.
    by_byte: Vec<Range<usize>>,
}

impl Finder {
    /// If texts are equal, the smallest number is found.
    pub(super) fn new(texts: impl Iterator<Item = (Arc<str>, u32)>) -> Finder {
        let mut texts: Vec<_> = texts.filter(|(text, _)| !text.is_empty()).collect();
        texts.sort_unstable();
        texts.dedup_by(|a, b| a.0 == b.0);
        let first =
            |byte: usize| texts.partition_point(|(t, _)| usize::from(t.as_bytes()[0]) < byte);
        let by_byte = (0..256).map(|byte| first(byte)..first(byte + 1)).collect();
        Finder { texts, by_byte }
    }

    /// The leftmost text in `text` from byte `at` on, of those that start at one byte the longest,
    /// and its number.
    fn find(&self, text: &str, at: usize) -> Option<(Range<usize>, u32)> {
        let bytes = text.as_bytes();
        let mut starts = at..if self.texts.is_empty() { at } else { bytes.len() };
        starts.find_map(|start| {
            let mut longest = None;
            self.prefixes(&bytes[start..], |len, number| {
                longest = Some((start..start + len, number))
            });
            longest
        })
    }

    /// Calls `found` with the length and the number of each text with which `bytes` begins, the
    /// shortest first.
    pub(super) fn prefixes(&self, bytes: &[u8], mut found: impl FnMut(usize, u32)) {
        let first = bytes.first().and_then(|first| self.by_byte.get(usize::from(*first)));
        let (mut candidates, mut len) = (first.cloned().unwrap_or_default(), 1);
        while !candidates.is_empty() {
            // all candidates begin with bytes[..len]; the shortest is the first
            let (text, number) = &self.texts[candidates.start];
            if text.len() == len {
                found(len, *number);
                candidates.start += 1;
            }
            let Some(next) = bytes.get(len) else { return };
            let texts = &self.texts[candidates.clone()];
            let less = texts.partition_point(|(text, _)| text.as_bytes()[len] < *next);
            let same = texts[less..].partition_point(|(text, _)| text.as_bytes()[len] == *next);
            candidates = candidates.start + less..candidates.start + less + same;
            len += 1;
        }
    }
}
