//! The backward pass: P is recomputed tile by tile, and each tile adds to dQ, dK and dV.

use super::operands::{KEYS, Operand, Rows, Transposed, Visible, padded};
use super::softmax::SoftmaxBackward;
use super::tile::Real;
use super::{QUERIES, WHOLE_HEADS, hidden};
use crate::matmul::{Matrix, Product};
use crate::scratch::with_scratch;
use crate::storage::{CpuStorage, Shared, View};
use crate::threads::{for_each_range, try_for_each_chunk};
use crate::{Cpu, copy};
use std::ops::Range;
use std::sync::Arc;
use teeny_core::storage::StorageRef;
use teeny_core::{AttentionInputs, DType, Result, Tensor};

#[allow(clippy::eq_op)]
fn is_nan<T: Real>(x: T) -> bool {
    x != x
}

/// Ranges of `size` that cover `0..n`.
fn tiles(n: usize, size: usize) -> impl Iterator<Item = Range<usize>> {
    (0..n.div_ceil(size)).map(move |tile| tile * size..((tile + 1) * size).min(n))
}

/// A gradient while it is accumulated: (head, row, whole vectors).
struct Sum {
    storage: CpuStorage,
    rows: usize,
    width: usize,
}

impl Sum {
    fn of<T: Real>(cpu: &Cpu, like: &Operand, dtype: DType) -> Result<Sum> {
        let [heads, rows, columns] = like.sizes();
        let width = padded(columns);
        Ok(Sum {
            storage: cpu.zeros(heads.saturating_mul(rows).saturating_mul(width), dtype)?,
            rows,
            width,
        })
    }

    fn at<T>(&self, head: usize, row: usize) -> *mut T {
        self.storage.ptr().cast::<T>().wrapping_add((head * self.rows + row) * self.width)
    }

    /// The sum without its padding, in the operands' dtype.
    fn finish<T: Real>(
        self,
        cpu: &Cpu,
        like: &Operand,
        compute: DType,
        dtype: DType,
    ) -> Result<StorageRef> {
        let [heads, rows, columns] = like.sizes();
        let n = heads * rows * columns;
        if self.width == columns {
            return Ok(Arc::new(copy::cast_to_storage(cpu, self.storage, n, dtype)?));
        }
        let out = cpu.alloc(n, compute)?;
        let (from, to) = (Shared(self.storage.ptr().cast::<T>()), Shared(out.ptr().cast::<T>()));
        let width = self.width;
        for_each_range(heads * rows, (1 << 14) / columns + 1, |rows| {
            for row in rows {
                // SAFETY: each row is written once.
                unsafe {
                    std::ptr::copy_nonoverlapping(
                        from.get().add(row * width),
                        to.get().add(row * columns),
                        columns,
                    )
                };
            }
        });
        Ok(Arc::new(copy::cast_to_storage(cpu, out, n, dtype)?))
    }
}

/// The operands and sums of a backward pass.
struct Backward<'a, T> {
    cpu: &'a Cpu,
    sizes: [usize; 4],
    scale: T,
    visible: Visible,
    q: &'a Operand,
    g: &'a Operand,
    keys: Transposed,
    values: Option<Transposed>,
    /// K, Q and G in rows: right operands of the products that add to dQ, dK and dV.
    rows: [Option<Rows<'a>>; 3],
    /// Per query: the logsumexp and `Σ g y`.
    lse: &'a [T],
    inner: &'a [T],
    /// dQ, dK and dV.
    sums: [Option<Sum>; 3],
}

impl<T: Real> Backward<'_, T> {
    /// Adds the terms of the tile of `queries` and keys number `tile` to the sums that are
    /// `wanted`.
    ///
    /// # Safety
    /// No other task writes to these rows of those sums.
    unsafe fn tile(
        &self,
        head: usize,
        queries: Range<usize>,
        tile: usize,
        wanted: [bool; 3],
        s: &mut [T],
        ds: &mut [T],
    ) -> Result<()> {
        let [all, _, hs, hv] = self.sizes;
        let seen = self.visible.keys(&queries);
        let (first, level) = (tile * KEYS, self.cpu.level);
        if seen.start >= first + KEYS || seen.end <= first {
            return Ok(());
        }
        let count = seen.end.min(first + KEYS) - first;
        let n = padded(count);
        let scores = |a, (b, b_row_stride), k, c: &mut [T]| Product {
            mnk: [queries.len(), n, k],
            a,
            b,
            b_row_stride,
            c: c.as_mut_ptr(),
            c_row_stride: KEYS as isize,
            beta: T::ZERO,
            alpha: T::ONE,
        };
        let of_rows = |x: &[T]| -> *const T { x[head * all + queries.start..].as_ptr() };
        // SAFETY: as in the forward pass; the sums by contract.
        unsafe {
            scores(self.q.head::<T>(head).at(queries.start, 0), self.keys.tile(head, tile), hs, s)
                .run_on(self.cpu)?;
            let hidden = self.visible.apply(s.as_mut_ptr(), KEYS, head, &queries, first, n);
            let through = self.values.as_ref().filter(|_| wanted[0] || wanted[1]);
            if let Some(values) = through {
                scores(
                    self.g.head::<T>(head).at(queries.start, 0),
                    values.tile(head, tile),
                    hv,
                    ds,
                )
                .run_on(self.cpu)?;
            }
            let lse = std::slice::from_raw_parts(of_rows(self.lse), queries.len());
            let mut shifts = [T::ZERO; QUERIES];
            let shifts = &mut shifts[..queries.len()];
            shifts.copy_from_slice(lse);
            if hidden {
                // `exp(s - NaN)` is NaN, of hidden keys too: shifted by 0 it is NaN where s is.
                let rows = s.chunks_mut(KEYS).zip(shifts.iter_mut());
                for (s, shift) in rows.filter(|(_, shift)| is_nan(**shift)) {
                    let seen = s[..n].iter_mut().filter(|s| **s != T::LOWEST);
                    seen.for_each(|s| *s = *shift);
                    *shift = T::NOTHING;
                }
            }
            let inner =
                through.map(|_| std::slice::from_raw_parts(of_rows(self.inner), queries.len()));
            level.run(SoftmaxBackward {
                s: s.as_mut_ptr(),
                ds: ds.as_mut_ptr(),
                row: KEYS,
                n,
                lse: shifts,
                inner,
                scale: self.scale,
            });
            if hidden && through.is_some() {
                // `0 (g v - Σ g y)` is NaN where v is not finite.
                for (s, ds) in s.chunks(KEYS).zip(ds.chunks_mut(KEYS)).take(queries.len()) {
                    let pairs = s[..n].iter().zip(&mut ds[..n]);
                    pairs.for_each(|(&s, ds)| *ds = if s == T::ZERO { T::ZERO } else { *ds });
                }
            }
            let tile_of = |x: &[T]| Matrix::row_major(x, KEYS);
            let [k, q, g] = &self.rows;
            let terms = [
                (k, tile_of(ds), first, [queries.len(), count], queries.start),
                (q, tile_of(ds).t(), queries.start, [count, queries.len()], first),
                (g, tile_of(s).t(), queries.start, [count, queries.len()], first),
            ];
            for (i, (right, a, row, [m, k], to)) in terms.into_iter().enumerate() {
                if let (true, Some(right), Some(sum)) = (wanted[i], right, &self.sums[i]) {
                    let (b, b_row_stride) = right.at(head, row);
                    let product = Product {
                        mnk: [m, right.columns(), k],
                        a,
                        b,
                        b_row_stride,
                        c: sum.at(head, to),
                        c_row_stride: sum.width as isize,
                        beta: T::ONE,
                        alpha: T::ONE,
                    };
                    hidden::run(self.cpu, product, hidden)?;
                }
            }
        }
        Ok(())
    }

    /// All tiles, shared by threads. Many heads are one task each, which computes every tile once.
    /// Few heads are split: by tiles of keys for dK and dV, then by tiles of queries for dQ, so
    /// that each sum belongs to one task. The choice depends on the sizes alone, so the bits do not
    /// depend on the threads.
    fn run(&self, heads: usize, needs: [bool; 3]) -> Result<()> {
        let [queries, keys, ..] = self.sizes;
        let (down, across) = (queries.div_ceil(QUERIES), keys.div_ceil(KEYS));
        const TILES: [usize; 2] = [QUERIES * KEYS; 2];
        if heads >= WHOLE_HEADS {
            return try_for_each_chunk(heads, |head| {
                with_scratch(self.cpu, TILES, |[s, ds]| {
                    (0..across).try_for_each(|tile| {
                        // SAFETY: all sums of a head belong to its task.
                        tiles(queries, QUERIES).try_for_each(|rows| unsafe {
                            self.tile(head, rows, tile, needs, s, ds)
                        })
                    })
                })?
            });
        }
        let [need_q, need_k, need_v] = needs;
        if need_k || need_v {
            try_for_each_chunk(heads * across, |task| {
                let wanted = [false, need_k, need_v];
                with_scratch(self.cpu, TILES, |[s, ds]| {
                    // SAFETY: the keys of a tile belong to its task.
                    tiles(queries, QUERIES).try_for_each(|rows| unsafe {
                        self.tile(task / across, rows, task % across, wanted, s, ds)
                    })
                })?
            })?;
        }
        if need_q {
            try_for_each_chunk(heads * down, |task| {
                let start = task % down * QUERIES;
                let rows = start..(start + QUERIES).min(queries);
                with_scratch(self.cpu, TILES, |[s, ds]| {
                    // SAFETY: the queries of a tile belong to its task.
                    (0..across).try_for_each(|tile| unsafe {
                        self.tile(task / down, rows.clone(), tile, [true, false, false], s, ds)
                    })
                })?
            })?;
        }
        Ok(())
    }
}

/// `Σ g y` of every query.
fn inner<T: Real>(cpu: &Cpu, g: &Operand, y: &Operand, dtype: DType) -> Result<CpuStorage> {
    let [heads, queries, hv] = g.sizes();
    let out = cpu.alloc(heads * queries, dtype)?;
    let to = Shared(out.ptr().cast::<T>());
    for_each_range(heads * queries, (1 << 14) / hv + 1, |rows| {
        for row in rows {
            let (g, y) = (
                g.head::<T>(row / queries).at(row % queries, 0),
                y.head::<T>(row / queries).at(row % queries, 0),
            );
            // SAFETY: both have this row; each result is written once.
            unsafe { *to.get().add(row) = T::inner(cpu.level, g, y, hv) };
        }
    });
    Ok(out)
}

/// The gradients, computed in `T`, which is `compute`.
pub(super) fn run<T: Real>(
    cpu: &Cpu,
    inputs: &AttentionInputs<'_>,
    [y, lse, g]: [&Tensor; 3],
    needs: [bool; 3],
    compute: DType,
) -> Result<[Option<StorageRef>; 3]> {
    let [need_q, need_k, need_v] = needs;
    let sizes = inputs.sizes();
    let scale = T::from_f64(inputs.options.factor(sizes[2]));
    let (q, k, v) =
        (Operand::of(cpu, inputs.q)?, Operand::of(cpu, inputs.k)?, Operand::of(cpu, inputs.v)?);
    let (y, g) = (Operand::of(cpu, y)?, Operand::of(cpu, g)?);
    let heads = q.sizes()[0];
    let through = need_q || need_k;
    let inner = if through {
        inner::<T>(cpu, &g, &y, compute)?
    } else {
        cpu.zeros(heads * sizes[0], compute)?
    };
    let lse = copy::contiguous(cpu, &View::of(lse)?)?;
    let rows =
        |needed: bool, x| if needed { Rows::of::<T>(cpu, x, compute).map(Some) } else { Ok(None) };
    let sum =
        |needed: bool, x| if needed { Sum::of::<T>(cpu, x, compute).map(Some) } else { Ok(None) };
    // SAFETY: both storages hold a number per query, and live to the end of this function.
    let per_query = |x: &CpuStorage| unsafe {
        std::slice::from_raw_parts(x.ptr().cast::<T>(), heads * sizes[0])
    };
    let pass = Backward {
        cpu,
        sizes,
        scale,
        visible: Visible::of(inputs)?,
        q: &q,
        g: &g,
        keys: Transposed::of(cpu, &k, scale, compute)?,
        values: if through { Some(Transposed::of(cpu, &v, T::ONE, compute)?) } else { None },
        rows: [rows(need_q, &k)?, rows(need_k, &q)?, rows(need_v, &g)?],
        lse: per_query(&lse),
        inner: per_query(&inner),
        sums: [sum(need_q, &q)?, sum(need_k, &k)?, sum(need_v, &v)?],
    };
    pass.run(heads, needs)?;
    let [d_q, d_k, d_v] = pass.sums;
    let dtype = inputs.q.dtype();
    let finish = |sum: Option<Sum>, like| {
        sum.map(|sum| sum.finish::<T>(cpu, like, compute, dtype)).transpose()
    };
    Ok([finish(d_q, &q)?, finish(d_k, &k)?, finish(d_v, &v)?])
}
