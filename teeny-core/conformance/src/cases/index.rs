//! Gathering, scattering, sorting and the structural operations made of them. All exact, except
//! sums of duplicates.

use super::{
    Arrangement, BITS, Case, Domain, EQUAL, Input, Sink, Tolerance, numbers, one, stepwise,
};
use teeny_core::{DType, Extremum, NewAxis, Op, Result, Scalar, SortOrder, Tensor, Window, s};

const INDEX: [DType; 4] = [DType::I64, DType::I32, DType::U8, DType::U32];

pub fn each(sink: Sink<'_>) {
    far_positions(sink);
    long_axes(sink);
    for dtype in DType::ALL {
        for (i, arrangement) in Arrangement::ALL.into_iter().enumerate() {
            let other = Arrangement::ALL[(i + 3) % 7];
            gather(sink, dtype, arrangement, other, INDEX[i % 4]);
            scatter(sink, dtype, arrangement, other, INDEX[i % 4]);
            sort(sink, dtype, arrangement);
            positions(sink, dtype, arrangement, other);
            structure(sink, dtype, arrangement);
            subscripts(sink, dtype, arrangement, other, INDEX[i % 4]);
        }
        edges(sink, dtype);
    }
}

fn gather(sink: Sink<'_>, dtype: DType, a: Arrangement, b: Arrangement, index: DType) {
    for (axis, shape) in [(0isize, [7, 5]), (1, [4, 9]), (-2, [2, 3])] {
        let size = if axis == 1 { 5 } else { 4 };
        let inputs = || {
            vec![
                Input::new((4, 5), dtype, a, Domain::Any, 50),
                Input::new(shape, index, b, Domain::Below(size), 51),
            ]
        };
        sink(one("gather", dtype, BITS, inputs(), format!("axis {axis}"), move |x| {
            x[0].gather(axis, &x[1])
        }));
        sink(one("index_select", dtype, BITS, inputs(), format!("axis {axis}"), move |x| {
            x[0].index_select(axis, &x[1])
        }));
    }
}

type Part = fn(&[Tensor]) -> Result<Tensor>;
const PARTS: [(&str, Part); 6] = [
    ("[1..;2, NewAxis, ..;-1]", |x| x[0].index(s![1..;2, NewAxis, ..;-1])),
    ("[rows]", |x| x[0].index(&x[1])),
    ("[rows, -columns]", |x| x[0].index((&x[1], [-1, 0, -4]))),
    ("[mask]", |x| x[0].index(x[0].ne(0)?)),
    ("[rows, 1..] = y", |x| x[0].clone().assign(s![&x[1], 1..], &x[2])),
    ("[mask] = y", |x| x[0].clone().assign(x[0].ne(0)?, x[2].at(1, 0)?.at(0, 0)?)),
];

fn subscripts(sink: Sink<'_>, dtype: DType, a: Arrangement, b: Arrangement, index: DType) {
    for (name, f) in PARTS {
        let inputs = vec![
            Input::new((4, 5), dtype, a, Domain::Small, 60),
            Input::new(3, index, b, Domain::Below(4), 61),
            Input::new((3, 4), dtype, b, Domain::Small, 62),
        ];
        let op = if name.contains('=') { "assign by index" } else { "index" };
        sink(one(op, dtype, BITS, inputs, name.to_string(), f));
    }
}

type Scatter = fn(&Tensor, isize, &Tensor, &Tensor) -> Result<Tensor>;
const SCATTER: [(&str, Scatter, Tolerance); 4] = [
    ("scatter", |x, axis, i, s| x.scatter(axis, i, s), BITS),
    ("scatter_add", |x, axis, i, s| x.scatter_add(axis, i, s), EQUAL),
    ("scatter_max", |x, axis, i, s| x.scatter_max(axis, i, s), EQUAL),
    ("scatter_min", |x, axis, i, s| x.scatter_min(axis, i, s), EQUAL),
];

fn scatter(sink: Sink<'_>, dtype: DType, a: Arrangement, b: Arrangement, index: DType) {
    for (op, f, tolerance) in SCATTER {
        // Some devices round a 16-bit sum after each arrival, as atomics do.
        let tolerance = if op == "scatter_add" { stepwise(dtype, 8.0, 16.0) } else { tolerance };
        for (axis, shape) in [(0isize, [9usize, 5]), (1, [4, 9]), (0, [6, 2]), (1, [3, 0])] {
            let domain = if op == "scatter_add" { Domain::Small } else { Domain::Any };
            // Fewer places than arrivals: duplicates are certain.
            let inputs = vec![
                Input::new((4, 5), dtype, a, domain, 52),
                Input::new(shape, index, b, Domain::Below(4), 53),
                Input::new(shape, dtype, a, domain, 54),
            ];
            sink(one(op, dtype, tolerance, inputs, format!("axis {axis}"), move |x| {
                f(&x[0], axis, &x[1], &x[2])
            }));
        }
    }
}

fn sort(sink: Sink<'_>, dtype: DType, arrangement: Arrangement) {
    for (shape, axis) in [
        (vec![4, 6], 0),
        (vec![4, 6], 1),
        (vec![2, 3, 40], 2),
        (vec![1], 0),
        (vec![0, 3], 0),
        (vec![3, 0], 0),
    ] {
        for order in [SortOrder::Ascending, SortOrder::Descending] {
            for domain in [Domain::Any, Domain::Below(4)] {
                let body = move |_: &_, x: &[Tensor]| {
                    x[0].sort(axis, order).map(|(values, places)| vec![values, places])
                };
                let inputs = vec![Input::new(shape.clone(), dtype, arrangement, domain, 55)];
                let detail = format!("axis {axis}, {order:?}");
                sink(Case {
                    op: "sort",
                    dtype,
                    inputs,
                    tolerance: EQUAL,
                    detail,
                    body: Box::new(body),
                });
            }
        }
    }
    // Neighbours that are equal as f64, on both sides of the sign of 64 bits.
    if matches!(dtype, DType::I64 | DType::U64) {
        let far = [
            (1u64 << 53) + 1,
            1 << 53,
            (1 << 62) + 3,
            (1 << 62) + 1,
            (1 << 62) + 2,
            (1 << 63) + 1,
            1 << 63,
            u64::MAX,
            5,
        ]
        .map(Scalar::UInt);
        for order in [SortOrder::Ascending, SortOrder::Descending] {
            let inputs = vec![Input::of(far.map(|x| x.cast(dtype)), 9, dtype, arrangement)];
            let body = move |_: &_, x: &[Tensor]| {
                x[0].sort(0, order).map(|(values, places)| vec![values, places])
            };
            sink(Case {
                op: "sort",
                dtype,
                inputs,
                tolerance: EQUAL,
                detail: "neighbours".to_string(),
                body: Box::new(body),
            });
        }
    }
    for domain in [Domain::Below(5), Domain::Any, Domain::Close] {
        for (axis, extremum) in [(1, Extremum::Largest), (0, Extremum::Smallest)] {
            let inputs = vec![Input::new((6, 8), dtype, arrangement, domain, 56)];
            let body = move |_: &_, x: &[Tensor]| {
                x[0].topk(3, axis, extremum).map(|(values, places)| vec![values, places])
            };
            sink(Case {
                op: "topk",
                dtype,
                inputs,
                tolerance: EQUAL,
                detail: format!("axis {axis}, {extremum:?}"),
                body: Box::new(body),
            });
        }
    }
}

/// Positions that 16 bits do not hold, of elements that rise along their axis.
fn far_positions(sink: Sink<'_>) {
    let rows: [(&'static str, Places); 6] = [
        ("argmax", |x| x.argmax(0)),
        ("argmin", |x| x.neg()?.argmin(0)),
        ("cummax, positions", |x| Ok(x.cummax(0)?.1)),
        ("cummin, positions", |x| Ok(x.neg()?.cummin(0)?.1)),
        ("sort", |x| Ok(x.sort(0, SortOrder::Descending)?.1)),
        ("topk", |x| Ok(x.topk(2, 0, Extremum::Largest)?.1)),
    ];
    for (op, f) in rows {
        let body = move |x: &[Tensor]| f(&x[0]);
        let rising = (0..33_000).map(|i| Scalar::Float(f64::from(i)));
        let input = Input::of(rising, 33_000, DType::F32, Arrangement::Packed);
        sink(one(op, DType::F32, EQUAL, vec![input], "far positions".to_string(), body));
    }
    let rising = (0..33_000).map(|i| Scalar::Float(f64::from(i)));
    let input = Input::of(rising, (1, 33_000), DType::F32, Arrangement::Packed);
    sink(one("max_pool", DType::F32, EQUAL, vec![input], "far positions".to_string(), |x| {
        Ok(x[0].max_pool_indices(&[3], &Window::new(1).stride(3))?.1)
    }));
}

/// Positions that 8 bits and 16-bit floats do not hold.
fn long_axes(sink: Sink<'_>) {
    for kind in [DType::I16, DType::U16] {
        let inputs = vec![
            Input::new(3_000, DType::F32, Arrangement::Packed, Domain::Small, 57),
            Input::new(700, kind, Arrangement::Stepped, Domain::Below(3_000), 58),
        ];
        sink(one("gather", DType::F32, BITS, inputs, format!("far places of {kind}"), |x| {
            x[0].gather(0, &x[1])
        }));
    }
}

type Places = fn(&Tensor) -> Result<Tensor>;

/// Positions in axes of many sizes, most of them outside, which become -1.
fn positions(sink: Sink<'_>, dtype: DType, a: Arrangement, b: Arrangement) {
    if !dtype.is_int() {
        return;
    }
    // More positions than a float of the type's width tells apart.
    let far = 1usize << 53.min(8 * dtype.size() - 2).min(usize::BITS as usize - 2);
    for (sizes, domain) in [
        (vec![4usize, 3], Domain::Small),
        (vec![100, 70_000], Domain::Any),
        (vec![9, 1 << 50], Domain::Close),
        (vec![200, 7], Domain::Below(200)),
        (vec![far + 8], Domain::Small),
        (vec![1, far + 8], Domain::Small),
        (vec![1, 1, far + 8], Domain::Small),
    ] {
        let last = sizes.len() - 1;
        let mut inputs = vec![Input::new((5, 6), dtype, a, Domain::Small, 63); last];
        inputs.push(match sizes[last] == far + 8 {
            false => Input::new((5, 6), dtype, b, domain, 64),
            true => {
                let place = |i: usize| match i % 3 {
                    0 => Scalar::Int(-1 - i as i64),
                    _ => Scalar::UInt((far + i % 6) as u64),
                };
                Input::of((0..30).map(place), (5, 6), dtype, b)
            }
        });
        let detail = format!("{sizes:?}");
        let body = move |x: &[Tensor]| {
            let indices: Vec<&Tensor> = x.iter().collect();
            Op::Positions { indices: &indices, sizes: &sizes }.tensor(x[0].device())
        };
        sink(one("positions", dtype, EQUAL, inputs, detail, body));
    }
}

type Structural = fn(&Tensor) -> Result<Tensor>;
const STRUCTURE: [(&str, Structural); 8] = [
    ("cat", |x| Tensor::cat(&[x, &x.slice(0, 1..)?, x], 0)),
    ("cat", |x| Tensor::cat(&[x, &x.slice(1, 0..0)?, &x.flip(1)?], 1)),
    ("stack", |x| Tensor::stack(&[x, &x.flip(0)?], -1)),
    ("repeat", |x| x.repeat((2, 1, 3))),
    ("roll", |x| x.roll(1, -2)),
    ("tril", |x| x.tril(1)),
    ("triu", |x| x.triu(-1)),
    ("nonzero", |x| x.nonzero()),
];

fn structure(sink: Sink<'_>, dtype: DType, arrangement: Arrangement) {
    for (op, f) in STRUCTURE {
        let inputs = vec![Input::new((4, 5), dtype, arrangement, Domain::Any, 57)];
        sink(one(op, dtype, BITS, inputs, String::new(), move |x| f(&x[0])));
    }
    for value in numbers(dtype) {
        let inputs = vec![Input::new((4, 5), dtype, arrangement, Domain::Any, 57)];
        sink(one("pad", dtype, BITS, inputs, value.to_string(), move |x| {
            x[0].pad(&[(1, 2), (0, 1)], value)
        }));
    }
}

/// Nothing to gather, no axes, and positions outside.
fn edges(sink: Sink<'_>, dtype: DType) {
    let x = || Input::new((4, 5), dtype, Arrangement::Packed, Domain::Small, 58);
    let places = |values: &[i64], shape: &[usize]| {
        Input::of(values.iter().copied(), shape, DType::I64, Arrangement::Packed)
    };
    sink(one("gather", dtype, BITS, vec![x(), places(&[], &[0, 5])], "nothing".to_string(), |x| {
        x[0].gather(0, &x[1])
    }));
    sink(one(
        "index_select",
        dtype,
        BITS,
        vec![x(), places(&[2], &[])],
        "a scalar index".to_string(),
        |x| x[0].index_select(1, &x[1]),
    ));
    sink(one(
        "index_select",
        dtype,
        BITS,
        vec![x(), places(&[], &[0])],
        "nothing".to_string(),
        |x| x[0].index_select(1, &x[1]),
    ));
    let far = Input::of([200i64, 255, 0, 299 - 45, 128], 5, DType::U8, Arrangement::Packed);
    let long = || Input::new(300, dtype, Arrangement::Packed, Domain::Any, 59);
    sink(one(
        "gather",
        dtype,
        BITS,
        vec![long(), far.clone()],
        "positions above 127 as u8".to_string(),
        |x| x[0].gather(0, &x[1]),
    ));
    sink(one(
        "index_select",
        dtype,
        BITS,
        vec![long(), far],
        "positions above 127 as u8".to_string(),
        |x| x[0].index_select(0, &x[1]),
    ));
    for (bad, kind) in [
        (u32::MAX as i64, DType::U32),
        (1 << 31, DType::U32),
        (-1, DType::I8),
        (-3, DType::I32),
        (254, DType::U8),
    ] {
        let index = Input::of([0, 1, bad], 3, kind, Arrangement::Packed);
        sink(one(
            "index outside",
            dtype,
            BITS,
            vec![x(), index],
            format!("{bad} as {kind}"),
            |x| x[0].index_select(0, &x[1]),
        ));
    }
    for bad in [4, -1, 1 << 32, (1 << 32) + 1, -(1 << 32), i64::MAX] {
        let inputs = || vec![x(), places(&[0, 1, 3, bad, 2], &[1, 5])];
        sink(one("index outside", dtype, BITS, inputs(), format!("gather at {bad}"), |x| {
            x[0].gather(0, &x[1])
        }));
        sink(one("index outside", dtype, BITS, inputs(), format!("scatter at {bad}"), |x| {
            x[0].scatter(0, &x[1], &x[0].slice(0, 0..1)?)
        }));
    }
}
