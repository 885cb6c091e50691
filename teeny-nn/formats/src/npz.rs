//! NumPy's `.npz` archives: named arrays, each a `.npy` file inside a zip archive.

use super::State;
use super::file_kind;
use super::zip::{self, Zip};
use crate::names::{loading, of_file};
use std::path::Path;
use teeny_core::context::enter;
use teeny_core::file::quoted;
use teeny_core::{Error, ErrorKind, Result, Tensor, ToDevice};

/// How the entries of an archive are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// As they are: `numpy.savez`.
    Stored,
    /// Deflated: `numpy.savez_compressed`.
    Deflated,
}

/// Writes named tensors as an `.npz` file, atomically: the old file stays until the new one is on
/// disk.
///
/// Equivalent: `numpy.savez(path, **arrays)`, `numpy.savez_compressed`.
///
/// # Errors
/// If the file cannot be written, a name is taken twice, a tensor is `BF16`, or there are more than
/// 4 GiB.
///
/// # Example
/// ```
/// use teeny_core::Tensor;
/// use teeny_formats::npz::{self, Compression};
/// use teeny_nn::device;
/// # fn main() -> teeny_core::Result<()> {
/// # let path = std::env::temp_dir().join(format!("teeny-doc-{}.npz", std::process::id()));
/// let x = Tensor::new([[1.0f32, 2.0], [3.0, 4.0]], &device("cpu")?)?; // (2, 2)
/// npz::write(&path, &[("x".to_string(), x)], Compression::Deflated)?;
/// let arrays = npz::read(&path, &device("cpu")?)?;
/// assert_eq!(arrays.tensor("x")?.to_vec::<f32>()?, [1.0, 2.0, 3.0, 4.0]);
/// # std::fs::remove_file(&path).unwrap();
/// # Ok(()) }
/// ```
#[doc(alias = "savez", alias = "savez_compressed")]
#[track_caller]
pub fn write(
    path: impl AsRef<Path>,
    tensors: &[(String, Tensor)],
    compression: Compression,
) -> Result<()> {
    let _op = enter("npz::write");
    let names: Vec<String> = tensors.iter().map(|(name, _)| format!("{name}.npy")).collect();
    teeny_core::file::replace(path.as_ref(), |writer| {
        if let Some(i) = (1..names.len()).find(|&i| names[..i].contains(&names[i])) {
            return Err(Error::value(format!(
                "two arrays cannot both be called {:?}",
                tensors[i].0
            ))
            .help("give each array a unique name"));
        }
        zip::write(writer, &names, compression == Compression::Deflated, |i| {
            let mut content = Vec::new();
            tensors[i].1.write_npy(&mut content)?;
            Ok(content)
        })
    })
}

/// Reads the arrays of an `.npz` file onto `device`. Arrays of types that teeny does not have, such
/// as text, are in [`State::unreadable`].
///
/// Equivalent: `numpy.load(path)`.
///
/// # Errors
/// If the file cannot be read or is damaged.
#[doc(alias = "load")]
#[track_caller]
pub fn read(path: impl AsRef<Path>, device: impl ToDevice) -> Result<State> {
    let _op = enter("npz::read");
    let name = loading(path.as_ref());
    file_kind::read(path.as_ref(), &[".npz"])
        .and_then(|bytes| parse(&bytes, device))
        .map_err(|e| of_file(e, name))
}

/// The arrays of an `.npz` file in memory, on `device`.
///
/// # Errors
/// As [`read`].
#[track_caller]
pub fn from_bytes(bytes: &[u8], device: impl ToDevice) -> Result<State> {
    let _op = enter("npz::from_bytes");
    parse(bytes, device).map_err(|e| of_file(e, "load bytes"))
}

fn parse(bytes: &[u8], device: impl ToDevice) -> Result<State> {
    let mut archive =
        Zip::parse(bytes).map_err(|e| zip::not_an_archive(bytes, e, "an .npz archive"))?;
    let (device, mut state) = (device.to_device(), State::default());
    let entries: Vec<String> = archive.names().map(str::to_string).collect();
    if let Some(entry) = entries.first().filter(|_| !entries.iter().any(|e| e.ends_with(".npy"))) {
        let error = Error::format(format!("entry {} is not an .npy file", quoted(entry)));
        return Err(error.help(if entries.iter().any(|name| name.ends_with("data.pkl")) {
            "this is a PyTorch file: pt::read"
        } else {
            "numpy.savez writes archives of .npy files only"
        }));
    }
    for entry in entries {
        let Some(name) = entry.strip_suffix(".npy") else {
            let error = Error::unsupported(format!("entry {} is not an .npy file", quoted(&entry)))
                .help("numpy.savez writes archives of .npy files only");
            state.unreadable.insert(entry, error);
            continue;
        };
        let content = archive.read(&entry)?;
        archive.budget.charge(content.len())?;
        let read = Tensor::from_npy(&content, &device)
            .map_err(|e| e.note(format!("in entry {}", quoted(&entry))));
        match read {
            Ok(tensor) => drop(state.tensors.insert(name.to_string(), tensor)),
            Err(e) if e.kind() == ErrorKind::DType => {
                state.unreadable.insert(name.to_string(), e);
            }
            Err(e) => return Err(e),
        }
    }
    Ok(state)
}
