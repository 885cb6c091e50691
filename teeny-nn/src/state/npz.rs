//! NumPy's `.npz` archives: named arrays, each a `.npy` file inside a zip archive.

use super::file_kind;
use super::zip::{self, Zip};
use std::collections::BTreeMap;
use std::path::Path;
use teeny_core::{Error, Result, Tensor, ToDevice};

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
/// use teeny_nn::{device, state::npz::{self, Compression}};
/// # fn main() -> teeny_core::Result<()> {
/// # let path = std::env::temp_dir().join(format!("teeny-doc-{}.npz", std::process::id()));
/// let x = Tensor::new([[1.0f32, 2.0], [3.0, 4.0]], &device("cpu")?)?; // (2, 2)
/// npz::write(&path, &[("x".to_string(), x)], Compression::Deflated)?;
/// assert_eq!(npz::read(&path, &device("cpu")?)?["x"].to_vec::<f32>()?, [1.0, 2.0, 3.0, 4.0]);
/// # std::fs::remove_file(&path).unwrap();
/// # Ok(()) }
/// ```
pub fn write(
    path: impl AsRef<Path>,
    tensors: &[(String, Tensor)],
    compression: Compression,
) -> Result<()> {
    let names: Vec<String> = tensors.iter().map(|(name, _)| format!("{name}.npy")).collect();
    teeny_core::file::replace(path.as_ref(), |writer| {
        if let Some(i) = (1..names.len()).find(|&i| names[..i].contains(&names[i])) {
            return Err(Error::value(format!(
                "two arrays cannot both be called {:?}",
                tensors[i].0
            )));
        }
        zip::write(writer, &names, compression == Compression::Deflated, |i| {
            let mut content = Vec::new();
            tensors[i].1.write_npy(&mut content)?;
            Ok(content)
        })
    })
}

/// Reads all arrays of an `.npz` file onto `device`.
///
/// Equivalent: `numpy.load(path)`.
///
/// # Errors
/// If the file cannot be read, is damaged, or has a dtype that teeny does not have.
pub fn read(path: impl AsRef<Path>, device: impl ToDevice) -> Result<BTreeMap<String, Tensor>> {
    let name = format!("load {:?}", path.as_ref().display().to_string());
    file_kind::require_file(path.as_ref()).map_err(|e| e.named(&name))?;
    let bytes = std::fs::read(path)
        .map_err(|e| Error::io(format!("cannot read the file: {e}")).named(&name))?;
    from_bytes(&bytes, device).map_err(|e| e.named(name))
}

/// The arrays of an `.npz` file in memory, on `device`.
///
/// # Errors
/// As [`read`].
pub fn from_bytes(bytes: &[u8], device: impl ToDevice) -> Result<BTreeMap<String, Tensor>> {
    let archive =
        Zip::parse(bytes).map_err(|e| zip::not_an_archive(bytes, e, "an .npz archive"))?;
    let device = device.to_device();
    let array = |entry: &str| -> Result<(String, Tensor)> {
        let name = entry.strip_suffix(".npy").ok_or_else(|| {
            let error = Error::format(format!("entry {entry:?} is not an .npy file"));
            let pytorch = archive.names().any(|name| name.ends_with("data.pkl"));
            error.help(if pytorch {
                "this is a PyTorch file: state::pt::read"
            } else {
                "numpy.savez writes archives of .npy files only"
            })
        })?;
        Ok((
            name.to_string(),
            Tensor::from_npy(&archive.read(entry)?, &device)
                .map_err(|e| e.note(format!("in entry {entry:?}")))?,
        ))
    };
    let mut arrays = BTreeMap::new();
    for entry in archive.names() {
        let (name, tensor) = array(entry)?;
        arrays.insert(name, tensor);
    }
    Ok(arrays)
}
