//! Cross-entropy of rows of scores and its gradient.
//!
//! The naive form is `log_softmax` of all scores and a gather of the targets. Here a row is read
//! three times while it is cached: its maximum, its sum of exponentials, and the target. Nothing as
//! large as the scores is kept for the backward pass, which computes the exponentials again.

use super::Packed;
use super::softmax::{largest, pass};
use super::terms::ExpSubMax;
use crate::float::Number;
use crate::index::integers;
use crate::scratch::Array;
use crate::simd::{F32s, Work};
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
    match dtype {
        DType::F64 => each_loss::<f64>(cpu, &xs, &targets, classes, to),
        _ => each_loss::<f32>(cpu, &xs, &targets, classes, to),
    }
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
    match dtype {
        DType::F64 => each_gradient::<f64>(cpu, [&xs, &gs], &targets, classes, to),
        _ => each_gradient::<f32>(cpu, [&xs, &gs], &targets, classes, to),
    }
    drop((xs, gs));
    Ok(Arc::new(copy::cast_to_storage(cpu, out, n * classes, dtype)?))
}

/// The loss of each row of `xs`, whose compute dtype is T, to `to`.
fn each_loss<T: Number>(
    cpu: &Cpu,
    xs: &Packed,
    targets: &Array<Option<usize>>,
    classes: usize,
    to: Shared<u8>,
) {
    each_row(targets.len(), classes, |r| {
        // SAFETY: row r of the scores, element r of the result, which this row alone writes.
        unsafe {
            let x = slice::<T>(xs.ptr().cast::<T>().add(r * classes).cast(), classes);
            let loss = |target| cpu.level.run(Loss { x, target });
            to.get().cast::<T>().add(r).write(targets[r].map_or(T::ZERO, loss));
        }
    });
}

/// The gradient of each row of `xs`, whose compute dtype is T, to `to`.
fn each_gradient<T: Number>(
    cpu: &Cpu,
    [xs, gs]: [&Packed; 2],
    targets: &Array<Option<usize>>,
    classes: usize,
    to: Shared<u8>,
) {
    each_row(targets.len(), classes, |r| {
        // SAFETY: row r of the scores and of the result, which this row alone writes; element r of
        // g.
        unsafe {
            let x = slice::<T>(xs.ptr().cast::<T>().add(r * classes).cast(), classes);
            let y = slice_mut::<T>(to.get().cast::<T>().add(r * classes).cast(), classes);
            let g = *gs.ptr().cast::<T>().add(r);
            match targets[r] {
                Some(target) => cpu.level.run(Grad { x, target, g, y }),
                None => y.fill(T::ZERO),
            }
        }
    });
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

struct Loss<'a, T> {
    x: &'a [T],
    target: usize,
}

impl<T: Number> Work for Loss<'_, T> {
    type Out = T;
    #[inline(always)]
    fn run<V: F32s>(self) -> T {
        let (max, x, none) = (largest::<T, V>(self.x), self.x.as_ptr(), std::ptr::null_mut());
        let constants = [T::ZERO, max, T::ZERO];
        // SAFETY: of the row's length; the terms are not written.
        let sum = unsafe { pass::<T, V, ExpSubMax, false>([x, x], none, self.x.len(), constants) };
        // The difference of the scores first: exact where both are large.
        T::from_f64(sum.ln() - (self.x[self.target] - max).to_f64())
    }
}

struct Grad<'a, T> {
    x: &'a [T],
    target: usize,
    g: T,
    y: &'a mut [T],
}

impl<T: Number> Work for Grad<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let Grad { x, target, g, y } = self;
        let (max, from, n) = (largest::<T, V>(x), [x.as_ptr(); 2], x.len().min(y.len()));
        let constants = [T::ZERO, max, T::ZERO];
        // SAFETY: both have n elements.
        let sum = unsafe { pass::<T, V, ExpSubMax, true>(from, y.as_mut_ptr(), n, constants) };
        let factor = T::from_f64(g.to_f64() / sum);
        y.iter_mut().for_each(|y| *y = *y * factor);
        y.get_mut(target).into_iter().for_each(|y| *y = *y - g);
    }
}
