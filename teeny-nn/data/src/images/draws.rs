//! [`Draws`]: the random numbers and rectangles of one item, drawn in sequence.

use teeny_core::Key;
use teeny_core::random::{philox, unit_f64};

/// The random numbers of an item.
pub(super) struct Draws {
    key: Key,
    count: u64,
}

impl Draws {
    pub fn new(key: Key) -> Draws {
        Draws { key, count: 0 }
    }

    /// A number in 0..1.
    pub fn unit(&mut self) -> f64 {
        let [low, high, ..] = philox(self.key, self.count);
        self.count += 1;
        unit_f64(low, high)
    }

    pub fn between(&mut self, [low, high]: [f64; 2]) -> f64 {
        low + self.unit() * (high - low)
    }

    /// A number below `n`, which is not 0.
    pub fn below(&mut self, n: usize) -> usize {
        ((self.unit() * n as f64) as usize).min(n - 1)
    }

    /// The sides of a rectangle of this share of the area of `own` and of this ratio of the first
    /// side to the second, whose logarithm is uniform.
    pub fn rectangle(&mut self, own: [usize; 2], scale: [f64; 2], ratio: [f64; 2]) -> [usize; 2] {
        let area = own[0] as f64 * own[1] as f64 * self.between(scale);
        let ratio = self.between(ratio.map(f64::ln)).exp();
        [area * ratio, area / ratio].map(|x| x.sqrt().round_ties_even() as usize)
    }

    /// A place for a rectangle of this size in `own`, if its sides are 1 to `most`.
    pub fn place(
        &mut self,
        own: [usize; 2],
        size: [usize; 2],
        most: [usize; 2],
    ) -> Option<([usize; 2], [usize; 2])> {
        let fits = |axis: usize| (1..=most[axis]).contains(&size[axis]);
        (fits(0) && fits(1))
            .then(|| ([0, 1].map(|axis| self.below(own[axis] - size[axis] + 1)), size))
    }
}
