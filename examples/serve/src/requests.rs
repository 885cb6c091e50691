//! The bodies of requests: OpenAI's JSON, with every field that is not supported refused by its
//! name, unless its value changes nothing.

use serde_json::{Map, Value, json};
use std::ops::RangeInclusive;
use teeny_models::{ChatOptions, Message};

/// The texts of a request for embeddings at most.
const MAX_TEXTS: usize = 2048;

/// The stop strings of a request at most.
const MAX_STOPS: usize = 16;

/// The values of `reasoning_effort`.
const EFFORTS: [&str; 6] = ["none", "minimal", "low", "medium", "high", "xhigh"];

/// A request that is refused, or that failed: a status, and the members of the error in JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The status of HTTP.
    pub status: u16,
    /// The reason, for people.
    pub message: String,
    /// The name of the wrong field.
    pub param: Option<String>,
    /// The kind of mistake, for programs.
    pub code: Option<&'static str>,
}

impl Refusal {
    /// A refusal that names no field.
    pub fn new(status: u16, message: impl Into<String>) -> Refusal {
        Refusal { status, message: message.into(), param: None, code: None }
    }

    /// The field `param` is wrong.
    pub fn field(param: &str, message: impl Into<String>) -> Refusal {
        Refusal { param: Some(param.to_string()), ..Refusal::new(400, message) }
    }

    /// Sets the kind of mistake.
    pub fn with_code(mut self, code: &'static str) -> Refusal {
        self.code = Some(code);
        self
    }

    /// `{"error": {"message", "type", "param", "code"}}`.
    pub fn body(&self) -> Value {
        let kind = match self.status {
            429 => "rate_limit_error",
            500.. => "server_error",
            _ => "invalid_request_error",
        };
        let (message, param) = (&self.message, &self.param);
        json!({"error": {"message": message, "type": kind, "param": param, "code": self.code}})
    }
}

/// Texts to embed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmbeddingRequest {
    /// The name of the model, if it is given.
    pub model: Option<String>,
    /// The texts.
    pub texts: Vec<String>,
    /// Whether vectors are written as base64 of their bytes.
    pub base64: bool,
}

/// A prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// A conversation, which the model answers, and the variables of its chat template.
    Messages(Vec<Message>, ChatOptions),
    /// A text, which the model continues.
    Text(String),
}

/// A prompt to continue. Missing options take the model's values.
#[derive(Clone, Debug, PartialEq)]
pub struct TextRequest {
    /// The name of the model, if it is given.
    pub model: Option<String>,
    /// The prompt.
    pub prompt: Prompt,
    /// The number of new tokens at most.
    pub max_tokens: Option<usize>,
    /// The temperature: 0 takes the most likely token.
    pub temperature: Option<f64>,
    /// The probability of the tokens that may be drawn: 0 takes the most likely token.
    pub top_p: Option<f64>,
    /// The seed of the draws.
    pub seed: Option<u64>,
    /// Texts before which the text ends.
    pub stop: Vec<String>,
    /// Whether the text is sent as it is generated.
    pub stream: bool,
    /// Whether the numbers of tokens are sent at the end of a stream.
    pub include_usage: bool,
}

/// Whether this value of an unsupported field of `object` (`messages`, or empty for the request)
/// changes nothing.
fn is_neutral(object: &str, name: &str, value: &Value) -> bool {
    let is_zero = |value: &Value| value.as_f64() == Some(0.0);
    match (object, name) {
        _ if value.is_null() => true,
        ("", "n" | "best_of") => value.as_f64() == Some(1.0),
        ("", "frequency_penalty" | "presence_penalty" | "top_logprobs") => is_zero(value),
        ("", "echo" | "logprobs") | ("stream_options", "include_obfuscation") => value == false,
        ("", "tools" | "functions") | ("messages", "annotations" | "tool_calls") => {
            *value == json!([])
        }
        ("", "logit_bias") => value.as_object().is_some_and(|all| all.values().all(is_zero)),
        ("", "tool_choice" | "function_call") => value == "none",
        ("", "suffix") | ("messages", "refusal") => value == "",
        ("", "modalities") => *value == json!(["text"]),
        ("", "response_format") => *value == json!({"type": "text"}),
        ("", "verbosity") => value == "medium",
        // an answer does not depend on what is stored, cached or predicted, and has no tool calls
        ("", "metadata" | "parallel_tool_calls" | "prediction" | "service_tier" | "store") => true,
        ("", "prompt_cache_key" | "prompt_cache_retention" | "safety_identifier" | "user") => true,
        _ => false,
    }
}

/// The fields of an object that have not been read yet.
struct Fields {
    values: Map<String, Value>,
    /// Before the names of fields in errors, such as `messages[2].`.
    prefix: String,
}

impl Fields {
    fn of(value: Value, prefix: String) -> Option<Fields> {
        match value {
            Value::Object(values) => Some(Fields { values, prefix }),
            _ => None,
        }
    }

    fn parse(body: &[u8]) -> Result<Fields, Refusal> {
        let value = serde_json::from_slice(body)
            .map_err(|error| Refusal::new(400, format!("the body is not valid JSON: {error}")))?;
        let fields = Fields::of(value, String::new());
        fields.ok_or_else(|| Refusal::new(400, "the body is not a JSON object"))
    }

    fn wrong(&self, name: &str, wanted: &str) -> Refusal {
        let name = format!("{}{name}", self.prefix);
        Refusal::field(&name, format!("{name:?} must be {wanted}"))
    }

    /// The value of `name`, converted; `None` if it is missing or null.
    fn optional<T>(
        &mut self,
        name: &str,
        wanted: &str,
        convert: impl FnOnce(Value) -> Option<T>,
    ) -> Result<Option<T>, Refusal> {
        match self.values.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => convert(value).map(Some).ok_or_else(|| self.wrong(name, wanted)),
        }
    }

    fn required<T>(
        &mut self,
        name: &str,
        wanted: &str,
        convert: impl FnOnce(Value) -> Option<T>,
    ) -> Result<T, Refusal> {
        let value = self.optional(name, wanted, convert)?;
        value.ok_or_else(|| self.wrong(name, wanted))
    }

    fn flag(&mut self, name: &str) -> Result<bool, Refusal> {
        let value = self.optional(name, "true or false", |value| value.as_bool())?;
        Ok(value.unwrap_or(false))
    }

    fn number(
        &mut self,
        name: &str,
        wanted: &str,
        valid: impl FnOnce(f64) -> bool,
    ) -> Result<Option<f64>, Refusal> {
        self.optional(name, wanted, |value| value.as_f64().filter(|x| valid(*x)))
    }

    fn count(&mut self, name: &str) -> Result<Option<usize>, Refusal> {
        let count = |value: Value| integer(value).filter(|n| *n > 0)?.try_into().ok();
        self.optional(name, "an integer above 0", count)
    }

    /// Returns an error if a field is left that would change the result.
    fn finish(self) -> Result<(), Refusal> {
        let object = self.prefix.split(['[', '.']).next().unwrap_or_default();
        let left = self.values.iter().find(|(name, value)| !is_neutral(object, name, value));
        match left {
            None => Ok(()),
            Some((name, _)) => {
                let name = format!("{}{name}", self.prefix);
                let refusal = Refusal::field(&name, format!("{name:?} is not supported"));
                Err(refusal.with_code("unsupported_parameter"))
            }
        }
    }
}

fn text(value: Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text),
        _ => None,
    }
}

/// A whole number. JSON has one kind of numbers: 2.0 is 2.
fn integer(value: Value) -> Option<i128> {
    let whole = |x: &f64| x.fract() == 0.0 && x.abs() < (1u64 << 53) as f64;
    let float = || value.as_f64().filter(whole).map(|x| x as i128);
    value.as_number()?.as_i128().or_else(float)
}

/// A text, or a list of as many texts as `counts` has.
fn texts(value: Value, counts: RangeInclusive<usize>) -> Option<Vec<String>> {
    match value {
        Value::String(text) => Some(vec![text]),
        Value::Array(values) if counts.contains(&values.len()) => {
            values.into_iter().map(text).collect()
        }
        _ => None,
    }
}

/// The body of `POST /v1/embeddings`.
///
/// # Errors
/// If it is not JSON, or a field is missing, wrong or not supported.
pub fn embedding_request(body: &[u8]) -> Result<EmbeddingRequest, Refusal> {
    let mut fields = Fields::parse(body)?;
    let wanted = format!("a string, or a list of 1 to {MAX_TEXTS} strings");
    let format = |value: Value| ["float", "base64"].iter().position(|name| value == **name);
    let request = EmbeddingRequest {
        model: fields.optional("model", "a string", text)?,
        texts: fields.required("input", &wanted, |value| texts(value, 1..=MAX_TEXTS))?,
        base64: fields.optional("encoding_format", "\"float\" or \"base64\"", format)? == Some(1),
    };
    fields.finish()?;
    Ok(request)
}

/// The body of `POST /v1/chat/completions`.
///
/// # Errors
/// As [`embedding_request`].
pub fn chat_request(body: &[u8]) -> Result<TextRequest, Refusal> {
    let mut fields = Fields::parse(body)?;
    let list = |value: Value| match value {
        Value::Array(values) if !values.is_empty() => Some(values),
        _ => None,
    };
    let values = fields.required("messages", "a list of at least one message", list)?;
    let messages = values.into_iter().enumerate().map(|(i, value)| message(i, value));
    let messages = messages.collect::<Result<_, _>>()?;
    let known = |value: Value| EFFORTS.iter().find(|name| value == **name);
    let effort = fields.optional("reasoning_effort", &EFFORTS.join(", "), known)?;
    let mut options = ChatOptions::new();
    let effort = effort.map(|effort| ("reasoning_effort".to_string(), format!("{effort:?}")));
    options.variables.extend(effort);
    text_request(fields, Prompt::Messages(messages, options))
}

/// The body of `POST /v1/completions`.
///
/// # Errors
/// As [`embedding_request`].
pub fn completion_request(body: &[u8]) -> Result<TextRequest, Refusal> {
    let mut fields = Fields::parse(body)?;
    let one = |value: Value| texts(value, 1..=1)?.pop();
    let prompt = fields.required("prompt", "a string, or a list of one string", one)?;
    text_request(fields, Prompt::Text(prompt))
}

fn message(i: usize, value: Value) -> Result<Message, Refusal> {
    let name = format!("messages[{i}]");
    let fields = Fields::of(value, format!("{name}."));
    let mut fields =
        fields.ok_or_else(|| Refusal::field(&name, format!("{name:?} must be an object")))?;
    let wanted = "a string, or a list of parts {\"type\": \"text\", \"text\": ..}";
    let message = Message {
        role: fields.required("role", "a string", text)?,
        content: fields.required("content", wanted, content)?,
    };
    fields.finish()?;
    Ok(message)
}

/// The text of a message: a text, or parts that are texts.
fn content(value: Value) -> Option<String> {
    let part = |part: Value| {
        let Value::Object(mut part) = part else { return None };
        part.retain(|_, value| !value.is_null());
        let only = part.len() == 2 && part.get("type")? == "text";
        text(part.remove("text")?).filter(|_| only)
    };
    match value {
        Value::String(text) => Some(text),
        Value::Array(parts) => parts.into_iter().map(part).collect(),
        _ => None,
    }
}

/// The fields that conversations and texts share.
fn text_request(mut fields: Fields, prompt: Prompt) -> Result<TextRequest, Refusal> {
    let stops = |value: Value| {
        texts(value, 0..=MAX_STOPS).filter(|stops| stops.iter().all(|stop| !stop.is_empty()))
    };
    let wanted = format!("a string, or a list of up to {MAX_STOPS} strings, none of them empty");
    let (old, new) = (fields.count("max_tokens")?, fields.count("max_completion_tokens")?);
    if let (Some(_), Some(_)) = (old, new) {
        let text = "\"max_completion_tokens\" and \"max_tokens\" are the same: give one of them";
        return Err(Refusal::field("max_completion_tokens", text));
    }
    let request = TextRequest {
        model: fields.optional("model", "a string", text)?,
        prompt,
        max_tokens: old.or(new),
        temperature: fields
            .number("temperature", "a number from 0 to 2", |x| (0.0..=2.0).contains(&x))?,
        top_p: fields.number("top_p", "a number from 0 to 1", |x| (0.0..=1.0).contains(&x))?,
        seed: fields.optional("seed", "an integer", |value| integer(value).map(|n| n as u64))?,
        stop: fields.optional("stop", &wanted, stops)?.unwrap_or_default(),
        stream: fields.flag("stream")?,
        include_usage: stream_options(&mut fields)?,
    };
    fields.finish()?;
    Ok(request)
}

fn stream_options(fields: &mut Fields) -> Result<bool, Refusal> {
    let of = |value: Value| Fields::of(value, "stream_options.".to_string());
    let Some(mut options) = fields.optional("stream_options", "an object", of)? else {
        return Ok(false);
    };
    let include_usage = options.flag("include_usage")?;
    options.finish()?;
    Ok(include_usage)
}
