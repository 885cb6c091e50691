//! Blocks of sixteen rows as bytes, scales and minima of their sub-blocks of 32 elements.
//!
//! The naive form is a product for each type. Here a type says only how its bits become bytes, and
//! two consumers multiply them with the activations: `Tile`, by way of a [`Panel`], and `RowDot`,
//! without one.

use super::rows16::Rows;
use crate::simd::prefetch;
use std::marker::PhantomData;
use teeny_core::QuantType;
use teeny_core::quant::{GROUP, IQ4_NL, MXFP4, half_of_power};

/// The most sub-blocks of a panel, as in the largest block.
pub(super) const SUBS: usize = 8;
/// Elements of a sub-block.
pub(super) const SUB: usize = 32;

/// How far ahead blocks are prefetched, in bytes: the processor's own prefetching stops at a page.
const AHEAD: usize = 2048;

/// How the bytes of a type are multiplied.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum DotKind {
    /// Bytes of 0 to 127.
    Unsigned,
    /// Bytes with a sign, stored as `Rows::signed` makes them.
    Signed,
    /// Bytes of 0 to 127, with an integer scale for each 16.
    Sixteenths,
}

/// [`DotKind`] of a type, and the number that is subtracted from its bytes (from signed ones
/// `Rows::SHIFT`, too).
pub(super) fn kind(of: QuantType) -> (DotKind, i32) {
    match of {
        QuantType::Q8_0 | QuantType::Iq4Nl | QuantType::Mxfp4 => (DotKind::Signed, 0),
        QuantType::Q4_0 => (DotKind::Unsigned, 8),
        QuantType::Q5_0 => (DotKind::Unsigned, 16),
        QuantType::Q4_1 | QuantType::Q5_1 | QuantType::Q4K | QuantType::Q5K => {
            (DotKind::Unsigned, 0)
        }
        QuantType::Q6K => (DotKind::Sixteenths, 32),
    }
}

/// Up to [`SUBS`] sub-blocks of sixteen rows.
#[repr(C, align(64))]
pub(super) struct Panel {
    /// For each four elements, the bytes of sixteen rows: `bytes[8 s + c][4 r + k]` is element
    /// `32 s + 4 c + k` of row `r`.
    pub bytes: [[u8; 4 * GROUP]; SUBS * SUB / 4],
    /// For each sub-block, the scale of each row.
    pub scales: [[f32; GROUP]; SUBS],
    /// For each sub-block, the offset of each row, which multiplies the sum of the activations: the
    /// minimum with the type's sign. Types without minima leave old numbers, and so below.
    pub minima: [[f32; GROUP]; SUBS],
    /// For each half of a sub-block, the integer scale of each row.
    pub sixteenths: [[i32; GROUP]; 2 * SUBS],
}

impl Panel {
    pub fn new() -> Panel {
        Panel {
            bytes: [[0; 4 * GROUP]; SUBS * SUB / 4],
            scales: [[0.0; GROUP]; SUBS],
            minima: [[0.0; GROUP]; SUBS],
            sixteenths: [[0; GROUP]; 2 * SUBS],
        }
    }
}

/// A consumer of decoded sub-blocks: [`Panel`], or the products with a row. For each sub-block
/// `begin` comes first, then its scales, then the bytes of all `c`, then `end`.
pub(super) trait Sink<R: Rows> {
    /// Sub-block `sub` comes next.
    fn begin(&mut self, sub: usize);
    /// The scale of each row.
    fn scale(&mut self, sub: usize, scale: R::Floats);
    /// The offset of each row; the product with the sum of the activations is added.
    fn minimum(&mut self, sub: usize, minimum: R::Floats);
    /// The integer scale of each row for a half of the sub-block.
    fn sixteenth(&mut self, sub: usize, half: usize, scale: R);
    /// The bytes of elements `4 c` on of the sub-block, of each row.
    fn bytes(&mut self, sub: usize, c: usize, x: R);
    /// All of sub-block `sub` was given.
    fn end(&mut self, sub: usize);
}

impl<R: Rows> Sink<R> for Panel {
    #[inline(always)]
    fn begin(&mut self, _: usize) {}
    #[inline(always)]
    fn scale(&mut self, sub: usize, scale: R::Floats) {
        // SAFETY: 16 floats of the panel.
        unsafe { R::store_floats(scale, self.scales[sub].as_mut_ptr()) };
    }
    #[inline(always)]
    fn minimum(&mut self, sub: usize, minimum: R::Floats) {
        // SAFETY: as above.
        unsafe { R::store_floats(minimum, self.minima[sub].as_mut_ptr()) };
    }
    #[inline(always)]
    fn sixteenth(&mut self, sub: usize, half: usize, scale: R) {
        // SAFETY: 16 integers of the panel.
        unsafe { scale.store(self.sixteenths[2 * sub + half].as_mut_ptr().cast()) };
    }
    #[inline(always)]
    fn bytes(&mut self, sub: usize, c: usize, x: R) {
        // SAFETY: 64 bytes of the panel.
        unsafe { x.store(self.bytes[sub * SUB / 4 + c].as_mut_ptr()) };
    }
    #[inline(always)]
    fn end(&mut self, _: usize) {}
}

/// A place in a block of sixteen rows, and where its numbers go.
struct Reader<'s, R, S> {
    block: *const u8,
    sink: &'s mut S,
    sub: usize,
    rows: PhantomData<R>,
}

impl<R: Rows, S: Sink<R>> Reader<'_, R, S> {
    /// The 64 bytes at byte `at` of each row: a unit of 4 of each.
    #[inline(always)]
    fn load(&self, at: usize) -> R {
        // SAFETY: `unpack` is given whole blocks, and `at` is in a field of units of 4 bytes.
        unsafe { R::load(self.block.add(GROUP * at)) }
    }

    /// The 16-bit floats at byte `at` of each row.
    #[inline(always)]
    fn halves(&self, at: usize) -> R::Floats {
        // SAFETY: as above, of units of 2 bytes.
        unsafe { R::halves(self.block.add(GROUP * at)) }
    }

    #[inline(always)]
    fn put(&mut self, c: usize, x: R) {
        self.sink.bytes(self.sub, c, x);
    }

    #[inline(always)]
    fn put_scale(&mut self, scale: R::Floats) {
        self.sink.scale(self.sub, scale);
    }

    #[inline(always)]
    fn put_minimum(&mut self, minimum: R::Floats) {
        self.sink.minimum(self.sub, minimum);
    }

    /// Gives numbers of 4 bits at byte `at`, with their fifth bits, or what a table has for them.
    #[inline(always)]
    fn put_nibbles(&mut self, at: usize, high: Option<R>, table: Option<&[i8; 16]>) {
        let low = R::splat(0x0f0f_0f0f);
        for c in 0..8 {
            // the numbers of elements 16 on are in the upper halves of the bytes
            let mut x = self.load(at + 4 * (c % 4)).shr(4 * (c / 4) as u32).and(low);
            if let Some(high) = high {
                x = x.or(fifth_bits(high, c));
            }
            if let Some(table) = table {
                x = x.look_up(table).signed();
            }
            self.put(c, x);
        }
    }
}

/// Four bits of a word, from `4 c` on, as bit 4 of four bytes.
#[inline(always)]
fn fifth_bits<R: Rows>(word: R, c: usize) -> R {
    // bit k of the four goes to bit 4 of byte k: by 4, 11, 18 and 25 places
    let four = word.shr(4 * c as u32).and(R::splat(15));
    four.mul(R::splat(0x0204_0810)).and(R::splat(0x1010_1010))
}

/// Gives `sink` `subs` sub-blocks of sixteen rows, from `blocks` on, interleaved as
/// `teeny_core::quant::pack` does: the field at byte `at` of a block is at `GROUP * at`. `HOW` is
/// the [`DotKind`] of the type: each compiled function contains the types of one kind.
///
/// # Safety
/// The bytes of as many sub-blocks are readable: whole blocks of a group. A panel takes up to
/// [`SUBS`].
#[inline(always)]
pub(super) unsafe fn unpack<R: Rows, S: Sink<R>, const HOW: usize>(
    of: QuantType,
    blocks: *const u8,
    subs: usize,
    sink: &mut S,
) {
    let each = of.block_elements() / SUB;
    for first in (0..subs).step_by(each) {
        let bytes = of.block_bytes() * GROUP;
        // SAFETY: a whole block.
        let block = unsafe { blocks.add(first / each * bytes) };
        for at in (0..bytes).step_by(64) {
            prefetch(block.wrapping_add(AHEAD + at).cast());
        }
        let mut from = Reader { block, sink, sub: first, rows: PhantomData };
        if HOW == DotKind::Sixteenths as usize {
            q6_k(&mut from);
        } else if HOW == DotKind::Unsigned as usize && each == SUBS {
            with_minima(of == QuantType::Q5K, &mut from);
        } else {
            from.sink.begin(first);
            if HOW == DotKind::Signed as usize {
                signed_sub_block(of, &mut from);
            } else {
                unsigned_sub_block(of, &mut from);
            }
            from.sink.end(first);
        }
    }
}

/// A block of 32 elements whose bytes have signs.
#[inline(always)]
fn signed_sub_block<R: Rows, S: Sink<R>>(of: QuantType, from: &mut Reader<'_, R, S>) {
    if of == QuantType::Mxfp4 {
        // SAFETY: the first 16 bytes are the exponents.
        let exponents = unsafe { from.block.cast::<[u8; GROUP]>().read() };
        // SAFETY: an array of 16 floats.
        from.put_scale(unsafe { R::load_floats(exponents.map(half_of_power).as_ptr()) });
        // the bytes after one byte a row
        return from.put_nibbles(1, None, Some(&MXFP4));
    }
    from.put_scale(from.halves(0));
    if of == QuantType::Iq4Nl {
        return from.put_nibbles(2, None, Some(&IQ4_NL));
    }
    for c in 0..8 {
        from.put(c, from.load(2 + 4 * c).signed());
    }
}

/// A block of 32 elements whose bytes are 0 to 127.
#[inline(always)]
fn unsigned_sub_block<R: Rows, S: Sink<R>>(of: QuantType, from: &mut Reader<'_, R, S>) {
    from.put_scale(from.halves(0));
    if of.has_minimum() {
        from.put_minimum(from.halves(2));
    }
    match of {
        QuantType::Q4_1 => from.put_nibbles(4, None, None),
        QuantType::Q5_0 => from.put_nibbles(6, Some(from.load(2)), None),
        QuantType::Q5_1 => from.put_nibbles(8, Some(from.load(4)), None),
        _ => from.put_nibbles(2, None, None),
    }
}

/// Q4_K and Q5_K: eight sub-blocks with a scale and a minimum of 6 bits each.
#[inline(always)]
fn with_minima<R: Rows, S: Sink<R>>(five: bool, from: &mut Reader<'_, R, S>) {
    let (d, e) = (from.halves(0), from.halves(2));
    let (a, b, c) = (from.load(4), from.load(8), from.load(12));
    let (low, first) = (if five { 48 } else { 16 }, from.sub);
    let [nibble, six] = [R::splat(15), R::splat(63)];
    for i in 0..SUBS {
        from.sub = first + i;
        from.sink.begin(first + i);
        let by = 8 * (i % 4) as u32;
        let (scale, least) = if i < 4 {
            (a.shr(by).and(six), b.shr(by).and(six))
        } else {
            let a = a.shr(by + 6).and(R::splat(3)).shl(4);
            let b = b.shr(by + 6).and(R::splat(3)).shl(4);
            (c.shr(by).and(nibble).or(a), c.shr(by + 4).and(nibble).or(b))
        };
        from.put_scale(R::mul_floats(d, scale.floats()));
        let least = R::mul_floats(e, least.floats());
        from.put_minimum(R::mul_floats(least, R::splat_float(-1.0)));
        for c in 0..8 {
            let pair = from.load(low + 32 * (i / 2) + 4 * c);
            let mut x = pair.shr(4 * (i % 2) as u32).and(R::splat(0x0f0f_0f0f));
            if five {
                let high = from.load(16 + 4 * c);
                x = x.or(high.shr(i as u32).and(R::splat(0x0101_0101)).shl(4));
            }
            from.put(c, x);
        }
        from.sink.end(first + i);
    }
}

#[inline(always)]
fn q6_k<R: Rows, S: Sink<R>>(from: &mut Reader<'_, R, S>) {
    let (d, first) = (from.halves(208), from.sub);
    for k in 0..SUBS {
        from.sub = first + k;
        from.sink.begin(first + k);
        from.put_scale(d);
        let scales = from.load(192 + 4 * (k / 2));
        for half in 0..2 {
            let byte = (2 * (k % 2) + half) as u32;
            from.sink.sixteenth(first + k, half, scales.shl(24 - 8 * byte).sar(24));
        }
        let (n, j) = (k / 4, k % 4);
        for c in 0..8 {
            let low = from.load(64 * n + 32 * (j % 2) + 4 * c);
            let high = from.load(128 + 32 * n + 4 * c);
            let low = low.shr(4 * (j / 2) as u32).and(R::splat(0x0f0f_0f0f));
            let high = high.shr(2 * j as u32).and(R::splat(0x0303_0303)).shl(4);
            from.put(c, low.or(high));
        }
        from.sink.end(first + k);
    }
}
