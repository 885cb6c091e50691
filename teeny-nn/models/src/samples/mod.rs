//! Makes training batches of the texts in a file: [`TextSamples`] for a decoder, [`LabeledTexts`]
//! and [`TextPairs`] for an encoder.
//!
//! ```text
//! line of JSON ─ read ─ segments of text, which of them count ─ tokens ─ batches     CausalBatch
//! line of JSON, CSV or TSV ─ table ─ named columns ─ tokens ─ batches     LabeledBatch, PairBatch
//! ```
//!
//! The loss counts the model's own text, but not the prompt or the messages of others. A line is
//! encoded as one text, so that its parts get the same tokens as in the whole text.

/// The samples of a type, and their split into training and test samples.
macro_rules! samples {
    ($type:ident, $items:ident: $item:ty) => {
        impl $type {
            /// All of them, in order.
            pub fn $items(&self) -> &[$item] {
                &self.$items
            }

            /// Splits the samples into a training set and a held-out set, drawn by `seed`: a
            /// `share` of all, at least one if `share` is above 0.
            ///
            /// # Errors
            /// If `share` is not in `0..1`, or none is left to train on.
            #[track_caller]
            pub fn split(mut self, share: f64, seed: u64) -> Result<($type, $type)> {
                let _op = enter("samples.split");
                let (train, test) = split(std::mem::take(&mut self.$items), share, seed)?;
                Ok(($type { $items: train, ..self.clone() }, $type { $items: test, ..self }))
            }
        }
    };
}

mod labeled;
mod pairs;
mod read;
mod table;

use super::{Decoder, EncoderBatch};
pub use labeled::{LabeledBatch, LabeledText, LabeledTexts};
pub use pairs::{PairBatch, TextPair, TextPairs};
use read::{Segment, Source};
use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::path::Path;
pub use table::TableReport;
use teeny_core::context::enter;
use teeny_core::{DeviceRef, Error, Key, Result, Tensor, permutation};
use teeny_data::Dataset;
use teeny_data::require_items;
use teeny_nn::transformer::CausalBatch;
use teeny_text::{EncodeOptions, Encoding, PretrainedTokenizer};

/// The tokens of one text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextSample {
    /// All tokens.
    pub tokens: Vec<u32>,
    /// Which of them count in the loss, as the next token of those before. The first never does.
    pub counted: Vec<bool>,
}

/// Statistics of a file of texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SampleReport {
    /// Texts that are used.
    pub samples: usize,
    /// Lines that are conversations.
    pub conversations: usize,
    /// Texts that were there before, word for word. They are used again.
    pub duplicates: usize,
    /// Texts that were cut to the largest number of tokens.
    pub cut: usize,
    /// Texts that are left out because no token counts, after truncation or at all.
    pub left_out: usize,
    /// All tokens, and those that count.
    pub tokens: usize,
    /// The tokens that count.
    pub counted: usize,
    /// Names of members of lines and of messages that are not read.
    pub unread: BTreeSet<String>,
}

impl fmt::Display for SampleReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SampleReport { samples, duplicates, cut, left_out, tokens, counted, .. } = self;
        write!(f, "{samples} texts, {tokens} tokens, {counted} of them to be learned")?;
        for (count, what) in [
            (duplicates, "twice in the file"),
            (cut, "cut, as they are too long"),
            (left_out, "left out, as nothing in them is to be learned"),
        ] {
            if *count > 0 {
                write!(f, "; {count} {what}")?;
            }
        }
        self.unread.iter().try_for_each(|name| write!(f, "; {name:?} is not read"))
    }
}

/// Texts to train a decoder on, each as tokens.
#[derive(Clone, Debug)]
pub struct TextSamples {
    samples: Vec<TextSample>,
    device: DeviceRef,
}

impl TextSamples {
    /// Reads a file of texts for `decoder`, each of at most `max_length` tokens. Each line of a
    /// `.jsonl` file is an object with one of
    ///
    /// - `"text"`: all of it is learned;
    /// - `"prompt"` and `"completion"`: the completion is learned;
    /// - `"messages"`, a list of objects with `"role"` and `"content"`: the messages of the
    ///   `assistant` are learned, written as the model's chat template writes them (feature
    ///   `chat`), but those with `"weight": 0`.
    ///
    /// Another file is one text, in pieces of `max_length` tokens. An end token is learned behind
    /// each text and completion, if the tokenizer has one.
    ///
    /// # Errors
    /// If the file cannot be read, a line is not such an object (the error has its number), the
    /// template does not write a conversation as the beginning of a longer one, the model has no
    /// tokenizer, or nothing is left.
    #[track_caller]
    pub fn open(
        path: impl AsRef<Path>,
        decoder: &Decoder,
        max_length: usize,
    ) -> Result<(TextSamples, SampleReport)> {
        let _op = enter("TextSamples::open");
        let path = path.as_ref();
        if max_length < 2 || max_length > decoder.model.config().context {
            let context = decoder.model.config().context;
            let text = format!("cannot use texts of {max_length} tokens in a context of {context}");
            return Err(Error::value(text).help("use between 2 tokens and the context length"));
        }
        let tokenizer = decoder.tokenizer()?;
        let (mut samples, mut report) = (Vec::new(), SampleReport::default());
        let mut seen = HashSet::new();
        let named = |line: usize, e: Error| e.named(format!("{}, line {line}", path.display()));
        for (line, source) in read::sources(path, &mut report.unread)? {
            let is_whole = source.is_whole_file();
            report.conversations += usize::from(source.is_conversation());
            let segments = segments(decoder, source).map_err(|e| named(line, e))?;
            let mut sample = encoded(tokenizer, &segments).map_err(|e| named(line, e))?;
            let key = (sample.tokens.clone(), sample.counted.clone());
            report.duplicates += usize::from(!seen.insert(key));
            if is_whole {
                samples.extend(sample.pieces(max_length));
                continue;
            }
            if sample.tokens.len() > max_length {
                sample.tokens.truncate(max_length);
                sample.counted.truncate(max_length);
                report.cut += 1;
            }
            samples.push(sample);
        }
        let all = samples.len();
        samples.retain(|sample: &TextSample| sample.count() > 0);
        report.left_out = all - samples.len();
        report.samples = samples.len();
        report.tokens = samples.iter().map(|sample| sample.tokens.len()).sum();
        report.counted = samples.iter().map(TextSample::count).sum();
        if samples.is_empty() {
            let error = Error::value(format!("{}: nothing to learn: {report}", path.display()));
            return Err(error.help("a line is {\"prompt\": \"..\", \"completion\": \"..\"}"));
        }
        Ok((TextSamples::new(samples, decoder.store.device())?, report))
    }

    /// These samples, in batches on `device`.
    ///
    /// # Errors
    /// If one has no token that counts.
    pub fn new(samples: Vec<TextSample>, device: &DeviceRef) -> Result<TextSamples> {
        if let Some(i) = samples.iter().position(|sample| sample.count() == 0) {
            let error = Error::value(format!("no token of sample {i} counts"));
            return Err(error.help("at least one after the first token must count"));
        }
        Ok(TextSamples { samples, device: device.clone() })
    }
}

samples!(TextSamples, samples: TextSample);

impl Dataset for TextSamples {
    type Batch = CausalBatch;

    fn len(&self) -> usize {
        self.samples.len()
    }

    fn batch(&self, indices: &[usize], _epoch: u64) -> Result<CausalBatch> {
        let samples = chosen(&self.samples, indices)?;
        let width = samples.iter().map(|sample| sample.tokens.len()).max().unwrap_or(0);
        let mut tokens = vec![0i32; samples.len() * width];
        let (mut positions, mut targets) = (Vec::new(), Vec::new());
        for (row, sample) in samples.iter().enumerate() {
            for (t, &token) in sample.tokens.iter().enumerate() {
                tokens[row * width + t] = token as i32;
                if t > 0 && sample.counted[t] {
                    positions.push((row * width + t - 1) as i32);
                    targets.push(token as i32);
                }
            }
        }
        let count = positions.len();
        Ok(CausalBatch::new(
            Tensor::from_vec(tokens, (samples.len(), width), &self.device)?,
            Tensor::from_vec(positions, count, &self.device)?,
            Tensor::from_vec(targets, count, &self.device)?,
        ))
    }
}

impl TextSample {
    /// The number of tokens that count.
    pub fn count(&self) -> usize {
        self.counted.iter().skip(1).filter(|&&counted| counted).count()
    }

    /// The sample in pieces of `length` tokens; the last may be shorter.
    fn pieces(&self, length: usize) -> impl Iterator<Item = TextSample> {
        self.tokens.chunks(length).zip(self.counted.chunks(length)).map(|(tokens, counted)| {
            TextSample { tokens: tokens.to_vec(), counted: counted.to_vec() }
        })
    }
}

/// `samples` without a part `share` of them, and that part.
fn split<T>(samples: Vec<T>, share: f64, seed: u64) -> Result<(Vec<T>, Vec<T>)> {
    let all = samples.len();
    if !(0.0..1.0).contains(&share) {
        let error = Error::value(format!("cannot hold out a share of {share} of the samples"));
        return Err(error.help("a share is at least 0 and below 1"));
    }
    let held = if share > 0.0 { ((all as f64 * share) as usize).max(1) } else { 0 };
    if held >= all {
        let error = Error::value(format!("{held} of {all} samples would be held out"));
        return Err(error.help("use a smaller share, or more samples"));
    }
    let order = permutation(all, Key { seed, draw: u64::MAX });
    let mut is_held = vec![false; all];
    order[..held].iter().for_each(|&i| is_held[i] = true);
    let (mut train, mut test) = (Vec::new(), Vec::new());
    for (sample, held) in samples.into_iter().zip(is_held) {
        if held { test.push(sample) } else { train.push(sample) }
    }
    Ok((train, test))
}

/// The samples at `indices`.
fn chosen<'a, T>(samples: &'a [T], indices: &[usize]) -> Result<Vec<&'a T>> {
    require_items(indices, samples.len())?;
    Ok(indices.iter().map(|i| &samples[*i]).collect())
}

/// Texts of these tokens as the inputs of an encoder.
fn encoder_batch<'a>(
    texts: impl Iterator<Item = &'a Vec<u32>>,
    pad: Option<u32>,
    device: &DeviceRef,
) -> Result<EncoderBatch> {
    let encoding = |ids: &Vec<u32>| {
        let mut encoding = Encoding::default();
        (encoding.ids, encoding.type_ids) = (ids.clone(), vec![0; ids.len()]);
        encoding
    };
    EncoderBatch::new(texts.map(encoding).collect(), pad, false, device)
}

/// The segments of a text, in order.
fn segments(decoder: &Decoder, source: Source) -> Result<Vec<Segment>> {
    match source {
        Source::Segments(segments) => Ok(segments),
        Source::File(text) => Ok(vec![Segment { text, counts: true, special: true, ends: true }]),
        #[cfg(feature = "chat")]
        Source::Messages(messages) => read::conversation(decoder.template()?, &messages),
        #[cfg(not(feature = "chat"))]
        Source::Messages(messages) => {
            let _ = (decoder, messages);
            Err(Error::unsupported("conversations need chat templates").help("the feature `chat`"))
        }
    }
}

/// The tokens of segments, which are encoded as one text. A token counts as its last byte does.
fn encoded(tokenizer: &PretrainedTokenizer, segments: &[Segment]) -> Result<TextSample> {
    let text: String = segments.iter().map(|segment| segment.text.as_str()).collect();
    let special = segments.first().is_some_and(|segment| segment.special);
    let options = EncodeOptions::default().with_add_special_tokens(special);
    let Encoding { ids: mut tokens, offsets, .. } =
        tokenizer.encode_with(text.as_str(), &options)?;
    let length = |at: &mut usize, segment: &Segment| {
        *at += segment.text.len();
        Some(*at)
    };
    let ends: Vec<usize> = segments.iter().scan(0, length).collect();
    // special tokens around the text count if the text beside them does
    let mut at = 0;
    let counts = offsets.iter().map(|(_, end)| {
        at = at.max(*end);
        let segment = ends.partition_point(|end| *end < at.max(1));
        segments.get(segment).is_some_and(|segment| segment.counts)
    });
    let mut counted: Vec<bool> = counts.collect();
    if let Some(last) = segments.last().filter(|segment| segment.ends) {
        let eos = tokenizer.eos().filter(|eos| tokens.last() != Some(eos));
        tokens.extend(eos);
        counted.resize(tokens.len(), last.counts);
    }
    Ok(TextSample { tokens, counted })
}
