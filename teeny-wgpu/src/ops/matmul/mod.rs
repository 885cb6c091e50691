//! Matrix products of batches of strided views.
//!
//! | kernel | a workgroup computes | selected for |
//! |---|---|---|
//! | `Tiled`, large | 128 x 128 results, 8 x 8 a thread | enough tiles to keep every core busy |
//! | `Tiled`, small | 64 x 64 results, 4 x 4 a thread | other matrices, 64-bit types |
//! | `Tiled`, flat | 32 x 128 results, 4 x 4 a thread | few rows |
//! | `GemvAlongK` | one result, threads along k | skinny, the larger matrix contiguous along k |
//! | `GemvAcrossK` | 32 neighbouring results | skinny, rhs contiguous across k |
//! | `Naive` | 64 results, a thread each | short sums; [`crate::MatmulKernels::Naive`] |
//!
//! All read strided operands: a transposed view is another pair of strides. Few tiles with a long k
//! are split along k, and a second pass adds the slices. 16-bit floats are accumulated in f32,
//! integers wrap; the order of additions follows from the sizes, so the same product gives the same
//! bits. Operands larger than one binding are split into blocks of rows and columns.
//!
//! On llvmpipe (Mesa 22.3.6, 2 threads) a product of 512 x 512 matrices in f32 runs at 0.9 GFLOP/s
//! in `Naive` and at 11.3 in the large tile (`cargo bench -p teeny-wgpu` prints both).

pub(crate) mod select;
mod shader;

use crate::codegen::params::View;
use crate::codegen::types::accumulation;
use crate::device::Wgpu;
use crate::device::launch::{Key, Launch, Program};
use crate::device::options::{AdapterKind, MatmulKernels};
use crate::ops::accumulation::cast_to_storage;
use crate::ops::coalesce::Coalesced;
use crate::ops::copy::{can_compact, compact, slice_of};
use crate::ops::matmul::select::{GEMV_COLUMNS, MatmulKernel, NAIVE_THREADS, Product};
use crate::ops::matmul::shader::MatmulParams;
pub(crate) use crate::ops::matmul::shader::{tiled, wgsl};
use crate::ops::pieces::{concat, split_point};
use crate::ops::reduce::reduce;
use teeny_core::{DType, Error, ReduceOp, Result, Scalar, Shape, StorageRef, Tensor};

/// Workgroups that keep a GPU busy: enough for every core of a large one.
const BUSY: usize = 128;

/// Workgroups that keep this GPU busy. A software adapter has few cores, and its large tile is
/// the fastest of all.
pub(crate) fn target_workgroups(gpu: &Wgpu) -> usize {
    if gpu.capabilities.kind == AdapterKind::Cpu { 1 } else { BUSY }
}

/// The product of two batches of matrices with equal leading sizes.
pub(crate) fn matmul(gpu: &Wgpu, lhs: &Tensor, rhs: &Tensor) -> Result<StorageRef> {
    let product = Product::of(lhs, rhs);
    let dtype = product.dtype;
    gpu.require(dtype, "matmul")?;
    let count = [product.batch, product.m, product.n].into_iter().fold(1, usize::saturating_mul);
    gpu.checked_bytes(count, dtype)?;
    if count == 0 {
        return gpu.allocate(0, dtype);
    }
    if product.k == 0 {
        let zeros = Tensor::full(Shape::new(&[count])?, Scalar::Int(0), dtype, lhs)?;
        return Ok(zeros.storage().clone());
    }
    if can_compact(gpu, &[lhs, rhs]) {
        return matmul(gpu, &compact(gpu, lhs)?, &compact(gpu, rhs)?);
    }
    if gpu.exceeds_binding(lhs)
        || gpu.exceeds_binding(rhs)
        || gpu.len_exceeds_binding(count, accumulation(dtype))
        || product.k > gpu.max_count
    {
        return matmul_blocks(gpu, lhs, rhs);
    }
    let busy = target_workgroups(gpu);
    let kernel = match gpu.matmul_kernels {
        MatmulKernels::Auto => product.select_kernel(busy),
        MatmulKernels::Naive => MatmulKernel::Naive,
    };
    let splits = product.splits(kernel, busy);
    multiply(gpu, lhs, rhs, kernel, splits)
}

/// The product by `kernel`, in `splits` slices of k.
fn multiply(
    gpu: &Wgpu,
    lhs: &Tensor,
    rhs: &Tensor,
    kernel: MatmulKernel,
    splits: usize,
) -> Result<StorageRef> {
    let p = Product::of(lhs, rhs);
    let wide = accumulation(p.dtype);
    let count = p.batch * p.m * p.n;
    let out = gpu.allocate(splits * count, wide)?;
    let leading: Vec<usize> = (0..lhs.ndim() - 2).collect();
    let joint = Coalesced::over(lhs.shape(), &[p.lhs.layout, p.rhs.layout], &leading)?.padded();
    let (tiles_down, tiles_across) = match kernel {
        MatmulKernel::Tiled { tile, .. } => p.tiles(tile),
        MatmulKernel::GemvAlongK | MatmulKernel::GemvAcrossK | MatmulKernel::Naive => (0, 0),
    };
    let params = MatmulParams {
        m: p.m,
        k: p.k,
        n: p.n,
        lhs_row_stride: p.lhs.across,
        lhs_k_stride: p.lhs.along,
        rhs_k_stride: p.rhs.along,
        rhs_column_stride: p.rhs.across,
        matrices: p.batch,
        tiles_down,
        tiles_across,
        splits,
        split_length: p.k.div_ceil(splits),
        sizes: (&joint.sizes).into(),
        lhs: View::new(p.lhs.layout.offset(), &joint.strides[0]),
        rhs: View::new(p.rhs.layout.offset(), &joint.strides[1]),
    };
    let axes = joint.sizes.len();
    let workgroups = match kernel {
        MatmulKernel::Tiled { .. } => splits * p.batch * tiles_down * tiles_across,
        MatmulKernel::GemvAlongK => count,
        MatmulKernel::GemvAcrossK => p.batch * p.m * p.n.div_ceil(GEMV_COLUMNS),
        MatmulKernel::Naive => count.div_ceil(NAIVE_THREADS),
    };
    gpu.dispatch(&Launch {
        program: Program {
            key: Key::new("matmul", [axes as u32, p.dtype as u32, kernel.code()]),
            wgsl: &|| wgsl(kernel, axes, p.dtype),
        },
        inputs: &[gpu.bind_tensor(lhs)?, gpu.bind_tensor(rhs)?],
        outputs: &[gpu.bind(&out)?],
        params: &params.words(),
        grid: gpu.dispatch_grid(workgroups as u64)?,
    })?;
    if splits == 1 {
        return cast_to_storage(gpu, out, p.dtype, lhs);
    }
    let slices = gpu.tensor(out, Shape::new(&[splits, count])?, wide, lhs)?;
    let sum = reduce(gpu, ReduceOp::Sum, &slices, &[0])?;
    cast_to_storage(gpu, sum, p.dtype, lhs)
}

/// A product of which some operand or the result is larger than one binding: halves of a batch
/// axis, of the rows, or, if only rhs is too large, of k, whose products are added.
fn matmul_blocks(gpu: &Wgpu, lhs: &Tensor, rhs: &Tensor) -> Result<StorageRef> {
    let p = Product::of(lhs, rhs);
    let rows = lhs.ndim() - 2;
    let first = (0..rows).find(|&a| lhs.shape()[a] > 1 && p.k <= gpu.max_count).or((p.m > 1
        && p.k <= gpu.max_count
        && (gpu.exceeds_binding(lhs)
            || gpu.len_exceeds_binding(p.m * p.n, accumulation(p.dtype))))
    .then_some(rows));
    if let Some(axis) = first {
        let size = lhs.shape()[axis];
        let below = lhs.shape()[axis + 1..rows + 1].iter().product::<usize>() * p.n;
        let mid = split_point(size, below, p.dtype);
        let mut halves = Vec::with_capacity(2);
        for (low, high) in [(0, mid), (mid, size)] {
            let right =
                if axis < rows { slice_of(gpu, rhs, axis, low, high)? } else { rhs.clone() };
            halves.push(matmul(gpu, &slice_of(gpu, lhs, axis, low, high)?, &right)?);
        }
        return concat(gpu, &halves, p.dtype, lhs);
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
        let part = matmul(
            gpu,
            &slice_of(gpu, &lhs, rows + 1, low, high)?,
            &slice_of(gpu, &rhs, rows, low, high)?,
        )?;
        let part = gpu.tensor(part, shape, wide, &lhs)?;
        sum = Some(match sum {
            None => part,
            Some(sum) => sum.add(&part)?,
        });
    }
    let sum = sum.ok_or_else(|| Error::internal("a product of no columns"))?;
    Ok(sum.cast(p.dtype)?.storage().clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use crate::ops::matmul::select::{Fetch, Tile};
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
                let tiles: &[Tile] = if accumulation(dtype).size() == 4 {
                    &[Tile::Small, Tile::Large, Tile::Flat]
                } else {
                    &[Tile::Small]
                };
                let fetches = [Fetch::AlongK, Fetch::Across];
                let mut kernels = vec![
                    (MatmulKernel::GemvAlongK, 1),
                    (MatmulKernel::GemvAcrossK, 1),
                    (MatmulKernel::Naive, 1),
                ];
                for &tile in tiles {
                    kernels.push((Product::of(&a, &b).tiled(tile), 1));
                    let fetches = if dtype == DType::F32 { &fetches[..] } else { &fetches[..1] };
                    kernels.extend(fetches.iter().flat_map(|&lhs| {
                        fetches.iter().map(move |&rhs| (MatmulKernel::Tiled { tile, lhs, rhs }, 3))
                    }));
                }
                for (kernel, splits) in kernels {
                    let product = multiply(&gpu, &a, &b, kernel, splits)?;
                    let product = gpu.tensor(product, Shape::new(&[2, m, n])?, dtype, &a)?;
                    assert!(
                        product.to_scalars()? == want,
                        "{kernel:?} in {splits}: ({m}, {k}) @ ({k}, {n}) {dtype}"
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
        let kernel = |a: &Tensor, b: &Tensor| Product::of(a, b).select_kernel(4);
        assert_eq!(
            kernel(&zeros((512, 64))?, &zeros((64, 512))?),
            MatmulKernel::Tiled { tile: Tile::Large, lhs: Fetch::AlongK, rhs: Fetch::Quads }
        );
        assert_eq!(
            kernel(&zeros((64, 512))?.t()?, &zeros((63, 64))?.t()?),
            MatmulKernel::Tiled { tile: Tile::Small, lhs: Fetch::Quads, rhs: Fetch::AlongK }
        );
        assert_eq!(kernel(&zeros((1, 768))?, &zeros((768, 768))?), MatmulKernel::GemvAcrossK);
        assert_eq!(kernel(&zeros((1, 768))?, &zeros((768, 768))?.t()?), MatmulKernel::GemvAlongK);
        assert_eq!(kernel(&zeros((1, 8))?, &zeros((8, 768))?), MatmulKernel::Naive);
        assert_eq!(
            Product::of(&zeros((64, 8192))?, &zeros((8192, 64))?).splits(
                MatmulKernel::Tiled { tile: Tile::Small, lhs: Fetch::AlongK, rhs: Fetch::Quads },
                128
            ),
            32
        );
        Ok(())
    }
}
