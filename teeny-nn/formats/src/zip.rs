//! Zip archives, to the extent of `.npz` and `.pt` files: entries stored or deflated, 64-bit sizes
//! when reading.
//!
//! ```text
//! entry       "PK\3\4" header, name, data
//! ..
//! directory   "PK\1\2" name, sizes, position of the entry
//! ..
//! end         "PK\5\6" position of the directory
//! ```
//!
//! An entry must be inside the file, the entries together must not exceed the file, inflating stops
//! at the stated size, and the checksum must match. The inflated entries share one memory budget
//! per file. Source: PKWARE's APPNOTE 6.3.10.
//!
//! The crate `zip` has more code and dependencies than this page, for features (encryption, dates,
//! streams) that these files do not have; flate2 inflates, as for IDX files.

use super::file_kind;
use flate2::{Compression, Crc};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use teeny_core::file::{Budget, quoted, write_error};
use teeny_core::{Error, Result};

/// Deflate cannot shrink more than this (a length of 258 in 2 bits).
const MAX_INFLATION: u64 = 1032;

/// Memory for an entry of the directory besides its name.
const ENTRY: usize = 256;

/// An archive in memory.
pub(super) struct Zip<'a> {
    bytes: &'a [u8],
    entries: Vec<Entry>,
    /// Index in `entries` by name; other maps have the same value type, which saves compiling one
    /// more map.
    indices: BTreeMap<String, usize>,
    /// The memory that readers of the archive may request.
    pub(super) budget: Budget,
}

#[derive(Clone, Copy)]
struct Entry {
    deflated: bool,
    checksum: u32,
    packed: u64,
    size: u64,
    header: u64,
}

impl<'a> Zip<'a> {
    /// Reads the directory.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Zip<'a>> {
        let (count, mut at) = directory(bytes)?;
        let (mut entries, mut indices) = (Vec::new(), BTreeMap::new());
        let mut claimed = 0u64;
        let (mut budget, mut deflated) = (Budget::new(bytes.len()), 0);
        for _ in 0..count {
            let head = slice(bytes, at, 46)?;
            if head[..4] != *b"PK\x01\x02" {
                return Err(Error::format(format!("no directory entry at byte {at}")));
            }
            let [flags, method] = [8, 10].map(|i| u16_at(head, i));
            let [name_size, extra_size, comment_size] =
                [28, 30, 32].map(|i| u64::from(u16_at(head, i)));
            let name = String::from_utf8_lossy(slice(bytes, at + 46, name_size)?).into_owned();
            budget.charge(ENTRY + 2 * name.len())?;
            if flags & 1 != 0 || !matches!(method, 0 | 8) {
                return Err(Error::format(format!(
                    "entry {} is encrypted or uses method {method}; \
                     only stored and deflated entries are supported",
                    quoted(&name)
                )));
            }
            let extra = slice(bytes, at + 46 + name_size, extra_size)?;
            let [size, packed, header] = sizes_u64([24, 20, 42].map(|i| u32_at(head, i)), extra)?;
            let entry =
                Entry { deflated: method == 8, checksum: u32_at(head, 16), packed, size, header };
            let most = if entry.deflated { packed.saturating_mul(MAX_INFLATION) } else { packed };
            claimed = claimed.saturating_add(packed).saturating_add(46);
            if size > most || claimed > bytes.len() as u64 || (!entry.deflated && size != packed) {
                return Err(Error::format(format!(
                    "entry {} claims {packed} bytes that become {size}, in a file of {}",
                    quoted(&name),
                    bytes.len()
                )));
            }
            if indices.insert(name.clone(), entries.len()).is_some() {
                return Err(Error::format(format!("there are two entries {}", quoted(&name))));
            }
            if entry.deflated {
                deflated += packed as usize; // not more than the file, see `claimed`
            }
            entries.push(entry);
            at += 46 + name_size + extra_size + comment_size;
        }
        Ok(Zip { bytes, entries, indices, budget: budget.with_deflated(deflated) })
    }

    /// The entries' names.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.indices.keys().map(String::as_str)
    }

    /// The content of entry `name`.
    pub(super) fn read(&mut self, name: &str) -> Result<Cow<'a, [u8]>> {
        let index = self.indices.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.names().collect();
            let names = crate::names::listed(&names);
            Error::format(format!("no entry {}; there are {}", quoted(name), quoted(&names)))
        })?;
        let entry = self.entries[*index];
        let head = slice(self.bytes, entry.header, 30)?;
        if head[..4] != *b"PK\x03\x04" {
            return Err(Error::format(format!(
                "no header of entry {} at byte {}",
                quoted(name),
                entry.header
            )));
        }
        let start = entry.header + 30 + u64::from(u16_at(head, 26)) + u64::from(u16_at(head, 28));
        let packed = slice(self.bytes, start, entry.packed)?;
        let content = if entry.deflated {
            self.budget.charge(entry.size as usize)?;
            // grows with the inflated bytes, not with the size in the directory
            let mut inflated = Vec::new();
            let read = flate2::read::DeflateDecoder::new(packed)
                .take(entry.size + 1)
                .read_to_end(&mut inflated);
            read.map_err(|e| {
                Error::format(format!("entry {} cannot be inflated: {e}", quoted(name)))
            })?;
            Cow::Owned(inflated)
        } else {
            Cow::Borrowed(packed)
        };
        let mut crc = Crc::new();
        crc.update(&content);
        if content.len() as u64 != entry.size || crc.sum() != entry.checksum {
            return Err(Error::format(format!(
                "entry {} is damaged: its length or checksum differs from the directory",
                quoted(name)
            )));
        }
        Ok(content)
    }
}

/// The error for bytes that are not an archive of kind `wanted`: `error` of [`Zip::parse`], or one
/// that names the kind of file.
pub(super) fn not_an_archive(bytes: &[u8], error: Error, wanted: &str) -> Error {
    // a damaged archive has the signature of a zip archive: keep `error`
    let zip = bytes.starts_with(b"PK");
    let safetensors = bytes.get(8) == Some(&b'{') && bytes.len() as u64 > u64_at(bytes, 0);
    if safetensors {
        return Error::format(format!("this is a safetensors file, not {wanted}"))
            .help("store.load(path), or SafeTensors::open(path)");
    }
    file_kind::other_kind(bytes, wanted).filter(|_| !zip).unwrap_or(error)
}

/// The number of entries and the position of the directory.
fn directory(bytes: &[u8]) -> Result<(u64, u64)> {
    // only a comment of at most 65,535 bytes may follow the end record
    let first = bytes.len().saturating_sub(22 + 65_535);
    let end = bytes[first..].windows(22).rposition(|w| w.starts_with(b"PK\x05\x06"));
    let end =
        first + end.ok_or_else(|| Error::format("not a zip archive: the directory is missing"))?;
    let (count, at) = (u16_at(bytes, end + 10), u32_at(bytes, end + 16));
    if count != u16::MAX && at != u32::MAX {
        return Ok((count.into(), at.into()));
    }
    let locator = end.checked_sub(20).filter(|&i| bytes[i..].starts_with(b"PK\x06\x07"));
    let Some(locator) = locator else { return Ok((count.into(), at.into())) };
    let record = slice(bytes, u64_at(bytes, locator + 8), 56)?;
    if !record.starts_with(b"PK\x06\x06") {
        return Err(Error::format("the 64-bit record of the directory is missing"));
    }
    Ok((u64_at(record, 32), u64_at(record, 48)))
}

/// Size, packed size and position, from the extra field where they exceed 32 bits.
fn sizes_u64(sizes: [u32; 3], extra: &[u8]) -> Result<[u64; 3]> {
    let mut sizes = sizes.map(u64::from);
    let mut rest = extra;
    while rest.len() >= 4 {
        let (kind, length) = (u16_at(rest, 0), u16_at(rest, 2) as usize);
        let field = rest
            .get(4..4 + length)
            .ok_or_else(|| Error::format("the extra field of an entry ends early"))?;
        if kind == 1 {
            let mut numbers = field.chunks_exact(8);
            for value in sizes.iter_mut().filter(|v| **v == u64::from(u32::MAX)) {
                let number = numbers
                    .next()
                    .ok_or_else(|| Error::format("the 64-bit sizes of an entry are missing"))?;
                *value = u64_at(number, 0);
            }
        }
        rest = &rest[4 + length..];
    }
    Ok(sizes)
}

fn slice(bytes: &[u8], at: u64, length: u64) -> Result<&[u8]> {
    let found = at
        .checked_add(length)
        .and_then(|end| bytes.get(usize::try_from(at).ok()?..usize::try_from(end).ok()?));
    found.ok_or_else(|| {
        Error::format(format!(
            "the archive has {} bytes, but refers to {length} at {at}",
            bytes.len()
        ))
    })
}

fn u16_at(bytes: &[u8], i: usize) -> u16 {
    u16::from_le_bytes([bytes[i], bytes[i + 1]])
}

fn u32_at(bytes: &[u8], i: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|k| bytes[i + k]))
}

fn u64_at(bytes: &[u8], i: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|k| bytes[i + k]))
}

/// Writes an archive of entries made one at a time: `content(i)` is the content of `names[i]`.
pub(super) fn write(
    writer: &mut dyn Write,
    names: &[String],
    deflate: bool,
    content: impl Fn(usize) -> Result<Vec<u8>>,
) -> Result<()> {
    let mut directory = Vec::new();
    let mut at = 0u64;
    for (i, name) in names.iter().enumerate() {
        let content = content(i)?;
        let mut crc = Crc::new();
        crc.update(&content);
        let packed = if deflate {
            let mut encoder =
                flate2::write::DeflateEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(&content).and_then(|()| encoder.finish()).map_err(write_error)?
        } else {
            Vec::new()
        };
        let data = if deflate { &packed } else { &content };
        // version 2.0, names in UTF-8, method; the date is always 1980-01-01, so that equal arrays
        // make equal files
        let mut common = Vec::new();
        for field in [20u16, 1 << 11, if deflate { 8 } else { 0 }, 0, 0x0021] {
            common.extend(field.to_le_bytes());
        }
        common.extend(crc.sum().to_le_bytes());
        for size in [data.len(), content.len()] {
            common.extend(size_u32(size as u64)?.to_le_bytes());
        }
        let name_size = u16::try_from(name.len()).map_err(|_| {
            Error::value(format!("a name of {} bytes is too long for a zip archive", name.len()))
        })?;
        common.extend(name_size.to_le_bytes());
        common.extend([0, 0]); // no extra field
        let header = [b"PK\x03\x04", &common[..], name.as_bytes()].concat();
        // made by 2.0; no comment, first disk, no attributes
        directory.extend([b"PK\x01\x02\x14\x00", &common[..], &[0; 10]].concat());
        directory.extend(size_u32(at)?.to_le_bytes());
        directory.extend(name.as_bytes());
        writer.write_all(&header).and_then(|()| writer.write_all(data)).map_err(write_error)?;
        at += (header.len() + data.len()) as u64;
    }
    let count = u16::try_from(names.len()).ok().filter(|&n| n < u16::MAX);
    let count = count.ok_or_else(|| {
        Error::value(format!("{} entries are too many for this archive", names.len()))
    })?;
    let mut end = b"PK\x05\x06\0\0\0\0".to_vec();
    end.extend([count.to_le_bytes(), count.to_le_bytes()].concat());
    end.extend(size_u32(directory.len() as u64)?.to_le_bytes());
    end.extend(size_u32(at)?.to_le_bytes());
    end.extend([0, 0]);
    writer
        .write_all(&directory)
        .and_then(|()| writer.write_all(&end))
        .and_then(|()| writer.flush())
        .map_err(write_error)
}

/// A size in 32 bits.
fn size_u32(size: u64) -> Result<u32> {
    let fits = u32::try_from(size).ok().filter(|&n| n < u32::MAX);
    fits.ok_or_else(|| {
        Error::value(format!("{size} bytes are too many for this archive"))
            .help("safetensors files have no such limit")
    })
}
