//! The modules of the library crates: which of them import each other, and how long their files are.
//!
//! The sources are read as text. `crate::` and `super::` paths are the edges of a graph of files, and
//! of a graph of top-level modules; names that a crate re-exports at its root lead to their modules.
//! Comments, strings and items under `#[cfg(test)]` are left out. A folder's `mod.rs` and the files
//! below it are one subject: paths between them do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

const CRATES: [&str; 11] = [
    "teeny-core",
    "teeny-core/conformance",
    "teeny-autograd",
    "teeny-cpu",
    "teeny-wgpu",
    "teeny-nn",
    "teeny-nn/data",
    "teeny-nn/distributed",
    "teeny-nn/formats",
    "teeny-nn/models",
    "teeny-nn/text",
];

/// The circles that remain: crate, modules or files, reason. ARCHITECTURE.md has the same list.
const CIRCLES: &[(&str, &[&str], &str)] = &[
    ("teeny-core", &TYPES, "a tensor names its device, which executes ops over tensors"),
    ("teeny-core", &TYPES, "the same, file by file"),
];
const TYPES: [&str; 3] = ["device", "op", "tensor"];

/// The most lines of a source file, and the files that have more: path and reason.
const MAX_LINES: usize = 520;
const LONG_FILES: &[(&str, &str)] =
    &[("teeny-core/src/wrappers/compare.rs", "one wrapper and its tests")];

/// A source file: the path of its module (`tensor/view`, `tensor` for `tensor/mod.rs`, empty for
/// `lib.rs`) and its text.
type Sources = BTreeMap<String, String>;
/// The modules that each module imports.
type Graph = BTreeMap<String, BTreeSet<String>>;

#[test]
fn modules_import_each_other_only_where_it_is_argued() {
    if !in_workspace() {
        return;
    }
    let mut found = Vec::new();
    for name in CRATES {
        let files = references(&sources(name));
        for graph in [top_level(&files), files] {
            for circle in circles(&graph) {
                if !CIRCLES.iter().any(|(n, modules, _)| *n == name && *modules == circle) {
                    found.push(format!(
                        "{name}: these import each other:\n{}  Move what they share to a module \
                         that imports none of them, or pass it as an argument. If they are right \
                         as they are, add them to CIRCLES in this file and to ARCHITECTURE.md, \
                         with the reason.",
                        edges(&graph, &circle)
                    ));
                }
            }
        }
    }
    let all = |name: &str| {
        let files = references(&sources(name));
        [circles(&top_level(&files)), circles(&files)].concat()
    };
    for (name, modules, _) in CIRCLES {
        if !all(name).iter().any(|circle| circle.iter().eq(modules.iter())) {
            found.push(format!(
                "{name}: {} are a circle no more, or another one: correct CIRCLES in this file and \
                 ARCHITECTURE.md.",
                modules.join(", ")
            ));
        }
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

/// The walk of CONTRIBUTING.md for a new function of floats, counted for the one that was added by it.
#[test]
fn a_function_of_floats_is_six_lines_in_six_files() {
    if !in_workspace() {
        return;
    }
    let mut lines = Vec::new();
    for name in CRATES {
        // The exact points of a function are a line more, if it has any.
        for (module, text) in sources(name).into_iter().filter(|(module, _)| module != "limits") {
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            lines.extend(
                code.filter(|line| line.to_lowercase().contains("cbrt"))
                    .map(|line| format!("{name}/src/{module}: {}", line.trim())),
            );
        }
    }
    let files: BTreeSet<&str> = lines.iter().filter_map(|line| line.split(": ").next()).collect();
    assert_eq!(
        (lines.len(), files.len()),
        (6, 6),
        "the lines that mention cbrt; update the walk in CONTRIBUTING.md too:\n{}",
        lines.join("\n")
    );
}

/// The walk of CONTRIBUTING.md for a fused operation, counted for one of one output and one of two:
/// its row, the arms that check and define it, and the arm of its gradient and tangent. The fifth
/// place is its `Tensor` method.
#[test]
fn a_fused_operation_is_a_row_and_three_arms() {
    if !in_workspace() {
        return;
    }
    for op in ["AvgPool", "MaxPool"] {
        let (row, arm) = (format!("fused {op} {{"), format!("::{op} {{"));
        let mut lines = Vec::new();
        for name in ["teeny-core", "teeny-autograd"] {
            for (module, text) in sources(name) {
                let code = text.lines().map(str::trim).filter(|line| !line.starts_with("//"));
                // An arm, or a line of a list of variants.
                let matched = |line: &str| line.contains("=>") || line.starts_with('|');
                let found =
                    code.filter(|line| *line == row || line.contains(&arm) && matched(line));
                lines.extend(found.map(|line| format!("{name}/src/{module}: {line}")));
            }
        }
        let arms: Vec<&str> = lines.iter().filter_map(|line| line.split(": ").next()).collect();
        let expected = [
            "teeny-core/src/definition",
            "teeny-core/src/op/table",
            "teeny-core/src/validate",
            "teeny-autograd/src/rules/table",
        ];
        assert_eq!(arms, expected, "update the walk in CONTRIBUTING.md too:\n{}", lines.join("\n"));
    }
}

#[test]
fn source_files_can_be_read_in_one_sitting() {
    if !in_workspace() {
        return;
    }
    let mut found = Vec::new();
    let listed = |path: &str| LONG_FILES.iter().any(|(long, _)| *long == path);
    for name in CRATES {
        for (path, text) in files(name) {
            let lines = text.lines().count();
            match (lines > MAX_LINES, listed(&path)) {
                (true, false) => found.push(format!(
                    "{path} has {lines} lines, more than {MAX_LINES}: split it by subject. If it \
                     has one subject, such as a table, add it to LONG_FILES in this file with the \
                     reason."
                )),
                (false, true) => found.push(format!(
                    "{path} has {lines} lines: remove it from LONG_FILES in this file."
                )),
                (true, true) | (false, false) => {}
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (path, _) in LONG_FILES.iter().filter(|(path, _)| !root.join(path).exists()) {
        found.push(format!("{path} does not exist: remove it from LONG_FILES in this file."));
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn circles_are_found_through_groups_reexports_and_super() {
    let graph = |files: &[(&str, &str)]| {
        references(&files.iter().map(|(path, text)| (path.to_string(), text.to_string())).collect())
    };
    let one = graph(&[
        ("", "mod a; mod b; mod c; mod d; pub use d::Device;"),
        ("a", "use crate::{Device, b::{self, x::Y}};"),
        ("b", "fn f() { super::c::g::<u8>() }"),
        ("c", "use crate::a::A;"),
        ("d", ""),
    ]);
    assert_eq!(circles(&one), [["a", "b", "c"]]);
    assert_eq!(one["a"], BTreeSet::from(["b".to_string(), "d".to_string()]));
    assert_eq!(edges(&one, &circles(&one)[0]), "  a -> b\n  b -> c\n  c -> a\n");
    // Comments, strings, tests, inline modules, and files below a folder's.
    let none = graph(&[
        ("", "mod a; mod b; #[cfg(test)] mod b_tests;"),
        ("a", "// crate::b\n/* /* super::b */ crate::b */ const A: &str = \"crate::b \\\" {\";"),
        ("b", "use crate::a; mod inner { use super::a::X; fn a() { super::super::c(); } }"),
        ("b_tests", "use crate::a::A;"),
        ("a/x", "use super::A; #[cfg(test)] mod tests { const B: char = '}'; use crate::b; }"),
        ("a/y", "const R: &str = r#\"\" crate::b\"#; fn f<'a>(x: &'a crate::a::x::X) {}"),
    ]);
    assert_eq!(circles(&none), [[""; 0]; 0]);
    assert_eq!(circles(&top_level(&none)), [[""; 0]; 0]);
    assert!(!none.contains_key("b_tests") && none["a/y"].contains("a/x"), "{none:?}");
    // Files of two folders that import each other are a circle of their folders too.
    let both = graph(&[
        ("", "mod a; mod b;"),
        ("a", "mod x;"),
        ("a/x", "use crate::b::y::Y;"),
        ("b", "mod y; mod z;"),
        ("b/y", ""),
        ("b/z", "use crate::a::x;"),
    ]);
    assert_eq!(circles(&both), [[""; 0]; 0]);
    assert_eq!(circles(&top_level(&both)), [["a", "b"]]);
}

/// The manifests list the test programs, and `tests/all.rs` the modules of most of them.
#[test]
fn every_file_of_tests_is_run() {
    if !in_workspace() {
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |path: String| fs::read_to_string(root.join(path)).unwrap_or_default();
    let mut lost = Vec::new();
    for name in CRATES.into_iter().chain(["examples"]) {
        let programs = read(format!("{name}/Cargo.toml"));
        let modules =
            read(format!("{name}/tests/all.rs")) + &read(format!("{name}/tests/files.rs"));
        for entry in fs::read_dir(root.join(name).join("tests")).unwrap() {
            let file = entry.unwrap().file_name().into_string().unwrap();
            let Some(test) = file.strip_suffix(".rs") else { continue };
            let is_program = programs.contains(&format!("[[test]]\nname = \"{test}\"\n"));
            if !is_program && !modules.lines().any(|line| line == format!("mod {test};")) {
                lost.push(format!("{name}/tests/{file}"));
            }
        }
    }
    assert!(lost.is_empty(), "neither a module of tests/all.rs nor a program: {lost:?}");
}

/// Whether there is a workspace around this crate. A packaged crate has none, and no other crates to
/// read.
fn in_workspace() -> bool {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
    fs::read_to_string(manifest).is_ok_and(|manifest| manifest.contains("[workspace]"))
}

/// The Rust files below `src` of a crate, by their paths in the workspace.
fn files(name: &str) -> BTreeMap<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (mut found, mut folders) = (BTreeMap::new(), vec![format!("{name}/src")]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder)).expect("the folder of a crate") {
            let entry = entry.unwrap();
            let path = format!("{folder}/{}", entry.file_name().to_str().unwrap());
            if entry.file_type().unwrap().is_dir() {
                folders.push(path);
            } else if path.ends_with(".rs") {
                let text = fs::read_to_string(entry.path()).unwrap();
                found.insert(path, text);
            }
        }
    }
    assert!(found.len() > 1, "{name} has no sources");
    found
}

/// [`files`] by their modules.
fn sources(name: &str) -> Sources {
    let module = |path: &str| {
        let path = path.strip_prefix(&format!("{name}/src/")).unwrap().strip_suffix(".rs").unwrap();
        if path == "lib" { "" } else { path.strip_suffix("/mod").unwrap_or(path) }.to_string()
    };
    files(name).into_iter().map(|(path, text)| (module(&path), text)).collect()
}

/// The graph of files.
fn references(sources: &Sources) -> Graph {
    let code: BTreeMap<&str, Vec<String>> =
        sources.iter().map(|(module, text)| (module.as_str(), tokens(text))).collect();
    let mut tests = BTreeSet::new();
    let code: BTreeMap<&str, Vec<String>> = code
        .into_iter()
        .map(|(module, tokens)| (module, without_tests(tokens, module, &mut tests)))
        .collect();
    let is_test = |module: &str| {
        tests.iter().any(|test| module == test || module.starts_with(&format!("{test}/")))
    };
    let modules: BTreeSet<&str> = code.keys().copied().filter(|module| !is_test(module)).collect();
    let exports = exports(&code[""]);
    let mut graph = Graph::new();
    for &module in modules.iter().filter(|module| !module.is_empty()) {
        let mut imported = BTreeSet::new();
        for path in paths(module, &code[module]) {
            let path = match path.first().and_then(|name| exports.get(name)) {
                Some(target) if !modules.contains(path[0].as_str()) => target,
                _ => &path,
            };
            let longest = (1..=path.len()).rev().map(|n| path[..n].join("/"));
            let target = longest.into_iter().find(|path| modules.contains(path.as_str()));
            let inside = |a: &str, b: &str| a == b || a.starts_with(&format!("{b}/"));
            imported.extend(target.filter(|t| !inside(t, module) && !inside(module, t)));
        }
        graph.insert(module.to_string(), imported);
    }
    graph
}

/// The graph of top-level modules of a graph of files.
fn top_level(files: &Graph) -> Graph {
    let top = |module: &str| module.split('/').next().unwrap().to_string();
    let mut graph = Graph::new();
    for (module, imported) in files {
        let from = top(module);
        let targets = imported.iter().map(|target| top(target)).filter(|target| *target != from);
        graph.entry(from.clone()).or_default().extend(targets);
    }
    graph
}

/// The strongly connected components of more than one module.
fn circles(graph: &Graph) -> Vec<Vec<String>> {
    let reached = |from: &str| {
        let (mut seen, mut left) = (BTreeSet::new(), vec![from]);
        while let Some(module) = left.pop() {
            for next in graph.get(module).into_iter().flatten() {
                if seen.insert(next.as_str()) {
                    left.push(next);
                }
            }
        }
        seen
    };
    let reach: BTreeMap<&str, BTreeSet<&str>> =
        graph.keys().map(|module| (module.as_str(), reached(module))).collect();
    let mut found = BTreeSet::new();
    for (&a, seen) in reach.iter().filter(|(a, seen)| seen.contains(*a)) {
        let circle = seen.iter().filter(|b| reach[*b].contains(a)).map(|b| b.to_string());
        found.insert(circle.collect::<Vec<_>>());
    }
    found.into_iter().collect()
}

/// The edges inside a circle, one a line.
fn edges(graph: &Graph, circle: &[String]) -> String {
    let inside = |from: &String| graph[from].iter().filter(|to| circle.contains(to));
    circle
        .iter()
        .flat_map(|from| inside(from).map(move |to| format!("  {from} -> {to}\n")))
        .collect()
}

/// The tokens of a source file: identifiers, `::`, and single characters. Comments are left out,
/// strings and character literals are `"`.
fn tokens(text: &str) -> Vec<String> {
    let (chars, mut found, mut i) = (text.chars().collect::<Vec<_>>(), Vec::new(), 0);
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    while i < chars.len() {
        let hashes = (i + 1..).take_while(|&j| at(j) == '#').count();
        match at(i) {
            '/' if at(i + 1) == '/' => {
                i += (i..).take_while(|&j| !['\n', '\0'].contains(&at(j))).count()
            }
            '/' if at(i + 1) == '*' => {
                let mut depth = 0;
                loop {
                    match (at(i), at(i + 1)) {
                        ('/', '*') => (depth, i) = (depth + 1, i + 2),
                        ('*', '/') => (depth, i) = (depth - 1, i + 2),
                        ('\0', _) => break,
                        _ => i += 1,
                    }
                    if depth == 0 {
                        break;
                    }
                }
            }
            'r' if at(i + 1 + hashes) == '"' => {
                i += hashes + 2;
                let closes = |i: usize| {
                    at(i) == '"' && (i + 1..).take(hashes).all(|j| at(j) == '#') || at(i) == '\0'
                };
                i = (i..).find(|&j| closes(j)).unwrap() + 1 + hashes;
                found.push("\"".to_string());
            }
            '"' => {
                i += 1;
                while !['"', '\0'].contains(&at(i)) {
                    i += if at(i) == '\\' { 2 } else { 1 };
                }
                i += 1;
                found.push("\"".to_string());
            }
            // A lifetime has no quote after its first character.
            '\'' if at(i + 1) == '\\' || at(i + 2) == '\'' => {
                i += if at(i + 1) == '\\' { 3 } else { 2 };
                i = (i..).find(|&j| ['\'', '\0'].contains(&at(j))).unwrap() + 1;
                found.push("\"".to_string());
            }
            ':' if at(i + 1) == ':' => {
                i += 2;
                found.push("::".to_string());
            }
            c if is_word(c) => {
                let end = (i..).find(|&j| !is_word(at(j))).unwrap();
                found.push(chars[i..end].iter().collect());
                i = end;
            }
            c => {
                i += 1;
                if !c.is_whitespace() {
                    found.push(c.to_string());
                }
            }
        }
    }
    found
}

/// The tokens without items under `#[cfg(test)]`; `tests` gets the files among those items.
fn without_tests(tokens: Vec<String>, module: &str, tests: &mut BTreeSet<String>) -> Vec<String> {
    const MARK: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let (mut kept, mut i) = (Vec::new(), 0);
    while i < tokens.len() {
        if !tokens[i..].iter().map(String::as_str).take(MARK.len()).eq(MARK) {
            kept.push(tokens[i].clone());
            i += 1;
            continue;
        }
        i += MARK.len();
        let (start, mut depth) = (i, 0);
        while i < tokens.len() {
            match tokens[i].as_str() {
                "{" => depth += 1,
                "}" => depth -= 1,
                _ => {}
            }
            i += 1;
            if depth == 0 && ["}", ";"].contains(&tokens[i - 1].as_str()) {
                break;
            }
        }
        if let ["mod", name, ";"] =
            tokens[start..i].iter().map(String::as_str).collect::<Vec<_>>()[..]
        {
            let path =
                if module.is_empty() { name.to_string() } else { format!("{module}/{name}") };
            tests.insert(path);
        }
    }
    kept
}

/// The paths from the root of the crate that the code of `module` names by `crate::` or `super::`.
fn paths(module: &str, tokens: &[String]) -> Vec<Vec<String>> {
    let (mut found, mut depth, mut i) = (Vec::new(), 0usize, 0);
    // Inline modules, and the depth of braces around each.
    let mut inline: Vec<(String, usize)> = Vec::new();
    while i < tokens.len() {
        let next = |n: usize| tokens.get(i + n).map_or("", String::as_str);
        match tokens[i].as_str() {
            "mod" if next(2) == "{" => {
                inline.push((next(1).to_string(), depth));
                i += 1;
            }
            "{" => depth += 1,
            "}" => {
                depth = depth.saturating_sub(1);
                inline.pop_if(|(_, outside)| *outside == depth);
            }
            "crate" if next(1) == "::" => i = tree(tokens, i + 2, &[], &mut found) - 1,
            "super" if next(1) == "::" => {
                let here = module.split('/').map(str::to_string);
                let mut base: Vec<String> =
                    here.chain(inline.iter().map(|(name, _)| name.clone())).collect();
                while tokens.get(i).is_some_and(|token| token == "super") {
                    base.pop();
                    i += 2;
                }
                i = tree(tokens, i, &base, &mut found) - 1;
            }
            _ => {}
        }
        i += 1;
    }
    found
}

/// Reads the path or the group of paths that begins at token `i` and continues `base`; returns where
/// it ends.
fn tree(tokens: &[String], mut i: usize, base: &[String], found: &mut Vec<Vec<String>>) -> usize {
    let is = |i: usize, text: &str| tokens.get(i).is_some_and(|token| token == text);
    let mut path = base.to_vec();
    loop {
        if is(i, "{") {
            i += 1;
            while i < tokens.len() && !is(i, "}") {
                i = tree(tokens, i, &path, found);
                // An alias, and the comma.
                i += if is(i, "as") { 2 } else { 0 };
                i += if is(i, "}") { 0 } else { 1 };
            }
            return i + 1;
        }
        match tokens.get(i) {
            Some(name) if name.starts_with(|c: char| c.is_alphabetic() || c == '_') => {
                if name != "self" {
                    path.push(name.clone());
                }
                i += 1;
            }
            Some(token) if token == "*" => i += 1,
            _ => break,
        }
        if !is(i, "::") {
            break;
        }
        i += 1;
    }
    found.push(path);
    i
}

/// The names that `lib.rs` re-exports, with their paths.
fn exports(tokens: &[String]) -> BTreeMap<String, Vec<String>> {
    let mut found = Vec::new();
    for i in (0..tokens.len()).filter(|&i| tokens[i] == "use") {
        tree(tokens, i + 1, &[], &mut found);
    }
    let last = |path: &Vec<String>| path.last().cloned();
    found.into_iter().filter_map(|path| Some((last(&path)?, path))).collect()
}
