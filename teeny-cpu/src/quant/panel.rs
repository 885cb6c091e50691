//! Blocks of sixteen rows as bytes, scales and minima of their sub-blocks of 32 elements.
//!
//! The naive form is a product for each type. Here a type says only how its bits become bytes, and
//! one loop (`product`) multiplies them with the activations.

use super::rows16::Rows;
use teeny_core::QuantType;
use teeny_core::quant::{GROUP, IQ4_NL, MXFP4, half_of_power};

/// The most sub-blocks of a panel: those of the largest block.
pub(super) const SUBS: usize = 8;
/// Elements of a sub-block.
pub(super) const SUB: usize = 32;

/// How the bytes of a type are multiplied.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Bytes of 0 to 127.
    Unsigned,
    /// Bytes with a sign.
    Signed,
    /// Bytes of 0 to 127, with an integer scale for each 16.
    Sixteenths,
}

/// [`Kind`] of a type, and what is subtracted from its bytes.
pub(super) fn kind(of: QuantType) -> (Kind, i32) {
    match of {
        QuantType::Q8_0 | QuantType::Iq4Nl | QuantType::Mxfp4 => (Kind::Signed, 0),
        QuantType::Q4_0 => (Kind::Unsigned, 8),
        QuantType::Q5_0 => (Kind::Unsigned, 16),
        QuantType::Q4_1 | QuantType::Q5_1 | QuantType::Q4K | QuantType::Q5K => (Kind::Unsigned, 0),
        QuantType::Q6K => (Kind::Sixteenths, 32),
    }
}

/// Up to [`SUBS`] sub-blocks of sixteen rows.
#[repr(C, align(64))]
pub(super) struct Panel {
    /// For each four elements, the bytes of sixteen rows.
    pub bytes: [[u8; 4 * GROUP]; SUBS * SUB / 4],
    /// For each sub-block, the scale of each row.
    pub scales: [[f32; GROUP]; SUBS],
    /// For each sub-block, what the sum of the activations is multiplied by, of each row.
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

/// A place in a block of sixteen rows, and where its bytes go.
struct Writer<'p> {
    block: *const u8,
    panel: &'p mut Panel,
    sub: usize,
}

impl Writer<'_> {
    /// The 64 bytes at byte `at` of each row: a unit of 4 of each.
    #[inline(always)]
    fn load<R: Rows>(&self, at: usize) -> R {
        // SAFETY: `unpack` is given whole blocks, and `at` is in a field of units of 4 bytes.
        unsafe { R::load(self.block.add(GROUP * at)) }
    }

    /// The 16-bit floats at byte `at` of each row.
    #[inline(always)]
    fn halves<R: Rows>(&self, at: usize) -> R::Floats {
        // SAFETY: as above, of units of 2 bytes.
        unsafe { R::halves(self.block.add(GROUP * at)) }
    }

    /// Stores the bytes of elements `4 c` on of the sub-block.
    #[inline(always)]
    fn put<R: Rows>(&mut self, c: usize, x: R) {
        // SAFETY: 64 bytes of the panel.
        unsafe { x.store(self.panel.bytes[self.sub * SUB / 4 + c].as_mut_ptr()) };
    }

    #[inline(always)]
    fn put_scale<R: Rows>(&mut self, scale: R::Floats) {
        // SAFETY: 16 floats of the panel.
        unsafe { R::store_floats(scale, self.panel.scales[self.sub].as_mut_ptr()) };
    }

    #[inline(always)]
    fn put_minimum<R: Rows>(&mut self, minimum: R::Floats) {
        // SAFETY: as above.
        unsafe { R::store_floats(minimum, self.panel.minima[self.sub].as_mut_ptr()) };
    }

    /// Stores numbers of 4 bits at byte `at`, each changed by `f` with its four elements' number.
    #[inline(always)]
    fn put_nibbles<R: Rows>(&mut self, at: usize, f: impl Fn(R, usize) -> R) {
        let low = R::splat(0x0f0f_0f0f);
        for c in 0..4 {
            let x: R = self.load(at + 4 * c);
            self.put(c, f(x.and(low), c));
            self.put(c + 4, f(x.shr(4).and(low), c + 4));
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

/// Unpacks `subs` sub-blocks of sixteen rows, from `blocks` on.
///
/// # Safety
/// The bytes of as many sub-blocks are readable: whole blocks of a group.
#[inline(always)]
pub(super) unsafe fn unpack<R: Rows>(
    of: QuantType,
    blocks: *const u8,
    subs: usize,
    panel: &mut Panel,
) {
    let each = of.block_elements() / SUB;
    for first in (0..subs).step_by(each) {
        // SAFETY: a whole block.
        let block = unsafe { blocks.add(first / each * of.block_bytes() * GROUP) };
        let mut to = Writer { block, panel, sub: first };
        match of {
            QuantType::Q4K | QuantType::Q5K => with_minima::<R>(of == QuantType::Q5K, &mut to),
            QuantType::Q6K => q6_k::<R>(&mut to),
            QuantType::Mxfp4 => {
                // SAFETY: the first 16 bytes are the exponents.
                let exponents = unsafe { block.cast::<[u8; GROUP]>().read() };
                to.panel.scales[first] = exponents.map(half_of_power);
                // the bytes behind one byte a row
                to.put_nibbles(1, |x: R, _| x.look_up(&MXFP4).signed());
            }
            QuantType::Q8_0 => {
                to.put_scale::<R>(to.halves::<R>(0));
                (0..8).for_each(|c| to.put(c, to.load::<R>(2 + 4 * c).signed()));
            }
            QuantType::Q4_0 => {
                to.put_scale::<R>(to.halves::<R>(0));
                to.put_nibbles(2, |x: R, _| x);
            }
            QuantType::Iq4Nl => {
                to.put_scale::<R>(to.halves::<R>(0));
                to.put_nibbles(2, |x: R, _| x.look_up(&IQ4_NL).signed());
            }
            QuantType::Q4_1 => {
                to.put_scale::<R>(to.halves::<R>(0));
                to.put_minimum::<R>(to.halves::<R>(2));
                to.put_nibbles(4, |x: R, _| x);
            }
            QuantType::Q5_0 => {
                to.put_scale::<R>(to.halves::<R>(0));
                let high: R = to.load(2);
                to.put_nibbles(6, |x: R, c| x.or(fifth_bits(high, c)));
            }
            QuantType::Q5_1 => {
                to.put_scale::<R>(to.halves::<R>(0));
                to.put_minimum::<R>(to.halves::<R>(2));
                let high: R = to.load(4);
                to.put_nibbles(8, |x: R, c| x.or(fifth_bits(high, c)));
            }
        }
    }
}

/// Q4_K and Q5_K: eight sub-blocks with a scale and a minimum of 6 bits each.
#[inline(always)]
fn with_minima<R: Rows>(five: bool, to: &mut Writer<'_>) {
    let (d, e) = (to.halves::<R>(0), to.halves::<R>(2));
    let [a, b, c] = [4, 8, 12].map(|at| to.load::<R>(at));
    let (low, first) = (if five { 48 } else { 16 }, to.sub);
    let [nibble, six] = [R::splat(15), R::splat(63)];
    for i in 0..SUBS {
        to.sub = first + i;
        let by = 8 * (i % 4) as u32;
        let (scale, least) = if i < 4 {
            (a.shr(by).and(six), b.shr(by).and(six))
        } else {
            let upper = |x: R| x.shr(by + 6).and(R::splat(3)).shl(4);
            (c.shr(by).and(nibble).or(upper(a)), c.shr(by + 4).and(nibble).or(upper(b)))
        };
        to.put_scale::<R>(R::mul_floats(d, scale.floats()));
        let least = R::mul_floats(e, least.floats());
        to.put_minimum::<R>(R::mul_floats(least, R::splat_float(-1.0)));
        for c in 0..8 {
            let pair: R = to.load(low + 32 * (i / 2) + 4 * c);
            let mut x = pair.shr(4 * (i % 2) as u32).and(R::splat(0x0f0f_0f0f));
            if five {
                let high: R = to.load(16 + 4 * c);
                x = x.or(high.shr(i as u32).and(R::splat(0x0101_0101)).shl(4));
            }
            to.put(c, x);
        }
    }
}

#[inline(always)]
fn q6_k<R: Rows>(to: &mut Writer<'_>) {
    let (d, first) = (to.halves::<R>(208), to.sub);
    for k in 0..SUBS {
        to.sub = first + k;
        to.put_scale::<R>(d);
        let scales: R = to.load(192 + 4 * (k / 2));
        for half in 0..2 {
            let byte = (2 * (k % 2) + half) as u32;
            let scale = scales.shl(24 - 8 * byte).sar(24);
            // SAFETY: 16 integers of the panel.
            unsafe { scale.store(to.panel.sixteenths[2 * to.sub + half].as_mut_ptr().cast()) };
        }
        let (n, j) = (k / 4, k % 4);
        for c in 0..8 {
            let low: R = to.load(64 * n + 32 * (j % 2) + 4 * c);
            let high: R = to.load(128 + 32 * n + 4 * c);
            let low = low.shr(4 * (j / 2) as u32).and(R::splat(0x0f0f_0f0f));
            let high = high.shr(2 * j as u32).and(R::splat(0x0303_0303)).shl(4);
            to.put(c, low.or(high));
        }
    }
}
