//! A convolution by one or more grids: the algorithm that `select` names, run.

use super::columns::ConvTask;
use super::direct;
use super::filters::Filters;
use super::grid::Grid;
use super::select::{Algorithm, Sizes, Tiles, select};
use super::winograd::Winograd;
use super::winograd::dynamic_range::AllInRange;
use crate::Cpu;
use crate::float::{Float, lanes};
use crate::scratch::Array;
use crate::storage::Shared;
use std::ops::Range;
use std::sync::OnceLock;
use teeny_core::{Error, Result};

/// The algorithm of a convolution.
pub(super) enum Choice {
    /// Winograd's filtering, for whose rounding all weights are in range.
    Winograd(Winograd),
    /// Vectors of channels, with this layout for all grids.
    Channels(direct::BlockedLayout),
    /// One grid after the other.
    EachGrid,
}

/// A convolution by all grids: one, or several for the gradient of an input.
pub(super) struct Convolution<'a, T> {
    /// The operands. The filters are not rearranged: if `taps_first`, this is the input gradient of
    /// the convolution that has them. An epilogue needs one grid with all results.
    pub task: ConvTask<'a, T>,
    pub grids: &'a [Grid],
    /// Elements of `y`, which no other task reads or writes.
    pub numel: usize,
    /// Winograd's filtering, if it applies.
    pub winograd: Option<(Winograd, Tiles)>,
    /// Whether rows of padding may be left out; for a convolution of single channels alone, whose
    /// filters are then known to be finite.
    pub skips: bool,
}

impl<T: Float> Convolution<'_, T> {
    /// The grids that have taps.
    fn grids(&self) -> impl Iterator<Item = &Grid> {
        self.grids.iter().filter(|grid| !grid.taps.is_empty())
    }

    /// The algorithm for all grids together, if there is one; for each of them, `ConvTask::run`
    /// selects its own otherwise.
    pub(super) fn choose(&self, cpu: &Cpu) -> Choice {
        let mut choice = Choice::EachGrid;
        let Some(grid) = self.grids().next() else { return choice };
        let tiles = self.winograd.map(|(_, tiles)| tiles);
        let sizes = Sizes { tiles, ..ConvTask { grid, ..self.task }.sizes() };
        select(&sizes, |algorithm| {
            let fitting = match algorithm {
                Algorithm::Channels => {
                    direct::BlockedLayout::new(self.grids(), lanes::<T>(cpu.level))
                        .map(Choice::Channels)
                }
                Algorithm::Winograd => {
                    let weight = T::f32s(self.task.weight).filter(|_| self.grids.len() == 1);
                    let in_range = weight.is_some_and(|weight| cpu.level.run(AllInRange(weight)));
                    self.winograd
                        .filter(|_| in_range)
                        .map(|(winograd, _)| Choice::Winograd(winograd))
                }
                _ => return true,
            };
            let fits = fitting.is_some();
            choice = fitting.unwrap_or(Choice::EachGrid);
            fits
        });
        choice
    }

    /// Computes all results; results that no tap reaches are zero.
    pub(super) fn run(&self, cpu: &Cpu, choice: &Choice) -> Result<()> {
        let planes = self.task.images * self.task.groups * self.task.out_channels;
        if planes * self.grids().map(Grid::pixels).sum::<usize>() < self.numel {
            // SAFETY: the owner of `y` has given these elements to this convolution.
            unsafe { std::slice::from_raw_parts_mut(self.task.y.get(), self.numel) }.fill(T::ZERO);
        }
        match choice {
            Choice::Winograd(winograd) => self.by_winograd(cpu, winograd),
            Choice::Channels(layout) => self.by_channels(cpu, layout),
            Choice::EachGrid if self.grids().next().is_none() => self.finish(),
            Choice::EachGrid => {
                let filters = Filters::new(cpu, &self.task)?;
                self.grids().try_for_each(|grid| self.by_grid(cpu, grid, &filters))
            }
        }
    }

    /// Runs the epilogue over all results.
    fn finish(&self) -> Result<()> {
        // SAFETY: all results are there, and no task runs.
        self.task.epilogue.map_or(Ok(()), |epilogue| unsafe { epilogue.run_all() })
    }

    fn by_grid(&self, cpu: &Cpu, grid: &Grid, filters: &Filters<'_, T>) -> Result<()> {
        let task = ConvTask { grid, weight: filters.all(), ..self.task };
        // Columns are multiplied tap by tap where that is as fast.
        if task.taps_first && !grid.has_all_taps() && task.is_fast_tap_by_tap() {
            return ConvTask { all_taps: true, ..task }.run(cpu);
        }
        let some = filters.of(cpu, grid)?;
        ConvTask { weight: some.as_deref().unwrap_or(task.weight), ..task }.run(cpu)
    }

    fn by_channels(&self, cpu: &Cpu, layout: &direct::BlockedLayout) -> Result<()> {
        let filters = Filters::new(cpu, &self.task)?;
        let some = self.grids().map(|grid| filters.of(cpu, grid)).collect::<Result<Vec<_>>>()?;
        let tasks = self.grids().zip(&some).map(|(grid, some)| {
            let weight = some.as_deref().unwrap_or(filters.all());
            ConvTask { grid, weight, ..self.task }
        });
        direct::by_channels(cpu, &tasks.collect::<Vec<_>>(), layout, self.skips)?;
        self.finish()
    }

    fn by_winograd(&self, cpu: &Cpu, winograd: &Winograd) -> Result<()> {
        let ConvTask { x, weight, taps_first, y, epilogue, .. } = self.task;
        let (Some(x), Some(weight)) = (T::f32s(x), T::f32s(weight)) else {
            return Err(Error::internal("Winograd's filtering is for f32"));
        };
        let filters = match taps_first {
            false => winograd.filters(cpu, weight)?,
            true => winograd.rotated_filters(cpu, weight)?,
        };
        let task = ConvTask { grid: &self.grids[0], epilogue: None, ..self.task };
        let repair = Repair { task, filters: OnceLock::new() };
        let y = Shared(y.get().cast::<f32>());
        winograd.forward(cpu, x, &filters, y, epilogue, |i, pixels| {
            // SAFETY: the task of a band hands over its pixels, which no other task touches.
            unsafe { repair.run(cpu, i, pixels) }
        })
    }
}

/// Computes pixels again for which Winograd's filtering is not accurate, by columns.
struct Repair<'a, T> {
    /// With filters as they are given.
    task: ConvTask<'a, T>,
    /// All filters, and the grid's filters in its order: made for the first pixels.
    filters: OnceLock<(Filters<'a, T>, Option<Array<T>>)>,
}

impl<T: Float> Repair<'_, T> {
    /// Computes `pixels` of plane `i` of all images and groups.
    ///
    /// # Safety
    /// No other task touches these.
    unsafe fn run(&self, cpu: &Cpu, i: usize, pixels: Range<usize>) -> Result<()> {
        let (task, grid) = (&self.task, self.task.grid);
        if self.filters.get().is_none() {
            // Another task may make them too: the first ones are kept.
            let all = Filters::new(cpu, task)?;
            let some = all.of(cpu, grid)?;
            self.filters.get_or_init(|| (all, some));
        }
        let Some((all, some)) = self.filters.get() else { return Ok(()) };
        let task = ConvTask { weight: some.as_deref().unwrap_or(all.all()), ..*task };
        let (image, group) = (i / task.groups, i % task.groups);
        let first = image * grid.pixels() + pixels.start;
        // SAFETY: by contract.
        unsafe { task.part(cpu, group, [first, first + pixels.len()]) }
    }
}
