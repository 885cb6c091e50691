//! The tile interpreter: evaluates a kernel that is bound to its inputs, tile by tile.
//!
//! The naive form is one loop over all elements that evaluates every node for one element, with a
//! branch on the operation of each. The steps from there:
//!
//! 1. Node after node over a tile of 4096 elements, one loop per node: the branch is taken once per
//!    tile, the loop is vectorised, and values stay in L1.
//! 2. Inputs that are contiguous along a tile are read where they are, and outputs are written
//!    where they belong; others are gathered or converted into a slot.
//! 3. Neighbouring nodes of f32 take turns over blocks of 512 elements (`blocks`).
//! 4. Inputs that are transposed are copied by slabs first (`slabs`).
//!
//! ```text
//!   input 0 ──► slice of memory ─┐
//!   input 1 ──► gathered in slot ┴─ mul ─► slot ─ exp ─► straight into the output
//! ```
//! Values of 16-bit nodes are computed in f32 and rounded only when they are stored. Next:
//! `plan`, which decides where values are kept.

use super::floats;
use super::plan::Location;
use super::tiles::{Outs, SPARE, Scratch, TILE, Tiles, outputs_from};
use super::value::{Value, fill, scalar_bytes};
use crate::half;
use crate::loops::{cast, int, select};
use crate::machine::blocks::BLOCK;
use crate::machine::groups;
use crate::machine::step::{Format, Place, Step};
use crate::storage::{Shared, View};
use crate::typed::{slice, slice_mut};
use crate::walk::Piece;
use teeny_core::DType;
use teeny_core::kernel::{Id, MAX_OUTPUTS, OpCode, OpNode};

impl Tiles<'_> {
    /// Evaluates elements `start .. start + len` of the outputs, whose first ones are at `outs`.
    ///
    /// # Safety
    /// `outs` have memory for these elements, which no other thread touches, unless the plan has no
    /// outputs in memory; the views are readable; the scratch comes from `with_scratch`.
    pub(crate) unsafe fn tile(
        &self,
        scratch: &mut Scratch,
        start: usize,
        len: usize,
        outs: &Outs,
        stream: bool,
    ) {
        let outs = outputs_from(self.kernel, outs, start);
        // SAFETY: passed on; outputs are written at most `len` long.
        unsafe {
            self.values(scratch, start, len, &outs, stream);
            for (i, &output) in self.kernel.outputs().iter().enumerate() {
                let dtype = self.kernel.output_dtype(i);
                let value = scratch.values[output as usize];
                match (self.plan.locations[output as usize], value) {
                    (Location::Output(location), Value::Slice(_)) if usize::from(location) == i => {
                    }
                    _ => self.store_output(value, dtype, outs[i].get(), len),
                }
            }
        }
    }

    /// As `tile`, but only returns the value of the first output, in its compute dtype. Valid until
    /// the next tile.
    ///
    /// # Safety
    /// The views are readable; the scratch comes from `with_scratch`.
    pub(crate) unsafe fn evaluate(
        &self,
        scratch: &mut Scratch,
        start: usize,
        len: usize,
    ) -> *const u8 {
        // The value may be written into slots, which have `TILE` elements.
        assert!(len <= TILE, "a tile of {len} elements");
        assert!(!self.plan.to_memory, "no value is kept of a kernel that writes its outputs");
        let output = self.kernel.outputs()[0];
        let stored = self.kernel.output_dtype(0);
        let dtype = stored.compute();
        // SAFETY: the plan has all locations in slots, which `values` has pointed into this
        // scratch.
        unsafe {
            self.values(scratch, start, len, &[Shared(std::ptr::null_mut()); MAX_OUTPUTS], false);
            let spare = self.slot(scratch, self.plan.slots + SPARE - 1);
            let value = self.as_slice(scratch.values[output as usize], dtype, spare, len);
            if stored.is_half() && self.kernel.passes_through(0).is_none() {
                // A kernel before a reduction has the result of a value stored and read again.
                let bits = self.slot(scratch, self.plan.slots);
                half::from_f32(self.level, stored, value, bits, len);
                half::to_f32(self.level, stored, bits, spare, len);
                return spare;
            }
            value
        }
    }

    /// The slot of this number: memory for `TILE` elements of any type of the kernel.
    fn slot(&self, scratch: &Scratch, slot: usize) -> *mut u8 {
        assert!(slot < self.plan.slots + SPARE, "slot {slot}");
        scratch.base.wrapping_add(slot * self.slot_bytes)
    }

    /// Evaluates all nodes over elements `start .. start + len`.
    ///
    /// # Safety
    /// The views are readable; `outs` have `len` elements each if the plan writes to memory.
    unsafe fn values(
        &self,
        scratch: &mut Scratch,
        start: usize,
        len: usize,
        outs: &Outs,
        stream: bool,
    ) {
        scratch.values.clear();
        scratch.steps.clear();
        let row = if self.rows_in_place { len.min(self.walk.row()) } else { len };
        let nodes = self.kernel.nodes();
        let mut group = 0;
        for (id, (node, location)) in nodes.iter().zip(&self.plan.locations).enumerate() {
            let to = match *location {
                Location::Slot(slot) => Value::Slice(self.slot(scratch, usize::from(slot))),
                Location::Block(slot) => {
                    let bytes = BLOCK * (self.slot_bytes / TILE);
                    Value::Block(scratch.blocks.wrapping_add(usize::from(slot) * bytes))
                }
                Location::Output(i) => Value::Slice(outs[usize::from(i)].get()),
                Location::Inlined => {
                    scratch.values.push(Value::Splat([0; 8]));
                    continue;
                }
            };
            // SAFETY: `to` has `len` elements and overlaps no operand, by the plan.
            let value = unsafe {
                match (node.op, to) {
                    (OpCode::Param(i), _) => {
                        Value::Splat(scalar_bytes(self.params[usize::from(i)], node.dtype))
                    }
                    (OpCode::Const(value), _) => Value::Splat(scalar_bytes(value, node.dtype)),
                    _ if self.plan.groups[id] > 0 => {
                        if self.plan.groups[id] != group {
                            self.run_group(scratch, len, row);
                            group = self.plan.groups[id];
                        }
                        let stream = stream && matches!(location, Location::Output(_));
                        self.add_step(scratch, id, to, row, stream)
                    }
                    (op, Value::Slice(to)) => {
                        self.run_group(scratch, len, row);
                        match op {
                            OpCode::Input(i) => {
                                self.load_input(scratch, usize::from(i), start, len, to.cast_mut())
                            }
                            _ => {
                                self.run_node(scratch, node, to.cast_mut(), len);
                                Value::Slice(to)
                            }
                        }
                    }
                    (
                        _,
                        Value::Block(_) | Value::Rows(..) | Value::Column(..) | Value::Splat(_),
                    ) => {
                        unreachable!("only nodes of a group are kept in blocks")
                    }
                }
            };
            scratch.values.push(value);
        }
        // SAFETY: as above.
        unsafe { self.run_group(scratch, len, row) };
    }

    /// Adds the loop of node `id` to its group, or computes it at once if all its operands are
    /// numbers.
    ///
    /// # Safety
    /// As `values`.
    unsafe fn add_step(
        &self,
        scratch: &mut Scratch,
        id: usize,
        to: Value,
        row: usize,
        stream: bool,
    ) -> Value {
        let nodes = self.kernel.nodes();
        let Some(body) = self.plan.body(nodes, id) else {
            unreachable!("a node of a group has a loop")
        };
        let dtype = nodes[id].dtype;
        let wide = dtype == DType::F64;
        // Of slices in memory, only outputs may have gaps between their rows.
        let stride = self.output_row_stride.unwrap_or(row) as isize;
        let place = |value: Value| match value {
            Value::Slice(p) => Place::Rows(p.cast_mut(), stride, Format::Own),
            Value::Rows(p, stride, dtype) => Place::Rows(p.cast_mut(), stride, Format::of(dtype)),
            Value::Column(p, stride, dtype) => Place::Column(p, stride, Format::of(dtype)),
            Value::Block(p) => Place::Block(p),
            Value::Splat(bytes) => Place::Splat(bytes),
        };
        let place_of = |id: Id| place(scratch.values[id as usize]);
        let src = &nodes[id].src;
        let mut from = [Place::Splat([0; 8]); 4];
        match self.plan.pattern(id) {
            Some(found) => from[0] = place_of(found.input),
            None if body.operands() == 4 => {
                let compared = &nodes[src[0] as usize].src;
                from = [
                    place_of(compared[0]),
                    place_of(compared[1]),
                    place_of(src[1]),
                    place_of(src[2]),
                ];
            }
            None => (0..body.operands()).for_each(|i| from[i] = place_of(src[i])),
        }
        if from.iter().all(|place| matches!(place, Place::Splat(_))) {
            let mut numbers =
                from.map(|place| if let Place::Splat(bytes) = place { bytes } else { [0; 8] });
            let mut y = [0; 8];
            let from = numbers.each_mut().map(|x| Place::Rows(x.as_mut_ptr(), 0, Format::Own));
            let to = Place::Rows(y.as_mut_ptr(), 0, Format::Own);
            let step = Step { body, wide, from, to, stream: false };
            // SAFETY: one element each.
            unsafe { groups::run(self.level, &[step], 1, 1, false) };
            return Value::Splat(y);
        }
        let to_place = match (self.plan.locations[id], to) {
            (Location::Output(_), Value::Slice(p)) => {
                Place::Rows(p.cast_mut(), stride, Format::of(dtype))
            }
            _ => place(to),
        };
        let stream = stream && !dtype.is_half();
        scratch.steps.push(Step { body, wide, from, to: to_place, stream }.simplified());
        to
    }

    /// Runs the loops of the group that ends with the node before.
    ///
    /// # Safety
    /// As `values`.
    unsafe fn run_group(&self, scratch: &mut Scratch, len: usize, row: usize) {
        if !scratch.steps.is_empty() {
            // SAFETY: slots, outputs and consecutive inputs have `len` elements, blocks have
            // theirs.
            unsafe { groups::run(self.level, &scratch.steps, len / row, row, self.prefetch) };
            scratch.steps.clear();
        }
    }

    /// Input `i` over the tile, in its compute dtype.
    unsafe fn load_input(
        &self,
        scratch: &Scratch,
        i: usize,
        start: usize,
        len: usize,
        to: *mut u8,
    ) -> Value {
        let View { ptr, dtype, .. } = self.views[i];
        if self.rows_in_place {
            let (from, stride) = self.walk.row_address(i, ptr, dtype.size(), start);
            return match self.walk.is_number(i) {
                true => Value::Column(from, stride, dtype),
                false => Value::Rows(from, stride, dtype),
            };
        }
        // SAFETY: the walk was made of these views; `to` and the spare slot have a whole tile.
        unsafe {
            let piece = match scratch.transposed[i] {
                Some(row) => Piece::Slice(row),
                None => self.walk.piece(i, ptr, dtype.size(), start, len),
            };
            if dtype.is_half() {
                return match piece {
                    // One row of the tile's length: the distance to the next means nothing.
                    Piece::Slice(from) => Value::Rows(from, len as isize, dtype),
                    Piece::Splat(from) => {
                        let mut number = 0u64; // aligned for an f32
                        half::to_f32(self.level, dtype, from, (&raw mut number).cast(), 1);
                        Value::Splat(number.to_ne_bytes())
                    }
                    Piece::Scattered => {
                        assert!(len <= TILE, "{len} elements in a slot");
                        self.walk.gather(i, ptr, dtype, start, len, to);
                        Value::Rows(to, len as isize, dtype)
                    }
                };
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

    /// The value as memory, repeated in `spare` if it is one element of compute dtype `dtype`.
    unsafe fn as_slice(&self, value: Value, dtype: DType, spare: *mut u8, len: usize) -> *const u8 {
        match value {
            Value::Slice(p) => p,
            Value::Rows(p, _, stored) if stored.is_half() => {
                assert!(len <= TILE, "{len} elements in a slot");
                // SAFETY: as below; the value is one row of `len` elements.
                unsafe { half::to_f32(self.level, stored, p, spare, len) };
                spare
            }
            Value::Block(_) | Value::Rows(..) | Value::Column(..) => {
                unreachable!("only nodes of its group read a block or rows")
            }
            Value::Splat(bytes) => {
                assert!(len <= TILE, "{len} elements in a slot");
                // SAFETY: a spare slot has a whole tile of any type of this kernel.
                unsafe { fill(self.level, bytes, dtype.compute().size(), spare, len) };
                spare
            }
        }
    }

    /// Writes a value to an output.
    unsafe fn store_output(&self, value: Value, dtype: DType, out: *mut u8, len: usize) {
        // SAFETY: the output has `len` elements.
        unsafe {
            match value {
                Value::Slice(p) if dtype.is_half() => {
                    half::from_f32(self.level, dtype, p, out, len)
                }
                Value::Slice(p) => std::ptr::copy_nonoverlapping(p, out, len * dtype.size()),
                Value::Rows(p, _, stored) if stored == dtype => {
                    std::ptr::copy_nonoverlapping(p, out, len * dtype.size());
                }
                Value::Block(_) | Value::Rows(..) | Value::Column(..) => {
                    unreachable!("an output is a slice or a number")
                }
                Value::Splat(bytes) => {
                    let mut stored = bytes;
                    if dtype.is_half() {
                        half::from_f32(self.level, dtype, bytes.as_ptr(), stored.as_mut_ptr(), 1);
                    }
                    fill(self.level, stored, dtype.size(), out, len);
                }
            }
        }
    }

    /// One node over the whole tile.
    unsafe fn run_node(&self, scratch: &Scratch, node: &OpNode, to: *mut u8, n: usize) {
        assert!(n <= TILE, "{n} elements in a slot");
        let level = self.level;
        let dtype_of = |id: Id| self.kernel.nodes()[id as usize].dtype;
        let value = |i: usize| scratch.values[node.src[i] as usize];
        // SAFETY: sources are slices of at least n elements of their node's compute dtype;
        // `to` overlaps none.
        unsafe {
            let arg = |i: usize| {
                let spare = self.slot(scratch, self.plan.slots + i);
                self.as_slice(value(i), dtype_of(node.src[i]), spare, n)
            };
            let tile = || int::Tile::row(arg(0), arg(1), to, n);
            let source = dtype_of(node.src[0]);
            match node.op {
                OpCode::Cast => cast::cast(level, source, node.dtype, arg(0), to, n),
                OpCode::Where => select::select(
                    level,
                    node.dtype.compute().size(),
                    [arg(0), arg(1), arg(2)],
                    to,
                    n,
                ),
                OpCode::IsNan => match source {
                    DType::F64 => int::each(slice::<f64>(arg(0), n), slice_mut(to, n), |x| {
                        u8::from(x.is_nan())
                    }),
                    _ => int::each(slice::<f32>(arg(0), n), slice_mut(to, n), |x| {
                        u8::from(x.is_nan())
                    }),
                },
                OpCode::Compare(op) => int::compare(level, op, source, tile()),
                OpCode::Bitwise(op) => int::bitwise(level, op, source, tile()),
                OpCode::Arithmetic(op) => int::arithmetic(level, op, source, tile()),
                op if source.is_float() => {
                    floats::by_calls(op, source == DType::F64, arg(0), to, n)
                }
                op => int::unary(level, op, source, int::Rows::one(arg(0), to, n)),
            }
        }
    }
}
