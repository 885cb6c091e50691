//! Products and rows of quantised weights.
//!
//! ```text
//! mod          the two operations: groups of sixteen rows over threads
//! activations  x as integers of 8 bits, once for all rows of the weight
//! panel        blocks of sixteen rows to bytes, scales and minima: one arm for each type
//! rows16       sixteen lanes at each instruction level
//! ```
//!
//! The naive form is `y[i][j] = Σ x[i][p] dequantized[j][p]`. Here integers are multiplied and
//! summed exactly for 32 elements at a time; the sums of these are floats, added in their order. So
//! the result has the same bits at each instruction level and for any number of threads and rows.

mod activations;
mod panel;
mod rows16;
#[cfg(test)]
mod rows16_tests;

use crate::Cpu;
use crate::copy;
use crate::cost::Cost;
use crate::index::checked;
use crate::storage::{Shared, View, storage_of};
use crate::threads::{for_each_range, try_for_each_range};
use activations::{Activations, Block};
use panel::{DotKind, Panel, SUB, SUBS, Sink, kind, unpack};
use rows16::{RowWork, Rows};
use std::ops::Range;
use std::sync::Arc;
use teeny_core::quant::{GROUP, Part, packed_parts};
use teeny_core::{DType, Error, QuantType, Result, StorageRef, Tensor};

/// Rows of x that are multiplied with two panels one after another, half as many with one: their
/// sums are 16 or 8 KiB.
const PASS: usize = 128;

/// [`teeny_core::Op::QuantMatmul`] with x quantised to 8 bits.
pub(crate) fn product(
    cpu: &Cpu,
    x: &Tensor,
    blocks: &Tensor,
    parts: &[Part],
) -> Result<StorageRef> {
    let columns = x.shape().last().copied().unwrap_or(0);
    let [n, bytes] = packed_parts(parts, columns)?;
    let m = x.numel().checked_div(columns).unwrap_or(0);
    let out = cpu.alloc(m * n, DType::F32)?;
    if m * n == 0 {
        return Ok(Arc::new(out));
    }
    let view = View::of(x)?;
    let copied = if view.is_contiguous() { None } else { Some(copy::contiguous(cpu, &view)?) };
    let from = copied.as_ref().map_or(view.ptr, |copied| copied.ptr()).cast();
    // SAFETY: x has m rows; a row is whole blocks, which are multiples of SUB.
    let activations = unsafe { Activations::new(cpu, from, m, columns)? };
    let weight = bytes_of(blocks, bytes)?;
    let groups: usize = parts.iter().map(|part| part.rows.div_ceil(GROUP)).sum();
    let each = Cost::bytes(bytes / groups).arithmetic(m * columns * GROUP / 4);
    let shared = Shared(out.ptr().cast::<f32>());
    for_each_range(groups, each.range(groups), |range| {
        let (activations, to) = (&activations, shared.get());
        rows16::run(cpu.level, Groups { weight, parts, columns, activations, m, n, to, range });
    });
    Ok(Arc::new(out))
}

/// The bytes of a quantised weight.
fn bytes_of(blocks: &Tensor, bytes: usize) -> Result<&[u8]> {
    let storage = storage_of(blocks)?;
    if blocks.numel() != bytes || !blocks.is_contiguous() {
        return Err(Error::internal("the bytes of a quantised weight have gaps"));
    }
    // SAFETY: the layout is inside the storage and has no gaps; the tensor is borrowed.
    Ok(unsafe { std::slice::from_raw_parts(storage.ptr().add(blocks.layout().offset()), bytes) })
}

/// The products of some groups of rows with all of x.
struct Groups<'a> {
    weight: &'a [u8],
    parts: &'a [Part],
    columns: usize,
    activations: &'a Activations,
    m: usize,
    n: usize,
    to: *mut f32,
    range: Range<usize>,
}

/// A group of at most sixteen rows.
#[derive(Clone, Copy)]
struct Group<'a> {
    of: QuantType,
    blocks: &'a [u8],
    /// The first of its rows in the weight, and their number.
    first: usize,
    rows: usize,
}

impl Groups<'_> {
    /// Group `i` of all parts.
    fn group(&self, mut i: usize) -> Option<Group<'_>> {
        let (mut first, mut from) = (0, 0);
        for part in self.parts {
            let bytes = part.kind.row_bytes(self.columns).ok()? * GROUP;
            let count = part.rows.div_ceil(GROUP);
            if i < count {
                let rows = GROUP.min(part.rows - GROUP * i);
                let blocks = &self.weight[from + i * bytes..][..bytes];
                return Some(Group { of: part.kind, blocks, first: first + GROUP * i, rows });
            }
            (i, first, from) = (i - count, first + part.rows, from + count * bytes);
        }
        None
    }
}

impl RowWork for Groups<'_> {
    #[inline(always)]
    fn run<R: Rows>(self) {
        // takes kilobytes, which the product with a single row of x (one token) does not need
        let (mut one, mut many, mut two);
        let (all, panels): (&mut [Sums], &mut [Panel]) = if self.m == 1 {
            one = [[[0.0; GROUP]; 2]];
            (&mut one, &mut [])
        } else {
            (many, two) = ([[[0.0; GROUP]; 2]; PASS], [Panel::new(), Panel::new()]);
            (&mut many, &mut two)
        };
        let pass = if R::PAIRS { PASS } else { PASS / 2 };
        let mut next = self.range.start;
        while let Some(first) = self.group(next).filter(|_| next < self.range.end) {
            // two groups of one type at once, if there are registers for them
            let second = self.group(next + 1).filter(|second| {
                R::PAIRS && self.m > 1 && next + 1 < self.range.end && second.of == first.of
            });
            next += 1 + usize::from(second.is_some());
            let both = [first, second.unwrap_or(first)];
            let groups = &both[..1 + usize::from(second.is_some())];
            for from in (0..self.m).step_by(pass) {
                let count = pass.min(self.m - from);
                all[..count].fill([[0.0; GROUP]; 2]);
                let (sums, panels) = (&mut all[..count], &mut *panels);
                let x = (self.activations, from);
                match kind(first.of).0 {
                    DotKind::Unsigned => R::call(Products::<0> { groups, x, sums, panels }),
                    DotKind::Signed => R::call(Products::<1> { groups, x, sums, panels }),
                    DotKind::Sixteenths => R::call(Products::<2> { groups, x, sums, panels }),
                }
                for (i, sums) in all[..count].iter().enumerate() {
                    for (group, sums) in groups.iter().zip(sums) {
                        // SAFETY: a row of y and columns of it that no other group has.
                        unsafe {
                            let to = self.to.add((from + i) * self.n + group.first);
                            std::ptr::copy_nonoverlapping(sums.as_ptr(), to, group.rows);
                        }
                    }
                }
            }
        }
    }
}

/// The products of a row of x with up to two groups.
type Sums = [[f32; GROUP]; 2];

/// The products of one or two groups of a type with some rows of x, which are added to `sums`; `x`
/// has the first of these rows. `HOW` is the [`DotKind`] of the type.
struct Products<'a, const HOW: usize> {
    groups: &'a [Group<'a>],
    x: (&'a Activations, usize),
    sums: &'a mut [Sums],
    /// Two, unless x has one row.
    panels: &'a mut [Panel],
}

impl<const HOW: usize> RowWork for Products<'_, HOW> {
    #[inline(always)]
    fn run<R: Rows>(self) {
        let Products { groups, x: (activations, from), sums, panels } = self;
        let of = groups[0].of;
        let zero = if HOW == DotKind::Signed as usize { R::SHIFT } else { kind(of).1 };
        if let [sums] = sums {
            for (group, sums) in groups.iter().zip(sums) {
                // SAFETY: a group has the bytes of its blocks.
                unsafe { RowDot::<R, HOW>::products(group, activations, from, zero, sums) };
            }
            return;
        }
        let sub_bytes = of.block_bytes() * GROUP / (of.block_elements() / SUB);
        for b in (0..activations.count).step_by(SUBS) {
            let subs = SUBS.min(activations.count - b);
            for (group, panel) in groups.iter().zip(&mut *panels) {
                let blocks = &group.blocks[b * sub_bytes..][..subs * sub_bytes];
                // SAFETY: a group has the bytes of its blocks, and panels are whole blocks.
                unsafe { unpack::<R, Panel, HOW>(of, blocks.as_ptr(), subs, panel) };
            }
            let minima = of.has_minimum();
            let tile = Tile::<HOW> { panels, activations, b, subs, zero, minima };
            let mut i = 0;
            while i < sums.len() {
                let (row, sums) = (from + i, &mut sums[i..]);
                i += match (sums.len() >= WIDE, groups.len()) {
                    (true, 2) => tile.add_any::<R, WIDE, 2>(row, sums, 0),
                    (true, _) => tile.add_any::<R, WIDE, 1>(row, sums, 0),
                    (false, count) => {
                        for g in 0..count {
                            tile.add_any::<R, 1, 1>(row, sums, g);
                        }
                        1
                    }
                };
            }
        }
    }
}

/// Rows of x that are multiplied with a panel at once: as many sums and totals are in registers.
const WIDE: usize = 4;

/// Panels and the blocks of x that they meet. `HOW` is the [`DotKind`] of the type.
struct Tile<'a, const HOW: usize> {
    panels: &'a [Panel],
    activations: &'a Activations,
    /// The first block of x.
    b: usize,
    subs: usize,
    /// The number that is subtracted from each byte.
    zero: i32,
    minima: bool,
}

impl<const HOW: usize> Tile<'_, HOW> {
    /// Adds the products of `M` rows, from `row` on, and `G` panels, from `panel` on, to `sums`,
    /// and returns `M`.
    #[inline(always)]
    fn add_any<R: Rows, const M: usize, const G: usize>(
        &self,
        row: usize,
        sums: &mut [Sums],
        panel: usize,
    ) -> usize {
        if HOW == DotKind::Unsigned as usize && self.minima {
            self.add::<R, M, G, true>(row, sums, panel);
        } else {
            self.add::<R, M, G, false>(row, sums, panel);
        }
        M
    }

    /// [`Tile::add_any`] for types with or without minima. Arrays are indexed, without iterators
    /// and closures: so they stay in registers.
    #[inline(always)]
    #[allow(clippy::needless_range_loop)]
    fn add<R: Rows, const M: usize, const G: usize, const MINIMA: bool>(
        &self,
        row: usize,
        sums: &mut [Sums],
        panel: usize,
    ) {
        let (panels, x, sums) = (&self.panels[panel..][..G], self.activations, &mut sums[..M]);
        // checked once: the rows have these blocks
        let (first, last) = (x.index(row, self.b), x.index(row + M - 1, self.b + self.subs - 1));
        let blocks = &x.blocks[first..=last];
        let words = x.integers[first..=last].as_ptr().cast::<i32>();
        let mut totals = [[R::splat_float(0.0); G]; M];
        for i in 0..M {
            for g in 0..G {
                // SAFETY: an array of 16 numbers.
                totals[i][g] = unsafe { R::load_floats(sums[i][panel + g].as_ptr()) };
            }
        }
        for s in 0..self.subs {
            let mut halves = [[[R::splat(0); G]; M]; 2];
            // SAFETY: block `s` of each row is at `i * SUBS + s`, up to `last`, with eight words; a
            // panel has 64 bytes, 16 numbers or 16 integers at each index.
            unsafe {
                for i in 0..M {
                    let block = blocks.get_unchecked(i * SUBS + s);
                    let [a, b] = starts::<R, HOW>(self.zero, block);
                    (halves[0][i], halves[1][i]) = ([a; G], [b; G]);
                }
                for c in 0..8 {
                    let half = if HOW == DotKind::Sixteenths as usize { c / 4 } else { 0 };
                    let mut bytes = [R::splat(0); G];
                    for g in 0..G {
                        bytes[g] = R::load(panels[g].bytes.get_unchecked(8 * s + c).as_ptr());
                    }
                    for i in 0..M {
                        let a = words.add(8 * (i * SUBS + s) + c).read();
                        for g in 0..G {
                            halves[half][i][g] = dot::<R, HOW>(halves[half][i][g], bytes[g], a);
                        }
                    }
                }
                for g in 0..G {
                    let panel = panels.get_unchecked(g);
                    let sixteenths = [
                        R::load(panel.sixteenths.get_unchecked(2 * s).as_ptr().cast()),
                        R::load(panel.sixteenths.get_unchecked(2 * s + 1).as_ptr().cast()),
                    ];
                    let scale = R::load_floats(panel.scales.get_unchecked(s).as_ptr());
                    let minimum = R::load_floats(panel.minima.get_unchecked(s).as_ptr());
                    let minimum = if MINIMA { Some(minimum) } else { None };
                    for i in 0..M {
                        let dots = [halves[0][i][g], halves[1][i][g]];
                        let dots = joined::<R, HOW>(dots, sixteenths);
                        let block = blocks.get_unchecked(i * SUBS + s);
                        let y = scaled::<R>(dots, scale, minimum, block);
                        totals[i][g] = R::add_floats(totals[i][g], y);
                    }
                }
            }
        }
        for i in 0..M {
            for g in 0..G {
                // SAFETY: as above.
                unsafe { R::store_floats(totals[i][g], sums[i][panel + g].as_mut_ptr()) };
            }
        }
    }
}

/// The products of a group with one row of x, made as its blocks are read, without a panel. `HOW`
/// is a [`DotKind`]; the results equal [`Tile`]'s.
struct RowDot<'a, R: Rows, const HOW: usize> {
    activations: &'a Activations,
    row: usize,
    zero: i32,
    minima: bool,
    halves: [R; 2],
    scale: R::Floats,
    minimum: R::Floats,
    sixteenths: [R; 2],
    total: R::Floats,
}

impl<R: Rows, const HOW: usize> RowDot<'_, R, HOW> {
    /// Writes the products with row `row` of x to `sums`.
    ///
    /// # Safety
    /// The group has the bytes of its blocks.
    #[inline(always)]
    unsafe fn products(
        group: &Group<'_>,
        activations: &Activations,
        row: usize,
        zero: i32,
        sums: &mut [f32; GROUP],
    ) {
        let (none, minima) = (R::splat_float(0.0), group.of.has_minimum());
        let halves = [R::splat(0); 2];
        let mut sink = RowDot::<R, HOW> {
            activations,
            row,
            zero,
            minima,
            halves,
            scale: none,
            minimum: none,
            sixteenths: halves,
            total: none,
        };
        // SAFETY: by contract; an array of 16 floats.
        unsafe {
            unpack::<R, _, HOW>(group.of, group.blocks.as_ptr(), activations.count, &mut sink);
            R::store_floats(sink.total, sums.as_mut_ptr());
        }
    }
}

impl<R: Rows, const HOW: usize> Sink<R> for RowDot<'_, R, HOW> {
    #[inline(always)]
    fn begin(&mut self, sub: usize) {
        self.halves = starts::<R, HOW>(self.zero, self.activations.block(self.row, sub));
    }
    #[inline(always)]
    fn scale(&mut self, _: usize, scale: R::Floats) {
        self.scale = scale;
    }
    #[inline(always)]
    fn minimum(&mut self, _: usize, minimum: R::Floats) {
        self.minimum = minimum;
    }
    #[inline(always)]
    fn sixteenth(&mut self, _: usize, half: usize, scale: R) {
        self.sixteenths[half] = scale;
    }
    #[inline(always)]
    fn bytes(&mut self, sub: usize, c: usize, x: R) {
        // SAFETY: a block of x has eight words.
        let a = unsafe { self.activations.words(self.row, sub).add(c).read() };
        let half = &mut self.halves[c / 4];
        *half = dot::<R, HOW>(*half, x, a);
    }
    #[inline(always)]
    fn end(&mut self, sub: usize) {
        let dots = joined::<R, HOW>(self.halves, self.sixteenths);
        let block = self.activations.block(self.row, sub);
        let minimum = self.minima.then_some(self.minimum);
        self.total = R::add_floats(self.total, scaled::<R>(dots, self.scale, minimum, block));
    }
}

/// The initial values of the two half products of a sub-block: the sums of the activations times
/// `-zero`, the offset of the bytes. Without scales for halves the first one has both.
#[inline(always)]
fn starts<R: Rows, const HOW: usize>(zero: i32, block: &Block) -> [R; 2] {
    let [a, b] = block.sums;
    let [a, b] = if HOW == DotKind::Sixteenths as usize { [a, b] } else { [a + b, 0] };
    [R::splat(-zero * a), R::splat(-zero * b)]
}

/// `sum` plus the products of four bytes of each row with the bytes of `a`.
#[inline(always)]
fn dot<R: Rows, const HOW: usize>(sum: R, x: R, a: i32) -> R {
    if HOW == DotKind::Signed as usize { sum.dot_signed(x, a) } else { sum.dot(x, a) }
}

/// The product of a sub-block of integers from the products of its halves.
#[inline(always)]
fn joined<R: Rows, const HOW: usize>([a, b]: [R; 2], scales: [R; 2]) -> R {
    match HOW == DotKind::Sixteenths as usize {
        true => a.mul(scales[0]).add(b.mul(scales[1])),
        false => a.add(b),
    }
}

/// The product of a sub-block from the products of its integers.
#[inline(always)]
fn scaled<R: Rows>(
    dots: R,
    scale: R::Floats,
    minimum: Option<R::Floats>,
    block: &Block,
) -> R::Floats {
    let mut y = R::mul_floats(scale, dots.floats());
    if let Some(minimum) = minimum {
        let sum = R::splat_float((block.sums[0] + block.sums[1]) as f32);
        y = R::add_floats(y, R::mul_floats(minimum, sum));
    }
    R::mul_floats(R::splat_float(block.scale), y)
}

/// [`teeny_core::Op::QuantRows`].
pub(crate) fn rows(
    cpu: &Cpu,
    blocks: &Tensor,
    index: &Tensor,
    parts: &[Part],
    columns: usize,
) -> Result<StorageRef> {
    let [n, bytes] = packed_parts(parts, columns)?;
    let indices = checked(cpu, index, 0, n)?;
    let weight = bytes_of(blocks, bytes)?;
    let out = cpu.alloc(indices.len() * columns, DType::F32)?;
    let to = Shared(out.ptr().cast::<f32>());
    let least = Cost::bytes(6 * columns).steps(columns / 4).range(indices.len());
    try_for_each_range(indices.len(), least, |range| {
        for i in range {
            // SAFETY: row i of the output; no other range has it.
            let to = unsafe { std::slice::from_raw_parts_mut(to.get().add(i * columns), columns) };
            dequantize(weight, parts, columns, indices[i] as usize, to)?;
        }
        Ok(())
    })?;
    Ok(Arc::new(out))
}

/// Row `row` of the weight.
fn dequantize(
    mut weight: &[u8],
    parts: &[Part],
    columns: usize,
    mut row: usize,
    to: &mut [f32],
) -> Result<()> {
    for part in parts {
        let (own, rest) = weight.split_at(part.bytes(columns)?);
        if row < part.rows {
            let mut block = [0; QuantType::MAX_BLOCK_BYTES];
            let block = &mut block[..part.kind.block_bytes()];
            for (b, to) in to.chunks_exact_mut(part.kind.block_elements()).enumerate() {
                part.block(own, columns, row, b, block)?;
                part.kind.decode(block, to);
            }
            return Ok(());
        }
        (weight, row) = (rest, row - part.rows);
    }
    Err(Error::internal("a checked position is not a row"))
}
