//! The character table of a SentencePiece model, which maps characters to replacements.
//!
//! ```text
//! size of the trie in bytes  u32
//! trie                       a double array of u32: a byte is xored to the offset of a unit
//! replacements               texts, each with a zero byte after it
//! ```
//!
//! Source: `src/normalizer.cc` of SentencePiece, whose trie is a double array of Darts-clone. As in
//! Hugging Face's crate, a grapheme of at most five bytes is looked up as a whole, and a match of
//! its first character replaces all of it.

use super::unicode::Changed;
use teeny_core::{Error, Result};
use unicode_segmentation::UnicodeSegmentation;

/// The table.
#[derive(Clone, Debug)]
pub(super) struct Precompiled {
    units: Box<[u32]>,
    texts: Box<str>,
}

/// The bytes of a grapheme that is looked up as a whole, at most.
const LONGEST: usize = 5;

impl Precompiled {
    /// Reads the text of a `precompiled_charsmap`, in base 64.
    ///
    /// # Errors
    /// If it is damaged.
    pub(super) fn of_base64(text: &str) -> Result<Precompiled> {
        let (mut bytes, mut bits, mut held) = (Vec::with_capacity(text.len() / 4 * 3), 0u32, 0);
        for c in text.trim_end_matches('=').bytes() {
            let digit = match c {
                b'A'..=b'Z' => c - b'A',
                b'a'..=b'z' => c - b'a' + 26,
                b'0'..=b'9' => c - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                _ => return Err(Error::format(format!("{:?} is not a base64 digit", c as char))),
            };
            (bits, held) = (bits << 6 | u32::from(digit), held + 6);
            if held >= 8 {
                held -= 8;
                bytes.push((bits >> held) as u8);
            }
        }
        Precompiled::new(&bytes)
    }

    /// The table in `bytes`.
    ///
    /// # Errors
    /// If it is damaged.
    pub(super) fn new(bytes: &[u8]) -> Result<Precompiled> {
        let parts = || {
            let (size, rest) = bytes.split_first_chunk()?;
            let (trie, texts) = rest.split_at_checked(u32::from_le_bytes(*size) as usize)?;
            let (units, []) = trie.as_chunks() else { return None };
            let units = units.iter().map(|unit| u32::from_le_bytes(*unit)).collect();
            Some(Precompiled { units, texts: std::str::from_utf8(texts).ok()?.into() })
        };
        parts().ok_or_else(|| Error::format("a table of characters is damaged"))
    }

    /// Looks up the shortest prefix of `text` that is in the table, and returns its replacement.
    fn replacement(&self, text: &str) -> Option<&str> {
        let offset = |unit: u32| ((unit >> 10) << ((unit & 0x200) >> 6)) as usize;
        let mut at = offset(*self.units.first()?);
        for byte in text.bytes().take_while(|byte| *byte != 0) {
            at ^= usize::from(byte);
            let unit = *self.units.get(at)?;
            if unit & 0x8000_00ff != u32::from(byte) {
                return None;
            }
            at ^= offset(unit);
            if unit >> 8 & 1 == 1 {
                let start = *self.units.get(at)? & 0x7fff_ffff;
                return self.texts.get(start as usize..)?.split('\0').next();
            }
        }
        None
    }

    /// Replaces the characters of `text`; returns None if the table has none of them.
    pub(super) fn replaced(&self, text: &str) -> Option<Vec<Changed>> {
        let (mut changed, mut any) = (Vec::with_capacity(text.len()), false);
        for mut rest in text.graphemes(true) {
            let whole = rest.len() <= LONGEST && self.replacement(rest).is_some();
            while let Some(first) = rest.chars().next() {
                let len = if whole { rest.len() } else { first.len_utf8() };
                let (part, after) = rest.split_at(len);
                rest = after;
                let Some(new) = self.replacement(part) else {
                    changed.push((first, 0));
                    continue;
                };
                any = true;
                // the largest length of the text: the caller refuses more
                if changed.len() > text.len().saturating_mul(64).saturating_add(1 << 20) {
                    return Some(changed);
                }
                changed.extend(new.chars().map(|c| (c, 0)));
                let added = new.chars().count() as isize - part.chars().count() as isize;
                let last = changed.len() - added.max(0) as usize;
                changed[last..].iter_mut().for_each(|(_, change)| *change = 1);
                if let Some((_, change)) = changed.last_mut() {
                    *change += added.min(0);
                }
            }
        }
        any.then_some(changed)
    }
}
