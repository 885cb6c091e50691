//! Values as keys: unsigned integers in the order of the values, with positions.
//!
//! ```text
//!   value ─► key, u32 or u64 ─► entry, key << bits | position
//! ```
//! NaN has the largest key, zeros of either sign one key. A descending order is the ascending order
//! of the keys' complements. Entries are compared as integers: equal keys are ordered by their
//! positions, so a sort of entries is stable. Values of up to 32 bits have entries of 64 bits.

use crate::simd::{F32s, Work, for_pairs};
use teeny_core::{bf16, f16};

/// A key with a position, compared as a whole.
pub(super) trait Entry: Copy + Ord + Default + Send + Sync + 'static {
    /// The key.
    type Key: Copy + Ord + Send + Sync + 'static;
    /// The largest key.
    const LAST: Self::Key;
    /// The key and the position in one integer.
    fn new(key: Self::Key, position: usize) -> Self;
    /// The key.
    fn key(self) -> Self::Key;
    /// The position.
    fn position(self) -> usize;
    /// The bits of the key in which it differs from that of `other`.
    fn difference(self, other: Self) -> u64;
    /// The entry whose key is less by that of `least`, which is not larger.
    fn less(self, least: Self) -> Self;
    /// Byte number `byte` of the key, the lowest first.
    fn digit(self, byte: u32) -> usize;
}

macro_rules! entries {
    ($($entry:ty: $key:ty, $shift:literal;)*) => {$(
        impl Entry for $entry {
            type Key = $key;
            const LAST: $key = <$key>::MAX;
            #[inline(always)]
            fn new(key: $key, position: usize) -> Self {
                (key as $entry) << $shift | position as $entry
            }
            #[inline(always)]
            fn key(self) -> $key {
                (self >> $shift) as $key
            }
            #[inline(always)]
            fn position(self) -> usize {
                self as u32 as usize
            }
            #[inline(always)]
            fn difference(self, other: Self) -> u64 {
                (self.key() ^ other.key()) as u64
            }
            #[inline(always)]
            fn less(self, least: Self) -> Self {
                self - ((least >> $shift) << $shift)
            }
            #[inline(always)]
            fn digit(self, byte: u32) -> usize {
                (self >> ($shift + 8 * byte)) as usize & 0xff
            }
        }
    )*};
}
entries! { u64: u32, 32; u128: u64, 64; }

/// A value that can be sorted.
pub(super) trait Value: Copy + Send + Sync + 'static {
    /// Its key with a position.
    type Entry: Entry;
    /// Compares as the values do; with `complement` as the values in descending order.
    fn sort_key(self, complement: bool) -> <Self::Entry as Entry>::Key;
}

macro_rules! integers {
    ($($t:ty: $unsigned:ty, $entry:ty;)*) => {$(
        impl Value for $t {
            type Entry = $entry;
            #[inline(always)]
            fn sort_key(self, complement: bool) -> <$entry as Entry>::Key {
                // The least value of a signed type becomes 0.
                let key = (self as $unsigned) ^ (<$t>::MIN as $unsigned);
                (if complement { !key } else { key }) as _
            }
        }
    )*};
}
integers! {
    u8: u8, u64; u16: u16, u64; u32: u32, u64; u64: u64, u128;
    i8: u8, u64; i16: u16, u64; i32: u32, u64; i64: u64, u128;
}

macro_rules! floats {
    ($($t:ty: $bits:ty, $entry:ty, $infinity:literal;)*) => {$(
        impl Value for $t {
            type Entry = $entry;
            #[inline(always)]
            fn sort_key(self, complement: bool) -> <$entry as Entry>::Key {
                const SIGN: $bits = !(<$bits>::MAX >> 1);
                let bits = self.to_bits();
                let bits = if bits == SIGN { 0 } else { bits }; // -0 is 0
                let key = if bits & SIGN == 0 { bits | SIGN } else { !bits };
                let key = if bits & !SIGN > $infinity { <$bits>::MAX } else { key };
                (if complement { !key } else { key }) as _
            }
        }
    )*};
}
floats! {
    f16: u16, u64, 0x7c00; bf16: u16, u64, 0x7f80; f32: u32, u64, 0x7f80_0000;
    f64: u64, u128, 0x7ff0_0000_0000_0000;
}

/// Runs `$body` with `$t` the stored type of `$dtype`; bools sort as bytes.
macro_rules! with_value {
    ($dtype:expr, $t:ident => $body:expr) => {
        crate::typed::with_type!($dtype, $t => $body;
            Bool | U8 => u8, U16 => u16, U32 => u32, U64 => u64, I8 => i8, I16 => i16, I32 => i32,
            I64 => i64, F16 => f16, BF16 => bf16, F32 => f32, F64 => f64;)
    };
}
pub(super) use with_value;

/// `entries[i]` of `x[i]`, whose positions begin at `first`, as a loop of any level.
pub(super) struct Fill<'a, V: Value> {
    pub x: &'a [V],
    pub first: usize,
    pub complement: bool,
    pub entries: &'a mut [V::Entry],
}

impl<V: Value> Work for Fill<'_, V> {
    type Out = ();
    const FOR_AVX512: bool = false;
    #[inline(always)]
    fn run<L: F32s>(self) {
        let mut position = self.first;
        for_pairs(self.entries, self.x, |entry, x| {
            *entry = V::Entry::new(x.sort_key(self.complement), position);
            position += 1;
        });
    }
}

/// The first group of 64 values from `from` on in which a key is below `limit`, as a loop of any
/// level.
pub(super) struct Below<'a, V: Value> {
    pub x: &'a [V],
    pub from: usize,
    pub complement: bool,
    pub limit: <V::Entry as Entry>::Key,
}

/// Values of a group.
pub(super) const GROUP: usize = 64;

impl<V: Value> Work for Below<'_, V> {
    type Out = usize;
    #[inline(always)]
    fn run<L: F32s>(self) -> usize {
        let mut at = self.from;
        while at + GROUP <= self.x.len() {
            let mut any = false;
            for i in 0..GROUP {
                // SAFETY: the group is inside x.
                any |=
                    unsafe { *self.x.get_unchecked(at + i) }.sort_key(self.complement) < self.limit;
            }
            if any {
                break;
            }
            at += GROUP;
        }
        at
    }
}

#[cfg(test)]
pub(super) fn all_keys_ascend<V: Value>(values: &[V]) -> bool {
    values.windows(2).all(|pair| {
        pair[0].sort_key(false) <= pair[1].sort_key(false)
            && pair[0].sort_key(true) >= pair[1].sort_key(true)
    })
}
