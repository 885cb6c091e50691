//! A classifier of handwritten digits that is trained for some milliseconds at a time.

use crate::file;
use std::rc::Rc;
use std::time::Duration;
use teeny_core::clock::Instant;
use teeny_formats::State;
use teeny_nn::LinearOptions;
use teeny_nn::prelude::*;

/// The seed of a run: equal runs have equal losses on every engine, up to rounding.
const SEED: u64 = 1;

/// A network for images of 28 x 28.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arch {
    /// A perceptron 784-128-10 by SGD: 101,770 parameters.
    Mlp,
    /// Two convolutions of 8 and 16 channels by Adam: 5,258 parameters.
    Cnn,
}

impl Arch {
    /// The network called `name`.
    ///
    /// # Errors
    /// If the network does not exist.
    pub fn named(name: &str) -> Result<Arch> {
        match name {
            "mlp" => Ok(Arch::Mlp),
            "cnn" => Ok(Arch::Cnn),
            _ => Err(Error::value(format!("expected network mlp or cnn, got {name:?}"))),
        }
    }

    /// Its name in messages and checkpoints.
    pub fn name(self) -> &'static str {
        match self {
            Arch::Mlp => "mlp",
            Arch::Cnn => "cnn",
        }
    }

    /// Images per step.
    fn batch(self) -> usize {
        match self {
            Arch::Mlp => 64,
            Arch::Cnn => 128,
        }
    }

    /// The parameter whose rows are shown as pictures, and the side of a picture.
    fn first_layer(self) -> (&'static str, usize) {
        match self {
            Arch::Mlp => ("fc1.weight", 28),
            Arch::Cnn => ("conv1.weight", 3),
        }
    }

    /// (B, 784) → (B, 10).
    fn build(self, store: &Store) -> Result<Sequential> {
        let relu = Activation::Relu;
        if self == Arch::Mlp {
            let options = LinearOptions::new()
                .with_weight_init(Init::Normal { mean: 0.0, std: 0.02 })
                .with_bias_init(Init::ZEROS);
            let linear = |name, inputs, outputs| {
                Linear::with_options(&store.at(name), inputs, outputs, options)
            };
            return Ok(Sequential::new()
                .then(linear("fc1", 784, 128)?)
                .then(relu)
                .then(linear("fc2", 128, 10)?));
        }
        Ok(Sequential::new()
            .then(|x: &Tensor| x.reshape((-1, 1, 28, 28))) // (B, 1, 28, 28)
            .then(Conv2d::new(&store.at("conv1"), 1, 8, 3)?) // (B, 8, 26, 26)
            .then(relu)
            .then(MaxPool2d::new(2)) // (B, 8, 13, 13)
            .then(Conv2d::new(&store.at("conv2"), 8, 16, 3)?) // (B, 16, 11, 11)
            .then(relu)
            .then(MaxPool2d::new(2)) // (B, 16, 5, 5)
            .then(Flatten)
            .then(Linear::new(&store.at("fc"), 400, 10)?))
    }
}

/// The result of some milliseconds of training.
pub struct Progress {
    /// The losses of the steps.
    pub losses: Vec<f32>,
    /// The share of the test images that are classified correctly, if an epoch has ended.
    pub accuracy: Option<f64>,
}

/// A run: network, optimizer, data and position.
pub struct Digits {
    arch: Arch,
    data: Rc<Mnist>,
    store: Store,
    model: Sequential,
    optimizer: Box<dyn Optimizer>,
    losses: Losses,
    position: Position,
    /// The images of this epoch.
    order: Vec<usize>,
    /// The test images (360, 784) and their digits (360).
    test: (Tensor, Tensor),
}

impl Digits {
    /// A run of `arch` from its first step.
    ///
    /// # Errors
    /// If the device fails.
    pub fn new(arch: Arch, lr: f64, data: Rc<Mnist>, device: &DeviceRef) -> Result<Digits> {
        manual_seed(SEED);
        let store = Store::new(device);
        let model = arch.build(&store)?;
        let optimizer: Box<dyn Optimizer> = match arch {
            Arch::Mlp => Box::new(Sgd::new(store.trainable(), lr)),
            Arch::Cnn => Box::new(Adam::new(store.trainable(), lr)),
        };
        let test = data.test.on(device).all()?;
        let order = order(&data, 0, arch)?;
        let (losses, position) = (Losses::new().every(usize::MAX), Position::default());
        Ok(Digits { arch, data, store, model, optimizer, losses, position, order, test })
    }

    /// The network.
    pub fn arch(&self) -> Arch {
        self.arch
    }

    /// Steps and whole epochs taken.
    pub fn position(&self) -> Position {
        self.position
    }

    /// The number of parameters.
    pub fn parameters(&self) -> usize {
        self.store.count()
    }

    /// The learning rate.
    pub fn lr(&self) -> f64 {
        self.optimizer.lr()
    }

    /// Sets the learning rate.
    pub fn set_lr(&mut self, lr: f64) {
        self.optimizer.set_lr(lr);
    }

    /// Trains until `budget` has passed or an epoch ends, one step at least. The losses of all
    /// steps are read in one go.
    ///
    /// # Errors
    /// If the device fails or a loss is not finite.
    pub async fn train(&mut self, budget: Duration) -> Result<Progress> {
        let start = Instant::now();
        let mut ended = false;
        while !ended {
            self.step()?;
            self.store.device().ready_async().await?;
            ended = self.advance()?;
            if start.elapsed() >= budget {
                break;
            }
        }
        let losses = self.read_losses().await?;
        let accuracy = if ended { Some(self.accuracy().await?) } else { None };
        Ok(Progress { losses, accuracy })
    }

    /// Takes `count` steps, across epochs and without tests, and reads their losses in one go.
    ///
    /// # Errors
    /// As [`Digits::train`].
    pub async fn steps(&mut self, count: usize) -> Result<Vec<f32>> {
        for _ in 0..count {
            self.step()?;
            self.store.device().ready_async().await?;
            self.advance()?;
        }
        self.read_losses().await
    }

    /// The losses since the last call. They do not pile up here.
    async fn read_losses(&mut self) -> Result<Vec<f32>> {
        let read = self.losses.read_async().await?;
        let losses = read.iter().map(|(_, loss)| *loss as f32).collect();
        self.losses = Losses::new().every(usize::MAX).from_step(self.position.step);
        Ok(losses)
    }

    fn step(&mut self) -> Result<()> {
        let (from, size) = (self.position.batch * self.arch.batch(), self.arch.batch());
        let indices = &self.order[from..(from + size).min(self.order.len())];
        let images = self.data.train.on(self.store.device());
        let (x, targets) = images.batch(indices, self.position.epoch)?; // (B, 784), (B)
        let loss = cross_entropy(&self.model.forward(&x)?, &targets)?; // ()
        self.optimizer.step(&loss.backward()?)?;
        self.losses.push(&loss)?;
        Ok(())
    }

    /// Goes on to the next batch; true if that is in the next epoch.
    fn advance(&mut self) -> Result<bool> {
        self.position.step += 1;
        self.position.batch += 1;
        let ended = self.position.batch * self.arch.batch() >= self.order.len();
        if ended {
            self.position.batch = 0;
            self.position.epoch += 1;
            self.order = order(&self.data, self.position.epoch, self.arch)?;
        }
        Ok(ended)
    }

    /// The share of the test images that are classified correctly.
    ///
    /// # Errors
    /// If the device fails.
    pub async fn accuracy(&self) -> Result<f64> {
        let logits = no_grad(|| self.model.forward(&self.test.0))?; // (360, 10)
        let correct = accuracy_async(&logits, &self.test.1).await?;
        Ok(correct as f64 / self.data.test.len() as f64)
    }

    /// The probability of each digit for an image of 28 x 28 with ink from 0 to 1.
    ///
    /// # Errors
    /// If the image has another size, or the device fails.
    pub async fn predict(&self, image: &[f32]) -> Result<Vec<f32>> {
        let x = Tensor::from_vec(image.to_vec(), (1, 784), self.store.device())?; // (1, 784)
        let p = no_grad(|| self.model.forward(&x)?.softmax(-1))?; // (1, 10)
        p.to_vec_async().await
    }

    /// The weights of the first layer, picture by picture, and the side of a picture.
    ///
    /// # Errors
    /// If the device fails.
    pub async fn pictures(&self) -> Result<(Vec<f32>, usize)> {
        let (name, side) = self.arch.first_layer();
        let weight = self.store.get(name)?.value(); // (128, 784) or (8, 1, 3, 3)
        Ok((weight.to_vec_async().await?, side))
    }

    /// A checkpoint file of this moment.
    ///
    /// # Errors
    /// If the device fails, or a weight is NaN or infinite.
    pub async fn save(&self) -> Result<Vec<u8>> {
        let mut checkpoint = Checkpoint::new();
        let (key, value) = file::UNSEALED;
        let page = State::default().with("arch", self.arch.name()).with(key, value);
        checkpoint.put("page", &page)?;
        checkpoint.put("model", &self.store)?.put("optimizer", &self.optimizer)?;
        checkpoint.put("random", &Random)?.put("position", &self.position)?;
        file::seal(checkpoint.to_bytes_async().await?)
    }

    /// The run that [`Digits::save`] has saved.
    ///
    /// # Errors
    /// If the file is damaged, or of another program, or has weights that are NaN or infinite; the
    /// message says what is wrong with it.
    pub fn load(file: Vec<u8>, data: Rc<Mnist>, device: &DeviceRef) -> Result<Digits> {
        file::verify(&file)?;
        let checkpoint = Checkpoint::from_bytes(file, device)?;
        let arch = Arch::named(&checkpoint.part("page")?.get::<String>("arch")?)?;
        let mut run = Digits::new(arch, 0.1, data, device)?;
        checkpoint.restore("model", &mut run.store)?.restore("optimizer", &mut run.optimizer)?;
        checkpoint.restore("random", &mut Random)?.restore("position", &mut run.position)?;
        run.order = order(&run.data, run.position.epoch, arch)?;
        if run.position.batch * arch.batch() >= run.order.len() {
            let batch = run.position.batch;
            return Err(Error::format(format!("the checkpoint is at batch {batch} of an epoch"))
                .help("the file is of a run on other data"));
        }
        if !(run.lr().is_finite() && run.lr() > 0.0) {
            return Err(Error::format(format!("the checkpoint has learning rate {}", run.lr())));
        }
        run.losses = Losses::new().every(usize::MAX).from_step(run.position.step);
        Ok(run)
    }
}

/// The order of the training images in `epoch`.
fn order(data: &Mnist, epoch: u64, arch: Arch) -> Result<Vec<usize>> {
    let loader = DataLoader::new(data.train.on(teeny_core::Reference::new()), arch.batch())?;
    Ok(loader.shuffle(SEED).order(epoch))
}
