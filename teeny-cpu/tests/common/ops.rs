//! Ops as a caller constructs them, right or wrong, and running them.

use std::sync::Arc;
use teeny_core::{
    AttentionInputs, DType, DeviceRef, Kernel, Layout, Op, Result, RowFunction, Scalar, Shape,
    StorageRef, Tensor, Window,
};

pub fn shape(sizes: &[usize]) -> Shape {
    Shape::new(sizes).unwrap()
}

/// These sizes, limited to those that a shape can have: far more elements than there is memory.
pub fn too_large(sizes: &[usize]) -> Shape {
    let most = isize::MAX as usize / 8;
    let rest = |shape: &Shape| most / shape.iter().filter(|&&n| n != 0).product::<usize>();
    sizes.iter().enumerate().fold(shape(&vec![1; sizes.len()]), |shape, (axis, &n)| {
        shape.with_size(axis, n.min(rest(&shape)))
    })
}

/// The lengths and dtypes of the outputs of `op`, as [`Op::outputs`] infers them.
pub fn run(device: &DeviceRef, mut op: Op<'_>) -> Result<Vec<(usize, DType)>> {
    let specs = op.outputs();
    let sizes: Vec<_> = op.run(device)?.iter().map(|x| (x.len(), x.dtype())).collect();
    let inferred: Vec<_> = specs?.iter().map(|(shape, dtype)| (shape.numel(), *dtype)).collect();
    assert_eq!(sizes, inferred, "{op:?}");
    Ok(sizes)
}

pub fn elementwise<'a>(
    kernel: &'a Arc<Kernel>,
    inputs: &'a [&'a Tensor],
    params: &'a [Scalar],
    shape: &'a Shape,
) -> Op<'a> {
    Op::Elementwise { kernel, inputs, params, shape }
}

pub fn copy_into<'a>(dst: StorageRef, view: &'a Layout, src: &'a Tensor) -> Op<'a> {
    Op::CopyInto { dst: Some(dst), view, src }
}

/// A named row program on F32; it has `params` parameters.
pub fn program(function: RowFunction, inputs: usize, params: usize) -> &'static Arc<Kernel> {
    let targets = matches!(function, RowFunction::CrossEntropy | RowFunction::CrossEntropyGrad);
    let types = [DType::F32, if targets { DType::I64 } else { DType::F32 }, DType::F32];
    function.program(&types[..inputs], params).unwrap()
}

pub fn rows<'a>(
    program: &'a Arc<Kernel>,
    inputs: &'a [&'a Tensor],
    params: &'a [Scalar],
    shape: &'a Shape,
    axes: &'a [usize],
) -> Op<'a> {
    Op::Rows { program, inputs, params, shape, axes }
}

pub fn conv<'a>(x: &'a Tensor, weight: &'a Tensor, window: &'a Window) -> Op<'a> {
    Op::Conv { x, weight, window }
}

pub fn max_pool<'a>(x: &'a Tensor, kernel_size: &'a [usize], window: &'a Window) -> Op<'a> {
    Op::MaxPool { x, kernel_size, window }
}

pub fn avg_pool<'a>(x: &'a Tensor, kernel_size: &'a [usize], window: &'a Window) -> Op<'a> {
    Op::AvgPool { x, kernel_size, window }
}

pub fn attention_grad<'a>(
    inputs: AttentionInputs<'a>,
    y: &'a Tensor,
    lse: &'a Tensor,
    g: &'a Tensor,
) -> Op<'a> {
    Op::AttentionGrad { inputs, y, lse, g, needs: [true; 3] }
}

pub fn add() -> Arc<Kernel> {
    Arc::new(Kernel::build([DType::F32, DType::F32], [], |[a, b], []| [a + b]).unwrap())
}

pub fn scaled() -> Arc<Kernel> {
    Arc::new(Kernel::build([DType::F32], [DType::F32], |[a], [s]| [a * s]).unwrap())
}
