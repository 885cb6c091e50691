//! A naive view that copies the values at every step: the reference for a chain of layouts.
#![allow(dead_code)] // each test file uses a part of it

use teeny_core::random::{Key, philox};
use teeny_core::{Error, Reference, Result, Tensor};

/// Numbers for choices: the same on every machine.
pub struct Dice {
    key: Key,
    rolls: u64,
}

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice { key: Key { seed, draw: 0 }, rolls: 0 }
    }
    /// A number in `0..n`.
    pub fn below(&mut self, n: usize) -> usize {
        self.rolls += 1;
        philox(self.key, self.rolls)[0] as usize % n.max(1)
    }
}

/// Values in row-major order with their shape: no strides, no offsets.
#[derive(Clone, Debug, PartialEq)]
pub struct Naive {
    pub shape: Vec<usize>,
    pub values: Vec<i64>,
}

impl Naive {
    pub fn arange(shape: &[usize]) -> Naive {
        Naive {
            shape: shape.to_vec(),
            values: (0..shape.iter().product::<usize>() as i64).collect(),
        }
    }

    /// The value at `index`.
    pub fn at(&self, index: &[usize]) -> i64 {
        self.values[index.iter().zip(&self.shape).fold(0, |flat, (i, n)| flat * n + i)]
    }

    /// A tensor of `shape` whose value at an index is `self[from(index)]`.
    pub fn map(&self, shape: Vec<usize>, from: impl Fn(&[usize]) -> Vec<usize>) -> Naive {
        let values = indices(&shape).map(|index| self.at(&from(&index))).collect();
        Naive { shape, values }
    }
}

/// Every index of `shape` in row-major order.
pub fn indices(shape: &[usize]) -> impl Iterator<Item = Vec<usize>> + use<> {
    let shape = shape.to_vec();
    (0..shape.iter().product::<usize>()).map(move |mut flat| {
        let mut index = vec![0; shape.len()];
        for axis in (0..shape.len()).rev() {
            index[axis] = flat % shape[axis];
            flat /= shape[axis];
        }
        index
    })
}

/// One random view of both; `None` where the dice name a view that this shape does not have.
pub fn random_view(dice: &mut Dice, x: &Tensor, n: &Naive) -> Result<Option<(Tensor, Naive)>> {
    let ndim = n.shape.len();
    let axis = dice.below(ndim);
    let size = n.shape.get(axis).copied().unwrap_or(0);
    let with = |axis: usize, size: usize| {
        let mut shape = n.shape.clone();
        shape[axis] = size;
        shape
    };
    let moved = |index: &[usize], axis: usize, to: usize| {
        let mut index = index.to_vec();
        index[axis] = to;
        index
    };
    Ok(Some(match dice.below(11) {
        0 if ndim < 5 => {
            let mut shape = n.shape.clone();
            let place = dice.below(ndim + 1);
            shape.insert(place, 1);
            (x.unsqueeze(place as isize)?, Naive { shape, values: n.values.clone() })
        }
        1 => (x.reshape(-1)?, Naive { shape: vec![n.values.len()], values: n.values.clone() }),
        _ if ndim == 0 => return Ok(None),
        2 => {
            let other = dice.below(ndim);
            let mut shape = n.shape.clone();
            shape.swap(axis, other);
            let naive = n.map(shape, |i| {
                let mut i = i.to_vec();
                i.swap(axis, other);
                i
            });
            (x.transpose(axis as isize, other as isize)?, naive)
        }
        3 => {
            let start = dice.below(size + 1);
            let end = start + dice.below(size - start + 1);
            (
                x.slice(axis as isize, start..end)?,
                n.map(with(axis, end - start), |i| moved(i, axis, i[axis] + start)),
            )
        }
        4 => {
            let step = 1 + dice.below(3);
            let naive = n.map(with(axis, size.div_ceil(step)), |i| moved(i, axis, i[axis] * step));
            (x.slice_step(axis as isize, .., step as isize)?, naive)
        }
        5 => {
            let step = 1 + dice.below(3);
            let naive = n.map(with(axis, size.div_ceil(step)), |i| {
                moved(i, axis, size - 1 - i[axis] * step)
            });
            (x.slice_step(axis as isize, .., -(step as isize))?, naive)
        }
        6 => (x.flip(axis)?, n.map(n.shape.clone(), |i| moved(i, axis, size - 1 - i[axis]))),
        7 if ndim < 5 => {
            let count = 1 + dice.below(3);
            let shape: Vec<usize> = std::iter::once(count).chain(n.shape.iter().copied()).collect();
            (x.expand(&shape)?, n.map(shape, |i| i[1..].to_vec()))
        }
        8 if size > 0 => {
            let place = dice.below(size);
            let mut shape = n.shape.clone();
            shape.remove(axis);
            let naive = n.map(shape, |i| {
                let mut i = i.to_vec();
                i.insert(axis, place);
                i
            });
            (
                x.at(
                    axis as isize,
                    place as isize - if place % 2 == 1 { size as isize } else { 0 },
                )?,
                naive,
            )
        }
        9 if ndim > 1 => {
            let other = (axis + 1) % ndim;
            let (a, b) = (axis.min(other), axis.max(other));
            let len = n.shape[a].min(n.shape[b].saturating_sub(1));
            let mut shape = n.shape.clone();
            shape.remove(b);
            shape.remove(a);
            shape.push(len);
            let naive = n.map(shape, |i| {
                let (k, mut rest) = (i[i.len() - 1], i[..i.len() - 1].to_vec());
                rest.insert(a, k);
                rest.insert(b, k + 1);
                rest
            });
            (x.diagonal(1, a as isize, b as isize)?, naive)
        }
        10 if size > 0 && ndim < 5 => {
            let (window, step) = (1 + dice.below(size), 1 + dice.below(2));
            let mut shape = with(axis, (size - window) / step + 1);
            shape.push(window);
            let naive = n.map(shape, |i| {
                let inside = i[i.len() - 1];
                moved(&i[..i.len() - 1], axis, i[axis] * step + inside)
            });
            (x.unfold(axis as isize, window, step)?, naive)
        }
        _ => return Ok(None),
    }))
}

/// A random chain of `1..=6` views over 120 numbers, and the same by copying.
pub fn random_chain(
    dice: &mut Dice,
    device: &std::sync::Arc<Reference>,
) -> Result<(Tensor, Tensor, Naive)> {
    let shapes: [&[usize]; 5] = [&[120], &[10, 12], &[4, 5, 6], &[2, 3, 4, 5], &[1, 120, 1]];
    let shape = shapes[dice.below(shapes.len())];
    let base = Tensor::arange(0i64, 120, 1, device)?.reshape(shape)?;
    let (mut x, mut n) = (base.clone(), Naive::arange(shape));
    for _ in 0..1 + dice.below(6) {
        if let Some(next) = random_view(dice, &x, &n)? {
            if next.1.values.len() > 2000 {
                break;
            }
            (x, n) = next;
        }
    }
    Ok((base, x, n))
}

/// The error of an operation that must fail.
#[track_caller]
pub fn refused(result: Result<Tensor>) -> Error {
    match result {
        Ok(x) => panic!("accepted: {} {}", x.dtype(), x.shape()),
        Err(error) => error,
    }
}
