//! Few queries, as when a text is generated or a decoder attends to an encoder: keys and values are
//! read once, where they are and in their own type, and nothing is transposed.
//!
//! ```text
//!   for each head and part of its keys
//!     for each 512 keys    s = q kᵀ → running max and sum → acc = acc α + p v
//!   parts of a head join: with α = exp(max of a part - max of all), sums and accs add up
//! ```
//! Reading K and V takes nearly all of the time. Heads are split into parts where they are few; the
//! parts depend on the sizes alone, so the bits do not depend on the threads.

use super::hidden::add_seen;
use super::operands::{Visible, head_offset, padded};
use super::softmax::{OnlineSoftmax, PAD};
use super::tile::Real;
use crate::float::are_finite;
use crate::matmul::Matrix;
use crate::scratch::{Array, with_scratch};
use crate::storage::{Shared, View};
use crate::threads::try_for_each_chunk;
use crate::{Cpu, copy};
use std::ops::Range;
use std::sync::Arc;
use teeny_core::storage::StorageRef;
use teeny_core::{AttentionInputs, DType, Result};

/// The most queries: more of them are worth transposing the keys for.
pub(super) const MAX_QUERIES: usize = 4;
/// Keys whose scores are computed at a time.
const KEYS: usize = 512;
/// Heads that are enough tasks.
const MANY_HEADS: usize = 8;
/// Elements of K and V together that are worth a task.
const TASK: usize = 1 << 15;

/// Whether the operands are read where they are: rows are contiguous.
pub(super) fn reads(inputs: &AttentionInputs<'_>) -> bool {
    let contiguous = |x: &teeny_core::Tensor| {
        x.shape()[x.ndim() - 1] == 1 || x.layout().strides()[x.ndim() - 1] == 1
    };
    inputs.sizes()[0] <= MAX_QUERIES && contiguous(inputs.k) && contiguous(inputs.v)
}

/// Keys of a part of a head.
fn part_size(heads: usize, [_, keys, hs, hv]: [usize; 4]) -> usize {
    let parts = MANY_HEADS.div_ceil(heads).min((keys * (hs + hv)).div_ceil(TASK));
    keys.div_ceil(parts).next_multiple_of(PAD)
}

/// A tensor (.., rows, columns) with contiguous rows, in its own type.
pub(super) struct HeadRows(View);

impl HeadRows {
    /// Row `row` of `head`, and the bytes from one row to the next.
    pub fn at(&self, head: usize, row: usize) -> (*const u8, isize) {
        let (size, n) = (self.0.dtype.size() as isize, self.0.shape.ndim());
        let step = self.0.strides[n - 2];
        let offset = head_offset(&self.0, head) + row as isize * step;
        (self.0.ptr.wrapping_offset(offset * size), step * size)
    }

    pub fn dtype(&self) -> DType {
        self.0.dtype
    }
}

/// The results, computed in `T`, which is `compute`.
pub(super) fn run<T: Real>(
    cpu: &Cpu,
    inputs: &AttentionInputs<'_>,
    compute: DType,
) -> Result<(StorageRef, StorageRef)> {
    let sizes @ [queries, all, hs, hv] = inputs.sizes();
    let (k, v) = (HeadRows(View::of(inputs.k)?), HeadRows(View::of(inputs.v)?));
    let visible = Visible::of(inputs)?;
    // (heads, queries, hs), small
    let q = copy::to_compute_dtype(cpu, &View::of(inputs.q)?)?;
    let heads = inputs.q.numel() / (queries * hs);
    let scale = T::from_f64(inputs.options.factor(hs));
    let dtype = inputs.q.dtype();
    let (y, lse) = (cpu.alloc(heads * queries * hv, dtype)?, cpu.alloc(heads * queries, compute)?);
    let (q_from, lse_to) = (Shared(q.ptr().cast::<T>()), lse.ptr().cast::<T>());
    let width = padded(hv);
    let size = part_size(heads, sizes);
    let parts = all.div_ceil(size);
    // For each part: maxima, sums in PAD lanes, accumulators.
    let of_part = queries * (1 + PAD + width);
    let mut states = Array::<T>::filled(cpu, heads * parts * of_part, T::ZERO)?;
    let states_to = Shared(states.as_mut_ptr());
    let per_task = (TASK / (all.min(size) * (hs + hv))).max(1);
    let part = |task: usize| {
        let (head, first) = (task / parts, task % parts * size);
        // SAFETY: each task has its own state.
        let state =
            unsafe { std::slice::from_raw_parts_mut(states_to.get().add(task * of_part), of_part) };
        let (max, state) = state.split_at_mut(queries);
        let (sum, acc) = state.split_at_mut(queries * PAD);
        max.fill(T::LOWEST);
        let seen = visible.keys(&(0..queries));
        let seen = seen.start.max(first)..seen.end.min(first + size);
        let scratch = [queries * hs, queries * KEYS, queries * width];
        with_scratch(cpu, scratch, |[scaled, s, before]: [&mut [T]; 3]| {
            for (c, to) in scaled.iter_mut().enumerate() {
                // SAFETY: q has the rows of all heads.
                *to = unsafe { *q_from.get().add(head * queries * hs + c) } * scale;
            }
            for first in seen.clone().step_by(KEYS) {
                let count = KEYS.min(seen.end - first);
                let n = padded(count);
                // SAFETY: operands inside their heads; scores, sums and accumulators of this task.
                unsafe {
                    let to = Matrix::row_major(s, KEYS);
                    let mnk = [queries, count, hs];
                    T::scores(cpu.level, k.dtype(), mnk, scaled.as_ptr(), k.at(head, first), to);
                    for row in s.chunks_mut(KEYS) {
                        row[count..n].fill(T::LOWEST);
                    }
                    let hidden =
                        visible.apply(s.as_mut_ptr(), KEYS, head, &(0..queries), first, count);
                    let softmax = OnlineSoftmax {
                        s: s.as_mut_ptr(),
                        row: KEYS,
                        n,
                        max,
                        sum: sum.as_mut_ptr(),
                        acc: acc.as_mut_ptr(),
                        width,
                    };
                    cpu.level.run(softmax);
                    let p = Matrix::row_major(s, KEYS);
                    let mnk = [queries, hv, count];
                    let (values, step) = v.at(head, first);
                    before.copy_from_slice(acc);
                    T::add_product(cpu.level, v.dtype(), mnk, p, (values, step), acc, width);
                    if hidden && !are_finite(cpu.level, acc) {
                        acc.copy_from_slice(before);
                        let values = (v.dtype(), values, step);
                        add_seen(mnk, p, values, acc.as_mut_ptr(), width as isize);
                    }
                }
            }
        })
    };
    let tasks = heads * parts;
    try_for_each_chunk(tasks.div_ceil(per_task), |chunk| {
        (chunk * per_task..((chunk + 1) * per_task).min(tasks)).try_for_each(part)
    })?;
    for row in 0..heads * queries {
        let (head, i) = (row / queries, row % queries);
        let states = &mut states[head * parts * of_part..(head + 1) * parts * of_part];
        let (max, total) = join(states, [parts, of_part, queries, width], i);
        let nothing = max == T::LOWEST && total == T::ZERO;
        let acc = &mut states[queries * (1 + PAD) + i * width..][..hv];
        if nothing {
            acc.fill(T::ZERO);
        }
        let factor = if nothing { T::ZERO } else { T::ONE / total };
        // SAFETY: every row of the results is written once.
        unsafe {
            *lse_to.add(row) = if nothing { T::NOTHING } else { max + total.log() };
            let to = y.ptr().add(row * hv * dtype.size());
            T::finish(cpu.level, dtype, acc, factor, to);
        }
    }
    Ok((Arc::new(y), Arc::new(lse)))
}

/// Joins the parts of query `i` into the accumulator of the first; returns the maximum and the sum.
fn join<T: Real>(
    states: &mut [T],
    [parts, of_part, queries, width]: [usize; 4],
    i: usize,
) -> (T, T) {
    let max_of = |states: &[T], part: usize| states[part * of_part + i];
    let max = (0..parts).fold(T::LOWEST, |max, part| {
        let other = max_of(states, part);
        if other > max { other } else { max }
    });
    let mut total = T::ZERO;
    for part in 0..parts {
        let own = max_of(states, part);
        let alpha = if own == max { T::ONE } else { (own - max).exponential() };
        let at = |from: usize, size: usize| -> Range<usize> {
            let from = part * of_part + from + i * size;
            from..from + size
        };
        let sum = states[at(queries, PAD)].iter().fold(T::ZERO, |a, &b| a + b);
        total += sum * alpha;
        let acc = at(queries * (1 + PAD), width);
        if part == 0 {
            states[acc].iter_mut().for_each(|a| *a = *a * alpha);
        } else {
            let first = queries * (1 + PAD) + i * width;
            let (before, here) = states.split_at_mut(acc.start);
            for (to, &from) in before[first..first + width].iter_mut().zip(here.iter()) {
                *to += from * alpha;
            }
        }
    }
    (max, total)
}

#[cfg(test)]
mod tests {
    use super::part_size;

    #[test]
    fn few_heads_are_split_and_many_are_not() {
        for (heads, sizes, want) in [
            (1, [1, 4096, 64, 64], 512),
            (2, [1, 4096, 64, 64], 1024),
            (8, [1, 4096, 64, 64], 4096),
            (96, [1, 500, 64, 64], 512),
            (1, [1, 100, 64, 64], 112),
            (1, [1, 300, 64, 64], 160),
        ] {
            assert_eq!(part_size(heads, sizes), want, "{heads} {sizes:?}");
        }
    }
}
