//! The integration tests of this crate in one program, since linking takes much of a test's time.

#[path = "../../tests/common/mod.rs"]
mod common;
#[path = "common/memory.rs"]
mod files;
mod foreign_files;
mod formats;
mod gguf;
mod mapping;
mod unreadable_entries;
mod weights;
