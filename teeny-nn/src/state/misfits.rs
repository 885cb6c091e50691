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
        let found = Shape::new(found).map_or_else(|_| format!("{found:?}"), |shape| shape.to_string());
        self.misshapen.push(format!("{name} is {found}, but should be {wanted}"));
    }

    /// An error that lists everything, if there is anything; `owner` is whom the tensors should fit.
    pub(crate) fn check(self, owner: &str) -> Result<()> {
        let count = self.missing.len() + self.unknown.len() + self.misshapen.len();
        if count == 0 {
            return Ok(());
        }
        let mut error = Error::shape(format!("{count} tensor{} not fit {owner}", if count == 1 { " does" } else { "s do" }));
        for (what, names) in [("missing", &self.missing), ("unknown", &self.unknown)] {
            if !names.is_empty() {
                error = error.fact(format!("{what}: {}", names.join(", ")));
            }
        }
        Err(self.misshapen.into_iter().fold(error, Error::fact))
    }
}
