//! Everything that a training program imports: `use teeny_nn::prelude::*`.
//!
//! # Example
//! ```
//! use teeny_nn::prelude::*;
//!
//! # fn main() -> Result<()> {
//! let store = Store::new(&Autograd::new(device("cpu")?));
//! let model = Linear::new(&store.at("fc"), 3, 1)?;
//! let mut sgd = Sgd::new(store.trainable(), 0.1);
//! let x = Tensor::ones((4, 3), DType::F32, store.device())?; // (4, 3)
//! let loss = model.forward(&x)?.square()?.mean_all()?; // ()
//! sgd.step(&loss.backward()?)
//! # }
//! ```

pub use crate::data::{DataLoader, Dataset};
pub use crate::loss::{Reduction, bce_with_logits, cross_entropy, mse};
pub use crate::optim::{Adam, Optimizer, Sgd, clip_norm};
pub use crate::{
    Activation, BatchNorm, Conv2d, Dropout, Embedding, Flatten, Init, LayerNorm, Linear, MaxPool2d,
    Module, Schedule, Sequential, Store, device,
};
pub use teeny_autograd::{Autograd, Grad, no_grad};
pub use teeny_core::{DType, DeviceRef, Error, Result, Tensor, manual_seed};
