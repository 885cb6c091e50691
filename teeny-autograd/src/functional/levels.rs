//! The levels in progress on this thread: a call inside a function that is being differentiated
//! wraps the level of that function, so that its arguments and the tensors that it captures may be
//! of any level.

use std::cell::RefCell;
use teeny_core::device::{common, same};
use teeny_core::{DeviceRef, Error, Result, Tensor};

thread_local! {
    static LEVELS: RefCell<Vec<DeviceRef>> = const { RefCell::new(Vec::new()) };
}

/// Ends the level when dropped, also while a panic unwinds.
struct Guard;

impl Drop for Guard {
    fn drop(&mut self) {
        LEVELS.with_borrow_mut(|levels| levels.pop());
    }
}

/// Runs `body` with `level` as the innermost level in progress.
pub(super) fn with_level<T>(level: DeviceRef, body: impl FnOnce() -> T) -> T {
    LEVELS.with_borrow_mut(|levels| levels.push(level));
    let _guard = Guard;
    body()
}

/// The device that a new level for `x` wraps: the innermost level in progress around the device of
/// the tensors, or that device itself.
pub(super) fn inner_device(x: &[Tensor]) -> Result<DeviceRef> {
    let Some(first) = x.first() else { return Err(Error::value("needs at least one tensor")) };
    let device =
        x.iter().try_fold(first.device().clone(), |device, x| common(&device, x.device()))?;
    let around = |level: &&DeviceRef| common(level, &device).is_ok_and(|outer| same(&outer, level));
    Ok(LEVELS.with_borrow(|levels| levels.iter().rev().find(around).cloned()).unwrap_or(device))
}
