//! What the example programs share: their surroundings ([`Program`]), the options all of them have ([`Common`]), and finding their data.
#![forbid(unsafe_code)]

#[cfg(feature = "download")]
mod download;
mod files;
pub mod locate;
pub mod options;
mod program;

pub use options::{Common, Parsed};
pub use program::Program;
