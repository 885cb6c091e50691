//! A [`Bpe`] as a file: Hugging Face's `tokenizer.json`, read and written, and GPT-2's `vocab.json`
//! with `merges.txt`, read.
//!
//! Tokens are spelled with GPT-2's printable characters for bytes. A file with options that this
//! tokenizer does not have (normalisers, other regular expressions) is an error that names the
//! option.

use super::{Bpe, Pair, alphabet};
use crate::json::Json;
use crate::names::{loading, of_file};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use teeny_core::context::enter;
use teeny_core::file::{self, Budget, quoted, replace, write_error};
use teeny_core::{Error, Result};

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
            let tokens = Json::parse(&tokens)?;
            let text = std::str::from_utf8(&text)
                .map_err(|_| Error::format(format!("{merges:?} is not UTF-8")))?;
            let lines =
                text.lines().filter(|line| !line.starts_with("#version") && !line.is_empty());
            let pairs = lines
                .map(|line| {
                    budget.charge(MERGE)?;
                    pair_of_line(line)
                })
                .collect::<Result<Vec<_>>>()?;
            assemble(tokens, &pairs, &[], &mut budget)
        };
        parse().map_err(|e| of_file(e, loading(vocab)))
    }
}

/// Memory for a token besides its spelling: in lists and maps, which grow.
pub(in crate::text) const TOKEN: usize = 320;

/// Memory for a merge besides its spellings.
pub(in crate::text) const MERGE: usize = 200;

/// A merge as the file spells its two tokens.
type SpelledPair<'a> = (Cow<'a, str>, Cow<'a, str>);

fn parse(bytes: &[u8]) -> Result<Bpe> {
    let mut budget = Budget::new(bytes.len());
    let file = Json::parse(bytes)?.object()?;
    let model = members(&file, "model")?;
    let pre_tokenizer = members(&file, "pre_tokenizer")?;
    let decoder = members(&file, "decoder")?;
    let kind = |object: &BTreeMap<String, Json>| object.get("type").and_then(|v| v.string());
    // the options that differ from this tokenizer
    let off = |object: &BTreeMap<String, Json>, name: &str| {
        let off = ["null", "false", "\"\"", "0", "0.0"];
        object.get(name).is_none_or(|value| off.contains(&value.text()))
    };
    let settings = [
        (
            "model.type is not BPE",
            !off(&model, "type") && kind(&model).is_none_or(|kind| kind != "BPE"),
        ),
        (
            "pre_tokenizer is not ByteLevel",
            kind(&pre_tokenizer).is_none_or(|kind| kind != "ByteLevel"),
        ),
        ("pre_tokenizer.add_prefix_space is on", !off(&pre_tokenizer, "add_prefix_space")),
        (
            "pre_tokenizer.use_regex is off",
            pre_tokenizer.get("use_regex").is_some_and(|value| value.text() == "false"),
        ),
        ("decoder is not ByteLevel", kind(&decoder).is_none_or(|kind| kind != "ByteLevel")),
        ("normalizer is set", !off(&file, "normalizer")),
        ("model.dropout is set", !off(&model, "dropout")),
        ("model.continuing_subword_prefix is set", !off(&model, "continuing_subword_prefix")),
        ("model.end_of_word_suffix is set", !off(&model, "end_of_word_suffix")),
        ("model.byte_fallback is on", !off(&model, "byte_fallback")),
        ("model.ignore_merges is on", !off(&model, "ignore_merges")),
    ];
    if let Some((setting, _)) = settings.iter().find(|(_, wrong)| *wrong) {
        return Err(Error::unsupported(format!(
            "{setting}; this reader knows byte-level BPE as in GPT-2"
        ))
        .help("text::PretrainedTokenizer (feature `pretrained`) reads all kinds"));
    }
    let merges =
        items(&model, "merges").ok_or_else(|| Error::format("model.merges is not a list"))?;
    let mut merge = |value: Json| -> Result<SpelledPair> {
        budget.charge(MERGE + 2 * value.text().len())?;
        let wrong = || Error::format(format!("{} is not a merge", quoted(value.text())));
        if let Some(line) = value.string() {
            let (a, b) = pair_of_line(&line)?;
            return Ok((a.into_owned().into(), b.into_owned().into()));
        }
        let parts = value.items().ok_or_else(wrong)?.take(3).map(|part| part.string());
        match parts.collect::<Option<Vec<_>>>().ok_or_else(wrong)?.as_slice() {
            [a, b] => Ok((a.clone().into(), b.clone().into())),
            _ => Err(wrong()),
        }
    };
    let merges = merges.into_iter().map(&mut merge).collect::<Result<Vec<_>>>()?;
    let mut special = |value: Json| -> Result<(u32, String)> {
        budget.charge(TOKEN + 4 * value.text().len())?;
        let wrong = || Error::format(format!("{} is not an added token", quoted(value.text())));
        let fields = value.object().map_err(|_| wrong())?;
        let name = fields.get("content").and_then(|name| name.string()).ok_or_else(wrong)?;
        Ok((number(*fields.get("id").ok_or_else(wrong)?, &name)?, name))
    };
    let added = items(&file, "added_tokens").unwrap_or_default();
    let specials = added.into_iter().map(&mut special).collect::<Result<Vec<_>>>()?;
    let vocab = model.get("vocab").ok_or_else(|| Error::format("there is no model.vocab"))?;
    assemble(*vocab, &merges, &specials, &mut budget)
}

/// The members of the object `name`; none if there is no such object.
fn members<'a>(
    file: &BTreeMap<String, Json<'a>>,
    name: &str,
) -> Result<BTreeMap<String, Json<'a>>> {
    match file.get(name).filter(|value| value.text() != "null") {
        Some(object) => object.object(),
        None => Ok(BTreeMap::new()),
    }
}

/// The items of the array `name`, if there is one.
fn items<'a>(object: &BTreeMap<String, Json<'a>>, name: &str) -> Option<Vec<Json<'a>>> {
    Some(object.get(name)?.items()?.collect())
}

fn number(value: Json, name: &str) -> Result<u32> {
    value.number().and_then(|id| u32::try_from(id).ok()).ok_or_else(|| {
        let text = quoted(value.text());
        Error::format(format!("the number of token {} is {}", quoted(name), text.trim_matches('"')))
    })
}

/// `a b` as the two spellings.
fn pair_of_line(line: &str) -> Result<SpelledPair<'_>> {
    let (a, b) = line.split_once(' ').ok_or_else(|| {
        let line = quoted(line);
        Error::format(format!("expected two tokens separated by a space, found {line}"))
    })?;
    Ok((a.into(), b.into()))
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
    vocab
        .members(|name, id| {
            budget.charge(TOKEN + 4 * name.len())?;
            let id = number(id, &name)?;
            if name.is_empty() {
                return Err(Error::format(format!("token {id} is empty")));
            }
            match named.get(name.as_str()) {
                Some(&other) if other == id => return Ok(()),
                Some(other) => {
                    return Err(Error::format(format!(
                        "token {} has the numbers {id} and {other}",
                        quoted(&name)
                    )));
                }
                None => {}
            }
            let spelled = name.chars().map(|c| bytes_of.get(&c).copied()).collect::<Option<_>>();
            let spelled = spelled.ok_or_else(|| {
                Error::format(format!(
                    "token {} is not spelled in GPT-2's characters for bytes",
                    quoted(&name)
                ))
            })?;
            entries.push((id, spelled));
            ids.insert(name, id);
            Ok(())
        })
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
