//! Reads `tokenizer.json`.

use super::Parts;
use super::added::{Added, AddedToken};
use super::decode::Decoder;
use super::model::{Bpe, Model, Unigram, Unknown, Vocab, WordPiece};
use super::normalize::Normalizer;
use super::process::Processor;
use super::split::PreTokenizer;
pub(super) use crate::bpe::{TOKEN, pair_of_line};
use crate::bpe::{merges, tokens};
use crate::section::Section;
use std::collections::HashMap;
use teeny_core::file::{Budget, quoted};
use teeny_core::{Error, Result};
use teeny_formats::json::Json;

/// The largest limit for the length of words of WordPiece, whose time is its square; published
/// models have 100.
const MAX_WORD: u64 = 1000;

/// The largest JSON text of a unigram token with its score, in bytes: a text takes as many steps
/// per byte.
const MAX_PIECE: usize = 4096;

/// Reads a whole file.
///
/// # Errors
/// If it is damaged, or a part is of a kind that is not supported.
pub(super) fn parse(bytes: &[u8]) -> Result<Parts> {
    let mut budget = Budget::new(bytes.len());
    let file = Section::root(Json::parse(bytes)?)?;
    let memory = &mut 0;
    let normalizer = file.section("normalizer")?;
    let normalizer = normalizer.map(|part| Normalizer::parse(&part, memory)).transpose()?;
    let pre_tokenizer = file.section("pre_tokenizer")?;
    let pre_tokenizer = pre_tokenizer.map(|part| PreTokenizer::parse(&part, memory)).transpose()?;
    let decoder = file.section("decoder")?;
    let decoder = decoder.map(|part| Decoder::parse(&part, memory)).transpose()?;
    let processor = file.section("post_processor")?;
    let processor = processor.map(|part| Processor::parse(&part, &mut budget)).transpose()?;
    let section = file.section("model")?.ok_or_else(|| file.wrong("model", "an object"))?;
    let (vocab, model, unk) = parse_model(&section, &mut budget)?;
    let added = parse_added(&file, &vocab, &mut budget)?;
    let added = Added::new(added, normalizer.as_ref())?;
    let number = |section: Option<Section>, key: &str| -> Result<Option<u64>> {
        Ok(section.map(|section| section.number(key)).transpose()?.flatten())
    };
    let max_length = number(file.section("truncation")?, "max_length")?;
    let pad = number(file.section("padding")?, "pad_id")?;
    let pad = pad.and_then(|id| u32::try_from(id).ok());
    let max_length = max_length.and_then(|n| usize::try_from(n).ok());
    drop(section);
    let notes = file.unread("tokenizer");
    Ok(Parts {
        normalizer,
        pre_tokenizer,
        vocab,
        model,
        added,
        processor,
        decoder,
        specials: [None, None, unk, None, pad, None, None],
        max_length,
        notes,
    })
}

/// The added tokens with their numbers: a token of the vocabulary keeps its number, others follow
/// the vocabulary in the order of the file, as in Hugging Face's crate.
fn parse_added(file: &Section, vocab: &Vocab, budget: &mut Budget) -> Result<Vec<AddedToken>> {
    if file.get("added_tokens").is_none() {
        return Ok(Vec::new());
    }
    let mut next = vocab.len() as u32;
    let mut tokens: Vec<AddedToken> = Vec::new();
    let mut indices: HashMap<String, usize> = HashMap::new();
    for section in file.sections("added_tokens")? {
        let mut token = AddedToken::parse(&section)?;
        budget.charge(2 * TOKEN + 8 * token.content.len())?;
        if token.content.is_empty() {
            continue;
        }
        if let Some(&i) = indices.get(&token.content) {
            token.id = tokens[i].id;
            tokens[i] = token;
            continue;
        }
        token.id = vocab.id(&token.content).unwrap_or_else(|| {
            next += 1;
            next - 1
        });
        indices.insert(token.content.clone(), tokens.len());
        tokens.push(token);
    }
    Ok(tokens)
}

/// The vocabulary, the model, and the token of unknown words.
fn parse_model(section: &Section, budget: &mut Budget) -> Result<(Vocab, Model, Option<u32>)> {
    let kind = match section.optional_string("type")? {
        Some(kind) => kind,
        // files of before 2020
        None if section.get("merges").is_some() => "BPE".to_string(),
        None if section.get("max_input_chars_per_word").is_some() => "WordPiece".to_string(),
        None if section.get("unk_id").is_some() => "Unigram".to_string(),
        None => return Err(section.wrong("type", "BPE, WordPiece, Unigram or WordLevel")),
    };
    let string = |key: &str, default: &str| -> Result<String> {
        Ok(section.optional_string(key)?.unwrap_or_else(|| default.to_string()))
    };
    match kind.as_str() {
        "BPE" => {
            let vocab = parse_vocab(section, budget)?;
            let bpe = parse_bpe(section, &vocab, budget)?;
            let unk = bpe.unknown.as_ref().and_then(|unknown| unknown.id);
            Ok((vocab, Model::Bpe(Box::new(bpe)), unk))
        }
        "WordPiece" => {
            let vocab = parse_vocab(section, budget)?;
            let prefix = string("continuing_subword_prefix", "##")?;
            let unknown = string("unk_token", "[UNK]")?;
            let max_chars = section.number("max_input_chars_per_word")?.unwrap_or(100);
            if max_chars > MAX_WORD {
                let expected = format!("at most {MAX_WORD}");
                return Err(section.wrong("max_input_chars_per_word", &expected));
            }
            let max_chars = max_chars as usize;
            let model = WordPiece::new(&vocab, &prefix, &unknown, max_chars);
            let unk = model.unknown.id;
            Ok((vocab, Model::WordPiece(model), unk))
        }
        "Unigram" => {
            let (vocab, scores) = parse_scores(section, budget)?;
            let unk = section.number("unk_id")?.map(|id| u32::try_from(id).unwrap_or(u32::MAX));
            if unk.is_some_and(|id| id as usize >= scores.len()) {
                return Err(section.wrong("unk_id", &format!("below {}", scores.len())));
            }
            let falls_back = section.flag("byte_fallback", false)?;
            let model = Unigram::new(&vocab, scores, unk, falls_back);
            Ok((vocab, Model::Unigram(model), unk))
        }
        "WordLevel" => {
            let vocab = parse_vocab(section, budget)?;
            let unknown = Unknown::of(&vocab, string("unk_token", "<unk>")?);
            let unk = unknown.id;
            Ok((vocab, Model::WordLevel(unknown), unk))
        }
        kind => Err(section.unknown(kind)),
    }
}

/// The map from texts to numbers.
fn parse_vocab(section: &Section, budget: &mut Budget) -> Result<Vocab> {
    let wrong = || section.wrong("vocab", "an object of texts and numbers");
    vocab_of(section.get("vocab").ok_or_else(wrong)?, budget)
        .map_err(|e| e.note(format!("in {}", section.place("vocab"))))
}

/// The vocabulary of a list of texts with scores.
fn parse_scores(section: &Section, budget: &mut Budget) -> Result<(Vocab, Vec<f64>)> {
    let (mut vocab, mut scores) = (Vocab::default(), Vec::new());
    for (id, item) in (0..u32::MAX).zip(section.list("vocab")?) {
        budget.charge(2 * TOKEN + 8 * item.text().len())?;
        let mut pair = item.items().filter(|_| item.text().len() < MAX_PIECE).into_iter().flatten();
        let (text, score) = (pair.next().and_then(|text| text.string()), pair.next());
        let score = score.and_then(|x| x.text().parse::<f64>().ok()).filter(|x| x.is_finite());
        let (Some(text), Some(score), None) = (text, score, pair.next()) else {
            let [place, item] = [&section.place("vocab"), item.text()].map(quoted);
            return Err(Error::format(format!(
                "{place}: expected a text and its score, found {item}"
            )));
        };
        vocab.insert(&text, id);
        scores.push(score);
    }
    Ok((vocab, scores))
}

/// The vocabulary of an object of texts and numbers.
///
/// # Errors
/// If it is something else.
pub(super) fn vocab_of(value: Json, budget: &mut Budget) -> Result<Vocab> {
    let mut vocab = Vocab::default();
    tokens(value, budget, |text, id| {
        vocab.insert(&text, id);
        Ok(())
    })?;
    Ok(vocab)
}

fn parse_bpe(section: &Section, vocab: &Vocab, budget: &mut Budget) -> Result<Bpe> {
    let dropout = section.get("dropout").map(|value| value.text());
    if dropout.is_some_and(|text| text.parse() != Ok(0.0f64)) {
        return Err(section.wrong("dropout", "null: encoding is not random here"));
    }
    let text = |key: &str| Ok::<_, Error>(section.optional_string(key)?.unwrap_or_default());
    let (prefix, suffix): (String, String) =
        (text("continuing_subword_prefix")?, text("end_of_word_suffix")?);
    let unknown = section.optional_string("unk_token")?;
    let unknown = unknown.map(|name| Unknown::of(vocab, name));
    let mut ranks = HashMap::new();
    for (rank, (a, b)) in (0..).zip(merges(section, budget)?) {
        add_merge(&mut ranks, vocab, rank, (&a, &b), &prefix)?;
    }
    Ok(Bpe {
        ranks,
        unknown,
        fuse_unknown: section.flag("fuse_unk", false)?,
        bytes: section.flag("byte_fallback", false)?.then(|| vocab.byte_tokens()),
        ignore_merges: section.flag("ignore_merges", false)?,
        prefix,
        suffix,
    })
}

/// Adds the merge of `a` and `b`; `prefix` marks tokens inside words.
///
/// # Errors
/// If one of them, or the token that they become, is not in the vocabulary.
pub(super) fn add_merge(
    ranks: &mut HashMap<(u32, u32), (u32, u32)>,
    vocab: &Vocab,
    rank: u32,
    (a, b): (&str, &str),
    prefix: &str,
) -> Result<()> {
    let id = |text: &str| {
        vocab.id(text).ok_or_else(|| {
            let [a, b, text] = [a, b, text].map(quoted);
            Error::format(format!(
                "the merge of {a} and {b} needs token {text}, which is not in the vocabulary"
            ))
        })
    };
    let rest = b.get(prefix.len()..).unwrap_or_default();
    let merged = (id(a)?, id(b)?, id(&format!("{a}{rest}"))?);
    ranks.insert((merged.0, merged.1), (rank, merged.2));
    Ok(())
}
