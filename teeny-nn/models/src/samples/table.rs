//! Rows of named columns, from JSON lines, CSV or TSV, and the tokens of their texts.

use super::super::Encoder;
use super::read;
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::path::Path;
use teeny_core::file::quoted;
use teeny_core::{Error, Result};
use teeny_data::csv;
use teeny_formats::json::Json;

/// Statistics of a file of rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableReport {
    /// Rows that are used.
    pub samples: usize,
    /// Rows that were there before, word for word. They are used again.
    pub duplicates: usize,
    /// Texts that were cut to the largest number of tokens.
    pub cut: usize,
    /// Rows without a text or a label, or with white space alone. They are left out.
    pub left_out: usize,
    /// The tokens of all texts.
    pub tokens: usize,
    /// The number of texts of each class, for texts with labels.
    pub labels: Vec<(String, usize)>,
}

impl fmt::Display for TableReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TableReport { samples, duplicates, cut, left_out, tokens, labels } = self;
        write!(f, "{samples} rows, {tokens} tokens")?;
        for (count, what) in [
            (duplicates, "twice in the file"),
            (cut, "texts cut, as they are too long"),
            (left_out, "left out, as a part is empty"),
        ] {
            if *count > 0 {
                write!(f, "; {count} {what}")?;
            }
        }
        let classes: Vec<String> =
            labels.iter().map(|(name, count)| format!("{} {count}", quoted(name))).collect();
        if classes.is_empty() { Ok(()) } else { write!(f, "; {}", classes.join(", ")) }
    }
}

/// The columns of a kind of file.
pub(super) struct Columns {
    /// Those that each row has.
    pub needed: [&'static str; 2],
    /// One that a row may have.
    pub optional: Option<&'static str>,
    /// How many of all these are texts: the first ones.
    pub texts: usize,
    /// Whether the model's default instruction comes before each text.
    pub prompted: bool,
}

/// The values of a row, the last one empty if absent, and its line.
pub(super) struct Row {
    pub line: usize,
    pub values: [String; 3],
}

/// A row with the tokens of its texts; an empty text has no tokens.
pub(super) struct Encoded {
    pub row: Row,
    pub tokens: Vec<Vec<u32>>,
}

/// The names of columns of all tasks.
const NAMES: [&str; 5] = ["text", "label", "anchor", "positive", "negative"];

impl Columns {
    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.needed.into_iter().chain(self.optional)
    }

    fn help(&self) -> String {
        let [a, b] = self.needed;
        let members = self.names().map(|name| format!("\"{name}\": ..")).collect::<Vec<_>>();
        format!(
            "a line of a .jsonl file is {{{}}}; a .csv or .tsv file has the columns {a} and {b}",
            members.join(", ")
        )
    }

    /// The rows of a file that have the required values, and the number of others.
    pub fn rows(&self, path: &Path) -> Result<(Vec<Row>, usize)> {
        let text = csv::text(path)?;
        let all = match path.extension().and_then(|end| end.to_str()) {
            Some("jsonl") => {
                let rows = read::lines(path, &text, |line| self.of_object(line))?;
                rows.into_iter().map(|(line, values)| Row { line, values }).collect()
            }
            Some(end @ ("csv" | "tsv")) => {
                let cells = self.of_cells(&text, if end == "csv" { ',' } else { '\t' });
                cells.map_err(|(line, e)| e.named(format!("{}, line {line}", path.display())))?
            }
            _ => {
                let text = format!("{} is not a .jsonl, .csv or .tsv file", path.display());
                return Err(Error::format(text).help(self.help()));
            }
        };
        let count = all.len();
        let is_whole = |row: &Row| row.values[..2].iter().all(|value| !value.trim().is_empty());
        let rows: Vec<Row> = all.into_iter().filter(is_whole).collect();
        if rows.is_empty() {
            let text = format!("{}: nothing to learn in {count} rows", path.display());
            return Err(Error::value(text).help(self.help()));
        }
        let left_out = count - rows.len();
        Ok((rows, left_out))
    }

    /// The values of a line of JSON.
    fn of_object(&self, line: &str) -> Result<[String; 3]> {
        let object = Json::parse(line.as_bytes()).and_then(Json::object);
        let object: BTreeMap<String, Json<'_>> = object.map_err(|e| e.help(self.help()))?;
        let mut values = [const { String::new() }; 3];
        for (i, name) in self.names().enumerate() {
            let value = object.get(name);
            // a class may be a number or a truth value
            let scalar = || {
                let text = value?.text();
                (i >= self.texts && !text.starts_with(['{', '[', 'n']))
                    .then(|| Ok(text.to_string()))
            };
            let found = value.and_then(|value| value.checked_string()).or_else(scalar).transpose();
            let found = found.map_err(|e| e.note(format!("in \"{name}\"")))?;
            let missing = i == 2 && value.is_none_or(|value| value.text() == "null");
            values[i] = match found {
                None if !missing => {
                    let error = Error::format(format!("no string \"{name}\""));
                    return Err(error.help(self.help()));
                }
                found => found.unwrap_or_default(),
            };
        }
        Ok(values)
    }

    /// The values of the lines of a table; an error has its line.
    fn of_cells(&self, text: &str, delimiter: char) -> csv::AtLine<Vec<Row>> {
        let records = csv::records(text, delimiter)?;
        let Some((line, first)) = records.first() else { return Ok(Vec::new()) };
        let place = |name: &str| first.iter().position(|cell| cell.trim() == name);
        let named: Vec<Option<usize>> = self.names().map(place).collect();
        let is_header = named[..2].iter().all(Option::is_some);
        // a table for another task has names too
        let is_other = first.iter().all(|cell| NAMES.contains(&cell.trim()));
        let by_order = !is_header && !is_other && first.len() >= 2;
        if !is_header && (!by_order || named.iter().any(Option::is_some)) {
            let cells: Vec<String> = first.iter().map(|cell| quoted(cell)).collect();
            let error = Error::format(format!("the first line has {}", cells.join(", ")));
            return Err((*line, error.help(self.help())));
        }
        let count = if first.len() > 2 { self.names().count() } else { 2 };
        let places = if is_header { named } else { (0..count).map(Some).collect() };
        let skipped = usize::from(is_header);
        let row = |(line, mut cells): (usize, Vec<String>)| {
            let mut values = [const { String::new() }; 3];
            for (value, place) in values.iter_mut().zip(&places) {
                *value = place.map(|i| std::mem::take(&mut cells[i])).unwrap_or_default();
            }
            Row { line, values }
        };
        Ok(records.into_iter().skip(skipped).map(row).collect())
    }

    /// The rows of a file with their tokens, each text of at most `max_length`.
    pub fn encoded(
        &self,
        path: &Path,
        encoder: &Encoder,
        max_length: usize,
    ) -> Result<(Vec<Encoded>, TableReport)> {
        let context = encoder.model.context();
        if !(2..=context).contains(&max_length) {
            let text = format!("cannot use texts of {max_length} tokens in a context of {context}");
            return Err(Error::value(text).help("use between 2 tokens and the context length"));
        }
        let (rows, left_out) = self.rows(path)?;
        let mut report = TableReport { samples: rows.len(), left_out, ..Default::default() };
        let mut seen = HashSet::new();
        let mut encoded = Vec::with_capacity(rows.len());
        for row in rows {
            let mut tokens = Vec::with_capacity(self.texts);
            for text in &row.values[..self.texts] {
                if text.trim().is_empty() {
                    tokens.push(Vec::new());
                    continue;
                }
                let (ids, cut) = encoder.tokens(text, max_length, self.prompted)?;
                report.cut += usize::from(cut);
                report.tokens += ids.len();
                tokens.push(ids);
            }
            report.duplicates += usize::from(!seen.insert(row.values.clone()));
            encoded.push(Encoded { row, tokens });
        }
        Ok((encoded, report))
    }
}
