//! The checkpoint files of the page: files of [`Checkpoint`], with a checksum in the metadata.
//!
//! ```text
//! length of the header, {"__metadata__":{.., "page/checksum":"1c291ca3"}, ..}, tensors
//! ```
//!
//! The checksum is the CRC-32 of the file with eight zeros in its place, so safetensors readers
//! open the file as any other.

use flate2::Crc;
use std::ops::Range;
use teeny_core::Reference;
use teeny_core::file::quoted;
use teeny_formats::SafeTensors;
use teeny_nn::prelude::*;

/// The metadata entry, before it is [`seal`]ed: eight hexadecimal digits.
pub const UNSEALED: (&str, &str) = ("checksum", "00000000");

/// The entry as the header of a file has it, up to its digits.
const ENTRY: &[u8] = br#""page/checksum":""#;

/// Writes the checksum into a file whose part `page` has the value [`UNSEALED`].
///
/// # Errors
/// If it has none, or a tensor of the file has an element that is NaN or infinite.
pub fn seal(mut file: Vec<u8>) -> Result<Vec<u8>> {
    require_finite(&file)?;
    let digits = digits(&file).ok_or_else(|| Error::internal("the checkpoint has no checksum"))?;
    let sum = checksum(&file, &digits);
    file[digits].copy_from_slice(sum.as_bytes());
    Ok(file)
}

/// Checks the checksum of a file, and its tensors.
///
/// # Errors
/// If the checksum is absent or wrong, or a tensor has an element that is NaN or infinite.
pub fn verify(file: &[u8]) -> Result<()> {
    if file.is_empty() {
        return Err(Error::format("the file is empty"));
    }
    let Some(digits) = digits(file) else {
        return Err(Error::format("the file is damaged, or was not saved by this page"));
    };
    if file[digits.clone()] != *checksum(file, &digits).as_bytes() {
        return Err(Error::format("the file is damaged: its checksum does not match"));
    }
    require_finite(file)
}

/// The place of the checksum in the header of `file`.
fn digits(file: &[u8]) -> Option<Range<usize>> {
    let (length, rest) = file.split_first_chunk::<8>()?;
    let header = rest.get(..usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
    let start = header.windows(ENTRY.len()).position(|part| part == ENTRY)? + ENTRY.len();
    let end = start + UNSEALED.1.len();
    header.get(start..end)?;
    Some(length.len() + start..length.len() + end)
}

/// The CRC-32 of `file` with zeros as its `digits`, as digits.
fn checksum(file: &[u8], digits: &Range<usize>) -> String {
    let mut crc = Crc::new();
    crc.update(&file[..digits.start]);
    crc.update(UNSEALED.1.as_bytes());
    crc.update(&file[digits.end..]);
    format!("{:08x}", crc.sum())
}

fn require_finite(file: &[u8]) -> Result<()> {
    let archive = SafeTensors::from_bytes(file)?;
    let host = Reference::new();
    for name in archive.entries().keys() {
        let tensor = archive.tensor(name, &host)?;
        if tensor.dtype() == DType::F32 && !tensor.to_vec::<f32>()?.iter().all(|x| x.is_finite()) {
            let text = format!("{} has elements that are not finite numbers", quoted(name));
            return Err(Error::value(text));
        }
    }
    Ok(())
}
