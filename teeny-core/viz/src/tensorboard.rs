//! Event files that TensorBoard shows.
//!
//! ```text
//! file    records: length u64, crc of it, an Event, crc of it         TFRecord
//! Event   wall_time, step, and a version or a Summary with one Value  protobuf
//! Value   tag, and a number, an Image or a HistogramProto
//! ```
//!
//! Source: tensorflow/core/util/event.proto and summary.proto, lib/io/record_writer.cc.

use super::Image;
use super::histograms::counts;
use super::image::range_of;
use super::numbers;
use std::fs::{File, OpenOptions, create_dir_all};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use teeny_core::context::enter;
use teeny_core::file::reason;
use teeny_core::{Error, Result, Tensor};

/// The buckets of a histogram, as many as TensorBoard shows.
const BUCKETS: usize = 30;

/// An event file in a folder, which `tensorboard --logdir FOLDER` shows while the run writes it.
///
/// # Example
/// ```
/// use teeny_core::{Reference, Tensor};
/// use teeny_viz::TensorBoard;
/// # fn main() -> teeny_core::Result<()> {
/// # let folder = std::env::temp_dir().join(format!("teeny-board-{}", std::process::id()));
/// # let weights = Tensor::new([0.1f32, -0.2, 0.3], &Reference::new())?;
/// let mut board = TensorBoard::create(&folder)?;
/// for step in 0..3 {
///     board.scalar("loss/train", step, 1.0 / (step + 1) as f64)?;
/// }
/// board.histogram("fc.weight", 2, &weights)?;
/// # std::fs::remove_dir_all(&folder).unwrap();
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct TensorBoard {
    path: PathBuf,
    file: File,
}

impl TensorBoard {
    /// A new event file in `folder`, which is created if missing. Several files in one folder are
    /// one run: a resumed run makes another one.
    ///
    /// # Errors
    /// If the folder or the file cannot be made.
    #[track_caller]
    pub fn create(folder: impl AsRef<Path>) -> Result<TensorBoard> {
        let _op = enter("TensorBoard::create");
        let folder = folder.as_ref();
        let fail = |path: &Path, e: &std::io::Error| {
            Error::io(format!("cannot create {}: {}", path.display(), reason(path, e)))
        };
        create_dir_all(folder).map_err(|e| fail(folder, &e))?;
        let mut number = 0;
        loop {
            // TensorBoard reads the files of a folder in the order of their names
            let (seconds, id) = (now() as u64, std::process::id());
            let path =
                folder.join(format!("events.out.tfevents.{seconds:010}.teeny.{id}.{number}"));
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(file) => {
                    let mut board = TensorBoard { path, file };
                    board.put(&record(now(), 0, &bytes(3, b"brain.Event:2")))?;
                    return Ok(board);
                }
                Err(e) if e.kind() == ErrorKind::AlreadyExists => number += 1,
                Err(e) => return Err(fail(&path, &e)),
            }
        }
    }

    /// Adds a number to the curve `tag`; a slash in it makes a group. It is stored as f32.
    ///
    /// # Errors
    /// If the file cannot be written.
    #[track_caller]
    pub fn scalar(&mut self, tag: &str, step: u64, value: f64) -> Result<()> {
        let _op = enter("tensorboard.scalar");
        self.put(&record(now(), step, &summary(tag, &scalar(value))))
    }

    /// Adds a histogram of the finite values of `x`, of any shape; without any, nothing. Reads the
    /// tensor from the device.
    ///
    /// # Errors
    /// If the device fails, or the file cannot be written.
    #[track_caller]
    pub fn histogram(&mut self, tag: &str, step: u64, x: &Tensor) -> Result<()> {
        let _op = enter("tensorboard.histogram");
        match histogram(&numbers(x)?) {
            Some(value) => self.put(&record(now(), step, &summary(tag, &value))),
            None => Ok(()),
        }
    }

    /// Adds an image.
    ///
    /// # Errors
    /// If the file cannot be written.
    #[track_caller]
    pub fn image(&mut self, tag: &str, step: u64, image: &Image) -> Result<()> {
        let _op = enter("tensorboard.image");
        self.put(&record(now(), step, &summary(tag, &picture(image))))
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a record in one system call, so that the records of a killed run are whole.
    fn put(&mut self, record: &[u8]) -> Result<()> {
        let written = self.file.write_all(record);
        written.map_err(|e| Error::io(format!("cannot write {}: {e}", self.path.display())))
    }
}

/// Seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// The record of an event with this content.
fn record(wall_time: f64, step: u64, content: &[u8]) -> Vec<u8> {
    let event = [&double(1, wall_time), &integer(2, step), content].concat();
    let length = (event.len() as u64).to_le_bytes();
    let sum = |bytes: &[u8]| masked_crc(bytes).to_le_bytes();
    [&length[..], &sum(&length), &event, &sum(&event)].concat()
}

fn summary(tag: &str, value: &[u8]) -> Vec<u8> {
    bytes(5, &bytes(1, &[&bytes(1, tag.as_bytes()), value].concat()))
}

/// `simple_value`, a float, also if it is 0.
fn scalar(value: f64) -> Vec<u8> {
    [&key(2, 5)[..], &(value as f32).to_le_bytes()].concat()
}

fn picture(image: &Image) -> Vec<u8> {
    let (height, width) = (image.height() as u64, image.width() as u64);
    const RGB: u64 = 3;
    let fields = [integer(1, height), integer(2, width), integer(3, RGB), bytes(4, &image.png())];
    bytes(4, &fields.concat())
}

/// A HistogramProto with buckets of equal width; each has its upper limit.
fn histogram(values: &[f64]) -> Option<Vec<u8>> {
    let values: Vec<f64> = values.iter().copied().filter(|v| v.abs() <= 1e300).collect();
    let (low, high) = range_of(&values).ok()?;
    let limit = |i: usize| low + (high - low) * (i + 1) as f64 / BUCKETS as f64;
    let packed = |all: &[f64]| all.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let fields = [
        double(1, low),
        double(2, high),
        double(3, values.len() as f64),
        double(4, values.iter().sum()),
        double(5, values.iter().map(|x| x * x).sum()),
        bytes(6, &packed(&(0..BUCKETS).map(limit).collect::<Vec<_>>())),
        bytes(7, &packed(&counts(&values, low, high, BUCKETS))),
    ];
    Some(bytes(5, &fields.concat()))
}

/// The number and wire type of a field: 0 is a varint, 1 has 8 bytes, 2 a length, 5 has 4 bytes.
fn key(field: u64, wire: u64) -> Vec<u8> {
    varint(field << 3 | wire)
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut all = Vec::new();
    while value >= 0x80 {
        all.push(value as u8 | 0x80);
        value >>= 7;
    }
    all.push(value as u8);
    all
}

/// An integer; one that is 0 is left out, as protobuf does.
fn integer(field: u64, value: u64) -> Vec<u8> {
    if value == 0 { Vec::new() } else { [key(field, 0), varint(value)].concat() }
}

fn double(field: u64, value: f64) -> Vec<u8> {
    let is_zero = value.to_bits() == 0;
    if is_zero { Vec::new() } else { [&key(field, 1)[..], &value.to_le_bytes()].concat() }
}

fn bytes(field: u64, value: &[u8]) -> Vec<u8> {
    [&key(field, 2), &varint(value.len() as u64), value].concat()
}

/// CRC-32C with the mask of TFRecord. Source: RFC 3720, appendix B.4, with its polynomial reversed.
fn masked_crc(bytes: &[u8]) -> u32 {
    let crc = !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            crc >> 1 ^ (0x82f6_3b78 & (crc & 1).wrapping_neg())
        })
    });
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_the_bytes_that_protobuf_and_tensorboard_write() {
        let values: Vec<f64> = (0..50).map(|i| f64::from(i * i) / 16.0 - 20.0).collect();
        let records = [
            record(1.5, 0, &bytes(3, b"brain.Event:2")),
            record(2.5, 0, &summary("loss/train", &scalar(0.625))),
            record(3.5, 300, &summary("zero", &scalar(0.0))),
            record(4.5, 1 << 40, &summary("nan", &scalar(f64::NAN))),
            record(5.5, 7, &summary("größe", &histogram(&values).unwrap())),
        ];
        let golden = include_bytes!("../tests/golden/events.tfevents");
        assert_eq!(records.concat(), golden);
        assert_eq!(histogram(&[f64::NAN]), None);
    }

    #[test]
    fn a_checksum_is_that_of_its_standard() {
        // RFC 3720, appendix B.4: 32 bytes of zeros, and of ones
        let unmasked = |bytes: &[u8]| masked_crc(bytes).wrapping_sub(0xa282_ead8).rotate_left(15);
        assert_eq!([unmasked(&[0; 32]), unmasked(&[255; 32])], [0x8a91_36aa, 0x62a8_ab43]);
    }
}
