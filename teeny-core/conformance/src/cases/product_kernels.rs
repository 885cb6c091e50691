//! A kernel at every index of a product: `Op::MatmulKernel` and `Op::ConvKernel`. Defined by the
//! product and the kernel on the oracle.

use super::{Arrangement, Case, Domain, EQUAL, Input, Sink, factor, near, pairs, stepwise};
use std::sync::Arc;
use teeny_core::validate::conv_shape;
use teeny_core::{DType, Kernel, Op, Result, Scalar, Shape, Tensor, Window};

/// The kernel after a product.
#[derive(Clone, Copy, Debug)]
enum After {
    /// `max(y + bias, 0)`.
    Relu,
    /// `y + bias` and `(y + bias) factor - residual`, with a run-time factor.
    Two,
    /// `y - residual` as f32.
    Cast,
    /// `y` minus the product as it is rounded, and `y` as f32.
    Rounded,
}

impl After {
    fn kernel(self, dtype: DType) -> Result<Arc<Kernel>> {
        let made =
            match self {
                After::Relu => Kernel::build([dtype; 2], [], |[y, b], []| [(y + b).maximum(0)]),
                After::Two => Kernel::build([dtype; 3], [dtype], |[y, b, r], [f]| {
                    let sum = y + b;
                    [sum, sum * f - r]
                }),
                After::Cast => Kernel::build([dtype; 2], [], |[y, r], []| {
                    [y.cast(DType::F32) - r.cast(DType::F32)]
                }),
                After::Rounded => {
                    Kernel::build([dtype; 2], [], |[y, r], []| [y - r, y.cast(DType::F32)])
                }
            };
        made.map(Arc::new)
    }

    /// The other inputs of the kernel, the values of its parameters.
    fn operands<'a>(
        self,
        bias: &'a Tensor,
        residual: &'a Tensor,
    ) -> (Vec<&'a Tensor>, Vec<Scalar>) {
        match self {
            After::Relu => (vec![bias], vec![]),
            After::Two => (vec![bias, residual], vec![factor(bias.dtype(), 0)]),
            After::Cast | After::Rounded => (vec![residual], vec![]),
        }
    }
}

/// A product, perhaps with a window: the operands are its own, a bias that broadcasts, and a residual
/// of its shape.
fn case(
    dtype: DType,
    window: Option<Window>,
    after: After,
    inputs: Vec<Input>,
    out: Shape,
) -> Case {
    let detail = match &window {
        Some(window) => format!("{after:?} after {window:?}"),
        None => format!("{after:?}"),
    };
    let op = if window.is_some() { "conv_kernel" } else { "matmul_kernel" };
    let body = move |x: &[Tensor]| {
        let (bias, kernel, device) = (x[2].expand(out)?, after.kernel(dtype)?, x[0].device());
        let residual = match (after, &window) {
            (After::Rounded, Some(window)) => {
                Op::Conv { x: &x[0], weight: &x[1], window }.tensor(device)?
            }
            (After::Rounded, None) => Op::Matmul { lhs: &x[0], rhs: &x[1] }.tensor(device)?,
            _ => x[3].clone(),
        };
        let (others, params) = after.operands(&bias, &residual);
        let (kernel, others, params) = (&kernel, &others[..], &params[..]);
        match &window {
            Some(window) => {
                Op::ConvKernel { x: &x[0], weight: &x[1], window, kernel, others, params }
            }
            None => Op::MatmulKernel { lhs: &x[0], rhs: &x[1], kernel, others, params },
        }
        .tensor_list(device)
        .map(Vec::from)
    };
    // Sums of a few dozen products of magnitude 16. 16-bit floats are rounded before the kernel.
    let tolerance = match after {
        After::Rounded => EQUAL, // sums of integers, exact in any order until they are rounded
        _ if dtype.is_half() => stepwise(dtype, 8.0, 64.0),
        _ => near(16.0, 256.0),
    };
    Case { op, dtype, inputs, tolerance, detail, body: Box::new(move |_, x| body(x)) }
}

pub fn each(sink: Sink<'_>) {
    for dtype in &DType::ALL[1..] {
        matmul(sink, *dtype);
    }
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        conv(sink, dtype);
        rounded(sink, dtype);
    }
}

/// Products of integers up to 31, whose sums 16-bit floats do not hold.
fn rounded(sink: Sink<'_>, dtype: DType) {
    let integers = |shape: &[usize], arrangement, factor: usize| {
        let numel = shape.iter().product();
        let values = (0..numel).map(|i: usize| 1 + (i * factor % 31) as i64);
        Input::of(values, shape, dtype, arrangement)
    };
    let matrices = [[1, 9, 1], [1, 40, 7], [6, 9, 7], [5, 65, 1], [33, 17, 40], [130, 65, 79]];
    for (i, [m, k, n]) in matrices.into_iter().enumerate() {
        let Ok(out) = Shape::new(&[m, n]) else { continue };
        let a = Arrangement::ALL[i];
        let inputs = vec![
            integers(&[m, k], a, 7),
            integers(&[k, n], Arrangement::Packed, 11),
            integers(&[n], a, 1),
            integers(&out, a, 1),
        ];
        sink(case(dtype, None, After::Rounded, inputs, out));
    }
    for (x, weight) in [([2, 3, 7, 6], [4, 3, 3, 3]), ([1, 4, 9, 9], [8, 4, 1, 1])] {
        let window = Window::new(2);
        let sizes = Shape::new(&x).and_then(|x| Ok((x, Shape::new(&weight)?)));
        let out = sizes.and_then(|(x, w)| conv_shape(&x, &w, &window));
        let Ok(out) = out else { continue };
        let packed = Arrangement::Packed;
        let inputs = vec![
            integers(&x, packed, 7),
            integers(&weight, packed, 11),
            integers(&[weight[0], 1, 1], packed, 1),
            integers(&out, packed, 1),
        ];
        sink(case(dtype, Some(window), After::Rounded, inputs, out));
    }
}

fn matmul(sink: Sink<'_>, dtype: DType) {
    let mut product = |lead: &[usize], [m, k, n]: [usize; 3], a, b, after| {
        let shape = |rows, columns| [lead, &[rows, columns]].concat();
        let Ok(out) = Shape::new(&shape(m, n)) else { return };
        let inputs = vec![
            Input::new(shape(m, k), dtype, a, Domain::Small, 50),
            Input::new(shape(k, n), dtype, b, Domain::Small, 51),
            Input::new([n], dtype, b, Domain::Small, 52),
            Input::new(out, dtype, a, Domain::Small, 53),
        ];
        sink(case(dtype, None, after, inputs, out));
    };
    let afters = [After::Relu, After::Two, After::Cast];
    for (i, (a, b)) in pairs().enumerate() {
        product(&[], [6, 9, 7], a, b, afters[i % 3]);
        product(&[3], [2, 9, 5], b, a, afters[(i + 1) % 3]);
    }
    let packed = Arrangement::Packed;
    for after in afters {
        for mkn in [[0, 3, 4], [2, 0, 4], [2, 3, 0], [1, 1, 1], [1, 130, 7], [33, 17, 40]] {
            product(&[], mkn, packed, packed, after);
        }
        product(&[2, 3], [1, 4, 5], packed, Arrangement::Transposed, after);
        // Several tiles, the last ones smaller.
        product(&[], [130, 65, 79], packed, packed, after);
        product(&[], [130, 65, 79], packed, Arrangement::Transposed, after);
    }
}

fn conv(sink: Sink<'_>, dtype: DType) {
    let of = |stride: [usize; 2], padding: [usize; 2], dilation: [usize; 2]| Window {
        stride: stride.into(),
        padding: padding.into(),
        dilation: dilation.into(),
        groups: 1,
    };
    let cases: [(&[usize], &[usize], Window); 11] = [
        // operands and result of one shape
        (&[2, 2, 3], &[2, 2, 3], Window::new(1).padding(1)),
        // windows whose axes a device may exchange without a result of another shape
        (&[2, 3, 4, 4], &[4, 3, 1, 1], of([2, 3], [0, 0], [1, 1])),
        (&[2, 3, 4, 4], &[4, 3, 2, 2], of([5, 7], [0, 1], [2, 1])),
        (&[2, 3, 4, 4], &[4, 3, 2, 2], of([5, 5], [1, 0], [1, 2])),
        (&[2, 3, 9], &[4, 3, 3], Window::new(1).stride(2).padding(2).dilation(2)),
        (&[2, 3, 7, 6], &[4, 3, 3, 3], Window::new(2).padding(1)),
        (&[2, 4, 7, 6], &[6, 2, 3, 2], Window::new(2).padding(1).groups(2)),
        (&[1, 9, 9, 8], &[9, 1, 3, 3], Window::new(2).stride(2).padding(1).groups(9)),
        (&[2, 9, 9, 9], &[14, 9, 3, 3], Window::new(2).padding(1)),
        (&[2, 3, 5, 5], &[40, 3, 5, 5], Window::new(2)),
        (&[0, 2, 5, 5], &[3, 2, 3, 3], Window::new(2)),
    ];
    for (i, (x, weight, window)) in cases.into_iter().enumerate() {
        for (j, (a, b)) in pairs().step_by(3).enumerate() {
            let sizes = Shape::new(x).and_then(|x| Ok((x, Shape::new(weight)?)));
            let Ok(out) = sizes.and_then(|(x, w)| conv_shape(&x, &w, &window)) else {
                continue;
            };
            let bias = [&[weight[0]], &[1, 1, 1][..x.len() - 2]].concat();
            let inputs = vec![
                Input::new(x, dtype, a, Domain::Small, 54),
                Input::new(weight, dtype, b, Domain::Small, 55),
                Input::new(bias, dtype, Arrangement::Packed, Domain::Small, 56),
                Input::new(out, dtype, b, Domain::Small, 57),
            ];
            let after = [After::Relu, After::Two, After::Cast][(i + j) % 3];
            sink(case(dtype, Some(window.clone()), after, inputs, out));
        }
    }
}
