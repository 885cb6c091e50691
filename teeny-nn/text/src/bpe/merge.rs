//! The merge loop of byte-pair encoding, for any source of ranks.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A part of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Symbol {
    /// The token.
    pub token: u32,
    /// The number of bytes of the word, at least 1.
    pub len: usize,
    /// The first byte.
    pub start: usize,
}

/// Merges the neighbouring pair of lowest rank, the leftmost of equals, until no pair has a rank.
/// `rank` returns the rank of a pair and the token that it becomes. A heap of candidates makes this
/// O(n log n).
pub(crate) fn merge(
    symbols: &mut Vec<Symbol>,
    rank: impl Fn(Symbol, Symbol) -> Option<(u32, u32)>,
) {
    let n = symbols.len();
    // indices of the neighbours that are not merged
    let mut next: Vec<usize> = (1..=n).collect();
    let mut before: Vec<usize> = (0..n).map(|i| i.wrapping_sub(1)).collect();
    let candidate = |symbols: &[Symbol], i: usize, j: usize| {
        let (rank, token) = rank(symbols[i], *symbols.get(j)?)?;
        Some(Reverse((rank, i, token)))
    };
    let mut candidates = BinaryHeap::with_capacity(n);
    candidates.extend((0..n).filter_map(|i| candidate(symbols, i, i + 1)));
    while let Some(Reverse((_, i, token))) = candidates.pop() {
        let j = next[i];
        // an earlier merge may have consumed one of the two
        let current = symbols[i].len > 0 && j < n;
        if !current || rank(symbols[i], symbols[j]).is_none_or(|(_, t)| t != token) {
            continue;
        }
        symbols[i].token = token;
        symbols[i].len += symbols[j].len;
        symbols[j].len = 0;
        next[i] = next[j];
        if next[i] < n {
            before[next[i]] = i;
        }
        candidates.extend(candidate(symbols, i, next[i]));
        if before[i] < n {
            candidates.extend(candidate(symbols, before[i], i));
        }
    }
    symbols.retain(|symbol| symbol.len > 0);
}
