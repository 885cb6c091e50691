//! Quantised weights on this device: the bits of the documented sums at every level, for any number
//! of threads and rows.

use std::sync::Arc;
use teeny_core::{
    DType, Device, QuantPart, QuantTensor, QuantType, Reference, Result, Tensor, random,
};
use teeny_cpu::{Cpu, CpuOptions, Level};

fn at(level: Level) -> Arc<Cpu> {
    Cpu::with_options(CpuOptions::new().with_level(level))
}

/// A number below `n`, other for each call.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

/// Random rows of one to three types: a matrix of `columns` elements a row.
fn matrix(dice: &mut Dice, columns: usize, device: &Arc<Reference>) -> Result<QuantTensor> {
    let kinds: Vec<QuantType> = QuantType::ALL
        .into_iter()
        .filter(|kind| columns.is_multiple_of(kind.block_elements()))
        .collect();
    let parts = (0..1 + dice.below(3)).map(|_| {
        let kind = kinds[dice.below(kinds.len())];
        let rows = 1 + dice.below(50);
        let mut bytes: Vec<u8> =
            (0..rows * kind.row_bytes(columns)?).map(|_| dice.below(256) as u8).collect();
        for block in bytes.chunks_exact_mut(kind.block_bytes()) {
            for field in kind.fields().iter().filter(|field| field.len == 2) {
                // between 2^-15 and 2, with either sign
                block[field.at + 1] &= 0xbf;
            }
            if kind == QuantType::Mxfp4 {
                block[0] = 120 + block[0] % 12;
            }
        }
        QuantTensor::from_blocks(&bytes, kind, [rows, columns], device)
    });
    let parts = parts.collect::<Result<Vec<_>>>()?;
    QuantTensor::join(&parts.iter().collect::<Vec<_>>())
}

/// The activations of a block of 32 as the integers and the scale that the device makes.
fn quantised(x: &[f32]) -> (Vec<i32>, f32) {
    let most = x.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    let inverse = if most < 1e-36 { 0.0 } else { 127.0 / most };
    (x.iter().map(|x| (x * inverse).round_ties_even() as i32).collect(), most / 127.0)
}

#[test]
fn products_are_those_of_reference_within_the_error_of_eight_bits() -> Result<()> {
    let (mut dice, device) = (Dice(1), Reference::new());
    for case in 0..120u64 {
        let columns = 32 * (1 + dice.below(24));
        let columns = if case % 2 == 0 { columns.next_multiple_of(256) } else { columns };
        let weight = matrix(&mut dice, columns, &device)?;
        let m = 1 + dice.below(70);
        let x = random::with_seed(case, || Tensor::randn((m, columns), DType::F32, &device))?;
        // the device multiplies x as integers times scales
        let rounded: Vec<f32> = x
            .to_vec::<f32>()?
            .chunks_exact(32)
            .flat_map(|x| {
                let (q, scale) = quantised(x);
                q.into_iter().map(move |q| q as f32 * scale)
            })
            .collect();
        let rounded = Tensor::from_vec(rounded, (m, columns), &device)?;
        let plain = weight.dequantize()?.cast(DType::F64)?;
        let wanted = rounded.cast(DType::F64)?.matmul(&plain.t()?)?;
        let size = rounded.cast(DType::F64)?.abs()?.matmul(&plain.abs()?.t()?)?;
        // weights with minima are sums of parts that may cancel
        let bound = size.mul(2e-5)?.add(1e-3)?.to_vec::<f64>()?;
        let mut first: Option<Vec<u32>> = None;
        for level in Level::available() {
            let cpu = at(level);
            let (weight, x) = (weight.to(&cpu)?, x.to(&cpu)?);
            let y = weight.linear(&x)?;
            let y32 = y.to_vec::<f32>()?;
            let exact = wanted.to_vec::<f64>()?;
            for (i, ((y, w), bound)) in y32.iter().zip(&exact).zip(&bound).enumerate() {
                let off = (f64::from(*y) - w).abs();
                assert!(off <= *bound, "case {case} {level:?} {weight:?} {i}: {y}, not {w}");
            }
            let bits: Vec<u32> = y32.iter().map(|y| y.to_bits()).collect();
            match &first {
                None => first = Some(bits.clone()),
                Some(first) => assert!(*first == bits, "case {case}: {level:?} differs {weight:?}"),
            }
            // rows one by one, of a view with other strides, with one thread
            let row = dice.below(m);
            let wide = Tensor::cat(&[&x, &x], 1)?.slice(1, ..columns)?;
            let one = weight.linear(&wide.slice(0, row..row + 1)?)?;
            let rows = weight.shape()[0];
            let one: Vec<u32> = one.to_vec::<f32>()?.iter().map(|y| y.to_bits()).collect();
            assert_eq!(one, bits[row * rows..(row + 1) * rows], "case {case}: row {row}");
            let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
            let alone = pool.install(|| weight.linear(&x))?.to_vec::<f32>()?;
            assert!(alone.iter().map(|y| y.to_bits()).eq(bits.iter().copied()));
        }
    }
    Ok(())
}

#[test]
fn rows_are_those_of_the_dequantised_matrix() -> Result<()> {
    let (mut dice, device) = (Dice(2), Reference::new());
    let cpu = Cpu::new();
    for _ in 0..60 {
        let columns = 256 * (1 + dice.below(3));
        let weight = matrix(&mut dice, columns, &device)?;
        let rows = weight.shape()[0];
        let ids: Vec<i32> = (0..1 + dice.below(40)).map(|_| dice.below(rows) as i32).collect();
        let ids = Tensor::from_vec(ids.clone(), ids.len(), &device)?;
        let wanted = weight.index_select(&ids)?.to_vec::<f32>()?;
        let got = weight.to(&cpu)?.index_select(&ids.to(&cpu)?)?.to_vec::<f32>()?;
        assert!(wanted.iter().zip(&got).all(|(a, b)| a.to_bits() == b.to_bits()), "{weight:?}");
        let outside = Tensor::from_vec(vec![0i32, rows as i32], 2, &cpu)?;
        let text = weight.to(&cpu)?.index_select(&outside).unwrap_err().to_string();
        assert!(text.contains(&format!("index[1] is {rows}")), "{text}");
    }
    Ok(())
}

/// The device multiplies activations as they are if it is told to.
#[test]
fn exact_products_have_the_error_of_f32() -> Result<()> {
    let cpu = Cpu::new();
    let weight = random::with_seed(3, || Tensor::randn((40, 512), DType::F32, &cpu))?;
    let x = random::with_seed(4, || Tensor::randn((5, 512), DType::F32, &cpu))?;
    let weight = QuantTensor::quantize(&weight, QuantType::Q4K)?;
    let wanted = x.matmul(&weight.dequantize()?.t()?)?;
    let far = |y: Tensor| y.sub(&wanted)?.abs()?.max(..)?.item::<f32>();
    assert!(far(weight.clone().with_exact(true).linear(&x)?)? < 1e-4);
    let rough = far(weight.linear(&x)?)?;
    assert!(rough > 1e-4 && rough < 0.5, "{rough}");
    Ok(())
}

#[test]
fn numbers_that_are_not_finite_stay_so_and_tiny_ones_are_zeros() -> Result<()> {
    let cpu = Cpu::new();
    let weight = QuantTensor::quantize(&Tensor::ones((3, 64), DType::F32, &cpu)?, QuantType::Q8_0)?;
    let mut x = vec![1e-37f32; 4 * 64];
    x[64] = f32::NAN;
    x[2 * 64 + 40] = f32::INFINITY;
    x[3 * 64..].fill(f32::MAX);
    let y = weight.linear(&Tensor::from_vec(x, (4, 64), &cpu)?)?.to_vec::<f32>()?;
    assert!(y[..3].iter().all(|y| *y == 0.0), "{y:?}");
    assert!(y[3..9].iter().all(|y| y.is_nan()), "{y:?}");
    assert!(y[9..].iter().all(|y| *y == f32::INFINITY), "{y:?}");
    let empty = Tensor::zeros((0, 64), DType::F32, &cpu)?;
    assert_eq!(weight.linear(&empty)?.shape()[..], [0, 3]);
    let part = QuantPart { kind: QuantType::Q8_0, rows: 3 };
    assert_eq!(weight.parts(), [part]);
    assert!(cpu.stats().live_bytes > 0);
    Ok(())
}
