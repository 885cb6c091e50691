//! Readers and writers of files under an allocator that counts: damaged files, and files made to
//! harm.

mod common;
#[path = "../formats/tests/common/memory.rs"]
mod files;

mod fuzz;
mod harmful_files;
