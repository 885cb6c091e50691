//! The IDX format of the MNIST files, plain or gzipped, read and written.
//!
//! ```text
//! 00 00  08      03         00 00 EA 60   00 00 00 1C   00 00 00 1C   pixels ..
//! zero   type u8 axes = 3   60,000        28            28            row-major
//! ```
//!
//! The sizes in a header are compared with the length of the file before memory is allocated. This
//! module does not interpret the numbers; [`super::mnist`] pairs images with labels.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use teeny_core::context::enter;
use teeny_core::file::{Budget, reason};
use teeny_core::{Error, Result};
use teeny_formats::names::of_file;

/// The element type of this reader: unsigned bytes, the only one in the MNIST family.
const UNSIGNED_BYTE: u8 = 0x08;

/// The limit of the number of elements, 2³¹, forty times MNIST: a gzip stream can inflate to any
/// size.
const MAX_ELEMENTS: u64 = 1 << 31;

/// An array of bytes with its sizes, as stored in an IDX file.
///
/// Shapes: `values` is row-major with `values.len() == sizes.iter().product()`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idx {
    /// The size of each axis, e.g. `[60000, 28, 28]`.
    pub sizes: Vec<usize>,
    /// The elements in row-major order.
    pub values: Vec<u8>,
}

/// Reads the IDX file at `path`; a gzipped file is recognised by its first bytes, not by its name.
///
/// # Errors
/// If the file cannot be read, is not an IDX file of unsigned bytes, or has fewer or more bytes
/// than its header states. The error names the file and both numbers of bytes.
#[track_caller]
pub fn read(path: impl AsRef<Path>) -> Result<Idx> {
    let _op = enter("idx::read");
    let path = path.as_ref();
    let name = format!("read {:?}", path.display().to_string());
    let file = File::open(path).map_err(|e| {
        Error::io(format!("cannot open: {}", reason(path, &e))).with_source(e).named(&name)
    })?;
    let length = file.metadata().map_err(|e| Error::from(e).named(&name))?.len();
    parse(BufReader::new(file), length).map_err(|e| of_file(e, &name))
}

/// Reads an IDX file in memory, plain or gzipped; errors call it `name`.
///
/// # Errors
/// As [`read`].
#[track_caller]
pub fn from_bytes(name: &str, bytes: &[u8]) -> Result<Idx> {
    let _op = enter("idx::from_bytes");
    parse(bytes, bytes.len() as u64).map_err(|e| of_file(e, format!("read {name:?}")))
}

/// Writes `values` with their `sizes` as an uncompressed IDX file.
///
/// # Errors
/// If the sizes do not multiply to the number of values, an axis does not fit 32 bits, there are
/// more than 255 axes, or `writer` fails.
#[track_caller]
pub fn write(mut writer: impl Write, sizes: &[usize], values: &[u8]) -> Result<()> {
    let _op = enter("idx::write");
    let numel = sizes.iter().try_fold(1usize, |n, &size| n.checked_mul(size));
    if numel != Some(values.len()) {
        return Err(Error::value(format!(
            "sizes {sizes:?} do not describe {} values",
            values.len()
        ))
        .named("write idx")
        .help("the product of the sizes is the number of values"));
    }
    let axes = u8::try_from(sizes.len()).map_err(|_| {
        Error::value(format!("{} axes, but the format allows 255", sizes.len()))
            .help("reshape to fewer axes")
            .named("write idx")
    })?;
    let mut header = vec![0, 0, UNSIGNED_BYTE, axes];
    for &size in sizes {
        let size = u32::try_from(size).map_err(|_| {
            Error::value(format!("size {size} does not fit 32 bits"))
                .help("divide the values among several files")
                .named("write idx")
        })?;
        header.extend(size.to_be_bytes());
    }
    writer
        .write_all(&header)
        .and_then(|()| writer.write_all(values))
        .and_then(|()| writer.flush())
        .map_err(|e| Error::from(e).named("write idx"))
}

/// Parses a plain or gzipped file, told apart by the first two bytes. `length` is the number of
/// bytes of `source`.
fn parse(mut source: impl BufRead, length: u64) -> Result<Idx> {
    let gzipped = source.fill_buf().map_err(Error::from)?.starts_with(&[0x1f, 0x8b]);
    let budget = Budget::new(length as usize);
    if !gzipped {
        return parse_plain(source, Some(length), budget);
    }
    let mut inflated = flate2::bufread::GzDecoder::new(source);
    let idx = parse_plain(&mut inflated, None, budget.with_deflated(length as usize))?;
    let mut source = inflated.into_inner();
    match source.fill_buf().map_err(Error::from)? {
        [] => Ok(idx),
        rest => Err(Error::format(format!(
            "at least {} bytes follow the end of the gzip stream",
            rest.len()
        ))),
    }
}

/// Parses header, elements and end. `length` is the number of bytes, which is known for a plain
/// file.
fn parse_plain(mut source: impl Read, length: Option<u64>, mut budget: Budget) -> Result<Idx> {
    let mut magic = [0; 4];
    let found = fill(&mut source, &mut magic)?;
    if found < 4 {
        return Err(Error::format(format!(
            "{found} bytes are too few for an IDX header, which begins with 4"
        )));
    }
    let [0, 0, kind, axes] = magic else {
        return Err(Error::format(format!(
            "an IDX file begins with 00 00 08, this one with {:02x} {:02x} {:02x}",
            magic[0], magic[1], magic[2]
        ))
        .help("read an -ubyte file, plain or gzipped, as it was downloaded"));
    };
    if kind != UNSIGNED_BYTE {
        return Err(Error::format(format!(
            "element type 0x{kind:02x}; only unsigned bytes (0x08) are supported"
        ))
        .help("write numbers of other types as .npy or .npz: Tensor::load_npy, npz::read"));
    }
    let mut sizes = Vec::with_capacity(axes.into());
    for axis in 0..axes {
        let mut size = [0; 4];
        if fill(&mut source, &mut size)? < 4 {
            return Err(Error::format(format!(
                "the file ends within its header: {axes} axes announced, {axis} sizes present"
            )));
        }
        sizes.push(u32::from_be_bytes(size) as usize);
    }
    let numel = sizes
        .iter()
        .try_fold(1u64, |n, &size| n.checked_mul(size as u64))
        .filter(|&n| n <= MAX_ELEMENTS);
    let Some(numel) = numel else {
        return Err(Error::format(format!(
            "the header states sizes {sizes:?}, \
             more than the {MAX_ELEMENTS} elements this reader accepts"
        )));
    };
    let header = 4 + 4 * u64::from(axes);
    if let Some(length) = length.filter(|&length| length != header + numel) {
        return Err(wrong_length(&sizes, numel, length.saturating_sub(header).to_string()));
    }
    let stated = |e: Error| e.note(format!("the header states sizes {sizes:?}"));
    budget.charge(numel as usize).map_err(stated)?;
    // grows with the bytes read, not with the sizes in the header
    let mut values = Vec::new();
    source.by_ref().take(numel).read_to_end(&mut values).map_err(|e| damaged(&e))?;
    if values.len() as u64 != numel {
        return Err(wrong_length(&sizes, numel, values.len().to_string()));
    }
    // reading to the end also checks the gzip stream's checksum
    match fill(&mut source, &mut [0])? {
        0 => Ok(Idx { sizes, values }),
        _ => Err(wrong_length(&sizes, numel, format!("more than {numel}"))),
    }
}

fn wrong_length(sizes: &[usize], expected: u64, found: String) -> Error {
    Error::format(format!(
        "the header states sizes {sizes:?}, that is {expected} bytes of data; the file has {found}"
    ))
}

fn damaged(error: &std::io::Error) -> Error {
    Error::format(format!("the data cannot be read to its end: {error}"))
}

/// Reads until `buffer` is full or the source ends; returns the number of bytes.
fn fill(source: &mut impl Read, buffer: &mut [u8]) -> Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match source.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(damaged(&e)),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(sizes: &[usize], values: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&mut bytes, sizes, values).unwrap();
        bytes
    }

    fn gzipped(content: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    fn refusal(bytes: &[u8]) -> String {
        from_bytes("x.idx", bytes).unwrap_err().to_string()
    }

    #[test]
    fn idx_round_trip_plain_and_gzipped() {
        let bytes = plain(&[2, 3], &[1, 2, 3, 4, 5, 6]);
        let expected = Idx { sizes: vec![2, 3], values: vec![1, 2, 3, 4, 5, 6] };
        assert_eq!(from_bytes("a", &bytes).unwrap(), expected);
        assert_eq!(from_bytes("a", &gzipped(&bytes)).unwrap(), expected);
        assert!(from_bytes("a", &plain(&[0, 28], &[])).unwrap().values.is_empty());
    }

    #[test]
    fn truncated_idx_is_an_error_at_every_length() {
        let bytes = plain(&[2, 3], &[1, 2, 3, 4, 5, 6]);
        for n in 0..bytes.len() {
            assert!(refusal(&bytes[..n]).starts_with("read \"x.idx\" at "), "{n} bytes");
        }
        assert!(
            refusal(&bytes[..15])
                .contains("states sizes [2, 3], that is 6 bytes of data; the file has 3"),
            "{}",
            refusal(&bytes[..15])
        );
        let packed = gzipped(&bytes);
        for n in 0..packed.len() {
            refusal(&packed[..n]);
        }
    }

    #[test]
    fn lying_idx_header_is_an_error_without_allocating() {
        let lie = [0, 0, 8, 3, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 28, 0, 0, 0, 28, 1, 2, 3];
        assert!(refusal(&lie).contains("more than the 2147483648 elements"), "{}", refusal(&lie));
        let lie = [0, 0, 8, 1, 0x7f, 0xff, 0xff, 0xff, 1, 2, 3];
        assert!(
            refusal(&lie).contains("2147483647 bytes of data; the file has 3"),
            "{}",
            refusal(&lie)
        );
        let text = refusal(&gzipped(&lie));
        assert!(
            text.contains("the content would take more than")
                && text.contains("states sizes [2147483647]"),
            "{text}"
        );
        let lie = [0, 0, 8, 1, 0, 0, 0, 9, 1, 2, 3];
        assert!(refusal(&gzipped(&lie)).contains("9 bytes of data; the file has 3"));
        let axes = [0, 0, 8, 255, 0, 0, 0, 1];
        assert!(refusal(&axes).contains("255 axes announced, 1 sizes present"));
    }

    #[test]
    fn foreign_and_trailing_bytes_are_errors() {
        assert!(
            refusal(b"<html><body>404").contains("begins with 00 00 08, this one with 3c 68 74")
        );
        assert!(refusal(&[0, 0, 0x0d, 1, 0, 0, 0, 0]).contains("element type 0x0d"));
        let mut bytes = plain(&[2], &[1, 2]);
        bytes.push(9);
        assert!(refusal(&bytes).contains("that is 2 bytes of data; the file has 3"));
        assert!(refusal(&gzipped(&bytes)).contains("more than 2"));
        let mut packed = gzipped(&plain(&[2], &[1, 2]));
        packed.extend([7; 20]);
        assert!(refusal(&packed).contains("20 bytes follow"), "{}", refusal(&packed));
    }

    #[test]
    fn a_flipped_bit_in_a_gzip_stream_is_an_error() {
        let packed = gzipped(&plain(&[4], &[1, 2, 3, 4]));
        let mut damaged = packed.clone();
        let checksum = packed.len() - 8;
        damaged[checksum] ^= 1;
        assert!(refusal(&damaged).contains("cannot be read to its end"), "{}", refusal(&damaged));
    }

    #[test]
    fn idx_writer_refuses_sizes_that_do_not_fit() {
        let error = write(Vec::new(), &[2, 2], &[1, 2, 3]).unwrap_err();
        assert_eq!(error.op(), Some("write idx"));
        assert_eq!(error.message(), "sizes [2, 2] do not describe 3 values");
        assert!(error.has_help());
        let full = std::io::Cursor::new([0u8; 5]);
        assert!(write(full, &[2], &[1, 2]).is_err());
    }
}
