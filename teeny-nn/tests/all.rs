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
mod decoder;
#[path = "../../teeny-core/conformance/tests/third_party/device.rs"]
mod device;
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
mod recurrent;
mod run;
mod schedules;
mod sequence_lengths;
mod shape_help;
mod silent_failures;
mod special_points;
mod state;
mod summary;
mod third_party;
mod training;
mod windows;
