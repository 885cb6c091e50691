//! The gradient of the filters as a matrix product: `dw (out_channels, rows) = Σ_n g @ columnsᵀ`
//! over the results of all images.
//!
//! The naive form has loops over output channels, input channels, taps, images and results. The
//! steps from there:
//!
//! 1. Some hundred results of all images together are copied to columns (`columns`), so that small
//!    images fill them.
//! 2. With few output channels these are the columns of the product, which is transposed then:
//!    columns are read as they are, and the gradients are transposed.
//! 3. Tasks have blocks of results with their own sums, which are joined in order, or some rows of
//!    columns.

use super::columns::{ConvTask, SLACK};
use super::tasks::{self, FilterSplit, REDUCED, joined, run_tasks};
use crate::Cpu;
use crate::float::Float;
use crate::matmul::{Matrix, Tile};
use crate::scratch::{Array, with_scratch};
use crate::storage::Shared;
use crate::threads::for_each_range;
use crate::transpose::transpose;
use teeny_core::Result;

/// Output channels up to which they are the columns of the product.
const MAX_TRANSPOSED_CHANNELS: usize = 64;
/// Rows of columns that are copied at a time.
const ROWS: usize = 192;

/// The gradient of the filters of `c`, whose result is `g` (images, groups · out_channels, pixels)
/// and whose weights are not read, to `to`: (groups · out_channels, in_channels, taps of the grid).
pub(super) fn by_columns<T: Float>(
    cpu: &Cpu,
    c: &ConvTask<'_, T>,
    g: &[T],
    to: &mut [T],
) -> Result<()> {
    let (m, k, pixels) = (c.out_channels, c.rows(), c.grid.pixels());
    let results = c.images * pixels;
    let split = tasks::split_filter_grad([m, results, k], c.groups, c.x.len() + g.len());
    // Gradients of small images, channel by channel through all images.
    let channels = c.groups * m;
    let joint = c.images > 1 && pixels < 8 * REDUCED;
    let copy = match joint {
        true => Some(images_joined(cpu, g, channels, c.images, pixels)?),
        false => None,
    };
    let (g, g_strides) = match &copy {
        Some(copy) => (&copy[..], [results, pixels]),
        None => (g, [pixels, channels * pixels]),
    };
    let FilterSplit { blocks, results: each, rows, parallel } = split;
    let (transposed, n) = (m <= MAX_TRANSPOSED_CHANNELS, m * k);
    let mut sums =
        Array::filled(cpu, if blocks > 1 || transposed { blocks * to.len() } else { 0 }, T::ZERO)?;
    let at = Shared(if sums.is_empty() { to.as_mut_ptr() } else { sums.as_mut_ptr() });
    let (parts, total) = (k.div_ceil(rows), to.len());
    let task = |task: usize| {
        let (block, rest) = (task / (parts * c.groups), task % (parts * c.groups));
        let (group, first) = (rest / parts, rest % parts * rows);
        let block_sums = Block {
            c,
            group,
            g: &g[group * m * g_strides[0]..],
            g_strides,
            joint,
            rows: [first, (first + rows).min(k)],
            results: [block * each, ((block + 1) * each).min(results)],
            to: at.get().wrapping_add(block * total + group * n),
        };
        // SAFETY: the sums of this block, group and rows alone.
        unsafe { block_sums.run(cpu, transposed) }
    };
    let tasks = blocks * parts * c.groups;
    run_tasks(tasks, parallel, task)?;
    if sums.is_empty() {
        return Ok(());
    }
    let sums = joined(&mut sums, total);
    for (to, from) in to.chunks_exact_mut(n).zip(sums.chunks_exact(n)) {
        if transposed {
            let (m_stride, k_stride) = (m as isize, k as isize);
            // SAFETY: k rows of m elements, and m rows of k.
            unsafe {
                let from = from.as_ptr();
                transpose(cpu.level, from, m_stride, to.as_mut_ptr(), k_stride, (m, k), false)
            };
        } else {
            to.copy_from_slice(from);
        }
    }
    Ok(())
}

/// `g` (images, channels, pixels) as (channels, images · pixels).
fn images_joined<T: Float>(
    cpu: &Cpu,
    g: &[T],
    channels: usize,
    images: usize,
    pixels: usize,
) -> Result<Array<T>> {
    let mut copy = Array::filled(cpu, g.len(), T::ZERO)?;
    let to = Shared(copy.as_mut_ptr());
    let line = images * pixels;
    for_each_range(channels, (1 << 14) / line + 1, |range| {
        for channel in range {
            // SAFETY: the row of this channel alone.
            let row = unsafe { std::slice::from_raw_parts_mut(to.get().add(channel * line), line) };
            for (image, row) in row.chunks_exact_mut(pixels).enumerate() {
                row.copy_from_slice(&g[(image * channels + channel) * pixels..][..pixels]);
            }
        }
    });
    Ok(copy)
}

/// The sums over some results for some rows of columns of one group.
struct Block<'a, T> {
    c: &'a ConvTask<'a, T>,
    group: usize,
    /// Gradients, from the group's first channel on.
    g: &'a [T],
    /// From a channel to the next, and from an image to the next.
    g_strides: [usize; 2],
    /// Whether images follow one another without channels between them.
    joint: bool,
    rows: [usize; 2],
    results: [usize; 2],
    to: *mut T,
}

impl<T: Float> Block<'_, T> {
    /// Calls `f` for some results at a time: with their gradients, (out_channels, results), their
    /// number, and the rows of columns, (rows, results) from the first of these rows on.
    fn for_each(
        &self,
        cpu: &Cpu,
        columns: &mut [T],
        mut f: impl FnMut(Matrix<T>, usize, [usize; 2], &[T]) -> Result<()>,
    ) -> Result<()> {
        let (c, pixels) = (self.c, self.c.grid.pixels());
        let x = &c.x[self.group * c.in_channels * c.grid.plane()..];
        let mut first = self.results[0];
        while first < self.results[1] {
            let mut end = (first + REDUCED).min(self.results[1]);
            if !self.joint {
                end = end.min((first / pixels + 1) * pixels);
            }
            let n = end - first;
            let panel = c.grid.panel(cpu, [first, end], c.image_strides())?;
            let at = first / pixels * self.g_strides[1] + first % pixels;
            let g = Matrix {
                ptr: self.g[at..].as_ptr(),
                row_stride: self.g_strides[0] as isize,
                col_stride: 1,
            };
            for row in (self.rows[0]..self.rows[1]).step_by(ROWS) {
                let rows = [row, (row + ROWS).min(self.rows[1])];
                c.columns(x, &panel.spans, rows, n).pack(cpu, columns);
                f(g, n, rows, columns)?;
            }
            first = end;
        }
        Ok(())
    }

    /// To (out_channels, rows): `g @ columnsᵀ`, or `transposed` to (rows, out_channels): `columns @
    /// gᵀ`.
    ///
    /// # Safety
    /// These sums are writable, and no other task touches them.
    unsafe fn run(&self, cpu: &Cpu, transposed: bool) -> Result<()> {
        let (m, k) = (self.c.out_channels, self.c.rows());
        let sizes = [ROWS * REDUCED + SLACK, if transposed { REDUCED * m } else { 0 }];
        with_scratch(cpu, sizes, |[columns, gs]: [&mut [T]; 2]| {
            let mut done = 0;
            self.for_each(cpu, columns, |g, n, [first, end], columns| {
                let (count, columns) = (end - first, Matrix::row_major(columns, n));
                let beta = if done < self.rows[1] - self.rows[0] { T::ZERO } else { T::ONE };
                done += count;
                if transposed && first == self.rows[0] {
                    let (to, size) = (gs.as_mut_ptr(), (n, m));
                    // SAFETY: n columns of m gradients, as `for_each` passes them.
                    unsafe {
                        transpose(cpu.level, g.ptr, g.row_stride, to, m as isize, size, false)
                    };
                }
                let (mnk, lhs, rhs, at, row_stride) = match transposed {
                    true => ([count, m, n], columns, Matrix::row_major(gs, m), first * m, m),
                    false => ([m, count, n], g, columns.t(), first, k),
                };
                let ptr = self.to.wrapping_add(at).cast_const();
                let c = Matrix { ptr, row_stride: row_stride as isize, col_stride: 1 };
                let rhs_numel = mnk[1] * n;
                let tile = Tile { mnk, lhs, rhs, c, beta, alpha: T::ONE, rhs_numel };
                // SAFETY: by contract; gradients and columns belong to n results.
                unsafe { tile.run(cpu) }
            })
        })?
    }
}
