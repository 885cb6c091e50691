//! The integration tests of this crate in one program, since linking takes much of a test's time.
//! Tests of processes, which `mpirun` starts, are a separate program.

mod collectives;
#[path = "../../tests/common/mod.rs"]
mod common;
mod data_parallel;
mod fully_shard;
mod ranks;
mod sync_norm;
mod tensor_parallel;
mod tensor_parallel_state;
