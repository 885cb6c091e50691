//! Windows that see only padding: their maximum is the lowest value of the dtype, at position -1;
//! their sum and mean are 0. No earlier content of a memory block is part of a result.

use teeny_core::{
    DType, DeviceRef, Op, Reference, Result, Scalar, Shape, Tensor, Window, definition,
};
use teeny_cpu::Cpu;

fn devices() -> [DeviceRef; 2] {
    [Cpu::new(), Reference::new()]
}

/// Fills the pool with blocks whose bytes are all 0x7f.
fn dirty(device: &DeviceRef) {
    for n in [1usize, 2, 4, 16, 64, 256, 1024] {
        drop(Tensor::full(n, 0x7f7f_7f7fi64, DType::I64, device).unwrap());
    }
}

#[test]
fn the_maximum_of_only_padding() -> Result<()> {
    for device in devices() {
        for dtype in DType::ALL.into_iter().filter(|&d| d != DType::Bool) {
            // Windows of two places, three apart: before and after both elements, on the second and
            // after it, ...
            let x = Tensor::new([5i64, 6], &device)?.cast(dtype)?.reshape((1, 1, 1, 2))?;
            let window = Window::new(2).padding([0, 1]).dilation([1, 3]);
            dirty(&device);
            let (y, at) = x.max_pool_indices(&[1, 2], &window)?;
            let nothing = definition::lowest(dtype).cast(dtype);
            assert_eq!(y.to_scalars()?, [nothing], "{dtype} on {device:?}");
            assert_eq!(at.to_vec::<i32>()?, [-1], "{dtype} on {device:?}");

            // In an `Op` that is constructed directly, padding may be wider than a window.
            let wide = Window::new(1).padding([3]);
            let line = x.reshape((1, 2))?;
            dirty(&device);
            let op = Op::MaxPool { x: &line, kernel_size: &[2], window: &wide };
            let [y, at] = op.tensors(&device)?; // (1, 7) each
            let [five, six] = [5, 6].map(|n| Scalar::Int(n).cast(dtype));
            assert_eq!(
                y.to_scalars()?,
                [nothing, nothing, five, six, six, nothing, nothing],
                "{dtype} on {device:?}"
            );
            assert_eq!(at.to_vec::<i32>()?, [-1, -1, 0, 1, 1, -1, -1]);

            // No element at all.
            for sizes in [[2, 0, 3], [2, 3, 0], [2, 0, 0]] {
                let empty = Tensor::zeros(sizes, dtype, &device)?;
                dirty(&device);
                let (y, at) = empty.max_pool_indices(&[2, 2], &Window::new(2).padding(1))?;
                assert!(
                    y.numel() > 0 && y.to_scalars()?.iter().all(|&v| v == nothing),
                    "{dtype} {sizes:?} on {device:?}: {y:?}"
                );
                assert!(
                    at.to_vec::<i32>()?.iter().all(|&p| p == -1),
                    "{dtype} {sizes:?} on {device:?}"
                );
            }
        }
    }
    Ok(())
}

#[test]
fn the_gradient_of_the_maximum_of_only_padding_goes_nowhere() -> Result<()> {
    for device in devices() {
        for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
            let g = Tensor::new([[1i64, 2, 4, 8, 16, 32, 64]], &device)?.cast(dtype)?;
            let at = Tensor::new([[-1i32, -1, 0, 1, 1, -1, -1]], &device)?;
            let gradient = |positions: &Tensor, sizes: &[usize]| {
                let x_shape = &Shape::new(sizes)?;
                Op::MaxPoolGrad { g: &g, positions, x_shape, spatial: 1 }.tensor(&device)
            };
            let d = gradient(&at, &[1, 2])?;
            assert_eq!(d.cast(DType::F64)?.to_vec::<f64>()?, [4.0, 24.0], "{dtype} on {device:?}");
            let padding = Tensor::full((1, 7), -1, DType::I32, &device)?;
            assert_eq!(gradient(&padding, &[1, 0])?.storage().len(), 0);
        }
    }
    Ok(())
}

#[test]
fn convolutions_and_means_over_an_empty_axis_are_zeros() -> Result<()> {
    for device in devices() {
        for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
            for (x, kernel) in [
                (vec![2, 3, 0], vec![2]),
                (vec![2, 3, 0, 4], vec![2, 2]),
                (vec![2, 3, 4, 0], vec![3, 3]),
                (vec![2, 3, 0, 0], vec![3, 3]),
            ] {
                let what = format!("{dtype} {x:?} {kernel:?} on {device:?}");
                let window = Window::new(kernel.len()).padding(2);
                let image = Tensor::zeros(&x[..], dtype, &device)?;
                let weight = Tensor::ones([&[4, 3], &kernel[..]].concat(), dtype, &device)?;
                dirty(&device);
                let y = image.conv(&weight, &window)?;
                assert!(
                    y.numel() > 0 && y.to_scalars()?.iter().all(|v| v.to_f64() == 0.0),
                    "{what}"
                );
                let g = y.ones_like()?;
                assert_eq!(
                    g.conv_transpose(&weight, &window, &x[2..])?.shape()[..],
                    x[..],
                    "{what}"
                );
                dirty(&device);
                let d = g.conv_weight_grad(&image, &window, weight.shape())?;
                assert!(d.to_scalars()?.iter().all(|v| v.to_f64() == 0.0), "{what}");
                dirty(&device);
                let mean = image.avg_pool(&kernel, &window)?;
                assert!(
                    mean.numel() > 0 && mean.to_scalars()?.iter().all(|v| v.to_f64() == 0.0),
                    "{what}"
                );
            }
            // No channels: sums of nothing.
            let (image, weight) = (
                Tensor::zeros((2, 0, 3, 3), dtype, &device)?,
                Tensor::zeros((4, 0, 2, 2), dtype, &device)?,
            );
            dirty(&device);
            let y = image.conv(&weight, &Window::new(2).padding(1))?;
            assert!(
                y.numel() == 2 * 4 * 16 && y.to_scalars()?.iter().all(|v| v.to_f64() == 0.0),
                "{dtype} on {device:?}"
            );
        }
    }
    Ok(())
}

#[test]
fn means_of_short_and_long_rows_are_those_of_the_definition() -> Result<()> {
    let cpu = Cpu::new();
    for [planes, height, width] in [[3, 5, 7], [4, 5, 7], [9, 8, 15], [5, 3, 70]] {
        for (size, stride, padding) in [(2, 2, 0), (3, 1, 1), (3, 2, 1), (1, 3, 0)] {
            let n = planes * height * width;
            let x = Tensor::arange(0.0f32, n as f32, 1.0, Reference::new())?;
            let x = x.mul(0.7)?.sin()?.reshape((planes, height, width))?;
            let window = Window::new(2).stride(stride).padding(padding);
            let want = x.avg_pool(&[size; 2], &window)?.to_vec::<f32>()?;
            let got = x.to(&cpu)?.avg_pool(&[size; 2], &window)?.to_vec::<f32>()?;
            assert_eq!(got.len(), want.len());
            let close = got.iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-6);
            assert!(close, "{planes} x {height} x {width}, {size} {stride} {padding}");
        }
    }
    Ok(())
}
