//! The first `k` of a row in the order of a sort, without sorting the rest.
//!
//! The naive form sorts the row. Here a list of candidates is kept: whenever it is full, all but
//! the `k` first are dropped, and the key of the last of them becomes the limit. Values are compared
//! with the limit 64 at a time by vectors; in a row in random order nearly all groups are passed
//! over. A later value with the limit's key is never among the first `k`, as equal values keep
//! their order. A few candidates are kept in order, so that the limit is always the last of them.
//! The list is at most two `k` and 512 entries long, and never longer than the row.

use super::keys::{Below, Entry, Fill, GROUP, Order, Value};
use crate::simd::Level;

/// Candidates beyond `k` that are collected before some are dropped, at least.
const SLACK: usize = 512;

/// The length of the list of candidates of a row of `n` values.
pub(super) fn candidates(n: usize, k: usize) -> usize {
    n.min(k + k.max(SLACK))
}

/// Values that are kept in order, each new one put in its place.
const MAX_SELECTED: usize = 32;

/// The first few of `x`, in order.
fn few<V: Value>(level: Level, x: &[V], first: usize, order: Order, list: &mut [V::Entry]) {
    let (n, mut at) = (x.len(), list.len());
    level.run(Fill { x: &x[..at], first, order, entries: &mut *list });
    list.sort_unstable();
    let last = at - 1;
    let mut limit = list[last].key();
    while at < n {
        at = level.run(Below { x, from: at, order, limit });
        let end = n.min(at + GROUP);
        for (i, value) in x[at..end].iter().enumerate() {
            let key = value.sort_key(order);
            if key < limit {
                let (entry, mut place) = (V::Entry::new(key, first + at + i), last);
                while place > 0 && list[place - 1] > entry {
                    list[place] = list[place - 1];
                    place -= 1;
                }
                list[place] = entry;
                limit = list[last].key();
            }
        }
        at = end;
    }
}

/// Values of a row of which each is put in its place: the loops over vectors would take longer to
/// start.
const SHORT: usize = 32;

/// The first few of a short row, in order.
fn short<V: Value>(x: &[V], first: usize, order: Order, list: &mut [V::Entry]) {
    let mut len = 0;
    for (i, value) in x.iter().enumerate() {
        let entry = V::Entry::new(value.sort_key(order), first + i);
        let mut place = len.min(list.len() - 1);
        if len < list.len() {
            len += 1;
        } else if entry > list[place] {
            continue;
        }
        while place > 0 && list[place - 1] > entry {
            list[place] = list[place - 1];
            place -= 1;
        }
        list[place] = entry;
    }
}

/// Moves the first `k` of `x`, whose positions begin at `first`, to the front of `list`, in any
/// order; true if they are in order. The list has room for [`candidates`].
pub(super) fn select<V: Value>(
    level: Level,
    x: &[V],
    first: usize,
    k: usize,
    order: Order,
    list: &mut [V::Entry],
) -> bool {
    if 0 < k && k <= MAX_SELECTED && k < x.len() {
        match x.len() <= SHORT {
            true => short(x, first, order, &mut list[..k]),
            false => few(level, x, first, order, &mut list[..k]),
        }
        return true;
    }
    let (n, most) = (x.len(), candidates(x.len(), k));
    level.run(Fill { x: &x[..most], first, order, entries: &mut list[..most] });
    if k == 0 || k >= most {
        return false;
    }
    list[..most].select_nth_unstable(k - 1);
    let (mut len, mut at) = (k, most);
    let mut limit = list[k - 1].key();
    while at < n {
        at = level.run(Below { x, from: at, order, limit });
        let end = n.min(at + GROUP);
        for (i, value) in x[at..end].iter().enumerate() {
            let key = value.sort_key(order);
            if key < limit {
                list[len] = Entry::new(key, first + at + i);
                len += 1;
                if len == most {
                    list[..most].select_nth_unstable(k - 1);
                    (len, limit) = (k, list[k - 1].key());
                }
            }
        }
        at = end;
    }
    if len > k {
        list[..len].select_nth_unstable(k - 1);
    }
    false
}
