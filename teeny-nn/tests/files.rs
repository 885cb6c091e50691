//! Readers of files under an allocator that counts: damaged files, files made to harm, and entries
//! that cannot be read.

mod common;
#[path = "common/files.rs"]
mod files;

mod fuzz;
mod gguf;
mod harmful_files;
mod unreadable_entries;
