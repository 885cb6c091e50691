//! The integration tests of this crate in one program, since linking takes much of a test's time.
//! Tests that need a separate allocator are a separate program.

mod chat;
#[path = "../../tests/common/mod.rs"]
mod common;
mod encoder_samples;
mod generation;
mod keys;
mod lora;
mod lora_peft;
mod pretrained;
mod pretrained_decoders;
mod pretrained_gguf;
mod pretrained_images;
mod pretrained_saved;
mod pretrained_texts;
mod samples;
