//! The functions that shaders may call, and how they are added to a shader.
//!
//! `prelude/*.wgsl` hold functions and constants, each beginning at the start of a line.
//! [`complete`] puts the functions that a shader names before it, and the functions that these
//! name; a shader contains nothing that it does not use.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

const SOURCES: [&str; 7] = [
    include_str!("../shaders/prelude/bits.wgsl"),
    include_str!("../shaders/prelude/float.wgsl"),
    include_str!("../shaders/prelude/float_pow.wgsl"),
    include_str!("../shaders/prelude/integer.wgsl"),
    include_str!("../shaders/prelude/double.wgsl"),
    include_str!("../shaders/prelude/double_math.wgsl"),
    include_str!("../shaders/prelude/double_pow.wgsl"),
];

struct Item {
    text: String,
    uses: Vec<&'static str>,
}

/// All items by name, and their order, in which every item follows those it uses.
struct Library {
    items: HashMap<&'static str, Item>,
    order: Vec<&'static str>,
}

static LIBRARY: LazyLock<Library> = LazyLock::new(|| {
    let mut items = HashMap::new();
    let mut order = Vec::new();
    for source in SOURCES {
        let mut current: Option<(&'static str, String)> = None;
        for line in
            source.lines().filter(|l| !l.trim_start().starts_with("//") && !l.trim().is_empty())
        {
            if let Some(name) = defined(line)
                && let Some((name, text)) = current.replace((name, String::new()))
            {
                order.push(name);
                items.insert(name, Item { text, uses: Vec::new() });
            }
            if let Some((_, text)) = &mut current {
                text.push_str(line);
                text.push('\n');
            }
        }
        if let Some((name, text)) = current {
            order.push(name);
            items.insert(name, Item { text, uses: Vec::new() });
        }
    }
    let uses: Vec<(&'static str, Vec<&'static str>)> = order
        .iter()
        .map(|&name| {
            let words: HashSet<&str> = words(&items[name].text).collect();
            (
                name,
                order
                    .iter()
                    .copied()
                    .filter(|&other| other != name && words.contains(other))
                    .collect(),
            )
        })
        .collect();
    for (name, uses) in uses {
        if let Some(item) = items.get_mut(name) {
            item.uses = uses;
        }
    }
    Library { items, order }
});

/// The name that a line at the left margin defines.
fn defined(line: &'static str) -> Option<&'static str> {
    let rest = line
        .strip_prefix("fn ")
        .or_else(|| line.strip_prefix("const "))
        .or_else(|| line.strip_prefix("struct "))?;
    words(rest).next()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|w| !w.is_empty())
}

/// `source` with the items of the prelude that it needs before it, and its `enable` directives
/// before those, as WGSL asks.
pub(crate) fn complete(source: &str) -> String {
    let library = &*LIBRARY;
    let mut needed: HashSet<&str> = HashSet::new();
    let mut open: Vec<&'static str> =
        words(source).filter_map(|w| library.items.get_key_value(w).map(|(k, _)| *k)).collect();
    while let Some(name) = open.pop() {
        if needed.insert(name) {
            open.extend(&library.items[name].uses);
        }
    }
    let mut text = String::new();
    let (directives, source): (Vec<&str>, Vec<&str>) =
        source.split_inclusive('\n').partition(|line| line.starts_with("enable "));
    directives.into_iter().for_each(|line| text.push_str(line));
    for name in library.order.iter().filter(|n| needed.contains(**n)) {
        text.push_str(&library.items[name].text);
    }
    source.into_iter().for_each(|line| text.push_str(line));
    text
}

#[cfg(test)]
mod tests {
    use super::complete;

    #[test]
    fn directives_stay_before_the_prelude() {
        let text = complete("enable f16;\nfn main() { let y = tanh_f32(1.0); }");
        assert!(text.starts_with("enable f16;\n") && text.contains("fn tanh_f32"), "{text}");
    }

    #[test]
    fn a_shader_gets_what_it_names_and_no_more() {
        let text = complete("fn main() { let y = tanh_f32(1.0); }");
        assert!(
            text.contains("fn tanh_f32")
                && text.contains("fn exp_f32")
                && !text.contains("fn pow_f32"),
            "{text}"
        );
    }
}
