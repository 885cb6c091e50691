//! [`ChatTemplate`]: a conversation as the text that a model was trained on.
//!
//! A template is a Jinja program of the model's files. `minijinja` runs it with the settings,
//! functions and filters of transformers. A template is trusted like a program: its steps are
//! limited, but not its memory. The text already contains its special tokens: encode it without
//! adding them again.

mod values;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::ValueKind;
use minijinja::{Environment, ErrorKind, Value};
use std::fmt;
use std::path::{Path, PathBuf};
use teeny_core::context::enter;
use teeny_core::options;
use teeny_core::{Error, Result};
use teeny_formats::json::Json;
use teeny_formats::names::{loading, of_file};
use teeny_formats::{Gguf, gguf};
use teeny_text::special_tokens;
use values::{Ordered, filters, message, now, number, value};

/// The steps that a template takes at most.
const FUEL: u64 = 20_000_000;

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// `system`, `user`, `assistant`, or another role that the template knows.
    pub role: String,
    /// The text.
    pub content: String,
}

impl Message {
    /// A message of any role.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Message {
        Message { role: role.into(), content: content.into() }
    }

    /// A message of the user.
    pub fn user(content: impl Into<String>) -> Message {
        Message::new("user", content)
    }

    /// A message of the model.
    pub fn assistant(content: impl Into<String>) -> Message {
        Message::new("assistant", content)
    }

    /// The instructions before a conversation.
    pub fn system(content: impl Into<String>) -> Message {
        Message::new("system", content)
    }
}

options! {
    /// Variables of a template besides the messages.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ChatOptions {
        /// Whether the text ends with the beginning of the model's answer; true.
        add_generation_prompt: bool = true, with_add_generation_prompt;
        /// Further variables by name, as JSON: `tools`, `documents`, `enable_thinking`, ..
        variables: Vec<(String, String)> = Vec::new(), with_variables;
    }
}

impl ChatOptions {
    /// Sets the variable `name` to a value in JSON, such as `tools` to a list of functions.
    pub fn with_variable(mut self, name: &str, json: &str) -> ChatOptions {
        self.variables.push((name.to_string(), json.to_string()));
        self
    }
}

/// The template of a model, and the special tokens that it may use.
///
/// # Example
/// ```
/// use teeny_models::{ChatOptions, ChatTemplate, Message};
/// # fn main() -> teeny_core::Result<()> {
/// let template = ChatTemplate::new(
///     "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{{ eos_token }}\n{% endfor %}",
/// )?
/// .with_token("eos_token", "</s>");
/// let text = template.render(&[Message::user("Hello")], &ChatOptions::new())?;
/// assert_eq!(text, "<|user|>Hello</s>\n");
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    tokens: Vec<(String, String)>,
}

impl ChatTemplate {
    /// The template with this source.
    ///
    /// # Errors
    /// If `source` is not a Jinja template; the error has the line.
    #[track_caller]
    pub fn new(source: &str) -> Result<ChatTemplate> {
        let _op = enter("ChatTemplate::new");
        let mut environment = Environment::new();
        let mut syntax = SyntaxConfig::builder();
        syntax.trim_blocks(true).lstrip_blocks(true);
        environment.set_syntax(syntax.build().map_err(|error| described(&error))?);
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.set_fuel(Some(FUEL));
        filters(&mut environment);
        // in Python, None is not; an undefined value is
        environment
            .add_test("iterable", |value: &Value| !value.is_none() && value.try_iter().is_ok());
        environment.add_test("sequence", |value: &Value| !value.is_none() && value.len().is_some());
        environment.add_filter("string", |value: &Value| match value.kind() {
            ValueKind::Number => number(value),
            _ => value.to_string(),
        });
        environment.set_formatter(|out, state, value| match value.kind() {
            ValueKind::Number => out.write_str(&number(value)).map_err(minijinja::Error::from),
            _ => minijinja::escape_formatter(out, state, value),
        });
        environment.add_function("strftime_now", now);
        environment.add_function(
            "raise_exception",
            |text: String| -> std::result::Result<Value, _> {
                Err(minijinja::Error::new(ErrorKind::InvalidOperation, text))
            },
        );
        // Jinja reads each end of a line as a line feed
        let mut template = ChatTemplate { environment, tokens: Vec::new() };
        template.add(NAME, source)?;
        Ok(template)
    }

    fn add(&mut self, name: &'static str, source: &str) -> Result<()> {
        let source = source.replace("\r\n", "\n").replace('\r', "\n");
        let added = self.environment.add_template_owned(name, without_generation(&source));
        added.map_err(|error| described(&error))
    }

    /// Sets a special token, such as `bos_token`, to its text.
    pub fn with_token(mut self, name: &str, text: &str) -> ChatTemplate {
        self.tokens.push((name.to_string(), text.to_string()));
        self
    }

    /// The template of the folder `path`: `chat_template.jinja`, or the key of
    /// `tokenizer_config.json`; none, if the model has none.
    ///
    /// # Errors
    /// If a file cannot be read, or has no valid template.
    #[track_caller]
    pub fn open(path: impl AsRef<Path>) -> Result<Option<ChatTemplate>> {
        let _op = enter("ChatTemplate::open");
        let path = path.as_ref();
        let [default, tool_use] = super::texts::templates(path)?;
        let Some((label, text)) = default else { return Ok(None) };
        let of_label = |label: PathBuf| move |error| of_file(error, loading(&label));
        let mut template = ChatTemplate::new(&text).map_err(of_label(label))?;
        if let Some((label, text)) = tool_use {
            template.add(TOOL_USE, &text).map_err(of_label(label))?;
        }
        for (name, text) in special_tokens(path)? {
            template = template.with_token(&name, &text);
        }
        Ok(Some(template))
    }

    /// The template of a GGUF file; none, if it has none.
    ///
    /// # Errors
    /// If the template is not valid.
    #[track_caller]
    pub fn from_gguf(file: &Gguf) -> Result<Option<ChatTemplate>> {
        let _op = enter("ChatTemplate::from_gguf");
        let get = |key: &str| file.metadata().get(&format!("tokenizer.{key}"));
        let Some(source) = get("chat_template").and_then(gguf::Value::as_str) else {
            return Ok(None);
        };
        let mut template = ChatTemplate::new(source)?;
        if let Some(source) = get("chat_template.tool_use").and_then(gguf::Value::as_str) {
            template.add(TOOL_USE, source)?;
        }
        let tokens = get("ggml.tokens").and_then(gguf::Value::as_list).unwrap_or_default();
        for (name, key) in [("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")]
        {
            let id = get(&format!("ggml.{key}_token_id")).and_then(gguf::Value::as_u64);
            let text = id.and_then(|id| tokens.get(id as usize)).and_then(gguf::Value::as_str);
            if let Some(text) = text {
                template = template.with_token(&format!("{name}_token"), text);
            }
        }
        Ok(Some(template))
    }

    /// The text of a conversation.
    ///
    /// # Errors
    /// If the template refuses the conversation (two messages of the user in a row, for example),
    /// fails itself, or a variable is not JSON.
    #[track_caller]
    pub fn render(&self, messages: &[Message], options: &ChatOptions) -> Result<String> {
        let _op = enter("chat_template");
        let message = |m: &Message| {
            let members = [("role", m.role.as_str()), ("content", m.content.as_str())];
            Ordered::value(members.map(|(name, text)| (name.to_string(), Value::from(text))).into())
        };
        self.rendered(messages.iter().map(message).collect(), options)
    }

    /// The text of a conversation in JSON: a list of messages, whose contents may be lists of
    /// parts, with `tool_calls` and whatever else the template knows.
    ///
    /// # Errors
    /// As [`ChatTemplate::render`]; if `messages` is not JSON.
    #[track_caller]
    pub fn render_json(&self, messages: &str, options: &ChatOptions) -> Result<String> {
        let _op = enter("chat_template");
        self.rendered(value(Json::parse(messages.as_bytes())?)?, options)
    }

    fn rendered(&self, messages: Value, options: &ChatOptions) -> Result<String> {
        let all = messages.try_iter().ok().filter(|_| messages.kind() == ValueKind::Seq);
        let messages: Option<Vec<Value>> = all.map(|all| all.map(message).collect());
        let is_object = |message: &Value| message.kind() == ValueKind::Map;
        let Some(messages) = messages.filter(|all| all.iter().all(is_object)) else {
            return Err(Error::value("a conversation is a list of messages, which are objects")
                .help("[{\"role\": \"user\", \"content\": \"..\"}]"));
        };
        let mut variables = vec![
            ("messages".to_string(), messages.into()),
            ("tools".to_string(), Value::from(())),
            ("documents".to_string(), Value::from(())),
            ("add_generation_prompt".to_string(), Value::from(options.add_generation_prompt)),
        ];
        variables
            .extend(self.tokens.iter().map(|(name, text)| (name.clone(), Value::from(&**text))));
        for (name, json) in &options.variables {
            let value = Json::parse(json.as_bytes()).and_then(value);
            let value = value.map_err(|error| error.note(format!("of the variable {name:?}")))?;
            variables.retain(|(other, _)| other != name);
            variables.push((name.clone(), value));
        }
        let has_tools = |(name, value): &(String, Value)| name == "tools" && !value.is_none();
        let own = self.environment.get_template(TOOL_USE).is_ok();
        let name = if own && variables.iter().any(has_tools) { TOOL_USE } else { NAME };
        let template = self.environment.get_template(name).map_err(|error| described(&error))?;
        template.render(Ordered::value(variables)).map_err(|error| described(&error))
    }
}

impl fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatTemplate").field("tokens", &self.tokens).finish_non_exhaustive()
    }
}

/// The name of the template in the environment, and of another one for conversations with tools.
const NAME: &str = "chat template";
const TOOL_USE: &str = "tool_use";

fn described(error: &minijinja::Error) -> Error {
    let place = error.line().map(|line| format!(", line {line}")).unwrap_or_default();
    let said = error.detail().map(|text| format!(": {text}")).unwrap_or_default();
    let help = match error.kind() {
        ErrorKind::InvalidOperation => "the messages must be as the model's template wants them",
        _ => "ChatTemplate::new takes another template, which says the same in another way",
    };
    Error::value(format!("the chat template{place}: {}{said}", error.kind())).help(help)
}

/// `source` with the tags `generation` and `endgeneration`, which mark the model's answers for
/// training, as tags that do nothing.
fn without_generation(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at);
        out += before;
        let end = tag.find("%}").map_or(tag.len(), |end| end + 2);
        let (tag, after) = tag.split_at(end);
        let inner = tag.trim_start_matches("{%").trim_end_matches("%}");
        let inner = inner.trim_matches(|c: char| c == '-' || c == '+' || c.is_whitespace());
        out += &match inner {
            "generation" => tag.replace("generation", "with"),
            "endgeneration" => tag.replace("endgeneration", "endwith"),
            _ => tag.to_string(),
        };
        rest = after;
    }
    out + rest
}
