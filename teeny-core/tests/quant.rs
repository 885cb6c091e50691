//! Quantised weights: codecs against the Python package gguf, products and rows against the
//! dequantised matrix.

use crate::support::Dice;
use teeny_core::{
    DType, DeviceRef, Lazy, QuantTensor, QuantType, Reference, Result, Tensor, random,
};

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

/// `count` blocks of random bytes, whose scales are finite.
fn random_blocks(kind: QuantType, count: usize, dice: &mut Dice) -> Vec<u8> {
    let mut blocks: Vec<u8> =
        (0..count * kind.block_bytes()).map(|_| dice.below(256) as u8).collect();
    for block in blocks.chunks_exact_mut(kind.block_bytes()) {
        // 16-bit floats: an exponent of 31 is not finite
        for field in kind.fields().iter().filter(|field| field.len == 2) {
            block[field.at + 1] &= 0xbf;
        }
        if kind == QuantType::Mxfp4 {
            block[0] = block[0].min(254);
        }
    }
    blocks
}

/// A matrix of random blocks, and its values.
fn random_matrix(
    kind: QuantType,
    [rows, blocks]: [usize; 2],
    dice: &mut Dice,
    device: &DeviceRef,
) -> Result<(QuantTensor, Vec<f32>, Vec<u8>)> {
    let bytes = random_blocks(kind, rows * blocks, dice);
    let columns = blocks * kind.block_elements();
    let mut values = vec![0.0; rows * columns];
    kind.decode(&bytes, &mut values);
    let matrix = QuantTensor::from_blocks(&bytes, kind, [rows, columns], device)?;
    Ok((matrix, values, bytes))
}

#[test]
fn encoded_blocks_are_those_of_gguf() -> Result<()> {
    let mut rest: &[u8] = include_bytes!("golden/quant.bin");
    for name in ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"] {
        let kind = QuantType::by_name(name)?;
        let (numbers, blocks) = rest.split_at(64 * 32 * 4);
        let (blocks, others) = blocks.split_at(64 * kind.block_bytes());
        rest = others;
        let x = floats(numbers);
        let mut got = vec![0; blocks.len()];
        kind.encode(&x, &mut got)?;
        for (i, (got, wanted)) in got
            .chunks_exact(kind.block_bytes())
            .zip(blocks.chunks_exact(kind.block_bytes()))
            .enumerate()
        {
            assert_eq!(got, wanted, "{name} block {i}: {:?}", &x[32 * i..32 * i + 32]);
        }
    }
    assert!(rest.is_empty());
    Ok(())
}

#[test]
fn the_definition_of_every_type_has_the_bits_of_its_decoder() -> Result<()> {
    let (mut dice, device) = (Dice::new(1), Reference::new() as DeviceRef);
    for kind in QuantType::ALL {
        for _ in 0..6 {
            let sizes = [1 + dice.below(40), 1 + dice.below(3)];
            let (matrix, values, bytes) = random_matrix(kind, sizes, &mut dice, &device)?;
            let got = matrix.dequantize()?;
            assert_eq!(got.shape()[..], matrix.shape());
            assert_eq!(bits(&got.to_vec::<f32>()?), bits(&values), "{matrix:?}");
            assert_eq!(matrix.to_blocks()?[0].1, bytes, "{matrix:?}");
        }
    }
    Ok(())
}

#[test]
fn products_and_rows_are_those_of_the_dequantised_matrix() -> Result<()> {
    let mut dice = Dice::new(2);
    for device in [Reference::new() as DeviceRef, Lazy::new(Reference::new())] {
        for case in 0..30 {
            let mut parts = Vec::new();
            for _ in 0..1 + dice.below(3) {
                let kind = QuantType::ALL[dice.below(QuantType::ALL.len())];
                let blocks = 512 / kind.block_elements();
                let weight = random::with_seed(case, || {
                    Tensor::randn((1 + dice.below(20), 512), DType::F32, &device)
                })?;
                parts.push(match kind.is_written() {
                    true => QuantTensor::quantize(&weight, kind)?,
                    false => {
                        random_matrix(kind, [weight.shape()[0], blocks], &mut dice, &device)?.0
                    }
                });
            }
            let matrix = QuantTensor::join(&parts.iter().collect::<Vec<_>>())?;
            let plain = matrix.dequantize()?;
            let lead = [&[][..], &[3], &[2, 1, 2], &[0]][dice.below(4)];
            let x = Tensor::randn([lead, &[512]].concat(), DType::F32, &device)?;
            let wanted = x.matmul(&plain.t()?)?;
            let got = matrix.linear(&x)?;
            assert_eq!(got.shape(), wanted.shape());
            assert_eq!(bits(&got.to_vec::<f32>()?), bits(&wanted.to_vec::<f32>()?));

            let ids: Vec<i64> = (0..6).map(|_| dice.below(matrix.shape()[0]) as i64).collect();
            let ids = Tensor::from_vec(ids, (3, 2), &device)?;
            let got = matrix.index_select(&ids)?;
            let wanted = plain.index_select(0, &ids)?;
            assert_eq!(got.shape(), wanted.shape());
            assert_eq!(bits(&got.to_vec::<f32>()?), bits(&wanted.to_vec::<f32>()?));
        }
    }
    Ok(())
}

#[test]
fn rows_move_as_they_are() -> Result<()> {
    let (device, mut dice) = (Reference::new(), Dice::new(5));
    let parts: Vec<QuantTensor> = [(QuantType::Q4K, 3), (QuantType::Q6K, 18), (QuantType::Q8_0, 2)]
        .iter()
        .map(|(kind, rows)| {
            let bytes = random_blocks(*kind, rows * 512 / kind.block_elements(), &mut dice);
            QuantTensor::from_blocks(&bytes, *kind, [*rows, 512], &device)
        })
        .collect::<Result<_>>()?;
    let matrix = QuantTensor::join(&parts.iter().collect::<Vec<_>>())?;
    let index: Vec<usize> = (0..40).map(|_| dice.below(23)).collect();
    let got = matrix.select_rows(&index)?;
    let ids = Tensor::from_vec(index.iter().map(|i| *i as i64).collect(), 40, &device)?;
    let wanted = matrix.dequantize()?.index_select(0, &ids)?;
    assert_eq!(got.shape(), [40, 512]);
    assert_eq!(bits(&got.dequantize()?.to_vec::<f32>()?), bits(&wanted.to_vec::<f32>()?));
    // the bytes of a part are those it was made of
    let own = matrix.select_rows(&(3..21).collect::<Vec<_>>())?;
    assert_eq!(own.to_blocks()?, parts[1].to_blocks()?);
    let bad = matrix.select_rows(&[0, 23]).unwrap_err().to_string();
    assert!(bad.contains("index[1] is 23, but there are 23 rows"), "{bad}");
    assert!(matrix.select_rows(&[]).is_err());
    Ok(())
}

#[test]
fn types_of_floats_are_kept() -> Result<()> {
    let device = Reference::new();
    let weight =
        QuantTensor::quantize(&Tensor::randn((5, 32), DType::F32, &device)?, QuantType::Q8_0)?;
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        let x = Tensor::randn((2, 32), DType::F32, &device)?.cast(dtype)?;
        assert_eq!(weight.linear(&x)?.dtype(), dtype);
    }
    Ok(())
}

/// The error of a type relative to the root of the mean square of normal numbers.
#[test]
fn the_error_of_each_type_is_the_published_one() -> Result<()> {
    let x = random::with_seed(5, || Tensor::randn((64, 1024), DType::F32, Reference::new()))?;
    let x = x.to_vec::<f32>()?;
    // the bounds of the types with minima are those without a search of the step
    let bounds = [
        (QuantType::Q8_0, 0.0056),
        (QuantType::Q6K, 0.0193),
        (QuantType::Q5_0, 0.044),
        (QuantType::Q5_1, 0.039),
        (QuantType::Q5K, 0.039),
        (QuantType::Q4_0, 0.088),
        (QuantType::Q4_1, 0.079),
        (QuantType::Q4K, 0.076),
    ];
    for (kind, most) in bounds {
        let mut blocks = vec![0; x.len() / kind.block_elements() * kind.block_bytes()];
        kind.encode(&x, &mut blocks)?;
        let mut back = vec![0.0; x.len()];
        kind.decode(&blocks, &mut back);
        let square = |values: &mut dyn Iterator<Item = f32>| -> f64 {
            values.map(|x| f64::from(x) * f64::from(x)).sum::<f64>()
        };
        let error = square(&mut x.iter().zip(&back).map(|(x, y)| x - y));
        let relative = (error / square(&mut x.iter().copied())).sqrt();
        assert!(relative < most, "{kind}: {relative}");
        assert!(relative > most / 3.0, "{kind}: {relative} is too good to be true");
    }
    Ok(())
}

/// Numbers of all magnitudes, with zeros and equal ones: each type returns finite numbers within
/// its step, and what it returns it keeps when it is quantised again.
#[test]
fn random_blocks_of_any_scale_come_back_within_a_step() -> Result<()> {
    let mut dice = Dice::new(3);
    for case in 0..400 {
        let scale = 2f32.powi(dice.below(20) as i32 - 6);
        let shape = dice.below(4);
        let x: Vec<f32> = (0..256)
            .map(|_| {
                let x = (dice.below(2001) as f32 - 1000.0) / 1000.0 * scale;
                match shape {
                    0 => x,
                    1 => x.abs(),
                    2 if dice.below(8) > 0 => 0.0,
                    2 => x,
                    _ => scale,
                }
            })
            .collect();
        for kind in QuantType::ALL.into_iter().filter(|kind| kind.is_written()) {
            let mut blocks = vec![0; 256 / kind.block_elements() * kind.block_bytes()];
            kind.encode(&x, &mut blocks)?;
            kind.check(&blocks, 0)?;
            let mut back = vec![0.0; 256];
            kind.decode(&blocks, &mut back);
            let most = match kind {
                QuantType::Q8_0 => 0.006,
                QuantType::Q6K => 0.07,
                QuantType::Q5_0 | QuantType::Q5_1 | QuantType::Q5K => 0.08,
                _ => 0.15,
            };
            for (i, (x, y)) in x.iter().zip(&back).enumerate() {
                let text = format!("case {case}: {kind} element {i}: {x} became {y} of {scale}");
                assert!((x - y).abs() <= most * scale + 1e-6, "{text}");
            }
        }
    }
    Ok(())
}

#[test]
fn what_is_not_a_quantised_matrix_is_refused() -> Result<()> {
    let device = Reference::new();
    let text = |result: Result<QuantTensor>| result.unwrap_err().to_string();
    let blocks = vec![0u8; 34];
    let bad = text(QuantTensor::from_blocks(&blocks, QuantType::Q8_0, [1, 33], &device));
    assert!(bad.contains("rows of 33 elements are not whole blocks of Q8_0"), "{bad}");
    let bad = text(QuantTensor::from_blocks(&blocks, QuantType::Q8_0, [2, 32], &device));
    assert!(bad.contains("34 bytes for 2 rows of 32 elements of Q8_0, which have 68"), "{bad}");
    let bad = text(QuantTensor::from_blocks(
        &[0, 0x7c],
        QuantType::Q4_0,
        [1, usize::MAX / 32 * 32],
        &device,
    ));
    assert!(bad.contains("Q4_0"), "{bad}");
    let mut inf = blocks.clone();
    inf[1] = 0x7c;
    let bad = text(QuantTensor::from_blocks(&inf, QuantType::Q8_0, [1, 32], &device));
    assert!(bad.contains("a scale of block 0 of Q8_0 is not finite"), "{bad}");

    let x = Tensor::ones((2, 32), DType::F32, &device)?;
    let bad = text(QuantTensor::quantize(&x.mul(f32::NAN)?, QuantType::Q4_0));
    assert!(bad.contains("element 0: it is NaN"), "{bad}");
    let bad = text(QuantTensor::quantize(&x.mul(1e30)?, QuantType::Q4_0));
    assert!(bad.contains("overflows a 16-bit scale"), "{bad}");
    let bad = text(QuantTensor::quantize(&x, QuantType::Iq4Nl));
    assert!(bad.contains("IQ4_NL is read, not written"), "{bad}");
    let bad = text(QuantTensor::quantize(&x.reshape(-1)?, QuantType::Q4_0));
    assert!(bad.contains("x is (64,), not a matrix"), "{bad}");
    let bad = text(QuantTensor::quantize(&x.cast(DType::I32)?, QuantType::Q4_0));
    assert!(bad.contains("i32"), "{bad}");
    let bad = text(QuantTensor::quantize(&x, QuantType::Q4K));
    assert!(bad.contains("a multiple of 256"), "{bad}");
    assert!(text(QuantTensor::join(&[])).contains("expected a matrix, got none"));

    let weight = QuantTensor::quantize(&x, QuantType::Q4_0)?;
    let wide =
        QuantTensor::quantize(&Tensor::ones((2, 64), DType::F32, &device)?, QuantType::Q4_0)?;
    let bad = text(QuantTensor::join(&[&weight, &wide]));
    assert!(bad.contains("rows of 32 and of 64 elements"), "{bad}");
    let bad = text(weight.with_blocks(wide.blocks()));
    assert!(bad.contains("the blocks are"), "{bad}");
    let bad = weight.linear(&Tensor::ones((2, 31), DType::F32, &device)?).unwrap_err().to_string();
    assert!(bad.contains("x must be (.., 32), not (2, 31)"), "{bad}");
    for id in [2i64, 15, 16, -1] {
        let ids = Tensor::from_vec(vec![0, id], 2, &device)?;
        let bad = weight.index_select(&ids).unwrap_err().to_string();
        assert!(bad.contains(&format!("index[1] is {id}, but axis 0 of (2,) has size 2")), "{bad}");
    }
    assert!(QuantType::by_name("q4_k").is_ok() && QuantType::by_name("Q9").is_err());
    Ok(())
}

/// Rows of one part and of several parts, by positions of every integer type.
#[test]
fn rows_are_selected_by_positions_of_every_integer_type() -> Result<()> {
    let mut dice = Dice::new(41);
    for device in [Reference::new() as DeviceRef, Lazy::new(Reference::new())] {
        let [one, other] = [QuantType::Q4_0, QuantType::Q8_0]
            .map(|kind| random_matrix(kind, [40, 2], &mut dice, &device).map(|made| made.0));
        let one = one?;
        for matrix in [one.clone(), QuantTensor::join(&[&one, &other?])?] {
            let plain = matrix.dequantize()?;
            for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_int()) {
                let ids: Vec<i64> = (0..6).map(|_| dice.below(matrix.shape()[0]) as i64).collect();
                let ids = Tensor::from_vec(ids, (3, 2), &device)?.cast(dtype)?;
                let got = matrix.index_select(&ids)?.to_vec::<f32>()?;
                assert_eq!(bits(&got), bits(&plain.index_select(0, &ids)?.to_vec()?), "{dtype}");
            }
            // none of these is a row, also as 32 bits
            for id in [u64::MAX, 1 << 32, 1 << 63, matrix.shape()[0] as u64] {
                let ids = Tensor::from_vec(vec![0, id], 2, &device)?;
                let error = matrix.index_select(&ids).and_then(|y| y.to_vec::<f32>()).unwrap_err();
                assert!(error.to_string().contains(&format!("index[1] is {id}")), "{error}");
            }
        }
    }
    Ok(())
}

/// Numbers of every magnitude that f32 has: the error is the bound of the type at the largest
/// number of the block, or what the smallest 16-bit float adds to it, and not larger than for
/// zeros.
#[test]
fn numbers_of_every_magnitude_come_back_within_the_error_of_their_type() -> Result<()> {
    let mut dice = Dice::new(43);
    let smallest = 2f32.powi(-24); // of f16
    for case in 0..3000 {
        let exponent = dice.below(156) as i32 - 149; // 2^-149 to 2^6
        let shape = dice.below(5);
        let x: Vec<f32> = (0..256)
            .map(|i| {
                let x = (dice.below(2001) as f64 - 1000.0) / 1000.0 * 2f64.powi(exponent);
                (match shape {
                    0 => x,
                    1 => x.abs(),
                    2 => x * 2f64.powi(-(dice.below(30) as i32)),
                    3 => 2f64.powi(exponent) * if i % 2 == 0 { -1.0 } else { 1.0 },
                    _ => 2f64.powi(exponent) + x / 16.0,
                }) as f32
            })
            .collect();
        for kind in QuantType::ALL.into_iter().filter(|kind| kind.is_written()) {
            let mut blocks = vec![0; 256 / kind.block_elements() * kind.block_bytes()];
            kind.encode(&x, &mut blocks)?;
            kind.check(&blocks, 0)?;
            let mut back = vec![0.0; 256];
            kind.decode(&blocks, &mut back);
            // relative to the largest number, and the steps of the smallest scale
            let (relative, steps) = match kind {
                QuantType::Q8_0 => (0.0045, 64.0),
                QuantType::Q4_0 => (0.13, 5.0),
                QuantType::Q5_0 => (0.07, 9.0),
                QuantType::Q4_1 => (0.07, 9.0),
                QuantType::Q5_1 => (0.035, 17.0),
                QuantType::Q6K => (0.04, 20.0),
                QuantType::Q4K => (0.11, 10.0),
                QuantType::Q5K => (0.06, 18.0),
                QuantType::Iq4Nl | QuantType::Mxfp4 => unreachable!("{kind} is not written"),
            };
            let size = kind.block_elements();
            for (i, (block, back)) in x.chunks(size).zip(back.chunks(size)).enumerate() {
                let largest = block.iter().fold(0.0f32, |most, x| most.max(x.abs()));
                // Without a scale all numbers are the minimum, which is rounded to 16 bits; without
                // a minimum they are 0.
                let zeros = match kind.has_minimum() {
                    true => 2.001 * largest + smallest / 2.0,
                    false => 1.001 * largest,
                };
                let bound = (relative * largest + steps * smallest).min(zeros);
                for (x, y) in block.iter().zip(back) {
                    let text = format!("case {case}: block {i} of {kind} up to {largest:e}");
                    assert!((x - y).abs() <= bound, "{text}: {x:e} became {y:e}");
                }
            }
        }
    }
    Ok(())
}

#[test]
fn a_type_says_whether_it_is_written() {
    for kind in QuantType::ALL {
        let x = vec![1.0; kind.block_elements()];
        let mut block = vec![0; kind.block_bytes()];
        let written = kind.encode(&x, &mut block);
        assert_eq!(written.is_ok(), kind.is_written(), "{kind}");
        let mut back = vec![0.0; x.len()];
        kind.decode(&block, &mut back);
        assert!(
            !kind.is_written() || back.iter().all(|x| (x - 1.0).abs() < 0.05),
            "{kind}: {back:?}"
        );
        if let Err(error) = written {
            let others = QuantType::ALL.into_iter().filter(|kind| kind.is_written());
            let text = error.to_string();
            assert!(others.map(QuantType::name).all(|name| text.contains(name)), "{text}");
        }
    }
}

/// The bytes of a block that are a scale: each of them, not finite, is found.
#[test]
fn a_scale_that_is_not_finite_is_found_in_every_type() {
    let mut dice = Dice::new(47);
    for kind in QuantType::ALL {
        for _ in 0..50 {
            let block = random_blocks(kind, 1, &mut dice);
            assert!(kind.check(&block, 0).is_ok(), "{kind}");
            for at in 0..kind.block_bytes() - 1 {
                let mut wrong = block.clone();
                (wrong[at], wrong[at + 1]) = (0xff, 0x7c | dice.below(4) as u8); // a NaN of f16
                let mut values = vec![0.0; kind.block_elements()];
                kind.decode(&wrong, &mut values);
                let number = match kind {
                    QuantType::Mxfp4 => at > 0, // its exponent of 255 is NaN by definition
                    _ => values.iter().all(|x| !x.is_nan()),
                };
                assert_eq!(kind.check(&wrong, 0).is_ok(), number, "{kind}, byte {at}");
            }
        }
    }
}
