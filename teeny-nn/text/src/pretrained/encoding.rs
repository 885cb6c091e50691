//! Options and results of encoding.

use teeny_core::context::enter;
use teeny_core::options;
use teeny_core::{Error, Result, Side, Tensor, ToDevice};

/// A text, or a pair of texts such as a question and a passage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncodeInput<'a> {
    /// The text, or the first of a pair.
    pub text: &'a str,
    /// The second text of a pair.
    pub pair: Option<&'a str>,
}

impl<'a> From<&'a str> for EncodeInput<'a> {
    fn from(text: &'a str) -> EncodeInput<'a> {
        EncodeInput { text, pair: None }
    }
}

impl<'a> From<&'a String> for EncodeInput<'a> {
    fn from(text: &'a String) -> EncodeInput<'a> {
        EncodeInput { text, pair: None }
    }
}

impl<'a> From<(&'a str, &'a str)> for EncodeInput<'a> {
    fn from((text, pair): (&'a str, &'a str)) -> EncodeInput<'a> {
        EncodeInput { text, pair: Some(pair) }
    }
}

/// Which text of a pair is shortened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Truncation {
    /// The longer one, then both.
    #[default]
    LongestFirst,
    /// The first.
    OnlyFirst,
    /// The second.
    OnlySecond,
}

options! {
    /// Options of [`PretrainedTokenizer::encode_with`](super::PretrainedTokenizer::encode_with),
    /// with the names and defaults of Hugging Face's tokenizers: special tokens are added, nothing
    /// is truncated, batches are padded at the end to their longest sequence.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct EncodeOptions {
        /// Adds the special tokens of a sequence, such as `[CLS]` and `[SEP]`.
        add_special_tokens: bool = true, with_add_special_tokens;
        /// The largest number of tokens, special ones included.
        max_length: Option<usize> = None, with_max_length(usize);
        /// Which text of a pair is shortened to `max_length`.
        truncation: Truncation = Truncation::default(), with_truncation;
        /// The end from which tokens are removed.
        truncation_side: Side = Side::Right, with_truncation_side;
        /// The end at which a batch is padded.
        padding_side: Side = Side::Right, with_padding_side;
        /// The length of a padded batch is a multiple of this.
        pad_to_multiple_of: usize = 1, with_pad_to_multiple_of;
        /// The token that pads batches; the tokenizer's by default.
        pad: Option<u32> = None, with_pad(u32);
    }
}

/// The tokens of a text or a pair of texts. All lists have one length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Encoding {
    /// The tokens.
    pub ids: Vec<u32>,
    /// The type of each token: for most models 0 in the first text, 1 in the second.
    pub type_ids: Vec<u32>,
    /// The bytes of each token in its text, (0, 0) for tokens that the text does not contain.
    pub offsets: Vec<(usize, usize)>,
    /// True for the special tokens that were added around the texts.
    pub special_tokens_mask: Vec<bool>,
}

impl Encoding {
    /// The number of tokens.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// True if it has no tokens.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Appends a special token.
    pub(super) fn push_special(&mut self, id: u32, type_id: u32) {
        self.ids.push(id);
        self.type_ids.push(type_id);
        self.offsets.push((0, 0));
        self.special_tokens_mask.push(true);
    }

    pub(super) fn append(&mut self, mut other: Encoding) {
        self.ids.append(&mut other.ids);
        self.type_ids.append(&mut other.type_ids);
        self.offsets.append(&mut other.offsets);
        self.special_tokens_mask.append(&mut other.special_tokens_mask);
    }

    /// Keeps `count` tokens at most, without those at `side`.
    pub(super) fn truncate(&mut self, count: usize, side: Side) {
        let n = self.len();
        let removed = match side {
            Side::Left => 0..n.saturating_sub(count),
            Side::Right => count.min(n)..n,
        };
        self.ids.drain(removed.clone());
        self.type_ids.drain(removed.clone());
        self.offsets.drain(removed.clone());
        self.special_tokens_mask.drain(removed);
    }
}

/// Texts as tokens, padded to one length.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Batch {
    /// The tokens of each text: B lists of T.
    pub ids: Vec<Vec<u32>>,
    /// True for tokens, false for padding.
    pub mask: Vec<Vec<bool>>,
    /// The types of the tokens, 0 for padding.
    pub type_ids: Vec<Vec<u32>>,
}

impl Batch {
    /// The batch of `encodings`, padded with `pad`.
    ///
    /// # Errors
    /// If padding is needed, but `pad` is None.
    pub fn new(
        encodings: Vec<Encoding>,
        pad: Option<u32>,
        options: &EncodeOptions,
    ) -> Result<Batch> {
        let longest = encodings.iter().map(Encoding::len).max().unwrap_or(0);
        let length = longest.next_multiple_of(options.pad_to_multiple_of.max(1));
        let equal = encodings.iter().all(|encoding| encoding.len() == length);
        let pad = match pad {
            Some(pad) => pad,
            None if equal => 0,
            None => {
                return Err(Error::value("the tokenizer has no padding token")
                    .help("EncodeOptions::with_pad sets one, such as the end of a text"));
            }
        };
        let mut batch = Batch { ids: vec![], mask: vec![], type_ids: vec![] };
        for Encoding { mut ids, mut type_ids, .. } in encodings {
            let n = ids.len();
            let mut mask = vec![true; n];
            ids.resize(length, pad);
            type_ids.resize(length, 0);
            mask.resize(length, false);
            if options.padding_side == Side::Left {
                ids.rotate_right(length - n);
                type_ids.rotate_right(length - n);
                mask.rotate_right(length - n);
            }
            batch.ids.push(ids);
            batch.mask.push(mask);
            batch.type_ids.push(type_ids);
        }
        Ok(batch)
    }

    fn shape(&self) -> [usize; 2] {
        [self.ids.len(), self.ids.first().map_or(0, Vec::len)]
    }

    /// The tokens as a tensor (B, T) of I32.
    ///
    /// # Errors
    /// If the device cannot hold it.
    #[track_caller]
    pub fn tokens(&self, device: impl ToDevice) -> Result<Tensor> {
        let _op = enter("encoding.tokens");
        let ids: Vec<i32> = self.ids.concat().into_iter().map(|id| id as i32).collect();
        Tensor::from_vec(ids, self.shape(), device.to_device()) // (B, T)
    }

    /// True for tokens, false for padding: a tensor (B, T) of bool.
    ///
    /// # Errors
    /// If the device cannot hold it.
    #[track_caller]
    pub fn mask(&self, device: impl ToDevice) -> Result<Tensor> {
        let _op = enter("encoding.mask");
        Tensor::from_vec(self.mask.concat(), self.shape(), device.to_device()) // (B, T)
    }

    /// The types of the tokens as a tensor (B, T) of I32.
    ///
    /// # Errors
    /// If the device cannot hold it.
    #[track_caller]
    pub fn types(&self, device: impl ToDevice) -> Result<Tensor> {
        let _op = enter("encoding.types");
        let types: Vec<i32> = self.type_ids.concat().into_iter().map(|id| id as i32).collect();
        Tensor::from_vec(types, self.shape(), device.to_device()) // (B, T)
    }
}
