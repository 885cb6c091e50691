//! Reductions, scans, sorts, normalisation of rows, losses.

use super::{ALL, Drawn, FLOATS, NUMBERS, SweepOp, axis};
use crate::bench::sweep::case::Fill;
use crate::bench::sweep::draw::{Draw, MAX_ELEMENTS, TRANSFORMERS};
use teeny_core::{DType, Extremum, Result, SortOrder, Tensor};

type AlongAxis = fn(&Tensor, isize) -> Result<Tensor>;

/// The name, how often, the types, whether there is a gradient, the function.
const REDUCTIONS: &[(&str, usize, &[DType], bool, AlongAxis)] = &[
    ("sum", 6, NUMBERS, true, |x, a| x.sum(a)),
    ("mean", 4, FLOATS, true, |x, a| x.mean(a)),
    ("prod", 1, FLOATS, true, |x, a| x.prod(a)),
    ("max", 4, NUMBERS, true, |x, a| x.max(a)),
    ("min", 2, NUMBERS, true, |x, a| x.min(a)),
    ("argmax", 4, NUMBERS, false, |x, a| x.argmax(a)),
    ("argmin", 1, NUMBERS, false, |x, a| x.argmin(a)),
    ("var", 2, FLOATS, true, |x, a| x.var(a, 1)),
    ("std", 1, FLOATS, true, |x, a| x.std(a, 1)),
    ("logsumexp", 1, FLOATS, true, |x, a| x.logsumexp(a)),
];
const SCANS: &[(&str, usize, AlongAxis)] = &[
    ("cumsum", 3, |x, a| x.cumsum(a)),
    ("cumprod", 1, |x, a| x.cumprod(a)),
    ("cummax", 1, |x, a| Ok(x.cummax(a)?.0)),
];

/// A shape with an axis that may be reduced to a statistic of two elements at least.
fn reduced(draw: &mut Draw) -> (Vec<usize>, isize) {
    let mut shape = draw.activation();
    let axis = axis(draw, &shape);
    shape[axis as usize] = shape[axis as usize].max(2);
    (shape, axis)
}

pub(super) fn rows(rows: &mut Vec<SweepOp>) {
    for &(name, weight, types, grad, f) in REDUCTIONS {
        let row = SweepOp::new(name, weight, types, move |draw, _| {
            let (shape, axis) = reduced(draw);
            Drawn::one(shape, Fill::Normal, move |x| f(x, axis)).arg(axis)
        })
        .strided();
        rows.push(if grad { row } else { row.without_grad() });
    }
    for (name, weight, f) in [
        ("sum_all", 2, (|x| x.sum_all()) as fn(&Tensor) -> Result<Tensor>),
        ("max_all", 1, |x| x.max_all()),
    ] {
        rows.push(
            SweepOp::new(name, weight, NUMBERS, move |draw, _| {
                Drawn::one(draw.activation(), Fill::Normal, f)
            })
            .strided(),
        );
    }
    // Statistics of channels, as in batch normalisation.
    rows.push(SweepOp::new("sum_channels", 2, FLOATS, |draw, _| {
        Drawn::one(draw.images(), Fill::Normal, |x| x.sum([0, 2, 3])).arg([0, 2, 3])
    }));
    rows.push(SweepOp::new("var_channels", 1, FLOATS, |draw, _| {
        let mut shape = draw.images();
        shape[0] = shape[0].max(2);
        Drawn::one(shape, Fill::Normal, |x| x.var([0, 2, 3], 0)).arg([0, 2, 3])
    }));
    for (name, f) in [("any", (|x, a| x.any(a)) as AlongAxis), ("all", |x, a| x.all(a))] {
        rows.push(
            SweepOp::new(name, 1, &[DType::Bool], move |draw, _| {
                let (shape, axis) = reduced(draw);
                Drawn::one(shape, Fill::Normal, move |x| f(x, axis)).arg(axis)
            })
            .strided()
            .without_grad(),
        );
    }
    for &(name, weight, f) in SCANS {
        rows.push(
            SweepOp::new(name, weight, FLOATS, move |draw, _| {
                let (shape, axis) = reduced(draw);
                Drawn::one(shape, Fill::Unit, move |x| f(x, axis)).arg(axis)
            })
            .strided(),
        );
    }
    sorted(rows);
    normalised(rows);
}

/// Sorts and selections.
fn sorted(rows: &mut Vec<SweepOp>) {
    /// At most 2^20 elements, as sorting takes long.
    fn matrix(draw: &mut Draw) -> Vec<usize> {
        let mut shape = draw.matrix();
        shape[0] = shape[0].min((1 << 20) / shape[1]).max(1);
        shape[1] = shape[1].min(1 << 20);
        shape
    }
    rows.push(SweepOp::new("sort", 3, NUMBERS, |draw, _| {
        let (shape, descending) = (matrix(draw), draw.chance(0.5));
        let axis = if draw.chance(0.2) { 0 } else { -1 };
        Drawn::one(shape, Fill::Normal, move |x| {
            let order = if descending { SortOrder::Descending } else { SortOrder::Ascending };
            Ok(x.sort(axis, order)?.0)
        })
        .arg(axis)
        .arg(descending)
    }));
    rows.push(
        SweepOp::new("argsort", 1, NUMBERS, |draw, _| {
            Drawn::one(matrix(draw), Fill::Normal, |x| x.argsort(-1, SortOrder::Ascending))
                .arg(-1)
                .arg(false)
        })
        .without_grad(),
    );
    rows.push(SweepOp::new("topk", 4, NUMBERS, |draw, _| {
        let shape = matrix(draw);
        let k = draw.pick(&[1, 2, 5, 8, 10, 40, 50, 100]).min(shape[1]);
        let largest = draw.chance(0.8);
        Drawn::one(shape, Fill::Normal, move |x| {
            let extremum = if largest { Extremum::Largest } else { Extremum::Smallest };
            Ok(x.topk(k, -1, extremum)?.0)
        })
        .arg(k)
        .arg(-1)
        .arg(largest)
    }));
}

/// Softmax, normalisation, losses.
fn normalised(rows: &mut Vec<SweepOp>) {
    for (name, weight, f) in [
        ("softmax", 5, (|x, a| x.softmax(a)) as AlongAxis),
        ("log_softmax", 2, |x, a| x.log_softmax(a)),
    ] {
        rows.push(
            SweepOp::new(name, weight, FLOATS, move |draw, _| {
                let shape = draw.activation();
                let axis = if draw.chance(0.75) { -1 } else { axis(draw, &shape) };
                Drawn::one(shape, Fill::Normal, move |x| f(x, axis)).arg(axis)
            })
            .strided(),
        );
    }
    rows.push(SweepOp::new("cross_entropy", 3, FLOATS, |draw, _| {
        let classes = if draw.chance(0.5) {
            draw.pick(TRANSFORMERS)[3]
        } else {
            draw.pick(&[2, 10, 100, 1000])
        };
        let samples = draw.log(1, (MAX_ELEMENTS / classes).min(4096));
        let inputs =
            vec![(vec![samples, classes], Fill::Normal), (vec![samples], Fill::Index(classes))];
        Drawn::of(inputs, |x| x[0].cross_entropy(&x[1], None))
    }));
    rows.push(SweepOp::new("layer_norm", 4, FLOATS, |draw, _| {
        let shape = if draw.chance(0.8) { draw.sequences() } else { draw.matrix() };
        let row = (vec![shape[shape.len() - 1]], Fill::Positive);
        Drawn::of(vec![(shape, Fill::Normal), row.clone(), row], |x| {
            x[0].layer_norm(1, Some(&x[1]), Some(&x[2]), 1e-5)
        })
    }));
    rows.push(SweepOp::new("rms_norm", 2, FLOATS, |draw, _| {
        let shape = if draw.chance(0.8) { draw.sequences() } else { draw.matrix() };
        let row = (vec![shape[shape.len() - 1]], Fill::Positive);
        Drawn::of(vec![(shape, Fill::Normal), row], |x| x[0].rms_norm(1, Some(&x[1]), 1e-5))
    }));
    rows.push(SweepOp::new("norm", 1, FLOATS, |draw, _| {
        let (shape, axis) = reduced(draw);
        Drawn::one(shape, Fill::Normal, move |x| x.vector_norm(2.0, axis)).arg(axis)
    }));
    rows.push(
        SweepOp::new("one_hot", 1, &[DType::F32], |draw, _| {
            let (n, classes) = (draw.log(16, 4096), draw.pick(&[2, 10, 27, 65, 100, 1000]));
            Drawn::of(vec![(vec![n], Fill::Index(classes))], move |x| {
                x[0].one_hot(classes, DType::F32)
            })
            .arg(classes)
        })
        .without_grad(),
    );
    rows.push(
        SweepOp::new("logical_sum", 1, ALL, |draw, _| {
            // How many elements differ: the accuracy of a classifier.
            let n = draw.log(16, MAX_ELEMENTS);
            Drawn::of(vec![(vec![n], Fill::Normal); 2], |x| {
                x[0].eq(&x[1])?.cast(DType::F32)?.mean_all()
            })
        })
        .without_grad(),
    );
}
