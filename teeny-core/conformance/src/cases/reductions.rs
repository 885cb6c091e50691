//! Reductions over every set of axes, scans, and reductions of kernels.
//!
//! Bounds: sums of terms of size 4 may lose some units of the largest partial sum, whatever the
//! order; extrema and positions are exact.

use super::{Arrangement, Case, Domain, EQUAL, Input, Sink, Tolerance, axis_sets, near, one, ulps};
use teeny_core::{DType, DeviceRef, Error, Result, Scalar, Tensor};

type Reduce = fn(&Tensor, &[usize]) -> Result<Tensor>;

fn signed(axes: &[usize]) -> Vec<i64> {
    axes.iter().map(|&a| a as i64).collect()
}

const REDUCTIONS: [(&str, Reduce, Domain, Tolerance); 12] = [
    ("sum", |x, a| x.sum(signed(a)), Domain::Small, near(8.0, 32.0)),
    ("sum_keepdim", |x, a| x.sum_keepdim(signed(a)), Domain::Small, near(8.0, 32.0)),
    ("mean", |x, a| x.mean(signed(a)), Domain::Small, near(8.0, 4.0)),
    ("prod", |x, a| x.prod(signed(a)), Domain::Positive, ulps(64.0)),
    ("max", |x, a| x.max(signed(a)), Domain::Any, EQUAL),
    ("min", |x, a| x.min(signed(a)), Domain::Any, EQUAL),
    ("max of ties", |x, a| x.max(signed(a)), Domain::Below(3), EQUAL),
    ("any", |x, a| x.any(signed(a)), Domain::Below(2), EQUAL),
    ("all", |x, a| x.all(signed(a)), Domain::Below(2), EQUAL),
    ("var", |x, a| x.var(signed(a), 1), Domain::Small, near(16.0, 8.0)),
    ("std", |x, a| x.std(signed(a), 0), Domain::Small, near(16.0, 8.0)),
    ("logsumexp", |x, a| x.logsumexp(signed(a)), Domain::Small, near(8.0, 4.0)),
];

type Along = fn(&Tensor, isize) -> Result<Tensor>;

const ALONG: [(&str, Along, Domain, Tolerance); 9] = [
    ("argmax", |x, a| x.argmax(a), Domain::Below(4), EQUAL),
    ("argmin", |x, a| x.argmin(a), Domain::Below(4), EQUAL),
    ("argmax with NaN", |x, a| x.argmax(a), Domain::Any, EQUAL),
    ("cumsum", |x, a| x.cumsum(a), Domain::Small, near(8.0, 32.0)),
    ("cumprod", |x, a| x.cumprod(a), Domain::Positive, ulps(64.0)),
    ("cummax", |x, a| Ok(x.cummax(a)?.0), Domain::Any, EQUAL),
    ("cummax, positions", |x, a| Ok(x.cummax(a)?.1), Domain::Below(4), EQUAL),
    ("cummin", |x, a| Ok(x.cummin(a)?.0), Domain::Any, EQUAL),
    ("cummin, positions", |x, a| Ok(x.cummin(a)?.1), Domain::Below(4), EQUAL),
];

/// Shapes that find edges: nothing to reduce, nothing left, no axes, one axis longer than any
/// block, many rows.
const SHAPES: [&[usize]; 7] = [&[], &[0], &[3, 0], &[1], &[2500], &[3, 700], &[300, 5]];

pub fn each(sink: Sink<'_>) {
    for dtype in DType::ALL {
        whole_range(sink, dtype);
        for (op, f, domain, tolerance) in REDUCTIONS {
            let mut add = |shape: &[usize], arrangement, axes: Vec<usize>| {
                let input = Input::new(shape, dtype, arrangement, domain, 30);
                sink(one(op, dtype, tolerance, vec![input], format!("axes {axes:?}"), move |x| {
                    f(&x[0], &axes)
                }));
            };
            for arrangement in Arrangement::ALL {
                axis_sets(3).for_each(|axes| add(&[3, 4, 5], arrangement, axes));
            }
            for shape in SHAPES {
                add(shape, Arrangement::Packed, Vec::new());
                axis_sets(shape.len()).for_each(|axes| add(shape, Arrangement::Packed, axes));
            }
            add(&[2, 3, 2, 3, 2], Arrangement::Transposed, vec![0, 2, 4]);
            add(&[3, 70], Arrangement::Sliced, vec![1]);
        }
        for (op, f, domain, tolerance) in ALONG {
            let shapes = Arrangement::ALL.iter().map(|&a| (&[3usize, 4, 5] as &[usize], a));
            for (shape, arrangement) in
                shapes.chain(SHAPES.iter().map(|&s| (s, Arrangement::Packed)))
            {
                for axis in 0..shape.len().max(1) as isize {
                    let input = Input::new(shape, dtype, arrangement, domain, 31);
                    sink(one(
                        op,
                        dtype,
                        tolerance,
                        vec![input],
                        format!("axis {axis}"),
                        move |x| f(&x[0], axis),
                    ));
                }
            }
        }
        special(sink, dtype);
        kernels(sink, dtype);
    }
}

/// Integers wrap, and neighbours far from 0 differ: sums, extrema and positions of numbers that a
/// float does not hold.
fn whole_range(sink: Sink<'_>, dtype: DType) {
    let domains: &[Domain] =
        if dtype.is_float() { &[Domain::Close] } else { &[Domain::Any, Domain::Close] };
    for &domain in domains {
        for (i, arrangement) in Arrangement::ALL.into_iter().enumerate() {
            let input = |shape: &[usize]| vec![Input::new(shape, dtype, arrangement, domain, 34)];
            let detail = || format!("{domain:?} of the whole range");
            for (op, f, _, _) in REDUCTIONS {
                let exact = match op {
                    "sum" | "prod" | "sum_keepdim" => !dtype.is_float(),
                    _ => matches!(op, "max" | "min" | "any" | "all"),
                };
                if exact {
                    let axes = [vec![1], vec![0, 2], vec![2]][i % 3].clone();
                    sink(one(op, dtype, EQUAL, input(&[3, 4, 5]), detail(), move |x| {
                        f(&x[0], &axes)
                    }));
                }
            }
            for (op, f, _, _) in ALONG {
                if !dtype.is_float() || !op.starts_with("cumsum") && !op.starts_with("cumprod") {
                    let axis = (i % 3) as isize;
                    sink(one(op, dtype, EQUAL, input(&[3, 4, 5]), detail(), move |x| {
                        f(&x[0], axis)
                    }));
                }
            }
        }
    }
}

/// NaN and infinities reach sums, and a -inf does not hide a number.
fn special(sink: Sink<'_>, dtype: DType) {
    if !dtype.is_float() {
        return;
    }
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    let values =
        [1.0, nan, 2.0, 3.0, inf, 1.0, -inf, inf, 2.0, -inf, -inf, -inf].map(Scalar::Float);
    let rows = |op, f: Unary| {
        one(
            op,
            dtype,
            near(8.0, 4.0),
            vec![Input::of(values, (4, 3), dtype, Arrangement::Packed)],
            "infinities".to_string(),
            f,
        )
    };
    type Unary = fn(&[Tensor]) -> Result<Tensor>;
    sink(rows("sum", |x| x[0].sum(1)));
    sink(rows("mean", |x| x[0].mean(1)));
    sink(rows("prod", |x| x[0].prod(1)));
    sink(rows("max", |x| x[0].max(1)));
    sink(rows("min", |x| x[0].min(0)));
    sink(rows("logsumexp", |x| x[0].logsumexp(1)));
    sink(rows("cumsum", |x| x[0].cumsum(1)));
}

/// The device's own fused path: a kernel reduced without storing its results.
fn kernels(sink: Sink<'_>, dtype: DType) {
    use std::sync::Arc;
    use teeny_core::{Kernel, Op, ReduceOp};
    for (i, arrangement) in Arrangement::ALL.into_iter().enumerate() {
        let other = Arrangement::ALL[(i + 2) % 7];
        let inputs = vec![
            Input::new((4, 5, 6), dtype, arrangement, Domain::Small, 32),
            Input::new((4, 5, 6), dtype, other, Domain::Small, 33),
        ];
        for (op, axes) in [
            (ReduceOp::Sum, vec![0]),
            (ReduceOp::Sum, vec![1, 2]),
            (ReduceOp::Max, vec![0, 2]),
            (ReduceOp::ArgMax, vec![1]),
        ] {
            let detail = format!("{op:?} {axes:?}");
            let body = move |device: &DeviceRef, x: &[Tensor]| {
                let kernel = Arc::new(Kernel::build([dtype, dtype], [], |[a, b], []| [a * b])?);
                let product = kernel.output_dtype(0);
                if product == DType::Bool {
                    return Err(Error::dtype("bools are not summed"));
                }
                let y = Op::ReduceKernel {
                    kernel: &kernel,
                    inputs: &[&x[0], &x[1]],
                    params: &[],
                    shape: x[0].shape(),
                    op,
                    axes: &axes,
                }
                .tensor(device)?;
                Ok(vec![y])
            };
            sink(Case {
                op: "reduce of a kernel",
                dtype,
                inputs: inputs.clone(),
                tolerance: near(8.0, 128.0),
                detail,
                body: Box::new(body),
            });
        }
    }
}
