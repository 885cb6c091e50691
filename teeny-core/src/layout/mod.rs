//! The positions of a view's elements in its storage: shape, strides and offset, in elements.
//!
//! ```text
//! storage   0 1 2 3 4 5 6 7 8 9 10 11          element (i, j) of a view is at
//! (3, 4)    shape (3, 4)  strides (4, 1)         offset + i * strides[0] + j * strides[1]
//! .t()      shape (4, 3)  strides (1, 4)
//! .slice(0, 1..3)  shape (2, 4)  strides (4, 1)  offset 4
//! .flip(1)  shape (3, 4)  strides (4, -1)  offset 3
//! ```
//!
//! Every view operation of a tensor is a function from layout to layout in this file; none of them
//! uses a storage or a device. Offsets compose: a view of a view keeps the offset of the first.

mod through;

use crate::context::enter;
use crate::error::{Error, Result};
use crate::shape::{Integer, MAX_NDIM, MAX_NUMEL, Shape};
use std::fmt;

/// Shape, strides and offset of a view, in elements. Strides may be 0 (a broadcast axis) or
/// negative (a flipped one).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layout {
    shape: Shape,
    strides: [isize; MAX_NDIM],
    offset: usize,
}

impl Layout {
    /// The row-major layout of `shape` from the start of a storage.
    #[inline]
    pub fn contiguous(shape: Shape) -> Layout {
        let mut strides = [0; MAX_NDIM];
        let mut step = 1isize;
        for axis in (0..shape.ndim()).rev() {
            strides[axis] = step;
            step *= shape[axis].max(1) as isize;
        }
        Layout { shape, strides, offset: 0 }
    }

    /// A layout from its parts, checked against a storage of `storage_len` elements.
    ///
    /// # Errors
    /// If the numbers of sizes and strides differ, or an element would be outside the storage.
    #[track_caller]
    pub fn strided(
        shape: Shape,
        strides: &[isize],
        offset: usize,
        storage_len: usize,
    ) -> Result<Layout> {
        if strides.len() != shape.ndim() {
            return Err(wrong_strides(&shape, strides));
        }
        // A stride that is never used, of an axis of one element or of an empty view, may be any
        // number: it is replaced by one that cannot overflow when multiplied by a size or a step.
        let mut all = Layout::contiguous(shape).strides;
        for (axis, &stride) in strides.iter().enumerate() {
            if shape[axis] > 1 && shape.numel() > 0 {
                all[axis] = stride;
            }
        }
        let layout = Layout { shape, strides: all, offset };
        if layout.fits(storage_len) {
            return Ok(layout);
        }
        Err(outside(&shape, strides, offset, storage_len))
    }

    /// True if every element is inside a storage of `storage_len` elements, and the number of
    /// elements is one that [`Shape::new`] allows. An empty view fits if it begins inside or at the
    /// end. No arithmetic overflows, for any sizes and strides.
    #[inline]
    pub fn fits(&self, storage_len: usize) -> bool {
        // The lowest and the highest position, and the number of elements, sizes of 0 counted as 1.
        let reach = || -> Option<(isize, isize, usize)> {
            let offset = isize::try_from(self.offset).ok()?;
            let (mut low, mut high, mut numel) = (offset, offset, 1usize);
            for (&n, &stride) in self.shape.iter().zip(self.strides()) {
                numel = numel.checked_mul(n.max(1))?;
                let span = isize::try_from(n.saturating_sub(1)).ok()?.checked_mul(stride)?;
                if span < 0 {
                    low = low.checked_add(span)?;
                } else {
                    high = high.checked_add(span)?;
                }
            }
            Some((low, high, numel))
        };
        match reach() {
            Some((low, high, numel)) if numel <= MAX_NUMEL => {
                low >= 0 && (high as usize) < storage_len
                    || self.offset <= storage_len && self.shape.contains(&0)
            }
            // The strides of an empty view are never used.
            None => self.offset <= storage_len && self.shape.contains(&0),
            Some(_) => false,
        }
    }

    /// The sizes.
    #[inline]
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The number of axes.
    #[inline]
    pub fn ndim(&self) -> usize {
        self.shape.ndim()
    }

    /// The number of elements.
    #[inline]
    pub fn numel(&self) -> usize {
        self.shape.numel()
    }

    /// Elements between neighbours along each axis.
    #[inline]
    pub fn strides(&self) -> &[isize] {
        &self.strides[..self.shape.ndim()]
    }

    /// The position of the first element in the storage.
    #[inline]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// True if the elements are in row-major order without gaps, at any offset. Scalars and empty
    /// views are contiguous.
    #[inline]
    pub fn is_contiguous(&self) -> bool {
        let mut step = 1isize;
        let mut ok = true;
        for axis in (0..self.ndim()).rev() {
            let n = self.shape[axis];
            if n == 0 {
                return true;
            }
            ok &= n == 1 || self.strides[axis] == step;
            step *= n as isize;
        }
        ok
    }

    /// True if no two indices share an element: no stride of 0, no overlapping windows. Sufficient,
    /// but not necessary for unusual strides.
    pub fn is_injective(&self) -> bool {
        if self.numel() <= 1 {
            return true;
        }
        let mut axes: Vec<(usize, usize)> = self
            .shape
            .iter()
            .zip(self.strides())
            .filter(|(n, _)| **n > 1)
            .map(|(&n, &s)| (s.unsigned_abs(), n))
            .collect();
        axes.sort_unstable();
        let mut span = 0;
        for (stride, n) in axes {
            if stride <= span {
                return false;
            }
            span += stride * (n - 1);
        }
        true
    }

    /// The coordinates of element `flat` in row-major order, except on axes of stride 0: its index
    /// in the tensor before expansion.
    pub fn distinct_coordinates(&self, flat: usize) -> Vec<usize> {
        let (mut rest, mut place) = (flat, Vec::new());
        for (&size, &stride) in self.shape.iter().zip(self.strides()).rev() {
            if stride != 0 {
                place.push(rest % size.max(1));
            }
            rest /= size.max(1);
        }
        place.reverse();
        place
    }

    /// The position in the storage of the element at `index`, without a bounds check.
    #[inline]
    pub fn position(&self, index: &[usize]) -> usize {
        let steps: isize = index.iter().zip(self.strides()).map(|(&i, &s)| i as isize * s).sum();
        (self.offset as isize + steps) as usize
    }

    /// The positions of all elements in row-major order of the view. For tests, printing and naive
    /// devices.
    pub fn positions(&self) -> impl Iterator<Item = usize> + use<> {
        let layout = *self;
        let mut index = [0usize; MAX_NDIM];
        let mut position = layout.offset as isize;
        (0..layout.numel()).map(move |_| {
            let here = position as usize;
            for axis in (0..layout.ndim()).rev() {
                index[axis] += 1;
                position += layout.strides[axis];
                if index[axis] < layout.shape[axis] {
                    break;
                }
                position -= layout.strides[axis] * index[axis] as isize;
                index[axis] = 0;
            }
            here
        })
    }

    fn build(&self, axes: impl IntoIterator<Item = (usize, isize)>) -> Layout {
        let mut sizes = [0; MAX_NDIM];
        let mut strides = [0; MAX_NDIM];
        let mut ndim = 0;
        for (n, s) in axes {
            sizes[ndim] = n;
            strides[ndim] = s;
            ndim += 1;
        }
        Layout { shape: Shape::from_checked(&sizes[..ndim]), strides, offset: self.offset }
    }

    fn axes(&self) -> impl Iterator<Item = (usize, isize)> + '_ {
        self.shape.iter().copied().zip(self.strides().iter().copied())
    }

    /// Replaces sizes, strides and the offset by `f` of them.
    pub(crate) fn map_integers(&mut self, f: &mut dyn FnMut(Integer) -> i64) {
        self.shape.map_integers(f);
        let ndim = self.ndim();
        for stride in &mut self.strides[..ndim] {
            *stride = f(Integer::Stride(*stride as i64)) as isize;
        }
        self.offset = f(Integer::Size(self.offset as i64)) as usize;
    }

    /// The view with its axes in the order `order`, a permutation of `0..ndim`.
    pub fn permute(&self, order: &[usize]) -> Layout {
        self.build(order.iter().map(|&a| (self.shape[a], self.strides[a])))
    }

    /// The view with axes `a` and `b` exchanged.
    pub fn transpose(&self, a: usize, b: usize) -> Layout {
        let mut order: Vec<usize> = (0..self.ndim()).collect();
        order.swap(a, b);
        self.permute(&order)
    }

    /// The elements `start, start + step, …` of `axis`, `len` of them; `step` may be negative. The
    /// caller has checked the range.
    pub fn slice(&self, axis: usize, start: usize, len: usize, step: isize) -> Layout {
        let mut out = *self;
        if self.numel() > 0 && len > 0 {
            out.offset = (self.offset as isize + start as isize * self.strides[axis]) as usize;
        }
        out.shape = out.shape.shortened(axis, len);
        // With one element the stride is never used, and a huge step would overflow it.
        if len > 1 {
            out.strides[axis] = self.strides[axis] * step;
        }
        out
    }

    /// The view with `axis` read backwards.
    pub fn flip(&self, axis: usize) -> Layout {
        match self.shape[axis] {
            0 => *self,
            n => self.slice(axis, n - 1, n, -1),
        }
    }

    /// The view stretched to `shape`: axes of size 1 repeat with stride 0, missing axes are added
    /// in front. `None` if it does not fit.
    #[inline]
    pub fn expand(&self, shape: &Shape) -> Option<Layout> {
        let shift = shape.ndim().checked_sub(self.ndim())?;
        let mut out = Layout { shape: *shape, strides: [0; MAX_NDIM], offset: self.offset };
        for axis in 0..self.ndim() {
            let (have, want) = (self.shape[axis], shape[axis + shift]);
            if have == want {
                out.strides[axis + shift] = self.strides[axis];
            } else if have != 1 {
                return None;
            }
        }
        Some(out)
    }

    /// The view with a new axis of size 1 at position `axis`.
    pub fn unsqueeze(&self, axis: usize) -> Result<Layout> {
        let shape = self.shape.with_axis(axis, 1)?;
        let mut strides = self.strides().to_vec();
        // The stride of a size-1 axis is never used; this one keeps row-major strides.
        let stride =
            if axis < self.ndim() { self.strides[axis] * self.shape[axis] as isize } else { 1 };
        strides.insert(axis, stride);
        let mut out = Layout { shape, strides: [0; MAX_NDIM], offset: self.offset };
        out.strides[..strides.len()].copy_from_slice(&strides);
        Ok(out)
    }

    /// The view without `axis`, which must have size 1 (or be indexed at 0).
    pub fn remove(&self, axis: usize) -> Layout {
        self.build(self.axes().enumerate().filter(|(a, _)| *a != axis).map(|(_, x)| x))
    }

    /// The view of diagonal `diagonal` of axes `a` and `b` (positive: offset along `b`); it becomes
    /// the last axis.
    pub fn diagonal(&self, diagonal: isize, a: usize, b: usize) -> Layout {
        let (rows, columns) = (self.shape[a] as isize, self.shape[b] as isize);
        // Sizes are far below `isize::MAX`, so that the differences do not overflow.
        let (start_a, start_b) = (diagonal.saturating_neg().max(0), diagonal.max(0));
        let len = (rows - start_a).min(columns - start_b).max(0) as usize;
        let mut out = self.build(
            self.axes()
                .enumerate()
                .filter(|(i, _)| *i != a && *i != b)
                .map(|(_, x)| x)
                .chain([(len, self.strides[a] + self.strides[b])]),
        );
        if len > 0 && self.numel() > 0 {
            out.offset = (self.offset as isize
                + start_a * self.strides[a]
                + start_b * self.strides[b]) as usize;
        }
        out
    }

    /// The view of all windows of `size` elements along `axis`, `step` apart: `axis` counts
    /// windows, a new last axis runs inside one. Windows may overlap. The caller has checked that
    /// at least one fits.
    pub fn unfold(&self, axis: usize, size: usize, step: usize) -> Result<Layout> {
        let windows = (self.shape[axis] - size) / step + 1;
        let shape = self.shape.shortened(axis, windows).with_axis(self.ndim(), size)?;
        let mut out = Layout { shape, strides: self.strides, offset: self.offset };
        // As in `slice`: the stride of a single window is never used. Several are at most a size
        // apart.
        if windows > 1 {
            out.strides[axis] = self.strides[axis] * step as isize;
        }
        out.strides[self.ndim()] = self.strides[axis];
        Ok(out)
    }

    /// The view as `shape` without moving elements, or `None` if no strides can express it.
    ///
    /// Axes of self are merged into runs that are contiguous among themselves; each run must be
    /// split or merged within itself. The same cases succeed as in PyTorch's `view`, with the same
    /// strides.
    pub fn reshape(&self, shape: &Shape) -> Option<Layout> {
        if self.numel() != shape.numel() {
            return None;
        }
        if self.numel() == 0 || self.is_contiguous() {
            let offset = self.offset;
            return Some(Layout { offset, ..Layout::contiguous(*shape) });
        }
        let mut out = Layout { shape: *shape, strides: [0; MAX_NDIM], offset: self.offset };
        // From the innermost axis outwards: `chunk` is the number of elements in the current run of
        // self, `base` its inner stride.
        let mut view = shape.ndim();
        let mut chunk = 1usize;
        let mut base = *self.strides().last()?;
        let mut filled = 1usize;
        for axis in (0..self.ndim()).rev() {
            chunk *= self.shape[axis];
            let run_ends = axis == 0
                || (self.shape[axis - 1] != 1 && self.strides[axis - 1] != chunk as isize * base);
            if !run_ends {
                continue;
            }
            while view > 0 && (filled < chunk || shape[view - 1] == 1) {
                out.strides[view - 1] = filled as isize * base;
                filled *= shape[view - 1];
                view -= 1;
            }
            if filled != chunk {
                return None;
            }
            if axis > 0 {
                base = self.strides[axis - 1];
                chunk = 1;
                filled = 1;
            }
        }
        (view == 0).then_some(out)
    }
}

#[cold]
#[track_caller]
fn wrong_strides(shape: &Shape, strides: &[isize]) -> Error {
    let _op = enter("Layout::strided");
    let (given, packed) = (strides.len(), Layout::contiguous(*shape));
    Error::shape(format!("{given} strides {strides:?} for the {} axes of {shape}", shape.ndim()))
        .help(format!("row-major strides of {shape} are {:?}", packed.strides()))
}

#[cold]
#[track_caller]
fn outside(shape: &Shape, strides: &[isize], offset: usize, storage_len: usize) -> Error {
    let _op = enter("Layout::strided");
    Error::index(format!(
        "shape {shape} with strides {strides:?} and offset {offset} reaches \
         outside a storage of {storage_len} elements"
    ))
    .help(format!(
        "offset + Σ (size - 1) stride is the last position: it must be below \
         {storage_len}"
    ))
}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} strides {:?} offset {}", self.shape, self.strides(), self.offset)
    }
}
