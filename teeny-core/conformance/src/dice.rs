//! Random choices of one case or graph: a stream that depends on a seed and a number only.

use teeny_core::{MAX_NDIM, Shape};

/// A stream of random numbers (splitmix64, Steele, Lea & Flood 2014).
pub struct Dice {
    state: u64,
}

/// Sizes around vector widths, tiles and blocks: up to 80, then the neighbours of these.
const EDGES: [usize; 8] = [128, 256, 512, 1024, 2048, 4096, 16384, 65536];

impl Dice {
    /// The stream of case `number` under `seed`.
    pub fn new(seed: u64, number: u64) -> Dice {
        let mut dice = Dice { state: seed ^ 0x9E37_79B9_7F4A_7C15 };
        dice.state = dice.bits() ^ number.wrapping_mul(0xD134_2543_DE82_EF95);
        dice.bits();
        dice
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in `0..n`; 0 for an `n` of 0.
    pub fn below(&mut self, n: usize) -> usize {
        (((self.bits() >> 32) * n as u64) >> 32) as usize
    }

    /// A number in `low..=high`.
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// True once in `n`.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// A number in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / 9_007_199_254_740_992.0
    }

    /// One of `items`.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    /// `0..n` in random order.
    pub fn order(&mut self, n: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        for i in (1..n).rev() {
            order.swap(i, self.below(i + 1));
        }
        order
    }

    /// The size of an axis, at most `most`; 0 is rare.
    pub fn size(&mut self, most: usize) -> usize {
        // If `most` allows, sizes reach and exceed the blocks.
        if most > 3_000 && self.one_in(2) {
            let fitting = EDGES.iter().rposition(|&edge| edge < most).unwrap_or(0);
            return EDGES[fitting - self.below(2)] - 1 + self.below(3);
        }
        let size = match self.below(100) {
            0 => 0,
            1..60 => self.between(1, 17),
            60..84 => self.between(1, 80),
            class => {
                let edge = EDGES[[0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 4, 4, 5, 6, 7][class - 84]];
                edge - 1 + self.below(3)
            }
        };
        if size > most { self.between(most.min(1), most) } else { size }
    }

    /// The number of elements that a case may have: small most of the time, so that large ones may
    /// be large.
    pub fn budget(&mut self) -> usize {
        match self.below(1000) {
            0..800 => 300,
            800..960 => 3_000,
            960..995 => 10_000,
            _ => 70_000,
        }
    }

    /// As [`Dice::budget`], for operations that take little time per element.
    pub fn wide_budget(&mut self) -> usize {
        match self.below(100) {
            0..75 => 1_000,
            75..92 => 10_000,
            92..98 => 40_000,
            _ => 200_000,
        }
    }

    /// A shape of `ndim` axes and at most `budget` elements.
    pub fn shape_of(&mut self, ndim: usize, budget: usize) -> Shape {
        let mut sizes = vec![1; ndim];
        let mut rest = budget;
        for axis in self.order(ndim) {
            sizes[axis] = self.size(rest);
            rest /= sizes[axis].max(1);
        }
        Shape::new(&sizes).expect("the sizes are within the budget")
    }

    /// The number of axes of a shape: mostly 1 to 3.
    pub fn ndim(&mut self) -> usize {
        match self.below(100) {
            0..3 => 0,
            3..28 => 1,
            28..60 => 2,
            60..82 => 3,
            82..92 => 4,
            _ => self.between(5, MAX_NDIM),
        }
    }

    /// A shape of at most `budget` elements.
    pub fn shape(&mut self, budget: usize) -> Shape {
        let ndim = self.ndim();
        self.shape_of(ndim, budget)
    }

    /// Some axes of `ndim`, ascending; at least one if there is one.
    pub fn axes(&mut self, ndim: usize) -> Vec<usize> {
        let bits = 1 + self.below((1 << ndim) - 1);
        (0..ndim).filter(|axis| bits >> axis & 1 == 1).collect()
    }
}
