//! What the example programs share: finding their data.
#![forbid(unsafe_code)]

#[cfg(feature = "download")]
mod download;
pub mod locate;
