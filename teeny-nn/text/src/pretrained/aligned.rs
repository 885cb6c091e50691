//! Text on its way from the original to tokens: each byte knows the range of the original that it
//! came from.
//!
//! ```text
//! original     É t é        (bytes 0..2, 2..3, 3..5)
//! normalised   e t e        from 0..2, 2..3, 3..5
//! pieces       [0..3]       ranges of the normalised text, which pre-tokenizers split
//! ```

use std::borrow::Cow;
use std::ops::Range;
use teeny_core::{Error, Result};

/// A range of bytes of the original text.
pub(super) type ByteRange = (usize, usize);

/// Where the bytes of a text come from.
#[derive(Clone, Debug)]
enum Map {
    /// The text is the original from this byte on.
    Unchanged(usize),
    /// The ranges are not requested.
    Untracked,
    /// The range of each byte.
    Ranges(Vec<ByteRange>),
}

/// A part of the original text, or what was made of it.
#[derive(Clone, Debug)]
pub(super) struct Text<'a> {
    text: Cow<'a, str>,
    map: Map,
    /// The largest length that the text may reach.
    limit: usize,
}

/// Memory that a normaliser may request per byte of the text, and at least.
const GROWTH: (usize, usize) = (64, 1 << 20);

impl<'a> Text<'a> {
    /// The part `text` of the original, from its byte `start` on.
    pub(super) fn new(text: &'a str, start: usize, tracked: bool) -> Text<'a> {
        let map = if tracked { Map::Unchanged(start) } else { Map::Untracked };
        let limit = text.len().saturating_mul(GROWTH.0).saturating_add(GROWTH.1);
        Text { text: Cow::Borrowed(text), map, limit }
    }

    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    /// The original range of the bytes `range`; None if they are not tracked or not all there.
    pub(super) fn origin(&self, range: Range<usize>) -> Option<ByteRange> {
        if range.is_empty() || range.end > self.text.len() {
            return None;
        }
        let first = self.map.origin(&self.text, range.start)?;
        Some((first.0, self.map.origin(&self.text, range.end - 1)?.1))
    }

    /// The bytes `range` as a text.
    pub(super) fn slice(&self, range: Range<usize>) -> Text<'a> {
        let text = match &self.text {
            Cow::Borrowed(text) => Cow::Borrowed(&text[range.clone()]),
            Cow::Owned(text) => Cow::Owned(text[range.clone()].to_string()),
        };
        let map = match &self.map {
            Map::Unchanged(base) => Map::Unchanged(base + range.start),
            Map::Untracked => Map::Untracked,
            Map::Ranges(ranges) => Map::Ranges(ranges[range].to_vec()),
        };
        Text { text, map, limit: self.limit }
    }

    /// Replaces the text by what `write` writes for it.
    ///
    /// # Errors
    /// If the new text is much longer than the original.
    pub(super) fn rewrite(&mut self, write: impl FnOnce(&str, &mut Output)) -> Result<()> {
        let mut out = Output {
            text: String::with_capacity(self.text.len()),
            ranges: Vec::new(),
            from: &self.map,
            source: &self.text,
            limit: self.limit,
            overflow: false,
        };
        write(&self.text, &mut out);
        let Output { text, ranges, overflow, .. } = out;
        if overflow {
            return Err(Error::value(format!(
                "the normalizer makes {} bytes of text longer than {}",
                self.text.len(),
                self.limit
            )));
        }
        let tracked = !matches!(self.map, Map::Untracked);
        self.map = if tracked { Map::Ranges(ranges) } else { Map::Untracked };
        self.text = Cow::Owned(text);
        Ok(())
    }
}

impl Map {
    fn origin(&self, text: &str, at: usize) -> Option<ByteRange> {
        match self {
            Map::Untracked => None,
            Map::Ranges(ranges) => ranges.get(at).copied(),
            Map::Unchanged(base) => {
                let start = (0..=at).rev().find(|&i| text.is_char_boundary(i))?;
                let end = (at + 1..=text.len()).find(|&i| text.is_char_boundary(i))?;
                Some((base + start, base + end))
            }
        }
    }
}

/// The new text, while it is written.
pub(super) struct Output<'o> {
    text: String,
    ranges: Vec<ByteRange>,
    from: &'o Map,
    source: &'o str,
    limit: usize,
    overflow: bool,
}

impl Output<'_> {
    /// Appends `c`, which comes from byte `at` of the old text.
    pub(super) fn push(&mut self, c: char, at: usize) {
        if self.text.len() >= self.limit {
            self.overflow = true;
            return;
        }
        self.text.push(c);
        if !matches!(self.from, Map::Untracked) {
            let origin = self.from.origin(self.source, at).unwrap_or_default();
            self.ranges.resize(self.text.len(), origin);
        }
    }

    /// Appends the bytes `range` of the old text as they are.
    pub(super) fn copy(&mut self, range: Range<usize>) {
        if self.text.len() + range.len() > self.limit {
            self.overflow = true;
            return;
        }
        self.text.push_str(&self.source[range.clone()]);
        match self.from {
            Map::Untracked => {}
            Map::Ranges(ranges) => self.ranges.extend_from_slice(&ranges[range]),
            Map::Unchanged(base) => {
                for (i, c) in self.source[range.clone()].char_indices() {
                    let start = base + range.start + i;
                    let end = start + c.len_utf8();
                    self.ranges.resize(self.ranges.len() + c.len_utf8(), (start, end));
                }
            }
        }
    }

    /// The length of the new text.
    pub(super) fn len(&self) -> usize {
        self.text.len()
    }
}

/// A part of a [`Segment`]: a word, in the end.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    /// The bytes of the segment's text.
    pub range: Range<usize>,
    /// Where the piece starts in the original; 0 if that is not tracked.
    pub start: usize,
}

/// Text between added tokens, and the pieces into which it is split.
#[derive(Clone, Debug)]
pub(super) struct Segment<'a> {
    pub text: Text<'a>,
    pub pieces: Vec<Piece>,
}

impl<'a> Segment<'a> {
    /// All of `text` as one piece.
    pub(super) fn new(text: Text<'a>) -> Segment<'a> {
        let range = 0..text.as_str().len();
        let start = text.origin(range.clone()).map_or(0, |origin| origin.0);
        let pieces = if range.is_empty() { vec![] } else { vec![Piece { range, start }] };
        Segment { text, pieces }
    }

    /// Splits each piece into the ranges that `split` adds to the list, relative to the piece.
    pub(super) fn split(&mut self, mut split: impl FnMut(&str, &mut Vec<Range<usize>>)) {
        let (mut pieces, mut ranges) = (Vec::with_capacity(self.pieces.len()), Vec::new());
        for Piece { range: whole, start } in self.pieces.drain(..) {
            ranges.clear();
            split(&self.text.as_str()[whole.clone()], &mut ranges);
            for part in ranges.iter().filter(|part| !part.is_empty()) {
                let range = whole.start + part.start..whole.start + part.end;
                let origin = self.text.origin(range.clone());
                pieces.push(Piece { range, start: origin.map_or(start, |origin| origin.0) });
            }
        }
        self.pieces = pieces;
    }

    /// Replaces the text of each piece by what `write` writes for it: called with the text, the
    /// position of the piece in the old text, and the piece's start in the original.
    ///
    /// # Errors
    /// As [`Text::rewrite`].
    pub(super) fn rewrite(
        &mut self,
        mut write: impl FnMut(&str, &Piece, &mut Output),
    ) -> Result<()> {
        let pieces = &mut self.pieces;
        self.text.rewrite(|text, out| {
            for piece in pieces.iter_mut() {
                let from = out.len();
                write(&text[piece.range.clone()], piece, out);
                piece.range = from..out.len();
            }
        })
    }
}
