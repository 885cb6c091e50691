//! Attention without the matrix of scores: tiles of queries meet tiles of keys in L1, forward and
//! backward, with memory for the rows alone.
//!
//! ```text
//! forward    one task per head and 48 queries:  S = Q Kᵀ → running max and sum → acc = acc α + P V        y = acc / sum
//! backward   one tile:  S = Q Kᵀ, P = exp(S - lse), dP = G Vᵀ, dS = P (dP - Σ g y)
//!                       dV += Pᵀ G    dK += dSᵀ Q    dQ += dS K
//! ```
//!
//! Many heads go one to a task, each tile computed once. Few heads are cut: one pass by tiles of
//! keys for dK and dV, one by tiles of queries for dQ, each sum kept by one task. Which way depends
//! on the sizes alone, so the bits do not depend on the threads.
//!
//! Source: Dao 2023, arXiv:2307.08691.

mod operands;
mod tile;

use crate::microkernel::Product;
use crate::scratch::with_scratch;
use crate::storage::{CpuStorage, Shared};
use crate::threads::{for_each_range, try_for_each_chunk};
use crate::{Cpu, copy};
use operands::{KEYS, Operand, Rows, Transposed, Visible, padded};
use std::ops::Range;
use std::sync::Arc;
use teeny_core::storage::StorageRef;
use teeny_core::{AttentionInputs, DType, Result, Tensor};
use tile::{PAD, Real, Retrace, Soften};

/// Queries per tile: whole blocks of six rows.
const QUERIES: usize = 48;
/// Queries up to which transposing the keys costs more than the scores are worth; the definition's
/// memory is then a few rows of S.
const FEW: usize = 4;
/// Heads from which a backward task is a whole head.
const MANY: usize = 16;

/// True where the definition is as good: next to no queries, or nothing at all.
pub(crate) fn is_small(inputs: &AttentionInputs<'_>) -> bool {
    inputs.sizes()[0] <= FEW
        || inputs.q.numel() == 0
        || inputs.k.numel() == 0
        || inputs.v.numel() == 0
}

/// y and the logsumexp.
pub(crate) fn forward(cpu: &Cpu, inputs: &AttentionInputs<'_>) -> Result<(StorageRef, StorageRef)> {
    match inputs.q.dtype() {
        DType::F64 => forward_of::<f64>(cpu, inputs, DType::F64),
        _ => forward_of::<f32>(cpu, inputs, DType::F32),
    }
}

/// The gradients that are needed.
pub(crate) fn backward(
    cpu: &Cpu,
    inputs: &AttentionInputs<'_>,
    y: &Tensor,
    lse: &Tensor,
    g: &Tensor,
    needs: [bool; 3],
) -> Result<[Option<StorageRef>; 3]> {
    match inputs.q.dtype() {
        DType::F64 => backward_of::<f64>(cpu, inputs, [y, lse, g], needs, DType::F64),
        _ => backward_of::<f32>(cpu, inputs, [y, lse, g], needs, DType::F32),
    }
}

fn tiles(n: usize, size: usize) -> impl Iterator<Item = Range<usize>> {
    (0..n.div_ceil(size)).map(move |tile| tile * size..((tile + 1) * size).min(n))
}

fn forward_of<T: Real>(
    cpu: &Cpu,
    inputs: &AttentionInputs<'_>,
    wide: DType,
) -> Result<(StorageRef, StorageRef)> {
    let [queries, _, hs, hv] = inputs.sizes();
    let (q, k, v) =
        (Operand::of(cpu, inputs.q)?, Operand::of(cpu, inputs.k)?, Operand::of(cpu, inputs.v)?);
    let heads = q.sizes()[0];
    let keys = Transposed::of(cpu, &k, T::from_f64(inputs.options.factor(hs)), wide)?;
    let values = Rows::of::<T>(cpu, &v, wide)?;
    let visible = Visible::of(inputs)?;
    let (y, lse) = (cpu.alloc(heads * queries * hv, wide)?, cpu.alloc(heads * queries, wide)?);
    let (y_to, lse_to) = (Shared(y.ptr().cast::<T>()), Shared(lse.ptr().cast::<T>()));
    let (per_head, width) = (queries.div_ceil(QUERIES), padded(hv));
    try_for_each_chunk(heads * per_head, |task| {
        let (head, start) = (task / per_head, task % per_head * QUERIES);
        let rows = start..(start + QUERIES).min(queries);
        with_scratch(
            cpu,
            [QUERIES * KEYS, QUERIES * width, QUERIES * PAD, QUERIES],
            |[s, acc, sum, max]: [&mut [T]; 4]| {
                let max = &mut max[..rows.len()];
                max.fill(T::LOWEST);
                acc.fill(T::ZERO);
                sum.fill(T::ZERO);
                let seen = visible.keys(&rows);
                for tile in seen.start / KEYS..seen.end.div_ceil(KEYS) {
                    let first = tile * KEYS;
                    let count = seen.end.min(first + KEYS) - first;
                    let n = padded(count);
                    let scores = Product {
                        mnk: [rows.len(), n, hs],
                        a: q.head::<T>(head).at(start, 0),
                        b: keys.tile(head, tile),
                        b_step: KEYS as isize,
                        c: s.as_mut_ptr(),
                        c_step: KEYS as isize,
                        scales: [T::ZERO, T::ONE],
                    };
                    let (b, b_step) = values.at(head, first);
                    // SAFETY: tiles of this task alone; operands inside their heads, keys padded to
                    // whole tiles and values to whole vectors.
                    unsafe {
                        scores.run(cpu.level);
                        visible.apply(s.as_mut_ptr(), head, &rows, first, n);
                        let rows_of = Soften {
                            s: s.as_mut_ptr(),
                            row: KEYS,
                            n,
                            max,
                            sum: sum.as_mut_ptr(),
                            acc: acc.as_mut_ptr(),
                            width,
                        };
                        T::soften(cpu.level, rows_of);
                        let a =
                            crate::gemm::Matrix { ptr: s.as_ptr(), rows: KEYS as isize, cols: 1 };
                        let mnk = [rows.len(), width, count];
                        Product {
                            mnk,
                            a,
                            b,
                            b_step,
                            c: acc.as_mut_ptr(),
                            c_step: width as isize,
                            scales: [T::ONE; 2],
                        }
                        .run(cpu.level);
                    }
                }
                for (r, i) in rows.clone().enumerate() {
                    let total = sum[r * PAD..(r + 1) * PAD].iter().fold(T::ZERO, |a, &b| a + b);
                    let nothing = max[r] == T::LOWEST && total == T::ZERO;
                    // SAFETY: every row of the results belongs to one task.
                    unsafe {
                        *lse_to.get().add(head * queries + i) =
                            if nothing { T::NOTHING } else { max[r] + total.log() };
                        let to = std::slice::from_raw_parts_mut(
                            y_to.get().add((head * queries + i) * hv),
                            hv,
                        );
                        for (to, &from) in to.iter_mut().zip(&acc[r * width..]) {
                            *to = if nothing { T::ZERO } else { from / total };
                        }
                    }
                }
            },
        )
    })?;
    Ok((Arc::new(copy::stored(cpu, y, heads * queries * hv, inputs.q.dtype())?), Arc::new(lse)))
}

/// A gradient as it is summed: (head, row, whole vectors).
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

    /// The sum without its padding, in the operands' type.
    fn finish<T: Real>(
        self,
        cpu: &Cpu,
        like: &Operand,
        wide: DType,
        dtype: DType,
    ) -> Result<StorageRef> {
        let [heads, rows, columns] = like.sizes();
        let n = heads * rows * columns;
        if self.width == columns {
            return Ok(Arc::new(copy::stored(cpu, self.storage, n, dtype)?));
        }
        let out = cpu.alloc(n, wide)?;
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
        Ok(Arc::new(copy::stored(cpu, out, n, dtype)?))
    }
}

/// What the tiles of a backward pass share.
struct Backward<'a, T> {
    cpu: &'a Cpu,
    sizes: [usize; 4],
    scale: T,
    visible: Visible,
    q: &'a Operand,
    g: &'a Operand,
    keys: Transposed,
    values: Option<Transposed>,
    /// K, Q and G in rows, for what they are multiplied into.
    rows: [Option<Rows<'a>>; 3],
    /// Per query: the logsumexp and `Σ g y`.
    lse: &'a [T],
    inner: &'a [T],
    /// dQ, dK and dV.
    sums: [Option<Sum>; 3],
}

impl<T: Real> Backward<'_, T> {
    /// What the tile of `queries` and keys number `tile` adds to the sums that are `wanted`.
    ///
    /// # Safety
    /// Nobody else writes to these rows of those sums.
    unsafe fn tile(
        &self,
        head: usize,
        queries: Range<usize>,
        tile: usize,
        wanted: [bool; 3],
        s: &mut [T],
        ds: &mut [T],
    ) {
        let [all, _, hs, hv] = self.sizes;
        let seen = self.visible.keys(&queries);
        let (first, level) = (tile * KEYS, self.cpu.level);
        if seen.start >= first + KEYS || seen.end <= first {
            return;
        }
        let count = seen.end.min(first + KEYS) - first;
        let n = padded(count);
        let scores = |a, b, k, c: &mut [T]| Product {
            mnk: [queries.len(), n, k],
            a,
            b,
            b_step: KEYS as isize,
            c: c.as_mut_ptr(),
            c_step: KEYS as isize,
            scales: [T::ZERO, T::ONE],
        };
        let of_rows = |x: &[T]| -> *const T { x[head * all + queries.start..].as_ptr() };
        // SAFETY: as in `forward_of`; the sums by contract.
        unsafe {
            scores(self.q.head::<T>(head).at(queries.start, 0), self.keys.tile(head, tile), hs, s)
                .run(level);
            self.visible.apply(s.as_mut_ptr(), head, &queries, first, n);
            let through = self.values.as_ref().filter(|_| wanted[0] || wanted[1]);
            if let Some(values) = through {
                scores(
                    self.g.head::<T>(head).at(queries.start, 0),
                    values.tile(head, tile),
                    hv,
                    ds,
                )
                .run(level);
            }
            let lse = std::slice::from_raw_parts(of_rows(self.lse), queries.len());
            let inner =
                through.map(|_| std::slice::from_raw_parts(of_rows(self.inner), queries.len()));
            T::retrace(
                level,
                Retrace {
                    s: s.as_mut_ptr(),
                    ds: ds.as_mut_ptr(),
                    row: KEYS,
                    n,
                    lse,
                    inner,
                    scale: self.scale,
                },
            );
            let along =
                |x: &[T]| crate::gemm::Matrix { ptr: x.as_ptr(), rows: KEYS as isize, cols: 1 };
            let [k, q, g] = &self.rows;
            let terms = [
                (k, along(ds), first, [queries.len(), count], queries.start),
                (q, along(ds).t(), queries.start, [count, queries.len()], first),
                (g, along(s).t(), queries.start, [count, queries.len()], first),
            ];
            for (number, (right, a, row, [m, k], to)) in terms.into_iter().enumerate() {
                if let (true, Some(right), Some(sum)) = (wanted[number], right, &self.sums[number])
                {
                    let (b, b_step) = right.at(head, row);
                    Product {
                        mnk: [m, sum.width, k],
                        a,
                        b,
                        b_step,
                        c: sum.at(head, to),
                        c_step: sum.width as isize,
                        scales: [T::ONE; 2],
                    }
                    .run(level);
                }
            }
        }
    }

    fn run(&self, heads: usize, needs: [bool; 3]) -> Result<()> {
        let [queries, keys, ..] = self.sizes;
        let (down, across) = (queries.div_ceil(QUERIES), keys.div_ceil(KEYS));
        const TILES: [usize; 2] = [QUERIES * KEYS; 2];
        if heads >= MANY {
            return try_for_each_chunk(heads, |head| {
                with_scratch(self.cpu, TILES, |[s, ds]| {
                    for tile in 0..across {
                        // SAFETY: all sums of a head belong to its task.
                        tiles(queries, QUERIES)
                            .for_each(|rows| unsafe { self.tile(head, rows, tile, needs, s, ds) });
                    }
                })
            });
        }
        let [need_q, need_k, need_v] = needs;
        if need_k || need_v {
            try_for_each_chunk(heads * across, |task| {
                let wanted = [false, need_k, need_v];
                with_scratch(self.cpu, TILES, |[s, ds]| {
                    // SAFETY: the keys of a tile belong to its task.
                    tiles(queries, QUERIES).for_each(|rows| unsafe {
                        self.tile(task / across, rows, task % across, wanted, s, ds)
                    });
                })
            })?;
        }
        if need_q {
            try_for_each_chunk(heads * down, |task| {
                let start = task % down * QUERIES;
                let rows = start..(start + QUERIES).min(queries);
                with_scratch(self.cpu, TILES, |[s, ds]| {
                    // SAFETY: the queries of a tile belong to its task.
                    (0..across).for_each(|tile| unsafe {
                        self.tile(task / down, rows.clone(), tile, [true, false, false], s, ds)
                    });
                })
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

fn backward_of<T: Real>(
    cpu: &Cpu,
    inputs: &AttentionInputs<'_>,
    [y, lse, g]: [&Tensor; 3],
    needs: [bool; 3],
    wide: DType,
) -> Result<[Option<StorageRef>; 3]> {
    let [need_q, need_k, need_v] = needs;
    let sizes = inputs.sizes();
    let scale = T::from_f64(inputs.options.factor(sizes[2]));
    let (q, k, v) =
        (Operand::of(cpu, inputs.q)?, Operand::of(cpu, inputs.k)?, Operand::of(cpu, inputs.v)?);
    let (y, g) = (Operand::of(cpu, y)?, Operand::of(cpu, g)?);
    let heads = q.sizes()[0];
    let through = need_q || need_k;
    let inner =
        if through { inner::<T>(cpu, &g, &y, wide)? } else { cpu.zeros(heads * sizes[0], wide)? };
    let lse = copy::contiguous(cpu, &crate::storage::View::of(lse)?)?;
    let rows =
        |needed: bool, x| if needed { Rows::of::<T>(cpu, x, wide).map(Some) } else { Ok(None) };
    let sum =
        |needed: bool, x| if needed { Sum::of::<T>(cpu, x, wide).map(Some) } else { Ok(None) };
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
        keys: Transposed::of(cpu, &k, scale, wide)?,
        values: if through { Some(Transposed::of(cpu, &v, T::ONE, wide)?) } else { None },
        rows: [rows(need_q, &k)?, rows(need_k, &q)?, rows(need_v, &g)?],
        lse: per_query(&lse),
        inner: per_query(&inner),
        sums: [sum(need_q, &q)?, sum(need_k, &k)?, sum(need_v, &v)?],
    };
    pass.run(heads, needs)?;
    let [d_q, d_k, d_v] = pass.sums;
    let dtype = inputs.q.dtype();
    let finish =
        |sum: Option<Sum>, like| sum.map(|sum| sum.finish::<T>(cpu, like, wide, dtype)).transpose();
    Ok([finish(d_q, &q)?, finish(d_k, &k)?, finish(d_v, &v)?])
}
