//! Matrix products of batches of strided views.
//!
//! | kernel | a workgroup computes | selected for |
//! |---|---|---|
//! | `Tiled`, large | 128 x 128 results, 8 x 8 a thread | enough tiles to keep every core busy |
//! | `Tiled`, small | 64 x 64 results, 4 x 4 a thread | other matrices, 64-bit types |
//! | `Tiled`, flat | 32 x 128 results, 4 x 4 a thread | few rows |
//! | `Subgroups` | up to 32 x 32 results, by a subgroup of 8 | software adapters, 32-bit types |
//! | `GemvAlongK` | one result, or a group for each team of 8 threads, threads along k | skinny, the larger matrix contiguous along k |
//! | `GemvAcrossK` | 32 neighbouring results | skinny, rhs contiguous across k |
//! | `Cooperative` | 128 x 128 or 64 x 64 results | see [`crate::CooperativeMatrices`] |
//! | `Naive` | 64 results, a thread each | short sums; [`crate::MatmulKernels::Naive`] |
//!
//! All read strided operands: a transposed view is another pair of strides. Few tiles with a long k
//! are split along k, and a second pass adds the slices. 16-bit floats are accumulated in f32,
//! integers wrap; the order of additions follows from the sizes, so the same product gives the same
//! bits. Operands larger than one binding are split into blocks of rows and columns.
//!
//! The tiled kernels write 8- and 16-bit results packed, four neighbours a store, where the number
//! of columns is a multiple of four; other results of these types are cast by a second launch. On
//! llvmpipe that takes 0.80 to 0.90 of the time for k of 32 and 64, and the same for long k.
//!
//! On llvmpipe (Mesa 22.3.6, 2 threads) a product of 512 x 512 matrices in f32 runs at 0.9 GFLOP/s
//! in `Naive`, at 9 in the large tile and at 36 in `Subgroups` (`bench --only matmul/512`). A software
//! adapter spends 75 % of the time of the tiled kernel in loads, each of them a loop over the threads.

mod cooperative;
pub(crate) mod product;
pub(crate) mod select;
mod shader;

use crate::codegen::params::View;
use crate::codegen::types::accumulation;
use crate::device::Wgpu;
use crate::device::launch::{Key, Launch, Program};
use crate::device::options::{AdapterKind, CooperativeMatrices, MatmulKernels};
use crate::ops::accumulation::cast_to_storage;
use crate::ops::coalesce::Coalesced;
use crate::ops::copy::{can_compact, compact, slice_of};
use crate::ops::epilogue::Epilogue;
use crate::ops::matmul::product::Product;
use crate::ops::matmul::select::{GEMV_COLUMNS, MatmulKernel, NAIVE_THREADS};
use crate::ops::matmul::shader::MatmulParams;
pub(crate) use crate::ops::matmul::shader::{Results, tiled, wgsl};
use crate::ops::pieces::{concat, split_point};
use crate::ops::reduce::sum_slices;
use crate::ops::software;
use teeny_core::{DType, Error, Outputs, Result, Scalar, Shape, StorageRef, Tensor};

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
    let kernel = select_kernel(gpu, &product)?;
    let splits = product.splits(kernel, busy);
    multiply(gpu, lhs, rhs, kernel, splits)
}

/// The kernel for `product`. One on cooperative matrices is compared with
/// a known product at its first use.
fn select_kernel(gpu: &Wgpu, product: &Product<'_>) -> Result<MatmulKernel> {
    if gpu.matmul_kernels == MatmulKernels::Naive {
        return Ok(MatmulKernel::Naive);
    }
    let all_sizes = gpu.cooperative_matrices == CooperativeMatrices::Always;
    if let Some(kernel) = product.cooperative(&gpu.capabilities, all_sizes) {
        let multiply = |lhs: &Tensor, rhs: &Tensor, out: &StorageRef| {
            let kernel = MatmulKernel::Cooperative(kernel);
            launch(gpu, lhs, rhs, kernel, 1, None, std::slice::from_ref(out))
        };
        if cooperative::is_right(gpu, kernel, product.dtype, multiply)? {
            return Ok(MatmulKernel::Cooperative(kernel));
        }
    }
    Ok(match software::matmul::select(&gpu.capabilities, product) {
        Some(kernel) => MatmulKernel::Subgroups(kernel),
        None => product.select_kernel(target_workgroups(gpu)),
    })
}

/// The outputs of a kernel after the product of `lhs` and `rhs`.
pub(crate) fn matmul_kernel(
    gpu: &Wgpu,
    lhs: &Tensor,
    rhs: &Tensor,
    epilogue: &Epilogue<'_>,
) -> Result<Outputs> {
    let product = Product::of(lhs, rhs);
    gpu.require(product.dtype, "matmul")?;
    let count = epilogue.shape.numel();
    let busy = target_workgroups(gpu);
    let in_reach = count > 0
        && product.k > 0
        && !gpu.exceeds_binding(lhs)
        && !gpu.exceeds_binding(rhs)
        && product.k <= gpu.max_count;
    if in_reach && epilogue.fits(gpu) {
        let kernel = select_kernel(gpu, &product)?;
        if product.splits(kernel, busy) == 1 {
            let pairs = product.pairs(kernel, epilogue);
            let storages = epilogue.allocate(gpu, pairs)?;
            launch(gpu, lhs, rhs, kernel, 1, Some(epilogue), &storages)?;
            return epilogue.finish(gpu, storages, lhs);
        }
    }
    epilogue.run_separately(gpu, matmul(gpu, lhs, rhs)?, product.dtype, lhs)
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
    let written = if p.packs(kernel, splits) { p.dtype } else { wide };
    let out = gpu.allocate(splits * count, written)?;
    launch(gpu, lhs, rhs, kernel, splits, None, std::slice::from_ref(&out))?;
    if splits == 1 {
        return cast_to_storage(gpu, out, p.dtype, lhs);
    }
    let sum = sum_slices(gpu, out, splits, lhs)?;
    cast_to_storage(gpu, sum, p.dtype, lhs)
}

/// One launch of `kernel` into `outputs`: the product, or the results of the kernel after it.
fn launch(
    gpu: &Wgpu,
    lhs: &Tensor,
    rhs: &Tensor,
    kernel: MatmulKernel,
    splits: usize,
    epilogue: Option<&Epilogue<'_>>,
    outputs: &[StorageRef],
) -> Result<()> {
    let p = Product::of(lhs, rhs);
    let count = p.batch * p.m * p.n;
    let leading: Vec<usize> = (0..lhs.ndim() - 2).collect();
    let joint = Coalesced::over(lhs.shape(), &[p.lhs.layout, p.rhs.layout], &leading)?.padded();
    let (tiles_down, tiles_across) = kernel.tile().map_or((0, 0), |tile| p.tiles(tile));
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
        split_length: p.split_length(kernel, splits),
        sizes: (&joint.sizes).into(),
        lhs: View::new(p.lhs.layout.offset(), &joint.strides[0]),
        rhs: View::new(p.rhs.layout.offset(), &joint.strides[1]),
    };
    let axes = joint.sizes.len();
    let workgroups = match kernel {
        MatmulKernel::Tiled { .. } | MatmulKernel::Cooperative(_) | MatmulKernel::Subgroups(_) => {
            splits * p.batch * tiles_down * tiles_across
        }
        MatmulKernel::GemvAlongK(kernel) => p.along_k_workgroups(kernel),
        MatmulKernel::GemvAcrossK => p.batch * p.m * p.n.div_ceil(GEMV_COLUMNS),
        MatmulKernel::Naive => count.div_ceil(NAIVE_THREADS),
    };
    let pairs = epilogue.is_some_and(|epilogue| p.pairs(kernel, epilogue));
    let plan = epilogue.map(|epilogue| epilogue.plan(pairs));
    let packed = epilogue.is_none() && p.packs(kernel, splits);
    let mut variant = vec![axes as u32, p.dtype as u32, kernel.code(), (packed || pairs).into()];
    let mut inputs = vec![gpu.bind_tensor(lhs)?, gpu.bind_tensor(rhs)?];
    let mut words = params.words();
    if let (Some(epilogue), Some(plan)) = (epilogue, &plan) {
        variant.push(plan.axes as u32);
        inputs.extend(epilogue.inputs(gpu)?);
        epilogue.push(&mut words);
    }
    let family = match kernel {
        MatmulKernel::Cooperative(_) => "matmul_cooperative",
        _ => "matmul",
    };
    let key = Key { family, kernel: epilogue.map(|e| e.kernel.clone()), variant };
    gpu.dispatch(&Launch {
        program: Program { key, wgsl: &|| wgsl(kernel, axes, p.dtype, plan, packed) },
        inputs: &inputs,
        outputs: &outputs.iter().map(|out| gpu.bind(out)).collect::<Result<Vec<_>>>()?,
        params: &words,
        grid: gpu.dispatch_grid(workgroups as u64)?,
    })
}

/// A product of which some operand or the result is larger than one binding: halves of a batch
/// axis or of the rows; if only rhs is too large, halves of its columns if it is a transposed
/// table, whose rows are parts of its buffer, or of k, whose products are added.
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
    let table = rhs.transpose(-2, -1)?; // (.., n, k)
    let only_rhs = !gpu.exceeds_binding(lhs) && p.k <= gpu.max_count;
    if p.batch == 1 && p.n > 1 && only_rhs && table.is_contiguous() {
        let halves = [(0, p.n / 2), (p.n / 2, p.n)].map(|(low, high)| {
            let columns = slice_of(gpu, &table, rows, low, high)?.transpose(-2, -1)?;
            let shape = lhs.shape().with_size(rows + 1, high - low);
            gpu.tensor(matmul(gpu, lhs, &columns)?, shape, p.dtype, lhs)
        });
        let [low, high] = halves;
        return Ok(Tensor::cat(&[&low?, &high?], -1)?.storage().clone());
    }
    if p.k == 1 {
        return Err(Error::unsupported(format!(
            "cannot multiply {} by {}: one row exceeds the memory that a kernel reaches",
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
    use crate::ops::matmul::product::Fetch;
    use crate::ops::matmul::select::{AlongK, Cooperative, Tile};
    use crate::ops::software::matmul::Subgroups;
    use crate::{Capabilities, CooperativeMatrix, Options};
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
        let always = CooperativeMatrices::Always;
        let options = Options { cooperative_matrices: always, ..Options::default() };
        let Ok(gpu) = Wgpu::with_options(&options) else { return Ok(()) };
        let (device, oracle) =
            (gpu.clone() as teeny_core::DeviceRef, Reference::new() as teeny_core::DeviceRef);
        let types = [DType::F32, DType::F16, DType::BF16, DType::I32, DType::I8, DType::F64];
        for dtype in types {
            if !gpu.capabilities.supports(dtype) {
                continue;
            }
            let sizes = [
                (5, 300, 130),
                (64, 16, 64),
                (130, 33, 200),
                (129, 1, 3),
                (2, 700, 4),
                (33, 5, 132),
            ];
            for (m, k, n) in sizes {
                let (a, b) = operands(m, k, n, dtype, &oracle)?;
                let want = a.matmul(&b)?.to_scalars()?;
                let (a, b) = operands(m, k, n, dtype, &device)?;
                let tiles: &[Tile] = if accumulation(dtype).size() == 4 {
                    &[Tile::Small, Tile::Large, Tile::Flat]
                } else {
                    &[Tile::Small]
                };
                let fetches = [Fetch::AlongK, Fetch::Across];
                let along =
                    |teams, down| MatmulKernel::GemvAlongK(AlongK { teams, quads: false, down });
                let mut kernels = vec![
                    (along(false, false), 1),
                    (along(false, true), 1),
                    (along(true, false), 1),
                    (along(true, true), 1),
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
                if let Some(kernel) = Product::of(&a, &b).cooperative(&gpu.capabilities, true) {
                    // Where the size of subgroups varies there may be more than four.
                    let (fewest, most) = kernel.subgroup_threads;
                    let subgroup_threads = (fewest / 2, 2 * most);
                    let more = Cooperative { subgroup_threads, ..kernel };
                    let kernel = MatmulKernel::Cooperative(kernel);
                    kernels.extend([(kernel, 1), (kernel, 3)]);
                    kernels.push((MatmulKernel::Cooperative(more), 1));
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

    /// Sizes around the tiles, operands along and across k, in groups of four and not.
    #[test]
    fn tiles_of_subgroups_make_the_same_product() -> Result<()> {
        let Ok(gpu) = Wgpu::new() else { return Ok(()) };
        let device = gpu.clone() as teeny_core::DeviceRef;
        let oracle = Reference::new() as teeny_core::DeviceRef;
        let sizes = [
            (1, 3, 9),
            (5, 8, 16),
            (33, 7, 17),
            (4, 12, 8),
            (40, 66, 68),
            (17, 1, 40),
            (64, 20, 4),
        ];
        for (case, (m, k, n)) in sizes.into_iter().enumerate() {
            for layout in 0..16 {
                let [lhs_across, rhs_along, lhs_part, rhs_part] =
                    [1, 2, 4, 8].map(|bit| layout & bit != 0);
                let dtype = if layout % 3 == 0 { DType::I32 } else { DType::F32 };
                if !software::multiplies_by_subgroups(&gpu.capabilities, dtype) {
                    return Ok(());
                }
                // A batch of matrices; a part of a wider one does not begin at groups of four.
                let operand =
                    |rows: usize, columns: usize, part, device: &teeny_core::DeviceRef| {
                        let wide = (2, rows, columns + usize::from(part));
                        let x = Tensor::randint(-4, 5, wide, DType::I32, device)?.cast(dtype)?;
                        x.slice(2, usize::from(part)..)
                    };
                let both = |device: &teeny_core::DeviceRef| {
                    random::with_seed((16 * case + layout) as u64, || {
                        let a = match lhs_across {
                            true => operand(k, m, lhs_part, device)?.t()?,
                            false => operand(m, k, lhs_part, device)?,
                        };
                        let b = match rhs_along {
                            true => operand(n, k, rhs_part, device)?.t()?,
                            false => operand(k, n, rhs_part, device)?,
                        };
                        Ok::<_, Error>((a, b))
                    })
                };
                let (a, b) = both(&oracle)?;
                let want = a.matmul(&b)?.to_scalars()?;
                let (a, b) = both(&device)?;
                let best = software::matmul::tile(&Product::of(&a, &b));
                for rows in [8, 16, 32] {
                    let kernel = MatmulKernel::Subgroups(Subgroups { rows, ..best });
                    let product = multiply(&gpu, &a, &b, kernel, 1)?;
                    let product = gpu.tensor(product, Shape::new(&[2, m, n])?, dtype, &a)?;
                    assert!(
                        product.to_scalars()? == want,
                        "{kernel:?}: ({m}, {k}) @ ({k}, {n}) {dtype}, layout {layout}"
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
        for (m, n, teams) in [(1, 768, false), (1, 4096, true), (4096, 1, true), (4096, 4, true)] {
            let kernel = kernel(&zeros((m, 768))?, &zeros((n, 768))?.t()?);
            let expected = AlongK { teams, quads: true, down: m > n };
            assert_eq!(kernel, MatmulKernel::GemvAlongK(expected));
        }
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

    #[test]
    fn cooperative_matrices_multiply_types_and_sizes_that_fill_them() -> Result<()> {
        let Ok(gpu) = Wgpu::new() else { return Ok(()) };
        let matrix = |size, input, accumulator| CooperativeMatrix { size, input, accumulator };
        let mut tensor_cores = gpu.capabilities.clone();
        tensor_cores.cooperative_matrices = vec![
            matrix(16, DType::F16, DType::F16),
            matrix(8, DType::F16, DType::F32),
            matrix(16, DType::F16, DType::F32),
        ];
        tensor_cores.subgroup_threads = (32, 32);
        (tensor_cores.workgroup_threads, tensor_cores.workgroup_memory) = (256, 32768);
        let device = gpu as teeny_core::DeviceRef;
        let size = |m: usize, k: usize, n: usize, dtype, memory, all| -> Result<Option<usize>> {
            let (a, b) =
                (Tensor::zeros((m, k), dtype, &device)?, Tensor::zeros((k, n), dtype, &device)?);
            let gpu = Capabilities { workgroup_memory: memory, ..tensor_cores.clone() };
            Ok(Product::of(&a, &b).cooperative(&gpu, all).map(|kernel| kernel.size))
        };
        assert_eq!(size(64, 64, 64, DType::F16, 32768, false)?, Some(16));
        assert_eq!(size(64, 64, 64, DType::F16, 16384, false)?, Some(8));
        assert_eq!(size(64, 64, 64, DType::F16, 4096, false)?, None);
        for (m, k, n) in [(31, 64, 64), (64, 31, 64), (64, 64, 31)] {
            assert_eq!(size(m, k, n, DType::F16, 32768, false)?, None);
            assert_eq!(size(m, k, n, DType::F16, 32768, true)?, Some(16));
        }
        for dtype in [DType::F32, DType::BF16, DType::I32] {
            assert_eq!(size(64, 64, 64, dtype, 32768, true)?, None);
        }
        Ok(())
    }
}
