//! Lists of names in errors. Knows neither parameters nor files.

/// The first names and the number of the others, for errors.
pub(crate) fn listed(names: &[&str]) -> String {
    match names {
        [] => "none".to_string(),
        names if names.len() <= 12 => names.join(", "),
        names => format!("{}, and {} more", names[..12].join(", "), names.len() - 12),
    }
}
