//! Transfers to and from the host, copies, views, assignment, filling and random numbers.

use super::{Arrangement, BITS, Case, Domain, EQUAL, Input, Sink, near, numbers, one, ulps};
use teeny_core::{DType, DeviceRef, Distribution, Key, Result, Tensor};

/// The shapes that find edges: vectors with tails, one element, none, no axes.
pub const SHAPES: [&[usize]; 7] = [&[], &[1], &[0], &[3, 0, 2], &[2, 3, 4, 2], &[1037], &[3, 129]];

pub fn each(sink: Sink<'_>) {
    for dtype in DType::ALL {
        for arrangement in Arrangement::ALL {
            let input = || Input::new((5, 6), dtype, arrangement, Domain::Any, 1);
            sink(one("upload, download", dtype, BITS, vec![input()], String::new(), |x| {
                Ok(x[0].clone())
            }));
            sink(one("copy", dtype, BITS, vec![input()], String::new(), |x| x[0].copy()));
            for (name, view) in VIEWS {
                sink(one("view", dtype, BITS, vec![input()], name.to_string(), move |x| {
                    view(&x[0])
                }));
                sink(one("view, copied", dtype, BITS, vec![input()], name.to_string(), move |x| {
                    view(&x[0])?.copy()
                }));
            }
            assign(sink, dtype, arrangement);
        }
        for shape in SHAPES {
            for arrangement in [Arrangement::Packed, Arrangement::Sliced] {
                let input = || Input::new(shape, dtype, arrangement, Domain::Any, 2);
                sink(one("upload, download", dtype, BITS, vec![input()], String::new(), |x| {
                    Ok(x[0].clone())
                }));
                sink(one("copy", dtype, BITS, vec![input()], String::new(), |x| x[0].copy()));
            }
            fill(sink, dtype, shape);
            in_parts(sink, dtype, shape);
        }
        random(sink, dtype);
        new_storage(sink, dtype);
    }
    many_draws(sink);
}

type View = fn(&Tensor) -> Result<Tensor>;

/// Views of a (5, 6), alone and of views.
const VIEWS: [(&str, View); 10] = [
    ("t", |x| x.t()),
    ("slice, flip, t", |x| x.slice(0, 1..4)?.flip(1)?.t()),
    ("slice_step backwards", |x| x.slice_step(1, 1..6, -2)),
    ("reshape (3, 10)", |x| x.reshape((3, 10))),
    ("t, reshape (3, 10)", |x| x.t()?.reshape((3, 10))),
    ("slice, reshape (-1,)", |x| x.slice(1, 2..5)?.reshape(-1)),
    ("diagonal", |x| x.diagonal(1, 0, 1)),
    ("unfold, permute", |x| x.unfold(1, 3, 2)?.permute([2, 0, 1])),
    ("at, expand", |x| x.at(0, -2)?.unsqueeze(0)?.expand((3, 6))),
    ("empty slice", |x| x.slice(0, 2..2)),
];

fn assign(sink: Sink<'_>, dtype: DType, arrangement: Arrangement) {
    let parts: [(&'static str, View, [usize; 2]); 5] = [
        ("rows", |x| x.slice(0, 1..4), [3, 6]),
        ("columns of the transposed", |x| x.t()?.slice(0, 2..4), [2, 5]),
        ("every second, backwards", |x| x.slice_step(1, .., -2), [5, 3]),
        ("diagonal", |x| x.diagonal(0, 0, 1)?.unsqueeze(0), [1, 5]),
        ("nothing", |x| x.slice(1, 3..3), [5, 0]),
    ];
    for (name, part, shape) in parts {
        let inputs = || {
            vec![
                Input::new((5, 6), dtype, Arrangement::Packed, Domain::Any, 3),
                Input::new(shape, dtype, arrangement, Domain::Any, 4),
            ]
        };
        // In place: the handle given away is the only one of its storage.
        sink(one("assign", dtype, BITS, inputs(), name.to_string(), move |x| {
            x[0].copy()?.assign_view(part, &x[1])
        }));
        // On a copy: the other handle must not change.
        sink(Case {
            op: "assign, shared",
            dtype,
            inputs: inputs(),
            tolerance: BITS,
            detail: name.to_string(),
            body: Box::new(move |_, x| {
                Ok(vec![x[0].clone().assign_view(part, &x[1])?, x[0].clone()])
            }),
        });
    }
    let inputs = vec![Input::new((5, 5), dtype, arrangement, Domain::Any, 5)];
    if !matches!(arrangement, Arrangement::Expanded | Arrangement::Repeated) {
        sink(one("assign, from itself", dtype, BITS, inputs, "x[..] = x.t()".to_string(), |x| {
            x[0].clone().assign_view(|x| Ok(x.clone()), &x[0].t()?)
        }));
    }
}

fn made(
    op: &'static str,
    dtype: DType,
    body: impl Fn(&DeviceRef) -> Result<Tensor> + Send + Sync + 'static,
    detail: String,
) -> Case {
    let body = move |device: &DeviceRef, _: &[Tensor]| Ok(vec![body(device)?]);
    Case { op, dtype, inputs: Vec::new(), tolerance: EQUAL, detail, body: Box::new(body) }
}

fn fill(sink: Sink<'_>, dtype: DType, shape: &'static [usize]) {
    for value in numbers(dtype) {
        sink(made(
            "full",
            dtype,
            move |device| Tensor::full(shape, value, dtype, device),
            format!("{shape:?} of {value}"),
        ));
    }
    for (start, end) in [(0.0, 1.0), (-3.7, 2.9), (7.0, -7.0), (0.1, 100.3)] {
        let count = shape.iter().product();
        sink(made(
            "linspace",
            dtype,
            move |device| Tensor::linspace(start, end, count, dtype, device),
            format!("{count} from {start} to {end}"),
        ));
    }
}

fn random(sink: Sink<'_>, dtype: DType) {
    // Most of the type's range, as far as i64 counts it.
    let most = i64::MAX >> (64 - 8 * dtype.size());
    let low = if dtype.is_unsigned_int() { 5 } else { -most / 3 };
    let draws: [(&'static str, Distribution); 6] = [
        ("random integers", Distribution::Integer { low, high: most }),
        ("uniform", Distribution::Uniform { low: 0.0, high: 1.0 }),
        ("uniform", Distribution::Uniform { low: -3.0, high: 5.5 }),
        ("normal", Distribution::Normal { mean: 0.5, std: 2.0 }),
        ("random integers", Distribution::Integer { low: 0, high: 100 }),
        ("bernoulli", Distribution::Bernoulli { p: 0.3 }),
    ];
    for (op, distribution) in draws {
        for (shape, key) in [
            (vec![3, 5], Key { seed: 7, draw: 0 }),
            (vec![], Key { seed: u64::MAX, draw: 1 << 40 }),
            (vec![0], Key { seed: 1, draw: 2 }),
        ] {
            let detail = format!("{distribution:?} {shape:?} {key:?}");
            let mut case = made(
                op,
                dtype,
                move |device| Tensor::random(distribution, &shape, dtype, key, device),
                detail,
            );
            if op == "normal" {
                case.tolerance = ulps(4.0);
            }
            sink(case);
        }
    }
}

/// More draws than a generator may repeat after, which no small tensor would show; and enough that
/// some 16-bit floats are drawn so near the upper end that rounding would reach it.
fn many_draws(sink: Sink<'_>) {
    let len = (1 << 18) + 100;
    let ends = [(0.0, 1.0), (-3.0, 0.0), (-2.0, -1.0), (0.3, 0.30001)];
    let halves = [DType::F16, DType::BF16].into_iter().flat_map(|dtype| {
        ends.map(|(low, high)| ("uniform", dtype, Distribution::Uniform { low, high }))
    });
    let others = [
        ("uniform", DType::F32, Distribution::Uniform { low: 0.0, high: 1.0 }),
        ("normal", DType::F32, Distribution::Normal { mean: 0.0, std: 1.0 }),
        ("random integers", DType::I32, Distribution::Integer { low: -5, high: 1 << 20 }),
        ("bernoulli", DType::Bool, Distribution::Bernoulli { p: 0.5 }),
    ];
    for (op, dtype, distribution) in others.into_iter().chain(halves) {
        let key = Key { seed: 3, draw: 5 };
        let detail = format!("{len} of {distribution:?}");
        let mut case = made(
            op,
            dtype,
            move |device| Tensor::random(distribution, [len], dtype, key, device),
            detail,
        );
        if op == "normal" {
            case.tolerance = near(4.0, 1.0);
        }
        sink(case);
    }
}

/// Bytes that a device asks for in parts.
fn in_parts(sink: Sink<'_>, dtype: DType, shape: &'static [usize]) {
    let inputs = vec![Input::new(1, dtype, Arrangement::Packed, Domain::Any, 6)];
    let body = move |x: &[Tensor]| {
        let most = if dtype == DType::Bool { 2 } else { 61 };
        Tensor::from_bytes_with(shape, dtype, x[0].device(), |at, part| {
            part.iter_mut().enumerate().for_each(|(i, to)| *to = ((at + i) * 7 % most) as u8);
            Ok(())
        })
    };
    let detail = format!("in parts, {shape:?}");
    sink(one("upload, download", dtype, BITS, inputs, detail, body));
}

/// A device returns new storage: a result that is its input's storage would change with it.
fn new_storage(sink: Sink<'_>, dtype: DType) {
    let makes: [(&str, View); 6] = [
        ("copy", |x| x.copy()),
        ("cat of one", |x| Tensor::cat(&[x], 0)),
        ("cat with nothing", |x| Tensor::cat(&[x, &x.slice(0, 0..0)?], 0)),
        ("scatter of nothing", |x| {
            let none = Tensor::zeros((0, 6), DType::I64, x)?;
            x.scatter(0, &none, &x.slice(0, 0..0)?)
        }),
        ("assignment to a shared tensor", |x| {
            x.clone().assign_view(|x| x.slice(0, 0..1), &x.slice(0, 1..2)?)
        }),
        ("gather of everything", |x| x.index_select(0, &Tensor::arange(0i64, 5, 1, x)?)),
    ];
    for (name, make) in makes {
        let inputs = vec![Input::new((5, 6), dtype, Arrangement::Packed, Domain::Any, 6)];
        let body = move |device: &DeviceRef, x: &[Tensor]| {
            let made = make(&x[0])?;
            let shared = Tensor::full((), made.same_storage(&x[0]), DType::Bool, device)?;
            Ok(vec![shared, made])
        };
        sink(Case {
            op: "new storage",
            dtype,
            inputs,
            tolerance: BITS,
            detail: name.to_string(),
            body: Box::new(body),
        });
    }
}
