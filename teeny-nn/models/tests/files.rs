//! Models of files under an allocator that counts: damaged configurations, and models that are
//! larger than memory.

#[path = "../../tests/common/mod.rs"]
mod common;
mod damaged_configurations;
#[path = "../../formats/tests/common/memory.rs"]
mod files;
mod gguf_written;
