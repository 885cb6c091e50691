//! An object of `tokenizer.json` with its place in the file, for errors that name the key.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;
use teeny_core::file::quoted;
use teeny_core::{Error, Result};
use teeny_formats::json::Json;
use teeny_formats::keys::is_known;

/// The deepest nesting of sequences.
const MAX_DEPTH: usize = 8;

/// The members that are told at most.
const MAX_UNREAD: usize = 100;

/// An object, and where it is: `pre_tokenizer.pretokenizers[1]`.
pub(crate) struct Section<'a> {
    path: String,
    members: BTreeMap<String, Json<'a>>,
    depth: usize,
    /// The members that were read.
    read: RefCell<HashSet<String>>,
    /// Places of members that were not, of sections that are dropped.
    unread: Rc<RefCell<Vec<String>>>,
}

impl Drop for Section<'_> {
    fn drop(&mut self) {
        let read = self.read.take();
        let is_left =
            |(key, value): &(&String, &Json)| !read.contains(*key) && value.text() != "null";
        let left = self.members.iter().filter(is_left).map(|(key, _)| shortened(&self.place(key)));
        let mut unread = self.unread.borrow_mut();
        let more = MAX_UNREAD.saturating_sub(unread.len());
        unread.extend(left.take(more));
    }
}

impl<'a> Section<'a> {
    /// The whole file.
    ///
    /// # Errors
    /// If it is not an object.
    pub(crate) fn root(file: Json<'a>) -> Result<Section<'a>> {
        let (path, members) = (String::new(), file.object()?);
        Ok(Section { path, members, depth: 0, read: RefCell::default(), unread: Rc::default() })
    }

    /// The places of unread members of this section and its inner sections, except members that
    /// files of kind `kind` may have.
    pub(crate) fn unread(self, kind: &str) -> Vec<String> {
        let unread = self.unread.clone();
        drop(self);
        let mut unread = unread.take();
        unread.retain(|place| !is_known(&[kind], place.rsplit('.').next().unwrap_or(place)));
        unread.sort();
        unread.dedup();
        unread
    }

    /// The place of the member `key` in the file.
    pub(crate) fn place(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_string() } else { format!("{}.{key}", self.path) }
    }

    /// The names of the members, sorted.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        self.members.keys().map(String::as_str)
    }

    /// The member `key`, if it is there and not null.
    pub(crate) fn get(&self, key: &str) -> Option<Json<'a>> {
        let value = self.members.get(key).copied().filter(|value| value.text() != "null")?;
        self.read.borrow_mut().insert(key.to_string());
        Some(value)
    }

    /// The error of the member `key`, which should be `expected`.
    pub(crate) fn wrong(&self, key: &str, expected: &str) -> Error {
        let place = self.place(key);
        Error::format(match self.get(key) {
            Some(found) => {
                format!("{place}: expected {expected}, found {}", shortened(found.text()))
            }
            None => format!("{place} is missing: expected {expected}"),
        })
    }

    fn sub(&self, path: String, value: Json<'a>) -> Result<Section<'a>> {
        if self.depth == MAX_DEPTH {
            return Err(Error::format(format!("{path} is nested more than {MAX_DEPTH} deep")));
        }
        let members = value.object().map_err(|e| e.note(format!("at {path}")))?;
        let (depth, unread) = (self.depth + 1, self.unread.clone());
        Ok(Section { path, members, depth, read: RefCell::default(), unread })
    }

    /// The object `key`, if it is there.
    ///
    /// # Errors
    /// If it is not an object or nested too deep.
    pub(crate) fn section(&self, key: &str) -> Result<Option<Section<'a>>> {
        self.get(key).map(|value| self.sub(self.place(key), value)).transpose()
    }

    /// The items of the list `key`.
    ///
    /// # Errors
    /// If the list does not exist.
    pub(crate) fn list(&self, key: &str) -> Result<Vec<Json<'a>>> {
        let items = self.get(key).and_then(|value| value.items());
        Ok(items.ok_or_else(|| self.wrong(key, "a list"))?.collect())
    }

    /// The objects of the list `key`.
    ///
    /// # Errors
    /// If the list does not exist, or an item is not an object.
    pub(crate) fn sections(&self, key: &str) -> Result<Vec<Section<'a>>> {
        let items = self.list(key)?.into_iter().enumerate();
        items.map(|(i, item)| self.sub(format!("{}[{i}]", self.place(key)), item)).collect()
    }

    /// The text `key`.
    ///
    /// # Errors
    /// If the text does not exist.
    pub(crate) fn string(&self, key: &str) -> Result<String> {
        let text = self.get(key).and_then(|value| value.string());
        text.ok_or_else(|| self.wrong(key, "a string"))
    }

    /// The text `key`, if it is there.
    ///
    /// # Errors
    /// If it is not a string.
    pub(crate) fn optional_string(&self, key: &str) -> Result<Option<String>> {
        self.get(key).map(|_| self.string(key)).transpose()
    }

    /// The character `key`.
    ///
    /// # Errors
    /// If the character does not exist.
    pub(crate) fn char(&self, key: &str) -> Result<char> {
        let text = self.string(key)?;
        let mut chars = text.chars();
        let only = chars.next().filter(|_| chars.next().is_none());
        only.ok_or_else(|| self.wrong(key, "one character"))
    }

    /// The truth value `key`, `default` if it is not there.
    ///
    /// # Errors
    /// If it is something else.
    pub(crate) fn flag(&self, key: &str, default: bool) -> Result<bool> {
        match self.get(key).map(|value| value.text()) {
            None => Ok(default),
            Some("true") => Ok(true),
            Some("false") => Ok(false),
            Some(_) => Err(self.wrong(key, "true or false")),
        }
    }

    /// The whole number `key`, if it is there.
    ///
    /// # Errors
    /// If it is something else.
    pub(crate) fn number(&self, key: &str) -> Result<Option<u64>> {
        let number = |value: Json| value.number().ok_or_else(|| self.wrong(key, "a whole number"));
        self.get(key).map(number).transpose()
    }

    /// The error of a kind that this reader does not know.
    pub(crate) fn unknown(&self, kind: &str) -> Error {
        let place = self.place("type");
        Error::unsupported(format!("{place} is {}, which is not supported", quoted(kind)))
            .note("the kinds of Hugging Face's crate `tokenizers` 0.23 are")
    }
}

/// The beginning of `text`.
pub(crate) fn shortened(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}..", &text[..end]),
        None => text.to_string(),
    }
}
