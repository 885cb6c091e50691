//! The gradient of the filters from lattices: `dw[o][c][t] = Σ_n Σ_p g[n][o][p] x[n][c][p + d[t]]`.
//!
//! Lanes are results; the sums of nine taps of one or two channels stay in registers. A task adds
//! up some images of some groups, and the sums of tasks are joined in order. Where rows are short,
//! the gradients are copied to lines with the lattice's pitch: then what is between rows is
//! multiplied by zero, and if that gives no number everything is computed again row by row.

use super::kernels::{Slopes, Totals};
use super::lattice::Lattice;
use super::{distances, fill};
use crate::Cpu;
use crate::conv::columns::ConvTask;
use crate::conv::select;
use crate::float::{Float, lanes};
use crate::scratch::{Array, with_scratch};
use crate::storage::Shared;
use crate::threads::try_for_each_chunk;
use teeny_core::Result;

/// Vectors that are added up in one chain.
const CHAIN: usize = 512;
/// Images whose sums are added up in one chain.
const IMAGES: usize = 64;

/// The gradient of the filters of `c`, whose result is `g` and whose weights are not read, to `to`:
/// (groups · out_channels, in_channels, taps of the grid).
pub(in crate::conv) fn by_lattices<T: Float>(
    cpu: &Cpu,
    c: &ConvTask<'_, T>,
    g: &[T],
    to: &mut [T],
) -> Result<()> {
    let lattice = &Lattice::new(c.grid);
    let ([height, _], _) = lattice.results();
    run(cpu, c, lattice, g, to, lattice.is_flat(height, lanes::<T>(cpu.level)))?;
    // An infinity between two rows is in the sums of taps that do not see it.
    if to.iter().any(|&x| x * T::ZERO != T::ZERO) {
        run(cpu, c, lattice, g, to, false)?;
    }
    Ok(())
}

fn run<T: Float>(
    cpu: &Cpu,
    c: &ConvTask<'_, T>,
    lattice: &Lattice,
    g: &[T],
    to: &mut [T],
    flat: bool,
) -> Result<()> {
    let n = c.out_channels * c.rows();
    let ([height, width], outer) = lattice.results();
    let (blocks, groups) =
        select::split_filters(c.images, c.groups, n * c.images * outer * height * width);
    let images = c.images.div_ceil(blocks);
    let blocks = c.images.div_ceil(images);
    let mut sums = Array::filled(cpu, c.groups * n * blocks, T::ZERO)?;
    let at = Shared(sums.as_mut_ptr());
    let along = c.groups.div_ceil(groups);
    let task = |task: usize| {
        let (block, first) = (task / along, task % along * groups);
        let groups = [first, (first + groups).min(c.groups)];
        let images = [block * images, ((block + 1) * images).min(c.images)];
        let (first, len) = (block * c.groups + first, groups[1] - groups[0]);
        // SAFETY: the sums of these groups and this block alone.
        let sums = unsafe { std::slice::from_raw_parts_mut(at.get().add(first * n), len * n) };
        block_sums(cpu, c, lattice, g, groups, images, sums, flat)
    };
    let tasks = along * blocks;
    match select::is_parallel(c.groups * n * c.images * outer * height * width) {
        true => try_for_each_chunk(tasks, task)?,
        false => (0..tasks).try_for_each(task)?,
    }
    to.copy_from_slice(&sums[..c.groups * n]);
    for other in sums.chunks_exact(c.groups * n).skip(1) {
        to.iter_mut().zip(other).for_each(|(a, &b)| *a += b);
    }
    Ok(())
}

/// The sums of some groups over some images.
#[expect(clippy::too_many_arguments)]
fn block_sums<T: Float>(
    cpu: &Cpu,
    c: &ConvTask<'_, T>,
    lattice: &Lattice,
    g: &[T],
    [first, end]: [usize; 2],
    images: [usize; 2],
    sums: &mut [T],
    flat: bool,
) -> Result<()> {
    let ([height, width], outer) = lattice.results();
    let (m, n, pixels) = (c.out_channels, c.out_channels * c.rows(), height * width);
    let lanes = lanes::<T>(cpu.level);
    // Rows that are added up at a time, and those of a lattice.
    let virtuals = c.in_channels * lattice.taps()[0];
    let line = if flat { lattice.pitch } else { width.next_multiple_of(lanes) };
    let most = (CHAIN * lanes / line).min(select::lattice_rows(virtuals * lattice.cells(1)));
    let most = most.clamp(1, height);
    let table = distances(cpu, lattice, c, most)?;
    let rest = height % most;
    let last = if rest > 0 { Some(distances(cpu, lattice, c, rest)?) } else { None };
    let cells = if lattice.in_place { 0 } else { virtuals * lattice.cells(most) };
    let line = (most - 1) * lattice.pitch + width;
    let sizes = [cells, if flat { m * line } else { 0 }, n * lanes];
    with_scratch(cpu, sizes, |[cells, lines, part]: [&mut [T]; 3]| {
        lines.fill(T::ZERO);
        part.fill(T::ZERO);
        for (group, sums) in (first..end).zip(sums.chunks_exact_mut(n)) {
            for image in images[0]..images[1] {
                let plane = image * c.groups + group;
                let inputs = c.in_channels * c.grid.plane();
                let x = &c.x[plane * inputs..][..inputs];
                let g = &g[plane * m * outer * pixels..][..m * outer * pixels];
                for (outer_at, top) in
                    (0..outer).flat_map(|o| (0..height).step_by(most).map(move |top| (o, top)))
                {
                    let rows = most.min(height - top);
                    let distances = match &last {
                        Some(last) if rows < most => last,
                        _ => &table,
                    };
                    let cells = if lattice.in_place {
                        &mut []
                    } else {
                        &mut cells[..virtuals * lattice.cells(rows)]
                    };
                    if !lattice.in_place {
                        if lattice.has_padding || flat {
                            cells.fill(T::ZERO);
                        }
                        fill(cpu, lattice, x, outer_at, [top, rows], cells);
                    }
                    let x = if lattice.in_place { &x[lattice.first(top)..] } else { &*cells };
                    let from = (outer_at * height + top) * width;
                    let channel = outer * pixels;
                    let line = (rows - 1) * lattice.pitch + width;
                    if flat {
                        for (channel_at, lines) in
                            lines[..m * line].chunks_exact_mut(line).enumerate()
                        {
                            let g = &g[channel_at * channel + from..][..rows * width];
                            for (to, from) in
                                lines.chunks_mut(lattice.pitch).zip(g.chunks_exact(width))
                            {
                                to[..width].copy_from_slice(from);
                                to[width..].fill(T::ZERO);
                            }
                        }
                    }
                    cpu.level.run(Slopes {
                        g: if flat { &*lines } else { &g[from..] },
                        g_strides: if flat { [line, 0] } else { [channel, width] },
                        x,
                        pitch: lattice.pitch,
                        distances: distances.table(),
                        m,
                        rows: if flat { 1 } else { rows },
                        n: if flat { line } else { width },
                        sums: part,
                    });
                }
                if (image + 1 - images[0]).is_multiple_of(IMAGES) || image + 1 == images[1] {
                    cpu.level.run(Totals { vectors: part, sums });
                }
            }
        }
    })
}
