//! Keys in files of other libraries that set no option here. A key is ignored, refused unless its
//! value is neutral, or reported; `keys.txt` lists them.

use serde_json::Value;

/// The keys of the files of these kinds: (key, neutral values, what another value would change).
fn rows(kinds: &[&str]) -> impl Iterator<Item = [&'static str; 3]> {
    include_str!("keys.txt").lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut words = line.splitn(4, ' ');
        let kind = words.next().filter(|kind| kinds.contains(kind));
        kind.and_then(|_| Some([words.next()?, words.next()?, words.next()?]))
    })
}

/// The first key of a file of these kinds whose value is not neutral, and its effect. All known
/// keys are read.
pub fn refused(
    kinds: &[&str],
    ignored: &[String],
    value: impl Fn(&str) -> Option<Value>,
) -> Option<String> {
    let wrong = |&[key, neutral, _]: &[&str; 3]| {
        let Some(value) = value(key).filter(|value| !value.is_null()) else { return false };
        let same = |text: &str| serde_json::from_str::<Value>(text).is_ok_and(|v| v == value);
        neutral != "*" && !neutral.split('|').any(same) && !ignored.iter().any(|own| own == key)
    };
    let all: Vec<_> = rows(kinds).filter(wrong).collect();
    let [key, _, effect] = all.first()?;
    Some(format!("{key:?} is {}: {effect}", value(key)?))
}

/// Whether a file of these kinds may have `key`.
pub fn is_known(kinds: &[&str], key: &str) -> bool {
    rows(kinds).any(|[own, ..]| own == key)
}
