//! The forward pass: one task per head and [`QUERIES`] queries.

use super::operands::{KEYS, Operand, Rows, Transposed, Visible, padded};
use super::softmax::{OnlineSoftmax, PAD};
use super::tile::Real;
use super::{QUERIES, hidden};
use crate::Cpu;
use crate::matmul::{Matrix, Product};
use crate::scratch::with_scratch;
use crate::storage::Shared;
use crate::threads::try_for_each_chunk;
use std::sync::Arc;
use teeny_core::storage::StorageRef;
use teeny_core::{AttentionInputs, DType, Result};

/// The results, computed in `T`, which is `compute`.
pub(super) fn run<T: Real>(
    cpu: &Cpu,
    inputs: &AttentionInputs<'_>,
    compute: DType,
) -> Result<(StorageRef, StorageRef)> {
    let [queries, _, hs, hv] = inputs.sizes();
    let (q, k, v) =
        (Operand::of(cpu, inputs.q)?, Operand::of(cpu, inputs.k)?, Operand::of(cpu, inputs.v)?);
    let heads = q.sizes()[0];
    let keys = Transposed::of(cpu, &k, T::ONE, compute)?;
    let scale = T::from_f64(inputs.options.factor(hs));
    let dtype = inputs.q.dtype();
    let values = Rows::of::<T>(cpu, &v, compute)?;
    let visible = Visible::of(inputs)?;
    let (y, lse) = (cpu.alloc(heads * queries * hv, dtype)?, cpu.alloc(heads * queries, compute)?);
    let (y_to, lse_to) = (Shared(y.ptr()), Shared(lse.ptr().cast::<T>()));
    let (per_head, width) = (queries.div_ceil(QUERIES), padded(hv));
    try_for_each_chunk(heads * per_head, |task| {
        let (head, start) = (task / per_head, task % per_head * QUERIES);
        let rows = start..(start + QUERIES).min(queries);
        with_scratch(
            cpu,
            [QUERIES * KEYS, QUERIES * width, QUERIES * PAD, QUERIES, QUERIES * hs],
            |[s, acc, sum, max, scaled]: [&mut [T]; 5]| {
                let max = &mut max[..rows.len()];
                max.fill(T::LOWEST);
                let from = q.head::<T>(head).at(start, 0);
                // SAFETY: the queries of this head.
                unsafe { T::scaled(cpu.level, from, [rows.len(), hs], scale, scaled.as_mut_ptr()) };
                sum[..rows.len() * PAD].fill(T::ZERO);
                let seen = visible.keys(&rows);
                let first_tile = seen.start / KEYS;
                for tile in first_tile..seen.end.div_ceil(KEYS) {
                    let first = tile * KEYS;
                    let count = seen.end.min(first + KEYS) - first;
                    let n = padded(count);
                    let (b, b_row_stride) = keys.tile(head, tile);
                    let scores = Product {
                        mnk: [rows.len(), n, hs],
                        a: Matrix::row_major(scaled, hs),
                        b,
                        b_row_stride,
                        c: s.as_mut_ptr(),
                        c_row_stride: KEYS as isize,
                        beta: T::ZERO,
                        alpha: T::ONE,
                    };
                    let (b, b_row_stride) = values.at(head, first);
                    // SAFETY: tiles of this task alone; operands inside their heads, keys padded to
                    // whole tiles.
                    unsafe {
                        scores.run_on(cpu)?;
                        let hidden = visible.apply(s.as_mut_ptr(), KEYS, head, &rows, first, n);
                        let softmax = OnlineSoftmax {
                            s: s.as_mut_ptr(),
                            row: KEYS,
                            n,
                            max,
                            sum: sum.as_mut_ptr(),
                            acc: acc.as_mut_ptr(),
                            // Nothing has been summed before the first tile.
                            width: if tile == first_tile { 0 } else { width },
                        };
                        cpu.level.run(softmax);
                        let a = Matrix::row_major(s, KEYS);
                        let mnk = [rows.len(), hv, count];
                        let product = Product {
                            mnk,
                            a,
                            b,
                            b_row_stride,
                            c: acc.as_mut_ptr(),
                            c_row_stride: width as isize,
                            beta: if tile == first_tile { T::ZERO } else { T::ONE },
                            alpha: T::ONE,
                        };
                        hidden::run(cpu, product, hidden)?;
                    }
                }
                for (r, i) in rows.clone().enumerate() {
                    let total = sum[r * PAD..(r + 1) * PAD].iter().fold(T::ZERO, |a, &b| a + b);
                    let nothing = max[r] == T::LOWEST && total == T::ZERO;
                    // SAFETY: every row of the results belongs to one task.
                    unsafe {
                        *lse_to.get().add(head * queries + i) =
                            if nothing { T::NOTHING } else { max[r] + total.log() };
                        let factor = if nothing { T::ZERO } else { T::ONE / total };
                        let acc = &mut acc[r * width..][..hv];
                        if nothing {
                            acc.fill(T::ZERO);
                        }
                        let to = y_to.get().add((head * queries + i) * hv * dtype.size());
                        T::finish(cpu.level, dtype, acc, factor, to);
                    }
                }
                Ok(())
            },
        )?
    })?;
    Ok((Arc::new(y), Arc::new(lse)))
}
