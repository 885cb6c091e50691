//! Writes the numbers of every step to a file: CSV for spreadsheets, JSON lines for programs.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use teeny_core::context::enter;
use teeny_core::file::{quoted, reason};
use teeny_core::{Error, Result};
use teeny_formats::json::Json;

/// A value of a line: a number or a text. `into()` converts from `f64`, `f32`, integers and `&str`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Field<'a> {
    /// A number; NaN and infinities are `nan`, `inf`, `-inf` in CSV and `null` in JSON, which does
    /// not have them.
    Number(f64),
    /// An integer.
    Integer(i64),
    /// A text, quoted as the format requires.
    Text(&'a str),
}

macro_rules! fields {
    ($($variant:ident: $($type:ty as $to:ty),*;)*) => {$($(
        impl From<$type> for Field<'_> {
            fn from(value: $type) -> Self {
                Field::$variant(value as $to)
            }
        }
    )*)*};
}
fields! {
    Number: f64 as f64, f32 as f64;
    Integer: i32 as i64, i64 as i64, u32 as i64, u64 as i64, usize as i64;
}
impl<'a> From<&'a str> for Field<'a> {
    fn from(text: &'a str) -> Self {
        Field::Text(text)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Csv,
    JsonLines,
}

/// A file with one line per step, in named columns. Every line is written in one system call, so
/// the lines of a killed run are whole.
///
/// # Example
/// ```
/// use teeny_nn::train::Log;
/// # fn main() -> teeny_core::Result<()> {
/// # let path = std::env::temp_dir().join(format!("teeny-log-{}.csv", std::process::id()));
/// let mut log = Log::create(&path, &["step", "loss", "note"])?;
/// log.write(&[0.into(), 2.303.into(), "first, of many".into()])?;
/// let text = std::fs::read_to_string(&path).unwrap();
/// assert_eq!(text, "step,loss,note\n0,2.303,\"first, of many\"\n");
/// # std::fs::remove_file(&path).unwrap();
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    file: File,
    format: Format,
    columns: Vec<String>,
    line: String,
}

impl Log {
    /// Creates or truncates the file at `path`: JSON lines if its name ends in `.jsonl`, otherwise
    /// CSV with a line of column names.
    ///
    /// # Errors
    /// If `columns` is empty, or the file cannot be created.
    #[track_caller]
    pub fn create(path: impl AsRef<Path>, columns: &[&str]) -> Result<Log> {
        let _op = enter("Log::create");
        let path = path.as_ref();
        let file = File::create(path)
            .map_err(|e| failed(path, format!("cannot create: {}", reason(path, &e))))?;
        Log::new(path, file, columns)?.begin()
    }

    /// Continues the file at `path` for a run that is resumed at step `step`; as [`Log::create`] if
    /// it is missing or empty. The first column must be the step: lines from `step` on, which the
    /// killed run logged after its checkpoint, are removed, because the resumed run writes them
    /// again. An incomplete last line is removed too.
    ///
    /// # Errors
    /// If the file cannot be opened, is CSV with other columns, or has a line that does not begin
    /// with a step.
    #[track_caller]
    pub fn resume(path: impl AsRef<Path>, columns: &[&str], step: u64) -> Result<Log> {
        let _op = enter("Log::resume");
        let path = path.as_ref();
        let (log, content) = Log::open(path, columns)?;
        if content.is_empty() {
            return log.cut(0)?.begin();
        }
        let mut kept = 0;
        for (i, line) in content.split_inclusive(|&byte| byte == b'\n').enumerate() {
            if log.format == Format::Csv && i == 0 {
                kept += line.len();
                continue;
            }
            let number = log.step_of(line).ok_or_else(|| {
                let text = format!(
                    "line {} has no step in column {:?}: {}",
                    i + 1,
                    columns[0],
                    quoted(String::from_utf8_lossy(line).trim_end())
                );
                failed(path, text)
                    .help("resume a log whose first column is the step, or log to another file")
            })?;
            if number >= step {
                break;
            }
            kept += line.len();
        }
        log.cut(kept)
    }

    /// The step of a line, the value of its first column.
    fn step_of(&self, line: &[u8]) -> Option<u64> {
        match self.format {
            Format::Csv => {
                std::str::from_utf8(line.split(|&byte| byte == b',' || byte == b'\n').next()?)
                    .ok()?
                    .parse()
                    .ok()
            }
            Format::JsonLines => {
                let mut step = None;
                let read = Json::parse(line).and_then(|json| {
                    json.members(|name, value| {
                        step = if name == self.columns[0] { value.number() } else { step };
                        Ok(())
                    })
                });
                read.ok().and(step)
            }
        }
    }

    /// Continues the file at `path` after its last whole line; as [`Log::create`] if it is missing
    /// or empty. A run that is resumed from a checkpoint uses [`Log::resume`], which does not
    /// repeat steps.
    ///
    /// # Errors
    /// If `columns` is empty, the file cannot be opened, or it is CSV with other columns.
    #[track_caller]
    pub fn append(path: impl AsRef<Path>, columns: &[&str]) -> Result<Log> {
        let _op = enter("Log::append");
        let (log, content) = Log::open(path.as_ref(), columns)?;
        let log = log.cut(content.len())?;
        if content.is_empty() { log.begin() } else { Ok(log) }
    }

    /// The log at `path` and its whole lines; nothing has changed.
    fn open(path: &Path, columns: &[&str]) -> Result<(Log, Vec<u8>)> {
        let fail =
            |e: std::io::Error| failed(path, format!("cannot continue: {}", reason(path, &e)));
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(fail)?;
        let mut content = Vec::new();
        file.read_to_end(&mut content).map_err(fail)?;
        let mut log = Log::new(path, file, columns)?;
        log.header();
        let header = log.line.as_bytes();
        let is_ours = content.starts_with(header) || header.starts_with(&content);
        if log.format == Format::Csv && !is_ours {
            let there = content.split(|&byte| byte == b'\n').next().unwrap_or_default();
            let text = format!(
                "its columns are {}, not {:?}",
                quoted(&String::from_utf8_lossy(there)),
                log.line.trim_end()
            );
            return Err(failed(path, text).help("use another file, or the same columns"));
        }
        content.truncate(content.iter().rposition(|&byte| byte == b'\n').map_or(0, |i| i + 1));
        Ok((log, content))
    }

    /// The log whose file ends after `length` bytes.
    fn cut(mut self, length: usize) -> Result<Log> {
        let cut = self.file.set_len(length as u64).and_then(|()| self.file.seek(SeekFrom::End(0)));
        match cut {
            Ok(_) => Ok(self),
            Err(e) => Err(failed(&self.path, format!("cannot continue: {e}"))),
        }
    }

    fn new(path: &Path, file: File, columns: &[&str]) -> Result<Log> {
        if columns.is_empty() {
            return Err(failed(path, "a log needs a column".into()));
        }
        let format = if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("jsonl")) {
            Format::JsonLines
        } else {
            Format::Csv
        };
        Ok(Log {
            path: path.into(),
            file,
            format,
            columns: columns.iter().map(|c| c.to_string()).collect(),
            line: String::new(),
        })
    }

    /// Writes the line of column names to `self.line`.
    fn header(&mut self) {
        self.line.clear();
        for (i, column) in self.columns.iter().enumerate() {
            self.line.push_str(if i > 0 { "," } else { "" });
            csv(&mut self.line, column);
        }
        self.line.push('\n');
    }

    fn begin(mut self) -> Result<Log> {
        if self.format == Format::Csv {
            self.header();
            self.put()?;
        }
        Ok(self)
    }

    /// Writes `self.line` to the file in one call. If the disk is full, the written part is
    /// removed.
    fn put(&mut self) -> Result<()> {
        let before = self.file.stream_position().ok(); // a pipe has none
        self.file.write_all(self.line.as_bytes()).map_err(|e| {
            if let Some(before) = before {
                // the error of the write is reported, not an error of the removal
                let _ = self
                    .file
                    .set_len(before)
                    .and_then(|()| self.file.seek(SeekFrom::Start(before)));
            }
            failed(&self.path, format!("cannot write: {e}"))
        })
    }

    /// Writes a line: one field per column, in their order.
    ///
    /// # Errors
    /// If the numbers of fields and columns differ, or the file cannot be written. The file then
    /// ends with its last whole line.
    #[track_caller]
    pub fn write(&mut self, fields: &[Field<'_>]) -> Result<()> {
        let _op = enter("log.write");
        if fields.len() != self.columns.len() {
            return Err(failed(
                &self.path,
                format!(
                    "{} fields for {} columns: {}",
                    fields.len(),
                    self.columns.len(),
                    self.columns.join(", ")
                ),
            ));
        }
        self.line.clear();
        match self.format {
            Format::Csv => {
                for (i, field) in fields.iter().enumerate() {
                    self.line.push_str(if i > 0 { "," } else { "" });
                    // writing to a String cannot fail
                    let _ = match field {
                        Field::Number(x) if x.is_nan() => write!(self.line, "nan"),
                        Field::Number(x) => write!(self.line, "{x}"),
                        Field::Integer(n) => write!(self.line, "{n}"),
                        Field::Text(text) => {
                            csv(&mut self.line, text);
                            Ok(())
                        }
                    };
                }
            }
            Format::JsonLines => {
                let value = |field: &Field| match *field {
                    Field::Number(x) => serde_json::Value::from(x), // null if not finite
                    Field::Integer(n) => n.into(),
                    Field::Text(text) => text.into(),
                };
                for (i, (column, field)) in self.columns.iter().zip(fields).enumerate() {
                    let separator = if i > 0 { ", " } else { "{" };
                    let _ = write!(
                        self.line,
                        "{separator}{}: {}",
                        serde_json::Value::from(column.as_str()),
                        value(field)
                    );
                }
                self.line.push('}');
            }
        }
        self.line.push('\n');
        self.put()
    }
}

/// `text` as a field of CSV (RFC 4180), quoted where necessary. A text that a spreadsheet would
/// evaluate as a formula gets an apostrophe.
fn csv(line: &mut String, text: &str) {
    let formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    if formula || text.contains([',', '"', '\n', '\r']) {
        line.push('"');
        line.push_str(if formula { "'" } else { "" });
        line.push_str(&text.replace('"', "\"\""));
        line.push('"');
    } else {
        line.push_str(text);
    }
}

fn failed(path: &Path, message: String) -> Error {
    Error::io(message).named(format!("log {:?}", path.display().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("teeny-log-{}-{name}", std::process::id()))
    }

    fn lines(path: &Path) -> Vec<String> {
        let text = fs::read_to_string(path).unwrap();
        fs::remove_file(path).unwrap();
        text.lines().map(str::to_string).collect()
    }

    #[test]
    fn a_csv_log_quotes_what_needs_it_and_round_trips_numbers() {
        let path = path("quotes.csv");
        let mut log = Log::create(&path, &["step", "loss, mean", "text"]).unwrap();
        log.write(&[7u64.into(), 0.1f32.into(), "a \"b\", c".into()]).unwrap();
        log.write(&[8usize.into(), f64::NAN.into(), "=1+1".into()]).unwrap();
        log.write(&[9.into(), (1.0f64 / 3.0).into(), "plain".into()]).unwrap();
        let lines = lines(&path);
        assert_eq!(lines[0], "step,\"loss, mean\",text");
        assert_eq!(lines[1], "7,0.10000000149011612,\"a \"\"b\"\", c\"");
        assert_eq!(lines[2], "8,nan,\"'=1+1\"");
        assert_eq!(lines[3].split(',').nth(1).unwrap().parse::<f64>().unwrap(), 1.0 / 3.0);
    }

    #[test]
    fn a_json_log_is_json_whatever_is_logged() {
        let path = path("all.JSONL");
        let mut log = Log::create(&path, &["step", "lo\"ss", "note"]).unwrap();
        log.write(&[0.into(), f64::INFINITY.into(), "two\nlines \u{1}".into()]).unwrap();
        log.write(&[1.into(), 0.5.into(), "".into()]).unwrap();
        let lines = lines(&path);
        let parsed: Vec<serde_json::Value> =
            lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(
            (parsed[0]["lo\"ss"].is_null(), parsed[0]["note"].as_str()),
            (true, Some("two\nlines \u{1}"))
        );
        assert_eq!(lines[1], "{\"step\": 1, \"lo\\\"ss\": 0.5, \"note\": \"\"}");
    }

    #[test]
    fn lines_are_in_the_file_as_soon_as_they_are_written() {
        let path = path("flushed.csv");
        let mut log = Log::create(&path, &["step"]).unwrap();
        log.write(&[1.into()]).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "step\n1\n");
        drop(log);
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_log_is_continued_after_its_last_whole_line() {
        let (path, other) = (path("continued.csv"), path("notes.csv"));
        let line = |log: &mut Log, step: i64| log.write(&[step.into(), 0.5.into()]).unwrap();
        line(&mut Log::append(&path, &["step", "loss"]).unwrap(), 1);
        fs::write(&path, fs::read_to_string(&path).unwrap() + "2,0.").unwrap();
        line(&mut Log::append(&path, &["step", "loss"]).unwrap(), 2);
        let error = Log::append(&path, &["step", "accuracy"]).unwrap_err().to_string();
        assert!(error.contains("its columns are \"step,loss\", not \"step,accuracy\""), "{error}");
        // a file that is not a log stays as it is, its last line too
        for notes in ["milk", "milk\nbread"] {
            fs::write(&other, notes).unwrap();
            for log in [Log::append(&other, &["step"]), Log::resume(&other, &["step"], 0)] {
                assert!(log.unwrap_err().to_string().contains("its columns are \"milk\""));
                assert_eq!(fs::read_to_string(&other).unwrap(), notes);
            }
        }
        assert_eq!(lines(&path), ["step,loss", "1,0.5", "2,0.5"]);
    }

    #[test]
    fn a_resumed_log_has_every_step_once() {
        for name in ["resumed.csv", "resumed.jsonl"] {
            let path = path(name);
            let line = |log: &mut Log, step: u64| {
                log.write(&[step.into(), (step as f64 / 8.0).into(), "a, b".into()]).unwrap()
            };
            let columns = ["step", "loss", "note"];
            let mut log = Log::create(&path, &columns).unwrap();
            (0..12).for_each(|step| line(&mut log, step));
            let whole = fs::read_to_string(&path).unwrap();
            // killed in the middle of line 9; the checkpoint is of step 7
            fs::write(&path, &whole[..whole.len() - 42]).unwrap();
            let mut log = Log::resume(&path, &columns, 7).unwrap();
            (7..12).for_each(|step| line(&mut log, step));
            assert_eq!(fs::read_to_string(&path).unwrap(), whole);
            // a run that begins again begins its log again
            let mut log = Log::resume(&path, &columns, 0).unwrap();
            (0..12).for_each(|step| line(&mut log, step));
            assert_eq!(fs::read_to_string(&path).unwrap(), whole);
            fs::write(&path, whole.replacen("3", "x", 1)).unwrap();
            let error = Log::resume(&path, &columns, 7).unwrap_err().to_string();
            assert!(error.contains("has no step in column \"step\""), "{error}");
            fs::remove_file(path).unwrap();
        }
        let fresh = path("none.csv");
        drop(Log::resume(&fresh, &["step"], 5).unwrap());
        assert_eq!(lines(&fresh), ["step"]);
    }

    #[test]
    fn mistakes_name_the_file() {
        let error = Log::create("/no/such/folder/x.csv", &["step"]).unwrap_err().to_string();
        assert!(error.starts_with("log \"/no/such/folder/x.csv\" at "), "{error}");
        assert!(error.contains(": cannot create: "), "{error}");
        let path = path("fields.csv");
        let error = Log::create(&path, &["step", "loss"])
            .unwrap()
            .write(&[1.into()])
            .unwrap_err()
            .to_string();
        assert!(error.contains("1 fields for 2 columns: step, loss"), "{error}");
        assert!(Log::create(&path, &[]).is_err());
        fs::remove_file(path).unwrap();
    }
}
