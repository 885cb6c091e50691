//! Products larger than a tile, in every memory layout of a matrix, against the
//! oracle.

use crate::common;
use teeny_core::{DType, DeviceRef, Kernel, Op, Reference, Result, Tensor, Window, random};
use teeny_wgpu::{Options, Wgpu};

/// A (batch, rows, columns) view of small numbers; `layout` says how it is stored.
fn matrix(
    batch: usize,
    rows: usize,
    columns: usize,
    layout: &str,
    device: &DeviceRef,
) -> Result<Tensor> {
    let values =
        |sizes: (usize, usize, usize)| Tensor::uniform(-1.0, 1.0, sizes, DType::F32, device);
    match layout {
        "packed" => values((batch, rows, columns)),
        "transposed" => values((batch, columns, rows))?.t(),
        "sliced" => values((batch + 1, rows + 2, columns + 3))?
            .slice(0, 1..)?
            .slice(1, 2..)?
            .slice(2, 1..)?
            .slice(2, ..-2),
        "flipped" => values((batch, rows, columns))?.flip([1, 2]),
        _ => values((1, rows, columns))?.expand((batch, rows, columns)),
    }
}

#[test]
fn products_larger_than_a_tile_agree_with_the_oracle() -> Result<()> {
    let Some(gpu) = common::gpu() else { return Ok(()) };
    let (gpu, oracle) = (gpu as DeviceRef, Reference::new() as DeviceRef);
    let sizes = [
        (65, 33, 70),
        (64, 16, 64),
        (130, 100, 17),
        (16, 1, 200),
        (1, 300, 65),
        (100, 257, 1),
        (3, 130, 5),
    ];
    for (m, k, n) in sizes {
        for (lhs, rhs) in [
            ("packed", "packed"),
            ("transposed", "sliced"),
            ("sliced", "transposed"),
            ("flipped", "expanded"),
            ("expanded", "flipped"),
        ] {
            let product = |device: &DeviceRef| {
                random::with_seed((m * n + k) as u64, || {
                    matrix(2, m, k, lhs, device)?
                        .matmul(&matrix(2, k, n, rhs, device)?)?
                        .to_vec::<f32>()
                })
            };
            let (got, want) = (product(&gpu)?, product(&oracle)?);
            for (i, (g, w)) in got.iter().zip(&want).enumerate() {
                assert!(
                    (g - w).abs() <= 1e-5 * (k as f32).sqrt(),
                    "({m}, {k}) {lhs} @ ({k}, {n}) {rhs}: element {i} is {g}, not {w}"
                );
            }
        }
    }
    Ok(())
}

#[test]
fn the_same_product_gives_the_same_bits() -> Result<()> {
    let Some(gpu) = common::gpu() else { return Ok(()) };
    let (a, b) =
        (Tensor::randn((70, 90), DType::F32, &gpu)?, Tensor::randn((90, 80), DType::F32, &gpu)?);
    assert_eq!(a.matmul(&b)?.to_bytes()?, a.matmul(&b)?.to_bytes()?);
    Ok(())
}

#[test]
fn a_product_of_another_size_compiles_nothing() -> Result<()> {
    let Some(gpu) = common::gpu() else { return Ok(()) };
    let product = |m: usize, k: usize, n: usize| -> Result<()> {
        Tensor::ones((m, k), DType::F32, &gpu)?
            .matmul(&Tensor::ones((k, n), DType::F32, &gpu)?)?
            .to_bytes()?;
        Ok(())
    };
    product(64, 64, 64)?;
    let compiled = gpu.counters().compiles;
    product(52, 32, 100)?;
    product(200, 8, 36)?;
    assert_eq!(gpu.counters().compiles, compiled);
    // Rows of an odd length cannot be read four at a time: another kernel, but one for all such
    // lengths.
    product(65, 30, 33)?;
    let compiled = gpu.counters().compiles;
    product(20, 99, 51)?;
    assert_eq!(gpu.counters().compiles, compiled);
    Ok(())
}

#[test]
fn operands_larger_than_a_binding_are_multiplied_in_blocks() -> Result<()> {
    if common::gpu().is_none() {
        return Ok(());
    }
    let small = Wgpu::with_options(&Options::new().with_max_binding(Some(4096)))?;
    let (gpu, oracle) = (small as DeviceRef, Reference::new() as DeviceRef);
    for dtype in [DType::F32, DType::F16, DType::I32] {
        for (batch, m, k, n) in [(1, 100, 64, 60), (6, 20, 70, 30), (1, 3, 900, 40), (1, 70, 2, 70)]
        {
            let product = |device: &DeviceRef| {
                random::with_seed(7, || {
                    let lhs =
                        Tensor::randint(-3, 4, (batch, m, k), DType::I32, device)?.cast(dtype)?;
                    lhs.matmul(
                        &Tensor::randint(-3, 4, (k, n), DType::I32, device)?
                            .cast(dtype)?
                            .expand((batch, k, n))?,
                    )?
                    .to_scalars()
                })
            };
            assert!(
                product(&gpu)? == product(&oracle)?,
                "({batch}, {m}, {k}) @ ({k}, {n}) {dtype}"
            );
        }
    }
    Ok(())
}

#[test]
fn kernels_behind_products_write_16_bit_floats_packed() -> Result<()> {
    if common::gpu().is_none() {
        return Ok(());
    }
    let oracle = Reference::new() as DeviceRef;
    for portable in [false, true] {
        let gpu = Wgpu::with_options(&Options::new().with_portable(portable))? as DeviceRef;
        for dtype in [DType::F16, DType::BF16] {
            // Outputs of both widths, and an input beside the product.
            let kernel = Kernel::build([dtype, dtype], [], |[y, b], []| {
                let sum = y + b;
                [sum, y.cast(DType::F32), y - b]
            })?;
            let kernel = std::sync::Arc::new(kernel);
            let run = |device: &DeviceRef, op: &dyn Fn([&Tensor; 3]) -> Result<Vec<Tensor>>| {
                random::with_seed(3, || {
                    let numbers = |shape: &[usize]| {
                        Tensor::randint(-3, 4, shape, DType::I32, device)?.cast(dtype)
                    };
                    let inputs = [numbers(&[2, 9, 64, 64])?, numbers(&[66])?, numbers(&[9])?];
                    op([&inputs[0], &inputs[1], &inputs[2]])?
                        .iter()
                        .map(Tensor::to_scalars)
                        .collect::<Result<Vec<_>>>()
                })
            };
            for (m, k, n) in [(64, 40, 62), (64, 64, 60), (50, 33, 61)] {
                let product = |[x, bias, _]: [&Tensor; 3]| {
                    let lhs = x.slice(2, 0..m)?.slice(3, 0..k)?;
                    let rhs = x.slice(2, 0..k)?.slice(3, 0..n)?;
                    let bias = bias.slice(0, 0..n)?.expand((2, 9, m as usize, n as usize))?;
                    let (kernel, others, params) = (&kernel, &[&bias][..], &[][..]);
                    Op::MatmulKernel { lhs: &lhs, rhs: &rhs, kernel, others, params }
                        .tensor_list(x.device())
                        .map(Vec::from)
                };
                let (got, want) = (run(&gpu, &product)?, run(&oracle, &product)?);
                assert!(got == want, "({m}, {k}) @ ({k}, {n}) {dtype} {portable}");
            }
            for size in [16, 15, 14] {
                let convolution = |[x, _, bias]: [&Tensor; 3]| {
                    let weight = x.slice(2, 0..3)?.slice(3, 0..3)?.slice(0, 0..1)?;
                    let weight = weight.expand((9, 9, 3, 3))?;
                    let x = x.slice(2, 0..size)?.slice(3, 0..size)?;
                    let window = Window::new(2).padding(1);
                    let size = size as usize;
                    let bias = bias.reshape((9, 1, 1))?.expand((2, 9, size, size))?;
                    let (kernel, others, params) = (&kernel, &[&bias][..], &[][..]);
                    let (weight, window) = (&weight, &window);
                    Op::ConvKernel { x: &x, weight, window, kernel, others, params }
                        .tensor_list(x.device())
                        .map(Vec::from)
                };
                let (got, want) = (run(&gpu, &convolution)?, run(&oracle, &convolution)?);
                assert!(got == want, "images of {size} x {size} {dtype} {portable}");
            }
        }
    }
    Ok(())
}
