//! Running extrema along one axis, and their positions.
//!
//! The naive form keeps the running maximum and its position, element after element. Where the axis
//! is not the last, a row of elements is compared with the row of results before it, so that memory
//! is read in order and many columns are compared at once. A minimum is a maximum of elements with
//! some bits flipped, as in `reduce`. Tasks are planes and blocks of columns: no chain is split.

use crate::copy::Packed;
use crate::reduce::flip_of;
use crate::simd::{F32s, Level, Work};
use crate::storage::{Shared, View};
use crate::threads::try_for_each_range;
use crate::typed::with_wrapping;
use crate::{Cpu, copy};
use std::ops::Range;
use std::sync::Arc;
use teeny_core::storage::StorageRef;
use teeny_core::{DType, ReduceOp, Result, Tensor};

/// Columns of a task.
const COLUMNS: usize = 512;
/// Elements of the shortest range of tasks.
const RANGE: usize = 4096;

/// A type whose extrema are found.
trait Ordered: Copy + PartialOrd + Send + Sync + 'static {
    /// This with the bits of `flip` flipped.
    fn flipped(self, flip: u64) -> Self;
}

macro_rules! ordered {
    ($($t:ty: $flipped:expr;)*) => {$(
        impl Ordered for $t {
            #[inline(always)]
            fn flipped(self, flip: u64) -> $t {
                ($flipped)(self, flip)
            }
        }
    )*};
}
ordered! {
    u8: |x, flip| x ^ flip as u8;
    u16: |x, flip| x ^ flip as u16;
    u32: |x, flip| x ^ flip as u32;
    u64: |x, flip| x ^ flip;
    f32: |x: f32, flip| f32::from_bits(x.to_bits() ^ flip as u32);
    f64: |x: f64, flip| f64::from_bits(x.to_bits() ^ flip);
}

/// The running maximum of `x` along `axis`, or the minimum, and the positions.
pub(crate) fn cum_max(
    cpu: &Cpu,
    x: &Tensor,
    axis: usize,
    largest: bool,
) -> Result<(StorageRef, StorageRef)> {
    let n = x.numel();
    let input = Packed::of(cpu, &View::of(x)?)?;
    let values = cpu.alloc(n, x.dtype().compute())?;
    let positions = cpu.alloc(n, DType::I32)?;
    let (length, inner) = (x.shape()[axis], x.shape()[axis + 1..].iter().product::<usize>());
    let op = if largest { ReduceOp::Max } else { ReduceOp::Min };
    let flip = flip_of(op, x.dtype());
    if n > 0 {
        with_wrapping!(x.dtype(), T => {
            let job = Job {
                level: cpu.level,
                x: Shared(input.ptr().cast_mut().cast::<T>()),
                y: Shared(values.ptr().cast::<T>()),
                positions: Shared(positions.ptr().cast::<i32>()),
                length,
                inner,
                flip,
            };
            job.run(n)?
        });
    }
    Ok((Arc::new(copy::cast_to_storage(cpu, values, n, x.dtype())?), Arc::new(positions)))
}

/// Planes `(length, inner)` of n elements in all, which the three pointers have.
struct Job<T> {
    level: Level,
    x: Shared<T>,
    y: Shared<T>,
    positions: Shared<i32>,
    length: usize,
    inner: usize,
    flip: u64,
}

impl<T: Ordered> Job<T> {
    fn run(&self, n: usize) -> Result<()> {
        let (plane, blocks) = (self.length * self.inner, self.inner.div_ceil(COLUMNS));
        let per_task = self.length * self.inner.min(COLUMNS);
        try_for_each_range(n / plane * blocks, RANGE / per_task, |tasks| {
            self.level.run(Tasks { job: self, tasks });
            Ok(())
        })
    }

    /// Row `r` of the `columns` chains that begin at `start`: elements, results, positions.
    ///
    /// # Safety
    /// The row is inside the n elements, and no other task has these chains.
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "the tasks share the storage and divide its elements")]
    unsafe fn row(&self, start: usize, r: usize, columns: usize) -> (&[T], &mut [T], &mut [i32]) {
        let at = start + r * self.inner;
        // SAFETY: by contract.
        unsafe {
            (
                std::slice::from_raw_parts(self.x.get().add(at), columns),
                std::slice::from_raw_parts_mut(self.y.get().add(at), columns),
                std::slice::from_raw_parts_mut(self.positions.get().add(at), columns),
            )
        }
    }

    /// `columns` chains side by side, the first of which begins at `start`.
    #[inline(always)]
    fn columns(&self, start: usize, columns: usize) {
        // SAFETY: the chains of one task.
        let row = |r: usize| unsafe { self.row(start, r, columns) };
        let (x, y, places) = row(0);
        y.copy_from_slice(x);
        places.fill(0);
        for r in 1..self.length {
            let ((_, best, before), (x, y, places)) = (row(r - 1), row(r));
            for (((&x, y), &mut best), (place, &mut before)) in
                x.iter().zip(y).zip(best).zip(places.iter_mut().zip(before))
            {
                let wins = wins(x.flipped(self.flip), best.flipped(self.flip));
                *y = if wins { x } else { best };
                *place = if wins { r as i32 } else { before };
            }
        }
    }

    /// A chain of consecutive elements, the first at `start`. New extrema are rare, so that a
    /// predicted branch costs less than a selection that waits for the comparison before it.
    #[inline(always)]
    fn chain(&self, start: usize) {
        // SAFETY: a chain of one task, its elements as one row.
        let (x, y, places) = unsafe {
            let (n, at) = (self.length, start);
            (
                std::slice::from_raw_parts(self.x.get().add(at), n),
                std::slice::from_raw_parts_mut(self.y.get().add(at), n),
                std::slice::from_raw_parts_mut(self.positions.get().add(at), n),
            )
        };
        let (mut best, mut value, mut place) = (x[0].flipped(self.flip), x[0], 0);
        for (r, ((&x, y), to)) in x.iter().zip(y).zip(places).enumerate() {
            let flipped = x.flipped(self.flip);
            if wins(flipped, best) {
                branch();
                (best, value, place) = (flipped, x, r as i32);
            }
            (*y, *to) = (value, place);
        }
    }
}

/// Keeps the compiler from turning the branch that calls it into a selection.
#[cold]
#[inline(never)]
fn branch() {}

/// Some tasks of a job.
struct Tasks<'a, T> {
    job: &'a Job<T>,
    tasks: Range<usize>,
}

/// Whether `x` is the new extremum after `best`.
#[inline(always)]
#[allow(clippy::eq_op, reason = "NaN alone differs from itself; integers never do")]
fn wins<T: Ordered>(x: T, best: T) -> bool {
    x >= best || x != x
}

impl<T: Ordered> Work for Tasks<'_, T> {
    type Out = ();
    const FOR_AVX512: bool = false;

    #[inline(always)]
    fn run<V: F32s>(self) {
        let Tasks { job, tasks } = self;
        if job.inner == 1 {
            return tasks.for_each(|task| job.chain(task * job.length));
        }
        let blocks = job.inner.div_ceil(COLUMNS);
        for task in tasks {
            let (plane, first) = (task / blocks, task % blocks * COLUMNS);
            let start = plane * job.length * job.inner + first;
            job.columns(start, COLUMNS.min(job.inner - first));
        }
    }
}
