//! [`TextPairs`]: pairs of texts whose embeddings should be similar.

use super::super::{Encoder, EncoderBatch};
use super::table::{Columns, TableReport};
use super::{chosen, encoder_batch, split};
use std::path::Path;
use teeny_core::context::enter;
use teeny_core::{DeviceRef, Result, Tensor};
use teeny_data::Dataset;
use teeny_nn::loss::{Reduction, multiple_negatives_ranking};

const COLUMNS: Columns = Columns {
    needed: ["anchor", "positive"],
    optional: Some("negative"),
    texts: 3,
    prompted: true,
};

/// A text, one that is near to it, and perhaps one that is not; each as tokens, with special
/// tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextPair {
    /// The text, such as a question.
    pub anchor: Vec<u32>,
    /// A text that is near to it, such as its answer.
    pub positive: Vec<u32>,
    /// A text that is not, though it looks so.
    pub negative: Option<Vec<u32>>,
}

/// Pairs and triplets of texts, to train an encoder's embeddings on.
///
/// # Example
/// ```no_run
/// use teeny_models::{Encoder, TextPairs};
/// use teeny_nn::{data::DataLoader, prelude::*};
/// # fn main() -> Result<()> {
/// let device = Autograd::new(teeny_nn::device("auto")?);
/// let encoder = Encoder::open("sentence-transformers/all-MiniLM-L6-v2", &device)?;
/// let (pairs, report) = TextPairs::open("questions.jsonl", &encoder, 128)?;
/// println!("{report}"); // 2000 rows, 61234 tokens
/// let mut optimizer = AdamW::new(encoder.store.trainable(), 2e-5);
/// encoder.store.set_training(true);
/// // the other positives of a batch are negatives: a large batch has more of them
/// for batch in DataLoader::new(pairs, 32)?.shuffle(1).epoch(0) {
///     optimizer.step(&batch?.loss(&encoder, 20.0)?.backward()?)?;
/// }
/// encoder.save("questions-minilm")?; // sentence-transformers opens it
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct TextPairs {
    pairs: Vec<TextPair>,
    pad: Option<u32>,
    device: DeviceRef,
}

/// Pairs of a batch.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PairBatch {
    /// The texts.
    pub anchors: EncoderBatch,
    /// A near one for each.
    pub positives: EncoderBatch,
    /// Those that are not near, of the pairs that have one; none if no pair has.
    pub negatives: Option<EncoderBatch>,
}

impl PairBatch {
    /// [`multiple_negatives_ranking()`] of the embeddings, pooled as the model does → scalar. The
    /// usual scale is 20.
    ///
    /// # Errors
    /// As [`Encoder::embed`] and [`multiple_negatives_ranking()`].
    #[track_caller]
    pub fn loss(&self, encoder: &Encoder, scale: f64) -> Result<Tensor> {
        let left_out = encoder.left_out()?;
        let embed = |texts: &EncoderBatch| encoder.embed_after(left_out, &texts.inputs()); // (B, E)
        let negatives = self.negatives.as_ref().map(embed).transpose()?;
        let (anchors, positives) = (embed(&self.anchors)?, embed(&self.positives)?);
        let reduction = Reduction::Mean;
        multiple_negatives_ranking(&anchors, &positives, negatives.as_ref(), scale, reduction)
    }
}

impl TextPairs {
    /// Reads a file for `encoder`, with texts of at most `max_length` tokens, each after the
    /// model's default instruction if it has one: a `.jsonl` file with an object `{"anchor": "..",
    /// "positive": ".."}` in each line, or a `.csv` or `.tsv` file with columns of these names, or
    /// without a line of names. Rows may have a third text, `negative`.
    ///
    /// # Errors
    /// If the file cannot be read, a line has another form (the error has its number), the model
    /// has no tokenizer, or nothing is left.
    #[track_caller]
    pub fn open(
        path: impl AsRef<Path>,
        encoder: &Encoder,
        max_length: usize,
    ) -> Result<(TextPairs, TableReport)> {
        let _op = enter("TextPairs::open");
        let (rows, report) = COLUMNS.encoded(path.as_ref(), encoder, max_length)?;
        let mut pairs = Vec::with_capacity(rows.len());
        for row in rows {
            let mut tokens = row.tokens.into_iter();
            let mut next = || tokens.next().unwrap_or_default();
            let (anchor, positive, negative) = (next(), next(), next());
            let negative = Some(negative).filter(|negative| !negative.is_empty());
            pairs.push(TextPair { anchor, positive, negative });
        }
        let (pad, device) = (encoder.tokenizer()?.pad(), encoder.store.device().clone());
        Ok((TextPairs { pairs, pad, device }, report))
    }
}

samples!(TextPairs, pairs: TextPair);

impl Dataset for TextPairs {
    type Batch = PairBatch;

    fn len(&self) -> usize {
        self.pairs.len()
    }

    fn batch(&self, indices: &[usize], _epoch: u64) -> Result<PairBatch> {
        let pairs = chosen(&self.pairs, indices)?;
        let batch =
            |texts: Vec<&Vec<u32>>| encoder_batch(texts.into_iter(), self.pad, &self.device);
        let negatives: Vec<_> = pairs.iter().filter_map(|pair| pair.negative.as_ref()).collect();
        Ok(PairBatch {
            anchors: batch(pairs.iter().map(|pair| &pair.anchor).collect())?,
            positives: batch(pairs.iter().map(|pair| &pair.positive).collect())?,
            negatives: (!negatives.is_empty()).then(|| batch(negatives)).transpose()?,
        })
    }
}
