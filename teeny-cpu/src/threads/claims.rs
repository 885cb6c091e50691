//! The chunks of a job that no thread has claimed, as one number that threads exchange.

use std::ops::Range;

/// Generations are numbers of 32 bits.
const GENERATION: u64 = u32::MAX as u64;
/// The most chunks of a job.
pub(super) const MAX_CHUNKS: usize = u16::MAX as usize;

/// The number of a job and its chunks that no thread has claimed, `first .. end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unclaimed {
    pub generation: u64,
    first: u16,
    end: u16,
}

impl Unclaimed {
    /// All chunks of the job after `generation`.
    pub fn all(generation: u64, chunks: usize) -> Unclaimed {
        Unclaimed { generation: (generation + 1) & GENERATION, first: 0, end: chunks as u16 }
    }

    /// generation << 32 | first << 16 | end.
    pub fn bits(self) -> u64 {
        self.generation << 32 | u64::from(self.first) << 16 | u64::from(self.end)
    }

    pub fn of(bits: u64) -> Unclaimed {
        Unclaimed { generation: bits >> 32, first: (bits >> 16) as u16, end: bits as u16 }
    }

    pub fn is_empty(self) -> bool {
        self.first >= self.end
    }

    /// One of `threads` threads claims chunks from the front or the back. Returns the chunks that
    /// are left and those that were claimed: a quarter of the thread's share, so that threads end
    /// together and claims are few.
    pub fn claim(self, front: bool, threads: usize) -> Option<(Unclaimed, Range<usize>)> {
        if self.is_empty() {
            return None;
        }
        let Unclaimed { generation, first, end } = self;
        let count = (usize::from(end - first) / (4 * threads)).max(1) as u16; // at most 65,535
        Some(if front {
            let next = first + count;
            (Unclaimed { generation, first: next, end }, first.into()..next.into())
        } else {
            let next = end - count;
            (Unclaimed { generation, first, end: next }, next.into()..end.into())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_cover_all_chunks_once_and_become_smaller() {
        for threads in [1, 2, 3, 16, 64, 1000] {
            for chunks in [1, 2, 7, 64, 1000, MAX_CHUNKS] {
                let mut left = Unclaimed::all(u32::MAX.into(), chunks);
                assert_eq!((left.generation, left), (0, Unclaimed::of(left.bits())));
                let (mut seen, mut last, mut front) = (vec![0u8; chunks], usize::MAX, true);
                while let Some((next, claimed)) = left.claim(front, threads) {
                    assert!(claimed.len() <= last && !claimed.is_empty());
                    last = claimed.len();
                    claimed.for_each(|c| seen[c] += 1);
                    (left, front) = (Unclaimed::of(next.bits()), !front);
                }
                assert!(left.is_empty() && seen.iter().all(|&n| n == 1), "{threads} {chunks}");
                assert_eq!(last, 1, "threads end together");
            }
        }
    }
}
