//! Cross-entropy of rows of scores and its gradient.
//!
//! The naive form is `log_softmax` of all scores and a gather of the targets. Here a row is read
//! three times while it is cached: its maximum, its sum of exponentials, and the target. Nothing as
//! large as the scores is kept for the backward pass, which computes the exponentials again.

use super::Packed;
use super::softmax::{ExpBelow, largest, pass};
use super::softmax_f64::Exponentials;
use crate::index::integers;
use crate::scratch::Array;
use crate::simd::{F32s, Level, Work};
use crate::storage::{Shared, View};
use crate::threads::for_each_range;
use crate::typed::{slice, slice_mut};
use crate::{Cpu, copy};
use std::sync::Arc;
use teeny_core::storage::StorageRef;
use teeny_core::{DType, Error, Result, Tensor};

/// Elements per range, at least.
const CHUNK: usize = 8 << 10;

/// `log(sum(exp(x))) - x[target]` of every row of `x` (n, classes): (n).
pub(crate) fn losses(
    cpu: &Cpu,
    x: &Tensor,
    targets: &Tensor,
    ignore_index: Option<i64>,
) -> Result<StorageRef> {
    let (dtype, n, classes) = (x.dtype(), x.shape()[0], x.shape()[1]);
    let targets = checked(cpu, targets, classes, ignore_index)?;
    let xs = Packed::of(cpu, &View::of(x)?)?;
    let out = cpu.alloc(n, dtype.compute())?;
    let to = Shared(out.ptr());
    each_row(n, classes, |r| {
        // SAFETY: row r of the scores, element r of the result, which this row alone writes.
        unsafe {
            if dtype == DType::F64 {
                let x = slice::<f64>(xs.ptr().add(r * classes * 8), classes);
                to.get()
                    .cast::<f64>()
                    .add(r)
                    .write(targets[r].map_or(0.0, |t| loss_f64(cpu.level, x, t)));
            } else {
                let x = slice::<f32>(xs.ptr().add(r * classes * 4), classes);
                to.get()
                    .cast::<f32>()
                    .add(r)
                    .write(targets[r].map_or(0.0, |target| cpu.level.run(Loss { x, target })));
            }
        }
    });
    drop(xs);
    Ok(Arc::new(copy::cast_to_storage(cpu, out, n, dtype)?))
}

/// `(softmax(x) - one_hot(target)) g` of every row of `x` (n, classes), with `g` (n): (n, classes).
pub(crate) fn gradient(
    cpu: &Cpu,
    x: &Tensor,
    targets: &Tensor,
    ignore_index: Option<i64>,
    g: &Tensor,
) -> Result<StorageRef> {
    let (dtype, n, classes) = (x.dtype(), x.shape()[0], x.shape()[1]);
    // A target that is no class is an error of the loss; here no place has it.
    let targets = integers(cpu, targets)?;
    let class = |target: i64| usize::try_from(target).unwrap_or(usize::MAX);
    let targets = Array::from_fn(cpu, targets.len(), |i| {
        Some(class(targets[i])).filter(|_| Some(targets[i]) != ignore_index)
    })?;
    let (xs, gs) = (Packed::of(cpu, &View::of(x)?)?, Packed::of(cpu, &View::of(g)?)?);
    let out = cpu.alloc(n * classes, dtype.compute())?;
    let to = Shared(out.ptr());
    each_row(n, classes, |r| {
        let at = r * classes * dtype.compute().size();
        // SAFETY: row r of the scores and of the result, which this row alone writes; element r of
        // g.
        unsafe {
            if dtype == DType::F64 {
                let (x, y) = (
                    slice::<f64>(xs.ptr().add(at), classes),
                    slice_mut::<f64>(to.get().add(at), classes),
                );
                let g = *gs.ptr().cast::<f64>().add(r);
                match targets[r] {
                    Some(target) => grad_f64(cpu.level, x, target, g, y),
                    None => y.fill(0.0),
                }
            } else {
                let (x, y) = (
                    slice::<f32>(xs.ptr().add(at), classes),
                    slice_mut::<f32>(to.get().add(at), classes),
                );
                let g = *gs.ptr().cast::<f32>().add(r);
                match targets[r] {
                    Some(target) => cpu.level.run(Grad { x, target, g, y }),
                    None => y.fill(0.0),
                }
            }
        }
    });
    drop((xs, gs));
    Ok(Arc::new(copy::cast_to_storage(cpu, out, n * classes, dtype)?))
}

fn each_row(n: usize, classes: usize, f: impl Fn(usize) + Sync) {
    for_each_range(n, CHUNK / classes.max(1), |rows| rows.for_each(&f));
}

/// The targets, `None` where one is `ignore_index`.
fn checked(
    cpu: &Cpu,
    targets: &Tensor,
    classes: usize,
    ignore_index: Option<i64>,
) -> Result<Array<Option<usize>>> {
    let targets = integers(cpu, targets)?;
    let class = |target: i64| usize::try_from(target).ok().filter(|&class| class < classes);
    match targets.iter().position(|&target| Some(target) != ignore_index && class(target).is_none())
    {
        Some(i) => Err(outside(i, targets[i], classes)),
        None => Array::from_fn(cpu, targets.len(), |i| {
            class(targets[i]).filter(|_| Some(targets[i]) != ignore_index)
        }),
    }
}

#[cold]
fn outside(i: usize, target: i64, classes: usize) -> Error {
    let range = if classes == 0 { "none".to_string() } else { format!("0..={}", classes - 1) };
    Error::index(format!("targets[{i}] is {target}, but there are {classes} classes ({range})"))
}

fn loss_f64(level: Level, x: &[f64], target: usize) -> f64 {
    let (max, sum) = level.run(Exponentials { x, y: &mut [] });
    sum.ln() - (x[target] - max)
}

fn grad_f64(level: Level, x: &[f64], target: usize, g: f64, y: &mut [f64]) {
    let (_, sum) = level.run(Exponentials { x, y });
    y.iter_mut().for_each(|y| *y = *y / sum * g);
    y.get_mut(target).into_iter().for_each(|y| *y -= g);
}

struct Loss<'a> {
    x: &'a [f32],
    target: usize,
}

impl Work for Loss<'_> {
    type Out = f32;
    #[inline(always)]
    fn run<V: F32s>(self) -> f32 {
        let max = largest::<V>(self.x);
        let sum = pass::<V>(self.x, self.x, None, ExpBelow(V::splat(max), V::splat(max)));
        // The difference of the scores first: exact where both are large.
        (sum.ln() - f64::from(self.x[self.target] - max)) as f32
    }
}

struct Grad<'a> {
    x: &'a [f32],
    target: usize,
    g: f32,
    y: &'a mut [f32],
}

impl Work for Grad<'_> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let Grad { x, target, g, y } = self;
        let max = V::splat(largest::<V>(x));
        let sum = pass::<V>(x, x, Some(y), ExpBelow(max, max));
        let factor = (f64::from(g) / sum) as f32;
        y.iter_mut().for_each(|y| *y *= factor);
        y.get_mut(target).into_iter().for_each(|y| *y -= g);
    }
}
