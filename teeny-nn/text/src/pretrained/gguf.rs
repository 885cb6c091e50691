//! Tokenizers from the metadata of GGUF files, as llama.cpp reads them.

mod write;

use super::Parts;
use super::added::{Added, AddedToken};
use super::decode::Decoder;
use super::folder::word_piece;
use super::model::{Bpe, Model, SentencePiece, Unigram, Vocab};
use super::normalize::{Bert, Normalizer};
use super::pattern::Pattern;
use super::precompiled::Precompiled;
use super::process::{Processor, Slot};
use super::read::{add_merge, pair_of_line};
use super::split::{Behavior, PreTokenizer, Prepend};
use std::collections::{BTreeMap, HashMap};
use teeny_core::file::quoted;
use teeny_core::{Error, Result};
use teeny_formats::gguf::Value;
pub(super) use write::write;

/// GPT-2's words.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// Llama 3's words.
const LLAMA3: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);

/// Qwen 2's words: as Llama 3's, with single digits.
const QWEN2: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);

/// GPT-4o's words.
const GPT4O: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);

/// The patterns of a name in `tokenizer.ggml.pre`, one after the other, and whether a word that is
/// a token is not split. Source: `src/llama-vocab.cpp` of llama.cpp.
const PATTERNS: [(&[&str], &[&str], bool); 5] = [
    (
        &[
            "gpt-2",
            "phi-2",
            "mpt",
            "olmo",
            "jais",
            "roberta-bpe",
            "jina-es",
            "jina-de",
            "jina-v2-es",
        ],
        &[GPT2],
        false,
    ),
    (&["smollm", "starcoder", "refact", "command-r", "codeshell"], &[r"\p{N}", GPT2], false),
    (&["llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral"], &[LLAMA3], true),
    (&["qwen2", "stablelm2", "deepseek-r1-qwen"], &[QWEN2], false),
    (&["gpt-4o", "llama4"], &[GPT4O], false),
];

/// The pattern of files without a name or with "default".
const DEFAULT: [&str; 4] = [
    r"[\p{P}\$\+<=>\^~\|]+",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
    r"\p{N}+",
    "[0-9][0-9][0-9]",
];

/// Kinds of tokens in `tokenizer.ggml.token_type`.
const NORMAL: u64 = 1;
const UNKNOWN: u64 = 2;
const CONTROL: u64 = 3;
const USER_DEFINED: u64 = 4;
const UNUSED: u64 = 5;
const BYTE: u64 = 6;

/// The tokenizer of a file with this metadata.
///
/// # Errors
/// If keys are missing or wrong, or the kind is not known.
pub(super) fn parse(metadata: &BTreeMap<String, Value>) -> Result<Parts> {
    let metadata = Metadata(metadata);
    let mut parts = match metadata.string("model")? {
        "gpt2" => metadata.gpt2(),
        "llama" => metadata.sentence_piece(),
        "bert" => metadata.bert(),
        "t5" => metadata.unigram(),
        other => Err(Error::unsupported(format!(
            "tokenizer.ggml.model is {}; this reader knows gpt2, llama, bert and t5",
            quoted(other)
        ))),
    }?;
    let id = |key: &str| {
        let id = metadata.get(&format!("{key}_token_id")).and_then(Value::as_u64);
        // files without a token have 2^32 - 1
        id.and_then(|id| u32::try_from(id).ok()).filter(|id| *id != u32::MAX)
    };
    // the key of the separator has this spelling
    let keys = ["bos", "eos", "unknown", "seperator", "padding", "cls", "mask"];
    for (special, key) in parts.specials.iter_mut().zip(keys) {
        *special = id(key).or(*special);
    }
    Ok(parts)
}

/// Texts of tokens that end a turn in files that name none for it.
const ENDS: [&str; 7] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|endoftext|>",
];

/// The tokens after which a text of the model ends: those that the file names, then control tokens
/// with a text that is usual for it.
pub fn end_tokens(metadata: &BTreeMap<String, Value>) -> Vec<u32> {
    let metadata = Metadata(metadata);
    let token = |name: &&str| metadata.get(&format!("{name}_token_id"))?.as_u64()?.try_into().ok();
    let mut ends: Vec<u32> = ["eos", "eot", "eom"].iter().filter_map(token).collect();
    let list = |key| metadata.get(key).and_then(Value::as_list).unwrap_or_default();
    for (id, (text, kind)) in (0..).zip(list("tokens").iter().zip(list("token_type"))) {
        let usual = text.as_str().is_some_and(|text| ENDS.contains(&text));
        if usual && kind.as_u64() == Some(CONTROL) && !ends.contains(&id) {
            ends.push(id);
        }
    }
    ends
}

/// The keys that begin with `tokenizer.ggml.`.
struct Metadata<'a>(&'a BTreeMap<String, Value>);

impl<'a> Metadata<'a> {
    fn get(&self, key: &str) -> Option<&'a Value> {
        self.0.get(&format!("tokenizer.ggml.{key}"))
    }

    fn wrong(&self, key: &str, expected: &str) -> Error {
        let state = if self.get(key).is_some() { "is something else" } else { "is missing" };
        Error::format(format!("tokenizer.ggml.{key} {state}: expected {expected}"))
    }

    fn string(&self, key: &str) -> Result<&'a str> {
        self.get(key).and_then(Value::as_str).ok_or_else(|| self.wrong(key, "a text"))
    }

    fn list(&self, key: &str, expected: &str) -> Result<&'a [Value]> {
        self.get(key).and_then(Value::as_list).ok_or_else(|| self.wrong(key, expected))
    }

    fn flag(&self, key: &str, default: bool) -> bool {
        self.get(key).and_then(Value::as_bool).unwrap_or(default)
    }

    /// The texts of all tokens.
    fn tokens(&self) -> Result<Vec<&'a str>> {
        let list = self.list("tokens", "a list of texts")?.iter().map(Value::as_str);
        let tokens = list.collect::<Option<Vec<_>>>();
        tokens.ok_or_else(|| self.wrong("tokens", "a list of texts"))
    }

    /// The kind of each of `count` tokens; none is special if the file has no kinds.
    fn kinds(&self, count: usize) -> Result<Vec<u64>> {
        if self.get("token_type").is_none() {
            return Ok(vec![NORMAL; count]);
        }
        let list = self.list("token_type", "a list of numbers")?.iter().map(Value::as_u64);
        let kinds = list.collect::<Option<Vec<_>>>().filter(|kinds| kinds.len() == count);
        kinds.ok_or_else(|| self.wrong("token_type", &format!("{count} numbers")))
    }

    /// The vocabulary, and the tokens that are found in a text before it is split.
    fn vocab(&self) -> Result<(Vocab, Vec<AddedToken>)> {
        let tokens = self.tokens()?;
        let kinds = self.kinds(tokens.len())?;
        let (mut vocab, mut added) = (Vocab::default(), Vec::new());
        for ((id, text), kind) in (0..).zip(&tokens).zip(kinds) {
            vocab.insert(text, id);
            if [UNKNOWN, CONTROL, USER_DEFINED].contains(&kind) && !text.is_empty() {
                let special = kind != USER_DEFINED;
                added.push(AddedToken { special, ..AddedToken::special(id, text) });
            }
        }
        Ok((vocab, added))
    }

    /// Beginning and end around a text, as the file says.
    fn around(&self, add_bos: bool, add_eos: bool) -> Result<Option<Processor>> {
        let token = |flag: &str, default: bool, key: &str| -> Result<Vec<u32>> {
            if !self.flag(flag, default) {
                return Ok(vec![]);
            }
            let id = self.get(key).and_then(Value::as_u64).and_then(|id| u32::try_from(id).ok());
            Ok(vec![id.ok_or_else(|| self.wrong(key, "a token"))?])
        };
        let bos = token("add_bos_token", add_bos, "bos_token_id")?;
        let eos = token("add_eos_token", add_eos, "eos_token_id")?;
        let text = |i: usize| {
            let slot = |id: &u32| Slot::Token(*id, i as u32);
            let begin = bos.iter().map(slot).chain([Slot::Text(i, Some(i as u32))]);
            begin.chain(eos.iter().map(slot)).collect::<Vec<Slot>>()
        };
        let (single, pair) = (text(0), [text(0), text(1)].concat());
        Ok(Some(Processor::Template { single, pair }))
    }

    fn gpt2(&self) -> Result<Parts> {
        let (vocab, added) = self.vocab()?;
        let mut ranks = HashMap::new();
        let expected = "a list of texts with two tokens";
        for (rank, merge) in (0..).zip(self.list("merges", expected)?) {
            let pair = merge.as_str().and_then(pair_of_line);
            let pair = pair.ok_or_else(|| self.wrong("merges", expected))?;
            add_merge(&mut ranks, &vocab, rank, pair, "")
                .map_err(|e| e.note("in tokenizer.ggml.merges"))?;
        }
        let name = match self.get("pre") {
            Some(_) => self.string("pre")?,
            None => "default",
        };
        let known = PATTERNS.iter().find(|(names, ..)| names.contains(&name));
        let (patterns, ignore_merges): (&[&str], bool) = match known {
            Some((_, patterns, ignore_merges)) => (patterns, *ignore_merges),
            None if name == "default" => (&DEFAULT, false),
            None => {
                let names: Vec<&str> =
                    PATTERNS.iter().flat_map(|(names, ..)| names.iter().copied()).collect();
                return Err(Error::unsupported(format!(
                    "tokenizer.ggml.pre is {}, whose pattern is not known",
                    quoted(name)
                ))
                .note(format!("known: {}, default", names.join(", ")))
                .help(
                    "PretrainedTokenizer::open reads the pattern in the model's tokenizer.json",
                ));
            }
        };
        let memory = &mut 0;
        let mut steps = Vec::new();
        for pattern in patterns {
            if *pattern == GPT2 {
                steps.push(PreTokenizer::ByteLevel { add_prefix_space: false, use_regex: true });
                continue;
            }
            steps.push(PreTokenizer::Split {
                pattern: Pattern::new(pattern, memory)?,
                behavior: Behavior::Isolated,
                invert: false,
            });
        }
        if patterns.last() != Some(&GPT2) {
            steps.push(PreTokenizer::ByteLevel { add_prefix_space: false, use_regex: false });
        }
        let model = Model::Bpe(Box::new(Bpe { ranks, ignore_merges, ..Bpe::default() }));
        Ok(Parts {
            pre_tokenizer: Some(PreTokenizer::Sequence(steps)),
            processor: self.around(name.starts_with("llama"), false)?,
            decoder: Some(Decoder::ByteLevel),
            ..Parts::new(vocab, model, Added::new(added, None)?)
        })
    }

    /// The score of each token, and the token of unknown text.
    fn scores(&self, vocab: &Vocab) -> Result<(Vec<f64>, Option<u32>)> {
        let scores = self.list("scores", "a list of numbers")?.iter().map(Value::as_f64);
        let scores = scores.collect::<Option<Vec<f64>>>();
        let scores =
            scores.filter(|scores| scores.len() == vocab.last().map_or(0, |n| n as usize + 1));
        let scores = scores.ok_or_else(|| self.wrong("scores", "a number for each token"))?;
        let id = self.get("unknown_token_id").and_then(Value::as_u64);
        let unknown = id.and_then(|id| u32::try_from(id).ok());
        let unknown = unknown.filter(|id| vocab.text(*id).is_some());
        let unknown = unknown.or_else(|| vocab.id("<unk>"));
        Ok((scores, unknown))
    }

    /// Unigrams, whose words begin with `▁`.
    fn unigram(&self) -> Result<Parts> {
        let (vocab, added) = self.vocab()?;
        let (scores, unknown) = self.scores(&vocab)?;
        let table = match self.get("precompiled_charsmap") {
            Some(_) => {
                let bytes = self.list("precompiled_charsmap", "a list of bytes")?.iter();
                let bytes = bytes.map(|byte| u8::try_from(byte.as_u64()?).ok()).collect();
                let bytes: Option<Vec<u8>> = bytes;
                let wrong = || self.wrong("precompiled_charsmap", "a list of bytes");
                Some(Normalizer::Precompiled(Precompiled::new(&bytes.ok_or_else(wrong)?)?))
            }
            None => None,
        };
        if self.flag("treat_whitespace_as_suffix", false) {
            return Err(self.wrong("treat_whitespace_as_suffix", "false"));
        }
        let model = Model::Unigram(Unigram::new(&vocab, scores, unknown, false));
        let merged = self.flag("remove_extra_whitespaces", false);
        let begins = merged || self.flag("add_space_prefix", false);
        let prepend = if begins { Prepend::Always } else { Prepend::Never };
        let spaces = PreTokenizer::Metaspace { replacement: '▁', prepend, split: merged };
        let words = merged.then_some(PreTokenizer::Delimiter(' '));
        Ok(Parts {
            normalizer: table,
            pre_tokenizer: Some(PreTokenizer::Sequence(
                words.into_iter().chain([spaces]).collect(),
            )),
            processor: self.around(false, true)?,
            decoder: Some(Decoder::Metaspace { replacement: '▁', omit_first: begins }),
            ..Parts::new(vocab, model, Added::new(added, None)?)
        })
    }

    fn sentence_piece(&self) -> Result<Parts> {
        let (vocab, added) = self.vocab()?;
        let (scores, unknown) = self.scores(&vocab)?;
        let mut order: Vec<u32> = (0..scores.len() as u32).collect();
        order.sort_by(|a, b| scores[*b as usize].total_cmp(&scores[*a as usize]));
        let mut ranks = HashMap::new();
        for same in order.chunk_by(|a, b| scores[*a as usize] == scores[*b as usize]) {
            let rank = ranks.len() as u32;
            ranks.extend(same.iter().map(|id| (*id, rank)));
        }
        let model = SentencePiece { ranks, unknown, bytes: vocab.byte_tokens() };
        let prefix = self.flag("add_space_prefix", true);
        let mut normalizers = Vec::new();
        if prefix {
            normalizers.push(Normalizer::Prepend("▁".to_string()));
        }
        normalizers.push(Normalizer::Replace(Pattern::literal(" ", &mut 0)?, "▁".to_string()));
        Ok(Parts {
            normalizer: Some(Normalizer::Sequence(normalizers)),
            processor: self.around(true, false)?,
            decoder: Some(Decoder::sentence_piece(prefix)?),
            ..Parts::new(vocab, Model::SentencePiece(model), Added::new(added, None)?)
        })
    }

    /// Tokens that begin a word are spelled with `▁` here, others without `##`.
    fn bert(&self) -> Result<Parts> {
        let tokens = self.tokens()?;
        let kinds = self.kinds(tokens.len())?;
        let (mut vocab, mut specials) = (Vocab::default(), Vec::new());
        let mut cased = false;
        for ((id, text), kind) in (0..).zip(tokens).zip(kinds) {
            let bracketed = text.starts_with('[') && text.ends_with(']') && text.len() > 2;
            if [UNKNOWN, CONTROL, USER_DEFINED].contains(&kind) || bracketed {
                vocab.insert(text, id);
                specials.push(AddedToken::special(id, text));
                continue;
            }
            // letters such as ℝ are capital, but have no small form
            cased |= text.chars().any(|c| !c.to_lowercase().eq([c]));
            match text.strip_prefix('▁') {
                Some(word) => vocab.insert(word, id),
                None => vocab.insert(&format!("##{text}"), id),
            }
        }
        word_piece(vocab, Bert::new(!cased), |_| specials)
    }
}
