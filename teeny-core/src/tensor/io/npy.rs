//! NumPy's `.npy` files: one array each, format versions 1 to 3 (NEP 1).
//!
//! ```text
//! \x93NUMPY  version  header length  {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
//! elements
//! ```
//!
//! Sizes in a header are checked against the length of the file before anything is allocated.

use crate::context::enter;
use crate::device::ToDevice;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::file::{self, Budget, quoted, write_error};
use crate::memory;
use crate::shape::Shape;
use crate::tensor::Tensor;
use std::borrow::Cow;
use std::io::Write;
use std::path::Path;

const MAGIC: &[u8] = b"\x93NUMPY";
/// The help line for a header that cannot be read.
const NPY: &str = "numpy.save(path, x) and x.save_npy(path)? write a header that can be read";
/// A header describes one array; NumPy itself refuses longer ones.
const MAX_HEADER: usize = 10_000;

impl Tensor {
    /// Writes the tensor as a `.npy` file. The old file, if any, stays until the new one is safely
    /// on disk.
    ///
    /// # Errors
    /// If the file cannot be written, or the type is `BF16`, which NumPy does not have.
    ///
    /// Equivalent: `numpy.save(path, x)`.
    #[doc(alias = "save")]
    #[track_caller]
    pub fn save_npy(&self, path: impl AsRef<Path>) -> Result<()> {
        let _op = enter("save_npy").on([("x", Some(self))]);
        let path = path.as_ref();
        file::replace(path, |writer| self.write_npy(writer)).map_err(|e| e.named(file::label(path)))
    }

    /// Reads a `.npy` file. Both byte orders and Fortran order are understood; the result is
    /// row-major. A bool is true if its byte is not 0.
    ///
    /// # Errors
    /// If the file cannot be read, is not a `.npy` file, holds a type teeny does not have, or its
    /// length does not match its header.
    ///
    /// Equivalent: `numpy.load(path)`.
    #[doc(alias = "load")]
    #[track_caller]
    pub fn load_npy(path: impl AsRef<Path>, device: impl ToDevice) -> Result<Tensor> {
        let _op = enter("load_npy");
        let path = path.as_ref();
        let name = format!("load {:?}", path.display().to_string());
        let bytes = file::read(path)
            .map_err(|e| e.help("x.save_npy(path)? writes such a file").named(name.clone()))?;
        Tensor::from_npy(&bytes, device).map_err(|e| e.named(name))
    }

    /// Writes the content of a `.npy` file.
    ///
    /// # Errors
    /// If writing fails, or the type is `BF16`.
    #[track_caller]
    pub fn write_npy(&self, writer: &mut dyn Write) -> Result<()> {
        let _op = enter("write_npy").on([("x", Some(self))]);
        let shape = self.shape().to_string();
        let mut header = format!(
            "{{'descr': '{}', 'fortran_order': False, 'shape': {shape}, }}",
            descr(self.dtype())?
        );
        // The elements begin at a multiple of 64 bytes; the header ends with a line break.
        let length = (MAGIC.len() + 4 + header.len() + 1).next_multiple_of(64) - MAGIC.len() - 4;
        header.push_str(&" ".repeat(length - header.len() - 1));
        header.push('\n');
        let bytes = self.to_bytes()?;
        let write = |writer: &mut dyn Write| -> std::io::Result<()> {
            writer.write_all(MAGIC)?;
            writer.write_all(&[1, 0])?;
            writer.write_all(&(length as u16).to_le_bytes())?;
            writer.write_all(header.as_bytes())?;
            writer.write_all(&bytes)
        };
        write(writer)
            .map_err(|e| write_error(e).help("the disk may be full, or the folder may not exist"))
    }

    /// The tensor in the content of a `.npy` file.
    ///
    /// # Errors
    /// As [`Tensor::load_npy`].
    #[track_caller]
    pub fn from_npy(bytes: &[u8], device: impl ToDevice) -> Result<Tensor> {
        let _op = enter("from_npy");
        let (header, data) = split(bytes)?;
        let [descr, fortran_order, shape] = entries(header)?;
        let (dtype, swapped) = dtype(descr)?;
        let fortran = match fortran_order {
            "True" => true,
            "False" => false,
            other => {
                let text = format!("fortran_order is {}, not True or False", quoted(other));
                return Err(Error::format(text).help(NPY));
            }
        };
        let mut sizes = sizes(shape).ok_or_else(|| {
            Error::format(format!("shape {} is not a tuple of sizes", quoted(shape))).help(NPY)
        })?;
        if fortran {
            sizes.reverse();
        }
        let shape = Shape::new(&sizes)?;
        let want = shape.numel().checked_mul(dtype.size());
        if want != Some(data.len()) {
            let want = want.map_or("too many bytes".to_string(), |n| format!("{n} bytes"));
            return Err(Error::format(format!(
                "the header needs {want} for {shape} of {dtype}, the file holds {}",
                data.len()
            ))
            .help("the file may have been cut off: copy or save it again"));
        }
        let mut budget = Budget::new(bytes.len());
        let mut data = Cow::Borrowed(data);
        if swapped {
            budget.charge(data.len())?;
            let mut turned = memory::collected(data.iter().copied())?;
            turned.chunks_exact_mut(dtype.size()).for_each(<[u8]>::reverse);
            data = Cow::Owned(turned);
        }
        budget.charge(data.len())?;
        let x = Tensor::from_bytes(&data, shape, dtype, device)?;
        if fortran {
            budget.charge(data.len())?;
            x.permute((0..x.ndim()).rev().collect::<Vec<_>>())?.contiguous()
        } else {
            Ok(x)
        }
    }
}

/// The header's text and the bytes after it.
fn split(bytes: &[u8]) -> Result<(&str, &[u8])> {
    let short = || {
        Error::format(format!("the file ends inside its header, after {} bytes", bytes.len()))
            .help("the file may have been cut off: copy or save it again")
    };
    if !bytes.starts_with(MAGIC) {
        return Err(Error::format("not a .npy file: it does not begin with \\x93NUMPY")
            .help("an .npz file is a zip archive of .npy files, which teeny-formats reads"));
    }
    let version = *bytes.get(6).ok_or_else(short)?;
    let (start, length) = match version {
        1 => (
            10,
            u16::from_le_bytes(bytes.get(8..10).ok_or_else(short)?.try_into().expect("two bytes"))
                as usize,
        ),
        2 | 3 => (
            12,
            u32::from_le_bytes(bytes.get(8..12).ok_or_else(short)?.try_into().expect("four bytes"))
                as usize,
        ),
        other => {
            return Err(Error::format(format!(
                "format version {other} is unknown; 1, 2 and 3 are known"
            ))
            .help(NPY));
        }
    };
    if length > MAX_HEADER {
        return Err(Error::format(format!("a header of {length} bytes is too long for one array"))
            .help(NPY));
    }
    let header = bytes.get(start..start + length).ok_or_else(short)?;
    let text = std::str::from_utf8(header)
        .map_err(|_| Error::format("the header is not text").help(NPY))?;
    Ok((text, &bytes[start + length..]))
}

/// The values of `descr`, `fortran_order` and `shape`, the only keys of a header, each once.
fn entries(header: &str) -> Result<[&str; 3]> {
    let wrong = |what: String| {
        Error::format(format!("{what}: {}", quoted(header.trim().trim_matches(['{', '}']))))
            .help(NPY)
    };
    let inner = header.trim().strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    let inner = inner.ok_or_else(|| wrong("the header is not a dictionary".to_string()))?;
    let mut values = [None; 3];
    for part in parts(inner) {
        let key = part.split_once(':').map(|(key, value)| (unquoted(key), value.trim()));
        let place = key.and_then(|(key, _)| KEYS.iter().position(|known| *known == key));
        let (Some((key, value)), Some(place)) = (key, place) else {
            return Err(wrong(format!("the header has an entry {}", quoted(part))));
        };
        if values[place].replace(value).is_some() {
            return Err(wrong(format!("the header has two entries {key:?}")));
        }
    }
    match values {
        [Some(descr), Some(fortran_order), Some(shape)] => Ok([descr, fortran_order, shape]),
        _ => Err(wrong(format!("expected the header entries {}", KEYS.join(", ")))),
    }
}

const KEYS: [&str; 3] = ["descr", "fortran_order", "shape"];

/// The parts of `text` between commas outside quotes and brackets. The last comma may be followed
/// by nothing.
fn parts(text: &str) -> Vec<&str> {
    let (mut depth, mut quote, mut start) = (0, None, 0);
    let mut parts = Vec::new();
    for (i, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), _) if open == c => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')' | ']' | '}') => depth -= 1,
            (None, ',') if depth == 0 => {
                parts.push(text[start..i].trim());
                start = i + 1;
            }
            _ => {}
        }
    }
    parts.extend(Some(text[start..].trim()).filter(|last| !last.is_empty()));
    parts
}

/// The sizes in a tuple: `()`, `(3,)`, `(2, 3)`.
fn sizes(tuple: &str) -> Option<Vec<usize>> {
    let inner = tuple.strip_prefix('(')?.strip_suffix(')')?;
    let sizes: Vec<usize> =
        parts(inner).into_iter().map(|size| size.parse().ok()).collect::<Option<_>>()?;
    // (3) is a number in Python
    (sizes.len() != 1 || inner.trim_end().ends_with(',')).then_some(sizes)
}

fn unquoted(text: &str) -> &str {
    text.trim().trim_matches(['\'', '"'])
}

fn descr(dtype: DType) -> Result<String> {
    let kind = match dtype {
        DType::BF16 => {
            return Err(
                Error::dtype("NumPy has no bf16").help("x.cast(DType::F32)? keeps every value")
            );
        }
        DType::Bool => 'b',
        t if t.is_float() => 'f',
        t if t.is_signed_int() => 'i',
        _ => 'u',
    };
    let order = if dtype.size() == 1 { '|' } else { '<' };
    Ok(format!("{order}{kind}{}", dtype.size()))
}

/// The type and whether its bytes are in big-endian order.
fn dtype(descr: &str) -> Result<(DType, bool)> {
    let help = match descr.starts_with('[') {
        true => "save each field as an array: numpy.save(path, x['name'])",
        false => "x.astype(numpy.float32) in Python converts before numpy.save",
    };
    let descr = unquoted(descr);
    let known = DType::ALL
        .into_iter()
        .filter(|&t| t != DType::BF16)
        .find(|&t| self::descr(t).is_ok_and(|d| d[1..] == *descr.get(1..).unwrap_or("")));
    match (descr.as_bytes().first(), known) {
        (Some(b'<' | b'|' | b'='), Some(t)) => Ok((t, false)),
        (Some(b'>'), Some(t)) => Ok((t, true)),
        _ => Err(Error::dtype(format!("unsupported element type {}", quoted(descr))).help(help)),
    }
}
