//! Errors: one type for every fallible operation of the workspace.
//!
//! The first line is complete without the others (operation, the caller's `file:line`, what
//! disagrees). The operands with type and device follow, then notes, one per line, then at most one
//! line of help. An error takes operation, line and operands from [`crate::context`], so an error
//! in a device or an autograd rule names the user's line.

use crate::context::{self, Operand, Operands};
use std::fmt;
use std::panic::Location;
use std::sync::Arc;

/// The result of every fallible operation in teeny.
pub type Result<T> = std::result::Result<T, Error>;

/// The category of an [`Error`]; for programs that react to errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Shapes that do not fit each other or the operation.
    Shape,
    /// An axis that the tensor does not have, or named twice.
    Axis,
    /// A data type the operation does not accept.
    DType,
    /// Tensors on unrelated devices, or a device that does not exist.
    Device,
    /// An index outside its axis.
    Index,
    /// An argument outside its range, or a number of bytes that overflows.
    Value,
    /// The device cannot do this; the message names an alternative.
    Unsupported,
    /// The device has no memory for the result.
    OutOfMemory,
    /// A file or stream could not be read or written.
    Io,
    /// A file's content does not match its format.
    Format,
    /// A gradient that does not exist, or a graph that cannot be differentiated.
    Gradient,
    /// A call that waits, on a device that can only be awaited: a GPU in a browser. The help names
    /// the call that returns a future.
    WouldBlock,
    /// A device broke its contract. Always a bug in the device.
    Internal,
}

/// The cause of a failed operation: operation, line, the sizes that disagree, operands, notes and
/// at most one help line.
///
/// # Example
/// ```
/// use teeny_core::{Reference, Tensor, DType};
/// let device = Reference::new();
/// let lhs = Tensor::zeros((64, 784), DType::F32, &device).unwrap();
/// let rhs = Tensor::zeros((128, 784), DType::F32, &device).unwrap();
/// let error = lhs.matmul(&rhs).unwrap_err().to_string();
/// assert!(error.contains("cannot multiply (64, 784) @ (128, 784): 784 columns meet 128 rows"));
/// ```
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    op: Option<String>,
    location: Option<&'static Location<'static>>,
    message: String,
    /// Filled by the operation when it ends.
    operands: Option<Operands>,
    notes: Vec<String>,
    help: Option<String>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

/// The constructors of errors, one for each kind.
macro_rules! constructors {
    ($($(#[$doc:meta])* $name:ident $kind:ident;)*) => {
        impl Error {
            $($(#[$doc])* pub fn $name(message: impl Into<String>) -> Error {
                Error::new(ErrorKind::$kind, message)
            })*
        }
    };
}

constructors! {
    /// Shapes that do not fit. See [`ErrorKind::Shape`].
    shape Shape;
    /// A wrong axis. See [`ErrorKind::Axis`].
    axis Axis;
    /// A wrong data type. See [`ErrorKind::DType`].
    dtype DType;
    /// A wrong device. See [`ErrorKind::Device`].
    device Device;
    /// An index out of range. See [`ErrorKind::Index`].
    index Index;
    /// An argument out of range. See [`ErrorKind::Value`].
    value Value;
    /// Something this device cannot do. See [`ErrorKind::Unsupported`].
    unsupported Unsupported;
    /// No memory. See [`ErrorKind::OutOfMemory`].
    out_of_memory OutOfMemory;
    /// A file that cannot be read or written. See [`ErrorKind::Io`].
    io Io;
    /// A file with unexpected content. See [`ErrorKind::Format`].
    format Format;
    /// A gradient that does not exist. See [`ErrorKind::Gradient`].
    gradient Gradient;
    /// A broken contract. See [`ErrorKind::Internal`].
    internal Internal;
}

impl Error {
    /// An error of `kind`; operation and place come from the operation in progress on this thread,
    /// if any.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        let context = context::current();
        Error(Box::new(Inner {
            kind,
            op: context.map(|c| c.op.to_string()),
            location: context.map(|c| c.location),
            message: message.into(),
            operands: context::operands(),
            notes: Vec::new(),
            help: None,
            source: None,
        }))
    }

    /// The error of an `element` at `place` of the positions that a gather or scatter takes, which
    /// is `outside` an axis of `size`: it names them as the operation in progress does.
    pub fn position(
        place: &[usize],
        element: i128,
        size: usize,
        outside: impl fmt::Display,
    ) -> Error {
        let of = context::positions();
        let element = format!("{}{place:?} is {}", of.name, of.value(element));
        match of.expected {
            Some([expected, help]) => {
                Error::index(format!("{element}, expected {expected}")).help(help)
            }
            None => {
                Error::index(format!("{element}, but {outside}")).help(match size.checked_sub(1) {
                    Some(last) => format!("positions go from 0 to {last}"),
                    None => "the axis is empty: it has no positions".to_string(),
                })
            }
        }
    }

    /// The same error with one more note, printed on its own line.
    pub fn note(mut self, note: impl Into<String>) -> Error {
        self.0.notes.push(note.into());
        self
    }

    /// The same error with a help line; a later one replaces an earlier one.
    pub fn help(mut self, help: impl Into<String>) -> Error {
        self.0.help = Some(help.into());
        self
    }

    /// The same error with the error of another library that caused it, for
    /// [`std::error::Error::source`]. Its text belongs into the message too, which is complete
    /// without the source.
    pub fn with_source(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Error {
        self.0.source = Some(Arc::new(source));
        self
    }

    /// True if there is a help line: a more general one should not replace it.
    pub fn has_help(&self) -> bool {
        self.0.help.is_some()
    }

    /// The same error of the operation in progress, if it was made outside of any.
    pub(crate) fn placed(mut self) -> Error {
        if let (None, Some(context)) = (&self.0.op, context::current()) {
            (self.0.op, self.0.location) = (Some(context.op.to_string()), Some(context.location));
            self.0.operands = context::operands();
        }
        self
    }

    /// The same error under another operation's name, e.g. `load "mlp.safetensors"`, at the line
    /// that called the operation in progress.
    pub fn named(mut self, op: impl Into<String>) -> Error {
        self.0.op = Some(op.into());
        self.0.location = context::current().map(|c| c.location);
        self
    }

    /// The kind of mistake.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The operation that failed, as the user called it.
    pub fn op(&self) -> Option<&str> {
        self.0.op.as_deref()
    }

    /// The line of user code that called the operation.
    pub fn location(&self) -> Option<&'static Location<'static>> {
        self.0.location
    }

    /// The message without operation, place, operands, notes and help.
    pub fn message(&self) -> &str {
        &self.0.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.0;
        if let Some(op) = &inner.op {
            write!(f, "{op}")?;
            if let Some(location) = inner.location {
                write!(f, " at {}:{}", location.file(), location.line())?;
            }
            write!(f, ": ")?;
        }
        write!(f, "{}", inner.message)?;
        for (i, operand) in inner.operands.iter().filter_map(|o| o.get()).flatten().enumerate() {
            write!(f, "{}", if i == 0 { "\n  " } else { "    " })?;
            let Operand { name, shape, dtype, device } = operand;
            if inner.message.contains(shape.as_str()) {
                write!(f, "{name}: {dtype} on {device}")?;
            } else {
                write!(f, "{name}: {shape} {dtype} on {device}")?;
            }
        }
        for note in &inner.notes {
            write!(f, "\n  {note}")?;
        }
        if let Some(help) = &inner.help {
            write!(f, "\n  help: {help}")?;
        }
        Ok(())
    }
}

/// `unwrap` prints an error through `Debug`, so `Debug` prints the same text as `Display`.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn std::error::Error + 'static))
    }
}

/// An error of kind [`ErrorKind::Io`] with the same text, so that `?` works on files in functions
/// that return [`Result`].
///
/// # Example
/// ```
/// use std::error::Error as _;
/// fn settings() -> teeny_core::Result<String> {
///     Ok(std::fs::read_to_string("no such file")?)
/// }
/// let error = settings().unwrap_err();
/// assert_eq!(error.kind(), teeny_core::ErrorKind::Io);
/// assert!(error.source().is_some_and(|source| source.is::<std::io::Error>()));
/// ```
impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Error {
        Error::io(error.to_string()).with_source(error)
    }
}
