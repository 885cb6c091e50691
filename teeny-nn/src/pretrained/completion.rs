//! Text in, text out: [`Decoder`] with its tokenizer, and conversations.

use super::session::{Finish, Generated, Session};
#[cfg(feature = "chat")]
use super::{ChatOptions, Message};
use super::{Decoder, GenerationConfig};
use crate::text::{DecodeStream, EncodeOptions, PretrainedTokenizer, Tokenizer};
use std::ops::ControlFlow;
use teeny_core::context::enter;
use teeny_core::{Error, Result};

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
    pub fn tokenizer(&self) -> Result<&PretrainedTokenizer> {
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
    /// use teeny_nn::{device::device, pretrained::Decoder};
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
}

/// The text after `prompt`.
fn completed(
    tokenizer: &PretrainedTokenizer,
    session: &mut Session<'_>,
    prompt: &[u32],
    config: &GenerationConfig,
    mut on_text: impl FnMut(&str) -> ControlFlow<()>,
) -> Result<Completion> {
    let visible = Visible(tokenizer);
    let mut pieces = Pieces {
        stream: DecodeStream::new(&visible),
        held: String::new(),
        stops: &config.stop_strings,
    };
    let (mut text, mut failed, mut met) = (String::new(), None, false);
    let mut add = |piece: &str| {
        text.push_str(piece);
        if piece.is_empty() { ControlFlow::Continue(()) } else { on_text(piece) }
    };
    let of_tokens = GenerationConfig { stop_strings: Vec::new(), ..config.clone() };
    let is_stop = |token| {
        // a special token is none of the text, but may be a stop string
        let text = tokenizer.text_of(token);
        text.is_some_and(|text| config.stop_strings.iter().any(|stop| stop == text))
    };
    let generated = session.generate(prompt, &of_tokens, |token| {
        if config.eos_tokens.contains(&token) {
            return ControlFlow::Continue(()); // it ends the text, and is none of it
        }
        if is_stop(token) {
            met = true;
            return ControlFlow::Break(());
        }
        match pieces.push(token) {
            Ok((piece, stop)) => {
                met = stop;
                let asked = add(&piece);
                if stop { ControlFlow::Break(()) } else { asked }
            }
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        }
    })?;
    if let Some(error) = failed {
        return Err(error);
    }
    let Generated { tokens, mut finish } = generated;
    if met {
        finish = Finish::StopString;
    } else {
        // what was held back, if the caller has not stopped it
        let rest = pieces.finish()?;
        if finish != Finish::Stopped {
            let _ = add(&rest);
        }
    }
    Ok(Completion { text, prompt_tokens: prompt.len(), new_tokens: tokens.len(), finish })
}

/// A tokenizer whose texts have no special tokens.
struct Visible<'a>(&'a PretrainedTokenizer);

impl Tokenizer for Visible<'_> {
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

/// Pieces of text that end where a stop string begins. Text that may be the beginning of one is
/// held back.
struct Pieces<'a> {
    stream: DecodeStream<'a>,
    held: String,
    stops: &'a [String],
}

impl Pieces<'_> {
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
    /// The messages, those of the model among them.
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
    pub fn template(&self) -> Result<&super::ChatTemplate> {
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
    /// If the template refuses the conversation, it does not fit the capacity, or a device fails.
    /// The messages have not changed then.
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
