//! Reading strided views in row-major order, a tile at a time.
//!
//! ```text
//!   (2, 3, 4) strides (12, 4, 1)  ─ merge ─►  (24) step 1          one long row
//!   (2, 3, 4) strides (0, 4, 1)   ─ merge ─►  (2, 12) steps 0, 1   rows of 12
//! ```
//! The naive form is one loop per axis around an offset that is the sum of index times stride. A
//! [`Walk`] merges neighbouring axes that *all* operands traverse evenly. Then a tile is a run of
//! consecutive output elements, and each operand is a slice there, one repeated value, or is
//! gathered into scratch memory. Kernels therefore only exist in contiguous form. Independent of
//! the values.

use crate::bytes::copy_each;
use crate::storage::View;
use crate::typed::with_unsigned;
use teeny_core::DType;

/// The most operands a walk has: the inputs of a kernel.
pub(crate) const MAX_OPERANDS: usize = teeny_core::kernel::MAX_INPUTS;

/// Elements of a row from which a loop over each row costs less than gathering several rows.
const LONG_ROW: usize = 128;
/// Elements of a row from which few loops read rows where they are, if no operand has to be gathered.
const MIN_ROW: usize = 24;
/// The same for operations that `machine::registers` runs.
const MIN_CHEAP_ROW: usize = 4;
/// Elements of neighbouring rows from which few loops are started again for the next ones in less time
/// than those are gathered.
const MIN_NEIGHBOURS: usize = 256;
/// Loops over a tile from which it pays to gather rows four times as long.
const MANY_LOOPS: usize = 6;

/// The merged axes of some views of one shape.
#[derive(Clone)]
pub(crate) struct Walk {
    ndim: usize,
    sizes: [usize; 8],
    strides: [[isize; 8]; MAX_OPERANDS],
    operands: usize,
    /// Which operands are row-major without gaps: slices over any number of rows.
    packed: [bool; MAX_OPERANDS],
    /// Rows shorter than this share a tile: gathering them costs less than starting every loop
    /// again.
    short: usize,
}

/// Operands that are contiguous along `axis` instead of the innermost axis: transposed ones.
#[derive(Clone, Copy)]
pub(crate) struct TransposedInputs {
    pub axis: usize,
    /// The size of the axis.
    pub size: usize,
    /// Elements of the output from one index of the axis to the next.
    pub row_step: usize,
    /// Which operands are transposed.
    pub operands: [bool; MAX_OPERANDS],
}

/// An operand over one tile.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Piece {
    /// Consecutive elements from here.
    Slice(*const u8),
    /// The same element everywhere.
    Splat(*const u8),
    /// Anything else: call `Walk::gather`.
    Scattered,
}

impl TransposedInputs {
    /// How many operands are transposed.
    pub(crate) fn count(&self) -> usize {
        self.operands.iter().filter(|&&transposed| transposed).count()
    }
}

impl Walk {
    /// The walk of `views`, which all have the sizes `shape`, for `loops` loops over each tile.
    pub(crate) fn new(shape: &[usize], views: &[View], loops: usize) -> Walk {
        let short = if loops < MANY_LOOPS { LONG_ROW } else { 4 * LONG_ROW };
        let (strides, operands) = ([[0; 8]; MAX_OPERANDS], views.len());
        let mut walk = Walk {
            ndim: 0,
            sizes: [1; 8],
            strides,
            operands,
            packed: [false; MAX_OPERANDS],
            short,
        };
        for (axis, &size) in shape.iter().enumerate() {
            if size == 1 {
                continue;
            }
            let last = walk.ndim.wrapping_sub(1);
            let merges = walk.ndim > 0
                && views
                    .iter()
                    .zip(&walk.strides)
                    .all(|(v, s)| s[last] == v.strides[axis] * size as isize);
            let at = if merges { last } else { walk.ndim };
            walk.sizes[at] = if merges { walk.sizes[at] * size } else { size };
            for (view, strides) in views.iter().zip(&mut walk.strides) {
                strides[at] = view.strides[axis];
            }
            walk.ndim = at + 1;
        }
        if walk.ndim == 0 {
            walk.ndim = 1; // a scalar is one row of one element
        }
        for (packed, strides) in walk.packed.iter_mut().zip(&walk.strides).take(walk.operands) {
            let mut step = 1;
            *packed = (0..walk.ndim).rev().all(|axis| {
                let fits = strides[axis] == step;
                step *= walk.sizes[axis] as isize;
                fits
            });
        }
        walk
    }

    /// The length of a row: the elements over which every operand moves by one step.
    pub(crate) fn row(&self) -> usize {
        self.sizes[self.ndim - 1]
    }

    /// The number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.sizes[..self.ndim - 1].iter().product()
    }

    /// Whether operand `i` is a slice or a repeated value along each row.
    pub(crate) fn is_direct(&self, i: usize) -> bool {
        matches!(self.strides[i][self.ndim - 1], 0 | 1) || self.row() == 1
    }

    /// The operands that are strided along the rows and contiguous along another axis, if both axes
    /// are long enough to be transposed by blocks.
    pub(crate) fn transposed_inputs(&self) -> Option<TransposedInputs> {
        let last = self.ndim - 1;
        let transposed = |i: usize, axis: usize| {
            self.strides[i][axis] == 1 && !matches!(self.strides[i][last], 0 | 1)
        };
        if self.row() < 16 {
            return None;
        }
        let axis = (0..last).rev().find(|&axis| {
            self.sizes[axis] >= 8 && (0..self.operands).any(|i| transposed(i, axis))
        })?;
        let row_step = self.sizes[axis + 1..self.ndim].iter().product();
        Some(TransposedInputs {
            axis,
            size: self.sizes[axis],
            row_step,
            operands: std::array::from_fn(|i| i < self.operands && transposed(i, axis)),
        })
    }

    /// The first element of row `number`, where rows are numbered row-major over all axes except
    /// the innermost one and `skipped`.
    pub(crate) fn row_start(&self, skipped: usize, number: usize) -> usize {
        let (mut rest, mut start, mut step) = (number, 0, self.row());
        for axis in (0..self.ndim - 1).rev() {
            if axis != skipped {
                start += rest % self.sizes[axis] * step;
                rest /= self.sizes[axis];
            }
            step *= self.sizes[axis];
        }
        start
    }

    /// The address of element `start` of operand `i`, and its stride along the innermost axis.
    pub(crate) fn strided_from(
        &self,
        i: usize,
        base: *const u8,
        size: usize,
        start: usize,
    ) -> (*const u8, isize) {
        (
            base.wrapping_offset(self.locate(i, start).0 * size as isize),
            self.strides[i][self.ndim - 1],
        )
    }

    /// The length of a tile from element `start` on, at most `tile`: to the end of the row if rows
    /// are long, over several rows if they are short.
    pub(crate) fn tile_len(&self, start: usize, end: usize, tile: usize) -> usize {
        let row = self.row();
        let most = tile.min(end - start);
        if row < self.short.min(tile) { most } else { most.min(row - start % row) }
    }

    /// Whether all operands are slices or numbers along each row, and rows are long enough to be read
    /// where they are, by loops that are `cheap` to start or not.
    pub(crate) fn has_even_rows(&self, cheap: impl FnOnce() -> bool) -> bool {
        let least = if self.short == LONG_ROW { MIN_ROW } else { LONG_ROW };
        self.ndim > 1
            && (self.ndim == 2 || self.neighbours() >= MIN_NEIGHBOURS)
            && (self.row() >= least || self.row() >= MIN_CHEAP_ROW && cheap())
            && (0..self.operands).all(|i| matches!(self.strides[i][self.ndim - 1], 0 | 1))
    }

    /// The number of elements after which operand `i` repeats itself, if that is not all of them: it
    /// is broadcast along the outermost axes.
    pub(crate) fn period(&self, i: usize) -> Option<usize> {
        let outer = self.strides[i][..self.ndim].iter().take_while(|&&s| s == 0).count();
        (outer > 0).then(|| self.sizes[outer..self.ndim].iter().product())
    }

    /// Whether there are rows and columns and no other axes.
    pub(crate) fn has_two_axes(&self) -> bool {
        self.ndim == 2
    }

    /// Whether operand `i` is row-major without gaps.
    pub(crate) fn is_packed(&self, i: usize) -> bool {
        self.packed[i]
    }

    /// Whether operand `i` is one number along each row.
    pub(crate) fn is_number(&self, i: usize) -> bool {
        self.strides[i][self.ndim - 1] == 0
    }

    /// The elements from `start` on that are read as rows: the rest of a row, or the rest of the
    /// whole rows of one axis.
    pub(crate) fn rows_len(&self, start: usize, end: usize) -> usize {
        let (row, most) = (self.row(), end - start);
        if !start.is_multiple_of(row) || most < row {
            return most.min(row - start % row);
        }
        let rows = self.sizes[self.ndim - 2];
        (rows - start / row % rows).min(most / row) * row
    }

    /// The address of element `start` (in the order of the walk) of operand `i`, whose view begins at
    /// `base` and has elements of `size` bytes, and the stride to its next row, in elements.
    pub(crate) fn row_address(
        &self,
        i: usize,
        base: *const u8,
        size: usize,
        start: usize,
    ) -> (*const u8, isize) {
        (base.wrapping_offset(self.locate(i, start).0 * size as isize), self.row_stride(i))
    }

    /// The stride of operand `i` from a row to the next, in elements; 0 if there is one row.
    pub(crate) fn row_stride(&self, i: usize) -> isize {
        if self.ndim > 1 { self.strides[i][self.ndim - 2] } else { 0 }
    }

    /// The elements of the rows that follow one another at the same distances.
    pub(crate) fn neighbours(&self) -> usize {
        self.row() * if self.ndim > 1 { self.sizes[self.ndim - 2] } else { 1 }
    }

    /// Whether rows are so short that several share a tile.
    pub(crate) fn shares_tiles(&self) -> bool {
        self.row() < self.short
    }

    /// The offset, in elements, of operand `i` at element `start`, and the index of `start`.
    fn locate(&self, i: usize, start: usize) -> (isize, [usize; 8]) {
        let (mut rest, mut offset, mut index) = (start, 0, [0; 8]);
        for axis in (0..self.ndim).rev() {
            let here = if axis == 0 { rest } else { rest % self.sizes[axis] };
            rest /= self.sizes[axis];
            index[axis] = here;
            offset += here as isize * self.strides[i][axis];
        }
        (offset, index)
    }

    /// Operand `i`, the view at `base`, over elements `start .. start + len`.
    #[inline]
    pub(crate) fn piece(
        &self,
        i: usize,
        base: *const u8,
        size: usize,
        start: usize,
        len: usize,
    ) -> Piece {
        assert!(i < self.operands, "operand {i}");
        let inner = self.strides[i][self.ndim - 1];
        if self.ndim == 1 {
            let at = base.wrapping_offset(start as isize * inner * size as isize);
            return match inner {
                1 => Piece::Slice(at),
                0 => Piece::Splat(at),
                _ if len == 1 => Piece::Slice(at),
                _ => Piece::Scattered,
            };
        }
        let (offset, index) = self.locate(i, start);
        let at = base.wrapping_offset(offset * size as isize);
        if self.packed[i] {
            return Piece::Slice(at);
        }
        if index[self.ndim - 1] + len <= self.row() {
            return match inner {
                1 => Piece::Slice(at),
                0 => Piece::Splat(at),
                _ if len == 1 => Piece::Slice(at),
                _ => Piece::Scattered,
            };
        }
        Piece::Scattered
    }

    /// Copies operand `i` over elements `start .. start + len` to `out`.
    ///
    /// # Safety
    /// `base` is the view of the walk, with elements of type `dtype`; `out` has `len` elements.
    pub(crate) unsafe fn gather(
        &self,
        i: usize,
        base: *const u8,
        dtype: DType,
        start: usize,
        len: usize,
        out: *mut u8,
    ) {
        // SAFETY: passed on; elements are moved as bits, so only their size matters.
        unsafe {
            with_unsigned!(dtype.size(), T => self.gather_as::<T>(i, base, start, len, out));
        }
    }

    unsafe fn gather_as<T: Copy>(
        &self,
        i: usize,
        base: *const u8,
        start: usize,
        len: usize,
        out: *mut u8,
    ) {
        let (mut offset, mut index) = self.locate(i, start);
        let (base, out) = (base.cast::<T>(), out.cast::<T>());
        let (last, strides) = (self.ndim - 1, &self.strides[i]);
        let (row, step) = (self.sizes[last], strides[last]);
        let row_stride = if last > 0 { strides[last - 1] } else { 0 };
        let mut done = 0;
        while done < len {
            let (from, to) = (base.wrapping_offset(offset), out.wrapping_add(done));
            // Whole rows up to the end of the axis before, or a part of one.
            let is_whole = last > 0 && index[last] == 0 && len - done >= row;
            let (rows, count) = match is_whole {
                true => (((len - done) / row).min(self.sizes[last - 1] - index[last - 1]), row),
                false => (1, (row - index[last]).min(len - done)),
            };
            // SAFETY: the index stays inside the sizes, for which `View::of` has checked the view;
            // `out` has `len` elements.
            unsafe { gather_rows(from, [row_stride, step], to, [rows, count]) };
            done += rows * count;
            let (axis, by) = if is_whole { (last - 1, rows) } else { (last, count) };
            index[axis] += by;
            offset += by as isize * strides[axis];
            for axis in (1..=axis).rev() {
                if index[axis] < self.sizes[axis] {
                    break;
                }
                offset += strides[axis - 1] - self.sizes[axis] as isize * strides[axis];
                index[axis] = 0;
                index[axis - 1] += 1;
            }
        }
    }
}

/// Copies `rows` rows of `n` elements, each row and each element `stride` and `step` elements from
/// the one before, to consecutive ones.
///
/// # Safety
/// All are readable, and as many elements writable at `to`.
unsafe fn gather_rows<T: Copy>(
    from: *const T,
    [stride, step]: [isize; 2],
    to: *mut T,
    [rows, n]: [usize; 2],
) {
    let size = size_of::<T>();
    // SAFETY: by contract.
    unsafe {
        match step {
            1 => {
                let steps = [stride * size as isize, (n * size) as isize];
                copy_each(from.cast(), to.cast(), steps, rows, n * size);
            }
            0 => {
                for r in 0..rows {
                    let value = *from.offset(r as isize * stride);
                    (0..n).for_each(|j| *to.add(r * n + j) = value);
                }
            }
            // The longer loop inside.
            _ if n < rows => {
                for j in 0..n {
                    let from = from.offset(j as isize * step);
                    (0..rows).for_each(|r| *to.add(r * n + j) = *from.offset(r as isize * stride));
                }
            }
            _ => {
                for r in 0..rows {
                    let from = from.offset(r as isize * stride);
                    (0..n).for_each(|j| *to.add(r * n + j) = *from.offset(j as isize * step));
                }
            }
        }
    }
}
