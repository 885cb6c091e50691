//! CSV and TSV, as RFC 4180 describes them: cells that have a delimiter, a line feed or a quote are
//! quoted, and quotes in them doubled. In a file without a line feed, lines end with a carriage
//! return.

use std::fs;
use std::path::Path;
use teeny_core::file::reason;
use teeny_core::{Error, Result};

/// A result with the line of its error.
pub type AtLine<T> = std::result::Result<T, (usize, Error)>;

/// The text of a file, without a byte order mark.
pub fn text(path: &Path) -> Result<String> {
    let text = fs::read(path).map_err(|e| {
        Error::io(format!("cannot read {}: {}", path.display(), reason(path, &e))).with_source(e)
    })?;
    let text = text.strip_prefix(b"\xef\xbb\xbf").map(<[u8]>::to_vec).unwrap_or(text);
    String::from_utf8(text).map_err(|e| {
        let line = 1 + e.as_bytes()[..e.utf8_error().valid_up_to()]
            .iter()
            .filter(|&&b| b == b'\n')
            .count();
        Error::format(format!("{}, line {line}: not UTF-8", path.display()))
            .help("convert the file to UTF-8")
    })
}

/// The records of `text`, each with the line where it begins. Lines that are empty are no records.
///
/// # Errors
/// If a quote is not closed, or followed by text, or a record has another number of cells than the
/// first one: with the line where the record begins.
pub fn records(text: &str, delimiter: char) -> AtLine<Vec<(usize, Vec<String>)>> {
    let (mut records, mut rest, mut line) = (Vec::new(), text, 1);
    let end = if text.contains('\n') { '\n' } else { '\r' };
    while !rest.is_empty() {
        let (begin, mut cells, record) = (line, Vec::new(), rest);
        loop {
            let (value, after) = cell(rest, delimiter, end).map_err(|e| (begin, e))?;
            cells.push(value);
            match after.strip_prefix(delimiter) {
                Some(next) => rest = next,
                None => {
                    let after = after.strip_prefix('\r').unwrap_or(after);
                    rest = after.strip_prefix('\n').unwrap_or(after);
                    break;
                }
            }
        }
        let record = &record[..record.len() - rest.len()];
        line += record.matches(end).count();
        if record.trim_end_matches(['\r', '\n']).is_empty() {
            continue;
        }
        let width = records.first().map_or(cells.len(), |(_, cells): &(_, Vec<_>)| cells.len());
        if cells.len() != width {
            let text = format!("{} columns, but the first line has {width}", cells.len());
            let help = "cells that have a delimiter, a line feed or a quote are quoted";
            return Err((begin, Error::format(text).help(help)));
        }
        records.push((begin, cells));
    }
    Ok(records)
}

/// The first cell of `text`, and the rest: a delimiter, the end of a line, or nothing.
fn cell(text: &str, delimiter: char, line_end: char) -> Result<(String, &str)> {
    let ends = |rest: &str| {
        rest.is_empty() || rest == "\r" || rest.starts_with("\r\n") || rest.starts_with(line_end)
    };
    let Some(mut rest) = text.strip_prefix('"') else {
        let end = text.find([delimiter, line_end]).unwrap_or(text.len());
        let cell = text[..end].strip_suffix('\r').filter(|cell| ends(&text[cell.len()..]));
        let (value, rest) = text.split_at(cell.map_or(end, str::len));
        return Ok((value.to_string(), rest));
    };
    let mut value = String::new();
    loop {
        let Some((part, after)) = rest.split_once('"') else {
            return Err(Error::format("a quote is not closed")
                .help("write \"\" for a quote inside a cell that begins with one"));
        };
        value.push_str(part);
        let Some(next) = after.strip_prefix('"') else {
            if ends(after) || after.starts_with(delimiter) {
                return Ok((value, after));
            }
            return Err(Error::format("text follows the quote that closes a cell")
                .help("write \"\" for a quote inside a cell that begins with one"));
        };
        value.push('"');
        rest = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use teeny_core::Key;
    use teeny_core::random::philox;

    #[test]
    fn records_are_those_that_were_written() {
        let alphabet = ["a", "b", ",", "\t", "\"", "\n", "\r", "\r\n", " ", "\u{e9}", ";", ""];
        for case in 0..3000 {
            let mut drawn = (0..).flat_map(|i| philox(Key { seed: 9, draw: case }, i));
            let mut draw = |n: usize| drawn.next().unwrap() as usize % n;
            let (delimiter, end) = ([',', '\t'][draw(2)], ["\n", "\r\n"][draw(2)]);
            let (rows, columns, always) = (draw(5), 2 + draw(3), draw(2) == 0);
            let (mut text, mut want, mut line) = (String::new(), Vec::new(), 1);
            for row in 0..rows {
                let empty = draw(4) == 0; // an empty line between records
                text += if empty { end } else { "" };
                line += usize::from(empty);
                let cells: Vec<String> = (0..columns)
                    .map(|_| (0..draw(5)).map(|_| alphabet[draw(alphabet.len())]).collect())
                    .collect();
                let written: Vec<String> = cells
                    .iter()
                    .map(|cell| match always || cell.contains([delimiter, '"', '\n', '\r']) {
                        true => format!("\"{}\"", cell.replace('"', "\"\"")),
                        false => cell.clone(),
                    })
                    .collect();
                text += &written.join(&delimiter.to_string());
                // the last line may have no end
                text += if row + 1 < rows || draw(2) == 0 { end } else { "" };
                let feeds = cells.concat().matches('\n').count();
                want.push((line, cells));
                line += 1 + feeds;
            }
            assert_eq!(records(&text, delimiter).unwrap(), want, "{text:?}");
        }
    }

    #[test]
    fn lines_may_end_with_a_carriage_return_alone() {
        let got = records("a,b\r1,\"x\ry\"\r\r2,z", ',').unwrap();
        let cells = |a: &str, b: &str| vec![a.to_string(), b.to_string()];
        assert_eq!(got, [(1, cells("a", "b")), (2, cells("1", "x\ry")), (5, cells("2", "z"))]);
        let (at, error) = records("a,b\r1\r", ',').unwrap_err();
        assert!(at == 2 && error.to_string().contains("1 columns"), "{at} {error}");
    }

    #[test]
    fn quotes_inside_a_cell_are_text_and_damaged_ones_are_errors() {
        let one = |text: &str| records(text, ',').unwrap()[0].1.clone();
        assert_eq!(one("a \"b\",c\rd,\n"), ["a \"b\"", "c\rd", ""]);
        assert_eq!(one("\"\",\"x\""), ["", "x"]);
        assert!(records("\n\r\n", ',').unwrap().is_empty());
        for (text, line, says) in [
            ("a,b\n\"c\nd,e\n", 2, "not closed"),
            ("a,b\n\n\"c\nd\",e\n\"f\"g,h", 5, "text follows"),
            ("\"", 1, "not closed"),
            ("\"a\"\"", 1, "not closed"),
        ] {
            let (at, error) = records(text, ',').unwrap_err();
            assert!(at == line && error.to_string().contains(says), "{text:?}: {at} {error}");
        }
        // any text is records or an error
        for case in 0..3000 {
            let drawn = philox(Key { seed: 5, draw: case }, 0)
                .into_iter()
                .chain(philox(Key { seed: 6, draw: case }, 0));
            let text: String =
                drawn.map(|n| ["a", ",", "\"", "\n", "\r"][n as usize % 5]).collect();
            if let Ok(records) = records(&text, ',') {
                let cells: usize = records.iter().map(|(_, cells)| cells.len()).sum();
                assert!(cells <= text.len() + 1, "{text:?}");
            }
        }
    }
}
