//! The tile interpreter: one kernel, one walk over its inputs, and for each tile one loop per node.
//! Neighbouring nodes of f32 go over a tile together, strip by strip.
//!
//! ```text
//!   input 0 ──► slice of memory ─┐
//!   input 1 ──► gathered in slot ┴─ mul ─► slot ─ exp ─► straight into the output
//! ```
//! Slots are reused as soon as their last reader is done. Values of 16-bit nodes are f32 and only
//! rounded on the way out.

use super::cast::{self, slice, slice_mut};
use super::float::{binary_f32, binary_f64, unary_f32, unary_f64};
use super::idioms::{self, Found};
use super::int;
use super::strips::{self, Loop, Place, STRIP, Step};
use crate::Cpu;
use crate::scratch::LINE;
use crate::simd::Level;
use crate::simd::loops::Operand;
use crate::storage::View;
use crate::transpose::turn;
use crate::walk::{Crossing, MAX_OPERANDS, Piece, Walk};
use std::cell::{Cell, RefCell};
use teeny_core::kernel::{Id, Kernel, MAX_OUTPUTS, OpCode, OpNode};
use teeny_core::{DType, Result, Scalar};

/// Elements per tile: two or three slots of 16 KiB stay in L1 or come quickly from L2, and starting
/// a loop is a fifth of what it takes.
pub(crate) const TILE: usize = 4096;
/// A transposed operand is turned over by panels of this many rows and columns, 128 KiB of f32:
/// lines of four neighbouring cache lines are read together, and what is turned stays in L2.
pub(crate) const PANEL: usize = 64;
pub(crate) const SEGMENT: usize = 1024;
/// Elements from one row of a panel to the next: not a power of two, so that a column of lines
/// spreads over the sets of the cache.
const PITCH: usize = SEGMENT + 16;
/// Bytes of the panel of one operand, of elements of any size.
const PANEL_BYTES: usize = PANEL * PITCH * 8;
/// Elements of all operands that are probably in a cache already, as somebody has just computed
/// them: asking for them takes longer than it saves.
const CACHED: usize = 48 << 10;
/// Slots that splat operands of loops without a splat form are spread into.
const SPARE: usize = 4;

/// Where a node's value lives.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Home {
    /// Scratch slot.
    Slot(u16),
    /// A strip's slot: only nodes that go over the tile together with this one read it.
    Strip(u16),
    /// The output's own memory.
    Out(u8),
    /// None: a comparison that is made where its only reader chooses by it, or a part of an idiom.
    Nowhere,
}

/// The homes of a kernel's nodes.
#[derive(Default)]
pub(crate) struct Plan {
    homes: Vec<Home>,
    slots: usize,
    last: Vec<u32>,
    free: Vec<u16>,
    /// Whether outputs are written to memory; else the first one's value is only looked at.
    to_memory: bool,
    /// How many nodes and outputs read each node.
    readers: Vec<u32>,
    idioms: Vec<Found>,
    /// Nodes without a value of their own.
    inside: Vec<bool>,
    /// Which nodes go over a tile together: those of one number.
    groups: Vec<u32>,
}

thread_local! {
    static PLAN: Cell<Option<Box<Plan>>> = const { Cell::new(None) };
    static SCRATCH: RefCell<Scratch> = const { RefCell::new(Scratch::new()) };
}

impl Plan {
    /// Calls `f` with the plan of `kernel`; `to_memory` if outputs are written, else values are
    /// only looked at.
    pub(crate) fn with<R>(kernel: &Kernel, to_memory: bool, f: impl FnOnce(&Plan) -> R) -> R {
        let mut plan = PLAN.take().unwrap_or_default();
        plan.make(kernel, to_memory);
        let result = f(&plan);
        PLAN.set(Some(plan));
        result
    }

    fn make(&mut self, kernel: &Kernel, to_memory: bool) {
        let nodes = kernel.nodes();
        self.homes.clear();
        self.free.clear();
        self.last.clear();
        self.last.resize(nodes.len(), 0);
        self.slots = 0;
        self.to_memory = to_memory;
        idioms::count_readers(kernel, &mut self.readers);
        for (id, node) in nodes.iter().enumerate() {
            for &source in node.sources() {
                self.last[source as usize] = id as u32;
            }
        }
        for &output in kernel.outputs() {
            self.last[output as usize] = u32::MAX;
        }
        self.inside.clear();
        self.inside.resize(nodes.len(), false);
        self.idioms.clear();
        idioms::find(nodes, &self.readers, &mut self.idioms, &mut self.inside);
        for &Found { root, of, .. } in &self.idioms {
            self.last[of as usize] = self.last[of as usize].max(u32::from(root));
        }
        for (id, node) in nodes.iter().enumerate() {
            if let Some(comparison) = self.compared(nodes, node) {
                self.inside[node.src[0] as usize] = true;
                for &source in comparison.sources() {
                    self.last[source as usize] = self.last[source as usize].max(id as u32);
                }
            }
        }
        self.group(nodes);
        for (id, node) in nodes.iter().enumerate() {
            let out = kernel.outputs().iter().position(|&o| o as usize == id);
            let mut slot = || {
                self.free.pop().unwrap_or_else(|| {
                    self.slots += 1;
                    self.slots as u16 - 1
                })
            };
            let together = self
                .groups
                .get(self.last[id] as usize)
                .is_some_and(|&group| group > 0 && group == self.groups[id]);
            let home = match out {
                _ if self.inside[id] => Home::Nowhere,
                Some(i) if to_memory && node.op.arity() > 0 && !node.dtype.is_half() => {
                    Home::Out(i as u8)
                }
                None if together => Home::Strip(slot()),
                Some(_) | None => Home::Slot(slot()),
            };
            self.homes.push(home);
            // Only after the node has its own home: no loop ever writes over its operands.
            let compared =
                self.compared(nodes, node).map_or(&[][..], |comparison| comparison.sources());
            let of = self.idiom(id).map(|found| found.of);
            for &source in node.sources().iter().chain(compared).chain(&of) {
                if let (true, Home::Slot(slot) | Home::Strip(slot)) =
                    (self.last[source as usize] == id as u32, self.homes[source as usize])
                {
                    self.free.push(slot);
                    self.last[source as usize] = u32::MAX;
                }
            }
        }
    }

    /// Numbers the groups: neighbours that have a loop over vectors of f32. Everything else has
    /// number 0 and ends a group, but for numbers and for what has no value.
    fn group(&mut self, nodes: &[OpNode]) {
        let mut group = 1;
        self.groups.clear();
        for (id, node) in nodes.iter().enumerate() {
            let number = match node.op {
                _ if self.inside[id] => 0,
                OpCode::Param(_) | OpCode::Const(_) => 0,
                _ if self.what(nodes, id).is_some() => group,
                _ => {
                    group += 1;
                    0
                }
            };
            self.groups.push(number);
        }
    }

    /// The loop of node `id` over strips, if it has one.
    fn what(&self, nodes: &[OpNode], id: usize) -> Option<Loop> {
        let node = &nodes[id];
        if let Some(found) = self.idiom(id) {
            return Some(found.idiom);
        }
        if let Some(comparison) = self.compared(nodes, node) {
            return Loop::choice(comparison.op);
        }
        if node.dtype.compute() == DType::F32 { Loop::of(node.op) } else { None }
    }

    /// Whether no node needs memory for a whole tile. A value that is looked at may need it even if
    /// it is a leaf: one number is repeated there.
    fn is_strips_only(&self, nodes: &[OpNode]) -> bool {
        self.to_memory
            && nodes.iter().zip(&self.homes).zip(&self.groups).all(|((node, home), &group)| {
                match home {
                    _ if node.op.arity() == 0 => node.dtype == DType::F32,
                    Home::Slot(_) => false,
                    Home::Strip(_) | Home::Nowhere => true,
                    Home::Out(_) => group > 0,
                }
            })
    }

    /// Whether all these nodes are computed where the outputs lie.
    fn computes(&self, outputs: &[Id]) -> bool {
        outputs.iter().all(|&id| matches!(self.homes[id as usize], Home::Out(_)))
    }

    /// The idiom whose value node `id` is.
    fn idiom(&self, id: usize) -> Option<Found> {
        self.idioms.iter().copied().find(|found| found.root as usize == id)
    }

    /// The comparison of f32 that only `node` reads, to choose between f32: both are done in one
    /// loop.
    fn compared<'k>(&self, nodes: &'k [OpNode], node: &OpNode) -> Option<&'k OpNode> {
        if node.op != OpCode::Where || node.dtype != DType::F32 {
            return None;
        }
        let condition = &nodes[node.src[0] as usize];
        let compares = Loop::choice(condition.op).is_some();
        let alone = self.readers[node.src[0] as usize] == 1;
        (compares && alone && nodes[condition.src[0] as usize].dtype == DType::F32)
            .then_some(condition)
    }
}

/// A node's value over one tile.
#[derive(Clone, Copy)]
pub(crate) enum Value {
    /// Elements of the type that the node is computed in.
    Slice(*const u8),
    /// A strip of f32 at a time.
    Strip(*mut f32),
    /// Rows of f32 that lie so far apart.
    Band(*const u8, isize),
    /// One element's bytes, everywhere.
    Splat([u8; 8]),
}

/// Some neighbours along the crossing's axis, each a run of the innermost axis.
pub(crate) struct Block {
    /// The first element.
    start: usize,
    rows: usize,
    len: usize,
}

/// The memory of a task's tiles, and one thread's lists of what is in them, kept between calls.
pub(crate) struct Scratch {
    /// The first byte of the slots.
    base: *mut u8,
    /// The first byte of the strips.
    strips: *mut f32,
    values: Vec<Value>,
    /// The loops of the present group.
    steps: Vec<Step>,
    /// Transposed operands turned over: `PANEL` segments each.
    panels: *mut u8,
    /// Where the present tile lies in the panels.
    turned: [Option<*const u8>; MAX_OPERANDS],
}

impl Scratch {
    const fn new() -> Scratch {
        let (base, strips, panels) =
            (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
        Scratch {
            base,
            strips,
            values: Vec::new(),
            steps: Vec::new(),
            panels,
            turned: [None; MAX_OPERANDS],
        }
    }
}

/// A kernel bound to its inputs.
pub(crate) struct Program<'a> {
    level: Level,
    kernel: &'a Kernel,
    plan: &'a Plan,
    views: &'a [View],
    params: &'a [Scalar],
    walk: Walk,
    slot_bytes: usize,
    /// The longest tile: that of a slot, longer if none is used.
    tile: usize,
    /// Whether tiles are bands of rows, read where they lie.
    bands: bool,
    /// Whether memory is asked for ahead.
    ahead: bool,
}

/// The bytes of `scalar` as an element of type `dtype` is computed.
pub(crate) fn scalar_bytes(scalar: Scalar, dtype: DType) -> [u8; 8] {
    let mut bytes = [0; 8];
    let mut put = |b: &[u8]| bytes[..b.len()].copy_from_slice(b);
    match dtype {
        DType::Bool => put(&[u8::from(scalar.to_bool())]),
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => match scalar.cast(dtype) {
            Scalar::UInt(v) => put(&v.to_le_bytes()),
            s @ (Scalar::Bool(_) | Scalar::Int(_) | Scalar::Float(_)) => {
                put(&s.to_u64_wrapping().to_le_bytes())
            }
        },
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => {
            put(&scalar.cast(dtype).to_i64_wrapping().to_le_bytes())
        }
        DType::F16 | DType::BF16 | DType::F32 => put(&(scalar.to_f64() as f32).to_ne_bytes()),
        DType::F64 => put(&scalar.to_f64().to_ne_bytes()),
    }
    bytes
}

impl<'a> Program<'a> {
    /// Binds `kernel` to `views`, all of the sizes `shape` and of the types that the kernel reads.
    pub(crate) fn new(
        level: Level,
        kernel: &'a Kernel,
        plan: &'a Plan,
        shape: &[usize],
        views: &'a [View],
        params: &'a [Scalar],
    ) -> Program<'a> {
        // Slots are as large as the kernel's types, and the walk goes over these sizes.
        let fits =
            |(view, &dtype): (&View, &DType)| view.dtype == dtype && view.shape[..] == *shape;
        let all =
            views.len() == kernel.inputs().len() && views.iter().zip(kernel.inputs()).all(fits);
        assert!(all, "the operands are those of the kernel");
        let loops = kernel.nodes().iter().filter(|node| node.op.arity() > 0).count();
        let walk = Walk::new(shape, views, loops);
        let wide = kernel.nodes().iter().any(|node| node.dtype.size() == 8);
        let ahead =
            shape.iter().product::<usize>() * (views.len() + kernel.outputs().len()) >= CACHED;
        let slot_bytes = if wide { 8 * TILE } else { 4 * TILE };
        let mut program = Program {
            level,
            kernel,
            plan,
            views,
            params,
            walk,
            slot_bytes,
            tile: TILE,
            bands: false,
            ahead,
        };
        if plan.is_strips_only(kernel.nodes())
            && (0..views.len()).all(|i| program.walk.is_direct(i))
        {
            program.tile = usize::MAX;
            program.bands = plan.computes(kernel.outputs()) && program.walk.has_bands();
        } else if program.reads_through() {
            program.tile = 16 * TILE;
        }
        program
    }

    /// Calls `f` with memory for tiles, and for panels if there is a crossing. A trait object, so
    /// that this is compiled once.
    ///
    /// # Errors
    /// If there is no memory; `f` is not called then.
    pub(crate) fn with_scratch(
        &self,
        cpu: &Cpu,
        crossing: Option<&Crossing>,
        f: &mut dyn FnMut(&mut Scratch),
    ) -> Result<()> {
        let direct =
            self.tile == usize::MAX && (self.walk.rows() == 1 || !self.walk.shares_tiles());
        // Without a slot in use, and nothing to gather, the tiles are the operands' memory.
        let slots = if direct { 0 } else { (self.plan.slots + SPARE) * self.slot_bytes };
        let tiles = (slots + self.plan.slots * STRIP * size_of::<f32>()).next_multiple_of(LINE);
        let turned = crossing
            .map_or(0, |crossing| crossing.operands.iter().filter(|&&turned| turned).count());
        // Tiles of a packed program are the input's memory.
        let bytes = if self.is_packed() { 0 } else { tiles + turned * PANEL_BYTES };
        let memory = if bytes > 0 { Some(cpu.scratch(bytes)?) } else { None };
        let mut run = |scratch: &mut Scratch| {
            scratch.base = memory.as_ref().map_or(std::ptr::null_mut(), |memory| memory.ptr());
            scratch.strips = scratch.base.wrapping_add(slots).cast();
            scratch.panels = scratch.base.wrapping_add(tiles);
            scratch.turned = [None; MAX_OPERANDS]; // a panic may have left some
            f(scratch);
        };
        SCRATCH.with(|scratch| match scratch.try_borrow_mut() {
            Ok(mut scratch) => run(&mut scratch),
            // Inside another such call.
            Err(_) => run(&mut Scratch::new()),
        });
        Ok(())
    }

    /// True if the program is one input, unchanged and consecutive in memory: its tiles are that
    /// memory.
    pub(crate) fn reads_through(&self) -> bool {
        self.kernel.nodes().len() == 1
            && self.kernel.passes_through(0).is_some_and(|input| self.walk.is_consecutive(input))
            && !self.kernel.output_dtype(0).is_half()
    }

    /// Whether, besides, the input's rows follow each other without a gap.
    pub(crate) fn is_packed(&self) -> bool {
        self.reads_through() && self.walk.rows() == 1
    }

    /// How long the tile that begins at `at` is.
    pub(crate) fn tile_len(&self, at: usize, end: usize) -> usize {
        if self.bands {
            return self.walk.band_len(at, end);
        }
        let len = self.walk.tile_len(at, end, self.tile);
        // Rows that share a tile may have to be gathered into its memory.
        if self.tile > TILE && self.walk.rows() > 1 && self.walk.shares_tiles() {
            len.min(TILE)
        } else {
            len
        }
    }

    /// How the transposed inputs lie, if there are any worth turning over by panels.
    pub(crate) fn crossing(&self) -> Option<Crossing> {
        self.walk.crossing()
    }

    /// The blocks of a walk with transposed inputs.
    pub(crate) fn blocks(&self, crossing: &Crossing) -> usize {
        let rest: usize = self.walk.rows() / crossing.size;
        rest * crossing.size.div_ceil(PANEL) * self.walk.row().div_ceil(SEGMENT)
    }

    /// Block `number`: segments first, then bands along the crossing's axis, then the other axes.
    pub(crate) fn find(&self, crossing: &Crossing, number: usize) -> Block {
        let (bands, segments) = (crossing.size.div_ceil(PANEL), self.walk.row().div_ceil(SEGMENT));
        let (first, column) = (number / segments % bands * PANEL, number % segments * SEGMENT);
        let start = self.walk.line(crossing.axis, number / segments / bands)
            + first * crossing.below
            + column;
        Block {
            start,
            rows: PANEL.min(crossing.size - first),
            len: SEGMENT.min(self.walk.row() - column),
        }
    }

    /// Evaluates a block. Transposed inputs are turned over for all its rows at once.
    ///
    /// # Safety
    /// As `tile`, but `outs` are the outputs' first elements, and the scratch was made for this
    /// crossing.
    pub(crate) unsafe fn block(
        &self,
        scratch: &mut Scratch,
        crossing: &Crossing,
        block: &Block,
        outs: &[*mut u8; MAX_OUTPUTS],
        stream: bool,
    ) {
        let Block { start, rows, len } = *block;
        let panels = scratch.panels;
        let mut number = 0;
        let panel: [Option<*mut u8>; MAX_OPERANDS] = crossing.operands.map(|turned| {
            turned.then(|| {
                number += 1;
                panels.wrapping_add((number - 1) * PANEL_BYTES)
            })
        });
        // SAFETY: rows and columns are the walk's; panels have room for a block each; outputs as
        // promised.
        unsafe {
            for (i, panel) in panel.iter().enumerate() {
                if let Some(panel) = *panel {
                    let View { ptr, dtype, .. } = self.views[i];
                    let (from, step) = self.walk.turned(i, ptr, dtype.size(), start);
                    let shape = (rows, len);
                    match dtype.size() {
                        1 => turn(self.level, from, step, panel, PITCH as isize, shape, false),
                        2 => turn(
                            self.level,
                            from.cast::<u16>(),
                            step,
                            panel.cast(),
                            PITCH as isize,
                            shape,
                            false,
                        ),
                        4 => turn(
                            self.level,
                            from.cast::<u32>(),
                            step,
                            panel.cast(),
                            PITCH as isize,
                            shape,
                            false,
                        ),
                        _ => turn(
                            self.level,
                            from.cast::<u64>(),
                            step,
                            panel.cast(),
                            PITCH as isize,
                            shape,
                            false,
                        ),
                    }
                }
            }
            for row in 0..rows {
                let at = start + row * crossing.below;
                for (i, panel) in panel.iter().enumerate() {
                    scratch.turned[i] = panel.map(|panel| {
                        panel.wrapping_add(row * PITCH * self.views[i].dtype.size()).cast_const()
                    });
                }
                let outs = std::array::from_fn(|i| {
                    let size = if i < self.kernel.outputs().len() {
                        self.kernel.output_dtype(i).size()
                    } else {
                        0
                    };
                    outs[i].wrapping_add(at * size)
                });
                self.tile(scratch, at, len, &outs, stream);
            }
        }
        scratch.turned = [None; MAX_OPERANDS];
    }

    /// Evaluates elements `start .. start + len`. What is an output goes to `outs`.
    ///
    /// # Safety
    /// `outs` have room for `len` elements that nobody else touches, unless the plan has no outputs
    /// in memory; the views are readable; the scratch is that of `with_scratch`.
    pub(crate) unsafe fn tile(
        &self,
        scratch: &mut Scratch,
        start: usize,
        len: usize,
        outs: &[*mut u8; MAX_OUTPUTS],
        stream: bool,
    ) {
        // SAFETY: passed on; outputs are written at most `len` long.
        unsafe {
            self.values(scratch, start, len, outs, stream);
            for (i, &output) in self.kernel.outputs().iter().enumerate() {
                let dtype = self.kernel.output_dtype(i);
                let value = scratch.values[output as usize];
                match (self.plan.homes[output as usize], value) {
                    (Home::Out(home), Value::Slice(_)) if usize::from(home) == i => {}
                    _ => self.emit(value, dtype, outs[i], len),
                }
            }
        }
    }

    /// As `tile`, but only gives the value of the first output, in the type it is computed in.
    /// Valid until the next tile.
    ///
    /// # Safety
    /// The views are readable; the scratch is that of `with_scratch`.
    pub(crate) unsafe fn look(&self, scratch: &mut Scratch, start: usize, len: usize) -> *const u8 {
        // The value may be written into slots, which have room for `TILE` elements.
        assert!(len <= TILE || self.reads_through(), "a tile of {len} elements");
        assert!(!self.plan.to_memory, "no value is kept of a kernel that writes its outputs");
        let output = self.kernel.outputs()[0];
        let stored = self.kernel.output_dtype(0);
        let dtype = stored.compute();
        // SAFETY: the plan has all homes in slots, which `values` has pointed into this scratch.
        unsafe {
            self.values(scratch, start, len, &[std::ptr::null_mut(); MAX_OUTPUTS], false);
            let spare = self.slot(scratch, self.plan.slots + SPARE - 1);
            let value = self.as_slice(scratch.values[output as usize], dtype, spare, len);
            if stored.is_half() && self.kernel.passes_through(0).is_none() {
                // As if the value had been stored and read again, which is what a kernel before a
                // reduction means.
                let bits = self.slot(scratch, self.plan.slots);
                cast::narrow(stored, value, bits, len);
                cast::widen(stored, bits, spare, len);
                return spare;
            }
            value
        }
    }

    /// The slot of this number: room for `TILE` elements of any type of the kernel.
    fn slot(&self, scratch: &Scratch, slot: usize) -> *mut u8 {
        assert!(slot < self.plan.slots + SPARE, "slot {slot}");
        scratch.base.wrapping_add(slot * self.slot_bytes)
    }

    /// Evaluates all nodes over elements `start .. start + len`.
    ///
    /// # Safety
    /// The views are readable; `outs` have room for `len` elements each if the plan writes to
    /// memory.
    unsafe fn values(
        &self,
        scratch: &mut Scratch,
        start: usize,
        len: usize,
        outs: &[*mut u8; MAX_OUTPUTS],
        stream: bool,
    ) {
        scratch.values.clear();
        scratch.steps.clear();
        let row = if self.bands { len.min(self.walk.row()) } else { len };
        let nodes = self.kernel.nodes();
        for (id, (node, home)) in nodes.iter().zip(&self.plan.homes).enumerate() {
            let to = match *home {
                Home::Slot(slot) => Value::Slice(self.slot(scratch, usize::from(slot))),
                Home::Strip(slot) => {
                    Value::Strip(scratch.strips.wrapping_add(usize::from(slot) * STRIP))
                }
                Home::Out(i) => Value::Slice(outs[usize::from(i)]),
                Home::Nowhere => {
                    scratch.values.push(Value::Splat([0; 8]));
                    continue;
                }
            };
            // SAFETY: `to` has room for `len` elements and overlaps no operand, by the plan.
            let value = unsafe {
                match (node.op, to) {
                    (OpCode::Param(i), _) => {
                        Value::Splat(scalar_bytes(self.params[usize::from(i)], node.dtype))
                    }
                    (OpCode::Const(value), _) => Value::Splat(scalar_bytes(value, node.dtype)),
                    _ if self.plan.groups[id] > 0 => {
                        self.step(scratch, id, to, row, stream && matches!(home, Home::Out(_)))
                    }
                    (op, Value::Slice(to)) => {
                        self.finish(scratch, len, row);
                        match op {
                            OpCode::Input(i) => {
                                self.read(scratch, usize::from(i), start, len, to.cast_mut())
                            }
                            _ => {
                                self.node(scratch, node, to.cast_mut(), len);
                                Value::Slice(to)
                            }
                        }
                    }
                    (_, Value::Strip(_) | Value::Band(..) | Value::Splat(_)) => {
                        unreachable!("only nodes of a group live in strips")
                    }
                }
            };
            scratch.values.push(value);
        }
        // SAFETY: as above.
        unsafe { self.finish(scratch, len, row) };
    }

    /// Adds the loop of node `id` to its group, or computes it at once if it is the same number
    /// everywhere.
    ///
    /// # Safety
    /// As `values`.
    unsafe fn step(
        &self,
        scratch: &mut Scratch,
        id: usize,
        to: Value,
        row: usize,
        stream: bool,
    ) -> Value {
        let nodes = self.kernel.nodes();
        let Some(what) = self.plan.what(nodes, id) else {
            unreachable!("a node of a group has a loop")
        };
        let place = |value: Value| match value {
            Value::Slice(p) => Place::Run(p.cast_mut().cast(), row as isize),
            Value::Band(p, pitch) => Place::Run(p.cast_mut().cast(), pitch),
            Value::Strip(p) => Place::Strip(p),
            Value::Splat([a, b, c, d, ..]) => Place::Splat(f32::from_ne_bytes([a, b, c, d])),
        };
        let of = |id: Id| place(scratch.values[id as usize]);
        let src = &nodes[id].src;
        let mut from = [Place::Splat(0.0); 4];
        match self.plan.idiom(id) {
            Some(found) => from[0] = of(found.of),
            None if what.operands() == 4 => {
                let compared = &nodes[src[0] as usize].src;
                from = [of(compared[0]), of(compared[1]), of(src[1]), of(src[2])];
            }
            None => (0..what.operands()).for_each(|i| from[i] = of(src[i])),
        }
        if from.iter().all(|place| matches!(place, Place::Splat(_))) {
            let (mut numbers, mut y) =
                (from.map(|place| if let Place::Splat(x) = place { x } else { 0.0 }), 0.0);
            let from = numbers.each_mut().map(|x| Place::Run(x, 0));
            // SAFETY: one element each.
            unsafe {
                strips::run(
                    self.level,
                    &[Step { what, from, to: Place::Run(&mut y, 0), stream: false }],
                    1,
                    1,
                    false,
                )
            };
            let [a, b, c, d] = y.to_ne_bytes();
            return Value::Splat([a, b, c, d, 0, 0, 0, 0]);
        }
        scratch.steps.push(Step { what, from, to: place(to), stream });
        to
    }

    /// Runs the loops of the group that ends here.
    ///
    /// # Safety
    /// As `values`.
    unsafe fn finish(&self, scratch: &mut Scratch, len: usize, row: usize) {
        if !scratch.steps.is_empty() {
            // SAFETY: slots, outputs and consecutive inputs have `len` elements, strips have
            // theirs.
            unsafe { strips::run(self.level, &scratch.steps, len / row, row, self.ahead) };
            scratch.steps.clear();
        }
    }

    /// Input `i` over the tile, in the type it is computed in.
    unsafe fn read(
        &self,
        scratch: &Scratch,
        i: usize,
        start: usize,
        len: usize,
        to: *mut u8,
    ) -> Value {
        let View { ptr, dtype, .. } = self.views[i];
        let spare = self.slot(scratch, self.plan.slots);
        if self.bands {
            let (from, pitch) = self.walk.band(i, ptr, dtype.size(), start);
            return Value::Band(from, pitch);
        }
        // SAFETY: the walk was made of these views; `to` and the spare slot have room for a tile.
        unsafe {
            let piece = match scratch.turned[i] {
                Some(row) => Piece::Slice(row),
                None => self.walk.piece(i, ptr, dtype.size(), start, len),
            };
            if dtype.is_half() {
                assert!(len <= TILE, "{len} elements in a slot");
                let from = match piece {
                    Piece::Slice(from) => from,
                    Piece::Splat(_) | Piece::Scattered => {
                        self.walk.gather(i, ptr, dtype, start, len, spare);
                        spare
                    }
                };
                cast::widen(dtype, from, to, len);
                return Value::Slice(to);
            }
            match piece {
                Piece::Slice(from) => Value::Slice(from),
                Piece::Splat(from) => {
                    let mut bytes = [0; 8];
                    std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), dtype.size());
                    Value::Splat(bytes)
                }
                Piece::Scattered => {
                    assert!(len <= TILE, "{len} elements in a slot");
                    self.walk.gather(i, ptr, dtype, start, len, to);
                    Value::Slice(to)
                }
            }
        }
    }

    /// The value as memory, spread into `spare` if it is one element. `dtype` is the type it is
    /// computed in.
    unsafe fn as_slice(&self, value: Value, dtype: DType, spare: *mut u8, len: usize) -> *const u8 {
        match value {
            Value::Slice(p) => p,
            Value::Strip(_) | Value::Band(..) => {
                unreachable!("a strip or a band is read by its group alone")
            }
            Value::Splat(bytes) => {
                assert!(len <= TILE, "{len} elements in a slot");
                // SAFETY: a spare slot has room for a tile of any type of this kernel.
                unsafe { spread(bytes, dtype.compute().size(), spare, len) };
                spare
            }
        }
    }

    /// Writes a value to an output.
    unsafe fn emit(&self, value: Value, dtype: DType, out: *mut u8, len: usize) {
        // SAFETY: the output has room.
        unsafe {
            match value {
                Value::Slice(p) if dtype.is_half() => cast::narrow(dtype, p, out, len),
                Value::Slice(p) => std::ptr::copy_nonoverlapping(p, out, len * dtype.size()),
                Value::Strip(_) | Value::Band(..) => unreachable!("an output is no strip"),
                Value::Splat(bytes) => {
                    let mut stored = bytes;
                    if dtype.is_half() {
                        cast::narrow(dtype, bytes.as_ptr(), stored.as_mut_ptr(), 1);
                    }
                    spread(stored, dtype.size(), out, len);
                }
            }
        }
    }

    /// One node over the whole tile.
    unsafe fn node(&self, scratch: &Scratch, node: &OpNode, to: *mut u8, n: usize) {
        assert!(n <= TILE, "{n} elements in a slot");
        let level = self.level;
        let dtype_of = |id: Id| self.kernel.nodes()[id as usize].dtype;
        let value = |i: usize| scratch.values[node.src[i] as usize];
        // SAFETY: sources are slices of at least n elements of the type their node is computed in;
        // `to` overlaps none.
        unsafe {
            let arg = |i: usize| {
                let spare = self.slot(scratch, self.plan.slots + i);
                self.as_slice(value(i), dtype_of(node.src[i]), spare, n)
            };
            let source = dtype_of(node.src[0]);
            match node.op {
                OpCode::Cast => cast::cast(source, node.dtype, arg(0), to, n),
                OpCode::Where => {
                    int::select(level, node.dtype.compute().size(), arg(0), arg(1), arg(2), to, n)
                }
                OpCode::IsNan => match source {
                    DType::F64 => int::each(slice::<f64>(arg(0), n), slice_mut(to, n), |x| {
                        u8::from(x.is_nan())
                    }),
                    _ => int::each(slice::<f32>(arg(0), n), slice_mut(to, n), |x| {
                        u8::from(x.is_nan())
                    }),
                },
                op @ (OpCode::CmpLt | OpCode::CmpLe | OpCode::CmpEq | OpCode::CmpNe) => {
                    int::compare(level, op, source, arg(0), arg(1), to, n)
                }
                op if op.arity() == 1 => match source {
                    DType::F16 | DType::BF16 | DType::F32 => {
                        unary_f32(level, op, arg(0).cast(), to.cast(), n, false)
                    }
                    DType::F64 => unary_f64(level, op, slice(arg(0), n), slice_mut(to, n)),
                    _ => int::unary(op, source, arg(0), to, n),
                },
                op => match source {
                    DType::F16 | DType::BF16 | DType::F32 => {
                        binary_f32(
                            level,
                            op,
                            Operand::Slice(arg(0).cast()),
                            Operand::Slice(arg(1).cast()),
                            to.cast(),
                            n,
                            false,
                        );
                    }
                    DType::F64 => {
                        binary_f64(level, op, slice(arg(0), n), slice(arg(1), n), slice_mut(to, n))
                    }
                    _ => int::binary(level, op, source, arg(0), arg(1), to, n),
                },
            }
        }
    }
}

/// Fills `out` with `len` copies of an element of `size` bytes.
///
/// # Safety
/// `out` has room, aligned.
pub(crate) unsafe fn spread(bytes: [u8; 8], size: usize, out: *mut u8, len: usize) {
    let word = u64::from_ne_bytes(bytes);
    // SAFETY: by contract.
    unsafe {
        match size {
            1 => slice_mut::<u8>(out, len).fill(bytes[0]),
            2 => slice_mut::<u16>(out, len).fill(u16::from_ne_bytes([bytes[0], bytes[1]])),
            4 => slice_mut::<u32>(out, len)
                .fill(u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])),
            _ => slice_mut::<u64>(out, len).fill(word),
        }
    }
}
