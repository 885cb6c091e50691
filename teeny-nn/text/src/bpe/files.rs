//! A [`Bpe`] as a file: Hugging Face's `tokenizer.json`, read and written, and GPT-2's `vocab.json`
//! with `merges.txt`, read.
//!
//! Tokens are spelled with GPT-2's printable characters for bytes. A file with options that this
//! tokenizer does not have (normalisers, other regular expressions) is an error that names the
//! option.

use super::{Bpe, Pair, alphabet};
use crate::section::{Section, shortened};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;
use teeny_core::context::enter;
use teeny_core::file::{self, Budget, quoted, replace, write_error};
use teeny_core::{Error, Result};
use teeny_formats::json::Json;
use teeny_formats::names::{loading, of_file};

impl Bpe {
    /// Writes `tokenizer.json`, which Hugging Face's `tokenizers` reads too, atomically: the old
    /// file stays until the new one is complete.
    ///
    /// # Errors
    /// If the file cannot be written.
    #[track_caller]
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let _op = enter("bpe.save");
        let chars = alphabet();
        let spell = |token: u32| -> String {
            self.tokens[token as usize].iter().map(|&byte| chars[usize::from(byte)]).collect()
        };
        let special = |token: u32| self.specials.iter().any(|(s, _)| *s == token);
        let vocab: Map<String, Value> = (0..self.tokens.len() as u32)
            .filter(|t| !special(*t))
            .map(|t| (spell(t), json!(t)))
            .collect();
        let merges: Vec<[String; 2]> =
            self.merges.iter().map(|&(a, b)| [spell(a), spell(b)]).collect();
        let added = |(id, content): &(u32, String)| {
            json!({
                "id": id, "content": content, "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false, "special": true,
            })
        };
        let bytes = |prefix: bool| {
            json!({
                "type": "ByteLevel", "add_prefix_space": prefix,
                "trim_offsets": true, "use_regex": true,
            })
        };
        let content = json!({
            "version": "1.0",
            "truncation": null,
            "padding": null,
            "added_tokens": self.specials.iter().map(added).collect::<Vec<_>>(),
            "normalizer": null,
            "pre_tokenizer": bytes(false),
            "post_processor": null,
            "decoder": bytes(true),
            "model": {
                "type": "BPE", "dropout": null, "unk_token": null,
                "continuing_subword_prefix": null, "end_of_word_suffix": null,
                "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
                "vocab": vocab, "merges": merges,
            },
        });
        replace(path.as_ref(), |file| serde_json::to_writer(file, &content).map_err(write_error))
    }

    /// Reads a `tokenizer.json` of a byte-level BPE with GPT-2's words.
    ///
    /// # Errors
    /// If the file cannot be read, is damaged, or describes another kind of tokenizer: the error
    /// names the option.
    #[track_caller]
    pub fn load(path: impl AsRef<Path>) -> Result<Bpe> {
        let _op = enter("Bpe::load");
        let path = path.as_ref();
        file::read(path).and_then(|bytes| parse(&bytes)).map_err(|e| of_file(e, loading(path)))
    }

    /// Reads GPT-2's two files: token numbers by spelling, and merges one per line.
    ///
    /// # Errors
    /// If a file cannot be read or is damaged.
    #[track_caller]
    pub fn load_gpt2(vocab: impl AsRef<Path>, merges: impl AsRef<Path>) -> Result<Bpe> {
        let _op = enter("Bpe::load_gpt2");
        let (vocab, merges) = (vocab.as_ref(), merges.as_ref());
        let parse = || {
            let tokens = file::read(vocab).map_err(|e| e.note(format!("of {vocab:?}")))?;
            let text = file::read(merges).map_err(|e| e.note(format!("of {merges:?}")))?;
            let mut budget = Budget::new(tokens.len() + text.len());
            let pairs = merge_lines(&text, &mut budget)?;
            assemble(Json::parse(&tokens)?, &pairs, &[], &mut budget)
        };
        parse().map_err(|e| of_file(e, loading(vocab)))
    }
}

/// Memory for a token besides its spelling: in lists and maps, which grow.
pub(crate) const TOKEN: usize = 320;

/// Memory for a merge besides its spellings.
pub(crate) const MERGE: usize = 200;

/// A merge as the file spells its two tokens.
type SpelledPair<'a> = (Cow<'a, str>, Cow<'a, str>);

/// Texts of options that are not set.
const OFF: &[&str] = &["null", "false", "\"\"", "0", "0.0"];

/// Options by section and key, with the texts that this tokenizer has.
const SETTINGS: [(usize, &str, &[&str]); 10] = [
    (0, "type", &["null", "\"BPE\""]),
    (0, "dropout", OFF),
    (0, "continuing_subword_prefix", OFF),
    (0, "end_of_word_suffix", OFF),
    (0, "byte_fallback", OFF),
    (0, "ignore_merges", OFF),
    (1, "type", &["\"ByteLevel\""]),
    (1, "add_prefix_space", OFF),
    (1, "use_regex", &["null", "true"]),
    (2, "type", &["\"ByteLevel\""]),
];

fn parse(bytes: &[u8]) -> Result<Bpe> {
    let mut budget = Budget::new(bytes.len());
    let file = Section::root(Json::parse(bytes)?)?;
    let names = ["model", "pre_tokenizer", "decoder"];
    let [model, words, decoder] = names.map(|name| file.section(name));
    let sections = [model?, words?, decoder?];
    let setting = |(section, key, known): &(usize, &str, &[&str])| {
        let value = sections[*section].as_ref().and_then(|section| section.get(key));
        let text = value.map_or("null", |value| value.text());
        (!known.contains(&text))
            .then(|| format!("{}.{key} is {}", names[*section], shortened(text)))
    };
    let normalizer = file.get("normalizer").map(|_| "normalizer is set".to_string());
    if let Some(setting) = normalizer.or_else(|| SETTINGS.iter().find_map(setting)) {
        return Err(Error::unsupported(format!(
            "{setting}; this reader knows byte-level BPE as in GPT-2"
        ))
        .help("teeny_text::PretrainedTokenizer (feature `pretrained`) reads all kinds"));
    }
    let [Some(model), ..] = &sections else { return Err(file.wrong("model", "an object")) };
    let merges = merges(model, &mut budget)?;
    let added = file.get("added_tokens").map(|_| file.sections("added_tokens")).transpose()?;
    let special = |token: &Section| {
        let name = token.string("content")?;
        let id = token.number("id")?.and_then(|id| u32::try_from(id).ok());
        Ok((id.ok_or_else(|| token.wrong("id", "the number of a token"))?, name))
    };
    let added = added.unwrap_or_default();
    budget.charge(added.len() * TOKEN)?;
    let specials = added.iter().map(special).collect::<Result<Vec<_>>>()?;
    let vocab = model.get("vocab").ok_or_else(|| model.wrong("vocab", "an object"))?;
    assemble(vocab, &merges, &specials, &mut budget)
}

/// The merges of a model: `"a b"` or `["a", "b"]`.
pub(crate) fn merges<'a>(model: &Section<'a>, budget: &mut Budget) -> Result<Vec<SpelledPair<'a>>> {
    let owned = |(a, b): (&str, &str)| (a.to_string(), b.to_string());
    let mut pairs = Vec::new();
    for merge in model.list("merges")? {
        budget.charge(MERGE + 2 * merge.text().len())?;
        let pair = match (merge.string(), merge.items()) {
            (Some(line), _) if line.starts_with("#version") => continue,
            (Some(line), _) => pair_of_line(&line).map(owned),
            (None, Some(mut parts)) => {
                let mut next = || parts.next().map(|part| part.string());
                match (next(), next(), next()) {
                    (Some(Some(a)), Some(Some(b)), None) => Some((a, b)),
                    _ => None,
                }
            }
            (None, None) => None,
        };
        let (a, b) = pair.ok_or_else(|| {
            let (place, merge) = (model.place("merges"), quoted(merge.text()));
            Error::format(format!("{place}: expected two tokens, found {merge}"))
        })?;
        pairs.push((a.into(), b.into()));
    }
    Ok(pairs)
}

/// The merges of a `merges.txt`, one per line.
pub(crate) fn merge_lines<'a>(text: &'a [u8], budget: &mut Budget) -> Result<Vec<SpelledPair<'a>>> {
    let text = std::str::from_utf8(text).map_err(|e| Error::format(e.to_string()))?;
    let lines = text.lines().filter(|line| !line.starts_with("#version") && !line.is_empty());
    let pair = |line: &'a str| {
        budget.charge(MERGE + 2 * line.len())?;
        let (a, b) = pair_of_line(line).ok_or_else(|| {
            let line = quoted(line);
            Error::format(format!("expected two tokens separated by a space, found {line}"))
        })?;
        Ok((a.into(), b.into()))
    };
    lines.map(pair).collect()
}

/// `a b` as its two tokens.
pub(crate) fn pair_of_line(line: &str) -> Option<(&str, &str)> {
    line.split_once(' ').filter(|(_, b)| !b.contains(' '))
}

/// Calls `token` with the text and the number of each token of an object.
///
/// # Errors
/// If it is something else, or one of `token`.
pub(crate) fn tokens(
    vocab: Json,
    budget: &mut Budget,
    mut token: impl FnMut(String, u32) -> Result<()>,
) -> Result<()> {
    vocab.members(|text, id| {
        budget.charge(TOKEN + 4 * text.len())?;
        let number = id.number().and_then(|id| u32::try_from(id).ok());
        let number = number.filter(|id| *id < u32::MAX).ok_or_else(|| {
            let [text, id] = [&text, id.text()].map(quoted);
            Error::format(format!("the number of token {text} is {}", id.trim_matches('"')))
        })?;
        token(text, number)
    })
}

/// Makes a tokenizer of the parts of a file, and checks that they are consistent.
fn assemble(
    vocab: Json,
    merges: &[SpelledPair],
    specials: &[(u32, String)],
    budget: &mut Budget,
) -> Result<Bpe> {
    let bytes_of: HashMap<char, u8> = alphabet().into_iter().zip(0..=255).collect();
    // special tokens are spelled as they are, not in characters for bytes
    let mut named: HashMap<&str, u32> = HashMap::new();
    for (id, name) in specials {
        if name.is_empty() {
            return Err(Error::format(format!("special token {id} is empty")));
        }
        if let Some(other) = named.insert(name, *id) {
            let name = quoted(name);
            return Err(Error::format(format!("special tokens {other} and {id} are both {name}")));
        }
    }
    let mut entries: Vec<(u32, Vec<u8>)> =
        specials.iter().map(|(id, name)| (*id, name.as_bytes().to_vec())).collect();
    let mut ids: HashMap<String, u32> = HashMap::new();
    let mut specials = specials.to_vec();
    let token = |name: String, id| {
        if name.is_empty() {
            return Err(Error::format(format!("token {id} is empty")));
        }
        match named.get(name.as_str()) {
            Some(&other) if other == id => return Ok(()),
            Some(other) => {
                let name = quoted(&name);
                let text = format!("token {name} has the numbers {id} and {other}");
                return Err(Error::format(text));
            }
            None => {}
        }
        let spelled = name.chars().map(|c| bytes_of.get(&c).copied()).collect::<Option<_>>();
        let spelled = spelled.ok_or_else(|| {
            let name = quoted(&name);
            Error::format(format!("token {name} is not spelled in GPT-2's characters for bytes"))
        })?;
        entries.push((id, spelled));
        ids.insert(name, id);
        Ok(())
    };
    tokens(vocab, budget, token)
        .map_err(|e| e.note("in the vocabulary, a map from spellings to numbers"))?;
    entries.sort_unstable();
    let wrong = entries.iter().enumerate().find(|(i, (id, _))| *i != *id as usize);
    if let Some((i, (id, _))) = wrong {
        return Err(Error::format(format!(
            "{} tokens must have the numbers 0..={}, but {i} is missing or there are two of {id}",
            entries.len(),
            entries.len() - 1
        )));
    }
    let tokens: Vec<Vec<u8>> = entries.into_iter().map(|(_, bytes)| bytes).collect();
    let id = |name: &str| ids.get(name).copied();
    let mut bytes = [0; 256];
    for (byte, char) in alphabet().into_iter().enumerate() {
        bytes[byte] = id(char.encode_utf8(&mut [0; 4])).ok_or_else(|| {
            Error::format(format!(
                "byte {byte:#04x} has no token, so not every text could be encoded"
            ))
        })?;
    }
    let mut pairs: Vec<Pair> = Vec::with_capacity(merges.len());
    let mut ranks = HashMap::with_capacity(merges.len());
    for (rank, (a, b)) in merges.iter().enumerate() {
        let missing = |name: &str| {
            let [a, b, name] = [a, b, name].map(quoted);
            Error::format(format!(
                "merge {rank}, {a} with {b}, needs token {name}, which is not in the vocabulary"
            ))
        };
        let whole = format!("{a}{b}");
        let pair = (id(a).ok_or_else(|| missing(a))?, id(b).ok_or_else(|| missing(b))?);
        let token = id(&whole).ok_or_else(|| missing(&whole))?;
        if ranks.insert(pair, (rank as u32, token)).is_some() {
            let [a, b] = [a, b].map(|name| quoted(name));
            return Err(Error::format(format!("merge {rank}, {a} with {b}, is there twice")));
        }
        pairs.push(pair);
    }
    // GPT-2's vocab.json lists its special token among the others
    if let Some(&token) = ids.get(END_OF_TEXT) {
        specials.push((token, END_OF_TEXT.to_string()));
    }
    Ok(Bpe { tokens, bytes, merges: pairs, ranks, specials })
}

/// GPT-2's token between documents.
const END_OF_TEXT: &str = "<|endoftext|>";
