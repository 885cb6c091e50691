//! Formats names and numbers for errors and reports. Independent of parameters and files.

use std::path::Path;
use teeny_core::{Error, ErrorKind};

/// `error` with this help, unless it has help already.
pub fn with_help(error: Error, help: &str) -> Error {
    if error.has_help() { error } else { error.help(help) }
}

/// The operation of reading the file at `path`, for errors: `load "mlp.safetensors"`.
pub fn loading(path: &Path) -> String {
    format!("load {:?}", path.display().to_string())
}

/// The error of reading the file `name`, with help if its content is wrong.
pub fn of_file(error: Error, name: impl Into<String>) -> Error {
    let error = error.named(name);
    match error.kind() {
        ErrorKind::Format => {
            with_help(error, "the file is damaged or not complete: download it or write it again")
        }
        _ => error,
    }
}

/// The first names and the number of the others, for errors.
pub fn listed(names: &[&str]) -> String {
    match names {
        [] => "none".to_string(),
        names if names.len() <= 12 => names.join(", "),
        names => format!("{}, and {} more", names[..12].join(", "), names.len() - 12),
    }
}

/// The name that differs least from `name`, if one differs in less than half of its letters.
pub fn nearest<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let distances = names.into_iter().map(|other| (edits(name, other), other));
    let (distance, found) = distances.min_by_key(|(distance, _)| *distance)?;
    (2 * distance <= name.chars().count()).then_some(found)
}

/// The number of letters that are inserted, removed or replaced to make `a` to `b`.
///
/// Source: Levenshtein 1966.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// `134,975,808`.
pub fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_differs_in_fewest_letters() {
        assert_eq!([edits("", "ab"), edits("kitten", "sitting"), edits("é", "é")], [2, 3, 0]);
        assert_eq!(nearest("q_pro", ["k_proj", "q_proj"]), Some("q_proj"));
        assert_eq!(nearest("query", ["o_proj", "down"]), None);
        assert_eq!(nearest("query", []), None);
    }
}
