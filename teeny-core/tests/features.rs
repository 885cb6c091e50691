//! `FEATURES.md` names the tests and programs that show each capability: all of them exist, and
//! every row from A01 to A80, and A92, occurs exactly once. `CONTRIBUTING.md` names files to
//! change, which exist too.

use std::path::Path;

/// The numbers of the rows: not all rows of the plan are begun.
fn rows() -> impl Iterator<Item = usize> {
    (1..=80).chain([92])
}

/// The mistakes in `features`, a text like FEATURES.md. `read` returns the content of a file of the
/// repository.
fn mistakes(features: &str, read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let (mut found, mut ids) = (Vec::new(), Vec::new());
    for line in features.lines().filter(|line| line.starts_with('|')) {
        if ["| capability | shown by | id |", "|---|---|---|"].contains(&line) {
            continue;
        }
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [capability, shown_by, id] = cells[..] else {
            found.push(format!("{line}: not three cells"));
            continue;
        };
        ids.push(id);
        if capability.is_empty() {
            found.push(format!("{id}: no capability"));
        }
        if shown_by == "not yet" {
            continue;
        }
        for proof in shown_by.split(", ") {
            match proof.strip_prefix('`').and_then(|p| p.strip_suffix('`')) {
                Some(proof) => found.extend(missing(proof, &read).map(|m| format!("{id}: {m}"))),
                None => found.push(format!("{id}: {proof:?} is not in backticks")),
            }
        }
    }
    for row in rows() {
        let id = format!("A{row:02}");
        let count = ids.iter().filter(|&&i| i == id).count();
        if count != 1 {
            found.push(format!("{id} occurs {count} times"));
        }
    }
    if ids.len() != rows().count() {
        found.push(format!("{} rows instead of {}", ids.len(), rows().count()));
    }
    found
}

/// The reason why `proof` shows nothing, if it is not a test of a file, program, example, bench or
/// script.
fn missing(proof: &str, read: impl Fn(&str) -> Option<String>) -> Option<String> {
    if let Some((file, name)) = proof.split_once("::") {
        let Some(text) = read(file) else { return Some(format!("{file} does not exist")) };
        return (!has_test(&text, name)).then(|| format!("{file} has no test {name}"));
    }
    let words: Vec<&str> = proof.split_whitespace().collect();
    let after = |options: &[&str]| {
        words.windows(2).find(|pair| options.contains(&pair[0])).map(|pair| pair[1])
    };
    let package = after(&["-p", "--package"]).unwrap_or("examples");
    let file = match words[..] {
        ["cargo", "run" | "bench", ..] => {
            let kinds = [("--bin", "src/bin"), ("--example", "examples"), ("--bench", "benches")];
            let target = kinds.iter().find_map(|(kind, at)| after(&[kind]).map(|name| (at, name)));
            let Some((at, name)) = target else { return Some(format!("{proof} names no target")) };
            // A target is a file, or a folder with a main file.
            let folder = format!("{package}/{at}/{name}/main.rs");
            match read(&folder) {
                Some(_) => folder,
                None => format!("{package}/{at}/{name}.rs"),
            }
        }
        [script] => script.to_string(),
        _ => return Some(format!("{proof:?} is not a test, program or script")),
    };
    read(&file).is_none().then(|| format!("{file} does not exist"))
}

/// True if `text` has a function `name` with the attribute `#[test]`. A macro may write both.
fn has_test(text: &str, name: &str) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let function = format!("fn {name}(");
    lines.iter().enumerate().any(|(at, line)| {
        let attributes = lines[..at].iter().rev().take_while(|l| l.starts_with("#["));
        line.starts_with(&function) && attributes.into_iter().any(|l| *l == "#[test]")
    })
}

#[test]
fn every_feature_names_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    // A packaged crate has no workspace around it, so the files of other crates are missing.
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).unwrap_or_default();
    if !manifest.contains("[workspace]") {
        return;
    }
    let read = |file: &str| std::fs::read_to_string(root.join(file)).ok();
    let features = read("FEATURES.md").expect("FEATURES.md in the root of the workspace");
    let found = mistakes(&features, read);
    assert!(found.is_empty(), "FEATURES.md:\n{}", found.join("\n"));
}

/// The paths of files and folders of the crates that `text` names in backticks.
fn paths(text: &str) -> Vec<&str> {
    let words = text.split('`').skip(1).step_by(2).flat_map(str::split_whitespace);
    words.filter(|word| word.starts_with("teeny-") && word.contains('/')).collect()
}

#[test]
fn documents_name_files_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (document, at_least) in [("CONTRIBUTING.md", 40), ("ARCHITECTURE.md", 20)] {
        // A packaged crate has no workspace around it.
        let Ok(text) = std::fs::read_to_string(root.join(document)) else { return };
        let all = paths(&text);
        assert!(all.len() > at_least, "{document}: {all:?}");
        let missing: Vec<_> = all.into_iter().filter(|path| !root.join(path).exists()).collect();
        assert!(missing.is_empty(), "{document} names files that do not exist: {missing:?}");
    }
}

#[test]
fn mistakes_in_the_table_are_found() {
    let read = |file: &str| match file {
        "a/tests/b.rs" => Some("#[test]\n#[ignore]\nfn one() {}\n\nfn two() {}".to_string()),
        "examples/src/bin/c.rs" | ".ci/run" => Some(String::new()),
        _ => None,
    };
    let table = |third: &str| {
        let rows = rows().filter(|i| *i > 3).map(|i| format!("| later | not yet | A{i:02} |\n"));
        let head = "# Features\n\n| capability | shown by | id |\n|---|---|---|\n\
            | tests | `a/tests/b.rs::one`, `.ci/run` | A01 |\n\
            | programs | `cargo run --release --bin c -- --x` | A02 |\n";
        format!("{head}{third}\n{}", rows.collect::<String>())
    };
    let none: [String; 0] = [];
    assert_eq!(mistakes(&table("| later | not yet | A03 |"), read), none);
    for (third, expected) in [
        ("| x | `a/tests/b.rs::two` | A03 |", "A03: a/tests/b.rs has no test two"),
        ("| x | `a/tests/b.rs::on` | A03 |", "A03: a/tests/b.rs has no test on"),
        ("| x | `a/tests/d.rs::one` | A03 |", "A03: a/tests/d.rs does not exist"),
        ("| x | `cargo run --bin d` | A03 |", "A03: examples/src/bin/d.rs does not exist"),
        ("| x | `cargo run` | A03 |", "A03: cargo run names no target"),
        ("| x | .ci/run | A03 |", "A03: \".ci/run\" is not in backticks"),
        ("| x | | A03 |", "A03: \"\" is not in backticks"),
        ("| | not yet | A03 |", "A03: no capability"),
        ("| x | not yet |", "| x | not yet |: not three cells"),
        ("| x | not yet | A04 |", "A04 occurs 2 times"),
        ("| x | not yet | A81 |", "A03 occurs 0 times"),
        ("", "A03 occurs 0 times"),
    ] {
        let found = mistakes(&table(third), read);
        assert!(found.iter().any(|m| m == expected), "{third}: {found:?}");
    }
}
