//! Decoders: they turn tokens into text.

use super::normalize::parse_pattern;
use super::pattern::Pattern;
use super::split::Prepend;
use crate::section::Section;
use std::borrow::Cow;
use std::sync::LazyLock;
use teeny_core::{Error, Result};

/// A step from the spellings of tokens to a text.
#[derive(Clone, Debug)]
pub(super) enum Decoder {
    /// One after the other.
    Sequence(Vec<Decoder>),
    /// From GPT-2's characters for bytes to text.
    ByteLevel,
    /// Joins parts of words.
    WordPiece {
        prefix: String,
        cleanup: bool,
    },
    /// From the visible character to spaces.
    Metaspace {
        replacement: char,
        omit_first: bool,
    },
    Replace(Pattern, String),
    /// From tokens such as `<0x0A>` to text.
    ByteFallback,
    /// Joins all tokens.
    Fuse,
    /// Removes characters at the ends of each token.
    Strip {
        content: char,
        start: usize,
        stop: usize,
    },
    /// The end of a word becomes a space.
    Bpe(String),
    /// Keeps one of equal neighbouring tokens and removes the blank, as in CTC.
    Ctc {
        blank: String,
        delimiter: String,
        cleanup: bool,
    },
}

/// Memory that a decoder may request per byte of the tokens, and at least.
const GROWTH: (usize, usize) = (64, 1 << 20);

impl Decoder {
    /// Reads the object `section`.
    ///
    /// # Errors
    /// If the kind is not supported or an option is wrong.
    pub(super) fn parse(section: &Section, memory: &mut usize) -> Result<Decoder> {
        let size = |key: &str| -> Result<usize> {
            Ok(section.number(key)?.unwrap_or(0).try_into().unwrap_or(usize::MAX))
        };
        Ok(match section.string("type")?.as_str() {
            "Sequence" => {
                let parts = section.sections("decoders")?;
                let parts = parts.iter().map(|part| Decoder::parse(part, memory));
                Decoder::Sequence(parts.collect::<Result<_>>()?)
            }
            "ByteLevel" => Decoder::ByteLevel,
            "WordPiece" => Decoder::WordPiece {
                prefix: section.optional_string("prefix")?.unwrap_or_else(|| "##".to_string()),
                cleanup: section.flag("cleanup", true)?,
            },
            "Metaspace" => Decoder::Metaspace {
                replacement: section.char("replacement")?,
                omit_first: Prepend::parse(section)? != Prepend::Never,
            },
            "Replace" => {
                Decoder::Replace(parse_pattern(section, memory)?, section.string("content")?)
            }
            "ByteFallback" => Decoder::ByteFallback,
            "Fuse" => Decoder::Fuse,
            "Strip" => Decoder::Strip {
                content: section.char("content")?,
                start: size("start")?,
                stop: size("stop")?,
            },
            "BPEDecoder" => Decoder::Bpe(
                section.optional_string("suffix")?.unwrap_or_else(|| "</w>".to_string()),
            ),
            "CTC" => Decoder::Ctc {
                blank: section.optional_string("pad_token")?.unwrap_or("<pad>".to_string()),
                delimiter: match section.optional_string("word_delimiter_token")? {
                    Some(text) if text.is_empty() => {
                        return Err(section.wrong("word_delimiter_token", "a text"));
                    }
                    text => text.unwrap_or("|".to_string()),
                },
                cleanup: section.flag("cleanup", true)?,
            },
            kind => return Err(section.unknown(kind)),
        })
    }

    /// The decoder of SentencePiece's BPE; `prefixed` tells whether texts get a space in front.
    ///
    /// # Errors
    /// If its pattern cannot be compiled.
    pub(super) fn sentence_piece(prefixed: bool) -> Result<Decoder> {
        let space = Pattern::literal("▁", &mut 0)?;
        let mut steps =
            vec![Decoder::Replace(space, " ".to_string()), Decoder::ByteFallback, Decoder::Fuse];
        steps.extend(prefixed.then_some(Decoder::Strip { content: ' ', start: 1, stop: 0 }));
        Ok(Decoder::Sequence(steps))
    }

    /// The text of `tokens`.
    ///
    /// # Errors
    /// If it is much longer than the tokens.
    pub(super) fn decode(&self, tokens: Vec<Cow<str>>) -> Result<String> {
        let bytes = tokens.iter().map(|token| token.len()).sum::<usize>();
        let limit = bytes.saturating_mul(GROWTH.0).saturating_add(GROWTH.1);
        Ok(self.apply(tokens, limit)?.concat())
    }

    fn apply<'t>(&self, mut tokens: Vec<Cow<'t, str>>, limit: usize) -> Result<Vec<Cow<'t, str>>> {
        match self {
            Decoder::Sequence(parts) => {
                parts.iter().try_fold(tokens, |tokens, part| part.apply(tokens, limit))
            }
            Decoder::ByteLevel => {
                let mut bytes = Vec::new();
                for token in &tokens {
                    let from = bytes.len();
                    let known = token.chars().all(|c| {
                        let byte = BYTES.get(c as usize).copied().flatten();
                        byte.map(|byte| bytes.push(byte)).is_some()
                    });
                    if !known {
                        bytes.truncate(from);
                        bytes.extend_from_slice(token.as_bytes());
                    }
                }
                Ok(vec![String::from_utf8_lossy(&bytes).into_owned().into()])
            }
            Decoder::WordPiece { prefix, cleanup } => {
                for (i, token) in tokens.iter_mut().enumerate() {
                    if i > 0 {
                        *token = match token.strip_prefix(prefix.as_str()) {
                            Some(rest) => rest.to_string(),
                            None => format!(" {token}"),
                        }
                        .into();
                    }
                    if *cleanup {
                        clean_up(token);
                    }
                }
                Ok(tokens)
            }
            Decoder::Metaspace { replacement, omit_first } => {
                for (i, token) in tokens.iter_mut().enumerate() {
                    if token.contains(*replacement) {
                        let space = if i == 0 && *omit_first { "" } else { " " };
                        *token = token.replace(*replacement, space).into();
                    }
                }
                Ok(tokens)
            }
            Decoder::Replace(pattern, content) => {
                let mut bytes = 0usize;
                for token in &mut tokens {
                    let (mut text, mut copied) = (String::new(), 0);
                    pattern.matches(token, |found| {
                        text.push_str(&token[copied..found.start]);
                        if bytes.saturating_add(text.len()) <= limit {
                            text.push_str(content);
                        }
                        copied = found.end;
                    })?;
                    text.push_str(&token[copied..]);
                    bytes = bytes.saturating_add(text.len());
                    *token = text.into();
                }
                if bytes > limit {
                    return Err(Error::value(format!(
                        "the decoder makes a text of more than {limit} bytes"
                    ))
                    .named("decode"));
                }
                Ok(tokens)
            }
            Decoder::ByteFallback => Ok(join_bytes(tokens)),
            Decoder::Fuse => Ok(vec![tokens.concat().into()]),
            Decoder::Strip { content, start, stop } => {
                for token in &mut tokens {
                    let from = token.chars().take(*start).take_while(|c| c == content).count();
                    let text = &token[from * content.len_utf8()..];
                    let to = text.chars().rev().take(*stop).take_while(|c| c == content).count();
                    *token = text[..text.len() - to * content.len_utf8()].to_string().into();
                }
                Ok(tokens)
            }
            Decoder::Ctc { blank, delimiter, cleanup } => {
                tokens.dedup();
                for token in &mut tokens {
                    *token = token.replace(blank.as_str(), "").into();
                    if *cleanup {
                        clean_up(token);
                        *token = token.replace(delimiter.as_str(), " ").into();
                    }
                }
                tokens.retain(|token| !token.is_empty());
                Ok(tokens)
            }
            Decoder::Bpe(suffix) => {
                let last = tokens.len().saturating_sub(1);
                if !suffix.is_empty() {
                    for (i, token) in tokens.iter_mut().enumerate() {
                        let end = if i == last { "" } else { " " };
                        if token.contains(suffix.as_str()) {
                            *token = token.replace(suffix.as_str(), end).into();
                        }
                    }
                }
                Ok(tokens)
            }
        }
    }
}

/// The byte that a character stands for in GPT-2's spelling.
static BYTES: LazyLock<Vec<Option<u8>>> = LazyLock::new(|| {
    let mut bytes = vec![None; 0x144];
    for (c, byte) in super::ALPHABET.iter().zip(0..=255) {
        bytes[*c as usize] = Some(byte);
    }
    bytes
});

/// Removes the spaces that BERT's words leave before punctuation and English contractions.
fn clean_up(token: &mut Cow<str>) {
    const REPLACED: [(&str, &str); 11] = [
        (" .", "."),
        (" ?", "?"),
        (" !", "!"),
        (" ,", ","),
        (" ' ", "'"),
        (" n't", "n't"),
        (" 'm", "'m"),
        (" do not", " don't"),
        (" 's", "'s"),
        (" 've", "'ve"),
        (" 're", "'re"),
    ];
    if token.contains(' ') {
        for (from, to) in REPLACED {
            if token.contains(from) {
                *token = token.replace(from, to).into();
            }
        }
    }
}

/// Replaces each run of tokens such as `<0x0A>` by their text, or by one U+FFFD per token if it is
/// not UTF-8.
fn join_bytes(tokens: Vec<Cow<str>>) -> Vec<Cow<str>> {
    let (mut joined, mut bytes) = (Vec::with_capacity(tokens.len()), Vec::new());
    let end = |bytes: &mut Vec<u8>, joined: &mut Vec<Cow<str>>| {
        let count = bytes.len();
        match String::from_utf8(std::mem::take(bytes)) {
            Ok(text) if text.is_empty() => {}
            Ok(text) => joined.push(text.into()),
            Err(_) => joined.extend(vec![Cow::Borrowed("\u{fffd}"); count]),
        }
    };
    for token in tokens {
        match byte_of(&token) {
            Some(byte) => bytes.push(byte),
            None => {
                end(&mut bytes, &mut joined);
                joined.push(token);
            }
        }
    }
    end(&mut bytes, &mut joined);
    joined
}

/// The byte of a token such as `<0x0A>`.
fn byte_of(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    u8::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 2)
}
