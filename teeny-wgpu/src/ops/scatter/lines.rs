//! A scatter into many lines: a thread goes through the sources of each, in one launch.

use super::Scatter;
use super::shader::{LineParams, lines_wgsl};
use crate::codegen::params::View;
use crate::codegen::types::accumulation;
use crate::device::launch::Key;
use crate::ops::accumulation::cast_to_storage;
use crate::ops::coalesce::Coalesced;
use crate::ops::copy::contiguous;
use teeny_core::{Layout, Result, StorageRef};

impl Scatter<'_> {
    /// The result by a copy of x and one launch.
    pub(super) fn by_lines(&self) -> Result<StorageRef> {
        let Scatter { gpu, mode, x, axis, index, src, range } = *self;
        let (dtype, accumulator) = (x.dtype(), accumulation(x.dtype()));
        let copy = x.cast(accumulator)?; // x itself if it has that type
        let out = match dtype != accumulator && copy.is_contiguous() {
            true => copy.storage().clone(),
            false => contiguous(gpu, &copy)?,
        };
        let shape = index.shape();
        let (places, results) = (Layout::contiguous(*shape), Layout::contiguous(*x.shape()));
        let others: Vec<usize> = (0..index.ndim()).filter(|&a| a != axis).collect();
        let layouts = [index.layout(), src.layout(), &places, &results];
        let joint = Coalesced::over(shape, &layouts, &others)?.padded();
        let (records, error_record) = range.record(gpu, index);
        let params = LineParams {
            lines: others.iter().map(|&a| shape[a]).product(),
            axis_size: range.size,
            range_low: range.low,
            range_length: range.length,
            error_record,
            sources: shape[axis],
            sizes: (&joint.sizes).into(),
            index_step: index.strides()[axis],
            index: View::new(index.layout().offset(), &joint.strides[0]),
            src_step: src.strides()[axis],
            src: View::new(src.layout().offset(), &joint.strides[1]),
            place_step: places.strides()[axis],
            place_strides: (&joint.strides[2]).into(),
            out_step: results.strides()[axis],
            out_strides: (&joint.strides[3]).into(),
        };
        let depth = joint.sizes.len();
        self.launch(
            Key::new(
                "scatter_lines",
                [depth as u32, dtype as u32, index.dtype() as u32, mode as u32],
            ),
            &|| lines_wgsl(depth, dtype, index.dtype(), mode),
            &[gpu.bind_tensor(index)?, gpu.bind_tensor(src)?],
            &[gpu.bind(&out)?, records],
            &params.words(),
            params.lines,
        )?;
        cast_to_storage(gpu, out, dtype, x)
    }
}
