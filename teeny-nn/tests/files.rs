//! Readers and writers of files under an allocator that counts: damaged files, files made to harm,
//! and models that are larger than memory.

mod common;
#[path = "../formats/tests/common/memory.rs"]
mod files;

mod fuzz;
#[cfg(feature = "pretrained")]
mod gguf_written;
mod harmful_files;
