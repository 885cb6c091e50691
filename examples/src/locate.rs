//! Where an example's data comes from, and saying so.
//!
//! In this order: the folder the user names (`--data DIR`, else `TEENY_DATA`), the folder of an earlier download, a download, and
//! the digits built into teeny-nn. A folder that was named is never silently replaced by something else.

use std::path::{Path, PathBuf};
use teeny_core::Result;
use teeny_nn::data::digits;
use teeny_nn::data::mnist::{FILES, Mnist};

/// What `--data` accepts besides a folder: the digits that come with teeny-nn, without looking for others.
pub const BUILTIN: &str = "builtin";

/// MNIST or its stand-in, and one line that tells the user which and why.
///
/// `named` is the value of `--data`, if given.
///
/// # Errors
/// If the folder that was named cannot be used. Without one there is always the built-in data.
pub fn mnist(named: Option<&Path>) -> Result<(Mnist, String)> {
    if named == Some(Path::new(BUILTIN)) {
        return Ok((digits::load()?, describe_builtin("--data builtin asks for them")));
    }
    let variable = std::env::var_os("TEENY_DATA").filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some((dir, why)) = named.map(|d| (d, "--data")).or(variable.as_deref().map(|d| (d, "TEENY_DATA"))) {
        return Ok((Mnist::read(dir)?, format!("MNIST from {} ({why})", dir.display())));
    }
    let Some(dir) = cache_dir() else {
        return Ok((digits::load()?, describe_builtin("there is no folder to keep a download in: HOME is not set")));
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
    match fetch(&dir).and_then(|mirror| Ok((Mnist::read(&dir)?, mirror))) {
        Ok((mnist, mirror)) => Ok((mnist, format!("MNIST, downloaded from {mirror} to {}", dir.display()))),
        Err(error) => Ok((digits::load()?, describe_builtin(&format!("MNIST could not be had: {error}")))),
    }
}

fn describe_builtin(why: &str) -> String {
    format!(
        "the 1,797 built-in digits instead of MNIST's 70,000, because {why}\n  \
         (accuracy on them says little about MNIST; for the real thing put its four files in a folder and pass --data DIR)"
    )
}

/// Whether all four files are there.
fn complete(dir: &Path) -> bool {
    FILES.iter().all(|name| dir.join(name).is_file() || dir.join(format!("{name}.gz")).is_file())
}

/// The user's folder for things that can be had again: `teeny/mnist` under the platform's cache folder.
fn cache_dir() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = if cfg!(windows) {
        variable("LOCALAPPDATA")
    } else {
        let in_home = if cfg!(target_os = "macos") { "Library/Caches" } else { ".cache" };
        variable("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|home| home.join(in_home)))
    };
    base.map(|base| base.join("teeny").join("mnist"))
}

#[cfg(feature = "download")]
fn fetch(dir: &Path) -> Result<String> {
    crate::download::mnist(dir)
}

#[cfg(not(feature = "download"))]
fn fetch(_: &Path) -> Result<String> {
    Err(teeny_core::Error::unsupported("this program was built without the feature `download`"))
}
