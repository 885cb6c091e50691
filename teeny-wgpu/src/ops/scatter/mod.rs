//! Scatter, without atomics on values: every element of the result collects its own sources, in
//! row-major order, so results are deterministic and all types work. Three algorithms, chosen by
//! the sizes:
//!
//! ```text
//! directly   each element looks through all sources of its line: one launch for few sources
//! by lines   a thread goes through the sources of a line: a copy and one launch for many lines
//! sorted     keys      line * size + index of every source
//!            order     a stable radix sort of the keys (radix_sort.rs)
//!            bounds    where the sources of each place begin
//!            runs      256 sources that go to one place, combined: for long lines
//!            collect   each element goes through its sources
//! ```
//!
//! Sorting makes the work near linear in sources and elements, for all indices: with runs a popular
//! place takes no more than N / 256 + 512 steps. Along axes on which the index is constant (the
//! columns of an embedding's gradient) one key serves all. Lines larger than a binding are
//! scattered by halves of their sources, one after the other, and of their places.
//!
//! ```text
//! mod          which algorithm      direct  lines  sorted     the launches of each
//! pieces       tensors larger than a launch reaches          shader   the text of all of them
//! ```

mod direct;
mod lines;
mod pieces;
pub(crate) mod shader;
mod sorted;

use crate::codegen::params::Sizes;
use crate::codegen::types::accumulation;
use crate::device::Wgpu;
use crate::device::launch::{Binding, Key, Launch, Program};
use crate::device::params::Params;
use crate::ops::copy::contiguous;
use crate::ops::indexing::{AxisRange, THREADS, check_indices, find_wrong_index};
use teeny_core::{DType, Result, ScatterMode, StorageRef, Tensor};

/// Sources of a line that are looked through, and work that is too little to be worth a sort.
const MAX_SCANNED_SOURCES: usize = 24;
const SMALL_WORK: usize = 1 << 19;

/// So many lines keep a device busy, each in a thread.
const MANY_LINES: usize = 4096;

/// Writes the elements of `src` to the places of `x` that `index` names along `axis`.
pub(crate) fn scatter(
    gpu: &Wgpu,
    mode: ScatterMode,
    x: &Tensor,
    axis: usize,
    index: &Tensor,
    src: &Tensor,
) -> Result<StorageRef> {
    gpu.require(x.dtype(), "scatter")?;
    gpu.require(index.dtype(), "scatter")?;
    if x.shape()[axis] == 0 {
        // No launch would read the indices.
        find_wrong_index(gpu, index, axis, x.shape())?;
    }
    let range = AxisRange::all(x.shape()[axis]);
    let out = Scatter { gpu, mode, x, axis, index, src, range }.run()?;
    check_indices(gpu, index, axis, x.shape())?;
    Ok(out)
}

/// The scatter of the sources in `range`, of which `x` is that part of the axis.
#[derive(Clone, Copy)]
struct Scatter<'a> {
    gpu: &'a Wgpu,
    mode: ScatterMode,
    x: &'a Tensor,
    axis: usize,
    index: &'a Tensor,
    src: &'a Tensor,
    range: AxisRange,
}

impl Scatter<'_> {
    fn run(&self) -> Result<StorageRef> {
        let Scatter { gpu, x, axis, index, src, .. } = *self;
        if x.numel() == 0 || index.numel() == 0 {
            return contiguous(gpu, x);
        }
        let large = [x, index, src].iter().any(|x| gpu.exceeds_binding(x))
            || gpu.len_exceeds_binding(x.numel(), accumulation(x.dtype()));
        if large {
            return self.in_pieces();
        }
        let sources = index.shape()[axis];
        if sources <= MAX_SCANNED_SOURCES || x.numel().saturating_mul(sources) <= SMALL_WORK {
            return self.directly();
        }
        if index.numel() / sources >= MANY_LINES.max(sources) {
            return self.by_lines();
        }
        let (lines, columns) = self.lines_and_columns();
        let count = lines.iter().map(|&a| index.shape()[a]).product::<usize>();
        let places = count.saturating_mul(self.range.length);
        if gpu.len_exceeds_binding((count * sources).max(places.saturating_add(1)), DType::U32) {
            return self.in_pieces();
        }
        self.sorted(&lines, &columns)
    }

    /// The axes of index other than `axis` along which it varies, and those along which it is
    /// constant.
    fn lines_and_columns(&self) -> (Vec<usize>, Vec<usize>) {
        let index = self.index;
        (0..index.ndim())
            .filter(|&a| a != self.axis)
            .partition(|&a| index.shape()[a] > 1 && index.layout().strides()[a] != 0)
    }

    /// The sizes of the part of x that the index reaches: the sizes of index, except x's along the
    /// axis.
    fn covered_sizes(&self) -> Sizes {
        let (x, index) = (self.x.shape(), self.index.shape());
        (0..x.ndim()).map(|a| if a == self.axis { x[a] } else { index[a] }).collect()
    }

    /// Dispatches the shader of `key` with a thread for each of `count` results.
    fn launch(
        &self,
        key: Key,
        wgsl: &dyn Fn() -> Result<String>,
        inputs: &[Binding<'_>],
        outputs: &[Binding<'_>],
        params: &Params,
        count: usize,
    ) -> Result<()> {
        let grid = self.gpu.dispatch_grid(count.div_ceil(THREADS) as u64)?;
        let program = Program { key, wgsl };
        self.gpu.dispatch(&Launch { program, inputs, outputs, params, grid })
    }
}
