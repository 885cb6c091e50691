//! Networks for images of digits, and how each of them is trained.

use std::fmt;
use teeny_autograd::no_grad;
use teeny_core::{DeviceRef, Error, Result, Tensor};
use teeny_nn::data::DataLoader;
use teeny_nn::data::mnist::Images;
use teeny_nn::optim::{Adam, AdamW, Optimizer, Sgd};
use teeny_nn::train::accuracy;
use teeny_nn::{
    Activation, BatchNorm, Conv2d, Dropout, Flatten, Init, Linear, LinearOptions, MaxPool2d,
    Module, Sequential, Store,
};

/// A network for images of digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arch {
    /// 784-128-10.
    Mlp,
    /// Four convolutions with batch normalisation, 87,850 parameters: tinygrad's `beautiful_mnist`.
    Cnn,
    /// Two convolutions of 8 and 16 channels, 5,258 parameters.
    Small,
    /// The same with batch normalisation after each convolution.
    SmallBn,
    /// Two convolutions of 32 and 64 channels and dropout, 34,826 parameters: the "simple MNIST
    /// convnet" of Keras' documentation.
    Keras,
}

/// How a network is trained unless the command line says otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Recipe {
    /// Images per step.
    pub batch: usize,
    /// Learning rate.
    pub lr: f64,
    /// Steps; passes over the data if there are none.
    pub steps: Option<u64>,
}

impl Arch {
    /// All of them.
    pub const ALL: [Arch; 5] = [Arch::Mlp, Arch::Cnn, Arch::Small, Arch::SmallBn, Arch::Keras];

    /// The one of that name.
    ///
    /// # Errors
    /// If there is none; the error lists those there are.
    pub fn named(name: &str) -> std::result::Result<Arch, String> {
        let known = || Arch::ALL.map(|arch| arch.to_string()).join(", ");
        Arch::ALL
            .into_iter()
            .find(|arch| arch.to_string() == name)
            .ok_or_else(|| format!("--arch is one of {}, not {name}", known()))
    }

    /// How it is trained.
    pub fn recipe(self) -> Recipe {
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
            Arch::Mlp => Box::new(Sgd::new(store.trainable(), lr)),
            Arch::Cnn | Arch::Small | Arch::Keras => Box::new(Adam::new(store.trainable(), lr)),
            Arch::SmallBn => Box::new(AdamW::new(store.trainable(), lr)),
        }
    }

    /// The network for images of (height, width), which it takes flattened: (N, height width) → (N,
    /// 10).
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
        // what convolutions without padding (sizes of their kernels) and a pooling by 2 leave of an
        // axis
        let after = |size: usize, kernels: &[usize]| {
            (size + kernels.len())
                .checked_sub(kernels.iter().sum())
                .map(|rest| rest / 2)
                .unwrap_or(0)
        };
        let left = |stages: [&[usize]; 2]| -> Result<usize> {
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
        Ok(match self {
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
            // pixels as bytes, as the original has them: running variances that begin at 1 are then
            // soon those of the data
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
                .then(head(64 * left([&[5, 5], &[3, 3]])?)?),
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
                net.then(Flatten).then(head(16 * left([&[3], &[3]])?)?)
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
                .then(head(64 * left([&[3], &[3]])?)?),
        })
    }
}

/// How many of `images` the model gets right.
///
/// # Errors
/// If the model or the device fails.
pub fn right(model: &impl Module, images: &Images, device: &DeviceRef) -> Result<usize> {
    no_grad(|| {
        let loader = DataLoader::new(images.on(device), 1000)?;
        loader.epoch(0).try_fold(0, |right, batch| {
            let (x, targets) = batch?; // (1000, 784), (1000)
            Ok(right + accuracy(&model.forward(&x)?, &targets)?)
        })
    })
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
