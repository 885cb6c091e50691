//! A kernel bound to its inputs: how long its tiles are, and the memory that they need.

use super::plan::LocationPlan;
use super::value::Value;
use crate::Cpu;
use crate::machine::blocks::BLOCK;
use crate::machine::step::Step;
use crate::scratch::LINE;
use crate::simd::{self, Level};
use crate::storage::{Shared, View};
use crate::walk::{MAX_OPERANDS, Walk};
use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;
use teeny_core::kernel::{Kernel, MAX_OUTPUTS};
use teeny_core::{DType, Outputs, Result, Scalar};

/// Elements per tile: two or three slots of 16 KiB stay in L1 or come quickly from L2, and starting
/// a loop takes a fifth of its time.
pub(crate) const TILE: usize = 4096;
/// Elements of all operands below which they are probably cached, as results of the operations
/// before: prefetching them takes longer than it saves.
const MIN_PREFETCH: usize = 48 << 10;
/// Slots for operands that are one number, repeated for loops that only read slices.
pub(super) const SPARE: usize = 4;

thread_local! {
    static SCRATCH: RefCell<Scratch> = const { RefCell::new(Scratch::new()) };
}

/// The memory of a task's tiles, and one thread's lists of their contents, kept between calls.
pub(crate) struct Scratch {
    /// The first byte of the slots.
    pub(super) base: *mut u8,
    /// The first byte of the blocks.
    pub(super) blocks: *mut u8,
    pub(super) values: Vec<Value>,
    /// The loops of the current group.
    pub(super) steps: Vec<Step>,
    /// One slab per transposed input.
    pub(super) slabs: *mut u8,
    /// The current tile's first element in the slab of each transposed input.
    pub(super) transposed: [Option<*const u8>; MAX_OPERANDS],
}

impl Scratch {
    const fn new() -> Scratch {
        let (base, blocks, slabs) =
            (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
        Scratch {
            base,
            blocks,
            values: Vec::new(),
            steps: Vec::new(),
            slabs,
            transposed: [None; MAX_OPERANDS],
        }
    }
}

/// Where the elements of each output begin.
pub(super) type Outs = [Shared<u8>; MAX_OUTPUTS];

/// Memory for `n` elements of each output of `kernel`, and where it begins.
///
/// # Errors
/// If memory runs out.
#[inline]
pub(super) fn alloc_outputs(cpu: &Cpu, kernel: &Kernel, n: usize) -> Result<(Outputs, Outs)> {
    let mut outputs = Outputs::new();
    let mut outs = [Shared(std::ptr::null_mut()); MAX_OUTPUTS];
    for (i, out) in outs.iter_mut().enumerate().take(kernel.outputs().len()) {
        let storage = cpu.alloc(n, kernel.output_dtype(i))?;
        *out = Shared(storage.ptr());
        outputs.push(Arc::new(storage));
    }
    Ok((outputs, outs))
}

/// Where element `start` of each output of `kernel` is, if the first ones are at `outs`.
pub(super) fn outputs_from(kernel: &Kernel, outs: &Outs, start: usize) -> Outs {
    let mut outs = *outs;
    for (i, out) in outs.iter_mut().enumerate().take(kernel.outputs().len()) {
        *out = Shared(out.get().wrapping_add(start * kernel.output_dtype(i).size()));
    }
    outs
}

/// A kernel bound to its inputs.
pub(crate) struct Tiles<'a> {
    pub(super) level: Level,
    pub(super) kernel: &'a Kernel,
    pub(super) plan: &'a LocationPlan,
    pub(super) views: &'a [View],
    pub(super) params: &'a [Scalar],
    pub(super) walk: Walk,
    pub(super) slot_bytes: usize,
    /// The longest tile: the size of a slot, longer if no slot is used.
    tile: usize,
    /// Whether tiles are whole rows of inputs, read where they are.
    pub(super) rows_in_place: bool,
    /// Whether the next block's memory is prefetched.
    pub(super) prefetch: bool,
    /// Elements from a row of the outputs to the next, if there are gaps between them; `rows_in_place`
    /// then.
    pub(super) output_row_stride: Option<usize>,
}

impl<'a> Tiles<'a> {
    /// Binds `kernel` to `views`, all of the sizes `shape` and of the types that the kernel reads.
    pub(crate) fn new(
        level: Level,
        kernel: &'a Kernel,
        plan: &'a LocationPlan,
        shape: &[usize],
        views: &'a [View],
        params: &'a [Scalar],
    ) -> Tiles<'a> {
        // Slots are as large as the kernel's types, and the walk goes over these sizes.
        let fits =
            |(view, &dtype): (&View, &DType)| view.dtype == dtype && view.shape[..] == *shape;
        let all =
            views.len() == kernel.inputs().len() && views.iter().zip(kernel.inputs()).all(fits);
        assert!(all, "the operands are those of the kernel");
        let loops = kernel.nodes().iter().filter(|node| node.op.arity() > 0).count();
        let walk = Walk::new(shape, views, loops);
        let has_64_bits = kernel.nodes().iter().any(|node| node.dtype.size() == 8);
        let prefetch = shape.iter().product::<usize>() * (views.len() + kernel.outputs().len())
            >= MIN_PREFETCH;
        let slot_bytes = if has_64_bits { 8 * TILE } else { 4 * TILE };
        let mut tiles = Tiles {
            level,
            kernel,
            plan,
            views,
            params,
            walk,
            slot_bytes,
            tile: TILE,
            rows_in_place: false,
            prefetch,
            output_row_stride: None,
        };
        if plan.is_blocks_only(kernel.nodes()) && (0..views.len()).all(|i| tiles.walk.is_direct(i))
        {
            tiles.tile = usize::MAX;
            tiles.rows_in_place = plan.computes_in_outputs(kernel.outputs())
                && tiles.walk.has_even_rows(|| plan.is_cheap(kernel.nodes()));
        }
        tiles
    }

    /// Sets the row stride of the outputs to `row_stride` elements. All elements are one tile then.
    ///
    /// # Panics
    /// If there are more axes than rows and columns, or values are kept for whole tiles.
    pub(super) fn write_rows(&mut self, row_stride: usize) {
        let direct = (0..self.views.len()).all(|i| self.walk.is_direct(i));
        let blocks = self.plan.is_blocks_only(self.kernel.nodes())
            && self.plan.computes_in_outputs(self.kernel.outputs());
        assert!(direct && blocks && self.walk.has_two_axes(), "rows that are read in place");
        self.rows_in_place = true;
        self.output_row_stride = Some(row_stride);
    }

    /// Calls `f` with memory for tiles and `slab_bytes` bytes for slabs. `f` is a trait object so
    /// that this is compiled once.
    ///
    /// # Errors
    /// If allocation fails; `f` is not called then.
    pub(crate) fn with_scratch(
        &self,
        cpu: &Cpu,
        slab_bytes: usize,
        f: &mut dyn FnMut(&mut Scratch),
    ) -> Result<()> {
        let direct =
            self.tile == usize::MAX && (self.walk.rows() == 1 || !self.walk.shares_tiles());
        // Without a slot in use, and nothing to gather, the tiles are the operands' memory.
        let slots = if direct { 0 } else { (self.plan.slots + SPARE) * self.slot_bytes };
        let block_bytes = self.plan.slots * BLOCK * (self.slot_bytes / TILE);
        let tiles = (slots + block_bytes).next_multiple_of(LINE);
        let bytes = tiles + slab_bytes;
        let memory = if bytes > 0 { Some(cpu.scratch(bytes)?) } else { None };
        let mut run = |scratch: &mut Scratch| {
            scratch.base = memory.as_ref().map_or(std::ptr::null_mut(), |memory| memory.ptr());
            scratch.blocks = scratch.base.wrapping_add(slots);
            scratch.slabs = scratch.base.wrapping_add(tiles);
            scratch.transposed = [None; MAX_OPERANDS]; // a panic may have left some
            f(scratch);
        };
        SCRATCH.with(|scratch| match scratch.try_borrow_mut() {
            Ok(mut scratch) => run(&mut scratch),
            // Inside another such call.
            Err(_) => run(&mut Scratch::new()),
        });
        Ok(())
    }

    /// Evaluates the elements of `range`, tile by tile.
    ///
    /// # Safety
    /// As `tile`, for all of them.
    ///
    /// # Errors
    /// If memory runs out.
    pub(super) unsafe fn run(
        &self,
        cpu: &Cpu,
        range: Range<usize>,
        outs: &Outs,
        stream: bool,
    ) -> Result<()> {
        self.with_scratch(cpu, 0, &mut |scratch| {
            let mut at = range.start;
            while at < range.end {
                let len = self.tile_len(at, range.end);
                // SAFETY: passed on; tiles follow one another.
                unsafe { self.tile(scratch, at, len, outs, stream) };
                at += len;
            }
        })?;
        if stream {
            simd::fence();
        }
        Ok(())
    }

    /// The length of the tile that begins at `at`.
    pub(crate) fn tile_len(&self, at: usize, end: usize) -> usize {
        if self.rows_in_place {
            return self.walk.rows_len(at, end);
        }
        let len = self.walk.tile_len(at, end, self.tile);
        // Rows that share a tile may have to be gathered into its memory.
        if self.tile > TILE && self.walk.rows() > 1 && self.walk.shares_tiles() {
            len.min(TILE)
        } else {
            len
        }
    }
}
