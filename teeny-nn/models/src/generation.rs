//! [`GenerationConfig`]: how tokens are sampled, and when generation stops.
//!
//! ```text
//! logits ─ repetition penalty ─ n-grams ─ least length ─ suppressed tokens ─ Sampler ─ token
//! ```
//!
//! The order is the same as in transformers. The first steps depend on the earlier tokens, so they
//! run on the host, and only if requested.

use std::path::Path;
use teeny_core::random::Key;
use teeny_core::setters;
use teeny_core::{DType, Error, Result, Tensor};
use teeny_formats::config::Config;
use teeny_formats::keys;
use teeny_nn::model_options::model_options;
use teeny_text::{Sampler, repetition_penalty};

model_options! {
    /// How tokens are chosen and when a text ends. The defaults are the same as in transformers
    /// (greedy, without an end token), except 256 new tokens instead of 20.
    #[derive(Clone, Debug, PartialEq)]
    pub struct GenerationConfig {
        /// The number of new tokens at most; 256.
        max_new_tokens: usize = 256, "max_new_tokens";
        /// The number of new tokens before which no end token is chosen; 0.
        min_new_tokens: usize = 0, "min_new_tokens";
        /// Whether tokens are drawn; otherwise each is the most likely one. False.
        do_sample: bool = false, "do_sample";
        /// The divisor of the logits, if tokens are drawn; 1.
        temperature: f64 = 1.0, "temperature";
        /// The number of tokens that may be drawn, 0 for all; 50.
        top_k: usize = 50, "top_k";
        /// The total probability of those that may be drawn; 1.
        top_p: f64 = 1.0, "top_p";
        /// The least probability of one that may be drawn, as a part of the largest; 0.
        min_p: f64 = 0.0, "min_p";
        /// The factor by which tokens that are in the text already are less likely; 1.
        repetition_penalty: f64 = 1.0, "repetition_penalty";
        /// The length of sequences of tokens that occur once at most, 0 for none; 0.
        no_repeat_ngram_size: usize = 0, "no_repeat_ngram_size";
        /// Tokens that are never chosen.
        suppress_tokens: Vec<u32> = Vec::new();
        /// Tokens after which a text ends.
        eos_tokens: Vec<u32> = Vec::new();
        /// Texts before which a text ends, such as `\nUser:`.
        stop_strings: Vec<String> = Vec::new();
        /// The seed of the draws; 0.
        seed: u64 = 0;
        /// An option of the model's file that generation does not have: an error when it runs.
        unsupported: Option<String> = None;
    }
}

impl Default for GenerationConfig {
    fn default() -> GenerationConfig {
        GenerationConfig::defaults()
    }
}

impl GenerationConfig {
    /// The defaults.
    pub fn new() -> GenerationConfig {
        GenerationConfig::default()
    }

    setters! {
        /// Sets the number of new tokens at most.
        with_max_new_tokens(count: usize) => max_new_tokens = count;
    }

    /// Sets the texts before which a text ends.
    pub fn with_stop_strings<S: Into<String>>(
        mut self,
        texts: impl IntoIterator<Item = S>,
    ) -> GenerationConfig {
        self.stop_strings = texts.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the seed, and that tokens are drawn.
    pub fn sampled(mut self, seed: u64) -> GenerationConfig {
        (self.do_sample, self.seed) = (true, seed);
        self
    }

    /// Reads `generation_config.json` of the folder `path`, or the keys that older models have in
    /// `config.json`, which is the first of `models`. The second is its section of the language
    /// model, which knows the family.
    pub(super) fn open(
        path: &Path,
        models: [&Config; 2],
    ) -> Result<(GenerationConfig, Vec<String>)> {
        let own = path.join("generation_config.json");
        let own = if own.exists() { Some(Config::open_file(own)?) } else { None };
        let mut config = GenerationConfig::of(own.as_ref().unwrap_or(models[0]))?;
        for model in models {
            if config.eos_tokens.is_empty() {
                config.eos_tokens = model.tokens("eos_token_id")?;
            }
        }
        let none = models.iter().any(|model| model.is_null("eos_token_id"));
        if config.eos_tokens.is_empty() && !none {
            config.eos_tokens = models[1].tokens("eos")?;
        }
        Ok((config, own.map_or_else(Vec::new, |own| own.unread())))
    }

    fn of(file: &Config) -> Result<GenerationConfig> {
        let text = |value: &serde_json::Value| value.as_str().map(str::to_string);
        let mut config = GenerationConfig::read(file)?;
        config.suppress_tokens = file.tokens("suppress_tokens")?;
        config.eos_tokens = file.tokens("eos_token_id")?;
        config.stop_strings =
            file.list("stop_strings", "a list of texts", text)?.unwrap_or_default();
        config.check().map_err(|error| file.error(error.message().to_string()))?;
        config.unsupported = keys::refused(&["generation"], &[], |key| file.value(key).cloned());
        Ok(config)
    }

    /// Returns an error if an option is out of range.
    pub(super) fn check(&self) -> Result<()> {
        let rules = [
            ("temperature", self.temperature, self.temperature >= 0.0),
            ("top_p", self.top_p, self.top_p > 0.0 && self.top_p <= 1.0),
            ("min_p", self.min_p, (0.0..=1.0).contains(&self.min_p)),
            ("repetition_penalty", self.repetition_penalty, self.repetition_penalty > 0.0),
        ];
        if let Some(text) = &self.unsupported {
            return Err(Error::value(format!("the model's generation_config.json: {text}")).help(
                "GenerationConfig::new() has the defaults: tokens are the most likely ones, or \
                 drawn by temperature, top_k, top_p and min_p",
            ));
        }
        match rules.iter().find(|(_, value, valid)| !(*valid && value.is_finite())) {
            Some((name, value, _)) => Err(Error::value(format!("{name} is {value}")).help(
                "temperature is 0 or more, top_p and min_p are probabilities, a penalty is above 0",
            )),
            None => Ok(()),
        }
    }

    fn sampler(&self) -> Sampler {
        if !self.do_sample {
            return Sampler::greedy();
        }
        let sampler =
            Sampler::new().temperature(self.temperature).top_p(self.top_p).min_p(self.min_p);
        if self.top_k > 0 { sampler.top_k(self.top_k) } else { sampler }
    }

    /// The next token of each text: logits (B, V). `texts` are the tokens before, among them `step`
    /// new ones.
    pub(super) fn next(&self, logits: &Tensor, texts: &[&[u32]], step: usize) -> Result<Vec<u32>> {
        let key = Key { seed: self.seed, draw: step as u64 };
        let mut logits = logits.clone();
        if self.repetition_penalty != 1.0 {
            let previous = rectangle(texts, &logits)?;
            logits = repetition_penalty(&logits, &previous, self.repetition_penalty)?;
        }
        let too_short = step < self.min_new_tokens;
        let n = self.no_repeat_ngram_size;
        if n > 0 || !self.suppress_tokens.is_empty() || too_short {
            let (shape, vocab) = (*logits.shape(), logits.shape()[1]);
            let mut values = logits.cast(DType::F32)?.to_vec::<f32>()?.to_vec();
            for (row, text) in values.chunks_mut(vocab).zip(texts) {
                let ends = self.eos_tokens.iter().filter(|_| too_short);
                for token in repeating(text, n).chain(ends.chain(&self.suppress_tokens).copied()) {
                    row.get_mut(token as usize).into_iter().for_each(|x| *x = f32::NEG_INFINITY);
                }
            }
            logits = Tensor::from_vec(values, shape, &logits)?;
        }
        self.sampler().tokens(&logits, key)
    }
}

/// The tokens of all texts, (B, T): a shorter text has its first token several times.
fn rectangle(texts: &[&[u32]], like: &Tensor) -> Result<Tensor> {
    let longest = texts.iter().map(|text| text.len()).max().unwrap_or(0);
    let row = |text: &&[u32]| {
        let first = text.first().copied().unwrap_or(0);
        let padding = std::iter::repeat_n(first, longest - text.len());
        padding.chain(text.iter().copied()).map(|id| id as i32).collect::<Vec<_>>()
    };
    let ids = texts.iter().flat_map(row).collect::<Vec<_>>();
    Tensor::from_vec(ids, (texts.len(), longest), like)
}

/// The tokens that would make the last `n` tokens of `text` a sequence that it has already; none if
/// `n` is 0.
fn repeating(text: &[u32], n: usize) -> impl Iterator<Item = u32> {
    let before = n.saturating_sub(1);
    let last = text.len().checked_sub(before).filter(|_| n > 0).map(|at| &text[at..]);
    let windows = text.windows(before + 1).filter(move |window| last == Some(&window[..before]));
    windows.map(move |window| window[before])
}
