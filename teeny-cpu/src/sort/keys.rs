//! Values as keys: unsigned integers in the order of the values, with positions.
//!
//! ```text
//!   value ─► key, u32 or u64 ─► entry, key << bits | position
//! ```
//! NaN has the largest key, zeros of either sign one key. A descending order is the ascending order
//! of the keys' complements. Entries are compared as integers: equal keys are ordered by their
//! positions, so a sort of entries is stable. Values of up to 32 bits have entries of 64 bits.

use crate::simd::{F32s, Work, for_pairs};
use teeny_core::DType;

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
    /// The bits in which the keys differ.
    fn difference(self, other: Self) -> u64;
    /// The entry with its key minus the key of `least`, which is not larger.
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

/// How the bits of a type become keys: a sort is compiled for integers and floats of each size, not
/// for each type.
#[derive(Clone, Copy)]
pub(super) struct Order {
    /// Bits that are flipped: of all keys for a descending order, the sign of signed integers.
    flipped: u64,
    /// The bits of infinity of a float of 16 bits.
    infinity: u16,
}

impl Order {
    /// The order of the values of `dtype`, or the reverse.
    pub(super) fn of(dtype: DType, descending: bool) -> Order {
        let (sign, infinity) = match dtype {
            DType::I8 => (1 << 7, 0),
            DType::I16 => (1 << 15, 0),
            DType::I32 => (1 << 31, 0),
            DType::I64 => (1 << 63, 0),
            DType::F16 => (0, 0x7c00),
            DType::BF16 => (0, 0x7f80),
            DType::Bool | DType::U8 | DType::U16 | DType::U32 | DType::U64 => (0, 0),
            DType::F32 | DType::F64 => (0, 0),
        };
        Order { flipped: if descending { !sign } else { sign }, infinity }
    }
}

/// The bits of a value that can be sorted.
pub(super) trait Value: Copy + Send + Sync + 'static {
    /// Its key with a position.
    type Entry: Entry;
    /// Compares as the values do.
    fn sort_key(self, order: Order) -> <Self::Entry as Entry>::Key;
}

/// A float of 16 bits.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Float16(pub u16);

macro_rules! integers {
    ($($bits:ty: $entry:ty;)*) => {$(
        impl Value for $bits {
            type Entry = $entry;
            #[inline(always)]
            fn sort_key(self, order: Order) -> <$entry as Entry>::Key {
                (self ^ order.flipped as $bits) as _
            }
        }
    )*};
}
integers! { u8: u64; u16: u64; u32: u64; u64: u128; }

macro_rules! floats {
    ($($t:ty: $bits:ty, $entry:ty, |$x:ident, $order:ident| $to_bits:expr, $infinity:expr;)*) => {$(
        impl Value for $t {
            type Entry = $entry;
            #[inline(always)]
            fn sort_key(self, $order: Order) -> <$entry as Entry>::Key {
                const SIGN: $bits = !(<$bits>::MAX >> 1);
                let $x = self;
                let bits: $bits = $to_bits;
                let bits = if bits == SIGN { 0 } else { bits }; // -0 is 0
                let key = if bits & SIGN == 0 { bits | SIGN } else { !bits };
                let key = if bits & !SIGN > $infinity { <$bits>::MAX } else { key };
                (key ^ $order.flipped as $bits) as _
            }
        }
    )*};
}
floats! {
    Float16: u16, u64, |x, order| x.0, order.infinity;
    f32: u32, u64, |x, order| x.to_bits(), 0x7f80_0000;
    f64: u64, u128, |x, order| x.to_bits(), 0x7ff0_0000_0000_0000;
}

/// `entries[i]` of `x[i]`, whose positions begin at `first`, as a loop of any level.
pub(super) struct Fill<'a, V: Value> {
    pub x: &'a [V],
    pub first: usize,
    pub order: Order,
    pub entries: &'a mut [V::Entry],
}

impl<V: Value> Work for Fill<'_, V> {
    type Out = ();
    const FOR_AVX512: bool = false;
    #[inline(always)]
    fn run<L: F32s>(self) {
        let mut position = self.first;
        for_pairs(self.entries, self.x, |entry, x| {
            *entry = V::Entry::new(x.sort_key(self.order), position);
            position += 1;
        });
    }
}

/// The first group of 64 values from `from` on in which a key is below `limit`, as a loop of any
/// level.
pub(super) struct Below<'a, V: Value> {
    pub x: &'a [V],
    pub from: usize,
    pub order: Order,
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
                any |= unsafe { *self.x.get_unchecked(at + i) }.sort_key(self.order) < self.limit;
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
pub(super) fn all_keys_ascend<V: Value>(dtype: DType, values: &[V]) -> bool {
    let (up, down) = (Order::of(dtype, false), Order::of(dtype, true));
    values.windows(2).all(|pair| {
        pair[0].sort_key(up) <= pair[1].sort_key(up)
            && pair[0].sort_key(down) >= pair[1].sort_key(down)
    })
}
