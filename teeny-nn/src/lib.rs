//! Layers, losses, optimizers, data and checkpoints on teeny tensors.
//!
//! A program that trains a perceptron on handwritten digits:
//!
//! ```
//! use teeny_nn::prelude::*;
//!
//! fn main() -> Result<()> {
//!     let device = Autograd::new(device("auto")?); // the CPU or a GPU, with gradients
//!     let store = Store::new(&device); // the parameters, by name
//!     let model = Sequential::new()
//!         .then(Linear::new(&store.at("fc1"), 784, 64)?)
//!         .then(Activation::Relu)
//!         .then(Linear::new(&store.at("fc2"), 64, 10)?);
//!     let mut optimizer = AdamW::new(store.trainable(), 3e-3);
//!     let digits = digits::load()?; // 1,797 digits that are part of the crate
//!     let loader = DataLoader::new(digits.train.on(&device), 64)?.shuffle(1);
//!     for batch in loader.epoch(0) {
//!         let (x, targets) = batch?; // (B, 784), (B)
//!         let loss = cross_entropy(&model.forward(&x)?, &targets)?; // ()
//!         optimizer.step(&loss.backward()?)?;
//!     }
//! #   let mut losses = train::Losses::new();
//! #   for batch in loader.epoch(1) {
//! #       let (x, targets) = batch?;
//! #       losses.push(&cross_entropy(&model.forward(&x)?, &targets)?)?;
//! #   }
//! #   losses.read()?;
//! #   assert!(losses.mean(100) < 1.0, "{}", losses.mean(100));
//!     Ok(())
//! }
//! # use teeny_nn::train;
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`prelude`] | everything that a training program imports |
//! | [`device`](mod@device) | opens a device by name |
//! | here | [`Store`], [`Path`], [`Module`], [`Sequential`], [`Linear`], [`Dropout`], .. |
//! | [`guide`] | from strides to a GPT, jobs, names for users of PyTorch, candle and burn |
//! | [`conv`] [`pool`] | convolution and pooling over one to three axes |
//! | [`norm`] | batch, instance, group, layer and RMS normalisation |
//! | [`recurrent`] | RNN, GRU, LSTM: layers and cells |
//! | [`attention`] | multi-head attention, rotary embedding, key-value cache |
//! | [`transformer`] | encoder and decoder layers, GPT, its captured decoder |
//! | [`init`] | initial weights |
//! | [`loss`] | cross-entropy, squared error and other losses |
//! | [`optim`] | SGD, Adam, AdamW, Muon and other optimizers, gradient clipping, averages |
//! | [`schedule`] | learning rates by step |
//! | [`data`] | data sets, loaders, CSV tables, folders of images, time series, the IDX format |
//! | [`train`] | runs, losses by step, metrics, logs, pictures, early stopping |
//! | [`state`] | checkpoints |
//!
//! The crate [`teeny_formats`] reads and writes files of tensors (safetensors, GGUF, `.npz`,
//! `.pt`). The crate `teeny-models` opens models of Hugging Face and GGUF files, and has LoRA;
//! `teeny-distributed` trains on several processes and machines.
//!
//! Layers have two constructors: `new` with PyTorch's defaults, and `with_options` with an options
//! struct, such as [`conv::Conv2dOptions`]. Parameters have PyTorch's names and layout, so its
//! checkpoints load.
//!
//! Everything is written with [`Tensor`] methods and runs on any device. Tensors are immutable:
//! training replaces the value of a [`Param`].
//!
//! Eleven first programs of at most 120 lines are in the folder `examples`: `regression`, `mnist`,
//! `tables`, `images`, `timeseries`, `characters`, `nanogpt`, `server`, `research`, `own_layer` and
//! `own_device`.
#![forbid(unsafe_code)]

pub mod attention;
pub mod conv;
pub mod device;
mod dropout;
mod embedding;
mod functional;
pub mod guide;
pub mod init;
mod linear;
pub mod loss;
pub mod model_options;
mod module;
pub mod norm;
pub mod optim;
mod options;
pub mod pool;
mod prelu;
pub mod prelude;
mod ranks;
pub mod recurrent;
pub mod schedule;
pub mod state;
pub mod store;
mod summary;
mod track;
pub mod train;
pub mod transformer;

#[doc(inline)]
pub use attention::MultiheadAttention;
#[doc(inline)]
pub use conv::{Conv1d, Conv2d, Conv3d};
pub use device::device;
pub use dropout::Dropout;
#[doc(inline)]
pub use embedding::{Embedding, EmbeddingOptions};
pub use init::Init;
pub use linear::{Linear, LinearOptions};
pub use module::{Activation, Flatten, Module, Sequential};
#[doc(inline)]
pub use norm::{BatchNorm, LayerNorm};
pub use options::PerAxis;
#[doc(inline)]
pub use pool::{AvgPool2d, MaxPool2d};
pub use prelu::{PRelu, PReluOptions};
pub use ranks::SumOverRanks;
#[doc(inline)]
pub use recurrent::{Gru, Lstm, Rnn};
pub use schedule::Schedule;
pub use store::{LoadReport, Param, Path, Store};
pub use summary::{LayerSummary, Summary};
pub use train::Captured;
#[doc(inline)]
pub use transformer::{CachedLm, Gpt, GptConfig};

/// Data sets and loaders: the crate `teeny-data`.
pub use teeny_data as data;

// So that a program needs this crate alone: the arguments of tensors' methods, and the types that a
// program's own layers, operations and devices use. The two crates have the rest.
pub use teeny_autograd::{
    self, Autograd, Check, Function, Grad, Gradients, enable_grad, grad, gradcheck, no_grad,
};
pub use teeny_core::{
    self, Attention, Averaging, BagMode, DType, Device, DeviceInfo, DeviceRef, Distribution, Error,
    ErrorKind, Expr, Extremum, Interpolation, Key, Lazy, LazyOptions, MatrixNorm, Op, Outputs,
    Outside, PadMode, QuantType, QuantileMethod, Reference, Result, Sampling, Scalar,
    ScatterReduce, Shape, Side, SortOrder, StorageRef, Tensor, ToDevice, Triangle, Window, clock,
    context, manual_seed, map, map_n, map_rows, map_sum, permutation, random, registry, wrappers,
};
