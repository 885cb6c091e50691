//! Row A19: convolution, pooling, columns and interpolation against PyTorch's results and gradients
//! (`golden/windows.json`), on the naive device and the CPU, in every float type.

use serde_json::Value;
use std::collections::BTreeMap;
use teeny_autograd::{Autograd, Grad};
use teeny_core::Interpolation::{Area, Cubic, Linear, Nearest, NearestExact};
use teeny_core::{Averaging, DType, DeviceRef, ErrorKind, Reference, Result, Tensor, Window};
use teeny_cpu::Cpu;

type Inputs = BTreeMap<String, Tensor>;

fn golden() -> Value {
    serde_json::from_str(include_str!("golden/windows.json")).expect("JSON")
}

fn numbers(v: &Value) -> Vec<f64> {
    v.as_array().expect("a list").iter().map(|n| n.as_f64().expect("a number")).collect()
}

fn sizes(v: &Value) -> Vec<usize> {
    numbers(v).into_iter().map(|n| n as usize).collect()
}

fn values(x: &Tensor) -> Vec<f64> {
    x.to_scalars().unwrap().into_iter().map(|s| s.to_f64()).collect()
}

/// The expression in Rust.
fn run(expression: &str, of: &Inputs) -> Result<Tensor> {
    let on = |name: &str| &of[name];
    let w = Window::new;
    let turned = |x: &str, weight: &str, window: Window, more: &[usize]| {
        let size = window.transposed_size(on(x).shape(), on(weight).shape(), more)?;
        on(x).conv_transpose(on(weight), &window, &size)
    };
    let unpool = |x: &str, pool: &[usize], spatial: &[usize]| {
        let (values, positions) = on(x).max_pool_indices(pool, &w(pool.len()).stride(pool))?;
        values.max_unpool(&positions, spatial)
    };
    let (outside, rounded) =
        (Averaging::new().with_count_padding(false), Averaging::new().with_ceil(true));
    let (edges, corners) = (Linear { align_corners: false }, Linear { align_corners: true });
    #[rustfmt::skip]
    let y = match expression {
        "F.conv1d(x1, w1, stride=2, padding=1, groups=2)" => on("x1").conv(on("w1"), &w(1).stride(2).padding(1).groups(2)),
        "F.conv1d(x1, w1, dilation=3, padding=2, groups=2)" => on("x1").conv(on("w1"), &w(1).dilation(3).padding(2).groups(2)),
        "F.conv1d(x1, d1, groups=4)" => on("x1").conv(on("d1"), &w(1).groups(4)),
        "F.conv1d(x1, s1, padding=\"same\")" => on("x1").conv_same(on("s1"), &w(1)),
        "F.conv2d(x2, w2, stride=(2, 1), padding=(0, 2), dilation=(1, 2), groups=2)" => on("x2").conv(on("w2"), &w(2).stride((2, 1)).padding((0, 2)).dilation((1, 2)).groups(2)),
        "F.conv2d(x2, w2, padding=1, groups=2)" => on("x2").conv(on("w2"), &w(2).padding(1).groups(2)),
        "F.conv2d(x2, s2, padding=\"same\", dilation=(1, 3))" => on("x2").conv_same(on("s2"), &w(2).dilation((1, 3))),
        "F.conv3d(x3, w3, padding=1, stride=2)" => on("x3").conv(on("w3"), &w(3).padding(1).stride(2)),
        "F.conv3d(x3, w3)" => on("x3").conv(on("w3"), &w(3)),
        "F.conv_transpose1d(x1, v1)" => turned("x1", "v1", w(1), &[0]),
        "F.conv_transpose1d(x1, v1, stride=3, padding=1, output_padding=2)" => turned("x1", "v1", w(1).stride(3).padding(1), &[2]),
        "F.conv_transpose1d(x1, v1, stride=2, dilation=2, groups=2)" => turned("x1", "v1", w(1).stride(2).dilation(2).groups(2), &[0]),
        "F.conv_transpose1d(x1, v1, dilation=3, padding=2, output_padding=2)" => turned("x1", "v1", w(1).dilation(3).padding(2), &[2]),
        "F.conv_transpose2d(x2, v2, stride=2, padding=1, output_padding=(1, 0), groups=2)" => turned("x2", "v2", w(2).stride(2).padding(1).groups(2), &[1, 0]),
        "F.conv_transpose2d(x2, v2, stride=(1, 3), dilation=(2, 1), padding=(0, 1))" => turned("x2", "v2", w(2).stride((1, 3)).dilation((2, 1)).padding((0, 1)), &[0]),
        "F.conv_transpose3d(x3, v3, stride=2, padding=1, output_padding=1)" => turned("x3", "v3", w(3).stride(2).padding(1), &[1]),
        "F.conv_transpose3d(x3, v3, groups=2)" => turned("x3", "v3", w(3).groups(2), &[0]),
        "F.max_pool1d(x1, 3, 2, 1, dilation=2)" => on("x1").max_pool(&[3], &w(1).stride(2).padding(1).dilation(2)),
        "F.max_pool2d(x2, (2, 3), 2, 1)" => on("x2").max_pool(&[2, 3], &w(2).stride(2).padding(1)),
        "F.max_pool2d(x2, 2, 3, ceil_mode=True)" => Ok(on("x2").max_pool_ceil(&[2, 2], &w(2).stride(3))?.0),
        "F.max_pool2d(m, 3, 2, 1, dilation=2, ceil_mode=True)" => Ok(on("m").max_pool_ceil(&[3, 3], &w(2).stride(2).padding(1).dilation(2))?.0),
        "F.max_pool2d(m, 2, 2, ceil_mode=True)" => Ok(on("m").max_pool_ceil(&[2, 2], &w(2).stride(2))?.0),
        "F.max_pool3d(x3, 2, (1, 2, 2))" => on("x3").max_pool(&[2; 3], &w(3).stride((1, 2, 2))),
        "F.max_pool3d(x3, 2, 2, ceil_mode=True)" => Ok(on("x3").max_pool_ceil(&[2; 3], &w(3).stride(2))?.0),
        "F.avg_pool1d(x1, 4, 3, 2)" => on("x1").avg_pool(&[4], &w(1).stride(3).padding(2)),
        "F.avg_pool1d(x1, 2, 3, 1, ceil_mode=True)" => on("x1").avg_pool_with(&[2], &w(1).stride(3).padding(1), rounded),
        "F.avg_pool2d(x2, (2, 3), 2, 1, count_include_pad=False)" => on("x2").avg_pool_with(&[2, 3], &w(2).stride(2).padding(1), outside),
        "F.avg_pool2d(x2, 3, 2, 1, ceil_mode=True)" => on("x2").avg_pool_with(&[3, 3], &w(2).stride(2).padding(1), rounded),
        "F.avg_pool2d(x2, 3, 2, 1, ceil_mode=True, count_include_pad=False)" => on("x2").avg_pool_with(&[3, 3], &w(2).stride(2).padding(1), outside.with_ceil(true)),
        "F.avg_pool2d(m, 2, 2, ceil_mode=True)" => on("m").avg_pool_with(&[2, 2], &w(2).stride(2), rounded),
        "F.avg_pool2d(x2, 2, 1, divisor_override=3)" => on("x2").avg_pool_with(&[2, 2], &w(2), Averaging::new().with_divisor(Some(3))),
        "F.avg_pool3d(x3, 2, 1, 1)" => on("x3").avg_pool(&[2; 3], &w(3).padding(1)),
        "F.avg_pool3d(x3, 3, 2, 1, ceil_mode=True, count_include_pad=False)" => on("x3").avg_pool_with(&[3; 3], &w(3).stride(2).padding(1), outside.with_ceil(true)),
        "F.adaptive_avg_pool1d(x1, 4)" => on("x1").adaptive_avg_pool(&[4]),
        "F.adaptive_avg_pool2d(x2, (3, 4))" => on("x2").adaptive_avg_pool(&[3, 4]),
        "F.adaptive_avg_pool2d(x2, (5, 2))" => on("x2").adaptive_avg_pool(&[5, 2]),
        "F.adaptive_avg_pool2d(x2, 1)" => on("x2").adaptive_avg_pool(&[1, 1]),
        "F.adaptive_avg_pool3d(x3, (2, 3, 5))" => on("x3").adaptive_avg_pool(&[2, 3, 5]),
        "F.adaptive_max_pool1d(x1, 4)" => Ok(on("x1").adaptive_max_pool(&[4])?.0),
        "F.adaptive_max_pool2d(x2, (3, 4))" => Ok(on("x2").adaptive_max_pool(&[3, 4])?.0),
        "F.adaptive_max_pool2d(x2, (1, 3))" => Ok(on("x2").adaptive_max_pool(&[1, 3])?.0),
        "F.adaptive_max_pool3d(x3, (2, 3, 3))" => Ok(on("x3").adaptive_max_pool(&[2, 3, 3])?.0),
        "F.lp_pool1d(x1.abs() + 0.1, 2, 3, 2)" => on("x1").abs()?.add(0.1)?.lp_pool(2.0, &[3], &w(1).stride(2)),
        "F.lp_pool2d(x2.abs() + 0.1, 3.0, (2, 3), 2)" => on("x2").abs()?.add(0.1)?.lp_pool(3.0, &[2, 3], &w(2).stride(2)),
        "F.max_unpool2d(*F.max_pool2d(x2, 2, 2, return_indices=True), 2, 2, output_size=(5, 6))" => unpool("x2", &[2, 2], &[5, 6]),
        "F.max_unpool1d(*F.max_pool1d(x1, 3, 3, return_indices=True), 3, 3)" => unpool("x1", &[3], &[9]),
        "F.unfold(x2, (2, 3), dilation=(1, 2), padding=1, stride=(2, 1))" => on("x2").im2col(&[2, 3], &w(2).dilation((1, 2)).padding(1).stride((2, 1))),
        "F.unfold(x2, 2)" => on("x2").im2col(&[2, 2], &w(2)),
        "F.fold(c, (4, 4), (2, 3), padding=(0, 1), stride=(1, 1))" => on("c").col2im(&[4, 4], &[2, 3], &w(2).padding((0, 1))),
        "F.fold(c, (9, 4), (2, 2), stride=(2, 1))" => on("c").col2im(&[9, 4], &[2, 2], &w(2).stride((2, 1))),
        "F.interpolate(i1, 8, mode=\"nearest\")" => on("i1").interpolate(&[8], Nearest),
        "F.interpolate(i2, (7, 3), mode=\"nearest\")" => on("i2").interpolate(&[7, 3], Nearest),
        "F.interpolate(i2, (7, 3), mode=\"nearest-exact\")" => on("i2").interpolate(&[7, 3], NearestExact),
        "F.interpolate(i3, (3, 7, 2), mode=\"nearest\")" => on("i3").interpolate(&[3, 7, 2], Nearest),
        "F.interpolate(i1, 8, mode=\"linear\")" => on("i1").interpolate(&[8], edges),
        "F.interpolate(i1, 3, mode=\"linear\", align_corners=True)" => on("i1").interpolate(&[3], corners),
        "F.interpolate(i2, (6, 9), mode=\"bilinear\")" => on("i2").interpolate(&[6, 9], edges),
        "F.interpolate(i2, (6, 2), mode=\"bilinear\", align_corners=True)" => on("i2").interpolate(&[6, 2], corners),
        "F.interpolate(i2, (1, 9), mode=\"bilinear\", align_corners=True)" => on("i2").interpolate(&[1, 9], corners),
        "F.interpolate(i2, scale_factor=(1.6, 0.7), mode=\"bilinear\")" => on("i2").interpolate_by(&[1.6, 0.7], edges),
        "F.interpolate(i2, scale_factor=2.0, mode=\"nearest\")" => on("i2").interpolate_by(&[2.0, 2.0], Nearest),
        "F.interpolate(i3, (3, 5, 4), mode=\"trilinear\")" => on("i3").interpolate(&[3, 5, 4], edges),
        "F.interpolate(i3, (3, 5, 4), mode=\"trilinear\", align_corners=True)" => on("i3").interpolate(&[3, 5, 4], corners),
        "F.interpolate(i2, (6, 9), mode=\"bicubic\")" => on("i2").interpolate(&[6, 9], Cubic { align_corners: false }),
        "F.interpolate(i2, (3, 3), mode=\"bicubic\", align_corners=True)" => on("i2").interpolate(&[3, 3], Cubic { align_corners: true }),
        "F.interpolate(i2, scale_factor=(1.6, 0.7), mode=\"bicubic\")" => on("i2").interpolate_by(&[1.6, 0.7], Cubic { align_corners: false }),
        "F.interpolate(i2, (3, 7), mode=\"area\")" => on("i2").interpolate(&[3, 7], Area),
        "F.pixel_shuffle(p, 2)" => on("p").pixel_shuffle(2),
        "F.pixel_unshuffle(i2[:, :, :, 1:], 2)" => on("i2").slice(-1, 1..)?.pixel_unshuffle(2),
        "F.channel_shuffle(p, 4)" => on("p").channel_shuffle(4),
        other => panic!("{other} is not known here"),
    };
    y
}

/// The result of a case and the gradients of its inputs, which are rounded to `rounded` and
/// computed with in `dtype`.
fn outcome(
    golden: &Value,
    case: &Value,
    device: DeviceRef,
    dtype: DType,
    rounded: DType,
) -> Result<Vec<Tensor>> {
    let wrapped: DeviceRef = Autograd::new(&device);
    let names: Vec<&str> =
        case["of"].as_array().expect("names").iter().map(|n| n.as_str().expect("a name")).collect();
    let leaf = |name: &&str| -> Result<(String, Tensor)> {
        let x = &golden["inputs"][name];
        let x = Tensor::from_vec(numbers(&x["data"]), sizes(&x["shape"]), &wrapped)?
            .cast(rounded)?
            .cast(dtype)?;
        Ok((name.to_string(), x.requires_grad()?))
    };
    let of = names.iter().map(leaf).collect::<Result<Inputs>>()?;
    let y = run(case["expression"].as_str().expect("text"), &of)?;
    let n = y.numel();
    let w = Tensor::from_vec((1..=n).map(|i| i as f64 / n as f64).collect(), y.shape(), &device)?
        .cast(rounded)?
        .cast(dtype)?;
    let grads = y.backward_with(&w)?;
    let mut all = vec![y.detach()?];
    for name in names {
        all.push(grads.get(&of[name])?.clone());
    }
    Ok(all)
}

#[track_caller]
fn near(case: &Value, got: &[f64], wanted: &[f64], tolerance: f64) {
    assert_eq!(got.len(), wanted.len(), "{case}");
    for (g, w) in got.iter().zip(wanted) {
        assert!((g - w).abs() <= tolerance * w.abs().max(1.0), "{g} for {w}: {case}");
    }
}

/// Holds every result and gradient to `tolerance` of the larger of 1 and PyTorch's value.
fn hold(device: DeviceRef, dtype: DType, tolerance: f64) -> Result<()> {
    let golden = golden();
    for case in golden["cases"].as_array().expect("cases") {
        let got = outcome(&golden, case, device.clone(), dtype, DType::F64)?;
        assert_eq!(got[0].shape().to_vec(), sizes(&case["shape"]), "{case}");
        near(case, &values(&got[0]), &numbers(&case["data"]), tolerance);
        for (g, wanted) in got[1..].iter().zip(case["grads"].as_array().expect("gradients")) {
            near(case, &values(g), &numbers(wanted), tolerance);
        }
    }
    Ok(())
}

#[test]
fn windows_and_their_gradients_equal_torch_on_the_reference() -> Result<()> {
    hold(Reference::new(), DType::F64, 1e-9)
}

#[test]
fn windows_and_their_gradients_equal_torch_on_the_cpu() -> Result<()> {
    hold(Cpu::new(), DType::F64, 1e-9)
}

#[test]
fn windows_and_their_gradients_in_single_precision() -> Result<()> {
    hold(Cpu::new(), DType::F32, 2e-5)
}

#[test]
fn windows_of_sixteen_bit_floats_keep_their_type_and_precision() -> Result<()> {
    let golden = golden();
    // A few roundings of numbers up to 24 times those that are summed, against f64 of the same
    // rounded inputs.
    for (dtype, tolerance) in [(DType::F16, 0.01), (DType::BF16, 0.08)] {
        for case in golden["cases"].as_array().expect("cases") {
            let got = outcome(&golden, case, Cpu::new(), dtype, dtype)?;
            let wanted = outcome(&golden, case, Cpu::new(), DType::F64, dtype)?;
            for (g, w) in got.iter().zip(&wanted) {
                assert_eq!(g.dtype(), dtype, "{case}");
                near(case, &values(g), &values(w), tolerance);
            }
        }
    }
    Ok(())
}

#[test]
fn positions_of_rounded_and_adaptive_maxima_are_those_of_the_input() -> Result<()> {
    for device in [Reference::new() as DeviceRef, Cpu::new()] {
        for dtype in [DType::F32, DType::I16, DType::U8, DType::I64, DType::BF16] {
            let x = Tensor::from_vec(
                vec![3i64, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9],
                (1, 3, 5),
                &device,
            )?
            .cast(dtype)?;
            let (values, places) = x.max_pool_ceil(&[2, 2], &Window::new(2).stride(2))?;
            assert_eq!(
                (self::values(&values), self::values(&places)),
                (vec![9.0, 6.0, 5.0, 8.0, 9.0, 9.0], vec![5.0, 7.0, 4.0, 11.0, 12.0, 14.0])
            );
            // Columns 0..3 and 2..5, rows 0..2 and 1..3: of equal elements the first.
            let (values, places) = x.adaptive_max_pool(&[2, 2])?;
            assert_eq!(
                (self::values(&values), self::values(&places)),
                (vec![9.0, 6.0, 9.0, 9.0], vec![5.0, 7.0, 5.0, 12.0])
            );
            assert_eq!((values.dtype(), places.dtype()), (dtype, DType::I32));
        }
    }
    Ok(())
}

#[test]
fn padding_and_what_lies_beyond_never_spoil_a_neighbour() -> Result<()> {
    let device: DeviceRef = Cpu::new();
    let inf = f32::INFINITY;
    let x = Tensor::new([[1.0f32, inf, 2.0, 3.0, -inf]], &device)?;
    assert_eq!(x.adaptive_avg_pool(&[3])?.to_vec::<f32>()?, [inf, inf, -inf]);
    assert_eq!(x.slice(1, 2..)?.adaptive_avg_pool(&[2])?.to_vec::<f32>()?, [2.5, -inf]);
    let lowest = Tensor::new([[i8::MIN, i8::MIN, i8::MIN]], &device)?;
    let (values, places) = lowest.max_pool_ceil(&[2], &Window::new(1).stride(2))?;
    assert_eq!((values.to_vec::<i8>()?, places.to_vec::<i32>()?), (vec![i8::MIN; 2], vec![0, 2]));
    Ok(())
}

#[test]
fn mistakes_are_named() -> Result<()> {
    let d = Reference::new();
    let x = Tensor::ones((1, 4, 5, 5), DType::F32, &d)?;
    let w = Tensor::ones((2, 4, 3, 3), DType::F32, &d)?;
    let refused = |result: Result<Tensor>, kind: ErrorKind, text: &str| {
        let error = result.expect_err(text);
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(text), "{error}\nwanted: {text}");
    };
    refused(x.conv_same(&w, &Window::new(2).stride(2)), ErrorKind::Value, "cannot keep the size");
    refused(x.conv(&w, &Window::new(2).stride((1, -1))), ErrorKind::Value, "at least 1");
    refused(x.conv(&w, &Window::new(2).padding(-1)), ErrorKind::Value, "conv");
    refused(x.conv(&w, &Window::new(2).padding((1, 1, 1))), ErrorKind::Value, "3 (padding)");
    refused(x.conv(&w, &Window::new(2).dilation(usize::MAX)), ErrorKind::Shape, "does not fit");
    refused(
        x.max_pool_ceil(&[2, 2], &Window::new(2).padding(2)).map(|y| y.0),
        ErrorKind::Value,
        "more than half",
    );
    refused(
        x.max_pool_ceil(&[2, 2], &Window::new(2).stride(0)).map(|y| y.0),
        ErrorKind::Value,
        "at least 1",
    );
    refused(
        x.avg_pool_with(&[2, 2], &Window::new(2), Averaging::new().with_divisor(Some(0))),
        ErrorKind::Value,
        "cannot divide means by 0",
    );
    refused(x.adaptive_avg_pool(&[0, 2]), ErrorKind::Shape, "[0, 2]");
    refused(x.adaptive_max_pool(&[1; 5]).map(|y| y.0), ErrorKind::Shape, "cannot be pooled");
    refused(x.lp_pool(0.0, &[2, 2], &Window::new(2)), ErrorKind::Value, "not positive");
    refused(
        x.max_unpool(&Tensor::full((1, 4, 5, 5), 99, DType::I32, &d)?, &[5, 5]),
        ErrorKind::Index,
        "max_unpool",
    );
    refused(x.im2col(&[2], &Window::new(1)), ErrorKind::Shape, "(N, C, spatial..)");
    refused(
        x.reshape((1, 20, 5))?.col2im(&[4, 4], &[2, 2], &Window::new(2)),
        ErrorKind::Shape,
        "not the columns",
    );
    refused(x.interpolate(&[0, 3], Nearest), ErrorKind::Shape, "cannot be resized");
    refused(
        x.interpolate_by(&[0.1, 1.0], Nearest),
        ErrorKind::Shape,
        "cannot be resized to [0, 5]",
    );
    refused(x.interpolate_by(&[f64::NAN, -1.0], Nearest), ErrorKind::Shape, "cannot be resized");
    refused(x.cast(DType::I32)?.interpolate(&[3, 3], Area), ErrorKind::DType, "floats");
    refused(x.pixel_shuffle(3), ErrorKind::Shape, "4 channels");
    refused(x.pixel_unshuffle(2), ErrorKind::Shape, "not divisible by 2");
    refused(x.channel_shuffle(3), ErrorKind::Shape, "3 groups");
    let window = Window::new(2).stride(2);
    refused(x.conv_transpose(&w, &window, &[30, 30]), ErrorKind::Shape, "conv_transpose");
    Ok(())
}
