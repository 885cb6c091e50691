//! A27: gradients through chains of views, indexing, joining and assignment.
use crate::common::{close, device, values, vec};
use teeny_autograd::{Autograd, Check, Grad, gradcheck};
use teeny_core::wrappers::Trace;
use teeny_core::{DType, Reference, Result, Tensor};

/// Small pseudo-random numbers (Knuth's MMIX generator): every chain is the same in every run.
struct Dice(u64);
impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % sides
    }
}

/// One more link: a view, a copy by positions, a join or an assignment, whichever the dice choose
/// and the shape allows.
fn link(x: Tensor, dice: &mut Dice) -> Result<Tensor> {
    if x.ndim() == 0 || x.numel() > 200 {
        return x.reshape(-1)?.slice(0, ..12);
    }
    let axis = dice.roll(x.ndim());
    let (a, n) = (axis as isize, x.shape()[axis]);
    match dice.roll(15) {
        0 => x.transpose(0, -1),
        1 => x.flip(axis),
        2 if n > 1 => x.slice(a, 1..),
        3 => x.slice_step(a, .., -2),
        4 => x.slice_step(a, .., 2),
        5 => x.reshape(-1),
        6 if x.ndim() < 5 => {
            let up = x.unsqueeze(a)?;
            let stretched = up.shape().with_size(axis, 2);
            up.expand(stretched)
        }
        7 if n > 1 && x.ndim() < 5 => x.unfold(a, 2, 1),
        8 if x.ndim() > 1 => x.diagonal(dice.roll(3) as isize - 1, 0, -1),
        9 => {
            let rows: Vec<i64> = (0..3).map(|_| dice.roll(n.max(1)) as i64).collect();
            if n == 0 { Ok(x) } else { x.index_select(a, &Tensor::from_slice(&rows, 3, &x)?) }
        }
        10 => Tensor::cat(&[&x, &x.flip(axis)?], a),
        11 if x.ndim() < 5 => Tensor::stack(&[&x, &x], a),
        12 if n > 0 => x.contiguous()?.slice_assign(a, ..1, &x.slice(a, n - 1..)?.mul(0.5)?),
        13 => x.mul(&x),
        _ => x.permute((0..x.ndim()).rev().collect::<Vec<_>>()),
    }
}

#[test]
fn two_hundred_random_chains() {
    let mut empty = 0;
    for seed in 0..200 {
        let f = |x: &[Tensor]| {
            let mut dice = Dice(seed * 7919 + 1);
            let links = 3 + dice.roll(6);
            (0..links).try_fold(x[0].clone(), |x, _| link(x, &mut dice))
        };
        let x = values((3, 4), Reference::new());
        empty += (f(std::slice::from_ref(&x)).unwrap().numel() == 0) as usize;
        gradcheck(f, &[x], &Check::default())
            .unwrap_or_else(|error| panic!("chain {seed}: {error}"));
    }
    assert!(empty < 20, "{empty} chains ended in nothing");
}

#[test]
fn repeated_positions_add_up() {
    let d = device();
    let table = values((4, 2), &d).requires_grad().unwrap();
    let ids = Tensor::new([[3i64, 0, 3], [3, 1, 3]], &d).unwrap();
    let rows = table.index_select(0, &ids).unwrap();
    assert_eq!(*rows.shape(), [2, 3, 2]);
    let g = rows.sum_all().unwrap().backward().unwrap().take(&table).unwrap();
    assert_eq!(vec(&g), [1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 4.0, 4.0]);
}

#[test]
fn overlapping_windows_add_up() {
    let x = values(5, device()).requires_grad().unwrap();
    let g = x.unfold(0, 3, 1).unwrap().sum_all().unwrap().backward().unwrap().take(&x).unwrap();
    assert_eq!(vec(&g), [1.0, 2.0, 3.0, 2.0, 1.0]);
}

#[test]
fn assignment_gives_the_overwritten_part_no_gradient() {
    let d = device();
    let (x, y) =
        (values((3, 4), &d).requires_grad().unwrap(), values(4, &d).requires_grad().unwrap());
    let before = vec(&x);
    let z = x.mul(1.0).unwrap().slice_assign(0, 1..3, &y).unwrap();
    let weights = values((3, 4), &d);
    let grads = z.mul(&weights).unwrap().sum_all().unwrap().backward().unwrap();
    let w = vec(&weights);
    close(&vec(grads.get(&x).unwrap()), &[&w[..4], &[0.0; 8]].concat(), 1e-12);
    let sum: Vec<f64> = (0..4).map(|i| w[4 + i] + w[8 + i]).collect();
    close(&vec(grads.get(&y).unwrap()), &sum, 1e-12);
    assert_eq!(vec(&x), before, "the leaf itself is unchanged");
}

#[test]
fn assignment_never_changes_what_was_saved() {
    let d = device();
    let x = values(3, &d).requires_grad().unwrap();
    // exp saves its result; assigning into that result must not change the saved one.
    let y = x.exp().unwrap();
    let z = y.slice_assign(0, ..1, &Tensor::zeros((), DType::F64, &d).unwrap()).unwrap();
    let g = z.sum_all().unwrap().backward().unwrap().take(&x).unwrap();
    let e = vec(&x.exp().unwrap());
    close(&vec(&g), &[0.0, e[1], e[2]], 1e-12);
}

#[test]
fn assignment_through_a_view_of_the_target() {
    let d = device();
    let (x, y) =
        (values((3, 4), &d).requires_grad().unwrap(), values((4, 2), &d).requires_grad().unwrap());
    let f = |x: &[Tensor]| {
        x[0].mul(2.0)?.t()?.assign_view(|x| x.slice_step(1, .., 2), &x[1].square()?)?.square()
    };
    gradcheck(f, &[x, y], &Check::default()).unwrap();
}

#[test]
fn cat_gives_each_tracked_part_its_place() {
    let d = device();
    let (a, b) =
        (values((2, 2), &d).requires_grad().unwrap(), values((2, 1), &d).requires_grad().unwrap());
    let constant = Tensor::ones((2, 1), DType::F64, &d).unwrap();
    // (2, 4)
    let y = Tensor::cat(&[&a, &constant, &b.t().unwrap().reshape((2, 1)).unwrap()], 1).unwrap();
    let w = Tensor::arange(0.0f64, 8.0, 1.0, &d).unwrap().reshape((2, 4)).unwrap();
    let grads = y.mul(&w).unwrap().sum_all().unwrap().backward().unwrap();
    close(&vec(grads.get(&a).unwrap()), &[0.0, 1.0, 4.0, 5.0], 1e-12);
    close(&vec(grads.get(&b).unwrap()), &[3.0, 7.0], 1e-12);
}

/// A part of `x` along an axis, and other axes for it: heads split off and moved in front.
fn part(x: &Tensor, axis: isize, range: std::ops::Range<isize>, way: usize) -> Result<Tensor> {
    let part = x.slice(axis, range)?;
    let last = part.size(-1)?;
    match way {
        0 if last % 2 == 0 => part.unflatten(-1, [2, last / 2])?.transpose(0, -2),
        1 => part.transpose(0, -1),
        2 => part.unsqueeze(1),
        _ => Ok(part),
    }
}

/// The gradient of a value that is used by parts is the weight of each element in all of them,
/// whether the parts are all of it, leave some out, overlap, or are followed by the value itself.
#[test]
fn gradients_of_parts_are_those_of_their_elements() {
    let mut joined = 0;
    for seed in 0..400 {
        let mut dice = Dice(seed * 6007 + 5);
        let trace = Trace::new(Reference::new());
        let d = Autograd::new(trace.clone());
        let shape: Vec<usize> = (0..1 + dice.roll(3)).map(|_| 1 + dice.roll(6)).collect();
        let x = values(shape.as_slice(), &d).requires_grad().unwrap();
        let numel = x.numel();
        let positions = Tensor::arange(0i64, numel as i64, 1, &d).unwrap();
        let positions = positions.reshape(shape.as_slice()).unwrap();
        let axis = dice.roll(shape.len());
        // Cuts, sometimes moved so that parts overlap or leave some out.
        let mut cuts = vec![0];
        while cuts[cuts.len() - 1] < shape[axis] {
            let next = cuts[cuts.len() - 1] + 1 + dice.roll(3);
            cuts.push(next.min(shape[axis]));
        }
        let mut ranges: Vec<(usize, usize)> = cuts.windows(2).map(|w| (w[0], w[1])).collect();
        let whole = dice.roll(4) > 0;
        if !whole {
            match dice.roll(3) {
                0 => ranges[0].1 = shape[axis],
                1 if ranges.len() > 1 => drop(ranges.pop()),
                _ => ranges.push((0, 1)),
            }
        }
        for i in (1..ranges.len()).rev() {
            ranges.swap(i, dice.roll(i + 1));
        }
        let mut want = vec![0.0; numel];
        let mut loss = Tensor::zeros((), DType::F64, &d).unwrap();
        let way = dice.roll(4);
        let mut used = |seen: Tensor, at: Tensor, scale: f64| {
            let at = at.to_vec::<i64>().unwrap();
            let weights: Vec<f64> = (0..at.len()).map(|i| scale * (1 + i % 7) as f64).collect();
            at.iter().zip(&weights).for_each(|(&p, w)| want[p as usize] += w);
            let weights = Tensor::from_vec(weights, *seen.shape(), &d).unwrap();
            loss = loss.add(seen.mul(&weights).unwrap().sum_all().unwrap()).unwrap();
        };
        for (i, &(start, end)) in ranges.iter().enumerate() {
            let of =
                |x: &Tensor| part(x, axis as isize, start as isize..end as isize, way).unwrap();
            used(of(&x), of(&positions), (i + 1) as f64);
        }
        if dice.roll(5) == 0 {
            used(x.clone(), positions.clone(), 0.5);
        }
        trace.clear();
        let got = vec(loss.into_backward().unwrap().get(&x).unwrap());
        assert_eq!(got, want, "seed {seed}: {shape:?} axis {axis} {ranges:?}");
        joined += usize::from(trace.spans().iter().any(|span| span.op == "cat"));
    }
    assert!(joined > 100, "{joined} were joined");
}

#[test]
fn the_gradient_of_a_split_is_one_pass() {
    let trace = Trace::new(Reference::new());
    let d = Autograd::new(trace.clone());
    // (B, T, 3 C) → three of (B, heads, T, C / heads), as attention takes them
    let x = values((2, 5, 24), &d).requires_grad().unwrap();
    let head = |i: isize| {
        let part = x.slice(2, 8 * i..8 * i + 8).unwrap(); // (B, T, C)
        part.unflatten(2, [2, 4]).unwrap().transpose(1, 2).unwrap() // (B, heads, T, C / heads)
    };
    let y = head(0).mul(head(1)).unwrap().mul(head(2)).unwrap().sum_all().unwrap();
    trace.clear();
    let gradients = y.into_backward().unwrap();
    let ops: Vec<String> = trace.spans().iter().map(|span| span.op.to_string()).collect();
    assert_eq!(ops.iter().filter(|op| *op == "cat").count(), 1, "{ops:?}");
    assert!(!ops.iter().any(|op| op == "copy_into" || op == "add"), "{ops:?}");
    assert_eq!(gradients.get(&x).unwrap().shape(), x.shape());
}
