//! Running the example programs as a user does.
#![allow(dead_code)] // each test file uses a part

use std::path::PathBuf;
use std::process::{Command, Output};

/// A folder that is removed after the test.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        let path =
            std::env::temp_dir().join(format!("teeny-examples-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub fn at(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The program, without the variables that choose data and device.
pub fn command(program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).env_remove("TEENY_DATA").env_remove("TEENY_DEVICE");
    if std::env::var_os("XDG_RUNTIME_DIR").is_none() {
        // without it the window system's part of a software GPU complains on stderr
        command.env("XDG_RUNTIME_DIR", std::env::temp_dir());
    }
    command
}

/// The output of a program that must succeed and print nothing on stderr.
#[track_caller]
pub fn succeed(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(
        output.stderr.is_empty(),
        "a program that is not on a terminal is quiet: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// The error output of a program that must fail.
#[track_caller]
pub fn refuse(output: Output) -> String {
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

/// The number after `before` in `text`, at its last occurrence.
#[track_caller]
pub fn number_after(text: &str, before: &str) -> f64 {
    let rest = text.rsplit_once(before).unwrap_or_else(|| panic!("no {before:?} in {text}")).1;
    let end = rest.find(|c: char| !(c.is_ascii_digit() || ".-e".contains(c))).unwrap_or(rest.len());
    rest[..end].parse().unwrap_or_else(|_| panic!("no number after {before:?} in {text}"))
}

/// A file or folder of the golden models and tokenizers.
pub fn golden(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../teeny-nn/models/tests/golden").join(path)
}

/// A golden encoder of 30 tokens in the folder `name`, with a tokenizer of these words behind the
/// special tokens.
pub fn encoder(name: &str, of: &str, words: [&str; 6]) -> Folder {
    let folder = Folder::new(name);
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(golden("pretrained").join(of).join(file), folder.at(file)).unwrap();
    }
    let words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"].into_iter().chain(words);
    let vocab: Vec<String> = words.zip(0..).map(|(w, i)| format!("{w:?}: {i}")).collect();
    let tokenizer = format!(
        r###"{{"model": {{"type": "WordPiece", "unk_token": "[UNK]", "vocab": {{{}}},
            "continuing_subword_prefix": "##", "max_input_chars_per_word": 100}},
            "pre_tokenizer": {{"type": "BertPreTokenizer"}},
            "post_processor": {{"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}}
        }}"###,
        vocab.join(", ")
    );
    std::fs::write(folder.at("tokenizer.json"), tokenizer).unwrap();
    folder
}
