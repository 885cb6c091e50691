//! Products of 16-bit floats: sums in f32, one rounding at the end.
//!
//! The naive form converts both operands to f32, multiplies and rounds. That reads and writes each
//! operand three times more; here elements are converted in registers, or while they are packed
//! into panels that stay in a cache.
//!
//! ```text
//!   select   the kernel of a tile: a pure function of sizes and strides
//!   (dots)   operands contiguous along k, few rows or columns: inner products
//!   rows     few rows by a right operand with contiguous rows, read where it is
//!   packed   the microkernel of f32, or of pairs of bf16, on panels (`pack`)
//! ```
//! Where the machine multiplies pairs of bf16 (`simd::PairWork`), it does so if no element, product
//! or sum of a block can be subnormal ([`pack::Smallest`]), because those instructions take
//! subnormal numbers for zeros. Other blocks are multiplied in f32: the results agree, and NaN,
//! infinities and the errors of sums are the same. Which blocks there are depends on the sizes
//! alone.

mod pack;
mod packed;
mod rows;
mod select;

pub(crate) use pack::widen;
pub(crate) use rows::{HalfRows, RowsOf};

use super::gemm::for_each_tile;
use super::matrix::Matrix;
use super::select::tile_size;
use super::{Request, dots};
use crate::Cpu;
use crate::scratch::with_scratch;
use crate::simd::{F32s, Half, Level, Work};
use crate::storage::{CpuStorage, Shared, View};
use dots::{Dots, DotsHalf};
use pack::Smallest;
use select::{HalfKernel, select_kernel};
use std::marker::PhantomData;
use teeny_core::{DType, Result, bf16, f16};

/// The product of two views of one 16-bit type, `batch` matrices each.
pub(super) fn matmul(
    cpu: &Cpu,
    [a, b]: [&View; 2],
    [m, n, k]: [usize; 3],
    batch: usize,
) -> Result<CpuStorage> {
    if m * n * k * batch == 0 {
        return cpu.zeros(batch * m * n, a.dtype);
    }
    let out = cpu.alloc(batch * m * n, a.dtype)?;
    let to = Shared(out.ptr().cast::<u16>());
    let packed = batch == 1;
    for_each_tile(
        [m, n, k],
        batch,
        tile_size([m, n, k], batch, packed),
        |i, [row, col], [tm, tn]| {
            let tile = Tile {
                dtype: a.dtype,
                mnk: [tm, tn, k],
                a: Request::matrix::<u16>(a, i).at(row, 0),
                b: Request::matrix::<u16>(b, i).at(0, col),
            };
            // SAFETY: `View::of` has checked the operands; tiles do not overlap.
            unsafe { tile.run(cpu, to.get().add((i * m + row) * n + col), n) }
        },
    )?;
    Ok(out)
}

/// A tile of a product.
#[derive(Clone, Copy)]
struct Tile {
    dtype: DType,
    mnk: [usize; 3],
    a: Matrix<u16>,
    b: Matrix<u16>,
}

/// Runs `$body` with `$H` the type of `$dtype`.
macro_rules! with_half {
    ($dtype:expr, $H:ident => $body:expr) => {
        if $dtype == DType::BF16 {
            type $H = bf16;
            $body
        } else {
            type $H = f16;
            $body
        }
    };
}
use with_half;

/// Bytes of the streamed operand that are checked and then multiplied, while they are in a cache.
const CHECKED_BYTES: usize = 64 << 10;
/// Elements of a row of the smaller operand that are converted at a time.
const CONVERTED: usize = 2048;
/// Products of pairs that are added up in one lane.
const MAX_PAIRS: usize = 1 << 13;

impl Tile {
    /// Writes the tile to rows of `step` elements.
    ///
    /// # Safety
    /// The operands are readable, and the rows are writable.
    ///
    /// # Errors
    /// If allocating scratch memory fails.
    unsafe fn run(self, cpu: &Cpu, to: *mut u16, step: usize) -> Result<()> {
        let [m, n, _] = self.mnk;
        let kernel = select_kernel(self.mnk, self.a, self.b);
        if kernel == HalfKernel::Outer {
            // SAFETY: by contract.
            return unsafe { self.outer(cpu, to, step) };
        }
        with_scratch(cpu, [m * n], |[c]: [&mut [f32]; 1]| {
            let result = Matrix::row_major(c, n);
            // SAFETY: by contract; `c` has (m, n) elements.
            unsafe {
                match kernel {
                    HalfKernel::Dot { swapped: false } => self.dots(cpu, result)?,
                    HalfKernel::Dot { swapped: true } => self.t().dots(cpu, result.t())?,
                    HalfKernel::Rows { swapped: false } => rows::run(cpu, self, result)?,
                    HalfKernel::Rows { swapped: true } => {
                        return with_scratch(cpu, [m * n], |[t]: [&mut [f32]; 1]| {
                            rows::run(cpu, self.t(), Matrix::row_major(t, m))?;
                            for (i, line) in c.chunks_mut(n).enumerate() {
                                for (j, to) in line.iter_mut().enumerate() {
                                    *to = t[j * m + i];
                                }
                            }
                            self.round(cpu.level, c, to, step);
                            Ok(())
                        })?;
                    }
                    HalfKernel::Packed | HalfKernel::Outer => packed::run(cpu, self, c)?,
                }
                self.round(cpu.level, c, to, step);
            }
            Ok(())
        })?
    }

    /// [`HalfKernel::Outer`]: products of a column and a row.
    ///
    /// # Safety
    /// As `run`.
    unsafe fn outer(self, cpu: &Cpu, to: *mut u16, step: usize) -> Result<()> {
        let ([m, n, _], level) = (self.mnk, cpu.level);
        with_scratch(cpu, [m, n], |[a, b]: [&mut [f32]; 2]| {
            // SAFETY: by contract; a and b have m and n elements.
            unsafe {
                widen(level, self.dtype, self.a.t(), [1, m], a.as_mut_ptr(), m);
                widen(level, self.dtype, self.b, [1, n], b.as_mut_ptr(), n);
            }
            with_half!(self.dtype, H => {
                level.run(Outer::<H> { a, b, to, step, half: PhantomData });
            });
        })
    }

    /// The transposed product.
    fn t(self) -> Tile {
        let [m, n, k] = self.mnk;
        Tile { dtype: self.dtype, mnk: [n, m, k], a: self.b.t(), b: self.a.t() }
    }

    /// Rounds the sums `c` to rows of `step` elements.
    ///
    /// # Safety
    /// The rows are writable.
    unsafe fn round(self, level: Level, c: &[f32], to: *mut u16, step: usize) {
        let n = self.mnk[1];
        let joined = if step == n { c.len() } else { n };
        for (i, from) in c.chunks(joined).enumerate() {
            let to = to.wrapping_add(i * step);
            with_half!(self.dtype, H => level.run(Round::<H> { from, to, half: PhantomData }));
        }
    }

    /// [`HalfKernel::Dot`]: columns of b are contiguous, and more than the rows of a.
    ///
    /// # Safety
    /// The operands are readable, and `c` is writable.
    unsafe fn dots(self, cpu: &Cpu, c: Matrix<f32>) -> Result<()> {
        let ([m, n, k], level) = (self.mnk, cpu.level);
        let (a_step, b_step) = (2 * self.a.row_stride, 2 * self.b.col_stride);
        let pairs = self.dtype == DType::BF16
            && m > 1
            && self.a.col_stride == 1
            && k <= 2 * MAX_PAIRS
            && level.has_pairs();
        // SAFETY: by contract; parts are columns of b and of c.
        unsafe {
            if !pairs {
                return self.dots_widened(cpu, c);
            }
            let of_a = Smallest::of(level, self.a, [m, k]);
            let columns = (CHECKED_BYTES / (2 * k) / 4 * 4).max(4);
            for j in (0..n).step_by(columns) {
                let part = Tile { mnk: [m, columns.min(n - j), k], b: self.b.at(0, j), ..self };
                let c = c.at(0, j);
                if !of_a.is_safe_with(Smallest::of(level, part.b.t(), [part.mnk[1], k])) {
                    part.dots_widened(cpu, c)?;
                    continue;
                }
                level.run_pairs(Dots {
                    mnk: [m, part.mnk[1], k / 2],
                    a: self.a.ptr.cast::<f32>(),
                    a_step,
                    b: part.b.ptr.cast::<f32>(),
                    b_step,
                    c,
                    beta: 0.0,
                    alpha: 1.0,
                });
                if k % 2 == 1 {
                    part.add_last(c);
                }
            }
        }
        Ok(())
    }

    /// Adds the products of the last column of a and the last row of b, of bf16.
    ///
    /// # Safety
    /// As `dots`.
    unsafe fn add_last(self, c: Matrix<f32>) {
        let [m, n, k] = self.mnk;
        for i in 0..m {
            for j in 0..n {
                // SAFETY: by contract.
                unsafe {
                    let (x, y) = (*self.a.at(i, k - 1).ptr, *self.b.at(k - 1, j).ptr);
                    let product = bf16::from_bits(x).to_f32() * bf16::from_bits(y).to_f32();
                    *c.at(i, j).ptr.cast_mut() += product;
                }
            }
        }
    }

    /// [`Tile::dots`] in f32: a is converted by parts, b in registers.
    ///
    /// # Safety
    /// As `dots`.
    unsafe fn dots_widened(self, cpu: &Cpu, c: Matrix<f32>) -> Result<()> {
        let ([m, n, k], level) = (self.mnk, cpu.level);
        let width = CONVERTED.min(k);
        with_scratch(cpu, [m * width], |[x]: [&mut [f32]; 1]| {
            for from in (0..k).step_by(width) {
                let depth = width.min(k - from);
                // SAFETY: by contract; x has m rows of `width` elements.
                unsafe {
                    let rows = self.a.at(0, from);
                    widen(level, self.dtype, rows, [m, depth], x.as_mut_ptr(), width);
                }
                let dots = Dots {
                    mnk: [m, n, depth],
                    a: x.as_ptr(),
                    a_step: (width * size_of::<f32>()) as isize,
                    b: self.b.at(from, 0).ptr,
                    b_step: 2 * self.b.col_stride,
                    c,
                    beta: if from == 0 { 0.0 } else { 1.0 },
                    alpha: 1.0,
                };
                with_half!(self.dtype, H => level.run(DotsHalf::<H>(dots, PhantomData)));
            }
        })
    }
}

/// `to[i][j] = a[i] b[j]`.
struct Outer<'a, H> {
    a: &'a [f32],
    b: &'a [f32],
    to: *mut u16,
    step: usize,
    half: PhantomData<H>,
}

impl<H: Half> Work for Outer<'_, H> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let n = self.b.len();
        for (i, &x) in self.a.iter().enumerate() {
            let (x, to, mut j) = (V::splat(x), self.to.wrapping_add(i * self.step), 0);
            // SAFETY: rows of n values are writable.
            unsafe {
                while j + V::LANES <= n {
                    x.mul(V::load(self.b.as_ptr().add(j))).store_half::<H>(to.add(j));
                    j += V::LANES;
                }
                if j < n {
                    let mut last = [0u16; 16];
                    let y = x.mul(V::load_part(self.b.as_ptr().add(j), n - j));
                    y.store_half::<H>(last.as_mut_ptr());
                    std::ptr::copy_nonoverlapping(last.as_ptr(), to.add(j), n - j);
                }
            }
        }
    }
}

/// Rounds f32 to 16-bit floats.
struct Round<'a, H> {
    from: &'a [f32],
    to: *mut u16,
    half: PhantomData<H>,
}

impl<H: Half> Work for Round<'_, H> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let (n, mut i) = (self.from.len(), 0);
        // SAFETY: as many values are writable.
        unsafe {
            while i + V::LANES <= n {
                V::load(self.from.as_ptr().add(i)).store_half::<H>(self.to.add(i));
                i += V::LANES;
            }
            if i < n {
                let mut last = [0u16; 16];
                V::load_part(self.from.as_ptr().add(i), n - i).store_half::<H>(last.as_mut_ptr());
                std::ptr::copy_nonoverlapping(last.as_ptr(), self.to.add(i), n - i);
            }
        }
    }
}
