//! Generation: [`Decoder::generate`] for a batch of texts, [`Session`] for a text that is continued
//! later.
//!
//! ```text
//! prompts of unequal length ─ padded on the left ─ CachedLm::next ─ GenerationConfig::next ─┐
//!                                                        ▲                                  │
//!                                                        └── one token of each text ◄───────┘
//! ```

use super::{Decoder, GenerationConfig};
use std::ops::ControlFlow;
use teeny_core::context::enter;
use teeny_core::{Error, Result, Tensor};
use teeny_nn::transformer::{CachedLm, CausalInputs, CausalLm};

/// Why a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finish {
    /// The model chose an end token, the last of the text.
    EndToken,
    /// There are as many new tokens as allowed.
    Length,
    /// The prompt and the new tokens fill the context or the session.
    Context,
    /// A stop string followed.
    StopString,
    /// The caller stopped it.
    Stopped,
}

/// The new tokens of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Generated {
    /// The tokens after the prompt, with the end token if there is one.
    pub tokens: Vec<u32>,
    /// Why the text ended.
    pub finish: Finish,
}

impl Decoder {
    /// Continues each of `prompts`, all at once, until it ends as `config` says. `on_token` is
    /// called with the index of a text and its new token, and may stop that text.
    ///
    /// Prompts may have different lengths. Greedy tokens of a text are the same as when it is
    /// alone, up to the rounding of products of another size; draws depend on the whole batch.
    ///
    /// # Errors
    /// If `config` has stop strings, which [`Decoder::complete`] knows, a prompt is empty or longer
    /// than the context ([`ErrorKind::Index`](teeny_core::ErrorKind::Index)), a token is not in the
    /// vocabulary, an option is out of range, or a device fails.
    #[track_caller]
    pub fn generate(
        &self,
        prompts: &[Vec<u32>],
        config: &GenerationConfig,
        mut on_token: impl FnMut(usize, u32) -> ControlFlow<()>,
    ) -> Result<Vec<Generated>> {
        let _op = enter("generate");
        self.generate_batch(prompts, Configs::Shared(config), &mut on_token)
    }

    /// [`Decoder::generate`] with options for each of `prompts`, whose draws are those that it has
    /// alone.
    pub(super) fn generate_each(
        &self,
        prompts: &[Vec<u32>],
        configs: &[GenerationConfig],
        on_token: &mut dyn FnMut(usize, u32) -> ControlFlow<()>,
    ) -> Result<Vec<Generated>> {
        if prompts.len() != configs.len() {
            let text = format!("got {} prompts, but {} configs", prompts.len(), configs.len());
            return Err(Error::value(text).help("pass one GenerationConfig for each prompt"));
        }
        self.generate_batch(prompts, Configs::Each(configs), on_token)
    }

    fn generate_batch(
        &self,
        prompts: &[Vec<u32>],
        configs: Configs<'_>,
        on_token: &mut dyn FnMut(usize, u32) -> ControlFlow<()>,
    ) -> Result<Vec<Generated>> {
        if prompts.is_empty() {
            return Ok(Vec::new());
        }
        let mut batch = Batch::new(&self.model, prompts)?;
        let most = configs.all().iter().map(|config| config.max_new_tokens).max().unwrap_or(0);
        let length = batch.width().saturating_add(most);
        if prompts.len() > 1 && self.model.changes_after().is_some_and(|last| length > last) {
            // a batch has the rotations of its longest text, with padding
            let alone = |(i, prompt)| {
                let config = Configs::Shared(configs.of(i));
                let mut on_token = |_: usize, token| on_token(i, token);
                let generated =
                    self.generate_batch(std::slice::from_ref(prompt), config, &mut on_token);
                Ok(generated?.swap_remove(0))
            };
            return prompts.iter().enumerate().map(alone).collect();
        }
        // the padding of a text does not count towards its context
        let most = batch.padding.iter().max().map_or(0, |&padding| padding);
        let context = self.model.config().context.saturating_add(most);
        let mut text = CachedLm::with_capacity(&self.model, length.min(context));
        batch.generate(configs, &mut text, on_token)
    }

    /// A session for texts of up to `capacity` tokens, in memory that does not grow.
    pub fn session(&self, capacity: usize) -> Session<'_> {
        let capacity = capacity.min(self.model.config().context);
        Session { text: CachedLm::with_capacity(&self.model, capacity), tokens: Vec::new() }
    }
}

/// One text at a time, with the keys and values of the tokens before: a text that begins as the
/// last one, such as a conversation, computes its new tokens only.
pub struct Session<'m> {
    text: CachedLm<'m>,
    /// The tokens of the text.
    tokens: Vec<u32>,
}

impl Session<'_> {
    /// The number of tokens whose keys and values are kept.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether no keys and values are kept.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Continues `prompt`, the whole text from its first token: as [`Decoder::generate`].
    ///
    /// # Errors
    /// As [`Decoder::generate`]; if the prompt does not fit the capacity.
    #[track_caller]
    pub fn generate(
        &mut self,
        prompt: &[u32],
        config: &GenerationConfig,
        mut on_token: impl FnMut(u32) -> ControlFlow<()>,
    ) -> Result<Generated> {
        let _op = enter("generate");
        let mut batch = Batch::new(self.text.model(), std::slice::from_ref(&prompt))?;
        let same = self.tokens.iter().zip(prompt).take_while(|(a, b)| a == b).count();
        // the last token is always computed, because its logits are needed
        let mut kept = same.min(prompt.len() - 1);
        let (before, after) = (self.tokens.len(), prompt.len());
        let rotations_differ = |last| match batch.model.grows() {
            true => before.max(after) > last,
            false => (before > last) != (after > last),
        };
        if batch.model.changes_after().is_some_and(rotations_differ) {
            kept = 0;
        }
        self.text.truncate(kept);
        self.tokens.truncate(kept);
        let mut on_token = |_, token| on_token(token);
        let generated = batch.generate(Configs::Shared(config), &mut self.text, &mut on_token);
        if generated.is_err() {
            // a device that failed may have lost keys
            self.text.truncate(0);
        }
        let kept = self.text.len();
        self.tokens = batch.rows.swap_remove(0);
        self.tokens.truncate(kept);
        let mut generated = generated?;
        Ok(generated.swap_remove(0))
    }
}

/// How the texts of a batch are continued.
#[derive(Clone, Copy)]
enum Configs<'a> {
    /// One config for all; draws depend on the whole batch.
    Shared(&'a GenerationConfig),
    /// Each as if it were alone.
    Each(&'a [GenerationConfig]),
}

impl<'a> Configs<'a> {
    fn all(self) -> &'a [GenerationConfig] {
        match self {
            Configs::Shared(config) => std::slice::from_ref(config),
            Configs::Each(configs) => configs,
        }
    }

    /// The config of text `i`.
    fn of(self, i: usize) -> &'a GenerationConfig {
        match self {
            Configs::Shared(config) => config,
            Configs::Each(configs) => &configs[i],
        }
    }

    /// The next token of each text: as [`GenerationConfig::next`].
    fn next(self, logits: &Tensor, texts: &[&[u32]], step: usize) -> Result<Vec<u32>> {
        let Configs::Each(configs) = self else {
            return self.of(0).next(logits, texts, step);
        };
        // a draw depends on the row of its logits
        let of_row = |(i, config): (usize, &GenerationConfig)| {
            let row = logits.slice(0, i as isize..i as isize + 1)?; // (1, V)
            Ok(config.next(&row, &texts[i..=i], step)?[0])
        };
        configs.iter().enumerate().map(of_row).collect()
    }
}

/// Texts of one length, padded on the left.
struct Batch<'m> {
    model: &'m CausalLm,
    rows: Vec<Vec<u32>>,
    /// The padding before each.
    padding: Vec<usize>,
}

impl<'m> Batch<'m> {
    fn new(model: &'m CausalLm, prompts: &[impl AsRef<[u32]>]) -> Result<Batch<'m>> {
        let (context, vocab) = (model.config().context, model.config().vocab);
        for (i, prompt) in prompts.iter().enumerate() {
            let (prompt, count) = (prompt.as_ref(), prompt.as_ref().len());
            let name = if prompts.len() == 1 { "the prompt" } else { &format!("prompt {i}") };
            if prompt.is_empty() {
                return Err(Error::value(format!("{name} has no tokens"))
                    .help("begin with a start token, such as bos_token"));
            }
            if count > context {
                let text = format!("{name} has {count} tokens, the context {context}");
                return Err(Error::index(text)
                    .help("use a shorter prompt, or open the model with a larger with_context"));
            }
            if let Some(token) = prompt.iter().find(|&&token| token as usize >= vocab) {
                let text = format!("token {token} of {name} is not below {vocab}");
                return Err(Error::index(text).help("the tokenizer belongs to another model"));
            }
        }
        let width = prompts.iter().map(|prompt| prompt.as_ref().len()).max().unwrap_or(0);
        let padding: Vec<usize> = prompts.iter().map(|row| width - row.as_ref().len()).collect();
        let rows = prompts.iter().zip(&padding);
        let rows = rows.map(|(row, &none)| [&vec![0; none], row.as_ref()].concat()).collect();
        Ok(Batch { model, rows, padding })
    }

    /// The number of tokens of a text, with padding.
    fn width(&self) -> usize {
        self.rows[0].len()
    }

    /// Tokens `from..` of all texts, (B, T).
    fn tokens(&self, from: usize) -> Result<Tensor> {
        let device = self.model.embedding().value();
        let ids = self.rows.iter().flat_map(|row| &row[from..]).map(|&id| id as i32);
        Tensor::from_vec(ids.collect::<Vec<_>>(), (self.rows.len(), self.width() - from), &device)
    }

    /// Whether position `at` of text `i` is neither padding nor behind the context.
    fn is_seen(&self, i: usize, at: usize) -> bool {
        at.wrapping_sub(self.padding[i]) < self.model.config().context
    }

    /// True for tokens that are neither padding nor beyond the context, (B, S); `None` without
    /// padding.
    fn mask(&self) -> Result<Option<Tensor>> {
        if self.padding.iter().all(|&padding| padding == 0) {
            return Ok(None);
        }
        let device = self.model.embedding().value();
        let row = |i| (0..self.width()).map(move |at| self.is_seen(i, at));
        let seen: Vec<bool> = (0..self.rows.len()).flat_map(row).collect();
        Tensor::from_vec(seen, (self.rows.len(), self.width()), &device).map(Some)
    }

    fn generate(
        &mut self,
        configs: Configs<'_>,
        cached: &mut CachedLm<'_>,
        on_token: &mut dyn FnMut(usize, u32) -> ControlFlow<()>,
    ) -> Result<Vec<Generated>> {
        configs.all().iter().try_for_each(GenerationConfig::check)?;
        if configs.all().iter().any(|config| !config.stop_strings.is_empty()) {
            return Err(Error::value("cannot stop at strings: this call generates tokens")
                .help("Decoder::complete and Chat::send stop at them"));
        }
        let start = self.width();
        let capacity = cached.capacity();
        if start > capacity {
            let text = format!("a prompt of {start} tokens does not fit a session of {capacity}");
            return Err(Error::index(text).help("call Decoder::session with a larger capacity"));
        }
        // why a text has ended, and the number of its tokens then, with padding
        let none = |i| configs.of(i).max_new_tokens == 0;
        let mut ended: Vec<Option<(Finish, usize)>> =
            (0..self.rows.len()).map(|i| none(i).then_some((Finish::Length, start))).collect();
        for step in 0.. {
            if self.width() > capacity || ended.iter().all(Option::is_some) {
                break;
            }
            let logits = self.next(cached)?; // (B, V)
            let texts = self.rows.iter().zip(&self.padding).map(|(row, &from)| &row[from..]);
            let chosen = configs.next(&logits, &texts.collect::<Vec<_>>(), step)?;
            for (i, token) in chosen.into_iter().enumerate() {
                self.rows[i].push(token); // of an ended text too: all have one length
                if ended[i].is_some() {
                    continue;
                }
                let (stopped, config) = (on_token(i, token).is_break(), configs.of(i));
                let finish = if config.eos_tokens.contains(&token) {
                    Some(Finish::EndToken)
                } else if stopped {
                    Some(Finish::Stopped)
                } else if step + 1 >= config.max_new_tokens {
                    Some(Finish::Length)
                } else {
                    (!self.is_seen(i, self.width() - 1)).then_some(Finish::Context)
                };
                ended[i] = finish.map(|finish| (finish, self.rows[i].len()));
            }
        }
        let generated = |(row, ended): (&Vec<u32>, Option<(Finish, usize)>)| {
            let (finish, end) = ended.unwrap_or((Finish::Context, row.len()));
            Generated { tokens: row[start..end].to_vec(), finish }
        };
        Ok(self.rows.iter().zip(ended).map(generated).collect())
    }

    /// The logits of the next token of each text, with the tokens that are not cached.
    fn next(&self, cached: &mut CachedLm<'_>) -> Result<Tensor> {
        if self.model.rotations_change(cached.len(), self.width()).is_some() {
            // keys of longer texts are rotated otherwise
            cached.truncate(0);
        }
        let (tokens, mask) = (self.tokens(cached.len())?, self.mask()?);
        let mut inputs = CausalInputs::new(&tokens);
        inputs.mask = mask.as_ref();
        cached.next(inputs)
    }
}
