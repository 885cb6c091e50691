//! The launches of a reduction, whose results stay in their accumulation type: a reduction in parts
//! is rounded once.

use super::shader::{ReduceParams, ReducePlan, TEAM, THREADS};
use super::{Reduction, identity};
use crate::codegen::generator;
use crate::codegen::params::{Field, Strides, View};
use crate::codegen::types::{LANES, OCTET, accumulation};
use crate::device::launch::{Key, Launch, Program};
use crate::ops::coalesce::Coalesced;
use crate::ops::pieces::concat;
use crate::ops::software;
use teeny_core::{Error, Layout, ReduceOp, Result, Shape, StorageRef};

/// Rows shorter than the first number of elements have a thread, rows longer than the second a
/// workgroup, others [`TEAM`] threads.
const TEAM_ROWS: (usize, usize) = (64, 512);

/// From this number of rows of vectors on, each row has [`TEAM`] threads, for any length.
const MANY_ROWS: usize = 2048;

/// The most partial results of chunks.
const PARTIAL: usize = 1 << 22;

/// The chunks of each of `count` results from `elements` elements that `team` threads share.
fn chunks_of(count: usize, elements: usize, team: usize) -> usize {
    if team == TEAM || count.saturating_mul(team) >= 1 << 16 {
        return 1;
    }
    let length = if team > 1 { 64 * team } else { 256 };
    elements.div_ceil(length).min(PARTIAL / count).max(1)
}

impl Reduction<'_> {
    /// The results in their accumulation type. More elements than a launch counts, or than a
    /// binding holds, are reduced in halves of the longest axis, whose results are reduced together.
    pub(super) fn accumulated(&self) -> Result<StorageRef> {
        let Reduction { gpu, kernel, inputs, params, shape, op, axes } = *self;
        let (dtype, used, kept) = (self.dtype(), self.used(), self.kept());
        let [count, elements] =
            [&kept[..], axes].map(|axes| axes.iter().map(|&a| shape[a]).product::<usize>());
        if elements > gpu.max_count || used.iter().any(|&i| gpu.exceeds_binding(inputs[i])) {
            let longest = axes.iter().copied().max_by_key(|&a| shape[a]).filter(|&a| shape[a] > 1);
            let Some(axis) = longest else {
                return Err(Error::internal("a tensor of one element is larger than a binding"));
            };
            let halves = self.on_halves(axis, shape[axis] / 2, |half, _| half.accumulated())?;
            let both = concat(gpu, &halves, accumulation(dtype), inputs[0])?;
            return self.combine_partials(both, &[2, count], 0);
        }
        let layouts: Vec<&Layout> = used.iter().map(|&i| inputs[i].layout()).collect();
        let (kept, reduced) = (
            Coalesced::over(shape, &layouts, &kept)?.padded(),
            Coalesced::over(shape, &layouts, axes)?.padded(),
        );
        // Rows whose elements are neighbours are read by whole groups; columns by neighbouring
        // threads.
        let inner = |joint: &Coalesced| {
            joint
                .strides
                .iter()
                .filter_map(|s| s.last())
                .map(|s| s.unsigned_abs())
                .max()
                .unwrap_or(usize::MAX)
        };
        let by_rows = inner(&reduced) <= inner(&kept) || count < 32;
        // True if all rows are whole groups of `lanes` neighbours.
        let whole = |lanes: usize| {
            let is_whole = |v: usize| {
                layouts[v].offset().is_multiple_of(lanes)
                    && inputs[used[v]].dtype().size() <= 4
                    && reduced.strides[v][..] == [1]
                    && kept.strides[v].iter().all(|s| s % lanes as isize == 0)
            };
            elements.is_multiple_of(lanes) && (0..layouts.len()).all(is_whole)
        };
        let vectors = whole(LANES);
        let team = match elements {
            _ if !by_rows || elements < TEAM_ROWS.0 => 1,
            _ if elements <= TEAM_ROWS.1 && count >= THREADS => TEAM,
            // Teams that read 128 bytes at a time keep a device busy, and wait for fewer threads.
            _ if vectors && count >= MANY_ROWS => TEAM,
            _ => THREADS,
        };
        let chunks = if op.is_arg() { 1 } else { chunks_of(count, elements, team) };
        let lanes = match team > 1 && vectors {
            false => 1,
            true if software::reads_octets(&gpu.capabilities) && whole(OCTET) => OCTET,
            true => LANES,
        };
        let steps = elements / lanes;
        let plan =
            ReducePlan { op, kept: kept.sizes.len(), reduced: reduced.sizes.len(), team, lanes };
        let mut words = ReduceParams {
            results: count,
            elements: steps,
            length: steps.div_ceil(chunks),
            chunks,
            kept_sizes: (&kept.sizes).into(),
            reduced_sizes: (&reduced.sizes).into(),
        }
        .words();
        for (v, layout) in layouts.iter().enumerate() {
            View::new(layout.offset(), &kept.strides[v]).push(&mut words);
            Strides::from(&reduced.strides[v]).push(&mut words);
        }
        generator::push_scalars(&mut words, kernel, params);
        let bindings =
            used.iter().map(|&i| gpu.bind_tensor(inputs[i])).collect::<Result<Vec<_>>>()?;
        let out = gpu.allocate(count * chunks, accumulation(op.output(dtype)))?;
        let workgroups = (count * chunks).div_ceil(THREADS / team);
        let key = Key { family: "reduce", kernel: Some(kernel.clone()), variant: plan.variant() };
        gpu.dispatch(&Launch {
            program: Program { key, wgsl: &|| plan.wgsl(kernel) },
            inputs: &bindings,
            outputs: &[gpu.bind(&out)?],
            params: &words,
            grid: gpu.dispatch_grid(workgroups as u64)?,
        })?;
        if chunks == 1 { Ok(out) } else { self.combine_partials(out, &[count, chunks], 1) }
    }

    /// The results from partial ones, `shape` along `axis`, both in the accumulation type.
    fn combine_partials(
        &self,
        partial: StorageRef,
        shape: &[usize],
        axis: usize,
    ) -> Result<StorageRef> {
        let shape = Shape::new(shape)?;
        let like = self.inputs[0];
        let partial = self.gpu.tensor(partial, shape, accumulation(self.dtype()), like)?;
        // Truth values are 0 and 1 here: any is the largest, all the smallest.
        let op = match self.op {
            ReduceOp::Any => ReduceOp::Max,
            ReduceOp::All => ReduceOp::Min,
            ReduceOp::Sum
            | ReduceOp::Prod
            | ReduceOp::Max
            | ReduceOp::Min
            | ReduceOp::ArgMax
            | ReduceOp::ArgMin => self.op,
        };
        let kernel = identity(partial.dtype())?;
        let (inputs, axes) = ([&partial], [axis]);
        Reduction {
            gpu: self.gpu,
            kernel,
            inputs: &inputs,
            params: &[],
            shape: &shape,
            op,
            axes: &axes,
        }
        .accumulated()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::adapter::open;
    use crate::device::limits::MAX_COUNT;
    use crate::{Options, Wgpu};
    use std::sync::Arc;
    use teeny_core::{DType, DeviceRef, Reference, Tensor, random};

    #[test]
    fn chunks_cover_every_element_and_stay_few() {
        let sizes =
            [1, 2, 63, 64, 65, 8191, 8193, 1 << 20, (1 << 31) + 7, MAX_COUNT - 1, MAX_COUNT];
        for count in [1, 2, 31, 500, 60_000, 1 << 20, 1 << 31] {
            for elements in sizes {
                for team in [1, TEAM, THREADS] {
                    let chunks = chunks_of(count, elements, team);
                    let length = elements.div_ceil(chunks);
                    assert!(
                        chunks * length >= elements && (chunks == 1 || count * chunks <= PARTIAL),
                        "{count} {elements} {team}"
                    );
                    // The sum that ends a chunk in the shader stays below 2^32.
                    assert!(
                        (chunks - 1) * length + length <= u32::MAX as usize,
                        "{count} {elements} {team}"
                    );
                }
            }
        }
    }

    #[test]
    fn more_elements_than_a_launch_counts_are_reduced_in_parts() -> Result<()> {
        let options = Options::default();
        let Ok(opened) = pollster::block_on(open(&options, false)) else { return Ok(()) };
        let gpu = Arc::new_cyclic(|this| {
            let mut gpu = Wgpu::build(this.clone(), opened, &options, 0);
            gpu.max_count = 1000;
            gpu
        });
        let (device, oracle) = (gpu as DeviceRef, Reference::new() as DeviceRef);
        type Op = fn(&Tensor) -> Result<Tensor>;
        let ops: [(&str, Op); 8] = [
            ("sum", |x| x.sum_all()),
            ("sum of rows", |x| x.sum(1)),
            ("sum of columns", |x| x.sum(0)),
            ("max", |x| x.max_all()),
            ("sum of squares", |x| x.mul(x)?.sum_all()),
            ("any", |x| x.eq(4)?.any(0)),
            ("all", |x| x.le(4)?.all(1)),
            ("product", |x| x.reshape((1, x.numel()))?.matmul(&x.reshape((x.numel(), 1))?)),
        ];
        for dtype in [DType::F32, DType::F16, DType::I32, DType::U8] {
            for (name, op) in ops {
                let run = |device: &DeviceRef| {
                    // (5, 1)
                    let x = Tensor::arange(0i32, 5, 1, device)?.cast(dtype)?.unsqueeze(1)?;
                    op(&x.expand((5, 3500))?)?.to_scalars()
                };
                assert!(run(&device)? == run(&oracle)?, "{name} of {dtype}");
            }
        }
        Ok(())
    }

    #[test]
    fn rows_of_vectors_are_reduced_like_other_rows() -> Result<()> {
        let Ok(gpu) = Wgpu::new() else { return Ok(()) };
        let (device, oracle) = (gpu as DeviceRef, Reference::new() as DeviceRef);
        for dtype in [DType::F32, DType::F16, DType::I32, DType::U8] {
            for (rows, length) in [(130, 256), (3, 1024), (1, 20_000), (2, 4 * 513)] {
                // Whole rows, and rows that begin at elements that are not multiples of four.
                for start in [0, 4, 1] {
                    let run = |device: &DeviceRef| {
                        let n = rows * length;
                        let x =
                            random::with_seed(3, || Tensor::randint(0, 3, n, DType::I32, device))?;
                        let x = x.cast(dtype)?;
                        let x = x.reshape((rows, length))?.slice(1, start..)?;
                        let y = [
                            x.max(1)?,
                            x.min(1)?,
                            x.slice(1, ..20)?.sum(1)?.cast(dtype)?,
                            x.eq(2)?.any(1)?.cast(dtype)?,
                            x.le(2)?.all(1)?.cast(dtype)?,
                            x.add(1)?.max(1)?,
                        ];
                        let y: Vec<&Tensor> = y.iter().collect();
                        let sums = x.cast(DType::F32)?.sum(1)?.to_scalars()?;
                        Ok::<_, Error>((Tensor::cat(&y, 0)?.to_scalars()?, sums))
                    };
                    assert!(run(&device)? == run(&oracle)?, "{rows} {length} {start} {dtype}");
                }
            }
        }
        Ok(())
    }
}
