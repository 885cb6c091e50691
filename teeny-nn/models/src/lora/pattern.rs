//! [`Pattern`]: a regular expression for names of layers. A plain name needs no expressions.

use regex_automata::meta::Regex;
use teeny_core::{Error, Result};

/// An expression that a whole name matches.
pub(super) enum Pattern {
    /// A name, or the end of names after a dot.
    Plain {
        name: String,
        ending: bool,
    },
    Regex(Box<Regex>),
}

impl Pattern {
    /// An expression for whole names.
    pub fn whole(text: &str) -> Result<Pattern> {
        Pattern::new(text, false)
    }

    /// An expression for whole names, or for their ends after a dot.
    pub fn ending(text: &str) -> Result<Pattern> {
        Pattern::new(text, true)
    }

    fn new(text: &str, ending: bool) -> Result<Pattern> {
        let is_plain = |c: char| c.is_alphanumeric() || "._-".contains(c);
        if text.chars().all(is_plain) {
            return Ok(Pattern::Plain { name: text.to_string(), ending });
        }
        Pattern::regex(text, ending)
    }

    fn regex(text: &str, ending: bool) -> Result<Pattern> {
        let before = if ending { r"(?:.*\.)?" } else { "" };
        let regex = Regex::new(&format!("^(?:{before}(?:{text}))$")).map_err(|e| {
            let why = std::error::Error::source(&e).map_or(e.to_string(), ToString::to_string);
            Error::value(format!("{text:?} is not a regular expression: {why}"))
                .help("expressions cannot look around or back; names can be listed instead")
        })?;
        Ok(Pattern::Regex(Box::new(regex)))
    }

    /// Whether `name` matches.
    pub fn matches(&self, name: &str) -> bool {
        match self {
            Pattern::Plain { name: own, ending } => name == own || *ending && ends(name, own),
            Pattern::Regex(regex) => regex.is_match(name),
        }
    }
}

/// Whether `name` ends with a dot and `ending`.
pub(super) fn ends(name: &str, ending: &str) -> bool {
    name.strip_suffix(ending).is_some_and(|start| start.ends_with('.'))
}
