//! Files of another kind than their reader expects, and weights whose names have a prefix.

use crate::common::{Folder, device};
use std::fs;
use std::path::Path;
use teeny_core::{Error, Result, Tensor};
use teeny_formats::{Mapping, SafeTensors, State, TensorSource, npz, pt};
use teeny_nn::state::Checkpoint;
use teeny_nn::{Linear, Store};

type Reader = fn(&Path) -> Result<()>;

const READERS: [(&str, Reader); 5] = [
    ("store.load", |path| Store::new(device()).load(path)),
    ("archive", |path| SafeTensors::open(path).map(drop)),
    ("checkpoint", |path| Checkpoint::load(path, device()).map(drop)),
    ("npz", |path| npz::read(path, device()).map(drop)),
    ("pt", |path| pt::read(path, device()).map(drop)),
];

#[track_caller]
fn says(error: Error, path: &Path, parts: &[&str]) {
    let text = error.to_string();
    let start = format!("load {path:?} at {}:", file!());
    assert!(text.starts_with(&start) && error.has_help(), "{text}");
    parts.iter().for_each(|part| assert!(text.contains(part), "no {part:?} in: {text}"));
}

#[test]
fn every_reader_says_what_a_file_is_instead() {
    let folder = Folder::new("foreign");
    let kinds: [(&str, &[u8], &str, &str); 7] = [
        (
            "pointer",
            b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n",
            "a Git LFS pointer",
            "git lfs pull",
        ),
        ("index", b"{\"metadata\": {\"total_size\": 12}, \"weight_map\": {\"a\": \"model-00001-of-00002.safetensors\"}}", "a JSON text", "index"),
        ("page", b"<!DOCTYPE html><html><body>404: not found</body></html>", "a web page", "address"),
        ("array", b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", "a NumPy array", "load_npy"),
        ("hdf", b"\x89HDF\r\n\x1a\n0123456789", "an HDF5 file", "safetensors"),
        ("gguf", b"GGUF\x03\x00\x00\x00\x01\x00\x00\x00", "a GGUF file", "Gguf::open"),
        ("gz", b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03abc", "a gzip file", "gunzip"),
    ];
    for (name, content, what, help) in kinds {
        let path = folder.0.join(name);
        fs::write(&path, content).unwrap();
        for (_, read) in READERS {
            says(read(&path).unwrap_err(), &path, &[what, help]);
        }
    }
}

#[test]
fn an_archive_opened_by_the_wrong_reader() {
    let folder = Folder::new("wrong-reader");
    let (arrays, weights) = (folder.0.join("arrays.npz"), folder.0.join("weights.safetensors"));
    let store = Store::new(device());
    Linear::new(&store.at("fc"), 3, 2).unwrap();
    store.save(&weights).unwrap();
    npz::write(
        &arrays,
        &[("x".into(), Tensor::new([1.0f32], device()).unwrap())],
        npz::Compression::Stored,
    )
    .unwrap();
    for (name, read) in READERS {
        match name {
            "npz" => says(
                read(&weights).unwrap_err(),
                &weights,
                &["a safetensors file, not an .npz archive", "store.load"],
            ),
            "pt" => {
                says(
                    read(&weights).unwrap_err(),
                    &weights,
                    &["a safetensors file, not a .pt file", "store.load"],
                );
                says(read(&arrays).unwrap_err(), &arrays, &["an .npz archive", "npz::read"]);
            }
            _ => {
                let error = read(&arrays).unwrap_err();
                assert!(!error.to_string().contains("announce a header"), "{error}");
                says(
                    error,
                    &arrays,
                    &["a zip archive, not a safetensors file", "npz::read", "pt::read"],
                );
            }
        }
    }
    let text = fs::read(&weights).unwrap();
    fs::write(&weights, &text[..text.len() - 1]).unwrap();
    says(SafeTensors::open(&weights).unwrap_err(), &weights, &["truncated"]);
}

#[test]
fn a_folder() {
    let folder = Folder::new("folder");
    for (_, read) in READERS {
        says(read(&folder.0).unwrap_err(), &folder.0, &["a folder", "none"]);
    }
    // the files of another reader, and settings, are not suggested
    for name in ["config.json", "arrays.npz", "model.safetensors", "tokenizer.json", "weights.pt"] {
        fs::write(folder.0.join(name), b"").unwrap();
    }
    for (reader, read) in READERS {
        let file = match reader {
            "npz" => "arrays.npz",
            "pt" => "weights.pt",
            _ => "model.safetensors",
        };
        let such = format!("such as {:?}", folder.0.join(file));
        says(read(&folder.0).unwrap_err(), &folder.0, &[&format!("files: {file}\n"), &such]);
    }
}

#[test]
fn a_missing_folder() {
    let folder = Folder::new("missing-folder");
    let below = folder.0.join("runs");
    let path = below.join("model.safetensors");
    let missing = format!("the folder {below:?} does not exist");
    let saved = Store::new(device()).save(&path).unwrap_err().to_string();
    assert!(saved.contains(&missing) && !saved.contains(".part"), "{saved}");
    for (_, read) in READERS {
        let text = read(&path).unwrap_err().to_string();
        assert!(text.contains(&missing), "{text}");
    }
}

#[test]
fn names_that_all_have_one_prefix() {
    let build = |prefix: &str, layers: usize| {
        let store = Store::new(device());
        (0..layers)
            .for_each(|i| drop(Linear::new(&store.at(format!("{prefix}h.{i}.fc")), 2, 2).unwrap()));
        store
    };
    let state = |store: &Store| teeny_nn::state::Stateful::state(store).unwrap();
    let text = |store: &Store, source: &State| {
        store.load_from(source as &dyn TensorSource, &Mapping::new()).unwrap_err().to_string()
    };
    let (plain, prefixed) = (build("", 28), build("transformer.", 28));
    let said = text(&plain, &state(&prefixed));
    assert!(
        said.contains("every key of the file begins with \"transformer.\"")
            && said.contains("rename(\"transformer.*\", \"*\")"),
        "{said}"
    );
    // the mapping of the help line works
    let strip = Mapping::new().rename("transformer.*", "*");
    assert_eq!(plain.load_from(&state(&prefixed), &strip).unwrap().loaded.len(), 56);
    let said = text(&prefixed, &state(&plain));
    assert!(
        said.contains("every key of the model begins with \"transformer.\"")
            && said.contains("rename(\"*\", \"transformer.*\")"),
        "{said}"
    );
    let add = Mapping::new().rename("*", "transformer.*");
    assert_eq!(prefixed.load_from(&state(&plain), &add).unwrap().loaded.len(), 56);
    // a prefix with two parts, and a common prefix that is not the cause
    let said = text(&build("", 2), &state(&build("module.model.", 2)));
    assert!(said.contains("rename(\"module.model.*\""), "{said}");
    let said = text(&build("", 2), &state(&build("other.layers.", 3)));
    assert!(said.contains("rename(\"other.layers.*\""), "4 of 6 names fit: {said}");
    let said = text(&build("a.", 2), &state(&build("b.", 2)));
    assert!(!said.contains("prefix"), "{said}");
}
