//! The families of models. `families.json` lists the keys of each in `config.json`, with defaults.
//!
//! An entry `key` is the default of a missing key, `=key` is a value that no file changes, and
//! `@key` lists the names of a key in files. `like` names the family that this one extends. A key
//! that a family does not list is not read, as in transformers. `names.txt` lists the tensor names
//! of each family.

use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, LazyLock};
use teeny_core::Result;
use teeny_formats::Mapping;
use teeny_formats::config::{Config, Family};

/// The families by name.
static TABLE: LazyLock<BTreeMap<String, Map<String, Value>>> =
    LazyLock::new(|| serde_json::from_str(include_str!("families.json")).unwrap_or_default());

/// `config` with the keys of the family `name`.
pub(super) fn family_of(mut config: Config, name: &str) -> Config {
    config.family = Arc::new(family(name));
    config
}

/// The family of the model that `config` describes, among those that are made from `root`, the
/// families of a `kind`.
///
/// # Errors
/// If it is not known.
pub(super) fn known_family(config: &Config, kind: &str, root: &str) -> Result<String> {
    let names = TABLE.keys().map(String::as_str);
    let known: Vec<_> = names.filter(|name| lines(name)[0].0 == root).collect();
    config.family(kind, &known).map(str::to_string)
}

/// The families from the root to `name`.
fn lines(name: &str) -> Vec<(&'static str, &'static Map<String, Value>)> {
    let Some((name, line)) = TABLE.get_key_value(name) else { return Vec::new() };
    let base = line.get("like").and_then(Value::as_str);
    let mut all = base.map_or_else(Vec::new, lines);
    all.push((name, line));
    all
}

fn family(name: &str) -> Family {
    let mut family = own_keys(name);
    let own = files_keys(&family);
    let all = TABLE.keys().flat_map(|other| files_keys(&own_keys(other)));
    family.foreign = all.filter(|key| !own.contains(key)).collect();
    family
}

/// Family `name` without the keys of others.
fn own_keys(name: &str) -> Family {
    let mut family = Family::default();
    for (key, value) in lines(name).into_iter().flat_map(|(_, line)| line) {
        if let Some(key) = key.strip_prefix('@') {
            let names = value.as_array().into_iter().flatten();
            let names = names.filter_map(Value::as_str).map(str::to_string).collect();
            family.names.insert(key.to_string(), names);
        } else if key != "like" {
            let (old, own, key) = match key.strip_prefix('=') {
                Some(key) => (&mut family.defaults, &mut family.fixed, key),
                None => (&mut family.fixed, &mut family.defaults, &key[..]),
            };
            old.remove(key);
            own.insert(key.to_string(), value.clone());
        }
    }
    family
}

/// The keys that files of a family have.
fn files_keys(family: &Family) -> HashSet<String> {
    let own = |key: &String| !family.fixed.contains_key(key);
    let keys = family.defaults.keys().filter(|key| own(key));
    keys.flat_map(|key| family.names.get(key).cloned().unwrap_or(vec![key.clone()])).collect()
}

/// Adds the names of `family` to `mapping`: in files after the prefix `theirs`, here after `ours`.
/// `qkv` and `gate_up` are the rows of the parts of parameters that join three or two tensors.
pub(super) fn with_names(
    mut mapping: Mapping,
    family: &str,
    [theirs, ours]: [&str; 2],
    [qkv, gate_up]: [&[usize]; 2],
) -> Mapping {
    let mut sections = include_str!("names.txt").split("\n[").filter_map(|s| s.split_once("]\n"));
    let lines = sections.find(|(name, _)| *name == family).map_or("", |(_, lines)| lines);
    for (names, own) in lines.lines().filter_map(|line| line.split_once(" > ")) {
        let (names, ends) = match names.strip_prefix('=') {
            Some(name) => (name, &[""][..]),
            None => (names, &[".weight", ".bias"][..]),
        };
        for end in ends {
            let parts: Vec<_> = names.split(' ').map(|n| format!("{theirs}{n}{end}")).collect();
            let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
            // `in_proj_weight`
            let end = if own.ends_with('_') { end.trim_start_matches('.') } else { end };
            let own = format!("{ours}{own}{end}");
            mapping = match parts[..] {
                [name] => mapping.rename(name, &own),
                [_, _] => mapping.join(&parts, &own, gate_up),
                _ => mapping.join(&parts, &own, qkv),
            };
        }
    }
    mapping
}
