//! The integration tests of this crate in one program: linking is a large part of the time that a
//! test takes. What needs a process or an allocator of its own is a program beside this one.

#[path = "../../teeny-core/tests/support/awaited.rs"]
mod awaited;
mod common;
#[path = "../../teeny-core/tests/third_party/device.rs"]
mod device;
#[cfg(feature = "distributed")]
#[path = "common/ranks.rs"]
mod ranks;

mod all_or_nothing;
mod asynchronous;
mod attention;
mod captured;
mod constructors;
mod data_parallel;
mod decoder;
mod distributed;
mod distributed_cost;
mod faults;
mod foreign_files;
mod formats;
mod functional;
mod generated;
mod gradients;
mod layers;
mod lazy;
mod losses;
mod mixed_types;
mod norms;
mod optim;
mod ranges;
mod recurrent;
mod sampling;
mod schedules;
mod shape_help;
mod silent_failures;
mod special_points;
mod state;
mod sync_norm;
mod tensor_parallel;
mod tensor_parallel_state;
mod text;
mod third_party;
mod tokenizers;
mod training;
mod windows;
