//! The part of a buffer that a launch binds: tensors larger than one binding are covered window by
//! window.

use crate::device::launch::Binding;
use crate::device::storage::Memory;
use teeny_core::storage::downcast;
use teeny_core::{Result, StorageRef};

/// Windows begin at multiples of this many elements, so that they begin at aligned bytes for every
/// type.
pub(crate) const WINDOW_ALIGNMENT: usize = 256;

/// The binding of the elements from `low` to `high`, relative to `offset`, of a storage with
/// elements of `size` bytes, and the offset in it; nothing if they are further apart than `limit`
/// bytes.
pub(crate) fn bind_window<'a>(
    storage: &'a StorageRef,
    offset: isize,
    size: usize,
    low: isize,
    high: isize,
    limit: u64,
) -> Result<Option<(Binding<'a>, isize)>> {
    let memory = downcast::<Memory>(storage)?;
    let buffer = memory.buffer();
    if memory.bound() <= limit {
        return Ok(Some((
            Binding { buffer, offset: memory.start(), bytes: memory.bound() },
            offset,
        )));
    }
    let from =
        (((offset + low) as u64) * size as u64) / WINDOW_ALIGNMENT as u64 * WINDOW_ALIGNMENT as u64;
    let to = (((offset + high + 1) as u64) * size as u64).next_multiple_of(32).min(memory.bound());
    Ok((to - from <= limit).then(|| {
        (
            Binding { buffer, offset: memory.start() + from, bytes: to - from },
            offset - (from / size as u64) as isize,
        )
    }))
}
