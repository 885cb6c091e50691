//! The integration tests of this crate in one program, since linking takes much of a test's time.
//! Tests that need a separate process or allocator are separate programs.

mod all_or_nothing;
mod asynchronous;
mod attention;
mod attention_weights;
#[path = "../../teeny-core/tests/support/awaited.rs"]
mod awaited;
mod captured;
mod causal_loss;
#[cfg(feature = "chat")]
mod chat;
mod common;
mod constructors;
mod data_parallel;
mod decoder;
#[path = "../../teeny-core/conformance/tests/third_party/device.rs"]
mod device;
mod distributed;
#[cfg(feature = "pretrained")]
mod encoder_samples;
mod faults;
mod first_programs;
mod functional;
#[cfg(feature = "pretrained")]
mod generation;
mod gradients;
mod guide;
#[cfg(feature = "pretrained")]
mod keys;
mod kv_cache;
mod layers;
mod lazy;
mod lora;
#[cfg(feature = "pretrained")]
mod lora_peft;
mod losses;
mod lr_finder;
mod metrics;
mod mixed_types;
mod norms;
mod optim;
#[cfg(feature = "pretrained")]
mod pretrained;
#[cfg(feature = "pretrained")]
mod pretrained_decoders;
#[cfg(feature = "pretrained")]
mod pretrained_gguf;
#[cfg(feature = "pretrained")]
mod pretrained_images;
#[cfg(feature = "pretrained")]
mod pretrained_saved;
#[cfg(feature = "pretrained")]
mod pretrained_texts;
mod quantized;
mod ranges;
#[cfg(feature = "distributed")]
#[path = "common/ranks.rs"]
mod ranks;
mod recurrent;
mod run;
#[cfg(feature = "chat")]
mod samples;
mod schedules;
mod sequence_lengths;
mod shape_help;
mod silent_failures;
mod special_points;
mod state;
mod summary;
mod sync_norm;
mod tensor_parallel;
mod tensor_parallel_state;
mod third_party;
mod training;
mod windows;
