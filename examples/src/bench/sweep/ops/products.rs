//! Matrix products, attention, linear algebra.

use super::{DECOMPOSED, Drawn, FLOATS, SweepOp};
use crate::bench::sweep::case::Fill;
use crate::bench::sweep::draw::{Draw, MAX_ELEMENTS, TRANSFORMERS};
use teeny_core::{Attention, Tensor, Triangle};

/// The most multiplications of a case.
const FLOPS: usize = 2 << 30;

/// Rows so that `rows * per_row` multiplications are not too many.
fn limited(rows: usize, per_row: usize) -> usize {
    rows.min(FLOPS / per_row).max(1)
}

/// Rows of a linear layer, its inputs and outputs.
fn linear(draw: &mut Draw) -> [usize; 3] {
    let (inputs, outputs) = match draw.below(6) {
        0..4 => {
            let [hidden, _, wide, words] = draw.pick(TRANSFORMERS);
            match draw.below(5) {
                0 => (hidden, 3 * hidden),
                1 => (hidden, hidden),
                2 => (hidden, wide),
                3 => (wide, hidden),
                _ => (hidden, words),
            }
        }
        4 => draw.pick(&[(784, 128), (784, 512), (128, 10), (512, 1000), (2048, 1000), (13, 64)]),
        _ => (draw.log(1, 2048), draw.log(1, 2048)),
    };
    let outputs = outputs.min(16 * MAX_ELEMENTS / inputs);
    [limited(draw.log(1, 4096), inputs * outputs), inputs, outputs]
}

pub(super) fn rows(rows: &mut Vec<SweepOp>) {
    rows.push(SweepOp::new("linear", 8, FLOATS, |draw, _| {
        let [m, k, n] = linear(draw);
        let inputs =
            vec![(vec![m, k], Fill::Normal), (vec![n, k], Fill::Normal), (vec![n], Fill::Normal)];
        Drawn::of(inputs, |x| x[0].matmul(&x[1].t()?)?.add(&x[2]))
    }));
    rows.push(
        SweepOp::new("matmul", 8, FLOATS, |draw, _| {
            let [m, k, n] = match draw.below(3) {
                0 => linear(draw),
                1 => {
                    let n = draw.log(4, 1024);
                    [n; 3]
                }
                _ => {
                    let (k, n) = (draw.log(1, 2048), draw.log(1, 2048));
                    [limited(draw.log(1, 2048), k * n), k, n]
                }
            };
            let inputs = vec![(vec![m, k], Fill::Normal), (vec![k, n], Fill::Normal)];
            Drawn::of(inputs, |x| x[0].matmul(&x[1]))
        })
        .strided(),
    );
    rows.push(
        SweepOp::new("bmm", 5, FLOATS, |draw, _| {
            let [hidden, heads, ..] = draw.pick(TRANSFORMERS);
            let (length, size) = (draw.length(), hidden / heads);
            let keys = if draw.chance(0.2) { 1 } else { length };
            let batch = limited(draw.batch(heads * length * keys) * heads, length * keys * size);
            let [m, k, n] =
                if draw.chance(0.5) { [keys, size, length] } else { [keys, length, size] };
            let inputs = vec![(vec![batch, m, k], Fill::Normal), (vec![batch, k, n], Fill::Normal)];
            Drawn::of(inputs, |x| x[0].matmul(&x[1]))
        })
        .strided(),
    );
    rows.push(SweepOp::new("attention", 6, FLOATS, |draw, _| {
        let heads = draw.pick(&[1, 2, 3, 4, 6, 8, 12, 16]);
        let size = draw.pick(&[16, 24, 32, 40, 48, 64, 64, 80, 96, 128]);
        let keys = draw.length();
        let (queries, causal) = match draw.below(4) {
            0 => (1, false),
            1 => (keys, false),
            _ => (keys, true),
        };
        let batch = limited(draw.log(1, 16), heads * queries * keys * size);
        let shape = |length| (vec![batch, heads, length, size], Fill::Normal);
        let options = if causal { Attention::causal(0) } else { Attention::full() };
        Drawn::of(vec![shape(queries), shape(keys), shape(keys)], move |x| {
            x[0].attention(&x[1], &x[2], None, &options)
        })
        .arg(causal)
    }));
    rows.push(SweepOp::new("dot", 1, FLOATS, |draw, _| {
        let n = draw.log(16, MAX_ELEMENTS);
        Drawn::of(vec![(vec![n], Fill::Normal); 2], |x| x[0].dot(&x[1]))
    }));
    rows.push(SweepOp::new("outer", 1, FLOATS, |draw, _| {
        let (m, n) = (draw.log(4, 2048), draw.log(4, 2048));
        Drawn::of(vec![(vec![m], Fill::Normal), (vec![n], Fill::Normal)], |x| x[0].outer(&x[1]))
    }));
    for (name, f) in [
        ("cholesky", (|x| x.cholesky()) as fn(&Tensor) -> teeny_core::Result<Tensor>),
        ("inv", |x| x.inv()),
        ("det", |x| x.det()),
        ("slogdet", |x| Ok(x.slogdet()?.1)),
    ] {
        rows.push(SweepOp::new(name, 1, DECOMPOSED, move |draw, _| {
            let n = draw.log(2, 128);
            let batch = draw.log(1, 16);
            Drawn::one(vec![batch, n, n], Fill::Definite, f)
        }));
    }
    rows.push(SweepOp::new("solve", 1, DECOMPOSED, |draw, _| {
        let (n, columns) = (draw.log(2, 128), draw.log(1, 32));
        let inputs = vec![(vec![n, n], Fill::Definite), (vec![n, columns], Fill::Normal)];
        Drawn::of(inputs, |x| x[0].solve(&x[1]))
    }));
    rows.push(SweepOp::new("solve_triangular", 1, DECOMPOSED, |draw, _| {
        let (n, columns) = (draw.log(2, 128), draw.log(1, 32));
        let inputs = vec![(vec![n, n], Fill::Definite), (vec![n, columns], Fill::Normal)];
        Drawn::of(inputs, |x| x[0].solve_triangular(&x[1], Triangle::Lower))
    }));
    for (name, f) in [
        ("qr", (|x| Ok(x.qr()?.0)) as fn(&Tensor) -> teeny_core::Result<Tensor>),
        ("svd", |x| Ok(x.svd()?.1)),
        ("eigh", |x| Ok(x.eigh()?.0)),
        ("pinv", |x| x.pinv(None)),
    ] {
        rows.push(
            SweepOp::new(name, 1, DECOMPOSED, move |draw, _| {
                let n = draw.log(2, 96);
                let fill = if name == "eigh" { Fill::Definite } else { Fill::Normal };
                Drawn::one(vec![n, n], fill, f)
            })
            .without_grad(),
        );
    }
}
