//! Host memory for values: a failed allocation is an error, not an abort.
//!
//! All host memory whose size a caller chooses is allocated here. Devices allocate their own, and
//! ask [`allowed`] before.

mod control_group;

pub use control_group::{allowed, is_limited};

use crate::context::enter;
use crate::error::{Error, Result};

/// The size from which memory of the host is compared with the limit of the system.
const LARGE: usize = 1 << 20;

/// An empty `Vec` with capacity for `len` values.
///
/// # Errors
/// [`ErrorKind::OutOfMemory`](crate::ErrorKind::OutOfMemory), which names the operation in progress
/// and the bytes, if the allocation fails or the bytes overflow an `isize`.
#[track_caller]
pub fn reserved<T>(len: usize) -> Result<Vec<T>> {
    let mut values = Vec::new();
    let bytes = len.saturating_mul(size_of::<T>());
    if bytes >= LARGE && !allowed(bytes) || values.try_reserve_exact(len).is_err() {
        return Err(no_memory("memory::reserved", len, size_of::<T>()));
    }
    Ok(values)
}

/// `len` copies of `value`.
///
/// # Errors
/// As [`reserved`].
#[track_caller]
pub fn filled<T: Clone>(value: T, len: usize) -> Result<Vec<T>> {
    let _op = enter("memory::filled");
    let mut values = reserved(len)?;
    values.resize(len, value);
    Ok(values)
}

/// The values of `iter`, an iterator of known length.
///
/// # Errors
/// As [`reserved`].
#[track_caller]
pub fn collected<T>(iter: impl ExactSizeIterator<Item = T>) -> Result<Vec<T>> {
    let _op = enter("memory::collected");
    let mut values = reserved(iter.len())?;
    values.extend(iter);
    Ok(values)
}

#[cold]
#[track_caller]
fn no_memory(op: &'static str, len: usize, size: usize) -> Error {
    let _op = enter(op);
    let bytes = len as u128 * size as u128;
    Error::out_of_memory(format!("the host has no memory for {len} values ({bytes} bytes)"))
        .help("a smaller size or dtype needs less; x.split(axis, size)? gives parts to work on")
        .note(refusal())
}

/// Why the system has no more memory, for a note of an error: the operating system refused it, or
/// the limit of the control group.
pub fn refusal() -> String {
    match control_group::limit() {
        Some((limit, free)) => format!(
            "the control group of this process may have {limit} bytes of memory, of which {free} \
             are free"
        ),
        None => "the operating system refused it".to_string(),
    }
}
