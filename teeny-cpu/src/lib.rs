//! teeny crate.
