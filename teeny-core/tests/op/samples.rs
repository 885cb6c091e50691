//! Ops of every variant: valid ones with the answers that they must give, and invalid ones.

use std::sync::Arc;
use teeny_core::{
    Attention, AttentionInputs, DType, DeviceRef, Distribution, Kernel, Key, Layout, LinalgOp,
    Norm, Op, ReduceOp, Result, ScanOp, ScatterMode, Shape, Tensor, Window,
};

/// A valid op, and its name, operands and outputs by hand.
pub struct Sample<'a> {
    pub variant: &'static str,
    pub name: &'static str,
    pub operands: &'static [&'static str],
    pub outputs: &'static [(&'static [usize], DType)],
    pub op: Op<'a>,
}

/// `Op::$variant` and its name.
macro_rules! named {
    ($variant:ident { $($fields:tt)* }) => { (stringify!($variant), Op::$variant { $($fields)* }) };
}

/// Floats from -1 to 1.5 in an order that no axis repeats.
fn floats(shape: &[usize], device: &DeviceRef) -> Result<Tensor> {
    let numel: usize = shape.iter().product();
    let values: Vec<f32> = (0..numel).map(|i| (i * 7 % 11) as f32 * 0.25 - 1.0).collect();
    Tensor::from_vec(values, shape, device)
}

fn kernel<const I: usize, const O: usize>(
    body: impl for<'b> FnOnce([teeny_core::Expr<'b>; I]) -> [teeny_core::Expr<'b>; O],
) -> Result<Arc<Kernel>> {
    Kernel::build([DType::F32; I], [], |inputs, []| body(inputs)).map(Arc::new)
}

/// Calls `visit` with valid ops of every variant, on new operands.
pub fn valid(device: &DeviceRef, mut visit: impl FnMut(Sample<'_>)) -> Result<()> {
    use DType::{F32, I32};
    let mut sample = |(variant, op): (&'static str, Op<'_>), name, operands, outputs| {
        visit(Sample { variant, name, operands, outputs, op });
    };
    let add = kernel(|[a, b]| [a + b])?;
    let exp = kernel(|[a]| [a.exp()])?;
    let two = kernel(|[a, b]| [a * b + 1.0, a - b])?;
    let vector = floats(&[3], device)?; // (3)
    let x = floats(&[2, 3], device)?; // (2, 3)
    let y = floats(&[3, 2], device)?.t()?; // (2, 3), strides (1, 2)
    let cube = floats(&[2, 2, 3], device)?; // (2, 2, 3)
    let index = Tensor::new([[1i64, 0, 1]], device)?; // (1, 3)
    let targets = Tensor::new([2i64, 0], device)?; // (2)
    let losses = floats(&[2], device)?; // (2)
    let (shape, vector_shape) = (Shape::new(&[2, 3])?, Shape::new(&[3])?);
    let pair = [&x, &y];

    let op = named!(Elementwise { kernel: &add, inputs: &pair, params: &[], shape: &shape });
    sample(op, "add", &["input 0", "input 1"], &[(&[2, 3], F32)]);
    let op = named!(Elementwise { kernel: &two, inputs: &pair, params: &[], shape: &shape });
    sample(op, "kernel", &["input 0", "input 1"], &[(&[2, 3], F32), (&[2, 3], F32)]);
    let op = named!(Reduce { op: ReduceOp::ArgMax, x: &y, axes: &[1] });
    sample(op, "argmax", &["x"], &[(&[2], I32)]);
    let op = named!(Scan { op: ScanOp::Sum, x: &y, axis: 0 });
    sample(op, "cumsum", &["x"], &[(&[2, 3], F32)]);
    let (a, b) = (floats(&[2, 4, 3], device)?, floats(&[2, 3, 5], device)?);
    let op = named!(Matmul { lhs: &a, rhs: &b });
    sample(op, "matmul", &["lhs", "rhs"], &[(&[2, 4, 5], F32)]);
    let bias = floats(&[5], device)?.expand((2, 4, 5))?; // (2, 4, 5)
    let (lhs, rhs, others) = (&a, &b, &[&bias]);
    let op = named!(MatmulKernel { lhs, rhs, kernel: &two, others, params: &[] });
    sample(
        op,
        "matmul_kernel",
        &["lhs", "rhs", "input 1"],
        &[(&[2, 4, 5], F32), (&[2, 4, 5], F32)],
    );
    let op = named!(Gather { x: &y, axis: 0, index: &index });
    sample(op, "gather", &["x", "index"], &[(&[1, 3], F32)]);
    let src = floats(&[1, 3], device)?; // (1, 3)
    let op = named!(Scatter { mode: ScatterMode::Add, x: &y, axis: 0, index: &index, src: &src });
    sample(op, "scatter", &["x", "index", "src"], &[(&[2, 3], F32)]);
    let dst = Some(floats(&[6], device)?.storage().clone());
    let view = Layout::strided(vector_shape, &[-2], 4, 6)?;
    let op = named!(CopyInto { dst, view: &view, src: &vector });
    sample(op, "copy_into", &["src"], &[(&[6], F32)]);
    let op = named!(CumMax { x: &y, axis: 1, largest: true });
    sample(op, "cummax", &["x"], &[(&[2, 3], F32), (&[2, 3], I32)]);
    let op = named!(Sort { x: &y, axis: 1, descending: true });
    sample(op, "sort", &["x"], &[(&[2, 3], F32), (&[2, 3], I32)]);
    let op = named!(TopK { x: &y, axis: 1, k: 2, largest: true });
    sample(op, "topk", &["x"], &[(&[2, 2], F32), (&[2, 2], I32)]);
    let op = named!(Pad { x: &y, widths: &[(0, 1), (2, 0)], value: 7.0.into() });
    sample(op, "pad", &["x"], &[(&[3, 5], F32)]);
    let op = named!(Tri { x: &cube, diagonal: -1, upper: false });
    sample(op, "tril", &["x"], &[(&[2, 2, 3], F32)]);
    let op = named!(Tri { x: &y, diagonal: 1, upper: true });
    sample(op, "triu", &["x"], &[(&[2, 3], F32)]);
    let rows = Tensor::new([[-1i32, 1, 0]], device)?; // (1, 3)
    let op = named!(Positions { indices: &[&rows, &index], sizes: &[2, 3] });
    sample(op, "positions", &["index", "index"], &[(&[1, 3], DType::I64)]);
    let distribution = Distribution::Integer { low: -5, high: 5 };
    let key = Key { seed: 3, draw: 1 };
    let op = named!(Random { distribution, shape: &shape, dtype: I32, key });
    sample(op, "random", &[], &[(&[2, 3], I32)]);

    let mut storage = floats(&[2, 3], device)?.storage().clone();
    let op = named!(ElementwiseInPlace {
        kernel: &add,
        storage: &mut storage,
        input_index: 1,
        other: Some(&y),
        params: &[],
        shape: &shape,
    });
    sample(op, "add", &["other"], &[]);
    let op = named!(ElementwiseInPlace {
        kernel: &exp,
        storage: &mut storage,
        input_index: 0,
        other: None,
        params: &[],
        shape: &shape,
    });
    sample(op, "exp", &[], &[]);
    let op = named!(ElementwiseMany {
        kernel: &two,
        inputs: &[&x, &y, &vector, &vector],
        params: &[],
        shapes: &[shape, vector_shape],
    });
    sample(
        op,
        "elementwise_many",
        &["input", "input", "input", "input"],
        &[(&[2, 3], F32), (&[2, 3], F32), (&[3], F32), (&[3], F32)],
    );
    let op = named!(ReduceKernel {
        kernel: &add,
        inputs: &pair,
        params: &[],
        shape: &shape,
        op: ReduceOp::Sum,
        axes: &[0],
    });
    sample(op, "reduce_kernel", &["input 0", "input 1"], &[(&[3], F32)]);
    sample(named!(Contiguous { x: &y }), "contiguous", &["x"], &[(&[2, 3], F32)]);
    let op = named!(Cat { tensors: &[&x, &y, &x], axis: 0 });
    sample(op, "cat", &["tensor", "tensor", "tensor"], &[(&[6, 3], F32)]);
    sample(named!(Softmax { x: &y, axis: 1 }), "softmax", &["x"], &[(&[2, 3], F32)]);
    sample(named!(LogSoftmax { x: &y, axis: 0 }), "log_softmax", &["x"], &[(&[2, 3], F32)]);
    let op = named!(SoftmaxGrad { y: &x, g: &y, axis: 0 });
    sample(op, "softmax_grad", &["y", "g"], &[(&[2, 3], F32)]);
    let op = named!(LogSoftmaxGrad { y: &x, g: &y, axis: 1 });
    sample(op, "log_softmax_grad", &["y", "g"], &[(&[2, 3], F32)]);
    let op = named!(CrossEntropy { x: &y, targets: &targets, ignore_index: Some(0) });
    sample(op, "cross_entropy", &["x", "targets"], &[(&[2], F32)]);
    let op =
        named!(CrossEntropyGrad { x: &y, targets: &targets, ignore_index: Some(0), g: &losses });
    sample(op, "cross_entropy_grad", &["x", "targets", "g"], &[(&[2, 3], F32)]);
    for (weight, bias, operands) in [
        (None, None, &["x"][..]),
        (Some(&vector), None, &["x", "weight"]),
        (Some(&vector), Some(&vector), &["x", "weight", "bias"]),
    ] {
        let op = named!(Norm { norm: Norm::Layer, x: &y, weight, bias, eps: 1e-5 });
        sample(op, "norm", operands, &[(&[2, 3], F32)]);
    }
    for (weight, operands) in [(None, &["x", "g"][..]), (Some(&vector), &["x", "weight", "g"])] {
        let op = named!(NormGrad { norm: Norm::Rms, x: &y, weight, g: &x, eps: 1e-5 });
        sample(op, "norm_grad", operands, &[(&[2, 3], F32)]);
    }

    let image = floats(&[1, 2, 5, 5], device)?; // (N, C_in, h, w)
    let weight = floats(&[4, 1, 3, 3], device)?; // (C_out, C_in / groups, kh, kw)
    let g = floats(&[1, 4, 3, 3], device)?; // (N, C_out, h', w')
    let window = Window { groups: 2, ..Window::new(2).stride(2).padding(1) };
    let op = named!(Conv { x: &image, weight: &weight, window: &window });
    sample(op, "conv", &["x", "weight"], &[(&[1, 4, 3, 3], F32)]);
    let bias = floats(&[4, 1, 1], device)?.expand((1, 4, 3, 3))?; // (N, C_out, h', w')
    let (x, weight_ref, window_ref, others) = (&image, &weight, &window, &[&bias]);
    let op = named!(ConvKernel {
        x,
        weight: weight_ref,
        window: window_ref,
        kernel: &add,
        others,
        params: &[],
    });
    sample(op, "conv_kernel", &["x", "weight", "input 1"], &[(&[1, 4, 3, 3], F32)]);
    let (x_shape, weight_shape) = (*image.shape(), *weight.shape());
    let op = named!(ConvInputGrad { g: &g, weight: &weight, window: &window, x_shape: &x_shape });
    sample(op, "conv_input_grad", &["g", "weight"], &[(&[1, 2, 5, 5], F32)]);
    let (x, window_ref) = (&image, &window);
    let op = named!(ConvWeightGrad { g: &g, x, window: window_ref, weight_shape: &weight_shape });
    sample(op, "conv_weight_grad", &["g", "x"], &[(&[4, 1, 3, 3], F32)]);
    let window = Window::new(2).stride(2);
    let op = named!(MaxPool { x: &image, kernel_size: &[2, 3], window: &window });
    sample(op, "max_pool", &["x"], &[(&[1, 2, 2, 2], F32), (&[1, 2, 2, 2], I32)]);
    let g = floats(&[1, 2, 2, 2], device)?; // (N, C, h', w')
    let positions = Tensor::full((1, 2, 2, 2), 7, I32, device)?; // (N, C, h', w')
    let op = named!(MaxPoolGrad { g: &g, positions: &positions, x_shape: &x_shape, spatial: 2 });
    sample(op, "max_pool_grad", &["g", "positions"], &[(&[1, 2, 5, 5], F32)]);
    let op = named!(AvgPool { x: &image, kernel_size: &[2, 2], window: &window });
    sample(op, "avg_pool", &["x"], &[(&[1, 2, 2, 2], F32)]);

    let q = floats(&[2, 2, 3], device)?; // (heads, T, hs)
    let k = floats(&[2, 4, 3], device)?; // (heads, S, hs)
    let v = floats(&[2, 4, 2], device)?; // (heads, S, hv)
    let mask = floats(&[2, 2, 4], device)?; // (heads, T, S)
    let (out, lse) = (floats(&[2, 2, 2], device)?, floats(&[2, 2], device)?);
    for mask in [None, Some(&mask)] {
        let options = Attention::causal(2);
        let inputs = AttentionInputs { q: &q, k: &k, v: &v, mask, options };
        let operands: &[&str] =
            if mask.is_some() { &["q", "k", "v", "mask"] } else { &["q", "k", "v"] };
        let op = named!(Attention { inputs });
        sample(op, "attention", operands, &[(&[2, 2, 2], F32), (&[2, 2], F32)]);
        let operands: &[&str] = if mask.is_some() {
            &["q", "k", "v", "mask", "y", "lse", "g"]
        } else {
            &["q", "k", "v", "y", "lse", "g"]
        };
        let needs = [true, false, true];
        let op = named!(AttentionGrad { inputs, y: &out, lse: &lse, g: &out, needs });
        sample(op, "attention_grad", operands, &[(&[2, 2, 3], F32), (&[2, 4, 2], F32)]);
    }

    let a = Tensor::new([[4.0f32, 1.0], [1.0, 3.0]], device)?; // (2, 2)
    let op = named!(Linalg { op: LinalgOp::Solve, inputs: &[&a, &a] });
    sample(op, "solve", &["a", "b"], &[(&[2, 2], F32)]);
    let op = named!(Linalg { op: LinalgOp::Svd { full: false }, inputs: &[&a] });
    sample(op, "svd", &["a"], &[(&[2, 2], F32), (&[2], F32), (&[2, 2], F32)]);
    let op = named!(Reduce { op: ReduceOp::Sum, x: &cube, axes: &[0, 2] });
    sample(op, "sum", &["x"], &[(&[2], F32)]);
    Ok(())
}

/// Calls `visit` with the name of its variant and an invalid op, of every variant but
/// `Contiguous`, which is valid for every tensor.
pub fn invalid(device: &DeviceRef, mut visit: impl FnMut(&'static str, Op<'_>)) -> Result<()> {
    let mut visit = |(variant, op): (&'static str, Op<'_>)| visit(variant, op);
    let most = usize::MAX;
    let add = kernel(|[a, b]| [a + b])?;
    let two = kernel(|[a, b]| [a * b, a - b])?;
    let (scalar, vector) = (floats(&[], device)?, floats(&[3], device)?);
    let (x, y) = (floats(&[2, 3], device)?, floats(&[2, 3], device)?); // (2, 3)
    let none = floats(&[2, 0], device)?; // (2, 0)
    let ints = Tensor::new([[1i64, 0, 1]], device)?; // (1, 3)
    let bools = Tensor::new([[true, false, true], [true, true, true]], device)?; // (2, 3)
    let targets = Tensor::new([2i64, 0], device)?; // (2)
    let (shape, other_shape) = (Shape::new(&[2, 3])?, Shape::new(&[3, 2])?);
    let vector_shape = Shape::new(&[3])?;
    let huge = Shape::new(&[1 << 30, 1 << 20])?;

    for (inputs, shape) in [
        (&[&x][..], &shape),
        (&[&x, &y, &x], &shape),
        (&[&x, &vector], &shape),
        (&[&x, &bools], &shape),
        (&[&x, &y], &other_shape),
        (&[&x, &y], &huge),
    ] {
        visit(named!(Elementwise { kernel: &add, inputs, params: &[], shape }));
        let (op, axes) = (ReduceOp::Sum, &[0]);
        visit(named!(ReduceKernel { kernel: &add, inputs, params: &[], shape, op, axes }));
    }
    let (inputs, params) = (&[&x, &y][..], &[1.0.into()]);
    visit(named!(Elementwise { kernel: &add, inputs, params, shape: &shape }));
    let op = ReduceOp::Sum;
    for (kernel, axes) in [(&two, &[0][..]), (&add, &[]), (&add, &[2])] {
        visit(named!(ReduceKernel { kernel, inputs, params: &[], shape: &shape, op, axes }));
    }
    for (op, x, axes) in [
        (ReduceOp::Sum, &x, &[][..]),
        (ReduceOp::Sum, &x, &[2]),
        (ReduceOp::Sum, &x, &[most]),
        (ReduceOp::Sum, &x, &[1, 0]),
        (ReduceOp::Sum, &x, &[0, 0]),
        (ReduceOp::Sum, &scalar, &[0]),
        (ReduceOp::Sum, &bools, &[0]),
        (ReduceOp::Any, &x, &[0]),
        (ReduceOp::Max, &none, &[1]),
        (ReduceOp::ArgMax, &x, &[0, 1]),
    ] {
        visit(named!(Reduce { op, x, axes }));
    }
    for (x, axis) in [(&x, 2), (&x, most), (&scalar, 0), (&bools, 0)] {
        visit(named!(Scan { op: ScanOp::Prod, x, axis }));
    }
    for (lhs, rhs) in
        [(&x, &y), (&x, &vector), (&vector, &vector), (&scalar, &scalar), (&bools, &bools.t()?)]
    {
        visit(named!(Matmul { lhs, rhs }));
        let kernel = &kernel(|[a]| [a.exp()])?;
        visit(named!(MatmulKernel { lhs, rhs, kernel, others: &[], params: &[] }));
    }
    let shapes = [*x.shape(), *vector.shape()];
    for inputs in [
        &[&x, &x, &vector][..],
        &[&x, &vector, &x, &vector],
        &[&x, &ints, &vector, &vector],
        &[&x, &x],
    ] {
        visit(named!(ElementwiseMany { kernel: &add, inputs, params: &[], shapes: &shapes }));
    }
    let (inputs, shapes) = (&[&x, &x], &[*x.shape()]);
    visit(named!(ElementwiseMany { kernel: &add, inputs, params: &[1.0.into()], shapes }));
    let square = floats(&[3, 3], device)?; // (3, 3)
    let doubles = x.cast(DType::F64)?; // (2, 3)
    for (others, params) in [
        (&[][..], &[][..]),
        (&[&x, &y], &[]),
        (&[&vector], &[]),
        (&[&square], &[]),
        (&[&doubles], &[]),
        (&[&x], &[1.0.into()]),
        (&[&x; 20], &[]),
    ] {
        let (lhs, rhs, kernel) = (&x, &square, &add);
        visit(named!(MatmulKernel { lhs, rhs, kernel, others, params }));
    }
    let (lhs, rhs) = (&doubles, &square.cast(DType::F64)?);
    let others = &[&x];
    visit(named!(MatmulKernel { lhs, rhs, kernel: &add, others, params: &[] }));
    for (axis, index) in [(2, &ints), (most, &ints), (0, &x), (0, &bools), (0, &targets)] {
        visit(named!(Gather { x: &x, axis, index }));
        let mode = ScatterMode::Set;
        visit(named!(Scatter { mode, x: &x, axis, index, src: index }));
    }
    let (mode, src) = (ScatterMode::Set, floats(&[2, 3], device)?);
    visit(named!(Scatter { mode, x: &x, axis: 0, index: &ints, src: &src }));
    let (mode, src) = (ScatterMode::Add, bools.slice(0, ..1)?);
    visit(named!(Scatter { mode, x: &bools, axis: 0, index: &ints, src: &src }));

    let storage = || Ok(Some(floats(&[6], device)?.storage().clone()));
    let all = Layout::contiguous(vector_shape);
    for (dst, view, src) in [
        (None, all, &vector),
        (storage()?, Layout::contiguous(Shape::new(&[7])?), &vector),
        (storage()?, Layout::strided(vector_shape, &[4], 0, 100)?, &vector),
        (storage()?, Layout::strided(vector_shape, &[0], 0, 6)?, &vector),
        (storage()?, all, &x),
        (storage()?, Layout::contiguous(Shape::new(&[1, 3])?), &ints),
    ] {
        visit(named!(CopyInto { dst, view: &view, src }));
    }
    for (x, axis) in [(&x, 2), (&x, most), (&scalar, 0)] {
        visit(named!(Sort { x, axis, descending: false }));
        visit(named!(CumMax { x, axis, largest: false }));
        visit(named!(TopK { x, axis, k: 0, largest: false }));
    }
    visit(named!(TopK { x: &x, axis: 0, k: 3, largest: true }));
    for x in [&scalar, &vector] {
        visit(named!(Tri { x, diagonal: 0, upper: true }));
    }
    for widths in [&[(0, 0)][..], &[(0, 0); 3], &[(1, 0), (most, 0)], &[(most, most), (0, 0)]] {
        visit(named!(Pad { x: &x, widths, value: 0.0.into() }));
    }
    for (indices, sizes) in [
        (&[][..], &[][..]),
        (&[&ints], &[2, 3]),
        (&[&ints, &x], &[2, 3]),
        (&[&ints, &targets], &[2, 3]),
        (&[&ints, &ints], &[most, 3]),
        (&[&ints, &ints], &[1 << 40, 1 << 40]),
    ] {
        visit(named!(Positions { indices, sizes }));
    }
    let key = Key { seed: 0, draw: 0 };
    for (distribution, dtype) in [
        (Distribution::Uniform { low: 0.0, high: 1.0 }, DType::I32),
        (Distribution::Normal { mean: 0.0, std: 1.0 }, DType::Bool),
        (Distribution::Integer { low: 0, high: 5 }, DType::F32),
        (Distribution::Integer { low: 5, high: 5 }, DType::I32),
    ] {
        visit(named!(Random { distribution, shape: &shape, dtype, key }));
    }

    for (kernel, input_index, other, shape) in [
        (&add, 0, None, &shape),
        (&add, 2, Some(&x), &shape),
        (&add, most, Some(&x), &shape),
        (&add, 0, Some(&vector), &shape),
        (&add, 0, Some(&bools), &shape),
        (&add, 0, Some(&x), &huge),
        (&two, 0, Some(&x), &shape),
    ] {
        let storage = &mut floats(&[2, 3], device)?.storage().clone();
        let params = &[];
        visit(named!(ElementwiseInPlace { kernel, storage, input_index, other, params, shape }));
    }
    for (tensors, axis) in [
        (&[][..], 0),
        (&[&x], 2),
        (&[&x, &y], most),
        (&[&scalar], 0),
        (&[&x, &vector], 0),
        (&[&x, &none], 0),
        (&[&x, &bools], 0),
    ] {
        visit(named!(Cat { tensors, axis }));
    }
    for (x, axis) in [(&x, 2), (&x, most), (&scalar, 0), (&bools, 0)] {
        visit(named!(Softmax { x, axis }));
        visit(named!(LogSoftmax { x, axis }));
        visit(named!(SoftmaxGrad { y: x, g: x, axis }));
        visit(named!(LogSoftmaxGrad { y: x, g: x, axis }));
    }
    visit(named!(SoftmaxGrad { y: &x, g: &vector, axis: 0 }));
    visit(named!(LogSoftmaxGrad { y: &x, g: &bools, axis: 0 }));
    let (losses, ignore_index) = (floats(&[2], device)?, None);
    for (x, targets, g) in [
        (&vector, &targets, &losses),
        (&scalar, &scalar, &losses),
        (&bools, &targets, &losses),
        (&x, &ints, &losses),
        (&x, &losses, &losses),
    ] {
        visit(named!(CrossEntropy { x, targets, ignore_index }));
        visit(named!(CrossEntropyGrad { x, targets, ignore_index, g }));
    }
    visit(named!(CrossEntropyGrad { x: &x, targets: &targets, ignore_index, g: &x }));
    let (norm, eps) = (Norm::Layer, 1e-5);
    for (x, weight, bias) in [
        (&scalar, None, None),
        (&bools, None, None),
        (&x, Some(&x), None),
        (&x, Some(&losses), None),
        (&x, None, Some(&vector)),
        (&x, Some(&vector), Some(&losses)),
    ] {
        visit(named!(Norm { norm, x, weight, bias, eps }));
    }
    for (x, weight, g) in [(&scalar, None, &scalar), (&x, None, &vector), (&x, Some(&x), &x)] {
        visit(named!(NormGrad { norm, x, weight, g, eps }));
    }

    let image = floats(&[1, 2, 5, 5], device)?; // (N, C_in, h, w)
    let weight = floats(&[4, 2, 3, 3], device)?; // (C_out, C_in, kh, kw)
    let g = floats(&[1, 4, 3, 3], device)?; // (N, C_out, h', w')
    let plain = Window::new(2);
    let windows = [
        Window::new(0),
        Window::new(1),
        Window { stride: vec![0, 1], ..plain.clone() },
        Window { dilation: vec![1, 0], ..plain.clone() },
        Window { dilation: vec![most; 2], ..plain.clone() },
        Window { padding: vec![most; 2], ..plain.clone() },
        Window { padding: vec![], ..plain.clone() },
    ];
    for window in &windows {
        let (x_shape, weight_shape) = (image.shape(), weight.shape());
        visit(named!(Conv { x: &image, weight: &weight, window }));
        let (x, weight_ref, kernel, others) = (&image, &weight, &add, &[&g]);
        let params = &[];
        visit(named!(ConvKernel { x, weight: weight_ref, window, kernel, others, params }));
        visit(named!(ConvInputGrad { g: &g, weight: &weight, window, x_shape }));
        visit(named!(ConvWeightGrad { g: &g, x: &image, window, weight_shape }));
        visit(named!(MaxPool { x: &image, kernel_size: &[2, 2], window }));
        visit(named!(AvgPool { x: &image, kernel_size: &[2, 2], window }));
    }
    for others in [&[][..], &[&x], &[&g, &g], &[&g.cast(DType::F64)?]] {
        let (x, weight, window, kernel, params) = (&image, &weight, &plain, &add, &[]);
        visit(named!(ConvKernel { x, weight, window, kernel, others, params }));
    }
    for groups in [0, 3, most] {
        let window = &Window { groups, ..plain.clone() };
        visit(named!(Conv { x: &image, weight: &weight, window }));
    }
    for (x, weight) in [(&x, &x), (&scalar, &scalar), (&image, &vector), (&vector, &weight)] {
        let window = &plain;
        visit(named!(Conv { x, weight, window }));
        visit(named!(ConvInputGrad { g: x, weight, window, x_shape: x.shape() }));
        visit(named!(ConvWeightGrad { g: x, x: weight, window, weight_shape: weight.shape() }));
    }
    let window = &plain;
    for (x, kernel_size) in [
        (&image, &[][..]),
        (&image, &[6, 6]),
        (&image, &[0, 2]),
        (&image, &[most, most]),
        (&vector, &[2, 2]),
        (&bools, &[1, 1]),
        (&scalar, &[1]),
    ] {
        visit(named!(MaxPool { x, kernel_size, window }));
        visit(named!(AvgPool { x, kernel_size, window }));
    }
    let positions = Tensor::full((1, 4, 3, 3), 0, DType::I32, device)?; // (N, C, h', w')
    let x_shape = image.shape();
    for (g, positions, spatial) in [
        (&g, &positions, 0),
        (&g, &positions, 5),
        (&g, &positions, most),
        (&g, &positions, 2),
        (&g, &g, 2),
        (&scalar, &positions, 2),
        (&positions, &positions, 2),
    ] {
        visit(named!(MaxPoolGrad { g, positions, x_shape, spatial }));
    }

    let q = floats(&[2, 2, 3], device)?; // (heads, T, hs)
    let k = floats(&[2, 4, 3], device)?; // (heads, S, hs)
    let options = Attention::full();
    let (y, lse) = (floats(&[2, 2, 3], device)?, floats(&[2, 2], device)?);
    for inputs in [
        AttentionInputs { q: &scalar, k: &k, v: &k, mask: None, options },
        AttentionInputs { q: &vector, k: &vector, v: &vector, mask: None, options },
        AttentionInputs { q: &q, k: &x, v: &k, mask: None, options },
        AttentionInputs { q: &q, k: &q, v: &k, mask: None, options },
        AttentionInputs { q: &q, k: &k, v: &k, mask: Some(&x), options },
        AttentionInputs { q: &q, k: &k, v: &k, mask: None, options: options.window(2) },
        AttentionInputs {
            q: &q,
            k: &k,
            v: &k,
            mask: None,
            options: Attention::causal(0).window(0),
        },
    ] {
        visit(named!(Attention { inputs }));
        visit(named!(AttentionGrad { inputs, y: &y, lse: &lse, g: &y, needs: [true; 3] }));
    }
    let inputs = AttentionInputs { q: &q, k: &k, v: &k, mask: None, options };
    visit(named!(AttentionGrad { inputs, y: &y, lse: &y, g: &y, needs: [true; 3] }));
    visit(named!(AttentionGrad { inputs, y: &y, lse: &lse, g: &x, needs: [true; 3] }));

    let square = floats(&[3, 3], device)?; // (3, 3)
    for (op, inputs) in [
        (LinalgOp::Solve, &[][..]),
        (LinalgOp::Solve, &[&square]),
        (LinalgOp::Solve, &[&square, &vector]),
        (LinalgOp::Solve, &[&square, &x]),
        (LinalgOp::Det, &[&x]),
        (LinalgOp::Det, &[&scalar]),
        (LinalgOp::Det, &[&square, &square]),
        (LinalgOp::Qr { complete: false }, &[&bools]),
    ] {
        visit(named!(Linalg { op, inputs }));
    }
    Ok(())
}
