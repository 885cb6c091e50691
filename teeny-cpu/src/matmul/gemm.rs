//! `c = beta c + alpha lhs @ rhs` on raw strided matrices: tiles of the result are shared by
//! threads, and each tile is computed on one thread by the kernel that `select` names for it.
//!
//! The naive form is three nested loops, `c[i][j] += lhs[i][p] * rhs[p][j]`. The steps from there:
//!
//! 1. c is split into tiles of up to 512 x 512, which threads claim one by one. The tiles depend on
//!    the sizes alone, so the bits do not depend on the threads.
//! 2. The k of each tile is split into blocks, so that the part of rhs in use stays in a cache.
//! 3. A rhs that is large, or whose rows are not contiguous, is copied into panels of contiguous
//!    rows first (`pack`).
//! 4. Six rows by four vectors of c stay in registers while p runs (`microkernel`).
//!
//! The `gemm` crate's own threads cost several fork-joins per call and are slower than one thread
//! at 128³; tiles claimed by our threads run at nine tenths of two cores. gemm packs both sides of
//! every tile, which a small or middle-sized product never earns back, and a transposed rhs element
//! by element, which takes longer than multiplying by it. It computes what the kernels of this
//! crate do not: baselines without vectors, operands whose rows and columns both have gaps, and all
//! products of floats if [`FloatMatmul::GemmCrate`](crate::FloatMatmul) is set.

use super::dots::Dots;
use super::gemm_crate;
use super::gemv::Gemv;
use super::matrix::Matrix;
use super::microkernel::Product;
use super::pack::pack_rows;
use super::panels::Panels;
use super::select::{
    K_BLOCK, MIN_PARALLEL_MULS, MatmulKernel, Tiling, band_rows, panel_columns, select_kernel,
    tiling,
};
use super::tile::Tile;
use crate::Cpu;
use crate::device::FloatMatmul;
use crate::elementwise::Epilogue;
use crate::float::Float;
use crate::scratch::with_scratch;
use crate::simd::{F32s, Lanes, Level, Work};
use crate::threads::{threads, try_for_each_chunk};
use crate::transpose::transpose;
use std::ops::Range;
use teeny_core::Result;

impl<T: Float> Tile<T> {
    /// Computes the tile on this thread.
    ///
    /// # Safety
    /// `lhs` and `rhs` are readable and `c` is writable over (m, k), (k, n) and (m, n), and `c`
    /// overlaps neither operand.
    ///
    /// # Errors
    /// If allocating packed operands fails; `c` may be partly written then.
    pub(crate) unsafe fn run(self, cpu: &Cpu) -> Result<()> {
        let level = cpu.level;
        let Tile { mnk, lhs, rhs, c, beta, alpha, .. } = self;
        // SAFETY: by contract, here and in the functions that are called.
        unsafe {
            match select_kernel(&self.problem(), level, cpu.float_matmul) {
                MatmulKernel::Scale => self.scale(),
                MatmulKernel::Outer => level.run(Outer(self)),
                MatmulKernel::Transposed => return self.transposed().run(cpu),
                MatmulKernel::Dot => level.run(self.dots()),
                MatmulKernel::Gemv => level.run(Gemv {
                    nk: [mnk[1], mnk[2]],
                    a: lhs.ptr,
                    a_stride: lhs.col_stride,
                    b: rhs.ptr,
                    b_row_stride: rhs.row_stride,
                    c: c.ptr.cast_mut(),
                    beta,
                    alpha,
                }),
                MatmulKernel::GemmCrate => return gemm_crate::run(cpu, self),
                MatmulKernel::InPlace { k_block } => self.run_in_place(level, k_block),
                MatmulKernel::PackedLhs => return self.run_packed_lhs(cpu),
                MatmulKernel::PackedRhs { k_block } => return self.run_packed_rhs(cpu, k_block),
            }
        }
        Ok(())
    }

    /// Computes the tile on this thread, and calls `after` for rows of it as soon as they are
    /// computed: some at a time if that takes no longer, otherwise all.
    ///
    /// # Safety
    /// As `run`.
    ///
    /// # Errors
    /// As `run` and `after`.
    unsafe fn run_by_bands(
        self,
        cpu: &Cpu,
        after: impl Fn(Range<usize>) -> Result<()>,
    ) -> Result<()> {
        let ([m, n, k], level) = (self.mnk, cpu.level);
        let band = match select_kernel(&self.problem(), level, cpu.float_matmul) {
            MatmulKernel::InPlace { k_block } if k <= k_block => band_rows(n, size_of::<T>()),
            _ => m,
        };
        if band >= m {
            // SAFETY: by contract.
            unsafe { self.run(cpu)? };
            return after(0..m);
        }
        for i in (0..m).step_by(band) {
            let rows = i..m.min(i + band);
            let (lhs, c, mnk) = (self.lhs.at(i, 0), self.c.at(i, 0), [rows.len(), n, k]);
            // SAFETY: by contract. The elements of a row do not depend on the other rows.
            unsafe { Tile { mnk, lhs, c, ..self }.run_in_place(level, k) };
            after(rows)?;
        }
        Ok(())
    }

    /// [`MatmulKernel::Dot`]: the side with fewer rows or columns is kept in a cache.
    fn dots(self) -> Dots<T> {
        let Tile { mnk: [m, n, k], lhs, rhs, c, beta, alpha, .. } = self;
        let bytes = |stride: isize| stride * size_of::<T>() as isize;
        let (a_step, b_step) = (bytes(lhs.row_stride), bytes(rhs.col_stride));
        if n >= m {
            let (a, b) = (lhs.ptr, rhs.ptr);
            return Dots { mnk: [m, n, k], a, a_step, b, b_step, c, beta, alpha };
        }
        let (a, b, a_step, b_step) = (rhs.ptr, lhs.ptr, b_step, a_step);
        Dots { mnk: [n, m, k], a, a_step, b, b_step, c: c.t(), beta, alpha }
    }

    /// [`MatmulKernel::InPlace`]: block after block of k.
    ///
    /// # Safety
    /// As `run`.
    unsafe fn run_in_place(self, level: Level, k_block: usize) {
        let [m, n, k] = self.mnk;
        for from in (0..k).step_by(k_block) {
            let product = Product {
                mnk: [m, n, k_block.min(k - from)],
                a: self.lhs.at(0, from),
                b: self.rhs.at(from, 0).ptr,
                b_row_stride: self.rhs.row_stride,
                c: self.c.ptr.cast_mut(),
                c_row_stride: self.c.row_stride,
                beta: if from == 0 { self.beta } else { T::ONE },
                alpha: self.alpha,
            };
            // SAFETY: by contract.
            unsafe { product.run(level) };
        }
    }

    /// [`MatmulKernel::PackedLhs`]: `lhsᵀ` is packed, `rhsᵀ @ lhsᵀ` goes to scratch memory, and its
    /// transpose to `c`.
    ///
    /// # Safety
    /// As `run`; m is at most the columns of a panel, and `beta` is zero.
    unsafe fn run_packed_lhs(self, cpu: &Cpu) -> Result<()> {
        let ([m, n, k], level) = (self.mnk, cpu.level);
        let width = panel_columns(size_of::<T>());
        let stride = width as isize;
        with_scratch(cpu, [K_BLOCK * width, n * width], |[panel, product]: [&mut [T]; 2]| {
            let (panel, product) = (panel.as_mut_ptr(), product.as_mut_ptr());
            for from in (0..k).step_by(K_BLOCK) {
                let depth = K_BLOCK.min(k - from);
                let lhs = self.lhs.at(0, from);
                // SAFETY: by contract; the panel has `depth` rows of `width` columns, the product
                // n.
                unsafe {
                    transpose(level, lhs.ptr, lhs.row_stride, panel, stride, (depth, m), false);
                    Product {
                        mnk: [n, m, depth],
                        a: self.rhs.at(from, 0).t(),
                        b: panel.cast_const(),
                        b_row_stride: stride,
                        c: product,
                        c_row_stride: stride,
                        beta: if from == 0 { self.beta } else { T::ONE },
                        alpha: self.alpha,
                    }
                    .run(level);
                }
            }
            let (from, to) = (product.cast_const(), self.c.ptr.cast_mut());
            // SAFETY: as above.
            unsafe { transpose(level, from, stride, to, self.c.row_stride, (m, n), false) };
        })
    }

    /// [`MatmulKernel::PackedRhs`]: panel after panel of rhs, block after block of its rows.
    ///
    /// # Safety
    /// As `run`.
    unsafe fn run_packed_rhs(self, cpu: &Cpu, k_block: usize) -> Result<()> {
        let ([_, n, k], level) = (self.mnk, cpu.level);
        let width = panel_columns(size_of::<T>());
        with_scratch(cpu, [K_BLOCK * width], |[panel]: [&mut [T]; 1]| {
            let panel = panel.as_mut_ptr();
            for j in (0..n).step_by(width) {
                for from in (0..k).step_by(k_block) {
                    let (depth, columns) = (k_block.min(k - from), width.min(n - j));
                    // SAFETY: by contract; the panel has `depth` rows of `width` columns.
                    unsafe {
                        pack_rows(level, self.rhs.at(from, j), [depth, columns], panel, width);
                        self.of_panel(j, [from, depth], panel).run(level);
                    }
                }
            }
        })
    }
}

/// [`MatmulKernel::Outer`]: `c[i][j] = alpha lhs[i] rhs[j]`.
struct Outer<T>(Tile<T>);

impl<T: Float> Work for Outer<T> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let Tile { mnk: [m, n, _], lhs, rhs, c, alpha, .. } = self.0;
        for i in 0..m {
            // SAFETY: inside (m, 1), (1, n) and (m, n); rows of rhs and c are contiguous.
            unsafe {
                let (x, y) = (alpha * *lhs.at(i, 0).ptr, c.at(i, 0).ptr.cast_mut());
                let (x, mut j) = (T::Vector::<V>::splat(x), 0);
                while j + T::Vector::<V>::LANES <= n {
                    x.mul(T::Vector::<V>::load(rhs.ptr.add(j))).store(y.add(j));
                    j += T::Vector::<V>::LANES;
                }
                if j < n {
                    let part = T::Vector::<V>::load_part(rhs.ptr.add(j), n - j);
                    x.mul(part).store_part(y.add(j), n - j);
                }
            }
        }
    }
}

impl<T: Float> Product<T> {
    /// Computes it by the path that the device's options name.
    ///
    /// # Safety
    /// As [`Product::run`].
    ///
    /// # Errors
    /// If the `gemm` crate computes it and allocating copies of operands fails.
    #[inline]
    pub(crate) unsafe fn run_on(self, cpu: &Cpu) -> Result<()> {
        match cpu.float_matmul {
            // SAFETY: by contract.
            FloatMatmul::Own => unsafe { self.run(cpu.level) },
            FloatMatmul::GemmCrate => {
                let Product { mnk, a, b, b_row_stride, c, c_row_stride, beta, alpha } = self;
                let rhs = Matrix { ptr: b, row_stride: b_row_stride, col_stride: 1 };
                let c = Matrix { ptr: c.cast_const(), row_stride: c_row_stride, col_stride: 1 };
                let tile = Tile { mnk, lhs: a, rhs, c, beta, alpha, rhs_numel: mnk[1] * mnk[2] };
                // SAFETY: by contract.
                return unsafe { tile.run(cpu) };
            }
        }
        Ok(())
    }
}

/// `batch` products of one size, `c = beta c + alpha lhs @ rhs`; `at(b)` returns result, left and
/// right matrix of product b.
///
/// # Safety
/// As [`Tile::run`], for every product; the results do not overlap.
///
/// # Errors
/// As [`Tile::run`].
pub(crate) unsafe fn batched<T: Float>(
    cpu: &Cpu,
    mnk: [usize; 3],
    batch: usize,
    factors: [T; 2],
    at: impl Fn(usize) -> (Matrix<T>, Matrix<T>, Matrix<T>) + Sync,
) -> Result<()> {
    // SAFETY: by contract.
    unsafe { batched_then(cpu, mnk, batch, factors, at, None) }
}

/// [`batched`], and the kernel of an epilogue over each tile as soon as it is computed.
///
/// # Safety
/// As [`batched`]. With an epilogue, the results are the rows of its product one after another.
///
/// # Errors
/// As [`batched`] and [`Epilogue::run`].
pub(super) unsafe fn batched_then<T: Float>(
    cpu: &Cpu,
    [m, n, k]: [usize; 3],
    batch: usize,
    [beta, alpha]: [T; 2],
    at: impl Fn(usize) -> (Matrix<T>, Matrix<T>, Matrix<T>) + Sync,
    epilogue: Option<&Epilogue<'_>>,
) -> Result<()> {
    if m * n * batch == 0 {
        return Ok(());
    }
    let tile = |b: usize, [i, j]: [usize; 2], [tm, tn]: [usize; 2]| {
        let (c, lhs, rhs) = at(b);
        let (lhs, rhs, c) = (lhs.at(i, 0), rhs.at(0, j), c.at(i, j));
        Tile { mnk: [tm, tn, k], lhs, rhs, c, beta, alpha, rhs_numel: n * k }
    };
    let whole = tile(0, [0, 0], [m, n]).problem();
    let choice = (cpu.level, cpu.float_matmul);
    let Tiling { rows, columns, k_block, shared } = tiling(&whole, batch, choice, threads);
    let panels = match k_block.filter(|_| shared) {
        // SAFETY: by contract.
        Some(k_block) => unsafe { Some(Panels::pack(cpu, at(0).2, [n, k], k_block)?) },
        None => None,
    };
    for_each_tile([m, n, k], batch, (rows, columns), |b, [i, j], size| {
        let (tile, first) = (tile(b, [i, j], size), b * m + i);
        let after = |rows: Range<usize>| match epilogue {
            // SAFETY: rows and columns of this tile, which no other task touches.
            Some(epilogue) => unsafe {
                epilogue.run(first + rows.start..first + rows.end, j..j + size[1])
            },
            None => Ok(()),
        };
        // SAFETY: tiles of one result do not overlap, and no other task touches this one.
        unsafe {
            match (&panels, k_block) {
                (Some(panels), _) => panels.multiply(cpu, tile, j),
                (None, Some(k_block)) => tile.run_packed_rhs(cpu, k_block)?,
                (None, None) if epilogue.is_none() => return tile.run(cpu),
                (None, None) => return tile.run_by_bands(cpu, after),
            }
        }
        after(0..size[0])
    })
}

/// Calls `work` with the batch, the first row and column and the size of each tile of `batch`
/// results, on several threads if the products are large.
///
/// # Errors
/// The error of a tile.
pub(super) fn for_each_tile(
    [m, n, k]: [usize; 3],
    batch: usize,
    (tm, tn): (usize, usize),
    work: impl Fn(usize, [usize; 2], [usize; 2]) -> Result<()> + Sync,
) -> Result<()> {
    let (rows, columns) = (m.div_ceil(tm), n.div_ceil(tn));
    let tasks = batch * rows * columns;
    let work = |t: usize| {
        let (b, t) = (t / (rows * columns), t % (rows * columns));
        let (i, j) = (t / columns * tm, t % columns * tn);
        work(b, [i, j], [tm.min(m - i), tn.min(n - j)])
    };
    let per_chunk = (MIN_PARALLEL_MULS / 4 / (tm * tn * k).max(1)).max(1);
    if m * n * k * batch < MIN_PARALLEL_MULS {
        (0..tasks).try_for_each(work)
    } else {
        try_for_each_chunk(tasks.div_ceil(per_chunk), |c| {
            (c * per_chunk..((c + 1) * per_chunk).min(tasks)).try_for_each(&work)
        })
    }
}
