//! Everything that a training program imports: `use teeny_nn::prelude::*;`.
//!
//! It has tensors and their types, gradients, devices, the store and its layers, losses,
//! optimizers, schedules, loaders and checkpoints, and the options of each of them. Layers for
//! special purposes are in their modules ([`crate::conv`], [`crate::norm`], ..).
//!
//! # Example
//! A complete program: it trains a perceptron on the digits that are part of the crate.
//! ```
//! use teeny_nn::prelude::*;
//!
//! fn main() -> Result<()> {
//!     manual_seed(1);
//!     let device = Autograd::new(device("auto")?); // the CPU or a GPU, with gradients
//!     let store = Store::new(&device);
//!     let model = Sequential::new()
//!         .then(Linear::new(&store.at("fc1"), 784, 64)?)
//!         .then(Activation::Relu)
//!         .then(Linear::new(&store.at("fc2"), 64, 10)?);
//!     let mut optimizer = AdamW::new(store.trainable(), 3e-3);
//!     let digits = digits::load()?;
//!     let loader = DataLoader::new(digits.train.on(&device), 64)?.shuffle(1);
//!     for epoch in 0..3 {
//!         for batch in loader.epoch(epoch) {
//!             let (x, targets) = batch?; // (B, 784), (B)
//!             let loss = cross_entropy(&model.forward(&x)?, &targets)?; // ()
//!             optimizer.step(&loss.backward()?)?;
//!         }
//!     }
//!     for batch in DataLoader::new(digits.test.on(&device), 360)?.epoch(0) {
//!         let (x, targets) = batch?; // (360, 784), (360)
//!         let correct = accuracy(&no_grad(|| model.forward(&x))?, &targets)?;
//!         println!("test accuracy {:.1} %", 100.0 * correct as f64 / 360.0);
//! #       assert!(correct > 300, "{correct}");
//!     }
//!     store.save(std::env::temp_dir().join("digits.safetensors"))
//! }
//! ```

pub use crate::attention::{MultiheadAttention, MultiheadAttentionOptions};
pub use crate::conv::{
    Conv1d, Conv1dOptions, Conv2d, Conv2dOptions, ConvTranspose2d, ConvTranspose2dOptions,
};
pub use crate::data::{Corpus, DataLoader, Dataset, digits, mnist::Mnist};
pub use crate::device::device;
pub use crate::dropout::Dropout;
pub use crate::embedding::{Embedding, EmbeddingOptions};
pub use crate::init::Init;
pub use crate::linear::{Linear, LinearOptions};
pub use crate::loss::{
    CrossEntropy, Reduction, bce_with_logits, cross_entropy, huber, l1, mse, nll,
};
pub use crate::module::{Activation, Flatten, Module, Sequential};
pub use crate::norm::{
    BatchNorm, BatchNormOptions, GroupNorm, GroupNormOptions, LayerNorm, LayerNormOptions, RmsNorm,
    RmsNormOptions,
};
pub use crate::optim::{
    Adam, AdamW, Ema, Optimizer, ParamGroup, RmsProp, Sgd, clip_grad_norm, clip_grad_norm_async,
    clip_grad_value,
};
pub use crate::pool::{
    AdaptiveAvgPool2d, AvgPool2d, AvgPool2dOptions, MaxPool2d, MaxPool2dOptions,
};
pub use crate::recurrent::{Gru, Lstm, RecurrentOptions, Rnn};
pub use crate::schedule::{Plateau, Schedule};
pub use crate::state::{Checkpoint, Position, Random, Stateful};
pub use crate::store::{Param, Path, Store};
pub use crate::train::{EarlyStopping, Losses, Run, RunOptions, accuracy, accuracy_async};
pub use teeny_autograd::{Autograd, Grad, Gradients, no_grad};
pub use teeny_core::{
    DType, DeviceRef, Error, Key, Result, Tensor, ToDevice, manual_seed, permutation,
};
