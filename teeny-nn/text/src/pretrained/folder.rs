//! The files of a tokenizer in a folder of Hugging Face.

use super::added::{Added, AddedToken};
use super::decode::Decoder;
use super::model::{Bpe, Model, Vocab, WordPiece};
use super::normalize::{Bert, Normalizer};
use super::process::Processor;
use super::read::{TOKEN, add_merge, parse, vocab_of};
use super::split::{PreTokenizer, Prepend};
use super::{Parts, PretrainedTokenizer};
use crate::bpe::merge_lines;
use crate::section::Section;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use teeny_core::file::{self, Budget};
use teeny_core::{Error, Result};
use teeny_formats::Gguf;
use teeny_formats::json::Json;
use teeny_formats::keys;
use teeny_formats::names::{loading, of_file};

/// Opens a file or a folder.
///
/// # Errors
/// As [`PretrainedTokenizer::open`].
pub(super) fn open(path: &Path) -> Result<PretrainedTokenizer> {
    let found;
    let path = match path.extension().is_some_and(|extension| extension == "json") {
        true => path,
        false => {
            found = teeny_formats::resolve_path(path)?;
            &found
        }
    };
    if teeny_formats::is_gguf(path) {
        return PretrainedTokenizer::from_gguf(&Gguf::open(path)?);
    }
    let folder = if path.is_dir() { path } else { path.parent().unwrap_or(Path::new("")) };
    let mut config = Config::read(folder)?;
    let there = |name: &str| path.is_dir() && path.join(name).is_file();
    let mut parts = if !path.is_dir() || there("tokenizer.json") {
        let path = if path.is_dir() { path.join("tokenizer.json") } else { path.to_path_buf() };
        file::read(&path)
            .and_then(|bytes| parse(&bytes).map_err(|e| pointer(&bytes).unwrap_or(e)))
            .map_err(|e| of_file(e, loading(&path)))?
    } else if there("vocab.json") && there("merges.txt") {
        gpt2(path, &config)?
    } else if there("vocab.txt") {
        bert(&path.join("vocab.txt"), &config)?
    } else {
        let names = "tokenizer.json, vocab.json with merges.txt, or vocab.txt";
        let error = Error::value(format!("the folder has no tokenizer: {names}"));
        let help = "tokenizer.model alone is read by transformers, which saves tokenizer.json; \
                    the vocabulary of a .gguf file by its path";
        return Err(error.help(help).named(loading(path)));
    };
    if !path.is_dir() || there("tokenizer.json") {
        config.change(folder, &mut parts)?;
    }
    config.add_tokens(&mut parts).map_err(|e| of_file(e, loading(path)))?;
    config.apply(&mut parts);
    Ok(PretrainedTokenizer(Arc::new(parts)))
}

/// The texts of the special tokens that the files of `folder` name, by their role, such as
/// `bos_token`.
///
/// # Errors
/// If a file is damaged.
pub fn special_tokens(folder: &Path) -> Result<Vec<(String, String)>> {
    let config = Config::read(folder)?;
    let others = config.special.into_iter().map(|(name, token)| (name, token.content));
    let mut tokens: Vec<_> = others.chain(config.named).collect();
    tokens.sort_unstable();
    Ok(tokens)
}

/// The special token `value` of the member `key`: a text, or an added token.
fn special(file: &Section, key: &str, value: Json<'_>) -> Result<AddedToken> {
    if let Some(text) = value.string() {
        return Ok(AddedToken::special(0, &text));
    }
    let token = Section::root(value).map_err(|_| file.wrong(key, "a text or an added token"))?;
    Ok(AddedToken { special: true, ..AddedToken::numbered(&token, 0)? })
}

/// The error of a file that Git LFS has not downloaded.
fn pointer(bytes: &[u8]) -> Option<Error> {
    bytes.starts_with(b"version https://git-lfs").then(|| {
        Error::format("it is a pointer of Git LFS, not the file")
            .help("`git lfs pull` in the folder downloads the file")
    })
}

/// The special tokens and options that the files beside the tokenizer give.
#[derive(Debug, Default)]
struct Config {
    lowercase: Option<bool>,
    strip_accents: Option<bool>,
    tokenize_chinese_chars: Option<bool>,
    class: String,
    max_length: Option<usize>,
    add_prefix_space: Option<bool>,
    legacy: Option<bool>,
    /// Added tokens, and whether they come from the older `added_tokens.json`.
    tokens: Vec<AddedToken>,
    are_old: bool,
    /// Special tokens by their key, which are added if they are not.
    special: BTreeMap<String, AddedToken>,
    /// Special tokens without a role.
    extra: Vec<AddedToken>,
    /// Names and texts of special tokens of this model alone.
    named: Vec<(String, String)>,
    /// Keys that are not known.
    notes: Vec<String>,
}

/// Classes of transformers that make a tokenizer from the vocabulary of its file alone, with their
/// special tokens by role.
const CLASSES: [(&str, &str); 4] = [
    ("BertTokenizer", "unk_ [UNK] sep_ [SEP] pad_ [PAD] cls_ [CLS] mask_ [MASK]"),
    ("LlamaTokenizer", "bos_ <s> eos_ </s> unk_ <unk>"),
    ("GPT2Tokenizer", "bos_ <|endoftext|> eos_ <|endoftext|> unk_ <|endoftext|>"),
    (
        "RobertaTokenizer XLMRobertaTokenizer",
        "bos_ <s> eos_ </s> unk_ <unk> sep_ </s> pad_ <pad> cls_ <s> mask_ <mask>",
    ),
];

/// Models whose `tokenizer_config.json` names a class that AutoTokenizer does not take.
const CLASSLESS: &str = "arctic chatlm ernie4_5 ernie4_5_moe fuyu h2ovl_chat hyperclovax internlm2 \
    internlm3 jamba llava llava_next minicpm3 minicpmv minimax_m2 ministral ministral3 mistral \
    mistral3 molmo nemotron openvla phi3 phi3_v phimoe smolvlm vipllava";

/// In the order of [`super::Specials`], in which they are added.
const ROLES: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

impl Config {
    /// Reads `special_tokens_map.json` and `tokenizer_config.json`, whose values win.
    fn read(folder: &Path) -> Result<Config> {
        let mut config = Config::default();
        for name in ["special_tokens_map.json", "tokenizer_config.json", "added_tokens.json"] {
            let path = folder.join(name);
            // the older file, which the newer key replaces
            let is_old = name == "added_tokens.json";
            if path.is_file() && (!is_old || config.tokens.is_empty()) {
                file::read(&path)
                    .and_then(|bytes| match is_old {
                        true => config.add_old(&bytes),
                        false => config.add(&bytes),
                    })
                    .map_err(|e| of_file(e, loading(&path)))?;
            }
        }
        Ok(config)
    }

    /// Adds the tokens of an `added_tokens.json`: their numbers by their texts.
    fn add_old(&mut self, bytes: &[u8]) -> Result<()> {
        let file = Section::root(Json::parse(bytes)?)?;
        for text in file.keys() {
            let id = file.number(text)?.and_then(|id| u32::try_from(id).ok());
            let id = id.ok_or_else(|| file.wrong(text, "the number of a token"))?;
            let mut named = self.special.values().chain(&self.extra);
            let special = named.any(|token| token.content == text);
            let token = AddedToken::special(id, text);
            self.tokens.push(AddedToken { normalized: !special, special, ..token });
        }
        self.tokens.sort_by_key(|token| token.id);
        self.are_old = true;
        Ok(())
    }

    fn add(&mut self, bytes: &[u8]) -> Result<()> {
        let file = Section::root(Json::parse(bytes)?)?;
        let is_token = |key: &&str| key.ends_with("_token") && !key.starts_with("add_");
        for key in file.keys().filter(is_token) {
            let is_text = |value: &Json<'_>| value.text().starts_with(['{', '"']);
            let is_given = |value: &Json<'_>| ROLES.contains(&key) && value.text() != "null";
            if let Some(value) = file.get(key).filter(|value| is_text(value) || is_given(value)) {
                self.special.insert(key.to_string(), special(&file, key, value)?);
            }
        }
        let extra = ["extra_special_tokens", "additional_special_tokens"];
        if let Some(key) = extra.into_iter().find(|key| file.get(key).is_some()) {
            self.extra = match file.get(key).filter(|value| value.text().starts_with('{')) {
                Some(named) => {
                    let all = named.object()?;
                    let text = |(name, value)| Ok((name, special(&file, key, value)?.content));
                    self.named = all.clone().into_iter().map(text).collect::<Result<_>>()?;
                    all.into_values().collect()
                }
                None => file.list(key)?,
            }
            .into_iter()
            .map(|value| special(&file, key, value))
            .collect::<Result<_>>()?;
        }
        if let Some(tokens) = file.section("added_tokens_decoder")? {
            self.tokens.clear();
            for key in tokens.keys() {
                let id = || key.parse().map_err(|_| tokens.wrong(key, "a number as its name"));
                if let Some(token) = tokens.section(key)? {
                    self.tokens.push(AddedToken::numbered(&token, id()?)?);
                }
            }
            self.tokens.sort_by_key(|token| token.id);
        }
        for (key, flag) in [
            ("add_prefix_space", &mut self.add_prefix_space),
            ("legacy", &mut self.legacy),
            ("do_lower_case", &mut self.lowercase),
            ("strip_accents", &mut self.strip_accents),
            ("tokenize_chinese_chars", &mut self.tokenize_chinese_chars),
        ] {
            if file.get(key).is_some() {
                *flag = Some(file.flag(key, true)?);
            }
        }
        if let Some(class) = file.get("tokenizer_class").and_then(|class| class.string()) {
            self.class = class;
        }
        // 10^30 stands for no limit
        let length = file.get("model_max_length").and_then(|value| value.number());
        self.max_length = self.max_length.or(length.and_then(|n| usize::try_from(n).ok()));
        let value =
            |key: &str| Some(serde_json::from_str(file.get(key)?.text()).unwrap_or_default());
        if let Some(text) = keys::refused(&["tokenizer-config"], &[], value) {
            return Err(Error::unsupported(text).help("use another tokenizer, or remove the key"));
        }
        self.notes.extend(file.unread("tokenizer-config"));
        Ok(())
    }

    fn name(&self, role: &str, default: &str) -> String {
        self.special.get(role).map_or(default, |token| &token.content).to_string()
    }

    /// Adds the tokens of the files to `parts`, numbered as by the crate `tokenizers`.
    fn add_tokens(&self, parts: &mut Parts) -> Result<()> {
        let own = std::mem::take(&mut parts.added);
        // tokenizer.json wins over the older file
        let is_kept = |token: &&AddedToken| !self.are_old || own.get(token.id).is_none();
        let listed: Vec<_> = self.tokens.iter().filter(is_kept).collect();
        let has_class = self.defaults().is_some();
        let mut all = match has_class && !self.are_old && !listed.is_empty() {
            true => Vec::new(), // the class makes its vocabulary anew
            false => own.tokens().to_vec(),
        };
        let last = all.iter().map(|token| token.id).max();
        let mut next = parts.vocab.last().max(last).map_or(0, |id| id + 1);
        let usual = self.defaults().unwrap_or_default();
        let usual = |role: &str| {
            let mut words = usual.split(' ').skip_while(|word| !role.starts_with(word));
            words.nth(1).map(|text| AddedToken::special(0, text))
        };
        let named = ROLES.iter().map(|role| self.special.get(*role).cloned().or(usual(role)));
        let others = self.special.iter().filter(|(key, _)| !ROLES.contains(&key.as_str()));
        let others = others.map(|(_, token)| token.clone());
        let named = named.flatten().chain(others).chain(self.extra.iter().cloned());
        let mut add = |all: &mut Vec<AddedToken>, token: AddedToken| match all
            .iter_mut()
            .find(|other| other.content == token.content)
        {
            Some(other) => *other = AddedToken { id: other.id, ..token },
            None if token.content.is_empty() => {}
            None => {
                let id = parts.vocab.id(&token.content).unwrap_or(next);
                next = next.max(id.saturating_add(1));
                all.push(AddedToken { id, ..token });
            }
        };
        listed.into_iter().for_each(|token| add(&mut all, token.clone()));
        let known: HashSet<String> = all.iter().map(|token| token.content.clone()).collect();
        let named = named.filter(|token| !known.contains(&token.content));
        named.for_each(|token| add(&mut all, token));
        parts.added = Added::new(all, parts.normalizer.as_ref())?;
        Ok(())
    }

    /// The special tokens of the class, if it is one that makes its parts itself.
    fn defaults(&self) -> Option<&'static str> {
        let class = self.class.trim_end_matches("Fast");
        let row = CLASSES.iter().find(|(names, _)| names.split(' ').any(|name| name == class));
        row.map(|(_, tokens)| *tokens)
    }

    /// BERT's changes of a text.
    fn bert(&self) -> Bert {
        let usual = Bert::new(self.lowercase.unwrap_or(true));
        Bert {
            strip_accents: self.strip_accents.unwrap_or(usual.strip_accents),
            handle_chinese_chars: self.tokenize_chinese_chars.unwrap_or(true),
            ..usual
        }
    }

    /// Changes the parts of the `tokenizer.json` of `folder` that the class of the tokenizer makes
    /// itself, as in transformers 5.
    fn change(&mut self, folder: &Path, parts: &mut Parts) -> Result<()> {
        let in_bytes = parts.pre_tokenizer.as_ref().is_some_and(PreTokenizer::ends_in_bytes);
        // only a known class depends on the model
        let model = self.defaults().and_then(|_| teeny_formats::config::Config::open(folder).ok());
        let model = model.as_ref().and_then(|model| model.text("model_type").ok()?);
        let is_llama = self.class.starts_with("LlamaTokenizer");
        if model.is_some_and(|name| CLASSLESS.split(' ').any(|own| own == name))
            || is_llama && in_bytes
        {
            self.class = String::new();
        }
        let prefixed = self.add_prefix_space.unwrap_or(true);
        let metaspace = |legacy: bool, split| PreTokenizer::Metaspace {
            replacement: '▁',
            prepend: match prefixed {
                true if legacy => Prepend::Always,
                true => Prepend::First,
                false => Prepend::Never,
            },
            split,
        };
        match (self.class.trim_end_matches("Fast"), &mut parts.normalizer, &mut parts.pre_tokenizer)
        {
            ("BertTokenizer", Some(Normalizer::Bert(bert)), _) => *bert = self.bert(),
            (
                "GPT2Tokenizer" | "RobertaTokenizer",
                _,
                Some(PreTokenizer::ByteLevel { add_prefix_space, .. }),
            ) => *add_prefix_space = self.add_prefix_space.unwrap_or(false),
            ("LlamaTokenizer", normalizer, words) => {
                *normalizer = None;
                *words = Some(metaspace(self.legacy.unwrap_or(false), false));
                parts.decoder = Some(Decoder::sentence_piece(prefixed)?);
                if let Model::Bpe(bpe) = &mut parts.model {
                    (bpe.unknown, bpe.fuse_unknown, bpe.ignore_merges) = (None, true, false);
                    bpe.bytes = Some(parts.vocab.byte_tokens());
                }
            }
            ("XLMRobertaTokenizer", normalizer, words) => {
                let steps = match normalizer.take() {
                    Some(Normalizer::Sequence(steps)) => steps,
                    one => one.into_iter().collect(),
                };
                let is_table = |step: &Normalizer| matches!(step, Normalizer::Precompiled(_));
                *normalizer = steps.into_iter().find(is_table);
                let steps = vec![PreTokenizer::WhitespaceSplit, metaspace(true, true)];
                *words = Some(PreTokenizer::Sequence(steps));
                parts.decoder =
                    Some(Decoder::Metaspace { replacement: '▁', omit_first: prefixed });
            }
            _ => {}
        }
        Ok(())
    }

    /// Sets the special tokens of `parts`.
    fn apply(&self, parts: &mut Parts) {
        let id = |role: &str| {
            let name = &self.special.get(role)?.content;
            parts.added.id(name).or_else(|| parts.vocab.id(name))
        };
        let all = ROLES.map(id).into_iter();
        let all: Vec<_> = all.zip(parts.specials).map(|(own, old)| own.or(old)).collect();
        parts.specials.copy_from_slice(&all);
        parts.max_length = parts.max_length.or(self.max_length);
        parts.notes.extend(self.notes.iter().cloned());
    }

    /// The special tokens that `vocab` has.
    fn added(&self, vocab: &Vocab, defaults: &[&str]) -> Vec<AddedToken> {
        let own = ROLES.iter().filter_map(|role| Some(&self.special.get(*role)?.content[..]));
        let mut names: Vec<&str> = own.chain(defaults.iter().copied()).collect();
        names.sort_unstable();
        names.dedup();
        let token = |name: &str| Some(AddedToken::special(vocab.id(name)?, name));
        names.into_iter().filter(|name| !name.is_empty()).filter_map(token).collect()
    }
}

/// A byte-level BPE of `vocab.json` and `merges.txt`: GPT-2, or RoBERTa according to the config.
fn gpt2(folder: &Path, config: &Config) -> Result<Parts> {
    let (vocab_path, merges_path) = (folder.join("vocab.json"), folder.join("merges.txt"));
    let bytes = file::read(&vocab_path).map_err(|e| of_file(e, loading(&vocab_path)))?;
    let vocab = Json::parse(&bytes).and_then(|json| vocab_of(json, &mut Budget::new(bytes.len())));
    let vocab = vocab.map_err(|e| of_file(e, loading(&vocab_path)))?;
    let read = || {
        let (bytes, mut ranks) = (file::read(&merges_path)?, HashMap::new());
        let merges = merge_lines(&bytes, &mut Budget::new(bytes.len()))?;
        for (rank, (a, b)) in (0..).zip(&merges) {
            add_merge(&mut ranks, &vocab, rank, (a, b), "")?;
        }
        Ok(ranks)
    };
    let ranks = read().map_err(|e: Error| of_file(e, loading(&merges_path)))?;
    let known = ["GPT2", "Roberta", "PreTrainedTokenizerFast"];
    if !config.class.is_empty() && !known.iter().any(|name| config.class.starts_with(name)) {
        let text = format!("vocab.json with merges.txt of a {}", config.class);
        let help = "its words are not those of GPT-2: transformers saves its tokenizer.json";
        return Err(Error::value(text).help(help).named(loading(folder)));
    }
    let mut steps = Vec::new();
    if config.class.starts_with("Roberta") {
        let id = |role: &str, name: &str| vocab.id(&config.name(role, name));
        if let (Some(cls), Some(sep)) = (id("cls_token", "<s>"), id("sep_token", "</s>")) {
            steps.push(Processor::TrimOffsets { add_prefix_space: false });
            steps.push(Processor::NoTypes);
            steps.push(Processor::around(cls, sep, Some(sep), Some(0)));
        }
    }
    let added = Added::new(config.added(&vocab, &["<|endoftext|>"]), None)?;
    Ok(Parts {
        pre_tokenizer: Some(PreTokenizer::ByteLevel { add_prefix_space: false, use_regex: true }),
        processor: Some(Processor::Sequence(steps)),
        decoder: Some(Decoder::ByteLevel),
        ..Parts::new(vocab, Model::Bpe(Box::new(Bpe { ranks, ..Bpe::default() })), added)
    })
}

/// A WordPiece tokenizer of `vocab.txt`: a token per line.
fn bert(path: &Path, config: &Config) -> Result<Parts> {
    let read = || {
        let bytes = file::read(path)?;
        let text = std::str::from_utf8(&bytes).map_err(|e| Error::format(e.to_string()))?;
        let mut budget = Budget::new(bytes.len());
        let mut vocab = Vocab::default();
        for (id, line) in (0..).zip(text.lines()) {
            budget.charge(TOKEN + 4 * line.len())?;
            vocab.insert(line.trim_end(), id);
        }
        word_piece(vocab, config.bert(), |vocab| {
            config.added(vocab, &["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
        })
    };
    read().map_err(|e| of_file(e, loading(path)))
}

/// BERT's tokenizer with the tokens of `vocab`.
///
/// # Errors
/// If `[CLS]` or `[SEP]` is not among them.
pub(super) fn word_piece(
    vocab: Vocab,
    normalizer: Bert,
    added: impl FnOnce(&Vocab) -> Vec<AddedToken>,
) -> Result<Parts> {
    let id = |name: &str| {
        vocab.id(name).ok_or_else(|| Error::format(format!("the vocabulary has no token {name:?}")))
    };
    let (cls, sep) = (id("[CLS]")?, id("[SEP]")?);
    let [unk, pad, mask] = ["[UNK]", "[PAD]", "[MASK]"].map(|name| vocab.id(name));
    let model = Model::WordPiece(WordPiece::new(&vocab, "##", "[UNK]", 100));
    let added = Added::new(added(&vocab), None)?;
    Ok(Parts {
        normalizer: Some(Normalizer::Bert(normalizer)),
        pre_tokenizer: Some(PreTokenizer::Bert),
        processor: Some(Processor::around(cls, sep, None, None)),
        decoder: Some(Decoder::WordPiece { prefix: "##".to_string(), cleanup: true }),
        specials: [None, None, unk, Some(sep), pad, Some(cls), mask],
        ..Parts::new(vocab, model, added)
    })
}
