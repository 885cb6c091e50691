//! Positions outside their axis, which only a shader sees: where gather and scatter note them, and
//! how the note becomes an error.
//!
//! ```text
//! fault   slot 0   slot 1   …   slot 63        each launch that follows indices has a slot: first place, least and largest index outside
//! read    [ the tensor's bytes | fault ]       one copy, one wait: every read-back carries the notes along
//! ```
//!
//! Such positions are never used as addresses. With [`Shaders::Checked`] each call waits and
//! returns the error itself; with trusted shaders that would cost more than the work, so the next
//! read or [`teeny_core::Device::synchronize`] returns it, with the operation and the user's line
//! of the call that made it.

use crate::adapter::Shaders;
use crate::device::Wgpu;
use crate::error::lock;
use crate::stream::Part;
use std::collections::VecDeque;
use std::sync::{Mutex, OnceLock};
use teeny_core::context::{self, OpContext};
use teeny_core::{DType, Error, Result, Shape, Tensor};

/// Launches between two reads whose notes can be told apart.
const SLOTS: u64 = 64;
const SLOT_WORDS: usize = 4;
/// The bytes of all notes.
pub(crate) const BYTES: u64 = SLOTS * SLOT_WORDS as u64 * 4;

/// One launch that follows indices.
struct Record {
    context: Option<OpContext>,
    /// The length of the axis.
    size: usize,
    /// The shape of the index, if the launch saw all of it.
    shape: Option<Shape>,
}

#[derive(Default)]
struct Log {
    /// Launches so far.
    next: u64,
    /// How many of them are known to be right.
    clean: u64,
    /// The last ones, at most one for each slot; the last record is that of launch `next - 1`.
    records: VecDeque<Record>,
}

/// The notes of a device.
#[derive(Default)]
pub(crate) struct Faults {
    buffer: OnceLock<wgpu::Buffer>,
    log: Mutex<Log>,
}

/// What a shader says about indices of type `index`: the function `note(place, k)` for the buffer
/// `fault` at `binding`, the slot at word `slot`.
pub(crate) fn wgsl(binding: usize, index: DType, slot: &str) -> String {
    let ty = crate::generator::types::value(index);
    // The index as a number that grows with it, cut to 32 bits: -2^31 is 0.
    let biased = match ty {
        "u32" => "min(k, 0x7fffffffu) + 0x80000000u",
        "i32" => "bitcast<u32>(k) ^ 0x80000000u",
        "u64" => "u32(min(k, 0x7ffffffflu)) + 0x80000000u",
        _ => {
            "select(select(u32(bitcast<u64>(k) & 0xfffffffflu) ^ 0x80000000u, 0u, k < -2147483648li), 0xffffffffu, k > 2147483647li)"
        }
    };
    format!(
        "@group(0) @binding({binding}) var<storage, read_write> fault: array<atomic<u32>>;\nfn note(place: u32, k: {ty}) {{\n    let at = {slot};\n    \
         let number = {biased};\n    atomicMin(&fault[at], place);\n    atomicMin(&fault[at + 1u], number);\n    atomicMin(&fault[at + 2u], ~number);\n}}\n"
    )
}

impl Faults {
    /// The launches that no read has vouched for, as the number of the first one to come; `None` if
    /// there are none.
    pub fn outstanding(&self) -> Option<(&wgpu::Buffer, u64)> {
        let log = lock(&self.log);
        self.buffer.get().filter(|_| log.next > log.clean).map(|buffer| (buffer, log.next))
    }

    /// The error in the notes `words`, copied when `upto` launches had been recorded.
    fn judge(&self, words: &[u32], upto: u64) -> Result<()> {
        let mut log = lock(&self.log);
        let clean = std::mem::replace(&mut log.clean, upto);
        let first = upto.saturating_sub(SLOTS).max(clean);
        let found = (first..upto).find(|ticket| words[slot(*ticket)] != u32::MAX);
        let record = found.and_then(|ticket| {
            let back = (log.next - ticket) as usize;
            // A slot that served two launches since the last read does not say which of them was
            // wrong.
            let shared = ticket >= clean + SLOTS;
            log.records.len().checked_sub(back).filter(|_| !shared).map(|i| &log.records[i])
        });
        let Some(ticket) = found else { return Ok(()) };
        let [place, least, largest] =
            [words[slot(ticket)], words[slot(ticket) + 1], !words[slot(ticket) + 2]];
        let [least, largest] = [least, largest].map(|n| n as i64 - (1 << 31));
        let Some(Record { context, size, shape }) = record else {
            return Err(Error::index(format!(
                "a gather or scatter since the last read had the index {least}, outside its axis"
            ))
            .help(HINT));
        };
        let who = context.map_or("gather or scatter".to_string(), |c| {
            format!("{} at {}:{}", c.op, c.location.file(), c.location.line())
        });
        let place = shape
            .map_or(String::new(), |shape| format!("{:?}", coordinates(place as usize, &shape)));
        let which = match least == largest {
            true => format!("index{place} is {least}"),
            false => format!("index{place} and others between {least} and {largest} are outside"),
        };
        Err(Error::index(format!("{who}: {which}, but the axis has size {size}")).help(HINT))
    }
}

const HINT: &str =
    "found when the GPU was read; TEENY_WGPU_CHECKED=1 gets the error from the call itself";

fn slot(ticket: u64) -> usize {
    (ticket % SLOTS) as usize * SLOT_WORDS
}

/// The coordinates of element number `flat` of `shape`.
fn coordinates(flat: usize, shape: &Shape) -> Vec<usize> {
    let mut rest = flat;
    let mut place: Vec<usize> = shape.iter().rev().map(|&n| (rest % n, rest /= n).0).collect();
    place.reverse();
    place
}

impl Wgpu {
    /// The notes as a shader sees them, and the word where the slot of the launch that is being
    /// made begins. Its axis has `size` elements, its index `shape`, or `None` if it is part of a
    /// larger one.
    pub(crate) fn fault(&self, size: usize, shape: Option<&Shape>) -> (Part<'_>, u32) {
        let buffer = self.faults.buffer.get_or_init(|| {
            let usage = wgpu::BufferUsages::STORAGE
                | wgpu::BufferUsages::COPY_SRC
                | wgpu::BufferUsages::COPY_DST;
            let buffer = self.device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("teeny fault"),
                size: BYTES,
                usage,
                mapped_at_creation: false,
            });
            self.queue.write_buffer(&buffer, 0, &[0xff; BYTES as usize]);
            buffer
        });
        let mut log = lock(&self.faults.log);
        let ticket = log.next;
        log.next += 1;
        if log.records.len() == SLOTS as usize {
            log.records.pop_front();
        }
        log.records.push_back(Record { context: context::current(), size, shape: shape.copied() });
        (Part { buffer, offset: 0, bytes: BYTES }, slot(ticket) as u32)
    }

    /// The error in `notes`, the bytes of the buffer when `upto` launches had been recorded;
    /// forgets it.
    pub(crate) fn check_notes(&self, notes: &[u8], upto: u64) -> Result<()> {
        let words: Vec<u32> = bytemuck::pod_collect_to_vec(notes);
        let checked = self.faults.judge(&words, upto);
        if checked.is_err()
            && let Some(buffer) = self.faults.buffer.get()
        {
            self.queue.write_buffer(buffer, 0, &[0xff; BYTES as usize]);
        }
        checked
    }

    /// The error of a position outside its axis that nobody has been told of; waits if there may be
    /// one.
    ///
    /// # Errors
    /// That error.
    pub(crate) fn check_fault(&self) -> Result<()> {
        let Some((buffer, upto)) = self.faults.outstanding() else { return Ok(()) };
        let notes = pollster::block_on(self.read_range(buffer, 0, BYTES as usize, None, true))?;
        self.check_notes(&notes, upto)
    }

    /// With checked shaders: waits, and names the first position of `index` outside the axis of
    /// `shape`.
    ///
    /// # Errors
    /// That error.
    pub(crate) fn found_outside(&self, index: &Tensor, axis: usize, shape: &Shape) -> Result<()> {
        if self.shaders == Shaders::Trusted {
            return Ok(());
        }
        let Err(noted) = self.check_fault() else { return Ok(()) };
        self.first_outside(index, axis, shape)?;
        Err(noted)
    }

    /// Waits, and names the first position of `index` outside the axis of `shape`.
    ///
    /// # Errors
    /// That error.
    pub(crate) fn first_outside(&self, index: &Tensor, axis: usize, shape: &Shape) -> Result<()> {
        let (size, ty) = (shape[axis], index.dtype());
        for (flat, bytes) in self.download_bytes(index)?.chunks(ty.size()).enumerate() {
            let mut word =
                [if ty.is_signed_int() && bytes[bytes.len() - 1] > 127 { 0xff } else { 0 }; 16];
            word[..bytes.len()].copy_from_slice(bytes);
            let position = i128::from_le_bytes(word);
            if position < 0 || position >= size as i128 {
                let place = coordinates(flat, index.shape());
                return Err(Error::index(format!(
                    "index{place:?} is {position}, but axis {axis} of {shape} has size {size}"
                )));
            }
        }
        Ok(())
    }
}
