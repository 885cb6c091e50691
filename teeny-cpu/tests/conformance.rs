//! Core's conformance suite and its random graphs, at every instruction level and with both
//! implementations of float products.

use crate::common;
use teeny_conformance::limits::{exact_points, integers};
use teeny_conformance::{Suite, every};
use teeny_core::{Attention, DType, DeviceRef, Lazy, LazyOptions, Result, Tensor, Window};
use teeny_cpu::{Cpu, CpuOptions, FloatMatmul, Level};

#[test]
fn the_suite_passes_at_every_level_with_both_matmuls() {
    let devices: Vec<DeviceRef> =
        common::devices_of_both_matmuls().into_iter().map(|device| device as DeviceRef).collect();
    for (report, device) in Suite::new(&devices[0]).run_on(&devices).iter().zip(&devices) {
        assert!(report.passed(), "{device:?}\n{report}");
    }
}

#[test]
fn random_graphs_agree_with_the_oracle_at_every_level_with_both_matmuls() {
    for (seed, device) in common::devices_of_both_matmuls().into_iter().enumerate() {
        teeny_conformance::fuzz(&device, 2000, seed as u64)
            .unwrap_or_else(|failure| panic!("{device:?}\n{failure}"));
    }
}

#[test]
fn integers_wrap_at_the_ends_of_their_types_at_every_level() {
    for device in common::devices() {
        integers(&device).unwrap_or_else(|why| panic!("{device:?}\n{why}"));
    }
    integers(Lazy::new(Cpu::new())).unwrap_or_else(|why| panic!("{why}"));
}

#[test]
fn functions_with_an_exact_result_return_it_at_every_level() {
    for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
        for device in common::devices() {
            exact_points(&device, dtype).unwrap_or_else(|why| panic!("{device:?}\n{why}"));
        }
        exact_points(Lazy::new(Cpu::new()), dtype).unwrap_or_else(|why| panic!("{why}"));
    }
}

/// Requests for scratch memory by `run` on a device with this option.
fn scratch_requests(
    level: Level,
    float_matmul: FloatMatmul,
    run: fn(&Tensor) -> Result<Tensor>,
) -> usize {
    let cpu =
        Cpu::with_options(CpuOptions::new().with_level(level).with_float_matmul(float_matmul));
    let x = Tensor::randn((1, 16, 24, 24), DType::F32, &cpu).unwrap();
    let before = cpu.pool_stats().scratch_requests;
    let _ = run(&x).unwrap();
    cpu.pool_stats().scratch_requests - before
}

#[test]
fn the_gemm_crate_gets_the_products_of_matmul_conv_and_attention() {
    let products: [fn(&Tensor) -> Result<Tensor>; 4] = [
        |x| x.matmul(x),
        |x| x.matmul(&x.slice(-1, 0..1)?),
        |x| x.conv(&x.reshape((36, 16, 4, 4))?, &Window::new(2).stride(3)),
        |x| x.attention(x, x, None, &Attention::full()),
    ];
    // The lowest level runs most of them by the `gemm` crate.
    for level in Level::available().into_iter().filter(|&level| level > Level::Portable) {
        for (i, run) in products.into_iter().enumerate() {
            // Each product counts the memory that the gemm crate packs into.
            let own = scratch_requests(level, FloatMatmul::Own, run);
            let gemm_crate = scratch_requests(level, FloatMatmul::GemmCrate, run);
            assert!(gemm_crate > own, "product {i}, {level:?}: {gemm_crate} requests and {own}");
        }
    }
}

/// The crate would add all terms of a row or a column in one chain.
#[test]
fn long_rows_and_columns_by_the_gemm_crate_are_as_accurate_as_matrices() {
    for device in common::devices_of_both_matmuls() {
        for dtype in [DType::F32, DType::F64] {
            let randn = |shape: &[usize]| {
                Tensor::randn(shape, DType::F32, &device).unwrap().cast(dtype).unwrap()
            };
            let (row, matrix, column) = (randn(&[1, 1500]), randn(&[1500, 70]), randn(&[1500, 1]));
            let transposed = matrix.t().unwrap();
            for (lhs, rhs) in [(&row, &matrix), (&transposed, &column), (&row, &column)] {
                let exact = |x: &Tensor| x.cast(DType::F64).unwrap();
                let got = exact(&lhs.matmul(rhs).unwrap()).to_vec::<f64>().unwrap();
                let want = exact(lhs).matmul(&exact(rhs)).unwrap().to_vec::<f64>().unwrap();
                let unit = if dtype == DType::F32 { f64::from(f32::EPSILON) } else { f64::EPSILON };
                for (got, want) in got.iter().zip(&want) {
                    assert!((got - want).abs() <= 1000.0 * unit, "{got} {want} {dtype} {device:?}");
                }
            }
        }
    }
}

/// The suite and random graphs on the recording device over the engine, with sums as eager ones
/// and in other orders.
#[test]
fn the_suite_passes_on_a_recording_device() {
    for reassociate in [false, true] {
        let options = LazyOptions::new().with_reassociate(reassociate);
        let device = Lazy::with_options(Cpu::new(), options);
        // Positions outside an axis are found when a result is read.
        let report = Suite::new(&device).every(every(8)).trusts_indices().run();
        assert!(report.passed(), "{report}");
        teeny_conformance::fuzz(&device, 10_000, 20).unwrap_or_else(|failure| panic!("{failure}"));
    }
}
