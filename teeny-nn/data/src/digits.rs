//! 1,797 small digits that are part of the crate, in MNIST's format, for training without a file or
//! a network.
//!
//! They are 8x8 with ink 0..=16, under CC BY 4.0; `data/ATTRIBUTION.md` in this crate names their
//! source. [`load`] enlarges each to 20x20 and centres it in 28x28, as MNIST's digits are. There
//! are far fewer than in MNIST, so accuracies are not comparable.
//!
//! Source: E. Alpaydin, C. Kaynak, *Cascading Classifiers*, Kybernetika 34(4), 1998.

use super::idx;
use super::mnist::{Images, Mnist};
use teeny_core::Result;

const IMAGES: &[u8] = include_bytes!("../data/digits-images-idx3-ubyte.gz");
const LABELS: &[u8] = include_bytes!("../data/digits-labels-idx1-ubyte.gz");

/// The number of training images; the last 360 images are for testing. The file is ordered by
/// writer, so most writers of the test images are not in the training images, as in MNIST.
pub const TRAIN: usize = 1437;

// sides of a stored image, of the enlarged image, and of the image that it is centred in
const SMALL: usize = 8;
const BOX: usize = 20;
const SIDE: usize = 28;

/// The built-in digits as a [`Mnist`] of 1,437 + 360 images of 28x28.
///
/// # Errors
/// None in practice: the files are part of the program.
pub fn load() -> Result<Mnist> {
    let small = idx::from_bytes("built-in digits", IMAGES)?;
    let labels = idx::from_bytes("built-in labels", LABELS)?.values;
    let pixels: Vec<u8> = small.values.chunks_exact(SMALL * SMALL).flat_map(enlarge).collect();
    let part = |from: usize, to: usize| Images {
        pixels: pixels[from * SIDE * SIDE..to * SIDE * SIDE].to_vec(),
        labels: labels[from..to].to_vec(),
        height: SIDE,
        width: SIDE,
    };
    Ok(Mnist { train: part(0, TRAIN), test: part(TRAIN, labels.len()) })
}

/// An 8x8 image of 0..=16 as 28x28 of 0..=255, by bilinear interpolation between pixel centres.
fn enlarge(image: &[u8]) -> [u8; SIDE * SIDE] {
    let margin = (SIDE - BOX) / 2;
    let scale = SMALL as f32 / BOX as f32;
    // for each row or column of the enlarged image: the two stored ones around it, and the weight
    // of the second
    let between: [(usize, usize, f32); BOX] = std::array::from_fn(|i| {
        let at = ((i as f32 + 0.5) * scale - 0.5).clamp(0.0, (SMALL - 1) as f32);
        let low = at as usize;
        (low, (low + 1).min(SMALL - 1), at - low as f32)
    });
    let mut large = [0; SIDE * SIDE];
    for (row, &(top, bottom, v)) in between.iter().enumerate() {
        for (column, &(left, right, u)) in between.iter().enumerate() {
            let ink = |r: usize, c: usize| f32::from(image[r * SMALL + c]);
            let upper = ink(top, left) * (1.0 - u) + ink(top, right) * u;
            let lower = ink(bottom, left) * (1.0 - u) + ink(bottom, right) * u;
            let value = upper * (1.0 - v) + lower * v;
            large[(row + margin) * SIDE + column + margin] = (value * 255.0 / 16.0).round() as u8;
        }
    }
    large
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_digits_have_mnist_form() {
        let digits = load().unwrap();
        assert_eq!((digits.train.len(), digits.test.len()), (1437, 360));
        assert_eq!((digits.train.height, digits.train.width), (28, 28));
        let mut counts = [0; 10];
        digits
            .train
            .labels
            .iter()
            .chain(&digits.test.labels)
            .for_each(|&l| counts[usize::from(l)] += 1);
        // as the source's description lists them
        assert_eq!(counts, [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]);
        assert_eq!(digits.train.pixels.iter().max(), Some(&255));
        assert!(
            digits
                .train
                .pixels
                .chunks_exact(784)
                .all(|image| image[..4 * 28].iter().all(|&p| p == 0)),
            "a margin of four rows"
        );
    }

    #[test]
    fn enlarging_keeps_flat_areas_flat() {
        let full = enlarge(&[16; 64]);
        assert_eq!(full.iter().filter(|&&p| p == 255).count(), 400);
        assert_eq!(full.iter().filter(|&&p| p == 0).count(), 784 - 400);
    }
}
