//! What the example programs share: their surroundings ([`Program`]), the options all of them have
//! ([`Common`]), finding their data, and the models that are too many for one file ([`digits`],
//! [`makemore`], [`mod@bench`]).
#![forbid(unsafe_code)]

mod bar;
pub mod bench;
pub mod digits;
#[cfg(feature = "download")]
mod download;
mod files;
#[cfg(feature = "download")]
mod http;
pub mod locate;
pub mod makemore;
pub mod options;
mod program;

pub use bar::Bar;
pub use files::Record;
pub use options::{Common, Parsed};
pub use program::Program;
