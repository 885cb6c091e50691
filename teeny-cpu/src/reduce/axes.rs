//! The axes of a reduction by the strides of its operand: which of them form the inner loop.
//!
//! ```text
//!   (N, C, H, W) over H, W     kept (N C), reduced (H W)      rows: each output reads a run
//!   (N, H, W, C) over H, W     kept (N) (C), reduced (H W)    columns: C accumulators at a time
//!   (N, C, H, W) over N, H, W  kept (C), reduced (N) (H W)    rows of several runs
//! ```
//! Neighbouring axes that are evenly strided become one. Knows sizes and strides alone. Next:
//! `strided`, which loops over them.

/// Elements, and the distance between neighbours in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Axis {
    pub size: usize,
    pub stride: isize,
}

/// Axes, the outermost first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axes {
    axes: [Axis; 8],
    len: usize,
}

impl Axes {
    const NONE: Axes = Axes { axes: [Axis { size: 1, stride: 0 }; 8], len: 0 };

    fn push(&mut self, axis: Axis) {
        self.axes[self.len] = axis;
        self.len += 1;
    }

    /// The axes.
    pub(super) fn list(&self) -> &[Axis] {
        &self.axes[..self.len]
    }

    /// The innermost axis; an axis of one element if the list is empty.
    pub(super) fn last(&self) -> Axis {
        self.list().last().copied().unwrap_or(Axis { size: 1, stride: 0 })
    }

    /// All axes except the innermost one.
    pub(super) fn outer(&self) -> Axes {
        Axes { len: self.len.saturating_sub(1), ..*self }
    }

    /// The number of elements.
    pub(super) fn numel(&self) -> usize {
        self.list().iter().map(|axis| axis.size).product()
    }

    /// The offset of element `i`, in row-major order of the axes.
    pub(super) fn offset(&self, mut i: usize) -> isize {
        let mut offset = 0;
        for axis in self.list().iter().rev() {
            offset += (i % axis.size) as isize * axis.stride;
            i /= axis.size;
        }
        offset
    }

    /// Puts the axis with the largest stride first, repeated axes before all others.
    fn sort(&mut self) {
        self.axes[..self.len].sort_by_key(|axis| nearness(axis.stride));
    }

    /// Removes axes of size 1, and joins neighbours that are evenly strided.
    fn merge(&mut self) {
        let mut len = 0usize;
        for i in 0..self.len {
            let axis = self.axes[i];
            if axis.size == 1 {
                continue;
            }
            match len.checked_sub(1).map(|last| &mut self.axes[last]) {
                Some(last) if last.stride == axis.stride * axis.size as isize => {
                    *last = Axis { size: last.size * axis.size, ..axis }
                }
                _ => {
                    self.axes[len] = axis;
                    len += 1;
                }
            }
        }
        self.len = len;
    }
}

/// A key by which axes are sorted: the one with the largest stride first, repeated ones before it.
pub(super) fn nearness(stride: isize) -> std::cmp::Reverse<usize> {
    std::cmp::Reverse(stride.unsigned_abs().wrapping_sub(1))
}

/// The form of the inner loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// The last reduced axis is contiguous.
    Rows,
    /// The last kept axis is contiguous.
    Columns,
}

/// The axes of one reduction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arranged {
    pub form: Form,
    pub kept: Axes,
    pub reduced: Axes,
    /// Whether `kept` is in another order than the axes of the output.
    pub sorted: bool,
}

/// The axes by which a view is reduced over `axes`, or none if no axis is contiguous. With
/// `positions`, reduced axes stay in their order.
pub(super) fn arrange(
    shape: &[usize],
    strides: &[isize],
    axes: &[usize],
    positions: bool,
) -> Option<Arranged> {
    let mut out =
        Arranged { form: Form::Rows, kept: Axes::NONE, reduced: Axes::NONE, sorted: false };
    for (axis, (&size, &stride)) in shape.iter().zip(strides).enumerate() {
        let to = if axes.contains(&axis) { &mut out.reduced } else { &mut out.kept };
        to.push(Axis { size, stride });
    }
    out.reduced.merge();
    if !positions {
        out.reduced.sort();
        out.reduced.merge();
    }
    let all = out.kept;
    out.kept.merge();
    if out.reduced.last().stride == 1 {
        return Some(out);
    }
    out.form = Form::Columns;
    if out.kept.last().stride != 1 {
        (out.kept, out.sorted) = (all, true);
        out.kept.sort();
        out.kept.merge();
    }
    (out.kept.last().stride == 1).then_some(out)
}

/// Whether rows of `length` elements of `bytes` bytes are transposed and reduced as columns: up to
/// the size of a block in L1, and up to the length from which a row is reduced by vectors.
pub(super) fn is_narrow(length: usize, bytes: usize, vectors: usize) -> bool {
    length < if vectors > 0 { vectors } else { 256 / bytes.max(4) }
}

/// How many rows of `width` contiguous columns, `rows` of them, are added as one: short rows leave
/// most of a vector empty. Joining their sums takes as long as some rows.
pub(super) fn rows_as_one(width: usize, rows: usize) -> usize {
    if width < 64 { (128 / width.max(1)).min(rows / 16).max(1) } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Sizes = &'static [(usize, isize)];

    #[test]
    fn axes_are_merged_and_the_contiguous_one_is_innermost() {
        use Form::{Columns, Rows};
        type Row = (&'static [usize], &'static [isize], &'static [usize], Form, Sizes, Sizes, bool);
        let table: &[Row] = &[
            (&[2, 3, 4], &[12, 4, 1], &[2], Rows, &[(6, 4)], &[(4, 1)], false),
            (&[2, 3, 4], &[12, 4, 1], &[1], Columns, &[(2, 12), (4, 1)], &[(3, 4)], false),
            (&[2, 3, 4], &[12, 4, 1], &[0], Columns, &[(12, 1)], &[(2, 12)], false),
            (&[2, 3, 4], &[12, 4, 1], &[0, 2], Rows, &[(3, 4)], &[(2, 12), (4, 1)], false),
            (&[2, 3, 4], &[12, 4, 1], &[0, 1, 2], Rows, &[], &[(24, 1)], false),
            // A transposed matrix: rows of the memory are columns.
            (&[4, 3], &[1, 4], &[0], Rows, &[(3, 4)], &[(4, 1)], false),
            (&[4, 3], &[1, 4], &[1], Columns, &[(4, 1)], &[(3, 4)], false),
            // The contiguous axis is the first of two kept ones.
            (&[4, 3, 2], &[1, 8, 4], &[2], Columns, &[(3, 8), (4, 1)], &[(2, 4)], true),
            // A broadcast axis is outermost, an axis of one element disappears.
            (&[5, 3, 1, 4], &[0, 4, 9, 1], &[0, 3], Rows, &[(3, 4)], &[(5, 0), (4, 1)], false),
        ];
        for &(shape, strides, axes, form, kept, reduced, sorted) in table {
            let got = arrange(shape, strides, axes, false).unwrap();
            let pairs =
                |axes: &Axes| axes.list().iter().map(|a| (a.size, a.stride)).collect::<Vec<_>>();
            assert_eq!(
                (got.form, pairs(&got.kept), pairs(&got.reduced), got.sorted),
                (form, kept.to_vec(), reduced.to_vec(), sorted),
                "{shape:?} {strides:?} {axes:?}"
            );
        }
        assert!(arrange(&[3, 4], &[8, 2], &[1], false).is_none());
        // Transposed reduced axes keep their order where positions are counted.
        assert!(arrange(&[4, 3], &[1, 4], &[0, 1], true).is_none());
        assert_eq!(arrange(&[4, 3], &[1, 4], &[0, 1], false).unwrap().reduced.last().size, 12);
    }

    #[test]
    fn short_rows_are_transposed_and_narrow_columns_joined() {
        assert_eq!(
            [3, 15, 16, 40, 63, 64].map(|n| (is_narrow(n, 4, 16), is_narrow(n, 4, 0))),
            [
                (true, true),
                (true, true),
                (false, true),
                (false, true),
                (false, true),
                (false, false)
            ]
        );
        assert!(is_narrow(31, 8, 0) && !is_narrow(32, 8, 0) && is_narrow(63, 1, 0));
        let table =
            [(1, 1000, 62), (3, 1000, 42), (10, 1000, 12), (63, 99, 2), (64, 99, 1), (16, 26, 1)];
        for (width, rows, joined) in table {
            assert_eq!(rows_as_one(width, rows), joined, "{width} columns, {rows} rows");
        }
    }
}
