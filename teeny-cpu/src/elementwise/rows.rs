//! Kernels of one operation that has no loop over vectors of floats: integers, bools, comparisons,
//! choices and conversions.
//!
//! The naive form is one loop over each row of the operands. The interpreter's tiles would gather
//! short rows and repeat numbers for every tile. Here rows are read where they are, many of them by
//! one call of a loop that knows nothing but rows:
//!
//! ```text
//!   rows      ──► read in place, with any stride between them
//!   a number  ──► the loop's, or repeated once in 4 KiB, which is read for every row
//!   a column  ──► each number repeated along its row, some rows at a time
//!   short row ──► repeated once, if the others follow one another: long rows instead of short ones
//! ```
//! Strided operands, and short rows with gaps between them, are left to the interpreter.

use super::value::scalar_bytes;
use crate::half;
use crate::loops::{cast, int, select};
use crate::simd::Level;
use crate::storage::View;
use crate::typed::with_unsigned;
use crate::walk::Walk;
use std::mem::MaybeUninit;
use std::ops::Range;
use teeny_core::kernel::{Arithmetic, Kernel, OpCode};
use teeny_core::{DType, Scalar};

/// Bytes in which an operand is repeated.
const REPEATED: usize = 4 << 10;
/// Rows of fewer elements are joined, or gathered by the interpreter.
const MIN_ROW: usize = 24;
/// Fewer neighbouring elements than this, in short rows, are left to the interpreter.
const MIN_BLOCK: usize = 256;
/// Rows of fewer elements are joined where that is possible: starting a loop takes as long as they do.
const SHORT_ROW: usize = 256;

/// An operand of the operation.
#[derive(Clone, Copy)]
enum Source {
    /// A number, as it is stored.
    Number([u8; 8]),
    Input(usize),
}

/// An operand over some rows.
#[derive(Clone, Copy)]
struct Rows {
    first: *const u8,
    /// Elements from a row to the next.
    stride: isize,
    /// Bytes of an element.
    size: usize,
    /// Whether each row is one number.
    is_number: bool,
}

/// The memory in which operands are repeated.
#[repr(align(64))]
struct Repeated([MaybeUninit<[u64; REPEATED / 8]>; 3]);

impl Rows {
    /// Whether each row is another number.
    fn is_column(&self) -> bool {
        self.is_number && self.stride != 0
    }

    /// The rows from `row` on.
    fn at_row(self, row: usize) -> Rows {
        let first = self.first.wrapping_offset(row as isize * self.stride * self.size as isize);
        Rows { first, ..self }
    }

    /// Rows of `n` elements, unless all are the same.
    fn with_rows(self, n: usize) -> Rows {
        Rows { stride: if self.stride == 0 { 0 } else { n as isize }, ..self }
    }

    /// `rows` rows of `n` elements in the memory of operand `k`, as one row; written if `fresh`,
    /// otherwise there already.
    ///
    /// # Safety
    /// They are readable and take at most `REPEATED` bytes.
    unsafe fn repeated(
        self,
        memory: &mut Repeated,
        k: usize,
        rows: usize,
        n: usize,
        fresh: bool,
    ) -> Rows {
        let to = memory.0[k].as_mut_ptr().cast::<u8>();
        if fresh {
            // SAFETY: by contract.
            unsafe { with_unsigned!(self.size, T => self.repeat::<T>(to, rows, n)) }
        }
        Rows { first: to, stride: 0, is_number: false, ..self }
    }

    /// Writes `rows` rows of `n` elements one after another.
    ///
    /// # Safety
    /// They are readable and `to` is writable; elements are as large as `T`.
    unsafe fn repeat<T: Copy>(self, to: *mut u8, rows: usize, n: usize) {
        for row in 0..rows {
            let (from, to) =
                (self.at_row(row).first.cast::<T>(), to.cast::<T>().wrapping_add(row * n));
            // SAFETY: by contract; a number given by value may not be aligned.
            unsafe {
                if self.is_number {
                    let number = from.read_unaligned();
                    (0..n).for_each(|i| to.add(i).write(number));
                } else {
                    std::ptr::copy_nonoverlapping(from, to, n);
                }
            }
        }
    }
}

/// An operation bound to its operands.
pub(super) struct RowLoop<'a> {
    level: Level,
    op: OpCode,
    /// The dtype of the operands, or of the values for a choice.
    source: DType,
    result: DType,
    sources: [Source; 3],
    arity: usize,
    views: &'a [View],
    walk: Walk,
}

impl<'a> RowLoop<'a> {
    /// The operation of `kernel` over these views of the sizes `shape`, if it is one of those and all
    /// operands are rows or numbers.
    pub(super) fn bind(
        level: Level,
        kernel: &Kernel,
        shape: &[usize],
        views: &'a [View],
        params: &[Scalar],
    ) -> Option<RowLoop<'a>> {
        let node = kernel.single()?;
        let dtype_of = |i: usize| kernel.nodes()[node.src[i] as usize].dtype;
        let source = dtype_of(0);
        let is_one = match node.op {
            OpCode::Cast => {
                source != node.dtype
                    && (source.compute() != DType::F32 || node.dtype.compute() != DType::F32)
            }
            OpCode::Where => (1..3).all(|i| dtype_of(i) == node.dtype),
            OpCode::Compare(_) => !source.is_half(),
            OpCode::Arithmetic(_) | OpCode::Sign(_) => !source.is_float(),
            OpCode::Bitwise(_) | OpCode::Not => true,
            OpCode::Float(_) | OpCode::Round(_) | OpCode::IsNan => false,
            OpCode::Input(_) | OpCode::Param(_) | OpCode::Const(_) => false,
            OpCode::Fold(_) | OpCode::At | OpCode::Index | OpCode::Length => false,
        };
        if !is_one {
            return None;
        }
        let arity = node.op.arity();
        let mut sources = [Source::Number([0; 8]); 3];
        for (i, to) in sources.iter_mut().enumerate().take(arity) {
            let number = |value| {
                let (bytes, dtype) = (scalar_bytes(value, dtype_of(i)), dtype_of(i));
                if !dtype.is_half() {
                    return Source::Number(bytes);
                }
                let (wide, mut stored) = (u64::from_ne_bytes(bytes), 0u64);
                // SAFETY: one element each, aligned as words are.
                unsafe {
                    half::from_f32(
                        level,
                        dtype,
                        (&raw const wide).cast(),
                        (&raw mut stored).cast(),
                        1,
                    );
                }
                Source::Number(stored.to_ne_bytes())
            };
            *to = match kernel.nodes()[node.src[i] as usize].op {
                OpCode::Input(i) => Source::Input(usize::from(i)),
                _ if arity == 1 => return None,
                OpCode::Param(i) => number(params[usize::from(i)]),
                OpCode::Const(value) => number(value),
                _ => return None,
            };
        }
        assert!(
            views
                .iter()
                .zip(kernel.inputs())
                .all(|(view, &dtype)| view.dtype == dtype && view.shape[..] == *shape),
            "the operands fit the kernel"
        );
        let walk = Walk::new(shape, views, 1);
        let this =
            RowLoop { level, op: node.op, source, result: node.dtype, sources, arity, views, walk };
        this.is_worthwhile().then_some(this)
    }

    /// Whether all operands are rows or numbers, in rows long enough or such that can be joined.
    fn is_worthwhile(&self) -> bool {
        let (walk, row) = (&self.walk, self.walk.row());
        let inputs = || {
            self.sources[..self.arity].iter().filter_map(|source| match *source {
                Source::Input(i) => Some(i),
                Source::Number(_) => None,
            })
        };
        if !inputs().all(|i| walk.is_direct(i)) {
            return false;
        }
        let is_joined = |i| walk.is_number(i) || [0, row as isize].contains(&walk.row_stride(i));
        walk.rows() == 1
            || row >= MIN_ROW
            || walk.neighbours() >= MIN_BLOCK && inputs().all(is_joined)
    }

    /// Computes the elements `part` of the result, whose first element is `out`.
    ///
    /// # Safety
    /// The result has the elements of the views, and nothing else touches this part; the views are
    /// readable.
    pub(super) unsafe fn run(&self, part: Range<usize>, out: *mut u8) {
        let mut memory = Repeated([MaybeUninit::uninit(); 3]);
        let mut at = part.start;
        while at < part.end {
            let (len, n) = match self.walk.rows() {
                1 => (part.end - at, part.end - at),
                _ => {
                    let len = self.walk.rows_len(at, part.end);
                    (len, len.min(self.walk.row()))
                }
            };
            let rows = std::array::from_fn(|k| match &self.sources[k] {
                Source::Number(bytes) => {
                    let (first, size) = (bytes.as_ptr(), self.size_of(k));
                    Rows { first, stride: 0, size, is_number: true }
                }
                Source::Input(i) => {
                    let View { ptr, dtype, .. } = self.views[*i];
                    let (first, stride) = self.walk.row_address(*i, ptr, dtype.size(), at);
                    let is_number = self.walk.is_number(*i);
                    Rows { first, stride, size: dtype.size(), is_number }
                }
            });
            let y = out.wrapping_add(at * self.result.size());
            // SAFETY: `rows_len` elements are rows of the same distances, inside the views.
            unsafe { self.block(rows, y, len / n, n, &mut memory) };
            at += len;
        }
    }

    /// Bytes of an element of operand `k`.
    fn size_of(&self, k: usize) -> usize {
        match self.op {
            OpCode::Where if k > 0 => self.result.size(),
            _ => self.source.size(),
        }
    }

    /// Computes `rows` rows of `n` elements.
    ///
    /// # Safety
    /// The operands and the result have these rows.
    unsafe fn block(
        &self,
        from: [Rows; 3],
        y: *mut u8,
        rows: usize,
        n: usize,
        memory: &mut Repeated,
    ) {
        // The distance from a single row to the next means nothing.
        let mut from = from.map(|operand| match rows {
            1 => Rows { stride: 0, ..operand },
            _ => operand,
        });
        let commutes = self.op.is_commutative()
            || matches!(self.op, OpCode::Arithmetic(Arithmetic::Max | Arithmetic::Min));
        if commutes && from[0].is_number {
            from.swap(0, 1);
        }
        // The loops of pairs take numbers for the second operand.
        let [a, b, _] = &from;
        let by_number = self.arity == 2
            && b.is_number
            && !a.is_number
            && (b.stride == 0 || rows == 1 || n >= MIN_ROW);
        // Operands that may have to be repeated.
        let count = if by_number { 1 } else { self.arity };
        let used = &from[..count];
        let limit = REPEATED / used.iter().map(|operand| operand.size).max().unwrap_or(8);
        // Rows without gaps, which are read as longer ones.
        let joins = rows > 1
            && n < SHORT_ROW
            && !(by_number && b.stride != 0)
            && used.iter().all(|o| o.is_number || o.stride == 0 || o.stride == n as isize)
            && used.iter().any(|o| o.is_number || o.stride == 0);
        let columns = rows > 1 && used.iter().any(Rows::is_column);
        if !joins && !used.iter().any(|operand| operand.is_number) {
            // SAFETY: by contract.
            return unsafe { self.call(from, y, rows, n) };
        }
        let y_of = |row: usize, at: usize| y.wrapping_add((row * n + at) * self.result.size());
        // SAFETY: at most `limit` elements are repeated, and all pieces are inside the rows.
        unsafe {
            if n > limit {
                for row in 0..rows {
                    let mut here = from.map(|operand| operand.at_row(row));
                    for (k, operand) in here.iter_mut().enumerate().take(count) {
                        if operand.is_number {
                            let fresh = row == 0 || operand.stride != 0;
                            *operand = operand.repeated(memory, k, 1, limit, fresh);
                        } else {
                            operand.stride = limit as isize;
                        }
                    }
                    self.call(here, y_of(row, 0), n / limit, limit);
                    let rest = here.map(|operand| operand.at_row(n / limit));
                    self.call(rest, y_of(row, n / limit * limit), 1, n % limit);
                }
                return;
            }
            let group = if joins || columns { (limit / n).clamp(1, rows) } else { 1 };
            let mut fixed = from;
            for (k, operand) in fixed.iter_mut().enumerate().take(count) {
                if operand.stride == 0 && (joins || operand.is_number) {
                    let rows = if joins { group } else { 1 };
                    *operand = operand.repeated(memory, k, rows, n, true);
                }
            }
            if columns {
                for row in (0..rows).step_by(group) {
                    let group = group.min(rows - row);
                    let mut here = fixed.map(|operand| operand.at_row(row));
                    for (k, operand) in here.iter_mut().enumerate().take(count) {
                        if operand.is_column() {
                            *operand = operand.repeated(memory, k, group, n, true);
                            operand.stride = n as isize;
                        }
                    }
                    let (rows, len) = if joins { (1, group * n) } else { (group, n) };
                    self.call(here, y_of(row, 0), rows, len);
                }
            } else if joins {
                let long = fixed.map(|o| o.with_rows(group * n));
                self.call(long, y_of(0, 0), rows / group, group * n);
                let rest = long.map(|operand| operand.at_row(rows / group));
                self.call(rest, y_of(rows / group * group, 0), 1, rows % group * n);
            } else {
                self.call(fixed, y, rows, n);
            }
        }
    }

    /// The operation over `rows` rows of `n` elements.
    ///
    /// # Safety
    /// The operands and the result have them; only the second of a pair may be a number.
    unsafe fn call(&self, from: [Rows; 3], y: *mut u8, rows: usize, n: usize) {
        let follow = from[..self.arity].iter().all(|operand| operand.stride == n as isize);
        let (rows, n) = if follow { (1, rows * n) } else { (rows, n) };
        let (level, source, result) = (self.level, self.source, self.result);
        let [a, b, _] = from;
        let tile = int::Tile {
            a: a.first,
            b: b.first,
            y,
            n,
            rows,
            stride: [a.stride, b.stride],
            by_number: b.is_number,
        };
        let single = int::Rows { x: a.first, y, n, rows, stride: a.stride };
        // SAFETY: by contract; the loops' types are the operands'.
        unsafe {
            match self.op {
                OpCode::Arithmetic(op) => return int::arithmetic(level, op, source, tile),
                OpCode::Bitwise(op) => return int::bitwise(level, op, source, tile),
                OpCode::Compare(op) => return int::compare(level, op, source, tile),
                OpCode::Cast => return cast::stored(level, source, result, single),
                OpCode::Where => {}
                op => return int::unary(level, op, source, single),
            }
            for row in 0..rows {
                let from = from.map(|operand| operand.at_row(row).first);
                let y = y.wrapping_add(row * n * result.size());
                select::select(level, result.size(), from, y, n);
            }
        }
    }
}
