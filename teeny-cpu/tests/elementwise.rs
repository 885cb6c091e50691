//! Every operation on every type against core's evaluator, at every level, over a grid of special
//! values.

use crate::common::*;
use std::sync::Arc;
use teeny_core::kernel::OpCode;
use teeny_core::{Builder, DType, DeviceRef, Kernel, Reference, Result, Scalar, Tensor, map};

/// NaN, infinities, zeros, subnormals, overflow, and ordinary numbers; as many as make whole
/// vectors and a tail.
fn values(dtype: DType) -> Vec<Scalar> {
    let floats = [
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -0.5,
        1.5,
        2.5,
        -2.5,
        3.0,
        -7.25,
        1e-45,
        -1e-40,
        1.2e-38,
        3.4e38,
        -3.4e38,
        88.8,
        -103.9,
        0.1,
        100.75,
        -0.7,
        1e10,
        -3e-6,
        7.0,
        -2.0,
        12345.678,
        0.999,
        1.001,
        6.0e4,
        5.5,
    ];
    let ints = [
        0i64,
        1,
        -1,
        2,
        -2,
        3,
        5,
        -5,
        7,
        8,
        -9,
        31,
        32,
        33,
        63,
        64,
        65,
        100,
        -100,
        127,
        -128,
        255,
        256,
        32767,
        -32768,
        65535,
        1 << 31,
        i64::MAX,
        i64::MIN,
        12,
        11,
        10,
        6,
    ];
    match dtype {
        DType::Bool => (0..33).map(|i| Scalar::Bool(i % 3 == 0)).collect(),
        t if t.is_float() => floats.iter().map(|&v| Scalar::Float(v).cast(t)).collect(),
        t => ints.iter().map(|&v| Scalar::Int(v).cast(t)).collect(),
    }
}

fn tensor(values: &[Scalar], dtype: DType, device: &Arc<teeny_cpu::Cpu>) -> Tensor {
    Tensor::from_scalars(values, values.len(), dtype, device).unwrap()
}

fn bound(dtype: DType) -> f64 {
    // The bounds of `vecmath`, and the error of core's erf of f64: 4 ulp near 1. Other types are
    // rounded from f32, or exact.
    match dtype {
        DType::F32 => 2.0,
        DType::F64 => 5.0,
        _ => 1.0,
    }
}

#[test]
fn every_unary_operation_on_every_type() {
    for device in devices() {
        for dtype in DType::ALL {
            let grid = values(dtype);
            let x = tensor(&grid, dtype, &device);
            for op in OpCode::UNARY.into_iter().filter(|op| op.accepts(dtype)) {
                let builder = Builder::new();
                let input = builder.input(dtype);
                let kernel = Arc::new(builder.finish(&[input.unary(op)]).unwrap());
                let got = kernel.run(&[&x], &[]).unwrap()[0].to_scalars().unwrap();
                let want: Vec<_> = grid.iter().map(|&v| kernel.eval(&[v], &[])[0]).collect();
                close(
                    &got,
                    &want,
                    kernel.output_dtype(0),
                    bound(dtype),
                    &format!("{op:?} {dtype} {device:?}"),
                );
            }
            for to in DType::ALL {
                let builder = Builder::new();
                let kernel = Arc::new(builder.finish(&[builder.input(dtype).cast(to)]).unwrap());
                let got = kernel.run(&[&x], &[]).unwrap()[0].to_scalars().unwrap();
                let want: Vec<_> = grid.iter().map(|&v| kernel.eval(&[v], &[])[0]).collect();
                close(&got, &want, to, 0.0, &format!("cast {dtype} to {to}"));
            }
        }
    }
}

#[test]
fn every_binary_operation_on_every_type() {
    for device in devices() {
        for dtype in DType::ALL {
            let grid = values(dtype);
            let n = grid.len();
            let column = tensor(&grid, dtype, &device).unsqueeze(1).unwrap();
            let row = tensor(&grid, dtype, &device).unsqueeze(0).unwrap();
            for op in OpCode::BINARY.into_iter().filter(|op| op.accepts(dtype)) {
                let kernel = Arc::new(
                    Kernel::build([dtype; 2], [], |[a, b], []| [a.binary(op, b)]).unwrap(),
                );
                let want: Vec<_> =
                    (0..n * n).map(|i| kernel.eval(&[grid[i / n], grid[i % n]], &[])[0]).collect();
                let what = format!("{op:?} {dtype} {device:?}");
                let got = kernel.run(&[&column, &row], &[]).unwrap()[0].to_scalars().unwrap();
                close(&got, &want, kernel.output_dtype(0), bound(dtype), &what);
                let packed = [
                    column.expand((n, n)).unwrap().copy().unwrap(),
                    row.expand((n, n)).unwrap().copy().unwrap(),
                ];
                let got =
                    kernel.run(&[&packed[0], &packed[1]], &[]).unwrap()[0].to_scalars().unwrap();
                close(&got, &want, kernel.output_dtype(0), bound(dtype), &what);
            }
        }
    }
}

#[test]
fn a_number_as_operand_on_either_side() {
    for device in devices() {
        for dtype in DType::ALL {
            let grid = values(dtype);
            let x = tensor(&grid, dtype, &device);
            for op in OpCode::BINARY.into_iter().filter(|op| op.accepts(dtype)) {
                for left in [false, true] {
                    let kernel = Arc::new(
                        Kernel::build([dtype], [dtype], |[a], [p]| {
                            [if left { p.binary(op, a) } else { a.binary(op, p) }]
                        })
                        .unwrap(),
                    );
                    let p = grid[12].cast(dtype.compute());
                    let want: Vec<_> = grid.iter().map(|&v| kernel.eval(&[v], &[p])[0]).collect();
                    let got = kernel.run(&[&x], &[p]).unwrap()[0].to_scalars().unwrap();
                    close(
                        &got,
                        &want,
                        kernel.output_dtype(0),
                        bound(dtype),
                        &format!("{op:?} {dtype} left {left}"),
                    );
                }
            }
        }
    }
}

#[test]
fn every_size_offset_and_type() {
    for device in devices() {
        for dtype in DType::ALL {
            let source: Vec<_> = (0..280).map(|i| Scalar::Int(i % 11 + 1).cast(dtype)).collect();
            let x = tensor(&source, dtype, &device);
            let kernel = Arc::new(
                Kernel::build([dtype; 2], [], |[a, b], []| {
                    [a.eq(b).where_cond(a, b), a.maximum(b)]
                })
                .unwrap(),
            );
            for n in 0..=257isize {
                let offset = n % 16;
                let a = x.slice(0, offset..offset + n).unwrap();
                let b = x.slice(0, 1..1 + n).unwrap();
                let out = kernel.run(&[&a, &b], &[]).unwrap();
                let want: Vec<_> = (0..n as usize)
                    .map(|i| kernel.eval(&[source[i + offset as usize], source[i + 1]], &[]))
                    .collect();
                for (o, out) in out.iter().enumerate() {
                    let want: Vec<_> = want.iter().map(|w| w[o]).collect();
                    close(&out.to_scalars().unwrap(), &want, dtype, 0.0, &format!("{dtype} n {n}"));
                }
            }
        }
    }
}

#[test]
fn a_long_program_with_several_outputs_reuses_its_slots() {
    for device in devices() {
        let kernel =
            Kernel::build([DType::F32, DType::F16, DType::I32], [DType::F32], |[a, b, c], [p]| {
                let u = a * p + b.cast(DType::F32);
                let v = (u.exp() + c.cast(DType::F32)).log() - a;
                let w = v.lt(u).where_cond(v * v, u - v);
                [w, (w + u).cast(DType::F16), c + 1, a]
            });
        let kernel = Arc::new(kernel.unwrap());
        let n = 5000;
        let a: Vec<f32> = (0..n).map(|i| i as f32 / 700.0).collect();
        let (a, b, c) = (
            Tensor::from_slice(&a, (n / 10, 10), &device).unwrap(),
            Tensor::from_slice(&a, (n / 10, 10), &device).unwrap().cast(DType::F16).unwrap(),
            Tensor::arange(0i32, 10, 1, &device).unwrap(),
        );
        let out = kernel.run(&[&a, &b, &c], &[Scalar::Float(0.5)]).unwrap();
        let (sa, sb, sc) =
            (a.to_scalars().unwrap(), b.to_scalars().unwrap(), c.to_scalars().unwrap());
        let want: Vec<_> = (0..n)
            .map(|i| kernel.eval(&[sa[i], sb[i], sc[i % 10]], &[Scalar::Float(0.5)]))
            .collect();
        for (o, out) in out.iter().enumerate() {
            for (i, got) in out.to_scalars().unwrap().into_iter().enumerate() {
                let (g, w) = (got.to_f64(), want[i][o].to_f64());
                assert!(
                    (g - w).abs() <= 2e-3 * w.abs().max(1.0),
                    "output {o} element {i}: {g} not {w}"
                );
            }
        }
    }
}

/// A gathered operand of 16 bits is stored in a slot as it is: a value of 32 bits that takes the
/// slot over would be written over elements that are still to be read.
#[test]
fn gathered_halves_are_read_before_their_slot_is_written() {
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        let kernel = Kernel::build([dtype; 2], [], |[a, b], []| {
            let u = -a.abs();
            [u, u + 1, u.maximum(-b.abs())]
        });
        let kernel = Arc::new(kernel.unwrap());
        let values: Vec<f32> = (0..6000).map(|i| ((i * 37) % 509) as f32 - 250.0).collect();
        // Every other column of one, rows of the other backwards: short rows that share a tile.
        let results = |device: &DeviceRef| {
            let x = Tensor::from_slice(&values, (1500, 4), device).unwrap().cast(dtype).unwrap();
            let a = x.slice_step(1, 0..4, 2).unwrap();
            let b = x.slice(1, 0..2).unwrap().flip([1]).unwrap();
            let results = kernel.run(&[&a, &b], &[]).unwrap();
            results.iter().map(|y| y.to_scalars().unwrap()).collect::<Vec<_>>()
        };
        let host: DeviceRef = Reference::new();
        let want = results(&host);
        for device in devices() {
            let device: DeviceRef = device;
            assert!(results(&device) == want, "{dtype}");
        }
    }
}

/// Functions of f32 and of f64 that follow one another are two groups of loops.
#[test]
fn a_kernel_of_both_float_types_runs_each_by_its_own_loops() {
    let kernel = Kernel::build([DType::F32, DType::F64], [], |[a, b], []| {
        let (a, b) = (a + 1.0, b * 2.0);
        [a.tanh(), b.rsqrt(), a.exp(), b.abs()]
    });
    let kernel = Arc::new(kernel.unwrap());
    for device in devices() {
        let device: DeviceRef = device;
        let a = Tensor::linspace(-1.0, 1.0, 700, DType::F32, &device).unwrap();
        let b = Tensor::linspace(1.0, 9.0, 700, DType::F64, &device).unwrap();
        let (x, y) = (a.to_scalars().unwrap(), b.to_scalars().unwrap());
        for (o, got) in kernel.run(&[&a, &b], &[]).unwrap().iter().enumerate() {
            let want: Vec<Scalar> =
                x.iter().zip(&y).map(|(&x, &y)| kernel.eval(&[x, y], &[])[o]).collect();
            close(&got.to_scalars().unwrap(), &want, got.dtype(), 3.0, "both types");
        }
    }
}

/// Small operands that are broadcast, transposed or slices, in cheap operations, alone and in a row.
#[test]
fn short_rows_of_every_layout_agree_with_the_oracle() {
    let mut state = 20261123u64;
    let mut below = |n: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % n
    };
    let shapes: [&[usize]; 8] = [
        &[8, 96, 7, 7],
        &[3, 40, 12, 5],
        &[2, 30, 24, 24],
        &[9, 64, 64],
        &[5, 20, 70],
        &[600, 5],
        &[2, 9, 16, 300],
        &[4, 130, 17],
    ];
    for round in 0..60 {
        let shape = shapes[round % shapes.len()];
        let dtype = [DType::F32, DType::F64, DType::BF16, DType::I16][below(4)];
        let seeds: Vec<(usize, usize)> = (0..3).map(|_| (below(6), below(1000))).collect();
        let results = |device: &DeviceRef| {
            let operands: Vec<Tensor> = seeds
                .iter()
                .map(|&(layout, seed)| {
                    let mut own = shape.to_vec();
                    let last = own.len() - 1;
                    match layout {
                        1 => own.swap(last - 1, last),
                        2 => own[last] += 3,
                        3 => own[..last].fill(1),
                        4 => (own[0], own[last]) = (1, 1),
                        5 => own[0] = 1,
                        _ => {}
                    }
                    let n: usize = own.iter().product();
                    let values: Vec<f32> =
                        (0..n).map(|i| ((i * 37 + seed) % 61) as f32 / 4.0 - 7.0).collect();
                    let x = Tensor::from_slice(&values, &own[..], device).unwrap();
                    let x = x.cast(dtype).unwrap();
                    match layout {
                        1 => x.transpose(-1, -2).unwrap(),
                        2 => x.slice(-1, 2..own[last] - 1).unwrap(),
                        _ => x,
                    }
                })
                .collect();
            let [a, b, c] = &operands[..] else { unreachable!() };
            let chain = map([a, b, c], |[a, b, c]| {
                let u = a * b - c;
                let v = u.lt(b).where_cond(c, u.maximum(a));
                u.minimum(v + u * u)
            });
            let all = [a.sub(b), b.maximum(c), a.lt(b), a.clamp(-2, 3), chain];
            all.map(|y| y.unwrap().to_scalars().unwrap())
        };
        let host: DeviceRef = Reference::new();
        let want = results(&host);
        for device in devices() {
            let device: DeviceRef = device;
            let got = results(&device);
            for (op, (got, want)) in got.iter().zip(&want).enumerate() {
                assert!(got == want, "operation {op} of {dtype} {shape:?} in layouts {seeds:?}");
            }
        }
    }
}

#[test]
fn streamed_outputs_are_complete() {
    let device = teeny_cpu::Cpu::new();
    let n = 9_000_001; // above the size from which outputs bypass the caches
    let x = Tensor::arange(0f32, n as f32, 1.0, &device).unwrap();
    let y =
        x.slice(0, 1..).unwrap().add(x.slice(0, ..-1).unwrap()).unwrap().to_vec::<f32>().unwrap();
    assert!(y.iter().enumerate().all(|(i, &v)| v == (2 * i + 1) as f32));
}

#[test]
fn streamed_rows_begin_anywhere() {
    let row = 301; // rows that are not aligned, with gaps, in results beyond the caches
    let rows = (9 << 20) / row;
    for device in devices() {
        let device: DeviceRef = device;
        let all = Tensor::arange(0f32, (rows * (row + 3)) as f32, 1.0, &device).unwrap();
        let all = all.reshape([rows, row + 3]).unwrap();
        let y = all.slice(1, 2..row + 2).unwrap().clamp(5.0, 1e6).unwrap().to_vec::<f32>().unwrap();
        for (i, &v) in y.iter().enumerate() {
            let x = i / row * (row + 3) + 2 + i % row;
            assert_eq!(v, (x as f32).clamp(5.0, 1e6), "element {i} of {device:?}");
        }
    }
}

#[test]
fn functions_that_are_known_as_a_whole_give_the_bits_of_their_parts() {
    let types = [DType::F32, DType::F64];
    for (device, dtype) in devices().into_iter().flat_map(|d| types.map(|t| (d.clone(), t))) {
        let special = Tensor::from_slice(
            &[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, 1e-40, 3e38, -90.0, 90.0],
            9,
            &device,
        )
        .unwrap();
        let x = Tensor::cat(
            &[&special, &Tensor::randn(3000, DType::F32, &device).unwrap().mul(3.0).unwrap()],
            0,
        )
        .unwrap()
        .cast(dtype)
        .unwrap();
        let half = |x: &Tensor| x.mul(0.5).unwrap();
        let sigmoid = |x: &Tensor| x.neg().unwrap().exp().unwrap().add(1.0).unwrap();
        let cube = |x: &Tensor| x.mul(x).unwrap().mul(x).unwrap();
        let root = std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2;
        let inner = |x: &Tensor| x.add(cube(x).mul(0.044715).unwrap()).unwrap().mul(root).unwrap();
        let erf = |x: &Tensor| x.mul(std::f64::consts::FRAC_1_SQRT_2).unwrap().erf().unwrap();
        let pairs = [
            ("gelu", x.gelu().unwrap(), half(&x).mul(erf(&x).add(1.0).unwrap()).unwrap()),
            (
                "gelu_tanh",
                x.gelu_tanh().unwrap(),
                half(&x).mul(inner(&x).tanh().unwrap().add(1.0).unwrap()).unwrap(),
            ),
            ("sigmoid", x.sigmoid().unwrap(), sigmoid(&x).recip().unwrap()),
            ("silu", x.silu().unwrap(), x.div(sigmoid(&x)).unwrap()),
            ("silu'", teeny_core::map([&x], |[x]| x.silu_derivative()).unwrap(), {
                let s = sigmoid(&x).recip().unwrap();
                let inner = s.neg().unwrap().add(1.0).unwrap().mul(&x).unwrap().add(1.0);
                s.mul(inner.unwrap()).unwrap()
            }),
            ("gelu_tanh'", teeny_core::map([&x], |[x]| x.gelu_tanh_derivative()).unwrap(), {
                let t = inner(&x).tanh().unwrap();
                let flat = t.mul(&t).unwrap().neg().unwrap().add(1.0).unwrap();
                let square = x.mul(&x).unwrap();
                let slope = square.mul(3.0 * 0.044715 * root).unwrap().add(root).unwrap();
                let share = half(&t.add(1.0).unwrap());
                share.add(half(&x).mul(flat).unwrap().mul(slope).unwrap()).unwrap()
            }),
            (
                "inside",
                teeny_core::map([&x], |[x]| ((x + 0.5).gelu_tanh() * 1.5).sigmoid()).unwrap(),
                {
                    let y = x.add(0.5).unwrap();
                    let y = half(&y)
                        .mul(inner(&y).tanh().unwrap().add(1.0).unwrap())
                        .unwrap()
                        .mul(1.5)
                        .unwrap();
                    sigmoid(&y).recip().unwrap()
                },
            ),
            (
                "a choice",
                teeny_core::map([&x], |[x]| x.le(0.5).where_cond(x * 2.0, x.silu())).unwrap(),
                {
                    x.le(0.5)
                        .unwrap()
                        .where_cond(x.mul(2.0).unwrap(), x.div(sigmoid(&x)).unwrap())
                        .unwrap()
                },
            ),
        ];
        for (what, whole, parts) in pairs {
            let bits = |x: &Tensor| {
                x.cast(DType::F64)
                    .unwrap()
                    .to_vec::<f64>()
                    .unwrap()
                    .iter()
                    .map(|v| if v.is_nan() { 0 } else { v.to_bits() })
                    .collect::<Vec<_>>()
            };
            assert_eq!(bits(&whole), bits(&parts), "{what} of {dtype} on {device:?}");
        }
    }
}

/// Rows and columns that are broadcast, of lengths around those at which rows are read where they
/// are, as values of every float type, beside the same of `Reference`.
#[test]
fn broadcast_rows_and_columns_of_any_length_agree_with_the_oracle() {
    let reference = Reference::new();
    for device in devices() {
        for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
            for (rows, columns) in
                [(5, 23), (7, 24), (3, 127), (2, 130), (5, 512), (3, 515), (70, 9), (2, 4100)]
            {
                let make = |shape: (usize, usize), offset: f64, on: &DeviceRef| {
                    let n = shape.0 * shape.1;
                    let values: Vec<f64> =
                        (0..n).map(|i| ((i * 37 % 101) as f64 - 50.0) / 16.0 + offset).collect();
                    Tensor::from_slice(&values, shape, on).unwrap().cast(dtype).unwrap()
                };
                let run = |on: &DeviceRef| {
                    let x = make((rows, columns), 0.1, on);
                    let (row, column) = (make((1, columns), 0.3, on), make((rows, 1), 4.0, on));
                    let all = [
                        x.add(&row)?.mul(&column)?,
                        row.mul(&column)?,
                        column.expand((rows, columns))?.sqrt()?,
                        row.expand((rows, columns))?.sin()?,
                        make((rows, columns + 3), 0.2, on).slice(1, 2..columns + 2)?.sin()?,
                        map([&x, &row, &column], |[x, r, c]| (x * c - r).maximum(c * 0.5))?,
                        map([&x, &column], |[x, c]| x.gt(c).where_cond(x, c * 0.5))?,
                    ];
                    all.iter().map(Tensor::to_scalars).collect::<Result<Vec<_>>>()
                };
                let on: DeviceRef = device.clone();
                let oracle: DeviceRef = reference.clone();
                for (got, want) in run(&on).unwrap().iter().zip(&run(&oracle).unwrap()) {
                    close(
                        got,
                        want,
                        dtype,
                        4.0,
                        &format!("{dtype} ({rows}, {columns}) {device:?}"),
                    );
                }
            }
        }
    }
}

/// The result of transposed operands has their layout, and the values of packed ones.
#[test]
fn results_of_transposed_operands_are_transposed() {
    for device in devices() {
        let x = Tensor::randn((3, 40, 17), DType::F32, &device).unwrap();
        for order in [[0, 2, 1], [2, 1, 0], [1, 2, 0]] {
            let view = x.permute(order).unwrap();
            for (got, want) in [
                (view.exp().unwrap(), view.copy().unwrap().exp().unwrap()),
                (view.add(&view).unwrap(), view.copy().unwrap().add(view.copy().unwrap()).unwrap()),
            ] {
                assert_eq!(got.layout().strides(), view.layout().strides());
                assert_eq!(got.to_vec::<f32>().unwrap(), want.to_vec::<f32>().unwrap());
            }
        }
    }
}

/// Powers with frequent exponents are within the bound and have the special values of `pow`.
#[test]
fn powers_with_frequent_exponents_have_the_values_of_pow() {
    let values: Vec<f64> = [0.0, 1.0, 0.3, 2.5, 1e-20, 1e20, 1e-39, 3e38, f64::INFINITY]
        .into_iter()
        .flat_map(|x| [x, -x])
        .chain([f64::NAN])
        .collect();
    for device in devices() {
        for dtype in [DType::F32, DType::F64] {
            let x =
                Tensor::from_slice(&values, values.len(), &device).unwrap().cast(dtype).unwrap();
            for exponent in [1.0, 2.0, 3.0, 0.5, -0.5, -1.0, -2.0, 0.0, 2.5, -3.0] {
                let got = x.pow(exponent).unwrap().to_scalars().unwrap();
                let stored = x.to_scalars().unwrap();
                let power = |x: &Scalar| Scalar::Float(x.to_f64().powf(exponent)).cast(dtype);
                let want: Vec<Scalar> = stored.iter().map(power).collect();
                close(&got, &want, dtype, 2.0, &format!("{dtype} to {exponent} {device:?}"));
                let signs = |x: &[Scalar]| {
                    x.iter()
                        .map(|x| x.to_f64())
                        .filter(|x| !x.is_nan())
                        .map(f64::is_sign_negative)
                        .collect::<Vec<_>>()
                };
                assert_eq!(signs(&got), signs(&want), "{dtype} to {exponent}");
            }
        }
    }
}

/// A program of operations that take no longer than moving their operands, drawn at random: of two
/// inputs, an input that is one number, and two parameters.
fn cheap_program(draw: &mut Draw) -> Arc<Kernel> {
    let builder = Builder::new();
    let mut values: Vec<_> = (0..3).map(|_| builder.input(DType::F32)).collect();
    values.extend((0..2).map(|_| builder.param(DType::F32)));
    let leaves = values.len();
    for _ in 0..1 + draw.below(20) {
        // The last values are read more often than others, so that they are read at once.
        let mut operand = || match draw.below(3) {
            0 => values[draw.below(values.len())],
            1 => values[values.len() - 1 - draw.below(3)],
            _ => values[values.len() - 1],
        };
        let (a, b, c) = (operand(), operand(), operand());
        values.push(match draw.below(14) {
            0 => a + b,
            1 => a - b,
            2 => b - a,
            3 => a * b,
            4 => a / b,
            5 => a.maximum(b),
            6 => a.minimum(b),
            7 => -a,
            8 => a.abs(),
            9 => a.abs().sqrt(),
            10 => a.floor() * 0.25,
            11 => a.lt(b).where_cond(c, a),
            12 => a.eq(c).where_cond(b + 1.0, 2.0),
            _ => a.square() - 0.5,
        });
    }
    let count = 1 + draw.below(3);
    let outputs: Vec<_> = (0..count).map(|i| values[(values.len() - 1 - i).max(leaves)]).collect();
    Arc::new(builder.finish(&outputs).unwrap())
}

#[test]
fn kernels_of_contiguous_operands_have_the_bits_of_strided_ones() {
    let bits = |outputs: Vec<Tensor>| -> Vec<Vec<u32>> {
        let bits = |y: Tensor| {
            let y = y.to_vec::<f32>().unwrap().into_iter();
            y.map(|y| if y.is_nan() { 1 } else { y.to_bits() }).collect()
        };
        outputs.into_iter().map(bits).collect()
    };
    let reference = Reference::new();
    let mut draw = Draw(7);
    for case in 0..120 {
        let kernel = cheap_program(&mut draw);
        let sizes = [1, 3, 16, 31, 100, 127, 128, 129, 255, 256, 700, 4096];
        let n = if case % 10 == 0 { 150_000 } else { draw.one_of(&sizes) };
        let numbers: Vec<f32> = (0..2 * n).map(|_| draw.below(4001) as f32 / 500.0 - 4.0).collect();
        let number = [draw.below(9) as f32 - 4.0];
        for round in 0..2 {
            let params = [Scalar::from(draw.below(9) as f64 / 4.0 - 1.0), Scalar::from(round)];
            let run = |device: &DeviceRef, is_strided: bool| {
                let two = Tensor::from_slice(&numbers, (n, 2), device).unwrap();
                let inputs = [0, 1].map(|i| {
                    let column = two.slice(1, i..i + 1).unwrap().squeeze(1).unwrap();
                    if is_strided { column } else { column.copy().unwrap() }
                });
                let one = Tensor::from_slice(&number, 1, device).unwrap().expand([n]).unwrap();
                bits(kernel.run(&[&inputs[0], &inputs[1], &one], &params).unwrap())
            };
            let want = run(&(reference.clone() as DeviceRef), false);
            for device in devices() {
                let device: DeviceRef = device;
                for is_strided in [false, true] {
                    let same = run(&device, is_strided) == want;
                    assert!(same, "strided {is_strided} {n} {params:?} {device:?}\n{kernel:?}");
                }
            }
        }
    }
}

/// An element has one power, whether its exponent is a number of the kernel, the same in the whole
/// operand, or beside other exponents.
#[test]
fn a_power_does_not_depend_on_the_exponents_beside_it() {
    let exponents = [-3.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0];
    let n = 1003;
    for device in devices() {
        for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
            let bits = |x: Tensor| -> Vec<u64> {
                let values = x.cast(DType::F64).unwrap().to_vec::<f64>().unwrap();
                values.iter().map(|v| if v.is_nan() { 1 } else { v.to_bits() }).collect()
            };
            let x = Tensor::randn((n,), DType::F64, &device).unwrap().mul(3.0).unwrap();
            let special = Tensor::new([0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY], &device);
            let x = Tensor::cat(&[&x, &special.unwrap()], 0).unwrap().cast(dtype).unwrap();
            let rows = Tensor::stack(&[&x; 12], 1).unwrap(); // (n + 4, 12)
            let columns = Tensor::new(exponents, &device).unwrap().cast(dtype).unwrap(); // (12)
            let mixed = rows.pow(&columns).unwrap(); // (n + 4, 12)
            for (i, exponent) in exponents.into_iter().enumerate() {
                let what = format!("{dtype} to the power of {exponent} on {device:?}");
                let by_number = bits(x.pow(exponent).unwrap());
                let full = Tensor::full((n + 4,), exponent, dtype, &device).unwrap();
                assert!(bits(x.pow(&full).unwrap()) == by_number, "{what}: one exponent");
                assert!(
                    bits(mixed.at(1, i as isize).unwrap()) == by_number,
                    "{what}: mixed exponents"
                );
            }
        }
    }
}
