//! One kernel on tensors of several shapes: `Op::ElementwiseMany`, defined by the kernel of each.

use super::{Arrangement, Case, Domain, Input, Sink, factor, near, pairs, stepwise};
use std::sync::Arc;
use teeny_core::{DType, Kernel, Op, Result, Scalar, Shape, Tensor};

pub fn each(sink: Sink<'_>) {
    for dtype in &DType::ALL[1..] {
        for (a, b) in pairs() {
            case(sink, *dtype, &[&[3, 5], &[7], &[2, 3, 4], &[3, 5]], a, b);
        }
        let packed = Arrangement::Packed;
        case(sink, *dtype, &[&[300, 7], &[], &[0, 3], &[1], &[513], &[4, 4]], packed, packed);
        // More of them than buffers of a launch, some with common numbers.
        case(sink, *dtype, &[&[6][..]; 41], packed, packed);
        case(sink, *dtype, &[&[33, 3]], packed, packed);
    }
}

/// `a f + b` and `a - b` on tensors of these shapes; every third has another factor than the others.
fn case(sink: Sink<'_>, dtype: DType, shapes: &[&[usize]], a: Arrangement, b: Arrangement) {
    let inputs = shapes.iter().enumerate().flat_map(|(i, shape)| {
        let seed = 60 + 2 * i as u64;
        [
            Input::new(*shape, dtype, a, Domain::Small, seed),
            Input::new(*shape, dtype, b, Domain::Small, seed + 1),
        ]
    });
    let factors: Vec<Scalar> =
        (0..shapes.len()).map(|i| factor(dtype, u64::from(i % 3 == 2))).collect();
    let body = move |x: &[Tensor]| -> Result<Vec<Tensor>> {
        let kernel =
            Kernel::build([dtype; 2], [dtype], |[a, b], [f]| [a * f + b, a - b]).map(Arc::new)?;
        let inputs: Vec<&Tensor> = x.iter().collect();
        let shapes: Vec<Shape> = x.iter().step_by(2).map(|x| *x.shape()).collect();
        let (inputs, params, shapes) = (&inputs[..], &factors[..], &shapes[..]);
        let op = Op::ElementwiseMany { kernel: &kernel, inputs, params, shapes };
        op.tensor_list(x[0].device()).map(Vec::from)
    };
    sink(Case {
        op: "elementwise_many",
        dtype,
        inputs: inputs.collect(),
        tolerance: if dtype.is_half() { stepwise(dtype, 2.0, 16.0) } else { near(2.0, 16.0) },
        detail: format!("{} shapes", shapes.len()),
        body: Box::new(move |_, x| body(x)),
    });
}
