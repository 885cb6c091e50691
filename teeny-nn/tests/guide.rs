//! The guide: its pages are listed, its chapters are complete, and the names that its tables give
//! to users of other libraries exist. Its programs are documentation tests.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf()
}

fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The pages by file name, in order.
fn pages() -> Vec<(String, String)> {
    let files = fs::read_dir(root().join("guide")).expect("the folder of the guide");
    let names: BTreeSet<String> = files
        .map(|file| file.expect("a file").file_name().into_string().expect("a name of ASCII"))
        .filter(|name| name.ends_with(".md") && name != "README.md")
        .collect();
    names.into_iter().map(|name| (name.clone(), read(root().join("guide").join(&name)))).collect()
}

#[test]
fn every_page_is_listed_and_has_lines_of_at_most_100_columns() {
    let module = read(root().join("src/guide.rs"));
    let contents = read(root().join("guide/README.md"));
    let pages = pages();
    assert!(pages.len() >= 29, "{} pages", pages.len());
    for (name, text) in &pages {
        assert!(module.contains(&format!("\"../guide/{name}\"")), "{name} is not in src/guide.rs");
        assert!(contents.contains(&format!("({name})")), "{name} is not in guide/README.md");
        for (line, text) in text.lines().enumerate() {
            assert!(text.chars().count() <= 100, "{name}:{}: more than 100 columns", line + 1);
        }
    }
}

/// Words of prose are spelled as in Britain; names in code are the field's.
#[test]
fn the_guide_has_one_spelling() {
    let other = ["color", "neighbor", "behavior", "gray", "center", "labeled", "modeled"];
    let endings = ["ized", "izes", "izing", "ization", "izations", "izers"];
    let mut prose = pages();
    prose.push(("README.md".to_string(), read(root().join("guide/README.md"))));
    prose.push(("../README.md".to_string(), read(root().join("../README.md"))));
    for (name, text) in prose {
        let mut in_code = false;
        for (line, text) in text.lines().enumerate() {
            if text.trim_start().starts_with("```") {
                in_code = !in_code;
            }
            // quoted code, addresses, and the comments of programs alone
            let shown =
                if in_code { text.split_once("//").map_or("", |(_, end)| end) } else { text };
            let shown: String = shown.split('`').step_by(2).collect();
            let links = shown.split("](").map(|part| part.split_once(')').map_or(part, |p| p.1));
            let shown = links.collect::<Vec<_>>().join(" ");
            for word in shown.split(|c: char| !c.is_alphabetic()) {
                let small = word.to_lowercase();
                let known =
                    ["optimizers", "tokenizers", "sized", "resized", "sizes"].contains(&&small[..]);
                let is_other = other.iter().any(|part| small.contains(part))
                    || endings.iter().any(|end| small.ends_with(end));
                assert!(known || !is_other, "{name}:{}: {word}", line + 1);
            }
        }
    }
}

#[test]
fn every_chapter_has_an_idea_a_picture_a_program_exercises_and_names() {
    for (name, text) in pages().iter().take(14) {
        for part in ["**The idea: ", "```text", "## The program", "assert", "## Exercises"] {
            assert!(text.contains(part), "{name} has no {part:?}");
        }
        let (_, answers) = text.split_once("## Answers").expect("answers");
        assert!(answers.matches("```rust").count() == 2, "{name}: two answers");
        assert!(answers.contains("## Names elsewhere"), "{name} has no table of names");
    }
}

/// The text of a file, or of all Rust files in a folder, without comments.
fn code(path: &Path, into: &mut String) {
    if path.is_dir() {
        let mut files: Vec<PathBuf> = fs::read_dir(path)
            .expect("a folder")
            .map(|file| file.expect("a file").path())
            .collect();
        files.sort();
        return files.iter().for_each(|file| code(file, into));
    }
    if path.extension().is_some_and(|end| end == "rs") {
        for line in read(path).lines().filter(|line| !line.trim_start().starts_with("//")) {
            into.push_str(line);
            into.push('\n');
        }
    }
}

fn code_of(path: &str) -> String {
    let mut text = String::new();
    let path = root().join(path);
    let file = path.with_extension("rs");
    code(if path.is_dir() { &path } else { &file }, &mut text);
    text
}

/// Whether `text` has `name` as a whole word.
fn has_word(text: &str, name: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name)
}

/// The methods of tensors: functions, and rows of the tables from which functions are made.
struct Names {
    tensor: String,
    rows: BTreeSet<String>,
}

impl Names {
    fn read() -> Names {
        let tensor = code_of("../teeny-core/src/tensor");
        let row = |line: &str| {
            let name = line.trim().strip_suffix(';')?.split(' ').next_back()?;
            let is_name = |c: char| c.is_lowercase() || c.is_numeric() || c == '_';
            name.chars().all(is_name).then(|| name.to_string())
        };
        let tables = code_of("../teeny-core/src/kernel/ops")
            + &code_of("../teeny-core/src/tensor/elementwise");
        Names { tensor, rows: tables.lines().filter_map(row).collect() }
    }

    /// Whether the library has `path`, as the tables write it.
    fn has(&self, path: &str) -> bool {
        let parts: Vec<&str> = path.split("::").collect();
        let is_type = |part: &str| part.starts_with(char::is_uppercase);
        match parts[..] {
            ["Tensor", method] => {
                let is_function =
                    ["(", "<"].iter().any(|end| self.tensor.contains(&format!("fn {method}{end}")));
                is_function || self.rows.contains(method)
            }
            ["Grad" | "Gradients", method] => {
                code_of("../teeny-autograd/src").contains(&format!("fn {method}("))
            }
            [owner, part] if is_type(owner) => {
                let folders = [
                    "src",
                    "data/src",
                    "formats/src",
                    "models/src",
                    "text/src",
                    "../teeny-core/viz/src",
                ];
                let text = folders.map(code_of).concat();
                let is_method =
                    ["(", "<"].iter().any(|end| text.contains(&format!("fn {part}{end}")));
                has_word(&text, owner) && (is_method || is_type(part) && has_word(&text, part))
            }
            ["teeny_autograd", item] => {
                has_word(&read(root().join("../teeny-autograd/src/lib.rs")), item)
            }
            ["random", item] => has_word(&code_of("../teeny-core/src/random"), item),
            ["wrappers", item] => has_word(&code_of("../teeny-core/src/wrappers/mod"), item),
            ["teeny_core", item] => has_word(&read(root().join("../teeny-core/src/lib.rs")), item),
            ["data", item] => has_word(&code_of("data/src"), item),
            // a package in this folder
            [package, item] if package.starts_with("teeny_") => {
                let folder = package.trim_start_matches("teeny_");
                has_word(&read(root().join(folder).join("src/lib.rs")), item)
            }
            [module, item] => has_word(&code_of(&format!("src/{module}")), item),
            [item] => has_word(&(code_of("src/lib") + &code_of("src/prelude")), item),
            _ => false,
        }
    }
}

/// The names in backticks in the second column of the tables after the first heading, by row.
fn table(text: &str) -> Vec<Vec<String>> {
    let (_, tables) = text.split_once("\n## ").expect("a heading");
    tables
        .lines()
        .filter(|line| line.starts_with("| ") && line.contains('`'))
        .map(|line| {
            let line = line.replace("\\|", " ");
            let cell = line.split('|').nth(2).expect("a second column").to_string();
            cell.split('`').skip(1).step_by(2).map(str::to_string).collect()
        })
        .collect()
}

#[test]
fn the_names_for_users_of_other_libraries_exist() {
    let names = Names::read();
    for missing in ["Tensor::no_such_method", "optim::NoSuch", "NoSuch", "Store::no_such"] {
        assert!(!names.has(missing), "{missing} was found");
    }
    let pages = pages();
    for (page, least) in
        [("26-from-pytorch.md", 200), ("27-from-candle.md", 30), ("28-from-burn.md", 30)]
    {
        let (_, text) = pages.iter().find(|(name, _)| name == page).expect(page);
        let rows = table(text);
        assert!(rows.len() >= least, "{page} has {} rows", rows.len());
        let missing: Vec<&String> = rows.iter().flatten().filter(|name| !names.has(name)).collect();
        assert!(missing.is_empty(), "{page} names what does not exist: {missing:?}");
        assert!(rows.iter().all(|row| !row.is_empty()), "{page}: a row without a name");
    }
}

#[test]
fn the_prelude_has_the_options_of_its_layers_and_programs_need_no_long_paths() {
    let (prelude, all) = (code_of("src/prelude"), code_of("src"));
    let words: BTreeSet<&str> = all.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let options: Vec<&str> = words.into_iter().filter(|word| word.ends_with("Options")).collect();
    assert!(options.len() > 20, "{options:?}");
    let missing: Vec<&&str> = options
        .iter()
        .filter(|name| {
            has_word(&prelude, name.trim_end_matches("Options")) && !has_word(&prelude, name)
        })
        .collect();
    assert!(missing.is_empty(), "not in the prelude: {missing:?}");
    for (name, text) in pages() {
        assert!(!text.contains("teeny_nn::teeny_core"), "{name}: a long path");
    }
}
