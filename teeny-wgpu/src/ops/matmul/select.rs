//! The choice of the kernel for a matrix product, by sizes and strides alone.

use crate::codegen::types::accumulation;
use teeny_core::{DType, Layout, Tensor};

/// Threads of a workgroup of the tiled kernel, and of the gemv kernel that reads across k.
pub(crate) const TILED_THREADS: usize = 256;
/// Threads of a workgroup of the other kernels.
pub(crate) const NAIVE_THREADS: usize = 64;
/// Columns of a workgroup of the gemv kernel that reads across k.
pub(crate) const GEMV_COLUMNS: usize = 32;
/// Results of a skinny product have at most this many rows or columns.
const SKINNY: usize = 16;
/// The shortest slice of k that is worth a workgroup.
pub(crate) const SLICE: usize = 256;

/// The size of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tile {
    /// 64 x 64 results.
    Small,
    /// 128 x 128.
    Large,
    /// 32 x 128: for few rows.
    Flat,
}

impl Tile {
    /// Rows of results.
    pub(crate) const fn rows(self) -> usize {
        match self {
            Tile::Small => 64,
            Tile::Large => 128,
            Tile::Flat => 32,
        }
    }

    /// Columns of results.
    pub(crate) const fn columns(self) -> usize {
        match self {
            Tile::Small => 64,
            Tile::Large | Tile::Flat => 128,
        }
    }

    /// Steps of k in workgroup memory at a time: 1024 elements of the right operand.
    pub(crate) const fn depth(self) -> usize {
        1024 / self.columns()
    }

    /// Rows, and columns, of results of a thread.
    pub(crate) const fn thread_tile(self) -> usize {
        match self {
            Tile::Small | Tile::Flat => 4,
            Tile::Large => 8,
        }
    }
}

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

/// A kernel that computes products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MatmulKernel {
    /// One workgroup per tile of results.
    Tiled { tile: Tile, lhs: Fetch, rhs: Fetch },
    /// One workgroup per result, threads along k.
    GemvAlongK,
    /// One workgroup per 32 neighbouring results, threads across and along k.
    GemvAcrossK,
    /// One thread per result.
    Naive,
}

impl MatmulKernel {
    pub(crate) fn code(self) -> u32 {
        match self {
            MatmulKernel::Tiled { tile, lhs, rhs } => {
                tile as u32 | (lhs as u32) << 2 | (rhs as u32) << 4
            }
            MatmulKernel::GemvAlongK => 64,
            MatmulKernel::GemvAcrossK => 65,
            MatmulKernel::Naive => 66,
        }
    }
}

/// One operand: its batch of matrices, and their strides.
pub(crate) struct Operand<'a> {
    pub layout: &'a Layout,
    /// Strides along k and across it.
    pub along: isize,
    pub across: isize,
}

impl Operand<'_> {
    pub fn fetch(&self, size: usize, dtype: DType) -> Fetch {
        let whole = |v: isize| v % 4 == 0;
        let batch = &self.layout.strides()[..self.layout.ndim() - 2];
        let quads = self.across == 1
            && whole(self.along)
            && size.is_multiple_of(4)
            && self.layout.offset().is_multiple_of(4);
        match () {
            () if quads && dtype.size() <= 4 && batch.iter().all(|&s| whole(s)) => Fetch::Quads,
            () if self.along.unsigned_abs() < self.across.unsigned_abs() => Fetch::AlongK,
            () => Fetch::Across,
        }
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
    pub fn tiles(&self, tile: Tile) -> (usize, usize) {
        (self.m.div_ceil(tile.rows()), self.n.div_ceil(tile.columns()))
    }

    pub fn tiled(&self, tile: Tile) -> MatmulKernel {
        MatmulKernel::Tiled {
            tile,
            lhs: self.lhs.fetch(self.m, self.dtype),
            rhs: self.rhs.fetch(self.n, self.dtype),
        }
    }

    /// The kernel for these sizes. `busy` is the number of workgroups that the GPU needs.
    pub fn select_kernel(&self, busy: usize) -> MatmulKernel {
        let size = accumulation(self.dtype).size();
        if self.m >= SKINNY && self.n >= SKINNY {
            let (down, across) = self.tiles(Tile::Large);
            let large =
                size == 4 && self.m > 64 && self.n > 64 && self.batch * down * across >= busy;
            return self.tiled(if large {
                Tile::Large
            } else if self.m <= 32 && self.n > 64 && size == 4 {
                Tile::Flat
            } else {
                Tile::Small
            });
        }
        if self.k < 2 * NAIVE_THREADS {
            return MatmulKernel::Naive;
        }
        // Neighbouring threads should read neighbouring elements of the larger matrix.
        let larger = if self.m >= self.n { &self.lhs } else { &self.rhs };
        match larger.along.unsigned_abs() <= larger.across.unsigned_abs() {
            true => MatmulKernel::GemvAlongK,
            false if self.n >= GEMV_COLUMNS => MatmulKernel::GemvAcrossK,
            false if self.m * self.n < 1024 => MatmulKernel::GemvAlongK,
            false => MatmulKernel::Naive,
        }
    }

    /// Slices of k: more than one where there are few tiles and long sums.
    pub fn splits(&self, kernel: MatmulKernel, busy: usize) -> usize {
        let MatmulKernel::Tiled { tile, .. } = kernel else { return 1 };
        let (down, across) = self.tiles(tile);
        (busy / (self.batch * down * across)).min(self.k / SLICE).clamp(1, 64)
    }
}
