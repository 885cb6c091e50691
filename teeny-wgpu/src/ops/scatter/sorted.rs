//! A scatter for many sources: they are sorted by the place they go to, and each element of the
//! result goes through its own.

use super::Scatter;
use super::shader::{
    BoundsParams, CollectParams, KeyParams, RUN, RunParams, bounds_wgsl, collect_wgsl, keys_wgsl,
    runs_wgsl,
};
use crate::codegen::params::View;
use crate::codegen::types::accumulation;
use crate::device::launch::Key;
use crate::ops::accumulation::cast_to_storage;
use crate::ops::coalesce::Coalesced;
use crate::ops::indexing::strides_without;
use crate::ops::radix_sort::radix_sort;
use teeny_core::{DType, Layout, Result, ScatterMode, StorageRef};

/// Lines shorter than this never have runs that are worth combining.
const LONG: usize = 1024;

/// The sizes of a sorted scatter.
struct Sources<'a> {
    scatter: &'a Scatter<'a>,
    /// The axes along which the index varies, with index, row-major index and src merged; and the
    /// axes along which it is constant, with src.
    lines: &'a [usize],
    columns: &'a [usize],
    down: Coalesced,
    across: Coalesced,
    /// Sources of all lines, places of all lines, and elements of src at one of them.
    count: usize,
    places: usize,
    width: usize,
}

impl Scatter<'_> {
    /// The result by sorting: `lines` and `columns` come from [`Scatter::lines_and_columns`].
    pub(super) fn sorted(&self, lines: &[usize], columns: &[usize]) -> Result<StorageRef> {
        let Scatter { gpu, mode, index, src, range, .. } = *self;
        let (shape, flat) = (index.shape(), Layout::contiguous(*index.shape()));
        let size = |of: &[usize]| of.iter().map(|&a| shape[a]).product::<usize>();
        let sources = Sources {
            scatter: self,
            lines,
            columns,
            down: Coalesced::over(shape, &[index.layout(), &flat, src.layout()], lines)?.padded(),
            across: Coalesced::over(shape, &[src.layout()], columns)?.padded(),
            count: size(lines) * shape[self.axis],
            places: size(lines) * range.length,
            width: size(columns),
        };
        let keys = sources.keys(flat.strides()[self.axis])?;
        let (keys, order) = radix_sort(gpu, keys, sources.count, sources.places)?;
        let bounds = sources.bounds(&keys)?;
        let long = shape[self.axis] >= LONG && mode != ScatterMode::Set;
        let runs = if long { Some(sources.runs(&keys, &order)?) } else { None };
        sources.collect(&order, &bounds, runs.as_ref())
    }
}

impl Sources<'_> {
    /// The key of every source. `place_step` is the stride of a row-major index along the axis.
    fn keys(&self, place_step: isize) -> Result<StorageRef> {
        let Scatter { gpu, axis, index, range, .. } = *self.scatter;
        let keys = gpu.allocate(self.count, DType::U32)?;
        let (records, error_record) = range.record(gpu, index);
        let params = KeyParams {
            keys: self.count,
            axis_size: range.size,
            range_low: range.low,
            range_length: range.length,
            error_record,
            sources: index.shape()[axis],
            no_place: self.places,
            sizes: (&self.down.sizes).into(),
            index_step: index.strides()[axis],
            index: View::new(index.layout().offset(), &self.down.strides[0]),
            place_step,
            place_strides: (&self.down.strides[1]).into(),
        };
        let depth = self.down.sizes.len();
        self.scatter.launch(
            Key::new("scatter_keys", [depth as u32, index.dtype() as u32]),
            &|| keys_wgsl(depth, index.dtype()),
            &[gpu.bind_tensor(index)?],
            &[gpu.bind(&keys)?, records],
            &params.words(),
            self.count,
        )?;
        Ok(keys)
    }

    /// Where the sources of each place begin.
    fn bounds(&self, keys: &StorageRef) -> Result<StorageRef> {
        let gpu = self.scatter.gpu;
        let bounds = gpu.allocate(self.places + 1, DType::U32)?;
        let params = BoundsParams { keys: self.count, bounds: self.places + 1 };
        self.scatter.launch(
            Key::new("scatter_bounds", []),
            &bounds_wgsl,
            &[gpu.bind(keys)?],
            &[gpu.bind(&bounds)?],
            &params.words(),
            self.places + 1,
        )?;
        Ok(bounds)
    }

    /// Long runs of sources at one place, combined.
    fn runs(&self, keys: &StorageRef, order: &StorageRef) -> Result<StorageRef> {
        let Scatter { gpu, mode, x, axis, index, src, range } = *self.scatter;
        let (dtype, runs) = (x.dtype(), self.count / RUN * self.width);
        let combined = gpu.allocate(runs, accumulation(dtype))?;
        let params = RunParams {
            results: runs,
            range_length: range.length,
            places: self.places,
            sources: index.shape()[axis],
            columns: self.width,
            sizes: (&self.down.sizes).into(),
            src_step: src.strides()[axis],
            src: View::new(src.layout().offset(), &self.down.strides[2]),
            column_sizes: (&self.across.sizes).into(),
            src_column_strides: (&self.across.strides[0]).into(),
        };
        let (depth, breadth) = (self.down.sizes.len(), self.across.sizes.len());
        self.scatter.launch(
            Key::new("scatter_runs", [depth as u32, breadth as u32, dtype as u32, mode as u32]),
            &|| runs_wgsl(depth, breadth, dtype, mode),
            &[gpu.bind(keys)?, gpu.bind(order)?, gpu.bind_tensor(src)?],
            &[gpu.bind(&combined)?],
            &params.words(),
            runs,
        )?;
        Ok(combined)
    }

    /// Every element goes through its sources, or through their combined `runs`.
    fn collect(
        &self,
        order: &StorageRef,
        bounds: &StorageRef,
        runs: Option<&StorageRef>,
    ) -> Result<StorageRef> {
        let Scatter { gpu, mode, x, axis, index, src, range } = *self.scatter;
        let (dtype, axes, long) = (x.dtype(), x.ndim(), runs.is_some());
        let out = gpu.allocate(x.numel(), accumulation(dtype))?;
        let weights = |of: &[usize], unit: usize| {
            let mut weights = vec![0; axes];
            let mut step = unit;
            for &a in of.iter().rev() {
                weights[a] = step as isize;
                step *= index.shape()[a];
            }
            weights
        };
        let mut key = weights(self.lines, range.length);
        key[axis] = 1;
        let params = CollectParams {
            elements: x.numel(),
            range_length: range.length,
            sources: index.shape()[axis],
            columns: self.width,
            sizes: x.shape()[..].into(),
            x: View::new(x.layout().offset(), x.strides()),
            src_step: src.strides()[axis],
            src_offset: src.layout().offset(),
            src_strides: strides_without(src.layout(), axis),
            key_strides: key.into_iter().collect(),
            column_strides: weights(self.columns, 1).into_iter().collect(),
            index_sizes: self.scatter.covered_sizes(),
        };
        let mut inputs =
            vec![gpu.bind_tensor(x)?, gpu.bind_tensor(src)?, gpu.bind(order)?, gpu.bind(bounds)?];
        if let Some(runs) = runs {
            inputs.push(gpu.bind(runs)?);
        }
        self.scatter.launch(
            Key::new("scatter_collect", [axes as u32, dtype as u32, mode as u32, long as u32]),
            &|| collect_wgsl(axes, dtype, mode, long),
            &inputs,
            &[gpu.bind(&out)?],
            &params.words(),
            x.numel(),
        )?;
        cast_to_storage(gpu, out, dtype, x)
    }
}
