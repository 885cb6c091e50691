//! Instructions of a pass with the memory that they read and write.
//!
//! Operands that move with the rows are written into the instructions for each batch of rows; all
//! others stay. Elements of 16 bits that are read more than once are widened into a slot first, and
//! so is one number a row where an instruction takes vectors only.

use super::job::Job;
use crate::elementwise::value::scalar_bytes;
use crate::machine::instructions::{BUFFER, Code, Instruction, Splat, VECTOR};
use crate::machine::program::{Operand, Pass, Program, Reduction};
use crate::machine::values::Number;
use crate::scratch::LINE;
use std::ops::Range;
use teeny_core::{DType, Scalar};

/// The assignment of rows to vectors.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Side {
    /// Along them. Short rows are reduced to one vector each, otherwise to eight.
    Along { short: bool },
    /// Across them.
    Across,
}

/// The memory of some rows, in bytes from its beginning.
pub(super) struct Memory {
    /// The most rows at a time.
    pub count: usize,
    pub side: Side,
    /// From a computed row value to the next.
    value_stride: usize,
    slots: usize,
    buffers: usize,
    folds: usize,
    /// Strides of the numbers of folds: from a fold to the next, and from a row to the next.
    fold_stride: usize,
    fold_row: usize,
    /// Sums and products of a pass, `f64` for each row.
    totals: usize,
    kept: usize,
    /// From a kept value to the next, and from a row, or across from a position, to the next.
    kept_stride: usize,
    kept_row: usize,
    /// Transposed operands and results, each as large as a kept value.
    tiles: usize,
    /// All bytes.
    pub bytes: usize,
}

impl Memory {
    /// The memory for `count` rows at a time, with `tiles` transposed operands and results.
    pub(super) fn new(job: &Job<'_>, count: usize, side: Side, tiles: usize) -> Memory {
        let Program { elements, row_operands, passes, computed, slots, kept, .. } = job.code;
        let size = job.size;
        let line = |bytes: usize| bytes.next_multiple_of(LINE);
        let value_stride = line(count * size);
        let mut end = computed * value_stride;
        let mut take = |bytes: usize| {
            end += bytes;
            end - bytes
        };
        let most_slots = slots + elements.len() + row_operands.len() + computed;
        let slots = take(most_slots * BUFFER);
        let buffers = take(2 * BUFFER);
        let most = passes.iter().map(|pass| pass.folds.len()).max().unwrap_or(0);
        let fold_row = match side {
            Side::Along { short: true } => VECTOR,
            Side::Along { short: false } => BUFFER,
            Side::Across => 0,
        };
        let fold_stride = line(fold_row * count);
        let folds = take(most * fold_stride);
        let totals = take(most * line(8 * count));
        let in_output = usize::from(job.kept_in_output(side).is_some());
        let kept_row = match side {
            Side::Along { .. } => line(job.n * size),
            Side::Across => line(count * size),
        };
        let of_kept = if let Side::Along { .. } = side { count } else { job.n };
        let kept_stride = kept_row * of_kept;
        let kept = take((kept - in_output.min(*kept)) * kept_stride);
        let tiles = take(tiles * kept_stride);
        let bytes = end;
        Memory {
            count,
            side,
            value_stride,
            slots,
            buffers,
            folds,
            fold_stride,
            fold_row,
            totals,
            kept,
            kept_stride,
            kept_row,
            tiles,
            bytes,
        }
    }

    /// Where computed row value `k` begins.
    pub(super) fn row(&self, base: *mut u8, k: usize) -> *mut u8 {
        base.wrapping_add(k * self.value_stride)
    }

    /// Where the vectors of fold `k` of a pass begin.
    pub(super) fn fold(&self, base: *mut u8, k: usize) -> *mut u8 {
        base.wrapping_add(self.folds + k * self.fold_stride)
    }

    /// Where the totals of fold `k` of a pass begin.
    pub(super) fn totals(&self, base: *mut u8, k: usize) -> *mut f64 {
        let stride = (8 * self.count).next_multiple_of(LINE);
        base.wrapping_add(self.totals + k * stride).cast()
    }

    /// The start of tile `k`, and the stride between positions in elements of `size` bytes.
    pub(super) fn tile(&self, base: *mut u8, k: usize, size: usize) -> (*mut u8, usize) {
        (base.wrapping_add(self.tiles + k * self.kept_stride), self.kept_row / size)
    }
}

/// An operand that moves with the rows: its instruction, the first byte, and the bytes to the next
/// outer and to the next inner row.
struct Moving {
    line: usize,
    first: *mut u8,
    outer: isize,
    inner: isize,
}

/// The instructions of all passes, whose operands in the memory of some rows are places from its
/// beginning.
pub(super) struct Template {
    code: Vec<Instruction>,
    moving: Vec<Moving>,
    /// The instructions with an operand in the memory of some rows.
    own: Vec<usize>,
    /// The instructions of each pass: before it, and over its elements.
    passes: Vec<[Range<usize>; 2]>,
}

// SAFETY: only passes addresses to the workers; each use states which elements it touches.
unsafe impl Sync for Template {}

/// The instructions of all passes with the memory of some rows.
pub(super) struct Bound<'a> {
    code: Vec<Instruction>,
    template: &'a Template,
}

impl Bound<'_> {
    /// Makes the instructions those for rows from this one on.
    pub(super) fn move_to(&mut self, outer: usize, inner: usize) {
        for moving in &self.template.moving {
            let by = outer as isize * moving.outer + inner as isize * moving.inner;
            self.code[moving.line].first = moving.first.wrapping_offset(by);
        }
    }

    /// The values that pass `k` needs, and the instructions over its elements.
    pub(super) fn pass(&self, k: usize) -> [&[Instruction]; 2] {
        let [before, instrs] = &self.template.passes[k];
        [&self.code[before.clone()], &self.code[instrs.clone()]]
    }
}

impl Template {
    /// The instructions with memory that begins at `base`.
    pub(super) fn bound(&self, base: *mut u8) -> Bound<'_> {
        let mut code = self.code.clone();
        for &line in &self.own {
            code[line].first = base.wrapping_add(code[line].first.addr());
        }
        Bound { code, template: self }
    }

    fn add(&mut self, place: &Place, code: Code) {
        if let Some((first, outer, inner)) = place.moving {
            self.moving.push(Moving { line: self.code.len(), first, outer, inner });
        } else if place.is_own {
            self.own.push(self.code.len());
        }
        self.code.push(Instruction { code, ..place.instruction });
    }
}

/// The memory of an operand.
#[derive(Clone, Copy)]
struct Place {
    instruction: Instruction,
    moving: Option<(*mut u8, isize, isize)>,
    /// Whether it is in the memory of some rows.
    is_own: bool,
    /// The type, if it is one of 16 bits.
    half: Option<DType>,
}

impl Job<'_> {
    /// The output in whose memory the first kept value is.
    pub(super) fn kept_in_output(&self, side: Side) -> Option<usize> {
        let is_tile = side == Side::Across && self.inner == 1;
        self.code.kept_in.filter(|&o| !is_tile && self.output_dtype(o) == self.code.dtype)
    }

    /// The numbers of the program.
    pub(super) fn numbers(&self) -> Vec<Splat> {
        let number = |number: &Number| {
            let scalar = match *number {
                Number::Const(x) => x,
                Number::Param(i) => self.params[i],
                Number::Length => Scalar::Int(self.n as i64),
            };
            Splat::of(scalar_bytes(scalar, self.code.dtype), self.size)
        };
        self.code.numbers.iter().map(number).collect()
    }

    /// The passes with their operands.
    pub(super) fn template(&self, memory: &Memory, numbers: &[Splat]) -> Template {
        let base = std::ptr::null_mut();
        let passes = &self.code.passes;
        let instrs = passes.iter().map(|pass| pass.before.len() + pass.instrs.len()).sum::<usize>();
        let mut bound = Template {
            code: Vec::with_capacity(instrs + 8),
            moving: Vec::with_capacity(16),
            own: Vec::with_capacity(instrs),
            passes: Vec::with_capacity(passes.len()),
        };
        for pass in passes {
            let start = bound.code.len();
            for &(code, operand) in &pass.before {
                let place = match operand {
                    Operand::Row(k) => self.row_vectors(k, memory, base),
                    _ => self.place(operand, memory, base, numbers, &[]),
                };
                bound.add(&place, code);
            }
            let middle = bound.code.len();
            self.bind(&mut bound, pass, memory, base, numbers);
            bound.passes.push([start..middle, middle..bound.code.len()]);
        }
        bound
    }

    /// Binds the instructions of a pass over elements.
    fn bind(
        &self,
        bound: &mut Template,
        pass: &Pass,
        memory: &Memory,
        base: *mut u8,
        numbers: &[Splat],
    ) {
        let Pass { instrs, folds, .. } = pass;
        let mut widened: Vec<(Operand, Place)> = Vec::new();
        for &(code, operand) in instrs {
            if !matches!(operand, Operand::Element(_) | Operand::Row(_)) {
                continue;
            }
            let place = self.place(operand, memory, base, numbers, folds);
            let takes_number = code == Code::Load || code.has_two_operands();
            let has_vectors = !place.instruction.is_column || takes_number;
            let uses = || instrs.iter().filter(|instr| instr.1 == operand).count();
            let is_read = place.half.is_none() || code == Code::Load && uses() == 1;
            if has_vectors && is_read || widened.iter().any(|(known, _)| *known == operand) {
                continue;
            }
            let slot = Operand::Slot(self.code.slots + widened.len());
            let slot = self.place(slot, memory, base, numbers, folds);
            let load = match place.half {
                Some(DType::BF16) => Code::LoadBf16,
                Some(_) => Code::LoadF16,
                None => Code::Load,
            };
            bound.add(&place, load);
            bound.add(&slot, Code::Store);
            widened.push((operand, slot));
        }
        for &(code, operand) in instrs {
            let known = widened.iter().find(|(known, _)| *known == operand);
            let place = match known {
                Some((_, slot)) => *slot,
                None => self.place(operand, memory, base, numbers, folds),
            };
            let code = match (code, place.half) {
                (Code::Load, Some(DType::BF16)) => Code::LoadBf16,
                (Code::Load, Some(_)) => Code::LoadF16,
                (Code::Store, Some(DType::BF16)) => Code::StoreBf16,
                (Code::Store, Some(_)) => Code::StoreF16,
                (code, _) => code,
            };
            bound.add(&place, code);
        }
    }

    /// Row value `k` of each row of a batch: its first byte, and whether it moves with the rows.
    fn row_place(&self, k: usize, memory: &Memory, base: *mut u8) -> (*mut u8, bool) {
        match self.row_operands.get(k) {
            Some(operand) => (operand.ptr().cast_mut(), true),
            None => (memory.row(base, k - self.row_operands.len()), false),
        }
    }

    /// Row value `k` with rows as lanes.
    fn row_vectors(&self, k: usize, memory: &Memory, base: *mut u8) -> Place {
        let (first, moves) = self.row_place(k, memory, base);
        let size = self.size as isize;
        let instruction = Instruction::of_row(Code::Load, first, self.size);
        let moving = moves.then_some((first, size * self.inner as isize, size));
        Place { instruction, moving, is_own: !moves, half: None }
    }

    fn place(
        &self,
        operand: Operand,
        memory: &Memory,
        base: *mut u8,
        numbers: &[Splat],
        folds: &[Reduction],
    ) -> Place {
        let size = self.size;
        let number = |instruction| Place { instruction, moving: None, is_own: false, half: None };
        let fixed = |instruction| Place { is_own: true, ..number(instruction) };
        let of_number = |first: *mut u8| Instruction::of_number(Code::Load, first);
        // Rows of vectors, or of numbers.
        let rows = |first: *mut u8, row: isize, size: usize| Instruction {
            row,
            down: row,
            ..Instruction::of_row(Code::Load, first, size)
        };
        let column = |first: *mut u8, row: isize| Instruction {
            row,
            down: row,
            is_column: true,
            ..of_number(first)
        };
        let is_across = memory.side == Side::Across;
        let is_staged = is_across && self.inner == 1;
        match operand {
            Operand::None => number(of_number(std::ptr::null_mut())),
            Operand::Number(k) => number(of_number((&raw const numbers[k]).cast_mut().cast())),
            Operand::Slot(k) => fixed(Instruction::of_block(
                Code::Load,
                base.wrapping_add(memory.slots + k * BUFFER),
            )),
            Operand::Buffers => fixed(of_number(base.wrapping_add(memory.buffers))),
            Operand::Row(k) if is_across => self.row_vectors(k, memory, base),
            Operand::Row(k) => {
                let (first, moves) = self.row_place(k, memory, base);
                let instruction = column(first, size as isize);
                let moving = moves.then_some((first, size as isize, 0));
                Place { instruction, moving, is_own: !moves, half: None }
            }
            Operand::Element(k) => {
                let element = &self.elements[k];
                let first = element.first.get();
                let half = element.dtype.is_half().then_some(element.dtype);
                let own = element.dtype.size();
                if is_staged && element.outer != 0 {
                    let (tile, row_stride) = memory.tile(base, k, size);
                    return fixed(rows(tile, (row_stride * size) as isize, size));
                }
                let moving = Some((first, element.outer, element.inner));
                let is_number = match is_across {
                    true => element.inner == 0,
                    false => element.along == 0,
                };
                let instruction = match (is_across, is_number && half.is_none()) {
                    (true, true) => column(first, element.along),
                    (true, false) => rows(first, element.along, own),
                    (false, true) => column(first, element.outer),
                    (false, false) => rows(first, element.outer, own),
                };
                Place { instruction, moving, is_own: false, half }
            }
            Operand::Output(o) => {
                let (first, dtype) = (self.outputs[o].get(), self.output_dtype(o));
                let own = dtype.size();
                if is_staged {
                    let (tile, row_stride) = memory.tile(base, self.elements.len() + o, size);
                    return fixed(rows(tile, (row_stride * size) as isize, size));
                }
                let row = (self.n * self.inner * own) as isize;
                let instruction = match is_across {
                    true => rows(first, (self.inner * own) as isize, own),
                    false => rows(first, row, own),
                };
                let half = dtype.is_half().then_some(dtype);
                Place { instruction, moving: Some((first, row, own as isize)), is_own: false, half }
            }
            Operand::Kept(k) => {
                let in_output = self.kept_in_output(memory.side);
                if let (0, Some(o)) = (k, in_output) {
                    return self.place(Operand::Output(o), memory, base, numbers, folds);
                }
                let k = k - usize::from(in_output.is_some());
                let first = base.wrapping_add(memory.kept + k * memory.kept_stride);
                fixed(rows(first, memory.kept_row as isize, size))
            }
            Operand::Fold(row) if is_across => {
                fixed(Instruction::of_row(Code::Load, memory.row(base, row), size))
            }
            Operand::Fold(row) => {
                let k = folds.iter().position(|fold| fold.row == row).unwrap_or(0);
                let first = memory.fold(base, k);
                let row = memory.fold_row as isize;
                let block = Instruction::of_block(Code::Load, first);
                fixed(Instruction { row, down: row, ..block })
            }
        }
    }
}
