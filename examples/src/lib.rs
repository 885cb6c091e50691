//! What the example programs share: finding their data, and the MNIST example's options.
#![forbid(unsafe_code)]

#[cfg(feature = "download")]
mod download;
pub mod locate;
pub mod options;
