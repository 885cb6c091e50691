//! Regular expressions of tokenizers.
//!
//! They are those of Python and Oniguruma; the only look-around among the published ones is the
//! alternative `\s+(?!\S)`: white space without its last character, if text follows. It is matched
//! as `\s+`, which then returns its last character.

use regex_automata::meta::Regex;
use regex_automata::{Anchored, Input};
use std::ops::Range;
use teeny_core::file::quoted;
use teeny_core::{Error, Result};

/// White space that a word does not follow.
const SPACES_BEFORE_SPACE: &str = r"\s+(?!\S)";

/// The largest memory of one compiled pattern, in bytes.
const PATTERN_LIMIT: usize = 10 << 20;

/// The largest memory of all patterns of a tokenizer, in bytes.
const TOTAL_LIMIT: usize = 64 << 20;

/// A compiled pattern.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    /// The regular expression.
    pub source: Box<str>,
    regex: Regex,
    /// The index of the alternative `\s+(?!\S)`, and the alternatives after it.
    spaces: Option<(usize, Option<Regex>)>,
}

impl Pattern {
    /// Compiles `source`. `memory` counts the bytes of all patterns of one tokenizer.
    ///
    /// # Errors
    /// If it has errors, look-around of another kind, or needs too much memory.
    pub(super) fn new(source: &str, memory: &mut usize) -> Result<Pattern> {
        Pattern::compile(source, memory)
            .map_err(|e| e.note(format!("in the pattern {}", quoted(source))))
    }

    fn compile(source: &str, memory: &mut usize) -> Result<Pattern> {
        let alternatives = alternatives(source)?;
        let spaces = alternatives.iter().position(|part| *part == SPACES_BEFORE_SPACE);
        let Some(index) = spaces else {
            let regex = build(&[source], memory)?;
            return Ok(Pattern { source: source.into(), regex, spaces: None });
        };
        let mut parts: Vec<&str> = alternatives.clone();
        parts[index] = r"\s+";
        let others = alternatives.iter().enumerate().filter(|(i, _)| *i != index);
        if others.clone().any(|(_, part)| sets_flags(part)) {
            return Err(unsupported("flags for all alternatives beside look-around"));
        }
        let after: Vec<&str> = others.filter(|(i, _)| *i > index).map(|(_, part)| *part).collect();
        let after = if after.is_empty() { None } else { Some(build(&after, memory)?) };
        let regex = build(&parts, memory)?;
        Ok(Pattern { source: source.into(), regex, spaces: Some((index, after)) })
    }

    /// A pattern that matches `text`.
    ///
    /// # Errors
    /// As [`Pattern::new`].
    pub(super) fn literal(text: &str, memory: &mut usize) -> Result<Pattern> {
        let escape = |c: char| Some('\\').filter(|_| c.is_ascii_punctuation() || c == ' ');
        let source: String = text.chars().flat_map(|c| escape(c).into_iter().chain([c])).collect();
        let regex = build(&[&source], memory)?;
        Ok(Pattern { source: source.into(), regex, spaces: None })
    }

    /// Calls `found` with each match in `text`, in order.
    pub(super) fn matches(&self, text: &str, mut found: impl FnMut(Range<usize>)) {
        let (mut at, mut last) = (0, None);
        while let Some(range) = self.find(text, at) {
            at = range.end;
            if range.is_empty() {
                at += text[at..].chars().next().map_or(1, char::len_utf8);
                // an empty match at the end of the previous match does not count
                if last == Some(range.end) {
                    if at > text.len() {
                        return;
                    }
                    continue;
                }
            }
            last = Some(range.end);
            found(range);
            if at > text.len() {
                return;
            }
        }
    }

    /// The first match in `text` from byte `at` on.
    fn find(&self, text: &str, mut at: usize) -> Option<Range<usize>> {
        loop {
            let input = Input::new(text).range(at..);
            // most patterns match all of a text: then one pass finds the end of the match
            let here = self.regex.search_half(&input.clone().anchored(Anchored::Yes));
            let (pattern, range) = match here {
                Some(end) => (end.pattern(), at..end.offset()),
                None => {
                    let found = self.regex.search(&input)?;
                    (found.pattern(), found.range())
                }
            };
            let Some((index, after)) = &self.spaces else { return Some(range) };
            if pattern.as_usize() != *index || range.end == text.len() {
                return Some(range);
            }
            let last = text[range.clone()].chars().next_back().map_or(0, char::len_utf8);
            if last < range.len() {
                return Some(range.start..range.end - last);
            }
            // a single space before a word: one of the later alternatives
            let input = Input::new(text).range(range.start..).anchored(Anchored::Yes);
            if let Some(end) = after.as_ref().and_then(|after| after.search_half(&input)) {
                return Some(range.start..end.offset());
            }
            at = range.end;
        }
    }
}

fn build(parts: &[&str], memory: &mut usize) -> Result<Regex> {
    let config = Regex::config()
        .nfa_size_limit(Some(PATTERN_LIMIT))
        .onepass(false)
        .hybrid_cache_capacity(4 << 20);
    let parts: Vec<String> = parts.iter().map(|part| with_words(part)).collect();
    let regex = Regex::builder().configure(config).build_many(&parts).map_err(|e| {
        let reason = match (e.size_limit(), e.syntax_error()) {
            (Some(limit), _) => format!("it needs more than {limit} bytes of memory"),
            // of the parts of the message, the last line is the reason
            (_, Some(syntax)) => {
                let text = syntax.to_string();
                text.trim().lines().last().unwrap_or_default().trim().to_string()
            }
            _ => e.to_string(),
        };
        Error::unsupported(format!("cannot read a regular expression: {reason}"))
    })?;
    *memory = memory.saturating_add(regex.memory_usage());
    if *memory > TOTAL_LIMIT {
        return Err(Error::format(format!(
            "the patterns need more than {TOTAL_LIMIT} bytes of memory"
        )));
    }
    Ok(regex)
}

/// `part` with `\w` and `\W` of Oniguruma: outside of classes with six powers and fractions, and
/// everywhere without joiners.
fn with_words(part: &str) -> String {
    let (mut out, mut classes, mut escaped) = (String::with_capacity(part.len()), 0usize, false);
    for c in part.chars() {
        if escaped && matches!(c, 'w' | 'W') {
            out.pop();
            let more = if classes == 0 { "²³¹¼½¾" } else { "" };
            out += &match c {
                'w' => format!(r"[\w{more}--\x{{200C}}\x{{200D}}]"),
                _ => format!(r"[[^\w{more}]\x{{200C}}\x{{200D}}]"),
            };
        } else {
            out.push(c);
        }
        if !escaped {
            classes = (classes + usize::from(c == '[')).saturating_sub(usize::from(c == ']'));
        }
        escaped = c == '\\' && !escaped;
    }
    out
}

fn unsupported(kind: &str) -> Error {
    Error::unsupported(format!("{kind} in a regular expression is not supported"))
        .help("text::HuggingFace (feature `tokenizers`) reads every kind of tokenizer.json")
}

/// True if `part` contains `(?i)` or the like, which holds for what follows.
fn sets_flags(part: &str) -> bool {
    part.match_indices("(?").any(|(i, _)| {
        let flags = part[i + 2..].trim_start_matches(|c: char| c.is_ascii_lowercase() || c == '-');
        flags.starts_with(')')
    })
}

/// The alternatives of a pattern.
///
/// # Errors
/// If one has look-around, except `\s+(?!\S)`, or a possessive quantifier (`a++`), which would be
/// understood as something else.
fn alternatives(source: &str) -> Result<Vec<&str>> {
    let (mut parts, mut from) = (Vec::new(), 0);
    let (mut groups, mut classes, mut escaped, mut quantified) = (0usize, 0usize, false, false);
    // \p{L} is a class, x{2} a quantifier
    let (mut named, mut in_name) = (false, false);
    for (i, b) in source.bytes().enumerate() {
        let was_quantified = std::mem::take(&mut quantified);
        let was_named = std::mem::take(&mut named);
        match b {
            _ if escaped => {
                escaped = false;
                named = matches!(b, b'p' | b'P' | b'x' | b'u');
            }
            b'\\' => escaped = true,
            b'[' => classes += 1,
            b']' => classes = classes.saturating_sub(1),
            _ if classes > 0 => {}
            b'(' => groups += 1,
            b')' => groups = groups.saturating_sub(1),
            b'|' if groups == 0 => {
                parts.push(&source[from..i]);
                from = i + 1;
            }
            b'+' if was_quantified => return Err(unsupported("a possessive quantifier")),
            b'{' => in_name = was_named,
            b'}' if in_name => in_name = false,
            b'*' | b'+' | b'}' => quantified = true,
            b'?' => quantified = !source[..i].ends_with('('),
            _ => {}
        }
    }
    parts.push(&source[from..]);
    let around = ["(?=", "(?!", "(?<=", "(?<!"];
    let other = parts.iter().filter(|part| **part != SPACES_BEFORE_SPACE);
    if other.clone().any(|part| around.iter().any(|kind| part.contains(kind))) {
        return Err(unsupported("look-around"));
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pattern: &str, text: &str) -> Vec<String> {
        let mut parts = Vec::new();
        let pattern = Pattern::new(pattern, &mut 0).unwrap();
        pattern.matches(text, |range| parts.push(text[range].to_string()));
        parts
    }

    #[test]
    fn the_last_space_belongs_to_the_next_word() {
        let pattern = r" ?\w+|\s+(?!\S)|\s+";
        assert_eq!(found(pattern, "a   b\n c  "), ["a", "  ", " b", "\n", " c", "  "]);
        assert_eq!(found(r"\s+(?!\S)", "a b  c "), [" ", " "]);
        assert_eq!(found(r"x*", "axb"), ["", "x", ""]);
        assert_eq!(found(r"[|(]|a", "|(a"), ["|", "(", "a"]);
        assert_eq!(found(r"\p{N}{1,3}|\p{L}+", "ab12345"), ["ab", "123", "45"]);
    }

    #[test]
    fn words_are_those_of_oniguruma() {
        // by tokenizers 0.23
        let text = "a_²½¹Ⅷⓢ9\u{301}é四·\u{200d}\u{200c}④⁴ ";
        assert_eq!(found(r"\w+", text), ["a_²½¹Ⅷⓢ9\u{301}é四"]);
        assert_eq!(found(r"\W+", text), ["·\u{200d}\u{200c}④⁴ "]);
        assert_eq!(found(r"[^\w\s]+", text), ["²½¹", "·\u{200d}\u{200c}④⁴"]);
        assert_eq!(found(r"[\W]+", "½a²\u{200d}·"), ["½", "²\u{200d}·"]);
        assert_eq!(found(r"[\w]+|[^\W]", "½a²\u{200d}·"), ["a"]);
        assert_eq!(found(r"\\w", r"a\w"), [r"\w"]);
        assert_eq!(found(r"\bé\b|\Bx", "é éé axé"), ["é", "x"]);
    }

    #[test]
    fn other_look_around_is_refused_by_name() {
        for pattern in
            [r"a(?=b)|c", r"(?<!a)b", r"\s+(?!\S)+", r"a++", r"a{2}+", r"(?i)a|\s+(?!\S)", "(a"]
        {
            let error = Pattern::new(pattern, &mut 0).unwrap_err().to_string();
            assert!(error.contains("in the pattern"), "{pattern}: {error}");
        }
        assert!(Pattern::new(r"(\w{100}){100}", &mut 0).is_err(), "too large");
    }
}
