//! Convolution without a matrix: for few output channels per group, depthwise ones above all.
//!
//! The naive form is `y[o][p] = Σ_c Σ_t w[o][c][t] x[c][p * step + shift[t]]`. As a product with
//! columns it would copy each element as often as there are taps, and use each copy once or a few
//! times. The steps from the naive form:
//!
//! 1. The rows of input that a task reads are copied once, with zeros around them, to a lattice
//!    (`lattice`) in which the elements that one tap reads for neighbouring results are neighbours,
//!    whatever the stride. Without padding and strides the input itself is the lattice.
//! 2. A tap is then one number, its distance in the lattice, and the loops over channels and taps
//!    are one loop over a table of distances (`kernels`). Lanes are results; a register tile is up
//!    to four channels by four vectors.
//! 3. Where rows of results are short, vectors run through all lines of the lattice: what they
//!    compute between two rows is dropped.
//!
//! `weight_grad` has the gradient of the filters. Knows neither dtypes nor views.

mod kernels;
mod lattice;
mod weight_grad;

pub(super) use weight_grad::by_lattices as weight_grad;

use super::columns::{ConvTask, scatter_strided};
use super::grid::Grid;
use super::select;
use crate::Cpu;
use crate::float::{Float, lanes};
use crate::scratch::{Array, with_scratch};
use crate::simd::{F32s, Work};
use crate::threads::try_for_each_chunk;
use kernels::{Correlate, Distances};
use lattice::{Fill, Lattice};
use teeny_core::Result;

/// Fills the lattices of all channels and outer taps for the outer place `outer`.
fn fill<T: Float>(
    cpu: &Cpu,
    lattice: &Lattice,
    image: &[T],
    outer: usize,
    [top, rows]: [usize; 2],
    cells: &mut [T],
) {
    let ([taps, _], plane, size) = (lattice.taps(), lattice.plane(), lattice.cells(rows));
    let planes = lattice.outer_inputs();
    for (v, cells) in cells.chunks_exact_mut(size).enumerate() {
        match lattice.outer_plane(outer, v % taps) {
            Some(at) => {
                let from = &image[(v / taps * planes + at) * plane..][..plane];
                cpu.level.run(Fill { lattice, top, rows, from, cells });
            }
            None => cells.fill(T::ZERO),
        }
    }
}

/// The cells that each row of weights reads, under `rows` rows of results.
fn distances<T: Float>(
    cpu: &Cpu,
    lattice: &Lattice,
    c: &ConvTask<'_, T>,
    rows: usize,
) -> Result<Distances> {
    let [outer, inner] = lattice.taps();
    let cells = lattice.cells(rows);
    let taps = Array::from_fn(cpu, inner, |tap| lattice.distance(tap, rows))?;
    Distances::from_fn(cpu, c.in_channels * outer * inner, |i| {
        let (channel, tap) = match c.taps_first {
            true => (i % c.in_channels, i / c.in_channels),
            false => (i / (outer * inner), i % (outer * inner)),
        };
        (channel * outer + tap / inner) * cells + taps[tap % inner]
    })
}

impl<T: Float> ConvTask<'_, T> {
    /// Whether the lattice of a plane takes a small multiple of the memory of operands.
    pub(super) fn has_small_lattice(&self) -> bool {
        let lattice = Lattice::new(self.grid);
        let ([rows, width], _) = lattice.results();
        lattice.cells(rows) <= 8 * (lattice.plane() + rows * width) + 1024
    }

    /// Computes all results from lattices: of long lines part by part. Whether the epilogue, if there
    /// is one, has run.
    pub(super) fn by_lattices(&self, cpu: &Cpu) -> Result<bool> {
        let lattice = Lattice::new(self.grid);
        let ([height, width], _) = lattice.results();
        let line = self.in_channels * lattice.cells(1);
        let parts = if height == 1 { select::parts_of_line(width, line) } else { 1 };
        if parts == 1 {
            self.all_planes(cpu, &lattice)?;
            return Ok(true);
        }
        let grids: Vec<Grid> = (0..parts)
            .map(|i| {
                let part = select::part(width, parts, i);
                self.grid.columns(part.start, part.end)
            })
            .collect();
        try_for_each_chunk(parts, |i| {
            let part = ConvTask { grid: &grids[i], epilogue: None, ..*self };
            part.all_planes(cpu, &Lattice::new(&grids[i]))
        })?;
        Ok(false)
    }

    fn all_planes(&self, cpu: &Cpu, lattice: &Lattice) -> Result<()> {
        let ([height, width], outer) = lattice.results();
        let planes = self.images * self.groups * outer;
        let line = self.in_channels * lattice.taps()[0] * lattice.cells(1).min(4 * lattice.plane());
        let muls = self.out_channels * self.rows() * height * width;
        let (each, rows) = select::split_planes(planes, height, line, muls);
        let bands = height.div_ceil(rows);
        let table = distances(cpu, lattice, self, rows)?;
        let last = match height % rows {
            0 => None,
            rest => Some(distances(cpu, lattice, self, rest)?),
        };
        let task = |task: usize| {
            let (first, top) = (task / bands * each, task % bands * rows);
            let planes = [first, (first + each).min(planes)];
            match &last {
                Some(last) if top + rows > height => {
                    self.planes(cpu, lattice, last, planes, [top, height - top])
                }
                _ => self.planes(cpu, lattice, &table, planes, [top, rows]),
            }
        };
        let tasks = planes.div_ceil(each) * bands;
        match select::is_parallel(muls * planes) {
            true => try_for_each_chunk(tasks, task),
            false => (0..tasks).try_for_each(task),
        }
    }

    /// `rows` rows from row `top` on of some planes of results.
    fn planes(
        &self,
        cpu: &Cpu,
        lattice: &Lattice,
        distances: &Distances,
        [first, end]: [usize; 2],
        [top, rows]: [usize; 2],
    ) -> Result<()> {
        let (grid, m, k) = (self.grid, self.out_channels, self.rows());
        let ([height, width], outer) = lattice.results();
        let (inputs, results) = (self.in_channels * grid.plane(), m * grid.size());
        let flat = lattice.is_flat(rows, lanes::<T>(cpu.level));
        // What is computed is the result itself, or rows that are copied to it.
        let direct = !flat && grid.is_dense();
        let row_step = grid.row_step();
        let (line, step) = match flat {
            true => ((rows - 1) * lattice.pitch + width, lattice.pitch),
            false => (rows * width, width),
        };
        let cells = match lattice.in_place {
            true => 0,
            false => self.in_channels * lattice.taps()[0] * lattice.cells(rows),
        };
        let sizes = [cells, if direct { 0 } else { m * line }];
        with_scratch(cpu, sizes, |[cells, product]: [&mut [T]; 2]| {
            // Between lines, nothing is written either.
            if lattice.has_padding || flat {
                cells.fill(T::ZERO);
            }
            for item in first..end {
                let (plane, outer) = (item / outer, item % outer);
                let image = &self.x[plane * inputs..][..inputs];
                if !lattice.in_place {
                    fill(cpu, lattice, image, outer, [top, rows], cells);
                }
                let x = if lattice.in_place { image } else { &*cells };
                let to = self.y.get().wrapping_add(plane * results);
                let to = to.wrapping_add(grid.place((outer * height + top) * width));
                cpu.level.run(Correlate {
                    x: &x[lattice.first(top)..],
                    pitch: lattice.pitch,
                    distances: distances.table(),
                    weight: &self.weight[plane % self.groups * m * k..][..m * k],
                    m,
                    rows: if flat { 1 } else { rows },
                    n: if flat { line } else { width },
                    y: if direct { to } else { product.as_mut_ptr() },
                    strides: if direct { [grid.size(), row_step] } else { [line, step] },
                    prefetches: lattice.in_place,
                });
                if !direct {
                    let strides = [[line, step], [grid.size(), row_step]];
                    let every = grid.last().every;
                    let size = [m, rows, width];
                    cpu.level.run(Rows { product, size, strides, every, to });
                }
                let (image, group) = (plane / self.groups, plane % self.groups);
                let first = image * grid.pixels() + (outer * height + top) * width;
                // SAFETY: rows of all channels that this task has just computed.
                unsafe { self.finish_part(group, [first, first + rows * width])? };
            }
            Ok(())
        })?
    }
}

/// Copies rows of all channels from a product to the result.
struct Rows<'a, T> {
    product: &'a [T],
    /// Channels, rows, and elements of a row.
    size: [usize; 3],
    /// Of the product and of the result: from a channel to the next, and from a row to the next.
    strides: [[usize; 2]; 2],
    every: usize,
    to: *mut T,
}

impl<T: Float> Work for Rows<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let Rows { product, size: [m, rows, width], strides: [from, to], every, .. } = self;
        for c in 0..m {
            for row in 0..rows {
                let line = &product[c * from[0] + row * from[1]..][..width];
                let to = self.to.wrapping_add(c * to[0] + row * to[1]);
                // SAFETY: the row's results of this channel, which the task alone writes.
                unsafe { scatter_strided::<T, T::Vector<V>>(line, to, every) };
            }
        }
    }
}

impl Grid {
    /// From a row of results to the next, in the plane of all results.
    fn row_step(&self) -> usize {
        match self.axes.len().checked_sub(2) {
            Some(rows) => self.axes[rows].every * self.last().size,
            None => self.last().size,
        }
    }
}
