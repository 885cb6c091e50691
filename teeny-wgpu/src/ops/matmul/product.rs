//! A matrix product as sizes and strides, from which a kernel is selected.

use teeny_core::{DType, Layout, Tensor};

/// How threads share the reading of an operand, by the axis along which its elements are
/// neighbours in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fetch {
    /// Along k.
    AlongK,
    /// Across k.
    Across,
    /// Across k, and groups of four begin at multiples of four elements.
    Quads,
}

/// How the kernels on cooperative matrices and on subgroups read an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Staging {
    /// Along k, as its elements are neighbours in memory, or across k.
    pub along: bool,
    /// Four neighbours at a time, which begin at multiples of four elements.
    pub quads: bool,
}

/// One operand: its batch of matrices, and their strides.
pub(crate) struct Operand<'a> {
    pub layout: &'a Layout,
    /// Strides along k and across it.
    pub along: isize,
    pub across: isize,
}

impl Operand<'_> {
    /// Whether each matrix begins at a multiple of four elements.
    pub fn is_aligned(&self) -> bool {
        let batch = &self.layout.strides()[..self.layout.ndim() - 2];
        self.layout.offset().is_multiple_of(4) && batch.iter().all(|&s| s % 4 == 0)
    }

    pub fn fetch(&self, size: usize, dtype: DType) -> Fetch {
        let quads = self.across == 1 && self.along % 4 == 0 && size.is_multiple_of(4);
        match () {
            () if quads && dtype.size() <= 4 && self.is_aligned() => Fetch::Quads,
            () if self.along.unsigned_abs() < self.across.unsigned_abs() => Fetch::AlongK,
            () => Fetch::Across,
        }
    }

    /// Whether groups of four along k begin at multiples of four elements; `size` is its other size.
    pub fn quads_along(&self, size: usize) -> bool {
        self.along == 1 && (size == 1 || self.across % 4 == 0) && self.is_aligned()
    }

    /// How the kernels on cooperative matrices and of subgroups read it; `k` and `size` are its sizes.
    pub fn staging(&self, k: usize, size: usize) -> Staging {
        let along = self.along.unsigned_abs() <= self.across.unsigned_abs();
        let (step, other, length) =
            if along { (self.along, self.across, k) } else { (self.across, self.along, size) };
        let quads = step == 1 && other % 4 == 0 && length.is_multiple_of(4) && self.is_aligned();
        Staging { along, quads }
    }
}

/// One product: sizes and operands.
pub(crate) struct Product<'a> {
    pub batch: usize,
    pub m: usize,
    pub k: usize,
    pub n: usize,
    pub lhs: Operand<'a>,
    pub rhs: Operand<'a>,
    pub dtype: DType,
}

impl<'a> Product<'a> {
    pub fn of(lhs: &'a Tensor, rhs: &'a Tensor) -> Product<'a> {
        let axes = lhs.ndim();
        let strides = |x: &Tensor| [x.strides()[axes - 2], x.strides()[axes - 1]];
        let (a, b) = (strides(lhs), strides(rhs));
        Product {
            batch: lhs.shape()[..axes - 2]
                .iter()
                .fold(1, |batch: usize, &n| batch.saturating_mul(n)),
            m: lhs.shape()[axes - 2],
            k: lhs.shape()[axes - 1],
            n: rhs.shape()[axes - 1],
            lhs: Operand { layout: lhs.layout(), along: a[1], across: a[0] },
            rhs: Operand { layout: rhs.layout(), along: b[0], across: b[1] },
            dtype: lhs.dtype(),
        }
    }

    /// Tiles of a matrix: down, across.
    pub fn tiles(&self, (rows, columns): (usize, usize)) -> (usize, usize) {
        (self.m.div_ceil(rows), self.n.div_ceil(columns))
    }
}
