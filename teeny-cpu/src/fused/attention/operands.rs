//! The operands of attention in the layouts of the tiles: matrices by head, keys transposed tile by
//! tile, contiguous rows, masks by position.

use super::softmax::PAD;
use super::tile::Real;
use crate::Cpu;
use crate::matmul::{Matrix, widen};
use crate::storage::{CpuStorage, Shared, View};
use crate::threads::for_each_range;
use std::ops::Range;
use teeny_core::{AttentionInputs, DType, Layout, Result, Tensor, bf16, f16};

/// Keys per tile.
pub(super) const KEYS: usize = 64;

/// `n` in whole vectors.
pub(super) const fn padded(n: usize) -> usize {
    n.next_multiple_of(PAD)
}

/// A tensor (.., rows, columns) as numbered matrices in its compute dtype; 16-bit floats are
/// converted to f32 in a copy.
pub(super) struct Operand {
    view: View,
    _copy: Option<CpuStorage>,
}

impl Operand {
    pub fn of(cpu: &Cpu, x: &Tensor) -> Result<Operand> {
        let mut view = View::of(x)?;
        if !view.dtype.is_half() {
            return Ok(Operand { view, _copy: None });
        }
        let source = Operand { view, _copy: None };
        let [heads, rows, columns] = source.sizes();
        let copy = cpu.alloc(view.shape.numel(), DType::F32)?;
        let to = Shared(copy.ptr().cast::<f32>());
        for_each_range(heads, (1 << 14) / (rows * columns).max(1) + 1, |heads| {
            for head in heads {
                let from = source.head::<u16>(head);
                // SAFETY: each head is written once, and read where the view has it.
                unsafe {
                    let to = to.get().add(head * rows * columns);
                    widen(cpu.level, view.dtype, from, [rows, columns], to, columns);
                }
            }
        });
        let layout = Layout::contiguous(view.shape);
        view.strides[..layout.ndim()].copy_from_slice(layout.strides());
        view.ptr = copy.ptr();
        view.dtype = DType::F32;
        Ok(Operand { view, _copy: Some(copy) })
    }

    /// Number of heads, rows and columns.
    pub fn sizes(&self) -> [usize; 3] {
        let (shape, n) = (&self.view.shape, self.view.shape.ndim());
        [shape[..n - 2].iter().product(), shape[n - 2], shape[n - 1]]
    }

    /// Matrix number `head`.
    pub fn head<T>(&self, head: usize) -> Matrix<T> {
        let n = self.view.shape.ndim();
        let offset = head_offset(&self.view, head);
        Matrix {
            ptr: self.view.ptr.cast::<T>().wrapping_offset(offset),
            row_stride: self.view.strides[n - 2],
            col_stride: self.view.strides[n - 1],
        }
    }
}

/// The elements before matrix number `head` of a view.
pub(super) fn head_offset(view: &View, mut head: usize) -> isize {
    let mut offset = 0;
    for axis in (0..view.shape.ndim() - 2).rev() {
        offset += (head % view.shape[axis]) as isize * view.strides[axis];
        head /= view.shape[axis];
    }
    offset
}

/// Every head transposed, [`KEYS`] rows at a time: (head, tile, column, row in the tile), zeros
/// beyond the last row.
pub(super) struct Transposed {
    storage: CpuStorage,
    tiles: usize,
    columns: usize,
    /// Rows of a tile: [`KEYS`], or all of few, in whole vectors.
    width: usize,
}

impl Transposed {
    /// `scale` times the heads of `x`.
    pub fn of<T: Real>(cpu: &Cpu, x: &Operand, scale: T, dtype: DType) -> Result<Transposed> {
        let [heads, rows, columns] = x.sizes();
        let (tiles, width) = (rows.div_ceil(KEYS), padded(rows.min(KEYS)));
        let packed = Transposed {
            storage: cpu.alloc(
                [tiles, columns, width].into_iter().fold(heads, usize::saturating_mul),
                dtype,
            )?,
            tiles,
            columns,
            width,
        };
        let to = Shared(packed.storage.ptr().cast::<T>());
        // Small tiles go together.
        let least = (1 << 13) / (columns * width) + 1;
        for_each_range(heads * tiles, least, |tasks| {
            for task in tasks {
                let (from, start) = (x.head::<T>(task / tiles), task % tiles * KEYS);
                // SAFETY: each task writes its own tile, and reads rows and columns that the view
                // has.
                unsafe {
                    let (to, count) =
                        (to.get().add(task * columns * width), (rows - start).min(KEYS));
                    let from = from.at(start, 0);
                    T::transposed(cpu.level, from, [count, columns], scale, to, width);
                    for c in 0..if count < width { columns } else { 0 } {
                        std::slice::from_raw_parts_mut(to.add(c * width + count), width - count)
                            .fill(T::ZERO);
                    }
                }
            }
        });
        Ok(packed)
    }

    /// The matrix of a tile, a row for each column, and the elements from one row to the next.
    pub fn tile<T>(&self, head: usize, tile: usize) -> (*const T, isize) {
        let size = self.columns * self.width;
        let at = (head * self.tiles + tile) * size;
        (self.storage.ptr().cast::<T>().wrapping_add(at), self.width as isize)
    }
}

/// Every head in contiguous rows: the operand itself if its rows are so, otherwise a copy.
pub(super) struct Rows<'a> {
    x: &'a Operand,
    copy: Option<CpuStorage>,
}

impl<'a> Rows<'a> {
    pub fn of<T: Real>(cpu: &Cpu, x: &'a Operand, dtype: DType) -> Result<Rows<'a>> {
        let [heads, rows, columns] = x.sizes();
        let head = x.head::<T>(0);
        if columns == 1 || head.col_stride == 1 {
            return Ok(Rows { x, copy: None });
        }
        let copy = cpu.alloc(heads * rows * columns, dtype)?;
        let to = Shared(copy.ptr().cast::<T>());
        for_each_range(heads * rows, (1 << 14) / columns.max(1) + 1, |here| {
            for row in here {
                let from = x.head::<T>(row / rows).at(row % rows, 0);
                for c in 0..columns {
                    // SAFETY: each element is written once, and read where the view has it.
                    unsafe { *to.get().add(row * columns + c) = *from.at(0, c).ptr };
                }
            }
        });
        Ok(Rows { x, copy: Some(copy) })
    }

    /// Elements of a row.
    pub fn columns(&self) -> usize {
        self.x.sizes()[2]
    }

    /// Row `row` of `head`, and the elements from one row to the next.
    pub fn at<T>(&self, head: usize, row: usize) -> (*const T, isize) {
        let [_, rows, columns] = self.x.sizes();
        match &self.copy {
            Some(copy) => (
                copy.ptr().cast::<T>().cast_const().wrapping_add((head * rows + row) * columns),
                columns as isize,
            ),
            None => {
                let matrix = self.x.head::<T>(head);
                let step = matrix.row_stride;
                (matrix.at(row, 0).ptr, step)
            }
        }
    }
}

/// Which keys each query sees.
pub(super) struct Visible {
    inputs: teeny_core::Attention,
    keys: usize,
    mask: Option<View>,
}

impl Visible {
    pub fn of(inputs: &AttentionInputs<'_>) -> Result<Visible> {
        Ok(Visible {
            inputs: inputs.options,
            keys: inputs.sizes()[1],
            mask: inputs.mask.map(View::of).transpose()?,
        })
    }

    /// The range of keys that the queries see.
    pub fn keys(&self, queries: &Range<usize>) -> Range<usize> {
        let (first, last) = (
            self.inputs.keys(queries.start, self.keys),
            self.inputs.keys(queries.end - 1, self.keys),
        );
        first.start..last.end
    }

    /// Sets the scores of a tile to the lowest number where a query does not see a key, and adds an
    /// additive mask. The tile has rows of `step`, `n` columns in use, and begins at key `start`.
    /// Returns whether a query may not see a key.
    ///
    /// # Safety
    /// The tile is writable.
    pub unsafe fn apply<T: Real>(
        &self,
        s: *mut T,
        step: usize,
        head: usize,
        queries: &Range<usize>,
        start: usize,
        n: usize,
    ) -> bool {
        let inside = |keys: Range<usize>| keys.start <= start && keys.end >= start + n;
        if self.mask.is_none()
            && inside(self.inputs.keys(queries.start, self.keys))
            && inside(self.inputs.keys(queries.end - 1, self.keys))
        {
            return false;
        }
        for (r, i) in queries.clone().enumerate() {
            let keys = self.inputs.keys(i, self.keys);
            let (from, to) = (
                keys.start.clamp(start, start + n) - start,
                keys.end.clamp(start, start + n) - start,
            );
            // SAFETY: r is a row of the tile.
            let row = unsafe { std::slice::from_raw_parts_mut(s.add(r * step), n) };
            let from = from.min(to);
            row[..from].fill(T::LOWEST);
            row[to..].fill(T::LOWEST);
            if let Some(mask) = &self.mask {
                // SAFETY: i and the keys from..to exist in the mask.
                unsafe { add_mask(mask, head, i, start + from, &mut row[from..to]) };
            }
        }
        true
    }
}

/// Adds row `i` of a mask from key `j` on, or hides where it is false.
unsafe fn add_mask<T: Real>(mask: &View, head: usize, i: usize, j: usize, row: &mut [T]) {
    let n = mask.shape.ndim();
    let step = mask.strides[n - 1];
    let first = head_offset(mask, head) + i as isize * mask.strides[n - 2] + j as isize * step;
    macro_rules! each {
        ($t:ty, $f:expr) => {{
            let first = mask.ptr.cast::<$t>().wrapping_offset(first);
            for (c, s) in row.iter_mut().enumerate() {
                // SAFETY: by contract.
                *s = $f(*s, unsafe { *first.offset(c as isize * step) });
            }
        }};
    }
    let sum = |s: T, m: f64| {
        let m = T::from_f64(m);
        let sum = s + m;
        // A key that is hidden by -inf has no score, not even NaN.
        if m < T::LOWEST || sum < T::LOWEST { T::LOWEST } else { sum }
    };
    match mask.dtype {
        DType::F32 => each!(f32, |s: T, m: f32| sum(s, m.into())),
        DType::F64 => each!(f64, sum),
        DType::F16 => each!(f16, |s: T, m: f16| sum(s, m.into())),
        DType::BF16 => each!(bf16, |s: T, m: bf16| sum(s, m.into())),
        DType::Bool
        | DType::U8
        | DType::U16
        | DType::U32
        | DType::U64
        | DType::I8
        | DType::I16
        | DType::I32
        | DType::I64 => {
            each!(u8, |s: T, m: u8| if m == 0 { T::LOWEST } else { s });
        }
    }
}
