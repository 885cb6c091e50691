//! Regular expressions of tokenizers.
//!
//! Tokenizers use the syntax of Oniguruma. Most patterns have the alternative `\s+(?!\S)`: white
//! space, without its last character if text follows. `regex-automata` matches it as `\s+`, and
//! `find` then drops the last character of the match. `fancy-regex`, which is slower, matches other
//! look-around, possessive quantifiers and references to groups.

use regex_automata::meta::Regex;
use regex_automata::{Anchored, Input};
use std::ops::Range;
use teeny_core::file::quoted;
use teeny_core::{Error, Result};

/// White space that a word does not follow.
const SPACES_BEFORE_SPACE: &str = r"\s+(?!\S)";

/// The largest memory of one compiled pattern, in bytes.
const PATTERN_LIMIT: usize = 10 << 20;

/// The longest pattern with look-around in bytes, and the memory that is counted for one.
const MAX_FANCY: usize = 1024;
const FANCY_LIMIT: usize = 16 << 20;

/// The largest memory of all patterns of a tokenizer, in bytes.
const TOTAL_LIMIT: usize = 64 << 20;

/// A compiled pattern.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    /// The regular expression.
    pub source: Box<str>,
    matcher: Matcher,
}

#[derive(Clone, Debug)]
enum Matcher {
    /// A pattern whose only look-around is the alternative `\s+(?!\S)`: the index of that one, and
    /// the alternatives after it.
    Plain(Regex, Option<(usize, Option<Regex>)>),
    Fancy(Box<fancy_regex::Regex>),
}

impl Pattern {
    /// Compiles `source`. `memory` counts the bytes of all patterns of one tokenizer.
    ///
    /// # Errors
    /// If it has errors, or needs too much memory.
    pub(super) fn new(source: &str, memory: &mut usize) -> Result<Pattern> {
        let (parts, possessive) = alternatives(source);
        if has(source, "[:", '^', ":]") {
            let text = format!("{}: classes such as [:alpha:] are not supported", quoted(source));
            return Err(Error::unsupported(text).help(r"classes such as \p{L} and \w are"));
        }
        let spaces = parts.iter().position(|part| *part == SPACES_BEFORE_SPACE);
        let plain = |memory: &mut usize| match spaces {
            None => Ok(Matcher::Plain(build(&[source], memory)?, None)),
            Some(index) => {
                let after = &parts[index + 1..];
                let after = if after.is_empty() { None } else { Some(build(after, memory)?) };
                let mut all = parts.clone();
                all[index] = r"\s+";
                Ok(Matcher::Plain(build(&all, memory)?, Some((index, after))))
            }
        };
        let flags = spaces.is_some() && parts.iter().any(|part| has(part, "(?", '-', ")"));
        let matcher = match possessive || flags {
            true => fancy(source, memory),
            false => plain(memory).or_else(|e| fancy(source, memory).map_err(|_| e)),
        };
        let noted = |e: Error| e.note(format!("in the pattern {}", quoted(source)));
        Ok(Pattern { source: source.into(), matcher: matcher.map_err(noted)? })
    }

    /// A pattern that matches `text`.
    ///
    /// # Errors
    /// As [`Pattern::new`].
    pub(super) fn literal(text: &str, memory: &mut usize) -> Result<Pattern> {
        let escape = |c: char| Some('\\').filter(|_| r"\.+*?()|[]{}^$#&-~".contains(c));
        let source: String = text.chars().flat_map(|c| escape(c).into_iter().chain([c])).collect();
        let matcher = Matcher::Plain(build(&[&source], memory)?, None);
        Ok(Pattern { source: source.into(), matcher })
    }

    /// Calls `found` with each match in `text`, in order.
    ///
    /// # Errors
    /// If a match takes more than a million steps.
    pub(super) fn matches(&self, text: &str, mut found: impl FnMut(Range<usize>)) -> Result<()> {
        let (mut at, mut last) = (0, None);
        while at <= text.len() {
            let Some(range) = self.find(text, at)? else { break };
            at = range.end;
            if range.is_empty() {
                at += text[at..].chars().next().map_or(1, char::len_utf8);
            }
            // an empty match at the end of the previous match does not count
            if !range.is_empty() || last != Some(range.end) {
                last = Some(range.end);
                found(range);
            }
        }
        Ok(())
    }

    /// The first match in `text` from byte `at` on.
    fn find(&self, text: &str, mut at: usize) -> Result<Option<Range<usize>>> {
        let (regex, spaces) = match &self.matcher {
            Matcher::Plain(regex, spaces) => (regex, spaces),
            Matcher::Fancy(regex) => {
                let found = regex.find_from_pos(text, at).map_err(|e| {
                    Error::value(format!("the pattern {}: {e}", quoted(&self.source)))
                })?;
                return Ok(found.map(|found| found.range()));
            }
        };
        loop {
            let input = Input::new(text).range(at..);
            // most patterns match all of a text: then one pass finds the end of the match
            let here = regex.search_half(&input.clone().anchored(Anchored::Yes));
            let (pattern, range) = match here {
                Some(end) => (end.pattern(), at..end.offset()),
                None => {
                    let Some(found) = regex.search(&input) else { return Ok(None) };
                    (found.pattern(), found.range())
                }
            };
            let Some((index, after)) = spaces else { return Ok(Some(range)) };
            if pattern.as_usize() != *index || range.end == text.len() {
                return Ok(Some(range));
            }
            let last = text[range.clone()].chars().next_back().map_or(0, char::len_utf8);
            if last < range.len() {
                return Ok(Some(range.start..range.end - last));
            }
            // a single space before a word: one of the later alternatives
            let input = Input::new(text).range(range.start..).anchored(Anchored::Yes);
            if let Some(end) = after.as_ref().and_then(|after| after.search_half(&input)) {
                return Ok(Some(range.start..end.offset()));
            }
            at = range.end;
        }
    }
}

/// `source` with look-around: a program whose parts are patterns of at most a megabyte.
fn fancy(source: &str, memory: &mut usize) -> Result<Matcher> {
    charge(memory, FANCY_LIMIT)?;
    if source.len() > MAX_FANCY {
        let text = format!("a regular expression with look-around of over {MAX_FANCY} bytes");
        return Err(Error::unsupported(text));
    }
    let mut builder = fancy_regex::RegexBuilder::new(&translated(source));
    builder.delegate_size_limit(1 << 20).delegate_dfa_size_limit(1 << 20);
    let unreadable = |e| Error::unsupported(format!("cannot read a regular expression: {e}"));
    Ok(Matcher::Fancy(Box::new(builder.build().map_err(unreadable)?)))
}

/// Counts `bytes` of a pattern.
fn charge(memory: &mut usize, bytes: usize) -> Result<()> {
    *memory = memory.saturating_add(bytes);
    if *memory > TOTAL_LIMIT {
        let text = format!("the patterns need more than {TOTAL_LIMIT} bytes of memory");
        return Err(Error::format(text));
    }
    Ok(())
}

fn build(parts: &[&str], memory: &mut usize) -> Result<Regex> {
    let config = Regex::config()
        .nfa_size_limit(Some(PATTERN_LIMIT))
        .onepass(false)
        .hybrid_cache_capacity(4 << 20);
    let parts: Vec<String> = parts.iter().map(|part| translated(part)).collect();
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
    charge(memory, regex.memory_usage())?;
    Ok(regex)
}

/// Rewrites `part` to the meaning that Oniguruma gives it. `\w` lacks joiners and, outside of
/// classes, has six powers and fractions; `\W`, `\b` and `\B` follow it. `^` and `$` match at every
/// line. `a{2}+` and `a{2}?` repeat `a{2}`.
fn translated(part: &str) -> String {
    let (mut out, mut classes, mut escaped) = (String::with_capacity(part.len()), 0usize, false);
    // where in `out` the last atom, and each open group, begins; where braces open
    let (mut atom, mut groups, mut braces) = (0, Vec::new(), None);
    for (i, c) in part.char_indices() {
        let plain = !escaped && classes == 0;
        match c {
            'w' | 'W' if escaped => {
                out.pop();
                let more = if classes == 0 { "²³¹¼½¾" } else { "" };
                out += &match c {
                    'w' => format!(r"[\w{more}--\x{{200C}}\x{{200D}}]"),
                    _ => format!(r"[[^\w{more}]\x{{200C}}\x{{200D}}]"),
                };
            }
            // plain characters there
            '<' | '>' if escaped => {
                out.pop();
                out.push(c);
            }
            'b' | 'B' if escaped && classes == 0 => {
                out.pop();
                let word = translated(r"\w");
                let [a, b] = if c == 'b' { ["!", "="] } else { ["=", "!"] };
                out += &format!("(?:(?<={word})(?{a}{word})|(?<!{word})(?{b}{word}))");
            }
            '^' | '$' if plain => {
                atom = out.len();
                out += &format!("(?m:{c})");
            }
            '}' if plain && braces.is_some() => {
                let content = &part[braces.take().unwrap_or(i)..i];
                let is_name = content.starts_with(|c: char| c.is_alphabetic() || c == '^');
                let nested = ["+", "?"].iter().position(|sign| part[i + 1..].starts_with(sign));
                out.push(c);
                if !is_name && nested.is_some_and(|i| i == 0 || !content.contains(',')) {
                    out.insert_str(atom, "(?:");
                    out.push(')');
                }
            }
            _ => {
                match c {
                    '{' if plain => braces = Some(i + 1),
                    '(' if plain => groups.push(out.len()),
                    ')' if plain => atom = groups.pop().unwrap_or(0),
                    '*' | '+' | '?' => {}
                    _ if plain && braces.is_none() => atom = out.len(),
                    _ => {}
                }
                out.push(c);
            }
        }
        if !escaped {
            classes = (classes + usize::from(c == '[')).saturating_sub(usize::from(c == ']'));
        }
        escaped = c == '\\' && !escaped;
    }
    out
}

/// True if `part` contains `open`, small letters and `sign`s, and `close`: `(?i)`, which holds for
/// what follows, or `[:alpha:]`.
fn has(part: &str, open: &str, sign: char, close: &str) -> bool {
    part.match_indices(open).any(|(i, _)| {
        let rest = &part[i + open.len()..];
        rest.trim_start_matches(|c: char| c.is_ascii_lowercase() || c == sign).starts_with(close)
    })
}

/// The alternatives of a pattern, and whether a quantifier is possessive (`a++`), which would be
/// understood as something else.
fn alternatives(source: &str) -> (Vec<&str>, bool) {
    let (mut parts, mut from, mut possessive) = (Vec::new(), 0, false);
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
            b'+' if was_quantified => possessive = true,
            b'{' => in_name = was_named,
            b'}' if in_name => in_name = false,
            b'*' | b'+' => quantified = true,
            b'?' => quantified = !source[..i].ends_with('(') || source[..i].ends_with(r"\("),
            _ => {}
        }
    }
    parts.push(&source[from..]);
    (parts, possessive)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pattern: &str, text: &str) -> Vec<String> {
        let mut parts = Vec::new();
        let pattern = Pattern::new(pattern, &mut 0).unwrap();
        pattern.matches(text, |range| parts.push(text[range].to_string())).unwrap();
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
        assert_eq!(found(r"\b.", "a ½- b"), ["a", " ", "½", "-", "b"]);
    }

    #[test]
    fn look_around_and_possessive_quantifiers_are_those_of_oniguruma() {
        assert_eq!(found(r"a(?=b)|c", "abac"), ["a", "c"]);
        assert_eq!(found(r"(?<!a)b", "abb"), ["b"]);
        assert_eq!(found(r"a++b|a", "aab aa"), ["aab", "a", "a"]);
        assert_eq!(found(r"(?i)a|\s+(?!\S)", "A  b"), ["A", " "]);
        assert_eq!(found(r"(\w)\1|[^\w\s]+(?=\w)", "aab--c½½"), ["aa", "--", "½½"]);
        assert_eq!(found(r"[*+]|x{2}+", "*xxxxx"), ["*", "xxxx"]);
        assert_eq!(found(r"(?=x)\p{L}{1,2}+|a{2}?b", "xxxxx baab"), ["xxxxx", "b", "aab"]);
        assert_eq!(found(r"^\w|\w$", "ab\ncd"), ["a", "b", "c", "d"]);
        assert_eq!(found(r"[:;]|[a:]", "a:;b"), ["a", ":", ";"]);
        let error = Pattern::new("(a", &mut 0).unwrap_err().to_string();
        assert!(error.contains("in the pattern") && error.contains("unclosed group"), "{error}");
        assert!(Pattern::new(r"(\w{100}){100}", &mut 0).is_err(), "too large");
        assert!(Pattern::new(r"(?=(\w{100}){100})", &mut 0).is_err(), "too large");
        let slow = Pattern::new(r"(?:(a|a)(?=a))+\1b", &mut 0).unwrap();
        let error = slow.matches(&"a".repeat(60), |_| {}).unwrap_err().to_string();
        assert!(error.contains("(a|a)") && error.contains("limit"), "{error}");
    }
}
