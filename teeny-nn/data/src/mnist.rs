//! MNIST: 60,000 + 10,000 images of handwritten digits, 28x28, and their labels, from the four IDX
//! files.
//!
//! Pixels are bytes in host memory; [`super::DataLoader`] makes the tensors of one batch at a time.
//! The caller provides the files.
//!
//! Source: Y. LeCun, C. Cortes, C. Burges, *The MNIST database of handwritten digits*, 1998.

use super::dataset::{Dataset, require_items};
use super::idx;
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use teeny_core::context::enter;
use teeny_core::{DType, DeviceRef, Error, Result, Tensor, ToDevice};

/// The files of MNIST in the order train images, train labels, test images, test labels; each may
/// also end in `.gz`.
pub const FILES: [&str; 4] = [
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
];

/// Grey images of one size, each with a class.
///
/// Shapes: `pixels` (N, height, width) row-major, `labels` (N).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Images {
    /// 0 is paper, 255 is ink.
    pub pixels: Vec<u8>,
    /// The digit in each image.
    pub labels: Vec<u8>,
    /// Rows of one image.
    pub height: usize,
    /// Columns of one image.
    pub width: usize,
}

/// A training part and a test part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mnist {
    /// The training images.
    pub train: Images,
    /// The test images.
    pub test: Images,
}

impl Images {
    /// Pairs images with labels.
    ///
    /// # Errors
    /// If `images` is not (N, height, width), `labels` is not (N), or a label is 10 or more.
    #[track_caller]
    pub fn new(images: idx::Idx, labels: idx::Idx) -> Result<Images> {
        let _op = enter("Images::new");
        let &[n, height, width] = images.sizes.as_slice() else {
            return Err(Error::format(format!(
                "images must have sizes [count, height, width], found {:?}",
                images.sizes
            ))
            .help("the name of a file with images contains \"images\""));
        };
        if labels.sizes != [n] {
            return Err(Error::format(format!(
                "{n} images need labels of sizes [{n}], found {:?}",
                labels.sizes
            ))
            .help("both files of the same part: train with train, t10k with t10k"));
        }
        if let Some((i, label)) = labels.values.iter().enumerate().find(|(_, label)| **label > 9) {
            return Err(Error::format(format!("labels[{i}] is {label}, but the digits are 0..=9"))
                .help("the labels of another data set?"));
        }
        Ok(Images { pixels: images.values, labels: labels.values, height, width })
    }

    /// The number of images.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there are no images.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// The number of pixels of one image.
    pub fn area(&self) -> usize {
        self.height * self.width
    }

    /// The mean pixel as a fraction of 255; 0.13066 for MNIST's training part.
    pub fn mean(&self) -> f64 {
        let sum: u64 = self.pixels.iter().map(|&p| u64::from(p)).sum();
        sum as f64 / (255.0 * self.pixels.len() as f64)
    }
}

impl Mnist {
    /// Reads the four files of [`FILES`] from folder `dir`, plain or gzipped, or else from the
    /// folder `mnist` in it.
    ///
    /// # Errors
    /// If a file is missing (the error lists the names it tried) or damaged (see [`idx::read`]), or
    /// images and labels do not pair.
    ///
    /// # Example
    /// ```no_run
    /// use teeny_data::mnist::Mnist;
    /// let mnist = Mnist::read("data/mnist")?;
    /// assert_eq!(mnist.train.len(), 60_000);
    /// # Ok::<(), teeny_core::Error>(())
    /// ```
    #[track_caller]
    pub fn read(dir: impl AsRef<Path>) -> Result<Mnist> {
        let _op = enter("Mnist::read");
        let below = dir.as_ref().join("mnist");
        let dir = if below.is_dir() && find(dir.as_ref(), FILES[0]).is_err() {
            &below
        } else {
            dir.as_ref()
        };
        let part = |images: &str, labels: &str| -> Result<Images> {
            let (images, labels) = (find(dir, images)?, find(dir, labels)?);
            Images::new(idx::read(&images)?, idx::read(&labels)?)
                .map_err(|e| e.named(format!("read {images:?} with {labels:?}")))
        };
        let (train, test) = (part(FILES[0], FILES[1])?, part(FILES[2], FILES[3])?);
        if (train.height, train.width) != (test.height, test.width) {
            let text = format!(
                "training images are {}x{}, test images {}x{}",
                train.height, train.width, test.height, test.width
            );
            return Err(Error::format(text).named(format!("read MNIST from {dir:?}")));
        }
        Ok(Mnist { train, test })
    }
}

/// The path of `name` or `name.gz` in `dir`.
fn find(dir: &Path, name: &str) -> Result<PathBuf> {
    let candidates = [dir.join(name), dir.join(format!("{name}.gz"))];
    candidates.iter().find(|path| path.is_file()).cloned().ok_or_else(|| {
        let why =
            if dir.is_dir() { "the folder has neither of them" } else { "there is no such folder" };
        Error::io(format!("no {name} or {name}.gz in {dir:?}: {why}"))
            .named("read MNIST")
            .note(format!("needed: {}, each plain or .gz", FILES.join(", ")))
            .help("without --data the example `mnist` downloads them, or uses built-in digits")
    })
}

/// [`Images`] with batches on a device: pixels / 255 as `F32`, labels as `I32`.
///
/// [`Images::on`] borrows the images. A loader that is stored in a struct or shared by threads owns
/// them: [`Images::into_batches`].
pub struct ImageBatches<'a> {
    images: Cow<'a, Images>,
    device: DeviceRef,
}

impl Images {
    /// This data set with batches on `device`: pixels (B, height x width) in 0..=1, labels (B).
    pub fn on(&self, device: impl ToDevice) -> ImageBatches<'_> {
        ImageBatches { images: Cow::Borrowed(self), device: device.to_device() }
    }

    /// [`Images::on`] that owns the images.
    pub fn into_batches(self, device: impl ToDevice) -> ImageBatches<'static> {
        ImageBatches { images: Cow::Owned(self), device: device.to_device() }
    }
}

impl Dataset for ImageBatches<'_> {
    type Batch = (Tensor, Tensor);

    fn len(&self) -> usize {
        self.images.len()
    }

    fn batch(&self, indices: &[usize], _epoch: u64) -> Result<(Tensor, Tensor)> {
        let area = self.images.area();
        require_items(indices, self.len())?;
        // uploads bytes, a quarter of the size of floats; the division is one pass on the device
        let mut pixels = Vec::with_capacity(indices.len() * area);
        indices
            .iter()
            .for_each(|&i| pixels.extend_from_slice(&self.images.pixels[i * area..(i + 1) * area]));
        let labels: Vec<i32> = indices.iter().map(|&i| i32::from(self.images.labels[i])).collect();
        // (B, area)
        let x = Tensor::from_vec(pixels, (indices.len(), area), &self.device)?.div(255.0)?;
        debug_assert_eq!(x.dtype(), DType::F32);
        Ok((x, Tensor::from_vec(labels, (indices.len(),), &self.device)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_files_are_named_with_a_way_out() {
        let error = Mnist::read("/nowhere/at/all").unwrap_err().to_string();
        let place =
            ": no train-images-idx3-ubyte or train-images-idx3-ubyte.gz in \"/nowhere/at/all\"";
        assert!(error.starts_with("read MNIST at ") && error.contains(place), "{error}");
        assert!(
            error.contains("there is no such folder")
                && error.contains("t10k-labels-idx1-ubyte")
                && error.contains("help:"),
            "{error}"
        );
    }

    #[test]
    fn a_folder_of_files_is_read_plain_or_gzipped_and_must_agree() {
        let dir = std::env::temp_dir().join(format!("teeny-folder-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let write = |name: &str, sizes: &[usize]| {
            let mut bytes = Vec::new();
            idx::write(&mut bytes, sizes, &vec![3; sizes.iter().product()]).unwrap();
            std::fs::write(dir.join(name), bytes).unwrap();
        };
        for (name, sizes) in FILES.iter().zip([&[4, 2, 3][..], &[4], &[2, 2, 3], &[2]]) {
            write(name, sizes);
        }
        // the name of a file does not decide its format
        std::fs::rename(dir.join(FILES[1]), dir.join(format!("{}.gz", FILES[1]))).unwrap();
        let mnist = Mnist::read(&dir).unwrap();
        assert_eq!((mnist.train.len(), mnist.test.len(), mnist.train.area()), (4, 2, 6));
        write(FILES[2], &[2, 5, 3]);
        assert!(
            Mnist::read(&dir)
                .unwrap_err()
                .to_string()
                .contains("training images are 2x3, test images 5x3")
        );
        write(FILES[3], &[3]);
        assert!(
            Mnist::read(&dir)
                .unwrap_err()
                .to_string()
                .contains("2 images need labels of sizes [2], found [3]")
        );
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn the_folder_may_hold_other_data_sets_beside_mnist() {
        let dir = std::env::temp_dir().join(format!("teeny-datasets-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("mnist")).unwrap();
        for (name, sizes) in FILES.iter().zip([&[4, 2, 3][..], &[4], &[2, 2, 3], &[2]]) {
            let mut bytes = Vec::new();
            idx::write(&mut bytes, sizes, &vec![3; sizes.iter().product()]).unwrap();
            std::fs::write(dir.join("mnist").join(name), bytes).unwrap();
        }
        assert_eq!(Mnist::read(&dir).unwrap(), Mnist::read(dir.join("mnist")).unwrap());
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn images_and_labels_must_pair() {
        let images = |n| idx::Idx { sizes: vec![n, 2, 2], values: vec![0; 4 * n] };
        let labels =
            |values: &[u8]| idx::Idx { sizes: vec![values.len()], values: values.to_vec() };
        assert!(Images::new(images(2), labels(&[1, 2])).is_ok());
        assert_eq!(
            Images::new(images(2), labels(&[1])).unwrap_err().message(),
            "2 images need labels of sizes [2], found [1]"
        );
        assert_eq!(
            Images::new(images(1), labels(&[10])).unwrap_err().message(),
            "labels[0] is 10, but the digits are 0..=9"
        );
        assert!(Images::new(labels(&[1]), labels(&[1])).is_err());
    }

    #[test]
    fn mnist_has_its_published_size_and_mean() {
        let Some(dir) = std::env::var_os("TEENY_DATA") else {
            eprintln!(
                "SKIPPED mnist_has_its_published_size_and_mean: TEENY_DATA names no MNIST folder"
            );
            return;
        };
        let mnist = Mnist::read(dir).unwrap();
        assert_eq!((mnist.train.len(), mnist.test.len()), (60_000, 10_000));
        assert_eq!((mnist.train.height, mnist.train.width), (28, 28));
        assert!((mnist.train.mean() - 0.13066).abs() < 5e-6, "mean {}", mnist.train.mean());
    }
}
