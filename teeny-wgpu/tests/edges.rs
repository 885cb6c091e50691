//! Every operation of kernels in every type on a grid of special values, one launch each, held
//! against the oracle: division by zero, shifts by too much, the ends of the integers, infinities,
//! NaN, casts that do not fit.

use crate::common;
use std::sync::Arc;
use teeny_core::{
    Arithmetic, DType, Device, FloatFunction, OpCode, Reference, Tensor, Window, map,
};
use teeny_wgpu::Wgpu;

/// The special values of a type, on the oracle.
fn specials(dtype: DType, oracle: &Arc<Reference>) -> Tensor {
    if dtype.is_float() {
        let mut values = vec![f64::NAN];
        let limits = [
            f64::INFINITY,
            3.4028234663852886e38,
            65504.0,
            f64::MAX,
            1.1754943508222875e-38,
            1e-40,
            6e-8,
            2.3e-308,
            1e-310,
        ];
        let steps = [
            0.0, 0.1, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 7.0, 100.0, 127.5, 128.0, 255.5, 256.0,
            32767.5, 32768.0, 65535.5, 65536.0,
        ];
        let powers = [24, 31, 32, 53, 63, 64, 100].map(|e| 2f64.powi(e));
        let magnitudes = steps
            .into_iter()
            .chain(limits)
            .chain(powers)
            .chain(powers.map(|p| p - 1.0))
            .chain(powers.map(|p| p * (1.0 - 1e-7)));
        values.extend(magnitudes.flat_map(|x| [x, -x]));
        return Tensor::from_slice(&values, values.len(), oracle).unwrap().cast(dtype).unwrap();
    }
    // Narrower types get these modulo their size: their own ends among them.
    let small = (-9..10).chain([15, 16, 17, 31, 32, 33, 63, 64, 65]);
    let ends = [7u32, 8, 15, 16, 31, 32, 63]
        .into_iter()
        .flat_map(|e| (-2..2).map(move |d| (1i64.wrapping_shl(e)).wrapping_add(d)));
    let values: Vec<i64> =
        small.chain(ends).chain([0x5555_5555_5555_5555, -0x0123_4567_89ab_cdef]).collect();
    Tensor::from_slice(&values, values.len(), oracle).unwrap().cast(dtype).unwrap()
}

/// All pairs of the elements of `x`, as two columns.
fn pairs(x: &Tensor) -> [Tensor; 2] {
    let n = x.numel();
    let columns = [x.unsqueeze(1).unwrap(), x.unsqueeze(0).unwrap()];
    columns.map(|c| c.expand((n, n)).unwrap().contiguous().unwrap().reshape(n * n).unwrap())
}

/// The values of a type that hardware may take for others: zeros and subnormals as zeros of either
/// sign.
fn readings(x: &Tensor) -> Vec<Tensor> {
    if !x.dtype().is_float() {
        return vec![x.clone()];
    }
    let smallest =
        if x.dtype() == DType::F64 { f64::MIN_POSITIVE } else { f32::MIN_POSITIVE as f64 };
    let flushed = |zero: f64| {
        let wide: Vec<f64> = x
            .cast(DType::F64)
            .unwrap()
            .to_vec::<f64>()
            .unwrap()
            .into_iter()
            .map(|v| if v.abs() < smallest { zero } else { v })
            .collect();
        Tensor::from_slice(&wide, wide.len(), x.device()).unwrap().cast(x.dtype()).unwrap()
    };
    vec![x.clone(), flushed(0.0), flushed(-0.0)]
}

/// Units in the last place of the computing type that an operation may be off, by the documentation
/// of the crate.
fn allowed(op: OpCode) -> f64 {
    use Arithmetic::{Div, FloorDiv, Pow, Rem};
    use FloatFunction::{Recip, Rsqrt, Sqrt};
    match op {
        OpCode::Float(Recip | Sqrt | Rsqrt) => 3.0,
        OpCode::Arithmetic(Div | Rem | FloorDiv) => 3.0,
        OpCode::Float(_) | OpCode::Arithmetic(Pow) => 4.0,
        _ => 0.0,
    }
}

/// Whether two numbers agree: equal up to the sign of zeros, both NaN, less than the smallest normal
/// number apart, or within `ulps` and one rounding to a 16-bit type.
fn agree(got: f64, want: f64, dtype: DType, ulps: f64) -> bool {
    let (digits, rounding, lowest) = match dtype {
        DType::F64 => (52, 0.0, -1022),
        DType::F16 => (23, 2f64.powi(-10), -126),
        DType::BF16 => (23, 2f64.powi(-7), -126),
        _ => (23, 0.0, -126),
    };
    // a flushed term may be missing
    let flushed = (got - want).abs() < 2f64.powi(lowest);
    if got == want || flushed || (got.is_nan() && want.is_nan()) {
        return true;
    }
    let tolerance = ulps * 2f64.powi(-digits) + if ulps > 0.0 { rounding } else { 0.0 };
    (got - want).abs() <= tolerance * want.abs().max(2f64.powi(lowest)) && want.is_finite()
}

/// A check of one kernel: the first argument for which no reading of the inputs gives the oracle's
/// value.
fn check(
    label: &str,
    op: OpCode,
    inputs: &[Tensor],
    gpu: &Arc<Wgpu>,
    run: impl Fn(&[&Tensor]) -> Tensor,
) -> Option<String> {
    let oracle = inputs[0].device();
    let on_gpu: Vec<Tensor> = inputs
        .iter()
        .map(|x| {
            Tensor::from_bytes(&oracle.download(x).unwrap(), x.numel(), x.dtype(), gpu).unwrap()
        })
        .collect();
    let got = run(&on_gpu.iter().collect::<Vec<_>>());
    let bytes = gpu.download(&got).unwrap();
    let got = Tensor::from_bytes(&bytes, got.numel(), got.dtype(), oracle).unwrap();
    let dtype = got.dtype();
    let mut wanted = Vec::new();
    let second = inputs.get(1).map_or(vec![None], |x| readings(x).into_iter().map(Some).collect());
    for first in readings(&inputs[0]) {
        for second in &second {
            let arguments: Vec<&Tensor> =
                [Some(&first), second.as_ref()].into_iter().flatten().collect();
            wanted.push(run(&arguments));
        }
    }
    let numbers = |x: &Tensor| x.cast(DType::F64).unwrap().to_vec::<f64>().unwrap();
    let all: Vec<(Vec<u8>, Vec<f64>)> =
        wanted.iter().map(|y| (oracle.download(y).unwrap(), numbers(y))).collect();
    let values = numbers(&got);
    let size = dtype.size();
    let wrong = (0..got.numel()).find(|&i| {
        let same = |(raw, y): &(Vec<u8>, Vec<f64>)| match dtype.is_float() {
            true => agree(values[i], y[i], dtype, allowed(op)),
            false => raw[i * size..][..size] == bytes[i * size..][..size],
        };
        !all.iter().any(same)
    })?;
    let arguments: Vec<String> =
        inputs.iter().map(|x| format!("{:?}", numbers(x)[wrong])).collect();
    Some(format!(
        "{label}({}) is {:?}, not {:?}",
        arguments.join(", "),
        values[wrong],
        all[0].1[wrong]
    ))
}

#[test]
fn every_operation_agrees_with_the_oracle_on_special_values() {
    let Some(gpu) = common::gpu() else { return };
    let oracle = Reference::new();
    let mut wrong = Vec::new();
    for dtype in DType::ALL.into_iter().filter(|t| gpu.capabilities().supports(*t)) {
        let x = specials(dtype, &oracle);
        let both = pairs(&x);
        for op in OpCode::UNARY.into_iter().filter(|op| op.accepts(dtype)) {
            let inputs = std::slice::from_ref(&x);
            wrong.extend(check(&format!("{} {dtype}", op.name()), op, inputs, &gpu, |x| {
                map([x[0]], |[x]| x.unary(op)).unwrap()
            }));
        }
        for op in OpCode::BINARY.into_iter().filter(|op| op.accepts(dtype)) {
            wrong.extend(check(&format!("{} {dtype}", op.name()), op, &both, &gpu, |x| {
                map([x[0], x[1]], |[a, b]| a.binary(op, b)).unwrap()
            }));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_cast_agrees_with_the_oracle_on_special_values() {
    let Some(gpu) = common::gpu() else { return };
    let oracle = Reference::new();
    let mut wrong = Vec::new();
    let types: Vec<DType> =
        DType::ALL.into_iter().filter(|t| gpu.capabilities().supports(*t)).collect();
    for &source in &types {
        let x = specials(source, &oracle);
        for &target in &types {
            let inputs = std::slice::from_ref(&x);
            wrong.extend(check(
                &format!("{source} to {target}"),
                OpCode::Cast,
                inputs,
                &gpu,
                |x| map([x[0]], |[x]| x.cast(target)).unwrap(),
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn windows_that_see_padding_alone_agree_with_the_oracle() {
    let Some(gpu) = common::gpu() else { return };
    let oracle = Reference::new();
    let window = Window::new(1).padding(1usize).dilation(3usize);
    for dtype in
        DType::ALL.into_iter().filter(|t| *t != DType::Bool && gpu.capabilities().supports(*t))
    {
        let run = |device: &teeny_core::DeviceRef| {
            let x = Tensor::arange(1i32, 5, 1, device)
                .unwrap()
                .cast(dtype)
                .unwrap()
                .reshape((2, 1, 2))
                .unwrap();
            let (values, places) = x.max_pool_indices(&[2], &window).unwrap();
            (values.to_scalars().unwrap(), places.to_scalars().unwrap())
        };
        assert!(
            run(&(gpu.clone() as _)) == run(&(oracle.clone() as _)),
            "{dtype}: {:?}",
            run(&(gpu.clone() as _))
        );
    }
}

#[test]
fn a_program_divides_by_a_constant_of_zero() {
    let Some(device) = common::gpu() else { return };
    let x = Tensor::new([1.0f32, -2.0, 0.0, f32::INFINITY], &device).unwrap();
    let y = map([&x], |[x]| x / 0.0).unwrap().to_vec::<f32>().unwrap();
    assert_eq!((y[0], y[1], y[3]), (f32::INFINITY, f32::NEG_INFINITY, f32::INFINITY));
    assert!(y[2].is_nan(), "{y:?}");
}

#[test]
fn a_program_multiplies_by_a_constant_of_zero() {
    let Some(device) = common::gpu() else { return };
    let x = Tensor::new([1.0f32, f32::NAN, f32::INFINITY, f32::NEG_INFINITY], &device).unwrap();
    let products = [
        map([&x], |[x]| x * 0.0).unwrap(),
        map([&x], |[x]| 0.0 * x).unwrap(),
        map([&x], |[x]| x * -0.0).unwrap(),
    ];
    for y in products {
        let y = y.to_vec::<f32>().unwrap();
        assert!(y[0] == 0.0 && y[1..].iter().all(|y| y.is_nan()), "{y:?}");
    }
    let y = map([&x.sub(&x).unwrap()], |[x]| 0.0 / x).unwrap().to_vec::<f32>().unwrap();
    assert!(y.iter().all(|y| y.is_nan()), "{y:?}");
}
