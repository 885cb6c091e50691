//! Reads parts of files, and recognises files of another kind than a reader expects.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use teeny_core::{Error, Result};

/// Bytes to read: at least as many as the longest signature below.
const FIRST: usize = 48;

/// Signature (the first bytes of a file), the kind of file, and a help line.
const KINDS: [(&[u8], &str, &str); 9] = [
    (
        b"version https://git-lfs.github.com/spec/",
        "a Git LFS pointer, a few lines instead of the file",
        "fetch the file: git lfs pull, or download it from where the repository keeps it",
    ),
    (b"PK\x03\x04", "a zip archive", "npz::read reads .npz archives, pt::read PyTorch's .pt files"),
    (b"\x93NUMPY", "a NumPy array", "Tensor::load_npy reads one array"),
    (
        b"\x89HDF\r\n",
        "an HDF5 file",
        "convert it to safetensors, or save its arrays with numpy.savez",
    ),
    (b"GGUF", "a GGUF file", "Gguf::open and open_weights read GGUF files"),
    (b"\x1f\x8b", "a gzip file", "unpack it first: gunzip"),
    (
        b"\x80\x02",
        "a pickle, as PyTorch before 1.6 wrote it",
        "load and save it with a newer PyTorch, or save model.state_dict() as safetensors",
    ),
    (
        b"<",
        "a web page or XML",
        "the download returned a page instead of the file: is the address right?",
    ),
    (
        b"{",
        "a JSON text",
        "open_weights reads the files that an index (model.safetensors.index.json) names",
    ),
];

/// The error for a file of another kind than `wanted`, by its first bytes; `None` if they match no
/// signature or match `wanted`.
pub(super) fn other_kind(first: &[u8], wanted: &str) -> Option<Error> {
    let (_, what, help) = KINDS.iter().find(|(signature, ..)| first.starts_with(signature))?;
    if *what == wanted {
        return None;
    }
    Some(Error::format(format!("this is {what}, not {wanted}")).help(*help))
}

/// Returns an error if `path` is a folder. The error lists its files with an extension in `ends`.
pub(super) fn require_file(path: &Path, ends: &[&str]) -> Result<()> {
    if !path.is_dir() {
        return Ok(());
    }
    let names = path.read_dir().into_iter().flatten().flatten();
    let mut names: Vec<String> = names.filter_map(|e| e.file_name().into_string().ok()).collect();
    names.retain(|name| ends.iter().any(|end| name.ends_with(end)));
    names.sort();
    let help = match names.first() {
        Some(first) => format!(
            "use the path of a file in it, such as {:?}",
            path.join(first).display().to_string()
        ),
        None => "use the path of a file".to_string(),
    };
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    Err(Error::io(format!(
        "this is a folder, not a file; its {} files: {}",
        ends.join(" and "),
        crate::names::listed(&names)
    ))
    .help(help))
}

/// The bytes of the file at `path`, which is not a folder; [`require_file`] has `ends`.
pub(super) fn read(path: &Path, ends: &[&str]) -> Result<Vec<u8>> {
    require_file(path, ends)?;
    teeny_core::file::read(path)
}

/// [`other_kind`] of an open file, from its current position.
pub(super) fn other_kind_of_file(mut file: &File, wanted: &str) -> Option<Error> {
    let mut first = Vec::new();
    (&mut file).take(FIRST as u64).read_to_end(&mut first).ok()?;
    other_kind(&first, wanted)
}

/// Where the bytes of tensors are.
#[derive(Debug)]
pub(super) enum Source {
    File(File),
    Bytes(Vec<u8>),
}

impl Source {
    /// Fills `to` with bytes of tensor `name` from byte `at` on; the range is inside the source.
    pub fn fill(&self, name: &str, at: u64, to: &mut [u8]) -> Result<()> {
        match self {
            Source::Bytes(bytes) => to.copy_from_slice(&bytes[at as usize..][..to.len()]),
            Source::File(file) => read_at(file, to, at)
                .map_err(|e| Error::io(format!("tensor {name:?}: {e}")).with_source(e))?,
        }
        Ok(())
    }
}

/// Fills `bytes` from byte `at` of `file`. Threads that share the file do not disturb each other.
#[cfg(unix)]
fn read_at(file: &File, bytes: &mut [u8], at: u64) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, at)
}

/// Fills `bytes` from byte `at` of `file`. The lock keeps threads that share the file from moving
/// its position between the two calls.
#[cfg(not(unix))]
fn read_at(mut file: &File, bytes: &mut [u8], at: u64) -> std::io::Result<()> {
    static POSITION: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _position = POSITION.lock().unwrap_or_else(|e| e.into_inner());
    std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(at))?;
    file.read_exact(bytes)
}
