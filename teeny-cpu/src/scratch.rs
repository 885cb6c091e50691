//! Memory that a task works in, kept by its thread between tasks and calls, so that no task asks the allocator for it.

use crate::elementwise::cast::slice_mut;
use crate::gemm::Float;
use std::cell::RefCell;

/// A cache line: a vector that lies across two takes twice as long.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Line {
    _bytes: [u8; Line::BYTES],
}

impl Line {
    pub(crate) const BYTES: usize = 64;
    pub(crate) const ZEROS: Line = Line { _bytes: [0; Line::BYTES] };
}

thread_local! {
    static MEMORY: RefCell<Vec<Line>> = const { RefCell::new(Vec::new()) };
}

/// Calls `f` with room for so many elements each, one after the other from a cache line on, whatever they hold. Not to be called inside `f`.
pub(crate) fn with_scratch<T: Float, const N: usize>(sizes: [usize; N], f: impl FnOnce([&mut [T]; N])) {
    MEMORY.with_borrow_mut(|memory| {
        let lines = (sizes.iter().sum::<usize>() * size_of::<T>()).div_ceil(Line::BYTES);
        memory.resize(memory.len().max(lines), Line::ZEROS);
        // SAFETY: so many bytes on a cache line, and any bits are an element: T is f32 or f64.
        let mut rest = unsafe { slice_mut::<T>(memory.as_mut_ptr().cast::<u8>(), sizes.iter().sum()) };
        f(sizes.map(|size| {
            let (part, after) = std::mem::take(&mut rest).split_at_mut(size);
            rest = after;
            part
        }));
    });
}
