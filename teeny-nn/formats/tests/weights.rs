//! Weights of a model in a file, in several, or in a folder.

use crate::common::*;
use std::fs;
use std::path::{Path, PathBuf};
use teeny_core::{DType, DeviceRef, Result, Tensor};
use teeny_formats::{TensorSource, open_weights, write};

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn bytes(source: &dyn TensorSource, device: &DeviceRef) -> Vec<(String, Vec<u8>)> {
    let mut names: Vec<String> = source.shapes().into_iter().map(|(name, _)| name).collect();
    names.sort();
    let read = |name: String| {
        let bytes = source.read(&name, device).unwrap().to_bytes().unwrap();
        (name, bytes)
    };
    names.into_iter().map(read).collect()
}

/// A safetensors file with the tensors `names`, whose elements are `first` and those that follow.
fn part(path: &Path, names: &[&str], first: f32) {
    let numbers = |i: usize| vec![first + i as f32, 0.5];
    let tensor = |i: usize| Tensor::from_vec(numbers(i), (2,), device()).unwrap();
    let tensors: Vec<(String, Tensor)> =
        names.iter().enumerate().map(|(i, name)| (name.to_string(), tensor(i))).collect();
    let mut file = Vec::new();
    write(&mut file, &tensors, &Default::default()).unwrap();
    fs::write(path, file).unwrap();
}

fn index(folder: &Folder, places: &[(&str, &str)]) -> PathBuf {
    let map: Vec<String> =
        places.iter().map(|(tensor, file)| format!("{tensor:?}: {file:?}")).collect();
    let text =
        format!("{{\"metadata\": {{\"total_size\": 1}}, \"weight_map\": {{{}}}}}", map.join(","));
    let path = folder.0.join("model.safetensors.index.json");
    fs::write(&path, text).unwrap();
    path
}

fn error(path: &Path) -> String {
    open_weights(path, device()).err().unwrap().to_string()
}

#[test]
fn a_folder_with_one_file_of_any_format_is_opened() -> Result<()> {
    let cpu = device();
    for (name, from) in [
        ("model.safetensors", "state_dict.safetensors"),
        ("pytorch_model.bin", "state_dict.pt"),
        ("any name.gguf", "types.gguf"),
    ] {
        let folder = Folder::new("one-file");
        fs::write(folder.0.join("config.json"), "{}").unwrap();
        fs::copy(golden(from), folder.0.join(name)).unwrap();
        let (whole, file) = (open_weights(&folder.0, &cpu)?, open_weights(golden(from), &cpu)?);
        let read = bytes(&*whole, &cpu);
        assert!(read.len() > 3, "{name}");
        assert_eq!(read, bytes(&*file, &cpu), "{name}");
    }
    let dtype = |path| open_weights(golden(path), &cpu)?.read("0.weight", &cpu).map(|x| x.dtype());
    assert_eq!(dtype("state_dict.pt")?, DType::F32);
    assert_eq!(
        bytes(&*open_weights(golden("state_dict.pt"), &cpu)?, &cpu),
        bytes(&*open_weights(golden("state_dict.safetensors"), &cpu)?, &cpu)
    );
    Ok(())
}

#[test]
fn a_model_in_parts_is_read_by_its_index() -> Result<()> {
    let (folder, cpu) = (Folder::new("parts"), device());
    part(&folder.0.join("a.safetensors"), &["x", "y", "stale"], 1.0);
    part(&folder.0.join("b.safetensors"), &["stale", "z"], 7.0);
    let places = [("z", "b.safetensors"), ("x", "a.safetensors"), ("y", "a.safetensors")];
    let path = index(&folder, &places);
    for path in [&folder.0, &path] {
        let weights = open_weights(path, &cpu)?;
        let first = |name: &str| values(&weights.read(name, &cpu).unwrap())[0];
        assert_eq!([first("x"), first("y"), first("z")], [1.0, 2.0, 8.0]);
        assert_eq!(weights.shapes().len(), 3, "what the index does not name is not there");
        assert!(weights.read("stale", &cpu).unwrap_err().to_string().contains("no tensor"));
    }
    Ok(())
}

/// A safetensors file begins with the length of its header, which may look like another kind.
#[test]
fn files_whose_first_bytes_are_those_of_other_kinds_are_opened() -> Result<()> {
    let (folder, cpu) = (Folder::new("first-bytes"), device());
    let path = folder.0.join("a.safetensors");
    for length in [0x0280usize, 0x7b, 0x017b, 0x4b50, 0x028b, 0x3c] {
        let body = r#"{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}"#;
        let mut bytes = (length as u64).to_le_bytes().to_vec();
        bytes.extend(format!("{body}{}}}", " ".repeat(length - body.len() - 1)).bytes());
        bytes.extend(2.5f32.to_le_bytes());
        fs::write(&path, bytes).unwrap();
        assert_eq!(values(&open_weights(&path, &cpu)?.read("x", &cpu)?), [2.5], "{length:x}");
    }
    Ok(())
}

#[test]
fn folders_and_indices_that_are_wrong_say_what_is() {
    let folder = Folder::new("wrong-weights");
    fs::write(folder.0.join("config.json"), "{}").unwrap();
    let says = |text: String, parts: &[&str]| {
        parts.iter().for_each(|part| assert!(text.contains(part), "{part}: {text}"));
    };
    says(error(&folder.0), &["no weights in the folder; it has", "config.json", "one .gguf file"]);
    says(error(&folder.0.join("config.json")), &["a JSON text", "open_weights"]);
    says(error(&folder.0.join("nothing")), &["does not exist", "ORG/NAME"]);
    says(error(Path::new("nobody-has/this-model")), &["does not exist"]);
    let lfs = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n";
    fs::write(folder.0.join("lfs.safetensors"), lfs).unwrap();
    says(error(&folder.0.join("lfs.safetensors")), &["a Git LFS pointer", "git lfs pull"]);
    part(&folder.0.join("a.safetensors"), &["x"], 1.0);
    for outside in ["../a.safetensors", "/a.safetensors", "", ".", "..", "b/a.safetensors", "a/"] {
        says(error(&index(&folder, &[("x", outside)])), &["is not the name of a file"]);
    }
    says(error(&index(&folder, &[("x", "b.safetensors")])), &["b.safetensors", "cannot read"]);
    let absent = index(&folder, &[("x", "a.safetensors"), ("y", "a.safetensors")]);
    says(error(&absent), &["\"y\" is in \"a.safetensors\", which does not have it"]);
    says(error(&index(&folder, &[("x", "lfs.safetensors")])), &["a Git LFS pointer"]);
    // an index of itself, an array for a file, a broken text
    let own = index(&folder, &[("x", "model.safetensors.index.json")]);
    says(error(&own), &["this is a JSON text"]);
    let text = r#"{"weight_map": {"x": "model.safetensors"}}"#;
    fs::write(folder.0.join("model.safetensors"), text).unwrap();
    says(error(&folder.0), &["this is a JSON text"]);
    fs::remove_file(folder.0.join("model.safetensors")).unwrap();
    fs::create_dir(folder.0.join("inside")).unwrap();
    says(error(&index(&folder, &[("x", "inside")])), &["this is a folder"]);
    for text in ["{\"weight_map\": {\"x\": [1]}}", "{\"weight_map\": 3}", "{\"weight_map\"", "{"] {
        fs::write(&own, text).unwrap();
        assert!(error(&own).contains("load"), "{text}");
    }
    fs::remove_file(&own).unwrap();
    for name in ["a.gguf", "b.gguf"] {
        fs::copy(golden("types.gguf"), folder.0.join(name)).unwrap();
    }
    says(error(&folder.0), &["use the path of one of the .gguf files"]);
}
