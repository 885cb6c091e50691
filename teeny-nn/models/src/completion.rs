//! Text in, text out: [`Decoder`] with its tokenizer, and conversations.

use super::session::{Finish, Generated, Session};
#[cfg(feature = "chat")]
use super::{ChatOptions, Message};
use super::{Decoder, GenerationConfig};
use std::ops::ControlFlow;
use teeny_core::context::enter;
use teeny_core::{Error, Result};
use teeny_text::{DecodeStream, EncodeOptions, PretrainedTokenizer, Tokenizer};

/// A text that a model has continued.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Completion {
    /// The new text, without special tokens.
    pub text: String,
    /// The number of tokens of the prompt.
    pub prompt_tokens: usize,
    /// The number of new tokens.
    pub new_tokens: usize,
    /// Why it ended.
    pub finish: Finish,
}

impl Decoder {
    /// The tokenizer of the model.
    ///
    /// # Errors
    /// If the model has none, or one of a kind that is not known.
    #[track_caller]
    pub fn tokenizer(&self) -> Result<&PretrainedTokenizer> {
        let _op = enter("tokenizer");
        self.tokenizer.as_ref().map_err(Error::clone)
    }

    /// Continues `prompt`. `on_text` is called with each new piece of whole characters, and may
    /// stop the text.
    ///
    /// # Errors
    /// If the model has no tokenizer; as [`Decoder::generate`].
    ///
    /// # Example
    /// ```no_run
    /// use std::ops::ControlFlow;
    /// use teeny_models::Decoder;
    /// use teeny_nn::device::device;
    /// # fn main() -> teeny_core::Result<()> {
    /// let decoder = Decoder::open("smollm2-135m.gguf", device("cpu")?)?;
    /// let config = decoder.generation.clone().with_max_new_tokens(20);
    /// let completion = decoder.complete("The capital of France is", &config, |piece| {
    ///     print!("{piece}");
    ///     ControlFlow::Continue(())
    /// })?;
    /// # let _ = completion; Ok(()) }
    /// ```
    #[track_caller]
    pub fn complete(
        &self,
        prompt: &str,
        config: &GenerationConfig,
        on_text: impl FnMut(&str) -> ControlFlow<()>,
    ) -> Result<Completion> {
        let _op = enter("complete");
        let tokenizer = self.tokenizer()?;
        let prompt = tokenizer.encode_with(prompt, &EncodeOptions::default())?.ids;
        let capacity = prompt.len().saturating_add(config.max_new_tokens);
        completed(tokenizer, &mut self.session(capacity), &prompt, config, on_text)
    }

    /// Continues each of `prompts` as its own of `configs` says, all at once. `on_text` is called
    /// after each new token with the index of a text and the piece of whole characters that the
    /// token completes, which may be empty; it may stop that text.
    ///
    /// Each prompt gets the same text and draws as when it is completed alone, up to the rounding
    /// of products of another size. The longest prompt with the new tokens of a text fits the
    /// context, or that text is cut there.
    ///
    /// # Errors
    /// If there are not as many options as prompts, or the model has no tokenizer; as
    /// [`Decoder::generate`].
    #[track_caller]
    pub fn complete_each(
        &self,
        prompts: &[Vec<u32>],
        configs: &[GenerationConfig],
        mut on_text: impl FnMut(usize, &str) -> ControlFlow<()>,
    ) -> Result<Vec<Completion>> {
        let _op = enter("complete_each");
        let visible = SkipSpecialTokens(self.tokenizer()?);
        let mut texts: Vec<_> =
            configs.iter().map(|config| StreamingDetokenizer::new(&visible, config)).collect();
        let of_tokens: Vec<_> = configs.iter().map(without_stops).collect();
        let generated = self.generate_each(prompts, &of_tokens, &mut |i, token| {
            texts[i].push(token, &mut |piece| on_text(i, piece))
        })?;
        let all = texts.into_iter().zip(generated).zip(prompts).enumerate();
        all.map(|(i, ((text, generated), prompt))| {
            text.finish(prompt.len(), generated, &mut |piece| on_text(i, piece))
        })
        .collect()
    }
}

/// The text after `prompt`.
fn completed(
    tokenizer: &PretrainedTokenizer,
    session: &mut Session<'_>,
    prompt: &[u32],
    config: &GenerationConfig,
    mut on_text: impl FnMut(&str) -> ControlFlow<()>,
) -> Result<Completion> {
    let visible = SkipSpecialTokens(tokenizer);
    let mut text = StreamingDetokenizer::new(&visible, config);
    let generated = session.generate(prompt, &without_stops(config), |token| {
        text.push(token, &mut |piece| match piece {
            "" => ControlFlow::Continue(()),
            piece => on_text(piece),
        })
    })?;
    text.finish(prompt.len(), generated, &mut on_text)
}

/// `config` for tokens, whose texts [`StreamingDetokenizer`] compares with the stop strings.
fn without_stops(config: &GenerationConfig) -> GenerationConfig {
    GenerationConfig { stop_strings: Vec::new(), ..config.clone() }
}

/// A text that grows by tokens.
struct StreamingDetokenizer<'a> {
    tokenizer: &'a PretrainedTokenizer,
    config: &'a GenerationConfig,
    pieces: StopStringMatcher<'a>,
    text: String,
    /// Whether a stop string followed.
    met: bool,
    failed: Option<Error>,
}

impl<'a> StreamingDetokenizer<'a> {
    fn new(
        visible: &'a SkipSpecialTokens<'a>,
        config: &'a GenerationConfig,
    ) -> StreamingDetokenizer<'a> {
        let (stream, stops) = (DecodeStream::new(visible), &config.stop_strings[..]);
        let pieces = StopStringMatcher { stream, held: String::new(), stops };
        let text = String::new();
        StreamingDetokenizer {
            tokenizer: visible.0,
            config,
            pieces,
            text,
            met: false,
            failed: None,
        }
    }

    /// Adds `token`. `on_text` is called with the text that it completes, unless it ends the text.
    fn push(
        &mut self,
        token: u32,
        on_text: &mut dyn FnMut(&str) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if self.config.eos_tokens.contains(&token) {
            return ControlFlow::Continue(()); // it ends the text, but is not part of it
        }
        // a special token is not text, but may be a stop string; an id that the tokenizer lacks, of
        // a padded vocabulary, has no text
        let stops = &self.config.stop_strings;
        let pieces = match self.tokenizer.text_of(token) {
            Some(text) if stops.iter().any(|stop| stop == text) => {
                self.pieces.finish().map(|piece| (piece, true))
            }
            Some(_) => self.pieces.push(token),
            None => Ok((String::new(), false)),
        };
        match pieces {
            Ok((piece, stop)) => {
                self.met = stop;
                self.text.push_str(&piece);
                let asked = on_text(&piece);
                if stop { ControlFlow::Break(()) } else { asked }
            }
            Err(error) => {
                self.failed = Some(error);
                ControlFlow::Break(())
            }
        }
    }

    /// The whole text, after the rest of it was given to `on_text`.
    fn finish(
        mut self,
        prompt_tokens: usize,
        generated: Generated,
        on_text: &mut dyn FnMut(&str) -> ControlFlow<()>,
    ) -> Result<Completion> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let Generated { tokens, mut finish } = generated;
        if self.met {
            finish = Finish::StopString;
        } else {
            // the text that was held back, if the caller has not stopped it
            let rest = self.pieces.finish()?;
            if finish != Finish::Stopped && !rest.is_empty() {
                self.text.push_str(&rest);
                let _ = on_text(&rest);
            }
        }
        Ok(Completion { text: self.text, prompt_tokens, new_tokens: tokens.len(), finish })
    }
}

/// A tokenizer whose texts have no special tokens.
struct SkipSpecialTokens<'a>(&'a PretrainedTokenizer);

impl Tokenizer for SkipSpecialTokens<'_> {
    fn vocab_size(&self) -> usize {
        self.0.vocab_size()
    }

    fn encode(&self, text: &str) -> Result<Vec<u32>> {
        self.0.encode(text)
    }

    fn decode(&self, tokens: &[u32]) -> Result<String> {
        self.0.decode_with(tokens, true)
    }
}

/// Ends text where a stop string begins. Text that may be the beginning of a stop string is held
/// back.
struct StopStringMatcher<'a> {
    stream: DecodeStream<'a>,
    held: String,
    stops: &'a [String],
}

impl StopStringMatcher<'_> {
    /// The text that `token` completes, and whether a stop string follows it.
    fn push(&mut self, token: u32) -> Result<(String, bool)> {
        self.held += &self.stream.push(token)?;
        let stops = || self.stops.iter().filter(|stop| !stop.is_empty());
        if let Some(at) = stops().filter_map(|stop| self.held.find(stop.as_str())).min() {
            self.held.truncate(at);
            return Ok((std::mem::take(&mut self.held), true));
        }
        let begins =
            |(at, _): &(usize, char)| stops().any(|stop| stop.starts_with(&self.held[*at..]));
        let at = self.held.char_indices().find(begins).map_or(self.held.len(), |(at, _)| at);
        let kept = self.held.split_off(at);
        Ok((std::mem::replace(&mut self.held, kept), false))
    }

    /// The text that was held back.
    fn finish(&mut self) -> Result<String> {
        let rest = self.stream.finish()?;
        Ok(std::mem::take(&mut self.held) + &rest)
    }
}

/// A conversation with a model. Each turn computes the new messages only.
#[cfg(feature = "chat")]
pub struct Chat<'m> {
    decoder: &'m Decoder,
    session: Session<'m>,
    /// The messages, including the model's.
    pub messages: Vec<Message>,
    /// Variables of the template besides the messages.
    pub options: ChatOptions,
}

#[cfg(feature = "chat")]
impl Decoder {
    /// A conversation of up to `capacity` tokens, which begins with these messages.
    ///
    /// # Errors
    /// If the model has no tokenizer or no chat template.
    #[track_caller]
    pub fn chat(&self, capacity: usize, messages: Vec<Message>) -> Result<Chat<'_>> {
        let _op = enter("chat");
        self.tokenizer()?;
        self.template()?;
        let (session, options) = (self.session(capacity), ChatOptions::new());
        Ok(Chat { decoder: self, session, messages, options })
    }

    /// The chat template of the model.
    ///
    /// # Errors
    /// If it has none, or one that is not valid.
    #[track_caller]
    pub fn template(&self) -> Result<&super::ChatTemplate> {
        let _op = enter("template");
        self.template.as_ref().map_err(Error::clone)?.as_ref().ok_or_else(|| {
            Error::value("the model has no chat template").help(
                "models without one continue texts: Decoder::complete; those that are trained for \
                 conversations have \"instruct\" or \"chat\" in their names",
            )
        })
    }
}

#[cfg(feature = "chat")]
impl Chat<'_> {
    /// Sends `text` as the user, and returns the answer, of which `on_text` gets each piece. Both
    /// are appended to the messages.
    ///
    /// # Errors
    /// If the template refuses the conversation, it does not fit the capacity
    /// ([`ErrorKind::Index`](teeny_core::ErrorKind::Index)), or a device fails. The messages have
    /// not changed then.
    #[track_caller]
    pub fn send(
        &mut self,
        text: &str,
        config: &GenerationConfig,
        on_text: impl FnMut(&str) -> ControlFlow<()>,
    ) -> Result<Completion> {
        let _op = enter("chat");
        self.messages.push(Message::user(text));
        let answer = self.answer(config, on_text);
        match &answer {
            Ok(answer) => self.messages.push(Message::assistant(&answer.text)),
            Err(_) => self.messages.truncate(self.messages.len() - 1),
        }
        answer
    }

    fn answer(
        &mut self,
        config: &GenerationConfig,
        on_text: impl FnMut(&str) -> ControlFlow<()>,
    ) -> Result<Completion> {
        let tokenizer = self.decoder.tokenizer()?;
        let text = self.decoder.template()?.render(&self.messages, &self.options)?;
        let prompt = tokenizer.encode(&text)?; // the template has written the special tokens
        completed(tokenizer, &mut self.session, &prompt, config, on_text)
    }
}
