//! Random sizes of the kind that models have: stages of published networks at several batches and
//! images or sequences, and log-uniform shapes.

/// A stream of random numbers (splitmix64, Steele, Lea & Flood 2014).
pub(super) struct Draw(u64);

/// The channels of a stage and the number that divides the image's side.
type Stage = (usize, usize);

/// Stages of networks for images.
const STAGES: &[&[Stage]] = &[
    &[(64, 4), (128, 8), (256, 16), (512, 32)], // ResNet-18 and 34
    &[(256, 4), (512, 8), (1024, 16), (2048, 32)], // ResNet-50, outputs of blocks
    &[(64, 1), (128, 2), (256, 4), (512, 8), (512, 16)], // VGG-16
    &[(32, 2), (96, 4), (144, 8), (192, 16), (576, 16), (960, 32)], // MobileNetV2
    &[(32, 2), (96, 4), (240, 8), (480, 16), (672, 16), (1152, 32)], // EfficientNet-B0
    &[(96, 4), (192, 8), (384, 16), (768, 32)], // ConvNeXt and Swin, tiny
    &[(256, 4), (128, 4), (512, 8), (256, 16), (1024, 32)], // DenseNet-121
    &[(32, 1), (64, 2), (128, 4), (256, 8), (512, 16)], // U-Net of half width
    &[(6, 1), (16, 2), (32, 1), (64, 2)],       // LeNet and networks for MNIST
    &[(512, 8), (256, 4), (128, 2), (64, 1), (3, 1)], // DCGAN, generator
];

/// Sides of images.
const SIDES: &[usize] = &[28, 32, 64, 96, 128, 160, 192, 224, 256];

/// Hidden size, heads, size of the feed-forward layer, vocabulary or classes.
pub(super) type Width = [usize; 4];

/// Transformers.
pub(super) const TRANSFORMERS: &[Width] = &[
    [768, 12, 3072, 30522],  // BERT-base
    [768, 12, 3072, 50257],  // GPT-2
    [768, 12, 3072, 1000],   // ViT-B
    [384, 6, 1536, 1000],    // ViT-S
    [192, 3, 768, 1000],     // ViT-Ti
    [384, 12, 1536, 30522],  // MiniLM
    [384, 6, 1536, 65],      // nanoGPT on characters
    [512, 8, 2048, 32128],   // T5-small
    [128, 2, 512, 30522],    // BERT-tiny
    [384, 6, 1536, 51865],   // Whisper-tiny
    [576, 9, 1536, 49152],   // SmolLM-135M
    [1024, 16, 4096, 50257], // GPT-2 medium
];

/// The most elements of a tensor.
pub(super) const MAX_ELEMENTS: usize = 4 << 20;

impl Draw {
    /// The stream of case `number` under `seed`.
    pub(super) fn new(seed: u64, number: usize) -> Draw {
        let mut draw = Draw(seed ^ 0x7465_656E_7953_7765);
        draw.0 = draw.bits() ^ (number as u64).wrapping_mul(0xD134_2543_DE82_EF95);
        draw
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in `0..n`.
    pub(super) fn below(&mut self, n: usize) -> usize {
        (((self.bits() >> 32) * n as u64) >> 32) as usize
    }

    /// True with this probability.
    pub(super) fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }

    fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / 9_007_199_254_740_992.0
    }

    /// One of `items`.
    pub(super) fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    /// A number in `low..=high` whose logarithm is uniform.
    pub(super) fn log(&mut self, low: usize, high: usize) -> usize {
        let (a, b) = ((low as f64).ln(), (high as f64 + 1.0).ln());
        ((a + (b - a) * self.unit()).exp() as usize).clamp(low, high)
    }

    /// The largest batch up to a random one for which `per_item` elements are not too many.
    pub(super) fn batch(&mut self, per_item: usize) -> usize {
        self.log(1, 64).min(MAX_ELEMENTS / per_item.max(1)).max(1)
    }

    /// Channels and side of a stage of a network for images.
    pub(super) fn stage(&mut self) -> (usize, usize) {
        let stages = self.pick(STAGES);
        let (channels, divisor) = self.pick(stages);
        let side = self.pick(SIDES);
        (channels, (side / divisor).max(1))
    }

    /// (N, C, H, W)
    pub(super) fn images(&mut self) -> Vec<usize> {
        let (channels, side) = self.stage();
        vec![self.batch(channels * side * side), channels, side, side]
    }

    /// (B, T, C) of a transformer: hidden or feed-forward size.
    pub(super) fn sequences(&mut self) -> Vec<usize> {
        let width = self.pick(TRANSFORMERS);
        let (channels, length) = (width[if self.chance(0.3) { 2 } else { 0 }], self.length());
        vec![self.batch(channels * length), length, channels]
    }

    /// The length of a sequence.
    pub(super) fn length(&mut self) -> usize {
        if self.chance(0.5) {
            self.pick(&[16, 32, 49, 64, 77, 128, 196, 197, 256, 384, 512, 1024])
        } else {
            self.log(8, 1024)
        }
    }

    /// A matrix: rows of features, few long rows, many narrow ones.
    pub(super) fn matrix(&mut self) -> Vec<usize> {
        match self.below(4) {
            0 => {
                let columns = self.pick(TRANSFORMERS)[3];
                vec![self.log(1, (MAX_ELEMENTS / columns).min(256)), columns]
            }
            1 => {
                let columns = self.log(2, 32);
                vec![self.log(64, MAX_ELEMENTS / columns), columns]
            }
            2 => {
                let rows = self.log(1, 32);
                vec![rows, self.log(64, MAX_ELEMENTS / rows)]
            }
            _ => {
                let columns = self.log(16, 8192);
                vec![self.log(1, MAX_ELEMENTS / columns), columns]
            }
        }
    }

    /// One to four axes with log-uniform sizes.
    pub(super) fn any(&mut self) -> Vec<usize> {
        let ndim = 1 + self.below(4);
        let mut left = self.log(16, MAX_ELEMENTS);
        let mut shape: Vec<usize> = (1..ndim)
            .map(|_| {
                let size = self.log(1, left.min(512));
                left = (left / size).max(1);
                size
            })
            .collect();
        let at = self.below(ndim);
        shape.insert(at, left);
        shape
    }

    /// The shape of an activation.
    pub(super) fn activation(&mut self) -> Vec<usize> {
        match self.below(10) {
            0..3 => self.images(),
            3..6 => self.sequences(),
            6..8 => self.matrix(),
            _ => self.any(),
        }
    }
}
