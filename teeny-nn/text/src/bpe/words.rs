//! Splits text into words as GPT-2 does; merges do not cross words.
//!
//! The regular expression
//! `'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`, written as code: a
//! space, or the last of several, belongs to the word after it. Every byte of the text is in
//! exactly one word.

use std::iter;
use unicode_general_category::{GeneralCategory as G, get_general_category};

/// The character classes of GPT-2's regular expression.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Space,
    Letter,
    Number,
    Other,
}

fn class(c: char) -> Class {
    if c.is_ascii() {
        return match c {
            _ if c.is_whitespace() => Class::Space,
            'a'..='z' | 'A'..='Z' => Class::Letter,
            '0'..='9' => Class::Number,
            _ => Class::Other,
        };
    }
    match get_general_category(c) {
        _ if c.is_whitespace() => Class::Space,
        G::UppercaseLetter
        | G::LowercaseLetter
        | G::TitlecaseLetter
        | G::ModifierLetter
        | G::OtherLetter => Class::Letter,
        G::DecimalNumber | G::LetterNumber | G::OtherNumber => Class::Number,
        _ => Class::Other,
    }
}

/// English suffixes that are separate words.
const CONTRACTIONS: [&str; 7] = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d"];

/// The words of `text` in order.
pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    iter::from_fn(move || {
        let (word, after) = rest.split_at(first_word(rest)?);
        rest = after;
        Some(word)
    })
}

/// The length in bytes of the first word; None for an empty text.
fn first_word(text: &str) -> Option<usize> {
    let first = text.chars().next()?;
    if let Some(ending) = CONTRACTIONS.iter().find(|ending| text.starts_with(**ending)) {
        return Some(ending.len());
    }
    // a single space belongs to the next word
    let space = usize::from(first == ' ');
    if let Some(kind) = text[space..].chars().next().map(class).filter(|kind| *kind != Class::Space)
    {
        return Some(space + run(&text[space..], kind));
    }
    let spaces = run(text, Class::Space);
    let last = text[..spaces].chars().next_back().map_or(0, char::len_utf8);
    // the last of several spaces belongs to the next word
    Some(if spaces == text.len() || spaces == last { spaces } else { spaces - last })
}

/// The number of bytes at the start of `text` in characters of class `kind`.
fn run(text: &str, kind: Class) -> usize {
    text.char_indices().find(|(_, c)| class(*c) != kind).map_or(text.len(), |(i, _)| i)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_as_gpt_2_cuts_it() {
        // by the regular expression above, in Python's module `regex`; see
        // tests/golden/make_words.py
        let golden: serde_json::Value =
            serde_json::from_str(include_str!("../../tests/golden/words.json")).unwrap();
        let cases = golden["cases"].as_array().unwrap();
        assert!(cases.len() > 20);
        for case in cases {
            let text = case["text"].as_str().unwrap();
            let expected: Vec<&str> = case["words"]
                .as_array()
                .unwrap()
                .iter()
                .map(|word| word.as_str().unwrap())
                .collect();
            assert_eq!(words(text).collect::<Vec<_>>(), expected, "{text:?}");
        }
    }
}
