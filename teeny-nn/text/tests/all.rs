//! The integration tests of this crate in one program, since linking takes much of a test's time.

#[path = "../../tests/common/mod.rs"]
mod common;
mod names;
mod pretrained_tokenizer_damage;
mod pretrained_tokenizer_files;
mod pretrained_tokenizers;
mod sampling;
mod tokenizers;
