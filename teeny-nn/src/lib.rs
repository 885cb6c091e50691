//! teeny crate.
#![forbid(unsafe_code)]
