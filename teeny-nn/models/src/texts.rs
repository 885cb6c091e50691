//! Makes the inputs of an encoder from texts: encodes them, sorts them by length and computes
//! batches of similar length, to keep padding small.

use std::path::{Path, PathBuf};
use teeny_autograd::no_grad;
use teeny_core::{Error, Result, Tensor, ToDevice};
use teeny_formats::config::Config;
use teeny_formats::names::{loading, of_file};
use teeny_nn::transformer::EncoderInputs;
use teeny_text::{Batch, EncodeInput, EncodeOptions, Encoding, PretrainedTokenizer};

/// The texts of a batch at most, and its tokens.
const TEXTS: usize = 32;
const TOKENS: usize = 8192;

/// sentence-transformers keeps the length of texts in `sentence_NAME_config.json`, with these
/// names.
const FILES: [&str; 7] =
    ["bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet"];

/// The inputs of an encoder for several texts.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EncoderBatch {
    /// (B, T) of I32, padded at the end.
    pub tokens: Tensor,
    /// (B, T) of bool: true for a token, false for padding; `None` without padding.
    pub mask: Option<Tensor>,
    /// (B, T) of I32: 1 for the second text of a pair; none if all are 0.
    pub types: Option<Tensor>,
}

impl EncoderBatch {
    /// The batch of `encodings`, with their types or without.
    pub(super) fn new(
        encodings: Vec<Encoding>,
        pad: Option<u32>,
        types: bool,
        device: impl ToDevice,
    ) -> Result<EncoderBatch> {
        let device = device.to_device();
        let padded = encodings.iter().any(|other| other.len() != encodings[0].len());
        let pad = pad.or(Some(0)); // masked: any token will do
        let batch = Batch::new(encodings, pad, &EncodeOptions::default())?;
        let mask = padded.then(|| batch.mask(&device)).transpose()?;
        let types = types.then(|| batch.types(&device)).transpose()?;
        Ok(EncoderBatch { tokens: batch.tokens(&device)?, mask, types })
    }

    /// As inputs, for [`Encoder::embed`](super::Encoder::embed) and
    /// [`Encoder::logits`](super::Encoder::logits).
    pub fn inputs(&self) -> EncoderInputs<'_> {
        let mut inputs = EncoderInputs::new(&self.tokens);
        (inputs.mask, inputs.types) = (self.mask.as_ref(), self.types.as_ref());
        inputs
    }
}

/// How texts become the inputs of an encoder.
pub(super) struct Texts {
    /// The tokenizer, or why it could not be opened.
    tokenizer: Result<PretrainedTokenizer>,
    /// The number of tokens of a text at most.
    pub max_length: usize,
    /// Instructions before a text by their name, such as `query`.
    pub prompts: Vec<(String, String)>,
    /// The instruction before every text that is embedded.
    pub default_prompt: String,
    lowercase: bool,
}

impl Texts {
    /// The settings of a file that has only this tokenizer.
    pub fn of(tokenizer: Result<PretrainedTokenizer>, context: usize) -> Texts {
        let (prompts, default_prompt) = (Vec::new(), String::new());
        Texts { tokenizer, max_length: context, prompts, default_prompt, lowercase: false }
    }

    /// The settings of folder `path`, whose model is in folder `model` and has this context.
    pub fn open([path, model]: [&Path; 2], context: usize) -> Result<Texts> {
        let tokenizer = PretrainedTokenizer::open(model);
        let optional = |file: PathBuf| file.exists().then(|| Config::open_file(file)).transpose();
        let usual = tokenizer.as_ref().ok().and_then(|t| t.max_length()).unwrap_or(context);
        // the first is read, as by sentence-transformers
        let mut files = FILES.iter().map(|name| model.join(format!("sentence_{name}_config.json")));
        let (limit, lowercase) = match files.find(|file| file.exists()) {
            Some(file) => {
                let config = Config::open_file(file)?;
                (config.size(&["max_seq_length"], usual)?, config.flag("do_lower_case", false)?)
            }
            None => (usual, false),
        };
        let (mut prompts, mut default_prompt) = (Vec::new(), String::new());
        if let Some(config) = optional(path.join("config_sentence_transformers.json"))? {
            prompts = config.texts("prompts")?;
            if let Some(name) = config.text("default_prompt_name")? {
                let found = prompts.iter().find(|(own, _)| own == name);
                let missing = || config.error(format!("prompt {name:?} does not exist"));
                default_prompt = found.ok_or_else(missing)?.1.clone();
            }
        }
        let max_length = limit.min(context);
        Ok(Texts { tokenizer, max_length, prompts, default_prompt, lowercase })
    }
}

impl Texts {
    pub fn tokenizer(&self) -> Result<&PretrainedTokenizer> {
        self.tokenizer.as_ref().map_err(Error::clone)
    }

    /// The tokens of `input` with special tokens, `max_length` at most.
    pub fn encode(&self, input: EncodeInput<'_>, max_length: usize) -> Result<Encoding> {
        let tokenizer = self.tokenizer()?;
        let options = EncodeOptions::default().with_max_length(max_length);
        if !self.lowercase {
            return tokenizer.encode_with(input, &options);
        }
        let (text, pair) = (input.text.to_lowercase(), input.pair.map(str::to_lowercase));
        let input = EncodeInput { text: &text, pair: pair.as_deref() };
        tokenizer.encode_with(input, &options)
    }

    /// `compute` (B, T) → (B, width) of all inputs, in their order, for a model of the type and on
    /// the device of `like`, that has token types or not.
    pub fn in_batches(
        &self,
        inputs: &[EncodeInput<'_>],
        width: usize,
        (like, types): (&Tensor, bool),
        compute: &dyn Fn(&EncoderInputs<'_>) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let pad = self.tokenizer()?.pad();
        let encode = |input: &EncodeInput<'_>| self.encode(*input, self.max_length);
        let mut encodings = inputs.iter().map(encode).collect::<Result<Vec<Encoding>>>()?;
        if encodings.is_empty() {
            return Tensor::zeros((0, width), like.dtype(), like);
        }
        let mut order: Vec<usize> = (0..encodings.len()).collect();
        order.sort_by_key(|&i| std::cmp::Reverse(encodings[i].len())); // the largest batch first
        let (mut rows, mut rest) = (Vec::new(), &order[..]);
        while let Some(&first) = rest.first() {
            let longest = encodings[first].len().max(1);
            let count = (TOKENS / longest).clamp(1, TEXTS).min(rest.len());
            let (batch, later) = rest.split_at(count);
            let batch: Vec<Encoding> =
                batch.iter().map(|&i| std::mem::take(&mut encodings[i])).collect();
            let batch = EncoderBatch::new(batch, pad, types, like)?;
            rows.push(no_grad(|| compute(&batch.inputs()))?);
            rest = later;
        }
        let rows = Tensor::cat(&rows, 0)?; // (N, width), by length
        let mut places = vec![0i32; order.len()];
        order.iter().zip(0..).for_each(|(&i, place)| places[i] = place);
        rows.index_select(0, &Tensor::new(places, &rows)?)
    }
}

/// The chat templates of the folder `path`, the default and one for conversations with tools, and
/// their files: `chat_template.jinja`, `tool_use.jinja` in `additional_chat_templates`, or
/// `tokenizer_config.json`.
///
/// # Errors
/// If a file cannot be read.
pub(super) fn templates(path: &Path) -> Result<[Option<(PathBuf, String)>; 2]> {
    let default = path.join("chat_template.jinja");
    let tool_use = path.join("additional_chat_templates").join("tool_use.jinja");
    let file = path.join("tokenizer_config.json");
    // the first file replaces the key
    let has_key = file.exists() && !default.exists();
    let config = has_key.then(|| Config::open_file(file.clone())).transpose()?;
    let of = |own: PathBuf, name| {
        if own.exists() {
            let text = teeny_core::file::read(&own).and_then(|bytes| {
                String::from_utf8(bytes).map_err(|_| Error::format("the file is not UTF-8"))
            });
            return text.map_err(|e| of_file(e, loading(&own))).map(|text| Some((own, text)));
        }
        let text = config.as_ref().map(|config| config.chat_template(name)).transpose()?;
        Ok(text.flatten().map(|text| (file.clone(), text)))
    };
    Ok([of(default, "default")?, of(tool_use, "tool_use")?])
}
