//! A valid request of every variant of [`Op`](teeny_core::Op), small enough to be changed in every
//! way.

use super::{Request, drawn};
use crate::cases::{Domain, Input, factor};
use std::sync::Arc;
use teeny_core::kernel::Extent;
use teeny_core::op::recorded::Recorded;
use teeny_core::quant::{Part, packed_parts};
use teeny_core::{Attention, Extremum, SortOrder};
use teeny_core::{
    Builder, DType, Distribution, Expr, Kernel, Layout, LinalgOp, QuantType, ReduceOp, RowFunction,
    Scalar, ScanOp, ScatterMode, Shape, Window,
};

pub(super) fn shape(sizes: &[usize]) -> Shape {
    Shape::new(sizes).expect("the suite's shapes are legal")
}

/// A kernel on `dtype`, or on F32 where its functions are not defined for `dtype`.
pub(super) fn kernel<const I: usize, const O: usize>(
    dtype: DType,
    body: impl for<'b> Fn([Expr<'b>; I]) -> [Expr<'b>; O],
) -> Arc<Kernel> {
    let of = |dtype| Kernel::build([dtype; I], [], |inputs, []| body(inputs));
    Arc::new(of(dtype).or_else(|_| of(DType::F32)).expect("the suite's kernels are legal"))
}

/// Requests on operands of `dtype`, in the order of the variants. Those that are not defined for
/// `dtype` are invalid.
pub(super) fn all(dtype: DType) -> Vec<Request> {
    let mut all = Vec::new();
    elementwise(dtype, &mut all);
    moves(dtype, &mut all);
    fused(dtype, &mut all);
    windows(dtype, &mut all);
    attention(dtype, &mut all);
    quantized(dtype, &mut all);
    let square = || drawn(&[2, 2], dtype).with_domain(Domain::Positive);
    for (op, count) in [(LinalgOp::Solve, 2), (LinalgOp::Svd { full: false }, 1)] {
        let inputs = (0..count).map(|_| square()).collect();
        all.push(Request::new("Linalg", Recorded::Linalg { op }, inputs));
    }
    all
}

fn elementwise(dtype: DType, all: &mut Vec<Request>) {
    let (add, exp) = (kernel(dtype, |[a, b]| [a + b]), kernel(dtype, |[a]| [a.exp()]));
    let two = kernel(dtype, |[a, b]| [a * b + 1.0, a - b]);
    let x = || drawn(&[2, 3], dtype);
    let at = |kernel: &Arc<Kernel>| {
        let (kernel, shape) = (kernel.clone(), shape(&[2, 3]));
        Recorded::Elementwise { kernel, shape }
    };
    let scaled = Kernel::build([DType::F32], [DType::F32], |[a], [p]| [a * p]).map(Arc::new);
    all.extend([
        Request::new("Elementwise", at(&add), vec![x(), x()]),
        Request::new("Elementwise", at(&two), vec![x(), x()]),
        Request {
            params: vec![2.0.into()],
            ..Request::new(
                "Elementwise",
                at(&scaled.expect("the suite's kernels are legal")),
                vec![x()],
            )
        },
        Request::new("ElementwiseInPlace", at(&add), vec![x(), x()]).in_place(1),
        Request::new("ElementwiseInPlace", at(&exp), vec![x()]).in_place(0),
    ]);
    let shapes = [shape(&[2, 3]), shape(&[3])].into();
    let inputs = vec![x(), x(), drawn(&[3], dtype), drawn(&[3], dtype)];
    let many = Recorded::ElementwiseMany { kernel: two.clone(), shapes };
    all.push(Request::new("ElementwiseMany", many, inputs));
    let (op, axes) = (ReduceOp::Sum, [0].into());
    let reduced = Recorded::ReduceKernel { kernel: add, shape: shape(&[2, 3]), op, axes };
    all.push(Request::new("ReduceKernel", reduced, vec![x(), x()]));
    for (op, axes) in [(ReduceOp::ArgMax, &[1][..]), (ReduceOp::Sum, &[0, 2])] {
        let reduce = Recorded::Reduce { op, axes: axes.into() };
        all.push(Request::new("Reduce", reduce, vec![drawn(&[2, 2, 3], dtype)]));
    }
    let scan = Recorded::Scan { op: ScanOp::Sum, axis: 0 };
    all.push(Request::new("Scan", scan, vec![x()]));
    let product = || vec![drawn(&[2, 4, 3], dtype), drawn(&[2, 3, 5], dtype)];
    all.push(Request::new("Matmul", Recorded::Matmul {}, product()));
    let inputs = [product(), vec![drawn(&[2, 4, 5], dtype)]].concat();
    all.push(Request::new("MatmulKernel", Recorded::MatmulKernel { kernel: two }, inputs));
}

/// Further requests, of which the values and the layouts of operands are changed and nothing else.
pub(super) fn further(dtype: DType) -> Vec<Request> {
    let mut all = Vec::new();
    let (few, many) = (|| drawn(&[2, 3], dtype), || drawn(&[11, 100], dtype));
    // The value of a parameter: a number that a type with fewer digits does not hold.
    let number = |i| factor(dtype, i);
    let at = |kernel: &Arc<Kernel>, sizes: &[usize]| {
        let (kernel, shape) = (kernel.clone(), shape(sizes));
        Recorded::Elementwise { kernel, shape }
    };
    // Over one operand, more elements than a block of threads has.
    let (neg, exp) = (kernel(dtype, |[a]| [a.neg()]), kernel(dtype, |[a]| [a.exp()]));
    for kernel in [&neg, &exp] {
        let request = Request::new("ElementwiseInPlace", at(kernel, &[11, 100]), vec![many()]);
        all.push(request.in_place(0));
    }
    let (add, mul) = (kernel(dtype, |[a, b]| [a + b]), kernel(dtype, |[a, b]| [a * b]));
    for kernel in [&add, &mul, &kernel(dtype, |[a, b]| [a / b])] {
        for own in 0..2 {
            let inputs = vec![many(), many()];
            let request = Request::new("ElementwiseInPlace", at(kernel, &[11, 100]), inputs);
            all.push(request.in_place(own));
        }
    }
    let shapes = [shape(&[2, 3]), shape(&[11, 100])].into();
    let two = kernel(dtype, |[a, b]| [a * b, a - b]);
    let mixed = Recorded::ElementwiseMany { kernel: two, shapes };
    all.push(Request::new("ElementwiseMany", mixed, vec![few(), few(), many(), many()]));
    for op in [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max] {
        let reduce = Recorded::Reduce { op, axes: [0].into() };
        all.push(Request::new("Reduce", reduce, vec![many()]));
    }
    let scan = Recorded::Scan { op: ScanOp::Prod, axis: 1 };
    all.push(Request::new("Scan", scan, vec![few()]));
    for upper in [false, true] {
        all.push(Request::new("Tri", Recorded::Tri { diagonal: 3, upper }, vec![many()]));
    }
    // Three operands, results and numbers.
    let three =
        Kernel::build([dtype; 3], [dtype; 2], |[a, b, c], [p, q]| [a * p + b, b * q + c, a - c]);
    if let Ok(three) = three.map(Arc::new) {
        let params = vec![number(0), number(1)];
        let inputs = vec![few(), few(), few()];
        all.push(Request {
            params: params.clone(),
            ..Request::new("Elementwise", at(&three, &[2, 3]), inputs.clone())
        });
    }
    let sum = Kernel::build([dtype; 3], [dtype; 2], |[a, b, c], [p, q]| [a * p + b * q + c]);
    let within = Kernel::build([dtype; 3], [], |[a, b, c], []| [a.le(b).and(b.le(c))]);
    let whole = Kernel::build([dtype; 3], [], |[a, b, c], []| {
        [a.lt(b).where_cond((a * 300.0).floor() + (b * 300.0).trunc(), c)]
    });
    let ceil = Kernel::build([dtype; 2], [], |[a, b], []| {
        [(a * 300.0).ceil() - b, (b * 300.0).round() + a]
    });
    if let Ok(ceil) = ceil.map(Arc::new) {
        all.push(Request::new("Elementwise", at(&ceil, &[2, 3]), vec![few(), few()]));
    }
    let either = Kernel::build([dtype; 3], [], |[a, b, c], []| [a.lt(b).xor(b.le(c))]);
    let signs = Kernel::build([dtype; 3], [], |[a, b, c], []| [a.sign() - b.abs() * 0.7 + c]);
    let reductions = [
        (sum, ReduceOp::Sum, 2),
        (within, ReduceOp::Any, 0),
        (whole, ReduceOp::Max, 0),
        (either, ReduceOp::ArgMax, 0),
        (signs, ReduceOp::Max, 0),
    ];
    for (kernel, op, params) in reductions {
        let Ok(kernel) = kernel.map(Arc::new) else { continue };
        let axes = [1].into();
        let reduced = Recorded::ReduceKernel { kernel, shape: shape(&[4, 9]), op, axes };
        let inputs = (0..3).map(|_| drawn(&[4, 9], dtype)).collect();
        let params = (0..params).map(number).collect();
        all.push(Request { params, ..Request::new("ReduceKernel", reduced, inputs) });
    }
    for program in [three_rows(dtype), float_rows(dtype)] {
        let Ok(program) = program.map(Arc::new) else { continue };
        let params = (0..program.params().len() as u64).map(number).collect();
        let rows = Recorded::Rows { program, shape: shape(&[7, 3]), axes: [1].into() };
        let inputs = [[7, 3], [7, 3], [7, 1]].map(|sizes| drawn(&sizes, dtype)).to_vec();
        all.push(Request { params, ..Request::new("Rows", rows, inputs) });
    }
    if !dtype.is_float() {
        return all;
    }
    let mut named_rows = |function, sizes: [usize; 2], inputs: Vec<Input>, eps: bool| {
        let params = if eps { vec![Scalar::Float(1e-5).cast(DType::F32)] } else { vec![] };
        let program = named(function, dtype, &inputs, params.len());
        let rows = Recorded::Rows { program, shape: shape(&sizes), axes: [1].into() };
        all.push(Request { params, ..Request::new("Rows", rows, inputs) });
    };
    for count in 2..=3 {
        let inputs = || (0..count).map(|_| few()).collect();
        named_rows(RowFunction::LayerNormGrad, [2, 3], inputs(), true);
        named_rows(RowFunction::RmsNorm, [2, 3], inputs(), true);
    }
    let targets = drawn(&[1030, 1], DType::I64).with_domain(Domain::Below(2));
    let inputs = vec![drawn(&[1030, 2], dtype), targets];
    named_rows(RowFunction::CrossEntropy, [1030, 2], inputs, false);
    // (N, C, w), more than a thousand results.
    let window = || Box::new(Window::new(1).padding(1));
    let pool = Recorded::AvgPool { kernel_size: [3].into(), window: window() };
    all.push(Request::new("AvgPool", pool, vec![drawn(&[2, 3, 200], dtype)]));
    let (x_shape, weight_shape) = (shape(&[2, 3, 200]), shape(&[20, 20, 3]));
    let input_grad = Recorded::ConvInputGrad { window: window(), x_shape };
    let inputs = vec![drawn(&[2, 2, 200], dtype), drawn(&[2, 3, 3], dtype)];
    all.push(Request::new("ConvInputGrad", input_grad, inputs));
    let weight_grad = Recorded::ConvWeightGrad { window: window(), weight_shape };
    let inputs = vec![drawn(&[1, 20, 5], dtype), drawn(&[1, 20, 5], dtype)];
    all.push(Request::new("ConvWeightGrad", weight_grad, inputs));
    all
}

/// A row program of three inputs, one of which has an element a row, and three results.
fn three_rows(dtype: DType) -> teeny_core::Result<Kernel> {
    let builder = Builder::new();
    let (x, y, r) =
        (builder.input(dtype), builder.input(dtype), builder.input_of(dtype, Extent::Row));
    let p = builder.param(dtype);
    let any = x.lt(y).any();
    builder.finish(&[x * p + r, (y - x).max(), (y * 10 + x).cast(DType::I32), any])
}

/// A row program of floats of the same inputs, whose third result has digits.
fn float_rows(dtype: DType) -> teeny_core::Result<Kernel> {
    let builder = Builder::new();
    let (x, y, r) =
        (builder.input(dtype), builder.input(dtype), builder.input_of(dtype, Extent::Row));
    builder.finish(&[(x * 300.0).trunc(), y.abs(), x - r])
}

fn moves(dtype: DType, all: &mut Vec<Request>) {
    let x = || drawn(&[2, 3], dtype);
    let index = || drawn(&[1, 3], DType::I64).with_domain(Domain::Below(2));
    for axis in 0..2 {
        all.push(Request::new("Gather", Recorded::Gather { axis }, vec![x(), index()]));
        let src = drawn(&[1, 3], dtype);
        let mode = if axis == 0 { ScatterMode::Add } else { ScatterMode::Set };
        let inputs = vec![x(), index(), src];
        all.push(Request::new("Scatter", Recorded::Scatter { mode, axis }, inputs));
    }
    let line = || vec![drawn(&[5], dtype), drawn(&[4], DType::I32).with_domain(Domain::Below(5))];
    all.push(Request::new("Gather", Recorded::Gather { axis: 0 }, line()));
    let view = Layout::strided(shape(&[3]), &[-2], 4, 6).expect("the suite's views are legal");
    let inputs = vec![drawn(&[6], dtype), drawn(&[3], dtype)];
    all.push(Request::new("CopyInto", Recorded::CopyInto { view }, inputs));
    let one = |variant, attributes| Request::new(variant, attributes, vec![x()]);
    all.extend([
        one("CumMax", Recorded::CumMax { axis: 1, extremum: Extremum::Largest }),
        one("Sort", Recorded::Sort { axis: 1, order: SortOrder::Descending }),
        one("TopK", Recorded::TopK { axis: 1, k: 2, extremum: Extremum::Largest }),
        one("Pad", Recorded::Pad { widths: [(0, 1), (2, 0)].into(), value: 7.0.into() }),
        one("Tri", Recorded::Tri { diagonal: -1, upper: false }),
        one("Tri", Recorded::Tri { diagonal: 1, upper: true }),
        one("Contiguous", Recorded::Contiguous {}),
    ]);
    let rows = drawn(&[1, 3], DType::I32).with_domain(Domain::Small);
    let positions = Recorded::Positions { sizes: [2, 3].into() };
    all.push(Request::new("Positions", positions, vec![rows, index()]));
    let distribution = match dtype.is_float() {
        true => Distribution::Uniform { low: 0.0, high: 1.0 },
        false => Distribution::Integer { low: 0, high: 5 },
    };
    let random = Recorded::Random { distribution, shape: shape(&[2, 3]), dtype };
    all.push(Request::new("Random", random, vec![]));
    let three = vec![x(), x(), x()];
    all.push(Request::new("Cat", Recorded::Cat { axis: 0 }, three));
}

fn fused(dtype: DType, all: &mut Vec<Request>) {
    let x = || drawn(&[2, 3], dtype);
    let targets = || drawn(&[2, 1], DType::I64).with_domain(Domain::Below(3));
    let eps = || vec![Scalar::Float(1e-5).cast(DType::F32)];
    let mut rows = |function, axis, inputs: Vec<Input>, params: Vec<Scalar>| {
        let axes = [axis].into();
        let program = named(function, dtype, &inputs, params.len());
        let attributes = Recorded::Rows { program, shape: shape(&[2, 3]), axes };
        all.push(Request { params, ..Request::new("Rows", attributes, inputs) });
    };
    rows(RowFunction::Softmax, 1, vec![x()], vec![]);
    rows(RowFunction::LogSoftmax, 0, vec![x()], vec![]);
    rows(RowFunction::SoftmaxGrad, 0, vec![x(), x()], vec![]);
    rows(RowFunction::LogSoftmaxGrad, 1, vec![x(), x()], vec![]);
    for ignored in [vec![], vec![Scalar::Int(0)]] {
        rows(RowFunction::CrossEntropy, 1, vec![x(), targets()], ignored.clone());
        let inputs = vec![x(), targets(), drawn(&[2, 1], dtype)];
        rows(RowFunction::CrossEntropyGrad, 1, inputs, ignored);
    }
    for count in 1..=3 {
        rows(RowFunction::LayerNorm, 1, (0..count).map(|_| x()).collect(), eps());
    }
    for count in 2..=3 {
        rows(RowFunction::RmsNormGrad, 1, (0..count).map(|_| x()).collect(), eps());
    }
    let own = |axes: &[usize], row: &[usize]| {
        let attributes =
            Recorded::Rows { program: own_rows(dtype), shape: shape(&[2, 3]), axes: axes.into() };
        let inputs = vec![x(), drawn(row, dtype)];
        Request { params: vec![2.0.into()], ..Request::new("Rows", attributes, inputs) }
    };
    all.extend([own(&[1], &[2, 1]), own(&[0], &[1, 3]), own(&[0, 1], &[1, 1])]);
}

/// The named program on inputs of these types, or of F32 where it is not defined for `dtype`.
fn named(function: RowFunction, dtype: DType, inputs: &[Input], params: usize) -> Arc<Kernel> {
    let types: Vec<DType> = inputs.iter().map(Input::dtype).collect();
    let mut floats = vec![if dtype.is_float() { dtype } else { DType::F32 }; types.len()];
    if matches!(function, RowFunction::CrossEntropy | RowFunction::CrossEntropyGrad) {
        floats[1] = types[1];
    }
    let program = function.program(&types, params).or_else(|_| function.program(&floats, params));
    program.expect("the suite's programs are legal").clone()
}

/// A row program of the user: three levels, an output of each extent, a parameter.
fn own_rows(dtype: DType) -> Arc<Kernel> {
    let build = |dtype| {
        let builder = Builder::new();
        let (x, r) = (builder.input(dtype), builder.input_of(dtype, Extent::Row));
        let p = builder.param(DType::F32);
        let shifted = x.maximum(r) - x.min();
        let scaled = shifted * (shifted.sum() + 1).cast(dtype) + x.index().cast(dtype);
        builder.finish(&[scaled, (scaled.max() - r).cast(DType::F32) * p])
    };
    Arc::new(build(dtype).or_else(|_| build(DType::F32)).expect("the suite's programs are legal"))
}

fn quantized(dtype: DType, all: &mut Vec<Request>) {
    let parts =
        [(QuantType::Q8_0, 3), (QuantType::Q4_1, 17)].map(|(kind, rows)| Part { kind, rows });
    let blocks = || {
        let bytes = packed_parts(&parts, 64).map_or(0, |[_, bytes]| bytes);
        // bytes of scales that are finite
        drawn(&[bytes], DType::U8).with_domain(Domain::Below(60))
    };
    let product = Recorded::QuantMatmul { parts: parts.into(), exact: true };
    all.push(Request::new("QuantMatmul", product, vec![drawn(&[2, 64], dtype), blocks()]));
    let index = drawn(&[2, 2], DType::I32).with_domain(Domain::Below(20));
    let rows = Recorded::QuantRows { parts: parts.into(), columns: 64 };
    all.push(Request::new("QuantRows", rows, vec![blocks(), index]));
}

/// `lists`, and `parts` with the first one of another type or number of rows.
pub(super) fn other_parts(parts: &[Part], lists: Vec<Vec<Part>>) -> Vec<Box<[Part]>> {
    let first = |part| [&[part], &parts[1..]].concat();
    let rows = [0, 1, 16, 17, usize::MAX, isize::MAX as usize, usize::MAX / 34];
    let kinds = QuantType::ALL.map(|kind| first(Part { kind, ..parts[0] }));
    let rows = rows.map(|rows| first(Part { rows, ..parts[0] }));
    lists.into_iter().chain(kinds).chain(rows).map(Vec::into).collect()
}

fn windows(dtype: DType, all: &mut Vec<Request>) {
    let image = || drawn(&[1, 2, 5, 5], dtype); // (N, C_in, h, w)
    let weight = || drawn(&[4, 1, 3, 3], dtype); // (C_out, C_in / groups, kh, kw)
    let g = || drawn(&[1, 4, 3, 3], dtype); // (N, C_out, h', w')
    let window = || Box::new(Window { groups: 2, ..Window::new(2).stride(2).padding(1) });
    let add = kernel(dtype, |[a, b]| [a + b]);
    let (x_shape, weight_shape) = (shape(&[1, 2, 5, 5]), shape(&[4, 1, 3, 3]));
    let conv = Recorded::Conv { window: window() };
    let conv_kernel = Recorded::ConvKernel { window: window(), kernel: add };
    let input_grad = Recorded::ConvInputGrad { window: window(), x_shape };
    let weight_grad = Recorded::ConvWeightGrad { window: window(), weight_shape };
    all.extend([
        Request::new("Conv", conv, vec![image(), weight()]),
        Request::new("ConvKernel", conv_kernel, vec![image(), weight(), g()]),
        Request::new("ConvInputGrad", input_grad, vec![g(), weight()]),
        Request::new("ConvWeightGrad", weight_grad, vec![g(), image()]),
    ]);
    let pool = || Box::new(Window::new(2).stride(2));
    let max = Recorded::MaxPool { kernel_size: [2, 3].into(), window: pool() };
    let mean = Recorded::AvgPool { kernel_size: [2, 2].into(), window: pool() };
    let pooled = &[1, 2, 2, 2]; // (N, C, h', w')
    let positions = drawn(pooled, DType::I32).with_domain(Domain::Below(25));
    let grad = Recorded::MaxPoolGrad { x_shape, spatial: 2 };
    all.extend([
        Request::new("MaxPool", max, vec![image()]),
        Request::new("MaxPoolGrad", grad, vec![drawn(pooled, dtype), positions]),
        Request::new("AvgPool", mean, vec![image()]),
    ]);
    // Four axes: windows as a view would have more axes than a tensor.
    let deep = || drawn(&[1, 2, 3, 2, 2, 3], dtype);
    let size = || [2, 1, 2, 2].into();
    let window = || Box::new(Window::new(4));
    let weight = drawn(&[2, 2, 2, 1, 2, 2], dtype);
    let max = Recorded::MaxPool { kernel_size: size(), window: window() };
    let mean = Recorded::AvgPool { kernel_size: size(), window: window() };
    let conv = Recorded::Conv { window: window() };
    all.extend([
        Request::new("Conv", conv, vec![deep(), weight]),
        Request::new("MaxPool", max, vec![deep()]),
        Request::new("AvgPool", mean, vec![deep()]),
    ]);
}

fn attention(dtype: DType, all: &mut Vec<Request>) {
    let operands = |mask: bool| -> Vec<Input> {
        let q = drawn(&[2, 2, 3], dtype); // (heads, T, hs)
        let k = drawn(&[2, 4, 3], dtype); // (heads, S, hs)
        let v = drawn(&[2, 4, 2], dtype); // (heads, S, hv)
        let mask = mask.then(|| drawn(&[2, 2, 4], dtype)); // (heads, T, S)
        [Some(q), Some(k), Some(v), mask].into_iter().flatten().collect()
    };
    for mask in [false, true] {
        let options = Attention::causal(2).window(3);
        let forward = Recorded::Attention { options };
        all.push(Request::new("Attention", forward, operands(mask)));
        let (y, lse) = (|| drawn(&[2, 2, 2], dtype), drawn(&[2, 2], dtype.compute()));
        let inputs = [operands(mask), vec![y(), lse, y()]].concat();
        let grad = Recorded::AttentionGrad { options, needs: [true, false, true] };
        all.push(Request::new("AttentionGrad", grad, inputs));
    }
}
