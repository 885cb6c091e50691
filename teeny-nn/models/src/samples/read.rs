//! Reads the lines of a file, and marks the parts of their texts that count in the loss.

#[cfg(feature = "chat")]
use crate::{ChatOptions, ChatTemplate, Message};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use teeny_core::file::quoted;
use teeny_core::{Error, Result};
use teeny_data::csv;
use teeny_formats::json::Json;

/// A part of a text.
pub(super) struct Segment {
    pub text: String,
    /// Whether its tokens count in the loss.
    pub counts: bool,
    /// Whether the special tokens of a text are added.
    pub special: bool,
    /// Whether an end token follows.
    pub ends: bool,
}

/// The content of one line of a file.
pub(super) enum Source {
    Segments(Vec<Segment>),
    /// The roles and the contents of messages, and whether an answer counts.
    Messages(Vec<(String, String, bool)>),
    /// A whole file of text.
    File(String),
}

impl Source {
    pub fn is_conversation(&self) -> bool {
        matches!(self, Source::Messages(_))
    }

    pub fn is_whole_file(&self) -> bool {
        matches!(self, Source::File(_))
    }
}

const FORMS: &str = "a line is {\"text\": ..}, {\"prompt\": .., \"completion\": ..}, or \
                     {\"messages\": [{\"role\": .., \"content\": ..}, ..]}";

/// Members of a message that a template writes, and this does not.
const NOT_WRITTEN: [&str; 5] =
    ["tool_calls", "function_call", "tool_call_id", "reasoning_content", "reasoning"];

/// `read` of each line of `text` that is not empty, with its number.
pub(super) fn lines<T>(
    path: &Path,
    text: &str,
    mut read: impl FnMut(&str) -> Result<T>,
) -> Result<Vec<(usize, T)>> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(i, line)| {
            let named = |e: Error| e.named(format!("{}, line {}", path.display(), i + 1));
            Ok((i + 1, read(line).map_err(named)?))
        })
        .collect()
}

/// The texts of a file, each with its line. `unread` gets the members of lines that are not read.
pub(super) fn sources(path: &Path, unread: &mut BTreeSet<String>) -> Result<Vec<(usize, Source)>> {
    let text = csv::text(path)?;
    if path.extension().is_none_or(|end| end != "jsonl") {
        if path.extension().is_some_and(|end| end == "json") {
            return Err(Error::format(format!("{} is one JSON value", path.display()))
                .help("write one object in each line of a .jsonl file"));
        }
        return Ok(vec![(1, Source::File(text))]);
    }
    lines(path, &text, |line| source(line, unread))
}

/// Adds the names of `object` that are not among `known`.
fn tell(object: &BTreeMap<String, Json<'_>>, known: &[&str], unread: &mut BTreeSet<String>) {
    unread.extend(object.keys().filter(|name| !known.contains(&name.as_str())).cloned());
}

/// Parses the content of a line.
fn source(line: &str, unread: &mut BTreeSet<String>) -> Result<Source> {
    let object = Json::parse(line.as_bytes()).and_then(Json::object);
    let object = object.map_err(|e| e.help(FORMS))?;
    let part = |name: &str, counts: bool, special: bool, ends: bool| {
        Ok::<_, Error>(Segment { text: string(&object, name)?, counts, special, ends })
    };
    let has = |name: &str| object.contains_key(name);
    if has("messages") {
        tell(&object, &["messages"], unread);
        return Ok(Source::Messages(messages(object["messages"], unread)?));
    }
    if has("prompt") || has("completion") {
        tell(&object, &["prompt", "completion"], unread);
        let (prompt, completion) =
            (part("prompt", false, true, false)?, part("completion", true, false, true)?);
        return Ok(Source::Segments(vec![prompt, completion]));
    }
    if has("text") {
        tell(&object, &["text"], unread);
        return Ok(Source::Segments(vec![part("text", true, true, true)?]));
    }
    let names: Vec<_> = object.keys().map(|name| quoted(name)).collect();
    Err(Error::format(format!("the line has {}", names.join(", "))).help(FORMS))
}

/// The roles and contents of a list of messages.
fn messages(list: Json<'_>, unread: &mut BTreeSet<String>) -> Result<Vec<(String, String, bool)>> {
    let items =
        list.items().ok_or_else(|| Error::format("\"messages\" is not a list").help(FORMS))?;
    let messages = items.map(|item| {
        let message = item.object().map_err(|e| e.help(FORMS))?;
        let there = |key: &&str| message.get(*key).is_some_and(|value| value.text() != "null");
        if let Some(key) = NOT_WRITTEN.iter().find(|key| there(key)) {
            let error = Error::unsupported(format!("a message has {key:?}"));
            return Err(error.help("write what the model is to say into \"content\""));
        }
        // the others are refused, or null
        let known = [&["role", "content", "weight"][..], &NOT_WRITTEN].concat();
        tell(&message, &known, unread);
        let counts = match message.get("weight").map(|weight| weight.text()) {
            None | Some("null" | "1" | "1.0") => true,
            Some("0" | "0.0") => false,
            Some(other) => {
                let error = Error::format(format!("\"weight\" is {other}"));
                return Err(error.help("0 or 1: whether the answer is learned"));
            }
        };
        Ok((string(&message, "role")?, string(&message, "content")?, counts))
    });
    let messages = messages.collect::<Result<Vec<_>>>()?;
    if !messages.iter().any(|(role, ..)| role == "assistant") {
        let error = Error::value("no message of the assistant, so nothing to learn");
        return Err(error.help("its role is \"assistant\""));
    }
    Ok(messages)
}

/// The string `name` of an object.
fn string(object: &BTreeMap<String, Json<'_>>, name: &str) -> Result<String> {
    let value = object.get(name).and_then(|value| value.checked_string());
    let value = value.ok_or_else(|| Error::format(format!("no string \"{name}\"")).help(FORMS))?;
    value.map_err(|e| e.note(format!("in \"{name}\"")))
}

/// The segments of a conversation: answers of the assistant count, with what ends them.
#[cfg(feature = "chat")]
pub(super) fn conversation(
    template: &ChatTemplate,
    all: &[(String, String, bool)],
) -> Result<Vec<Segment>> {
    let messages: Vec<Message> =
        all.iter().map(|(role, content, _)| Message::new(role, content)).collect();
    let render = |count: usize, prompt: bool| {
        template.render(&messages[..count], &ChatOptions::new().with_add_generation_prompt(prompt))
    };
    let whole = render(messages.len(), false)?;
    let (mut segments, mut done) = (Vec::new(), 0);
    let mut push = |text: &str, counts: bool| {
        if !text.is_empty() {
            let text = text.to_string();
            segments.push(Segment { text, counts, special: false, ends: false });
        }
    };
    for i in (0..messages.len()).filter(|&i| messages[i].role == "assistant") {
        let (before, after) = (render(i, true)?, render(i + 1, false)?);
        let fits = whole.starts_with(&before) && whole.starts_with(&after);
        if !fits || before.len() < done || after.len() < before.len() {
            let text = format!("message {} is written in another way when others follow", i + 1);
            return Err(Error::value(text)
                .note("the chat template rewrites earlier answers")
                .help("write a line for each answer, the answer being the last message"));
        }
        // the answer excludes the line feed behind the end token
        let answer = after[before.len()..].trim_end();
        push(&whole[done..before.len()], false);
        push(answer, all[i].2);
        done = before.len() + answer.len();
    }
    push(&whole[done..], false);
    Ok(segments)
}
