//! Layers, losses, optimizers, data and checkpoints on teeny tensors.
//!
//! Everything here is written with `teeny_core::Tensor` methods and knows no backend but by name.
#![forbid(unsafe_code)]

pub mod data;
