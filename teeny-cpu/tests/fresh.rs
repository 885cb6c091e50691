//! Cases in separate processes: scratch that earlier work left behind is larger than a case needs,
//! and hides a write past its end. Each test starts this binary again for itself alone.
//! `TEENY_UNDER="valgrind -q --error-exitcode=9"` puts a command in front of each such process.

mod common;

use common::alone;
use std::sync::Arc;
use teeny_core::kernel::build::Builder;
use teeny_core::{DType, Device, Kernel, Op, ReduceOp, Shape, Tensor};
use teeny_cpu::Cpu;

fn f64s(x: &Tensor) -> Vec<f64> {
    x.to_scalars().unwrap().iter().map(|x| x.to_f64()).collect()
}

fn sum_of<'a>(
    kernel: &'a Arc<Kernel>,
    inputs: &'a [&'a Tensor],
    shape: &'a Shape,
    axes: &'a [usize],
) -> Op<'a> {
    Op::ReduceKernel { kernel, inputs, params: &[], shape, op: ReduceOp::Sum, axes }
}

/// Sizes about the length of a tile and of a block of a reduction.
const SIZES: [usize; 7] = [4_095, 4_096, 4_097, 5_000, 65_536, 131_072, 200_001];

#[test]
fn sum_over_an_expanded_element() {
    alone("sum_over_an_expanded_element", || {
        for device in common::devices() {
            for n in SIZES {
                let x = Tensor::ones(1, DType::F32, &device).unwrap().expand(n).unwrap();
                assert_eq!(x.sum_all().unwrap().item::<f32>().unwrap(), n as f32);
            }
        }
    });
}

#[test]
fn argmax_over_an_expanded_element() {
    alone("argmax_over_an_expanded_element", || {
        for n in SIZES {
            let x = Tensor::ones(1, DType::F32, Cpu::new()).unwrap().expand(n).unwrap();
            assert_eq!(x.argmax(0).unwrap().item::<i32>().unwrap(), 0);
        }
    });
}

#[test]
fn rows_of_expanded_elements() {
    alone("rows_of_expanded_elements", || {
        for dtype in [DType::F32, DType::F64, DType::BF16, DType::U8] {
            for n in SIZES {
                let x = Tensor::arange(0i64, 3, 1, Cpu::new()).unwrap().cast(dtype).unwrap();
                let x = x.unsqueeze(1).unwrap().expand((3, n)).unwrap();
                assert_eq!(f64s(&x.max(1).unwrap()), [0.0, 1.0, 2.0]);
                assert_eq!(f64s(&x.max(0).unwrap()), vec![2.0; n]);
                let sums = x.cast(DType::F64).unwrap().sum(1).unwrap();
                assert_eq!(f64s(&sums), [0.0, n as f64, 2.0 * n as f64]);
            }
        }
    });
}

#[test]
fn columns_of_expanded_elements() {
    alone("columns_of_expanded_elements", || {
        for n in SIZES {
            let x = Tensor::arange(0.0f32, 5.0, 1.0, Cpu::new()).unwrap();
            let x = x.reshape((5, 1)).unwrap().expand((5, n)).unwrap();
            assert_eq!(x.sum(0).unwrap().to_vec::<f32>().unwrap(), vec![10.0; n]);
            let x = x.unsqueeze(1).unwrap().expand((5, 3, n)).unwrap();
            assert_eq!(x.sum([0, 1]).unwrap().to_vec::<f32>().unwrap(), vec![30.0; n]);
            // The gradient of a mean, summed for a bias.
            let g =
                Tensor::full(1, 0.5f32, DType::F32, Cpu::new()).unwrap().expand((4, n)).unwrap();
            assert_eq!(g.sum(0).unwrap().to_vec::<f32>().unwrap(), vec![2.0; n]);
            assert_eq!(g.sum(1).unwrap().to_vec::<f32>().unwrap(), vec![0.5 * n as f32; 4]);
        }
    });
}

#[test]
fn sum_of_a_kernel_that_is_a_number() {
    alone("sum_of_a_kernel_that_is_a_number", || {
        let builder = Builder::new();
        let kernel = Arc::new(builder.finish(&[builder.constant(2.0, DType::F32)]).unwrap());
        let device = Cpu::new();
        for n in SIZES {
            for axis in [0, 1] {
                let shape = Shape::new(&[3, n]).unwrap();
                // An error: a kernel that is reduced has an input.
                assert!(device.execute(&mut sum_of(&kernel, &[], &shape, &[axis])).is_err());
            }
        }
    });
}

#[test]
fn sum_of_terms_that_are_spread() {
    alone("sum_of_terms_that_are_spread", || {
        let device = Cpu::new();
        for n in SIZES {
            let x = Tensor::arange(0.0f32, 3.0, 1.0, &device).unwrap().unsqueeze(1).unwrap();
            let y = Tensor::ones(1, DType::F32, &device).unwrap().expand((3, n)).unwrap();
            let x = x.expand((3, n)).unwrap();
            let sum = Tensor::einsum("ij,ij->i", &[&x, &y]).unwrap();
            assert_eq!(sum.to_vec::<f32>().unwrap(), [0.0, n as f32, 2.0 * n as f32]);
        }
    });
}

/// The input that the kernel reads is strided; the one that it ignores is packed.
#[test]
fn reductions_of_a_kernel_that_is_its_second_input() {
    alone("reductions_of_a_kernel_that_is_its_second_input", || {
        let second = Arc::new(Kernel::build([DType::F32; 2], [], |[_, b], []| [b]).unwrap());
        let device = Cpu::new();
        for n in [240, 5_000, 65_537] {
            let ignored = Tensor::ones((2, n), DType::F32, &device).unwrap();
            let places = Tensor::arange(0i32, 6 * n, 1, &device).unwrap();
            let x = places.rem(5).unwrap().cast(DType::F32).unwrap();
            let x = x.reshape((2, 3 * n)).unwrap().slice_step(1, .., 3).unwrap(); // (2, n)
            let shape = *x.shape();
            for axis in [0, 1] {
                let sums = sum_of(&second, &[&ignored, &x], &shape, &[axis]).tensor(x.device());
                let sums = sums.unwrap();
                let want: Vec<f32> = match axis {
                    0 => (0..n).map(|i| (3 * i % 5 + 3 * (i + n) % 5) as f32).collect(),
                    _ => (0..2)
                        .map(|row| (row * n..(row + 1) * n).map(|i| (3 * i % 5) as f32).sum())
                        .collect(),
                };
                assert_eq!(sums.to_vec::<f32>().unwrap(), want, "{n} axis {axis}");
            }
        }
    });
}
