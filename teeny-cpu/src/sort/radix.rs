//! Sorting entries: by comparisons if they are few, by the bytes of their keys otherwise.
//!
//! The naive form of a radix sort moves all entries once for each byte of the key, the lowest
//! first: to the place after the entries with a smaller byte and those before it with the same one.
//! Here bytes in which all keys agree are left out, and long rows are counted and moved in pieces by
//! several threads. Pieces depend on the length alone. Scratch memory is as large as the entries.

use super::keys::Entry;
use crate::Cpu;
use crate::scratch::Array;
use crate::storage::Shared;
use crate::threads::for_each_chunk;
use teeny_core::Result;

/// Values of a byte.
const DIGITS: usize = 256;
/// Entries of a piece of a long row.
const PIECE: usize = 64 << 10;
/// Pieces of a row, at most.
const PIECES: usize = 16;

/// Whether `n` entries whose keys differ in `bytes` bytes are sorted by bytes. A comparison sort
/// takes about 1.2 ns for each of log2 n comparisons; a byte takes 1.6 ns, and 0.5 us to begin;
/// finding the bytes that differ takes 2 ns an entry.
pub(super) fn by_bytes(n: usize, bytes: u32) -> bool {
    let comparisons = 12 * u64::from(n.max(1).ilog2()) * n as u64;
    comparisons > u64::from(bytes) * (16 * n as u64 + 5000) + 20 * n as u64
}

/// Sorts `entries`, which are in the order of their positions: that keeps the sort by bytes stable.
/// Their keys are moved by the least one: afterwards only the positions count. `spare` is as long.
pub(super) fn sort<E: Entry>(cpu: &Cpu, entries: &mut [E], spare: &mut [E]) -> Result<()> {
    let n = entries.len();
    let most = size_of::<E::Key>() as u32;
    if n < 64 || !by_bytes(n, 1) {
        entries.sort_unstable();
        return Ok(());
    }
    let first = entries[0];
    let (mut least, mut differing) = (first, 0);
    for &entry in entries.iter() {
        least = least.min(entry);
        differing |= entry.difference(first);
    }
    // Small numbers of both signs differ in all bytes; their distances from the least do not.
    let zero = least.less(least);
    let range = entries.iter().fold(0, |bits, &entry| bits | entry.less(least).difference(zero));
    if range.leading_zeros() > differing.leading_zeros() {
        entries.iter_mut().for_each(|entry| *entry = entry.less(least));
        differing = range;
    }
    let byte = |byte: &u32| differing >> (8 * byte) & 0xff != 0;
    if !by_bytes(n, (0..most).filter(byte).count() as u32) {
        entries.sort_unstable();
        return Ok(());
    }
    let pieces = (n / PIECE).clamp(1, PIECES);
    let mut counts = Array::filled(cpu, pieces * DIGITS, 0u32)?;
    let (mut from, mut to) = (entries, spare);
    let mut swapped = false;
    for byte in (0..most).filter(byte) {
        pass(from, to, byte, pieces, &mut counts);
        (from, to, swapped) = (to, from, !swapped);
    }
    if swapped {
        to.copy_from_slice(from);
    }
    Ok(())
}

/// Moves all entries of `from` to `to` in the order of one byte of their keys.
fn pass<E: Entry>(from: &[E], to: &mut [E], byte: u32, pieces: usize, counts: &mut [u32]) {
    let len = from.len().div_ceil(pieces);
    let piece = |p: usize| &from[(p * len).min(from.len())..((p + 1) * len).min(from.len())];
    counts.fill(0);
    let shared = Shared(counts.as_mut_ptr());
    for_each_chunk(pieces, |p| {
        // SAFETY: each piece has its own counts.
        let counts =
            unsafe { std::slice::from_raw_parts_mut(shared.get().add(p * DIGITS), DIGITS) };
        piece(p).iter().for_each(|entry| counts[entry.digit(byte)] += 1);
    });
    // Where the first entry of each digit of each piece goes.
    let mut place = 0;
    for digit in 0..DIGITS {
        for p in 0..pieces {
            place += std::mem::replace(&mut counts[p * DIGITS + digit], place);
        }
    }
    let (shared, out) = (Shared(counts.as_mut_ptr()), Shared(to.as_mut_ptr()));
    for_each_chunk(pieces, |p| {
        // SAFETY: as above.
        let places =
            unsafe { std::slice::from_raw_parts_mut(shared.get().add(p * DIGITS), DIGITS) };
        let out = out.get();
        for &entry in piece(p) {
            let place = &mut places[entry.digit(byte)];
            // SAFETY: the counts belong to the entries, so that each has its own place below their
            // number.
            unsafe { out.add(*place as usize).write(entry) };
            *place += 1;
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_rows_are_sorted_by_bytes() {
        let table = [
            (60, 1, false),
            (500, 4, false),
            (10_000, 4, true),
            (1_000, 1, true),
            (1_000_000, 8, true),
            (3_000, 8, false),
        ];
        for (n, bytes, wanted) in table {
            assert_eq!(by_bytes(n, bytes), wanted, "{n} entries, {bytes} bytes");
        }
    }

    #[test]
    fn entries_are_sorted_as_by_comparisons() -> Result<()> {
        let cpu = Cpu::new();
        for n in [1usize, 63, 64, 200, 5_000, 140_000] {
            for mask in [0xff, 0xff00, 0xffff_ffff, 0, 0x8000_0001] {
                let mut state = n as u64;
                let mut entries: Vec<u64> = (0..n)
                    .map(|i| {
                        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        Entry::new((state >> 32) as u32 & mask, i)
                    })
                    .collect();
                let mut wanted = entries.clone();
                wanted.sort();
                let mut spare = entries.clone();
                sort(&cpu, &mut entries, &mut spare)?;
                let positions = |all: &[u64]| all.iter().map(|e| e.position()).collect::<Vec<_>>();
                assert!(positions(&entries) == positions(&wanted), "{n} {mask:x}");
            }
        }
        Ok(())
    }
}
