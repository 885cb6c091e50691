//! Normalisers: they change the text before it is split.

use super::aligned::{Output, Text};
use super::pattern::Pattern;
use super::precompiled::Precompiled;
use super::unicode::{self, Form, Position};
use crate::section::Section;
use teeny_core::{Error, Result};

/// A change of the text.
#[derive(Clone, Debug)]
pub(super) enum Normalizer {
    /// One after the other.
    Sequence(Vec<Normalizer>),
    /// A normal form of Unicode.
    Form(Form),
    Lowercase,
    /// Removes combining marks.
    StripAccents,
    /// Removes white space at the ends.
    Strip {
        left: bool,
        right: bool,
    },
    /// Replaces matches by a text.
    Replace(Pattern, String),
    /// Adds a text in front.
    Prepend(String),
    /// Spells each byte as one of GPT-2's printable characters.
    ByteLevel,
    Bert(Bert),
    /// Removes control characters; unusual spaces become spaces.
    Nmt,
    /// Replaces characters by the table of a SentencePiece model.
    Precompiled(Precompiled),
}

/// The changes of BERT's `BasicTokenizer`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bert {
    /// Removes control characters; all white space becomes a space.
    pub clean_text: bool,
    /// Adds spaces around ideographs.
    pub handle_chinese_chars: bool,
    /// Removes accents.
    pub strip_accents: bool,
    pub lowercase: bool,
}

impl Bert {
    /// The normaliser of BERT, cased or not.
    pub(super) fn new(lowercase: bool) -> Bert {
        let (clean_text, handle_chinese_chars) = (true, true);
        Bert { clean_text, handle_chinese_chars, strip_accents: lowercase, lowercase }
    }
}

impl Normalizer {
    /// Reads the object `section`.
    ///
    /// # Errors
    /// If the kind is not supported or an option is wrong.
    pub(super) fn parse(section: &Section, memory: &mut usize) -> Result<Normalizer> {
        Ok(match section.string("type")?.as_str() {
            "Sequence" => {
                let parts = section.sections("normalizers")?;
                let parts = parts.iter().map(|part| Normalizer::parse(part, memory));
                Normalizer::Sequence(parts.collect::<Result<_>>()?)
            }
            "NFC" => Normalizer::Form(Form::Nfc),
            "NFD" => Normalizer::Form(Form::Nfd),
            "NFKC" => Normalizer::Form(Form::Nfkc),
            "NFKD" => Normalizer::Form(Form::Nfkd),
            "Lowercase" => Normalizer::Lowercase,
            "StripAccents" => Normalizer::StripAccents,
            "Strip" => Normalizer::Strip {
                left: section.flag("strip_left", false)?,
                right: section.flag("strip_right", false)?,
            },
            "Replace" => {
                Normalizer::Replace(parse_pattern(section, memory)?, section.string("content")?)
            }
            "Prepend" => Normalizer::Prepend(section.string("prepend")?),
            "ByteLevel" => Normalizer::ByteLevel,
            "BertNormalizer" => {
                let lowercase = section.flag("lowercase", true)?;
                Normalizer::Bert(Bert {
                    clean_text: section.flag("clean_text", true)?,
                    handle_chinese_chars: section.flag("handle_chinese_chars", true)?,
                    strip_accents: section.flag("strip_accents", lowercase)?,
                    lowercase,
                })
            }
            "Nmt" => Normalizer::Nmt,
            "Precompiled" => {
                let table = Precompiled::of_base64(&section.string("precompiled_charsmap")?);
                let named =
                    |e: Error| e.note(format!("at {}", section.place("precompiled_charsmap")));
                Normalizer::Precompiled(table.map_err(named)?)
            }
            kind => return Err(section.unknown(kind)),
        })
    }

    /// Changes `text`.
    ///
    /// # Errors
    /// If the text becomes much longer than the original.
    pub(super) fn apply(&self, text: &mut Text) -> Result<()> {
        match self {
            Normalizer::Sequence(parts) => parts.iter().try_for_each(|part| part.apply(text)),
            Normalizer::Form(form) => apply_form(*form, text),
            Normalizer::Lowercase => lowercase(text),
            Normalizer::StripAccents => filter(text, |c| !unicode::is_combining_mark(c)),
            Normalizer::Strip { left, right } => text.rewrite(|text, out| {
                let left = if *left { text.len() - text.trim_start().len() } else { 0 };
                let right = if *right { text.trim_end().len() } else { text.len() };
                out.copy(left.min(right)..right);
            }),
            Normalizer::Replace(pattern, content) => {
                let mut found = Vec::new();
                pattern.matches(text.as_str(), |range| found.push(range))?;
                text.rewrite(|text, out| {
                    let mut copied = 0;
                    for range in found {
                        out.copy(copied..range.start);
                        let from = range.end.saturating_sub(1);
                        content.chars().for_each(|c| out.push(c, from));
                        copied = range.end;
                    }
                    out.copy(copied..text.len());
                })
            }
            Normalizer::Prepend(prefix) => text.rewrite(|text, out| prepend(text, 0, prefix, out)),
            Normalizer::ByteLevel => text.rewrite(|text, out| {
                text.bytes().enumerate().for_each(|(i, byte)| {
                    out.push(super::ALPHABET[usize::from(byte)], i);
                });
            }),
            Normalizer::Bert(bert) => bert.apply(text),
            Normalizer::Nmt => text.rewrite(|text, out| {
                for (i, c) in text.char_indices() {
                    match c {
                        '\x01'..='\x08' | '\x0b' | '\x0e'..='\x1f' => {}
                        '\x7f' | '\u{8f}' | '\u{9f}' => {}
                        '\t' | '\n' | '\x0c' | '\r' | '\u{1680}' | '\u{200b}'..='\u{200f}' => {
                            out.push(' ', i)
                        }
                        '\u{2028}' | '\u{2029}' | '▁' | '\u{feff}' | '\u{fffd}' => {
                            out.push(' ', i)
                        }
                        _ => out.push(c, i),
                    }
                }
            }),
            Normalizer::Precompiled(table) => match table.replaced(text.as_str()) {
                Some(changed) => text.rewrite(|text, out| {
                    let mut position = Position::new(text, out);
                    changed.into_iter().for_each(|changed| position.push(changed));
                }),
                None => Ok(()),
            },
        }
    }
}

/// Writes `prefix` and `text`, which is at byte `at` of the old text; nothing if `text` is empty.
pub(super) fn prepend(text: &str, at: usize, prefix: &str, out: &mut Output) {
    if !text.is_empty() {
        prefix.chars().for_each(|c| out.push(c, at));
        out.copy(at..at + text.len());
    }
}

/// Reads the member `pattern`: `{"String": ..}` or `{"Regex": ..}`.
///
/// # Errors
/// If it is neither, or cannot be compiled.
pub(super) fn parse_pattern(section: &Section, memory: &mut usize) -> Result<Pattern> {
    let missing = || section.wrong("pattern", "{\"String\": ..} or {\"Regex\": ..}");
    let pattern = section.section("pattern")?.ok_or_else(missing)?;
    let named = |e: Error| e.note(format!("at {}", section.place("pattern")));
    match (pattern.optional_string("Regex")?, pattern.optional_string("String")?) {
        (Some(regex), None) => Pattern::new(&regex, memory).map_err(named),
        (None, Some(text)) => Pattern::literal(&text, memory).map_err(named),
        _ => Err(missing()),
    }
}

fn apply_form(form: Form, text: &mut Text) -> Result<()> {
    if form.holds(text.as_str()) {
        return Ok(());
    }
    text.rewrite(|text, out| form.write(text, out))
}

fn filter(text: &mut Text, keep: impl Fn(char) -> bool) -> Result<()> {
    if text.as_str().chars().all(&keep) {
        return Ok(());
    }
    text.rewrite(|text, out| {
        text.char_indices().filter(|(_, c)| keep(*c)).for_each(|(i, c)| out.push(c, i));
    })
}

fn lowercase(text: &mut Text) -> Result<()> {
    text.rewrite(|text, out| {
        for (i, c) in text.char_indices() {
            match c.is_ascii() {
                true => out.push(c.to_ascii_lowercase(), i),
                false => c.to_lowercase().for_each(|lower| out.push(lower, i)),
            }
        }
    })
}

impl Bert {
    fn apply(self, text: &mut Text) -> Result<()> {
        if self.clean_text || self.handle_chinese_chars {
            text.rewrite(|text, out| self.clean(text, out))?;
        }
        if self.strip_accents {
            apply_form(Form::Nfd, text)?;
            filter(text, |c| !unicode::is_nonspacing_mark(c))?;
        }
        if self.lowercase { lowercase(text) } else { Ok(()) }
    }

    fn clean(self, text: &str, out: &mut Output) {
        for (i, mut c) in text.char_indices() {
            if self.clean_text {
                if matches!(c, '\0' | '\u{fffd}') || unicode::is_control(c) {
                    continue;
                }
                if c.is_whitespace() {
                    c = ' ';
                }
            }
            if self.handle_chinese_chars && unicode::is_ideograph(c) {
                [' ', c, ' '].into_iter().for_each(|c| out.push(c, i));
            } else {
                out.push(c, i);
            }
        }
    }
}
