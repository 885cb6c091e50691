//! Matrix products of batches of strided views.
//!
//! | kernel | a workgroup makes | chosen for |
//! |---|---|---|
//! | `Tiled`, large | 128 x 128 results, 8 x 8 a thread | enough tiles to keep every core busy |
//! | `Tiled`, small | 64 x 64 results, 4 x 4 a thread | other matrices, 64-bit types |
//! | `Tiled`, flat | 32 x 128 results, 4 x 4 a thread | few rows |
//! | `Dot` | one result, threads along k | thin products whose larger matrix is contiguous along k |
//! | `Across` | 32 neighbouring results, threads across and along k | thin products whose rhs is contiguous across |
//! | `Single` | 64 results, a thread each | short sums; [`crate::Products::Naive`] |
//!
//! All read the operands where they lie: a transposed view is another pair of strides. Few tiles
//! with a long k are cut along k, and a second pass adds the slices. 16-bit floats are accumulated
//! in f32, integers wrap; the order of additions follows from the sizes, so the same product gives
//! the same bits. Operands larger than one binding are cut into blocks of rows and columns.
//!
//! On llvmpipe (Mesa 22.3.6, 2 threads) a product of 512 x 512 matrices in f32 runs at 0.9 GFLOP/s
//! in `Single` and at 11.3 in the large tile (`cargo bench -p teeny-wgpu` prints both). Nothing was
//! measured on hardware yet.

mod shader;

use crate::adapter::{AdapterKind, Products};
use crate::device::{Launch, Wgpu};
use crate::params::Params;
use crate::pipeline::{Key, Program};
use crate::walk::Walk;
use crate::wide;
use shader::{ACROSS, THREADS};
pub(crate) use shader::{template, wgsl};
use teeny_core::{DType, Error, Layout, ReduceOp, Result, Scalar, StorageRef, Tensor};

/// Words 0..: m, k, n, strides of lhs (row, k) and rhs (k, column), their offsets, number of
/// matrices, tiles down and across, slices of k, their length.
pub(crate) const HEAD: usize = 14;
/// Results of a thin product have at most this many rows or columns.
const THIN: usize = 16;
/// Workgroups that keep a GPU busy: enough for every core of a large one.
const BUSY: usize = 128;
/// The shortest slice of k that is worth a workgroup.
const SLICE: usize = 256;

/// The size of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// 64 x 64 results.
    Small,
    /// 128 x 128.
    Large,
    /// 32 x 128: for few rows.
    Flat,
}

impl Shape {
    /// Rows of results.
    pub(crate) const fn tall(self) -> usize {
        match self {
            Shape::Small => 64,
            Shape::Large => 128,
            Shape::Flat => 32,
        }
    }

    /// Columns of results.
    pub(crate) const fn wide(self) -> usize {
        match self {
            Shape::Small => 64,
            Shape::Large | Shape::Flat => 128,
        }
    }

    /// Steps of k in workgroup memory at a time: 1024 elements of the right operand.
    pub(crate) const fn depth(self) -> usize {
        1024 / self.wide()
    }

    /// Results of one thread along each side.
    const fn part(self) -> usize {
        match self {
            Shape::Small | Shape::Flat => 4,
            Shape::Large => 8,
        }
    }
}

/// How threads share the reading of an operand, by where its neighbours in memory are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fetch {
    /// Along k.
    AlongK,
    /// Across k.
    Across,
    /// Across k, and groups of four begin at multiples of four elements.
    Quads,
}

/// Which kernel makes the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Tiled { shape: Shape, lhs: Fetch, rhs: Fetch },
    Dot,
    Across,
    Single,
}

impl Way {
    fn code(self) -> u32 {
        match self {
            Way::Tiled { shape, lhs, rhs } => shape as u32 | (lhs as u32) << 2 | (rhs as u32) << 4,
            Way::Dot => 64,
            Way::Across => 65,
            Way::Single => 66,
        }
    }
}

/// One operand: where its matrices lie, and their strides along and across k.
struct Operand<'a> {
    layout: &'a Layout,
    along: isize,
    across: isize,
}

impl Operand<'_> {
    fn fetch(&self, size: usize, dtype: DType) -> Fetch {
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
struct Product<'a> {
    batch: usize,
    m: usize,
    k: usize,
    n: usize,
    lhs: Operand<'a>,
    rhs: Operand<'a>,
    dtype: DType,
}

impl<'a> Product<'a> {
    fn of(lhs: &'a Tensor, rhs: &'a Tensor) -> Product<'a> {
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
    fn tiles(&self, shape: Shape) -> (usize, usize) {
        (self.m.div_ceil(shape.tall()), self.n.div_ceil(shape.wide()))
    }

    fn tiled(&self, shape: Shape) -> Way {
        Way::Tiled {
            shape,
            lhs: self.lhs.fetch(self.m, self.dtype),
            rhs: self.rhs.fetch(self.n, self.dtype),
        }
    }

    /// The kernel for these sizes. `busy` is the number of workgroups that the GPU needs.
    fn way(&self, busy: usize) -> Way {
        let wide = wide::wide(self.dtype).size();
        if self.m >= THIN && self.n >= THIN {
            let (down, across) = self.tiles(Shape::Large);
            let large =
                wide == 4 && self.m > 64 && self.n > 64 && self.batch * down * across >= busy;
            return self.tiled(if large {
                Shape::Large
            } else if self.m <= 32 && self.n > 64 && wide == 4 {
                Shape::Flat
            } else {
                Shape::Small
            });
        }
        if self.k < 2 * THREADS {
            return Way::Single;
        }
        // Neighbouring threads should read neighbouring elements of the larger matrix.
        let larger = if self.m >= self.n { &self.lhs } else { &self.rhs };
        match larger.along.unsigned_abs() <= larger.across.unsigned_abs() {
            true => Way::Dot,
            false if self.n >= ACROSS => Way::Across,
            false if self.m * self.n < 1024 => Way::Dot,
            false => Way::Single,
        }
    }

    /// Slices of k: more than one where there are few tiles and long sums.
    fn splits(&self, way: Way, busy: usize) -> usize {
        let Way::Tiled { shape, .. } = way else { return 1 };
        let (down, across) = self.tiles(shape);
        (busy / (self.batch * down * across)).min(self.k / SLICE).clamp(1, 64)
    }
}

impl Wgpu {
    /// Workgroups that keep this GPU busy. A software adapter has few cores, and its large tile is
    /// the fastest of all.
    pub(crate) fn busy(&self) -> usize {
        if self.capabilities.kind == AdapterKind::Cpu { 1 } else { BUSY }
    }

    /// The product of two batches of matrices with equal leading sizes.
    pub(crate) fn product(&self, lhs: &Tensor, rhs: &Tensor) -> Result<StorageRef> {
        let product = Product::of(lhs, rhs);
        let dtype = product.dtype;
        self.require(dtype, "matmul")?;
        let count =
            [product.batch, product.m, product.n].into_iter().fold(1, usize::saturating_mul);
        self.room(count, dtype)?;
        if count == 0 {
            return self.allocate(0, dtype);
        }
        if product.k == 0 {
            let zeros =
                Tensor::full(teeny_core::Shape::new(&[count])?, Scalar::Int(0), dtype, lhs)?;
            return Ok(zeros.storage().clone());
        }
        if self.hides(&[lhs, rhs]) {
            return self.product(&self.seen(lhs)?, &self.seen(rhs)?);
        }
        if self.is_large(lhs)
            || self.is_large(rhs)
            || self.exceeds(count, wide::wide(dtype))
            || product.k > self.max_count
        {
            return self.blocks(lhs, rhs);
        }
        let busy = self.busy();
        let way = match self.products {
            Products::Auto => product.way(busy),
            Products::Naive => Way::Single,
        };
        let splits = product.splits(way, busy);
        self.multiply(lhs, rhs, way, splits)
    }

    /// The product by a given kernel, in `splits` slices of k.
    pub(crate) fn multiply(
        &self,
        lhs: &Tensor,
        rhs: &Tensor,
        way: Way,
        splits: usize,
    ) -> Result<StorageRef> {
        let p = Product::of(lhs, rhs);
        let wide = wide::wide(p.dtype);
        let count = p.batch * p.m * p.n;
        let out = self.allocate(splits * count, wide)?;
        let leading: Vec<usize> = (0..lhs.ndim() - 2).collect();
        let walk = Walk::over(lhs.shape(), &[p.lhs.layout, p.rhs.layout], &leading)?.padded();
        let (down, across) = match way {
            Way::Tiled { shape, .. } => p.tiles(shape),
            Way::Dot | Way::Across | Way::Single => (0, 0),
        };
        let mut slot = Params::new();
        slot.counts(&[p.m, p.k, p.n]);
        slot.strides(&[p.lhs.across, p.lhs.along, p.rhs.along, p.rhs.across]);
        slot.counts(&[
            p.lhs.layout.offset(),
            p.rhs.layout.offset(),
            p.batch,
            down,
            across,
            splits,
            p.k.div_ceil(splits),
        ]);
        slot.counts(&walk.sizes);
        slot.strides(walk.strides.iter().flatten());
        let rank = walk.sizes.len();
        let groups = match way {
            Way::Tiled { .. } => splits * p.batch * down * across,
            Way::Dot => count,
            Way::Across => p.batch * p.m * p.n.div_ceil(ACROSS),
            Way::Single => count.div_ceil(THREADS),
        };
        self.dispatch(&Launch {
            program: Program {
                key: Key::new("matmul", [rank as u32, p.dtype as u32, way.code()]),
                wgsl: &|| Ok(wgsl(way, rank, p.dtype)),
            },
            inputs: &[self.part(lhs)?, self.part(rhs)?],
            outputs: &[self.whole(&out)?],
            params: &slot,
            groups: self.fold(groups as u64)?,
        })?;
        if splits == 1 {
            return self.narrow(out, p.dtype, lhs);
        }
        let slices = self.tensor(out, teeny_core::Shape::new(&[splits, count])?, wide, lhs)?;
        let sum = self.fold_axes(ReduceOp::Sum, &slices, &[0])?;
        self.narrow(sum, p.dtype, lhs)
    }

    /// A product of which some operand or the result is larger than one binding: halves of a batch
    /// axis, of the rows, or, if only rhs is too large, of k, whose products are added.
    fn blocks(&self, lhs: &Tensor, rhs: &Tensor) -> Result<StorageRef> {
        let p = Product::of(lhs, rhs);
        let rows = lhs.ndim() - 2;
        let first = (0..rows).find(|&a| lhs.shape()[a] > 1 && p.k <= self.max_count).or((p.m > 1
            && p.k <= self.max_count
            && (self.is_large(lhs) || self.exceeds(p.m * p.n, wide::wide(p.dtype))))
        .then_some(rows));
        if let Some(axis) = first {
            let size = lhs.shape()[axis];
            let below = lhs.shape()[axis + 1..rows + 1].iter().product::<usize>() * p.n;
            let mid = Wgpu::cut(size, below, p.dtype);
            let mut halves = Vec::with_capacity(2);
            for (low, high) in [(0, mid), (mid, size)] {
                let right =
                    if axis < rows { self.piece(rhs, axis, low, high)? } else { rhs.clone() };
                halves.push(self.product(&self.piece(lhs, axis, low, high)?, &right)?);
            }
            return self.join(&halves, p.dtype, lhs);
        }
        if p.k == 1 {
            return Err(Error::unsupported(format!(
                "a product of {} and {}: one row of them is more than a kernel reaches on this GPU",
                lhs.shape(),
                rhs.shape()
            ))
            .help("split the columns of the right operand, or use the CPU device"));
        }
        // Sums of 16-bit floats are rounded once, at the end.
        let wide = if p.dtype.is_half() { DType::F32 } else { p.dtype };
        let (lhs, rhs) = (lhs.cast(wide)?, rhs.cast(wide)?);
        let shape = lhs.shape().with_size(rows + 1, p.n);
        let mut sum: Option<Tensor> = None;
        for (low, high) in [(0, p.k / 2), (p.k / 2, p.k)] {
            let part = self.product(
                &self.piece(&lhs, rows + 1, low, high)?,
                &self.piece(&rhs, rows, low, high)?,
            )?;
            let part = self.tensor(part, shape, wide, &lhs)?;
            sum = Some(match sum {
                None => part,
                Some(sum) => sum.add(&part)?,
            });
        }
        let sum = sum.ok_or_else(|| Error::internal("a product of no columns"))?;
        Ok(sum.cast(p.dtype)?.storage().clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use teeny_core::{Reference, random};

    fn operands(
        m: usize,
        k: usize,
        n: usize,
        dtype: DType,
        device: &teeny_core::DeviceRef,
    ) -> Result<(Tensor, Tensor)> {
        random::with_seed((m * n + k) as u64, || {
            let draw = |shape: (usize, usize, usize)| {
                Tensor::randint(-4, 5, shape, DType::I32, device)?.cast(dtype)
            };
            Ok((draw((2, k, m))?.t()?, draw((2, k, n + 4))?.slice(2, 4..)?))
        })
    }

    #[test]
    fn every_kernel_makes_the_same_product() -> Result<()> {
        let Ok(gpu) = Wgpu::with_options(&Options::default()) else { return Ok(()) };
        let (device, oracle) =
            (gpu.clone() as teeny_core::DeviceRef, Reference::new() as teeny_core::DeviceRef);
        for dtype in [DType::F32, DType::F16, DType::I32, DType::I8, DType::F64] {
            if !gpu.capabilities.supports(dtype) {
                continue;
            }
            for (m, k, n) in [(5, 300, 130), (64, 16, 64), (130, 33, 200), (129, 1, 3), (2, 700, 4)]
            {
                let (a, b) = operands(m, k, n, dtype, &oracle)?;
                let want = a.matmul(&b)?.to_scalars()?;
                let (a, b) = operands(m, k, n, dtype, &device)?;
                let shapes: &[Shape] = if wide::wide(dtype).size() == 4 {
                    &[Shape::Small, Shape::Large, Shape::Flat]
                } else {
                    &[Shape::Small]
                };
                let fetches = [Fetch::AlongK, Fetch::Across];
                let mut ways = vec![(Way::Dot, 1), (Way::Across, 1), (Way::Single, 1)];
                for &shape in shapes {
                    ways.push((Product::of(&a, &b).tiled(shape), 1));
                    let fetches = if dtype == DType::F32 { &fetches[..] } else { &fetches[..1] };
                    ways.extend(fetches.iter().flat_map(|&lhs| {
                        fetches.iter().map(move |&rhs| (Way::Tiled { shape, lhs, rhs }, 3))
                    }));
                }
                for (way, splits) in ways {
                    let product = gpu.multiply(&a, &b, way, splits)?;
                    let product =
                        gpu.tensor(product, teeny_core::Shape::new(&[2, m, n])?, dtype, &a)?;
                    assert!(
                        product.to_scalars()? == want,
                        "{way:?} in {splits}: ({m}, {k}) @ ({k}, {n}) {dtype}"
                    );
                }
            }
        }
        Ok(())
    }

    #[test]
    fn the_kernel_follows_the_shape() -> Result<()> {
        let oracle = Reference::new() as teeny_core::DeviceRef;
        let zeros = |shape: (usize, usize)| Tensor::zeros(shape, DType::F32, &oracle);
        let way = |a: &Tensor, b: &Tensor| Product::of(a, b).way(4);
        assert_eq!(
            way(&zeros((512, 64))?, &zeros((64, 512))?),
            Way::Tiled { shape: Shape::Large, lhs: Fetch::AlongK, rhs: Fetch::Quads }
        );
        assert_eq!(
            way(&zeros((64, 512))?.t()?, &zeros((63, 64))?.t()?),
            Way::Tiled { shape: Shape::Small, lhs: Fetch::Quads, rhs: Fetch::AlongK }
        );
        assert_eq!(way(&zeros((1, 768))?, &zeros((768, 768))?), Way::Across);
        assert_eq!(way(&zeros((1, 768))?, &zeros((768, 768))?.t()?), Way::Dot);
        assert_eq!(way(&zeros((1, 8))?, &zeros((8, 768))?), Way::Single);
        assert_eq!(
            Product::of(&zeros((64, 8192))?, &zeros((8192, 64))?).splits(
                Way::Tiled { shape: Shape::Small, lhs: Fetch::AlongK, rhs: Fetch::Quads },
                128
            ),
            32
        );
        Ok(())
    }
}
