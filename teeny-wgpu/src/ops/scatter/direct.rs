//! A scatter for few sources: each element of the result looks through all sources of its line, in
//! one launch.

use super::Scatter;
use super::shader::{ScatterParams, wgsl};
use crate::codegen::params::View;
use crate::codegen::types::accumulation;
use crate::device::launch::Key;
use crate::ops::accumulation::cast_to_storage;
use crate::ops::indexing::strides_without;
use teeny_core::{Layout, Result, StorageRef};

impl Scatter<'_> {
    /// The result by one launch.
    pub(super) fn directly(&self) -> Result<StorageRef> {
        let Scatter { gpu, mode, x, axis, index, src, range } = *self;
        let (dtype, axes) = (x.dtype(), x.ndim());
        let out = gpu.allocate(x.numel(), accumulation(dtype))?;
        let (records, error_record) = range.record(gpu, index);
        let places = Layout::contiguous(*index.shape());
        let params = ScatterParams {
            elements: x.numel(),
            axis_size: range.size,
            range_low: range.low,
            range_length: range.length,
            error_record,
            sources: index.shape()[axis],
            sizes: x.shape()[..].into(),
            x: View::new(x.layout().offset(), x.strides()),
            index_step: index.strides()[axis],
            index_offset: index.layout().offset(),
            index_strides: strides_without(index.layout(), axis),
            src_step: src.strides()[axis],
            src_offset: src.layout().offset(),
            src_strides: strides_without(src.layout(), axis),
            place_step: places.strides()[axis],
            place_strides: strides_without(&places, axis),
            here_strides: (0..axes).map(|a| (a == axis) as isize).collect(),
            index_sizes: self.covered_sizes(),
        };
        self.launch(
            Key::new("scatter", [axes as u32, dtype as u32, index.dtype() as u32, mode as u32]),
            &|| wgsl(axes, dtype, index.dtype(), mode),
            &[gpu.bind_tensor(x)?, gpu.bind_tensor(index)?, gpu.bind_tensor(src)?],
            &[gpu.bind(&out)?, records],
            &params.words(),
            x.numel(),
        )?;
        cast_to_storage(gpu, out, dtype, x)
    }
}
