//! [`LabeledTexts`]: texts and their classes.

use super::super::{Encoder, EncoderBatch, Task};
use super::table::{Columns, TableReport};
use super::{chosen, encoder_batch, split};
use std::path::Path;
use teeny_core::context::enter;
use teeny_core::{DeviceRef, Error, Result, Tensor};
use teeny_data::Dataset;
use teeny_nn::loss::cross_entropy;

const COLUMNS: Columns =
    Columns { needed: ["text", "label"], optional: None, texts: 1, prompted: false };

/// A text and its class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabeledText {
    /// The tokens, with special tokens.
    pub tokens: Vec<u32>,
    /// The number of the class, in the order of the model's classes.
    pub label: usize,
}

/// Texts with their classes, to train an encoder's head for classes on.
///
/// # Example
/// ```no_run
/// use teeny_models::lora::{Lora, LoraOptions};
/// use teeny_models::{Encoder, LabeledTexts, OpenOptions};
/// use teeny_nn::{data::DataLoader, prelude::*};
/// # fn main() -> Result<()> {
/// let device = Autograd::new(teeny_nn::device("auto")?);
/// let classes = OpenOptions::new().with_labels(LabeledTexts::labels("reviews.csv")?);
/// let encoder = Encoder::open_with("google-bert/bert-base-uncased", &classes, &device)?;
/// let (texts, report) = LabeledTexts::open("reviews.csv", &encoder, 128)?;
/// println!("{report}"); // 2000 rows, 61234 tokens; "good" 1012, "bad" 988
/// let lora = Lora::attach(&encoder, LoraOptions::new())?; // and the head
/// let mut optimizer = AdamW::new(lora.trainable(), 1e-4);
/// encoder.store.set_training(true);
/// for batch in DataLoader::new(texts, 16)?.shuffle(1).epoch(0) {
///     optimizer.step(&batch?.loss(&encoder)?.backward()?)?;
/// }
/// lora.merge_into_base()?;
/// encoder.save("reviews-bert")?; // transformers opens it as a model for these classes
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct LabeledTexts {
    texts: Vec<LabeledText>,
    pad: Option<u32>,
    device: DeviceRef,
}

/// Texts of a batch, and their classes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LabeledBatch {
    /// The texts.
    pub texts: EncoderBatch,
    /// (B) of I32.
    pub labels: Tensor,
}

impl LabeledBatch {
    /// The cross-entropy of the classes, for a model with a head for them → scalar.
    ///
    /// # Errors
    /// As [`Encoder::logits`] and [`cross_entropy()`].
    #[track_caller]
    pub fn loss(&self, encoder: &Encoder) -> Result<Tensor> {
        cross_entropy(&encoder.logits(&self.texts.inputs())?, &self.labels)
    }
}

impl LabeledTexts {
    /// The names of the classes in a file, in the order in which they come first.
    ///
    /// # Errors
    /// As [`LabeledTexts::open`]; if there are fewer than two classes.
    pub fn labels(path: impl AsRef<Path>) -> Result<Vec<String>> {
        let _op = enter("LabeledTexts::labels");
        let path = path.as_ref();
        let mut labels: Vec<String> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for row in COLUMNS.rows(path)?.0 {
            let [_, label, _] = row.values;
            if seen.insert(label.trim().to_string()) {
                labels.push(label.trim().to_string());
            }
        }
        if labels.len() < 2 {
            let text = format!("{}: all texts are of class {:?}", path.display(), labels[0]);
            return Err(Error::value(text).help("at least two classes"));
        }
        Ok(labels)
    }

    /// Reads a file for `encoder`, whose head has the classes of the file, with texts of at most
    /// `max_length` tokens: a `.jsonl` file with an object `{"text": "..", "label": ".."}` in each
    /// line, or a `.csv` or `.tsv` file. Its columns are called `text` and `label` in its first
    /// line; otherwise they are the first two. Cells may be quoted, as RFC 4180 says. In JSON, a
    /// label may be a number.
    ///
    /// # Errors
    /// If the file cannot be read, a line has another form (the error has its number), a label is
    /// not a class of the model, the model has no head for classes of texts or no tokenizer, or
    /// nothing is left.
    #[track_caller]
    pub fn open(
        path: impl AsRef<Path>,
        encoder: &Encoder,
        max_length: usize,
    ) -> Result<(LabeledTexts, TableReport)> {
        let _op = enter("LabeledTexts::open");
        let path = path.as_ref();
        let head = encoder.head.as_ref().filter(|head| head.task() == Task::Sequence);
        let Some(head) = head.filter(|head| head.labels.len() > 1 && !head.multi_label) else {
            let error = Error::value("the model has no head for one of several classes of texts");
            return Err(error.help("OpenOptions::with_labels(LabeledTexts::labels(path)?)"));
        };
        let (rows, mut report) = COLUMNS.encoded(path, encoder, max_length)?;
        let mut counts = vec![0; head.labels.len()];
        let mut texts = Vec::with_capacity(rows.len());
        for row in rows {
            let name = row.row.values[1].trim();
            let Some(label) = head.labels.iter().position(|own| own == name) else {
                let names = head.labels.iter().take(20).cloned().collect::<Vec<_>>().join(", ");
                return Err(Error::value(format!("the model has no class {name:?}"))
                    .named(format!("{}, line {}", path.display(), row.row.line))
                    .note(format!("its classes are {names}"))
                    .help("OpenOptions::with_labels makes a head for other classes"));
            };
            counts[label] += 1;
            texts.extend(row.tokens.into_iter().map(|tokens| LabeledText { tokens, label }));
        }
        report.labels = head.labels.iter().cloned().zip(counts).collect();
        let (pad, device) = (encoder.tokenizer()?.pad(), encoder.store.device().clone());
        Ok((LabeledTexts { texts, pad, device }, report))
    }
}

samples!(LabeledTexts, texts: LabeledText);

impl Dataset for LabeledTexts {
    type Batch = LabeledBatch;

    fn len(&self) -> usize {
        self.texts.len()
    }

    fn batch(&self, indices: &[usize], _epoch: u64) -> Result<LabeledBatch> {
        let texts = chosen(&self.texts, indices)?;
        let labels: Vec<i32> = texts.iter().map(|text| text.label as i32).collect();
        let labels = Tensor::from_vec(labels, texts.len(), &self.device)?; // (B)
        let tokens = texts.iter().map(|text| &text.tokens);
        Ok(LabeledBatch { texts: encoder_batch(tokens, self.pad, &self.device)?, labels })
    }
}
