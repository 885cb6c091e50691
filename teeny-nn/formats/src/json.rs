//! JSON of files, as slices of its text.
//!
//! `serde_json` checks the syntax, but no tree of its values is made: one takes up to 90 bytes per
//! byte of the text, and of two members of one name it keeps the last without an error. A reader
//! keeps only what it needs.

use serde_json::value::RawValue;
use std::collections::{BTreeMap, HashSet};
use teeny_core::file::quoted;
use teeny_core::{Error, Result};

/// A value: its text, whose syntax is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Json<'a>(&'a str);

impl<'a> Json<'a> {
    /// Checks the syntax of a text.
    pub fn parse(bytes: &'a [u8]) -> Result<Json<'a>> {
        serde_json::from_slice::<&RawValue>(bytes)
            .map(|raw| Json(raw.get()))
            .map_err(|e| Error::format(format!("not JSON: {e}")))
    }

    /// The text of the value.
    pub fn text(self) -> &'a str {
        self.0
    }

    /// The value, if it is a string that Unicode has.
    pub fn string(self) -> Option<String> {
        self.checked_string()?.ok()
    }

    /// The value, if it is a string; an error if Unicode does not have it.
    pub fn checked_string(self) -> Option<Result<String>> {
        let error = |e| Error::format(format!("{} is not a valid string: {e}", quoted(self.0)));
        let help = "a surrogate (\\ud800 to \\udfff) is a half of a character: write the whole one";
        let string = || serde_json::from_str(self.0).map_err(|e| error(e).help(help));
        self.0.starts_with('"').then(string)
    }

    /// The value, if it is a whole number.
    pub fn number(self) -> Option<u64> {
        self.0.parse().ok()
    }

    /// The items, if it is an array.
    pub fn items(self) -> Option<impl Iterator<Item = Json<'a>>> {
        Some(parts(self.0.strip_prefix('[')?.strip_suffix(']')?).map(Json))
    }

    /// Calls `member` with the name and value of each member.
    ///
    /// # Errors
    /// If it is not an object, or has two members of one name.
    pub fn members(self, mut member: impl FnMut(String, Json<'a>) -> Result<()>) -> Result<()> {
        let inner = self.0.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
        let inner = inner
            .ok_or_else(|| Error::format(format!("{} is not a JSON object", quoted(self.0))))?;
        let mut names = HashSet::new();
        for part in parts(inner) {
            let colon = find(part, b':').unwrap_or(part.len());
            let name = Json(part[..colon].trim()).string().ok_or_else(|| {
                Error::format(format!("{} is not a name", quoted(&part[..colon])))
            })?;
            if !names.insert(name.clone()) {
                return Err(Error::format(format!("two members are called {}", quoted(&name))));
            }
            member(name, Json(part.get(colon + 1..).unwrap_or_default().trim()))?;
        }
        Ok(())
    }

    /// The members by name.
    ///
    /// # Errors
    /// As [`Json::members`].
    pub fn object(self) -> Result<BTreeMap<String, Json<'a>>> {
        let mut object = BTreeMap::new();
        self.members(|name, value| {
            object.insert(name, value);
            Ok(())
        })?;
        Ok(object)
    }
}

/// The parts of `text` between commas outside strings and brackets; none if it is empty.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text).filter(|text| !text.trim().is_empty());
    std::iter::from_fn(move || {
        let text = rest?;
        let comma = find(text, b',');
        rest = comma.map(|i| &text[i + 1..]);
        Some(text[..comma.unwrap_or(text.len())].trim())
    })
}

/// The position of the first `byte` outside strings and brackets.
fn find(text: &str, byte: u8) -> Option<usize> {
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    text.bytes().position(|b| {
        match b {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => return b == byte && depth == 0,
        }
        false
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_and_items_are_those_of_serde_json() {
        let text = r#" {"a" : [1, [2, "],"], {"x": "}"}], "b\"{\u0041": "\\", "" : {}, "c":[ ]} "#;
        let object = Json::parse(text.as_bytes()).unwrap().object().unwrap();
        let whole: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(object.len(), whole.as_object().unwrap().len());
        for (name, value) in &object {
            let parsed: serde_json::Value = serde_json::from_str(value.text()).unwrap();
            assert_eq!(parsed, whole[name], "{name}");
            let items = value.items().map(|items| items.count());
            assert_eq!(items, parsed.as_array().map(Vec::len), "{name}");
        }
        assert_eq!(object["b\"{A"].string().unwrap(), "\\");
    }

    #[test]
    fn two_members_of_one_name_and_values_of_another_kind_are_errors() {
        let object = |text: &'static str| Json::parse(text.as_bytes()).unwrap().object();
        let error = object(r#"{"a": 1, "\u0061": 2}"#).unwrap_err().to_string();
        assert!(error.contains("two members are called \"a\""), "{error}");
        assert!(object("[1]").unwrap_err().to_string().contains("not a JSON object"));
        for text in ["{\"a\": 1,}", "{a: 1}", "[1 2]", "{} {}", "\"\\q\"", "", "{\"a\"}"] {
            assert!(Json::parse(text.as_bytes()).is_err(), "{text}");
        }
        let number = |text: &'static str| Json::parse(text.as_bytes()).unwrap().number();
        assert_eq!(
            [number("12"), number("-1"), number("1.5"), number("\"1\"")],
            [Some(12), None, None, None]
        );
    }
}
