//! Random numbers: core's Philox blocks by vectors, chunk by chunk on all threads.
//!
//! The naive form is `Distribution::block` for each block of words. Here a tile of blocks is made
//! at once, one block in each 64-bit lane, and its words become numbers in a second loop. A block
//! depends on its number alone, so the bits are core's for any partition. Normals of f32 are
//! computed by vectors of f64, and again as core does where rounding might differ; normals of f64
//! one by one.

use crate::Cpu;
use crate::half;
use crate::simd::{F32s, F64s, Level, Work};
use crate::storage::Shared;
use crate::threads::for_each_chunk;
use crate::typed::{slice_mut, with_bits};
use crate::vecmath::double::normal_factors;
use std::sync::Arc;
use teeny_core::random::{normal_pair_f32, unit_f32, unit_f64};
use teeny_core::storage::StorageRef;
use teeny_core::{DType, Distribution, Element, Key, Result, with_element};

/// Philox blocks of a tile: their words, and the numbers made of them, stay in L1.
const TILE: usize = 64;
/// Words of a tile.
const WORDS: usize = 4 * TILE;
/// Tiles per chunk.
const CHUNK: usize = 64;

/// `n` draws.
pub(crate) fn random(
    cpu: &Cpu,
    distribution: Distribution,
    n: usize,
    dtype: DType,
    key: Key,
) -> Result<StorageRef> {
    let storage = cpu.alloc(n, dtype)?;
    let (level, size) = (cpu.level, dtype.size());
    let per_tile = Distribution::per_block(dtype) * TILE;
    let out = Shared(storage.ptr());
    for_each_chunk(n.div_ceil(per_tile * CHUNK), |c| {
        let mut numbers = TileBytes([0; 8 * WORDS / 2]);
        for tile in c * CHUNK..((c + 1) * CHUNK).min(n.div_ceil(per_tile)) {
            let (first, to) = (tile * per_tile, out.get().wrapping_add(tile * per_tile * size));
            let block = (tile * TILE) as u64;
            let count = per_tile.min(n - first);
            // SAFETY: elements first .. first + count belong to this tile; a whole tile has
            // `per_tile` of them.
            unsafe {
                if count == per_tile {
                    draw(level, distribution, dtype, key, block, to);
                } else {
                    let whole = numbers.0.as_mut_ptr();
                    draw(level, distribution, dtype, key, block, whole);
                    std::ptr::copy_nonoverlapping(whole, to, count * size);
                }
            }
        }
    });
    Ok(Arc::new(storage))
}

/// Memory of a tile of numbers of any type.
#[repr(align(64))]
struct TileBytes([u8; 8 * WORDS / 2]);

/// Draws a whole tile from block `first` on.
///
/// # Safety
/// `to` takes as many numbers of type `dtype` as `TILE` blocks make. No reference to them is made
/// before they are written: the bytes that are there need not be a bool.
unsafe fn draw(
    level: Level,
    distribution: Distribution,
    dtype: DType,
    key: Key,
    first: u64,
    to: *mut u8,
) {
    let mut words = [0; WORDS];
    level.run(Words { key, first, words: &mut words });
    let words = &words;
    // SAFETY: by contract; all numbers but bools take any bits, and bools are written as bytes.
    unsafe {
        match distribution {
            Distribution::Uniform { low, high } if dtype == DType::F64 => {
                level.run(Uniform64 { words, low, high, to: slice_mut(to, WORDS / 2) });
            }
            Distribution::Normal { .. } if dtype == DType::F64 => {
                for b in 0..TILE {
                    let draws = distribution.block(key, first.wrapping_add(b as u64), dtype);
                    for (i, draw) in draws.into_iter().take(2).enumerate() {
                        to.cast::<f64>().add(2 * b + i).write(draw.to_f64());
                    }
                }
            }
            Distribution::Uniform { low, high } => {
                let (low, high) = (low as f32, high as f32);
                if dtype == DType::F32 {
                    level.run(Uniform32 { words, low, high, to: slice_mut(to, WORDS) });
                    return;
                }
                let mut values = [0.0; WORDS];
                level.run(Uniform32 { words, low, high, to: &mut values });
                half::from_f32(level, dtype, values.as_ptr().cast(), to, WORDS);
                half::to_f32(level, dtype, to, values.as_mut_ptr().cast(), WORDS);
                // Rounded to `high`, which is not drawn.
                if low < high && values.iter().any(|&value| value >= high) {
                    for b in (0..TILE).filter(|&b| values[4 * b..][..4].iter().any(|&v| v >= high))
                    {
                        let draws = distribution.block(key, first.wrapping_add(b as u64), dtype);
                        with_element!(dtype, T => for (i, draw) in draws.into_iter().enumerate() {
                            to.cast::<T>().add(4 * b + i).write(T::from_scalar(draw));
                        });
                    }
                }
            }
            Distribution::Normal { mean, std } => {
                let (mean, std) = (mean as f32, std as f32);
                if dtype == DType::F32 {
                    level.run(Normal32 { words, mean, std, to: slice_mut(to, WORDS) });
                    return;
                }
                let mut values = [0.0; WORDS];
                level.run(Normal32 { words, mean, std, to: &mut values });
                half::from_f32(level, dtype, values.as_ptr().cast(), to, WORDS);
            }
            Distribution::Integer { low, high } if dtype.size() == 8 => {
                let range = (i128::from(high) - i128::from(low)) as u64;
                let to = slice_mut::<u64>(to, WORDS / 2);
                for (y, w) in to.iter_mut().zip(words.chunks_exact(2)) {
                    let bits = u64::from(w[1]) << 32 | u64::from(w[0]);
                    let offset = (u128::from(bits) * u128::from(range)) >> 64;
                    *y = (low as u64).wrapping_add(offset as u64);
                }
            }
            Distribution::Integer { low, high } => {
                let range = (i128::from(high) - i128::from(low)) as u64;
                #[allow(clippy::unnecessary_cast)]
                let cast_to_bits = |to: *mut u8| {
                    with_bits!(dtype, T => {
                        let (low, to) = (low as u64, slice_mut::<T>(to, WORDS));
                        level.run(Integers { words, low, range, to, cast: |x| x as T });
                    })
                };
                cast_to_bits(to);
            }
            Distribution::Bernoulli { p } => {
                level.run(Trials { words, p: p as f32, to: slice_mut::<u8>(to, WORDS) });
            }
        }
    }
}

/// The words of a tile of blocks, as [`teeny_core::random::philox`] makes them.
struct Words<'a> {
    key: Key,
    first: u64,
    words: &'a mut [u32; WORDS],
}

impl Work for Words<'_> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        const LOW: u64 = u32::MAX as u64;
        let Words { key, first, words } = self;
        let draw = [key.draw & LOW, key.draw >> 32];
        for b in 0..TILE {
            let counter = first.wrapping_add(b as u64);
            // Only the lower halves count: a product of 32 by 32 bits is one instruction.
            let mut x = [counter & LOW, counter >> 32, draw[0], draw[1]];
            macro_rules! rounds {
                ($($round:literal)*) => {$(
                    let k = [
                        (key.seed as u32).wrapping_add(0x9E37_79B9u32.wrapping_mul($round)),
                        ((key.seed >> 32) as u32).wrapping_add(0xBB67_AE85u32.wrapping_mul($round)),
                    ];
                    let p0 = (x[0] & LOW) * 0xD251_1F53;
                    let p1 = (x[2] & LOW) * 0xCD9E_8D57;
                    x = [
                        (p1 >> 32) ^ x[1] ^ u64::from(k[0]),
                        p1,
                        (p0 >> 32) ^ x[3] ^ u64::from(k[1]),
                        p0,
                    ];
                )*};
            }
            rounds!(0 1 2 3 4 5 6 7 8 9);
            for i in 0..4 {
                words[4 * b + i] = x[i] as u32;
            }
        }
    }
}

struct Uniform32<'a> {
    words: &'a [u32; WORDS],
    low: f32,
    high: f32,
    to: &'a mut [f32],
}

impl Work for Uniform32<'_> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let Uniform32 { words, low, high, to } = self;
        // The product is exact for the unit interval, where nothing reaches the end.
        if (low, high) == (0.0, 1.0) {
            to.iter_mut().zip(words).for_each(|(y, &w)| *y = unit_f32(w));
            return;
        }
        let last = if low < high { high.next_down() } else { f32::INFINITY };
        for (y, &w) in to.iter_mut().zip(words) {
            let value = low + unit_f32(w) * (high - low);
            *y = if value >= high { last.min(value) } else { value };
        }
    }
}

struct Uniform64<'a> {
    words: &'a [u32; WORDS],
    low: f64,
    high: f64,
    to: &'a mut [f64],
}

impl Work for Uniform64<'_> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let Uniform64 { words, low, high, to } = self;
        let last = if low < high { high.next_down() } else { f64::INFINITY };
        for i in 0..WORDS / 2 {
            let value = low + unit_f64(words[2 * i], words[2 * i + 1]) * (high - low);
            to[i] = if value >= high { last.min(value) } else { value };
        }
    }
}

struct Normal32<'a> {
    words: &'a [u32; WORDS],
    mean: f32,
    std: f32,
    to: &'a mut [f32],
}

impl Work for Normal32<'_> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let Normal32 { words, mean, std, to } = self;
        let (mut a, mut b) = ([0.0; WORDS / 2], [0.0; WORDS / 2]);
        for i in 0..WORDS / 2 {
            a[i] = f64::from(unit_f32(words[2 * i]));
            b[i] = f64::from(unit_f32(words[2 * i + 1]));
        }
        pairs::<V::F64s>(&mut a, &mut b);
        let mut doubtful = false;
        for i in 0..WORDS / 2 {
            doubtful |= is_doubtful(a[i]) | is_doubtful(b[i]);
        }
        if doubtful {
            patch(words, &mut a, &mut b);
        }
        for i in 0..WORDS / 2 {
            to[2 * i] = mean + std * a[i] as f32;
            to[2 * i + 1] = mean + std * b[i] as f32;
        }
    }
}

/// Whether a number of f64 that is a few ulp off may round to another f32: it is next to the middle
/// between two of them, or so small that its cosine or sine lost digits when the angle was reduced.
#[inline(always)]
fn is_doubtful(x: f64) -> bool {
    /// The bits of f64 that f32 does not have, and more ulp than ours and the C library's functions
    /// differ by: 3 among 10 million pairs.
    const REST: u64 = (1 << 29) - 1;
    const MARGIN: u64 = 64;
    let distance = (x.to_bits() & REST).wrapping_sub((1 << 28) - MARGIN);
    (distance <= 2 * MARGIN) | (x.abs() < 1e-9)
}

/// The pairs with a doubtful number as core computes them: one in some million.
#[cold]
#[inline(never)]
fn patch(words: &[u32; WORDS], a: &mut [f64], b: &mut [f64]) {
    for i in 0..WORDS / 2 {
        if is_doubtful(a[i]) || is_doubtful(b[i]) {
            [a[i], b[i]] = normal_pair_f32(words[2 * i], words[2 * i + 1]).map(f64::from);
        }
    }
}

/// Two standard normal numbers for each two uniform ones, in place (Box & Muller 1958).
#[inline(always)]
fn pairs<D: F64s>(a: &mut [f64], b: &mut [f64]) {
    const { assert!(TILE.is_multiple_of(D::LANES)) };
    for i in (0..a.len()).step_by(D::LANES) {
        let (a, b) = (&mut a[i..i + D::LANES], &mut b[i..i + D::LANES]);
        // SAFETY: both have the lanes of a vector.
        unsafe {
            let (u, v) = (D::load(a.as_ptr()), D::load(b.as_ptr()));
            let (radius, sine, cosine) = normal_factors(u, v);
            radius.mul(cosine).store(a.as_mut_ptr());
            radius.mul(sine).store(b.as_mut_ptr());
        }
    }
}

struct Integers<'a, T, F> {
    words: &'a [u32; WORDS],
    low: u64,
    range: u64,
    to: &'a mut [T],
    cast: F,
}

impl<T, F: Fn(u64) -> T> Work for Integers<'_, T, F> {
    type Out = ();
    const FOR_AVX512: bool = false;
    #[inline(always)]
    fn run<V: F32s>(self) {
        let Integers { words, low, range, to, cast } = self;
        for (y, &w) in to.iter_mut().zip(words) {
            *y = cast(low.wrapping_add((u64::from(w) * range) >> 32));
        }
    }
}

struct Trials<'a> {
    words: &'a [u32; WORDS],
    p: f32,
    to: &'a mut [u8],
}

impl Work for Trials<'_> {
    type Out = ();
    const FOR_AVX512: bool = false;
    #[inline(always)]
    fn run<V: F32s>(self) {
        let Trials { words, p, to } = self;
        to.iter_mut().zip(words).for_each(|(y, &w)| *y = u8::from(unit_f32(w) < p));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Draws of all distributions and types are core's, at every level.
    #[test]
    fn draws_are_those_of_the_definition() {
        let mut cases = Vec::new();
        for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
            for (low, high) in [(0.0, 1.0), (-2.5, 7.0), (3.0, 3.0), (1.0, 1.01)] {
                cases.push((Distribution::Uniform { low, high }, dtype));
            }
            for (mean, std) in [(0.0, 1.0), (-3.0, 0.5), (1.0, 0.0)] {
                cases.push((Distribution::Normal { mean, std }, dtype));
            }
        }
        for dtype in [DType::U8, DType::I16, DType::U32, DType::I32, DType::I64, DType::U64] {
            let low = if dtype.is_unsigned_int() { 0 } else { -100 };
            cases.push((Distribution::Integer { low, high: 27 }, dtype));
        }
        let all = Distribution::Integer { low: i64::MIN, high: i64::MAX };
        cases.push((all, DType::I64));
        let all = Distribution::Integer { low: i64::from(i32::MIN), high: 1 << 31 };
        cases.push((all, DType::I32));
        cases.push((Distribution::Bernoulli { p: 0.3 }, DType::Bool));
        let key = Key { seed: 0x0123_4567_89ab_cdef, draw: u64::MAX - 5 };
        for level in Level::available() {
            for &(distribution, dtype) in &cases {
                for first in [0, u64::from(u32::MAX) - 7, u64::MAX - 70] {
                    check(level, distribution, dtype, key, first);
                }
            }
        }
    }

    /// Numbers whose rounding is in doubt: at quarters of the circle, at the ends of the interval.
    #[test]
    fn pairs_in_doubt_are_those_of_the_definition() {
        let mut words = [0; WORDS];
        let ends = [0, 0xff, 0x100, 0x4000_0000, 0x8000_0000, 0xc000_0000, 0xffff_ff00, u32::MAX];
        for i in 0..WORDS / 2 {
            words[2 * i] = ends[i / 8 % 8];
            words[2 * i + 1] = ends[i % 8];
        }
        for level in Level::available() {
            let mut to = [0.0; WORDS];
            level.run(Normal32 { words: &words, mean: 0.0, std: 1.0, to: &mut to });
            for i in 0..WORDS / 2 {
                let want = normal_pair_f32(words[2 * i], words[2 * i + 1]);
                assert_eq!(to[2 * i..2 * i + 2], want, "{level:?} {i}");
            }
        }
        let middle = f64::from(1.0f32) + f64::from(f32::EPSILON) / 2.0;
        assert!(is_doubtful(middle) && is_doubtful(middle.next_down()) && is_doubtful(0.0));
        assert!(!is_doubtful(1.0) && !is_doubtful(0.3));
    }

    fn check(level: Level, distribution: Distribution, dtype: DType, key: Key, first: u64) {
        let mut numbers = TileBytes([0; 8 * WORDS / 2]);
        let to = numbers.0.as_mut_ptr();
        // SAFETY: a tile of numbers of any type has the room.
        unsafe { draw(level, distribution, dtype, key, first, to) };
        let per_block = Distribution::per_block(dtype);
        for i in 0..TILE * per_block {
            let block = first.wrapping_add((i / per_block) as u64);
            let want = distribution.block(key, block, dtype)[i % per_block];
            let (got, want) = with_element!(dtype, T => {
                // SAFETY: element i of the tile, which was drawn.
                let got = unsafe { to.cast::<T>().add(i).read() };
                (got.to_scalar().to_f64(), T::from_scalar(want).to_scalar().to_f64())
            });
            assert_eq!(got, want, "{distribution:?} {dtype} {level:?} {i}");
        }
    }
}
