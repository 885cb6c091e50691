//! Names in errors. Knows neither parameters nor files.

use std::path::Path;

/// The operation of reading the file at `path`, for errors: `load "mlp.safetensors"`.
pub(crate) fn loading(path: &Path) -> String {
    format!("load {:?}", path.display().to_string())
}

/// The first names and the number of the others, for errors.
pub(crate) fn listed(names: &[&str]) -> String {
    match names {
        [] => "none".to_string(),
        names if names.len() <= 12 => names.join(", "),
        names => format!("{}, and {} more", names[..12].join(", "), names.len() - 12),
    }
}
