//! The integration tests of this crate in one program, since linking takes much of a test's time.
//! Tests that need a separate process or allocator are separate programs.

#[path = "support/awaited.rs"]
mod awaited;
#[path = "wrappers/broken.rs"]
mod broken;
mod support;

mod arrangements;
mod asynchronous;
mod attention;
mod capture;
mod display;
#[cfg(target_pointer_width = "64")] // of sizes above 32 bits
mod error_texts;
mod errors;
mod features;
mod files;
mod fusion;
mod groups;
mod index;
mod kernel;
mod lazy;
mod lists;
mod modules;
mod npy;
#[cfg(target_pointer_width = "64")] // of sizes above 32 bits
mod parts;
mod quant;
mod random;
mod ranges;
mod reference;
mod regressions;
mod rows;
mod rules;
mod structure;
mod views;
mod wrappers;
