//! An estimate of the time that a loop takes, from which the number of threads and the length of
//! their ranges follow.
//!
//! The naive form is one constant, "16 K elements", for all loops: a cast of bytes is then split
//! when it takes 0.5 us, and a power of 16 K elements waits 300 us for a second thread. Here a loop
//! states what one item costs, in bytes moved and operations by class, and [`Cost::range`] answers
//! how many items make a range. It is a pure function of the sizes: it knows neither the number of
//! threads nor the time of day, so a partition based on it does not depend on them. The figures are
//! of one core at 3.5 GHz with vectors of 32 bytes; an error by a factor of two costs some hundred
//! nanoseconds. Next: `threads`.

/// Picoseconds for a byte that is read or written: 100 GB/s, a stream within the last cache.
const BYTE: u64 = 10;
/// Picoseconds for one f32 (or 32 bits) of each class.
const ARITHMETIC: u64 = 40;
const DIVISION: u64 = 200;
const FUNCTION: u64 = 400;
const STEP: u64 = 1_000;
const CALL: u64 = 8_000;

/// The shortest range, in nanoseconds: claiming one takes 0.1 us, and a worker that spins begins
/// 0.2 to 0.5 us after the call.
const RANGE: u64 = 1_000;
/// The time from which a loop is shared, in nanoseconds: a worker that sleeps takes longer to wake
/// than a shorter loop.
const SHARED: u64 = 4 * RANGE;

/// The estimated cost of one item of a loop. Memory and computation overlap: the longer counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cost {
    /// Picoseconds of memory traffic.
    memory: u64,
    /// Picoseconds of computation.
    compute: u64,
}

impl Cost {
    /// An item that reads and writes `n` bytes in all, mostly in order.
    pub(crate) const fn bytes(n: usize) -> Cost {
        Cost { memory: (n as u64).saturating_mul(BYTE), compute: 0 }
    }

    const fn and(self, picoseconds: u64, n: usize) -> Cost {
        let compute = self.compute.saturating_add(picoseconds.saturating_mul(n as u64));
        Cost { memory: self.memory, compute }
    }

    /// Also `n` vectorised additions, products, comparisons, conversions or moves of 32 bits.
    pub(crate) const fn arithmetic(self, n: usize) -> Cost {
        self.and(ARITHMETIC, n)
    }

    /// Also `n` vectorised divisions or square roots of 32 bits.
    pub(crate) const fn divisions(self, n: usize) -> Cost {
        self.and(DIVISION, n)
    }

    /// Also `n` vectorised functions of f32, such as exp.
    pub(crate) const fn functions(self, n: usize) -> Cost {
        self.and(FUNCTION, n)
    }

    /// Also `n` steps that are not vectorised: an element by itself, an access out of order, an
    /// addition that waits for the one before.
    pub(crate) const fn steps(self, n: usize) -> Cost {
        self.and(STEP, n)
    }

    /// Also `n` calls of a function of the C library.
    pub(crate) const fn calls(self, n: usize) -> Cost {
        self.and(CALL, n)
    }

    /// The cost of `n` such items: of a row, if this is the cost of an element.
    pub(crate) const fn times(self, n: usize) -> Cost {
        let n = n as u64;
        Cost { memory: self.memory.saturating_mul(n), compute: self.compute.saturating_mul(n) }
    }

    /// Picoseconds of one item, at least 1.
    const fn item(self) -> u64 {
        let longer = if self.memory > self.compute { self.memory } else { self.compute };
        if longer == 0 { 1 } else { longer }
    }

    /// The estimated time of `items` items on one thread, in nanoseconds.
    pub(crate) const fn nanoseconds(self, items: usize) -> u64 {
        self.item().saturating_mul(items as u64) / 1000
    }

    /// Whether a second thread saves time for `items` items.
    pub(crate) const fn is_shared(self, items: usize) -> bool {
        items > 1 && self.nanoseconds(items) >= SHARED
    }

    /// The fewest items that a range of `items` should have: all of them if one thread is faster.
    /// For `threads::for_each_range`, and for partitions that are fixed.
    pub(crate) const fn range(self, items: usize) -> usize {
        if !self.is_shared(items) {
            return if items == 0 { 1 } else { items };
        }
        (RANGE * 1000).div_ceil(self.item()) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_follow_from_bytes_and_operations() {
        let add = Cost::bytes(12).arithmetic(1);
        let exp = Cost::bytes(8).functions(1);
        let pow = Cost::bytes(8).calls(1);
        let bytes = Cost::bytes(2).arithmetic(1);
        for (name, cost, items, range) in [
            // run on one thread
            ("add", add, 0, 1),
            ("add", add, 1, 1),
            ("add", add, 33_000, 33_000),
            ("exp", exp, 9_000, 9_000),
            ("pow", pow, 499, 499),
            ("cast of bytes", bytes, 99_000, 99_000),
            // shared: ranges of a microsecond, for any number of items
            ("add", add, 34_000, 8_334),
            ("add", add, 1 << 24, 8_334),
            ("exp", exp, 10_000, 2_500),
            ("pow", pow, 500, 125),
            ("cast of bytes", bytes, 100_000, 25_000),
            // rows, long and short
            ("rows of 10 sums", Cost::bytes(4).arithmetic(1).times(10), 1 << 20, 2_500),
            ("rows of 1 M sums", Cost::bytes(4).arithmetic(1).times(1 << 20), 8, 1),
            ("one row cannot be shared", Cost::bytes(4).times(1 << 20), 1, 1),
            ("nothing", Cost::bytes(0), 1 << 20, 1 << 20),
        ] {
            assert_eq!(cost.range(items), range, "{items} items of {name}");
        }
    }

    #[test]
    fn a_shared_loop_has_two_ranges_at_least() {
        for picoseconds in [1usize, 7, 40, 999, 123_456, 50_000_000] {
            for items in (1..10_000).step_by(37).chain([1 << 20, 1 << 40]) {
                let cost = Cost::bytes(0).and(picoseconds as u64, 1);
                let range = cost.range(items);
                assert!(range >= 1);
                assert_eq!(cost.is_shared(items), range < items, "{items} of {picoseconds} ps");
                assert!(!cost.is_shared(items) || items.div_ceil(range) >= 2);
            }
        }
    }

    #[test]
    fn costs_do_not_overflow() {
        let cost = Cost::bytes(usize::MAX).calls(usize::MAX).times(usize::MAX);
        assert_eq!(cost.range(2), 1);
        assert_eq!(cost.nanoseconds(usize::MAX), u64::MAX / 1000);
    }
}
