//! The metadata of a tokenizer for a GGUF file.
//!
//! ```text
//! byte-level BPE ──────────── "gpt2": texts, merges, and the name of the pattern of words
//! BPE with byte fallback ──── "llama": texts and scores, which order the merges
//! ```
//!
//! As a check, the keys are parsed again, and that tokenizer must encode a probe text to the same
//! tokens.

use super::super::added::AddedToken;
use super::super::model::{Bpe, Model};
use super::super::normalize::Normalizer;
use super::super::process::{Processor, Slot};
use super::super::split::{Behavior, PreTokenizer, Prepend};
use super::super::unicode::Form;
use super::super::{Parts, PretrainedTokenizer};
use super::{BYTE, CONTROL, GPT2, NORMAL, PATTERNS, UNKNOWN, UNUSED, USER_DEFINED, parse};
use crate::Tokenizer;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use teeny_core::file::quoted;
use teeny_core::{Error, Result};
use teeny_formats::gguf::Value;

/// A text with words, numbers, white space and characters of several scripts.
const PROBE: &str = concat!(
    "The quick brown fox, it's 12345 and 3.14 ;-) I'LL don't they've\n\n  two  spaces\tand tabs ",
    "\r\n x_y(z) == {!?} caf\u{e9} Gr\u{f6}\u{df}e \u{41c}\u{43e}\u{441}\u{43a}\u{432}\u{430} ",
    "\u{6771}\u{4eac}\u{90fd} \u{d55c}\u{ad6d}\u{c5b4} \u{645}\u{631}\u{62d}\u{628}\u{627} ",
    "\u{661}\u{662} 1\u{bd} \u{1f642}\u{1f44d}\u{1f3fd} the end",
);

/// Adds the keys of `tokenizer`, whose model has `vocab` tokens.
///
/// # Errors
/// If GGUF cannot express the tokenizer.
pub(in super::super) fn write(
    tokenizer: &PretrainedTokenizer,
    vocab: usize,
    metadata: &mut BTreeMap<String, Value>,
) -> Result<()> {
    let parts = &*tokenizer.0;
    let mut keys = BTreeMap::new();
    let mut set = |key: &str, value: Value| {
        keys.insert(format!("tokenizer.ggml.{key}"), value);
    };
    let text = |text: &str| Value::Text(text.to_string());
    set("tokens", Value::List(tokens(parts, vocab).iter().map(|token| text(token)).collect()));
    // signed in files
    let kinds = kinds(parts, vocab).into_iter().map(|kind| Value::Signed(kind as i64));
    set("token_type", Value::List(kinds.collect()));
    match &parts.model {
        Model::Bpe(bpe) if bpe.prefix.is_empty() && bpe.suffix.is_empty() => match bpe.bytes {
            None if bpe.unknown.is_none() => {
                set("model", text("gpt2"));
                set("pre", text(pattern_name(parts, bpe)?));
                let merges = merges(parts, bpe).into_iter();
                set(
                    "merges",
                    Value::List(merges.map(|[a, b]| text(&format!("{a} {b}"))).collect()),
                );
            }
            Some(_) => {
                set("model", text("llama"));
                set("pre", text("default"));
                let scores = scores(parts, bpe, vocab)?.into_iter().map(Value::Float);
                set("scores", Value::List(scores.collect()));
                set("add_space_prefix", Value::Bool(has_space_prefix(parts)?));
            }
            None => return Err(unsupported("an unknown token, but no tokens of bytes")),
        },
        Model::Bpe(_) => return Err(unsupported("prefixes or suffixes of tokens inside words")),
        Model::WordPiece(_) => return Err(unsupported("WordPiece")),
        Model::Unigram(_) => return Err(unsupported("unigrams")),
        Model::WordLevel(_) => return Err(unsupported("whole words")),
        Model::SentencePiece(_) => return Err(unsupported("a vocabulary of a GGUF file")),
    }
    let [bos, eos] = ends(parts)?;
    for (key, id) in [
        ("bos", bos.or(tokenizer.bos())),
        ("eos", eos.or(tokenizer.eos())),
        ("unknown", tokenizer.unk()),
        ("padding", tokenizer.pad()),
    ] {
        if let Some(id) = id.filter(|id| (*id as usize) < vocab) {
            set(&format!("{key}_token_id"), Value::Unsigned(id.into()));
        }
    }
    set("add_bos_token", Value::Bool(bos.is_some()));
    set("add_eos_token", Value::Bool(eos.is_some()));
    let again = parse(&keys)?;
    compare(tokenizer, &PretrainedTokenizer(Arc::new(again)))?;
    metadata.extend(keys);
    Ok(())
}

fn unsupported(what: &str) -> Error {
    Error::unsupported(format!("GGUF has no tokenizer like this one: {what}"))
        .help("GGUF has byte-level BPE of known patterns, and BPE with byte fallback")
}

/// Returns an error if two tokenizers encode a text differently.
fn compare(own: &PretrainedTokenizer, read: &PretrainedTokenizer) -> Result<()> {
    let (a, b) = (own.encode(PROBE)?, read.encode(PROBE)?);
    if let Some(at) = (0..a.len().max(b.len())).find(|&i| a.get(i) != b.get(i)) {
        let begin = own.decode(&a[..at])?;
        let text = format!("a text is encoded differently after {}", quoted(&begin));
        return Err(unsupported(&text));
    }
    if own.decode(&a)? != read.decode(&a)? {
        return Err(unsupported("tokens are decoded differently"));
    }
    Ok(())
}

/// The texts of `count` tokens; rows without a token get an unused text.
fn tokens(parts: &Parts, count: usize) -> Vec<String> {
    let text = |id: u32| parts.added.content(id).or_else(|| parts.vocab.text(id));
    let known = |id: u32| text(id).map_or_else(|| format!("[PAD{id}]"), str::to_string);
    (0..count as u32).map(known).collect()
}

/// The kind of each of `count` tokens.
fn kinds(parts: &Parts, count: usize) -> Vec<u64> {
    let kind = |id: u32| match (parts.added.get(id), parts.vocab.text(id)) {
        _ if falls_back(parts) && parts.specials[2] == Some(id) => UNKNOWN,
        (Some(AddedToken { special: true, .. }), _) => CONTROL,
        (Some(_), _) => USER_DEFINED,
        (None, Some(text)) if is_byte(parts, text) => BYTE,
        (None, Some(_)) => NORMAL,
        (None, None) => UNUSED,
    };
    (0..count as u32).map(kind).collect()
}

/// Whether characters without tokens become bytes.
fn falls_back(parts: &Parts) -> bool {
    matches!(&parts.model, Model::Bpe(bpe) if bpe.bytes.is_some())
}

/// Whether `text` is a byte token, such as `<0x0A>`, in a model that has them.
fn is_byte(parts: &Parts, text: &str) -> bool {
    falls_back(parts) && text.len() == 6 && text.starts_with("<0x") && text.ends_with('>')
}

/// The merges in their order.
fn merges<'a>(parts: &'a Parts, bpe: &Bpe) -> Vec<[&'a str; 2]> {
    let mut all: Vec<_> = bpe.ranks.iter().map(|(pair, (rank, _))| (*rank, *pair)).collect();
    all.sort_unstable();
    let text = |id: u32| parts.vocab.text(id).unwrap_or_default();
    all.into_iter().map(|(_, (a, b))| [text(a), text(b)]).collect()
}

/// The name in GGUF of the patterns of words.
fn pattern_name(parts: &Parts, bpe: &Bpe) -> Result<&'static str> {
    let nfc = |normalizer: &Normalizer| matches!(normalizer, Normalizer::Form(Form::Nfc));
    if parts.normalizer.as_ref().is_some_and(|normalizer| !nfc(normalizer)) {
        return Err(unsupported("texts are normalised before they are split"));
    }
    let mut patterns: Vec<&str> = Vec::new();
    for step in steps(parts.pre_tokenizer.as_ref()) {
        match step {
            PreTokenizer::ByteLevel { add_prefix_space: false, use_regex } => {
                patterns.extend(use_regex.then_some(GPT2));
            }
            PreTokenizer::Split { pattern, behavior: Behavior::Isolated, invert: false } => {
                patterns.push(&pattern.source);
            }
            PreTokenizer::Digits(Behavior::Isolated) => patterns.push(r"\p{N}"),
            _ => return Err(unsupported("words are split in another way")),
        }
    }
    let is_it =
        |(_, own, ignores): &&(_, &[&str], bool)| *own == patterns && *ignores == bpe.ignore_merges;
    let (names, ..) = PATTERNS.iter().find(is_it).ok_or_else(|| {
        let patterns: Vec<String> = patterns.iter().map(|pattern| quoted(pattern)).collect();
        unsupported(&format!("the patterns of words are {}", patterns.join(", ")))
    })?;
    Ok(names[0])
}

/// The steps of a pre-tokenizer.
fn steps(whole: Option<&PreTokenizer>) -> Vec<&PreTokenizer> {
    match whole {
        Some(PreTokenizer::Sequence(all)) => all.iter().flat_map(|one| steps(Some(one))).collect(),
        one => one.into_iter().collect(),
    }
}

/// Whether a text begins with a space that it does not have.
fn has_space_prefix(parts: &Parts) -> Result<bool> {
    let normalizers = match &parts.normalizer {
        Some(Normalizer::Sequence(all)) => &all[..],
        one => one.as_slice(),
    };
    let (mut prefix, mut replaces) = (false, false);
    for normalizer in normalizers {
        match normalizer {
            Normalizer::Prepend(text) if text == "▁" => prefix = true,
            Normalizer::Replace(from, to) if is_space(&from.source) && to == "▁" => {
                replaces = true
            }
            _ => return Err(unsupported("texts are normalised before they are split")),
        }
    }
    for step in steps(parts.pre_tokenizer.as_ref()) {
        match step {
            PreTokenizer::Metaspace { replacement: '▁', prepend, split: false } => {
                (prefix, replaces) = (*prepend != Prepend::Never, true);
            }
            // the normaliser has replaced all spaces
            PreTokenizer::Split { pattern, .. } if replaces && is_space(&pattern.source) => {}
            _ => return Err(unsupported("words are split before they are encoded")),
        }
    }
    if replaces { Ok(prefix) } else { Err(unsupported("spaces stay as they are")) }
}

fn is_space(pattern: &str) -> bool {
    [" ", r"\ "].contains(&pattern)
}

/// Scores of `count` tokens by which the pair that makes the best token is the pair of the first
/// merge.
fn scores(parts: &Parts, bpe: &Bpe, count: usize) -> Result<Vec<f64>> {
    let mut first: HashMap<u32, u32> = HashMap::new();
    for &(rank, merged) in bpe.ranks.values() {
        let own = first.entry(merged).or_insert(rank);
        *own = rank.min(*own);
    }
    check_merges(parts, bpe, count)?;
    let last = first.values().max().map_or(0.0, |rank| f64::from(*rank));
    let is_special = |id: u32| parts.added.get(id).is_some();
    let score = |id: u32| match (first.get(&id), parts.vocab.text(id)) {
        (Some(rank), _) => -f64::from(*rank),
        (None, Some(text)) if !is_special(id) && !is_byte(parts, text) => -last - 1.0,
        _ => 0.0,
    };
    Ok((0..count as u32).map(score).collect())
}

/// The longest text of a token in bytes, whose square is the time of a check.
const MAX_TOKEN: usize = 512;

/// Returns an error unless any two of `count` tokens whose joined text is a token have a merge:
/// SentencePiece merges all.
fn check_merges(parts: &Parts, bpe: &Bpe, count: usize) -> Result<()> {
    let plain = |text: &str| {
        let id = parts.vocab.id(text)?;
        (parts.added.get(id).is_none() && !is_byte(parts, text)).then_some(id)
    };
    let texts = (0..count as u32).filter_map(|id| parts.vocab.text(id));
    for text in texts.filter(|text| plain(text).is_some()) {
        if text.len() > MAX_TOKEN {
            return Err(unsupported(&format!("a token of {} bytes", text.len())));
        }
        for (at, _) in text.char_indices().skip(1) {
            let (begin, end) = text.split_at(at);
            let pair = plain(begin).zip(plain(end));
            if pair.is_some_and(|pair| !bpe.ranks.contains_key(&pair)) {
                let [begin, end] = [begin, end].map(quoted);
                return Err(unsupported(&format!("{begin} and {end} have no merge")));
            }
        }
    }
    Ok(())
}

/// The special tokens that are added before and after a text.
fn ends(parts: &Parts) -> Result<[Option<u32>; 2]> {
    let mut ends = [None; 2];
    let steps = match &parts.processor {
        Some(Processor::Sequence(steps)) => &steps[..],
        one => one.as_slice(),
    };
    for step in steps {
        let Processor::Template { single, .. } = step else { continue };
        ends = match single[..] {
            [Slot::Text(..)] => [None, None],
            [Slot::Token(bos, _), Slot::Text(..)] => [Some(bos), None],
            [Slot::Text(..), Slot::Token(eos, _)] => [None, Some(eos)],
            [Slot::Token(bos, _), Slot::Text(..), Slot::Token(eos, _)] => [Some(bos), Some(eos)],
            _ => return Err(unsupported("more than a token is added before or after a text")),
        };
    }
    Ok(ends)
}
