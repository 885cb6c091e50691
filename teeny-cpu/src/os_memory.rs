//! Memory from the operating system: malloc for small blocks, mmap with huge pages from 2 MiB on.
//! Always zeroed, aligned to 64 bytes.
//!
//! Page faults cost 0.6 us per 4 KiB page; with transparent huge pages a fresh 64 MB output costs a
//! third of malloc's.

use std::alloc::Layout;
use std::ptr::NonNull;
use teeny_core::memory;

/// The size from which blocks are mapped, with huge pages.
#[cfg(unix)]
const MAPPED: usize = 2 << 20;

fn layout(size: usize) -> Option<Layout> {
    Layout::from_size_align(size, 64).ok()
}

/// `size` zeroed bytes, or none if the operating system has none or the limit of a container does
/// not allow them.
pub(crate) fn alloc(size: usize) -> Option<NonNull<u8>> {
    if !memory::allowed(size) {
        return None;
    }
    let block = zeroed(size)?;
    if memory::is_limited() {
        for page in (0..size).step_by(4096) {
            // SAFETY: the block has these bytes and no other owner.
            unsafe { block.add(page).write_volatile(0) }
        }
    }
    Some(block)
}

fn zeroed(size: usize) -> Option<NonNull<u8>> {
    #[cfg(unix)]
    if size >= MAPPED {
        return map(size);
    }
    // SAFETY: no class is empty, so the layout has a size.
    NonNull::new(unsafe { std::alloc::alloc_zeroed(layout(size)?) })
}

/// Returns a block to the operating system.
///
/// # Safety
/// `block` came from `alloc(size)` and is not used again.
pub(crate) unsafe fn free(block: NonNull<u8>, size: usize) {
    #[cfg(unix)]
    if size >= MAPPED {
        // SAFETY: `map` left exactly this range mapped.
        unsafe { libc::munmap(block.as_ptr().cast(), size) };
        return;
    }
    if let Some(layout) = layout(size) {
        // SAFETY: allocated with this layout.
        unsafe { std::alloc::dealloc(block.as_ptr(), layout) }
    }
}

/// Maps `size` bytes (a multiple of the page size) at a multiple of 2 MiB: maps more, then
/// unmaps both ends.
#[cfg(unix)]
fn map(size: usize) -> Option<NonNull<u8>> {
    let total = size.checked_add(MAPPED)?;
    // SAFETY: an anonymous private mapping touches no existing memory; the unmapped parts are
    // inside it.
    unsafe {
        let (read_write, private) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let start = libc::mmap(std::ptr::null_mut(), total, read_write, private, -1, 0);
        if start == libc::MAP_FAILED {
            return None;
        }
        let start = start.cast::<u8>();
        let head = start.addr().next_multiple_of(MAPPED) - start.addr();
        let block = start.add(head);
        if head > 0 {
            libc::munmap(start.cast(), head);
        }
        if MAPPED > head {
            libc::munmap(block.add(size).cast(), MAPPED - head);
        }
        #[cfg(target_os = "linux")]
        libc::madvise(block.cast(), size, libc::MADV_HUGEPAGE);
        NonNull::new(block)
    }
}
