//! Finds the data of an example and tells the user where they come from.
//!
//! The order is: the path in `--data` or else `TEENY_DATA`, the folder `../shared/datasets`, the
//! folder of an earlier download, a download, the small data built into teeny-nn. If a path is
//! given, nothing else is used. One folder can serve all examples: MNIST's files and texts may be
//! in it or in its subfolders `mnist/` and `text/`.

use std::path::{Path, PathBuf};
use teeny_core::{Error, Result};
use teeny_nn::data::mnist::{FILES, Mnist};
use teeny_nn::data::{corpus, digits};
use teeny_text::names;

/// The value of `--data` that selects the data built into teeny-nn.
pub const BUILTIN: &str = "builtin";

/// The folder that is searched if no path is given, relative to the working directory.
const SHARED: &str = "../shared/datasets";

/// MNIST or the built-in digits, and a note for the user: which of them, and why.
///
/// `named` is the value of `--data`.
///
/// # Errors
/// If a folder was given that does not have MNIST. Without one there are the built-in digits.
pub fn mnist(named: Option<&Path>) -> Result<(Mnist, String)> {
    let builtin =
        |why: &str| -> Result<(Mnist, String)> { Ok((digits::load()?, describe_digits(why))) };
    let dir = match place(named) {
        Place::Builtin => return builtin("--data builtin asks for them"),
        Place::Named(dir, why) => {
            return Ok((Mnist::read(&dir)?, format!("MNIST from {} ({why})", dir.display())));
        }
        Place::Any => {
            let dir = Path::new(SHARED).join("mnist");
            if complete(&dir) {
                return Ok((Mnist::read(&dir)?, format!("MNIST from {}", dir.display())));
            }
            cache_dir("mnist")
        }
    };
    let Some(dir) = dir else {
        return builtin("cannot download: HOME is not set");
    };
    if complete(&dir) {
        match Mnist::read(&dir) {
            Ok(mnist) => {
                return Ok((mnist, format!("MNIST from {} (an earlier download)", dir.display())));
            }
            Err(error) => {
                eprintln!("the earlier download is damaged and will be replaced: {error}")
            }
        }
    }
    match fetch("mnist", &dir).and_then(|mirror| Ok((Mnist::read(&dir)?, mirror))) {
        Ok((mnist, mirror)) => {
            Ok((mnist, format!("MNIST, downloaded from {mirror} to {}", dir.display())))
        }
        Err(error) => builtin(&format!("MNIST cannot be downloaded: {error}")),
    }
}

fn describe_digits(why: &str) -> String {
    format!(
        "the 1,797 built-in digits instead of MNIST's 70,000, because {why}\n  \
         help: the accuracy on them says little about MNIST; put its four files in a folder and \
         pass --data DIR"
    )
}

/// The text `names.txt` (32,033 names) or `tinyshakespeare.txt` (1.1 MB of plays) or the built-in
/// text of its kind, and a note for the user: which of them, and why. `named`, the value of
/// `--data`, may also be a text file of any name.
///
/// # Errors
/// If `file` is neither of the two, or the given path has no such text. Without a path the built-in
/// text is used.
pub fn text(named: Option<&Path>, file: &str) -> Result<(String, String)> {
    let (builtin, description) = match file {
        "names.txt" => (names::BUILTIN, "names, 748 instead of 32,033"),
        "tinyshakespeare.txt" => {
            (corpus::BUILTIN, "scenes of Shakespeare, 16 KB instead of 1.1 MB")
        }
        other => {
            return Err(Error::value(format!(
                "the examples know names.txt and tinyshakespeare.txt, not {other}"
            )));
        }
    };
    let instead = |why: &str| {
        let note = format!(
            "the built-in {description}, because {why}\n  \
             help: losses on them cannot be compared; pass --data FILE, or DIR with {file}"
        );
        Ok((builtin.to_string(), note))
    };
    let dir = match place(named) {
        Place::Builtin => return instead("--data builtin asks for them"),
        Place::Named(path, why) => {
            let path = if path.is_file() { path } else { within(&path, file)? };
            return Ok((read(&path)?, format!("{} ({why})", path.display())));
        }
        Place::Any => {
            if let Ok(path) = within(Path::new(SHARED), file) {
                return Ok((read(&path)?, path.display().to_string()));
            }
            cache_dir("text")
        }
    };
    let Some(dir) = dir else {
        return instead("cannot download: HOME is not set");
    };
    // a download is renamed to its place when it is complete, so the file is never a part of it
    let path = dir.join(file);
    if path.is_file() {
        return Ok((read(&path)?, format!("{} (an earlier download)", path.display())));
    }
    match fetch(file, &dir).and_then(|mirror| Ok((read(&path)?, mirror))) {
        Ok((text, mirror)) => {
            Ok((text, format!("{file}, downloaded from {mirror} to {}", dir.display())))
        }
        Err(error) => instead(&format!("{file} cannot be downloaded: {error}")),
    }
}

/// The place that the user chose for the data.
enum Place {
    /// The built-in data.
    Builtin,
    /// This path and no other, and the option or variable that it is from.
    Named(PathBuf, &'static str),
    /// No choice: the first place that has the data.
    Any,
}

fn place(named: Option<&Path>) -> Place {
    match named {
        Some(path) if path == Path::new(BUILTIN) => Place::Builtin,
        Some(path) => Place::Named(path.to_path_buf(), "--data"),
        None => variable("TEENY_DATA").map_or(Place::Any, |path| Place::Named(path, "TEENY_DATA")),
    }
}

/// The value of an environment variable that is a path and not empty.
fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// The path of `file` in `dir` or in `text` below it.
fn within(dir: &Path, file: &str) -> Result<PathBuf> {
    let candidates = [dir.join(file), dir.join("text").join(file)];
    candidates.iter().find(|path| path.is_file()).cloned().ok_or_else(|| {
        let why =
            if dir.is_dir() { "the folder has neither of them" } else { "it is not a folder" };
        Error::io(format!("no {file} or text/{file} in {dir:?}: {why}"))
            .help("`--data builtin` selects the small built-in text")
    })
}

fn read(path: &Path) -> Result<String> {
    let bytes = std::fs::read(path)
        .map_err(|e| Error::io(format!("cannot read {path:?}: {e}")).with_source(e))?;
    String::from_utf8(bytes).map_err(|e| {
        Error::format(format!(
            "{path:?} is not a text: byte {} is not UTF-8",
            e.utf8_error().valid_up_to()
        ))
    })
}

/// Whether `dir` has all four files of MNIST.
fn complete(dir: &Path) -> bool {
    FILES.iter().all(|name| dir.join(name).is_file() || dir.join(format!("{name}.gz")).is_file())
}

/// The folder for downloads: `teeny/` and `name` in the user's cache folder.
fn cache_dir(name: &str) -> Option<PathBuf> {
    let base = if cfg!(windows) {
        variable("LOCALAPPDATA")
    } else {
        let in_home = if cfg!(target_os = "macos") { "Library/Caches" } else { ".cache" };
        variable("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|home| home.join(in_home)))
    };
    base.map(|base| base.join("teeny").join(name))
}

#[cfg(feature = "download")]
fn fetch(what: &str, dir: &Path) -> Result<String> {
    crate::download::fetch(what, dir)
}

#[cfg(not(feature = "download"))]
fn fetch(_: &str, _: &Path) -> Result<String> {
    Err(Error::unsupported("this program was built without the feature `download`"))
}
