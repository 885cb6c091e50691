//! A [`Bpe`] as a file: Hugging Face's `tokenizer.json`, read and written, and GPT-2's `vocab.json`
//! with `merges.txt`, read.
//!
//! Tokens are spelled with GPT-2's printable characters for bytes. A file with options that this
//! tokenizer does not have (normalisers, other regular expressions) is an error that names the
//! option.

use super::{Bpe, Pair, alphabet};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::fs;
use std::path::Path;
use teeny_core::file::replace;
use teeny_core::{Error, Result};

impl Bpe {
    /// Writes `tokenizer.json`, which Hugging Face's `tokenizers` reads too, atomically: the old
    /// file stays until the new one is complete.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
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
        replace(path.as_ref(), |file| {
            serde_json::to_writer(file, &content)
                .map_err(|e| Error::io(format!("cannot write: {e}")))
        })
    }

    /// Reads a `tokenizer.json` of a byte-level BPE with GPT-2's words.
    ///
    /// # Errors
    /// If the file cannot be read, is damaged, or describes another kind of tokenizer: the error
    /// names the option.
    pub fn load(path: impl AsRef<Path>) -> Result<Bpe> {
        let path = path.as_ref();
        read(path)
            .and_then(|bytes| parse(&bytes))
            .map_err(|e| e.named(format!("load {:?}", path.display().to_string())))
    }

    /// Reads GPT-2's two files: token numbers by spelling, and merges one per line.
    ///
    /// # Errors
    /// If a file cannot be read or is damaged.
    pub fn load_gpt2(vocab: impl AsRef<Path>, merges: impl AsRef<Path>) -> Result<Bpe> {
        let (vocab, merges) = (vocab.as_ref(), merges.as_ref());
        let parse = || {
            let tokens: Value = serde_json::from_slice(&read(vocab)?)
                .map_err(|e| Error::format(format!("{vocab:?} is not JSON: {e}")))?;
            let text = String::from_utf8(read(merges)?)
                .map_err(|_| Error::format(format!("{merges:?} is not UTF-8")))?;
            let lines =
                text.lines().filter(|line| !line.starts_with("#version") && !line.is_empty());
            let pairs = lines.map(pair_of_line).collect::<Result<Vec<_>>>()?;
            assemble(object(&tokens, "the vocabulary")?, &pairs, &[])
        };
        parse().map_err(|e| e.named(format!("load {:?}", vocab.display().to_string())))
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|e| Error::io(format!("cannot read {path:?}: {e}")))
}

fn parse(bytes: &[u8]) -> Result<Bpe> {
    let file: Value =
        serde_json::from_slice(bytes).map_err(|e| Error::format(format!("not JSON: {e}")))?;
    let model = &file["model"];
    // the options that differ from this tokenizer
    let off = |value: &Value| {
        matches!(value, Value::Null | Value::Bool(false)) || value == "" || value == 0.0
    };
    let pre_tokenizer = &file["pre_tokenizer"];
    let settings = [
        ("model.type is not BPE", model["type"] != "BPE" && !model["type"].is_null()),
        ("pre_tokenizer is not ByteLevel", pre_tokenizer["type"] != "ByteLevel"),
        ("pre_tokenizer.add_prefix_space is on", !off(&pre_tokenizer["add_prefix_space"])),
        ("pre_tokenizer.use_regex is off", pre_tokenizer["use_regex"] == false),
        ("decoder is not ByteLevel", file["decoder"]["type"] != "ByteLevel"),
        ("normalizer is set", !off(&file["normalizer"])),
        ("model.dropout is set", !off(&model["dropout"])),
        ("model.continuing_subword_prefix is set", !off(&model["continuing_subword_prefix"])),
        ("model.end_of_word_suffix is set", !off(&model["end_of_word_suffix"])),
        ("model.byte_fallback is on", !off(&model["byte_fallback"])),
        ("model.ignore_merges is on", !off(&model["ignore_merges"])),
    ];
    if let Some((setting, _)) = settings.iter().find(|(_, wrong)| *wrong) {
        return Err(Error::unsupported(format!(
            "{setting}; this reader knows byte-level BPE as in GPT-2"
        ))
        .help("text::HuggingFace (feature `tokenizers`) reads every kind of tokenizer.json"));
    }
    let merges =
        model["merges"].as_array().ok_or_else(|| Error::format("model.merges is no list"))?;
    let merge = |value: &Value| match value {
        Value::String(line) => pair_of_line(line),
        Value::Array(parts) => match parts.as_slice() {
            [Value::String(a), Value::String(b)] => Ok((a.clone(), b.clone())),
            _ => Err(Error::format(format!("{value} is no merge"))),
        },
        _ => Err(Error::format(format!("{value} is no merge"))),
    };
    let merges = merges.iter().map(merge).collect::<Result<Vec<_>>>()?;
    let added = file["added_tokens"].as_array().map(Vec::as_slice).unwrap_or_default();
    let special = |value: &Value| {
        let name = value["content"]
            .as_str()
            .ok_or_else(|| Error::format(format!("{value} is no added token")))?;
        Ok((number(&value["id"], name)?, name.to_string()))
    };
    assemble(
        object(&model["vocab"], "model.vocab")?,
        &merges,
        &added.iter().map(special).collect::<Result<Vec<_>>>()?,
    )
}

fn object<'a>(value: &'a Value, what: &str) -> Result<&'a Map<String, Value>> {
    value
        .as_object()
        .ok_or_else(|| Error::format(format!("{what} is no map from spellings to numbers")))
}

fn number(value: &Value, name: &str) -> Result<u32> {
    value
        .as_u64()
        .and_then(|id| u32::try_from(id).ok())
        .ok_or_else(|| Error::format(format!("the number of token {name:?} is {value}")))
}

/// `a b` as the two spellings.
fn pair_of_line(line: &str) -> Result<(String, String)> {
    let (a, b) = line.split_once(' ').ok_or_else(|| {
        Error::format(format!("{line:?} is no merge: two tokens with a space between them"))
    })?;
    Ok((a.to_string(), b.to_string()))
}

/// Makes a tokenizer of the parts of a file, and checks that they are consistent.
fn assemble(
    vocab: &Map<String, Value>,
    merges: &[(String, String)],
    specials: &[(u32, String)],
) -> Result<Bpe> {
    let bytes_of: HashMap<char, u8> = alphabet().into_iter().zip(0..=255).collect();
    // special tokens are spelled as they are, not in characters for bytes
    let named: HashMap<&str, u32> =
        specials.iter().map(|(id, name)| (name.as_str(), *id)).collect();
    let mut entries: Vec<(u32, Vec<u8>)> =
        specials.iter().map(|(id, name)| (*id, name.as_bytes().to_vec())).collect();
    let mut ids: HashMap<&str, u32> = HashMap::new();
    let mut specials = specials.to_vec();
    for (name, id) in vocab {
        let id = number(id, name)?;
        match named.get(name.as_str()) {
            Some(&other) if other == id => continue,
            Some(other) => {
                return Err(Error::format(format!(
                    "token {name:?} has the numbers {id} and {other}"
                )));
            }
            None => {}
        }
        let spelled: Option<Vec<u8>> = name.chars().map(|c| bytes_of.get(&c).copied()).collect();
        entries.push((
            id,
            spelled.ok_or_else(|| {
                Error::format(format!(
                    "token {name:?} is not spelled in GPT-2's characters for bytes"
                ))
            })?,
        ));
        ids.insert(name, id);
    }
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
            Error::format(format!(
                "merge {rank}, {a:?} with {b:?}, needs token {name:?}, \
                 which is not in the vocabulary"
            ))
        };
        let whole = format!("{a}{b}");
        let pair = (id(a).ok_or_else(|| missing(a))?, id(b).ok_or_else(|| missing(b))?);
        let token = id(&whole).ok_or_else(|| missing(&whole))?;
        if ranks.insert(pair, (rank as u32, token)).is_some() {
            return Err(Error::format(format!("merge {rank}, {a:?} with {b:?}, is there twice")));
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
