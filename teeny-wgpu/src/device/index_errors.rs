//! Indices outside their axis, which only a shader sees: the records that gather and scatter write,
//! and the errors that they become.
//!
//! ```text
//! records   0 │ 1 │ … │ 63        one a launch: first place, least and largest wrong index
//! read      [ bytes │ records ]   one copy, one wait: every read brings the records along
//! ```
//!
//! Such indices are never used as addresses. With [`crate::Shaders::Checked`] each call waits and
//! returns the error itself; with trusted shaders that would cost more than the work, so the next
//! read or [`teeny_core::Device::synchronize`] returns it, with the operation and the user's line
//! of the call that made it.

use crate::device::launch::Binding;
use crate::device::lock::lock;
use std::collections::VecDeque;
use std::sync::{Mutex, OnceLock};
use teeny_core::context::{self, OpContext};
use teeny_core::{Error, Layout, Result};

/// Launches between two reads whose records are distinct.
const RECORDS: u64 = 64;
const RECORD_WORDS: usize = 4;
/// The bytes of all records.
pub(crate) const RECORD_BYTES: u64 = RECORDS * RECORD_WORDS as u64 * 4;

/// One launch with indices.
struct Indexed {
    context: Option<OpContext>,
    /// The length of the axis.
    size: usize,
    /// The layout of the index, if the launch saw all of it.
    layout: Option<Layout>,
}

#[derive(Default)]
struct Log {
    /// The number of launches.
    next: u64,
    /// How many of them are known to be right.
    clean: u64,
    /// The last ones, at most one for each record; the last one is launch `next - 1`.
    launches: VecDeque<Indexed>,
}

/// The records of a device.
#[derive(Default)]
pub(crate) struct IndexErrors {
    buffer: OnceLock<wgpu::Buffer>,
    log: Mutex<Log>,
}

impl IndexErrors {
    /// The binding of the records, and the first word of the next launch's record. The axis of the
    /// launch has `size` elements; `layout` is its index's, or `None` if the index is part of a
    /// larger one.
    pub fn next(
        &self,
        device: &wgpu::Device,
        queue: &wgpu::Queue,
        size: usize,
        layout: Option<&Layout>,
    ) -> (Binding<'_>, u32) {
        let buffer = self.buffer.get_or_init(|| {
            let usage = wgpu::BufferUsages::STORAGE
                | wgpu::BufferUsages::COPY_SRC
                | wgpu::BufferUsages::COPY_DST;
            let buffer = device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("teeny index errors"),
                size: RECORD_BYTES,
                usage,
                mapped_at_creation: false,
            });
            queue.write_buffer(&buffer, 0, &[0xff; RECORD_BYTES as usize]);
            buffer
        });
        let mut log = lock(&self.log);
        let number = log.next;
        log.next += 1;
        if log.launches.len() == RECORDS as usize {
            log.launches.pop_front();
        }
        log.launches.push_back(Indexed {
            context: context::current(),
            size,
            layout: layout.copied(),
        });
        (Binding { buffer, offset: 0, bytes: RECORD_BYTES }, record_at(number) as u32)
    }

    /// The buffer of the records and the number of launches, if no read has checked all of them.
    pub fn unchecked(&self) -> Option<(&wgpu::Buffer, u64)> {
        let log = lock(&self.log);
        self.buffer.get().filter(|_| log.next > log.clean).map(|buffer| (buffer, log.next))
    }

    /// The error in `records`, the bytes of the buffer after `launches` launches; clears it.
    ///
    /// # Errors
    /// That error.
    pub fn check(&self, queue: &wgpu::Queue, records: &[u8], launches: u64) -> Result<()> {
        let words: Vec<u32> = bytemuck::pod_collect_to_vec(records);
        let checked = self.first_error(&words, launches);
        if checked.is_err()
            && let Some(buffer) = self.buffer.get()
        {
            queue.write_buffer(buffer, 0, &[0xff; RECORD_BYTES as usize]);
        }
        checked
    }

    fn first_error(&self, words: &[u32], launches: u64) -> Result<()> {
        let mut log = lock(&self.log);
        let clean = log.clean;
        log.clean = clean.max(launches); // reads may end in another order than they began
        let first = launches.saturating_sub(RECORDS).max(clean);
        let found = (first..launches).find(|number| words[record_at(*number)] != u32::MAX);
        let launch = found.and_then(|number| {
            let back = (log.next - number) as usize;
            // A record that served two launches since the last read does not say which of them was
            // wrong.
            let shared = number >= clean + RECORDS;
            log.launches.len().checked_sub(back).filter(|_| !shared).map(|i| &log.launches[i])
        });
        let Some(number) = found else { return Ok(()) };
        let at = record_at(number);
        let place = words[at];
        let [least, largest] = [words[at + 1], !words[at + 2]].map(|n| n as i64 - (1 << 31));
        let Some(Indexed { context, size, layout }) = launch else {
            return Err(Error::index(format!(
                "a gather or scatter since the last read had the index {least}, outside its axis"
            ))
            .help(HELP));
        };
        let call = context.map_or("gather or scatter".to_string(), |c| {
            format!("{} at {}:{}", c.op, c.location.file(), c.location.line())
        });
        let place = layout.map_or(String::new(), |layout| {
            format!("{:?}", layout.distinct_coordinates(place as usize))
        });
        let of = context.map_or(context::INDEX, |context| context.positions);
        let which = match (least == largest, of.expected) {
            (true, _) => format!("{}{place} is {}", of.name, of.value(least.into())),
            (false, Some(_)) => format!("{}{place} and others are wrong", of.name),
            (false, None) => {
                format!("{}{place} and others between {least} and {largest} are outside", of.name)
            }
        };
        let wanted = match of.expected {
            Some([expected, _]) => format!("expected {expected}"),
            None => format!("but the axis has size {size}"),
        };
        Err(Error::index(format!("{call}: {which}, {wanted}")).help(HELP))
    }
}

const HELP: &str =
    "found when the GPU was read; TEENY_WGPU_CHECKED=1 gets the error from the call itself";

/// The index of the first word of the record of a launch.
fn record_at(number: u64) -> usize {
    (number % RECORDS) as usize * RECORD_WORDS
}
