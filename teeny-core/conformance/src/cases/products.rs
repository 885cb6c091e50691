//! Matrix products: every pair of ranks, every layout, sizes 0 and 1, sizes around blocks.

use super::{Arrangement, Domain, Input, Sink, near, one, pairs};
use teeny_core::{DType, Scalar, Tensor};

/// (.., m, k) @ (.., k, n): ranks, broadcast batches, nothing along each axis, sizes that no block
/// divides.
const SHAPES: [(&[usize], &[usize]); 17] = [
    (&[3], &[3]),
    (&[3], &[3, 4]),
    (&[2, 3], &[3]),
    (&[2, 3], &[3, 4]),
    (&[5, 2, 3], &[3]),
    (&[3], &[5, 3, 2]),
    (&[5, 2, 3], &[3, 4]),
    (&[2, 3], &[5, 3, 4]),
    (&[2, 1, 4, 3], &[3, 3, 2]),
    (&[0, 3], &[3, 4]),
    (&[2, 0], &[0, 4]),
    (&[2, 3], &[3, 0]),
    (&[0, 2, 3], &[3, 4]),
    (&[1, 1], &[1, 1]),
    (&[1, 130], &[130, 7]),
    (&[33, 17], &[17, 40]),
    (&[67, 65], &[65, 19]),
];

pub fn each(sink: Sink<'_>) {
    // A sum of k products of size 16: units of a partial sum of size 64.
    let tolerance = near(8.0, 64.0);
    for dtype in DType::ALL {
        for (a, b) in SHAPES {
            for (left, right) in [
                (Arrangement::Packed, Arrangement::Packed),
                (Arrangement::Transposed, Arrangement::Sliced),
            ] {
                let inputs = vec![
                    Input::new(a, dtype, left, Domain::Small, 40),
                    Input::new(b, dtype, right, Domain::Small, 41),
                ];
                sink(one("matmul", dtype, tolerance, inputs, String::new(), |x| {
                    x[0].matmul(&x[1])
                }));
            }
        }
        for (left, right) in pairs() {
            for batch in [None, Some(3)] {
                let shape = |m, n| batch.into_iter().chain([m, n]).collect::<Vec<usize>>();
                let inputs = vec![
                    Input::new(shape(6, 9), dtype, left, Domain::Small, 42),
                    Input::new(shape(9, 7), dtype, right, Domain::Small, 43),
                ];
                sink(one("matmul", dtype, tolerance, inputs, String::new(), |x| {
                    x[0].matmul(&x[1])
                }));
            }
        }
        let inputs = || {
            vec![
                Input::new((4, 6), dtype, Arrangement::Packed, Domain::Small, 44),
                Input::new((5, 6), dtype, Arrangement::Flipped, Domain::Small, 45),
            ]
        };
        sink(one("matmul", dtype, tolerance, inputs(), "lhs @ rhs.t()".to_string(), |x| {
            x[0].matmul(&x[1].t()?)
        }));
        sink(one("einsum", dtype, tolerance, inputs(), "ij,kj->ki".to_string(), |x| {
            Tensor::einsum("ij,kj->ki", &[&x[0], &x[1]])
        }));
        if dtype.is_float() {
            special(sink, dtype);
        } else {
            // Products and sums of the whole range wrap; in a float they would be rounded.
            for (a, b) in [((5, 70), (70, 6)), ((1, 33), (33, 40)), ((3, 4), (4, 1))] {
                let inputs = vec![
                    Input::new(a, dtype, Arrangement::Packed, Domain::Any, 48),
                    Input::new(b, dtype, Arrangement::Transposed, Domain::Any, 49),
                ];
                sink(one("matmul", dtype, tolerance, inputs, "the whole range".to_string(), |x| {
                    x[0].matmul(&x[1])
                }));
            }
        }
        let inputs = vec![
            Input::new((4, 3), dtype, Arrangement::Packed, Domain::Small, 46),
            Input::new((5, 6), dtype, Arrangement::Packed, Domain::Small, 47),
        ];
        sink(one("matmul", dtype, tolerance, inputs, "refused".to_string(), |x| {
            x[0].matmul(&x[1])
        }));
    }
}

/// NaN and infinities meet zeros: a product that skips zeros would lose them.
fn special(sink: Sink<'_>, dtype: DType) {
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    let lhs = [1.0, 0.0, 2.0, nan, 0.0, 0.0, inf, 1.0, -1.0, -inf, inf, 0.0].map(Scalar::Float);
    let rhs = [0.0, 1.0, 0.0, nan, 2.0, 1.0, 0.0, inf, 0.0, 3.0, -1.0, 0.0].map(Scalar::Float);
    for (right, arrangement) in
        [(Arrangement::Packed, Arrangement::Packed), (Arrangement::Sliced, Arrangement::Transposed)]
    {
        let inputs =
            vec![Input::of(lhs, (4, 3), dtype, arrangement), Input::of(rhs, (3, 4), dtype, right)];
        sink(one(
            "matmul",
            dtype,
            near(8.0, 64.0),
            inputs.clone(),
            "NaN, infinities and zeros".to_string(),
            |x| x[0].matmul(&x[1]),
        ));
        sink(one(
            "matmul",
            dtype,
            near(8.0, 64.0),
            inputs,
            "NaN, infinities and zeros, a row".to_string(),
            |x| x[0].slice(0, 1..2)?.matmul(&x[1]),
        ));
    }
}
