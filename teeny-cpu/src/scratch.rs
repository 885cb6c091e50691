//! Memory that a task works in, kept by its thread between tasks and calls, so that no task asks the allocator for it.

use crate::elementwise::cast::slice_mut;
use crate::gemm::Float;
use std::cell::RefCell;

/// Words of a cache line.
const LINE: usize = 8;

thread_local! {
    static MEMORY: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// Calls `f` with room for so many elements each, one after the other from a cache line on, whatever they hold. Not to be called inside `f`.
pub(crate) fn with_scratch<T: Float, const N: usize>(sizes: [usize; N], f: impl FnOnce([&mut [T]; N])) {
    MEMORY.with_borrow_mut(|memory| {
        let words = (sizes.iter().sum::<usize>() * size_of::<T>()).div_ceil(8);
        memory.resize(memory.len().max(words + LINE), 0);
        let first = memory.as_mut_ptr().wrapping_add(memory.as_ptr().align_offset(8 * LINE));
        // SAFETY: so many bytes on a cache line, and any bits are an element: T is f32 or f64.
        let mut rest = unsafe { slice_mut::<T>(first.cast::<u8>(), sizes.iter().sum()) };
        f(sizes.map(|size| {
            let (part, after) = std::mem::take(&mut rest).split_at_mut(size);
            rest = after;
            part
        }));
    });
}
