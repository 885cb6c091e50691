//! All that does not fit between what is there and what is wanted, told at once.

use teeny_core::{Error, Result, Shape};

/// Names that are missing, unknown or of another shape, collected while comparing.
#[derive(Debug, Default)]
pub(crate) struct Misfits {
    missing: Vec<String>,
    unknown: Vec<String>,
    misshapen: Vec<String>,
}

impl Misfits {
    /// `name` is wanted and not there.
    pub(crate) fn missing(&mut self, name: &str, shape: &Shape) {
        self.missing.push(format!("{name} {shape}"));
    }

    /// `name` is there and not wanted.
    pub(crate) fn unknown(&mut self, name: &str) {
        self.unknown.push(name.to_string());
    }

    /// `name` is there with shape `found`, but should be `wanted`.
    pub(crate) fn misshapen(&mut self, name: &str, found: &[usize], wanted: &Shape) {
        // a file may claim more axes than a shape has
        let found =
            Shape::new(found).map_or_else(|_| format!("{found:?}"), |shape| shape.to_string());
        self.misshapen.push(format!("{name} is {found}, but should be {wanted}"));
    }

    /// An error that lists everything, if there is anything; `owner` is whom the tensors should
    /// fit.
    pub(crate) fn check(self, owner: &str) -> Result<()> {
        let count = self.missing.len() + self.unknown.len() + self.misshapen.len();
        if count == 0 {
            return Ok(());
        }
        let mut error = Error::shape(format!(
            "{count} tensor{} not fit {owner}",
            if count == 1 { " does" } else { "s do" }
        ));
        for (what, names) in [("missing", &self.missing), ("unknown", &self.unknown)] {
            if !names.is_empty() {
                error = error.note(format!("{what}: {}", names.join(", ")));
            }
        }
        let help = self.prefix();
        let error = self.misshapen.into_iter().fold(error, Error::note);
        Err(match help {
            Some(help) => error.help(help),
            None => error,
        })
    }

    /// What to do if names would fit but for a prefix that all of one side have.
    fn prefix(&self) -> Option<String> {
        let missing: Vec<&str> =
            self.missing.iter().map(|name| name.split(' ').next().unwrap_or(name)).collect();
        let found: Vec<&str> = self.unknown.iter().map(String::as_str).collect();
        if let Some(prefix) = common_prefix(&found, &missing) {
            return Some(format!(
                "every name in the file begins with {prefix:?}: Mapping::new().rename(|name| Some(name.strip_prefix({prefix:?}).unwrap_or(name).into())) \
                 leaves it out, for store.load_from"
            ));
        }
        let prefix = common_prefix(&missing, &found)?;
        Some(format!(
            "every name of the model begins with {prefix:?}: Mapping::new().rename(|name| Some(format!(\"{prefix}{{name}}\"))) adds it, for store.load_from"
        ))
    }
}

/// The prefix, parts that end in a point, without which most of `longer` are among `shorter`.
fn common_prefix<'a>(longer: &[&'a str], shorter: &[&str]) -> Option<&'a str> {
    let first = *longer.first()?;
    let ends = first.match_indices('.').map(|(i, _)| &first[..=i]);
    let fitting = |prefix: &str| {
        longer
            .iter()
            .filter(|name| name.strip_prefix(prefix).is_some_and(|rest| shorter.contains(&rest)))
            .count()
    };
    ends.filter(|prefix| longer.iter().all(|name| name.starts_with(prefix)))
        .find(|prefix| 2 * fitting(prefix) > longer.len())
}
