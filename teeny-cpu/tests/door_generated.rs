//! The door of the device: generated [`Op`]s, right and wrong, are refused or executed as by the
//! `Reference` device. In a separate test binary, and so in a separate process; `door` has the ops
//! that are wrong by construction.

use crate::common::ops::*;
use std::sync::Arc;
use teeny_core::{
    Attention, AttentionInputs, DType, Distribution, Kernel, Key, Op, ReduceOp, Reference,
    RowFunction, Scalar, ScanOp, ScatterMode, Shape, SortOrder, Tensor, Window,
};
use teeny_cpu::Cpu;

/// Random numbers for the generated cases: the upper bits of a linear congruential generator.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n.max(1)
    }
    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
    fn sizes(&mut self) -> Vec<usize> {
        let ndim = self.pick(&[0, 1, 1, 2, 2, 2, 3, 4]);
        (0..ndim).map(|_| self.pick(&[0, 1, 2, 2, 3, 3, 3, 4, 7])).collect()
    }
    fn shape(&mut self) -> Shape {
        match self.below(12) {
            0 => too_large(&[1 << 62, 4, 3]),
            1 => too_large(&[usize::MAX, 2]),
            _ => shape(&self.sizes()),
        }
    }
    fn huge(&mut self) -> usize {
        self.pick(&[0, 1, 1, 1, 1, 1, 2, 2, 3, 5, 1 << 62, usize::MAX])
    }
    fn window(&mut self) -> Window {
        let ndim = self.pick(&[0, 1, 1, 2, 2, 2, 3]);
        let mut each = |least: usize| {
            (0..ndim).map(|_| if self.below(4) == 0 { self.huge() } else { least }).collect()
        };
        let (stride, padding, dilation) = (each(1), each(0), each(1));
        Window {
            stride,
            padding,
            dilation,
            groups: if self.below(8) == 0 { self.huge() } else { 1 },
        }
    }
}

/// One operand on both devices: a view of any layout.
fn operand(
    dice: &mut Dice,
    dtype: Option<DType>,
    devices: (&Arc<Cpu>, &Arc<Reference>),
) -> [Tensor; 2] {
    let dtype =
        dtype.unwrap_or(if dice.below(3) > 0 { DType::F32 } else { dice.pick(&DType::ALL) });
    let (sizes, seed, way) = (dice.sizes(), dice.below(50), dice.below(4));
    let numel = sizes.iter().product::<usize>();
    let values: Vec<i64> =
        (0..numel as i64).map(|i| (i + seed as i64) % 3 - i64::from(seed % 7 == 0)).collect();
    let make = |device: teeny_core::DeviceRef| {
        let x = Tensor::from_vec(values.clone(), &sizes[..], &device).unwrap().cast(dtype).unwrap();
        match way {
            0 if x.ndim() > 1 => x.transpose(0, -1).unwrap(),
            1 if x.ndim() > 0 => x.flip(0).unwrap(),
            2 if x.ndim() > 0 => x.slice_step(0, .., 2).unwrap(),
            _ => x,
        }
    };
    [make(devices.0.clone()), make(devices.1.clone())]
}

#[test]
fn generated_ops_are_refused_or_executed_as_by_the_reference() {
    let (cpu, reference) = (Cpu::new(), Reference::new());
    let mut dice = Dice(17);
    let kernels = [
        add(),
        scaled(),
        Arc::new(Kernel::build([DType::F32; 3], [], |[a, b, c], []| [a * b + c, a - c]).unwrap()),
    ];
    let (mut done, mut refused) = (0, 0);
    for case in 0..6000 {
        let int = dice.pick(&[None, Some(DType::I64), Some(DType::I32), Some(DType::U8)]);
        let same = dice.below(2) == 0;
        let a = operand(&mut dice, None, (&cpu, &reference));
        let other = |dice: &mut Dice, dtype| {
            if same { a.clone() } else { operand(dice, dtype, (&cpu, &reference)) }
        };
        let (b, c) = (other(&mut dice, None), other(&mut dice, None));
        let index = operand(&mut dice, int, (&cpu, &reference));
        let (variant, axis, window) = (dice.below(26), dice.below(4), dice.window());
        let shape = if dice.below(2) == 0 { *a[0].shape() } else { dice.shape() };
        let axes: Vec<usize> = (0..dice.below(3))
            .map(|i| if dice.below(4) == 0 { dice.below(5) } else { i })
            .collect();
        let size: Vec<usize> =
            (0..dice.below(4)).map(|_| if dice.below(9) == 0 { dice.huge() } else { 2 }).collect();
        let reduction = dice.pick(&ReduceOp::ALL);
        let mode = dice.pick(&[ScatterMode::Set, ScatterMode::Add, ScatterMode::Max]);
        let kernel = &kernels[dice.below(3)];
        let params = vec![Scalar::Float(2.0); dice.below(3)];
        let count = dice.below(4);
        let causal = dice.below(2) == 0;
        let spatial = dice.below(4);
        let outcome = |i: usize| {
            let (a, b, c, index) = (&a[i], &b[i], &c[i], &index[i]);
            let inputs = &[a, b, c][..count];
            let attention = AttentionInputs {
                q: a,
                k: b,
                v: c,
                mask: None,
                options: if causal { Attention::causal(1) } else { Attention::full() },
            };
            let (two, three, at, at_with) = ([a, b], [a, b, c], [a, index], [a, index, b]);
            let ignored = [Scalar::Int(-1)];
            let op = match variant {
                0 => elementwise(kernel, inputs, &params, &shape),
                1 => Op::Reduce { op: reduction, x: a, axes: &axes },
                2 => Op::ReduceKernel {
                    kernel,
                    inputs,
                    params: &params,
                    shape: &shape,
                    op: reduction,
                    axes: &axes,
                },
                3 => Op::Scan { op: ScanOp::Sum, x: a, axis },
                4 => Op::Matmul { lhs: a, rhs: b },
                5 => Op::Gather { x: a, axis, index },
                6 => Op::Scatter { mode, x: a, axis, index, src: b },
                7 => copy_into(a.storage().clone(), b.layout(), c),
                8 => Op::Sort { x: a, axis, order: SortOrder::Descending },
                9 => Op::Random {
                    distribution: Distribution::Uniform { low: 0.0, high: 1.0 },
                    shape: &shape,
                    dtype: a.dtype(),
                    key: Key { seed: 1, draw: 1 },
                },
                10 => Op::Cat { tensors: inputs, axis },
                11 => rows(program(RowFunction::Softmax, 1, 0), &two[..1], &[], &shape, &axes),
                12 => rows(program(RowFunction::LogSoftmaxGrad, 2, 0), &two, &[], &shape, &axes),
                13 => rows(program(RowFunction::CrossEntropy, 2, 1), &at, &ignored, &shape, &axes),
                14 => {
                    let grad = program(RowFunction::CrossEntropyGrad, 3, 1);
                    rows(grad, &at_with, &ignored, &shape, &axes)
                }
                15 => rows(program(RowFunction::LayerNorm, 3, 1), &three, &params, &shape, &axes),
                16 => rows(program(RowFunction::RmsNormGrad, 2, 1), &two, &params, &shape, &axes),
                17 => conv(a, b, &window),
                18 => Op::ConvInputGrad { g: a, weight: b, window: &window, x_shape: &shape },
                19 => Op::ConvWeightGrad { g: a, x: b, window: &window, weight_shape: &shape },
                20 => max_pool(a, &size, &window),
                21 => Op::MaxPoolGrad { g: a, positions: index, x_shape: &shape, spatial },
                22 => avg_pool(a, &size, &window),
                23 => Op::Attention { inputs: attention },
                24 => attention_grad(attention, a, b, c),
                _ => Op::Contiguous { x: a },
            };
            run(a.device(), op)
        };
        let (got, want) = (outcome(0), outcome(1));
        let case = || {
            format!(
                "case {case}, op {variant}: {a:?} {b:?} {c:?} {index:?} {shape} {window:?} {size:?} {axes:?}"
            )
        };
        match (got, want) {
            (Ok(got), Ok(want)) => {
                assert_eq!(got, want, "{}", case());
                done += 1;
            }
            (Err(_), Err(_)) => refused += 1,
            (got, want) => panic!("{got:?} and {want:?} in {}", case()),
        }
    }
    assert!(done > 600 && refused > 2000, "{done} executed, {refused} refused");
}
