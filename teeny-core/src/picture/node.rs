//! The boxes of a picture and the texts about tensors in them.

use super::GroupId;
use crate::context::OpContext;
use crate::dtype::DType;
use crate::error::Result;
use crate::scalar::Scalar;
use crate::shape::Shape;
use crate::tensor::Tensor;

/// The most elements that a box shows.
const MAX_VALUES: usize = 8;

/// The kind of a box, which determines its style.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// An operation whose result only other operations read.
    #[default]
    Operation,
    /// A tensor that is read and that no operation of the picture makes.
    Input,
    /// An operation whose result is held.
    Output,
    /// An operation that another group computes as well.
    Repeated,
    /// An operation that does not run because its result is not needed.
    Unused,
}

/// A box with a heading and lines of text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    pub(super) heading: String,
    pub(super) lines: Vec<String>,
    pub(super) details: String,
    pub(super) kind: Kind,
    pub(super) group: Option<GroupId>,
}

impl Node {
    /// A box with this heading.
    pub fn new(heading: impl Into<String>) -> Node {
        Node { heading: heading.into(), ..Node::default() }
    }

    /// The box as one of this kind.
    pub fn kind(self, kind: Kind) -> Node {
        Node { kind, ..self }
    }

    /// The box within a group.
    pub fn in_group(self, group: GroupId) -> Node {
        Node { group: Some(group), ..self }
    }

    /// The box with one more line.
    pub fn line(mut self, line: impl Into<String>) -> Node {
        self.lines.push(line.into());
        self
    }

    /// The box with a line about a tensor: `(64, 128) f32, 32 KiB`.
    pub fn tensor(self, shape: &Shape, dtype: DType) -> Node {
        let bytes = shape.numel().saturating_mul(dtype.size());
        self.line(format!("{shape} {dtype}, {}", bytes_text(bytes as u64)))
    }

    /// The box with the user's operation and line; the full path is shown below the mouse pointer.
    pub fn called(mut self, context: Option<OpContext>) -> Node {
        let Some(OpContext { op, location, later, .. }) = context else { return self };
        let op = format!("{}{op}", if later { "gradient of " } else { "" });
        self.details = format!("{op} at {}:{}", location.file(), location.line());
        let place = source_line(context).unwrap_or_default();
        self.line(format!("{op} at {place}"))
    }

    /// The box with the elements of a tensor of at most eight, after `name`.
    ///
    /// # Errors
    /// If the device fails.
    pub fn values(self, name: &str, x: &Tensor) -> Result<Node> {
        if x.numel() > MAX_VALUES {
            return Ok(self);
        }
        let values: Vec<String> = x.to_scalars()?.into_iter().map(scalar_text).collect();
        let values = match (x.ndim(), values.as_slice()) {
            (0, [value]) => value.clone(),
            _ => format!("[{}]", values.join(", ")),
        };
        Ok(self.line(format!("{name}{values}")))
    }

    /// The heading.
    pub fn heading(&self) -> &str {
        &self.heading
    }

    /// The lines below the heading.
    pub fn lines(&self) -> &[String] {
        &self.lines
    }

    /// The text below the mouse pointer.
    pub fn details(&self) -> &str {
        &self.details
    }

    /// The group that the box is in.
    pub fn group(&self) -> Option<GroupId> {
        self.group
    }

    /// The kind of the box.
    pub fn is(&self) -> Kind {
        self.kind
    }
}

/// Four significant digits of a float.
pub(crate) fn scalar_text(value: Scalar) -> String {
    match value {
        Scalar::Float(x) if x != 0.0 && x.is_finite() => {
            let digits = 3 - x.abs().log10().floor() as i32;
            if !(-3..=8).contains(&digits) {
                return format!("{x:.3e}");
            }
            let text = format!("{x:.*}", digits.max(0) as usize);
            match text.contains('.') {
                true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
                false => text,
            }
        }
        Scalar::Float(x) => format!("{x}"),
        value => value.to_string(),
    }
}

/// A number of bytes: `512 B`, `32 KiB`, `1.5 MiB`.
///
/// # Example
/// ```
/// use teeny_core::picture::bytes_text;
/// assert_eq!([12, 2048, 1_600_000].map(bytes_text), ["12 B", "2 KiB", "1.5 MiB"]);
/// ```
pub fn bytes_text(bytes: u64) -> String {
    let (mut value, mut unit) = (bytes as f64, "B");
    for next in ["KiB", "MiB", "GiB", "TiB"] {
        if value < 1024.0 {
            break;
        }
        (value, unit) = (value / 1024.0, next);
    }
    let text = if value < 10.0 { format!("{value:.1}") } else { format!("{value:.0}") };
    format!("{} {unit}", text.strip_suffix(".0").unwrap_or(&text))
}

/// The user's line with the last folder of its path: `bin/mnist.rs:55`.
pub fn source_line(context: Option<OpContext>) -> Option<String> {
    let location = context?.location;
    let path = location.file();
    let separators: Vec<usize> = path.rmatch_indices(['/', '\\']).map(|(at, _)| at).collect();
    let name = separators.get(1).map_or(path, |&at| &path[at + 1..]);
    Some(format!("{name}:{}", location.line()))
}
