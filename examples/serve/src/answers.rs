//! The bodies of answers: OpenAI's JSON, whole or as server-sent events.

use crate::metrics::Usage;
use crate::requests::Refusal;
use crate::worker::{Embeddings, Event};
use futures_core::Stream;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::sync::mpsc::UnboundedReceiver;

/// The kind of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The answer to `POST /v1/chat/completions`.
    Chat,
    /// The answer to `POST /v1/completions`.
    Text,
}

/// The fields that all parts of an answer have.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its kind.
    pub form: Form,
    /// The number of the request.
    pub id: String,
    /// When it came, in seconds since 1970.
    pub created: u64,
    /// The name of the model.
    pub model: String,
    /// Whether a stream ends with the numbers of tokens.
    pub include_usage: bool,
}

fn usage_json(usage: Usage) -> Value {
    let Usage { prompt_tokens, new_tokens } = usage;
    json!({
        "prompt_tokens": prompt_tokens,
        "completion_tokens": new_tokens,
        "total_tokens": prompt_tokens + new_tokens,
    })
}

impl Answer {
    /// The answer, whose `member` is `message`, or a part of its stream, whose `member` is `delta`.
    /// [`Form::Text`] only takes the member of this name from `content`.
    fn object(&self, member: &str, content: Value, reason: Option<&str>) -> Value {
        let mut choice = json!({"index": 0, "logprobs": null, "finish_reason": reason});
        let object = match (self.form, member) {
            (Form::Text, _) => "text_completion",
            (Form::Chat, "delta") => "chat.completion.chunk",
            (Form::Chat, _) => "chat.completion",
        };
        match self.form {
            Form::Chat => choice[member] = content,
            Form::Text => choice["text"] = content.get("content").cloned().unwrap_or(json!("")),
        }
        let (id, created, model) = (&self.id, self.created, &self.model);
        json!({"id": id, "object": object, "created": created, "model": model, "choices": [choice]})
    }

    /// The whole answer.
    pub fn whole(&self, text: &str, reason: &str, usage: Usage) -> String {
        let message = json!({"role": "assistant", "content": text});
        let mut answer = self.object("message", message, Some(reason));
        answer["usage"] = usage_json(usage);
        answer.to_string()
    }

    /// The server-sent events of `event`.
    fn events(&self, event: Event) -> String {
        let data = |value: Value| format!("data: {value}\n\n");
        match event {
            Event::Text(text) => data(self.object("delta", json!({"content": text}), None)),
            Event::Failed(refusal) => data(refusal.body()),
            Event::Finished(reason, usage) => {
                let mut text = data(self.object("delta", json!({}), Some(reason)));
                if self.include_usage {
                    let mut last = self.object("delta", Value::Null, None);
                    (last["choices"], last["usage"]) = (json!([]), usage_json(usage));
                    text += &data(last);
                }
                text + "data: [DONE]\n\n"
            }
        }
    }
}

/// The server-sent events of a text that is generated.
pub struct EventStream {
    answer: Answer,
    /// An event that precedes `events`.
    first: Option<Event>,
    events: UnboundedReceiver<Event>,
    started: bool,
    ended: bool,
}

impl EventStream {
    /// A stream of `first` and the events that follow.
    pub fn new(answer: Answer, first: Event, events: UnboundedReceiver<Event>) -> EventStream {
        EventStream { answer, first: Some(first), events, started: false, ended: false }
    }
}

/// The refusal of a request whose worker sent no result.
pub fn lost() -> Refusal {
    Refusal::new(500, "the worker of the model failed; other requests are not affected")
}

impl Stream for EventStream {
    type Item = Result<String, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let event = match self.first.take() {
            Some(event) => Some(event),
            None => ready!(self.events.poll_recv(cx)),
        };
        let event = event.unwrap_or_else(|| Event::Failed(lost()));
        self.ended = !matches!(event, Event::Text(_));
        let mut text = String::new();
        if !self.started && self.answer.form == Form::Chat {
            let start = json!({"role": "assistant", "content": ""});
            text = format!("data: {}\n\n", self.answer.object("delta", start, None));
        }
        self.started = true;
        text += &self.answer.events(event);
        Poll::Ready(Some(Ok(text)))
    }
}

/// The answer of `POST /v1/embeddings`. Numbers are the shortest that are read as the same f32.
pub fn embeddings_json(embeddings: &Embeddings, model: &str, base64: bool) -> String {
    let vector = |row: &Vec<f32>| match base64 {
        true => {
            let bytes: Vec<u8> = row.iter().flat_map(|x| x.to_le_bytes()).collect();
            format!("\"{}\"", to_base64(&bytes))
        }
        false => serde_json::to_string(row).unwrap_or_default(), // numbers are always valid
    };
    let object = |(i, row): (usize, &Vec<f32>)| {
        format!("{{\"object\":\"embedding\",\"index\":{i},\"embedding\":{}}}", vector(row))
    };
    let data: Vec<String> = embeddings.rows.iter().enumerate().map(object).collect();
    let (data, model, tokens) = (data.join(","), json!(model), embeddings.tokens);
    format!(
        "{{\"object\":\"list\",\"data\":[{data}],\"model\":{model},\
         \"usage\":{{\"prompt_tokens\":{tokens},\"total_tokens\":{tokens}}}}}"
    )
}

/// Base64 with padding. Source: RFC 4648, section 4.
pub fn to_base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |i: usize| u32::from(group.get(i).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for i in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * i) & 63) as usize];
            out.push(if i <= group.len() { digit as char } else { '=' });
        }
    }
    out
}
