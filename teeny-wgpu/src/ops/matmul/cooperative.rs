//! The comparison of a kernel on cooperative matrices with a known product, at its first use on a
//! device.
//!
//! Drivers are young here: some compile such kernels wrongly or not at all. The known product has
//! integers whose sums are exact in f32 in any order, more bits than a sum in f16 or an operand
//! rounded to fewer bits would keep, two matrices, edges in every direction and several steps of k.

use crate::device::Wgpu;
use crate::device::lock::lock;
use crate::device::mapping::CAN_WAIT;
use crate::ops::matmul::product::Staging;
use crate::ops::matmul::select::{Cooperative, MatmulKernel};
use teeny_core::{DType, Device, DeviceRef, ErrorKind, Result, Shape, StorageRef, Tensor};

/// Matrices of the known product.
const BATCH: usize = 2;

/// True if `kernel` computes a known product; a warning says why it does not. `multiply` launches
/// it into a storage of f32.
///
/// # Errors
/// Errors of earlier work, for which the first use waits.
pub(crate) fn is_right(
    gpu: &Wgpu,
    kernel: Cooperative,
    dtype: DType,
    multiply: impl FnOnce(&Tensor, &Tensor, &StorageRef) -> Result<()>,
) -> Result<bool> {
    let key = (dtype, MatmulKernel::Cooperative(kernel).code());
    if let Some(&right) = lock(&gpu.compared).get(&key) {
        return Ok(right);
    }
    if !CAN_WAIT {
        return Ok(false);
    }
    gpu.synchronize()?;
    let wrong = match compare(gpu, kernel, dtype, multiply) {
        Ok(wrong) => wrong.map(|element| format!("element {element} of a known product is wrong")),
        Err(error) if error.kind() == ErrorKind::OutOfMemory => return Ok(false),
        Err(error) => {
            // Takes the further errors that the driver reports for this launch.
            let _ = gpu.synchronize();
            Some(error.to_string())
        }
    };
    if let Some(why) = &wrong {
        tracing::warn!(
            adapter = %gpu.capabilities,
            "cooperative matrices are not used for products of {dtype} by {kernel:?}: {why}"
        );
    }
    lock(&gpu.compared).insert(key, wrong.is_none());
    Ok(wrong.is_none())
}

/// The number of the first wrong element of a known product, if there is one.
fn compare(
    gpu: &Wgpu,
    kernel: Cooperative,
    dtype: DType,
    multiply: impl FnOnce(&Tensor, &Tensor, &StorageRef) -> Result<()>,
) -> Result<Option<usize>> {
    let device = gpu.shared()? as DeviceRef;
    let known = Known::of(kernel, dtype);
    let (m, k, n) = known.sizes;
    let lhs = matrices(&known.lhs, m, k, kernel.lhs, dtype, &device)?; // (BATCH, m, k)
    let rhs = matrices(&known.rhs, n, k, kernel.rhs, dtype, &device)?.t()?; // (BATCH, k, n)
    let out = gpu.allocate(BATCH * m * n, DType::F32)?;
    multiply(&lhs, &rhs, &out)?;
    let got = gpu.tensor(out, Shape::new(&[BATCH * m * n])?, DType::F32, &lhs)?.to_vec::<f32>()?;
    Ok(got.iter().zip(known.product()).position(|(got, want)| *got != want))
}

/// A known product: its sizes and operands, `lhs[b, row, k]` and `rhs[b, column, k]`.
struct Known {
    sizes: (usize, usize, usize),
    lhs: Vec<f32>,
    rhs: Vec<f32>,
}

impl Known {
    /// Sizes a little beyond one tile and two steps of k; multiples of four only where the kernel
    /// reads groups of four.
    fn of(kernel: Cooperative, dtype: DType) -> Known {
        let beyond = |whole: bool| if whole { 4 } else { 3 };
        let quads = |s: Staging, along: bool| s.quads && s.along == along;
        let m = kernel.tile() + beyond(quads(kernel.lhs, false));
        let n = kernel.tile() + beyond(quads(kernel.rhs, false));
        let k = 2 * Cooperative::DEPTH + beyond(quads(kernel.lhs, true) || quads(kernel.rhs, true));
        let integers = |count: usize, step: usize, largest: usize| -> Vec<f32> {
            let number = |i: usize| (i * step % (2 * largest + 1)) as f32 - largest as f32;
            (0..count).map(number).collect()
        };
        // Integers that the type has, |sum| < 70 * 65535 * 3 < 2^24.
        let largest = if dtype == DType::F16 { 2047 } else { 65535 };
        Known {
            sizes: (m, k, n),
            lhs: integers(BATCH * m * k, 7919, largest),
            rhs: integers(BATCH * n * k, 10007, 3),
        }
    }

    /// The elements of the product in row-major order.
    fn product(&self) -> impl Iterator<Item = f32> {
        let (m, k, n) = self.sizes;
        (0..BATCH * m * n).map(move |i| {
            let (b, row, column) = (i / (m * n), i / n % m, i % n);
            let (l, r) = ((b * m + row) * k, (b * n + column) * k);
            self.lhs[l..l + k].iter().zip(&self.rhs[r..r + k]).map(|(l, r)| l * r).sum()
        })
    }
}

/// `values`, (BATCH, size, k) in row-major order, as the view that `staging` reads.
fn matrices(
    values: &[f32],
    size: usize,
    k: usize,
    staging: Staging,
    dtype: DType,
    device: &DeviceRef,
) -> Result<Tensor> {
    let packed = Tensor::from_slice(values, (BATCH, size, k), device)?.cast(dtype)?;
    let stored = if staging.along { packed } else { packed.t()?.contiguous()? };
    let stored = if staging.quads {
        stored
    } else {
        // One more column before the others: groups of four begin anywhere.
        let first = stored.slice(2, ..1)?;
        Tensor::cat(&[&first, &stored], 2)?.slice(2, 1..)?
    };
    if staging.along { Ok(stored) } else { stored.t() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::options::{CooperativeMatrices, Options};
    use crate::ops::matmul::product::Product;

    /// The device with cooperative matrices, if this machine has one.
    fn gpu() -> Option<std::sync::Arc<Wgpu>> {
        let always = CooperativeMatrices::Always;
        let options = Options { cooperative_matrices: always, ..Options::default() };
        let gpu = Wgpu::with_options(&options).ok()?;
        if gpu.capabilities.cooperative_matrices.is_empty() {
            eprintln!("SKIPPED: {} has no cooperative matrices", gpu.capabilities);
            return None;
        }
        Some(gpu)
    }

    fn kernel(gpu: &Wgpu, [lhs, rhs]: [Staging; 2]) -> Cooperative {
        let (fewest, most) = gpu.capabilities.subgroup_threads;
        Cooperative {
            size: gpu.capabilities.cooperative_matrices[0].size as usize,
            subgroup_threads: (fewest as usize, most as usize),
            lhs,
            rhs,
        }
    }

    #[test]
    fn a_known_product_is_read_as_its_kernel_reads() -> Result<()> {
        let Some(gpu) = gpu() else { return Ok(()) };
        let device = gpu.clone() as DeviceRef;
        for bits in 0..16 {
            let staging =
                |at: u32| Staging { along: bits >> at & 1 == 1, quads: bits >> at & 2 == 2 };
            let kernel = kernel(&gpu, [staging(0), staging(2)]);
            let known = Known::of(kernel, DType::F16);
            let (m, k, n) = known.sizes;
            let lhs = matrices(&known.lhs, m, k, kernel.lhs, DType::F16, &device)?;
            let rhs = matrices(&known.rhs, n, k, kernel.rhs, DType::F16, &device)?.t()?;
            let selected = Product::of(&lhs, &rhs).cooperative(&gpu.capabilities, false);
            assert_eq!(selected, Some(kernel));
        }
        Ok(())
    }

    #[test]
    fn a_wrong_kernel_and_one_that_is_rejected_are_found_once_and_not_used() -> Result<()> {
        let Some(gpu) = gpu() else { return Ok(()) };
        for quads in [true, false] {
            let kernel = kernel(&gpu, [Staging { along: true, quads }; 2]);
            let broken = |_: &Tensor, _: &Tensor, _: &StorageRef| match quads {
                true => Ok(()), // writes nothing
                false => Err(teeny_core::Error::internal("the driver rejects it")),
            };
            assert!(!is_right(&gpu, kernel, DType::F16, broken)?);
            let unused = |_: &Tensor, _: &Tensor, _: &StorageRef| -> Result<()> {
                panic!("a kernel is compared once")
            };
            assert!(!is_right(&gpu, kernel, DType::F16, unused)?);
        }
        let device = gpu.clone() as DeviceRef;
        let ones = |shape| Tensor::ones(shape, DType::F16, &device);
        let product = ones((40, 64))?.matmul(&ones((40, 64))?.t()?)?;
        assert_eq!(product.cast(DType::F32)?.to_vec::<f32>()?, [64.0; 40 * 40]);
        let families = gpu.profile().families;
        assert!(families.iter().any(|f| f.name == "matmul"), "{families:?}");
        assert!(!families.iter().any(|f| f.name == "matmul_cooperative"), "{families:?}");
        Ok(())
    }
}
