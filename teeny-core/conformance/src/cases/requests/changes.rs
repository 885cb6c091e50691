//! The requests that differ from a sample: other operands, other counts of them, other attributes.

use super::samples::{kernel, other_parts, shape};
use super::{Input, Request, drawn};
use teeny_core::op::recorded::Recorded;
use teeny_core::random::philox;
use teeny_core::{
    DType, Distribution, Key, Layout, LinalgOp, MAX_NDIM, ReduceOp, ScanOp, ScatterMode, Shape,
    Triangle, Window,
};

/// Pairs of changes of a sample, of the many that there are.
const PAIRS: u64 = 60;

/// Every change in one respect.
pub(super) fn of_one(sample: &Request) -> Vec<Request> {
    [operands(sample), counts(sample), numbers(sample), shapes(sample), attributes(sample)].concat()
}

/// Some of the changes in two respects: of operands, and of attributes.
pub(super) fn of_two(sample: &Request) -> Vec<Request> {
    let first = of_one(sample);
    let pair = |draw| {
        let words = philox(Key { seed: 5, draw }, 0);
        let one = &first[words[0] as usize % first.len()];
        // Operands may be fewer than the attributes of the sample need.
        let second = if one.inputs.len() == sample.inputs.len() { operands(one) } else { vec![] };
        let mut two = second.get(words[1] as usize % second.len().max(1))?.clone();
        two.change = format!("{}; {}", one.change, two.change);
        Some(two)
    };
    (0..if first.is_empty() { 0 } else { PAIRS }).filter_map(pair).collect()
}

pub(super) fn changed(sample: &Request, change: impl Into<String>) -> Request {
    Request { change: change.into(), ..sample.clone() }
}

pub(super) fn with_input(
    sample: &Request,
    i: usize,
    input: Input,
    change: impl Into<String>,
) -> Request {
    let mut request = changed(sample, change);
    request.inputs[i] = input;
    request
}

/// Shapes close to `shape`: each axis shorter, longer or empty, removed or added.
fn other_shapes(shape: &Shape) -> Vec<Shape> {
    let mut all = vec![Shape::SCALAR];
    for axis in 0..shape.ndim() {
        all.push(shape.without(axis));
        let size = shape[axis];
        all.extend([0, 1, size.saturating_sub(1), size + 1].map(|n| shape.with_size(axis, n)));
    }
    for size in [1, 2] {
        all.extend([0, shape.ndim()].into_iter().filter_map(|a| shape.with_axis(a, size).ok()));
    }
    all.retain(|other| other != shape);
    all
}

/// Changes of the dtype and the shape of each operand, and of all at once.
fn operands(sample: &Request) -> Vec<Request> {
    let mut all = Vec::new();
    for (i, input) in sample.inputs.iter().enumerate() {
        for dtype in DType::ALL.into_iter().filter(|&dtype| dtype != input.dtype()) {
            let other = input.with_dtype(dtype);
            all.push(with_input(sample, i, other, format!("operand {i} is {dtype}")));
        }
        for shape in other_shapes(input.shape()) {
            let other = input.with_shape(shape);
            all.push(with_input(sample, i, other, format!("operand {i} is {shape}")));
        }
    }
    if sample.inputs.is_empty() {
        return all;
    }
    for dtype in DType::ALL {
        let mut request = changed(sample, format!("all operands are {dtype}"));
        request.inputs.iter_mut().for_each(|x| *x = x.with_dtype(dtype));
        all.push(request);
    }
    let mut scalars = changed(sample, "all operands are scalars");
    scalars.inputs.iter_mut().for_each(|x| *x = x.with_shape(Shape::SCALAR));
    all.push(scalars);
    let ndim = sample.inputs.iter().map(|x| x.shape().ndim()).max().unwrap_or(0);
    let mut deep = changed(sample, format!("all operands have {} more axes", MAX_NDIM - ndim));
    for x in &mut deep.inputs {
        *x = x.with_shape(shape(&[&vec![1; MAX_NDIM - ndim], &x.shape()[..]].concat()));
    }
    all.push(deep);
    for (axis, size) in (0..4).flat_map(|axis| [(axis, 0), (axis, 1)]) {
        let mut request =
            changed(sample, format!("axis {axis} of all operands has {size} elements"));
        for x in request.inputs.iter_mut().filter(|x| axis < x.shape().ndim()) {
            *x = x.with_shape(x.shape().with_size(axis, size));
        }
        all.push(request);
    }
    all
}

/// Other counts of operands that are a list, and of run-time numbers.
fn counts(sample: &Request) -> Vec<Request> {
    let mut all = Vec::new();
    let fixed = match &sample.attributes {
        Recorded::Elementwise { .. }
        | Recorded::ElementwiseMany { .. }
        | Recorded::ReduceKernel { .. }
        | Recorded::Cat { .. }
        | Recorded::Positions { .. }
        | Recorded::Linalg { .. } => 0,
        Recorded::MatmulKernel { .. } | Recorded::ConvKernel { .. } => 2,
        _ => sample.inputs.len(),
    };
    if fixed < sample.inputs.len() && sample.in_place.is_none() {
        let last = sample.inputs[sample.inputs.len() - 1].clone();
        for count in [fixed, sample.inputs.len() - 1, sample.inputs.len() + 1, 20] {
            let mut request = changed(sample, format!("{count} operands"));
            request.inputs.resize(count, last.clone());
            all.push(request);
        }
    }
    if let Some((own, _)) = sample.in_place {
        let mut request = changed(sample, "another count of operands");
        match request.inputs.len() {
            1 => request.inputs.push(drawn(&[2, 3], sample.inputs[0].dtype())),
            _ => {
                request.inputs = vec![request.inputs[own].clone()];
                request.in_place = Some((0, 0));
            }
        }
        all.push(request);
        for input_index in [1 - own.min(1), 2, usize::MAX] {
            let mut request = changed(sample, format!("input_index is {input_index}"));
            request.in_place = Some((own, input_index));
            all.push(request);
        }
    }
    if sample.attributes.kernel().is_some() {
        for count in [0, 1, 3] {
            let mut request = changed(sample, format!("{count} parameters"));
            request.params.resize(count, 1.0.into());
            all.push(request);
        }
    }
    all
}

/// Calls `f` with every axis, count, width and stride among the attributes.
fn each_number(attributes: &mut Recorded, f: &mut dyn FnMut(&mut usize)) {
    let mut window = |window: &mut Window| {
        let Window { stride, padding, dilation, groups } = window;
        [stride, padding, dilation].into_iter().flatten().for_each(&mut *f);
        f(groups);
    };
    match attributes {
        Recorded::Conv { window: w }
        | Recorded::ConvKernel { window: w, .. }
        | Recorded::ConvInputGrad { window: w, .. }
        | Recorded::ConvWeightGrad { window: w, .. } => window(w),
        Recorded::MaxPool { kernel_size, window: w }
        | Recorded::AvgPool { kernel_size, window: w } => {
            window(w);
            kernel_size.iter_mut().for_each(f);
        }
        Recorded::Reduce { axes, .. }
        | Recorded::ReduceKernel { axes, .. }
        | Recorded::Rows { axes, .. } => {
            axes.iter_mut().for_each(f);
        }
        Recorded::Scan { axis, .. }
        | Recorded::CumMax { axis, .. }
        | Recorded::Gather { axis }
        | Recorded::Scatter { axis, .. }
        | Recorded::Sort { axis, .. }
        | Recorded::Cat { axis } => f(axis),
        Recorded::TopK { axis, k, .. } => {
            f(axis);
            f(k);
        }
        Recorded::Pad { widths, .. } => widths.iter_mut().for_each(|(before, after)| {
            f(before);
            f(after);
        }),
        Recorded::Positions { sizes } => sizes.iter_mut().for_each(f),
        Recorded::MaxPoolGrad { spatial, .. } => f(spatial),
        Recorded::Attention { options, .. } | Recorded::AttentionGrad { options, .. } => {
            options.causal.iter_mut().chain(&mut options.window).for_each(f);
        }
        _ => {}
    }
}

/// Replaces item number `slot` of its calls.
fn replace<T: Copy>(slot: usize, value: T) -> impl FnMut(&mut T) {
    let mut place = 0;
    move |item| {
        if place == slot {
            *item = value;
        }
        place += 1;
    }
}

/// Other values of each number: neighbours, and those at which arithmetic overflows.
fn numbers(sample: &Request) -> Vec<Request> {
    let attention =
        matches!(sample.attributes, Recorded::Attention { .. } | Recorded::AttentionGrad { .. });
    let mut count = 0;
    each_number(&mut sample.attributes.clone(), &mut |_| count += 1);
    let mut all = Vec::new();
    for slot in 0..count {
        let near = [0, 1, 2, 3, 4, 5].map(|n| (n, false));
        let far = [1u64 << 31, 1 << 32, 1 << 40].map(|n| n.try_into().unwrap_or(usize::MAX));
        let far = far.into_iter().chain([usize::MAX / 2, usize::MAX - 1, usize::MAX]);
        // Any offset and window of attention costs the same.
        for (value, huge) in near.into_iter().chain(far.map(|n| (n, !attention))) {
            let mut request = changed(sample, format!("number {slot} is {value}"));
            request.huge = huge;
            each_number(&mut request.attributes, &mut replace(slot, value));
            all.push(request);
        }
    }
    all
}

fn each_shape(attributes: &mut Recorded, f: &mut dyn FnMut(&mut Shape)) {
    match attributes {
        Recorded::Elementwise { shape, .. }
        | Recorded::ReduceKernel { shape, .. }
        | Recorded::Rows { shape, .. }
        | Recorded::Random { shape, .. }
        | Recorded::ConvInputGrad { x_shape: shape, .. }
        | Recorded::ConvWeightGrad { weight_shape: shape, .. }
        | Recorded::MaxPoolGrad { x_shape: shape, .. } => f(shape),
        Recorded::ElementwiseMany { shapes, .. } => shapes.iter_mut().for_each(f),
        _ => {}
    }
}

/// Other shapes among the attributes.
fn shapes(sample: &Request) -> Vec<Request> {
    let mut own = Vec::new();
    each_shape(&mut sample.attributes.clone(), &mut |shape| own.push(*shape));
    let mut all = Vec::new();
    for (slot, old) in own.iter().enumerate() {
        let huge = (0..old.ndim()).filter_map(|axis| old.resized(axis, usize::MAX >> 20).ok());
        let near = other_shapes(old).into_iter().map(|shape| (shape, false));
        for (new, huge) in near.chain(huge.map(|shape| (shape, true))) {
            let mut request = changed(sample, format!("shape {slot} is {new}"));
            request.huge = huge;
            each_shape(&mut request.attributes, &mut replace(slot, new));
            all.push(request);
        }
    }
    all
}

/// Lists of other lengths or in another order.
fn other_lists<T: Clone>(list: &[T]) -> Vec<Vec<T>> {
    let reversed: Vec<T> = list.iter().rev().cloned().collect();
    let longer = list.iter().chain(list.last()).cloned().collect();
    vec![vec![], list[..list.len().saturating_sub(1)].to_vec(), longer, reversed]
}

/// Windows that describe other numbers of axes.
fn other_windows(window: &Window) -> impl Iterator<Item = Box<Window>> {
    let lists = |list: &[usize]| other_lists(list).into_iter();
    let stride = lists(&window.stride).map(|stride| Window { stride, ..window.clone() });
    let padding = lists(&window.padding).map(|padding| Window { padding, ..window.clone() });
    let dilation = lists(&window.dilation).map(|dilation| Window { dilation, ..window.clone() });
    stride.chain(padding).chain(dilation).map(Box::new)
}

/// Views of a storage of 6 elements that are wrong for a source (3): outside, twice the same
/// element, of another shape.
fn other_views() -> Vec<Layout> {
    let views = [
        (&[3][..], &[4][..], 0),
        (&[3], &[1], 4),
        (&[3], &[-1], 1),
        (&[3], &[0], 0),
        (&[2], &[1], 0),
        (&[1, 3], &[3, 1], 0),
        (&[], &[], 0),
        (&[3], &[isize::MAX / 4], 0),
    ];
    let view = |(sizes, strides, offset): (&[usize], &[isize], usize)| {
        Layout::strided(shape(sizes), strides, offset, usize::MAX / 2).ok()
    };
    views.into_iter().filter_map(view).collect()
}

/// Other modes, kernels, lists and views.
fn attributes(sample: &Request) -> Vec<Request> {
    let mut all: Vec<Recorded> = Vec::new();
    match sample.attributes.clone() {
        Recorded::Reduce { op, axes } => {
            all.extend(ReduceOp::ALL.map(|op| Recorded::Reduce { op, axes: axes.clone() }));
            let lists = other_lists(&axes).into_iter();
            all.extend(lists.map(|axes| Recorded::Reduce { op, axes: axes.into() }));
        }
        Recorded::ReduceKernel { kernel, shape, op, axes } => {
            let with = |op, axes: &[usize]| {
                let (kernel, axes) = (kernel.clone(), axes.into());
                Recorded::ReduceKernel { kernel, shape, op, axes }
            };
            all.extend(ReduceOp::ALL.map(|op| with(op, &axes)));
            all.extend(other_lists(&axes).iter().map(|axes| with(op, axes)));
        }
        Recorded::Scan { axis, .. } => all.push(Recorded::Scan { op: ScanOp::Prod, axis }),
        Recorded::Scatter { axis, .. } => {
            let modes = [ScatterMode::Set, ScatterMode::Add, ScatterMode::Max, ScatterMode::Min];
            all.extend(modes.map(|mode| Recorded::Scatter { mode, axis }));
        }
        Recorded::CopyInto { .. } => {
            all.extend(other_views().into_iter().map(|view| Recorded::CopyInto { view }));
        }
        Recorded::Random { shape, dtype, .. } => {
            let distributions = [
                Distribution::Uniform { low: 0.0, high: 1.0 },
                Distribution::Normal { mean: 0.0, std: 1.0 },
                Distribution::Integer { low: 0, high: 2 },
                Distribution::Integer { low: 5, high: 5 },
                Distribution::Integer { low: 0, high: 1000 },
            ];
            let of = |distribution| {
                let each = DType::ALL.into_iter().chain([dtype]);
                each.map(move |dtype| Recorded::Random { distribution, shape, dtype })
            };
            all.extend(distributions.into_iter().flat_map(of));
        }
        Recorded::ElementwiseMany { kernel, shapes } => {
            let lists = other_lists(&shapes).into_iter();
            all.extend(lists.map(|shapes| {
                let (kernel, shapes) = (kernel.clone(), shapes.into());
                Recorded::ElementwiseMany { kernel, shapes }
            }));
        }
        Recorded::Pad { widths, value } => {
            let lists = other_lists(&widths).into_iter();
            all.extend(lists.map(|widths| Recorded::Pad { widths: widths.into(), value }));
        }
        Recorded::Tri { .. } => {
            for diagonal in [i32::MIN, i32::MIN + 1, -4, 0, 4, i32::MAX] {
                all.extend([false, true].map(|upper| Recorded::Tri { diagonal, upper }));
            }
        }
        Recorded::Positions { sizes } => {
            let lists = other_lists(&sizes).into_iter();
            all.extend(lists.map(|sizes| Recorded::Positions { sizes: sizes.into() }));
        }
        Recorded::Rows { program, shape, .. } => {
            all.extend(other_lists(&[0, 1]).into_iter().map(|axes| Recorded::Rows {
                program: program.clone(),
                shape,
                axes: axes.into(),
            }));
        }
        Recorded::MaxPool { kernel_size, window } => {
            let windows = other_windows(&window);
            all.extend(
                windows
                    .map(|window| Recorded::MaxPool { kernel_size: kernel_size.clone(), window }),
            );
            all.extend(other_lists(&kernel_size).into_iter().map(|kernel_size| {
                Recorded::MaxPool { kernel_size: kernel_size.into(), window: window.clone() }
            }));
        }
        Recorded::AvgPool { kernel_size, window } => {
            let windows = other_windows(&window);
            all.extend(
                windows
                    .map(|window| Recorded::AvgPool { kernel_size: kernel_size.clone(), window }),
            );
            all.extend(other_lists(&kernel_size).into_iter().map(|kernel_size| {
                Recorded::AvgPool { kernel_size: kernel_size.into(), window: window.clone() }
            }));
        }
        Recorded::QuantMatmul { parts, exact } => {
            all.extend(
                other_parts(&parts, other_lists(&parts))
                    .into_iter()
                    .map(|parts| Recorded::QuantMatmul { parts, exact }),
            );
        }
        Recorded::QuantRows { parts, columns } => {
            all.extend(
                other_parts(&parts, other_lists(&parts))
                    .into_iter()
                    .map(|parts| Recorded::QuantRows { parts, columns }),
            );
            let sizes = [0, 1, 32, 96, usize::MAX, usize::MAX / 32 * 32];
            all.extend(sizes.map(|columns| Recorded::QuantRows { parts: parts.clone(), columns }));
        }
        Recorded::AttentionGrad { options, .. } => {
            let needs = [[false; 3], [true; 3], [false, true, false]];
            all.extend(needs.map(|needs| Recorded::AttentionGrad { options, needs }));
        }
        Recorded::Attention { mut options } => {
            options.causal = None; // a window needs it
            all.push(Recorded::Attention { options });
        }
        Recorded::Linalg { .. } => {
            let ops = [
                LinalgOp::Solve,
                LinalgOp::SolveTriangular(Triangle::UnitUpper),
                LinalgOp::Det,
                LinalgOp::Cholesky,
                LinalgOp::Qr { complete: true },
                LinalgOp::Eigh,
            ];
            all.extend(ops.map(|op| Recorded::Linalg { op }));
        }
        _ => {}
    }
    match sample.attributes.clone() {
        Recorded::Conv { window } => {
            all.extend(other_windows(&window).map(|window| Recorded::Conv { window }));
        }
        Recorded::ConvKernel { window, kernel } => all.extend(
            other_windows(&window)
                .map(|window| Recorded::ConvKernel { window, kernel: kernel.clone() }),
        ),
        Recorded::ConvInputGrad { window, x_shape } => all.extend(
            other_windows(&window).map(|window| Recorded::ConvInputGrad { window, x_shape }),
        ),
        Recorded::ConvWeightGrad { window, weight_shape } => all.extend(
            other_windows(&window).map(|window| Recorded::ConvWeightGrad { window, weight_shape }),
        ),
        _ => {}
    }
    all.extend(other_kernels(&sample.attributes));
    let mut all: Vec<Request> = all
        .into_iter()
        .enumerate()
        .map(|(i, attributes)| Request { attributes, ..changed(sample, format!("variant {i}")) })
        .collect();
    if matches!(sample.attributes, Recorded::CopyInto { .. }) {
        all.push(Request { taken: true, ..changed(sample, "no destination") });
    }
    all
}

/// The attributes with kernels of other inputs, outputs and types.
fn other_kernels(attributes: &Recorded) -> Vec<Recorded> {
    let mut all = Vec::new();
    for dtype in [DType::F32, DType::F64, DType::F16, DType::I32] {
        for new in [
            kernel(dtype, |[a]| [a.neg()]),
            kernel(dtype, |[a, b]| [a + b]),
            kernel(dtype, |[a, b]| [a + b, a - b]),
            kernel(dtype, |[a, b, c]| [a + b * c]),
        ] {
            let mut with = attributes.clone();
            match &mut with {
                Recorded::Elementwise { kernel, .. }
                | Recorded::ElementwiseMany { kernel, .. }
                | Recorded::ReduceKernel { kernel, .. }
                | Recorded::Rows { program: kernel, .. }
                | Recorded::MatmulKernel { kernel }
                | Recorded::ConvKernel { kernel, .. } => *kernel = new,
                _ => return all,
            }
            all.push(with);
        }
    }
    all
}
