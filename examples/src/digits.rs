//! Networks for images of digits, how each of them is trained by default, and the options that
//! change that.

use crate::options::{about, any, at_least_one, positive, training_dtype};
use crate::ranks::Distributed;
use crate::training::Length;
use crate::{Opt, Ranks, opt};
use std::fmt;
use teeny_autograd::no_grad;
use teeny_core::{DType, DeviceRef, Error, Result, Tensor};
use teeny_nn::data::mnist::Images;
use teeny_nn::data::{DataLoader, Dataset, ImageBatches};
use teeny_nn::optim::{Adam, AdamW, Optimizer, Sgd};
use teeny_nn::train;
use teeny_nn::{
    Activation, BatchNorm, Conv2d, Dropout, Flatten, Init, Linear, LinearOptions, MaxPool2d,
    Module, Sequential, Store,
};

/// A network for images of digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arch {
    /// A perceptron 784-128-10.
    #[default]
    Mlp,
    /// Four convolutions with batch normalisation, 87,850 parameters: tinygrad's `beautiful_mnist`.
    Cnn,
    /// Two convolutions of 8 and 16 channels, 5,258 parameters.
    Small,
    /// `Small` with batch normalisation after each convolution.
    SmallBn,
    /// Two convolutions of 32 and 64 channels and dropout, 34,826 parameters: the "simple MNIST
    /// convnet" of Keras' documentation.
    Keras,
}

/// The default settings of a network's training.
#[derive(Clone, Copy, Debug)]
struct Recipe {
    /// Images per step.
    batch: usize,
    lr: f64,
    /// The length of the run; without, it depends on the size of the data.
    steps: Option<u64>,
}

/// The network and the settings of its training: `--arch`, and `--epochs`, `--steps`, `--batch` and
/// `--lr` where they differ from the network's defaults.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// The network.
    pub arch: Arch,
    /// The ranks that train together.
    pub ranks: Distributed,
    pub(crate) length: Length,
    batch: Option<usize>,
    lr: Option<f64>,
    dtype: Option<DType>,
}

/// The table of these options.
#[rustfmt::skip]
pub const OPTIONS: [Opt<Options>; 9] = [
    opt("arch NAME", "mlp: 784-128-10 by SGD;
cnn: four convolutions with batch normalisation by Adam;
small: two of 8 and 16 channels by Adam;
small-bn: with batch normalisation, by AdamW;
keras: Keras' simple convnet [mlp]",
        |o, v| v.with(&mut o.arch, Arch::named)),
    opt("epochs N", "passes over the training data [mlp 5; for the small built-in data 40]",
        |o, v| o.length.set(Length::Epochs(v.get(any)?))),
    opt("steps N", "steps instead of epochs [cnn 70, small 100, small-bn 200, keras 1000]",
        |o, v| o.length.set(Length::Steps(v.get(any)?))),
    opt("batch N", "images per step [mlp 64, cnn 512, others 128]",
        |o, v| v.with(&mut o.batch, at_least_one)),
    opt("lr X", "learning rate [mlp 0.4, small and small-bn 0.01, cnn and keras 0.001]",
        |o, v| v.with(&mut o.lr, positive)),
    opt("dtype NAME", "of weights and activations: f32, or bf16 with f32 copies of weights [f32]",
        |o, v| v.with(&mut o.dtype, training_dtype)),
    about("data DIR", "folder with MNIST's four files; `builtin` for the built-in digits
[TEENY_DATA, else an earlier download, else a download, else builtin]"),
    opt("distributed", "train on the ranks that mpirun starts, each on a part of every batch",
        |o, _| o.ranks.enable()),
    opt("rank-timeout X", "seconds after which a rank without a sign of life has failed [60]",
        |o, v| v.with(&mut o.ranks.timeout, positive)),
];

impl Options {
    /// Images per step.
    pub fn batch(&self) -> usize {
        self.batch.unwrap_or(self.arch.recipe().batch)
    }

    /// The learning rate.
    pub fn lr(&self) -> f64 {
        self.lr.unwrap_or(self.arch.recipe().lr)
    }

    /// The type of weights and activations.
    pub fn dtype(&self) -> DType {
        self.dtype.unwrap_or(DType::F32)
    }

    /// The length of the run in steps.
    pub fn steps(&self, loader: &DataLoader<ImageBatches<'_>>) -> u64 {
        // small data needs more epochs for as many steps
        let epochs = if loader.dataset().len() < 10_000 { 40 } else { 5 };
        let batches = loader.batches() as u64;
        match (self.length, self.arch.recipe().steps) {
            (Length::Steps(steps), _) | (Length::Default, Some(steps)) => steps,
            (Length::Epochs(epochs), _) => epochs * batches,
            (Length::Default, None) => epochs * batches,
        }
    }
}

impl Arch {
    /// All networks.
    pub const ALL: [Arch; 5] = [Arch::Mlp, Arch::Cnn, Arch::Small, Arch::SmallBn, Arch::Keras];

    /// The network called `name`.
    ///
    /// # Errors
    /// If the network does not exist; the error lists the names.
    pub fn named(name: &str) -> std::result::Result<Arch, String> {
        let known = || Arch::ALL.map(|arch| arch.to_string()).join(", ");
        Arch::ALL
            .into_iter()
            .find(|arch| arch.to_string() == name)
            .ok_or_else(|| format!("--arch is one of {}, not {name}", known()))
    }

    /// The default settings of its training.
    fn recipe(self) -> Recipe {
        match self {
            Arch::Mlp => Recipe { batch: 64, lr: 0.4, steps: None },
            Arch::Cnn => Recipe { batch: 512, lr: 1e-3, steps: Some(70) },
            Arch::Small => Recipe { batch: 128, lr: 1e-2, steps: Some(100) },
            Arch::SmallBn => Recipe { batch: 128, lr: 1e-2, steps: Some(200) },
            Arch::Keras => Recipe { batch: 128, lr: 1e-3, steps: Some(1000) },
        }
    }

    /// The optimizer of the parameters in `store`, at learning rate `lr`.
    pub fn optimizer(self, store: &Store, lr: f64) -> Box<dyn Optimizer> {
        match self {
            Arch::Mlp => Box::new(Sgd::new(store.trainable(), lr).master_weights(true)),
            Arch::Cnn | Arch::Small | Arch::Keras => {
                Box::new(Adam::new(store.trainable(), lr).master_weights(true))
            }
            Arch::SmallBn => Box::new(AdamW::new(store.trainable(), lr).master_weights(true)),
        }
    }

    /// The network for images of (height, width).
    ///
    /// Shapes: (N, height * width) → (N, 10).
    ///
    /// # Errors
    /// If the images are too small for it.
    pub fn build(self, store: &Store, (height, width): (usize, usize)) -> Result<Sequential> {
        // (N, 1, 28, 28)
        let image = move |x: &Tensor| x.reshape([-1, 1, height as isize, width as isize]);
        let conv = |name: &str, inputs, outputs, kernel| {
            Conv2d::new(&store.at(name), inputs, outputs, kernel)
        };
        let norm = |name: &str, channels| BatchNorm::new(&store.at(name), channels);
        let relu = Activation::Relu;
        let pool = || MaxPool2d::new(2);
        // the size of an axis after convolutions with `kernels` without padding and a pooling by 2
        let after = |size: usize, kernels: &[usize]| {
            (size + kernels.len())
                .checked_sub(kernels.iter().sum())
                .map(|rest| rest / 2)
                .unwrap_or(0)
        };
        // the number of pixels after two such stages
        let area_after = |stages: [&[usize]; 2]| -> Result<usize> {
            let area = [height, width]
                .map(|size| stages.iter().fold(size, |size, kernels| after(size, kernels)))
                .iter()
                .product();
            if area == 0 {
                return Err(Error::value(format!(
                    "images of {height} x {width} are too small for --arch {self}"
                )));
            }
            Ok(area)
        };
        let head = |features| Linear::new(&store.at("fc"), features, 10);
        let net = match self {
            Arch::Mlp => {
                let options = LinearOptions::new()
                    .with_weight_init(Init::Normal { mean: 0.0, std: 0.02 })
                    .with_bias_init(Init::ZEROS);
                let linear = |name, inputs, outputs| {
                    Linear::with_options(&store.at(name), inputs, outputs, options)
                };
                Sequential::new()
                    .then(linear("fc1", height * width, 128)?)
                    .then(relu)
                    .then(linear("fc2", 128, 10)?)
            }
            // pixels from 0 to 255, as in the original: the running variances, which begin at 1,
            // then soon reach the data's
            Arch::Cnn => Sequential::new()
                .then(move |x: &Tensor| image(&x.mul(255.0)?)) // (N, 1, 28, 28)
                .then(conv("conv1", 1, 32, 5)?) // (N, 32, 24, 24)
                .then(relu)
                .then(conv("conv2", 32, 32, 5)?) // (N, 32, 20, 20)
                .then(relu)
                .then(norm("bn1", 32)?)
                .then(pool()) // (N, 32, 10, 10)
                .then(conv("conv3", 32, 64, 3)?) // (N, 64, 8, 8)
                .then(relu)
                .then(conv("conv4", 64, 64, 3)?) // (N, 64, 6, 6)
                .then(relu)
                .then(norm("bn2", 64)?)
                .then(pool()) // (N, 64, 3, 3)
                .then(Flatten)
                .then(head(64 * area_after([&[5, 5], &[3, 3]])?)?),
            Arch::Small | Arch::SmallBn => {
                let mut net = Sequential::new().then(image);
                for (i, (inputs, outputs)) in [(1, 8), (8, 16)].into_iter().enumerate() {
                    // (N, 8, 26, 26), then (N, 16, 11, 11)
                    net = net.then(conv(&format!("conv{}", i + 1), inputs, outputs, 3)?);
                    if self == Arch::SmallBn {
                        net = net.then(norm(&format!("bn{}", i + 1), outputs)?);
                    }
                    net = net.then(relu).then(pool()); // (N, 8, 13, 13), then (N, 16, 5, 5)
                }
                net.then(Flatten).then(head(16 * area_after([&[3], &[3]])?)?)
            }
            Arch::Keras => Sequential::new()
                .then(image)
                .then(conv("conv1", 1, 32, 3)?) // (N, 32, 26, 26)
                .then(relu)
                .then(pool()) // (N, 32, 13, 13)
                .then(conv("conv2", 32, 64, 3)?) // (N, 64, 11, 11)
                .then(relu)
                .then(pool()) // (N, 64, 5, 5)
                .then(Flatten)
                .then(Dropout::new(&store.root(), 0.5)?)
                .then(head(64 * area_after([&[3], &[3]])?)?),
        };
        let dtype = store.dtype();
        Ok(Sequential::new().then(move |x: &Tensor| x.cast(dtype)).then(net))
    }
}

/// The number of images that a model classifies correctly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accuracy {
    /// The number of images whose largest logit belongs to their digit.
    pub correct: usize,
    /// The number of images.
    pub total: usize,
}

impl Accuracy {
    /// Evaluates `model` on `images`, each rank on a part of them.
    ///
    /// # Errors
    /// If the model, the device or a rank fails.
    pub fn of(
        model: &impl Module,
        images: &Images,
        device: &DeviceRef,
        ranks: &Ranks,
    ) -> Result<Accuracy> {
        let correct = no_grad(|| {
            let (part, parts) = ranks.part();
            let loader = DataLoader::new(images.on(device), 1000)?.shard(part, parts)?;
            loader.epoch(0).try_fold(0, |correct, batch| {
                let (x, targets) = batch?; // (1000 / ranks, 784), (1000 / ranks)
                Ok::<_, Error>(correct + train::accuracy(&model.forward(&x)?, &targets)?)
            })
        })?;
        let correct = ranks.sum(&[correct as f64])?[0] as usize;
        Ok(Accuracy { correct, total: images.len() })
    }

    /// The share of correct answers in percent.
    pub fn percent(&self) -> f64 {
        100.0 * self.correct as f64 / self.total as f64
    }
}

/// `97.61 % (9761 of 10000)`
impl fmt::Display for Accuracy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} % ({} of {})", self.percent(), self.correct, self.total)
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Arch::Mlp => "mlp",
            Arch::Cnn => "cnn",
            Arch::Small => "small",
            Arch::SmallBn => "small-bn",
            Arch::Keras => "keras",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use teeny_core::DType;
    use teeny_nn::device::device;

    #[test]
    fn the_networks_have_the_parameters_they_are_known_for() {
        for (arch, parameters) in Arch::ALL.into_iter().zip([101_770, 87_850, 5_258, 5_306, 34_826])
        {
            let store = Store::new(device("cpu").unwrap());
            let model = arch.build(&store, (28, 28)).unwrap();
            assert_eq!(store.count(), parameters, "{arch}");
            let y = model
                .forward(&Tensor::ones((2, 784), DType::F32, store.device()).unwrap())
                .unwrap();
            assert_eq!(*y.shape(), [2, 10]);
            assert_eq!(Arch::named(&arch.to_string()), Ok(arch));
        }
        assert!(
            Arch::named("rnn").unwrap_err().contains("mlp, cnn, small, small-bn, keras, not rnn")
        );
    }

    #[test]
    fn images_that_are_too_small_are_refused() {
        let error = Arch::Cnn
            .build(&Store::new(device("cpu").unwrap()), (28, 12))
            .err()
            .expect("an error")
            .to_string();
        assert!(error.contains("images of 28 x 12 are too small for --arch cnn"), "{error}");
    }
}
