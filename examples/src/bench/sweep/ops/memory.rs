//! Copies, joins, pads, repeats; gathered and scattered elements.

use super::{ALL, Drawn, NUMBERS, SweepOp, axis};
use crate::bench::sweep::case::Fill;
use crate::bench::sweep::draw::{Draw, TRANSFORMERS};
use teeny_core::Tensor;

/// A vocabulary or table and the size of its rows.
fn table(draw: &mut Draw) -> (usize, usize) {
    if draw.chance(0.5) {
        let [hidden, .., words] = draw.pick(TRANSFORMERS);
        (words.min((8 << 20) / hidden), hidden)
    } else {
        let size = draw.log(1, 256);
        (draw.log(16, (2 << 20) / size), size)
    }
}

pub(super) fn rows(rows: &mut Vec<SweepOp>) {
    rows.push(
        SweepOp::new("copy", 5, ALL, |draw, _| {
            let shape = draw.activation();
            let mut order: Vec<usize> = (0..shape.len()).collect();
            for i in (1..order.len()).rev() {
                order.swap(i, draw.below(i + 1));
            }
            let arg = order.clone();
            Drawn::one(shape, Fill::Normal, move |x| x.permute(&order[..])?.copy()).arg(arg)
        })
        .strided(),
    );
    rows.push(
        SweepOp::new("cat", 5, ALL, |draw, _| {
            let shape = draw.activation();
            let (axis, count) = (axis(draw, &shape), 2 + draw.below(3));
            let inputs = (0..count)
                .map(|_| {
                    let mut shape = shape.clone();
                    shape[axis as usize] = shape[axis as usize].div_ceil(1 + draw.below(4));
                    (shape, Fill::Normal)
                })
                .collect();
            Drawn::of(inputs, move |x| Tensor::cat(x, axis)).arg(axis)
        })
        .strided(),
    );
    rows.push(SweepOp::new("stack", 2, ALL, |draw, _| {
        let shape = draw.activation();
        let (axis, count) = (axis(draw, &shape), 2 + draw.below(3));
        Drawn::of(vec![(shape, Fill::Normal); count], move |x| Tensor::stack(x, axis)).arg(axis)
    }));
    rows.push(SweepOp::new("pad", 3, ALL, |draw, _| {
        let (images, width) = (draw.images(), 1 + draw.below(3) as isize);
        Drawn::one(images, Fill::Normal, move |x| x.pad(&[(width, width); 2], 0)).arg(width)
    }));
    rows.push(SweepOp::new("roll", 1, ALL, |draw, _| {
        let shape = draw.activation();
        let axis = axis(draw, &shape);
        Drawn::one(shape, Fill::Normal, move |x| x.roll(axis, 1)).arg(1).arg(axis)
    }));
    rows.push(SweepOp::new("flip", 1, ALL, |draw, _| {
        let shape = draw.activation();
        let axis = axis(draw, &shape);
        Drawn::one(shape, Fill::Normal, move |x| x.flip(axis)?.copy()).arg(axis)
    }));
    rows.push(SweepOp::new("repeat", 1, ALL, |draw, _| {
        let shape = draw.activation();
        let mut counts = vec![1; shape.len()];
        counts[axis(draw, &shape) as usize] = 2;
        let arg = counts.clone();
        Drawn::one(shape, Fill::Normal, move |x| x.repeat(&counts[..])).arg(arg)
    }));
    rows.push(SweepOp::new("slice_assign", 2, ALL, |draw, _| {
        // A copy with some slices along an axis replaced.
        let shape = draw.activation();
        let axis = axis(draw, &shape);
        let size = shape[axis as usize];
        let mut part = shape.clone();
        part[axis as usize] = size.div_ceil(2);
        let end = part[axis as usize];
        Drawn::of(vec![(shape, Fill::Normal), (part, Fill::Normal)], move |x| {
            x[0].clone().slice_assign(axis, 0..end, &x[1])
        })
        .arg(axis)
        .arg(end)
    }));
    rows.push(SweepOp::new("index", 1, ALL, |draw, _| {
        // Rows and columns by two tensors of positions.
        let shape = draw.matrix();
        let ids = draw.log(1, 4096);
        let inputs = vec![
            (shape.clone(), Fill::Normal),
            (vec![ids], Fill::Index(shape[0])),
            (vec![ids], Fill::Index(shape[1])),
        ];
        Drawn::of(inputs, |x| x[0].index((&x[1], &x[2])))
    }));
    for name in ["tril", "triu"] {
        rows.push(SweepOp::new(name, 1, NUMBERS, move |draw, _| {
            let n = draw.log(4, 1024);
            Drawn::one(
                vec![n, n],
                Fill::Normal,
                move |x| {
                    if name == "tril" { x.tril(0) } else { x.triu(0) }
                },
            )
        }));
    }
    indexed(rows);
}

/// Gathered and scattered elements and rows.
fn indexed(rows: &mut Vec<SweepOp>) {
    rows.push(SweepOp::new("index_select", 4, ALL, |draw, _| {
        let ((count, size), ids) = (table(draw), draw.log(1, 8192));
        let inputs = vec![(vec![count, size], Fill::Normal), (vec![ids], Fill::Index(count))];
        Drawn::of(inputs, |x| x[0].index_select(0, &x[1]))
    }));
    rows.push(SweepOp::new("index_add", 3, NUMBERS, |draw, _| {
        let ((count, size), ids) = (table(draw), draw.log(1, 8192));
        let inputs = vec![
            (vec![count, size], Fill::Normal),
            (vec![ids], Fill::Index(count)),
            (vec![ids, size], Fill::Normal),
        ];
        Drawn::of(inputs, |x| x[0].index_add(0, &x[1], &x[2]))
    }));
    rows.push(SweepOp::new("gather", 3, ALL, |draw, _| {
        let shape = draw.matrix();
        let axis = axis(draw, &shape);
        let mut index = shape.clone();
        index[axis as usize] = draw.log(1, shape[axis as usize]);
        let fill = Fill::Index(shape[axis as usize]);
        Drawn::of(vec![(shape, Fill::Normal), (index, fill)], move |x| x[0].gather(axis, &x[1]))
            .arg(axis)
    }));
    type Scatter = fn(&Tensor, isize, &Tensor, &Tensor) -> teeny_core::Result<Tensor>;
    let modes: [(&'static str, usize, bool, Scatter); 4] = [
        ("scatter", 2, false, |x, a, i, s| x.scatter(a, i, s)),
        ("scatter_add", 3, true, |x, a, i, s| x.scatter_add(a, i, s)),
        ("scatter_max", 1, false, |x, a, i, s| x.scatter_max(a, i, s)),
        ("scatter_min", 1, false, |x, a, i, s| x.scatter_min(a, i, s)),
    ];
    for (name, weight, grad, f) in modes {
        let row = SweepOp::new(name, weight, NUMBERS, move |draw, _| {
            let shape = draw.matrix();
            let axis = axis(draw, &shape);
            let mut index = shape.clone();
            index[axis as usize] = draw.log(1, shape[axis as usize]);
            let fill = Fill::Index(shape[axis as usize]);
            let inputs = vec![(shape, Fill::Normal), (index.clone(), fill), (index, Fill::Normal)];
            Drawn::of(inputs, move |x| f(&x[0], axis, &x[1], &x[2])).arg(axis)
        });
        rows.push(if grad { row } else { row.without_grad() });
    }
    rows.push(
        SweepOp::new("nonzero", 1, ALL, |draw, _| {
            Drawn::one(draw.matrix(), Fill::Normal, |x| x.nonzero())
        })
        .without_grad(),
    );
    rows.push(
        SweepOp::new("masked_select", 1, ALL, |draw, _| {
            let shape = draw.matrix();
            Drawn::of(vec![(shape.clone(), Fill::Normal), (shape, Fill::Mask)], |x| {
                x[0].masked_select(&x[1])
            })
        })
        .without_grad(),
    );
}
