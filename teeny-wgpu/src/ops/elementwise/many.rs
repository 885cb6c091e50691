//! One kernel on many small tensors: few launches, whose results are parts of one buffer.
//!
//! ```text
//! tensors   w0 w1 w2 … of one kernel and equal parameters, row-major, at most SMALL bytes each
//! buffer    │ w0' │ w1' │ w2' │ …    a part for each result; it lives as long as one of them
//! launches  as many as it takes for all inputs to be bound, by the buffers that they are in
//! ```
//!
//! Tensors that do not fit this run alone.

use crate::codegen::elementwise::THREADS;
use crate::codegen::elementwise_many::ElementwiseManyPlan;
use crate::codegen::generator;
use crate::codegen::types::{LANES, OCTET};
use crate::device::Wgpu;
use crate::device::launch::{Binding, Key, Launch, Program};
use crate::device::limits::PARAM_BYTES;
use crate::device::params::Params;
use crate::device::pool::FirstUse;
use crate::device::storage::{Memory, PART_ALIGNMENT};
use crate::ops::elementwise::elementwise;
use crate::ops::software;
use std::sync::Arc;
use teeny_core::storage::downcast;
use teeny_core::{DType, Error, Kernel, Outputs, Result, Scalar, Shape, StorageRef, Tensor};

/// Bytes of a result up to which a separate launch would cost more than its elements.
const SMALL: u64 = 1 << 20;

/// Bytes of a buffer of results.
const BUFFER: u64 = 32 << 20;

/// One of the tensors.
struct Piece<'a> {
    /// Which of the shapes.
    place: usize,
    numel: usize,
    /// The inputs that the kernel reads.
    inputs: Vec<&'a Tensor>,
}

/// The outputs of `kernel` for each of `shapes`; nothing where nothing is gained.
pub(crate) fn elementwise_many(
    gpu: &Wgpu,
    kernel: &Arc<Kernel>,
    inputs: &[&Tensor],
    params: &[Scalar],
    shapes: &[Shape],
) -> Result<Option<Outputs>> {
    let (own, numbers, outputs) =
        (kernel.inputs().len(), kernel.params().len(), kernel.outputs().len());
    let results: Vec<DType> = (0..outputs).map(|i| kernel.output_dtype(i)).collect();
    let used = generator::inputs_of(kernel, (1 << outputs) - 1);
    let mut types: Vec<DType> = results.clone();
    types.sort_unstable_by_key(|&dtype| dtype as u32);
    types.dedup();
    if shapes.len() < 2
        || used.is_empty()
        || used.len() + types.len() > gpu.capabilities.max_storage_buffers as usize
        || kernel.nodes().iter().any(|node| !gpu.capabilities.supports(node.dtype))
        || kernel.inputs().iter().chain(&results).any(|dtype| dtype.size() > 4)
    {
        return Ok(None);
    }
    let small = SMALL.min(gpu.capabilities.max_binding / PART_ALIGNMENT * PART_ALIGNMENT);
    // Pieces by their parameters: the pieces of a launch share them.
    let mut groups: Vec<(&[Scalar], Vec<Piece<'_>>)> = Vec::new();
    let mut storages: Vec<Option<StorageRef>> = vec![None; shapes.len() * outputs];
    for (place, shape) in shapes.iter().enumerate() {
        let all = &inputs[place * own..(place + 1) * own];
        let params = &params[place * numbers..(place + 1) * numbers];
        let read: Vec<&Tensor> = used.iter().map(|&i| all[i]).collect();
        let numel = shape.numel();
        let is_quads = |x: &&Tensor| {
            x.is_contiguous()
                && x.layout().offset().is_multiple_of(LANES)
                && !gpu.exceeds_binding(x)
        };
        if numel > 0 && numel as u64 * 4 <= small && read.iter().all(is_quads) {
            let piece = Piece { place, numel, inputs: read };
            match groups.iter_mut().find(|(own, _)| own == &params) {
                Some((_, pieces)) => pieces.push(piece),
                None => groups.push((params, vec![piece])),
            }
            continue;
        }
        let alone = elementwise(gpu, kernel, all, params, shape)?;
        alone.into_iter().enumerate().for_each(|(i, y)| storages[place * outputs + i] = Some(y));
    }
    for (params, pieces) in &groups {
        let mut rest = &pieces[..];
        while !rest.is_empty() {
            let mut sizes = vec![0u64; types.len()];
            let fits = rest.iter().take_while(|piece| {
                for dtype in &results {
                    let k = types.iter().position(|t| t == dtype).unwrap_or_default();
                    sizes[k] += part_bytes(piece.numel, *dtype);
                }
                sizes.iter().all(|&bytes| bytes <= BUFFER.min(gpu.capabilities.max_binding))
            });
            let (now, later) = rest.split_at(fits.count().max(1));
            let buffer = Together { gpu, kernel, params, types: &types, results: &results };
            buffer.compute(now, &mut storages)?;
            rest = later;
        }
    }
    let all: Option<Outputs> = storages.into_iter().collect();
    all.map(Some).ok_or_else(|| Error::internal("a kernel of many tensors left one out"))
}

fn part_bytes(numel: usize, dtype: DType) -> u64 {
    ((numel * dtype.size()) as u64).next_multiple_of(PART_ALIGNMENT)
}

/// Pieces whose results share buffers.
struct Together<'a> {
    gpu: &'a Wgpu,
    kernel: &'a Arc<Kernel>,
    params: &'a [Scalar],
    /// The types of results, each once: a buffer for each.
    types: &'a [DType],
    /// The type of each result of the kernel.
    results: &'a [DType],
}

impl Together<'_> {
    fn compute(&self, pieces: &[Piece<'_>], storages: &mut [Option<StorageRef>]) -> Result<()> {
        let mut ends = vec![0u64; self.types.len()];
        let mut starts = Vec::with_capacity(pieces.len()); // of each piece, of each result
        for piece in pieces {
            let of_results = self.results.iter().map(|&dtype| {
                let end = &mut ends[self.buffer_of(dtype)];
                let start = *end;
                *end += part_bytes(piece.numel, dtype);
                start
            });
            starts.push(of_results.collect::<Vec<u64>>());
        }
        let sizes = self.types.iter().zip(&ends);
        let buffers = sizes
            .map(|(&dtype, &bytes)| {
                self.gpu.memory(bytes as usize / dtype.size(), dtype, FirstUse::Dispatch)
            })
            .collect::<Result<Vec<Memory>>>()?;
        let mut batch = Batch::default();
        let most = self.gpu.capabilities.max_storage_buffers as usize - self.types.len();
        for (piece, starts) in pieces.iter().zip(&starts) {
            if !batch.pieces.is_empty() && !self.joins(&batch, piece, most)? {
                self.launch(&std::mem::take(&mut batch), &buffers)?;
            }
            batch.push(piece, starts)?;
            for (i, (&dtype, &start)) in self.results.iter().zip(starts).enumerate() {
                let part = buffers[self.buffer_of(dtype)].part(start, piece.numel);
                storages[piece.place * self.results.len() + i] = Some(Arc::new(part));
            }
        }
        self.launch(&batch, &buffers)
    }

    fn buffer_of(&self, dtype: DType) -> usize {
        self.types.iter().position(|&t| t == dtype).unwrap_or_default()
    }

    /// Whether one launch more piece fits: by its buffers and by its parameters.
    fn joins(&self, batch: &Batch<'_>, piece: &Piece<'_>, most: usize) -> Result<bool> {
        let mut scalars = Params::new();
        generator::push_scalars(&mut scalars, self.kernel, self.params);
        let words = (batch.pieces.len() + 1) * (2 + piece.inputs.len() + self.results.len());
        let mut blocks = batch.blocks.clone();
        for x in &piece.inputs {
            let block = (downcast::<Memory>(x.storage())?.block(), x.dtype());
            if !blocks.contains(&block) {
                blocks.push(block);
            }
        }
        Ok(blocks.len() <= most && (words + scalars.len()) * 4 <= PARAM_BYTES as usize)
    }

    fn launch(&self, batch: &Batch<'_>, buffers: &[Memory]) -> Result<()> {
        let begins_whole = |x: &Tensor| x.layout().offset().is_multiple_of(OCTET);
        let octets = software::reads_octets(&self.gpu.capabilities)
            && batch.pieces.iter().all(|(piece, _)| piece.inputs.iter().all(|x| begins_whole(x)));
        let lanes = if octets { OCTET } else { LANES };
        let mut words = Params::new();
        let mut groups = 0;
        for (piece, starts) in &batch.pieces {
            words.count(groups);
            words.count(piece.numel.div_ceil(lanes));
            groups += piece.numel.div_ceil(lanes * THREADS);
            for x in &piece.inputs {
                let start = downcast::<Memory>(x.storage())?.start() as usize / x.dtype().size();
                words.count((start + x.layout().offset()) / lanes);
            }
            for (start, dtype) in starts.iter().zip(self.results) {
                words.count(*start as usize / dtype.size() / lanes);
            }
        }
        generator::push_scalars(&mut words, self.kernel, self.params);
        let (inputs, written) = (batch.bindings.clone(), self.types.to_vec());
        let plan = ElementwiseManyPlan { lanes, inputs, written };
        let whole = |memory: &'_ Memory| -> (u64, u64) { (0, memory.block_bytes()) };
        let mut inputs = Vec::with_capacity(batch.blocks.len());
        for x in &batch.tensors {
            let memory = downcast::<Memory>(x.storage())?;
            let (offset, bytes) = whole(memory);
            inputs.push(Binding { buffer: memory.buffer(), offset, bytes });
        }
        let outputs: Vec<Binding<'_>> = buffers
            .iter()
            .map(|memory| {
                let (offset, bytes) = whole(memory);
                Binding { buffer: memory.buffer(), offset, bytes }
            })
            .collect();
        let kernel = Some(self.kernel.clone());
        let key = Key { family: "elementwise_many", kernel, variant: plan.variant() };
        self.gpu.dispatch(&Launch {
            program: Program { key, wgsl: &|| plan.wgsl(self.kernel) },
            inputs: &inputs,
            outputs: &outputs,
            params: &words,
            grid: self.gpu.dispatch_grid(groups as u64)?,
        })
    }
}

/// The pieces of one launch.
#[derive(Default)]
struct Batch<'a> {
    /// With the start of each result in its buffer.
    pieces: Vec<(&'a Piece<'a>, &'a [u64])>,
    /// The blocks of memory that are bound, as which type, and a tensor in each.
    blocks: Vec<(usize, DType)>,
    tensors: Vec<&'a Tensor>,
    /// For each input: the binding of each piece.
    bindings: Vec<Vec<usize>>,
}

impl<'a> Batch<'a> {
    fn push(&mut self, piece: &'a Piece<'a>, starts: &'a [u64]) -> Result<()> {
        self.bindings.resize(piece.inputs.len(), Vec::new());
        for (&x, bindings) in piece.inputs.iter().zip(&mut self.bindings) {
            let block = (downcast::<Memory>(x.storage())?.block(), x.dtype());
            bindings.push(match self.blocks.iter().position(|known| *known == block) {
                Some(binding) => binding,
                None => {
                    self.blocks.push(block);
                    self.tensors.push(x);
                    self.blocks.len() - 1
                }
            });
        }
        self.pieces.push((piece, starts));
        Ok(())
    }
}
