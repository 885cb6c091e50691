//! One operation of integers, bools, a comparison, a choice or a conversion over rows that are
//! packed, sliced, broadcast or numbers, of drawn sizes: the bits of `Reference` at every level.

use crate::common::*;
use teeny_core::{DType, DeviceRef, Reference, Result, Tensor, map};

/// How an operand covers the shape.
#[derive(Clone, Copy, Debug)]
enum Cover {
    Packed,
    /// Rows with a gap between them.
    Sliced,
    /// One row, one column, one plane of rows or of numbers, one number.
    Row,
    Column,
    Middle,
    Planes,
    Number,
}

const COVERS: [Cover; 8] = [
    Cover::Packed,
    Cover::Packed,
    Cover::Sliced,
    Cover::Row,
    Cover::Column,
    Cover::Middle,
    Cover::Planes,
    Cover::Number,
];

/// Whole numbers of either sign, some at the limits of the types, and fractions.
fn operand(
    cover: Cover,
    [a, b, n]: [usize; 3],
    dtype: DType,
    seed: usize,
    on: &DeviceRef,
) -> Tensor {
    let shape = match cover {
        Cover::Packed => [a, b, n],
        Cover::Sliced => [a, b, n + 3],
        Cover::Row => [1, 1, n],
        Cover::Column => [a, b, 1],
        Cover::Middle => [a, 1, n],
        Cover::Planes => [a, 1, 1],
        Cover::Number => [1, 1, 1],
    };
    let special = [0.0, 1.0, -1.0, 127.0, -128.0, 255.5, 65536.0, -32769.0, 3e9, -1e19];
    let values: Vec<f64> = (0..shape.iter().product::<usize>())
        .map(|i| match (i * 7 + seed) % 23 {
            at if at < special.len() => special[at],
            _ => ((i * 37 + seed) % 201) as f64 * 0.75 - 75.0,
        })
        .collect();
    let x = Tensor::from_slice(&values, shape, on).unwrap().cast(dtype).unwrap();
    if matches!(cover, Cover::Sliced) { x.slice(2, 2..n as isize + 2).unwrap() } else { x }
}

#[test]
fn single_operations_over_rows_of_any_cover_have_the_bits_of_the_oracle() {
    let mut draw = Draw(19);
    let devices = devices();
    let oracle: DeviceRef = Reference::new();
    for case in 0..220 {
        let shape = [
            [2, 3, 7],
            [1, 40, 12],
            [2, 9, 30],
            [3, 2, 300],
            [5, 60, 5],
            [1, 300, 1],
            [1, 1, 9000],
            [2, 2, 4100],
            [1, 700, 9],
            [3, 900, 30],
            [2, 1, 513],
        ][case % 11];
        let dtype = draw.one_of(&[
            DType::I8,
            DType::U8,
            DType::I16,
            DType::U16,
            DType::I32,
            DType::I64,
            DType::U64,
        ]);
        let float = draw.one_of(&[DType::F16, DType::BF16, DType::F32, DType::F64]);
        let covers = [(); 3].map(|()| draw.one_of(&COVERS));
        let run = |on: &DeviceRef| -> Result<Vec<Tensor>> {
            let make = |k: usize, dtype| operand(covers[k], shape, dtype, case + 5 * k, on);
            let (a, b) = (make(0, dtype), make(1, dtype));
            let (x, y) = (make(0, float), make(1, float));
            let choice = make(2, DType::Bool);
            Ok(vec![
                a.add(&b)?,
                a.sub(3)?,
                a.mul(&b)?,
                a.maximum(&b)?,
                a.rem(&b)?,
                a.floor_div(&b)?,
                a.shl(&b)?,
                a.shr(&b)?,
                a.lt(&b)?,
                a.eq(7)?,
                a.xor(&b)?,
                a.neg()?,
                choice.or(make(1, DType::Bool))?,
                choice.where_cond(&a, &b)?,
                choice.where_cond(&x, &y)?,
                choice.where_cond(&x, 0.3)?,
                make(0, DType::F64).le(make(1, DType::F64))?,
                a.cast(float)?,
                x.cast(dtype)?,
                x.cast(DType::Bool)?,
                a.cast(DType::I32)?,
            ])
        };
        let want = run(&oracle).unwrap();
        for device in &devices {
            let on: DeviceRef = device.clone();
            for (i, (got, want)) in run(&on).unwrap().iter().zip(&want).enumerate() {
                let what =
                    format!("result {i} of case {case}: {shape:?} {covers:?} {dtype} {float}");
                assert_eq!(got.shape(), want.shape(), "{what}");
                let (got, want) = (got.to_scalars().unwrap(), want.to_scalars().unwrap());
                assert!(got == want, "{what} {device:?}");
            }
        }
    }
}

/// Conversions of floats to integers beside the limits of every type.
#[test]
fn floats_beside_the_limits_of_integers_are_saturated() {
    let mut values = vec![f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1e-300, 1e300];
    for bits in [7, 8, 15, 16, 31, 32, 63, 64] {
        let limit = (bits as f64).exp2();
        for x in [limit, limit.next_down(), limit - 1.0, limit - 0.5, limit + 1.0] {
            let single = x as f32;
            for x in [x, f64::from(single), f64::from(single.next_down())] {
                values.extend([x, -x, -x.next_up()]);
            }
        }
    }
    for device in devices() {
        for from in [DType::F64, DType::F32] {
            let on: DeviceRef = device.clone();
            let x = Tensor::from_slice(&values, values.len(), &on).unwrap().cast(from).unwrap();
            for to in DType::ALL.into_iter().filter(|to| !to.is_float()) {
                let got = x.cast(to).unwrap().to_scalars().unwrap();
                for (x, got) in x.to_scalars().unwrap().iter().zip(&got) {
                    assert_eq!(*got, x.cast(to), "{x:?} of {from} to {to} on {device:?}");
                }
            }
        }
    }
}

/// Quotients and remainders of every pair of 8 bits, and of numbers beside the limits of wider types.
#[test]
fn quotients_and_remainders_of_integers_are_exact() {
    let oracle: DeviceRef = Reference::new();
    for dtype in [DType::I8, DType::U8, DType::I16, DType::U16, DType::I32, DType::U32] {
        let least = if dtype.is_unsigned_int() { 0 } else { -1i64 << (8 * dtype.size() - 1) };
        let most = least + (1i64 << (8 * dtype.size())) - 1;
        let near = [least, least / 2, least / 3, 0, most / 255, most / 2, most];
        let mut values: Vec<i64> = near.iter().flat_map(|x| x - 20..x + 20).collect();
        if dtype.size() == 1 {
            values = (least..=most).collect();
        }
        values.retain(|x| (least..=most).contains(x));
        let n = values.len();
        let run = |on: &DeviceRef| -> Result<Vec<Tensor>> {
            let x = Tensor::from_slice(&values, n, on)?.cast(dtype)?;
            let (column, row) = (x.unsqueeze(1)?, x.unsqueeze(0)?);
            Ok(vec![column.rem(&row)?, column.floor_div(&row)?])
        };
        let want = run(&oracle).unwrap();
        for device in devices() {
            let on: DeviceRef = device.clone();
            for (got, want) in run(&on).unwrap().iter().zip(&want) {
                let (got, want) = (got.to_scalars().unwrap(), want.to_scalars().unwrap());
                assert!(got == want, "{dtype} on {device:?}");
            }
        }
    }
}

/// More 16-bit operands than there are buffers, and fewer; rows that end within a vector.
#[test]
fn chains_of_16_bit_floats_are_rounded_once_at_the_end() {
    let mut draw = Draw(14);
    let oracle: DeviceRef = Reference::new();
    for _ in 0..60 {
        let shape = [1 + draw.below(3), 1 + draw.below(9), 1 + draw.below(700)];
        let dtype = draw.one_of(&[DType::BF16, DType::F16]);
        let covers: [Cover; 7] = std::array::from_fn(|_| draw.one_of(&COVERS));
        let run = |on: &DeviceRef| -> Result<Vec<Tensor>> {
            let x: Vec<Tensor> = covers
                .iter()
                .enumerate()
                .map(|(k, &cover)| {
                    // Quarters up to 8, so that every value is exact in f32.
                    let x = operand(cover, shape, DType::I8, k, on);
                    x.cast(DType::F32)?.div(4)?.clamp(-8, 8)?.cast(dtype)
                })
                .collect::<Result<_>>()?;
            let [a, b, c, d, e, f, g] = &x[..] else { unreachable!() };
            let all = map([a, b, c, d, e, f, g], |[a, b, c, d, e, f, g]| {
                let u = a * b - c;
                let v = u.lt(d).where_cond(e, u.maximum(f));
                v.minimum(g) + v * a
            });
            let few = map([a, b, c], |[a, b, c]| (a * b - c).maximum(b).abs() + a);
            Ok(vec![all?, few?, a.leaky_relu(0.125)?, b.clamp(-2, 3)?, c.floor()?])
        };
        let want = run(&oracle).unwrap();
        for device in devices() {
            let on: DeviceRef = device.clone();
            for (k, (got, want)) in run(&on).unwrap().iter().zip(&want).enumerate() {
                let (got, want) = (got.to_scalars().unwrap(), want.to_scalars().unwrap());
                assert!(got == want, "chain {k} of {dtype} {shape:?} {covers:?} on {device:?}");
            }
        }
    }
}

#[test]
fn the_result_of_a_transposed_and_a_broadcast_operand_is_transposed() {
    let oracle: DeviceRef = Reference::new();
    let run = |on: &DeviceRef| -> Result<Vec<Tensor>> {
        let x = Tensor::arange(0f32, 8400.0, 1.0, on)?.reshape([7, 40, 30])?;
        let x = x.transpose(1, 2)?; // (7, 30, 40)
        let row = Tensor::arange(0f32, 40.0, 1.0, on)?;
        let column = row.slice(0, 0..30)?.unsqueeze(1)?;
        Ok(vec![x.sub(&row)?, row.sub(&x)?, column.expand([7, 30, 40])?.maximum(&x)?, x])
    };
    let want = run(&oracle).unwrap();
    for device in devices() {
        let on: DeviceRef = device.clone();
        let got = run(&on).unwrap();
        for (got, want) in got.iter().zip(&want) {
            assert_eq!(got.layout().strides(), [1200, 1, 30], "{device:?}");
            assert_eq!(got.to_vec::<f32>().unwrap(), want.to_vec::<f32>().unwrap(), "{device:?}");
        }
    }
}

/// A first column begins where its tensor does and has the same row stride: a product with it is
/// not a square.
#[test]
fn a_product_of_rows_with_their_own_first_elements_is_no_square() -> Result<()> {
    let oracle: DeviceRef = Reference::new();
    for cpu in devices() {
        let cpu: DeviceRef = cpu;
        for dtype in [DType::BF16, DType::F16, DType::F32, DType::F64] {
            let products = |device: &DeviceRef| -> Result<[Vec<u8>; 2]> {
                let x = Tensor::arange(1.0f32, 241.0, 1.0, &oracle)?.mul(0.1)?;
                let x = x.cast(dtype)?.reshape((6, 40))?.to(device)?; // (6, 40)
                let first = x.slice(1, 0..1)?; // (6, 1)
                Ok([x.mul(&first)?.to_bytes()?, first.mul(&x)?.to_bytes()?])
            };
            assert_eq!(products(&cpu)?, products(&oracle)?, "{dtype}");
        }
    }
    Ok(())
}
