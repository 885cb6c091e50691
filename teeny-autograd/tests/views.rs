//! A27: gradients through chains of views, indexing, joining and assignment.
mod common;

use common::{close, device, values, vec};
use teeny_autograd::{Check, Grad, gradcheck};
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
        let x = values((3, 4), &Reference::new());
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
    let x = values(5, &device()).requires_grad().unwrap();
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
