//! Operations that core defines in primitives and that are faster in one pass over a row in L1.

mod across;
mod along;
pub(crate) mod attention;
mod functions;
pub(crate) mod named;

use crate::storage::{CpuStorage, Shared, View};
use crate::{Cpu, copy};
use teeny_core::{Result, Shape};

/// An operand as rows of its last axis, as stored: itself if elements of a row follow one another,
/// or a row-major copy.
pub(crate) struct StoredRows {
    ptr: Shared<u8>,
    /// The axes before the last, and their strides in bytes.
    shape: Shape,
    strides: [isize; 8],
    /// Bytes of a row, if the rows follow one another.
    row_stride: Option<usize>,
    /// Keeps a copy alive.
    _copy: Option<CpuStorage>,
}

impl StoredRows {
    /// The rows of `view`, which has an axis.
    pub(crate) fn of(cpu: &Cpu, view: &View) -> Result<StoredRows> {
        let last = view.shape.ndim() - 1;
        let (length, size) = (view.shape[last], view.dtype.size());
        let mut rows = StoredRows {
            ptr: Shared(view.ptr.cast_mut()),
            shape: view.shape,
            strides: view.strides.map(|stride| stride * size as isize),
            row_stride: view.is_contiguous().then_some(length * size),
            _copy: None,
        };
        if rows.row_stride.is_none() && length > 1 && view.strides[last] != 1 {
            let copy = copy::contiguous(cpu, view)?;
            rows.ptr = Shared(copy.ptr());
            (rows.row_stride, rows._copy) = (Some(length * size), Some(copy));
        }
        Ok(rows)
    }

    /// Whether the rows follow one another.
    pub(crate) fn is_packed(&self) -> bool {
        self.row_stride.is_some()
    }

    /// The first byte of row `r`. It is only read.
    pub(crate) fn row(&self, mut r: usize) -> *const u8 {
        let first = self.ptr.get();
        if let Some(row_stride) = self.row_stride {
            return first.wrapping_add(r * row_stride);
        }
        let mut offset = 0;
        for axis in (0..self.shape.ndim() - 1).rev() {
            offset += (r % self.shape[axis]) as isize * self.strides[axis];
            r /= self.shape[axis];
        }
        first.wrapping_offset(offset)
    }
}
