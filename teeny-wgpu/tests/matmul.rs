//! Products larger than a tile, in every memory layout of a matrix, against the
//! oracle.

mod common;

use teeny_core::{DType, DeviceRef, Reference, Result, Tensor, random};
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
    let small = Wgpu::with_options(&Options { max_binding: Some(4096), ..Options::default() })?;
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
