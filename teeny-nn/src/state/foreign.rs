//! Files that are not what a reader expects: what they are instead, and what reads them.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use teeny_core::{Error, Result};

/// As many first bytes as the longest of the marks below.
const FIRST: usize = 48;

/// What a file is by its first bytes, and what to do with it.
const KINDS: [(&[u8], &str, &str); 9] = [
    (
        b"version https://git-lfs.github.com/spec/",
        "a Git LFS pointer, a few lines in the place of the file itself",
        "fetch the file: git lfs pull, or download it from where the repository keeps it",
    ),
    (
        b"PK\x03\x04",
        "a zip archive",
        "state::npz::read reads .npz archives, state::pt::read PyTorch's .pt files",
    ),
    (b"\x93NUMPY", "a NumPy array", "Tensor::load_npy reads one array"),
    (
        b"\x89HDF\r\n",
        "an HDF5 file",
        "convert it to safetensors, or save its arrays with numpy.savez",
    ),
    (b"GGUF", "a GGUF file", "convert it to safetensors"),
    (b"\x1f\x8b", "a gzip file", "unpack it first: gunzip"),
    (
        b"\x80\x02",
        "a pickle, as PyTorch before 1.6 wrote it",
        "load and save it with a newer PyTorch, or save model.state_dict() as safetensors",
    ),
    (
        b"<",
        "a web page or XML",
        "the download gave a page instead of the file: is the address right?",
    ),
    (
        b"{",
        "a JSON text",
        "an index (model.safetensors.index.json) names the files that hold the tensors: load each with Mapping::new().partial(true)",
    ),
];

/// The error for a file that should be `wanted` and is not, by its first bytes; `None` if they say
/// nothing.
pub(super) fn recognised(first: &[u8], wanted: &str) -> Option<Error> {
    // a safetensors file begins with a length, whose first byte may be any
    let (_, what, help) = KINDS.iter().find(|(mark, ..)| first.starts_with(mark))?;
    Some(Error::format(format!("this is {what}, not {wanted}")).help(*help))
}

/// An error if `path` is a folder: it names the files in it that could be meant.
pub(super) fn require_file(path: &Path) -> Result<()> {
    if !path.is_dir() {
        return Ok(());
    }
    let mut names: Vec<String> = path
        .read_dir()
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|e| e.file_name().into_string().ok())
        .collect();
    names.retain(|name| {
        [".safetensors", ".npz", ".pt", ".pth", ".bin", ".json"]
            .iter()
            .any(|end| name.ends_with(end))
    });
    names.sort();
    let help = match names.first() {
        Some(first) => format!(
            "give the path of a file in it, such as {:?}",
            path.join(first).display().to_string()
        ),
        None => "give the path of a file".to_string(),
    };
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    Err(Error::io(format!(
        "this is a folder, not a file; files of weights in it: {}",
        super::listed(&names)
    ))
    .help(help))
}

/// [`recognised`] of a file that is open, from where it stands.
pub(super) fn recognised_file(mut file: &File, wanted: &str) -> Option<Error> {
    let mut first = Vec::new();
    (&mut file).take(FIRST as u64).read_to_end(&mut first).ok()?;
    recognised(&first, wanted)
}
