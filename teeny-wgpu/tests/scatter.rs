//! Scatter by sorting, which the conformance suite's small tensors never reach, against the oracle;
//! and indices outside their axis.

use crate::common;
use std::sync::Arc;
use teeny_core::{DType, Device, DeviceRef, ErrorKind, Reference, Result, Tensor};
use teeny_wgpu::{Options, Shaders, Wgpu};

type Mode = fn(&Tensor, isize, &Tensor, &Tensor) -> Result<Tensor>;
const MODES: [(&str, Mode); 4] = [
    ("set", Tensor::scatter),
    ("add", Tensor::scatter_add),
    ("max", Tensor::scatter_max),
    ("min", Tensor::scatter_min),
];

/// Small whole numbers that look random; sums of thousands stay exact in every type they are used
/// with.
fn numbers(shape: &[usize], modulus: u64, seed: u64, dtype: DType, device: &DeviceRef) -> Tensor {
    let values: Vec<i32> = (0..shape.iter().product::<usize>() as u64)
        .map(|i| ((i * 7919 + seed).pow(2) % 10_007 % modulus) as i32)
        .collect();
    Tensor::from_slice(&values, shape, device).and_then(|x| x.cast(dtype)).expect("numbers")
}

/// Runs `body` in every mode on the GPU and on the oracle.
fn agree(
    name: &str,
    types: &[DType],
    body: impl Fn(Mode, DType, &DeviceRef) -> Result<Tensor>,
) -> Result<()> {
    let Some(gpu) = common::gpu() else { return Ok(()) };
    let (gpu, oracle) = (gpu as DeviceRef, Reference::new() as DeviceRef);
    for &dtype in types {
        for (mode, scatter) in MODES {
            assert!(
                body(scatter, dtype, &gpu)?.to_scalars()?
                    == body(scatter, dtype, &oracle)?.to_scalars()?,
                "{name} {mode} {dtype}"
            );
        }
    }
    Ok(())
}

#[test]
fn rows_of_an_embedding_are_scattered_by_one_key_for_all_columns() -> Result<()> {
    agree(
        "embedding",
        &[DType::F32, DType::F16, DType::I8, DType::I64],
        |scatter, dtype, device| {
            let x = numbers(&[300, 20], 3, 1, dtype, device); // (V, C)
            // (N, C), one column
            let index =
                numbers(&[700], 300, 2, DType::I32, device).unsqueeze(1)?.expand((700, 20))?;
            scatter(&x, 0, &index, &numbers(&[700, 20], 5, 3, dtype, device))
        },
    )
}

#[test]
fn lines_with_indices_of_their_own_along_every_axis() -> Result<()> {
    for axis in [0, 1, 2] {
        agree("lines", &[DType::F32, DType::U8], |scatter, dtype, device| {
            // Views: x flipped, index permuted, and shorter than x on the axes that are not
            // scattered along.
            let x = numbers(&[40, 50, 60], 3, 1, dtype, device).flip(1)?;
            let mut sizes = [30, 41, 52];
            sizes[axis] = 45;
            let index = numbers(&[sizes[2], sizes[1], sizes[0]], 40, 2, DType::U8, device)
                .permute([2, 1, 0])?;
            scatter(&x, axis as isize, &index, &numbers(&sizes, 2, 3, dtype, device))
        })?;
    }
    Ok(())
}

#[test]
fn a_place_that_everybody_wants_and_one_that_half_want() -> Result<()> {
    for modulus in [1, 2, 3] {
        agree("popular", &[DType::F32, DType::I32], |scatter, dtype, device| {
            let index = numbers(&[3, 5000], modulus, 2, DType::I64, device);
            scatter(
                &numbers(&[3, 100], 3, 1, dtype, device),
                1,
                &index,
                &numbers(&[3, 5000], 4, 3, dtype, device),
            )
        })?;
    }
    Ok(())
}

#[test]
fn sums_of_arrivals_are_accurate_and_the_same_in_every_run() -> Result<()> {
    let Some(gpu) = common::gpu() else { return Ok(()) };
    let (n, places) = (200_000usize, 7usize);
    let values: Vec<f32> = (0..n).map(|i| (i as f32 * 0.7).sin() * 1e3 + 0.1).collect();
    let index: Vec<i32> = (0..n).map(|i| ((i * i) % places) as i32).collect();
    let (src, at) = (Tensor::from_slice(&values, n, &gpu)?, Tensor::from_slice(&index, n, &gpu)?);
    let run =
        || Tensor::zeros(places, DType::F32, &gpu)?.scatter_add(0, &at, &src)?.to_vec::<f32>();
    let first = run()?;
    for _ in 0..3 {
        assert!(run()?.iter().zip(&first).all(|(a, b)| a.to_bits() == b.to_bits()));
    }
    for (place, got) in first.iter().enumerate() {
        let own = || (0..n).filter(|&i| index[i] as usize == place).map(|i| values[i] as f64);
        let size: f64 = own().map(f64::abs).sum();
        assert!((*got as f64 - own().sum::<f64>()).abs() <= 1e-6 * size, "{place}: {got}");
    }
    Ok(())
}

#[test]
fn single_lines_larger_than_a_binding_are_gathered_and_scattered() -> Result<()> {
    if common::gpu().is_none() {
        return Ok(());
    }
    let device = Wgpu::with_options(&Options::new().with_max_binding(Some(8192)))? as DeviceRef;
    let oracle = Reference::new() as DeviceRef;
    // Which of the two is large: x, the index, both.
    for (size, arrivals) in [(10_000, 500), (500, 10_000), (9_000, 9_000)] {
        for dtype in [DType::F32, DType::U8] {
            let run = |device: &DeviceRef| {
                let (x, index) = (
                    numbers(&[size], 5, 1, dtype, device),
                    numbers(&[arrivals], size as u64, 2, DType::I32, device),
                );
                let y = x.gather(0, &index)?;
                Ok::<_, teeny_core::Error>((
                    y.to_scalars()?,
                    x.scatter_add(0, &index, &y)?.to_scalars()?,
                    x.scatter(0, &index, &y)?.to_scalars()?,
                ))
            };
            assert!(run(&device)? == run(&oracle)?, "{size} {arrivals} {dtype}");
        }
    }
    // A large tensor of which index covers only a part.
    let run = |device: &DeviceRef| {
        let (x, index) = (
            numbers(&[100, 100], 5, 1, DType::F32, device),
            numbers(&[60, 100], 100, 2, DType::I32, device),
        );
        x.scatter_add(1, &index, &numbers(&[60, 100], 3, 4, DType::F32, device))?.to_scalars()
    };
    assert!(run(&device)? == run(&oracle)?);
    Ok(())
}

fn trusted() -> Option<Arc<Wgpu>> {
    common::gpu()?;
    Some(
        Wgpu::with_options(&Options::new().with_shaders(Shaders::Trusted))
            .expect("the device that was there a moment ago"),
    )
}

#[test]
fn the_next_read_reports_an_index_outside_its_axis_with_the_line_that_used_it() -> Result<()> {
    let Some(gpu) = trusted() else { return Ok(()) };
    let x = Tensor::new([[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]], &gpu)?;
    let y = x.gather(1, &Tensor::new([[0i32, 1], [2, 7]], &gpu)?)?;
    let line = line!() - 1;
    let other = x.add(1.0)?;
    let before = gpu.counters().submissions;
    let error = y.add(1.0)?.sum_all()?.item::<f32>().unwrap_err();
    assert_eq!(gpu.counters().submissions - before, 1, "the note comes with the number");
    assert_eq!(error.kind(), ErrorKind::Index, "{error}");
    for part in [&format!("gather at {}:{line}", file!()), "index[1, 1] is 7", "size 3"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert_eq!(other.to_vec::<f32>()?[0], 2.0, "an error is reported once");
    for axis in [0, 1] {
        let y = x.index_select(axis, &Tensor::new([0i32, 7, 0], &gpu)?)?;
        let error = y.to_vec::<f32>().unwrap_err().to_string();
        assert!(error.contains("index[1] is 7, but the axis has size"), "{error}");
    }
    gpu.synchronize()?;

    // The error names the first of several places, and their range; both scatter algorithms record
    // them.
    for arrivals in [4usize, 30_000] {
        let index = Tensor::full(arrivals, 2, DType::I64, &gpu)?.slice_assign(
            0,
            1..2,
            &Tensor::new([-5i64], &gpu)?,
        )?;
        let index = index.slice_assign(0, 3..4, &Tensor::new([1i64 << 40], &gpu)?)?;
        let y = Tensor::zeros(100, DType::F32, &gpu)?.scatter_add(
            0,
            &index,
            &Tensor::ones(arrivals, DType::F32, &gpu)?,
        )?;
        let error = y.to_vec::<f32>().unwrap_err().to_string();
        assert!(
            error.contains("scatter_add at")
                && error.contains("index[1] and others between -5 and 2147483647"),
            "{error}"
        );
        assert_eq!(
            y.slice(0, 2..3)?.item::<f32>()?,
            arrivals as f32 - 2.0,
            "the others have arrived"
        );
    }
    Ok(())
}

#[test]
fn an_index_outside_its_axis_is_found_after_hundreds_of_good_ones() -> Result<()> {
    let Some(gpu) = trusted() else { return Ok(()) };
    let x = Tensor::new([1.0f32, 2.0, 3.0], &gpu)?;
    let (good, bad) = (Tensor::new([0i32, 1], &gpu)?, Tensor::new([0i32, 3], &gpu)?);
    for wrong in [0, 100, 299] {
        for i in 0..300 {
            let _ = x.gather(0, if i == wrong { &bad } else { &good })?;
        }
        let error = x.to_vec::<f32>().unwrap_err();
        assert!(error.kind() == ErrorKind::Index && error.to_string().contains(" 3, "), "{error}");
        assert_eq!(x.gather(0, &good)?.to_vec::<f32>()?, [1.0, 2.0]);
    }
    Ok(())
}

#[test]
fn many_lines_are_scattered_each_in_its_order() -> Result<()> {
    let types = [DType::F32, DType::BF16, DType::U8, DType::I64];
    agree("rows", &types, |scatter, dtype, device| {
        let x = numbers(&[70, 64, 40], 3, 1, dtype, device);
        let index = numbers(&[70, 60, 30], 40, 2, DType::I64, device);
        let src = numbers(&[60, 70, 30], 5, 3, dtype, device).transpose(0, 1)?; // (70, 60, 30)
        scatter(&x, 2, &index, &src)
    })?;
    agree("columns", &types, |scatter, dtype, device| {
        let x = numbers(&[5000, 45], 3, 1, dtype, device).t()?; // (45, 5000)
        let index = numbers(&[30, 1], 45, 2, DType::I32, device).expand((30, 4500))?;
        scatter(&x, 0, &index, &numbers(&[30, 4500], 5, 3, dtype, device))
    })
}

#[test]
fn an_index_outside_its_axis_is_found_among_many_lines() -> Result<()> {
    let options = Options::new().with_shaders(Shaders::Checked);
    let Ok(gpu) = Wgpu::with_options(&options) else { return Ok(()) };
    let device = gpu as DeviceRef;
    let x = numbers(&[4200, 40], 3, 1, DType::F32, &device);
    let wrong = Tensor::arange(0i32, 4200 * 30, 1, &device)?.eq(4000 * 30 + 7)?;
    let index = numbers(&[4200, 30], 40, 2, DType::I32, &device);
    let index = wrong.reshape((4200, 30))?.where_cond(&index.mul(0)?.add(40)?, &index)?;
    let error = x.scatter_add(1, &index, &x.slice(1, 0..30)?).unwrap_err();
    assert!(error.to_string().contains("[4000, 7]"), "{error}");
    Ok(())
}
