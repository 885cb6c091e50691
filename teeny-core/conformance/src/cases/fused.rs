//! Ops that a device may run in one pass: softmax and normalisation with their gradients,
//! convolution, pooling. Defined by their primitives on the oracle.

use super::{Arrangement, Case, Domain, EQUAL, Input, Sink, near, one, stepwise};
use teeny_core::validate::conv_shape;
use teeny_core::{DType, DeviceRef, Op, Result, RowFunction, Scalar, Shape, Tensor, Window};

const FLOATS: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];

pub fn each(sink: Sink<'_>) {
    for dtype in FLOATS {
        softmax(sink, dtype);
        cross_entropy(sink, dtype);
        norm(sink, dtype);
        for (i, arrangement) in Arrangement::ALL.into_iter().enumerate() {
            conv(sink, dtype, arrangement, Arrangement::ALL[(i + 4) % 7]);
        }
    }
    for dtype in DType::ALL {
        Arrangement::ALL.into_iter().for_each(|arrangement| pool(sink, dtype, arrangement));
    }
}

fn softmax(sink: Sink<'_>, dtype: DType) {
    type Along = fn(&Tensor, isize) -> Result<Tensor>;
    let forward: [(&str, Along, f64); 2] =
        [("softmax", |x, a| x.softmax(a), 0.1), ("log_softmax", |x, a| x.log_softmax(a), 8.0)];
    for (op, f, floor) in forward {
        let shapes = Arrangement::ALL.iter().map(|&a| (vec![3usize, 4, 5], a));
        for (shape, arrangement) in shapes.chain(
            [vec![700], vec![1], vec![3, 0], vec![0, 3], vec![40, 33]]
                .map(|s| (s, Arrangement::Packed)),
        ) {
            for axis in 0..shape.len() as isize {
                let inputs = vec![Input::new(shape.clone(), dtype, arrangement, Domain::Small, 60)];
                sink(one(
                    op,
                    dtype,
                    stepwise(dtype, 8.0, floor),
                    inputs,
                    format!("axis {axis}"),
                    move |x| f(&x[0], axis),
                ));
            }
        }
        let inf = f64::INFINITY;
        let rows = [1e4, -1e4, 1e4, -inf, 0.0, 1.0, -inf, -inf, -inf, 3.0, f64::NAN, 1.0]
            .map(Scalar::Float);
        let inputs = vec![Input::of(rows, (4, 3), dtype, Arrangement::Packed)];
        sink(one(
            op,
            dtype,
            stepwise(dtype, 8.0, floor),
            inputs,
            "large, masked, NaN".to_string(),
            move |x| f(&x[0], 1),
        ));
    }
    for arrangement in Arrangement::ALL {
        for axis in 0..3 {
            let inputs = || {
                vec![
                    Input::new((3, 4, 5), dtype, arrangement, Domain::Small, 61),
                    Input::new((3, 4, 5), dtype, Arrangement::Stepped, Domain::Small, 62),
                ]
            };
            let tolerance = stepwise(dtype, 8.0, 16.0);
            sink(one(
                "softmax_grad",
                dtype,
                tolerance,
                inputs(),
                format!("axis {axis}"),
                move |x| {
                    let y = x[0].softmax(axis)?;
                    RowFunction::SoftmaxGrad.run(&[&y, &x[1]], &[], &[axis as usize])
                },
            ));
            sink(one(
                "log_softmax_grad",
                dtype,
                tolerance,
                inputs(),
                format!("axis {axis}"),
                move |x| {
                    let y = x[0].log_softmax(axis)?;
                    RowFunction::LogSoftmaxGrad.run(&[&y, &x[1]], &[], &[axis as usize])
                },
            ));
        }
    }
}

fn cross_entropy(sink: Sink<'_>, dtype: DType) {
    let shapes = Arrangement::ALL.iter().map(|&a| (5usize, 4usize, a));
    let packed = [(3, 1), (40, 33), (7, 300), (700, 10), (0, 3), (2, 15), (3, 16), (3, 17)]
        .map(|(n, c)| (n, c, Arrangement::Packed));
    for (i, (n, classes, arrangement)) in shapes.chain(packed).enumerate() {
        for (ignored, kind) in [(None, DType::I32), (Some(-100), DType::I64), (Some(0), DType::U8)]
        {
            let mut targets: Vec<i64> =
                (0..n as i64).map(|row| (row * 7 + i as i64) % classes as i64).collect();
            if let (Some(ignored), Some(target)) = (ignored, targets.get_mut(1)) {
                *target = ignored;
            }
            let targets = Input::of(targets.into_iter().map(Scalar::Int), [n], kind, arrangement);
            let inputs =
                vec![Input::new([n, classes], dtype, arrangement, Domain::Small, 66), targets];
            let detail = format!("{n} rows of {classes}, ignored: {ignored:?}");
            sink(one(
                "cross_entropy",
                dtype,
                stepwise(dtype, 8.0, 8.0),
                inputs.clone(),
                detail.clone(),
                move |x| x[0].cross_entropy(&x[1], ignored),
            ));
            let inputs =
                [inputs, vec![Input::new([n], dtype, arrangement, Domain::Small, 67)]].concat();
            sink(one(
                "cross_entropy_grad",
                dtype,
                stepwise(dtype, 8.0, 8.0),
                inputs,
                detail,
                move |x| cross_entropy_grad(x, ignored),
            ));
        }
    }
    // Class 156 is -100 as eight bits, and 255 is -1. A class that is ignored may be far outside.
    for (ignored, kind, first) in [
        (-100, DType::U8, 156),
        (-1, DType::U8, 156),
        (-100, DType::I16, 156),
        (2049, DType::I16, 2049),
        (2049, DType::U16, 2049),
        ((1 << 24) + 1, DType::I32, (1 << 24) + 1),
        ((1 << 24) + 1, DType::U32, (1 << 24) + 1),
        ((1 << 53) + 1, DType::I64, (1 << 53) + 1),
        ((1 << 53) + 1, DType::U64, (1 << 53) + 1),
    ] {
        let targets = [first, 255, 3, first].map(Scalar::Int);
        let targets = Input::of(targets, (4,), kind, Arrangement::Packed);
        let inputs =
            vec![Input::new([4, 300], dtype, Arrangement::Packed, Domain::Small, 68), targets];
        let detail = format!("{ignored} ignored, targets of {kind}");
        sink(one(
            "cross_entropy",
            dtype,
            stepwise(dtype, 8.0, 8.0),
            inputs.clone(),
            detail.clone(),
            move |x| x[0].cross_entropy(&x[1], Some(ignored)),
        ));
        let inputs =
            [inputs, vec![Input::new([4], dtype, Arrangement::Packed, Domain::Small, 69)]].concat();
        sink(one(
            "cross_entropy_grad",
            dtype,
            stepwise(dtype, 8.0, 8.0),
            inputs,
            detail,
            move |x| cross_entropy_grad(x, Some(ignored)),
        ));
    }
    let scores = [1e4, -1e4, 1e4, f64::NEG_INFINITY, 0.0, 1.0].map(Scalar::Float);
    let scores = Input::of(scores, (2, 3), dtype, Arrangement::Packed);
    let targets = Input::of([0, 2].map(Scalar::Int), (2,), DType::I32, Arrangement::Packed);
    sink(one(
        "cross_entropy",
        dtype,
        stepwise(dtype, 8.0, 8.0),
        vec![scores.clone(), targets],
        "large, masked".to_string(),
        |x| x[0].cross_entropy(&x[1], None),
    ));
    for bad in [3, -1] {
        let targets = Input::of([0, bad].map(Scalar::Int), (2,), DType::I32, Arrangement::Packed);
        sink(one(
            "index outside",
            dtype,
            EQUAL,
            vec![scores.clone(), targets],
            format!("target {bad}"),
            |x| x[0].cross_entropy(&x[1], Some(-100)),
        ));
    }
}

/// The gradient of the losses for the scores, where `x` is scores (n, classes), targets (n) and the
/// gradient of the losses (n).
pub(crate) fn cross_entropy_grad(x: &[Tensor], ignored: Option<i64>) -> Result<Tensor> {
    let ignored = ignored.map(Scalar::Int).filter(|i| i.fits(x[1].dtype()));
    let (targets, g) = (x[1].unsqueeze(1)?, x[2].unsqueeze(1)?);
    RowFunction::CrossEntropyGrad.run(&[&x[0], &targets, &g], ignored.as_slice(), &[1])
}

fn norm(sink: Sink<'_>, dtype: DType) {
    for (i, arrangement) in Arrangement::ALL.into_iter().enumerate() {
        for (kind, name, grad) in [
            (RowFunction::LayerNorm, "layer_norm", RowFunction::LayerNormGrad),
            (RowFunction::RmsNorm, "rms_norm", RowFunction::RmsNormGrad),
        ] {
            for shape in [vec![3usize, 4, 5], vec![7, 300], vec![5], vec![2, 1], vec![0, 3]] {
                let line = |seed| {
                    Input::new(
                        [shape[shape.len() - 1]],
                        dtype,
                        Arrangement::ALL[(i + 2) % 7],
                        Domain::Small,
                        seed,
                    )
                };
                let inputs = vec![
                    Input::new(shape.clone(), dtype, arrangement, Domain::Small, 71),
                    line(72),
                    line(73),
                ];
                let tolerance = stepwise(dtype, 16.0, 16.0);
                sink(one(
                    name,
                    dtype,
                    tolerance,
                    inputs.clone(),
                    "weight and bias".to_string(),
                    move |x| match kind {
                        RowFunction::RmsNorm => x[0].rms_norm(1, Some(&x[1]), 1e-3),
                        _ => x[0].layer_norm(1, Some(&x[1]), Some(&x[2]), 1e-3),
                    },
                ));
                sink(one(name, dtype, tolerance, inputs.clone(), "plain".to_string(), move |x| {
                    match kind {
                        RowFunction::RmsNorm => x[0].rms_norm(1, None, 1e-3),
                        _ => x[0].layer_norm(1, None, None, 1e-3),
                    }
                }));
                if shape[0] == 0 {
                    continue;
                }
                let g = Input::new(
                    shape.clone(),
                    dtype,
                    Arrangement::ALL[(i + 4) % 7],
                    Domain::Small,
                    74,
                );
                let inputs = vec![inputs[0].clone(), inputs[1].clone(), g];
                let tolerance = stepwise(dtype, 64.0, 64.0);
                for weighted in [false, true] {
                    sink(one(
                        grad.name(),
                        dtype,
                        tolerance,
                        inputs.clone(),
                        format!("weight: {weighted}"),
                        move |x| {
                            let all = [&x[0], &x[1], &x[2]];
                            let inputs = if weighted { &all[..] } else { &[all[0], all[2]] };
                            let eps = Scalar::Float(1e-3).cast(dtype.compute());
                            grad.run(inputs, &[eps], &[x[0].ndim() - 1])
                        },
                    ));
                }
            }
        }
    }
}

fn conv(sink: Sink<'_>, dtype: DType, a: Arrangement, b: Arrangement) {
    let cases: [(&[usize], &[usize], Window); 10] = [
        // image, weight and result of one shape
        (&[2, 2, 3], &[2, 2, 3], Window::new(1).padding(1)),
        (&[2, 3, 8], &[4, 3, 3], Window::new(1)),
        (&[2, 3, 9], &[4, 3, 3], Window::new(1).stride(2).padding(2).dilation(2)),
        (&[2, 3, 7, 6], &[4, 3, 3, 3], Window::new(2)),
        (&[2, 4, 7, 6], &[6, 2, 3, 2], Window::new(2).padding(1).groups(2)),
        (&[1, 3, 9, 8], &[3, 1, 3, 3], Window::new(2).stride(2).padding(1).groups(3)),
        (&[2, 3, 5, 5], &[4, 3, 1, 1], Window::new(2)),
        (
            &[1, 2, 8, 8],
            &[2, 2, 2, 3],
            Window { stride: vec![2, 1], padding: vec![0, 2], dilation: vec![1, 2], groups: 1 },
        ),
        (&[1, 2, 4, 5, 4], &[3, 2, 2, 2, 2], Window::new(3).padding(1).stride(2)),
        (&[0, 2, 5, 5], &[3, 2, 3, 3], Window::new(2)),
    ];
    for (x_shape, w_shape, window) in cases {
        // Sums of up to 54 products of size 16.
        let tolerance = near(8.0, 64.0);
        let detail = format!("{window:?}");
        let inputs = || {
            vec![
                Input::new(x_shape, dtype, a, Domain::Small, 63),
                Input::new(w_shape, dtype, b, Domain::Small, 64),
            ]
        };
        let w = window.clone();
        sink(one("conv", dtype, tolerance, inputs(), detail.clone(), move |x| {
            x[0].conv(&x[1], &w)
        }));
        let Ok(out) = conv_shape(&shape(x_shape), &shape(w_shape), &window) else {
            continue;
        };
        let g = || Input::new(out, dtype, a, Domain::Small, 65);
        let w = window.clone();
        let back = vec![g(), Input::new(w_shape, dtype, b, Domain::Small, 64)];
        sink(one(
            "conv_transpose",
            dtype,
            stepwise(dtype, 8.0, 64.0),
            back,
            detail.clone(),
            move |x| x[0].conv_transpose(&x[1], &w, &x_shape[2..]),
        ));
        let back = vec![g(), Input::new(x_shape, dtype, b, Domain::Small, 63)];
        sink(one("conv_weight_grad", dtype, near(16.0, 256.0), back, detail, move |x| {
            x[0].conv_weight_grad(&x[1], &window, &shape(w_shape))
        }));
    }
}

fn shape(sizes: &[usize]) -> Shape {
    Shape::new(sizes).expect("the suite's shapes are legal")
}

fn pool(sink: Sink<'_>, dtype: DType, arrangement: Arrangement) {
    let cases: [(&'static [usize], &'static [usize], Window); 7] = [
        (&[2, 3, 8, 6], &[2, 2], Window::new(2).stride(2)),
        (&[2, 3, 7, 7], &[3, 3], Window::new(2).stride(2).padding(1)),
        (&[6, 7], &[2, 3], Window::new(2)),
        (&[3, 9], &[3], Window::new(1).dilation(2).padding(1)),
        (&[2, 4, 4, 4], &[2, 2, 2], Window::new(3).stride(2)),
        (&[0, 3, 4, 4], &[2, 2], Window::new(2)),
        (
            &[2, 7, 8],
            &[2, 3],
            Window { stride: vec![2, 1], padding: vec![0, 1], dilation: vec![2, 1], groups: 1 },
        ),
    ];
    for (x_shape, size, window) in cases {
        let detail = format!("{size:?} {window:?}");
        for domain in [Domain::Any, Domain::Below(3)] {
            let w = window.clone();
            let body = move |_: &DeviceRef, x: &[Tensor]| {
                let (values, places) = x[0].max_pool_indices(size, &w)?;
                if !dtype.is_float() {
                    return Ok(vec![values, places]);
                }
                let (g, spatial) = (values.ones_like()?, size.len());
                let back =
                    Op::MaxPoolGrad { g: &g, positions: &places, x_shape: x[0].shape(), spatial }
                        .tensor(g.device())?;
                Ok(vec![values, places, back])
            };
            let inputs = vec![Input::new(x_shape, dtype, arrangement, domain, 66)];
            sink(Case {
                op: "max_pool",
                dtype,
                inputs,
                tolerance: EQUAL,
                detail: detail.clone(),
                body: Box::new(body),
            });
        }
        let inputs = vec![Input::new(x_shape, dtype, arrangement, Domain::Small, 67)];
        sink(one("avg_pool", dtype, stepwise(dtype, 4.0, 4.0), inputs, detail, move |x| {
            x[0].avg_pool(size, &window)
        }));
    }
}
