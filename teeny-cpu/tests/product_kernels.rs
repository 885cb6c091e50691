//! Kernels after products have the bits of the product and then the kernel: at every instruction
//! level, by both ways to multiply floats, for any number of threads, layout and type.

use crate::common::*;
use std::sync::Arc;
use teeny_core::{DType, DeviceRef, Kernel, Op, Scalar, Tensor, Window};
use teeny_cpu::Cpu;

const DTYPES: [DType; 6] =
    [DType::F32, DType::F32, DType::F64, DType::BF16, DType::F16, DType::I32];

/// A kernel of a product, a bias and a residual of `dtype`, or of some of them.
fn kernel(name: &str, dtype: DType) -> Arc<Kernel> {
    let pair = [dtype; 2];
    let made = match name {
        "bias, relu" => Kernel::build(pair, [], |[y, b], []| [(y + b).maximum(0)]),
        "bias" => Kernel::build(pair, [], |[y, b], []| [y + b]),
        "scale" => Kernel::build([dtype], [dtype], |[y], [p]| [y * p]),
        "bias, gelu" if dtype.is_float() => Kernel::build(pair, [], |[y, b], []| [(y + b).gelu()]),
        "bias, gelu" => Kernel::build(pair, [], |[y, b], []| [(y + b).abs()]),
        // The product is read again after the first output is written.
        "two" => Kernel::build([dtype; 3], [], |[y, b, r], []| [y + b, (y - r) * y]),
        "read output" => Kernel::build([dtype; 3], [], |[y, b, r], []| {
            let sum = y + b;
            [sum, sum.maximum(r) * sum]
        }),
        "deep" => Kernel::build([dtype; 3], [dtype], |[y, b, r], [p]| {
            let x = y + b;
            let gate = (x * p + r).lt(y).where_cond(x * r, x - r);
            [(gate * y + x * x - r * p).maximum(y) + b]
        }),
        "cast" => {
            let to = if dtype == DType::F32 { DType::F16 } else { DType::F32 };
            Kernel::build(pair, [], |[y, b], []| [(y + b).cast(to)])
        }
        "choice" => {
            Kernel::build([dtype, dtype, DType::Bool], [], |[y, b, c], []| [c.where_cond(y + b, b)])
        }
        "number" => Kernel::build([dtype], [dtype], |[_], [p]| [p * p]),
        _ => Kernel::build(pair, [], |[y, b], []| [b, y, y + b, y + b]),
    };
    Arc::new(made.unwrap())
}

const KERNELS: [&str; 12] = [
    "bias, relu",
    "bias",
    "scale",
    "bias, gelu",
    "two",
    "read output",
    "deep",
    "cast",
    "choice",
    "number",
    "pass",
    "bias, relu",
];

/// Numbers in -2 .. 2 of any type.
fn draw(rng: &mut Draw, shape: &[usize], dtype: DType, device: &DeviceRef) -> Tensor {
    let numel: usize = shape.iter().product();
    let values: Vec<f32> = (0..numel).map(|_| rng.below(4001) as f32 / 1000.0 - 2.0).collect();
    let x = Tensor::from_vec(values, shape, device).unwrap();
    match dtype {
        DType::Bool => x.ge(0).unwrap(),
        _ if dtype.is_float() => x.cast(dtype).unwrap(),
        _ => x.mul(100).unwrap().cast(dtype).unwrap(),
    }
}

/// A tensor of the sizes `shape` in a random layout.
fn operand(rng: &mut Draw, shape: &[usize], dtype: DType, device: &DeviceRef) -> Tensor {
    let axes = shape.len();
    let x = draw(rng, shape, dtype, device);
    match rng.below(6) {
        0 => x.transpose(-1, -2).unwrap().copy().unwrap().transpose(-1, -2).unwrap(),
        1 => {
            let axis = rng.below(axes) as isize;
            let wide = Tensor::cat(&[&x, &x], axis).unwrap();
            wide.slice(axis, shape[axis as usize]..).unwrap()
        }
        2 => x.flip([0]).unwrap().copy().unwrap().flip([0]).unwrap(),
        _ => x,
    }
}

/// As [`operand`], or one that is broadcast along some axes.
fn other(rng: &mut Draw, shape: &[usize], dtype: DType, device: &DeviceRef) -> Tensor {
    if rng.below(3) == 0 {
        return operand(rng, shape, dtype, device);
    }
    let sizes: Vec<usize> = shape.iter().map(|&n| if rng.below(2) == 0 { 1 } else { n }).collect();
    operand(rng, &sizes, dtype, device).expand(shape).unwrap()
}

/// The outputs of the op and of its definition.
fn check(what: &str, fused: Op<'_>, product: Op<'_>, device: &DeviceRef) {
    let (Op::MatmulKernel { kernel, others, params, .. }
    | Op::ConvKernel { kernel, others, params, .. }) = fused
    else {
        panic!("{what}")
    };
    let y = product.tensor(device).unwrap();
    let inputs: Vec<&Tensor> = std::iter::once(&y).chain(others.iter().copied()).collect();
    let want = Op::Elementwise { kernel, inputs: &inputs, params, shape: y.shape() };
    let want = want.tensor_list(device).unwrap();
    let got = fused.tensor_list(device).unwrap();
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (got, want)) in got.iter().zip(want.iter()).enumerate() {
        assert_eq!((got.shape(), got.dtype()), (want.shape(), want.dtype()), "{what}");
        if got.to_bytes().unwrap() != want.to_bytes().unwrap() {
            let (got, want) = (got.to_scalars().unwrap(), want.to_scalars().unwrap());
            let at = (0..got.len()).find(|&at| got[at] != want[at]);
            let pair = at.map(|at| (got[at], want[at]));
            panic!("{what}: output {i} differs at {at:?} of {}: {pair:?}", got.len());
        }
    }
}

fn params(kernel: &Kernel) -> Vec<Scalar> {
    kernel.params().iter().map(|&dtype| Scalar::Float(2.0).cast(dtype.compute())).collect()
}

fn matmul(rng: &mut Draw, device: &DeviceRef, sizes: [usize; 4], dtype: DType, name: &str) {
    let [batch, m, k, n] = sizes;
    let lead: Vec<usize> = match rng.below(3) {
        0 if batch == 1 => vec![],
        1 => vec![1, batch],
        _ => vec![batch],
    };
    let shape = |rows, columns| [lead.as_slice(), &[rows, columns]].concat();
    let lhs = operand(rng, &shape(m, k), dtype, device);
    let rhs = match rng.below(3) {
        0 => operand(rng, &[k, n], dtype, device).expand(shape(k, n)).unwrap(),
        _ => operand(rng, &shape(k, n), dtype, device),
    };
    let kernel = &kernel(name, dtype);
    let more: Vec<Tensor> =
        kernel.inputs()[1..].iter().map(|&t| other(rng, &shape(m, n), t, device)).collect();
    let (others, params) = (&more.iter().collect::<Vec<_>>()[..], &params(kernel)[..]);
    let strides: Vec<_> = others.iter().map(|x| x.strides().to_vec()).collect();
    let what = format!(
        "{name} of {dtype} after {lead:?} ({m}, {k}) @ ({k}, {n}), strides {strides:?}, {device:?}"
    );
    let (lhs, rhs) = (&lhs, &rhs);
    let fused = Op::MatmulKernel { lhs, rhs, kernel, others, params };
    check(&what, fused, Op::Matmul { lhs, rhs }, device);
}

#[test]
fn a_kernel_after_a_product_has_the_bits_of_both() {
    let mut rng = Draw(7);
    for device in devices_of_both_matmuls() {
        let device: DeviceRef = device;
        for i in 0..220 {
            let (dtype, name) = (DTYPES[i % 6], KERNELS[rng.below(12)]);
            let sizes = match rng.below(4) {
                0 => [1 + rng.below(5), 1 + rng.below(9), 1 + rng.below(40), 1 + rng.below(40)],
                1 => [1, 1 + rng.below(150), 1 + rng.below(300), 1 + rng.below(150)],
                2 => [1 + rng.below(20), 1 + rng.below(40), 1 + rng.below(70), 1 + rng.below(99)],
                _ => [1, rng.below(3), rng.below(3), rng.below(3)],
            };
            matmul(&mut rng, &device, sizes, dtype, name);
        }
        // Several tiles: wide ones and the last ones of a column, skinny ones, transposed ones.
        for (i, sizes) in [
            [1, 64, 784, 128],
            [1, 513, 200, 513],
            [1, 600, 130, 65],
            [1, 40, 1000, 300],
            [3, 200, 64, 257],
            [1, 1, 500, 1025],
            [1, 1025, 500, 1],
            [1, 530, 600, 530],
            // Tiles over which the kernel runs by bands, some with gaps between their rows.
            [1, 6200, 5, 300],
            [1, 3100, 9, 520],
        ]
        .into_iter()
        .enumerate()
        {
            for j in 0..6 {
                let name = KERNELS[(i + 5 * j) % 12];
                matmul(&mut rng, &device, sizes, DTYPES[(i + j) % 5], name);
            }
        }
    }
}

#[test]
fn the_bits_do_not_depend_on_the_threads() {
    let device: DeviceRef = Cpu::new();
    let mut rng = Draw(3);
    for (dtype, name) in [(DType::F32, "bias, gelu"), (DType::BF16, "deep"), (DType::F64, "two")] {
        let (lhs, rhs) = (
            draw(&mut rng, &[300, 200], dtype, &device),
            draw(&mut rng, &[200, 190], dtype, &device),
        );
        let kernel = &kernel(name, dtype);
        let more: Vec<Tensor> = kernel.inputs()[1..]
            .iter()
            .map(|&t| draw(&mut rng, &[190], t, &device).expand((300, 190)).unwrap())
            .collect();
        let (others, params) = (&more.iter().collect::<Vec<_>>()[..], &params(kernel)[..]);
        let run = || {
            let fused = Op::MatmulKernel { lhs: &lhs, rhs: &rhs, kernel, others, params };
            let all = fused.tensor_list(&device).unwrap();
            all.iter().map(|y| y.to_bytes().unwrap()).collect::<Vec<_>>()
        };
        let want = run();
        for threads in [1, 2, 5] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            assert_eq!(pool.install(run), want, "{name}, {threads} threads");
        }
    }
}

#[test]
fn one_output_of_the_type_of_the_product_takes_no_other_memory() {
    let device = Cpu::new();
    let at: DeviceRef = device.clone();
    let (x, w) = (
        Tensor::ones((60, 100), DType::F32, &at).unwrap(),
        Tensor::ones((100, 80), DType::F32, &at).unwrap(),
    );
    let bias = Tensor::ones(80, DType::F32, &at).unwrap().expand((60, 80)).unwrap();
    let kernel = &kernel("bias, gelu", DType::F32);
    let before = teeny_core::Device::stats(&*device).allocations;
    let (others, params) = (&[&bias][..], &[]);
    let y = Op::MatmulKernel { lhs: &x, rhs: &w, kernel, others, params }.tensor(&at).unwrap();
    assert_eq!(teeny_core::Device::stats(&*device).allocations - before, 1);
    assert_eq!(y.shape(), &[60, 80]);
}

#[test]
fn a_kernel_after_a_convolution_has_the_bits_of_both() {
    type Sizes = &'static [usize];
    // Images, input channels per group, output channels, groups, spatial sizes, filter, window:
    // planes, columns, Winograd, depthwise, few results, one pixel, taps that see only padding.
    let one = || Window::new(2);
    let cases: [(usize, [usize; 3], Sizes, Sizes, Window); 13] = [
        (3, [1, 32, 1], &[28, 28], &[3, 3], one().padding(1)),
        (2, [3, 8, 2], &[17, 19], &[3, 3], one().stride(2).padding(1)),
        (2, [2, 6, 1], &[2, 300], &[1, 5], one()),
        (1, [4, 5, 1], &[3000], &[3], Window::new(1)),
        (5, [13, 14, 1], &[14, 14], &[3, 3], one().padding(1)),
        (3, [16, 18, 2], &[15, 13], &[3, 3], one()),
        (4, [3, 64, 1], &[20, 22], &[5, 5], one().stride(2)),
        (2, [9, 40, 2], &[9, 31], &[3, 1], one().dilation(2)),
        (2, [1, 1, 17], &[23, 20], &[3, 3], one().padding(1)),
        (1, [64, 48, 1], &[7, 7], &[3, 3], one().stride(2)),
        (6, [5, 12, 1], &[4, 4], &[4, 4], one()),
        (2, [2, 3, 1], &[5, 6, 7], &[3, 2, 3], Window::new(3).padding(1)),
        (2, [2, 40, 1], &[1, 9], &[3, 3], one().padding(2)),
    ];
    let mut rng = Draw(11);
    for device in devices_of_both_matmuls() {
        let device: DeviceRef = device;
        for (i, (images, [each, out, groups], sizes, taps, window)) in cases.iter().enumerate() {
            for j in 0..4 {
                let (dtype, name) = (DTYPES[(i + j) % 5], KERNELS[(5 * i + 7 * j) % 12]);
                let window = &Window { groups: *groups, ..window.clone() };
                let x = [&[*images, each * groups][..], *sizes].concat();
                let w = [&[out * groups, *each][..], *taps].concat();
                let x = operand(&mut rng, &x, dtype, &device);
                // A weight that is NaN takes other ways.
                let mut weight = operand(&mut rng, &w, dtype, &device);
                if j == 3 {
                    weight = weight.div(weight.abs().unwrap()).unwrap();
                }
                let product = || Op::Conv { x: &x, weight: &weight, window };
                let shape = product().outputs().unwrap()[0].0;
                let kernel = &kernel(name, dtype);
                let more: Vec<Tensor> = kernel.inputs()[1..]
                    .iter()
                    .map(|&t| match rng.below(2) {
                        0 => other(&mut rng, &shape, t, &device),
                        _ => {
                            let bias = draw(&mut rng, &[out * groups], t, &device);
                            let axes = vec![1; sizes.len()];
                            let bias = bias.reshape([&[out * groups][..], &axes].concat()).unwrap();
                            bias.expand(shape).unwrap()
                        }
                    })
                    .collect();
                let (others, params) = (&more.iter().collect::<Vec<_>>()[..], &params(kernel)[..]);
                let what = format!("{name} of {dtype} after case {i}, {device:?}");
                let (x, weight) = (&x, &weight);
                let fused = Op::ConvKernel { x, weight, window, kernel, others, params };
                check(&what, fused, product(), &device);
            }
        }
    }
}
