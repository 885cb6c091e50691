//! The names and layout of another library: rules that work both ways.
//!
//! ```text
//! file                              rule                                 model
//! encoder.0.kernel (in, out)   rename, transpose          layers.0.weight (out, in)
//! h.0.q, h.0.k, h.0.v          join, along the first axis     h.0.qkv
//! h.0.qkv                      split                          h.0.q, h.0.k, h.0.v
//! ```
//!
//! A rule is patterns and sizes, not a function: so it can be printed and inverted. This module
//! does not know tensors; `mapped` applies rules to a source.

use std::ops::Range;
use teeny_core::{Error, Result};

/// Rules that give the tensors of a file the names and the layout that a model has.
///
/// Rules have patterns of whole names. Each `*` of a pattern matches one or more characters, as few
/// as possible, which replace the `*` of the new name. The first rule whose pattern matches
/// applies; a name without a rule stays as it is.
///
/// # Example
/// ```
/// use teeny_formats::Mapping;
/// // the file says `encoder.0.kernel` (in, out), the model `layers.0.weight` (out, in)
/// let mapping = Mapping::new()
///     .rename("encoder.*.kernel", "layers.*.weight")
///     .transpose("*.kernel");
/// # let _ = mapping;
/// ```
#[derive(Clone, Debug, Default)]
pub struct Mapping {
    rules: Vec<Rule>,
    /// Patterns of names in the file, which are the new names of an inverted mapping.
    transposed: Vec<String>,
    inverted: bool,
    /// Patterns of names in the model.
    missing: Vec<String>,
    unexpected: Vec<String>,
}

/// One name to one, several to one that has their rows one after the other, one to several, or one
/// to none.
#[derive(Clone, Debug)]
struct Rule {
    theirs: Vec<String>,
    ours: Vec<String>,
    /// The rows of each of several.
    rows: Vec<usize>,
}

/// A parameter of the model that a tensor of the file fills.
pub struct Target {
    /// Its name in the model.
    pub ours: String,
    /// Which of `parts` it is.
    pub part: usize,
    /// The number of tensors that are joined.
    pub parts: usize,
    /// The rows of the tensor that are taken, if not all.
    pub taken: Option<Range<usize>>,
    /// The rows that the tensor must have, if the rule says it.
    pub rows: Option<usize>,
}

impl Mapping {
    /// The identity: all names are unchanged, and every key must match.
    pub fn new() -> Mapping {
        Mapping::default()
    }

    /// Gives the file's tensors with names of the pattern `theirs` the names of the pattern `ours`.
    pub fn rename(self, theirs: &str, ours: &str) -> Mapping {
        self.rule(&[theirs], &[ours], &[])
    }

    /// Skips the file's tensors with names of this pattern.
    pub fn skip(self, theirs: &str) -> Mapping {
        self.rule(&[theirs], &[], &[])
    }

    /// Joins tensors along their first axis, in the order of the patterns `theirs`. Part `i` has
    /// `rows[i]` rows.
    ///
    /// # Example
    /// ```
    /// # use teeny_formats::Mapping;
    /// // weights and biases of three projections, for attention with one
    /// let mapping = Mapping::new().join(
    ///     &["*.query.*", "*.key.*", "*.value.*"],
    ///     "*.qkv.*",
    ///     &[64, 16, 16],
    /// );
    /// # let _ = mapping;
    /// ```
    pub fn join(self, theirs: &[&str], ours: &str, rows: &[usize]) -> Mapping {
        self.rule(theirs, &[ours], rows)
    }

    /// Splits tensors along their first axis: the reverse of [`Mapping::join`].
    pub fn split(self, theirs: &str, ours: &[&str], rows: &[usize]) -> Mapping {
        self.rule(&[theirs], ours, rows)
    }

    /// Transposes the file's matrices with names of this pattern, before they are joined or split.
    pub fn transpose(mut self, theirs: &str) -> Mapping {
        self.transposed.push(theirs.to_string());
        self
    }

    /// Lets parameters with names of this pattern keep their values if the file does not have them.
    pub fn allow_missing(mut self, ours: &str) -> Mapping {
        self.missing.push(ours.to_string());
        self
    }

    /// Ignores tensors of the file whose names in the model, of this pattern, no parameter has.
    pub fn allow_unexpected(mut self, ours: &str) -> Mapping {
        self.unexpected.push(ours.to_string());
        self
    }

    /// Whether missing and unexpected keys are errors, the default; otherwise they are only
    /// reported. Shape mismatches are always errors. Equivalent: `strict` of PyTorch's
    /// `load_state_dict`.
    pub fn strict(mut self, strict: bool) -> Mapping {
        for allowed in [&mut self.missing, &mut self.unexpected] {
            allowed.retain(|pattern| pattern != "*");
            if !strict {
                allowed.push("*".to_string());
            }
        }
        self
    }

    /// The mapping from the model's names and layout to the file's. Names that no rule of this
    /// mapping makes stay as they are; skipped tensors are not written. If several rules make a
    /// name, the first one is inverted: put specific rules before general ones.
    pub fn inverse(&self) -> Mapping {
        let turned = |rule: &Rule| Rule {
            theirs: rule.ours.clone(),
            ours: rule.theirs.clone(),
            rows: rule.rows.clone(),
        };
        Mapping {
            rules: self.rules.iter().map(turned).collect(),
            transposed: self.transposed.clone(),
            inverted: !self.inverted,
            ..Mapping::default()
        }
    }

    /// The mapping for Hugging Face's GPT-2 files: removes the prefix `transformer.`, skips the
    /// stored masks, and transposes `Conv1D` weights (in, out) to linear weights (out, in). A model
    /// without `lm_head.weight` does not read it: its head is then the embedding, of which the file
    /// has a copy.
    pub fn gpt2() -> Mapping {
        let mapping = Mapping::new()
            .skip("*.attn.bias")
            .skip("*.attn.masked_bias")
            .rename("lm_head.weight", "lm_head.weight")
            .rename("transformer.*", "*")
            .allow_unexpected("lm_head.weight");
        ["attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"]
            .iter()
            .fold(mapping, |mapping, name| mapping.transpose(&format!("*.{name}.weight")))
    }

    fn rule(mut self, theirs: &[&str], ours: &[&str], rows: &[usize]) -> Mapping {
        let owned = |patterns: &[&str]| patterns.iter().map(|p| p.to_string()).collect();
        self.rules.push(Rule { theirs: owned(theirs), ours: owned(ours), rows: rows.to_vec() });
        self
    }

    /// The same allowed differences, without rules.
    pub fn allowances(&self) -> Mapping {
        let (missing, unexpected) = (self.missing.clone(), self.unexpected.clone());
        Mapping { missing, unexpected, ..Mapping::default() }
    }

    /// Returns an error unless each rule has the same number of `*` in all patterns, and sizes for
    /// its parts.
    pub(super) fn check(&self) -> Result<()> {
        for rule in self.rules.iter().filter(|rule| !rule.ours.is_empty()) {
            let patterns = || rule.theirs.iter().chain(&rule.ours);
            let stars = |pattern: &String| pattern.matches('*').count();
            let first = patterns().next().map_or(0, stars);
            if let Some(other) = patterns().find(|pattern| stars(pattern) != first) {
                let known = patterns().next().map_or("", |pattern| pattern);
                return Err(Error::value(format!(
                    "the patterns {known:?} and {other:?} of a mapping have different numbers of *"
                ))
                .help("each * of one stands for the characters of a * of the other"));
            }
            let parts = rule.theirs.len().max(rule.ours.len());
            let expected = if parts > 1 || !rule.rows.is_empty() { parts } else { 0 };
            if rule.rows.len() != expected {
                return Err(Error::value(format!(
                    "{parts} parts of {:?} and {:?} have {} numbers of rows",
                    rule.theirs,
                    rule.ours,
                    rule.rows.len()
                ))
                .help("join and split take the rows of each part"));
            }
        }
        Ok(())
    }

    /// The parameters that the file's tensor `theirs` fills; none if it is skipped.
    pub fn targets(&self, theirs: &str) -> Vec<Target> {
        let found = self.rules.iter().find_map(|rule| {
            let matching = |pattern: &String| matched(pattern, theirs);
            let part = rule.theirs.iter().position(|pattern| matching(pattern).is_some())?;
            Some((rule, part, matching(&rule.theirs[part])?))
        });
        let Some((rule, part, stars)) = found else {
            let ours = theirs.to_string();
            return vec![Target { ours, part: 0, parts: 1, taken: None, rows: None }];
        };
        let parts = rule.theirs.len();
        if rule.ours.len() == 1 {
            let ours = filled(&rule.ours[0], &stars);
            let rows = rule.rows.get(part).copied();
            return vec![Target { ours, part, parts, taken: None, rows }];
        }
        let all = rule.rows.iter().fold(0, |all: usize, rows| all.saturating_add(*rows));
        let mut start = 0usize;
        let split = rule.ours.iter().zip(&rule.rows).map(|(pattern, rows)| {
            let taken = start..start.saturating_add(*rows);
            start = taken.end;
            let ours = filled(pattern, &stars);
            Target { ours, part: 0, parts: 1, taken: Some(taken), rows: Some(all) }
        });
        split.collect()
    }

    /// Whether a matrix is transposed before it is joined or split; `theirs` is its name there.
    pub(super) fn transposes_first(&self, theirs: &str) -> bool {
        !self.inverted && any(&self.transposed, theirs)
    }

    /// Whether a matrix is transposed after it was joined or split, to be what `ours` is called.
    pub fn transposes_last(&self, ours: &str) -> bool {
        self.inverted && any(&self.transposed, ours)
    }

    /// Whether the model may have `ours` and the file not.
    pub fn allows_missing(&self, ours: &str) -> bool {
        any(&self.missing, ours)
    }

    /// Whether the file may have `ours` and the model not.
    pub fn allows_unexpected(&self, ours: &str) -> bool {
        any(&self.unexpected, ours)
    }
}

fn any(patterns: &[String], name: &str) -> bool {
    patterns.iter().any(|pattern| matched(pattern, name).is_some())
}

/// The text that each `*` of `pattern` matches in `name`; `None` if `pattern` does not match.
fn matched<'n>(pattern: &str, name: &'n str) -> Option<Vec<&'n str>> {
    let mut pieces = pattern.split('*');
    let mut rest = name.strip_prefix(pieces.next()?)?;
    let mut stars = Vec::new();
    let mut pieces = pieces.peekable();
    while let Some(piece) = pieces.next() {
        // at least one character; the last piece is the end of the name
        let first = rest.chars().next()?.len_utf8();
        let at = match pieces.peek() {
            Some(_) => first + rest[first..].find(piece)?,
            None => rest.len().checked_sub(piece.len()).filter(|&at| at >= first)?,
        };
        if !rest.is_char_boundary(at) || !rest[at..].starts_with(piece) {
            return None;
        }
        stars.push(&rest[..at]);
        rest = &rest[at + piece.len()..];
    }
    rest.is_empty().then_some(stars)
}

/// `pattern` with `stars` for its `*`.
fn filled(pattern: &str, stars: &[&str]) -> String {
    let mut stars = stars.iter();
    let mut name = String::new();
    for (i, piece) in pattern.split('*').enumerate() {
        if i > 0 {
            name += stars.next().copied().unwrap_or_default();
        }
        name += piece;
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_stand_for_whole_names() {
        let stars = |pattern, name| matched(pattern, name);
        assert_eq!(stars("w", "w"), Some(vec![]));
        assert_eq!(stars("w", "wx"), None);
        assert_eq!(stars("*", "h.0.w"), Some(vec!["h.0.w"]));
        assert_eq!(stars("*", ""), None);
        assert_eq!(stars("h.*.w", "h.12.w"), Some(vec!["12"]));
        assert_eq!(stars("h.*.w", "h..w"), None);
        assert_eq!(stars("*.w", "a.w.b.w"), Some(vec!["a.w.b"]));
        assert_eq!(stars("*.attn.*", "h.0.attn.q.attn.w"), Some(vec!["h.0", "q.attn.w"]));
        assert_eq!(stars("é*é", "ééé"), Some(vec!["é"]));
        assert_eq!(stars("*é", "xyé"), Some(vec!["xy"]));
        assert_eq!(stars("*xx", "é"), None);
        assert_eq!(stars("a**b", "axyb"), Some(vec!["x", "y"]));
        assert_eq!(filled("layers.*.q.*", &["3", "bias"]), "layers.3.q.bias");
    }
}
