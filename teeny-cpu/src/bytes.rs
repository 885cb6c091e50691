//! Copies of runs of bytes: one run, or many of one length.
//!
//! The naive form is a call of the C library's `memcpy` for each run. A short run takes less time
//! than the call: it is moved by registers, the last of which may overlap the one before. Knows
//! nothing of tensors.

/// Bytes from which a call of `memcpy` is as fast as a loop of moves.
pub(crate) const LONG_COPY: usize = 512;
/// Distances from a source to its destination, modulo a page, at which `rep movsb`, the C library's
/// copy of more than 2 KiB, takes ten times as long on AMD's Zen 3 and 4.
const ALIASED: std::ops::Range<usize> = 1..64;
/// Bytes of a page.
const PAGE: usize = 4096;

/// Copies `bytes >= 64` bytes.
///
/// # Safety
/// Both are valid for that many bytes and do not overlap.
pub(crate) unsafe fn copy_long(from: *const u8, to: *mut u8, bytes: usize) {
    let distance = to.addr().wrapping_sub(from.addr()) % PAGE;
    // SAFETY: passed on.
    unsafe {
        match ALIASED.contains(&distance) {
            true => copy_by::<64>(from, to, bytes),
            false => std::ptr::copy_nonoverlapping(from, to, bytes),
        }
    }
}

/// Copies `bytes >= W` bytes by moves of `W` bytes, the last of which may overlap the one before: no
/// call, and no loop over the rest.
///
/// # Safety
/// Both are valid for that many bytes and do not overlap.
#[inline(always)]
pub(crate) unsafe fn copy_by<const W: usize>(from: *const u8, to: *mut u8, bytes: usize) {
    let last = bytes - W;
    let mut at = 0;
    // SAFETY: by contract; an array of bytes has no alignment.
    unsafe {
        while at < last {
            to.add(at).cast::<[u8; W]>().write(from.add(at).cast::<[u8; W]>().read());
            at += W;
        }
        to.add(last).cast::<[u8; W]>().write(from.add(last).cast::<[u8; W]>().read());
    }
}

/// Copies a row of `bytes` bytes, which may be few.
///
/// # Safety
/// Both are valid for that many bytes and do not overlap.
#[inline(always)]
pub(crate) unsafe fn copy_bytes(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: passed on.
    unsafe {
        match bytes {
            LONG_COPY.. => copy_long(from, to, bytes),
            32.. => copy_by::<32>(from, to, bytes),
            16.. => copy_by::<16>(from, to, bytes),
            8.. => copy_by::<8>(from, to, bytes),
            4.. => copy_by::<4>(from, to, bytes),
            2.. => copy_by::<2>(from, to, bytes),
            1 => to.write(from.read()),
            0 => {}
        }
    }
}

/// Copies `count` rows of `bytes` bytes, which begin `steps` bytes apart at `from` and at `to`.
///
/// # Safety
/// All rows of both are valid, and none overlaps another one of the destination.
pub(crate) unsafe fn copy_each(
    from: *const u8,
    to: *mut u8,
    steps: [isize; 2],
    count: usize,
    bytes: usize,
) {
    // SAFETY: passed on.
    unsafe {
        match bytes {
            LONG_COPY.. => each_by(from, to, steps, count, |from, to| copy_long(from, to, bytes)),
            32.. => each_by(from, to, steps, count, |from, to| copy_by::<32>(from, to, bytes)),
            16.. => each_by(from, to, steps, count, |from, to| copy_by::<16>(from, to, bytes)),
            8.. => each_by(from, to, steps, count, |from, to| copy_by::<8>(from, to, bytes)),
            4.. => each_by(from, to, steps, count, |from, to| copy_by::<4>(from, to, bytes)),
            2.. => each_by(from, to, steps, count, |from, to| copy_by::<2>(from, to, bytes)),
            1 => each_by(from, to, steps, count, |from, to| to.write(from.read())),
            0 => {}
        }
    }
}

#[inline(always)]
fn each_by(
    mut from: *const u8,
    mut to: *mut u8,
    steps: [isize; 2],
    count: usize,
    copy: impl Fn(*const u8, *mut u8),
) {
    for _ in 0..count {
        copy(from, to);
        (from, to) = (from.wrapping_offset(steps[0]), to.wrapping_offset(steps[1]));
    }
}
