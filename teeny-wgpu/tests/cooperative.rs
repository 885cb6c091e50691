//! Matrix products on cooperative matrices (tensor cores), against the oracle. On an adapter
//! without them the tests say so and pass.

use crate::common;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use teeny_conformance::Suite;
use teeny_core::{DType, DeviceRef, Reference, Result, Tensor, random};
use teeny_wgpu::{AdapterKind, CooperativeMatrices, Options, Wgpu};

/// A new device that uses cooperative matrices for all sizes, and the types that it multiplies so.
fn cooperative() -> Result<Option<(Arc<Wgpu>, Vec<DType>)>> {
    if common::gpu().is_none() {
        return Ok(None);
    }
    let cooperative_matrices = CooperativeMatrices::Always;
    let gpu = Wgpu::with_options(&Options::new().with_cooperative_matrices(cooperative_matrices))?;
    let found = gpu.capabilities().cooperative_matrices.iter();
    let mut dtypes: Vec<DType> =
        found.filter(|c| c.accumulator == DType::F32).map(|c| c.input).collect();
    dtypes.dedup();
    if dtypes.is_empty() {
        eprintln!("SKIPPED: {} has no cooperative matrices", gpu.capabilities());
        return Ok(None);
    }
    eprintln!("{}: cooperative matrices for {dtypes:?}", gpu.capabilities());
    Ok(Some((gpu, dtypes)))
}

/// True if kernels on cooperative matrices were compiled, and no other kernels of products.
fn ran_alone(gpu: &Wgpu) -> bool {
    let compiles = |name: &str| {
        let families = gpu.profile().families;
        families.iter().filter(|f| f.name == name).map(|f| f.compiles).sum::<u64>()
    };
    compiles("matmul_cooperative") > 0 && compiles("matmul") == 0
}

/// A (batch, rows, columns) view of numbers of type `dtype`; `layout` says how it is stored.
fn matrix(
    (batch, rows, columns): (usize, usize, usize),
    layout: usize,
    dtype: DType,
    device: &DeviceRef,
) -> Result<Tensor> {
    let values = |sizes: (usize, usize, usize)| {
        Tensor::uniform(-1.0, 1.0, sizes, DType::F32, device)?.cast(dtype)
    };
    match layout {
        0 => values((batch, rows, columns)),
        1 => values((batch, columns, rows))?.t(),
        2 => {
            values((batch + 1, rows + 2, columns + 3))?.slice(0, 1..)?.slice(1, 2..)?.slice(2, 3..)
        }
        3 => values((batch, columns, rows + 1))?.slice(2, 1..)?.t(),
        4 => values((batch, rows, columns))?.flip([1, 2]),
        5 => values((batch, rows, 2 * columns))?.slice_step(2, .., 2),
        _ => values((1, rows, columns))?.expand((batch, rows, columns)),
    }
}

#[test]
fn products_of_random_sizes_keep_the_documented_bound() -> Result<()> {
    let Some((gpu, dtypes)) = cooperative()? else { return Ok(()) };
    let (device, oracle) = (gpu.clone() as DeviceRef, Reference::new() as DeviceRef);
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_nanos() as u64);
    let mut state = seed;
    let mut below = |n: usize| {
        // splitmix64
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    };
    for case in 0..40 {
        let dtype = dtypes[case % dtypes.len()];
        // Every third case has whole groups of four, which other variants of the kernel read.
        let unit = if case % 3 == 0 { 4 } else { 1 };
        let mut size = |n: usize| (below(n / unit) + 1) * unit;
        let (m, k, n) = match case % 4 {
            0 => (size(16), size(1200), size(16)),
            1 => (size(200), size(40), size(20)),
            _ => (size(90), size(130), size(150)),
        };
        let (batch, layouts) = (below(3) + 1, [below(7), below(7)]);
        let operands = |device: &DeviceRef| {
            random::with_seed(seed ^ case as u64, || {
                let lhs = matrix((batch, m, k), layouts[0], dtype, device)?;
                Ok::<_, teeny_core::Error>((lhs, matrix((batch, k, n), layouts[1], dtype, device)?))
            })
        };
        let (a, b) = operands(&device)?;
        let got = a.matmul(&b)?.cast(DType::F64)?.to_vec::<f64>()?;
        let (a, b): (Tensor, Tensor) = operands(&oracle)?;
        let (a, b) = (a.cast(DType::F64)?, b.cast(DType::F64)?);
        let want = a.matmul(&b)?.to_vec::<f64>()?;
        let sizes = a.abs()?.matmul(&b.abs()?)?.to_vec::<f64>()?; // Σ |a b|
        // The last rounding, to the type of the result.
        let (unit, least) =
            if dtype == DType::F16 { (2f64.powi(-11), 2f64.powi(-25)) } else { (0.0, 0.0) };
        for i in 0..want.len() {
            let bound = k as f64 * 2f64.powi(-22) * sizes[i];
            let bound = bound + (want[i].abs() + bound) * unit + least;
            assert!(
                (got[i] - want[i]).abs() <= bound,
                "seed {seed}, case {case}: {batch} x ({m}, {k}) @ ({k}, {n}) {dtype}, layouts \
                 {layouts:?}: element {i} is {}, not {}",
                got[i],
                want[i]
            );
        }
    }
    assert!(ran_alone(&gpu), "{}", gpu.profile());
    Ok(())
}

#[test]
fn products_and_kernels_behind_them_pass_the_suite() -> Result<()> {
    let Some((gpu, dtypes)) = cooperative()? else { return Ok(()) };
    // A sample: each kernel after a product is compiled with it, in seconds by software.
    let suite = Suite::new(&gpu)
        .flushes_subnormals()
        .loses_zero_signs()
        .multiplies_padding()
        .simplifies_programs();
    let suite = suite.within(Duration::from_secs(40));
    let report = suite.dtypes(&dtypes).only("matmul").run(); // and matmul_kernel
    println!("{}", report.markdown());
    assert!(report.passed(), "{report}");
    assert!(ran_alone(&gpu), "{}", gpu.profile());
    Ok(())
}

#[test]
fn infinite_and_undefined_elements_stay_in_their_rows_and_columns() -> Result<()> {
    let Some((gpu, dtypes)) = cooperative()? else { return Ok(()) };
    let device = gpu.clone() as DeviceRef;
    let (m, k, n) = (37, 35, 41); // the padding of every tile is beside them
    for dtype in dtypes {
        let mut values = vec![1f32; m * k];
        values[3 * k + k - 1] = f32::INFINITY;
        values[(m - 1) * k + 2] = f32::NAN;
        let lhs = Tensor::from_slice(&values, (m, k), &device)?.cast(dtype)?;
        let rhs = Tensor::ones((k, n), dtype, &device)?;
        let product = lhs.matmul(&rhs)?.cast(DType::F32)?.to_vec::<f32>()?;
        for (i, y) in product.iter().enumerate() {
            let right = match i / n {
                3 => *y == f32::INFINITY,
                row if row == m - 1 => y.is_nan(),
                _ => *y == k as f32,
            };
            assert!(right, "{dtype}: element {i} is {y}");
        }
    }
    assert!(ran_alone(&gpu), "{}", gpu.profile());
    Ok(())
}

#[test]
fn sums_that_f16_does_not_hold_are_kept_in_f32() -> Result<()> {
    let Some((gpu, dtypes)) = cooperative()? else { return Ok(()) };
    if !dtypes.contains(&DType::F16) {
        return Ok(());
    }
    let device = gpu.clone() as DeviceRef;
    // 4096 + 1 - 4096: in f16, 4096 + 1 is 4096.
    let lhs = Tensor::new([[64f32, 1.0, -64.0]], &device)?.cast(DType::F16)?;
    let rhs = Tensor::new([[64f32], [1.0], [64.0]], &device)?.cast(DType::F16)?;
    let product = lhs.matmul(&rhs)?.cast(DType::F32)?;
    assert_eq!(product.to_vec::<f32>()?, [1.0]);
    // 70,000 is beyond the range of f16, within the range of its sums.
    let lhs = Tensor::full((40, 70), 100.0, DType::F16, &device)?;
    let rhs = Tensor::full((70, 40), 10.0, DType::F16, &device)?;
    let halves = Tensor::cat(&[&rhs, &rhs.neg()?], 0)?;
    let product = Tensor::cat(&[&lhs, &lhs], 1)?.matmul(&halves)?.cast(DType::F32)?;
    assert_eq!(product.to_vec::<f32>()?, [0.0; 1600]);
    Ok(())
}

#[test]
fn they_are_used_on_request_and_not_by_software_adapters() -> Result<()> {
    let Some(gpu) = common::gpu() else { return Ok(()) };
    let with = |cooperative_matrices| {
        Wgpu::with_options(&Options::new().with_cooperative_matrices(cooperative_matrices))
    };
    let mut without = vec![with(CooperativeMatrices::Never)?];
    if gpu.capabilities().kind == AdapterKind::Cpu {
        without.push(with(CooperativeMatrices::Auto)?);
    }
    without.push(gpu);
    for gpu in without {
        assert_eq!(gpu.capabilities().cooperative_matrices, []);
        let x = Tensor::ones((64, 64), DType::F16, &gpu)?;
        assert_eq!(x.matmul(&x)?.cast(DType::F32)?.to_vec::<f32>()?, [64.0; 64 * 64]);
        let families = gpu.profile().families;
        assert!(families.iter().all(|f| f.name != "matmul_cooperative"), "{families:?}");
    }
    Ok(())
}
