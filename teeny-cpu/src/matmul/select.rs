//! Which kernel computes a product, and how a product is split into tiles: pure functions of sizes
//! and strides.
//!
//! ```text
//!   k = 0 ─────────────────────────────► Scale          nothing to add to beta c
//!   gemm crate by option ──────────────► GemmCrate
//!   k = 1, beta = 0, rhs and c runs ───► Outer          products of pairs
//!   one column, lhs a run per column ──► Transposed     cᵀ = rhsᵀ lhsᵀ, one row
//!   few rows or columns, runs along k ─► Dot            inner products
//!   one row, rhs and c runs ───────────► Gemv           rows of rhs added up
//!   no vectors, or no runs ────────────► GemmCrate
//!   small rhs, or skinny lhs ──────────► InPlace        microkernel, rhs where it is
//!   rhs transposed and lhs the smaller ► PackedLhs      microkernel, cᵀ = rhsᵀ lhsᵀ, lhs packed
//!   otherwise ─────────────────────────► PackedRhs      microkernel, rhs packed panel by panel
//! ```
//! The kernel of a tile depends on its size, and its size not on the number of threads, except
//! where all tiles run one kernel ([`Tiling::k_block`]). So the bits of a result do not depend on
//! threads.

use super::matrix::Matrix;
use super::microkernel::MAX_CHAIN;
use crate::device::FloatMatmul;
use crate::scratch::LINE;
use crate::simd::Level;

/// The kernels that compute one tile of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MatmulKernel {
    /// `c = beta c`: there is nothing to add.
    Scale,
    /// k is 1: each element is one product.
    Outer,
    /// The transposed product, for which a kernel is selected again.
    Transposed,
    /// Inner products of rows of lhs and columns of rhs, both contiguous along k.
    Dot,
    /// One row of lhs times a rhs with contiguous rows.
    Gemv,
    /// The `gemm` crate on one thread.
    GemmCrate,
    /// The microkernel; rhs is read where it is.
    InPlace {
        /// Columns of lhs that are multiplied at a time.
        k_block: usize,
    },
    /// The microkernel on the transposed product: lhs is packed, and the result transposed back.
    PackedLhs,
    /// The microkernel; rhs is packed panel by panel.
    PackedRhs {
        /// Rows of rhs that are packed at a time.
        k_block: usize,
    },
}

/// The strides of one matrix, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Strides {
    pub row: isize,
    pub col: isize,
}

impl Strides {
    pub(crate) fn of<T>(matrix: Matrix<T>) -> Strides {
        Strides { row: matrix.row_stride, col: matrix.col_stride }
    }
}

/// `c (m, n) = beta c + alpha lhs (m, k) @ rhs (k, n)`: all that the choice of a kernel depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Problem {
    pub m: usize,
    pub n: usize,
    /// 0 if alpha is 0.
    pub k: usize,
    pub lhs: Strides,
    pub rhs: Strides,
    pub c: Strides,
    /// Bytes of an element: 4 or 8.
    pub element: usize,
    /// Elements of the whole right operand, of which a tile reads some columns.
    pub rhs_numel: usize,
    pub beta_is_zero: bool,
}

/// Bytes of a row of a packed panel: four vectors of the widest level.
const PANEL_ROW_BYTES: usize = 4 * LINE;
/// Rows of a packed panel: a panel takes a tenth of a second-level cache.
pub(super) const K_BLOCK: usize = 384;
/// The same for a transposed lhs: its cache lines hold elements of several rows, and must still be
/// cached when the next rows are multiplied.
pub(super) const K_BLOCK_TRANSPOSED_LHS: usize = 192;
/// Bytes of a right operand that is not worth packing.
const SMALL_RHS_BYTES: usize = 1 << 20;
/// Rows of lhs for which a large right operand is not worth packing.
const SKINNY_ROWS: usize = 64;
/// Rows or columns up to which a product is computed by inner products, for any k.
const MIN_DOTS: usize = 8;
/// Packing an operand costs some instructions for each of its elements, inner products cost some
/// additions of lanes each: up to this part of k, and [`MAX_DOTS`], they are cheaper.
const DOTS_PER_K: usize = 24;
/// Rows that share the cache with the rows of the other operand.
const MAX_DOTS: usize = 32;
/// Bytes of a row along k from which inner products with their final sum of lanes are faster.
const MIN_DOT_BYTES: usize = 256;

/// Multiplications from which a second thread pays.
pub(crate) const MIN_PARALLEL_MULS: usize = 1 << 19;

/// Columns of a packed panel.
pub(super) fn panel_columns(element: usize) -> usize {
    PANEL_ROW_BYTES / element
}

/// The kernel for one tile.
pub(crate) fn select_kernel(p: &Problem, level: Level, path: FloatMatmul) -> MatmulKernel {
    if p.k == 0 {
        return MatmulKernel::Scale;
    }
    if path == FloatMatmul::GemmCrate {
        return MatmulKernel::GemmCrate;
    }
    if p.k == 1 && p.n > 1 && p.beta_is_zero && p.rhs.col == 1 && p.c.col == 1 {
        return MatmulKernel::Outer;
    }
    if p.n == 1 && p.m > 1 && p.lhs.row == 1 {
        return MatmulKernel::Transposed;
    }
    let microkernel = has_microkernel(level);
    let few = p.m == 1
        || p.n == 1
        || microkernel && p.m.min(p.n) <= max_dots(p.k) && p.k * p.element >= MIN_DOT_BYTES;
    if few && p.lhs.col == 1 && p.rhs.row == 1 {
        return MatmulKernel::Dot;
    }
    if p.m == 1 && p.rhs.col == 1 && p.c.col == 1 {
        return MatmulKernel::Gemv;
    }
    if !microkernel || p.c.col != 1 || (p.rhs.col != 1 && p.rhs.row != 1) {
        return MatmulKernel::GemmCrate;
    }
    let lhs_rows_contiguous = p.lhs.col == 1;
    if p.rhs.col == 1 && (p.m <= SKINNY_ROWS || is_small_rhs(p.rhs_numel, p.element)) {
        let k_block = if lhs_rows_contiguous { MAX_CHAIN } else { K_BLOCK_TRANSPOSED_LHS };
        return MatmulKernel::InPlace { k_block };
    }
    if p.rhs.col != 1
        && lhs_rows_contiguous
        && p.m <= panel_columns(p.element)
        && 2 * p.m <= p.n
        && p.beta_is_zero
    {
        return MatmulKernel::PackedLhs;
    }
    let k_block = if lhs_rows_contiguous { K_BLOCK } else { K_BLOCK_TRANSPOSED_LHS };
    MatmulKernel::PackedRhs { k_block }
}

/// Rows or columns up to which a product is computed by inner products.
pub(super) fn max_dots(k: usize) -> usize {
    (k / DOTS_PER_K).clamp(MIN_DOTS, MAX_DOTS)
}

/// Whether the microkernel is fast at this level: at a level without vectors `gemm` is faster.
pub(crate) fn has_microkernel(level: Level) -> bool {
    level.is_native()
}

fn is_small_rhs(numel: usize, element: usize) -> bool {
    numel * element <= SMALL_RHS_BYTES
}

/// True if all tiles of a product pack their right operand, with any number of rows.
pub(super) fn packs_rhs([n, k]: [usize; 2], rhs: Strides, element: usize) -> bool {
    rhs.col != 1 || !is_small_rhs(n * k, element)
}

/// Multiplications of a tile, about 15 us, above which a product has [`MANY_TILES`] if it has the
/// columns.
const LARGE_TILE: usize = 1 << 21;
/// Tiles that are enough for many threads to end together.
const MANY_TILES: usize = 32;
/// Rows of lhs from which a product that packs its right operand runs one kernel in all tiles, and
/// from which few threads share packed panels: these come from a cache that threads share.
const MIN_PACKED_ROWS: usize = 128;
const MIN_SHARED_ROWS: usize = 1536;
/// Threads that are few.
const FEW_THREADS: usize = 4;
/// Bytes of shared panels at most: they are memory beside the operands.
const MAX_SHARED_BYTES: usize = 64 << 20;

/// The tiles of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tiling {
    pub rows: usize,
    pub columns: usize,
    /// Rows of the right operand that each tile packs at a time, if all tiles run this kernel: the
    /// size of a tile may follow the number of threads then.
    pub k_block: Option<usize>,
    /// Whether panels are packed before, for all tiles.
    pub shared: bool,
}

/// The tiles of `batch` products. `threads` returns the number of threads; it is called only if the
/// tiles depend on it.
pub(super) fn tiling(
    p: &Problem,
    batch: usize,
    (level, path): (Level, FloatMatmul),
    threads: impl FnOnce() -> usize,
) -> Tiling {
    let mnk = [p.m, p.n, p.k];
    if p.m * p.n * p.k * batch < MIN_PARALLEL_MULS {
        return Tiling { rows: p.m.max(1), columns: p.n.max(1), k_block: None, shared: false };
    }
    let packed = batch == 1 && packs_rhs([p.n, p.k], p.rhs, p.element);
    // the kernel of the whole product: a tile's would depend on its size
    let k_block = match select_kernel(p, level, path) {
        MatmulKernel::PackedRhs { k_block } if packed && p.m >= MIN_PACKED_ROWS => Some(k_block),
        _ => None,
    };
    if k_block.is_none() {
        let (rows, columns) = tile_size(mnk, batch, packed);
        return Tiling { rows, columns, k_block, shared: false };
    }
    let (threads, width) = (threads(), panel_columns(p.element));
    let bytes = p.n.next_multiple_of(width).saturating_mul(p.k).saturating_mul(p.element);
    let shared = bytes <= MAX_SHARED_BYTES
        && (threads > FEW_THREADS || threads > 1 && p.m >= MIN_SHARED_ROWS);
    let (rows, columns) = match shared {
        true => shared_tile_size(mnk, threads),
        false => tile_size(mnk, batch, packed),
    };
    // parts of equal heights, of whole register tiles
    let rows = p.m.div_ceil(p.m.div_ceil(rows)).next_multiple_of(12).min(p.m);
    Tiling { rows, columns, k_block, shared }
}

/// Rows and columns of a tile that shares panels: at least four tiles for each thread. Its rows of
/// lhs stay in a second-level cache.
fn shared_tile_size([m, n, k]: [usize; 3], threads: usize) -> (usize, usize) {
    let (mut tm, mut tn) = (m.min(192), n.min(512));
    for (rows, columns) in [(192, 256), (96, 256), (96, 128), (48, 128), (48, 64)] {
        let tiles = m.div_ceil(tm) * n.div_ceil(tn);
        if tiles >= 4 * threads || tm * tn * k <= MIN_PARALLEL_MULS / 2 {
            break;
        }
        (tm, tn) = (m.min(rows), n.min(columns));
    }
    (tm, tn)
}

/// Rows and columns of a tile of a product of this size: as many rows as profit from one packed
/// panel, and at least a dozen tiles to share among threads.
pub(super) fn tile_size([m, n, k]: [usize; 3], batch: usize, packed: bool) -> (usize, usize) {
    if m * n * k * batch < MIN_PARALLEL_MULS {
        return (m.max(1), n.max(1)); // for 16-bit floats
    }
    // Elements of f32 in a panel's row and in a cache line; elements of f64 take two of each.
    const COLUMNS: usize = PANEL_ROW_BYTES / size_of::<f32>();
    const PER_LINE: usize = LINE / size_of::<f32>();
    let (mut tm, mut tn) = (m.clamp(1, 512), n.clamp(1, 512));
    let tiles = |tm: usize, tn: usize| m.div_ceil(tm) * n.div_ceil(tn) * batch;
    // A panel that has to be packed should serve many rows, so that columns are split first. Few
    // rows become the columns of a transposed product, which are best whole vectors.
    let (enough, min_columns) = if packed { (6, COLUMNS) } else { (12, 2 * COLUMNS) };
    let are_few =
        |tm: usize, tn: usize| tiles(tm, tn) < enough && tm * tn * k > MIN_PARALLEL_MULS / 4;
    // more columns cost nothing: panels are computed one by one
    let are_long = |tm: usize, tn: usize| {
        tiles(tm, tn) < MANY_TILES && tm * tn * k > LARGE_TILE && tn > min_columns
    };
    while are_few(tm, tn) || are_long(tm, tn) {
        if tn > min_columns {
            tn = (tn / 2).next_multiple_of(COLUMNS);
        } else if tm > 48 {
            tm = (tm / 2).next_multiple_of(if packed { PER_LINE } else { 12 });
        } else if tn > COLUMNS {
            tn = COLUMNS;
        } else if tm > if packed { 32 } else { 24 } {
            tm = (tm / 2).next_multiple_of(if packed { PER_LINE } else { 4 });
        } else {
            break;
        }
    }
    (tm, tn)
}

/// Bytes of the rows of a tile over which a kernel runs at a time: they stay in a second-level
/// cache beside the right operand.
const BAND_BYTES: usize = 192 << 10;
/// Elements of a rectangle, and of its rows unless they follow one another, from which starting a
/// kernel on it takes less time than the cache saves.
const MIN_RECTANGLE: usize = 32 << 10;
const MIN_RECTANGLE_ROW: usize = 256;

/// Rows of a tile of `n` columns over which a kernel runs at a time: whole register tiles.
pub(super) fn band_rows(n: usize, element: usize) -> usize {
    (BAND_BYTES / (n * element).max(1) / 12 * 12).max(24)
}

/// Whether a kernel runs over the tiles of a product of `m` by `n`, instead of over all of it.
pub(super) fn runs_by_tiles([m, n]: [usize; 2], batch: usize, (tm, tn): (usize, usize)) -> bool {
    let single = batch == 1 && (tm, tn) == (m, n);
    single || tm * tn >= MIN_RECTANGLE && (tn == n || tn >= MIN_RECTANGLE_ROW)
}

#[cfg(test)]
mod tests {
    use super::*;
    use MatmulKernel::*;

    /// A product of contiguous f32 matrices.
    fn problem(m: usize, n: usize, k: usize) -> Problem {
        Problem {
            m,
            n,
            k,
            lhs: Strides { row: k as isize, col: 1 },
            rhs: Strides { row: n as isize, col: 1 },
            c: Strides { row: n as isize, col: 1 },
            element: 4,
            rhs_numel: n * k,
            beta_is_zero: true,
        }
    }

    /// [`problem`] with the right operand stored transposed.
    fn nt(m: usize, n: usize, k: usize) -> Problem {
        Problem { rhs: Strides { row: 1, col: k as isize }, ..problem(m, n, k) }
    }

    /// [`problem`] with the left operand stored transposed.
    fn tn(m: usize, n: usize, k: usize) -> Problem {
        Problem { lhs: Strides { row: 1, col: m as isize }, ..problem(m, n, k) }
    }

    /// [`problem`] with every second column of the right operand.
    fn stepped(m: usize, n: usize, k: usize) -> Problem {
        Problem { rhs: Strides { row: 2 * n as isize, col: 2 }, ..problem(m, n, k) }
    }

    fn f64s(p: Problem) -> Problem {
        Problem { element: 8, ..p }
    }

    fn with_beta(p: Problem) -> Problem {
        Problem { beta_is_zero: false, ..p }
    }

    #[test]
    fn every_kernel_is_selected_on_its_side_of_each_boundary() {
        let table = [
            // Nothing to add.
            (problem(64, 64, 0), Scale),
            (nt(1, 1, 0), Scale),
            // One product for each element.
            (problem(50, 70, 1), Outer),
            (tn(50, 70, 1), Outer),
            (f64s(problem(50, 2, 1)), Outer),
            (problem(50, 1, 1), Transposed),
            (with_beta(problem(50, 70, 1)), InPlace { k_block: 512 }),
            (stepped(50, 70, 1), GemmCrate),
            // One column of a transposed lhs becomes one row.
            (tn(2, 1, 100), Transposed),
            (tn(1, 1, 100), Dot),
            // Runs along k, few rows or columns: inner products.
            (nt(1, 1000, 100), Dot),
            (problem(1000, 1, 100), Dot),
            (nt(8, 1000, 64), Dot),
            (nt(1000, 8, 64), Dot),
            (nt(9, 1000, 64), PackedLhs),
            (nt(8, 1000, 63), PackedLhs),
            (nt(21, 1000, 504), Dot),
            (nt(21, 1000, 503), PackedLhs),
            (nt(32, 1000, 4096), Dot),
            (nt(33, 1000, 4096), PackedLhs),
            (f64s(nt(8, 1000, 32)), Dot),
            (f64s(nt(8, 1000, 31)), PackedLhs),
            // One row by rows.
            (problem(1, 1000, 1000), Gemv),
            (stepped(1, 1000, 1000), GemmCrate),
            // No runs.
            (stepped(64, 64, 64), GemmCrate),
            (Problem { c: Strides { row: 1, col: 64 }, ..problem(64, 64, 64) }, GemmCrate),
            // The right operand is small, or few rows read it.
            (problem(512, 512, 512), InPlace { k_block: 512 }),
            (problem(512, 513, 512), PackedRhs { k_block: 384 }),
            (f64s(problem(512, 256, 512)), InPlace { k_block: 512 }),
            (f64s(problem(512, 257, 512)), PackedRhs { k_block: 384 }),
            (problem(64, 1024, 1024), InPlace { k_block: 512 }),
            (problem(65, 1024, 1024), PackedRhs { k_block: 384 }),
            (tn(512, 512, 512), InPlace { k_block: 192 }),
            (tn(512, 513, 512), PackedRhs { k_block: 192 }),
            // A transposed right operand: the smaller side is packed.
            (nt(64, 128, 512), PackedLhs),
            (nt(64, 127, 512), PackedRhs { k_block: 384 }),
            (nt(65, 1024, 512), PackedRhs { k_block: 384 }),
            (f64s(nt(32, 1024, 512)), PackedLhs),
            (f64s(nt(33, 1024, 512)), PackedRhs { k_block: 384 }),
            (with_beta(nt(64, 128, 512)), PackedRhs { k_block: 384 }),
        ];
        for (p, want) in table {
            for level in [Level::Avx2, Level::Avx512] {
                assert_eq!(select_kernel(&p, level, FloatMatmul::Own), want, "{p:?} {level:?}");
            }
        }
    }

    #[test]
    fn a_tile_of_a_large_rhs_is_packed_although_the_tile_is_small() {
        let p = Problem { rhs_numel: 1 << 20, ..problem(512, 64, 512) };
        assert!(matches!(select_kernel(&p, Level::Avx2, FloatMatmul::Own), PackedRhs { .. }));
    }

    // Elsewhere the lowest level has vectors.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn without_vectors_only_single_rows_and_columns_have_kernels_here() {
        let table = [
            (problem(64, 64, 0), Scale),
            (tn(2, 1, 100), Transposed),
            (nt(1, 1000, 100), Dot),
            (nt(1000, 1, 100), Dot),
            (problem(1, 1000, 100), Gemv),
            (nt(2, 1000, 100), GemmCrate),
            (problem(64, 64, 64), GemmCrate),
        ];
        for (p, want) in table {
            assert_eq!(select_kernel(&p, Level::Portable, FloatMatmul::Own), want, "{p:?}");
        }
    }

    #[test]
    fn the_gemm_crate_computes_every_product_if_the_option_says_so() {
        for p in [problem(1, 1000, 100), nt(8, 1000, 64), tn(2, 1, 100), problem(512, 512, 512)] {
            for level in [Level::Portable, Level::Avx2, Level::Avx512] {
                assert_eq!(select_kernel(&p, level, FloatMatmul::GemmCrate), GemmCrate, "{p:?}");
            }
        }
        assert_eq!(select_kernel(&problem(8, 8, 0), Level::Avx2, FloatMatmul::GemmCrate), Scale);
    }

    #[test]
    fn what_a_tile_reads_again_stays_in_the_second_level_of_every_processor() {
        // a panel and the rows of lhs that it meets, or those over which a kernel runs
        let rows = |threads| shared_tile_size([4096; 3], threads).0 * K_BLOCK * size_of::<f32>();
        let most = [1, 2, 16, 128].map(rows).into_iter().fold(BAND_BYTES, usize::max);
        let least = crate::processor::PROCESSORS.map(|(_, caches)| caches.second_level);
        assert!(least.into_iter().all(|bytes| K_BLOCK * PANEL_ROW_BYTES + most <= bytes));
    }

    #[test]
    fn a_kernel_runs_over_a_whole_product_or_large_tiles() {
        for (mn, batch, tiles, want) in [
            ([64, 64], 1, (64, 64), true),
            ([64, 64], 8, (64, 64), false),
            ([64, 128], 1, (20, 64), false),
            ([512, 512], 1, (512, 64), false),
            ([2048, 1024], 1, (512, 256), true),
            ([8192, 128], 1, (512, 128), true),
        ] {
            assert_eq!(runs_by_tiles(mn, batch, tiles), want, "{mn:?} {batch} {tiles:?}");
        }
        assert_eq!([band_rows(512, 4), band_rows(256, 8), band_rows(1 << 20, 4)], [96, 96, 24]);
    }

    #[test]
    fn small_products_are_one_tile_and_large_ones_many() {
        for (mnk, batch, packed, want) in [
            ([64, 64, 64], 1, false, (64, 64)),
            ([79, 79, 84], 1, false, (79, 79)),
            ([128, 128, 128], 1, false, (20, 64)),
            ([64, 1024, 1024], 1, true, (64, 64)),
            ([64, 128, 784], 1, false, (20, 64)),
            ([256, 256, 64], 96, false, (256, 256)),
        ] {
            assert_eq!(tile_size(mnk, batch, packed), want, "{mnk:?} {batch} {packed}");
        }
    }

    #[test]
    fn tiles_of_one_kernel_follow_the_threads_and_the_kernel_does_not() {
        let own = (Level::Avx512, FloatMatmul::Own);
        for p in [
            problem(1024, 1024, 1024),
            problem(2048, 2048, 2048),
            problem(8192, 512, 600),
            problem(4096, 4096, 1024),
            nt(256, 3072, 768),
            nt(4096, 384, 384),
            tn(768, 3072, 256),
            f64s(nt(512, 512, 512)),
        ] {
            let of = |threads| tiling(&p, 1, own, || threads);
            let tiles = |t: Tiling| p.m.div_ceil(t.rows) * p.n.div_ceil(t.columns);
            assert!(of(1).k_block.is_some() && !of(1).shared, "{p:?}");
            for threads in [2, 3, 8, 16, 64] {
                let t = of(threads);
                assert_eq!(t.k_block, of(1).k_block);
                assert!(t.rows <= 516 && t.columns <= 512, "{p:?} {t:?}");
                if threads > FEW_THREADS {
                    // each thread has its part of the tiles, or tiles are as small as they get
                    let enough = tiles(t) >= 4 * threads;
                    let least = t.rows <= 48 || t.rows * t.columns * p.k <= MIN_PARALLEL_MULS / 2;
                    assert!(t.shared && (enough || least), "{p:?} {threads} {t:?}");
                }
            }
        }
        // the kernels of other tiles depend on their sizes, which stay
        for p in [problem(100, 4096, 4096), nt(16, 4096, 4096), problem(512, 512, 512)] {
            let of = |threads| tiling(&p, 1, own, || threads);
            assert_eq!(of(1), of(64));
            assert_eq!((of(64).k_block, of(64).shared), (None, false));
        }
        // panels would take gigabytes
        assert!(!tiling(&problem(512, 150_000, 4096), 1, own, || 64).shared);
        // batches share nothing
        assert_eq!(tiling(&problem(256, 256, 64), 96, own, || 64).k_block, None);
    }
}
