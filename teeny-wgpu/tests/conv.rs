//! Row A46: convolutions and poolings larger than a tile, with their gradients, against the oracle.

use crate::common;
use teeny_core::{DType, DeviceRef, Reference, Result, Tensor, Window, random};
use teeny_wgpu::{Options, Wgpu};

/// One convolution: x, weight, window.
struct Case {
    x: &'static [usize],
    weight: &'static [usize],
    window: Window,
}

fn cases() -> Vec<Case> {
    let case = |x, weight, window| Case { x, weight, window };
    vec![
        case(&[2, 3, 9, 11], &[20, 3, 3, 3], Window::new(2).padding(1)),
        case(&[1, 5, 12, 7], &[70, 5, 3, 2], Window::new(2).stride(2).padding(1)),
        case(&[2, 8, 10, 10], &[16, 4, 3, 3], Window::new(2).dilation(2).groups(2)),
        case(&[2, 6, 8, 8], &[6, 1, 3, 3], Window::new(2).padding(1).groups(6)),
        case(&[3, 4, 40], &[9, 4, 5], Window::new(1).stride(3).padding(2)),
        case(&[1, 2, 5, 6, 7], &[8, 2, 2, 3, 2], Window::new(3).stride(2).padding(1)),
        case(&[2, 100, 4, 4], &[130, 100, 1, 1], Window::new(2)),
        case(&[2, 10, 9, 11], &[20, 10, 3, 3], Window::new(2).padding(1)),
        case(&[1, 9, 12, 7], &[12, 9, 3, 2], Window::new(2).stride(2).padding(1)),
        case(&[2, 16, 11, 10], &[24, 8, 3, 3], Window::new(2).stride(2).dilation(2).groups(2)),
        case(&[1, 8, 7, 7], &[8, 8, 3, 3], Window::new(2).padding(3)),
        case(&[1, 8, 5, 6, 7], &[8, 8, 2, 3, 2], Window::new(3).stride(2).padding(1)),
    ]
}

fn numbers(shape: &[usize], dtype: DType, device: &DeviceRef) -> Result<Tensor> {
    Tensor::randint(-3, 4, shape, DType::I32, device)?.cast(dtype)
}

/// Result and both gradients on `device`; operands transposed in memory if `transposed`.
fn results(
    case: &Case,
    dtype: DType,
    transposed: bool,
    device: &DeviceRef,
) -> Result<[Vec<f32>; 3]> {
    random::with_seed(11, || {
        let make = |shape: &[usize]| {
            let x = numbers(shape, dtype, device)?;
            if transposed { x.transpose(1, -1)?.contiguous()?.transpose(1, -1) } else { Ok(x) }
        };
        let (x, w) = (make(case.x)?, make(case.weight)?);
        let y = x.conv(&w, &case.window)?;
        let g = make(y.shape())?;
        let dx = g.conv_transpose(&w, &case.window, &case.x[2..])?;
        let dw = g.conv_weight_grad(&x, &case.window, w.shape())?;
        let list = |t: Tensor| t.cast(DType::F32)?.to_vec::<f32>(); // exact
        Ok([list(y)?, list(dx)?, list(dw)?])
    })
}

#[test]
fn convolutions_and_their_gradients_agree_with_the_oracle() -> Result<()> {
    let Some(gpu) = common::gpu() else { return Ok(()) };
    let (gpu, oracle) = (gpu as DeviceRef, Reference::new() as DeviceRef);
    // Without subgroups f32 goes through tiles, as it does on hardware.
    let portable = Options::new().with_portable(true);
    let portable = Wgpu::with_options(&portable)? as DeviceRef;
    for (number, case) in cases().iter().enumerate() {
        for (dtype, transposed, device) in [
            (DType::F32, false, &gpu),
            (DType::F32, false, &portable),
            (DType::F32, true, &gpu),
            (DType::BF16, false, &gpu),
            (DType::F16, false, &gpu),
        ] {
            // Whole numbers: sums are exact in f32, and rounded once to 16 bits.
            let (got, expected) = (
                results(case, dtype, transposed, device)?,
                results(case, dtype, transposed, &oracle)?,
            );
            for (name, (g, e)) in ["result", "gradient of x", "gradient of the weight"]
                .iter()
                .zip(got.iter().zip(&expected))
            {
                assert!(g == e, "{name} of case {number} in {dtype}, transposed {transposed}");
            }
        }
    }
    Ok(())
}

#[test]
fn a_convolution_of_another_size_compiles_nothing() -> Result<()> {
    let Some(gpu) = common::gpu() else { return Ok(()) };
    let conv = |n: usize, c: usize, size: usize, window: Window| -> Result<()> {
        let (x, w) = (
            Tensor::ones((n, c, size, size), DType::F32, &gpu)?,
            Tensor::ones((16, c, 3, 3), DType::F32, &gpu)?,
        );
        x.conv(&w, &window)?.to_bytes()?;
        Ok(())
    };
    conv(2, 3, 10, Window::new(2).padding(1))?;
    let compiled = gpu.counters().compiles;
    // 36 places instead of 100: whole groups of four as well
    conv(4, 5, 15, Window::new(2).stride(2).dilation(2))?;
    assert_eq!(gpu.counters().compiles, compiled);
    Ok(())
}

#[test]
fn pooling_finds_values_and_positions() -> Result<()> {
    let Some(gpu) = common::gpu() else { return Ok(()) };
    let oracle = Reference::new() as DeviceRef;
    let windows = [
        (vec![2, 2], Window::new(2).stride(2)),
        (vec![3, 2], Window::new(2).padding(1)),
        (vec![3, 3], Window::new(2).stride(2).dilation(2)),
    ];
    for dtype in [DType::F32, DType::F16, DType::I16] {
        for (size, window) in &windows {
            let run = |device: &DeviceRef| {
                random::with_seed(2, || {
                    let x = numbers(&[3, 5, 19, 14], dtype, device)?.transpose(0, 1)?;
                    let (values, positions) = x.max_pool_indices(size, window)?;
                    Ok::<_, teeny_core::Error>((values.to_scalars()?, positions.to_vec::<i32>()?))
                })
            };
            assert!(run(&(gpu.clone() as DeviceRef))? == run(&oracle)?, "{dtype} {size:?}");
        }
    }
    let nan = Tensor::new([[1.0f32, f32::NAN, 3.0, f32::NAN]], &gpu)?.reshape((1, 1, 2, 2))?;
    let (value, position) = nan.max_pool_indices(&[2, 2], &Window::new(2))?;
    assert!(value.item::<f32>()?.is_nan());
    assert_eq!(position.item::<i32>()?, 1);
    Ok(())
}

#[test]
fn pooling_of_neighbouring_windows_in_vectors() -> Result<()> {
    let Some(gpu) = common::gpu() else { return Ok(()) };
    let oracle = Reference::new() as DeviceRef;
    let apart = |axes: usize| Window::new(axes).stride(2);
    let cases = [
        (vec![3, 5, 8], vec![2], apart(1)),
        (vec![2, 3, 7, 12], vec![2, 2], apart(2)),
        (vec![2, 3, 6, 4], vec![3, 2], Window { stride: vec![1, 2], ..apart(2) }),
        (
            vec![2, 9, 16],
            vec![3, 2],
            Window { padding: vec![1, 0], dilation: vec![3, 1], ..apart(2) },
        ),
        (vec![2, 4, 5, 8], vec![2, 3, 2], apart(3)),
    ];
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for (shape, size, window) in &cases {
            // Small numbers, so that windows have ties; some NaN, and rows of -inf.
            let values: Vec<f32> = (0..shape.iter().product())
                .map(|i: usize| match (i * 7 % 23, i / 4 % 7) {
                    (3, _) => f32::NAN,
                    (_, 5) => f32::NEG_INFINITY,
                    (small, _) => (small % 5) as f32 - 2.0,
                })
                .collect();
            let run = |device: &DeviceRef| {
                let x = Tensor::from_slice(&values, &shape[..], device)?.cast(dtype)?;
                let (largest, positions) = x.max_pool_indices(size, window)?;
                let means = x.avg_pool(size, window)?;
                let numbers = Tensor::cat(&[&largest, &means], 0)?.cast(DType::F32)?;
                // As text, which has no signs of NaN.
                Ok::<_, teeny_core::Error>((
                    format!("{:?}", numbers.to_vec::<f32>()?),
                    positions.to_vec::<i32>()?,
                ))
            };
            let (got, want) = (run(&(gpu.clone() as DeviceRef))?, run(&oracle)?);
            assert_eq!(got, want, "{dtype} {shape:?} {size:?}");
        }
    }
    Ok(())
}
