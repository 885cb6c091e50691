//! Kernels after products have no rule: their definition is recorded, in reverse and forward mode.
use crate::common::{close, values, vec};
use std::sync::Arc;
use teeny_autograd::{Autograd, grad, jvp};
use teeny_core::{DType, DeviceRef, Kernel, Op, Result, Tensor, Window};
use teeny_cpu::Cpu;

/// `sin(y + b)` and `y b`.
fn kernel() -> Arc<Kernel> {
    let made = Kernel::build([DType::F64; 2], [], |[y, b], []| [(y + b).sin(), y * b]);
    Arc::new(made.unwrap())
}

/// A sum of the outputs of the kernel after a product, or after a convolution, as one op or as two.
fn loss(x: &[Tensor], conv: bool, fused: bool) -> Result<Tensor> {
    let (kernel, window, params) = (&kernel(), &Window::new(1).padding(1), &[]);
    let (a, b) = (&x[0], &x[1]);
    let shape =
        if conv { Op::Conv { x: a, weight: b, window } } else { Op::Matmul { lhs: a, rhs: b } };
    let shape = shape.outputs()?[0].0;
    let bias = x[2].expand(shape)?;
    let others = &[&bias][..];
    let device = a.device();
    let outputs = match (conv, fused) {
        (false, true) => Op::MatmulKernel { lhs: a, rhs: b, kernel, others, params },
        (true, true) => Op::ConvKernel { x: a, weight: b, window, kernel, others, params },
        (conv, false) => {
            let y = match conv {
                true => Op::Conv { x: a, weight: b, window },
                false => Op::Matmul { lhs: a, rhs: b },
            }
            .tensor(device)?;
            let inputs = &[&y, &bias][..];
            return sum(
                &Op::Elementwise { kernel, inputs, params, shape: &shape }.tensor_list(device)?
            );
        }
    }
    .tensor_list(device)?;
    sum(&outputs)
}

fn sum(outputs: &[Tensor]) -> Result<Tensor> {
    outputs[0].sum_all()?.add(&outputs[1].square()?.sum_all()?)
}

#[test]
fn gradients_and_tangents_are_those_of_the_definition() {
    let device: DeviceRef = Cpu::new();
    let shapes: [[&[usize]; 3]; 2] = [[&[3, 4], &[4, 5], &[5]], [&[2, 3, 6], &[4, 3, 3], &[4, 1]]];
    for (conv, shapes) in [(false, shapes[0]), (true, shapes[1])] {
        let make = |shape: &[usize]| {
            values(shape.iter().product::<usize>(), &device).reshape(shape).unwrap()
        };
        let x: Vec<Tensor> = shapes.iter().map(|shape| make(shape)).collect();
        let all = |fused| grad(|x: &Vec<Tensor>| loss(x, conv, fused), &x).unwrap();
        for (got, want) in all(true).iter().zip(&all(false)) {
            close(&vec(got), &vec(want), 1e-12);
        }
        let along = |fused| jvp(|x: &Vec<Tensor>| loss(x, conv, fused), &x, &x).unwrap();
        let ((y, dy), (want, dwant)) = (along(true), along(false));
        close(&vec(&y), &vec(&want), 1e-12);
        close(&vec(&dy), &vec(&dwant), 1e-12);
        // Nothing to record: the op reaches the device whole.
        let recorder = Autograd::new(device.clone());
        let x: Vec<Tensor> = x.iter().map(|x| x.to(&recorder).unwrap()).collect();
        close(&vec(&loss(&x, conv, true).unwrap()), &vec(&want), 1e-12);
    }
}
