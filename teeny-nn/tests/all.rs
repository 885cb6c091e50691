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
mod common;
mod constructors;
mod data_parallel;
mod decoder;
#[path = "../../teeny-core/conformance/tests/third_party/device.rs"]
mod device;
mod distributed;
mod faults;
mod first_programs;
mod functional;
mod gradients;
mod guide;
mod kv_cache;
mod layers;
mod lazy;
mod losses;
mod lr_finder;
mod metrics;
mod mixed_types;
mod norms;
mod optim;
mod quantized;
mod ranges;
#[cfg(feature = "distributed")]
#[path = "common/ranks.rs"]
mod ranks;
mod recurrent;
mod run;
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
