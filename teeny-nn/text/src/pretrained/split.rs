//! Pre-tokenizers: they split text into words, which the model then encodes one by one.

use super::aligned::Segment;
use super::normalize::{parse_pattern, prepend};
use super::pattern::Pattern;
use super::unicode;
use crate::bpe::words;
use crate::section::Section;
use std::ops::Range;
use teeny_core::Result;
use unicode_script::{Script, UnicodeScript};

/// A way to split text.
#[derive(Clone, Debug)]
pub(super) enum PreTokenizer {
    /// One after the other.
    Sequence(Vec<PreTokenizer>),
    /// GPT-2's words, in GPT-2's characters for bytes.
    ByteLevel {
        add_prefix_space: bool,
        use_regex: bool,
    },
    /// At matches of a pattern, or between them.
    Split {
        pattern: Pattern,
        behavior: Behavior,
        invert: bool,
    },
    /// At numbers.
    Digits(Behavior),
    Punctuation(Behavior),
    /// At white space, which is removed.
    WhitespaceSplit,
    /// At a character, which is removed.
    Delimiter(char),
    /// After this number of characters.
    FixedLength(usize),
    /// Where the script changes.
    Scripts,
    /// White space is removed, punctuation isolated.
    Bert,
    /// Spaces become a visible character, which begins the next word.
    Metaspace {
        replacement: char,
        prepend: Prepend,
        split: bool,
    },
}

/// Whether matches are removed, separate pieces or joined with a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Behavior {
    Removed,
    Isolated,
    MergedWithPrevious,
    MergedWithNext,
    Contiguous,
}

/// Where `Metaspace` adds a space in front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prepend {
    Always,
    /// At the start of the text.
    First,
    Never,
}

impl PreTokenizer {
    /// Reads the object `section`.
    ///
    /// # Errors
    /// If the kind is not supported or an option is wrong.
    pub(super) fn parse(section: &Section, memory: &mut usize) -> Result<PreTokenizer> {
        Ok(match section.string("type")?.as_str() {
            "Sequence" => {
                let parts = section.sections("pretokenizers")?;
                let parts = parts.iter().map(|part| PreTokenizer::parse(part, memory));
                PreTokenizer::Sequence(parts.collect::<Result<_>>()?)
            }
            "ByteLevel" => PreTokenizer::ByteLevel {
                add_prefix_space: section.flag("add_prefix_space", true)?,
                use_regex: section.flag("use_regex", true)?,
            },
            "Split" => PreTokenizer::Split {
                pattern: parse_pattern(section, memory)?,
                behavior: Behavior::parse(section)?,
                invert: section.flag("invert", false)?,
            },
            "Digits" => PreTokenizer::Digits(match section.flag("individual_digits", false)? {
                true => Behavior::Isolated,
                false => Behavior::Contiguous,
            }),
            "Punctuation" => PreTokenizer::Punctuation(match section.get("behavior") {
                Some(_) => Behavior::parse(section)?,
                None => Behavior::Isolated,
            }),
            "Whitespace" => PreTokenizer::Split {
                // the `\w` of Rust, with joiners
                pattern: Pattern::new(r"[\w\x{200C}\x{200D}]+|[^\w\x{200C}\x{200D}\s]+", memory)?,
                behavior: Behavior::Removed,
                invert: true,
            },
            "WhitespaceSplit" => PreTokenizer::WhitespaceSplit,
            "BertPreTokenizer" => PreTokenizer::Bert,
            "Metaspace" => PreTokenizer::Metaspace {
                replacement: section.char("replacement")?,
                prepend: Prepend::parse(section)?,
                split: section.flag("split", true)?,
            },
            "CharDelimiterSplit" => PreTokenizer::Delimiter(section.char("delimiter")?),
            "FixedLength" => match section.number("length")?.unwrap_or(5) {
                0 => return Err(section.wrong("length", "at least 1")),
                length => PreTokenizer::FixedLength(length.try_into().unwrap_or(usize::MAX)),
            },
            "UnicodeScripts" => PreTokenizer::Scripts,
            kind => return Err(section.unknown(kind)),
        })
    }

    /// True if it reads where pieces start in the original.
    pub(super) fn reads_origins(&self) -> bool {
        match self {
            PreTokenizer::Sequence(parts) => parts.iter().any(PreTokenizer::reads_origins),
            PreTokenizer::Metaspace { prepend, .. } => *prepend == Prepend::First,
            _ => false,
        }
    }

    /// Splits the pieces of `segment`. The last step of `ByteLevel`, to spell bytes as characters,
    /// is left to the model if `bytes_by_model` and this is the last pre-tokenizer.
    ///
    /// # Errors
    /// If the text becomes much longer than the original, or a pattern takes too many steps.
    pub(super) fn apply(&self, segment: &mut Segment, bytes_by_model: bool) -> Result<()> {
        match self {
            PreTokenizer::Sequence(parts) => {
                for (i, part) in parts.iter().enumerate() {
                    part.apply(segment, bytes_by_model && i + 1 == parts.len())?;
                }
            }
            PreTokenizer::ByteLevel { add_prefix_space, use_regex } => {
                let text = segment.text.as_str();
                let mut pieces = segment.pieces.iter();
                if *add_prefix_space
                    && pieces.any(|piece| !text[piece.range.clone()].starts_with(' '))
                {
                    segment.rewrite(|text, piece, out| {
                        let prefix = if text.starts_with(' ') { "" } else { " " };
                        prepend(text, piece.range.start, prefix, out);
                    })?;
                }
                if *use_regex {
                    segment.split(|text, ranges| {
                        let mut at = 0;
                        ranges.extend(words(text).map(|word| {
                            at += word.len();
                            at - word.len()..at
                        }));
                    });
                }
                if !bytes_by_model {
                    segment.rewrite(|text, piece, out| {
                        for (i, byte) in text.bytes().enumerate() {
                            out.push(super::ALPHABET[usize::from(byte)], piece.range.start + i);
                        }
                    })?;
                }
            }
            PreTokenizer::Split { pattern, behavior, invert } => {
                let (mut parts, mut done) = (Vec::new(), Ok(()));
                segment.split(|text, ranges| {
                    parts.clear();
                    let mut last = 0;
                    let matched = pattern.matches(text, |found| {
                        if last != found.start {
                            parts.push((last..found.start, *invert));
                        }
                        last = found.end;
                        parts.push((found, !*invert));
                    });
                    done = std::mem::replace(&mut done, Ok(())).and(matched);
                    if last != text.len() {
                        parts.push((last..text.len(), *invert));
                    }
                    behavior.ranges(&parts, ranges);
                });
                done?;
            }
            PreTokenizer::Digits(behavior) => at_chars(segment, *behavior, char::is_numeric),
            PreTokenizer::Punctuation(behavior) => {
                at_chars(segment, *behavior, unicode::is_punctuation);
            }
            PreTokenizer::WhitespaceSplit => {
                at_chars(segment, Behavior::Removed, char::is_whitespace);
            }
            PreTokenizer::Delimiter(delimiter) => {
                at_chars(segment, Behavior::Removed, |c| c == *delimiter);
            }
            PreTokenizer::FixedLength(length) => segment.split(|text, ranges| {
                let mut starts = text.char_indices().step_by(*length).map(|(i, _)| i).skip(1);
                let mut from = 0;
                ranges.extend(std::iter::from_fn(|| {
                    (from < text.len()).then(|| {
                        let range = from..starts.next().unwrap_or(text.len());
                        from = range.end;
                        range
                    })
                }));
            }),
            PreTokenizer::Scripts => segment.split(script_words),
            PreTokenizer::Bert => segment.split(bert_words),
            PreTokenizer::Metaspace { replacement, prepend: scheme, split } => {
                segment.rewrite(|text, piece, out| {
                    let at = piece.range.start;
                    let first = *scheme == Prepend::First && piece.start == 0;
                    let begins = text.starts_with([' ', *replacement]);
                    if (*scheme == Prepend::Always || first) && !begins {
                        out.push(*replacement, at);
                    }
                    for (i, c) in text.char_indices() {
                        out.push(if c == ' ' { *replacement } else { c }, at + i);
                    }
                })?;
                if *split {
                    at_chars(segment, Behavior::MergedWithNext, |c| c == *replacement);
                }
            }
        }
        Ok(())
    }

    /// True if the last step is `ByteLevel`.
    pub(super) fn ends_in_bytes(&self) -> bool {
        match self {
            PreTokenizer::Sequence(parts) => parts.last().is_some_and(PreTokenizer::ends_in_bytes),
            PreTokenizer::ByteLevel { .. } => true,
            _ => false,
        }
    }
}

impl Behavior {
    fn parse(section: &Section) -> Result<Behavior> {
        Ok(match section.string("behavior")?.as_str() {
            "Removed" => Behavior::Removed,
            "Isolated" => Behavior::Isolated,
            "MergedWithPrevious" => Behavior::MergedWithPrevious,
            "MergedWithNext" => Behavior::MergedWithNext,
            "Contiguous" => Behavior::Contiguous,
            _ => return Err(section.wrong("behavior", "Removed, Isolated, MergedWithPrevious, ..")),
        })
    }

    /// Adds the ranges of words to `ranges`. `parts` are the ranges of a text in order, with true
    /// for the matches.
    fn ranges(self, parts: &[(Range<usize>, bool)], ranges: &mut Vec<Range<usize>>) {
        let range_of = |parts: &[(Range<usize>, bool)]| match parts {
            [(first, _), .., (last, _)] => first.start..last.end,
            [(only, _)] => only.clone(),
            [] => 0..0,
        };
        let kept = |(_, is_match): &&(Range<usize>, bool)| {
            self == Behavior::Isolated || (self == Behavior::Removed && !is_match)
        };
        // neighbouring parts for which this is true are one word
        let joins = |a: bool, b: bool| match self {
            Behavior::Contiguous => a == b,
            Behavior::MergedWithPrevious => !a && b,
            _ => a && !b,
        };
        match self {
            Behavior::Isolated | Behavior::Removed => {
                ranges.extend(parts.iter().filter(kept).map(|(range, _)| range.clone()));
            }
            _ => ranges.extend(parts.chunk_by(|a, b| joins(a.1, b.1)).map(range_of)),
        }
    }
}

impl Prepend {
    pub(super) fn parse(section: &Section) -> Result<Prepend> {
        let scheme = section.optional_string("prepend_scheme")?;
        let scheme = match scheme.as_deref() {
            None | Some("always") => Prepend::Always,
            Some("first") => Prepend::First,
            Some("never") => Prepend::Never,
            Some(_) => return Err(section.wrong("prepend_scheme", "always, first or never")),
        };
        // files of before 2024
        match section.flag("add_prefix_space", true)? {
            true => Ok(scheme),
            false if section.get("prepend_scheme").is_none() || scheme == Prepend::Never => {
                Ok(Prepend::Never)
            }
            false => Err(section.wrong("add_prefix_space", "the same as prepend_scheme says")),
        }
    }
}

/// Splits at each character for which `is_match`.
fn at_chars(segment: &mut Segment, behavior: Behavior, is_match: impl Fn(char) -> bool) {
    let mut parts: Vec<(Range<usize>, bool)> = Vec::new();
    segment.split(|text, ranges| {
        parts.clear();
        for (i, c) in text.char_indices() {
            let (end, matches) = (i + c.len_utf8(), is_match(c));
            match parts.last_mut() {
                Some((range, false)) if !matches => range.end = end,
                _ => parts.push((i..end, matches)),
            }
        }
        behavior.ranges(&parts, ranges);
    });
}

/// Splits where the script changes; kana count as Han. A space belongs to the run before it, and
/// spaces in front of the text to none.
fn script_words(text: &str, ranges: &mut Vec<Range<usize>>) {
    let (mut last, mut from) = (None, text.len());
    for (i, c) in text.char_indices() {
        let script = match (c, c.script()) {
            (' ', _) | (_, Script::Unknown) => continue,
            ('ー', _) | (_, Script::Hiragana | Script::Katakana) => Script::Han,
            (_, script) => script,
        };
        if last.is_some_and(|last| last != script) {
            ranges.push(from..i);
        }
        if last != Some(script) {
            from = i;
        }
        last = Some(script);
    }
    ranges.push(from..text.len());
}

/// The words between white space, with punctuation characters apart.
fn bert_words(text: &str, ranges: &mut Vec<Range<usize>>) {
    let mut from = 0;
    for (i, c) in text.char_indices() {
        let (space, end) = (c.is_whitespace(), i + c.len_utf8());
        if space || unicode::is_punctuation(c) {
            ranges.push(from..i);
            if !space {
                ranges.push(i..end);
            }
            from = end;
        }
    }
    ranges.push(from..text.len());
}
