//! Tokenizers of published models: Hugging Face's `tokenizer.json`, and vocabularies of GGUF files.
//!
//! ```text
//! text ─ added ─────── [MASK] and the like are tokens; between them
//!        normalise ─── normal forms, lower case, accents
//!        split ─────── words: by patterns, white space, punctuation
//!        model ─────── tokens of a word: byte pairs, WordPiece, unigrams
//!        process ───── special tokens around it, truncation
//! tokens ─ decode ──── text
//! ```
//!
//! `read` reads `tokenizer.json`, `folder` the files beside it, `gguf` the metadata of GGUF files.
//! `aligned` keeps for each byte of a changed text the range of the original that it came from.
//!
//! Source: <https://huggingface.co/docs/tokenizers/pipeline>.

mod added;
mod aligned;
mod decode;
mod encoding;
mod folder;
mod gguf;
mod model;
mod normalize;
mod pattern;
mod precompiled;
mod process;
mod read;
mod split;
mod unicode;

pub use encoding::{Batch, EncodeInput, EncodeOptions, Encoding, Truncation};
pub use folder::special_tokens;
pub use gguf::end_tokens;
pub use teeny_core::Side;

use super::bpe::alphabet;
use super::tokenizer::{Tokenizer, no_such_token};
use added::{Added, Part, spaces};
use decode::Decoder;
use model::{Model, Token, Vocab};
use normalize::Normalizer;
use process::{Processor, Sequence};
use split::PreTokenizer;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use teeny_core::context::enter;
use teeny_core::{Error, Result};
use teeny_formats::{Gguf, TensorSource};

/// The tokenizer of a published model: byte-level BPE (GPT-2, Llama 3, Qwen, SmolLM), BPE with byte
/// fallback (Llama 2, Mistral, Gemma), WordPiece (BERT and models for embeddings), unigrams (T5,
/// ALBERT, XLM-RoBERTa and multilingual models for embeddings), whole words.
///
/// [`Tokenizer::encode`] adds no special tokens at the ends, but recognises them in the text;
/// [`Tokenizer::decode`] keeps them. [`PretrainedTokenizer::encode_with`] adds them.
///
/// Tokens equal Hugging Face's crate `tokenizers` for characters of Unicode 8 (2015). For later
/// characters that crate uses older tables of normal forms and punctuation.
///
/// # Example
/// ```no_run
/// use teeny_text::{EncodeOptions, PretrainedTokenizer, Tokenizer};
/// # fn main() -> teeny_core::Result<()> {
/// # let device = teeny_nn::device::device("cpu")?;
/// let tokenizer = PretrainedTokenizer::open("all-MiniLM-L6-v2")?;
/// let options = EncodeOptions::default().with_max_length(256);
/// let batch = tokenizer.encode_batch(&["a sentence", "another, longer sentence"], &options)?;
/// let (tokens, mask) = (batch.tokens(&device)?, batch.mask(&device)?); // (B, T)
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct PretrainedTokenizer(Arc<Parts>);

/// GPT-2's characters for bytes.
static ALPHABET: LazyLock<[char; 256]> = LazyLock::new(alphabet);

/// The parts of a tokenizer.
struct Parts {
    normalizer: Option<Normalizer>,
    pre_tokenizer: Option<PreTokenizer>,
    vocab: Vocab,
    model: Model,
    added: Added,
    processor: Option<Processor>,
    decoder: Option<Decoder>,
    specials: Specials,
    max_length: Option<usize>,
    /// Keys of the files that are not known.
    notes: Vec<String>,
}

/// The special tokens of a model: bos, eos, unk, sep, pad, cls, mask.
type Specials = [Option<u32>; 7];

impl std::fmt::Debug for PretrainedTokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PretrainedTokenizer").field("vocab_size", &self.vocab_size()).finish()
    }
}

impl PretrainedTokenizer {
    /// Opens a `tokenizer.json`, a GGUF file, or a folder with one of `tokenizer.json`,
    /// `vocab.json` with `merges.txt` (byte-level BPE as in GPT-2), `vocab.txt` (WordPiece as in
    /// BERT). The folder may be `ORG/NAME` in the local cache of the Hugging Face hub.
    /// `tokenizer_config.json`, `special_tokens_map.json` and `added_tokens.json` beside the file
    /// name the special tokens and add tokens, and the classes BertTokenizer, GPT2Tokenizer,
    /// RobertaTokenizer, LlamaTokenizer and XLMRobertaTokenizer make their steps themselves, as by
    /// `AutoTokenizer` of transformers 5. A
    /// character of which neither the vocabulary nor an unknown token has anything is left out.
    ///
    /// Truncation and padding follow [`EncodeOptions`], not the settings of the file.
    /// [`PretrainedTokenizer::max_length`] returns the file's.
    ///
    /// # Errors
    /// If a file is missing or damaged, or the tokenizer is of a kind that is not supported: the
    /// error names the key.
    #[track_caller]
    pub fn open(path: impl AsRef<Path>) -> Result<PretrainedTokenizer> {
        let _op = enter("PretrainedTokenizer::open");
        folder::open(path.as_ref())
    }

    /// Reads the text of a `tokenizer.json`, for programs without files.
    ///
    /// # Errors
    /// As [`PretrainedTokenizer::open`].
    #[track_caller]
    pub fn from_bytes(bytes: &[u8]) -> Result<PretrainedTokenizer> {
        let _op = enter("PretrainedTokenizer::from_bytes");
        let parts = read::parse(bytes).map_err(|e| e.named("load bytes"))?;
        Ok(PretrainedTokenizer(Arc::new(parts)))
    }

    /// Makes the tokenizer of a GGUF file from its metadata: `tokenizer.ggml.model` is "gpt2",
    /// "llama", "bert" or "t5".
    ///
    /// # Errors
    /// If keys are missing or wrong, or the model or its pattern (`tokenizer.ggml.pre`) is not
    /// known.
    #[track_caller]
    pub fn from_gguf(file: &Gguf) -> Result<PretrainedTokenizer> {
        let _op = enter("PretrainedTokenizer::from_gguf");
        let parts = gguf::parse(file.metadata()).map_err(|e| e.named(file.label()))?;
        Ok(PretrainedTokenizer(Arc::new(parts)))
    }

    /// Adds the keys `tokenizer.ggml.*` of a GGUF file whose model has `vocab` tokens.
    ///
    /// # Errors
    /// If GGUF cannot express the tokenizer.
    pub fn to_gguf(
        &self,
        vocab: usize,
        metadata: &mut BTreeMap<String, teeny_formats::gguf::Value>,
    ) -> Result<()> {
        gguf::write(self, vocab, metadata)
    }

    /// Encodes a text, or a pair of texts: `tokenizer.encode_with(("a", "b"), &options)`.
    ///
    /// # Errors
    /// If a part of the text has no token, or the sequence cannot be truncated to
    /// `options.max_length`.
    #[track_caller]
    pub fn encode_with<'a>(
        &self,
        input: impl Into<EncodeInput<'a>>,
        options: &EncodeOptions,
    ) -> Result<Encoding> {
        let _op = enter("PretrainedTokenizer::encode_with");
        self.0.encode(input.into(), options, true)
    }

    /// Encodes texts or pairs of texts, and pads them to the length of the longest.
    ///
    /// # Errors
    /// As [`PretrainedTokenizer::encode_with`], or if padding is needed but the tokenizer has no
    /// token for it.
    #[track_caller]
    pub fn encode_batch<'a, T: Into<EncodeInput<'a>> + Copy>(
        &self,
        inputs: &[T],
        options: &EncodeOptions,
    ) -> Result<Batch> {
        let _op = enter("PretrainedTokenizer::encode_batch");
        let encode = |input: &T| self.0.encode((*input).into(), options, false);
        let encodings: Vec<Encoding> = inputs.iter().map(encode).collect::<Result<_>>()?;
        Batch::new(encodings, options.pad.or(self.pad()), options)
    }

    /// The text of `tokens`, without special tokens if `skip_special_tokens`.
    ///
    /// # Errors
    /// If a token is not in the vocabulary.
    #[track_caller]
    pub fn decode_with(&self, tokens: &[u32], skip_special_tokens: bool) -> Result<String> {
        let _op = enter("decode");
        let parts = &*self.0;
        let spelling = |(i, id): (usize, &u32)| {
            let spelling = parts.added.spelling(*id).or_else(|| parts.vocab.text(*id));
            spelling.ok_or_else(|| no_such_token(i, *id, self.vocab_size()))
        };
        let mut spellings = Vec::with_capacity(tokens.len());
        for token in tokens.iter().enumerate() {
            let spelling = spelling(token)?;
            if !skip_special_tokens || !parts.added.is_special(spelling) {
                spellings.push(Cow::Borrowed(spelling));
            }
        }
        match &parts.decoder {
            Some(decoder) => decoder.decode(spellings),
            None => Ok(spellings.join(" ")),
        }
    }

    /// The token with the text `name`, such as `[MASK]`, if there is one. Other tokens are spelled
    /// as in the file: GPT-2's space is `Ġ`, SentencePiece's `▁`.
    pub fn token(&self, name: &str) -> Option<u32> {
        self.0.added.id(name).or_else(|| self.0.vocab.id(name))
    }

    /// The text of token `id`, spelled as in the file.
    pub fn text_of(&self, id: u32) -> Option<&str> {
        self.0.added.content(id).or_else(|| self.0.vocab.text(id))
    }

    /// The token at the beginning of a text.
    pub fn bos(&self) -> Option<u32> {
        self.0.specials[0]
    }

    /// The token at the end of a text.
    pub fn eos(&self) -> Option<u32> {
        self.0.specials[1]
    }

    /// The token that pads batches.
    pub fn pad(&self) -> Option<u32> {
        self.0.specials[4]
    }

    /// The token of unknown words.
    pub fn unk(&self) -> Option<u32> {
        self.0.specials[2]
    }

    /// The token whose state classifies a text.
    pub fn cls(&self) -> Option<u32> {
        self.0.specials[5]
    }

    /// The token between texts.
    pub fn sep(&self) -> Option<u32> {
        self.0.specials[3]
    }

    /// The token of a word to predict.
    pub fn mask(&self) -> Option<u32> {
        self.0.specials[6]
    }

    /// The largest number of tokens of the model according to the files: `truncation.max_length`
    /// of `tokenizer.json`, or `model_max_length` of `tokenizer_config.json`. It is not applied.
    pub fn max_length(&self) -> Option<usize> {
        self.0.max_length
    }

    /// The keys of the tokenizer's files that are not known, and so have no effect.
    pub fn notes(&self) -> &[String] {
        &self.0.notes
    }
}

impl Tokenizer for PretrainedTokenizer {
    /// The largest token + 1.
    fn vocab_size(&self) -> usize {
        self.0.vocab.last().max(self.0.added.last()).map_or(0, |last| last as usize + 1)
    }

    fn encode(&self, text: &str) -> Result<Vec<u32>> {
        Ok(self.0.sequence(text, 0, false)?.encoding.ids)
    }

    fn decode(&self, tokens: &[u32]) -> Result<String> {
        self.decode_with(tokens, false)
    }
}

impl Parts {
    /// A model without other steps.
    fn new(vocab: Vocab, model: Model, added: Added) -> Parts {
        Parts {
            normalizer: None,
            pre_tokenizer: None,
            vocab,
            model,
            added,
            processor: None,
            decoder: None,
            specials: Specials::default(),
            max_length: None,
            notes: Vec::new(),
        }
    }

    fn encode(
        &self,
        input: EncodeInput,
        options: &EncodeOptions,
        tracked: bool,
    ) -> Result<Encoding> {
        let mut sequences = vec![self.sequence(input.text, 0, tracked)?];
        if let Some(pair) = input.pair {
            sequences.push(self.sequence(pair, 1, tracked)?);
        } else if options.truncation == Truncation::OnlySecond && options.max_length.is_some() {
            return Err(Error::value("Truncation::OnlySecond is for pairs of texts")
                .help("Truncation::LongestFirst is for single texts too"));
        }
        // without offsets the lists must still have one length
        for Sequence { encoding, .. } in &mut sequences {
            encoding.offsets.resize(encoding.ids.len(), (0, 0));
        }
        let processor = self.processor.as_ref().filter(|_| options.add_special_tokens);
        let added = processor.map_or(0, |p| p.added_tokens(input.pair.is_some()));
        process::truncate(&mut sequences, added, options)?;
        if let Some(processor) = &self.processor {
            let text_of = |id| self.vocab.text(id);
            processor.apply(&mut sequences, options.add_special_tokens, &text_of);
        }
        let mut whole = Encoding::default();
        sequences.into_iter().for_each(|sequence| whole.append(sequence.encoding));
        Ok(whole)
    }

    /// The tokens of `text`, of type `type_id`; with offsets if `tracked`.
    fn sequence<'a>(&self, text: &'a str, type_id: u32, tracked: bool) -> Result<Sequence<'a>> {
        let by_model = self.pre_tokenizer.as_ref().is_some_and(PreTokenizer::ends_in_bytes);
        let origins = self.pre_tokenizer.as_ref().is_some_and(PreTokenizer::reads_origins);
        let mut parts = self.added.divide(text, self.normalizer.as_ref(), tracked || origins)?;
        if let Some(pre_tokenizer) = &self.pre_tokenizer {
            for part in &mut parts {
                if let Part::Text(segment) = part {
                    pre_tokenizer.apply(segment, by_model)?;
                }
            }
        }
        let mut sequence = Sequence { text, ..Sequence::default() };
        let Encoding { ids, offsets, .. } = &mut sequence.encoding;
        // texts repeat their words: the range in `tokens` of each word's first occurrence
        let mut tokens: Vec<Token> = Vec::new();
        let mut seen: HashMap<&str, Range<usize>> = HashMap::new();
        for part in &parts {
            let segment = match part {
                Part::Text(segment) => segment,
                Part::Token(found) => {
                    sequence.spaces.insert(ids.len(), found.spaces);
                    ids.push(found.id);
                    if tracked {
                        offsets.push(found.origin);
                    }
                    continue;
                }
            };
            for piece in &segment.pieces {
                let word = &segment.text.as_str()[piece.range.clone()];
                let range = match seen.get(word) {
                    Some(range) => range.clone(),
                    None => {
                        let from = tokens.len();
                        self.encode_word(word, by_model, &mut tokens)?;
                        seen.insert(word, from..tokens.len());
                        from..tokens.len()
                    }
                };
                if let Model::Unigram(model) = &self.model {
                    // offsets lose the white space of the text itself, not of `<unk>`
                    let unknown = |(_, token): &(usize, &Token)| Some(token.id) == model.unknown;
                    for (i, token) in tokens[range.clone()].iter().enumerate().filter(unknown) {
                        let bytes = &word.as_bytes()[token.start..token.end];
                        let text = match by_model {
                            true => bytes.iter().map(|b| ALPHABET[usize::from(*b)]).collect(),
                            false => String::from_utf8_lossy(bytes),
                        };
                        sequence.spaces.insert(ids.len() + i, spaces(&text));
                    }
                }
                ids.extend(tokens[range.clone()].iter().map(|token| token.id));
                if tracked {
                    offsets.extend(tokens[range].iter().map(|&Token { start, end, .. }| {
                        let at = piece.range.start;
                        let inside = end <= piece.range.len();
                        let origin = segment.text.origin(at + start..at + end);
                        origin.filter(|_| inside).unwrap_or((start, end))
                    }));
                }
            }
        }
        sequence.encoding.type_ids = vec![type_id; sequence.encoding.ids.len()];
        sequence.encoding.special_tokens_mask = vec![false; sequence.encoding.ids.len()];
        Ok(sequence)
    }

    /// Appends the tokens of `word`, which the model gets in GPT-2's characters if `in_bytes`.
    fn encode_word(&self, word: &str, in_bytes: bool, tokens: &mut Vec<Token>) -> Result<()> {
        if !in_bytes {
            return self.model.encode(&self.vocab, word, tokens);
        }
        let alphabet = &*ALPHABET;
        let (mut spelled, mut byte_at) = (String::with_capacity(2 * word.len()), Vec::new());
        for (i, byte) in word.bytes().enumerate() {
            spelled.push(alphabet[usize::from(byte)]);
            byte_at.resize(spelled.len(), i);
        }
        let from = tokens.len();
        self.model.encode(&self.vocab, &spelled, tokens)?;
        for Token { start, end, .. } in &mut tokens[from..] {
            if let (Some(first), Some(last)) = (byte_at.get(*start), byte_at.get(*end - 1)) {
                (*start, *end) = (*first, last + 1);
            }
        }
        Ok(())
    }
}
